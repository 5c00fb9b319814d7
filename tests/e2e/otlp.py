# SPDX-License-Identifier: Apache-2.0
"""A job whose traces are merged for Perfetto and for OpenTelemetry, and what OTLP's lines say, taken apart."""
import dataclasses
import json
import time

from job import Job, weft

UPDATES = 4


@dataclasses.dataclass
class Span:
    process: dict        # the resource's attributes
    lane: str
    name: str
    trace: str
    id: str
    parent: str          # "": none
    begin: int           # ns since 1970
    end: int
    attributes: dict
    status: dict

    @property
    def version(self):
        return self.attributes.get("weft.version", 0)


@dataclasses.dataclass
class Run:
    folder: object
    files: list          # that --trace wrote
    path: object         # OTLP
    events: list         # of the file for Perfetto
    spans: list
    began: int
    ended: int


def value_of(value):
    (kind, what), = value.items()
    return {"stringValue": str, "intValue": int, "doubleValue": float, "boolValue": bool}[kind](what)


def attributes_of(rows):
    found = {row["key"]: value_of(row["value"]) for row in rows}
    assert len(found) == len(rows), rows
    return found


def lines_of(path):
    text = path.read_text()
    assert text.endswith("\n")
    return text.splitlines()


def spans_of(path):
    found = []
    for line in lines_of(path):
        for resource in json.loads(line)["resourceSpans"]:
            process = attributes_of(resource["resource"]["attributes"])
            for scope in resource["scopeSpans"]:
                assert scope["spans"]
                found += [Span(process, scope["scope"]["name"], row["name"], row["traceId"], row["spanId"],
                               row.get("parentSpanId", ""), int(row["startTimeUnixNano"]), int(row["endTimeUnixNano"]),
                               attributes_of(row["attributes"]), row.get("status", {})) for row in scope["spans"]]
    return found


def merge(files, output, *flags, **more):
    return weft("trace", "merge", "--format", "otlp", *files, "--output", output, *flags, **more)


def run(folder, model, *flags):
    """Two trainers and two engines, each process with a trace."""
    trace = ("--trace", folder / "%r.json")
    began = time.time_ns()
    with Job(folder / "job", model, "world=2,source=gathered", "engines=2,tp=1", name='a "job"') as job:
        job.controller(*trace, "--heartbeat", "20ms", "--lost-after", "5s", env={"WEFT_LOG": "warn"})
        job.workers(*trace, *flags, "--interval", "50ms", updates=UPDATES)
        job.succeed()
    ended = time.time_ns()
    files = sorted(folder.glob("*.json"))
    assert len(files) == 5
    weft("trace", "merge", *files, "--output", folder / "perfetto.json")
    path = folder / "run.jsonl"
    merge(files, path)
    events = json.loads((folder / "perfetto.json").read_text())["traceEvents"]
    return Run(folder, files, path, events, spans_of(path), began, ended)
