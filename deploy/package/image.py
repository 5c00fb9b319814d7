#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The image of Containerfile, built by buildah without any right on this machine, and without a registry of images:

    deploy/package/image.py build [--cuda]       as localhost/weft:VERSION in build/image, and build/image/weft-VERSION.tar
    deploy/package/image.py base                 only what it is built on
    deploy/package/image.py inside COMMAND..     any command where these images are: buildah images, buildah run, ..

The base is a Debian that debootstrap makes of the packages that this machine's apt finds, under the name that Containerfile asks
for. What apt is told here (sources, keys, proxies), it is told in the build too, by volumes, so that none of it is in the image.

Everything runs in a user namespace whose root is nobody outside. Who is not root gets it of buildah, with the ids of /etc/subuid;
root gives up every right first, for ids that no account has. Exit code 77: this machine has no builder, or no such namespace.
"""
import argparse
import contextlib
import fcntl
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "image"
SUITE = "bookworm"
BASE = "docker.io/library/debian:12"
SKIPPED = 77
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
# Above all ids that a Debian gives to accounts and to their namespaces (/etc/login.defs), so that they are nobody's
FIRST, COUNT = 700000000, 65536
# Where root's namespace sees this source: the way to it may be closed to those without rights
SEEN = pathlib.Path("/mnt")
BASE_SECONDS, BUILD_SECONDS, SHORT = 600, 1500, 180

# As in the base that is published: no packages are kept, and nothing is synced that nobody will miss
APT = 'Dir::Cache::pkgcache "";\nDir::Cache::srcpkgcache "";\nAcquire::Languages "none";\n' \
      'DPkg::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb"; };\n'
MAKE_BASE = """
set -eu
name=$1 suite=$2 mirror=$3 include=$4
made=$(buildah from --name base scratch)
root=$(buildah mount "$made")
# A namespace can make no devices: as in lxc, debootstrap mounts those of the machine instead
container=lxc debootstrap --variant=minbase --force-check-gpg ${include:+"--include=$include"} "$suite" "$root" "$mirror"
# Debian's own, as in the base that is published: where it came from is this machine's business
printf 'deb http://deb.debian.org/%s main\n' "debian $suite" "debian $suite-updates" "debian-security $suite-security" \
  >"$root/etc/apt/sources.list"
rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/* "$root"/var/log/*.log "$root"/dev/*
echo force-unsafe-io >"$root/etc/dpkg/dpkg.cfg.d/docker-apt-speedup"
buildah config --cmd bash "$made"
buildah commit --quiet --rm "$made" "$name"
"""
# Whether a base can be kept and made here
PROBE = """
set -eu
buildah rm --all >/dev/null
made=$(buildah from --name probe scratch)
root=$(buildah mount "$made")
touch "$root/null"
mount --bind /dev/null "$root/null"
umount "$root/null"
buildah rm "$made" >/dev/null
"""
# For each step buildah seals a copy of itself in memory, which the kernel refuses while it holds one of its pages for itself, as it
# does on a busy machine now and then. Nothing of the step has run then
AGAIN = """
again() {
  said=$(mktemp)
  for attempt in 1 2 3; do
    { { code=0 && "$@" 3>&- || code=$?; echo "$code" >"$said.code"; } 2>&1 >&3 | tee "$said" >&2; } 3>&1
    code=$(cat "$said.code")
    [ "$code" != 0 ] && grep -q 'sealing memfd copy: Device or resource busy' "$said" || break
  done
  rm "$said" "$said.code"
  return "$code"
}
"""
BUILD = AGAIN + """
set -eu
tag=$1 archive=$2 cuda=$3
shift 3
again buildah build --pull=never --layers --jobs 2 --build-arg "CUDA=$cuda" --tag "$tag" --file Containerfile "$@" .
rm -f "$archive"
buildah push --quiet "$tag" "oci-archive:$archive:$tag"
"""
# root's way into the namespace; its ids come from outside, and a line then lets it begin
DROP = """
mount --rbind "$1" "$2" && cd "$2" || exit 1
ids=$3
shift 3
exec setpriv --reuid="$ids" --regid="$ids" --clear-groups --inh-caps=-all \\
  unshare --user --mount sh -c 'read -r _ && exec "$@" </dev/null' sh "$@"
"""


class Missing(Exception):
    """What this machine lacks."""


def is_root():
    return os.geteuid() == 0


def seen(path):
    """A path of this source as it is called inside."""
    path = pathlib.Path(path).absolute()
    return SEEN / path.relative_to(ROOT) if is_root() else path


def version():
    return re.search(r"project\(weft VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())[1]


def tag_of(cuda=False):
    return f"localhost/weft:{version()}{'-cuda' if cuda else ''}"


def archive_of(cuda=False):
    return FOLDER / f"weft-{version()}{'-cuda' if cuda else ''}.tar"


def check():
    for program, package in {"buildah": "buildah", "debootstrap": "debootstrap", "newuidmap": "uidmap"}.items():
        if not shutil.which(program, path=PATH):
            raise Missing(f"{program} is missing: apt-get install {package}")


def variables():
    """All that commands inside are told; the programs of this machine's proxies go by these too."""
    folder = seen(FOLDER)
    kept = {key: value for key, value in os.environ.items() if key.lower() in {"http_proxy", "https_proxy", "no_proxy"}}
    proxy = done(["apt-config", "shell", "proxy", "Acquire::http::Proxy"]).partition("=")[2].strip("'\n")
    if proxy and not {"http_proxy", "HTTP_PROXY"} & kept.keys():
        kept["http_proxy"] = proxy
    if is_root():
        kept["_CONTAINERS_USERNS_CONFIGURED"] = "done"  # else buildah asks for a namespace of its own
    return {"PATH": PATH, "LC_ALL": "C.UTF-8", "HOME": str(folder / "home"), "TMPDIR": str(folder / "tmp"),
            "XDG_RUNTIME_DIR": str(folder / "run"), "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
            "BUILDAH_ISOLATION": "chroot", **kept}  # the one kind that needs no runtime and no cgroup


def make(name):
    """A folder that belongs to the namespace."""
    path = FOLDER / name
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o700 if name == "private" else 0o755)
    if not is_root():
        return
    try:
        os.chown(path, FIRST, FIRST)
    except OSError as error:  # root of a container, or of nobody's disk
        raise Missing(f"no user namespace can be had here: {path} cannot be given to user {FIRST}: {error.strerror}") from None


def storage(driver):
    """What storage.conf says."""
    rows = {"driver": driver, "graphroot": seen(FOLDER) / "storage", "rootless_storage_path": seen(FOLDER) / "storage",
            "runroot": seen(FOLDER) / "run"}
    return "[storage]\n" + "".join(f'{key} = "{value}"\n' for key, value in rows.items())


def works(conf):
    """Whether images can be kept so; else it is as if nobody had tried."""
    proved = False
    try:
        proved = run(["sh", "-c", PROBE], SHORT, stdout=subprocess.DEVNULL) == 0
        return proved
    finally:
        if not proved:
            conf.unlink()


def prepare():
    for name in ("", "home", "tmp", "run", "storage", "private"):
        make(name)
    conf = FOLDER / "storage.conf"
    known = [storage(driver) for driver in ("overlay", "vfs")]  # the second one copies, where the first cannot mount
    if conf.exists() and conf.read_text() in known:
        return
    for text in known:
        conf.write_text(text)
        if works(conf):
            return
        shutil.rmtree(FOLDER / "storage", ignore_errors=True)
        make("storage")
    raise Missing("buildah can keep images here neither as overlays nor as copies (above)")


def start(words, **streams):
    """A command inside, in a process group of its own. It is to be ended (end)."""
    words = [str(word) for word in words]
    if not is_root():
        return subprocess.Popen(["buildah", "unshare", *words], env=variables(), cwd=ROOT, stdin=subprocess.DEVNULL,
                                start_new_session=True, **streams)
    process = subprocess.Popen(["unshare", "--mount", "sh", "-c", DROP, "sh", str(ROOT), str(SEEN), str(FIRST), *words],
                               env=variables(), stdin=subprocess.PIPE, start_new_session=True, **streams)
    try:
        wait_for_namespace(process.pid)
        for kind in "ug":
            pathlib.Path(f"/proc/{process.pid}/{kind}id_map").write_text(f"0 {FIRST} {COUNT}")
        process.stdin.write(b"\n")
        process.stdin.close()
    except (OSError, TimeoutError) as error:
        end(process)
        raise Missing(f"no user namespace can be had here: {error}") from None
    return process


def wait_for_namespace(pid, seconds=10):
    deadline = time.monotonic() + seconds
    while os.readlink(f"/proc/{pid}/ns/user") == os.readlink("/proc/self/ns/user"):
        if time.monotonic() > deadline:
            raise TimeoutError(f"process {pid} has none after {seconds} s")
        time.sleep(0.01)


def end(process):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def run(words, seconds, **streams):
    process = start(words, **streams)
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        sys.exit(f"image.py: {' '.join(map(str, words))[:200]}: not done after {seconds} s")
    finally:
        end(process)


def done(words):
    said = subprocess.run(words, capture_output=True, text=True, timeout=SHORT)
    if said.returncode:
        sys.exit(f"image.py: {' '.join(words)}: {said.stderr.strip()}")
    return said.stdout


def mirror():
    """Where this machine's apt has SUITE from."""
    found = re.findall(rf"^'(\S+?)/dists/{SUITE}/InRelease'", done(["apt-get", "update", "--print-uris"]), re.MULTILINE)
    if not found:
        raise Missing(f"this machine's apt has no sources of {SUITE}: build Containerfile where {BASE} can be pulled")
    if "@" in found[0]:  # all may read what debootstrap is called with
        raise Missing("this machine's apt has a password in an address: write it into /etc/apt/auth.conf.d instead")
    return found[0]


@contextlib.contextmanager
def volumes():
    """What apt is told in the build: as here, but for what this machine's apt does when it is done."""
    folder = FOLDER / "private" / "apt"
    shutil.rmtree(folder, ignore_errors=True)
    hidden = [] if is_root() else [path.name for path in pathlib.Path("/etc/apt").rglob("*") if not os.access(path, os.R_OK)]
    shutil.copytree("/etc/apt", folder, ignore=shutil.ignore_patterns("apt.conf*", *hidden), ignore_dangling_symlinks=True)
    (folder / "apt.conf.d").mkdir()
    told = [line for line in done(["apt-config", "dump"]).splitlines()
            if re.match(r"Acquire::(https?|ftp|Check-\S+|Retries|ForceIPv\d|AllowInsecureRepositories)\b", line)
            and not re.search("Auto-?Detect", line)]  # a program of this machine, which has found the proxy by now
    (folder / "apt.conf.d" / "build").write_text(APT + "\n".join(told) + "\n")
    if is_root():
        for path in [folder, *folder.rglob("*")]:
            os.chown(path, FIRST, FIRST)
    mounts = {seen(folder): "/etc/apt", "/usr/share/keyrings": "/usr/share/keyrings"}
    trusted = pathlib.Path("/usr/local/share/ca-certificates")  # who is trusted here; the package ca-certificates takes them up
    if trusted.is_dir() and any(trusted.iterdir()):
        mounts[trusted] = trusted
    try:
        yield [word for here, there in mounts.items() for word in ("--volume", f"{here}:{there}:ro")]
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # it may have passwords


def make_base():
    if run(["buildah", "inspect", "--type", "image", BASE], SHORT, **QUIET) == 0:
        return
    source = mirror()
    more = "ca-certificates" if source.startswith("https:") else ""
    run(["buildah", "rm", "--all"], SHORT, **QUIET)  # of one that was ended in the midst
    if run(["sh", "-c", MAKE_BASE, "sh", BASE, SUITE, source, more], BASE_SECONDS) != 0:
        sys.exit(f"image.py: debootstrap fails (above): is the mirror of {SUITE} reachable?")


def build(cuda=False):
    begin = time.monotonic()
    make_base()
    archive = archive_of(cuda)
    with volumes() as options:
        words = ["sh", "-c", BUILD, "sh", tag_of(cuda), seen(archive), "on" if cuda else "off", *options]
        if run(words, BUILD_SECONDS) != 0:
            sys.exit("image.py: the build fails (above)")
    size, seconds = archive.stat().st_size, time.monotonic() - begin
    print(f"{tag_of(cuda)}: {archive.relative_to(ROOT)}, {size:,} bytes, in {seconds:.0f} s", flush=True)


@contextlib.contextmanager
def locked():
    """One at a time in this folder; the other waits, no longer than the first may take."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + BASE_SECONDS + BUILD_SECONDS
    with open(FOLDER.with_suffix(".lock"), "w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    sys.exit("image.py: another one builds in build/image, and does not end")
                time.sleep(0.2)
        yield


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("base")
    commands.add_parser("build").add_argument("--cuda", action="store_true", help="with kernels for GPUs (--build-arg CUDA=on)")
    commands.add_parser("inside").add_argument("words", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGHUP):  # so that what was started ends with us
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    try:
        check()
        with locked():
            prepare()
            if options.command == "base":
                make_base()
            elif options.command == "build":
                build(options.cuda)
        if options.command == "inside":
            sys.exit(run(options.words, BUILD_SECONDS))
    except Missing as reason:
        print(f"image.py: {reason}", file=sys.stderr)
        sys.exit(SKIPPED)


if __name__ == "__main__":
    main()
