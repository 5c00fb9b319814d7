# SPDX-License-Identifier: Apache-2.0
"""Traces opened in Perfetto itself (perfetto.py), which is stricter than JSON: slices of one lane that overlap are dropped, tids
that are 0 or the process's own are its main thread, and how lanes are to be sorted it takes from their numbers alone. It has every
slice, in the depth that was meant, and answers what docs/traces.md asks. WEFT_SHOTS=FOLDER keeps the pictures, to be looked at."""
import collections
import json
import re
import time

import perfetto as viewers
import pytest
from job import ROOT, Job, weft
from test_traces import UPDATES, bytes_of_plan, run, slices

pytestmark = pytest.mark.shm
JOB = ("--train", "world=2,source=gathered", "--infer", "engines=2,tp=1")
OWN = {"weft", "weft_end", "weft_merged", "weft_clock"}  # metadata of ours, which viewers may pass over
EACH = """select process.name as process, process.pid, thread.name as lane, slice.name, slice.ts, slice.dur, slice.depth
  from slice join thread_track on slice.track_id = thread_track.id join thread using (utid) join process using (upid)"""


@pytest.fixture(scope="module")
def viewer(tmp_path_factory):
    viewers.need()
    one = viewers.Perfetto(tmp_path_factory.mktemp("chromium"))
    yield one
    one.close()


@pytest.fixture(scope="module")
def traced(tmp_path_factory, models):
    """The folder of a job on three hosts, with threads that pack, sums and a verification: merged, and beside a prediction."""
    folder = tmp_path_factory.mktemp("traced")
    flags = ("--transport", "tcp", "--checksums", "--pack-threads", "3")
    *_, files = run(folder, models["qwen2"], *flags, hosts=("trainer-1", "inference-0"))
    weft("route", "simulate", "--model", models["qwen2"], *JOB, "--rate", "verify=60", "--trace", folder / "simulated.json")
    weft("trace", "merge", *files, "--predicted", folder / "simulated.json", "--output", folder / "both.json")
    return folder


def events_of(path):
    """Of a whole file, or of what a process left that was killed, maybe in the midst of a line."""
    text = path.read_text()
    if text.startswith("{"):
        return json.loads(text)["traceEvents"]
    return json.loads(text if text.endswith("]\n") else text[:text.rindex(",\n")] + "\n]")


def count(rows):
    return collections.Counter((row["process"], row["lane"], row["name"], row["dur"]) for row in rows)


def written(path):
    """The slices and instants of a file, as Perfetto is to have them."""
    names, rows = {}, []
    for event in events_of(path):
        if event["ph"] == "M" and event["name"] in ("process_name", "thread_name"):
            names[event["pid"], event["tid"] if event["name"] == "thread_name" else None] = event["args"]["name"]
    for event in events_of(path):
        if event["ph"] in "Xi":
            rows.append({"process": names[event["pid"], None], "lane": names[event["pid"], event["tid"]], "name": event["name"],
                         "dur": round(event.get("dur", 0) * 1000)})
    return rows


def opened(viewer, path):
    """Perfetto's rows of a file: all that are in it, and nothing that its importer complains of."""
    viewer.open(path)
    assert viewer.lost() == []
    rows = viewer.query(EACH)
    assert count(rows) == count(written(path)) and len(rows) == viewer.query("select count(*) as n from slice")[0]["n"]
    return rows


def depths(rows):
    """{(process without its host, lane without its host, name): the depths in which it was seen}"""
    seen = collections.defaultdict(set)
    for row in rows:
        process = row["process"].split(" on ")[0]
        lane = re.sub(r" \(host .*?\)| #\d+", "", row["lane"])
        seen[process, lane, row["name"]].add(row["depth"])
    return seen


def test_perfetto__has_every_slice_of_a_job_and_one_in_another_as_meant(viewer, traced, shots):
    rows = opened(viewer, traced / "merged.json")
    inner = {"accept", "write", "end", "verify", "commit", "post_load"}
    seen = depths(rows)
    for (process, lane, name), found in seen.items():
        if lane == "update":
            assert found == ({1} if name in inner else {0}), (process, name, found)
        elif lane != "members" and not lane.startswith("from "):  # instants of one moment may stand above each other
            assert found == {0}, (process, lane, name, found)
    assert {name for process, lane, name in seen if lane == "update"} >= {"update", "accept", "write", "end", "verify", "commit"}
    assert {lane for _, lane, _ in seen} >= {"job", "update", "readers", "pack", "members", "plans", "heartbeats", "controller",
                                             "to inference 0", "from trainer 1"}
    viewer.picture(shots / "job.png")


def test_perfetto__shows_processes_and_lanes_by_names_that_tell_them_apart(viewer, traced):
    viewer.open(traced / "merged.json")
    shown = dict(viewer.titles())
    pids = {row["name"]: row["pid"] for row in viewer.query("select name, pid from process where name is not null")}
    assert {name.split(" on ")[0] for name in pids} == {"controller", "trainer 0", "trainer 1", "inference 0", "inference 1"}
    # the number is the process's own, as in ps and in logs, but where lanes have such numbers
    written = {events_of(path)[0]["pid"] for path in traced.glob("[cti]*.json")}
    assert {pid for pid in written if pid >= 1000} <= set(pids.values()) and len(set(pids.values())) == len(written)
    assert shown.keys() == {f"{name} {pid}" for name, pid in pids.items()}
    # a lane with the number of its process would be taken for its main thread, and stand first
    for name, lanes in shown.items():
        assert name.split()[-1] not in {lane.split()[-1] for lane in lanes}
    trainer = next(lanes for name, lanes in shown.items() if name.startswith("trainer"))
    order = ["job", "update", "pack", "controller", "to inference"]
    places = [next(place for place, word in enumerate(order) if lane.startswith(word)) for lane in trainer]
    assert places == sorted(places) and set(places) == set(range(len(order)))
    assert not viewer.query("select 1 from process where pid = 0 and name is not null")


def test_perfetto__shows_what_was_predicted_below_what_was(viewer, traced, shots):
    rows = opened(viewer, traced / "both.json")
    predicted = [row for row in rows if row["lane"].startswith("predicted: ")]
    assert len(predicted) > 50 and {row["depth"] for row in predicted} == {0}
    shown = viewer.titles()
    below = []
    for process, lanes in shown:
        for place, lane in enumerate(lanes):
            found = re.match(r"predicted: (to inference \d+) ", lane)
            if found:
                below.append(found[1])
                others = [other for other in lanes[:place] if not other.startswith("predicted")]
                assert others[-1].startswith(found[1]), (process, lanes)
    assert sorted(below) == ["to inference 0", "to inference 1"]
    assert sorted(lane for process, lanes in shown for lane in lanes if process.startswith("predicted: all ranks")) == [
        "gather GB/s", "verify GB/s", "wire GB/s"]
    first = min(row["ts"] for row in rows if row["lane"].startswith("to inference") and row["name"] == "write")
    assert min(row["ts"] for row in predicted) == first
    viewer.picture(shots / "both.png", first - 1_000_000, max(row["ts"] + row["dur"] for row in predicted) + 2_000_000)


def test_perfetto__opens_a_simulation_by_itself(viewer, traced, shots):
    rows = opened(viewer, traced / "simulated.json")
    assert {row["depth"] for row in rows} == {0} and min(row["dur"] for row in rows) > 0
    assert {row["lane"] for row in rows} >= {"gather", "verify", "to inference 0", "to inference 1"}
    viewer.picture(shots / "simulated.png")


def test_perfetto__opens_one_process_and_what_a_killed_one_left(viewer, traced, tmp_path, models):
    for name in ("t0", "controller"):
        opened(viewer, traced / f"{name}.json")
    with Job(tmp_path / "job", models["qwen2"], "world=1,source=gathered", "engines=1,tp=1") as job:
        job.controller()
        job.workers("--trace", tmp_path / "%r.json", "--interval", "5ms", updates=100000)
        left, deadline = tmp_path / "t0.json", time.monotonic() + 30
        while not left.exists() or left.stat().st_size < 100_000:  # written five times a second
            assert time.monotonic() < deadline, job.said()
            time.sleep(0.05)
        job.kill("trainer-0")
        job.wait(30, ["trainer-0"])
    assert not left.read_text().rstrip().endswith("]")
    assert len(opened(viewer, left)) > 100
    torn = tmp_path / "torn.json"
    torn.write_text(left.read_text()[:-20])  # in the midst of a line
    assert len(opened(viewer, torn)) == len(written(torn)) > 100


def test_perfetto__tells_of_slices_that_overlap(viewer, traced):
    """Or no test here could fail."""
    text = (traced / "merged.json").read_text()
    found = re.search(r'\{"pid":(\d+),"ph":"X","tid":(\d+),"name":"gathering","dur":([\d.]+)', text)
    pid, tid, dur = int(found[1]), int(found[2]), float(found[3])
    odd = {"pid": pid, "tid": tid, "ph": "X", "name": "odd", "ts": dur / 2, "dur": dur}
    (traced / "odd.txt").write_text(text.replace("\n]}", f",\n{json.dumps(odd)}\n]}}"))
    viewer.open(traced / "odd.txt")
    assert [row["name"] for row in viewer.lost()] == ["slice_drop_overlapping_complete_event"]


@pytest.mark.parametrize("name", ["both", "merged", "t1", "simulated"])
def test_chrome_tracing__reads_the_same_in_our_order(viewer, traced, name):
    read = viewer.in_chrome(traced / f"{name}.json")
    assert {warning.split(": ")[-1] for warning in read["warnings"]} <= OWN
    assert read["slices"] == len(written(traced / f"{name}.json"))
    processes = [process.split(" on ")[0] for process, _ in read["processes"]]
    measured = ["controller", "trainer 0", "trainer 1", "inference 0", "inference 1"]
    assert processes == {"both": [*measured, "predicted: all ranks"], "merged": measured, "t1": ["trainer 1"],
                         "simulated": ["all ranks", *measured[1:]]}[name]
    if name == "both":
        lanes = dict(zip(processes, (lanes for _, lanes in read["processes"])))["trainer 0"]
        assert lanes[:2] == ["job", "update"] and lanes[-1] == "predicted: to inference 0"


def asked():
    """The SQL of docs/traces.md, by the line before it."""
    text = (ROOT / "docs" / "traces.md").read_text()
    return {about.strip(): sql for about, sql in re.findall(r"([^\n]+)\n\n```sql\n(.*?)```", text, re.DOTALL)}


def test_document__asks_in_sql_what_perfetto_answers(viewer, traced):
    viewer.open(traced / "both.json")
    found = {about: viewer.query(sql) for about, sql in asked().items()}
    assert len(found) == 4
    lost, pairs, last, beside = found.values()
    assert lost == []
    plan, sent = bytes_of_plan(traced / "plan.json"), collections.Counter()
    for row in pairs:
        trainer, to = re.match(r"trainer (\d+)", row["process_name"])[1], re.match(r"to inference (\d+)", row["thread_name"])[1]
        sent[row["version"], int(trainer), int(to)] += row["bytes"]
        assert row["ms"] > 0 and row["gb_s"] == pytest.approx(row["bytes"] / row["ms"] / 1e6)
    assert dict(sent) == {(version, *pair): bytes for version in range(1, UPDATES + 1) for pair, bytes in plan.items()}
    updates = collections.defaultdict(list)
    for process, lane, row in slices(events_of(traced / "both.json")):
        if (lane, row["name"]) == ("update", "update") and process.startswith("trainer "):
            updates[row["args"]["version"]].append((row["ts"] + row["dur"], row["ts"], process))
    assert [row["version"] for row in last] == sorted(updates) == list(range(1, UPDATES + 1))
    for row in last:
        end, _, process = max(updates[row["version"]])
        begin = min(begin for _, begin, _ in updates[row["version"]])
        assert row["last"] == process and row["ms"] == pytest.approx((end - begin) / 1e3)
    sums = {True: collections.Counter(), False: collections.Counter()}  # of several threads' lanes
    for row in beside:
        to = re.search(r"to inference \d+", row["thread_name"])[0]
        sums["predicted" in row["thread_name"]][row["process_name"], to] += row["bytes"]
    assert len(sums[True]) == 2 and sums[True] == sums[False]
