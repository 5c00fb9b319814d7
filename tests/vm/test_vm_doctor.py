# SPDX-License-Identifier: Apache-2.0
"""weft doctor in the machine with rxe0 and rxe1: as root, as somebody else, with parts of it hidden."""
import json
import re

import pytest
from machine import passes, program

WEFT = program("weft")
TESTED = program("tests", "programs", "weft")  # with mock devices
NOBODY = "setpriv --reuid=65534 --regid=65534 --clear-groups"
MARK = "=====> "


def parts(script, **how):
    """What was said below each `mark NAME`, and the exit code of what ran there."""
    said = passes('mark() { echo "%s$1"; }\nweft() { %s doctor "$@"; }\ncode() { echo "code $?"; }\n%s\ntrue'
                  % (MARK, WEFT, script), "--memory", 768, **how)
    found = {}
    for part in said.split(MARK)[1:]:
        name, text = part.split("\n", 1)
        found[name] = text
    return found


def rows(text):
    """Findings of the plain form: name to (state, evidence, lines below)."""
    found, name = {}, None
    for line in text.splitlines():
        match = re.fullmatch(r"(PASS|WARN|FAIL|SKIP)  (\S+) +(.*)", line)
        if match:
            name = match.group(2)
            found[name] = (match.group(1), match.group(3), [])
        elif line.startswith("        "):
            found[name][2].append(line.strip())
    return found


def code(text):
    return int(re.search(r"^code (\d+)$", text, re.M).group(1))


def verdict(text):
    return re.search(r"^verdict: (.*)$", text, re.M).group(1)


@pytest.fixture(scope="module")
def shown():
    """All in one boot, which takes longer than what is looked at. The last ones take the device files away for good."""
    return parts(f"""
        sent() {{ cat /sys/class/net/veth0/statistics/tx_packets; }}
        (
            {WEFT} key make /tmp/job.key; export WEFT_KEY_FILE=/tmp/job.key
            weft --serve --nic rxe1 >/tmp/serve 2>&1 & server=$!
            for try in $(seq 100); do grep -q serving /tmp/serve && break; sleep 0.1; done
            before=$(sent)
            mark pair; weft --peer 10.77.0.2 --nic rxe0; code
            mark packets; echo $(($(sent) - before))
            mark away; weft --peer 10.77.0.9 --nic rxe0; code
            mark served; kill $server; cat /tmp/serve
        )
        mark plain; weft; code
        mark json; weft --json
        mark gpu; WEFT_CUDA_MOCK=devices=2,touch=yes,peermem=yes {TESTED} doctor; code
        mark gpu-alone; WEFT_CUDA_MOCK=devices=1,touch=yes {TESTED} doctor; code
        mark one; weft --transport verbs --nic rxe1; code
        mark wrong; weft --nic mlx5_7; code
        mark gid; WEFT_GID_INDEX=9 weft; code
        ip address add 10.78.0.1/24 dev veth0; sleep 2
        mark row; WEFT_GID_INDEX=2 weft; code
        ip address del 10.78.0.1/24 dev veth0; sleep 2
        mark nobody; {NOBODY} {WEFT} doctor; code
        mark memlock
        setpriv --bounding-set -ipc_lock --inh-caps -ipc_lock prlimit --memlock=8388608 {WEFT} doctor; code
        mark down; ip link set veth1 down; weft; code; ip link set veth1 up
        for n in 0 1; do
            for try in $(seq 100); do grep -q ACTIVE /sys/class/infiniband/rxe$n/ports/1/state && break; sleep 0.1; done
        done
        hide() {{ unshare -m sh -c "mount -t tmpfs none $1 && {WEFT} doctor $2; echo code \\$?"; }}
        mark net; hide /sys/class/net
        mark class; hide /sys/class/infiniband_verbs
        mark devices; hide /sys/class/infiniband
        mark sys; hide /sys
        mark readonly; unshare -m sh -c "mount -o remount,ro,bind /sys; {WEFT} doctor; echo code \\$?"
        mkdir /tmp/hidden; for library in ibverbs rdmacm; do touch /tmp/hidden/lib$library.so.1; done
        mark libraries; LD_LIBRARY_PATH=/tmp/hidden {WEFT} doctor; code
        mark libraries-verbs; LD_LIBRARY_PATH=/tmp/hidden {WEFT} doctor --transport verbs; code
        mark routes; rm /tmp/hidden/libibverbs.so.1; LD_LIBRARY_PATH=/tmp/hidden {WEFT} doctor; code
        mark refused; chmod 600 /dev/infiniband/*; {NOBODY} {WEFT} doctor; code
        mark refused-verbs; {NOBODY} {WEFT} doctor --transport verbs; code
        mark gone; mount -t tmpfs none /dev/infiniband; weft; code
    """, seconds=600)


def test_plain__both_devices_their_gids_and_a_write_over_them(shown):
    found = rows(shown["plain"])
    assert code(shown["plain"]) == 0
    assert found["kernel-rdma"][:2] == ("PASS", "2 RDMA devices: rxe0 rxe1")
    assert found["char-devices"][:2] == ("PASS", "2 of 2 device files can be opened by uid 0")
    assert found["rdma-libraries"][0] == "PASS"
    assert found["providers"][0] == "PASS" and " rxe" in found["providers"][1]
    assert found["devices"][:2] == ("PASS", "libibverbs opens 2 of 2 devices")
    assert found["ports"][:2] == ("PASS", "2 of 2 ports are active")
    assert "active MTU 1024, netdev veth0 MTU 1500" in found["ports"][2][0]
    gids = found["gids"][2]
    assert len(gids) == 4
    assert "rejected: link-local" in gids[0] and gids[0].startswith("rxe0:1 gid[0] RoCEv2 fe80::")
    assert re.fullmatch(r"rxe1:1 gid\[1\] RoCEv2 ::ffff:10\.77\.0\.2 +veth1 +chosen", gids[3])
    assert found["rails"][1].startswith("2 rails")
    assert found["fork"][0] == found["ptrace"][0] == "PASS"
    assert found["write-verbs"][0] == found["write-shm"][0] == "PASS"
    assert verdict(shown["plain"]).startswith("verbs will be used, over rxe0:1, rxe1:1")


def test_json__every_line_is_an_object_and_says_the_same(shown):
    lines = [json.loads(line) for line in shown["json"].splitlines()]
    assert [(line["check"], line["state"]) for line in lines[:-1]] == [
        (name, row[0]) for name, row in rows(shown["plain"]).items()]
    assert lines[-1]["transport"] == "verbs" and lines[-1]["fail"] == 0


def test_gpus__are_registered_with_each_nic(shown):
    state, said, below = rows(shown["gpu"])["cuda-gpudirect"]
    assert (state, said) == ("PASS", "4 of 4 pairs of a GPU and a NIC: the NIC registers its memory")
    assert below == [f"cuda:{gpu} and {nic} (distance unknown): registered" for gpu in (0, 1) for nic in ("rxe0", "rxe1")]
    state, said, below = rows(shown["gpu-alone"])["cuda-gpudirect"]
    assert state == "WARN" and said.startswith("0 of 2 pairs") and code(shown["gpu-alone"]) == 0
    assert "rxe0" in below[0] and "nvidia-peermem is not loaded" in below[0]


def test_nic__the_named_one_is_the_only_rail(shown):
    found = rows(shown["one"])
    assert code(shown["one"]) == 0
    assert found["rails"][1] == "1 rail, as named by --nic"
    assert found["settings"][1].endswith("NICs from --nic, GID index from choice")
    assert found["write-verbs"][0] == "PASS"
    assert verdict(shown["one"]).startswith("verbs will be used, over rxe1:1")


def test_nic__one_that_is_not_there_fails_and_names_those_that_are(shown):
    found = rows(shown["wrong"])
    assert code(shown["wrong"]) == 1
    assert found["rails"][0] == "FAIL" and "mlx5_7" in found["rails"][1] and "rxe0" in found["rails"][1]
    assert verdict(shown["wrong"]).startswith("shm will be used, within this host only; fix first: rails: "
                                                "correct or unset --nic; ")


def test_gid__a_forced_index_that_is_not_there_fails_by_name(shown):
    found = rows(shown["gid"])
    assert code(shown["gid"]) == 1
    assert found["rails"][0] == "FAIL" and "WEFT_GID_INDEX" in found["rails"][1]
    assert "usable, row 9 is asked for" in found["gids"][2][1]
    assert "fix first: gids: unset WEFT_GID_INDEX, or " in verdict(shown["gid"])


def test_gid__a_row_that_one_device_lacks_leaves_the_others(shown):
    found = rows(shown["row"])
    assert code(shown["row"]) == 0
    assert found["rails"][:2] == ("PASS", "1 rail, chosen by state, speed and distance")
    assert found["write-verbs"][0] == "PASS"


@pytest.mark.parametrize("who, uid", [("nobody", 65534), ("memlock", 0)])
def test_memlock__eight_mebibytes_fail_with_both_limits_and_the_way_out(shown, who, uid):
    state, said, below = rows(shown[who])["locked-memory"]
    assert (state, code(shown[who])) == ("FAIL", 1)
    assert "soft 8 MiB, hard 8 MiB" in said and f"CAP_IPC_LOCK: no (uid {uid})" in said
    assert "ulimit -l unlimited" in below[-1]
    assert "fix first: locked-memory: " in verdict(shown[who])


def test_port__a_cut_cable_fails_with_the_command_and_is_the_first_to_fix(shown):
    """Both ends of the cable lose their carrier."""
    found = rows(shown["down"])
    state, said, below = found["ports"]
    assert (state, said, code(shown["down"])) == ("FAIL", "0 of 2 ports are active", 1)
    assert "not usable: the port is DOWN" in below[0] and "`ip link set veth0 up`" in below[-1]
    assert found["gids"][0] == found["mtu"][0] == "SKIP"
    assert found["rails"][0] == found["write-verbs"][0] == "FAIL"
    assert "weft doctor" not in found["write-verbs"][1]
    assert "fix first: ports: " in verdict(shown["down"])


@pytest.mark.parametrize("what", ["net", "class", "readonly"])
def test_hidden__parts_of_sysfs_that_are_not_needed_change_no_verdict(shown, what):
    assert code(shown[what]) == 0
    assert rows(shown[what])["write-verbs"][0] == "PASS"
    assert rows(shown[what])["char-devices"][1] == "2 of 2 device files can be opened by uid 0"


@pytest.mark.parametrize("what", ["devices", "sys"])
def test_hidden__devices_that_sysfs_does_not_show_fail_with_the_mount_that_helps(shown, what):
    found = rows(shown[what])
    assert code(shown[what]) == 1
    assert found["kernel-rdma"][:2] == (
        "FAIL", "libibverbs sees 2 RDMA devices, /sys/class/infiniband is hidden")
    assert found["devices"][1] == "libibverbs opens 2 of 2 devices"
    assert verdict(shown[what]) == ("shm will be used, within this host only; "
                                     "fix first: kernel-rdma: mount sysfs on /sys in this container")


def test_libraries__that_are_missing_are_what_to_fix_first(shown):
    found = rows(shown["libraries"])
    assert found["rdma-libraries"][:2] == (
        "FAIL", "libibverbs cannot be opened: /tmp/hidden/libibverbs.so.1: file too short")
    assert "install librdmacm1" in found["rdma-libraries"][2][0]
    assert found["providers"][0] == found["fork"][0] == "SKIP"
    assert found["devices"][1].startswith("the kernel has rxe0, rxe1, but libibverbs cannot be opened: ")
    assert code(shown["libraries"]) == 1 and found["write-shm"][0] == "PASS"
    assert verdict(shown["libraries"]).startswith("shm will be used, within this host only; fix first: "
                                                   "rdma-libraries: install libibverbs1 and ibverbs-providers")
    assert code(shown["libraries-verbs"]) == 78
    assert "install libibverbs1" in rows(shown["libraries-verbs"])["write-verbs"][1]
    found = rows(shown["routes"])
    assert found["rdma-libraries"][:2] == (
        "WARN", "librdmacm cannot be opened: /tmp/hidden/librdmacm.so.1: file too short: --peer cannot ask for routes")
    assert code(shown["routes"]) == 0 and found["write-verbs"][0] == "PASS"


def test_refused__owner_mode_and_uid_are_told(shown):
    state, said, below = rows(shown["refused"])["char-devices"]
    assert (state, said) == ("FAIL", "0 of 2 device files can be opened by uid 65534")
    assert below[0] == ("/dev/infiniband/uverbs0: root(0):root(0) 0600; uid 65534 gid 65534 may not open it")
    assert "chmod 0666" in below[-1]
    assert code(shown["refused"]) == 1
    assert verdict(shown["refused"]).startswith("shm will be used, within this host only; fix first: char-devices")


def test_refused__verbs_by_name_end_with_78(shown):
    assert code(shown["refused-verbs"]) == 78
    assert verdict(shown["refused-verbs"]).startswith("no transport works here")


def test_gone__no_device_files_is_a_failure_with_the_containers_flag(shown):
    state, said, below = rows(shown["gone"])["char-devices"]
    assert (state, said) == ("FAIL", "0 of 2 device files can be opened by uid 0")
    assert "--device=/dev/infiniband" in below[-1]
    assert code(shown["gone"]) == 1


def test_peer__a_pair_over_the_cable_passes_every_step(shown):
    """TCP goes over lo, the writes over the cable: its counters say so."""
    rows_of = rows(shown["pair"])
    assert code(shown["pair"]) == 0, shown["pair"]
    assert rows_of["peer-route"][2] == [
        "rail 0 rxe0:1 10.77.0.1 -> 10.77.0.2: leaves by rxe0:1, GID ::ffff:10.77.0.2, path MTU 1024"]
    assert {rows_of[name][0] for name in rows_of if name.startswith("peer-")} == {"PASS"}
    assert rows_of["peer-connect"][1].startswith("verbs connected and probed in ")
    assert rows_of["peer-write-mtu"][1].startswith("1024 bytes in ")
    assert int(shown["packets"]) > 1024  # of 1 MiB alone
    assert ": done\n" in shown["served"]
    away = rows(shown["away"])
    assert code(shown["away"]) == 1
    assert away["peer-route"][0] == "FAIL" and "nobody answers for 10.77.0.9" in away["peer-route"][2][0]
    assert away["peer-serve"][0] == "FAIL"
    assert "run there: weft doctor --serve --port 29610" in away["peer-serve"][2][0]
