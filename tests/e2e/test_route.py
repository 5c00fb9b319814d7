# SPDX-License-Identifier: Apache-2.0
"""`weft route` from the outside: a plan is stable, verified, shown, and refused by name."""
import json

import pytest

import job as jobs

MODEL, TRAIN, INFER = "Qwen2.5-0.5B", "world=4,pp=2", "engines=2,tp=2"
POLICIES = ("greedy", "round-robin", "round-robin-affinity", "prefix", "first-holder", "modulo", "hash", "lpt", "balanced")
JOB = ("--model", MODEL, "--train", TRAIN, "--infer", INFER)


def plan(*arguments):
    return jobs.weft("route", "plan", *JOB, *arguments).stdout


def refused(*arguments, code, words):
    done = jobs.weft(*arguments, check=False)
    assert done.returncode == code, done.stderr
    for word in words:
        assert word in done.stderr, done.stderr


def test_plan__follows_the_rule_and_is_the_same_every_time(tmp_path):
    text = plan("--json", "--output", tmp_path / "plan.json")
    assert text == plan("--json") == (tmp_path / "plan.json").read_text()
    dump = json.loads(text)
    stages = [t["stage"] for t in dump["trainers"]]
    assert stages == [0, 0, 1, 1]
    # gathered, so each pair has the trainers of one stage: greedy, said again in Python
    loads = [0] * 4
    for route in dump["routes"]:
        stage = stages[route["trainer"]]
        best = min((t for t in range(4) if stages[t] == stage), key=lambda t: (loads[t], t))
        assert route["trainer"] == best, route["tensor"]
        assert route["bytes"] == sum(p["bytes"] for p in route["pieces"])
        loads[best] += route["bytes"]
    assert dump["summary"]["trainer_bytes"] == loads
    assert dump["summary"]["makespan_bytes"] == max(loads)
    assert dump["summary"]["lower_bound_bytes"] == max(-(-(loads[s] + loads[s + 1]) // 2) for s in (0, 2))
    assert dump["summary"]["bytes_total"] == sum(loads) == sum(dump["summary"]["inference_bytes"])


def test_summary__leaves_only_the_routes_out():
    whole, short = json.loads(plan("--json")), json.loads(plan("--json", "--summary"))
    assert whole.pop("routes")
    assert whole == short


def test_help__lists_every_policy_with_its_rule():
    text = jobs.weft("route", "plan", "--help").stdout
    for policy in POLICIES:
        assert f"\n  {policy}: " in text


def test_verify__proves_every_kind_of_job(tmp_path):
    file = tmp_path / "plan.json"
    for train in ("world=3", "world=6,pp=3", "world=8,pp=2,fsdp=2,source=sharded"):
        for policy in POLICIES:
            for memory in ("mapped", "process"):
                jobs.weft("route", "plan", "--model", MODEL, "--train", train, "--infer", INFER,
                          "--policy", policy, "--memory", memory, "--output", file)
                verdict = json.loads(jobs.weft("route", "verify", file, "--json").stdout)
                assert verdict["proved"] and verdict["digest"] == json.loads(file.read_text())["digest"]


def test_verify__names_what_was_changed(tmp_path):
    file = tmp_path / "plan.json"
    dump = json.loads(plan("--json"))
    route = next(r for r in dump["routes"] if r["tensor"].startswith("model.layers.0.self_attn.q_proj.w"))

    def spoilt(*words):
        file.write_text(json.dumps(dump))
        refused("route", "verify", file, code=1, words=["WEFT-E126", *words])

    route["trainer"] = 3  # of the other stage
    spoilt("q_proj.weight", "trainer 3", "does not hold")
    route["trainer"] = 0
    route["pieces"][0]["offset"] += 1
    route["pieces"][0]["bytes"] -= 1
    route["bytes"] -= 1
    spoilt("byte 0 of parameter", "qkv_proj.weight", "written by no trainer")
    dump["routes"].remove(route)
    spoilt("byte 0 of parameter", "written by no trainer")
    dump = json.loads(plan("--json"))
    dump["summary"]["makespan_bytes"] += 1
    spoilt("summary.makespan_bytes")


def changed_leaves(value, path=()):
    """(path, other value) for every number and name of a dump; of long lists the first and one more."""
    if isinstance(value, dict):
        for key in value:
            yield from changed_leaves(value[key], path + (key,))
    elif isinstance(value, list):
        if not value:
            yield path, ["x"]
        for index in sorted({0, len(value) // 2} & set(range(len(value)))):
            yield from changed_leaves(value[index], path + (index,))
    elif isinstance(value, str):
        yield path, {"direct": "mapped", "mapped": "replica", "greedy": "round-robin"}.get(value, value + "x")
    else:
        yield path, value + (1 if isinstance(value, int) else 0.001)


def test_verify__holds_the_ranks_that_land_against_the_routes(tmp_path):
    file, dump = tmp_path / "plan.json", json.loads(plan("--memory", "landed", "--transport", "tcp,shm", "--json"))
    assert [one["landed"] for one in dump["transports"]] == 2 * [[1, 1, 1, 1]]
    for landed, words in ([0, 0, 0, 0], "landed"), ([1, 1, 1], '"landed" has 3 numbers'), ([2, 1, 1, 1], '"landed"[0] is no'):
        dump["transports"][0]["landed"] = landed
        file.write_text(json.dumps(dump))
        done = jobs.weft("route", "verify", file, check=False)
        assert done.returncode in (1, 78) and words in done.stderr, done.stderr


@pytest.mark.parametrize("memory", ["mapped", "landed"])
def test_verify__refuses_a_change_of_any_field(tmp_path, memory):
    file = tmp_path / "plan.json"
    text = plan("--memory", memory, "--json")
    for path, other in changed_leaves(json.loads(text)):
        dump = json.loads(text)
        inner = dump
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = other
        file.write_text(json.dumps(dump))
        done = jobs.weft("route", "verify", file, check=False)
        assert done.returncode in (1, 78), f"{path} = {other} was accepted"
        if path[0] in ("summary", "trainers", "inference"):
            name = [key for key in path if isinstance(key, str)][-1]
            words = [name, {"engine": "of engine", "engine_rank": "as rank"}.get(name, name)]
            words.append({"direct": "how_bytes", "mapped": "how_bytes", "replica": "how_bytes", "landed": "how_bytes"}.get(name, name))
            assert any(word in done.stderr for word in words), f"{path}: {done.stderr}"


def test_show__reads_what_plan_wrote(tmp_path):
    file, flat = tmp_path / "plan.json", tmp_path / "flat.json"
    plan("--output", flat)
    assert "bytes by trainer" in jobs.weft("route", "show", flat).stdout
    people = plan("--topology", "per_host=2,nics=2,gbps=400", "--output", file)
    assert people == jobs.weft("route", "show", file).stdout
    assert "bytes by trainer" in people and "round-robin" in people
    dump = json.loads(file.read_text())
    for by, total in (("trainer", 4), ("inference", 4), ("tensor", 290)):
        lines = jobs.weft("route", "show", file, "--by", by, "--top", "0", "--json").stdout.splitlines()
        rows = [json.loads(line) for line in lines]
        assert len(rows) == total
        assert sum(row["bytes"] for row in rows) == dump["summary"]["bytes_total"]
        assert [row["bytes"] for row in rows] == sorted((row["bytes"] for row in rows), reverse=True)
    for by, total in (("host", 4), ("nic", 8)):
        lines = jobs.weft("route", "show", file, "--by", by, "--top", "0", "--json").stdout.splitlines()
        rows = [json.loads(line) for line in lines]
        assert len(rows) == total
        for key in ("sent_bytes", "received_bytes"):
            assert sum(row[key] for row in rows) == dump["summary"]["bytes_total"]
        assert all(row["bytes"] == max(row["sent_bytes"], row["received_bytes"]) for row in rows)
        assert [row["bytes"] for row in rows] == sorted((row["bytes"] for row in rows), reverse=True)
    assert abs(rows[0]["seconds"] / (max(dump["summary"]["trainer_bytes"]) / 50e9) - 1) < 1e-8
    people = jobs.weft("route", "show", file, "--by", "nic", "--top", "1").stdout.splitlines()
    assert "########" in people[1] and people[2] == "and 7 more (--top 0 shows all)"
    refused("route", "show", flat, "--by", "host", code=2, words=["--by host", "--topology"])
    assert len(jobs.weft("route", "show", file, "--by", "tensor", "--top", "3", "--json").stdout.splitlines()) == 3


def test_errors__have_their_exit_codes(tmp_path):
    refused("route", "plan", "--model", MODEL, code=2, words=["--train"])
    refused("route", "plan", *JOB, "--policy", "best", code=2, words=["best", *POLICIES])
    refused("route", "plan", *JOB, "--memory", "magic", code=2, words=["mapped"])
    refused("route", "plan", "--model", MODEL, "--train", "world=4,pp=3", "--infer", INFER, code=78,
            words=["pp=3", "world=4"])
    refused("route", "show", code=2, words=["name a routing dump"])
    refused("route", "show", tmp_path / "none.json", code=1, words=["none.json"])
    (tmp_path / "cut.json").write_text(plan("--json")[:5000])
    refused("route", "show", tmp_path / "cut.json", code=1, words=["WEFT-E110", "cut.json", "byte 5000"])
    (tmp_path / "short.json").write_text(plan("--json", "--summary"))
    refused("route", "verify", tmp_path / "short.json", code=1, words=["--summary"])
    (tmp_path / "named.json").write_text(plan("--json").replace('"model":"Qwen2.5-0.5B"', '"model":"mine"'))
    refused("route", "verify", tmp_path / "named.json", code=78, words=["mine", "--model"])
