# SPDX-License-Identifier: Apache-2.0
"""What `kubectl kustomize` makes of deploy/k8s, for machines without kubectl: the few features that are used there, and
an error for every other one. Where kubectl is, test_manifests.py compares the two.

    tests/deploy/kustomize.py FOLDER      print it
"""
import copy
import pathlib
import re
import sys

import yaml

LOCAL = "config.kubernetes.io/local-config"
FIELDS = {
    "Kustomization": {"apiVersion", "kind", "namespace", "resources", "components", "replacements"},
    "Component": {"apiVersion", "kind", "resources", "components", "replacements"},
}
NAMESPACED = {"ConfigMap", "Claims", "Job", "JobSet", "LeaderWorkerSet", "NetworkPolicy", "PodTemplate", "ResourceClaimTemplate",
              "Service", "ServiceAccount", "Settings", "StatefulSet", "Workload"}


class Refused(Exception):
    """kustomize would fail here, or this is a feature that is not known here; the text says which."""


def need(condition, text):
    if not condition:
        raise Refused(text)


def only(mapping, allowed, where):
    need(set(mapping) <= set(allowed), f"{where}: {', '.join(sorted(set(mapping) - set(allowed)))} is not known here")


def path_of(text):
    """a.b.[name=x].* as a list."""
    parts = re.findall(r"\[[^\]]*\]|[^.\[\]]+", text)
    need(".".join(parts) == text, f"field path {text!r} cannot be read")
    return parts


def places(node, parts, create, text):
    """(container, key) of each place that a path names."""
    head, rest = parts[0], parts[1:]
    if head == "*":
        need(isinstance(node, list) and node, f"{text}: {head} is for a list with something in it")
        keys = range(len(node))
    elif head.startswith("["):
        need(isinstance(node, list), f"{text}: {head} is for a list")
        name, _, value = head[1:-1].partition("=")
        keys = [index for index, item in enumerate(node) if str(item.get(name)) == value]
        need(keys, f"{text}: nothing has {head}")
    else:
        need(isinstance(node, dict), f"{text}: {head} is for a mapping")
        if head not in node:
            need(create, f"{text}: there is no {head}, and options.create is not set")
            node[head] = {} if rest else None
        keys = [head]
    for key in keys:
        if rest:
            yield from places(node[key], rest, create, text)
        else:
            yield node, key


def put(container, key, value):
    """A scalar takes the type of the one that is there."""
    old = container[key]
    if old is None or isinstance(old, (dict, list)):
        container[key] = copy.deepcopy(value)
        return
    need(not isinstance(value, (dict, list)), f"{key}: a list or mapping for the scalar {old!r}")
    need(type(old) in (str, int) and type(value) in (str, int), f"{key}: {old!r} and {value!r} are of no known types")
    container[key] = type(old)(value)


def selected(documents, select, where):
    only(select, {"kind", "name"}, where)
    return [one for one in documents if all({"kind": one["kind"], "name": one["metadata"]["name"]}[key] == value
                                            for key, value in select.items())]


def replace(documents, row, where):
    only(row, {"source", "targets"}, where)
    source = dict(row["source"])
    text = source.pop("fieldPath")
    found = selected(documents, source, where)
    need(len(found) == 1, f"{where}: the source {row['source']} is {len(found)} objects")
    ((container, key),) = places(found[0], path_of(text), False, f"{where}: {text}")
    value = container[key]
    need(value not in (None, {}, []), f"{where}: the source {text} is empty, which kustomize takes for missing")
    for target in row["targets"]:
        only(target, {"select", "fieldPaths", "options"}, where)
        options = target.get("options", {})
        only(options, {"create"}, where)
        chosen = selected(documents, target["select"], where)
        need(chosen, f"{where}: the target {target['select']} is no object")
        for document in chosen:
            for field in target["fieldPaths"]:
                for container, key in list(places(document, path_of(field), options.get("create", False), f"{where}: {field}")):
                    put(container, key, value)


def load(path):
    documents = [one for one in yaml.safe_load_all(path.read_text()) if one]
    need(documents, f"{path} is empty")
    return documents


def accumulate(folder, documents, kind):
    """Adds what the folder names to the documents, and changes them as it says."""
    path = folder / "kustomization.yaml"
    need(path.is_file(), f"{path} is not there")
    (own,) = load(path)
    need(own.get("kind") == kind, f"{path}: kind is {own.get('kind')}, and {kind} is needed")
    only(own, FIELDS[kind], str(path))
    for name in own.get("resources", []):
        one = (folder / name).resolve()
        if one.is_dir():
            inner = []
            accumulate(one, inner, "Kustomization")
            documents += inner
        else:
            need(one.parent == folder, f"{path}: {name} is outside of its folder")
            documents += load(one)
    names = [(one["kind"], one["metadata"]["name"]) for one in documents]
    need(len(set(names)) == len(names), f"{path}: an object is there twice: {sorted(names)}")
    for name in own.get("components", []):
        accumulate((folder / name).resolve(), documents, "Component")
    for row in own.get("replacements", []):
        replace(documents, row, str(path))
    if "namespace" in own:
        for document in documents:
            need(document["kind"] in NAMESPACED, f"{path}: whether {document['kind']} has a namespace is not known here")
            document["metadata"]["namespace"] = own["namespace"]


def render(folder):
    """The objects that would be sent."""
    documents = []
    accumulate(pathlib.Path(folder).resolve(), documents, "Kustomization")
    return [one for one in documents if LOCAL not in one["metadata"].get("annotations", {})]


if __name__ == "__main__":
    try:
        print(yaml.safe_dump_all(render(sys.argv[1]), sort_keys=False), end="")
    except Refused as reason:
        sys.exit(str(reason))
