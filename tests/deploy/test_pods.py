# SPDX-License-Identifier: Apache-2.0
"""Jobs run from the manifests: every pod is started with exactly the names, variables, user and files that Kubernetes would
give it, each at an address of its own (pods.py), and the model that is delivered is compared byte for byte."""
import json
import re
import shutil
import signal

import job as jobs
import kustomize
import pytest
import yaml
from pods import Cluster, environment, pods_of

K8S = jobs.ROOT / "deploy" / "k8s"
ANYBODY = {"runAsNonRoot": True, "runAsUser": 10001, "runAsGroup": 10001, "fsGroup": 10001}


def manifests(folder, overlay, edit):
    """The overlay, after its one file has been edited."""
    tree = folder / "k8s"
    shutil.copytree(K8S, tree)
    path = tree / "overlays" / overlay / "settings.yaml"
    settings, *rest = yaml.safe_load_all(path.read_text())
    edit(settings)
    path.write_text(yaml.safe_dump_all([settings, *rest], sort_keys=False))
    return kustomize.render(path.parent)


def small(updates, interval="0ms"):
    """A small model over tcp, as anybody, with digests of what engines show."""
    def edit(settings):
        settings["job"] |= {"WEFT_MODEL": "/model/config.json", "WEFT_TRAIN": "world=2,source=gathered",
                            "WEFT_INFER": "engines=2,tp=2", "WEFT_TRANSPORT": "tcp", "WEFT_MEMORY": "host",
                            "WEFT_UPDATES": str(updates)}
        settings["security"]["pod"] |= ANYBODY
        settings["trainers"]["pods"] = 2
        settings["engines"] |= {"engines": 2} if "engines" in settings["engines"] else {"pods": 4}  # of each, or of all
        command = settings["trainers"]["command"]
        command[command.index("--interval") + 1] = interval
        settings["engines"]["command"] += ["--digests", "/run/weft/digests"]
    return edit


@pytest.fixture
def world(nodes, tmp_path):
    """A config, the checkpoint that it makes (for the referee alone), and the files of the Secret."""
    model = jobs.make_model(tmp_path, "qwen2")
    secret = tmp_path / "secret"
    secret.mkdir()
    jobs.weft("key", "make", secret / "job.key")
    for role in ("trainer", "inference"):
        jobs.weft("key", "role", "--role", role, secret / "job.key", secret / f"{role}.key")
    return tmp_path, model, secret


def cluster(world, documents, **how):
    folder, _, secret = world
    (folder / "cluster").mkdir()
    return Cluster(folder / "cluster", documents, secret, folder / "qwen2-config", **how)


def digests(one):
    path = one.file("run", "digests")
    found = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        if line.endswith("}"):
            record = json.loads(line)
            found.setdefault(record["version"], {})[record["param"]] = (record["digest"], record["bytes"])
    return found


def version(one):
    path = one.file("run", "version")
    return int(path.read_text() or 0) if path.exists() else 0


def rank_of(one):
    return int(re.search(r"inference (\d+)/", one.said())[1])


def compare(engines, model, versions):
    want = jobs.expected(model, "engines=2,tp=2")
    for one in engines:
        got = digests(one)
        for number in versions:
            assert got.get(number) == want.digests(number)[rank_of(one) % 2], f"{one.pod.hostname}: version {number}\n{one.said()}"


def test_jobset__delivers_while_an_engine_and_the_controller_are_replaced(world):
    updates = 120
    with cluster(world, manifests(world[0], "tcp", small(updates, "100ms")), spare=4) as pods:
        for name in sorted(pods.pods, reverse=True):  # the controller comes last: workers wait for its name
            pods.start(name)
        controller = pods.running["weft-controller-0-0"]
        engines = pods.of("engine")
        pods.until(lambda: all(version(one) > 2 for one in engines), "versions are shown")
        assert sorted(map(rank_of, engines)) == [0, 1, 2, 3]
        assert "(from JOB_COMPLETION_INDEX in group 1)" in pods.running["weft-engines-1-0"].said()
        assert all(one.probe("livenessProbe") for one in pods.running.values())
        assert all(one.probe("readinessProbe") for one in [controller, *engines])
        assert controller.probe("startupProbe")

        pods.running["weft-engines-1-0"].kill()
        assert pods.ended([pods.running["weft-engines-1-1"]]) == {"weft-engines-1-1": 75}
        back = [pods.replace(name) for name in ("weft-engines-1-0", "weft-engines-1-1")]
        assert not any(one.probe("readinessProbe") for one in back if not version(one))
        pods.until(lambda: all(version(one) for one in back), "the engine is back")

        controller.stop()
        new = pods.replace("weft-controller-0-0")
        assert new.address != controller.address
        pods.until(lambda: "takes over a job that runs" in new.said(), "the new controller has the job")
        assert pods.ended(pods.running.values(), 60) == dict.fromkeys(pods.pods, 0), pods.said()
        compare([pods.running[f"weft-engines-0-{rank}"] for rank in range(2)], world[1], (1, updates // 2, updates))
        compare(back, world[1], (updates,))


def test_service__gives_one_controller_to_one_job_after_the_other(world):
    with cluster(world, manifests(world[0], "service", small(3)), spare=6) as pods:
        for name in pods.pods:
            pods.start(name)
        controller = pods.running["weft-controller-0"]
        for again in range(2):
            workers = pods.of("trainer") + pods.of("engine")
            assert set(pods.ended(workers).values()) == {0}, pods.said()
            assert "(from LWS_WORKER_INDEX in group 1)" in pods.running["weft-engines-1"].said()
            compare(pods.of("engine"), world[1], (1, 2, 3))
            if not again:
                pods.until(lambda: controller.said().count("listening on") == 2, "the controller waits for another job")
                for one in workers:  # a new group, a new Job
                    pods.replace(one.pod.hostname)
        assert controller.process.poll() is None and not pods.gone[0].pod.role == "controller"
        assert controller.stop() == 143, pods.said()


def test_jobs__of_kubernetes_alone_deliver_every_byte(world):
    with cluster(world, manifests(world[0], "jobs", small(2))) as pods:
        for name in pods.pods:
            pods.start(name)
        assert set(pods.ended(pods.running.values()).values()) == {0}, pods.said()
        assert sorted(map(rank_of, pods.of("engine"))) == [0, 1, 2, 3]
        compare(pods.of("engine"), world[1], (1, 2))
        assert "(from JOB_COMPLETION_INDEX)" in pods.running["weft-engines-3"].said()


def test_wrong_settings__end_pods_with_a_code_that_their_jobs_do_not_retry(world):
    def edit(settings):
        small(2)(settings)
        settings["job"]["WEFT_TRANSPORT"] = "carrier-pigeon"
    with cluster(world, manifests(world[0], "jobs", edit)) as pods:
        one = pods.start("weft-trainers-0")
        code = pods.ended([one])["weft-trainers-0"]
        (trainers,) = [row for row in pods.documents if row["metadata"]["name"] == "weft-trainers"]
        rule = trainers["spec"]["podFailurePolicy"]["rules"][0]
        assert rule["action"] == "FailJob" and code in rule["onExitCodes"]["values"], pods.said()
        assert "carrier-pigeon" in one.said()


def test_frozen_worker__is_told_from_one_that_lives(world):
    with cluster(world, manifests(world[0], "jobs", small(2))) as pods:
        for name in ("weft-controller-0", "weft-trainers-0"):
            one = pods.start(name)
            pods.until(lambda one=one: one.probe("livenessProbe"), "lives")
        one.signal(signal.SIGSTOP)
        pods.until(lambda: not one.probe("livenessProbe"), "is stopped")
        one.signal(signal.SIGCONT)
        assert pods.running["weft-controller-0"].probe("readinessProbe")
        assert one.stop() == 75, one.said()


@pytest.mark.parametrize("overlay", sorted(path.name for path in (K8S / "overlays").iterdir()))
def test_variables__are_those_that_the_programs_read(overlay):
    """Each name is one of the help texts' or of a document's; ranks come from what the object's controller gives."""
    documents = kustomize.render(K8S / "overlays" / overlay)
    known = "".join(path.read_text() for path in [*(jobs.ROOT / "docs").glob("*.md"), *(jobs.ROOT / "worker").rglob("*.c"),
                                                  *(jobs.ROOT / "controller").rglob("*.c")])
    for pod in pods_of(documents):
        (container,) = pod.spec["containers"]
        found = environment(documents, pod, container, "10.0.0.1")
        assert [name for name in found if name.startswith("WEFT_") and not re.search(rf"\b{name}\b", known)] == []
        assert not [name for name in found if found[name].startswith("tcp://") and name.startswith("WEFT") and name != "WEFT_CONTROLLER"]
        if pod.role == "engine":
            assert found["WEFT_GROUP_INDEX"].isdigit() != (overlay == "jobs")
