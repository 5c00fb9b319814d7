# SPDX-License-Identifier: Apache-2.0
"""weft doctor on hosts that reach others, that reach none, and between two of them."""
import json
import subprocess

import job as jobs
import pytest
from hosts import Hosts


def findings(host, *words, code=0):
    done = host.run(jobs.WEFT, "doctor", "--json", *words, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {line["check"]: line for line in lines[:-1]}, lines[-1]["verdict"]


@pytest.mark.parametrize("link_local", [False, True])
def test_only_loopback__is_a_warning_and_no_way_between_hosts(link_local):
    with Hosts(1, networks=(Hosts.BOTH,) if link_local else ()) as (a,):
        if link_local:
            a.net("ip", "address", "flush", "dev", "eth0")
            a.net("ip", "address", "add", "169.254.7.1/16", "dev", "eth0")
        for words in ((), ("--transport", "tcp")):
            checks, verdict = findings(a, *words)
            assert checks["write-tcp"]["state"] == "WARN", checks["write-tcp"]
            assert checks["write-tcp"]["evidence"].startswith("only loopback: no other host can be reached")
            assert verdict.startswith(f"{'tcp' if words else 'shm'} will be used, within this host only; fix first: write-tcp: ")


def test_interface__over_which_tcp_goes_is_named():
    with Hosts(1) as (a,):
        checks, verdict = findings(a, "--transport", "tcp")
        assert checks["write-tcp"]["evidence"].endswith(f", over eth0 {a.address()}")
        assert verdict == "tcp will be used; nothing to fix"


def test_peer__that_the_data_does_not_reach_is_in_the_verdict_and_the_server_says_it_once():
    with Hosts(2, pair=True) as (a, b):
        server = b.start(jobs.WEFT, "doctor", "--serve", "--insecure", env={"WEFT_TCP_PORTS": "40000-40010"},
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert server.stdout.readline() and server.stdout.readline()
        where = ("--peer", f"tcp://{b.address()}:29610")
        checks, verdict = findings(a, *where, "--transport", "tcp", "--nic", "lo", code=1)
        assert "lo, which is loopback, reaches this host alone" in checks["peer-connect"]["evidence"]
        _, verdict = findings(a, *where, "--transport", "verbs,tcp")
        assert verdict.startswith("tcp works here: each pair uses the first of verbs,tcp ")
        said = [server.stdout.readline() for _ in range(2)]
        assert ": failed: " in said[0] and said[1].endswith(": done\n"), said
        b.net("nft", "add", "table", "inet", "weft")
        b.net("nft", "add", "chain", "inet", "weft", "in", "{ type filter hook input priority 0; }")
        b.net("nft", "add", "rule", "inet", "weft", "in", "tcp", "dport", "40000-40010", "reject", "with", "tcp", "reset")
        checks, verdict = findings(a, *where, "--transport", "tcp", code=1)
        assert checks["peer-connect"]["state"] == "FAIL"
        assert verdict.startswith(f"usable here: tcp; none of it gets to {where[1]}; fix first: peer-connect: ")
