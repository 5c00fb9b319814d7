# SPDX-License-Identifier: Apache-2.0
"""An installed Weft serves a stranger's build: pkg-config, find_package, C and C++; and its tool has
all it needs in itself."""
import contextlib
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import time

import job as jobs
import pytest

EXAMPLES = jobs.ROOT / "examples" / "c"

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
    """Installed with DESTDIR below a prefix that was given then, and moved: no file may name where it was."""
    folder = tmp_path_factory.mktemp("install")
    run("cmake", "--install", jobs.BIN, "--prefix", "/opt/the weft", env={"DESTDIR": str(folder / "stage")})
    prefix = folder / "a moved prefix"
    (folder / "stage" / "opt" / "the weft").rename(prefix)
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
    flags = shlex.split(run("pkg-config", "--cflags", "--libs", "weft", env={"PKG_CONFIG_PATH": str(pc)}))
    run("gcc", source / "c.c", "-o", tmp_path / "plain", *flags, f"-Wl,-rpath,{library}")
    assert "WEFT-E" in run(tmp_path / "plain")
    assert "0.2.0" in run(prefix / "bin" / "weft", "--version")
    run(prefix / "bin" / "weft-worker", "--version")


def test_install__needs_nothing_of_cuda(prefix):
    """Its runtime is part of the library, which finds a driver where there is one."""
    for path in [*(prefix / "bin").iterdir(), *prefix.rglob("libweft.so")]:
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-d", path))
        assert len(needed) > 1
        assert [name for name in needed if "cuda" in name or "nvidia" in name] == []


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


def test_install__names_no_folder_of_the_build_or_of_its_prefix(prefix):
    words = [str(jobs.ROOT), str(jobs.BIN), "/opt/the weft", "/usr/local"]
    files = [*prefix.rglob("*.pc"), *prefix.rglob("*.cmake")]
    assert len(files) >= 4
    assert [(path.name, word) for path in files for word in words if word in path.read_text()] == []


def test_install__links_of_its_documents_lead_to_installed_files(prefix):
    documents = list(prefix.rglob("*.md"))
    assert {"README.md", "install.md", "models.md"} <= {path.name for path in documents}
    for path in documents:
        links = re.findall(r"\]\(([^)#\s]+)", path.read_text())
        assert [link for link in links if "://" not in link and not (path.parent / link).exists()] == [], path


# In the engine's process and for a checkpoint, as their first lines say, with what the user has: Python.
SCRIPTS = {
    "engine_params.py": """
class Weight:
    shape, dtype = (4, 2), "torch.bfloat16"
    numel, element_size = (lambda self: 8), (lambda self: 2)
class Model:
    named_parameters = lambda self: [("head.weight", Weight())]
engine_params.write(Model(), "live.jsonl")
""",
    "layout_file.py": """
file = layout_file.Layout("mine", "tp=1")
file.tensor("head.weight", "BF16", [4, 2])
file.param("head.weight", [layout_file.part("head.weight")])
file.write("mine.json")
""",
}


def test_install__every_program_and_every_script_runs_where_it_was_moved(prefix, tmp_path):
    """Whatever has the right to be run, in a folder of the user's and with nothing in the environment."""
    def moved(*command):
        done = subprocess.run([str(part) for part in command], cwd=tmp_path, capture_output=True, text=True, timeout=60,
                              env={"PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"})
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    found = {path.name: path for path in prefix.rglob("*") if path.is_file() and os.access(path, os.X_OK)}
    found |= {path.name: path for path in prefix.rglob("*.py") if "examples" not in path.parts}
    programs = sorted(path.name for path in (prefix / "bin").iterdir())
    assert sorted(found) == sorted([*programs, *SCRIPTS]) and programs == ["weft", "weft-controller", "weft-worker"]
    for name in programs:
        assert f"usage: {name} " in moved(found[name], "--help").lower()
    verbs = re.findall(r"^  ([a-z]+) +([a-z-]*)  +\S", moved(found["weft"], "--help"), re.M)
    assert {"route", "model", "checkpoint", "doctor", "bench", "key", "explain", "trace", "status"} == {noun for noun, _ in verbs}
    for words in verbs:
        assert f"Usage: weft {' '.join(words).strip()} " in moved(found["weft"], *filter(None, words), "--help")
    for name, use in SCRIPTS.items():
        assert moved(found[name]) == ""  # by itself it does nothing, and fails at nothing
        moved("/usr/bin/python3", "-c", f"import sys; sys.path.insert(0, {str(found[name].parent)!r}); import {name[:-3]}\n{use}")
    assert "1 of 1 parameters equal" in moved(found["weft"], "model", "check", "--model", "./mine.json", "--infer", "tp=1",
                                              "--live", "live.jsonl")


def test_install__its_configs_of_models_are_planned(prefix):
    models = [path.parent for path in (prefix / "share" / "weft" / "deploy" / "models").glob("*/config.json")]
    assert {path.name for path in models} == {path.parent.name for path in (jobs.ROOT / "deploy" / "models").glob("*/config.json")}
    for folder in models:
        run(prefix / "bin" / "weft", "route", "plan", "--model", folder, "--train", "world=2", "--infer", "tp=2")


def test_install__is_removed_by_its_list(tmp_path):
    prefix = tmp_path / "some where"
    run("cmake", "--install", jobs.BIN, "--prefix", prefix)
    shutil.copy(jobs.BIN / "install_manifest.txt", tmp_path)
    assert any(path.is_file() for path in prefix.rglob("*"))
    run("sh", "-c", "tr '\\n' '\\0' <install_manifest.txt | xargs -0 rm --", cwd=tmp_path)
    assert [path for path in prefix.rglob("*") if not path.is_dir()] == []


def test_install__that_was_staged_is_removed_by_the_page_and_one_in_use_stays(tmp_path):
    prefix, stage = tmp_path / "opt" / "weft", tmp_path / "stage"
    run("cmake", "--install", jobs.BIN, "--prefix", prefix, env={"DESTDIR": str(stage)})
    shutil.copy(jobs.BIN / "install_manifest.txt", tmp_path)
    shutil.copytree(stage / prefix.relative_to("/"), prefix, symlinks=True)
    kept = sorted(prefix.rglob("*"))
    line = next(line for line in (jobs.ROOT / "docs" / "install.md").read_text().splitlines() if line.startswith("tr ") and "|/stage|" in line)
    run("sh", "-c", line.replace("build/install/", "").replace("|/stage|", f"|{stage}|"), cwd=tmp_path)
    assert [path for path in stage.rglob("*") if not path.is_dir()] == [] and sorted(prefix.rglob("*")) == kept


def with_make(prefix, source, out):
    pc = next(prefix.rglob("weft.pc")).parent
    run("make", f"OUT={out}", cwd=source, env={"PKG_CONFIG_PATH": str(pc)})


def with_cmake(prefix, source, out):
    run("cmake", "-S", source, "-B", out, f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", out)


@pytest.mark.parametrize("build", [with_make, with_cmake])
def test_examples__are_built_from_what_is_installed_and_run(prefix, tmp_path, build):
    """examples/c, as it is installed, in a folder of the user's: two trainers, an engine with a reader."""
    source, out = tmp_path / "examples", tmp_path / "out"
    shutil.copytree(next(prefix.rglob("examples")) / "c", source)
    assert {path.name for path in source.iterdir()} == {path.name for path in EXAMPLES.iterdir()}
    build(prefix, source, out)
    port, commands = tmp_path / "port", [("trainer", 0, 3), ("trainer", 1, 3), ("engine", 3)]
    with contextlib.ExitStack() as stack:
        def start(*command):
            process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, text=True)
            stack.callback(process.kill)
            return process
        controller = start(prefix / "bin" / "weft-controller", "--train", "world=2", "--infer", "engines=1,tp=1",
                           "--bind", "tcp://127.0.0.1:0", "--port-file", port)
        while not (port.exists() and port.read_text()):
            assert controller.poll() is None
            time.sleep(0.01)
        address = f"tcp://127.0.0.1:{port.read_text().strip()}"
        started = [start(out / name, address, *words) for name, *words in commands]
        said = [(process.communicate(timeout=60), process.returncode) for process in [*started, controller]]
    assert [code for _, code in said] == [0, 0, 0, 0], said
    assert "trainer 0: sent versions 1 to 3" in said[0][0][0]
    assert said[2][0][0].splitlines() == [f"engine: version {v} is here" for v in (1, 2, 3)] + \
        ["engine: the reader read version 3 whole, 0 reads were wrong"]


def test_installed_programs__have_no_transport_of_tests(prefix):
    """mock and fault are of tests; who asks a release for failures is told that there are none."""
    for name in ("mock", "fault"):
        done = jobs.weft("bench", "write", "--local", "--transport", name, "--sizes", "4K", check=False,
                         program=prefix / "bin" / "weft")
        assert done.returncode == 78, done.stderr
        known = re.search(rf"no transport provider '{name}' in this build; there are: (.*)", done.stderr).group(1)
        assert not {"mock", "fault"} & set(known.split(", ")) and "shm" in known.split(", ")
    worker = [prefix / "bin" / "weft-worker", "--controller", "tcp://127.0.0.1:9", "--role", "inference", "--rank", "0",
              "--model", "Qwen2.5-0.5B", "--train", "world=1", "--infer", "tp=1"]
    for command in (worker, [prefix / "bin" / "weft", "bench", "write", "--local", "--transport", "shm"]):
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=60,
                              env={**os.environ, "WEFT_FAULT": "inner=shm,op=post_write,at=3"})
        assert done.returncode == 78 and "WEFT_FAULT is 'inner=shm" in done.stderr, done.stderr
        assert "unset it" in done.stderr
