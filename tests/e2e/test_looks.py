# SPDX-License-Identifier: Apache-2.0
"""What the programs look like to who sits before them: names as people write them, progress where a terminal
shows it and nowhere else, quiet where it was asked for, and what a killed run left behind."""
import concurrent.futures
import contextlib
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import time
import unicodedata

import job as jobs
import pytest
import test_live

ROUTE = ["--train", "world=2", "--infer", "tp=2"]


def weft(*words, cwd=None, code=0, **env):
    done = subprocess.run([jobs.WEFT, *map(str, words)], capture_output=True, text=True, timeout=120, cwd=cwd,
                          env={**os.environ, **env})
    assert done.returncode == code, f"exit {done.returncode}: {done.stdout}{done.stderr}"
    return done


def on_a_terminal(*words, cwd=None):
    """What a command writes to a terminal on its standard error; standard output is no part of it."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([jobs.WEFT, *map(str, words)], stderr=theirs, stdout=subprocess.DEVNULL, cwd=cwd)
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

def test_progress__is_for_terminals_alone(models):
    words = ("route", "compare", "--model", "Qwen2.5-0.5B", *ROUTE)
    assert weft(*words).stderr == ""
    said = on_a_terminal(*words)
    assert "planning by greedy ..\033[K" in said and said.endswith("\r\033[K")
    assert on_a_terminal(*words, "-q") == ""
    first = on_a_terminal("route", "simulate", "--published", "--row", json.loads(
        (jobs.ROOT / "routing/lab/scenarios/published.json").read_text())["scenarios"][0]["name"])
    assert re.search(r"run 1 of 1, .*: balanced, rounds \.\.", first), first
    bench = ("bench", "update", "--model", "./qwen2", "--train", "world=1", "--infer", "tp=1", "--updates", "1")
    assert "making contents, then update 1 of" in on_a_terminal(*bench, cwd=models["qwen2"].parent)
    assert on_a_terminal(*bench, "-q", cwd=models["qwen2"].parent) == ""


TALKATIVE = {"plan": ("route plan --model ./qwen2 --train world=2 --infer tp=2", "planning ./qwen2 by greedy .."),
             "update": ("bench update --model ./qwen2 --train world=1 --infer tp=1 --updates 1", "update 1 of 1"),
             "memory": ("model plan-memory --model ./qwen2 --train world=2 --infer tp=2", "planning ")}


@pytest.mark.parametrize("command", TALKATIVE)
def test_progress__of_one_command_is_on_a_terminal_and_in_no_pipe_and_no_file(models, tmp_path, command):
    words, step = TALKATIVE[command]
    said = on_a_terminal(*words.split(), cwd=models["qwen2"].parent)
    assert step in said and said.endswith("\r\033[K"), said
    assert weft(*words.split(), cwd=models["qwen2"].parent).stderr == ""
    with open(tmp_path / "said", "w") as file:
        subprocess.run([jobs.WEFT, *words.split()], stdout=subprocess.DEVNULL, stderr=file, check=True, timeout=60,
                       cwd=models["qwen2"].parent)
    assert (tmp_path / "said").read_text() == ""


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

def seen(columns, *words, cwd=None):
    """What a command shows on a terminal so wide."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([jobs.WEFT, *map(str, words)], stdout=theirs, stderr=subprocess.PIPE, cwd=cwd,
                               env={**os.environ, "COLUMNS": str(columns), "NO_COLOR": "1", "WEFT_NIC": "lo"})
    os.close(theirs)
    text = b""
    with contextlib.suppress(OSError):  # the other side is closed
        while part := os.read(ours, 65536):
            text += part
    os.close(ours)
    said = process.communicate(timeout=60)[1]
    assert process.returncode in (0, 1) and not said, said.decode()  # 1: diff's answer
    return text.decode().replace("\r\n", "\n").splitlines()


def width(line):
    """Columns that a terminal needs for it."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)


LONG = "eth-with-a-name-as-only-virtual-functions-in-containers-of-hosts-have-them-0"


@pytest.fixture(scope="module")
def shown_job(tmp_path_factory):
    """A model with long names, two plans of it, and a topology whose hosts and NICs have long names, and names
    in letters of two columns."""
    folder = tmp_path_factory.mktemp("looks")
    jobs.make_model(folder, "deepseek-fp8")
    weft("checkpoint", "make", "./deepseek-fp8", "checkpoint-of-" + LONG, cwd=folder)
    spec = weft("route", "topology", "--train", "world=4", "--infer", "engines=2,tp=2", "--topology", "per_host=4,nics=4,gbps=400,uplink_gbps=800",
                "--json", cwd=folder).stdout
    spec = re.sub(r'"host (\d)"', rf'"\1-host-計算機-{LONG}"', spec)
    (folder / "cluster.json").write_text(re.sub(r'"nic (\d)"', rf'"nic \1 {LONG}"', spec))
    for name, policy in (("a", "greedy"), ("b", "first-holder")):
        weft("route", "plan", *JOB, "--topology", "./cluster.json", "--policy", policy, "--output", f"{name}.json", cwd=folder)
    weft("route", "plan", *JOB, "--transport", "shm,tcp", "--output", "pairs.json", cwd=folder)
    return folder


JOB = ("--model", "./deepseek-fp8", "--train", "world=4", "--infer", "engines=2,tp=2")
SHOWN = ["model layout ./deepseek-fp8 --infer tp=2", "model layout ./deepseek-fp8 --infer tp=2 --derived", "model plan-memory JOB",
         "checkpoint show ./checkpoint-of-LONG", "route plan JOB --topology ./cluster.json --policy round-robin-affinity",
         "route show a.json --by trainer", "route show a.json --by tensor", "route show a.json --by nic", "route show pairs.json --by transport",
         "route verify a.json --model ./deepseek-fp8", "route explain JOB --tensor model.norm.weight --inference 1",
         "route compare JOB --simulate --topology ./cluster.json", "route topology --train world=4 --infer engines=2,tp=2 --topology ./cluster.json",
         "route simulate JOB --topology ./cluster.json", "route simulate --published --row GLM-Z1-9B", "route order JOB --top 20",
         "route diff a.json b.json", "doctor --transport shm", "bench update --model ./deepseek-fp8 --train world=1 --infer tp=1 --updates 2",
         "bench write --local --transport shm --sizes 4K --iterations 9", "--help"]


@pytest.mark.parametrize("command", SHOWN)
def test_table__fits_terminals_of_80_120_and_200_and_is_whole_elsewhere(shown_job, command):
    words = [part for word in command.split() for part in (JOB if word == "JOB" else [word.replace("LONG", LONG)])]
    sizes = (80, 120, 200)
    with concurrent.futures.ThreadPoolExecutor(3) as pool:  # they wait more than they work
        narrow = dict(zip(sizes, pool.map(lambda columns: seen(columns, *words, cwd=shown_job), sizes)))
    for columns, lines in narrow.items():
        longest = max(lines, key=width)
        assert width(longest) <= columns, longest
    if command.startswith(("bench", "doctor")):
        return  # what is timed differs from run to run
    piped = subprocess.run([jobs.WEFT, *words], cwd=shown_job, capture_output=True, text=True, env={**os.environ, "COLUMNS": "80"}).stdout.splitlines()
    if max(map(width, piped)) <= 200:
        assert [line.split() for line in narrow[200]] == [line.split() for line in piped]
    words, lines = " ".join(piped), " ".join(narrow[80])
    if ".." not in lines:  # nothing was cut: nothing is lost
        assert set(re.findall(r"\d+", words)) == set(re.findall(r"\d+", lines))


def test_names__are_cut_in_the_middle_and_nothing_is_cut_for_programs(shown_job):
    name = "model.layers.2.mlp.shared_experts.gate_proj.weight_scale_inv"
    assert name in weft("route", "show", "a.json", "--by", "tensor", "--top", "0", cwd=shown_job).stdout
    lines = "\n".join(seen(80, "route", "show", "a.json", "--by", "tensor", "--top", "0", cwd=shown_job))
    assert name not in lines and re.search(r" model\.layers\.2\.\S*\.\.\S*weight_scale_inv$", lines, re.M)
    for words in (("route", "show", "a.json", "--by", "nic", "--json"), ("route", "export", "a.json", "--format", "csv"),
                  ("doctor", "--json", "--transport", "shm")):
        assert max(width(line) for line in seen(80, *words, cwd=shown_job)) > 80


def test_lists__of_names_fit_a_terminal_and_are_whole_elsewhere(tmp_path):
    jobs.make_model(tmp_path, "deepseek-fp8")
    for words in (("model", "tensors", "./deepseek-fp8"), ("checkpoint", "show", "./deepseek-fp8"),
                  ("model", "list")):
        whole = weft(*words, cwd=tmp_path, COLUMNS="80").stdout.splitlines()
        assert max(len(line) for line in whole) > 90
        sizes = (80, 100, 200)
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            screens = list(pool.map(lambda columns: seen(columns, *words, cwd=tmp_path), sizes))
        for columns, rows in zip(sizes, screens):
            table = [row for row in rows if re.search(r"\d,\d{3}|\d$", row) and not row.startswith("/")
                     and " tensors" not in row]
            assert len(table) > 20 and max(len(row) for row in table) <= columns, max(table, key=len)
            assert len(rows) == len(whole)


def test_progress__is_one_line_of_the_terminal(tmp_path):
    folder = tmp_path / ("a-model-in-a-folder-with-a-name-that-is-much-longer-than-any-terminal-is-wide" * 2)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(jobs.CONFIGS["llama"]))
    said = on_a_terminal("route", "plan", "--model", folder, *ROUTE)
    assert "planning " in said and max(len(part.replace("\033[K", "")) for part in said.split("\r")) < 80, said
