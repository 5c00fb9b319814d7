# SPDX-License-Identifier: Apache-2.0
"""Objects against the schemas of the released APIs, where a field that is not in them is an error: Kubernetes' own from the
package kubernetes-validate, JobSet's and LeaderWorkerSet's from their definitions (CRD_FOLDER)."""
import functools
import pathlib

import jsonschema
import kubernetes_validate
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
CRD_FOLDER = ROOT.parent / "shared" / "k8s"
VERSION = "1.37"
CRDS = {("jobset.x-k8s.io/v1alpha2", "JobSet"): "jobset.x-k8s.io_jobsets.yaml",
        ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"): "leaderworkerset.x-k8s.io_leaderworkersets.yaml"}


class Missing(Exception):
    """The definition of a kind is not on this machine."""


def close(schema, name=""):
    """The same schema, in which objects have no fields but those that it names. Metadata is the API server's to know; what a
    definition says of it is kept."""
    if isinstance(schema, list):
        return [close(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: ({field: close(one, field) for field, one in value.items()} if key == "properties" else close(value))
              for key, value in schema.items()}
    if schema.get("x-kubernetes-int-or-string"):
        closed.pop("type", None)
        closed["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    is_open = schema.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in schema or name == "metadata" and \
        not schema.get("properties")
    if schema.get("type") == "object" and not is_open:
        closed["additionalProperties"] = False
    return closed


@functools.lru_cache
def validator(api, kind):
    path = CRD_FOLDER / CRDS[api, kind]
    if not path.is_file():
        raise Missing(f"{path} is not there: {kind} is not checked against its schema")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    versions = {one["name"]: one for one in yaml.load(path.read_text(), Loader=loader)["spec"]["versions"]}
    version = versions[api.partition("/")[2]]
    assert version["served"]
    return jsonschema.Draft202012Validator(close(version["schema"]["openAPIV3Schema"]))


def errors(document):
    """Where it differs from its schema, and how."""
    key = document["apiVersion"], document["kind"]
    if key in CRDS:
        return [f"{'/'.join(map(str, error.absolute_path))}: {error.message[:200]}" for error in validator(*key).iter_errors(document)]
    try:
        kubernetes_validate.validate(document, VERSION, strict=True)
    except kubernetes_validate.ValidationError as error:
        return [f"{'/'.join(map(str, error.absolute_path))}: {error.message[:200]}"]
    except kubernetes_validate.SchemaNotFoundError as error:
        return [error.message]
    return []
