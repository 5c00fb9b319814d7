# SPDX-License-Identifier: Apache-2.0
"""`weft route export`: every form says what the dump says, from a file or from a job."""
import csv
import io
import json
import shutil
import subprocess

import job as jobs
import pytest

JOB = ("--model", "Qwen2.5-0.5B", "--train", "world=4,pp=2", "--infer", "engines=2,tp=2")


@pytest.fixture(scope="module")
def dump(tmp_path_factory):
    path = tmp_path_factory.mktemp("export") / "plan.json"
    jobs.weft("route", "plan", *JOB, "--output", path)
    return path


def export(*arguments):
    return jobs.weft("route", "export", *arguments).stdout


def lines_of(dump):
    """What one line a route has to say, from the dump alone."""
    dump = json.loads(dump.read_text())
    for route in dump["routes"]:
        rows = []
        for low, high in sorted(piece["src"][0] for piece in route["pieces"]):
            if rows and low <= rows[-1][1]:
                rows[-1][1] = max(rows[-1][1], high)
            else:
                rows.append([low, high])
        columns = []
        for piece in route["pieces"]:
            if piece["src"][1:] and piece["src"][1:] not in columns:
                columns.append(piece["src"][1:])
        rank = dump["inference"][route["inference"]]
        yield {"tensor": route["tensor"], "trainer": route["trainer"],
               "stage": dump["trainers"][route["trainer"]]["stage"], "inference": route["inference"],
               "engine": rank["engine"], "engine_rank": rank["engine_rank"], "bytes": route["bytes"],
               "how": route["how"], "pieces": len(route["pieces"]), "rows": rows,
               "make": " + ".join(dict.fromkeys(piece.get("make", "copy") for piece in route["pieces"])),
               "columns": columns}


@pytest.mark.parametrize("name", ["json", "csv", "jsonl", "dot", "html"])
def test_export__of_a_file_and_of_its_job_are_the_same(dump, tmp_path, name):
    text = export(dump, "--format", name)
    assert text == export(*JOB, "--format", name)
    export(dump, "--format", name, "--output", tmp_path / "out")
    assert (tmp_path / "out").read_text() == text


def test_json__is_the_canonical_dump_from_any_layout(dump, tmp_path):
    other = tmp_path / "pretty.json"
    other.write_text(json.dumps(json.loads(dump.read_text()), indent=4))
    assert export(other) == export(dump, "--format", "json") == dump.read_text()


# of the second, trainers hold columns of matrices: two routes of the same rows
@pytest.mark.parametrize("train", ["world=4,pp=2", "world=4,source=dtensor,mesh=2/2"])
def test_csv_and_jsonl__have_one_line_a_route(tmp_path, train):
    dump = tmp_path / "plan.json"
    jobs.weft("route", "plan", "--model", "Qwen2.5-0.5B", "--train", train, "--infer", "engines=2,tp=1", "--output", dump)
    expected = list(lines_of(dump))
    assert [json.loads(line) for line in export(dump, "--format", "jsonl").splitlines()] == expected
    places = [(line["tensor"], line["inference"], str(line["rows"])) for line in expected]
    assert (len(set(places)) < len(places)) == ("mesh" in train)
    rows = list(csv.DictReader(io.StringIO(export(dump, "--format", "csv"))))
    assert list(rows[0]) == list(expected[0])
    for row, want in zip(rows, expected, strict=True):
        want["rows"] = " ".join(f"{low}:{high}" for low, high in want["rows"])
        want["columns"] = " ".join("x".join(f"{low}:{high}" for low, high in box) for box in want["columns"])
        assert row == {key: str(value) for key, value in want.items()}


@pytest.mark.skipif(not shutil.which("dot"), reason="Graphviz is not installed")
@pytest.mark.parametrize("train,infer,ends", [
    ("world=4,pp=2", "engines=2,tp=2", ("trainer 3", "inference 3")),
    ("world=64,pp=4", "engines=16,tp=2", ("stage 3", "engine 15")),
    ("world=64,pp=4", "engines=16,tp=2", ("host 7", "host 8", "host 11")),
])
def test_dot__is_drawn_by_graphviz_and_grouped_when_large(tmp_path, train, infer, ends):
    job = ("--model", "Qwen2.5-0.5B", "--train", train, "--infer", infer,
           *(["--topology", "per_host=8,nics=8,gbps=400"] if ends[0] == "host 7" else []))
    text = export(*job, "--format", "dot")
    done = subprocess.run(["dot", "-Tsvg"], input=text, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    for end in ends:
        assert f">{end}<" in done.stdout
    edges = [line for line in text.splitlines() if "->" in line]
    dump = json.loads(export(*job))
    assert sum(int(line.split('tooltip="')[1].split()[0]) for line in edges) == dump["summary"]["bytes_total"]
    assert done.stdout.count('class="edge"') == len(edges)
    assert "penwidth=8.0" in text


def test_errors__say_what_to_name(dump, tmp_path):
    for arguments, code, word in (
            ((), 2, "name a routing dump, or a job"),
            ((dump, *JOB), 2, "not both"),
            ((dump, "--format", "xls"), 2, "xls is not known; these are: json, csv, jsonl, dot"),
            ((dump, "--output", tmp_path / "no" / "folder"), 1, "no/folder"),
            ((dump, "--format", "csv", "--output", "/dev/full"), 1, "No space left"),
            (("--model", "Qwen2.5-0.5B"), 2, "--train")):
        done = jobs.weft("route", "export", *arguments, check=False)
        assert (done.returncode, word in done.stderr) == (code, True), done.stderr
    short = tmp_path / "short.json"
    short.write_text(jobs.weft("route", "plan", *JOB, "--json", "--summary").stdout)
    done = jobs.weft("route", "export", short, check=False)
    assert done.returncode == 1 and "--summary" in done.stderr


def test_topology__is_in_the_dump_of_a_plan_with_one(tmp_path):
    file, sorted_file = tmp_path / "plan.json", tmp_path / "sorted.json"
    job = (*JOB, "--topology", "per_host=2,nics=2,gbps=400")
    jobs.weft("route", "plan", *job, "--output", file)
    dump = json.loads(file.read_text())
    assert dump["topology"]["schema"] == "weft.topology/1" and len(dump["topology"]["hosts"]) == 4
    certificate = dump["summary"]["certificate"]
    slowest = dump["summary"]["makespan_bytes"] / 50e9
    assert certificate["makespan_seconds"] == pytest.approx(slowest)
    assert list(dump).index("topology") == list(dump).index("infer") + 1
    jobs.weft("route", "verify", file)
    sorted_file.write_text(json.dumps(dump, sort_keys=True, indent=1))
    assert export(*job) == export(file) == export(sorted_file) == file.read_text()
    del dump["topology"]
    sorted_file.write_text(json.dumps(dump))
    done = jobs.weft("route", "verify", sorted_file, check=False)
    assert done.returncode == 1 and 'a "certificate" without a "topology"' in done.stderr
    dump = json.loads(file.read_text())
    dump["topology"]["hosts"][0]["nics"][0]["bytes_per_second"] //= 2
    sorted_file.write_text(json.dumps(dump))
    done = jobs.weft("route", "verify", sorted_file, check=False)
    assert done.returncode == 1 and "summary.certificate.bound_seconds" in done.stderr
