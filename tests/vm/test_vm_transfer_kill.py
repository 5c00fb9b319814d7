# SPDX-License-Identifier: Apache-2.0
"""Two processes over real queue pairs: one is killed or stopped, a device is taken away, endpoints come
and go, both write for a minute. vm_kill and vm_endure (tests/vm/vm_*.c) judge; mostly a boot a test.

WEFT_VM_TRANSFER_KILLS and WEFT_VM_SEED change the kills, WEFT_VM_SOAK the seconds of the soak.
"""
import os
import re

import pytest

from machine import program
from test_vm_transfer import QUICK, SECOND_CABLE, assert_ok, cases

KILLS = int(os.environ.get("WEFT_VM_TRANSFER_KILLS", "50"))
SEED = int(os.environ.get("WEFT_VM_SEED", "1"))
SOAK = int(os.environ.get("WEFT_VM_SOAK", "20"))
KILL = program("tests", "vm_kill")
ENDURE = program("tests", "vm_endure")
NICS = "--from rxe0,rxe2 --to rxe1,rxe3"


def test_kill__of_either_side_at_any_moment_is_told_in_time_and_leaves_nothing_behind():
    # a death that nobody sees is found after 5 tries of a quarter of a second or more
    result = cases(f"case_ kills {KILL} --count {KILLS} --seed {SEED}\n", "--env", "WEFT_IB_TIMEOUT=16", "--env",
                   "WEFT_IB_RETRY=4", seconds=120 + 10 * KILLS)
    assert_ok(result, "kills")
    assert f"ok {KILLS} kills" in result["kills"][1]


def test_remove__of_one_device_of_two_under_way_leaves_the_other_to_finish():
    def again(device, interface):
        return f"rdma link add {device} type rxe netdev {interface}; sleep 1\n"

    result = cases(
        SECOND_CABLE +
        f"case_ of_the_writer {ENDURE} remove {NICS} --seconds 6 --hook 'rdma link delete rxe2'\n"
        "case_ is_gone sh -c '! rdma link | grep rxe2'\n" + again("rxe2", "veth2") +
        f"case_ of_the_target {ENDURE} remove {NICS} --seconds 6 --hook 'rdma link delete rxe3'\n" +
        again("rxe3", "veth3") +
        f"case_ its_interface {ENDURE} remove {NICS} --seconds 6 --hook 'ip link delete veth2'\n" +
        SECOND_CABLE +
        f"case_ far_interface {ENDURE} remove {NICS} --seconds 6 --hook 'ip link delete veth3'\n", *QUICK)
    assert result["is_gone"][0] == 0
    for name in ("of_the_writer", "of_the_target", "its_interface", "far_interface"):
        assert_ok(result, name)
        assert "the other rail took over" in result[name][1], result[name][1]
    for name in ("its_interface", "far_interface"):
        assert "move to other lanes" in result[name][1], result[name][1]


@pytest.fixture(scope="module")
def endured():
    lose = "".join(f"tc qdisc add dev veth{n} root netem loss 0.05%\n" for n in range(4))
    return cases(f"case_ storm {ENDURE} storm --count 100\ncase_ stop {ENDURE} stop\n" + SECOND_CABLE + lose +
                 f"case_ soak env {' '.join(QUICK[1::2])} {ENDURE} soak {NICS} --seconds {SOAK}\n", seconds=500 + SOAK)


def test_soak__both_ways_over_two_lossy_rails_holds_no_more_at_its_end(endured):
    assert_ok(endured, "soak")
    retries = re.search(r"(\d+) retries", endured["soak"][1])
    assert int(retries[1]) > 0, "nothing was lost, so nothing was shown"


def test_storm__of_100_endpoints_holds_no_more_at_its_end(endured):
    assert_ok(endured, "storm")


def test_stop__a_target_that_stands_still_takes_writes_until_its_receives_are_used_up(endured):
    assert_ok(endured, "stop")
    assert "deadline passed after 4.0" in endured["stop"][1], endured["stop"][1]
