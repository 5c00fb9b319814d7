# SPDX-License-Identifier: Apache-2.0
"""What happens to networks and hosts while a job runs: it ends right, or with an error that names who is missing, in
bounded time, and no wrong byte is ever published. Deadlines here are many times what it takes."""
import os
import random
import re
import time

import pytest
from hosts import Hosts
from net_job import NetJob, updates

SOON = ("--heartbeat", "200ms", "--lost-after", "2s")
ENDLESS = 1000000
KILLS = int(os.environ.get("WEFT_NET_KILLS", "3"))
SURVIVORS = ("controller", "trainer-0", "trainer-1", "inference-0", "inference-1")


def begin(job, *flags, controller=SOON, updates=ENDLESS, **how):
    """Starts the job; returns when updates go from one to the next."""
    job.controller(*controller)
    job.workers(*flags, updates=updates, **how)
    deadline = time.monotonic() + 60
    while len(job.processes["inference-0"].updates()) < 3:
        assert time.monotonic() < deadline and job.processes["inference-0"].code is None, job.said()
        time.sleep(0.02)


@pytest.mark.parametrize("seconds", [[0.05, 0.05, 0.05, 0.05], [1.0]], ids=["short", "long"])
def test_flap__of_the_link_ends_right_or_clean(tmp_path, large, seconds):
    model, referee = large
    with Hosts(2) as (a, b), NetJob(tmp_path / "job", model, a, [a], [b]) as job:
        begin(job, "--checksums", updates=20)
        for pause in seconds:
            b.link(False)
            time.sleep(pause)
            b.link(True)
        job.right_or_clean(referee, 20)


@pytest.mark.parametrize("role,loser", [("trainer", "trainer 1"), ("inference", "inference 1")])
def test_vanished_host__is_named_by_every_survivor(tmp_path, large, role, loser):
    model, referee = large
    with Hosts(3) as (a, b, c):
        places = {"trainers": [a, c] if role == "trainer" else [a], "ranks": [b, c] if role == "inference" else [b]}
        with NetJob(tmp_path / "job", model, a, **places) as job:
            begin(job)
            c.vanish()
            gone = loser.replace(" ", "-")
            survivors = [name for name in SURVIVORS if name != gone]
            job.wait(60, survivors)
            job.named(loser, survivors)
            job.published(referee)


def test_half_open__both_sides_of_a_cut_end_and_name_each_other(tmp_path, large):
    """The processes behind the cut live on, and nothing tells either side: no FIN, no RST."""
    model, referee = large
    with Hosts(3) as (a, b, c), NetJob(tmp_path / "job", model, a, [a], [b, c]) as job:
        begin(job)
        c.link(False)
        job.wait(60)
        job.named("inference 1", [name for name in SURVIVORS if name != "inference-1"])
        job.named("controller", ["inference-1"])
        job.published(referee)


@pytest.mark.parametrize("how", ["cut", "deaf"])
def test_half_open__of_the_data_alone_is_an_error_in_time(tmp_path, large, how):
    """The control channel is on another network and goes on: heartbeats do not hide that no byte arrives. Who notices
    first, once a rank and once a trainer, says over which interface and addresses."""
    model, referee = large
    with Hosts(2, networks=(Hosts.BOTH, Hosts.SECOND)) as (a, b), \
            NetJob(tmp_path / "job", model, a, [a], [b]) as job:
        patient = {"inference_flags" if how == "deaf" else "trainer_flags": ["--update-timeout", "50s"]}
        begin(job, "--nic", "eth1", "--update-timeout", "3s", **patient)
        b.link(False, 1) if how == "cut" else b.deaf(1)
        assert not job.right_or_clean(referee, ENDLESS, 60), job.said()
        assert any("inference" in job.processes[f"trainer-{rank}"].stderr.splitlines()[-1] for rank in range(2)), job.said()
        mine, theirs = (re.escape(host.address(1)) for host in (a, b))
        path = f"eth1 {mine} to {theirs}" if how == "deaf" else f"eth1 {theirs} from {mine}"
        assert re.search(rf"WEFT-E130 .*tcp, {path}:\d+", job.processes["controller"].stderr), job.said()


# How a stream is lost: who has to do it, and the words; PORT is the one that the inference rank has of it. After the last,
# the trainer's end is never told by its network: what it sends is dropped, and so is the answer that nobody has that stream.
LOSSES = [
    ("a", "ss -K -t dport = PORT"),
    ("b", "ss -K -t sport = PORT"),
    ("b", "nft add rule inet weft in tcp dport PORT reject with tcp reset"),
    ("a", "nft add rule inet weft in tcp sport PORT reject with tcp reset"),
]


def made_up(job, rank):
    """Streams that a trainer has lost and got over."""
    return job.processes[f"trainer-{rank}"].stderr.count("go out again on the other streams")


def test_lost_streams__in_the_midst_of_updates_are_made_up_for_by_the_others(tmp_path, large):
    """Four of six of each rank, one after the other: not a wrong byte is published, and the job goes on."""
    model, referee = large
    with Hosts(2, pair=True) as (a, b), NetJob(tmp_path / "job", model, a, [a], [b]) as job:
        for host in (a, b):
            host.drop("tcp", "dport", "1")  # a table for rules
        begin(job, "--checksums", env={"WEFT_STREAMS": "6", "WEFT_TCP_PORTS": "40000-40099",
                                         "WEFT_CHUNK_BYTES": "65536"})
        # what trainers opened: ranks of one host have streams to each other, from ports that the kernel picks
        shown = b.net("ss", "-tnpH", "state", "established", f"( sport >= 40000 and sport <= 40099 and dst {a.address()} )").stdout
        ports = {}
        for line in shown.splitlines():
            ports.setdefault(line.split("pid=")[1].split(",")[0], set()).add(line.split()[2].rsplit(":", 1)[1])
        assert [len(of_rank) for of_rank in ports.values()] == [6, 6], shown
        for number, (where, words) in enumerate(LOSSES, 1):
            before, deadline = updates(job), time.monotonic() + 60
            for of_rank in ports.values():
                time.sleep(0.05)
                {"a": a, "b": b}[where].net(*words.replace("PORT", of_rank.pop()).split())
            # a stream is of one trainer and one inference rank
            while updates(job) < before + 4 or min(made_up(job, rank) for rank in range(2)) < 2 * number:
                assert time.monotonic() < deadline and job.processes["trainer-0"].code is None, f"{words}\n{job.said()}"
                time.sleep(0.02)
        for name in job.processes:
            job.kill(name)
        job.wait()
        job.published(referee)
        assert [made_up(job, rank) for rank in range(2)] == 2 * [2 * len(LOSSES)], job.said()


def joined(job, victim):
    """Waits until the controller has heard of it: who is killed before that is waited for, and not lost."""
    role, rank = victim.split("-")
    deadline = time.monotonic() + 60
    while f"{role} {rank} (host" not in job.processes["controller"].stderr:
        assert time.monotonic() < deadline, job.said()
        time.sleep(0.002)


def one_kill(folder, model, referee, hosts, chance):
    a, b, c = hosts
    victim = chance.choice(["trainer-0", "trainer-1", "inference-0", "inference-1"])
    flags = chance.choice([[], ["--checksums"]])
    inference_flags = chance.choice([[], ["--own-memory"], ["--shadow"]])
    with NetJob(folder, model, a, [a, b], [b, c]) as job:
        if chance.random() < 0.7:
            begin(job, *flags, inference_flags=inference_flags)
            time.sleep(chance.uniform(0, 0.5))
        else:  # on the way there; whoever has not declared may come again until the controller has waited long enough
            job.controller(*SOON, "--join-timeout", "20s")
            job.workers(*flags, updates=ENDLESS, inference_flags=inference_flags)
            joined(job, victim)
            time.sleep(chance.uniform(0, 0.1))
        job.kill(victim)
        job.wait(60)
        job.named(victim.replace("-", " "), [name for name in SURVIVORS if name != victim])
        job.published(referee)


def test_kills__at_random_moments_never_publish_a_wrong_byte(tmp_path, small):
    """WEFT_NET_KILLS of them; afterwards the same hosts run a job to its end."""
    model, referee = small
    seed = int(os.environ.get("WEFT_NET_SEED", random.SystemRandom().randrange(1 << 32)))
    print(f"WEFT_NET_SEED={seed}")
    chance = random.Random(seed)
    with Hosts(3) as hosts:
        for number in range(KILLS):
            one_kill(tmp_path / f"kill-{number}", model, referee, hosts, chance)
        with NetJob(tmp_path / "after", model, hosts[0], [hosts[0], hosts[1]], [hosts[1], hosts[2]]) as job:
            job.controller()
            job.workers("--verify", updates=2)
            assert job.right_or_clean(referee, 2), job.said()
