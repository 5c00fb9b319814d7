# SPDX-License-Identifier: Apache-2.0
"""The machine itself: what a test inside relies on. A boot is about 10 s; what only looks around shares one."""
import hashlib
import importlib.machinery
import importlib.util
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import image  # noqa: E402
from machine import RUN, shell, vm  # noqa: E402


def load_run():
    loader = importlib.machinery.SourceFileLoader("vm_run", str(RUN))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("vm_run", loader))
    loader.exec_module(module)
    return module


def test_relay__finds_the_marks_however_the_bytes_are_cut():
    run = load_run()
    mark = "0123456789abcdef" * 2
    output = b"\0\xff" + mark[:31].encode() + b"\n" + mark[:5].encode() * 3 + b" no newline at the end"
    stream = f"{mark} begin\n".encode() + output + f"{mark} 42\n".encode()
    for size in range(1, len(stream) + 1):
        written = []
        relay = run.Relay(mark, written.append)
        for at in range(0, len(stream), size):
            relay.feed(stream[at:at + size])
        assert (b"".join(written), relay.code) == (output, 42), f"pieces of {size} bytes"


def test_missing__a_needed_program_is_a_skip_that_names_its_package(tmp_path):
    tools = tmp_path / "bin"
    tools.mkdir()
    program = ("import sys; sys.path.insert(0, sys.argv[1]); import image; image.LOOK_IN = sys.argv[2]\n"
               "try: image.require()\nexcept image.Missing as reason: print(reason)\n")
    said = []
    for name, _package in (("", ""), *image.NEEDED):
        if name:
            (tools / name).touch(mode=0o755)
        said.append(subprocess.run([sys.executable, "-c", program, HERE, tools],
                                   capture_output=True, text=True, check=True).stdout.strip())
    for (name, package), message in zip(image.NEEDED, said):
        assert message == f"{name} is missing: install the package {package}"


def test_missing__the_command_ends_with_77_and_one_message():
    """No apt and nothing cached: the copy of the folder looks like a fresh checkout on another system."""
    program = ("import sys, pathlib; sys.argv = ['run', 'true']; path = pathlib.Path(%r)\n"
               "import importlib.machinery, importlib.util\n"
               "loader = importlib.machinery.SourceFileLoader('vm_run', str(path))\n"
               "run = importlib.util.module_from_spec(importlib.util.spec_from_loader('vm_run', loader))\n"
               "loader.exec_module(run)\n"
               "run.image.NEEDED = (('no-such-program', 'its-package'),)\n"
               "sys.exit(run.main())\n" % str(RUN))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 77
    assert done.stdout == ""
    assert done.stderr == "vm: no-such-program is missing: install the package its-package\n"


def test_run__the_exit_code_passes_through_and_the_output_is_exact_though_a_process_is_left_behind():
    script = (r"sleep 1000 & printf 'a\000b\377'; echo to stderr >&2; echo again >/dev/stdout; "
              "head -c 30000000 /dev/zero | tr '\\0' x; printf end; exit 42")
    begin = time.monotonic()
    done = shell(script, "--timeout", "100")
    assert done.returncode == 42, done.stderr
    want = b"a\0b\xff" + b"to stderr\n" + b"again\n" + b"x" * 30000000 + b"end"
    assert hashlib.sha256(done.stdout).digest() == hashlib.sha256(want).digest()
    assert done.stderr == b""
    assert time.monotonic() - begin < 100


@pytest.fixture(scope="module")
def around():
    """One boot for what only looks around; its end is a signal. The parts by name, and how it ended."""
    os.environ["WEFT_VM_GIVEN"], os.environ["WEFT_VM_KEPT_OUT"] = "two  words\nand $HOME's", "no"
    done = vm("--timeout", 100, "--env", "WEFT_VM_GIVEN", "--env", "SET=here", "--env", "WEFT_VM_NOT_SET", "--", "sh", "-c", AROUND)
    parts = dict(part.split("\n", 1) for part in done.stdout.decode().split("=====> ")[1:])
    assert list(parts) == ["place", "files", "devices", "pingpong", "signal"], done
    return parts, done


AROUND = """
echo "=====> place"
pwd; test -f tests/vm/run && id -u && echo "$SET,$WEFT_VM_GIVEN,$WEFT_VM_KEPT_OUT."; echo "code $?"
echo "=====> files"
for f in /tmp/x /run/x /dev/shm/x /x /etc/x /var/x ./x build/x; do
    touch $f 2>/dev/null && echo $f; done; ls /tmp; echo "code $?"
echo "=====> devices"
rdma link show; for n in 0 1; do
    cat /sys/class/infiniband/rxe$n/ports/1/state /sys/class/infiniband/rxe$n/ports/1/gids/1
done; ls /dev/infiniband; echo "code $?"
echo "=====> pingpong"
(
    command -v ibv_rc_pingpong >/dev/null || exit 9
    sent() { cat /sys/class/net/veth$1/statistics/tx_packets; }
    before=$(sent 0); before1=$(sent 1)
    ibv_rc_pingpong -d rxe0 -g 1 -s 65536 -n 20 & server=$!
    for try in 1 2 3 4 5 6 7 8 9 10; do ss -tln | grep -q :18515 && break; sleep 0.5; done
    ibv_rc_pingpong -d rxe1 -g 1 -s 65536 -n 20 127.0.0.1 || exit 1
    wait $server || exit 2
    # 20 messages of 65,536 bytes in packets of 1,024 each way: at least 1,280 of them
    test $(($(sent 0) - before)) -ge 1280 && test $(($(sent 1) - before1)) -ge 1280 || exit 3
)
echo "code $?"
echo "=====> signal"
{ sh -c 'kill -9 $$'; echo $?; /no/such/command; echo $?; } 2>/dev/null; kill -15 $$
"""


def test_run__a_signal_and_a_missing_command_are_told_as_a_shell_tells_them(around):
    parts, done = around
    assert done.returncode == 128 + signal.SIGTERM, done.stderr
    assert parts["signal"] == "137\n127\n"


def test_run__works_in_the_repository_with_only_the_variables_passed_by_name(around):
    parts, _ = around
    assert parts["place"] == f"{image.REPOSITORY}\n0\nhere,two  words\nand $HOME's,.\ncode 0\n"


def test_run__files_are_read_only_but_below_tmp_run_and_dev_shm(around):
    parts, _ = around
    way = image.REPOSITORY.parts  # a repository below /tmp is shown there again, read-only like all of the host
    shown = ["x", *([way[2]] if way[:2] == ("/", "tmp") else [])]
    assert parts["files"] == "".join(f"{line}\n" for line in ("/tmp/x", "/run/x", "/dev/shm/x", *sorted(shown), "code 0"))


def test_run__a_timeout_is_124_with_the_output_so_far():
    done = shell("echo before; sleep 1000", "--timeout", "3")
    assert done.returncode == 124
    assert done.stdout == b"before\n"
    assert b"vm: the command ran longer than 3 s" in done.stderr


def test_run__a_crash_of_the_guest_is_125_with_the_kernels_last_words():
    done = shell("echo before; sleep 1; echo c >/proc/sysrq-trigger; sleep 100")
    assert done.returncode == 125
    assert done.stdout == b"before\n"
    assert b"vm: the guest died under the command" in done.stderr
    assert b"Kernel panic" in done.stderr


def test_run__ended_by_a_signal_leaves_no_machine_and_no_folder_behind(tmp_path):
    child = subprocess.Popen([RUN, "sh", "-c", "echo up; sleep 1000"], stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, env={**os.environ, "TMPDIR": str(tmp_path)})
    if child.stdout.readline() != b"up\n":
        if child.wait() == 77:
            pytest.skip(child.stderr.read().decode())
        pytest.fail(child.stderr.read().decode())
    child.send_signal(signal.SIGTERM)
    assert child.wait(20) == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == []
    machines = [path for path in pathlib.Path("/proc").glob("[0-9]*/cmdline")
                if str(tmp_path).encode() in read_or_nothing(path)]
    assert machines == []


def read_or_nothing(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_devices__two_are_active_each_on_its_end_of_the_cable(around):
    parts, _ = around
    lines = [line.strip() for line in parts["devices"].splitlines()]
    assert lines == [
        "link rxe0/1 state ACTIVE physical_state LINK_UP netdev veth0",
        "link rxe1/1 state ACTIVE physical_state LINK_UP netdev veth1",
        "4: ACTIVE", "0000:0000:0000:0000:0000:ffff:0a4d:0001",
        "4: ACTIVE", "0000:0000:0000:0000:0000:ffff:0a4d:0002",
        "rdma_cm", "uverbs0", "uverbs1", "code 0"]


def test_devices__a_ping_pong_between_them_passes_over_the_cable(around):
    parts, _ = around
    if parts["pingpong"].endswith("code 9\n"):
        pytest.skip("ibv_rc_pingpong is missing: install the package ibverbs-utils")
    assert parts["pingpong"].endswith("code 0\n"), parts["pingpong"]
    assert parts["pingpong"].count("2621440 bytes in") == 2
