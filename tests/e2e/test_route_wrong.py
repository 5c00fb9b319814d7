# SPDX-License-Identifier: Apache-2.0
"""What a user of `weft route` does wrong, and the message and exit code they get."""
import json
import os
import subprocess

import job as jobs
import pytest

JOB = ("--model", "Qwen2.5-0.5B", "--train", "world=4", "--infer", "engines=2,tp=2")
ASK = ("--tensor", "model.norm.weight", "--inference", "0")


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    file = tmp_path_factory.mktemp("plan") / "plan.json"
    jobs.weft("route", "plan", *JOB, "--output", file)
    return file


def refused(*arguments, code):
    done = jobs.weft(*arguments, check=False)
    assert done.returncode == code, done.stderr
    assert done.stdout == "" and done.stderr.count("\n") == 1
    return done.stderr


def changed(plan, folder, **labels):
    dump = json.loads(plan.read_text()) | labels
    file = folder / "changed.json"
    file.write_text(json.dumps(dump))
    return file


def test_names_in_a_file__cannot_steer_the_terminal(tmp_path, plan):
    file = changed(plan, tmp_path, model="Q\x1b[31m\nwen\x9b")
    for verb, code in ((("verify",), 78), (("explain", *ASK), 78), (("diff", plan), 78)):
        text = refused("route", *verb, file, code=code)
        assert all(c == "\n" or c.isprintable() for c in text), repr(text)


@pytest.mark.parametrize("label", ["policy", "order"])
def test_unknown_row_in_a_file__is_the_files_fault(tmp_path, plan, label):
    file = changed(plan, tmp_path, **{label: "zzz"})
    text = refused("route", "explain", file, *ASK, code=1)
    assert str(file) in text and f'"{label}": zzz is not known; these are: ' in text and f"--{label}" not in text


def test_verify__names_the_file_in_front_of_what_is_wrong(tmp_path, plan):
    dump = json.loads(plan.read_text())
    del dump["routes"][5]
    file = tmp_path / "short.json"
    file.write_text(json.dumps(dump))
    assert f"proof: {file}: byte 0 of parameter " in refused("route", "verify", file, code=1)


def test_topology__that_is_no_file_says_what_it_may_be(tmp_path):
    assert "--topology: it is empty; say flat" in refused("route", "plan", *JOB, "--topology", "", code=78)
    assert "weft-controller" in refused("route", "plan", *JOB, "--topology", "workers", code=78)


def test_ranks_that_are_not_there__are_answered_with_those_that_are():
    text = refused("route", "order", *JOB, "--trainer", "4", code=2)
    assert "--trainer 4 is not a trainer of this job, which has 4, 0 to 3" in text


def test_missing_folder__is_what_the_message_is_about():
    for verb in (("plan", *JOB), ("export", *JOB)):
        text = jobs.weft("route", *verb, "--output", "/nonexistent/plan.json", check=False).stderr
        assert "cannot make a file in the folder of /nonexistent/plan.json: No such file" in text


def test_full_device__is_named_by_every_verb(plan, tmp_path):
    other = tmp_path / "other.json"
    jobs.weft("route", "plan", *JOB, "--policy", "lpt", "--output", other)
    for verb in (("plan", *JOB), ("show", plan), ("verify", plan), ("explain", plan, *ASK), ("compare", *JOB), ("diff", plan, other),
                 ("export", plan), ("order", *JOB), ("topology", *JOB[2:]), ("simulate", *JOB)):
        with open("/dev/full", "w") as full:
            done = subprocess.run([str(jobs.WEFT), "route", *map(str, verb)], stdout=full, stderr=subprocess.PIPE, text=True)
        assert done.returncode == (2 if verb[0] == "diff" else 1), verb
        assert done.stderr.endswith(f"standard output: {os.strerror(28)}\n"), (verb, done.stderr)
