# SPDX-License-Identifier: Apache-2.0
"""What every verb says of a path that is not what it should be, and of an output that takes nothing: one
line, with the path, and what to change. Each test asks all verbs at once, for a process waits more than it works."""
import concurrent.futures
import os
import re
import signal
import subprocess

import pytest

import job as jobs

JOB = "--train world=2 --infer tp=2"
# the path that a verb reads stands as PATH, one that it writes as OUT
READS = ["model tensors PATH", "model layout PATH --infer tp=2", "model layout --from PATH", "model check --model PATH --infer tp=2 --live LIST",
         "model check --model MODEL --infer tp=2 --live PATH", f"model plan-memory --model PATH {JOB}", "checkpoint make PATH NEW",
         "checkpoint show PATH", "checkpoint verify PATH", "route show PATH", "route verify PATH", "route explain PATH --tensor a --inference 0",
         "route diff PATH PATH", "route export PATH", "route simulate PATH", f"route plan --model PATH {JOB}", f"route compare --model PATH {JOB}",
         f"route order --model PATH {JOB}", f"route plan --model MODEL {JOB} --topology PATH", f"route topology {JOB} --topology PATH",
         "trace merge PATH --output NEW", "trace merge PATH --format otlp --output NEW", "key show PATH", f"bench update --model PATH {JOB}", "doctor --serve --key PATH", "bench write --local --key PATH"]
WRITES = [f"route plan --model MODEL {JOB} --output OUT", "route export DUMP --output OUT", f"route simulate --model MODEL {JOB} --trace OUT",
          "key make OUT", "model layout MODEL --infer tp=2 --output OUT", "checkpoint make MODEL OUT", "trace merge TRACE --output OUT",
          "trace merge TRACE --format otlp --output OUT"]
PRINTS = ["--help", "--version", "model --help", "model list", "model tensors MODEL", "model layout MODEL --infer tp=2",
          f"model plan-memory --model MODEL {JOB}", "checkpoint show MODEL", "checkpoint verify MODEL", "route show DUMP",
          "route show DUMP --by tensor", "route show DUMP --json", "route export DUMP", "route diff DUMP DUMP", f"route plan --model MODEL {JOB}",
          f"route compare --model MODEL {JOB}", f"route topology {JOB}", f"route order --model MODEL {JOB}",
          f"route explain --model MODEL {JOB} --tensor model.norm.weight --inference 0", f"route simulate --model MODEL {JOB}",
          "route plan --help", "route plan --usage", "doctor --transport shm"]

TRACE = """[
{"ph":"M","name":"weft","pid":1,"tid":0,"args":{"schema":"weft.trace/1","job":"a","role":"trainer","rank":0,"wall_ns":"9","clock_ns":"5"}},
{"ph":"X","name":"update","pid":1,"tid":200,"ts":1.0,"dur":2.0,"args":{"version":1}}
]
"""


def all_at_once(ask, *questions):
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        wrong = [answer for answer in pool.map(ask, *questions) if answer]
    assert not wrong, "\n".join(map(str, wrong))


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wrong")
    jobs.make_model(folder, "qwen2")
    (folder / "empty").mkdir()
    (folder / "nothing").write_bytes(b"")
    (folder / "words").write_text("these are words, and neither JSON nor a tensor\n")
    (folder / "binary").write_bytes(bytes(range(256)) * 64)
    (folder / "LIST").write_text("{}\n")
    (folder / "TRACE").write_text(TRACE)
    (folder / "closed").write_text("{}")
    (folder / "closed").chmod(0)
    jobs.weft("route", "plan", "--model", folder / "qwen2", *JOB.split(), "--output", folder / "DUMP")
    return folder


def words_of(here, command, path=None):
    places = {"PATH": path, "OUT": path, "MODEL": here / "qwen2", "LIST": here / "LIST", "NEW": here / "new", "DUMP": here / "DUMP",
              "TRACE": here / "TRACE"}
    return [jobs.WEFT, *(str(places.get(word, word)) for word in command.split())]


def run(words, **more):
    return subprocess.run(words, stderr=subprocess.PIPE, text=True, timeout=60, stdin=subprocess.DEVNULL, **{"stdout": subprocess.PIPE, **more})


def unclear(done, path, also=""):
    """What is wrong with an answer: it is one line that names the path and says more than that."""
    lines = [line for line in done.stderr.splitlines() if not re.match(r"Try `weft|information\.", line)]
    good = done.returncode in (1, 2, 78) and len(lines) == 1 and str(path) in lines[0] and len(lines[0]) > len(str(path)) + 30
    return None if good and also in done.stderr else (done.args[1:], done.returncode, done.stderr)


def test_path__that_is_not_what_is_read_is_named_in_one_line(here):
    cases = [(command, path) for command in READS for path in ("absent", "empty", "nothing", "words", "binary", "/dev/null")]

    def ask(case):
        path = here / case[1]  # an absolute one stays
        return unclear(run(words_of(here, case[0], path)), path)

    all_at_once(ask, cases)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be somebody else")
def test_path__that_may_not_be_read_is_named_with_why(here):
    for folder in (here, *list(here.parents)[:-2]):  # pytest's folders are root's
        folder.chmod(folder.stat().st_mode | 0o055)
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]
    path = here / "closed"
    all_at_once(lambda command: unclear(run(nobody + words_of(here, command, path)), path, "Permission denied"), READS)


def test_output__that_cannot_be_written_is_named_and_nothing_is_left(here):
    cases = [(command, path) for command in WRITES for path in ("absent/new", "words/new", "/dev/full/new", "/proc/new")
             if not (path == "absent/new" and "checkpoint" in command)]  # that makes its folders

    def ask(case):
        path = here / case[1]
        return unclear(run(words_of(here, case[0], path)), str(path).removesuffix("new"))

    all_at_once(ask, cases)
    assert not [left for left in os.listdir(here) if "new" in left or left == "absent"]


def test_output__that_is_full_is_a_failure_and_one_that_goes_away_is_quiet(here):
    def full(command):
        with open("/dev/full", "w") as stdout:
            done = run(words_of(here, command), stdout=stdout)
        good = done.returncode in (1, 2) and "No space left" in done.stderr and len(done.stderr.splitlines()) == 1
        return None if good else (done.args[1:], done.returncode, done.stderr)

    def gone(command):
        ours, theirs = os.pipe()
        os.close(ours)  # as `| head -0`
        done = run(["env", "--default-signal=PIPE", *words_of(here, command)], stdout=theirs)
        os.close(theirs)
        good = done.returncode in (-signal.SIGPIPE, 128 + signal.SIGPIPE) and not done.stderr
        return None if good else (done.args[1:], done.returncode, done.stderr)

    all_at_once(full, PRINTS)
    all_at_once(gone, PRINTS)


def test_help__of_every_verb_fits_and_a_flag_that_is_none_is_named():
    verbs = [tuple(line.split()[:2]) for line in jobs.weft("--help").stdout.splitlines() if re.match(r"  \w+ ", line)]
    assert len(verbs) > 20

    def ask(verb):
        words = [jobs.WEFT, *(word for word in verb if word != "what")]  # doctor has no verb
        said = run([*words, "--help"])
        wrong = run([*words, "--no-such-flag"])
        good = (said.returncode == 0 and max(map(len, said.stdout.splitlines())) <= 80 and "-q, --quiet" in said.stdout and not said.stderr
                and wrong.returncode == 2 and "unrecognized option '--no-such-flag'" in wrong.stderr and not wrong.stdout)
        return None if good else (verb, said, wrong)

    all_at_once(ask, verbs)
