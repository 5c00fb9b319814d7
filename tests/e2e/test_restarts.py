# SPDX-License-Identifier: Apache-2.0
"""Deaths that the job survives, and whom the messages name for those that it does not."""
import time

import job as jobs


def wait_for(condition, timeout=30):
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "what was waited for did not happen"
        time.sleep(0.02)


def test_restarts__the_job_gathers_again_under_the_same_controller(tmp_path, models):
    """A trainer is killed, every worker ends with its name, all are started again and finish."""
    with jobs.Job(tmp_path, models["qwen2"], "world=2,source=gathered", "engines=1,tp=2") as job:
        controller = job.controller("--restarts", "1", "--lost-after", "3s")
        job.workers("--interval", "100ms", updates=1000)
        first = list(job.processes)[1:]
        wait_for(lambda: len(job.processes["inference-1"].updates()) >= 2)
        job.kill("trainer-1")
        codes = job.wait(20, first)
        assert codes.pop("trainer-1") == -9
        assert set(codes.values()) == {75}, job.said()
        for name in codes:
            assert "trainer 1" in job.processes[name].stderr.splitlines()[-1], job.said([name])
        assert controller.code is None, controller.stderr
        last = max(update["version"] for update in job.processes["inference-1"].updates())
        begin = last + 10
        for role, count in (("trainer", 2), ("inference", 2)):
            for rank in range(count):
                job.worker(role, rank, "--first-version", begin, "--verify", updates=3,
                           name=f"{role}-{rank}-again")
        again = ["controller"] + [name for name in job.processes if name.endswith("-again")]
        codes = job.wait(60, again)
        assert set(codes.values()) == {0}, job.said(again)
        assert "gathering again as epoch 2, 0 restarts left" in controller.stderr
        want = jobs.expected(models["qwen2"], job.infer)
        for version in range(begin, begin + 3):
            for rank in range(2):
                assert job.digests(rank, f"inference-{rank}-again").get(version) == want.digests(version)[rank]


def test_restarts__one_after_the_last_ends_the_controller(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen2"], "world=1,source=gathered", "engines=1,tp=1") as job:
        controller = job.controller("--restarts", "1", "--lost-after", "2s")
        for attempt in ("a", "b"):
            names = [f"{role}-{attempt}" for role in ("trainer", "inference")]
            for name in names:
                job.worker(name.split("-")[0], 0, "--interval", "100ms", updates=1000, name=name)
            wait_for(lambda: job.processes[names[1]].updates())
            job.kill(names[0])
            job.wait(20, names)
        job.wait(20)
        assert controller.code == 75
        assert "trainer 0" in controller.stderr.splitlines()[-1], controller.stderr


def test_dead_trainer__is_who_every_survivor_names_first(tmp_path, models):
    """Seen at its memory by some and by silence by none: still one message, about the one that died."""
    with jobs.Job(tmp_path, models["qwen2"], "world=3,source=gathered", "engines=2,tp=1") as job:
        job.controller()
        job.workers("--interval", "50ms", updates=100000)
        wait_for(lambda: len(job.processes["inference-0"].updates()) >= 2)
        job.kill("trainer-2")
        codes = job.wait(25)
        assert codes.pop("trainer-2") == -9
        for name in codes:
            line = [line for line in job.processes[name].stderr.splitlines() if "WEFT-E" in line][-1]
            message = line.split("trainer 2", 1)
            assert len(message) == 2, line
            assert "trainer 0" not in message[0] and "trainer 1" not in message[0] \
                and "inference" not in message[0], line
