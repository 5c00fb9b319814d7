# SPDX-License-Identifier: Apache-2.0
"""What the programs look like to who sits before them: names as people write them, progress where a terminal
shows it and nowhere else, quiet where it was asked for, and what a killed run left behind."""
import contextlib
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import time

import job as jobs
import test_live

ROUTE = ["--train", "world=2", "--infer", "tp=2"]


def weft(*words, cwd=None, code=0, **env):
    done = subprocess.run([jobs.WEFT, *map(str, words)], capture_output=True, text=True, timeout=120, cwd=cwd,
                          env={**os.environ, **env})
    assert done.returncode == code, f"exit {done.returncode}: {done.stdout}{done.stderr}"
    return done


def on_a_terminal(*words):
    """What a command writes to a terminal on its standard error; standard output is no part of it."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([jobs.WEFT, *map(str, words)], stderr=theirs, stdout=subprocess.DEVNULL)
    os.close(theirs)
    said = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # the other side is closed
            break
        if not part:
            break
        said += part
    os.close(ours)
    assert process.wait(timeout=60) == 0, said
    return said.decode()


# ---- names ----

def test_model__of_a_folder_here_needs_no_slash(models, tmp_path):
    shutil.copytree(models["llama"], tmp_path / "llama")
    by_name = weft("model", "tensors", "llama", cwd=tmp_path).stdout
    assert by_name == weft("model", "tensors", "./llama", cwd=tmp_path).stdout
    assert "llama from 2 trainers" in weft("route", "plan", "--model", "llama", *ROUTE, cwd=tmp_path).stdout


def test_model__that_is_built_in_is_not_hidden_by_a_folder(models, tmp_path):
    shutil.copytree(models["llama"], tmp_path / "qwen2.5-0.5b")
    assert weft("model", "tensors", "qwen2.5-0.5b", cwd=tmp_path).stdout == \
        weft("model", "tensors", "Qwen2.5-0.5B").stdout
    said = weft("model", "tensors", "lama", cwd=tmp_path, code=78).stderr
    assert "no built-in model is called 'lama'" in said and "no folder, config.json or layout file lama here" in said


def test_dtypes__of_a_live_engine_are_read_in_any_case(models, tmp_path):
    rows = test_live.engine(f"{models['qwen3']}/", "tp=1")
    spellings = (str.lower, str.upper, str.title)
    spelt = [{**row, "dtype": spellings[i % 3](row["dtype"])} for i, row in enumerate(rows)]
    assert len({row["dtype"] for row in spelt}) >= 3
    done = test_live.check(tmp_path, models["qwen3"], "tp=1", test_live.lines(spelt))
    assert done.returncode == 0, done.stdout + done.stderr


# ---- progress and quiet ----

def test_progress__is_for_terminals_alone():
    words = ("route", "compare", "--model", "Qwen2.5-0.5B", *ROUTE)
    assert weft(*words).stderr == ""
    said = on_a_terminal(*words)
    assert "planning by greedy ..\033[K" in said and said.endswith("\r\033[K")
    assert on_a_terminal(*words, "-q") == ""
    first = on_a_terminal("route", "simulate", "--published", "--row", json.loads(
        (jobs.ROOT / "routing/lab/scenarios/published.json").read_text())["scenarios"][0]["name"])
    assert re.search(r"run 1 of 1, .*: balanced, rounds \.\.", first), first


def test_quiet__leaves_results_and_what_failed(models, tmp_path):
    with jobs.Job(tmp_path, models["qwen2"], "world=1,source=gathered", "tp=1") as job:
        job.controller("-q")
        job.workers("--quiet", updates=1)
        job.succeed()
        assert [process.stderr for process in job.processes.values()] == [""] * 3
        assert all(job.processes[name].stdout for name in ("trainer-0", "inference-0"))
    assert "WEFT-E" in weft("model", "tensors", "./nowhere", "-q", code=1).stderr


# ---- what a killed run left ----

def killed(folder):
    """A `checkpoint make` that was killed in the middle; what it left."""
    left = folder / ".big.weft-partial"
    process = subprocess.Popen([jobs.WEFT, "checkpoint", "make", "Qwen2.5-7B", folder / "big"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not list(left.glob("*.safetensors")):
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    return left


def test_half_a_checkpoint__is_named_with_its_size_and_removed_only_on_request(tmp_path):
    left = killed(tmp_path)
    for words, code in ((("make", "Qwen2.5-0.5B", tmp_path / "big"), 1), (("show", tmp_path / "big"), 1),
                        (("verify", tmp_path / "big"), 1)):
        said = weft("checkpoint", *words, code=code).stderr
        assert f"rm -r -- '{left}'" in said and re.search(r"\([\d.,]+ [kMG]?B\)|\(\d+ bytes?\)", said), said
        assert "--force" in said and left.exists()
    for words in (("show", left), ("verify", left), ("show", next(left.glob("*.safetensors")))):
        assert "half a checkpoint" in weft("checkpoint", *words, code=1).stderr
    source = tmp_path / "config"
    source.mkdir()
    (source / "config.json").write_text(json.dumps(jobs.CONFIGS["llama"]))
    weft("checkpoint", "make", source / "config.json", tmp_path / "big", "--force")
    assert not left.exists() and (tmp_path / "big" / "config.json").exists()


# ---- tables ----

def test_lists__of_names_fit_a_terminal_and_are_whole_elsewhere(tmp_path):
    jobs.make_model(tmp_path, "deepseek-fp8")
    for words in (("model", "tensors", f"{tmp_path}/deepseek-fp8"), ("checkpoint", "show", f"{tmp_path}/deepseek-fp8"),
                  ("model", "list")):
        whole = weft(*words, COLUMNS="80").stdout.splitlines()
        assert max(len(line) for line in whole) > 90
        for columns in (80, 100, 200):
            ours, theirs = pty.openpty()
            process = subprocess.Popen([jobs.WEFT, *words], stdout=theirs, env={**os.environ, "COLUMNS": str(columns)})
            os.close(theirs)
            text = b""
            with contextlib.suppress(OSError):  # the other side is closed
                while part := os.read(ours, 4096):
                    text += part
            os.close(ours)
            assert process.wait(timeout=60) == 0
            rows = text.decode().replace("\r\n", "\n").splitlines()
            table = [row for row in rows if re.search(r"\d,\d{3}|\d$", row) and not row.startswith("/")
                     and " tensors" not in row]
            assert len(table) > 20 and max(len(row) for row in table) <= columns, max(table, key=len)
            assert len(rows) == len(whole)
