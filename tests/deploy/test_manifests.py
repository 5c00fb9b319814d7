# SPDX-License-Identifier: Apache-2.0
"""The manifests of deploy/k8s: what kustomize makes of them, strictly against the schemas of the released APIs, and against rules
that no schema has. Each check is shown to fail for something."""
import copy
import pathlib
import re
import shutil
import subprocess

import kustomize
import pytest
import rules
import schemas
import yaml

K8S = schemas.ROOT / "deploy" / "k8s"
OVERLAYS = sorted(path.name for path in (K8S / "overlays").iterdir())
RENDERED = {name: kustomize.render(K8S / "overlays" / name) for name in OVERLAYS}


def by_name(documents):
    return {(one["kind"], one["metadata"]["name"]): one for one in documents}


def errors(document):
    try:
        return schemas.errors(document)
    except schemas.Missing as reason:
        pytest.skip(str(reason))


def real_kustomize():
    """kubectl with a kustomize of version 5, which has all that is used; or None."""
    if not shutil.which("kubectl"):
        return None
    said = subprocess.run(["kubectl", "version", "--client"], capture_output=True, text=True).stdout
    match = re.search(r"Kustomize Version: v(\d+)", said)
    return match and int(match[1]) >= 5


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_overlay__is_rendered_as_kubectl_does(overlay):
    if not real_kustomize():
        pytest.skip("no kubectl with kustomize 5 here: what is checked is what kustomize.py makes")
    done = subprocess.run(["kubectl", "kustomize", str(K8S / "overlays" / overlay)], capture_output=True, text=True, check=True)
    real = by_name(one for one in yaml.safe_load_all(done.stdout) if one)
    assert by_name(RENDERED[overlay]) == real


@pytest.mark.parametrize("overlay,kind", [(overlay, kind) for overlay in OVERLAYS for kind in sorted({one["kind"] for one in RENDERED[overlay]})])
def test_overlay__is_what_the_apis_take(overlay, kind):
    for document in RENDERED[overlay]:
        if document["kind"] == kind:
            assert errors(document) == [], document["metadata"]["name"]


def deepest(document):
    """Mappings whose fields the schema names: (path, mapping)."""
    (pod, *_) = rules.pods([document])
    spec = pod[2]["spec"]
    container = spec["containers"][0]
    return {"object": document, "spec": document["spec"], "pod": spec, "container": container, "probe": container["livenessProbe"],
            "security": container["securityContext"], "volume": spec["volumes"][0], "env": container["env"][0]}


@pytest.mark.parametrize("where", ["object", "spec", "pod", "container", "probe", "security", "volume", "env"])
@pytest.mark.parametrize("overlay,kind", [("tcp", "JobSet"), ("jobs", "Job"), ("service", "LeaderWorkerSet"), ("service", "StatefulSet")])
def test_unknown_field__is_an_error_wherever_it_is(overlay, kind, where):
    document = copy.deepcopy(next(one for one in RENDERED[overlay] if one["kind"] == kind))
    deepest(document)[where]["notAField"] = 1
    assert any("notAField" in error for error in errors(document))


def test_wrong_type__is_an_error():
    document = copy.deepcopy(next(one for one in RENDERED["tcp"] if one["kind"] == "JobSet"))
    document["spec"]["replicatedJobs"][1]["template"]["spec"]["completions"] = "2"
    assert any("completions" in error for error in errors(document))


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_overlay__breaks_no_rule(overlay):
    assert rules.broken(RENDERED[overlay]) == []


def container_of(documents, role):
    return pod_of(documents, role)["spec"]["containers"][0]


def pod_of(documents, role):
    return next(template for _, _, template in rules.pods(documents)
                if template["metadata"]["labels"]["app.kubernetes.io/component"] == role)


def one_of(documents, kind, name=None):
    return next(one for one in documents if one["kind"] == kind and name in (None, one["metadata"]["name"]))


def job_of(documents, name):
    return dict(rules.jobs(documents))[name]


# What breaks each rule, in the overlay rdma-dra unless another one is named
BREAKS = {
    "image_has_a_version": lambda d: container_of(d, "trainer").update(image="registry:5000/weft"),
    "requests_equal_limits": lambda d: container_of(d, "engine")["resources"]["requests"].update(cpu="1"),
    "no_rights_that_nobody_needs": lambda d: container_of(d, "engine")["securityContext"].update(privileged=True),
    "root_only_to_lock_memory": lambda d: pod_of(d, "engine")["spec"]["securityContext"].update(runAsUser=1000, runAsNonRoot=True),
    "rdma_locks_memory": lambda d: container_of(d, "engine")["resources"].pop("claims"),
    "the_key_is_a_file_of_a_secret": lambda d: pod_of(d, "trainer")["spec"]["volumes"][0]["secret"].update(defaultMode=0o444),
    "each_role_has_its_own_key": lambda d: pod_of(d, "trainer")["spec"]["volumes"][0]["secret"]["items"][0].update(key="job.key"),
    "no_token_of_the_cluster": lambda d: pod_of(d, "trainer")["spec"].update(serviceAccountName="default"),
    "no_service_links": lambda d: pod_of(d, "trainer")["spec"].pop("enableServiceLinks"),
    "names_before_readiness": lambda d: one_of(d, "JobSet")["spec"]["network"].update(publishNotReadyAddresses=False),
    "selectors_select": lambda d: one_of(d, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"].update(app="x"),
    "ports_are_let_in": lambda d: one_of(d, "NetworkPolicy", "weft-workers")["spec"]["ingress"][0]["ports"][0].update(endPort=30062),
    "probes_are_there": lambda d: container_of(d, "engine").pop("readinessProbe"),
    "stops_are_waited_for": lambda d: pod_of(d, "engine")["spec"].update(terminationGracePeriodSeconds=0),
    "roles_are_spread": lambda d: pod_of(d, "engine")["spec"].pop("topologySpreadConstraints"),
    "jobs_replace_pods": lambda d: job_of(d, "weft-engines")["podFailurePolicy"]["rules"].pop(0),
    "variables_are_said_once": lambda d: container_of(d, "engine")["env"].append({"name": "WEFT_TRAIN", "value": "world=1"}),
    "volumes_are_mounted": lambda d: container_of(d, "engine")["volumeMounts"].pop(),
    "claims_are_made_from_templates": lambda d: d.remove(one_of(d, "ResourceClaimTemplate")),
}


@pytest.mark.parametrize("rule", rules.RULES, ids=lambda rule: rule.__name__)
def test_rule__finds_what_breaks_it(rule):
    documents = copy.deepcopy(RENDERED["rdma-dra"])
    BREAKS[rule.__name__](documents)
    assert list(rule(documents))


def test_newcomer__edits_one_file_and_every_field_of_it_is_explained():
    """Above each field of settings.yaml, or behind it, stands what it is; but where the same field was explained before."""
    for overlay in OVERLAYS:
        lines = (K8S / "overlays" / overlay / "settings.yaml").read_text().splitlines()
        begin = next(number for number, line in enumerate(lines) if line.startswith("image:"))
        seen, silent = set(), []
        for number, line in enumerate(lines[begin:], begin):
            match = re.match(r"(?: {2})?([\w./-]+):", line)
            if not match or lines[number].startswith("---"):
                if line.startswith("---"):
                    break
                continue
            name = match[1]
            if not (lines[number - 1].lstrip().startswith("#") or "#" in line or name in seen or line.endswith(":") and line[0] != " "
                    or name in ("pod", "container")):
                silent.append(f"{overlay}:{number + 1}: {line.strip()}")
            seen.add(name)
        assert silent == []


@pytest.mark.parametrize("wrong,words", [
    ({"patches": []}, "patches is not known here"),
    ({"resources": ["../../nowhere"]}, "nowhere"),
    ({"kind": "Component"}, "Kustomization is needed"),
], ids=["feature", "folder", "kind"])
def test_renderer__refuses_what_it_does_not_know(tmp_path, wrong, words):
    folder = tmp_path / "k8s" / "overlays" / "tcp"
    shutil.copytree(K8S, tmp_path / "k8s")
    path = folder / "kustomization.yaml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **wrong}))
    with pytest.raises((kustomize.Refused, FileNotFoundError), match=words):
        kustomize.render(folder)


@pytest.mark.parametrize("edit,words", [
    (lambda text: text.replace("  pods: 2\n", "", 1), "trainers.pods: there is no pods"),
    (lambda text: text.replace("{kubernetes.io/os: linux}", "{}", 1), "trainers.nodeSelector is empty"),
], ids=["missing", "empty"])
def test_settings__that_lack_a_field_are_refused_by_its_name(tmp_path, edit, words):
    shutil.copytree(K8S, tmp_path / "k8s")
    path = tmp_path / "k8s" / "overlays" / "tcp" / "settings.yaml"
    path.write_text(edit(path.read_text()))
    with pytest.raises(kustomize.Refused, match=re.escape(words)):
        kustomize.render(path.parent)
    if real_kustomize():
        done = subprocess.run(["kubectl", "kustomize", str(path.parent)], capture_output=True, text=True)
        assert done.returncode and "is missing for replacement source" in done.stderr


def test_names__are_those_that_dns_allows():
    for documents in RENDERED.values():
        for one in documents:
            assert re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?", one["metadata"]["name"])
            assert one["metadata"]["namespace"] == "weft"


def test_manifests__are_licensed_and_named_by_somebody():
    files = [path for path in pathlib.Path(K8S).rglob("*.yaml")]
    assert [path for path in files if "SPDX-License-Identifier: Apache-2.0" not in path.read_text()[:120]] == []
    loaded = {path: yaml.safe_load(path.read_text()) for path in files if path.name == "kustomization.yaml"}
    named = {(path.parent / name).resolve() for path, own in loaded.items()
             for name in [*own.get("resources", []), *own.get("components", [])]}
    lonely = [path for path in files if path.resolve() not in named and path.name != "kustomization.yaml"]
    lonely += [path.parent for path in loaded if path.parent.resolve() not in named and path.parent.parent.name != "overlays"]
    assert lonely == []
