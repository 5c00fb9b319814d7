# SPDX-License-Identifier: Apache-2.0
"""Topologies from the outside: spec and file mean the same, offline and live plans agree, workers report."""
import json
import pathlib
import socket

import job as jobs
import jsonschema
import pytest

SCHEMA = json.loads((jobs.ROOT / "routing" / "report" / "schema" / "weft.topology-1.schema.json").read_text())
TRAIN, INFER = "world=6,pp=2", "engines=2,tp=2"
SPEC = "per_host=4,nics=2,gbps=200,uplink_gbps=300,rails=1"
COUNTS = ("--train", TRAIN, "--infer", INFER)


def valid(topology):
    jsonschema.Draft202012Validator(SCHEMA).validate(topology)


def topology(*arguments):
    return jobs.weft("route", "topology", *COUNTS, *arguments).stdout


def test_spec__is_written_as_a_file_that_means_the_same(tmp_path):
    text = topology("--topology", SPEC, "--json")
    (tmp_path / "cluster.json").write_text(text)
    assert topology("--topology", tmp_path / "cluster.json", "--json") == text
    data = json.loads(text)
    valid(data)
    assert [host["name"] for host in data["hosts"]] == ["host 0", "host 1", "host 2"]
    assert {nic["bytes_per_second"] for host in data["hosts"] for nic in host["nics"]} == {25_000_000_000}
    assert [rank["host"] for rank in data["trainers"]] == ["host 0"] * 4 + ["host 1"] * 2
    assert [rank["links"]["nic 0"] for rank in data["inference"]] == ["pix", "pix", "sys", "sys"]


def test_spec__and_its_file_give_one_plan(tmp_path):
    (tmp_path / "cluster.json").write_text(topology("--topology", SPEC, "--json"))
    job = ("route", "plan", "--model", "Qwen2.5-0.5B", *COUNTS, "--json", "--topology")
    assert jobs.weft(*job, SPEC).stdout == jobs.weft(*job, tmp_path / "cluster.json").stdout


def test_people__see_each_kind_of_host_once_and_a_legend():
    text = jobs.weft("route", "topology", "--train", "world=64", "--infer", "engines=8,tp=8", "--topology",
                     "per_host=8,nics=8").stdout
    assert "64 trainers and 64 inference ranks on 16 hosts with 128 NICs" in text
    assert "host 1 .. host 7: as host 0, with trainer 8 .. trainer 63" in text
    assert "host 9 .. host 15: as host 8, with inference 8 .. inference 63" in text
    row = next(line for line in text.splitlines() if line.startswith("  trainer 3 "))
    assert row.split()[2:] == ["SYS"] * 3 + ["*PIX"] + ["SYS"] * 4
    assert "PIX  behind one PCIe switch" in text


def test_dot__has_every_rank_and_nic():
    text = topology("--topology", SPEC, "--dot")
    assert text.startswith("graph topology {") and text.rstrip().endswith("}")
    for rank in range(6):
        assert f'"trainer {rank}" -- nic' in text
    assert 'nic5 -- "rail 0"' in text


@pytest.mark.parametrize("what, code, words", [
    ("per_host=4,nics=x", 78, "nics is 'x'; it must be a number from 1 to 64"),
    ("per_hots=4", 78, "unknown key 'per_hots'; keys are per_host, nics, gbps, uplink_gbps, rails"),
    ("missing.json", 1, "missing.json"),
])
def test_wrong_ones__are_refused_by_name(what, code, words):
    done = jobs.weft("route", "topology", *COUNTS, "--topology", what, check=False)
    assert done.returncode == code and "--topology" in done.stderr and words in done.stderr


def test_file__of_another_job_is_refused_with_both_counts(tmp_path):
    (tmp_path / "cluster.json").write_text(topology("--topology", SPEC, "--json"))
    done = jobs.weft("route", "plan", "--model", "Qwen2.5-0.5B", "--train", "world=4", "--infer", INFER,
                     "--topology", tmp_path / "cluster.json", check=False)
    assert done.returncode == 78
    assert "places 6 trainers and 4 inference ranks, the job has 4 and 4" in done.stderr


def test_schema__refuses_what_the_reader_refuses(tmp_path):
    good = json.loads(topology("--topology", SPEC, "--json"))

    def change(edit):
        bad = json.loads(json.dumps(good))
        edit(bad)
        (tmp_path / "bad.json").write_text(json.dumps(bad))
        with pytest.raises(jsonschema.ValidationError):
            valid(bad)
        done = jobs.weft("route", "topology", *COUNTS, "--topology", tmp_path / "bad.json", check=False)
        assert done.returncode == 1, done.stderr

    change(lambda t: t.update(schema="weft.topology/2"))
    change(lambda t: t.update(more=1))
    change(lambda t: t.pop("hosts"))
    change(lambda t: t["hosts"][0]["nics"][0].update(gbps=1))
    change(lambda t: t["hosts"][0]["nics"][0].pop("bytes_per_second"))
    change(lambda t: t["hosts"][0]["nics"][0].update(rail=-1))
    change(lambda t: t["hosts"][0].update(uplink_gbps=0))
    change(lambda t: t["trainers"][0].update(links={}))
    change(lambda t: t["trainers"][0]["links"].update({"nic 0": "near"}))


def run(folder, model, *flags):
    with jobs.Job(folder, model, "world=2", "tp=2") as job:
        controller = job.controller("--dump", folder / "live.json", *flags)
        job.workers(updates=1)
        job.succeed()
        return (folder / "live.json").read_text(), controller.stderr


def test_controller__plans_over_a_spec_as_route_plan_does(tmp_path):
    model = jobs.make_model(tmp_path, "qwen2")
    live, _ = run(tmp_path / "job", model, "--topology", "per_host=2,nics=1,gbps=100")
    offline = jobs.weft("route", "plan", "--model", model, "--train", "world=2", "--infer", "tp=2", "--topology",
                        "per_host=2,nics=1,gbps=100", "--json").stdout
    assert live == offline
    assert json.loads(live)["topology"] == json.loads(jobs.weft(
        "route", "topology", "--train", "world=2", "--infer", "tp=2", "--topology", "per_host=2,nics=1,gbps=100",
        "--json").stdout)


def test_controller__takes_the_topology_that_workers_report(tmp_path):
    model = jobs.make_model(tmp_path, "qwen2")
    live, log = run(tmp_path / "job", model, "--topology", "workers")
    assert "4 of 4 workers report no NIC: each counts as having one of 400 Gb/s" in log
    reported = json.loads(live)["topology"]
    valid(reported)
    assert [host["name"] for host in reported["hosts"]] == [socket.gethostname()]
    assert [nic["name"] for nic in reported["hosts"][0]["nics"]] == ["inference 0", "inference 1", "trainer 0",
                                                                     "trainer 1"]


def test_controller__refuses_a_topology_of_another_job(tmp_path):
    pathlib.Path(tmp_path / "cluster.json").write_text(topology("--topology", SPEC, "--json"))
    with jobs.Job(tmp_path / "job", "unused", "world=2", "tp=2") as job:
        job.start("controller", [jobs.CONTROLLER, "--bind", "tcp://127.0.0.1:0", "--train", "world=2", "--infer",
                                 "tp=2", "--topology", tmp_path / "cluster.json"])
        assert job.wait() == {"controller": 78}
        assert "places 6 trainers and 4 inference ranks, the job has 2 and 2" in job.said()
