# SPDX-License-Identifier: Apache-2.0
"""weft doctor on a machine without RDMA, on copied trees of machines with it, and between two of it."""
import contextlib
import json
import os
import pathlib
import pty
import re
import select
import signal
import socket
import subprocess
import time

import job as jobs
import pytest

pytestmark = pytest.mark.skipif(pathlib.Path("/sys/class/infiniband").is_dir()
                                and any(pathlib.Path("/sys/class/infiniband").iterdir()),
                                reason="this machine has RDMA devices")
LIVE_ONLY = ("rdma-libraries", "providers", "devices", "locked-memory", "ports", "gids", "rails", "gpu-nic-distance",
             "dev-shm", "kernel", "write-verbs", "write-shm", "write-cuda", "write-tcp", "write-efa",
             "cuda-driver", "cuda-devices", "cuda-peers", "cuda-dmabuf")


def doctor(*words, code=0, env=None):
    program = jobs.TESTED_WEFT if {"WEFT_FAULT", "WEFT_CUDA_MOCK"} & set(env or {}) else jobs.WEFT
    done = subprocess.run([program, "doctor", *map(str, words)], capture_output=True, text=True,
                          timeout=60, env={**os.environ, **(env or {})})
    assert done.returncode == code, f"exit {done.returncode}: {done.stdout}{done.stderr}"
    return done


def findings(*words, code=0, env=None):
    """The checks by name, and the summary."""
    lines = [json.loads(line) for line in doctor("--json", *words, code=code, env=env).stdout.splitlines()]
    for line in lines[:-1]:
        assert list(line) == ["check", "state", "evidence", "details", "fix"], line
    return {line["check"]: line for line in lines[:-1]}, lines[-1]


# ---- this machine ----

def test_no_rdma__is_no_failure_and_shm_is_proved_by_writing():
    checks, summary = findings()
    assert checks["kernel-rdma"]["state"] == "SKIP"
    assert "/sys/class/infiniband" in checks["kernel-rdma"]["evidence"]
    assert "modprobe" in checks["kernel-rdma"]["fix"]
    assert checks["write-verbs"]["state"] == "SKIP"
    assert checks["write-shm"]["state"] == "PASS"
    assert summary["transport"] == "shm" and summary["fail"] == 0
    assert summary["verdict"].startswith("shm will be used, within this host only")


def test_verbs_asked_for__their_absence_fails_with_78_and_the_fix():
    checks, summary = findings("--transport", "verbs", code=78)
    assert checks["kernel-rdma"]["state"] == "FAIL"
    assert checks["write-verbs"]["state"] == "FAIL"
    assert checks["write-shm"]["state"] == "SKIP"
    assert summary["transport"] == ""
    assert "no transport works here; fix first: kernel-rdma: " in summary["verdict"]


def hide(folder, *libraries):
    """An environment in which they cannot be opened: the loader ends its search at an empty file."""
    for name in libraries:
        (folder / name).touch()
    return {"LD_LIBRARY_PATH": str(folder)}


def test_rdma_libraries__that_are_missing_are_named_with_their_packages(tmp_path):
    checks, _ = findings()
    assert checks["rdma-libraries"]["state"] == "PASS"
    env = hide(tmp_path, "librdmacm.so.1")
    checks, _ = findings("--transport", "shm,verbs", env=env)
    assert checks["rdma-libraries"]["state"] == "SKIP"
    assert "librdmacm cannot be opened: " in checks["rdma-libraries"]["evidence"]
    assert "install librdmacm1" in checks["rdma-libraries"]["fix"]
    env = hide(tmp_path, "libibverbs.so.1")
    checks, summary = findings("--transport", "auto", env=env)
    assert checks["rdma-libraries"]["state"] == "SKIP" and summary["transport"] == "shm"
    checks, _ = findings("--transport", "verbs", env=env, code=78)
    assert checks["rdma-libraries"]["state"] == "FAIL"
    assert f"libibverbs cannot be opened: {tmp_path}/libibverbs.so.1: " in checks["rdma-libraries"]["evidence"]
    assert "install libibverbs1 and ibverbs-providers" in checks["rdma-libraries"]["fix"]
    assert "install librdmacm1" in "".join(checks["rdma-libraries"]["details"])


def test_nic_asked_for__the_absence_of_all_of_them_fails_though_shm_works():
    checks, summary = findings("--nic", "mlx5_0", code=1)
    assert checks["kernel-rdma"]["state"] == "FAIL"
    assert summary["transport"] == "shm"
    assert "; fix first: kernel-rdma: load the NIC's driver" in summary["verdict"]


CUDA = ("cuda-driver", "cuda-devices", "cuda-peers", "cuda-dmabuf")


def test_cuda__without_a_gpu_is_skipped_and_asked_for_fails_with_the_reason():
    if os.path.exists("/dev/nvidiactl"):
        pytest.skip("there is a GPU")
    checks, _ = findings()
    assert [checks[name]["state"] for name in CUDA] == 4 * ["SKIP"]
    checks, summary = findings("--transport", "cuda", code=78)
    assert checks["cuda-driver"]["state"] == checks["write-cuda"]["state"] == "FAIL"
    assert summary["fail"] == 2 and "GPU" in checks["cuda-driver"]["evidence"]


@pytest.mark.parametrize("mock,states", [
    ("devices=2,order=late", ("PASS", "PASS", "PASS", "PASS")),
    ("devices=1", ("PASS", "PASS", "SKIP", "PASS")),
    ("devices=3,peer=no", ("PASS", "PASS", "WARN", "PASS")),
    ("devices=1,ipc=no", ("PASS", "WARN", "SKIP", "PASS")),
    ("devices=1,dmabuf=no", ("PASS", "PASS", "SKIP", "WARN")),
    ("driver=old", ("WARN", "SKIP", "SKIP", "SKIP")),
])
def test_cuda__is_told_by_using_each_device(mock, states):
    checks, _ = findings(env={"WEFT_CUDA_MOCK": mock})
    assert tuple(checks[name]["state"] for name in CUDA) == states, [checks[name] for name in CUDA]
    assert checks["cuda-gpudirect"]["state"] == "SKIP"


def test_cuda__a_device_that_fails_is_a_failure_with_its_name():
    checks, summary = findings(code=1, env={"WEFT_CUDA_MOCK": "devices=1,lose=1"})
    assert "packing 5000 bytes on cuda:0 (Mock 0)" in checks["cuda-devices"]["evidence"]
    assert summary["verdict"].endswith("(Xid)")


def test_cuda__asked_for_is_proved_by_a_write():
    checks, summary = findings("--transport", "cuda", env={"WEFT_CUDA_MOCK": "devices=1,order=late"})
    assert checks["write-cuda"]["state"] == "PASS" and summary["transport"] == "cuda"
    assert summary["verdict"] == "cuda will be used, within this host only; nothing to fix"

def test_nic__without_a_transport_says_that_it_names_rdma_devices():
    checks, _ = findings("--nic", "foo", code=1)
    assert "if --nic names a network interface: --transport tcp too" in checks["kernel-rdma"]["fix"]
    assert "--nic foo names RDMA devices" in "".join(checks["write-tcp"]["details"])


def test_nic__of_tcp_is_named_as_it_was_given():
    checks, _ = findings("--transport", "tcp", "--nic", "eth99", code=78)
    assert "--nic=eth99: no interface eth99" in checks["write-tcp"]["evidence"]
    checks, summary = findings("--transport", "tcp", "--nic", "lo")
    assert checks["write-tcp"]["evidence"].endswith(", over lo 127.0.0.1, as --nic says: loopback reaches this host alone")
    assert summary["verdict"] == "tcp will be used, within this host only; nothing to fix"


def test_shm_asked_for__nothing_about_rdma_is_said():
    checks, summary = findings("--transport", "shm", env={"WEFT_QPS": "99"})
    assert checks["kernel-rdma"]["evidence"] == "not needed with --transport shm"
    assert checks["gids"]["state"] == checks["write-verbs"]["state"] == "SKIP"
    assert summary["transport"] == "shm"


@pytest.mark.parametrize("given, tried, uses", [("auto", ["shm"], "shm"), ("tcp,shm", ["tcp", "shm"], "tcp"),
                                                ("shm,verbs,tcp", ["shm", "tcp"], "shm")])
def test_list__tries_just_those_and_says_which_work_and_the_rule(given, tried, uses):
    checks, summary = findings("--transport", given, env={"WEFT_NIC": "lo"})
    for name in ("shm", "tcp", "verbs", "efa"):
        asked = name in given or (given == "auto" and name == "verbs")
        assert checks[f"write-{name}"]["state"] == ("PASS" if name in tried else "WARN" if asked else "SKIP"), checks
    rule = "shm,verbs" if given == "auto" else given
    assert summary["transport"] == uses and summary["fail"] == 0
    assert summary["verdict"].startswith(f"{', '.join(tried)} work{'s' if len(tried) == 1 else ''} here: each pair uses the first of {rule} ")


def test_list__of_which_none_works_fails_with_78():
    checks, summary = findings("--transport", "verbs,efa", code=78)
    assert checks["write-shm"]["evidence"] == "not asked for: --transport verbs,efa"
    assert summary["transport"] == "" and summary["verdict"].startswith("no transport works here; fix first: ")


def test_summary__counts_what_was_printed():
    checks, summary = findings()
    for state in ("PASS", "WARN", "FAIL", "SKIP"):
        assert summary[state.lower()] == sum(check["state"] == state for check in checks.values())


def test_plain__the_word_comes_first_and_what_belongs_to_it_is_indented():
    lines = doctor().stdout.splitlines()
    assert lines[-1].startswith("verdict: ")
    rows = [line for line in lines[:-1] if not line.startswith("        ")]
    assert len(rows) == len(findings()[0])
    for row in rows:
        assert re.fullmatch(r"(PASS|WARN|FAIL|SKIP)  [a-z-]+ +\S.*", row), row
        assert row[25] != " ", row
    assert any(line.startswith("        fix: ") for line in lines)


def on_terminal(**env):
    leader, follower = pty.openpty()
    process = subprocess.Popen([jobs.WEFT, "doctor"], stdout=follower, stderr=follower,
                               env={**{k: v for k, v in os.environ.items() if k != "NO_COLOR"}, **env})
    os.close(follower)
    said = b""
    with contextlib.suppress(OSError):  # EIO: the other end has closed
        while select.select([leader], [], [], 30)[0]:
            more = os.read(leader, 65536)
            if not more:
                break
            said += more
    os.close(leader)
    assert process.wait(30) == 0
    return said


def test_colour__on_a_terminal_only_and_never_with_no_color():
    assert b"\033[32mPASS\033[0m" in on_terminal()
    assert b"\033" not in on_terminal(NO_COLOR="1")
    assert "\033" not in doctor().stdout


def test_settings__a_wrong_one_fails_by_name_and_nccls_are_told_apart():
    checks, summary = findings(env={"WEFT_QPS": "99"}, code=1)
    assert checks["settings"]["state"] == "FAIL"
    assert "WEFT_QPS=99" in checks["settings"]["evidence"]
    assert "fix first: settings: correct or unset WEFT_QPS; " in summary["verdict"]
    for asked in ((), ("--transport", "tcp"), ("--transport", "efa")):
        checks, summary = findings(*asked, env={"WEFT_STREAMS": "99"}, code=78 if asked else 1)
        assert checks["settings"]["evidence"] == "WEFT_STREAMS=99: must be 1 to 8 streams per peer and interface"
        assert "correct or unset WEFT_STREAMS; docs/tcp.md lists" in checks["settings"]["fix"]
    checks, _ = findings("--transport", "shm", env={"WEFT_STREAMS": "99", "WEFT_QPS": "99"})
    assert re.fullmatch(r"\d+ WEFT_\* set", checks["settings"]["evidence"])  # CI sets some of its own
    checks, _ = findings(env={"NCCL_IB_HCA": "mlx5_0", "NCCL_IB_TC": "106"})
    assert "NICs from NCCL_IB_HCA" in checks["settings"]["evidence"]
    details = "\n".join(checks["settings"]["details"])
    assert re.search(r"NCCL_IB_HCA=mlx5_0 .*honoured", details)
    assert re.search(r"NCCL_IB_TC=106 .*does not read", details)


@pytest.mark.parametrize("words, said", [
    (("extra",), "'extra' is not an option"),
    (("--transport", "rdma"), "verbs, shm, cuda, tcp or efa"),
    (("--transport", "shm,rdma"), "a list of them such as shm,verbs,tcp, or auto, which is shm,verbs"),
    (("--transport", "shm,shm"), "lists shm twice"),
    (("--transport", "shm,"), "'' is no name of a transport"),
    (("--port", "70000"), "0 to 65535"),
    (("--port", "x"), "0 to 65535"),
    (("--serve", "--peer", "a"), "exclude each other"),
    (("--port", "7000"), "--port is where --serve listens or --peer asks"),
    (("--peer", "a", "--port", "0"), "--port 0 with --peer"),
    (("--serve", "--json"), "--json is for the side with --peer"),
    (("--root", "/no/such/folder"), "no such folder"),
    (("--root", "/", "--peer", "a"), "--peer needs a machine that lives"),
    (("--nic", "mlx5_0", "--transport", "shm"), "shm uses no NIC"),
    (("--nic", "mlx5_0", "--transport", "cuda"), "--transport cuda: cuda uses no NIC"),
    (("--nic", ""), "--nic is ''"),
    (("--no-such",), "unrecognized option"),
])
def test_wrong_usage__ends_with_2_and_says_what_is_wanted(words, said):
    done = doctor(*words, code=2)
    assert said in done.stderr and done.stdout == ""


def test_log_format__that_is_none_is_said():
    assert "WEFT_LOG_FORMAT is 'xml': use json or text" in doctor("--nic", "", code=2, env={"WEFT_LOG_FORMAT": "xml"}).stderr


def test_help__names_every_option():
    said = doctor("--help").stdout
    for option in ("--peer", "--serve", "--port", "--transport", "--nic", "--json", "--root"):
        assert option in said
    assert re.search(r"^  doctor +\S", jobs.weft("--help").stdout, re.M)


# ---- copied trees ----

def put(root, files):
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content) if isinstance(content, bytes) else path.write_text(content)


def pcie_config(acs_control):
    """Extended configuration space of a bridge: two capabilities, the second is access control."""
    config = bytearray(4096)
    config[0x100:0x104] = (0x0001 | 1 << 16 | 0x148 << 20).to_bytes(4, "little")
    config[0x148:0x14c] = (0x000d | 1 << 16).to_bytes(4, "little")
    config[0x14e:0x150] = acs_control.to_bytes(2, "little")
    return bytes(config)


PCI = "sys/bus/pci/devices/"


@pytest.fixture
def tree(tmp_path):
    """One mlx5 NIC, one GPU, one bridge; everything as it should be."""
    nic, gpu, bridge = PCI + "0000:3b:00.0/", PCI + "0000:1b:00.0/", PCI + "0000:1a:00.0/"
    put(tmp_path, {
        "proc/self/cgroup": "0::/pods/one\n",
        "sys/fs/cgroup/pods/one/rdma.max": "mlx5_0 hca_handle=max hca_object=max\n",
        "sys/class/infiniband_verbs/uverbs0/ibdev": "mlx5_0\n",
        "sys/class/infiniband_verbs/abi_version": "6\n",
        "sys/module/ib_uverbs/refcnt": "1\n", "sys/module/ib_core/refcnt": "1\n",
        "dev/infiniband/uverbs0": "", "dev/infiniband/rdma_cm": "",
        nic + "vendor": "0x15b3\n", nic + "class": "0x020000\n",
        nic + "current_link_speed": "32.0 GT/s PCIe\n", nic + "max_link_speed": "32.0 GT/s PCIe\n",
        nic + "current_link_width": "16\n", nic + "max_link_width": "16\n",
        gpu + "vendor": "0x10de\n", gpu + "class": "0x030200\n", gpu + "device": "0x2330\n",
        gpu + "numa_node": "1\n",
        gpu + "current_link_speed": "2.5 GT/s PCIe\n", gpu + "max_link_speed": "32.0 GT/s PCIe\n",
        gpu + "current_link_width": "16\n", gpu + "max_link_width": "16\n",
        gpu + "resource": ("0x00000000c8000000 0x00000000c8ffffff 0x0000000000040200\n"
                           "0x0000212000000000 0x0000213fffffffff 0x000000000014220c\n"
                           "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"),
        bridge + "class": "0x060400\n", bridge + "vendor": "0x1000\n", bridge + "config": pcie_config(0x0001),
        "sys/kernel/iommu_groups/7/type": "identity\n",
        "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "512\n",
        "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages": "500\n",
        "sys/kernel/mm/transparent_hugepage/enabled": "always madvise [never]\n",
        "proc/sys/kernel/yama/ptrace_scope": "1\n",
        "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.1\n",
        "proc/driver/nvidia/gpus/0000:1b:00.0/information": "Model: \t\t NVIDIA H100\nIRQ: 7\n",
        "sys/module/nvidia_peermem/version": "570.1\n",
    })
    (tmp_path / "sys/class/infiniband/mlx5_0").mkdir(parents=True)
    (tmp_path / "sys/class/infiniband/mlx5_0/device").symlink_to("../../../bus/pci/devices/0000:3b:00.0")
    return tmp_path


def test_tree__what_files_tell_passes_and_the_rest_is_skipped_with_the_reason(tree):
    checks, summary = findings("--root", tree)
    assert {name: check["state"] for name, check in checks.items()
            if check["state"] not in ("PASS", "SKIP")} == {}
    for name in LIVE_ONLY:
        assert checks[name]["state"] == "SKIP" and str(tree) in checks[name]["evidence"], checks[name]
    assert checks["kernel-rdma"]["evidence"] == "1 RDMA device: mlx5_0"
    assert "1 of 1 device files" in checks["char-devices"]["evidence"]
    assert checks["gpus"]["details"] == ["GPU 0 at 0000:1b:00.0: NVIDIA H100, BAR1 137 GB, NUMA node 1"]
    assert checks["gpu-memory"]["evidence"] == "NICs reach GPU memory by nvidia-peermem"
    assert "yes, open kernel modules" in "\n".join(checks["gpu-memory"]["details"])
    assert checks["pcie-link"]["details"] == [
        "mlx5_0 (0000:3b:00.0): 32.0 GT/s PCIe x16 of 32.0 GT/s PCIe x16",
        "GPU 0 (0000:1b:00.0): 2.5 GT/s PCIe x16 of 32.0 GT/s PCIe x16"]  # no work: no fault
    assert "500 of 512 free" in checks["hugepages"]["evidence"]
    assert "ptrace scope: 1" in checks["ptrace"]["evidence"]
    assert summary["transport"] == "" and "nothing was tried" in summary["verdict"]


@pytest.mark.parametrize("files, check, state, said, fix", [
    ({PCI + "0000:3b:00.0/current_link_width": "8\n"}, "pcie-link", "WARN", "1 of 2 devices", "seat mlx5_0"),
    ({PCI + "0000:1b:00.0/current_link_width": "4\n"}, "pcie-link", "WARN", "1 of 2 devices", "seat GPU 0"),
    ({PCI + "0000:3b:00.0/current_link_speed": "8.0 GT/s PCIe\n"}, "pcie-link", "WARN", "1 of 2 devices", "32.0 GT/s"),
    ({PCI + "0000:1a:00.0/config": pcie_config(0x001d)}, "acs", "WARN", "0000:1a:00.0", "setpci -s 0000:1a:00.0"),
    ({PCI + "0000:1a:00.0/config": bytes(64)}, "acs", "SKIP", "by root only", "as root"),
    ({PCI + "0000:1a:00.0/config": bytes(256)}, "acs", "PASS", "no redirection on 1", ""),
    ({"sys/kernel/iommu_groups/8/type": "DMA-FQ\n"}, "iommu", "WARN", "1 of 2 groups (type DMA-FQ)", "iommu=pt"),
    ({PCI + "0000:1b:00.0/resource": "0x0 0xffffff 0\n0x0 0x0 0\n0x10000000 0x1fffffff 0\n"}, "gpus", "WARN",
     "256 MiB", "Resizable BAR"),
    ({"sys/fs/cgroup/pods/rdma.max": "mlx5_0 hca_handle=0 hca_object=0\n"}, "cgroup-rdma", "FAIL",
     "forbids everything", "> /sys/fs/cgroup/pods/rdma.max"),
    ({"sys/fs/cgroup/pods/one/rdma.max": "mlx5_0 hca_handle=4 hca_object=100\n"}, "cgroup-rdma", "WARN",
     "allows little", "> /sys/fs/cgroup/pods/one/rdma.max"),
    ({"proc/self/cgroup": "12:cpu:/\n4:rdma:/box\n", "sys/fs/cgroup/rdma/box/rdma.max":
      "mlx5_0 hca_handle=1 hca_object=max\n"}, "cgroup-rdma", "WARN", "allows little",
     "> /sys/fs/cgroup/rdma/box/rdma.max"),
    ({"sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages": "0\n"}, "hugepages", "WARN", "0 of 512 free",
     "madvise"),
])
def test_tree__one_thing_wrong_is_found_and_its_fix_is_said(tree, files, check, state, said, fix):
    put(tree, files)
    checks, summary = findings("--root", tree, code=1 if state == "FAIL" else 0)
    assert checks[check]["state"] == state, checks[check]
    assert said in checks[check]["evidence"]
    assert fix in checks[check]["fix"]
    others = [name for name, row in checks.items() if row["state"] in ("WARN", "FAIL") and name != check]
    assert others == []
    if state in ("WARN", "FAIL"):
        assert f"fix first: {check}: {checks[check]['fix']}" in summary["verdict"]


@pytest.mark.parametrize("gone, check, state, said", [
    ("dev/infiniband/uverbs0", "char-devices", "FAIL", "0 of 1 device files"),
    ("dev/infiniband/rdma_cm", "char-devices", "WARN", "1 of 1 device files"),
    ("sys/module/nvidia_peermem/version", "gpu-memory", "SKIP", "as far as files tell"),
    (PCI + "0000:3b:00.0/max_link_width", "pcie-link", "PASS", "all 1 devices"),
    ("sys/fs/cgroup/pods/one/rdma.max", "cgroup-rdma", "PASS", "no limit"),
    (PCI + "0000:1b:00.0/class", "gpus", "SKIP", "no NVIDIA or AMD GPU"),
    ("proc/sys/kernel/yama/ptrace_scope", "ptrace", "SKIP", "no Yama"),
])
def test_tree__a_file_that_is_missing_is_an_answer(tree, gone, check, state, said):
    (tree / gone).unlink()
    checks, _ = findings("--root", tree, code=1 if state == "FAIL" else 0)
    assert checks[check]["state"] == state, checks[check]
    assert said in checks[check]["evidence"]


def test_tree__devices_without_uverbs_fail(tree):
    for path in sorted((tree / "sys/class/infiniband_verbs").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (tree / "sys/class/infiniband_verbs").rmdir()
    checks, _ = findings("--root", tree, code=1)
    assert checks["kernel-rdma"]["state"] == "FAIL"
    assert "modprobe ib_uverbs" in checks["kernel-rdma"]["fix"]


def test_tree__an_empty_one_says_there_is_nothing(tmp_path):
    checks, _ = findings("--root", tmp_path)
    assert {check["state"] for check in checks.values()} <= {"SKIP", "PASS"}
    assert checks["hugepages"]["state"] == checks["gpus"]["state"] == "SKIP"


# ---- two of them ----

@contextlib.contextmanager
def serving(*words, **env):
    program = jobs.TESTED_WEFT if "WEFT_FAULT" in env else jobs.WEFT
    process = subprocess.Popen([program, "doctor", "--serve", "--port", "0", *words], text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **env})
    try:
        line = process.stdout.readline()
        yield process, int(re.search(r"weft doctor --peer \S+:(\d+)\n", line).group(1))
    finally:
        process.kill()
        process.communicate()


STEPS = ["peer-connect", "peer-write-byte", "peer-write-mtu", "peer-write-1mib", "peer-latency",
         "peer-bandwidth"]


def test_peer__every_step_passes_with_its_numbers_and_the_server_takes_the_next():
    with serving() as (process, port):
        for _ in range(2):
            checks, summary = findings("--peer", f"127.0.0.1:{port}")
            assert checks["peer-serve"]["state"] == "PASS"
            assert [checks[name]["state"] for name in STEPS] == ["PASS"] * 6, checks
            assert checks["peer-write-1mib"]["evidence"].startswith("1048576 bytes in ")
            assert "checksum equal" in checks["peer-write-byte"]["evidence"]
            assert "median" in checks["peer-latency"]["evidence"]
            assert "Gb/s" in checks["peer-bandwidth"]["evidence"]
            assert summary["fail"] == 0
            assert process.stdout.readline().endswith(": done\n")


def test_peer__of_a_list_each_is_tried_and_the_one_that_a_pair_would_use_is_named():
    with serving("--transport", "shm,tcp", WEFT_NIC="lo") as (_, port):
        checks, summary = findings("--peer", f"127.0.0.1:{port}", "--transport", "verbs,tcp", env={"WEFT_NIC": "lo"})
        assert [checks[f"peer-tcp-{step}"]["state"] for step in ("connect", "write-1mib", "latency", "bandwidth")] == ["PASS"] * 4
        assert checks["peer-pairs"]["evidence"] == "tcp: the first of verbs,tcp that gets to this peer"
        assert not [name for name in checks if name.startswith(("peer-verbs", "peer-shm"))] and summary["fail"] == 0
    with serving("--transport", "tcp,efa", WEFT_NIC="lo") as (_, port):
        checks, _ = findings("--peer", f"127.0.0.1:{port}", "--transport", "shm,verbs", code=1)
        assert "the server was started with --transport tcp,efa, the client asks for shm" in checks["peer-shm-connect"]["evidence"]
        assert checks["peer-pairs"]["fix"] == "give both sides --transport shm,verbs,tcp"


def test_peer__where_nothing_was_asked_for_tcp_is_tried_beside_and_its_figure_told():
    with serving(WEFT_NIC="lo") as (_, port):
        checks, summary = findings("--peer", f"127.0.0.1:{port}", env={"WEFT_NIC": "lo"})
    assert checks["peer-bandwidth"]["state"] == "PASS" and summary["transport"] == "shm"
    for step, figure in (("connect", ""), ("write-1mib", "1048576 bytes in "), ("latency", "median"), ("bandwidth", "Gb/s")):
        row = checks[f"peer-tcp-{step}"]
        assert row["state"] == "PASS" and figure in row["evidence"], row


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


@pytest.mark.parametrize("by_option", [False, True])
def test_peer__nobody_there_fails_with_the_command_to_run_as_nothing_was_tried(by_option):
    port = free_port()
    where = ("127.0.0.1", "--port", port) if by_option else (f"127.0.0.1:{port}",)
    checks, summary = findings("--peer", *where, code=1)
    assert checks["peer-serve"]["state"] == "FAIL"
    assert f"127.0.0.1:{port}" in checks["peer-serve"]["evidence"]
    assert checks["peer-serve"]["fix"] == f"run there: weft doctor --serve --port {port}"
    assert {checks[name]["evidence"] for name in STEPS} == {"nobody serves there"}
    assert summary["fail"] == 1
    assert f"; fix first: peer-serve: run there: weft doctor --serve --port {port} (127.0.0.1:{port} refuses " in summary["verdict"]


def test_peer__nobody_there_without_a_key_names_it_for_both_as_a_server_without_serves_its_host_alone():
    checks, _ = findings("--peer", f"tcp://[::ffff:127.0.0.2]:{free_port()}", code=1)
    assert re.fullmatch(r"run there: weft doctor --serve --port \d+ --key FILE, and give --key FILE here too: .*",
                        checks["peer-serve"]["fix"])


def test_peer__a_name_without_an_address_fails():
    checks, summary = findings("--peer", "no-such-host.invalid", code=1)
    assert checks["peer-serve"]["state"] == "FAIL" and checks["peer-serve"]["fix"] == ""
    assert "no-such-host.invalid" in checks["peer-serve"]["evidence"]
    assert "; fix first: peer-serve: the name 'no-such-host.invalid' has no address" in summary["verdict"]
    assert "run there" not in summary["verdict"]


def test_peer__somebody_else_on_that_port_is_told_within_the_deadline():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        checks, _ = findings("--peer", f"127.0.0.1:{port}", code=1)
    assert f"127.0.0.1:{port}" in checks["peer-serve"]["evidence"]
    assert checks["peer-connect"]["state"] == "SKIP"


def test_serve__outlives_a_client_that_is_killed_and_says_which_it_was():
    with serving() as (process, port):
        client = subprocess.Popen([jobs.WEFT, "doctor", "--peer", f"127.0.0.1:{port}"],
                                  stdout=subprocess.PIPE, text=True)
        while not client.stdout.readline().startswith("PASS  peer-latency"):
            assert client.poll() is None
        client.send_signal(signal.SIGKILL)
        client.communicate()
        assert re.fullmatch(r"127\.0\.0\.1:\d+: failed: .*closed the connection.*\n", process.stdout.readline())
        checks, _ = findings("--peer", f"127.0.0.1:{port}")
        assert checks["peer-bandwidth"]["state"] == "PASS"


def test_peer__a_server_that_dies_is_named_and_the_rest_skipped():
    with serving() as (process, port):
        client = subprocess.Popen([jobs.WEFT, "doctor", "--peer", f"127.0.0.1:{port}"],
                                  stdout=subprocess.PIPE, text=True)
        while not client.stdout.readline().startswith("PASS  peer-latency"):
            assert client.poll() is None
        process.kill()
        said = client.communicate(timeout=60)[0]
    assert client.returncode == 1
    assert re.search(r"^FAIL  peer-bandwidth +\S", said, re.M), said


def test_peer__what_fails_on_the_other_side_is_told_here_at_once():
    with serving(WEFT_FAULT="inner=shm,op=post_signal,at=5,kind=fail") as (process, port):
        begin = time.monotonic()
        checks, _ = findings("--peer", f"127.0.0.1:{port}", code=1)
        assert checks["peer-write-1mib"]["state"] == "PASS"
        assert checks["peer-latency"]["state"] == "FAIL"
        assert f"the other side (127.0.0.1:{port}) says: " in checks["peer-latency"]["evidence"]
        assert checks["peer-bandwidth"]["state"] == "SKIP"
        assert time.monotonic() - begin < 10
        assert ": failed: " in process.stdout.readline()


def test_peer__a_failing_write_here_ends_both_sides_with_one_cause():
    with serving() as (process, port):
        checks, _ = findings("--peer", f"127.0.0.1:{port}", code=1,
                             env={"WEFT_FAULT": "inner=shm,op=post_write,at=3,kind=fail"})
        failed = [name for name, check in checks.items() if check["state"] == "FAIL"]
        assert failed == ["peer-write-1mib"]
        assert checks["peer-write-1mib"]["evidence"] in process.stdout.readline()


def test_serve__a_port_in_use_is_refused():
    with socket.socket(socket.AF_INET6) as taken:
        taken.bind(("::", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = doctor("--serve", "--port", port, code=78)
    assert f"port {port} of this host is in use" in done.stderr
