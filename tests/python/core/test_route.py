# SPDX-License-Identifier: Apache-2.0
"""Plans as Python's objects: the same as the program makes."""
import json
import subprocess

import pytest

import weft

JOB = ("Qwen2.5-0.5B", "world=4,source=gathered", "engines=2,tp=2")


def test_plan__is_the_programs_own_and_survives_a_file(tmp_path):
    dump = weft.route.plan(*JOB, policy="balanced")
    model, train, infer = JOB
    said = subprocess.run([weft.programs.path("weft"), "route", "plan", "--json", "--model", model, "--train", train, "--infer",
                           infer, "--policy=balanced"], capture_output=True, text=True, check=True, timeout=60).stdout
    assert dump.json == json.loads(said) and dump.summary["gap"] >= 0
    dump.save(tmp_path / "plan.json")
    again = weft.route.Dump.load(tmp_path / "plan.json")
    assert again.json == dump.json and again.verify()
    assert dump.diff(again)["same"] and not dump.diff(weft.route.plan(*JOB, policy="modulo"))["same"]


def test_compare__has_a_row_a_policy_and_is_a_frame():
    table = weft.route.compare(*JOB)
    assert {row["policy"] for row in table} >= {"greedy", "round-robin", "balanced"}
    frame = table.to_pandas()
    assert list(frame["policy"]) == [row["policy"] for row in table] and frame["gap"].min() >= 0


def test_plan__of_nothing_says_the_programs_words():
    with pytest.raises(weft.Error, match="Qwen9"):
        weft.route.plan("Qwen9", *JOB[1:])
    with pytest.raises(weft.Error, match="policy"):
        weft.route.plan(*JOB, policy="best")


def test_dump__that_is_none_is_an_error_of_its_own_code():
    with pytest.raises(weft.FileError, match="not a routing dump"):
        weft.route.Dump({"model": "m", "policy": "greedy", "digest": "d"}).verify()
