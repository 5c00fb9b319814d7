# SPDX-License-Identifier: Apache-2.0
"""weft doctor on hosts that reach others, that reach none, and between two of them."""
import json

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
