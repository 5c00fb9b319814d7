# SPDX-License-Identifier: Apache-2.0
"""Hosts without machines: network namespaces that are cabled together on this one.

A host has its own network, name, processes, boot id, /dev/shm and /sys; files are the machine's, so output and
checkpoints are where they were. Two processes on two hosts tell each other apart as on two machines
(transport/identity.c): other boot, other process namespace, and no path but the cable.

    with Hosts(2) as (a, b):
        a.run("ping", "-c1", b.address())
        b.link(False)

Nothing has a name in the system (no `ip netns`), and each host's first process dies with this one: whatever
happens here, even kill -9, no namespace, process or interface stays.

    tests/net/hosts.py      can hosts be made here? 0; if not 77 with the reason, or with WEFT_NET=require 1
"""
import contextlib
import ctypes
import functools
import ipaddress
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import uuid

LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_PDEATHSIG = 1
TOOLS = {"unshare": "util-linux", "nsenter": "util-linux", "ip": "iproute2", "tc": "iproute2", "nft": "nftables"}
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# A host's first process: its own /proc with another boot id, /sys and /dev/shm; then it says so and waits.
FIRST = """
set -e
hostname "$1"
mount --bind "$2" /proc/sys/kernel/random/boot_id
mount -t sysfs sysfs /sys
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
ip link set lo up
echo ready
exec sleep infinity
"""


class Missing(Exception):
    """Hosts cannot be made here; the text says why."""


def die_with_parent():
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def require():
    """Raises Missing unless a host can be made here."""
    for tool, package in TOOLS.items():
        if not any(os.access(f"{folder}/{tool}", os.X_OK) for folder in PATH.split(":")):
            raise Missing(f"{tool} is missing: install the package {package}")
    with tempfile.TemporaryDirectory(prefix="weft-net-") as folder, contextlib.ExitStack() as stack:
        stack.enter_context(Host("probe", pathlib.Path(folder)))


@functools.lru_cache
def missing():
    """Why no host can be made here; None: one can."""
    try:
        require()
    except Missing as reason:
        return str(reason)
    return None


def probe():
    """The exit code of the probe, which bootstrap's stage begins with: what is skipped is never counted as passed."""
    try:
        require()
    except Missing as reason:
        needed = os.environ.get("WEFT_NET") == "require"
        print(f"WEFT_NET=require, and there are no hosts of network namespaces: {reason}" if needed else reason)
        return 1 if needed else 77
    return 0


class Host:
    """One set of namespaces, alive from entering to leaving it."""

    def __init__(self, name, folder):
        self.name, self.folder = name, folder
        self.interfaces = []  # (name, IPv4 or None, IPv6 or None)
        self.cables = []  # of each: (the host at its other end, that end's name)
        self.holder = self.first = None

    def __enter__(self):
        boot = self.folder / f"boot-{self.name}"
        boot.write_text(f"{uuid.uuid4()}\n")
        self.holder = subprocess.Popen(
            ["unshare", "--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
             "sh", "-c", FIRST, "sh", self.name, str(boot)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "PATH": PATH}, preexec_fn=die_with_parent)
        if self.holder.stdout.readline() != "ready\n":
            said = self.holder.stderr.read().strip()
            self.holder.wait()
            raise Missing(f"no namespaces here: {said}")
        self.first = child_of(self.holder.pid)
        return self

    def __exit__(self, *_):
        if self.holder and self.holder.poll() is None:
            self.end()
        for pipe in (self.holder.stdout, self.holder.stderr) if self.holder else ():
            pipe.close()

    def end(self):
        """Every process of the host ends with its first. Who started them must go on: they are its to bury, and a
        stopped program's nsenter has stopped itself."""
        keepers = {parent_of(pid) for pid in self.processes()} - {self.first, 0}
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.first, signal.SIGKILL)
        for keeper in keepers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(keeper, signal.SIGCONT)
        self.holder.wait()

    def words(self, command):
        """The command as this host's."""
        return ["nsenter", "--target", str(self.first), "--net", "--uts", "--ipc", "--mount", "--pid", "--root", "--",
                *map(str, command)]

    def net(self, *command, check=True):
        """A command of the machine's that works on the host's network alone: it can name processes of the machine."""
        done = subprocess.run(["nsenter", "--target", str(self.first), "--net", "--", *map(str, command)], text=True,
                              stdin=subprocess.DEVNULL, capture_output=True, env={**os.environ, "PATH": PATH})
        assert not check or done.returncode == 0, f"{self.name}: {' '.join(map(str, command))}: {done.stderr}"
        return done

    def run(self, *command, check=True, timeout=60, **how):
        done = subprocess.run(self.words(command), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=timeout, env={**os.environ, "PATH": PATH, **how.pop("env", {})}, **how)
        assert not check or done.returncode == 0, f"{self.name}: {' '.join(map(str, command))}: {done.stderr}"
        return done

    def start(self, *command, env=None, **how):
        return subprocess.Popen(self.words(command), env={**os.environ, **(env or {})}, **how)

    def address(self, interface=0, version=None):
        """The address of an interface: IPv4 if it has one, or that of the version asked for."""
        _, four, six = self.interfaces[interface]
        found = {4: four, 6: six, None: four or six}[version]
        assert found, f"{self.name} has no IPv{version} address on interface {interface}"
        return found

    def url(self, port, interface=0, version=None):
        address = self.address(interface, version)
        return f"tcp://[{address}]:{port}" if ":" in address else f"tcp://{address}:{port}"

    def processes(self):
        """The host's processes, as the machine's ids, without its first."""
        inside = os.stat(f"/proc/{self.first}/ns/pid").st_ino
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and int(entry.name) != self.first and \
                        os.stat(entry / "ns" / "pid").st_ino == inside:
                    found.append(int(entry.name))
        return found

    def give_addresses(self, interface):
        name, four, six = self.interfaces[interface]
        for address, bits, flags in ((four, 24, ()), (six, 64, ("nodad",))):
            if address:
                self.net("ip", "address", "add", f"{address}/{bits}", "dev", name, *flags)

    def settled(self, interface, patience=10):
        """Waits until the interface is up: the kernel says so a while after the cable is in."""
        deadline = time.monotonic() + patience
        while "state UP" not in self.net("ip", "-o", "link", "show", "dev", self.interfaces[interface][0]).stdout:
            assert time.monotonic() < deadline, f"{self.name}: interface {interface} is not up after {patience} s"
            time.sleep(0.01)

    # what can happen to a host

    def link(self, up, interface=None):
        """Pulls the cable out of the other end, or puts it back; of one interface, or all. Nobody is told."""
        for number in range(len(self.interfaces)) if interface is None else [interface]:
            other, port = self.cables[number]
            other.net("ip", "link", "set", port, "up" if up else "down")
            if up:
                self.settled(number)

    def freeze(self):
        """Everything on it stops where it is."""
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    def vanish(self):
        """The host is gone, as by a power cut: no FIN, no RST, no last word."""
        self.freeze()
        self.link(False)
        self.end()

    def firewall(self, *ports):
        """New connections come in to these ports ("a-b" or "n") alone; to others they are dropped without a word."""
        elsewhere = ["tcp", "dport", "!=", "{ %s }" % ", ".join(map(str, ports))] if ports else []
        self.drop(*elsewhere, "tcp", "flags", "&", "(syn|ack)", "==", "syn")

    def deaf(self, interface=0):
        """Nothing comes in there any more; what it says still leaves."""
        self.drop("iifname", self.interfaces[interface][0])

    def drop(self, *what):
        self.net("nft", "add", "table", "inet", "weft")
        self.net("nft", "add", "chain", "inet", "weft", "in", "{ type filter hook input priority 0; }")
        self.net("nft", "add", "rule", "inet", "weft", "in", *what, "drop")

    def netem(self, *how, interface=0):
        """What its interface does to packets on their way out (tc-netem(8)); nothing: as before."""
        name = self.interfaces[interface][0]
        self.net("tc", "qdisc", "del", "dev", name, "root", check=False)
        if how:
            self.net("tc", "qdisc", "add", "dev", name, "root", "netem", *map(str, how))


def parent_of(pid):
    """0: it has ended."""
    with contextlib.suppress(OSError):
        return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    return 0


def child_of(pid, patience=10):
    """The one child of a process, as the machine's id."""
    deadline = time.monotonic() + patience
    while True:
        with contextlib.suppress(OSError):
            children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            if children:
                return int(children[0])
        if time.monotonic() >= deadline:
            raise Missing(f"process {pid} has no child after {patience} s")
        time.sleep(0.002)


class Hosts:
    """N hosts: interface K of each is a port of bridge K, which is a host of its own.

    networks: a row of (IPv4 network or None, IPv6 network or None), one a bridge. pair=True: two hosts and one
    cable between them, no bridge."""

    IPV4, IPV6 = ("10.81.0.0/24", None), (None, "fd81::/64")
    BOTH, SECOND = ("10.81.0.0/24", "fd81::/64"), ("10.82.0.0/24", "fd82::/64")

    def __init__(self, count, networks=(BOTH,), pair=False):
        assert not pair or (count == 2 and len(networks) == 1)
        self.count, self.networks, self.pair = count, networks, pair
        self.stack = contextlib.ExitStack()
        self.hosts = []

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="weft-net-")))
            self.hosts = [stack.enter_context(Host(f"host{n}", folder)) for n in range(self.count)]
            if self.pair:
                self.cable(self.hosts[0], "eth0", self.hosts[1], "eth0")
            else:
                switch = stack.enter_context(Host("switch", folder))
                for number in range(len(self.networks)):
                    self.bridge(switch, number)
            for number, networks in enumerate(self.networks):
                for index, host in enumerate(self.hosts):
                    four, six = (network and str(ipaddress.ip_network(network)[index + 1]) for network in networks)
                    host.interfaces.append((f"eth{number}", four, six))
                    host.net("sysctl", "-qw", f"net.ipv6.conf.eth{number}.accept_dad=0")
                    host.give_addresses(number)
                    host.net("ip", "link", "set", f"eth{number}", "up")
            for host in self.hosts:
                for number in range(len(self.networks)):
                    host.settled(number)
            self.stack = stack.pop_all()
        return self.hosts

    def __exit__(self, *_):
        self.stack.close()

    @staticmethod
    def cable(a, a_name, b, b_name):
        a.net("ip", "link", "add", a_name, "type", "veth", "peer", "name", b_name, "netns", str(b.first))
        a.cables.append((b, b_name))
        b.cables.append((a, a_name))

    def bridge(self, switch, number):
        switch.net("ip", "link", "add", f"net{number}", "type", "bridge")
        switch.net("ip", "link", "set", f"net{number}", "up")
        for index, host in enumerate(self.hosts):
            port = f"n{number}h{index}"
            self.cable(switch, port, host, f"eth{number}")
            switch.net("ip", "link", "set", port, "master", f"net{number}", "up")


if __name__ == "__main__":
    sys.exit(probe())
