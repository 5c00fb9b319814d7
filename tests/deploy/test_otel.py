# SPDX-License-Identifier: Apache-2.0
"""What OpenTelemetry says to weft: OTLP of a real job, read by the official protobuf definitions, which know no field that is not
theirs; and the collector's configuration, whose rules are held against real metrics and real lines of the log."""
import base64
import copy
import datetime
import json
import re

import job as jobs
import otlp
import prometheus
import pytest
import yaml
from google.protobuf import json_format
from opentelemetry.proto.trace.v1 import trace_pb2

COLLECTOR = jobs.ROOT / "deploy/otel/collector.yaml"
IDS = {"traceId": 16, "spanId": 8, "parentSpanId": 8}
# layout_type gotime of the collector: https://go.dev/src/time/format.go
GO_LAYOUT = {"2006": "%Y", "01": "%m", "02": "%d", "15": "%H", "04": "%M", "05.000": "%S.%f", "Z07:00": "%z"}


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("otel")
    return otlp.run(folder, jobs.make_model(folder, "qwen2"), "--transport", "tcp", "--checksums")


@pytest.fixture(scope="module")
def collector():
    return yaml.safe_load(COLLECTOR.read_text())


def strictly(line):
    """TracesData of a line. OTLP's JSON differs from protobuf's in one thing: ids are hex instead of base64."""
    data = json.loads(line)
    for resource in data["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                for key in IDS.keys() & span.keys():
                    span[key] = base64.b64encode(bytes.fromhex(span[key])).decode()
    return json_format.Parse(json.dumps(data), trace_pb2.TracesData(), ignore_unknown_fields=False)


def protobuf_spans(path):
    return [(resource.resource, scope.scope, span) for line in otlp.lines_of(path) for resource in strictly(line).resource_spans
            for scope in resource.scope_spans for span in scope.spans]


def test_otlp__is_what_the_official_definitions_read_to_the_last_field(done):
    spans = protobuf_spans(done.path)
    assert len(spans) == len(done.spans) == sum(row["ph"] in "Xi" for row in done.events)
    for (resource, scope, span), ours in zip(spans, done.spans):
        assert len(span.trace_id) == 16 and len(span.span_id) == 8 and len(span.parent_span_id) in (0, 8)
        assert (span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()) == (ours.trace, ours.id, ours.parent)
        assert (span.name, scope.name) == (ours.name, ours.lane) and span.kind == trace_pb2.Span.SPAN_KIND_INTERNAL
        assert done.began <= span.start_time_unix_nano <= span.end_time_unix_nano <= done.ended
        found = {row.key: getattr(row.value, row.value.WhichOneof("value")) for row in span.attributes}
        assert found == ours.attributes
        found = {row.key: getattr(row.value, row.value.WhichOneof("value")) for row in resource.attributes}
        assert found == ours.process
    kinds = {row.key: row.value.WhichOneof("value") for _, _, span in spans for row in span.attributes}
    assert kinds == {f"weft.{key}": "int_value" for key in ("version", "bytes", "piece", "part", "sequence")} | {
        f"weft.{key}": "string_value" for key in ("path", "tensor", "text", "from")}


def test_otlp__what_is_no_otlp_is_refused(done):
    """That the reading above is strict."""
    line = json.loads(otlp.lines_of(done.path)[0])
    span = line["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
    strictly(json.dumps(line))
    wrongs = [("begin", "1"), ("startTimeUnixNano", "soon"), ("kind", {}), ("attributes", [{"key": "a", "value": {"text": "b"}}])]
    for key, value in wrongs:
        wrong = copy.deepcopy(line)
        wrong["resourceSpans"][0]["scopeSpans"][0]["spans"][0] = {**span, key: value}
        with pytest.raises(json_format.ParseError):
            strictly(json.dumps(wrong))


def test_collector__knows_every_part_that_a_pipeline_names_and_has_none_besides(collector):
    pipelines = collector["service"]["pipelines"]
    assert pipelines.keys() == {"traces", "metrics", "logs"}
    assert collector.keys() == {"receivers", "processors", "exporters", "service"}
    for kind in ("receivers", "processors", "exporters"):
        assert {name for row in pipelines.values() for name in row[kind]} == collector[kind].keys()
    for row in pipelines.values():
        assert row.keys() == {"receivers", "processors", "exporters"}
        assert row["processors"][0] == "memory_limiter"  # as its documents want it
    assert collector["exporters"]["otlp"]["endpoint"] == "${env:OTLP_ENDPOINT}" and "OTLP_ENDPOINT=" in COLLECTOR.read_text()


def uncommented(first, count):
    """YAML that a user may take the comment from."""
    text = COLLECTOR.read_text()
    return yaml.safe_load("\n".join(line.strip()[2:] for line in text[text.index(f"# {first}:"):].splitlines()[:count]))


def test_collector__filters_pieces_by_what_they_have(collector, done):
    filters = uncommented("filter", 3)
    (rule,) = filters["filter"]["traces"]["span"]
    name = re.fullmatch(r'attributes\["(.*)"\] != nil', rule)[1]
    assert {span.name for span in done.spans if name in span.attributes} == {"write"}
    assert not {"filter"} & collector["processors"].keys()


def test_collector__takes_lines_as_long_as_weft_writes(collector):
    header = (jobs.ROOT / "cli/trace_otlp.h").read_text()
    ours = int(re.search(r"TRACE_OTLP_LINE_BYTES \((\d+)u << 10\)", header)[1]) << 10
    assert collector["receivers"]["otlpjsonfile"]["max_log_size"] == "1MiB" and ours <= 1 << 19


def test_collector__scrapes_what_prometheus_would(collector, tmp_path):
    """The receiver has Prometheus's own configuration below `config`."""
    config = collector["receivers"]["prometheus"]["config"]
    families = (jobs.ROOT / "metrics/families.h").read_text()
    rules = uncommented("metric_relabel_configs", 4)
    (rule,) = rules["metric_relabel_configs"]
    names = re.fullmatch(r"weft_\((.*)\)_bucket", rule["regex"])[1].split("|")
    histograms = set(re.findall(r"weft_(\w+),\s+HISTOGRAM", families))
    assert set(names) == histograms
    whole = tmp_path / "prometheus.yml"
    config["scrape_configs"][0].update(rules)
    whole.write_text(yaml.safe_dump(config))
    prometheus.promtool("check", "config", whole)


def test_collector__reads_every_line_of_a_jobs_log(collector, tmp_path):
    receiver = collector["receivers"]["filelog"]
    parser, *moves = receiver["operators"]
    layout = parser["timestamp"]["layout"]
    for go, ours in GO_LAYOUT.items():
        assert layout.count(go) == 1, (layout, go)
        layout = layout.replace(go, ours)
    assert parser["type"] == "json_parser" and parser["timestamp"]["layout_type"] == "gotime"
    names = re.search(r"log_level_names\[4\] = \{(.*?)\}", (jobs.ROOT / "base/log_format.c").read_text())[1]
    levels = re.findall(r'"(\w+)"', names)  # OpenTelemetry's are called the same
    assert len(levels) == 4 and parser["severity"]["mapping"] == {level: level for level in levels}
    with jobs.Job(tmp_path, jobs.make_model(tmp_path, "qwen2"), "world=1,source=gathered", "engines=1,tp=1") as job:
        job.controller("--log-format", "json", env={"WEFT_LOG": "debug"})
        job.workers("--log-format", "json", env={"WEFT_LOG": "debug"})
        job.succeed()
        rows = [json.loads(line) for process in job.processes.values() for line in process.stderr.splitlines()]
    assert len(rows) > 30

    def of(path, row):
        return row[path.removeprefix("attributes.")]

    for row in rows:
        said = datetime.datetime.strptime(of(parser["timestamp"]["parse_from"], row), layout)
        assert said.utcoffset() == datetime.timedelta(0)
        assert abs(said.timestamp() - datetime.datetime.now().timestamp()) < 600
        assert of(parser["severity"]["parse_from"], row) in parser["severity"]["mapping"].values()
    known = {key for row in rows for key in row}
    for move in moves:
        field = move["from"].removeprefix("attributes.")
        assert move["type"] == "move" and move["if"] == f"attributes.{field} != nil" and field in known
    # what was moved is named as traces name it
    places = {match[1] for move in moves if (match := re.fullmatch(r'resource\["(.*)"\]', move["to"]))}
    assert places == {"service.name", "host.name", "process.pid", "weft.job", "weft.role", "weft.rank"}
    named = re.findall(r'"((?:service|host|process|weft)\.[\w.]+)"', (jobs.ROOT / "cli/trace_otlp.c").read_text())
    assert places <= set(named)
