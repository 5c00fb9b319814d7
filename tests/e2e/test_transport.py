# SPDX-License-Identifier: Apache-2.0
"""Which transport, which NIC, is the path there, and was a byte written beside its target."""
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
