# SPDX-License-Identifier: Apache-2.0
"""Hosts with no way between them, and transports that do not go from host to host: what the user reads."""
import time

import pytest
from hosts import Hosts
from net_job import NetJob

ALL = ("controller", "trainer-0", "trainer-1", "inference-0", "inference-1")


def last_words(job, name):
    return [line for line in job.processes[name].stderr.splitlines() if "WEFT-E" in line][-1]


def test_firewall__names_address_and_ports_in_time(tmp_path, small):
    """Nothing comes in to the ranks' host, and nobody says so."""
    model, _ = small
    with Hosts(2) as (a, b), NetJob(tmp_path / "job", model, a, [a], [b]) as job:
        b.firewall()
        job.controller()
        job.workers("--join-timeout", "30s", trainer_flags=["--join-timeout", "8s"])  # who calls gives up first
        codes = job.wait(60)
        assert set(codes.values()) == {75}, job.said()
        said = last_words(job, "trainer-0") + last_words(job, "trainer-1")
        for word in (b.address(), "WEFT_TCP_PORTS", "inference"):
            assert word in said, job.said()
        for rank in range(2):  # and not only at the end
            assert "still connecting to inference" in job.processes[f"trainer-{rank}"].stderr, job.said()


def test_firewall__at_the_callers_the_listening_side_names_its_addresses(tmp_path, small):
    """The trainers' packets do not leave their host: the ranks say whom they wait for, and where."""
    model, _ = small
    with Hosts(2) as (a, b), NetJob(tmp_path / "job", model, b, [a], [b]) as job:
        a.net("nft", "add", "table", "inet", "weft")
        a.net("nft", "add", "chain", "inet", "weft", "out", "{ type filter hook output priority 0; }")
        a.net("nft", "add", "rule", "inet", "weft", "out", "tcp", "dport", "40000-40100", "drop")
        job.controller()
        job.workers("--join-timeout", "30s", inference_flags=["--join-timeout", "4s"],
                    env={"WEFT_TCP_PORTS": "40000-40100"})  # who listens gives up first
        codes = job.wait(60)
        assert set(codes.values()) == {75}, job.said()
        for rank in range(2):
            said = last_words(job, f"inference-{rank}")
            for word in ("has not called here", "trainer", f"eth0 {b.address()}:400", f"[{b.address(version=6)}]:400"):
                assert word in said, job.said()


def test_shm__between_two_hosts_names_tcp(tmp_path, small):
    model, _ = small
    with Hosts(2) as (a, b), NetJob(tmp_path / "job", model, a, [a], [b], transport="shm") as job:
        job.controller()
        job.workers()
        codes = job.wait(60)
        assert set(codes.values()) == {78}, job.said()
        for name in ALL:
            for word in ("host0", "host1", "--transport tcp"):
                assert word in last_words(job, name), job.said()


def test_verbs__without_a_device_names_tcp(tmp_path, small):
    model, _ = small
    with Hosts(2) as (a, b), NetJob(tmp_path / "job", model, a, [a], [b], transport="verbs") as job:
        job.controller("--join-timeout", "2s")
        job.workers()
        codes = job.wait(60)
        assert 0 not in codes.values(), job.said()
        for name in ALL[1:]:
            assert "--transport tcp" in last_words(job, name), job.said()


def test_two_interfaces__without_a_default_route_name_both_and_nic(tmp_path, small):
    model, _ = small
    with Hosts(1, networks=(Hosts.BOTH, Hosts.SECOND)) as (a,), NetJob(tmp_path / "job", model, a, [a], [a]) as job:
        job.address = a.url(9)
        began = time.monotonic()
        job.worker("trainer", 0, "--transport", "tcp", "--join-timeout", "60s")
        assert job.wait(30) == {"trainer-0": 78} and time.monotonic() - began < 30
        for word in ("--nic", "eth0", "eth1", a.address(0), a.address(1)):
            assert word in last_words(job, "trainer-0"), job.said()


@pytest.mark.parametrize("nic", ["eth7", "eth0,eth7"])
def test_nic__that_is_not_there_is_named_with_those_that_are(tmp_path, small, nic):
    model, _ = small
    with Hosts(1) as (a,), NetJob(tmp_path / "job", model, a, [a], [a]) as job:
        job.address = a.url(9)
        job.worker("trainer", 0, "--transport", "tcp", "--nic", nic)
        assert job.wait(30) == {"trainer-0": 78}
        for word in ("eth7", "eth0"):
            assert word in last_words(job, "trainer-0"), job.said()
