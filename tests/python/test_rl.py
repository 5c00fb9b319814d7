# SPDX-License-Identifier: Apache-2.0
"""The example that learns, in its short form: six steps each way."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

RL = pathlib.Path(__file__).resolve().parents[2] / "examples/rl"
SOAK = bool(os.environ.get("WEFT_SOAK"))
SAME = ("reward", "loss", "gradient_norm", "samples", "sample_versions")


def command(out, *arguments):
    return [sys.executable, str(RL / "run.py"), "--short", "--out", str(out), *arguments]


def rows(folder):
    file = folder / "steps.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_both_ways__give_the_same_numbers_and_a_picture(tmp_path):
    done = subprocess.run(command(tmp_path), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the same numbers in all 6 steps" in done.stdout
    weft, broadcast = rows(tmp_path / "weft"), rows(tmp_path / "broadcast")
    assert len(weft) == len(broadcast) == 6
    for mine, theirs in zip(weft, broadcast):
        assert [mine[name] for name in SAME] == [theirs[name] for name in SAME]
        assert set(mine["sample_versions"]) == {mine["step"]} and mine["staleness"] == 0
    assert len({row["loss"] for row in weft}) == 6 == len({row["samples"] for row in weft})  # the weights changed
    assert (tmp_path / "rl.png").read_bytes()[:4] == b"\x89PNG" and (tmp_path / "rl.png").stat().st_size > 20_000
    assert json.loads((tmp_path / "weft/routing.json").read_text())["routes"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of gpt2 under DDP over tcp, one version behind; broadcast is what the other test has."""
    out = tmp_path_factory.mktemp("rl")
    done = subprocess.run(command(out, "--sync", "weft", "--model", "gpt2", "--parallel", "ddp", "--lag", "1", "--steps", "3",
                                  "--engines", "1", "--transport", "tcp"), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return rows(out / "weft")


def test_a_layout_that_weft_does_not_know__learns_one_version_behind(finished):
    assert [row["staleness"] for row in finished] == [0, 1, 1]
    assert [row["sync_s"] is None for row in finished] == [False, True, False]
    assert [set(row["sample_versions"]) for row in finished] == [{1}, {1}, {2}]


def test_comparison__names_the_first_number_that_differs(finished):
    other = [dict(row) for row in finished]
    other[1]["loss"] += 1e-9
    said = subprocess.run([sys.executable, "-c", "import json, run, sys; print(run.differing(json.load(sys.stdin)))"], cwd=RL,
                          input=json.dumps({"weft": finished, "broadcast": other}), capture_output=True, text=True, timeout=60)
    assert said.stdout.startswith(f"step 2: loss is {finished[1]['loss']} by weft"), said.stdout + said.stderr


def processes(words):
    """pid of each process whose command has all of these words."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode() if entry.name.isdigit() else ""
        except OSError:
            continue
        if all(word in line for word in words) and int(entry.name) != os.getpid():
            found.append(int(entry.name))
    return found


@pytest.mark.parametrize("sync, victim, says", [
    ("weft", ["engine.py"], "engine0-rank0 was killed by SIGKILL"),
    *([("broadcast", [" -u ", "/trainer.py"], "the run by broadcast failed")] if SOAK else []),
])
def test_killed__ends_the_run_within_seconds_and_leaves_nothing(tmp_path, sync, victim, says):
    run = subprocess.Popen(command(tmp_path, "--sync", sync, "--steps", "500"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                           text=True)
    try:
        deadline = time.monotonic() + 120
        while len(rows(tmp_path / sync)) < 2:
            if run.poll() is not None or time.monotonic() > deadline:
                run.kill()
                raise AssertionError(run.communicate()[1])
            time.sleep(0.1)
        os.kill(min(processes([*victim, str(tmp_path)])), signal.SIGKILL)
        _, said = run.communicate(timeout=30)
    finally:
        run.kill()
    assert run.returncode == 1 and says in said, said
    if sync == "broadcast":  # torchrun is the one that sees a trainer's end
        assert "exitcode  : -9" in (tmp_path / sync / "trainers.log").read_text()
    deadline = time.monotonic() + 10
    while processes([str(tmp_path)]):
        assert time.monotonic() < deadline, processes([str(tmp_path)])
        time.sleep(0.1)


@pytest.mark.parametrize("lag", ["1", *(["0"] if SOAK else [])])
def test_lost_engine__leaves_the_run_to_go_on_with_the_others_until_another_one_comes_in_its_place(tmp_path, lag):
    arguments = ("--sync", "weft", "--lose-engine", "2", "--take-engine", "4", "--steps", "60", "--lag", lag)
    done = subprocess.run(command(tmp_path, *arguments), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "engine1-rank1 is killed; the run goes on without engine1-rank0, engine1-rank1" in done.stdout
    found = rows(tmp_path / "weft")
    engines = [row["engines"] for row in found]
    gone, back = engines.index(1), len(engines) - engines[::-1].index(1)
    assert engines == [2] * gone + [1] * (back - gone) + [2] * (60 - back), engines
    assert 0 < gone < back < 60, engines
    for row in found:
        made_by = max(1, row["step"] - int(lag))
        assert len(row["sample_versions"]) == 64 * row["engines"] and set(row["sample_versions"]) == {made_by}
    assert not processes([str(tmp_path)])


@pytest.mark.parametrize("arguments, words", [
    (("--take-engine", "3", "--sync", "weft"), "another engine comes in the place of one that was lost; give"),
    (("--lose-engine", "2"), "--lose-engine needs --sync weft"),
    (("--lose-engine", "6", "--sync", "weft"), "give a step before the last, 6"),
    (("--lose-engine", "2", "--engines", "1", "--sync", "weft"), "without the last of 1 engines 0 prompts a step are left"),
    (("--prompts", "10", "--trainers", "3"), "--prompts 10 cannot be shared out evenly to 3 trainers"),
    (("--digits", "33"), "--digits 33: a prompt and its answer are 66 tokens"),
])
def test_usage__wrong_numbers_are_named_before_anything_starts(tmp_path, arguments, words):
    said = subprocess.run(command(tmp_path / "out", *arguments), capture_output=True, text=True, timeout=60)
    assert said.returncode == 2 and words in said.stderr and not (tmp_path / "out").exists(), said.stderr
