# SPDX-License-Identifier: Apache-2.0
"""Three small jobs in every text form, byte for byte as kept in tests/e2e/golden, whatever the
build, the locale and the number of threads; and the JSON Schema that all dumps obey.

WEFT_GOLDEN_WRITE=1 rewrites the files; look at the difference."""
import copy
import json
import os
import pathlib
import subprocess

import job as jobs
import jsonschema
import pytest

GOLDEN = pathlib.Path(__file__).parent / "golden"
SCHEMA = json.loads((jobs.ROOT / "routing" / "report" / "schema" / "weft.routing-1.schema.json").read_text())
FORMATS = ("json", "csv", "jsonl", "dot")
SMALL = {
    "gathered": ("qwen2", "--train", "world=4,pp=2", "--infer", "engines=2,tp=2"),
    "sharded": ("llama", "--train", "world=4,fsdp=4,source=sharded", "--infer", "tp=2", "--policy",
                "round-robin", "--memory", "process", "--order", "table"),
    "hosts": ("glm4", "--train", "world=2", "--infer", "engines=1,tp=4", "--topology",
              "per_host=2,nics=2,gbps=400,uplink_gbps=600"),
    "mixed": ("qwen2", "--train", "world=2", "--infer", "engines=1,tp=2", "--topology", GOLDEN / "mixed.topology.json",
              "--transport", "auto"),
}
LOCALES = ({}, {"LC_ALL": "de_DE.UTF-8", "LANG": "de_DE.UTF-8"}, {"LC_ALL": "C", "OMP_NUM_THREADS": "7"},
           {"LC_NUMERIC": "fr_FR.UTF-8", "TZ": "Asia/Tokyo"})


@pytest.fixture(scope="module")
def configs(tmp_path_factory):
    """Models of one layer, in folders whose names are the labels."""
    folder = tmp_path_factory.mktemp("configs")
    for kind, config in jobs.CONFIGS.items():
        (folder / f"small-{kind}").mkdir()
        (folder / f"small-{kind}" / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 1}))
    return folder


def export(configs, name, form, env=None, affinity=None):
    kind, *flags = SMALL[name]
    command = [jobs.WEFT, "route", "export", "--model", configs / f"small-{kind}", *flags, "--format", form]
    command = [*(["taskset", "-c", affinity] if affinity else []), *map(str, command)]
    done = subprocess.run(command, capture_output=True, env={**os.environ, **(env or {})}, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", SMALL)
def test_golden__files_are_reproduced_byte_for_byte(configs, name):
    for form in FORMATS:
        text, path = export(configs, name, form), GOLDEN / f"{name}.{form}"
        if "WEFT_GOLDEN_WRITE" in os.environ:
            path.write_bytes(text)
        assert text == path.read_bytes(), f"{path} differs"
        for env in LOCALES:
            assert export(configs, name, form, env) == text, env
        assert export(configs, name, form, affinity="0") == text


@pytest.mark.parametrize("name", SMALL)
def test_golden__dump_gives_the_other_forms_and_is_verified(configs, name):
    dump = GOLDEN / f"{name}.json"
    for form in FORMATS:
        assert jobs.weft("route", "export", dump, "--format", form).stdout == (GOLDEN / f"{name}.{form}").read_text()
    jobs.weft("route", "verify", dump, "--model", configs / f"small-{SMALL[name][0]}")


# ---- the schema ----

def validator():
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    return jsonschema.Draft7Validator(SCHEMA)


def dumps(configs):
    yield from (json.loads((GOLDEN / f"{name}.json").read_text()) for name in SMALL)
    yield json.loads((jobs.ROOT / "tests/unit/golden/routing_tiny.json").read_text())
    for policy in ("greedy", "round-robin", "balanced"):
        limit = [("--sessions-max", 2)] if policy == "balanced" else []
        for more in ((), ("--summary",), ("--topology", "per_host=4,nics=2,gbps=200"), *limit):
            done = jobs.weft("route", "plan", "--model", configs / "small-qwen3", "--train", "world=4,pp=2",
                             "--infer", "engines=2,tp=2", "--policy", policy, "--json", *more)
            yield json.loads(done.stdout)


def test_schema__every_dump_obeys_it(configs):
    check = validator()
    for dump in dumps(configs):
        check.validate(dump)


OPTIONAL = {("order",), ("routes",), ("sessions_max",), ("topology", "hosts", 0, "uplink_bytes_per_second")}
NUMBERS = (("gap",), ("imbalance",))


def spoilt(dump, value=None, path=()):
    """(what was done, a dump that must be refused): every key missing, unknown, of another type."""
    value = dump if value is None and not path else value

    def changed(change):
        other = copy.deepcopy(dump)
        inner = other
        for key in path[:-1]:
            inner = inner[key]
        change(inner, path[-1])
        return other

    if path and path[-1] != "gap" and path[-1] != "imbalance":
        other = {"a": 1} if not isinstance(value, dict) else [1]
        yield (path, "type"), changed(lambda inner, key: inner.__setitem__(key, other))
    if isinstance(value, bool) or isinstance(value, str):
        return
    if isinstance(value, int) and path[-1] != "gap" and path[-1] != "imbalance":
        yield (path, "negative"), changed(lambda inner, key: inner.__setitem__(key, -1))
    if isinstance(value, dict):
        if path and path[-1] != "links":
            yield (path, "unknown"), changed(lambda inner, key: inner[key].__setitem__("other", 1))
        for key in value:
            if (*path, key) not in OPTIONAL and "links" not in path and key != "how" and key != "links":
                other = copy.deepcopy(dump)
                inner = other
                for step in path:
                    inner = inner[step]
                del inner[key]
                yield ((*path, key), "missing"), other
            yield from spoilt(dump, value[key], (*path, key))
    if isinstance(value, list) and value:
        yield from spoilt(dump, value[0], (*path, 0))


def test_schema__refuses_what_the_reader_refuses(configs, tmp_path):
    check, file, count = validator(), tmp_path / "dump.json", 0
    for name in ("gathered", "hosts"):
        dump = json.loads((GOLDEN / f"{name}.json").read_text())
        dump["routes"] = dump["routes"][:2]
        check.validate(dump)
        for what, other in spoilt(dump):
            count += 1
            assert not check.is_valid(other), what
            file.write_text(json.dumps(other))
            done = jobs.weft("route", "show", file, check=False)
            assert done.returncode == 1 and "WEFT-E110" in done.stderr, (what, done.stderr)
        for other in ({**dump, "schema": "weft.routing/2"}, {**dump, "digest": "0" * 31}, {**dump, "more": 1}):
            assert not check.is_valid(other)
    assert count > 200
