# SPDX-License-Identifier: Apache-2.0
"""`weft route explain`: who could have sent a tensor, what each had to send by then, and why this one."""
import json

import pytest

import job as jobs

JOB = ("--model", "Qwen2.5-0.5B", "--train", "world=4", "--infer", "engines=2,tp=2")
TENSOR = "model.layers.3.mlp.down_proj.weight"


def explain(*arguments):
    return json.loads(jobs.weft("route", "explain", *arguments, "--json").stdout)


def known_policies():
    section = jobs.weft("route", "plan", "--help").stdout.split("Policies:\n")[1].split("\n\n")[0]
    return [line.strip().split(":")[0] for line in section.splitlines() if line[:2] == "  " != line[2:4]]


def refused(*arguments, code, words):
    done = jobs.weft("route", "explain", *arguments, check=False)
    assert done.returncode == code, done.stderr
    for word in words:
        assert word in done.stderr, done.stderr


@pytest.mark.parametrize("policy", ["greedy", "round-robin", "lpt", "modulo", "hash"])
def test_explain__says_what_the_plan_does(policy, tmp_path):
    file = tmp_path / "plan.json"
    dump = json.loads(jobs.weft("route", "plan", *JOB, "--policy", policy, "--json", "--output", file).stdout)
    route = next(r for r in dump["routes"] if r["tensor"] == TENSOR and r["inference"] == 2)
    answer = explain(*JOB, "--policy", policy, "--tensor", TENSOR, "--inference", 2)
    assert [d["trainer"] for d in answer["decisions"]] == [route["trainer"]]
    assert [d["bytes"] for d in answer["decisions"]] == [route["bytes"]]
    assert [c["trainer"] for c in answer["decisions"][0]["candidates"]] == [0, 1, 2, 3]
    if policy == "greedy":
        loads = [0] * 4
        for other in dump["routes"][:dump["routes"].index(route)]:
            loads[other["trainer"]] += other["bytes"]
        assert [c["load_bytes"] for c in answer["decisions"][0]["candidates"]] == loads
    from_file = explain(file, "--tensor", TENSOR, "--inference", 2)
    assert from_file.pop("same_in_file")
    assert from_file == answer


@pytest.mark.parametrize("memory,how,words", [("mapped", "mapped", "which the trainer reaches"),
                                              ("process", "replica", "packed into the trainer's ring"),
                                              ("landed", "landed", "put in place by the inference rank")])
def test_explain__says_how_the_bytes_travel_and_why(tmp_path, memory, how, words):
    file, asked = tmp_path / "plan.json", ("--tensor", TENSOR, "--inference", 2)
    jobs.weft("route", "plan", *JOB, "--memory", memory, "--output", file)
    way, = explain(file, *asked)["ways"]
    assert way["how"] == how and words in way["way"] and way["pieces"] == 1
    assert way.get("because") == (None if how == "landed" else "its rows are cut")
    assert words in jobs.weft("route", "explain", *JOB, "--memory", memory, *asked).stdout
    rows, = explain(*JOB, "--memory", memory, "--tensor", "model.layers.3.mlp.up_proj.weight", "--inference", 2)["ways"]
    assert rows["how"] == ("landed" if how == "landed" else "direct") and "because" not in rows


FINER = ("--model", "Qwen2.5-0.5B", "--train", "world=2,source=megatron,tp=2", "--infer", "engines=1,tp=1")
CUT = "trainers cut its rows finer than the engine, so that it is many short runs there"
BESIDE = "written beside the target's memory and put in place by the inference rank"


@pytest.mark.parametrize("memory,how,because,way", [
    ("mapped", "mapped", CUT, "packed straight into the target, which the trainer reaches"), ("process", "landed", CUT, BESIDE)])
def test_explain__says_why_what_is_cut_finer_goes_that_way(tmp_path, memory, how, because, way):
    file = tmp_path / "plan.json"
    jobs.weft("route", "plan", *FINER, "--memory", memory, "--output", file)
    jobs.weft("route", "verify", file)
    for job in (file,), (*FINER, "--memory", memory):
        said, = explain(*job, "--tensor", TENSOR, "--inference", 0)["ways"]
        assert (said["how"], said["because"], said["way"]) == (how, because, way)
        whole, = explain(*job, "--tensor", "model.layers.3.mlp.up_proj.weight", "--inference", 0)["ways"]
        assert whole["how"] == "direct"  # whatever is sent beside it


def test_explain__says_why_what_is_small_lands(tmp_path):
    file, job = tmp_path / "plan.json", ("--model", "Qwen2.5-0.5B", "--train", "world=4,source=dtensor,mesh=2/2", "--infer", "engines=1,tp=1")
    jobs.weft("route", "plan", *job, "--memory", "process", "--output", file)
    jobs.weft("route", "verify", file)
    said, = explain(file, "--tensor", "model.layers.3.self_attn.k_proj.bias", "--inference", 0)["ways"]
    assert (said["how"], said["way"]) == ("landed", BESIDE)
    assert said["because"] == "it is small, and is sent with all else that is small between the two"


def test_explain__of_what_nobody_writes_says_that_alone():
    for tensor in TENSOR, "model.layers.3.mlp.up_proj.weight":
        said, = explain(*FINER, "--memory", "landed", "--tensor", tensor, "--inference", 0)["ways"]
        assert said["how"] == "landed" and "because" not in said and "which the transport does not write" in said["way"]


def test_explain__says_when_the_file_has_another_route(tmp_path):
    file = tmp_path / "plan.json"
    dump = json.loads(jobs.weft("route", "plan", *JOB, "--json").stdout)
    route = next(r for r in dump["routes"] if r["tensor"] == TENSOR and r["inference"] == 2)
    route["trainer"] = (route["trainer"] + 1) % 4
    file.write_text(json.dumps(dump))
    assert not explain(file, "--tensor", TENSOR, "--inference", 2)["same_in_file"]
    text = jobs.weft("route", "explain", file, "--tensor", TENSOR, "--inference", 2).stdout
    assert f"has another route: trainer {route['trainer']}" in text


def test_explain__plans_a_file_with_its_topology(tmp_path):
    file = tmp_path / "plan.json"
    for policy in known_policies():
        jobs.weft("route", "plan", *JOB, "--policy", policy, "--output", file, "--topology",
                  "per_host=2,nics=1,gbps=100,uplink_gbps=50")
        assert explain(file, "--tensor", TENSOR, "--inference", 2)["same_in_file"], policy


def test_explain__plans_a_file_with_its_limit_of_sessions(tmp_path):
    file = tmp_path / "plan.json"
    limited = (*JOB, "--policy", "balanced", "--sessions-max", 1)
    jobs.weft("route", "plan", *limited, "--output", file)
    assert json.loads(file.read_text())["sessions_max"] == 1
    answer = explain(file, "--tensor", TENSOR, "--inference", 2)
    assert answer.pop("same_in_file")
    assert answer == explain(*limited, "--tensor", TENSOR, "--inference", 2)
    assert jobs.weft("route", "verify", file).returncode == 0
    assert jobs.weft("route", "export", file, "--format", "json").stdout == file.read_text()
    refused(file, "--sessions-max", 1, "--tensor", TENSOR, "--inference", 2, code=2, words=["leave --sessions-max out"])


def test_explain__says_who_needs_a_tensor_that_the_rank_does_not():
    arguments = ("--model", "Qwen3-30B-A3B", "--train", "world=4", "--infer", "engines=2,tp=4,ep=4",
                 "--tensor", "model.layers.0.mlp.experts.0.up_proj.weight", "--inference", 1)
    answer = explain(*arguments)
    assert answer["decisions"] == [] and answer["needed_by"] == [0, 4]
    assert "needs nothing of it; these do: 0, 4" in jobs.weft("route", "explain", *arguments).stdout


def test_explain__is_for_people_too():
    text = jobs.weft("route", "explain", *JOB, "--tensor", TENSOR, "--inference", 2).stdout
    assert text.count("bytes before") == 4 and text.count("  > trainer") == 1
    assert "because" in text and "greedy: " in text


def test_explain__shard_by_shard():
    answer = explain("--model", "Qwen2.5-0.5B", "--train", "world=4,fsdp=2,source=sharded", "--infer", "tp=2",
                     "--tensor", "model.norm.weight", "--inference", 1)
    assert [d["rows"] for d in answer["decisions"]] == [[0, 448], [448, 896]]
    assert [[c["trainer"] for c in d["candidates"]] for d in answer["decisions"]] == [[0, 2], [1, 3]]


def test_errors__name_what_is_wrong(tmp_path):
    file = tmp_path / "plan.json"
    jobs.weft("route", "plan", *JOB, "--output", file)
    refused(*JOB, code=2, words=["--tensor NAME is missing"])
    refused(*JOB, "--tensor", TENSOR, code=2, words=["--inference RANK is missing"])
    refused(*JOB, "--tensor", TENSOR, "--inference", 4, code=2, words=["--inference 4", "0 to 3"])
    refused(*JOB, "--tensor", TENSOR, "--inference", -1, code=2, words=["--inference -1"])
    refused(*JOB, "--tensor", "layers.3.mlp.down.weight", "--inference", 0, code=2, words=["the closest are " + TENSOR])
    refused("--tensor", TENSOR, "--inference", 0, code=2, words=["--model NAME"])
    refused(file, "--policy", "lpt", "--tensor", TENSOR, "--inference", 0, code=2, words=["leave --policy out"])
    refused(file, "--topology", "flat", "--tensor", TENSOR, "--inference", 0, code=2, words=["leave --topology out"])
    refused(file, file, code=2, words=["one file too many"])
    file.write_text(file.read_text().replace('"policy":"greedy"', '"policy":"best"'))
    refused(file, "--tensor", TENSOR, "--inference", 0, code=1, words=["plan.json", "best", "greedy"])
