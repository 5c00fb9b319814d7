# SPDX-License-Identifier: Apache-2.0
"""`weft route compare`: every policy on one input, and the figures are those of the plans."""
import json

import pytest

import job as jobs

JOBS = [
    ("Qwen2.5-0.5B", "world=4,pp=2", "engines=2,tp=2"),
    ("Qwen2.5-0.5B", "world=8,pp=2,fsdp=2,source=sharded", "engines=3,tp=2"),
    ("Qwen3-30B-A3B", "world=16,pp=2", "engines=2,tp=4,ep=4"),
]


def arguments(model, train, infer):
    return "--model", model, "--train", train, "--infer", infer


def compare(*words):
    return [json.loads(line) for line in jobs.weft("route", "compare", *words, "--json").stdout.splitlines()]


def known_policies():
    text = jobs.weft("route", "plan", "--help").stdout
    section = text.split("Policies:\n")[1].split("\n\n")[0]
    return [line.strip().split(":")[0] for line in section.splitlines() if line[:2] == "  " != line[2:4]]


@pytest.mark.parametrize("job", JOBS)
def test_compare__has_the_figures_of_every_plan(job):
    rows = compare(*arguments(*job))
    assert [row["policy"] for row in rows] == known_policies()
    for row in rows:
        dump = json.loads(jobs.weft("route", "plan", *arguments(*job), "--policy", row["policy"], "--json",
                                    "--summary").stdout)
        assert row["digest"] == dump["digest"]
        for key in ("makespan_bytes", "lower_bound_bytes", "gap", "imbalance", "prepared_bytes",
                    "prepared_minimum_bytes", "routes", "pieces"):
            assert row[key] == dump["summary"][key], key
        assert row["sessions_max"] == max(dump["summary"]["sessions"])
        assert row["wire_seconds"] >= row["wire_bound_seconds"] * (1 - 1e-8)
        assert "plan_seconds" not in row


def test_compare__tells_the_same_to_people():
    job = arguments(*JOBS[0])
    text = jobs.weft("route", "compare", *job).stdout
    assert text == jobs.weft("route", "compare", *job).stdout
    lines = text.splitlines()
    assert len(lines) == 4 + len(known_policies())
    for line, row in zip(lines[4:], compare(*job)):
        words = line.split()
        assert words[0] == row["policy"]
        assert f"{row['gap'] * 100:.2f}%" in words and f"{row['imbalance']:.3f}" in words
        assert str(row["routes"]) in words and str(row["sessions_max"]) in words


def test_compare__shows_one_policy_and_times_when_asked():
    rows = compare(*arguments(*JOBS[0]), "--policy", "lpt", "--times")
    assert [row["policy"] for row in rows] == ["lpt"]
    assert rows[0]["plan_seconds"] > 0
    assert " plan" in jobs.weft("route", "compare", *arguments(*JOBS[0]), "--times").stdout


def test_compare__simulates_every_order_as_simulate_does():
    job = arguments(*JOBS[0])
    rows = {row["policy"]: row for row in compare(*job, "--simulate")}
    orders = [simulated["order"] for simulated in rows["greedy"]["simulated"]]
    assert {"table", "rotated", "rounds"} <= set(orders)
    for row in rows.values():
        assert [simulated["order"] for simulated in row["simulated"]] == orders
        assert all(s["seconds"] >= s["bound_seconds"] * (1 - 1e-8) for s in row["simulated"])
    for order in orders:
        alone = json.loads(jobs.weft("route", "simulate", *job, "--policy", "prefix", "--order", order, "--json").stdout)
        (row,) = [s for s in rows["prefix"]["simulated"] if s["order"] == order]
        assert row["seconds"] == pytest.approx(alone["makespan_seconds"], rel=1e-8)
        assert row["bound_seconds"] == pytest.approx(alone["bound_seconds"], rel=1e-8)
    (one,) = compare(*job, "--simulate", "--policy", "prefix", "--order", "rounds")
    assert [s["order"] for s in one["simulated"]] == ["rounds"]
    assert " rounds" in jobs.weft("route", "compare", *job, "--simulate").stdout


def test_compare__marks_what_cannot_limit_sessions():
    text = jobs.weft("route", "compare", *arguments(*JOBS[0]), "--sessions-max", 3).stdout
    marked = {line.split()[0] for line in text.splitlines() if "! " in line and not line.startswith("!")}
    assert "first-holder" in marked and "modulo" not in marked
    assert "! more than --sessions-max 3" in text


def test_compare__uses_the_topology():
    job = arguments(*JOBS[0])
    slow = compare(*job, "--topology", "per_host=4,nics=4,gbps=100")
    for row, flat in zip(slow, compare(*job)):
        assert row["wire_seconds"] == pytest.approx(4 * flat["wire_seconds"], rel=1e-6)


def test_errors__have_their_exit_codes():
    for words, code, said in ((("--model", "Qwen2.5-0.5B"), 2, "--train"),
                              ((*arguments(*JOBS[0]), "--policy", "best"), 2, "greedy, round-robin"),
                              ((*arguments(*JOBS[0]), "extra"), 2, "'extra' is not an option")):
        done = jobs.weft("route", "compare", *words, check=False)
        assert done.returncode == code and said in done.stderr, done.stderr
