# SPDX-License-Identifier: Apache-2.0
"""`weft status` of whole jobs: each way in which one stands still has its one at fault named within five seconds; with a key
nobody looks who has none; what is wrong is said."""
import json
import os
import re
import signal
import subprocess
import time

import pytest

from job import WEFT, Job, weft

TRAIN, INFER = "world=2,source=gathered", "engines=2,tp=1"
WITHIN = 5.0  # seconds, by the clocks of the job
PATIENCE = 30.0  # with a machine that has much else to do
CALM = ("--on-loss", "continue", "--lost-after", "30s", "--update-timeout", "60s", "--heartbeat", "200ms")


def status(job, *flags, check=True, **how):
    return weft("status", "--controller", job.address, *flags, check=check, **how)


def looks(job, *flags):
    return json.loads(status(job, "--json", *flags).stdout)


def until(look, what, within=PATIENCE):
    """What `look` gives, once `what` holds of it."""
    began = time.monotonic()
    while not what(found := look()):
        assert time.monotonic() - began < within, found
    return found


def faults(job):
    return [one for one in looks(job)["why"] if one["fault"]]


def names(role, rank, text):
    return lambda found: any((one.get("role"), one.get("rank")) == (role, rank) and re.search(text, one["text"]) for one in found)


def started(tmp_path, model, *flags, controller=CALM, **more):
    job = Job(tmp_path, model, TRAIN, INFER)
    job.controller(*controller)
    job.workers("--interval", "100ms", *flags, updates=100000, **more)
    return job


def running(job):
    until(lambda: looks(job), lambda found: found["state"] == "running" and
          all(member.get("version", 0) > 2 for member in found["members"]))


@pytest.fixture
def model(models):
    return models["qwen2"]


@pytest.mark.parametrize("transport", [pytest.param("shm", marks=pytest.mark.shm), "tcp"])
def test_fault__a_stopped_trainer_is_named_and_nobody_who_waits_for_it(tmp_path, model, transport):
    with started(tmp_path, model, "--transport", transport) as job:
        running(job)
        until(lambda: faults(job), lambda found: found == [])
        job.processes["trainer-1"].popen.send_signal(signal.SIGSTOP)
        (first, *_) = until(lambda: faults(job), names("trainer", 1, r"is silent for \d"))
        assert float(re.search(r"silent for ([\d.]+) s", first["text"])[1]) < WITHIN
        until(lambda: faults(job), lambda found: {(one["role"], one["rank"]) for one in found} == {("trainer", 1)})
        until(lambda: looks(job), lambda found: any(member.get("waits_for") == [{"role": "trainer", "rank": 1}]
                                                    for member in found["members"]))
        job.processes["trainer-1"].popen.send_signal(signal.SIGCONT)
        until(lambda: faults(job), lambda found: found == [])


@pytest.mark.shm
def test_fault__a_dead_engine_is_named_with_its_reason_and_the_others_go_on(tmp_path, model):
    with started(tmp_path, model, "--transport", "shm") as job:
        running(job)
        job.kill("inference-1")
        (first, *_) = until(lambda: faults(job), names("inference", 1, r"is lost for [\d.]+ s: WEFT-E131: .*(has died|its process has ended)"))
        assert float(re.search(r"lost for ([\d.]+) s", first["text"])[1]) < WITHIN
        found = looks(job)
        assert found["state"] == "running" and found["events"][-1]["code"] == 131
        before = found["members"][0]["version"]
        until(lambda: looks(job)["members"][0]["version"], lambda version: version > before)


@pytest.mark.shm
def test_fault__a_log_on_a_full_disk_is_named_and_the_job_goes_on(tmp_path, model):
    job = Job(tmp_path, model, TRAIN, INFER)
    with job:
        job.controller(*CALM)
        for role in ("trainer", "inference"):
            for rank in range(2):
                full = {"WEFT_LOG_FILE": "/dev/full", "WEFT_LOG": "info"} if (role, rank) == ("trainer", 0) else None
                job.worker(role, rank, "--interval", "100ms", updates=100000, env=full)
        running(job)
        until(lambda: faults(job), names("trainer", 0, "lines of its log are lost .*: No space left on device"))


@pytest.mark.shm
def test_fault__figures_on_a_full_disk_are_named_until_there_is_room(tmp_path, model):
    disk = tmp_path / "disk"
    disk.mkdir()
    small = ["unshare", *([] if os.geteuid() == 0 else ["--map-root-user"]), "--mount", "sh", "-c",
             'mount -t tmpfs -o size=64k none "$0" && exec "$@"', str(disk)]
    if subprocess.run([*small, "true"], capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    with Job(tmp_path / "job", model, TRAIN, INFER) as job:
        job.controller(*CALM)
        job.workers("--interval", "100ms", updates=100000)
        # in the place of one of them, on its own small disk
        victim = job.processes.pop("inference-0")
        command = victim.popen.args
        victim.popen.kill()
        victim.popen.wait()
        job.start("inference-0", [*small, *command, "--metrics-file", disk / "weft.prom"])
        running(job)
        room = f"/proc/{job.processes['inference-0'].popen.pid}/root{disk}/fill"
        with open(room, "wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
            while True:
                file.write(b"x" * 1024)
        # they are written every five seconds
        until(lambda: faults(job), names("inference", 0, r"--metrics-file\): cannot write .*No space left on device"))
        os.unlink(room)
        until(lambda: faults(job), lambda found: found == [])


@pytest.mark.shm
def test_gathering__says_who_is_missing_and_blames_nobody(tmp_path, model):
    with Job(tmp_path, model, TRAIN, INFER) as job:
        job.controller(*CALM)
        job.worker("trainer", 1, updates=2)
        found = until(lambda: looks(job), lambda found: "trainer 0 of 2" in found["missing"] and
                      found["members"][1]["phase"] == "declared")
        assert found["why"] == [{"fault": False, "text": "the job is gathering, and waits for: trainer 0 of 2, inference 0..1 of 2 "
                                                         "to join"}]
        assert status(job, "--check").returncode == 0
        assert "absent" in status(job).stdout


@pytest.mark.shm
def test_shown__a_running_job_has_its_plan_clocks_links_and_rates(tmp_path, model):
    with started(tmp_path, model, controller=(*CALM, "--topology", "per_host=2,nics=2,gbps=100")) as job:
        running(job)
        found = looks(job, "--links")
        assert sum(link["bytes"] for link in found["links"] if link["inference"] == 0) == found["members"][2]["plan_bytes"] > 0
        assert max(member["plan_bytes"] for member in found["members"][:2]) == found["plan_largest_bytes"]
        assert 0 < found["plan_bound_seconds"] <= found["plan_predicted_seconds"]
        for member in found["members"]:
            last = member["last_update"]
            assert last["bytes"] == member["plan_bytes"] and last["update_seconds"] > 0, member
        text = until(lambda: status(job, "--links").stdout, lambda text: "nobody is at fault" in text)
        for word in ("policy greedy", "slowest trainer", "slowest rank", "% of what is possible", "waits for", "i1"):
            assert word in text, text


@pytest.mark.shm
def test_watch__looks_until_it_is_interrupted(tmp_path, model):
    with started(tmp_path, model) as job:
        running(job)
        with subprocess.Popen([WEFT, "status", "--controller", job.address, "--watch", "--every", "200ms", "--json"],
                              stdout=subprocess.PIPE, text=True) as watching:
            seen = [json.loads(watching.stdout.readline()) for _ in range(5)]
            watching.terminate()  # a shell may have had SIGINT ignored
            watching.wait(20)  # before its pipe is closed
        assert watching.returncode == -signal.SIGTERM
        assert seen[-1]["members"][0]["version"] > seen[0]["members"][0]["version"]


@pytest.mark.shm
def test_check__has_an_exit_code_for_probes(tmp_path, model):
    with started(tmp_path, model) as job:
        running(job)
        until(lambda: status(job, "--check", check=False), lambda done: done.returncode == 0)
        job.processes["trainer-0"].popen.send_signal(signal.SIGSTOP)
        done = until(lambda: status(job, "--check", check=False), lambda done: done.returncode == 1)
        assert done.stdout.startswith("FAULT  trainer 0 (host"), done.stdout
        job.processes["trainer-0"].popen.send_signal(signal.SIGCONT)


@pytest.mark.shm
def test_harmless__whoever_asks_without_end_does_not_slow_the_job_or_end_it(tmp_path, model):
    with Job(tmp_path, model, TRAIN, INFER) as job:
        job.controller(*CALM)
        job.workers("--interval", "20ms", updates=60)
        asking = [subprocess.Popen([WEFT, "status", "--controller", job.address, "--watch", "--every", "1ms", "--links"],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for _ in range(3)]
        job.succeed()
        for one in asking:
            _, said = one.communicate(timeout=20)  # the controller is gone, and that is said
            assert one.returncode == 75 and "WEFT-E130" in said, said


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    weft("key", "make", folder / "job.key")
    weft("key", "make", folder / "other.key")
    for role in ("trainer", "inference", "observer"):
        weft("key", "role", "--role", role, folder / "job.key", folder / f"{role}.key")
    return {path.stem: path for path in folder.glob("*.key")}


def test_key__of_the_job_or_of_any_role_of_it_may_look_and_nobody_else(tmp_path, model, keys):
    with Job(tmp_path, model, TRAIN, INFER) as job:
        job.controller("--key", keys["job"], *CALM)
        job.worker("trainer", 0, "--key", keys["trainer"])
        for name in ("job", "observer", "trainer", "inference"):
            found = until(lambda: looks(job, "--key", keys[name]), lambda found: found["state"] == "gathering")
            secret = dict(line.split(" ", 1) for line in keys["job"].read_text().splitlines() if " " in line)["secret"]
            assert secret not in json.dumps(found)
        for flags, words in (((), "wants a key"), (("--key", keys["other"]), "another job's")):
            done = status(job, "--timeout", "2s", *flags, check=False)
            assert done.returncode == 75 and words in done.stderr, done.stderr


@pytest.mark.parametrize("flags,code,words", [
    (("--controller", "tcp://127.0.0.1:1", "--timeout", "1s"), 75, "nobody listens there"),
    (("--controller", "tcp://nowhere.invalid:29600", "--timeout", "1s"), 75, "nowhere.invalid"),
    (("--controller", "auto"), 2, "give the address that the controller logs"),
    (("--controller", "127.0.0.1:29600", "--timeout", "1s"), 78, "127.0.0.1:29600"),
    (("--check", "--watch"), 2, "give one of them"),
    (("--key", "/nowhere/key", "--timeout", "1s"), (78, 1), "/nowhere/key"),
    (("extra",), 2, "extra"),
    (("--every", "0"), 2, "--every"),
])
def test_wrong__is_said_in_one_line(flags, code, words):
    done = weft("status", *flags, check=False)
    assert done.returncode in (code if isinstance(code, tuple) else (code,)), done.stderr
    assert words in done.stderr and done.stdout == "", done.stderr


def test_wrong__a_port_of_something_else_is_no_controller(tmp_path):
    import socket
    with socket.create_server(("127.0.0.1", 0)) as other:
        done = weft("status", "--controller", f"tcp://127.0.0.1:{other.getsockname()[1]}", "--timeout", "3s", check=False)
    assert done.returncode == 75 and "not reached" in done.stderr, done.stderr
