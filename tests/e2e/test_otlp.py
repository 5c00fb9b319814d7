# SPDX-License-Identifier: Apache-2.0
"""Traces of whole jobs as OTLP (docs/traces.md): as many spans as Perfetto's file has slices and instants, a trace for each
version, parents that last as long as their children; the same files give the same bytes. What the official definitions say to it is
in tests/deploy/test_otel.py."""
import collections
import re
import time

import pytest

import otlp
from job import Job

pytestmark = pytest.mark.shm
OF_PROCESS = {"service.name", "service.instance.id", "service.version", "host.name", "process.pid", "weft.job", "weft.role",
              "weft.rank", "weft.clock", "weft.clock.error_ns", "weft.events.dropped"}
OF_SPAN = {f"weft.{key}" for key in ("version", "bytes", "piece", "part", "path", "tensor", "text", "sequence", "from")}


@pytest.fixture(scope="module", params=["shm", "tcp"])
def done(request, tmp_path_factory, models):
    return otlp.run(tmp_path_factory.mktemp("otlp"), models["qwen2"], "--transport", request.param, "--checksums")


def place(process):
    """Of one of these processes in the order that Perfetto shows them in; there a low number, as after a wrap, is not its own."""
    role, rank = process["weft.role"], process.get("weft.rank", 0)
    return 1 + ["controller", "trainer", "inference"].index(role) * 2 - (role != "controller") + rank


def same_in_perfetto(events):
    """{(process, lane, name, ns, what it carries): how often} of the file for Perfetto."""
    lanes = {(row["pid"], row["tid"]): row["args"]["name"] for row in events if row["name"] == "thread_name"}
    places = {row["pid"]: row["args"]["sort_index"] for row in events if row["name"] == "process_sort_index"}
    assert sorted(places.values()) == [1, 2, 3, 4, 5]
    return collections.Counter((places[row["pid"]], lanes[row["pid"], row["tid"]], row["name"], round(row.get("dur", 0) * 1000),
                                *sorted(row["args"].items())) for row in events if row["ph"] != "M")


def test_otlp__has_a_span_for_every_slice_and_every_instant(done):
    found = collections.Counter(
        (place(span.process), span.lane, span.name, span.end - span.begin,
         *sorted((key.removeprefix("weft."), what) for key, what in span.attributes.items())) for span in done.spans)
    wanted = same_in_perfetto(done.events)
    assert found == wanted and sum(found.values()) > 150
    total = sum(row["args"].get("bytes", 0) for row in done.events)
    assert sum(span.attributes.get("weft.bytes", 0) for span in done.spans) == total > 0


def test_otlp__all_spans_of_one_version_share_a_trace(done):
    traces, processes = collections.defaultdict(set), collections.defaultdict(set)
    for span in done.spans:
        traces[span.version].add(span.trace)
        processes[span.version].add(span.process["service.instance.id"])
    assert traces.keys() == set(range(otlp.UPDATES + 1))
    assert all(len(found) == 1 for found in traces.values())
    assert len(set.union(*traces.values())) == otlp.UPDATES + 1
    assert {version: len(found) for version, found in processes.items()} == {0: 5, 1: 4, 2: 4, 3: 4, 4: 4}
    names = {span.name for span in done.spans if not span.version}
    assert names >= {"join", "plan", "running", "heartbeat"} and not names & {"update", "write"}


def test_otlp__ids_are_hex_and_nobody_elses(done):
    ids = [span.id for span in done.spans]
    assert len(set(ids)) == len(ids)
    for span in done.spans:
        assert re.fullmatch("[0-9a-f]{16}", span.id) and int(span.id, 16)
        assert re.fullmatch("[0-9a-f]{32}", span.trace) and int(span.trace, 16)


def test_otlp__a_parent_is_there_and_lasts_as_long_as_its_child(done):
    by_id = {span.id: span for span in done.spans}
    for span in done.spans:
        assert span.begin <= span.end
        if not span.parent:
            continue
        above = by_id[span.parent]
        assert above.trace == span.trace and above.process == span.process
        assert above.begin <= span.begin and span.end <= above.end
    under = {(span.process["weft.role"], by_id[span.parent].name, span.name) for span in done.spans if span.parent}
    assert under >= {("trainer", "update", name) for name in ("accept", "write", "end")}
    assert under >= {("inference", "update", name) for name in ("write", "verify", "commit", "end")}
    # what threads did for a peer is below the update that it was done for
    pieces = [span for span in done.spans if "weft.tensor" in span.attributes]
    assert pieces and all(span.parent for span in pieces)


def test_otlp__times_are_of_the_day(done):
    for span in done.spans:
        assert done.began <= span.begin <= span.end <= done.ended
    updates = [span for span in done.spans if span.name == "update"]
    assert max(span.end for span in updates) - min(span.begin for span in updates) > 1e8


def test_otlp__processes_say_who_they_are_and_nothing_holds_an_address(done):
    processes = {span.process["service.instance.id"]: span.process for span in done.spans}
    assert len(processes) == 5
    said = {(row["service.name"], row.get("weft.rank"), row["weft.job"]) for row in processes.values()}
    assert said == {(f"weft-{role}", rank, 'a "job"') for role in ("trainer", "inference") for rank in range(2)} | {
        ("weft-controller", None, 'a "job"')}
    for row in processes.values():
        assert row.keys() <= OF_PROCESS and row["process.pid"] > 0 and row["host.name"]
    for span in done.spans:
        assert span.attributes.keys() <= OF_SPAN
    assert not re.search(r"tcp://|127\.0\.0\.1|0x[0-9a-f]{6}", done.path.read_text())


def test_otlp__the_same_files_give_the_same_bytes(done, tmp_path):
    otlp.merge(done.files, tmp_path / "again.jsonl")
    otlp.merge(list(reversed(done.files)), tmp_path / "reversed.jsonl")
    assert (tmp_path / "again.jsonl").read_bytes() == done.path.read_bytes() == (tmp_path / "reversed.jsonl").read_bytes()


def test_otlp__lines_are_as_long_as_the_collector_takes(done):
    """Each is whole for itself, with who it is of: the collector takes one at a time."""
    lines = otlp.lines_of(done.path)
    assert len(lines) >= 5 and max(map(len, lines)) <= 512 * 1024


def test_otlp__an_update_that_was_given_up_is_an_error(tmp_path, models):
    with Job(tmp_path / "job", models["qwen2"], "world=1,source=gathered", "engines=1,tp=1") as job:
        trace = ("--trace", tmp_path / "%r.json")
        job.controller()
        job.workers(*trace, "--interval", "20ms", updates=100000)
        deadline = time.monotonic() + 20
        while len(job.processes["trainer-0"].updates()) < 5 and time.monotonic() < deadline:
            time.sleep(0.05)
        job.kill("trainer-0")
        job.wait(30, ["trainer-0", "inference-0"])
    otlp.merge([tmp_path / "t0.json", tmp_path / "i0.json"], tmp_path / "run.jsonl")
    spans = otlp.spans_of(tmp_path / "run.jsonl")
    given_up = [span for span in spans if span.name == "update given up"]
    assert given_up and all(span.status["code"] == 2 and "trainer 0" in span.status["message"] for span in given_up)
    assert not [span for span in spans if span.status and span not in given_up]


def test_otlp__is_written_whole_or_not_at_all(done, tmp_path):
    old = tmp_path / "old.jsonl"
    old.write_text("what was there\n")
    controller = done.folder / "controller.json"
    early = tmp_path / "early.json"
    early.write_text(re.sub(r'"wall_ns":"\d+"', '"wall_ns":"1"', controller.read_text()))
    refused = otlp.merge([early], old, check=False)
    assert refused.returncode == 1 and "early.json" in refused.stderr and "1970" in refused.stderr and "WEFT-E110" in refused.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["early.json", "old.jsonl"] and old.read_text() == "what was there\n"
    nowhere = otlp.merge(done.files, tmp_path / "none" / "run.jsonl", check=False)
    assert nowhere.returncode == 1 and len(nowhere.stderr.splitlines()) == 1 and "none/run.jsonl" in nowhere.stderr


def test_otlp__flags_that_cannot_be_are_one_clear_error(done, tmp_path):
    def refused(*flags):
        said = otlp.merge(done.files, tmp_path / "run.jsonl", *flags, check=False)
        assert said.returncode == 2 and not list(tmp_path.iterdir())
        return said.stderr.splitlines()[0]

    assert "--format 'chrome': it is perfetto or otlp" in refused("--format", "chrome")
    assert "goes with --format perfetto, not with otlp" in refused("--predicted", done.files[0])
