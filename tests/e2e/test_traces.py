# SPDX-License-Identifier: Apache-2.0
"""Traces of whole jobs: what each process wrote, merged; slices nest, bytes are the plan's, clocks agree, and nothing is there that
was not asked for."""
import collections
import json
import pathlib
import re
import time

import pytest

from job import Job, weft

pytestmark = pytest.mark.shm
UPDATES = 4
KEYS = {"version", "bytes", "piece", "part", "path", "tensor", "text", "sequence", "from"}


def run(folder, model, *flags, hosts=(), train="world=2,source=gathered"):
    """(merged events, rows of what merge said, files) of a job of two trainers and two engines."""
    trace = ("--trace", folder / "%r.json")
    trainers = ("--replica", "full") if "full" in flags else ()
    flags = [flag for flag in flags if flag != "full"]
    with Job(folder / "job", model, train, "engines=2,tp=1") as job:
        job.hosts = {name: f"host-{name}" for name in hosts}
        job.controller(*trace, "--heartbeat", "20ms", "--lost-after", "5s", "--dump", folder / "plan.json", env={"WEFT_LOG": "warn"})
        job.workers(*trace, *flags, "--interval", "80ms", updates=UPDATES, trainer_flags=trainers)
        job.succeed()
    files = sorted(path for path in folder.glob("*.json") if path.name != "plan.json")
    assert [path.stem for path in files] == ["controller", "i0", "i1", "t0", "t1"]
    said = weft("trace", "merge", "--json", "--output", folder / "merged.json", *files).stdout
    events = json.loads((folder / "merged.json").read_text())["traceEvents"]
    return events, [json.loads(line) for line in said.splitlines()], files


def named(events, what):
    return {(row["pid"], row["tid"]): row["args"]["name"] for row in events if row["ph"] == "M" and row["name"] == what}


def slices(events):
    """(process, lane, event) of all that take time."""
    processes, lanes = named(events, "process_name"), named(events, "thread_name")
    return [(processes[row["pid"], 0], lanes[row["pid"], row["tid"]], row) for row in events if row["ph"] == "X"]


def nest(events):
    """Every two slices of a lane are apart, or one is in the other."""
    lanes = collections.defaultdict(list)
    for row in events:
        if row["ph"] == "X":
            at = round(row["ts"] * 1000)
            lanes[row["pid"], row["tid"]].append((at, -round(row["dur"] * 1000), row["name"]))
    for rows in lanes.values():
        open_ends = []
        for at, minus, name in sorted(rows):
            while open_ends and open_ends[-1] <= at:
                open_ends.pop()
            assert not open_ends or at - minus <= open_ends[-1], (name, at, -minus, open_ends)
            open_ends.append(at - minus)
    return len(lanes)


def bytes_of_plan(path):
    """{(trainer, inference rank): bytes} of a dump."""
    found = collections.Counter()
    for route in json.loads(path.read_text())["routes"]:
        found[route["trainer"], route["inference"]] += route["bytes"]
    return dict(found)


@pytest.mark.parametrize("flags, train", [
    (("--transport", "shm"), "world=2,source=gathered"), (("--transport", "tcp"), "world=2,source=gathered"),
    (("--transport", "shm", "--checksums", "--pack-threads", "3"), "world=2,source=gathered"),
    (("--transport", "tcp", "full"), "world=2,source=gathered"), (("--transport", "tcp"), "world=2,source=megatron,tp=2")],
    ids=["shm", "tcp", "threads", "full", "landed"])
def test_job__is_told_whole(tmp_path, models, flags, train):
    """Whatever way its pieces go."""
    events, said, _ = run(tmp_path, models["qwen2"], *flags, train=train)
    assert nest(events) > 10
    assert {row["clock"] for row in said} == {"reference", "same kernel"} and all(row["whole"] and not row["dropped"] for row in said)
    for row in events:
        assert row["ph"] == "M" or row.get("args", {}).keys() <= KEYS, row
    sent, ends, shown = collections.Counter(), {}, {}
    for process, lane, row in slices(events):
        role, rank = re.match(r"(\w+) ?(\d*)", process).groups()
        to = re.match(r"to inference (\d+) ", lane)
        if role == "trainer" and to and row["name"] == "write":
            key = row["args"]["version"], int(rank), int(to[1])
            sent[key] += row["args"]["bytes"]
            ends[key] = max(ends.get(key, 0), row["ts"] + row["dur"])
            assert row["args"]["tensor"].endswith(("weight", "bias")) and row["args"]["path"] in ("direct", "mapped", "replica", "landed")
        if role == "inference" and (lane, row["name"]) == ("update", "update"):
            shown[row["args"]["version"], int(rank)] = row["ts"] + row["dur"]
    plan = bytes_of_plan(tmp_path / "plan.json")
    assert dict(sent) == {(version, *pair): bytes for version in range(1, UPDATES + 1) for pair, bytes in plan.items()}
    assert shown.keys() == {(version, rank) for version in range(1, UPDATES + 1) for rank in range(2)}
    for (version, _, rank), end in ends.items():
        assert end <= shown[version, rank]
    phases = {(process.split()[0], row["name"]) for process, lane, row in slices(events) if lane in ("update", "readers", "job", "plans")}
    assert phases >= {("trainer", name) for name in ("join", "update", "accept", "write", "end")}
    assert phases >= {("inference", name) for name in ("join", "update", "write", "commit", "pause")}
    assert phases >= {("controller", name) for name in ("gathering", "exchanging", "running", "plan")}
    assert ("inference", "verify") in phases or "--checksums" not in flags


def test_clocks__of_other_hosts_are_found_by_heartbeats(tmp_path, models):
    """Two workers have another kernel, as far as weft can see; in truth it is the same clock, so what is found is to be nothing."""
    events, said, files = run(tmp_path, models["qwen2"], "--transport", "tcp", hosts=("trainer-1", "inference-0"))
    rows = {row["process"].rsplit(" on ", 1)[0]: row for row in said}
    for name in ("trainer 1", "inference 0"):
        assert rows[name]["clock"] == "heartbeats" and 0 < rows[name]["error_ns"] < 1e8
        assert abs(rows[name]["offset_ns"]) <= rows[name]["error_ns"]
    assert rows["trainer 0"]["clock"] == "same kernel"
    without = weft("trace", "merge", *[path for path in files if path.stem != "controller"], "--output", tmp_path / "less.json")
    assert "clocks of the day" in without.stdout and "time of day alone" in without.stderr


def test_process__that_is_killed_leaves_a_file_that_opens(tmp_path, models):
    with Job(tmp_path / "job", models["qwen2"], "world=1,source=gathered", "engines=1,tp=1") as job:
        trace = ("--trace", tmp_path / "%r.json")
        job.controller()
        job.workers(*trace, "--interval", "5ms", updates=100000)
        deadline = time.monotonic() + 20
        while len(job.processes["trainer-0"].updates()) < 100 and time.monotonic() < deadline:
            time.sleep(0.05)
        job.kill("trainer-0")
        job.wait(30, ["trainer-0"])
    text = (tmp_path / "t0.json").read_text()
    assert not text.rstrip().endswith("]")
    rows = json.loads(text[:text.rindex(",\n")] + "\n]")
    assert len([row for row in rows if row["name"] == "update"]) > 20
    said = weft("trace", "merge", tmp_path / "t0.json", "--json", "--output", tmp_path / "merged.json").stdout
    assert json.loads(said)["whole"] is False
    assert len(json.loads((tmp_path / "merged.json").read_text())["traceEvents"]) > 100
    (tmp_path / "torn.json").write_text(text[:-20])  # in the midst of a line
    weft("trace", "merge", tmp_path / "torn.json", "--output", tmp_path / "merged.json")


def test_off__there_is_no_thread_and_on_there_is_one(tmp_path, models):
    def names(process):
        return {path.read_text().strip() for path in pathlib.Path(f"/proc/{process.popen.pid}/task").glob("*/comm")}

    with Job(tmp_path / "job", models["qwen2"], "world=1,source=gathered", "engines=1,tp=1") as job:
        job.controller()
        job.worker("trainer", 0, "--interval", "20ms", updates=100000)
        job.worker("inference", 0, "--trace", tmp_path / "i.json", updates=100000)
        deadline = time.monotonic() + 20
        while len(job.processes["inference-0"].updates()) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert "weft-trace" in names(job.processes["inference-0"])
        assert not [name for key in ("controller", "trainer-0") for name in names(job.processes[key]) if name == "weft-trace"]


def test_merge__refuses_what_is_no_job(tmp_path, models):
    def trace(name, job):
        folder = tmp_path / name
        with Job(folder / "job", models["qwen2"], "world=1,source=gathered", "engines=1,tp=1", name=job) as running:
            running.controller(env={"WEFT_TRACE": str(folder / "%r.json")})
            running.workers("--trace", folder / "%r.json", updates=1)
            running.succeed()
        return folder

    def refused(*files):
        done = weft("trace", "merge", *files, "--output", tmp_path / "out.json", check=False)
        assert done.returncode == 1 and "WEFT-E110" in done.stderr and not (tmp_path / "out.json").exists()
        return done.stderr

    one, other = trace("one", "red"), trace("other", "blue")
    said = refused(one / "t0.json", other / "i0.json")
    assert "'red'" in said and "'blue'" in said and "t0.json" in said
    assert "same process" in refused(one / "t0.json", one / "t0.json")
    (tmp_path / "odd.json").write_text('[\n{"ph":"X"},\n{"what": 1}\n')
    assert "odd.json: line 2" in refused(one / "t0.json", tmp_path / "odd.json")
    lines = (one / "t0.json").read_text().split("\n")
    (tmp_path / "bad.json").write_text("\n".join([*lines[:5], "{broken,", *lines[5:]]))
    assert "bad.json: line 6" in refused(tmp_path / "bad.json")
    for line, key, value in ((1, "wall_ns", '"9223372036854775807"'), (1, "clock_ns", '"-1"'), (8, "ts", "-1"), (8, "ts", "1e300")):
        changed = re.sub(rf'"{key}":[^,}}]+', f'"{key}":{value}', lines[line])
        assert changed != lines[line]
        (tmp_path / "late.json").write_text("\n".join([*lines[:line], changed, *lines[line + 1:]]))
        said = refused(tmp_path / "late.json")
        assert f"late.json: line {line + 1}: its " in said and key in said
    weft("trace", "merge", *sorted(one.glob("*.json")), "--output", tmp_path / "merged.json")
    assert "line 1" in refused(tmp_path / "merged.json")
    assert weft("trace", "merge", one / "t0.json", check=False).returncode == 2


def test_predicted__stands_beside_what_was(tmp_path, models):
    _, _, files = run(tmp_path, models["qwen2"])
    weft("route", "simulate", "--model", models["qwen2"], "--train", "world=2,source=gathered", "--infer", "engines=2,tp=1",
         "--trace", tmp_path / "simulated.json")
    simulated = [row for row in json.loads((tmp_path / "simulated.json").read_text())["traceEvents"] if row["ph"] == "X"]

    def merged(*files):
        """{(process, lane): its slices} of what was predicted, and all of them"""
        weft("trace", "merge", *files, "--predicted", tmp_path / "simulated.json", "--output", tmp_path / "both.json")
        events, found = json.loads((tmp_path / "both.json").read_text())["traceEvents"], collections.defaultdict(list)
        nest(events)
        for process, lane, row in slices(events):
            if "predicted: " in process + lane:
                found[process.split(" on ")[0], lane].append(row)
        assert collections.Counter(round(row["dur"] * 1e3) for rows in found.values() for row in rows) == \
            collections.Counter(round(row["dur"] * 1e3) for row in simulated)
        return found, slices(events)

    predicted, everything = merged(*files)
    lanes = {("trainer 0", "gather"), ("trainer 0", "to inference 0"), ("trainer 1", "gather"), ("trainer 1", "to inference 1")}
    assert predicted.keys() == {(process, f"predicted: {lane}") for process, lane in lanes}
    first = min(row["ts"] for _, lane, row in everything if lane.startswith("to inference") and row["name"] == "write")
    assert min(row["ts"] for rows in predicted.values() for row in rows) == pytest.approx(first, abs=1e-3)
    # of a rank whose file is missing
    predicted, _ = merged(*[path for path in files if path.stem != "t1"])
    assert {process for process, _ in predicted} == {"trainer 0", "predicted: trainer 1"}
    done = weft("trace", "merge", *files, "--predicted", files[0], "--output", tmp_path / "both.json", check=False)
    assert done.returncode == 1 and "no schedule of" in done.stderr


def test_merge__keeps_the_numbers_of_processes_unless_two_or_a_lane_have_the_same(tmp_path, models):
    events, _, files = run(tmp_path, models["qwen2"])
    own = [json.loads(path.read_text().splitlines()[1].rstrip(","))["pid"] for path in files]
    assert {pid for pid in own if pid >= 1000} <= {row["pid"] for row in events}  # whatever lanes there are
    # whose update is the lane 200: Perfetto would take that for the main thread
    files[-1].write_text(re.sub(r'"pid":\d+', '"pid":200', files[-1].read_text()))
    weft("trace", "merge", *files, "--output", tmp_path / "merged.json")
    events = json.loads((tmp_path / "merged.json").read_text())["traceEvents"]
    number = next(pid for (pid, _), name in named(events, "process_name").items() if name.startswith("trainer 1"))
    assert number == 4500002 and {row["tid"] for row in events if row["pid"] == number} >= {100, 200}
    # as in containers, whose first process is always the same
    same = re.sub(r'"pid":\d+', f'"pid":{own[0]}', files[-1].read_text())
    files[-1].write_text(same)
    weft("trace", "merge", *files, "--output", tmp_path / "merged.json")
    events = json.loads((tmp_path / "merged.json").read_text())["traceEvents"]
    names = [name.split(" on ")[0] for _, name in sorted(named(events, "process_name").items())]
    assert names == ["controller", "trainer 0", "trainer 1", "inference 0", "inference 1"]
    assert {row["pid"] for row in events} == {1, 2, 3, 4, 5}


def test_trace__that_cannot_be_written_is_said_before_anybody_waits(tmp_path, models):
    with Job(tmp_path / "job", models["qwen2"], "world=1,source=gathered", "engines=1,tp=1") as job:
        job.controller()
        process = job.worker("trainer", 0, "--trace", tmp_path / "none" / "t.json")
        assert job.wait(20, ["trainer-0"]) == {"trainer-0": 1}
        assert "WEFT-E111" in process.stderr and "--trace" in process.stderr and "none/t.json" in process.stderr
