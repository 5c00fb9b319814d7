# SPDX-License-Identifier: Apache-2.0
"""Whole jobs between hosts that share nothing but a network, over TCP."""
import json
import re

import job as jobs
import pytest
from hosts import Hosts
from net_job import NetJob

UPDATES = 3


def deliver(job, referee, *flags, **how):
    """Runs the job to its end: every byte of every version."""
    job.controller(*how.pop("controller", ()), interface=how.pop("interface", 0))
    job.workers("--verify", *flags, updates=UPDATES, **how)
    assert job.right_or_clean(referee, UPDATES), job.said()
    job.verify(referee, range(1, UPDATES + 1))


def carried(host, interface):
    """Bytes that came in."""
    return int(host.run("cat", f"/sys/class/net/eth{interface}/statistics/rx_bytes").stdout)


@pytest.mark.parametrize("flags,ranks", [([], []), (["--checksums"], ["--own-memory"]), ([], ["--shadow"])],
                         ids=["weft-memory", "own-memory", "shadow"])
def test_job__two_hosts_every_byte(tmp_path, small, flags, ranks):
    model, referee = small
    with Hosts(2) as (a, b), NetJob(tmp_path / "job", model, a, [a], [b]) as job:
        deliver(job, referee, *flags, inference_flags=ranks)


def test_job__each_process_on_a_host_of_its_own(tmp_path, small):
    model, referee = small
    with Hosts(5) as (head, a, b, c, d), NetJob(tmp_path / "job", model, head, [a, b], [c, d]) as job:
        deliver(job, referee, controller=["--dump", tmp_path / "dump.json"])
        said = job.processes["controller"].stderr
    assert {f"host{n}" for n in (1, 2, 3, 4)} <= set(re.findall(r"\(host (\w+),", said)), said
    assert json.loads((tmp_path / "dump.json").read_text())


def test_job__ipv6_alone(tmp_path, small):
    model, referee = small
    with Hosts(2, networks=(Hosts.IPV6,)) as (a, b), NetJob(tmp_path / "job", model, a, [a], [b]) as job:
        deliver(job, referee)
        assert "tcp://[fd81" in job.address


@pytest.mark.parametrize("nic", [0, 1])
def test_job__the_interface_that_nic_names_carries_the_bytes(tmp_path, small, nic):
    """The control channel is on the first network either way: it carries plans and digests, no weights."""
    model, referee = small
    with Hosts(2, networks=(Hosts.BOTH, Hosts.SECOND)) as (a, b), \
            NetJob(tmp_path / "job", model, a, [a], [b]) as job:
        before = carried(b, 1)
        deliver(job, referee, "--nic", f"eth{nic}")
        total = sum(update["bytes"] for rank in range(2) for update in job.processes[f"inference-{rank}"].updates())
        assert (carried(b, 1) - before >= total) == (nic == 1)


def test_job__the_interface_of_the_default_route_is_taken(tmp_path, small):
    """As in many a container: the first interface leads nowhere, and the way out is the second."""
    model, referee = small
    with Hosts(2, networks=(Hosts.BOTH, Hosts.SECOND)) as (a, b), \
            NetJob(tmp_path / "job", model, a, [a], [b]) as job:
        for number, host in enumerate((a, b)):
            host.net("ip", "address", "flush", "dev", "eth0")
            host.net("ip", "address", "add", f"172.29.{number}.1/24", "dev", "eth0")
            host.net("ip", "route", "add", "default", "via", "10.82.0.254")
        deliver(job, referee, interface=1)


def test_job__the_ports_that_a_firewall_lets_through_are_enough(tmp_path, small):
    model, referee = small
    with Hosts(2) as (a, b), NetJob(tmp_path / "job", model, a, [a], [b]) as job:
        for host in (a, b):
            host.firewall("31000-31099", 29600)
        deliver(job, referee, controller=["--bind", "tcp://*:29600"], env={"WEFT_TCP_PORTS": "31000-31099"})


def test_job__ranks_of_one_host_and_of_another_in_one_job(tmp_path, small):
    """TCP also joins processes of one host: a job's pairs all use it."""
    model, referee = small
    with Hosts(2) as (a, b), NetJob(tmp_path / "job", model, a, [a, b], [a, b]) as job:
        deliver(job, referee)


def test_job__sharded_trainers_of_three_hosts_into_two_engines(tmp_path):
    train, infer = "world=3,fsdp=3,source=sharded", "engines=2,tp=2"
    model = jobs.make_model(tmp_path, "llama")
    referee = jobs.expected(model, infer)
    with Hosts(3) as three, NetJob(tmp_path / "job", model, three[0], three, three[1:], train, infer) as job:
        deliver(job, referee, "--checksums")
