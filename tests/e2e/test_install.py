# SPDX-License-Identifier: Apache-2.0
"""An installed Weft serves a stranger's build: pkg-config, find_package, C and C++; and its tool has
all it needs in itself."""
import json
import os
import pathlib
import subprocess

import job as jobs
import pytest

PROGRAM = """
#include <stdio.h>
#include <weft.h>
#include <weft_play.h>
int main(void)
{
	weft_worker *worker = NULL;
	weft_error error = WEFT_ERROR_INIT;
	weft_options options = WEFT_OPTIONS_INIT;

	options.role = WEFT_TRAINER;
	if (weft_open(&worker, &options, &error) == 0)
		return 1; /* no controller was given */
	printf("%s: WEFT-E%d %s\\n", weft_version_text(), error.code, error.text);
	return 0;
}
"""
LISTS = """
cmake_minimum_required(VERSION 3.25)
project(consumer C CXX)
find_package(weft 0.2 CONFIG REQUIRED)
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


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    prefix = tmp_path_factory.mktemp("installed")
    run("cmake", "--install", jobs.BIN, "--prefix", prefix)
    return prefix


def test_install__serves_cmake_and_pkg_config(prefix, tmp_path):
    source = tmp_path / "source"
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
    assert "0.2.0" in run(prefix / "bin" / "weft", "--version")
    run(prefix / "bin" / "weft-worker", "--version")


def test_install__has_the_schemas_and_the_scenarios_of_the_source(prefix):
    root = pathlib.Path(__file__).resolve().parents[2]
    for folders in (("routing/report/schema", "model/schema"), ("routing/lab/scenarios",)):
        installed = prefix / "share" / "weft" / pathlib.Path(folders[0]).name
        sources = {path.name: path for folder in folders for path in (root / folder).iterdir()}
        assert sorted(path.name for path in installed.iterdir()) == sorted(sources)
        for path in installed.iterdir():
            assert path.read_bytes() == sources[path.name].read_bytes()


def test_install__the_tool_needs_no_file_beside_it(prefix, tmp_path):
    """Page and scenarios are in the tool: in a folder of its own it still has them."""
    weft = tmp_path / "bin" / "weft"
    weft.parent.mkdir()
    weft.write_bytes((prefix / "bin" / "weft").read_bytes())
    weft.chmod(0o755)
    report = tmp_path / "report.html"
    run(weft, "route", "export", "--model", "Qwen2.5-0.5B", "--train", "world=2", "--infer", "tp=2",
        "--format", "html", "--output", report, cwd=tmp_path)
    text = report.read_text()
    assert text.startswith("<!doctype html>") and "{{" not in text and "Content-Security-Policy" in text
    with subprocess.Popen([weft, "route", "simulate", "--published", "--json"], cwd=tmp_path, text=True,
                          stdout=subprocess.PIPE) as process:
        row = json.loads(process.stdout.readline())
        process.kill()  # seven more follow, the largest for seconds
    assert row["simulated"][0]["makespan_seconds"] >= row["bound_seconds"] > 0
