# SPDX-License-Identifier: Apache-2.0
"""Logs as lines of JSON, of whole jobs: every line of every process's standard error, also its last words, is one object."""
import json
import re
import subprocess

import pytest

from job import CONTROLLER, WORKER, Job, weft

pytestmark = pytest.mark.shm
KEYS = {"time", "level", "program", "host", "pid", "who", "message"}
DEBUG = {"WEFT_LOG": "debug"}


def rows_of(process):
    """Each line, with what all have."""
    rows = [json.loads(line) for line in process.errors.read_bytes().decode("utf-8").splitlines()]
    for row in rows:
        assert KEYS <= row.keys(), row
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", row["time"]), row
        assert row["level"] in ("error", "warn", "info", "debug"), row
    return rows


def test_job__of_json_says_nothing_that_is_no_json(tmp_path, models):
    with Job(tmp_path, models["qwen2"], "world=2,source=gathered", "engines=2,tp=1", name='a "job"') as job:
        job.controller("--log-format", "json", env=DEBUG)
        job.workers("--log-format", "json", env=DEBUG)
        job.succeed()
        for name, process in job.processes.items():
            role, _, rank = name.partition("-")
            rows = rows_of(process)
            assert len(rows) > 5, name
            ours = [row for row in rows if row.get("job")]
            assert ours and {row["job"] for row in ours} == {'a "job"'}
            assert {row["role"] for row in ours if row["who"] or role == "controller"} == {role}
            if rank:
                assert {row["rank"] for row in ours if row["who"]} == {int(rank)}


def test_failure__has_its_code_in_the_last_line(tmp_path, models):
    with Job(tmp_path, models["qwen2"], "world=2,source=gathered", "engines=1,tp=1") as job:
        job.controller("--join-timeout", "1s", env={"WEFT_LOG_FORMAT": "json"})
        job.worker("trainer", 0, env={"WEFT_LOG_FORMAT": "json"})
        assert job.wait() == {"controller": 75, "trainer-0": 75}
        for process in job.processes.values():
            last = rows_of(process)[-1]
            assert (last["level"], last["code"]) == ("error", "WEFT-E130"), last
            assert "trainer 1" in last["message"]


@pytest.mark.parametrize("program, flags", [(CONTROLLER, ["--train", "world=1", "--infer", "engines=1"]), (WORKER, [])],
                         ids=["controller", "worker"])
def test_format__that_is_none_is_refused(program, flags):
    done = subprocess.run([program, *flags, "--log-format", "xml"], capture_output=True, text=True, timeout=20)
    assert done.returncode == 78 and "WEFT-E102" in done.stderr and "'xml'" in done.stderr and "json" in done.stderr


def test_worker__that_is_started_wrong_says_so_in_json(tmp_path):
    done = subprocess.run([WORKER, "--log-format", "json", "--role", "trainer", "--rank", "0", "--controller", "tcp://127.0.0.1:1",
                           "--train", "world=1", "--infer", "engines=1"], capture_output=True, text=True, timeout=20)
    rows = [json.loads(line) for line in done.stderr.splitlines()]
    assert done.returncode != 0 and rows[-1]["code"].startswith("WEFT-E") and rows[-1]["program"] == "weft-worker"


def test_explain__says_what_to_do_about_a_code():
    said = weft("explain", "WEFT-E130").stdout
    assert "deadline passed" in said and "What to do:" in said and "75" in said
    assert said == weft("explain", "130").stdout
    rows = [json.loads(line) for line in weft("explain", "--json").stdout.splitlines()]
    assert json.loads(weft("explain", "timeout", "--json").stdout) in rows and len({row["code"] for row in rows}) > 25
    assert [line.split()[0] for line in weft("explain").stdout.splitlines()] == [row["code"] for row in rows]
    done = weft("explain", "WEFT-E777", check=False)
    assert done.returncode == 2 and "WEFT-E777" in done.stderr
