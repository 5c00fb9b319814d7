# SPDX-License-Identifier: Apache-2.0
"""What the guest boots: Debian's kernel and busybox, unpacked and never installed, and an initramfs.

build/vm/
  linux-image-6.1.0-56-amd64_6.1.192-2_amd64/   the package, unpacked (boot/, lib/modules/)
  busybox-static_1.35.0-4_amd64/                the same
  vmlinux-linux-image-6.1.0-56-amd64_6.1.192-2_amd64   its kernel, without what unpacks it
  initramfs-<key>.cpio                          key: both names, the list of modules, init itself
"""
import contextlib
import fcntl
import hashlib
import lzma
import os
import pathlib
import platform
import re
import shutil
import stat
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
CACHE = REPOSITORY / "build" / "vm"

# In the order of loading; what they depend on is put before them.
MODULES = ("virtio_pci", "virtio_console", "9p", "9pnet_virtio", "crc32_generic", "ib_uverbs",
           "rdma_rxe", "rdma_ucm", "veth", "dummy", "sch_netem")

# Programs that the host must have, and the package that brings each.
NEEDED = (("qemu-system-x86_64", "qemu-system-x86"), ("ip", "iproute2"), ("rdma", "iproute2"))
LOOK_IN = os.environ.get("PATH", "") + ":/usr/sbin:/usr/bin:/sbin:/bin"
PROVIDER = "/etc/libibverbs.d/rxe.driver"


class Missing(Exception):
    """The machine cannot be built here; the text is the one message that says why."""


def require():
    if platform.machine() != "x86_64":
        raise Missing(f"the guest is an x86-64 kernel and this machine is {platform.machine()}")
    for program, package in NEEDED:
        if not shutil.which(program, path=LOOK_IN):
            raise Missing(f"{program} is missing: install the package {package}")
    if not os.path.exists(PROVIDER):
        raise Missing(f"{PROVIDER} is missing: install the package ibverbs-providers")


def apt(*words, folder=None):
    try:
        done = subprocess.run(words, cwd=folder, text=True, errors="replace", capture_output=True)
    except FileNotFoundError:
        raise Missing(f"{words[0]} is missing: the kernel's files come from a Debian package, "
                      "and this is not Debian") from None
    if done.returncode:
        last = (done.stderr.strip() or "it said nothing").splitlines()[-1]
        raise Missing(f"cannot get the files of {words[-1]} ({' '.join(words[:-1])}: {last}); "
                      "is the package list there (apt-get update) and the registry reachable?")
    return done.stdout


def kernel_package():
    """linux-image-amd64 is an empty package that depends on the current kernel's."""
    for line in apt("apt-cache", "depends", "linux-image-amd64").splitlines():
        found = re.match(r"\s*Depends: (linux-image-\d\S*-amd64)$", line)
        if found:
            return found[1]
    raise Missing("linux-image-amd64 names no kernel here: run apt-get update, on Debian")


def unpacked(pattern, name, say):
    """The newest folder that fits the pattern, or the package NAME() fetched and unpacked into one."""
    there = sorted(CACHE.glob(pattern), key=lambda path: path.stat().st_mtime)
    if there:
        return there[-1]
    package = name()
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="fetch-") as scratch:
        apt("apt-get", "download", package, folder=scratch)
        archive, = pathlib.Path(scratch).glob("*.deb")
        tree = pathlib.Path(scratch) / "tree"
        apt("dpkg", "-x", str(archive), str(tree))
        target = CACHE / archive.stem
        say(f"unpacked {archive.name} into {target} (nothing was installed)")
        tree.rename(target)
    return target


def with_dependencies(tree):
    """Module files in the order of loading, from what each says of itself (depends=a,b)."""
    base, = (tree / "lib" / "modules").iterdir()

    def plain(path):
        return os.path.basename(path).split(".ko")[0].replace("-", "_")

    files = {plain(path.name): path for path in base.rglob("*.ko")}
    builtin = {plain(line) for line in (base / "modules.builtin").read_text().split()}
    order = []

    def add(name):
        if name in builtin or files.get(name) in order:
            return
        if name not in files:
            raise Missing(f"{tree.name} has no module {name}: this kernel cannot run soft-RoCE")
        said = re.search(rb"\0depends=([^\0]*)\0", files[name].read_bytes())
        for other in filter(None, said[1].decode().split(",") if said else ()):
            add(other.replace("-", "_"))
        order.append(files[name])

    for name in MODULES:
        add(name)
    return order


class Cpio:
    """The kernel's own archive format, "newc": a 110-byte header of hex, the name, the bytes."""

    def __init__(self):
        self.parts = []
        self.count = 0

    def add(self, name, data=b"", mode=stat.S_IFREG | 0o644, device=(0, 0)):
        self.count += 1
        path = os.fsencode(name) + b"\0"
        fields = (self.count, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(path), 0)
        head = b"070701" + b"".join(b"%08x" % field for field in fields)
        for part in (head + path, data):
            self.parts.append(part + bytes(-len(part) % 4))

    def folder(self, name):
        self.add(name, mode=stat.S_IFDIR | 0o755)

    def bytes(self):
        self.add("TRAILER!!!", mode=0)
        return b"".join(self.parts)


def initramfs(tree, busybox):
    key = hashlib.sha256()
    init = (HERE / "init").read_bytes()
    for part in (tree.name.encode(), busybox.name.encode(), init, pathlib.Path(__file__).read_bytes()):
        key.update(hashlib.sha256(part).digest())
    target = CACHE / f"initramfs-{key.hexdigest()[:16]}.cpio"
    if target.exists():
        return target
    archive = Cpio()
    for name in ("bin", "dev", "host", "kept", "modules", "proc", "sys"):
        archive.folder(name)
    archive.add("dev/console", mode=stat.S_IFCHR | 0o600, device=(5, 1))
    archive.add("bin/busybox", (busybox / "bin" / "busybox").read_bytes(), stat.S_IFREG | 0o755)
    archive.add("init", init, stat.S_IFREG | 0o755)
    order = with_dependencies(tree)
    for path in order:
        archive.add(f"modules/{path.name}", path.read_bytes())
    archive.add("modules/order", "".join(f"{path.name}\n" for path in order).encode())
    for old in CACHE.glob("initramfs-*"):
        old.unlink()
    scratch = target.with_suffix(".part")
    scratch.write_bytes(archive.bytes())
    scratch.rename(target)
    return target


def unwrapped(tree):
    """The kernel as QEMU starts it without its own unpacking, which emulated is a third of the boot; what is
    not packed as Debian does stays as it is."""
    packed, = (tree / "boot").glob("vmlinuz-*")
    target = CACHE / f"vmlinux-{tree.name}"
    if target.exists():
        return target
    data = packed.read_bytes()
    begin = data.find(b"\xfd7zXZ\0")
    try:
        kernel = lzma.LZMADecompressor().decompress(data[begin:]) if begin >= 0 else b""
    except lzma.LZMAError:
        kernel = b""
    if not kernel.startswith(b"\x7fELF"):
        return packed
    for old in CACHE.glob("vmlinux-*"):
        old.unlink()
    scratch = CACHE / f"{target.name}.part"
    scratch.write_bytes(kernel)
    scratch.rename(target)
    return target


@contextlib.contextmanager
def locked():
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def prepare(say):
    """(kernel file, bytes of the initramfs, name of the kernel's package); what is cached stays."""
    require()
    with locked():
        tree = unpacked("linux-image-*", kernel_package, say)
        busybox = unpacked("busybox-static_*", lambda: "busybox-static", say)
        return unwrapped(tree), initramfs(tree, busybox).read_bytes(), tree.name
