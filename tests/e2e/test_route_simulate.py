# SPDX-License-Identifier: Apache-2.0
"""`weft route simulate` from the outside: figures that can be told in advance, failures, traces,
and one clear message for every wrong flag."""
import json
import os

import job as jobs
import pytest

JOB = ("--model", "Qwen2.5-0.5B", "--train", "world=4,pp=2", "--infer", "engines=2,tp=2")
NO_STAGES = ("--rate", "gather=0,device_to_host=0,pack=0,verify=0,write=0")


def simulate(*arguments):
    return json.loads(jobs.weft("route", "simulate", *arguments, "--json").stdout)


def refused(*arguments, code=2, words):
    done = jobs.weft("route", "simulate", *arguments, check=False)
    assert done.returncode == code, done.stderr
    for word in words:
        assert word in done.stderr, done.stderr
    assert done.stdout == ""


def test_simulate__all_bytes_arrive_and_no_bound_is_beaten():
    for order in ("table", "rotated", "rounds"):
        for more in (NO_STAGES, (), ("--rate", "verify=20"), ("--ring", "1M"), ("--depth", "4K")):
            out = simulate(*JOB, "--order", order, *more)
            plan = json.loads(jobs.weft("route", "plan", *JOB, "--memory", "process", "--json",
                                        "--summary").stdout)["summary"]
            assert out["bytes"] == plan["bytes_total"]
            assert [r["bytes"] for r in out["inference"]] == plan["inference_bytes"]
            assert [r["bytes"] for r in out["trainers"]] == plan["trainer_bytes"]
            assert out["makespan_seconds"] == max(r["finish_seconds"] for r in out["inference"])
            assert out["makespan_seconds"] >= out["bound_seconds"] * (1 - 1e-9)
            assert out["bound_seconds"] >= max(out["bounds_seconds"].values()) * (1 - 1e-9)
            assert sum(out["samples"]["wire_bytes"]) == pytest.approx(out["bytes"], rel=1e-6)


def test_simulate__one_pair_takes_its_bytes_over_its_rate():
    out = simulate("--model", "Qwen2.5-0.5B", "--train", "world=1", "--infer", "engines=1,tp=1", *NO_STAGES)
    assert out["makespan_seconds"] == pytest.approx(988065536 / 50e9, rel=1e-6)
    assert out["of_bound"] == pytest.approx(1)


def test_rate__of_writes_delays_by_what_each_takes():
    job = ("--model", "Qwen2.5-0.5B", "--train", "world=1", "--infer", "engines=1,tp=1")
    free, slow = (simulate(*job, *NO_STAGES, "--rate", f"write={rate}") for rate in (0, 0.001))
    assert slow["writes_per_second"] == 1000 and free["writes_per_second"] == 0
    assert slow["makespan_seconds"] > slow["routes"] / 1000 > free["makespan_seconds"]


def test_simulate__is_the_same_every_time_and_from_a_dump(tmp_path):
    file = tmp_path / "plan.json"
    jobs.weft("route", "plan", *JOB, "--memory", "process", "--output", file)
    first = jobs.weft("route", "simulate", *JOB, "--json").stdout
    assert first == jobs.weft("route", "simulate", *JOB, "--json").stdout
    assert first == jobs.weft("route", "simulate", file, "--json").stdout


def test_slow__a_nic_at_half_speed_delays_what_passes_it():
    whole = simulate(*JOB, *NO_STAGES, "--order", "rounds")
    half = simulate(*JOB, *NO_STAGES, "--order", "rounds", "--slow", "nic=0:0.5", "--slow", "inference=3:0.9")
    assert half["trainers"][0]["finish_seconds"] >= 2 * half["trainers"][0]["bytes"] / 50e9 * (1 - 1e-6)
    assert half["makespan_seconds"] > whole["makespan_seconds"]
    assert half["bound_seconds"] == whole["bound_seconds"]  # of the cluster as it should be


def test_fail__a_lost_trainer_repeats_the_update_without_it():
    out = simulate(*JOB, "--fail", "trainer=1@2ms")
    failure = out["failure"]
    assert failure["repeated"] and failure["cannot_publish"] == [1, 3]  # whom it sends to
    again = failure["again_seconds"]
    assert failure["total_seconds"] == pytest.approx(0.002 + 5 + again)
    alone = simulate(*JOB)["bounds_seconds"]["wire"]
    assert again > alone  # its stage has one trainer now
    text = jobs.weft("route", "simulate", *JOB, "--fail", "trainer=1@2ms", "--lost-after", "1s").stdout
    assert "cannot publish: 2 of 4 inference ranks: 1, 3" in text and "1 s later" in text.replace("1.00 s", "1 s")


def test_fail__an_inference_rank_takes_its_engine_with_it():
    out = simulate(*JOB, "--fail", "inference=3@1ms")
    assert out["failure"]["cannot_publish"] == [3] and out["failure"]["repeated"]
    assert out["failure"]["again_seconds"] < out["makespan_seconds"]


def test_fail__after_the_end_changes_nothing():
    out = simulate(*JOB, "--fail", "nic=2@10s")
    assert not out["failure"]["repeated"] and out["failure"]["total_seconds"] == out["makespan_seconds"]


def test_fail__the_only_holder_is_named():
    refused("--model", "Qwen2.5-0.5B", "--train", "world=2,pp=2", "--infer", "engines=1,tp=2", "--fail",
            "trainer=1@1ms", code=1, words=["nobody holds", "model.layers.12.", "tensors"])


def test_baseline__a_broadcast_sends_everything_to_everybody():
    out = simulate(*JOB, "--baseline", "broadcast")
    assert out["broadcast"]["receiver_bytes"] == 988065536  # the tied head is sent once
    assert out["broadcast"]["wire_seconds"] == pytest.approx(988065536 / 50e9)
    assert out["broadcast"]["seconds"] > out["makespan_seconds"]


@pytest.mark.parametrize("job", [JOB, ("--model", "Qwen3-30B-A3B", "--train", "world=64,pp=4", "--infer",
                                       "engines=4,tp=16,ep=16", "--topology", "per_host=8,nics=8,gbps=400")])
def test_trace__is_valid_and_its_tracks_never_overlap(job, tmp_path):
    file = tmp_path / "trace.json"
    out = simulate(*job, "--trace", file, "--rate", "verify=60")
    trace = json.loads(file.read_text())
    events = trace["traceEvents"]
    tracks, names, sent = {}, set(), 0
    for event in events:
        assert event["ph"] in "MXC"
        if event["ph"] == "M" and event["name"] == "process_name":
            names.add(event["pid"])
        if event["ph"] != "X":
            continue
        assert event["pid"] in names
        track, from_ns = (event["pid"], event["tid"]), round(event["ts"] * 1000)
        assert tracks.get(track, 0) <= from_ns, event
        tracks[track] = from_ns + round(event["dur"] * 1000)
        if event["tid"] > 4:  # behind the stages, a track a peer
            sent += event["args"]["bytes"]
    assert sent == out["bytes"]
    assert max(tracks.values()) == pytest.approx(out["makespan_seconds"] * 1e9, abs=2)
    assert sum(e["ph"] == "X" for e in events) <= 200_000
    assert len(names) == 1 + len(out["trainers"]) + len(out["inference"])


def test_text__names_the_bottleneck_and_what_was_assumed():
    text = jobs.weft("route", "simulate", *JOB).stdout
    for words in ("assumed of each worker: gather 400 GB/s", "verify is no stage", "makespan", "bottleneck",
                  "of it reached", "senders", "receivers", "NICs idle"):
        assert words in text
    slow = jobs.weft("route", "simulate", *JOB, "--rate", "pack=0.5").stdout
    assert "of work for pack of trainer" in slow


@pytest.mark.parametrize("flags, words", [
    (["--rate", "write=fast"], ["'fast' is not a number of millions of writes a second, such as write=1"]),
    (["--rate", "cook=3"], ["'cook' is not a stage", "gather, device_to_host, pack and verify"]),
    (["--rate", "pack=fast"], ["'fast' is not a speed in GB/s"]),
    (["--rate", "pack"], ["is not a speed"]),
    (["--depth", "0"], ["--depth 0", "at least 4K"]),
    (["--ring", "1K"], ["--ring 1K", "1M or more"]),
    (["--slow", "nic=3"], ["--slow nic=3", "WHAT=INDEX:FACTOR"]),
    (["--slow", "nic=3:0"], ["above 0"]),
    (["--slow", "disk=3:0.5"], ["nic, trainer, inference or host"]),
    (["--slow", "nic=99:0.5"], ["there are 8 NICs"]),
    (["--fail", "host=1@2s"], ["trainer, inference or nic"]),
    (["--fail", "trainer=1"], ["WHAT=INDEX@TIME"]),
    (["--fail", "trainer=4@1ms"], ["there are 4 trainers, counted from 0"]),
    (["--fail", "trainer=1@1s", "--fail", "trainer=2@1s"], ["once"]),
    (["--lost-after", "5s"], ["needs --fail"]),
    (["--baseline", "pigeon"], ["it is broadcast"]),
    (["--row", "Kimi-K2"], ["needs --published"]),
    (["--published"], ["has its own jobs"]),
    (["--order", "sideways"], ["--order sideways is not known", "rotated"]),
])
def test_flags__a_wrong_one_gets_one_message(flags, words):
    refused(*JOB, *flags, words=words)


def test_published__an_unknown_row_lists_the_known():
    refused("--published", "--row", "GPT-2", words=["GPT-2", "GLM-Z1-9B", "Kimi-K2"])


def test_published__a_row_stands_beside_what_was_measured():
    row = simulate("--published", "--row", "Moonlight")
    assert row["published_nccl_seconds"] == 1.482 and row["published_rdma_seconds"] == 1.073
    assert row["rank_bytes"] == pytest.approx(3.77 * 2**30, rel=0.01)  # the published engine rank
    best, plain, cut = row["simulated"]
    assert (best["policy"], best["order"], plain["policy"]) == ("balanced", "rounds", "greedy")
    assert (cut["policy"], cut["order"], cut["train"]) == ("balanced", "rounds", "world=8,source=megatron,tp=2,ep=8,etp=1")
    assert best["of_bound"] >= 0.9 and row["bound_seconds"] >= row["wire_bound_seconds"]
    text = jobs.weft("route", "simulate", "--published", "--row", "Moonlight").stdout
    assert "1.482 s" in text and "gather=400" in text


@pytest.mark.skipif(jobs.BIN.name != "release", reason="256 trainers take a sanitizer minutes")
def test_published__balanced_in_rounds_reaches_nine_tenths_of_its_bound_on_every_row():
    """WEFT_PUBLISHED=all: the two largest too, which take most of the time."""
    names = ["GLM-Z1-9B", "Moonlight", "GLM-4.7-Flash", "Qwen3-30B-A3B", "GLM-4.5-Air", "Qwen3-235B"]
    names += ["GLM-5", "Kimi-K2"] if os.environ.get("WEFT_PUBLISHED") == "all" else []
    for name in names:
        row = simulate("--published", "--row", name)
        best, _, cut = row["simulated"]
        assert (best["policy"], best["order"]) == ("balanced", "rounds")
        assert min(best["of_bound"], cut["of_bound"]) >= 0.9, row


def churn(changes, *arguments):
    return simulate(*(arguments or JOB), f"--churn={changes}")["churn"]


def test_churn__plans_and_times_an_update_after_each_change():
    everybody, lost, gone, back, again = churn("-trainer=1,-engine=0,+engine=0,+trainer=1")
    assert everybody["change"] == "" and everybody["moved_bytes"] == 0
    assert (lost["trainers"], gone["engines"]) == (everybody["trainers"] - 1, everybody["engines"] - 1)
    assert lost["bytes"] == everybody["bytes"] and gone["bytes"] < lost["bytes"]
    # what the lost one sent is sent by others now
    assert lost["moved_bytes"] >= everybody["bytes"] / everybody["trainers"] * 0.9
    # the other trainer of its stage sends all of that, and nobody else any of it
    assert everybody["imbalance"] < 1.3 and lost["imbalance"] > 1.4 and lost["makespan_seconds"] > everybody["makespan_seconds"]
    # who is back has its part again, and the others keep the rest; an engine that has just come was not moved
    assert again["largest_bytes"] <= everybody["largest_bytes"] * 1.0101
    assert 0 < again["moved_bytes"] <= everybody["largest_bytes"]
    assert back["moved_bytes"] <= lost["bytes"] - gone["bytes"]


def test_churn__of_policies_that_keep_nothing_is_a_plan_from_the_beginning_each_time():
    everybody, lost, again = simulate(*JOB, "--policy", "round-robin", "--churn=-trainer=1,+trainer=1")["churn"]
    assert {**again, "change": "", "moved_bytes": 0} == everybody and lost["moved_bytes"] > 0


def test_churn__of_a_policy_that_cuts_moves_what_the_lost_one_sent_and_back():
    job = ("--model", "Qwen3-30B-A3B", "--train", "world=16", "--infer", "engines=2,tp=8,ep=8", "--policy", "balanced")
    everybody, lost, gone, back, again = simulate(*job, "--churn=-trainer=3,-engine=1,+engine=1,+trainer=3")["churn"]
    part = everybody["bytes"] / 16
    assert 0.95 * part < lost["moved_bytes"] < 1.05 * part and lost["imbalance"] < 1.011
    assert gone["moved_bytes"] == back["moved_bytes"] == 0 and gone["imbalance"] < 1.011
    assert 0.8 * part < again["moved_bytes"] < 1.01 * part
    assert again["largest_bytes"] <= everybody["largest_bytes"] * 1.0101
    assert again["makespan_seconds"] < everybody["makespan_seconds"] * 1.1 and again["routes"] < everybody["routes"] * 1.01


def test_churn__of_a_dump_is_that_of_its_plan(tmp_path):
    dump = tmp_path / "plan.json"
    dump.write_text(jobs.weft("route", "plan", *JOB, "--memory", "process", "--json").stdout)
    assert churn("-trainer=0", dump) == churn("-trainer=0")


def test_churn__is_a_table_for_people():
    lines = jobs.weft("route", "simulate", *JOB, "--churn=-engine=1").stdout.splitlines()
    assert lines[0].split() == ["change", "trainers", "engines", "routes", "update", "largest", "imbalance", "moved"]
    assert [line.split()[0] for line in lines[1:]] == ["(all)", "-engine=1"]


@pytest.mark.parametrize("changes,words,code", [
    ("trainer=1", "'trainer=1' is no change, such as -trainer=3", 2),
    ("-trainer=x", "'-trainer=x' is no change", 2),
    ("-rank=1", "'-rank=1' is no change", 2),
    ("", "'' is no change", 2),
    ("-trainer=99", "'-trainer=99': there are trainers 0 to", 2),
    ("-engine=9", "'-engine=9': there are engines 0 to", 2),
    ("+engine=1", "'+engine=1': it is here already", 2),
    ("-engine=1,-engine=1", "'-engine=1': it is lost already", 2),
])
def test_churn__names_a_change_that_cannot_be(changes, words, code):
    done = jobs.weft("route", "simulate", *JOB, f"--churn={changes}", check=False)
    assert (done.returncode, done.stdout) == (code, "") and words in done.stderr, done.stderr


def test_churn__names_what_nobody_holds_any_more():
    done = jobs.weft("route", "simulate", "--model", "Qwen2.5-0.5B", "--train", "world=4,pp=4", "--infer", "engines=2,tp=2",
                     "--churn=-engine=0,-trainer=2", check=False)
    assert done.returncode == 1 and "after -trainer=2" in done.stderr and "nobody holds" in done.stderr, done.stderr


def test_churn__takes_nothing_beside_it_that_it_ignores():
    done = jobs.weft("route", "simulate", *JOB, "--churn=-trainer=1", "--fail", "trainer=1@2ms", check=False)
    assert done.returncode == 2 and "--churn is of whole updates" in done.stderr
