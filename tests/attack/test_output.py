# SPDX-License-Identifier: Apache-2.0
"""What is said: nobody has to read it, and what strangers and files say does not get into it raw."""
import contextlib
import csv
import fcntl
import io
import json
import os
import re
import shutil
import subprocess
import time

import pytest

import job as jobs
import synthetic_dump
from stranger import Wire
from test_keys import recorded_hello

TRAIN, INFER = "world=2,source=gathered", "engines=1,tp=2"
SET_SIZE = 1031  # F_SETPIPE_SZ


class Unread(jobs.Process):
    """A process whose stderr is a pipe of one page that nobody reads until it is asked for."""

    def __init__(self, name, command, folder, env=None):
        self.name, self.log, self.said = name, folder / f"{name}.out", None
        self.end, end = os.pipe()
        fcntl.fcntl(end, SET_SIZE, 4096)
        with open(self.log, "w") as out:
            self.popen = subprocess.Popen([str(part) for part in command], stdout=out, stderr=end,
                                          stdin=subprocess.DEVNULL, env={**os.environ, **(env or {})})
        os.close(end)

    @property
    def stderr(self):
        """What is in the pipe, once the process has ended."""
        if self.said is None and self.code is not None:
            with os.fdopen(self.end, errors="replace") as pipe:
                self.said = pipe.read()
        return self.said or ""


@contextlib.contextmanager
def unread(name):
    """Inside, jobs start the processes of this name so."""
    plain = jobs.Process
    jobs.Process = lambda this, *rest: (Unread if this == name else plain)(this, *rest)
    try:
        yield
    finally:
        jobs.Process = plain


DEBUG = {"WEFT_LOG": "debug"}


@pytest.mark.parametrize("name", ["controller", "trainer-0", "inference-1"])
def test_unread_stderr__does_not_stop_the_job(tmp_path, model, name):
    with unread(name), jobs.Job(tmp_path, model, TRAIN, INFER) as job:
        flags = ("--heartbeat", "20ms", "--lost-after", "2s")
        job.controller(*flags, env=DEBUG if name == "controller" else None)
        job.workers("--interval", "20ms", updates=100, env=DEBUG if name != "controller" else None)
        if name == "controller":
            with contextlib.suppress(OSError), Wire(job.address) as stranger:
                for _ in range(300):
                    stranger.send(b"\xc1")
        began = time.monotonic()
        codes = job.wait(40)
        assert set(codes.values()) == {0}, codes
        assert time.monotonic() - began < 15
        assert len(job.processes[name].stderr) > 1000  # and it had filled


def test_unread_stderr__does_not_keep_a_failing_process_from_its_end(tmp_path, model):
    with unread("controller"), jobs.Job(tmp_path, model, TRAIN, INFER) as job:
        job.controller("--join-timeout", "2s", "--heartbeat", "1ms", "--lost-after", "2s", env=DEBUG)
        with unread("trainer-0"):
            job.worker("trainer", 0, env=DEBUG)
        codes = job.wait(12)
        assert codes == {"controller": 75, "trainer-0": 75}
        assert len(job.processes["controller"].stderr) > 1000


def test_stderr_read_late__has_whole_lines_and_says_how_many_are_missing(tmp_path, model):
    """More than the queue holds, while nobody reads; then somebody does."""
    with unread("controller"), jobs.Job(tmp_path, model, TRAIN, INFER) as job:
        controller = job.controller("--heartbeat", "1ms", "--lost-after", "5s", env={**DEBUG, "WEFT_LOG_FORMAT": "json"})
        job.workers("--interval", "10ms", updates=100000)
        time.sleep(4)
        said, deadline = b"", time.monotonic() + 10
        while b"log lines were dropped" not in said and time.monotonic() < deadline:
            said += os.read(controller.end, 65536)
        rows = [json.loads(line) for line in said.decode().split("\n")[:-1]]
        dropped = [re.match(r"(\d+) log lines were dropped: nobody read stderr", row["message"]) for row in rows]
        assert sum(int(match.group(1)) for match in dropped if match) > 0
        assert len(said) > 1 << 20


def test_host_name__of_a_stranger_forges_no_line_and_moves_no_cursor(tmp_path, model):
    for env in ({}, {"WEFT_LOG_FORMAT": "json"}):
        with jobs.Job(tmp_path, model, TRAIN, INFER) as job, recorded_hello(tmp_path, model) as hello:
            host = os.uname().nodename.encode()
            evil = b"\x1b[2J\n2026"[:len(host)].ljust(len(host), b"\n")
            assert host in hello
            controller = job.controller(env=env)
            with Wire(job.address) as stranger:
                stranger.send(hello.replace(host, evil))
                deadline = time.monotonic() + 5
                while "joins" not in controller.stderr and time.monotonic() < deadline:
                    time.sleep(0.01)
            lines = controller.stderr.split("\n")[:-1]
            assert [line for line in lines if "joins" in line and "\\x1b" in line], lines
            assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", controller.stderr)
            assert all(json.loads(line)["time"] if env else re.match(r"\d{4}-.*Z [EWID] ", line) for line in lines)


def test_strangers_words__are_a_hundred_lines_in_ten_seconds_however_many_they_are(tmp_path, model):
    """Of another job, and no words at all: some are told as they come, the others counted."""
    with jobs.Job(tmp_path, model, TRAIN, INFER) as job, recorded_hello(tmp_path, model) as hello:
        began, controller = time.monotonic(), job.controller()
        other, sent = hello.replace(b"test", b"tset", 1), 0
        assert other != hello
        for _ in range(24):  # 32 a second are let in
            with contextlib.suppress(OSError), Wire(job.address) as stranger:
                for frame in 8 * (other, b"\xc1junk", b"GET / HTTP/1.1"):
                    stranger.send(frame)
                    sent += 1
                stranger.read()
        job.workers()
        job.succeed()
        words = [line for line in controller.stderr.splitlines() if "stranger refused" in line or "'tset'" in line]
        assert sent > 400 and 1 <= len(words) <= 100 * (1 + (time.monotonic() - began) // 10), f"{len(words)} of {sent}"


NAMES = [*synthetic_dump.HOSTILE, "\x1b[2J\x1b]0;owned\x07", "two\nlines", "\x9bcsi", "\x7fdel", "=1+1", "@SUM(A1)", "-1", "+1"]
NOT_PLAIN = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


@pytest.fixture(scope="module")
def dumps(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dumps")
    for turn in (0, 1):
        synthetic_dump.write(folder / f"{turn}.json", 2, 2, len(NAMES), names=NAMES, turn=turn,
                             labels=("model\x1b[1m", "world=2\x1b]0;t\x07", "engines=2\nverdict: fine"))
    return [folder / "0.json", folder / "1.json"]


def in_lines(text):
    """What people see: whole lines, nothing that moves the cursor."""
    assert not NOT_PLAIN.search(text), [line for line in text.split("\n") if NOT_PLAIN.search(line)]
    return text.split("\n")


@pytest.mark.parametrize("verb", [["show"], ["show", "--by", "tensor", "--top", "0"], ["show", "--by", "trainer"],
                                  ["export", "--format", "csv"], ["export", "--format", "dot"]])
def test_route__prints_no_control_character_out_of_a_dump(dumps, verb):
    done = jobs.weft("route", *verb, dumps[0])
    if "csv" in verb:  # a cell may have line breaks, between quotes
        assert not NOT_PLAIN.search(done.stdout.replace("\t", ""))
        assert [row[0] for row in csv.reader(io.StringIO(done.stdout)) if row[0][0] in "=+-@"] == []
        assert "\n'=1+1,0," in done.stdout
        return
    lines = in_lines(re.sub("\n\t+", "\n", done.stdout))
    assert not any(line.startswith(("lines", "verdict:", "line\u2029")) for line in lines)
    if "tensor" in verb:
        assert any("\\x1b[2J\\x1b]0;owned\\x07" in line for line in lines)
        assert any("two\\x0alines" in line for line in lines)
        assert any("\u65e5\u672c\u8a9e" in line for line in lines)


def test_route_diff__prints_no_control_character_out_of_a_dump(dumps):
    done = jobs.weft("route", "diff", "--top", "0", *dumps, check=False)
    assert done.returncode == 1
    assert any("\\x1b[2J" in line for line in in_lines(done.stdout))


@pytest.mark.parametrize("verb", [["show", "--json", "--by", "tensor", "--top", "0"], ["export", "--format", "jsonl"],
                                  ["export", "--format", "json"]])
def test_route_json__is_plain_and_has_the_names_as_they_are(dumps, verb):
    text = jobs.weft("route", *verb, dumps[0]).stdout
    in_lines(text)
    rows = json.loads(text)["routes"] if verb[-1] == "json" else [json.loads(line) for line in text.splitlines()]
    assert {row["tensor"] for row in rows} == set(NAMES)


@pytest.mark.skipif(not shutil.which("dot"), reason="Graphviz is not installed")
def test_dot__labels_end_no_earlier_than_they_should(dumps, tmp_path):
    dump = json.loads(dumps[0].read_text())
    dump["model"] = 'a"]; b [label=<<b>x</b>>] \\'
    path = tmp_path / "dump.json"
    path.write_text(json.dumps(dump))
    text = jobs.weft("route", "export", "--format", "dot", path).stdout
    done = subprocess.run(["dot", "-Tsvg"], input=text, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert 'a&quot;]; b [label=&lt;&lt;b&gt;x&lt;/b&gt;&gt;] \\' in done.stdout
    assert done.stdout.count('class="node"') == 4


def test_html__has_foreign_text_as_text(dumps):
    text = jobs.weft("route", "export", "--format", "html", dumps[0]).stdout
    own = jobs.weft("route", "export", "--format", "html", *JOB).stdout
    for tag in ("<script", "</script", "<img", "<!--", "<b>"):
        assert text.count(tag) == own.count(tag), tag


JOB = ("--model", "Qwen2.5-0.5B", "--train", "world=2", "--infer", "engines=1,tp=2")


def test_checkpoint_show__prints_no_control_character_out_of_a_file(tmp_path):
    def make(names):
        head = json.dumps({name: {"dtype": "U8", "shape": [1], "data_offsets": [i, i + 1]}
                           for i, name in enumerate(names)}).encode()
        (tmp_path / "model.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + bytes(len(names)))

    make([name for name in NAMES if not re.search("[\x00-\x1f\x7f]", name)])
    lines = in_lines(jobs.weft("checkpoint", "show", tmp_path).stdout)
    assert any("\\u009bcsi" in line for line in lines), lines
    for name in ("two\nlines", "\x1b[2J", "\x7fdel"):
        make([name])
        done = jobs.weft("checkpoint", "show", tmp_path, check=False)
        assert done.returncode and len(in_lines(done.stderr)) == 2
    folder = tmp_path / "no\x1b[2Jsuch\nfolder"
    done = jobs.weft("checkpoint", "show", folder, check=False)
    assert done.returncode and len(in_lines(done.stderr)) == 2
