# SPDX-License-Identifier: Apache-2.0
"""An installed Weft serves a stranger's build: pkg-config, find_package, C and C++."""
import os
import subprocess

import job as jobs

PROGRAM = """
#include <stdio.h>
#include <weft.h>
int main(void)
{
	weft_worker *worker = NULL;
	weft_error error;
	weft_options options = {};

	options.size = sizeof(options);
	if (weft_open(&worker, &options, &error) == 0)
		return 1; /* no controller was given */
	printf("%s: WEFT-E%d %s\\n", weft_version_text(), error.code, error.text);
	return 0;
}
"""
LISTS = """
cmake_minimum_required(VERSION 3.25)
project(consumer C CXX)
find_package(weft 0.1 CONFIG REQUIRED)
add_executable(c c.c)
target_link_libraries(c weft::weft)
add_executable(cxx cxx.cc)
target_link_libraries(cxx weft::weft)
"""


def run(*command, cwd=None, env=None):
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True,
                          env={**os.environ, **(env or {})}, timeout=120)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def test_install__serves_cmake_and_pkg_config(tmp_path):
    prefix, source = tmp_path / "prefix", tmp_path / "source"
    run("cmake", "--install", jobs.BIN, "--prefix", prefix)
    source.mkdir()
    for name in ("c.c", "cxx.cc"):
        (source / name).write_text(PROGRAM)
    (source / "CMakeLists.txt").write_text(LISTS)
    run("cmake", "-S", source, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", tmp_path / "build")
    for name in ("c", "cxx"):
        assert "WEFT-E" in run(tmp_path / "build" / name)
    pc = next(prefix.rglob("weft.pc")).parent
    library = next(prefix.rglob("libweft.so")).parent
    flags = run("pkg-config", "--cflags", "--libs", "weft", env={"PKG_CONFIG_PATH": str(pc)}).split()
    # the prefix of the .pc file is that of configure time; the installed tree is elsewhere here
    run("gcc", source / "c.c", "-o", tmp_path / "plain", f"-I{prefix}/include", f"-L{library}", *flags[-1:],
        f"-Wl,-rpath,{library}")
    assert "WEFT-E" in run(tmp_path / "plain")
    assert "0.1.0" in run(prefix / "bin" / "weft", "--version")
    run(prefix / "bin" / "weft-worker", "--version")
