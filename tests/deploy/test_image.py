# SPDX-License-Identifier: Apache-2.0
"""The image of Containerfile, built by buildah without rights (deploy/package/image.py): what it says of itself, what is in it
and what is not, and a job of its programs in containers.

Where it cannot be built these tests are skipped, with the reason; with WEFT_IMAGE=require they fail. The one for GPUs takes
minutes and gigabytes, so it is built in a soak alone.
"""
import contextlib
import gzip
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import time

import job as jobs
import pods
import pytest
import test_containerfile

sys.path.insert(0, str(pods.ROOT / "deploy" / "package"))
import image  # noqa: E402

SCRIPT = pods.ROOT / "deploy" / "package" / "image.py"
PROGRAMS = ("weft", "weft-controller", "weft-worker")
USER = 10001
# One container of the image, removed when its program has ended
CONTAINER = image.AGAIN + """
name=$1 tag=$2 folder=$3
shift 3
buildah from --quiet --pull=never --name "$name" "$tag" >/dev/null || exit 125
again buildah run --volume "$folder:/job" "$name" -- "$@"
code=$?
buildah rm "$name" >/dev/null
exit $code
"""
TRAIN, INFER, UPDATES = "world=2,source=gathered", "engines=1,tp=2", 2


def build(*options):
    done = subprocess.run([SCRIPT, "build", *options], capture_output=True, text=True, timeout=2400)
    if done.returncode == image.SKIPPED and os.environ.get("WEFT_IMAGE") != "require":
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return Image(image.archive_of("--cuda" in options))


class Image:
    """An image's archive, in OCI's form."""

    def __init__(self, path):
        self.path = path
        with tarfile.open(path) as archive:
            (row,) = json.load(archive.extractfile("index.json"))["manifests"]
            manifest = self.json(archive, row)
            self.about = self.json(archive, manifest["config"])
            self.layers = [self.files(archive, layer) for layer in manifest["layers"]]

    @staticmethod
    def blob(archive, row):
        return archive.extractfile(f"blobs/{row['digest'].replace(':', '/')}")

    def json(self, archive, row):
        return json.load(self.blob(archive, row))

    def files(self, archive, row):
        with gzip.open(self.blob(archive, row)) as text, tarfile.open(fileobj=text, mode="r|") as layer:
            return {member.name: member for member in layer}

    def names(self, layers):
        """Of files; a folder alone is where the build had something mounted."""
        return [name for layer in layers for name, member in layer.items() if not member.isdir()]


@pytest.fixture(scope="module")
def built():
    return build()


class Running:
    """A program in a container of its own."""

    def __init__(self, folder, name, words, tag=None):
        self.name, self.out, self.err = name, folder / f"{name}.out", folder / f"{name}.err"
        with open(self.out, "w") as out, open(self.err, "w") as err:
            script = ["sh", "-c", CONTAINER, "sh", f"test-{os.getpid()}-{name}", tag or image.tag_of(), image.seen(folder), *words]
            self.process = image.start(script, stdout=out, stderr=err)

    def wait(self, seconds):
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name}: not ended after {seconds} s\n{self.said()}") from None

    def said(self):
        return f"--- {self.name}:\n{self.out.read_text()}{self.err.read_text()}"


@pytest.fixture
def folder(built):
    """One that containers see as /job, and in which their user may write."""
    path = image.FOLDER / f"job-{os.getpid()}"
    path.mkdir()
    path.chmod(0o777)
    yield path
    image.run(["rm", "-rf", image.seen(path)], image.SHORT)  # what containers wrote is not ours
    shutil.rmtree(path, ignore_errors=True)
    assert not path.exists()


@contextlib.contextmanager
def containers():
    running = []
    try:
        yield running
    finally:
        for one in running:
            image.end(one.process)
        left = subprocess.run([SCRIPT, "inside", "buildah", "containers", "--format", "{{.ContainerName}}"], capture_output=True,
                              text=True, timeout=60).stdout.split()
        ours = [name for name in left if name.startswith(f"test-{os.getpid()}-")]
        if ours:  # of those that were ended here
            image.run(["buildah", "rm", *ours], image.SHORT, **image.QUIET)


def said_by(folder, *words, tag=None):
    with containers() as running:
        running.append(Running(folder, "one", words, tag))
        code = running[0].wait(180)
        assert code == 0, f"{words}: {code}\n{running[0].said()}"
        return running[0].out.read_text()


def test_image__is_built_by_buildah_without_root(built):
    """What the build was run by: nobody of this machine, who may not do what root may; and nothing that it made is root's."""
    process = image.start(["sleep", "60"])
    try:
        status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    finally:
        image.end(process)
    (users,) = [line.split()[1:] for line in status.splitlines() if line.startswith("Uid:")]
    words = [SCRIPT, "inside", "cat", "/proc/self/uid_map"]
    inside = subprocess.run(words, capture_output=True, text=True, timeout=60).stdout.split()
    assert "0" not in users and inside[:2] == ["0", users[0]]
    assert image.run(["cat", "/etc/shadow"], 20, **image.QUIET) != 0
    assert image.run(["touch", "/etc/weft"], 20, **image.QUIET) != 0
    roots = subprocess.run(["find", image.FOLDER / "storage", "-uid", "0", "-print", "-quit"], capture_output=True, text=True)
    assert roots.stdout == ""


def test_image__is_what_containerfile_says_step_by_step(built):
    final = test_containerfile.STAGES[-1]
    made = [" ".join(row["created_by"].split()) for row in built.about["history"]][1:]  # the first one is the base
    assert len(made) == len(final) - 1
    for step, row in zip(final[1:], made, strict=True):
        kind, _, rest = step.partition(" ")
        want = {"RUN": f"/bin/sh -c {' '.join(rest.split())}", "COPY": f"in {rest.split()[-1]}"}.get(kind, " ".join(step.split()))
        assert want in row
    config = built.about["config"]
    assert (config["User"], config["Cmd"]) == (f"{USER}:{USER}", ["weft", "doctor"])
    assert config["Env"] == [f"PATH={pods.IMAGE_PATH}"] and not config.get("Entrypoint")


def test_image__gives_no_rights_that_the_base_does_not(built):
    """Nor may its user change what it runs."""
    for layer in built.layers[1:]:
        files = [member for member in layer.values() if not member.isdir()]
        assert [member.name for member in files if member.mode & 0o6000] == []
        assert [member.name for member in files if "SCHILY.xattr.security.capability" in member.pax_headers] == []
        assert [member.name for member in layer.values() if member.mode & 0o002 and not member.issym()] in ([], ["tmp"])
        assert {member.uid for member in layer.values() if member.name.startswith("opt/")} <= {0}


def test_image__has_no_compiler_no_source_and_no_packages(built):
    names = built.names(built.layers)
    programs = {pathlib.PurePath(name).name for name in names if name.startswith(("usr/bin/", "usr/sbin/", "opt/"))}
    assert programs & {"gcc", "cc", "c++", "g++", "ld", "as", "cmake", "ninja", "make", "python3", "pip3", "nvcc"} == set()
    assert set(PROGRAMS) <= programs
    but_examples = [name for name in names if "/share/doc/" not in f"/{name}"]
    assert [name for name in but_examples if name.startswith("src/") or name.endswith((".c", ".o", ".deb", "/.git"))] == []
    assert [name for name in names if name.startswith("var/lib/apt/lists/")] == []


def test_image__has_nothing_of_how_this_machine_finds_packages(built, folder):
    """Sources, keys and certificates were mounted while it was built; the base's are Debian's own."""
    sources = said_by(folder, "cat", "/etc/apt/sources.list").splitlines()
    assert len(sources) == 3 and all(line.startswith("deb http://deb.debian.org/debian") for line in sources)
    folders = ("etc/apt/", "usr/share/keyrings/", "usr/local/share/ca-certificates/", "etc/ssl/", "etc/pip", "root/")
    assert [name for name in built.names(built.layers[1:]) if name.startswith(folders)] == []


def test_image__is_not_much_larger_than_its_base(built):
    added = [sum(member.size for member in layer.values()) for layer in built.layers]
    print(f"{built.path.name}: {built.path.stat().st_size:,} bytes; layers, unpacked: {', '.join(f'{size:,}' for size in added)}")
    assert sum(added[1:]) < 60_000_000 and built.path.stat().st_size < 120_000_000


def test_programs__run_as_a_user_without_rights_and_find_every_library(folder):
    script = "id -u; id -g; id -G; for one in %s; do $one --version; done; ldd /opt/weft/bin/* /opt/weft/lib/libweft.so; " \
             "! touch /opt/weft/x /etc/x /usr/x 2>/dev/null && echo read-only" % " ".join(PROGRAMS)
    lines = said_by(folder, "sh", "-c", script).splitlines()
    assert lines[:3] == [str(USER)] * 3
    assert lines[3:6] == [f"{name} {image.version()}" for name in PROGRAMS]
    assert lines[-1] == "read-only"
    libraries = [line for line in lines if "=>" in line]
    assert len(libraries) > 20 and [line for line in libraries if "not found" in line] == []


def test_doctor__finds_in_the_image_what_transports_open(folder):
    """The image's own command: it ends with verified writes."""
    lines = said_by(folder, "weft", "doctor").splitlines()
    rows = {line.split()[1]: line.split()[0] for line in lines if line.startswith(("PASS", "SKIP", "WARN"))}
    assert (rows["rdma-libraries"], rows["write-shm"], rows["write-tcp"]) == ("PASS", "PASS", "PASS")


def test_job__in_containers_delivers_every_byte(folder):
    """A controller, two trainers and two ranks of an engine, each in a container of its own, over tcp."""
    model = jobs.make_model(folder, "qwen2")
    job = jobs.Job(folder, model, TRAIN, INFER)
    layouts = ["--job", "image", "--train", TRAIN, "--infer", INFER]
    with containers() as running:
        command = ["weft-controller", "--bind", "tcp://127.0.0.1:0", "--port-file", "/job/port", *layouts]
        running.append(Running(folder, "controller", command))
        deadline = time.monotonic() + 180
        while not (folder / "port").exists():
            assert running[0].process.poll() is None and time.monotonic() < deadline, running[0].said()
            time.sleep(0.05)
        worker = ["weft-worker", "--controller", f"tcp://127.0.0.1:{(folder / 'port').read_text().strip()}", "--transport", "tcp",
                  "--nic", "lo", "--model", "/job/qwen2", "--checkpoint", "/job/qwen2", "--updates", str(UPDATES), *layouts]
        for rank in range(job.trainers):
            running.append(Running(folder, f"trainer-{rank}", [*worker, "--role", "trainer", "--rank", str(rank)]))
        for rank in range(job.inference):
            name = f"inference-{rank}"
            more = ["--role", "inference", "--rank", str(rank), "--digests", f"/job/{name}.digests"]
            running.append(Running(folder, name, [*worker, *more]))
        codes = {one.name: one.wait(180) for one in running}
        assert set(codes.values()) == {0}, f"{codes}\n{''.join(one.said() for one in running)}"
    job.verify(jobs.expected(model, INFER), range(1, UPDATES + 1))
    owners = {path.stat().st_uid for path in folder.glob("*.digests")}
    assert len(owners) == 1 and owners.pop() not in {0, os.geteuid(), image.FIRST}


BUSY = "Close_Fd sealing memfd copy: Device or resource busy"


@pytest.mark.parametrize("says, fails, runs, code", [(BUSY, 2, 3, 0), (BUSY, 9, 3, 7), ("no file", 2, 1, 7), ("a word", 0, 1, 0)])
def test_step__is_begun_again_where_the_kernel_refused_buildah_a_copy_of_itself(tmp_path, says, fails, runs, code):
    """And only there. Each attempt is heard."""
    step = f"echo out; echo '{says}' >&2; echo . >>runs; [ $(wc -l <runs) -gt {fails} ] || exit 7"
    done = subprocess.run(["sh", "-euc", f"{image.AGAIN}\nagain sh -c \"$1\"", "sh", step], cwd=tmp_path, capture_output=True,
                          text=True, env={**os.environ, "TMPDIR": str(tmp_path)}, timeout=20)
    assert (done.returncode, done.stdout, done.stderr) == (code, "out\n" * runs, f"{says}\n" * runs)
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


@pytest.mark.skipif(os.geteuid() != 0, reason="one who is not root is told by buildah")
def test_machine__that_gives_no_namespace_is_one_without_images(built, monkeypatch):
    monkeypatch.setattr(image, "DROP", "exit 1")
    with pytest.raises(image.Missing, match="no user namespace can be had here"):
        image.start(["true"])


@pytest.mark.skipif(not os.environ.get("WEFT_SOAK"), reason="hundreds of megabytes and minutes: in a soak")
def test_image__for_gpus_has_kernels_and_no_toolkit(folder):
    made = build("--cuda")
    names = [pathlib.PurePath(name).name for name in made.names(made.layers)]
    assert [name for name in names if name.startswith(("nvcc", "ptxas", "libnvvm", "libcudart"))] == []
    said = said_by(folder, "weft", "doctor", tag=image.tag_of(cuda=True))
    assert "cuda-driver" in said and "this build knows no GPU memory" not in said
