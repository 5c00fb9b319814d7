# SPDX-License-Identifier: Apache-2.0
"""Which transport, which NIC, is the path there, and was a byte written beside its target."""
import json
import pathlib
import re
import time

import pytest

import job as jobs

TRAIN, INFER = "world=2,source=gathered", "engines=1,tp=2"


def last_error(process):
    return [line for line in process.stderr.splitlines() if "WEFT-E" in line][-1]


def test_path_that_fails_its_proof__is_named_by_everyone_and_nothing_is_published(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        job.controller("--lost-after", "2s")
        for role, count in (("trainer", 2), ("inference", 2)):
            for rank in range(count):
                fault = {"WEFT_FAULT": "inner=shm,op=endpoint_probe,at=2,kind=fail"}
                job.worker(role, rank, env=fault if (role, rank) == ("trainer", 1) else None)
        codes = job.wait(20)
        assert set(codes.values()) == {75}, job.said()
        assert "probing the path to inference" in last_error(job.processes["trainer-1"]), job.said()
        for name in ("trainer-0", "inference-0", "inference-1"):
            assert "trainer 1" in last_error(job.processes[name]), job.said([name])
        assert not job.processes["inference-0"].updates() + job.processes["inference-1"].updates()


def test_unknown_transport__lists_those_there_are(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        job.address = "tcp://127.0.0.1:9"
        process = job.worker("trainer", 0, "--transport", "carrier-pigeon")
        job.wait(20)
        assert process.code == 78
        assert re.search(r"no transport provider 'carrier-pigeon'.*there are: .*shm", last_error(process))


def test_nics__are_refused_by_a_transport_without_any(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        job.address = "tcp://127.0.0.1:9"
        process = job.worker("trainer", 0, "--nic", "mlx5_0")
        job.wait(20)
        assert process.code == 78
        assert "shm uses no NIC" in last_error(process) and "mlx5_0" in last_error(process)


def test_registered_sources__change_nothing_where_any_memory_is_read(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        job.controller()
        job.workers("--verify", trainer_flags=["--register-sources"])
        job.succeed()
        job.verify(jobs.expected(models["qwen2"], INFER), [1, 2])


def write_into_a_guard(pid):
    """A page of nothing but the guard's value, in the process's anonymous memory."""
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "r+b", 0) as memory:
        for line in maps:
            first, last, access, name = re.match(r"(\w+)-(\w+) (\S+) \S+ \S+ \S+ *(.*)", line).groups()
            if access != "rw-p" or name:
                continue
            memory.seek(int(first, 16))
            data = memory.read(int(last, 16) - int(first, 16))
            at = data.find(b"\xa5" * 4096)
            if at >= 0:
                memory.seek(int(first, 16) + at + 100)
                memory.write(b"\x17")
                return
    raise AssertionError("no guard was found")


def test_guard__around_a_parameter_finds_one_stray_byte(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen2"], "world=1,source=gathered", "engines=1,tp=1") as job:
        job.controller()
        job.workers("--verify", "--interval", "50ms", updates=10000, inference_flags=["--own-memory"])
        rank, deadline = job.processes["inference-0"], time.monotonic() + 20
        while len(rank.updates()) < 2:
            assert time.monotonic() < deadline and rank.code is None, job.said()
            time.sleep(0.02)
        write_into_a_guard(rank.popen.pid)
        job.wait(20)
        assert rank.code == 1
        assert "0x17 instead of 0xa5" in last_error(rank), last_error(rank)


@pytest.mark.skipif(any(pathlib.Path("/sys/class/infiniband").glob("*")), reason="this machine has an RDMA device")
def test_verbs_without_a_device__says_so_and_points_to_doctor(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        job.address = "tcp://127.0.0.1:9"
        process = job.worker("trainer", 0, "--transport", "verbs")
        job.wait(20)
        assert process.code == 78
        assert "RDMA" in last_error(process) and "weft doctor" in last_error(process), last_error(process)
    bench = jobs.weft("bench", "update", "--transport", "verbs", "--model", models["qwen2"], "--train", TRAIN, "--infer", INFER,
                      check=False)
    assert bench.returncode != 0 and "weft doctor" in bench.stderr, bench.stderr


# ---- several transports in one job ----

RDMA = any(pathlib.Path("/sys/class/infiniband").glob("*"))


def test_auto__says_its_rule_and_what_is_missing_and_delivers_over_what_is_there(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        job.controller("--dump", tmp_path / "live.json")
        job.workers("--transport", "auto", "--verify", env={"WEFT_LOG": "info"})
        job.succeed()
        job.verify(jobs.expected(models["qwen2"], INFER), [1, 2])
        for process in (job.processes["trainer-0"], job.processes["inference-1"]):
            assert "transports shm,verbs: each pair uses the first of them that both sides have and that reaches" in process.stderr
            assert RDMA or "transport verbs cannot be used here: " in process.stderr, process.stderr
    live = json.loads((tmp_path / "live.json").read_text())
    shm, verbs = live["transports"]
    assert shm == {"name": "shm", "trainers": [1, 1], "inference": [1, 1]} and verbs["name"] == "verbs"
    assert RDMA or verbs["trainers"] == verbs["inference"] == [0, 0]
    assert {route["transport"] for route in live["routes"]} == {"shm"}
    assert {route["how"] for route in live["routes"]} == {"direct", "mapped"}
    shown = jobs.weft("route", "show", tmp_path / "live.json", "--by", "transport", "--json").stdout
    assert json.loads(shown) == {"transport": "shm", "bytes": live["summary"]["bytes_total"],
                                 "routes": len(live["routes"]), "pairs": 4}
    jobs.weft("route", "verify", tmp_path / "live.json", "--model", models["qwen2"])


def test_auto__without_the_libraries_of_rdma_names_them_and_delivers(tmp_path, models):
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    for name in ("libibverbs.so.1", "librdmacm.so.1"):
        (hidden / name).touch()  # where the loader ends its search
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        job.controller()
        job.workers("--transport", "auto", "--verify", env={"WEFT_LOG": "info", "LD_LIBRARY_PATH": str(hidden)})
        job.succeed()
        job.verify(jobs.expected(models["qwen2"], INFER), [1, 2])
        said = job.processes["trainer-0"].stderr
        assert re.search(r"transport verbs cannot be used here: .*libibverbs cannot be opened: .*install libibverbs1",
                         said), said


@pytest.mark.skipif(RDMA, reason="this machine has an RDMA device, so verbs would reach")
def test_pair_that_nothing_reaches__is_refused_by_name_and_everyone_hears_what_to_do(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        job.hosts = {"inference-1": "far"}
        job.controller("--lost-after", "2s")
        job.workers("--transport", "auto")
        codes = job.wait(20)
        assert all(codes.values()), job.said()
        said = last_error(job.processes["controller"])
        assert re.search(r"no transport of shm,verbs gets from trainer \d \(host .*\) to inference 1 \(host far\): "
                         r"shm: one reaches 'boot .*', the other 'boot .*'; verbs: neither has it; "
                         r"give all workers --transport shm,verbs,tcp; no trainer that holds these rows of model\.\S+ reaches it", said), said


def test_trainers_of_two_hosts__each_send_to_their_own_where_nothing_crosses(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        job.hosts = {"trainer-1": "far", "inference-1": "far"}
        job.controller("--topology", "workers", "--policy", "first-holder", "--dump", tmp_path / "live.json",
                       "--commit", "rank")
        job.workers("--transport", "auto", "--verify")
        job.succeed()
        job.verify(jobs.expected(models["qwen2"], INFER), [1, 2])
    live = json.loads((tmp_path / "live.json").read_text())
    assert {(route["trainer"], route["inference"]) for route in live["routes"]} == {(0, 0), (1, 1)}
    jobs.weft("route", "verify", tmp_path / "live.json", "--model", models["qwen2"])


def test_engine_of_two_hosts__whose_ranks_cannot_reach_each_other_is_refused_by_name(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        job.hosts = {"trainer-1": "far", "inference-1": "far"}
        job.controller("--topology", "workers", "--policy", "first-holder")
        job.workers("--transport", "auto")
        assert set(job.wait(20).values()) == {78}, job.said()
        said = last_error(job.processes["inference-1"])
        assert "no transport of shm,verbs gets from inference 0 (host " in said and "to inference 1 (host far)" in said
        assert "They show versions together" in said and "--commit rank lets each show its own" in said


MIXED = {  # flags of trainers, of inference ranks; how pieces go by shm and by tcp
    "weft-memory": ([], [], {"direct", "mapped"}, {"direct", "replica"}),
    "own-memory": (["--register-sources"], ["--own-memory"], {"direct", "replica"}, {"direct", "replica"}),
    "full-shadow": (["--replica", "full"], ["--shadow"], {"direct", "mapped"}, {"direct", "replica"}),
}


@pytest.mark.parametrize("mode", MIXED)
def test_job_of_two_hosts__uses_shm_on_one_and_tcp_to_the_other(tmp_path, models, monkeypatch, mode):
    monkeypatch.setenv("WEFT_NIC", "lo")  # whatever other interfaces this machine has
    trainer_flags, inference_flags, by_shm, by_tcp = MIXED[mode]
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        job.hosts = {"inference-1": "far"}
        job.controller("--topology", "workers", "--dump", tmp_path / "live.json")
        job.workers("--transport", "shm,tcp", "--checksums", updates=3, trainer_flags=trainer_flags,
                    inference_flags=["--verify", *inference_flags])
        job.succeed()
        job.verify(jobs.expected(models["qwen2"], INFER), [1, 2, 3])
    live = json.loads((tmp_path / "live.json").read_text())
    how = {"shm": set(), "tcp": set()}
    for route in live["routes"]:
        assert route["transport"] == ("tcp" if route["inference"] else "shm")
        how[route["transport"]] |= {piece.get("how", route["how"]) for piece in route["pieces"]}
    assert how == {"shm": by_shm, "tcp": by_tcp}
    if mode == "own-memory":
        return  # offline a rank's memory is weft's, or nobody's
    (tmp_path / "topology.json").write_text(json.dumps(live["topology"]))
    offline = jobs.weft("route", "plan", "--model", models["qwen2"], "--train", TRAIN, "--infer", INFER, "--transport", "shm,tcp",
                        "--topology", tmp_path / "topology.json", "--json")
    assert offline.stdout == (tmp_path / "live.json").read_text()


def test_mixed_job__that_loses_a_rank_over_tcp_names_it_on_every_side(tmp_path, models, monkeypatch):
    monkeypatch.setenv("WEFT_NIC", "lo")
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        job.hosts = {"inference-1": "far"}
        job.controller("--lost-after", "2s")
        job.workers("--transport", "shm,tcp", updates=100000)
        deadline = time.monotonic() + 30
        while not job.processes["inference-1"].updates():
            assert time.monotonic() < deadline, job.said()
            time.sleep(0.02)
        job.kill("inference-1")
        job.processes["inference-1"].popen.wait()
        names = [name for name in job.processes if name != "inference-1"]
        codes = job.wait(30, names=names)
        assert set(codes.values()) == {75}, job.said()
        for name in names:
            assert "inference 1" in last_error(job.processes[name]), job.said([name])


def test_lists_that_differ__are_refused_with_both(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        job.controller("--join-timeout", "3s")
        job.worker("trainer", 0, "--transport", "auto")
        time.sleep(0.5)
        process = job.worker("trainer", 1, "--transport", "verbs,shm")
        job.wait(20, names=["trainer-1"])
        assert process.code and "'verbs,shm'" in process.stderr and "'shm,verbs'" in process.stderr, process.stderr


@pytest.mark.parametrize("given, said", [("shm,", "'' is no name of a transport"), ("shm,shm", "lists shm twice"),
                                         ("shm,carrier-pigeon", "'carrier-pigeon' is no name"),
                                         ("shm,pigeon", "no transport provider 'pigeon'")])
def test_list__that_is_none_is_refused_at_once(tmp_path, models, given, said):
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        job.address = "tcp://127.0.0.1:9"
        process = job.worker("trainer", 0, "--transport", given)
        job.wait(20)
        assert process.code == 78 and said in last_error(process), process.stderr


def test_plan_offline__wants_a_list_and_hosts_that_it_reaches(models):
    flags = ("route", "plan", "--model", models["qwen2"], "--train", "world=2", "--infer", "engines=1,tp=2")
    for more, said in ((("--transport", "shm"), "one transport for all pairs"), (("--transport", "shm,pigeon"), "no transport 'pigeon'"),
                       (("--transport", "shm,mock", "--topology", "per_host=2"), "no transport of shm,mock gets from trainer")):
        done = jobs.weft(*flags, *more, check=False, program=jobs.TESTED_WEFT)
        assert done.returncode and said in done.stderr, done.stderr
    done = jobs.weft(*flags, "--transport", "auto", "--topology", "per_host=2", "--memory", "process")
    assert "transports shm,verbs: each pair uses the first" in done.stdout


@pytest.mark.parametrize("change, said", [
    (lambda dump: dump["routes"][0].update(transport="verbs"), "the pair uses shm"),
    (lambda dump: dump["routes"][0].pop("transport"), "transport"),
    (lambda dump: dump.pop("transports"), "no \"transports\""),
    (lambda dump: dump["transports"][0]["trainers"].append(1), "3 numbers"),
    (lambda dump: dump["transports"][0].update(name="verbs"), "there already"),
    (lambda dump: dump["transports"][0].update(name="Verbs"), "no name of a transport"),
    (lambda dump: dump["transports"][1]["inference"].__setitem__(0, -1), "no number"),
    (lambda dump: dump["transports"].clear(), "0 transports"),
])
def test_dump__whose_transports_contradict_each_other_is_refused(tmp_path, change, said):
    dump = json.loads((jobs.ROOT / "tests/e2e/golden/mixed.json").read_text())
    change(dump)
    (tmp_path / "changed.json").write_text(json.dumps(dump))
    done = jobs.weft("route", "export", tmp_path / "changed.json", "--format", "json", check=False)
    assert done.returncode and said in done.stderr, done.stderr
