# SPDX-License-Identifier: Apache-2.0
"""Pods of rendered manifests on hosts of tests/net/hosts.py: the names, addresses, variables, users, files and restarts that
Kubernetes gives them, as far as a program in a container sees them.

A pod is a host of its own. A container has a root of its own, in which the image is this machine's /usr and weft's programs,
read-only, and processes of its own, of which the program is the first. What is not here: scheduling, resources, devices, and
the objects' controllers, whose part the test plays (Cluster.replace).
"""
import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "e2e"), str(ROOT / "tests" / "net")]
import hosts  # noqa: E402
import job as jobs  # noqa: E402

IMAGE_PATH = "/opt/weft/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # ENV PATH of Containerfile
NSENTER = shutil.which("nsenter") or "nsenter"
FIELD = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")
# What every container gets of the cluster's own Service, whatever enableServiceLinks says
MASTER = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443", "KUBERNETES_SERVICE_PORT_HTTPS": "443",
          "KUBERNETES_PORT": "tcp://10.96.0.1:443", "KUBERNETES_PORT_443_TCP": "tcp://10.96.0.1:443",
          "KUBERNETES_PORT_443_TCP_PROTO": "tcp", "KUBERNETES_PORT_443_TCP_PORT": "443", "KUBERNETES_PORT_443_TCP_ADDR": "10.96.0.1"}

# The image's root, and of each volume the place where it will be mounted
IMAGE = """
set -e
root=$1 programs=$2 hosts=$3 model=$4
mount -t tmpfs tmpfs "$root"
cd "$root"
mkdir -p usr etc proc sys dev tmp run opt/weft/bin model ".$programs"
for name in bin sbin lib lib32 lib64 libx32; do
  if [ -L "/$name" ]; then cp -a "/$name" .; elif [ -d "/$name" ]; then mkdir "$name" && mount --rbind "/$name" "$name"; fi
done
cp -a /etc/ld.so.cache /etc/nsswitch.conf /etc/passwd /etc/group /etc/alternatives etc
touch etc/hosts
mount --bind "$hosts" etc/hosts
for name in usr sys dev; do mount --rbind "/$name" "$name"; done
mount --bind "$programs" opt/weft/bin
mount --bind "$programs" ".$programs"
mount --bind "$model" model
"""
# The container's own /proc, with the boot id of its node, and then its program in the place of all this
FIRST = """
set -e
root=$1 boot=$2 user=$3 group=$4
shift 4
mount -t proc proc "$root/proc"
mount --bind "$boot" "$root/proc/sys/kernel/random/boot_id"
exec chroot --userspec="$user:$group" --groups="$group" "$root" "$@"
"""


class Pod:
    """What an object of the cluster asks for, before it runs."""

    def __init__(self, hostname, template, given, labels=None, subdomain=None):
        self.hostname, self.spec = hostname, template["spec"]
        self.labels = {**template["metadata"]["labels"], **(labels or {})}
        self.annotations = template["metadata"].get("annotations", {})
        self.subdomain = subdomain or self.spec.get("subdomain")
        self.given = given  # variables that the object's controller adds

    @property
    def role(self):
        return self.labels["app.kubernetes.io/component"]


def pods_of(documents):
    """Every pod that the objects make, with what their controllers give each."""
    for one in documents:
        name, spec = one["metadata"]["name"], one.get("spec")
        if one["kind"] == "Job":
            yield from indexed(name, spec, {})
        elif one["kind"] == "JobSet":
            for row in spec["replicatedJobs"]:
                for number in range(row["replicas"]):
                    labels = {"jobset.sigs.k8s.io/jobset-name": name, "jobset.sigs.k8s.io/replicatedjob-name": row["name"],
                              "jobset.sigs.k8s.io/job-index": str(number)}
                    yield from indexed(f"{name}-{row['name']}-{number}", row["template"]["spec"], labels, spec["network"]["subdomain"])
        elif one["kind"] == "StatefulSet":
            for number in range(spec["replicas"]):
                yield Pod(f"{name}-{number}", spec["template"], {}, {"apps.kubernetes.io/pod-index": str(number)}, spec["serviceName"])
        elif one["kind"] == "LeaderWorkerSet":
            yield from groups(one)


def indexed(name, spec, labels, subdomain=None):
    for index in range(spec["parallelism"]):
        more = {"batch.kubernetes.io/job-name": name, "batch.kubernetes.io/job-completion-index": str(index), **labels}
        yield Pod(f"{name}-{index}", spec["template"], {"JOB_COMPLETION_INDEX": str(index)}, more, subdomain)


def groups(document):
    name, spec = document["metadata"]["name"], document["spec"]
    size = spec["leaderWorkerTemplate"]["size"]
    for group in range(spec["replicas"]):
        for index in range(size):
            leader = f"{name}-{group}"
            given = {"LWS_LEADER_ADDRESS": f"{leader}.{name}.{document['metadata']['namespace']}", "LWS_GROUP_SIZE": str(size),
                     "LWS_WORKER_INDEX": str(index)}
            labels = {"leaderworkerset.sigs.k8s.io/name": name, "leaderworkerset.sigs.k8s.io/group-index": str(group),
                      "leaderworkerset.sigs.k8s.io/worker-index": str(index)}
            yield Pod(f"{leader}-{index}" if index else leader, spec["leaderWorkerTemplate"]["workerTemplate"], given, labels, name)


def expand(text, variables):
    """$(NAME) as the kubelet expands it; what it does not know stays, and $$ is a $."""
    return re.sub(r"\$\$|\$\(([A-Za-z_]\w*)\)", lambda match: "$" if match[0] == "$$" else variables.get(match[1], match[0]), text)


def field(pod, path, address):
    match = FIELD.fullmatch(path)
    if match:
        return getattr(pod, match[1]).get(match[2], "")
    return {"metadata.name": pod.hostname, "status.podIP": address}[path]


def environment(documents, pod, container, address):
    """The variables that the container's program finds, all of them."""
    links = {}
    if pod.spec.get("enableServiceLinks", True):
        for one in documents:
            if one["kind"] == "Service" and one["spec"].get("clusterIP") != "None":
                prefix = one["metadata"]["name"].upper().replace("-", "_")
                links |= {f"{prefix}_SERVICE_HOST": "10.96.0.9", f"{prefix}_PORT": "tcp://10.96.0.9:29600"}
    maps = {one["metadata"]["name"]: one["data"] for one in documents if one["kind"] == "ConfigMap"}
    variables = {"PATH": IMAGE_PATH, "HOSTNAME": pod.hostname, **MASTER, **links}
    for row in container.get("envFrom", []):
        variables |= maps[row["configMapRef"]["name"]]
    own = {}  # a value may name what stands before it in `env`, and nothing of envFrom
    for row in container.get("env", []):
        if "valueFrom" in row:
            own[row["name"]] = field(pod, row["valueFrom"]["fieldRef"]["fieldPath"], address)
        else:
            own[row["name"]] = expand(row.get("value", ""), {**MASTER, **links, **own})
    return {**variables, **own, **pod.given}


class Running:
    """A pod on a host, with its containers one after the other. It keeps what it said."""

    def __init__(self, cluster, pod, host, folder):
        self.cluster, self.pod, self.host, self.folder = cluster, pod, host, folder
        self.address = host.address(version=4)
        self.root, self.process, self.restarts = folder / "root", None, 0
        self.root.mkdir(parents=True)
        who = pod.spec["securityContext"]
        self.user, self.group = who["runAsUser"], who["fsGroup"]
        host.run("hostname", pod.hostname)
        host.run("sh", "-c", IMAGE, "sh", self.root, jobs.BIN, cluster.names, cluster.model)
        self.mount()

    def mount(self):
        volumes = {one["name"]: one for one in self.pod.spec.get("volumes", [])}
        all_containers = [*self.pod.spec.get("initContainers", []), *self.pod.spec["containers"]]
        for name, path in {(row["name"], row["mountPath"]) for one in all_containers for row in one.get("volumeMounts", [])}:
            place = self.folder / f"volume-{name}"
            place.mkdir()
            if "secret" in volumes[name]:
                self.secret(place, volumes[name]["secret"])
            else:
                os.chown(place, 0, self.group)
                place.chmod(0o2777)
            self.host.run("sh", "-c", 'mkdir -p "$1" && mount --bind "$2" "$1"', "sh", f"{self.root}{path}", place)
        self.host.run("mount", "-o", "remount,ro", self.root)

    def secret(self, place, secret):
        """Files are links through a folder that is replaced when the Secret changes."""
        data = place / "..2026_01_01"
        data.mkdir()
        for item in secret["items"]:
            path = data / item["path"]
            shutil.copy(self.cluster.secret / item["key"], path)
            os.chown(path, 0, self.group)
            path.chmod(secret["defaultMode"])
            (place / item["path"]).symlink_to(f"..data/{item['path']}")
        (place / "..data").symlink_to(data.name)

    def start(self):
        for container in self.pod.spec.get("initContainers", []):
            code = self.run(container, f"init-{container['name']}").wait(60)
            assert code == 0, f"{self.pod.hostname}/{container['name']}: {code}\n{self.said()}"
        (self.container,) = self.pod.spec["containers"]
        return self.begin()

    def begin(self):
        self.process = self.run(self.container, f"run-{self.restarts}")
        self.cluster.until(self.is_in_place, f"{self.pod.hostname} starts", 20)
        return self

    def is_in_place(self):
        """The program is in its root; before, the first process prepares that."""
        with contextlib.suppress(OSError, hosts.Missing):
            return self.process.poll() is not None or os.path.samefile(f"/proc/{self.first}/root/opt/weft/bin", jobs.BIN)
        return False

    def run(self, container, name):
        variables = environment(self.cluster.documents, self.pod, container, self.address)
        command = [expand(word, variables) for word in container["command"]]
        boot = self.host.folder / f"boot-{self.host.name}"
        words = self.host.words(["unshare", "--pid", "--mount", "--fork", "--kill-child", "sh", "-c", FIRST, "sh", self.root, boot,
                                 self.user, self.group, *command])
        with open(self.folder / f"{name}.out", "w") as out, open(self.folder / f"{name}.err", "w") as err:
            return subprocess.Popen([NSENTER, *words[1:]], stdout=out, stderr=err, stdin=subprocess.DEVNULL, env=variables, cwd="/")

    def restart(self):
        """The container again, in the same pod: its volumes, name and address stay."""
        assert self.process.poll() is not None
        self.restarts += 1
        self.begin()

    @property
    def first(self):
        """The container's first process, as the machine's id."""
        return hosts.child_of(hosts.child_of(self.process.pid))

    def probe(self, which):
        """As the kubelet asks: whether the container passes, of so many times as make it fail."""
        return any(self.asked(self.container[which]) for _ in range(3))

    def asked(self, probe):
        if "tcpSocket" in probe:
            (port,) = [row["containerPort"] for row in self.container["ports"] if row["name"] == probe["tcpSocket"]["port"]]
            return self.cluster.dial(self.address, port)
        words = [NSENTER, "--target", self.first, "--net", "--uts", "--ipc", "--mount", "--pid", "--root", "--setuid", self.user,
                 "--setgid", self.group, "--", *probe["exec"]["command"]]
        variables = environment(self.cluster.documents, self.pod, self.container, self.address)  # a container's, as `kubectl exec` has them
        try:
            done = subprocess.run([str(word) for word in words], env=variables, capture_output=True, cwd="/",
                                  timeout=probe.get("timeoutSeconds", 1))
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0

    def signal(self, number):
        with contextlib.suppress(ProcessLookupError, hosts.Missing):
            os.kill(self.first, number)

    def stop(self):
        """As a pod that is deleted: asked, and killed when its time is over."""
        self.signal(signal.SIGTERM)
        try:
            return self.process.wait(self.pod.spec["terminationGracePeriodSeconds"])
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def kill(self):
        if self.process and self.process.poll() is None:
            self.signal(signal.SIGKILL)
        return self.process and self.process.wait(20)

    def file(self, volume, name):
        return self.folder / f"volume-{volume}" / name

    def said(self):
        return "".join(f"--- {self.pod.hostname} ({self.address}) {path.name}:\n{path.read_text(errors='replace')}"
                       for path in sorted(self.folder.glob("*.err")))


class Cluster:
    """The pods of rendered manifests. `secret`: a folder with the files of the Secret weft-key."""

    def __init__(self, folder, documents, secret, model, spare=0):
        self.folder, self.documents, self.secret, self.model = folder, documents, secret, model
        self.names = folder / "hosts"
        self.names.write_text("127.0.0.1 localhost\n")
        self.pods = {pod.hostname: pod for pod in pods_of(documents)}
        self.count = len(self.pods) + spare
        self.running, self.gone = {}, []

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            self.free = list(stack.enter_context(hosts.Hosts(self.count, networks=(hosts.Hosts.IPV4,))))
            stack.callback(self.end)
            self.nodes = list(self.free)
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self.stack.close()

    def end(self):
        for one in self.running.values():
            one.kill()

    def services(self):
        """Headless Services, which give pods their names: (name, selector)."""
        for one in self.documents:
            if one["kind"] == "Service" and one["spec"]["publishNotReadyAddresses"]:
                yield one["metadata"]["name"], one["spec"]["selector"]
            elif one["kind"] == "JobSet" and one["spec"]["network"]["publishNotReadyAddresses"]:
                yield one["spec"]["network"]["subdomain"], {"jobset.sigs.k8s.io/jobset-name": one["metadata"]["name"]}
            elif one["kind"] == "LeaderWorkerSet":
                yield one["metadata"]["name"], {"leaderworkerset.sigs.k8s.io/name": one["metadata"]["name"]}

    def publish(self):
        """What the cluster's name server would answer, before pods are ready."""
        lines = ["127.0.0.1 localhost"]
        for one in self.running.values():
            for service, selector in self.services():
                if one.pod.subdomain == service and all(one.pod.labels.get(key) == value for key, value in selector.items()):
                    name = f"{one.pod.hostname}.{service}"
                    lines.append(f"{one.address} {name}.weft.svc.cluster.local {name}.weft {name}")
        with open(self.names, "r+") as file:  # in place: it is mounted
            file.write("\n".join(lines) + "\n")
            file.truncate()

    def start(self, hostname):
        folder = self.folder / f"{hostname}-{len(self.gone)}"
        one = self.running[hostname] = Running(self, self.pods[hostname], self.free.pop(0), folder)
        self.publish()
        return one.start()

    def replace(self, hostname):
        """Another pod for one that has ended: the same name and variables, another address and node."""
        assert self.running[hostname].process.poll() is not None
        self.gone.append(self.running.pop(hostname))
        return self.start(hostname)

    def of(self, role):
        return [one for one in self.running.values() if one.pod.role == role]

    def dial(self, address, port):
        """Whether a connection from a node comes about."""
        code = f"import socket; socket.create_connection(({address!r}, {port}), 5).close()"
        return self.nodes[-1].run(sys.executable, "-c", code, check=False).returncode == 0

    def until(self, condition, what, timeout=45):
        deadline = time.monotonic() + timeout
        while not condition():
            assert time.monotonic() < deadline, f"{what}: not after {timeout} s\n{self.said()}"
            time.sleep(0.05)

    def ended(self, ones, timeout=45):
        ones = list(ones)
        self.until(lambda: all(one.process.poll() is not None for one in ones), "ended", timeout)
        return {one.pod.hostname: one.process.returncode for one in ones}

    def said(self):
        return "".join(one.said() for one in [*self.gone, *self.running.values()])
