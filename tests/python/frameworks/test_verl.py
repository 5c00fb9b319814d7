# SPDX-License-Identifier: Apache-2.0
"""weft.verl in the order in which verl's manager calls an engine: with a double, and with the real package where it is."""
from __future__ import annotations

import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import time

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "stream")]

pytest.importorskip("torch")
import stream_ranks as ranks  # noqa: E402
from engines import Engine, Failed, of_all, right  # noqa: E402

DOUBLE = HERE / "doubles/verl"
_spec = importlib.util.find_spec("verl")
_real = _spec if _spec is not None and _spec.origin else None  # a folder of that name is none
needs_verl = pytest.mark.skipif(_real is None, reason="verl is not installed: pip install verl (its needs, for these tests: "
                                                      "examples/verl/README.md)")


def made(backend_module="weft.verl", **arguments):
    """What a worker of verl does with its configuration."""
    import importlib
    importlib.import_module(backend_module)
    from verl.checkpoint_engine.base import CheckpointEngineRegistry
    return CheckpointEngineRegistry.new("weft", **arguments)


class Manager:
    """Two actors, two rollout workers, and the manager's order."""

    def __init__(self, paths, actors=2, rollouts=2, **options):
        options = {"bucket_size": ranks.BUCKET, "host": "127.0.0.1", "timeout_s": 20.0, **options}
        self.engine = lambda **more: Engine(paths, "test_verl:made", **options, **more)
        self.actors = [self.engine(is_master=rank == 0) for rank in range(actors)]
        self.rollouts = [self.engine() for _ in range(rollouts)]

    @property
    def workers(self):
        return self.actors + self.rollouts

    def build_process_group(self):
        metadata = right(of_all(self.workers, "prepare"))
        actors, rollouts = self.actors[0].call("build_topology", len(self.actors), len(self.rollouts), metadata)
        assert all(len(values) == len(self.actors) for values in actors.values())
        assert all(len(values) == len(self.rollouts) for values in rollouts.values())
        for kwargs, engines in ((actors, self.actors), (rollouts, self.rollouts)):
            for rank, engine in enumerate(engines):
                engine.begin("init_process_group", **{name: values[rank] for name, values in kwargs.items()})
        right([engine.end() for engine in self.workers])
        return actors

    def transfer(self, step, **breaks):
        for rank, engine in enumerate(self.actors):
            engine.begin("send", step, **(breaks if rank == 1 else {}))
        for engine in self.rollouts:
            engine.begin("receive", step)
        return [engine.end() for engine in self.workers]

    def update(self, step):
        """Metrics of the actors, after rollouts were seen to have got the step's bytes."""
        self.build_process_group()
        results = right(self.transfer(step))
        for found in results[len(self.actors):]:
            assert found == ranks.marks(step)
        right(of_all(self.workers, "finalize"))
        return results[:len(self.actors)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for engine in self.workers:
            engine.close()


PACKAGES = [pytest.param([DOUBLE], id="double"), pytest.param([], id="real", marks=needs_verl)]


@pytest.mark.parametrize("paths", PACKAGES)
def test_verl__moves_steps_from_all_actors_to_all_rollouts_with_equal_bytes_in_one_job(paths):
    with Manager(paths) as manager:
        for step in (1, 2, 7):
            metrics = manager.update(step)
        jobs = manager.build_process_group()["offer"]
        assert jobs == [None, None], "the same workers went on in the same job"
        assert metrics[0]["checkpoint_engine/payload_mbytes"] == metrics[1]["checkpoint_engine/payload_mbytes"] > 0
        lines = [right(of_all(manager.actors, "log"))[1], right(of_all(manager.rollouts, "log"))[0]]
        assert re.search(r"Rank trainer 1 send_weights done, global_steps: 7, trainers: 2, rollouts: 2, tensors: \d+ in \d+ "
                         r"buckets, total bytes: \d+, time cost: [\d.]+s, bandwidth: [\d.]+ GB/s, moved here: \d+ bytes",
                         lines[0][-1])
        assert "Rank receiver 0 receive_weights done, global_steps: 7" in lines[1][-1]
        moved = [int(re.search(r"moved here: (\d+)", one[-1])[1]) for one in lines]
        assert moved[0] == moved[1], "each of two actors sends half, to both of two rollouts"


def test_verl__begins_a_new_job_when_rollouts_come_and_go():
    with Manager([DOUBLE], rollouts=1) as manager:
        manager.update(1)
        manager.rollouts.append(manager.engine())
        manager.update(2)
        gone = manager.rollouts.pop(0)  # it lives, and is told nothing
        manager.update(3)
        gone.close()


def test_verl__with_rebuild_group_leaves_at_finalize_and_comes_back():
    with Manager([DOUBLE], rebuild_group=True, rollouts=1) as manager:
        manager.update(1)
        assert [said["standing"] for said in right(of_all(manager.workers, "prepare"))] == [None] * 3
        manager.update(2)


def test_verl__whose_generator_raises_fails_for_all_with_why_and_the_next_update_goes_well():
    with Manager([DOUBLE]) as manager:
        manager.update(1)
        manager.build_process_group()
        results = manager.transfer(2, breaks_at=12)
        assert str(results[1]) == "RuntimeError: the optimizer's state is gone"
        for result in results:
            assert isinstance(result, Failed) and "the optimizer's state is gone" in str(result)
        manager.update(3)


def test_verl__names_a_rollout_that_was_killed_within_seconds():
    with Manager([DOUBLE]) as manager:
        manager.build_process_group()
        for engine in manager.actors:
            engine.begin("send", 1)
        manager.rollouts[0].begin("receive", 1)
        manager.rollouts[1].begin("stop_in_the_middle", 1)
        time.sleep(1)
        manager.rollouts[1].kill()
        killed = time.monotonic()
        results = [engine.end() for engine in [*manager.actors, manager.rollouts[0]]]
        assert time.monotonic() - killed < 15
        for result in results:
            assert isinstance(result, Failed) and "inference 1" in str(result), result


def test_verl__says_what_to_call_first_when_calls_are_out_of_order():
    with Manager([DOUBLE], rollouts=1) as manager:
        for method, engine in (("send", manager.actors[0]), ("receive", manager.rollouts[0])):
            engine.begin(method, 1)
            assert re.search("StateError.*joins one first .prepare, then init_process_group", str(engine.end()))
        metadata = right(of_all(manager.workers, "prepare"))
        for wrong, words in ((metadata[1:], "metadata of 2 workers came, of 2 actors and 1 rollout workers"),
                             (metadata[::-1], "the first of metadata is not the master's")):
            manager.actors[0].begin("build_topology", 2, 1, wrong)
            assert words in str(manager.actors[0].end())
        actors, _ = manager.actors[0].call("build_topology", 2, 1, metadata)
        kwargs = {name: values[0] for name, values in actors.items()}
        manager.actors[1].begin("init_process_group", **kwargs)  # actor 1 as rank 0
        assert "trainer 0 starts the controller, and the offer that was taken is not its own" in str(manager.actors[1].end())
        manager.actors[0].begin("init_process_group", **{**kwargs, "offer": None})
        assert "build_topology must follow a prepare of all workers" in str(manager.actors[0].end())
        right(of_all(manager.workers, "finalize"))
        manager.update(1)
        manager.rollouts[0].begin("send", 2)
        assert "this process is receiver 0 of the job, and a trainer is needed" in str(manager.rollouts[0].end())


def test_verl__refuses_a_bucket_above_verls_own_by_the_names_of_both_options():
    engine = Engine([DOUBLE], "test_verl:made", bucket_size=1 << 20, bucket_bytes=2 << 20)
    try:
        engine.begin("prepare")
        assert "engine_kwargs.weft.bucket_bytes is 2097152, above" in str(engine.end())
    finally:
        engine.close()


@pytest.mark.parametrize("option, value, words", [
    ("buckt_bytes", 65536, "weft.buckt_bytes (65536) is no option of weft's: there are bucket_bytes, checksums, device, host, "),
    ("bucket_bytes", "64k", "weft.bucket_bytes is '64k', of type str: give bytes as a whole number"),
    ("bucket_bytes", 0, "weft.bucket_bytes is 0, of type int: give bytes as a whole number, 1 or more"),
    ("timeout_s", "60", "weft.timeout_s is '60', of type str: give seconds"),
    ("timeout_s", 0, "weft.timeout_s is 0, of type int: give seconds as a number above 0"),
    ("checksums", "false", "weft.checksums is 'false', of type str: give true or false, without quotes"),
    ("rebuild_group", "false", "weft.rebuild_group is 'false'"),
    ("transport", ["shm", "tcp"], "weft.transport is ['shm', 'tcp'], of type list: give a text in quotes, with commas"),
    ("host", 7, "weft.host is 7, of type int: give a text"),
])
def test_verl__refuses_an_option_of_a_wrong_name_or_kind_before_anybody_waits(option, value, words):
    engine = Engine([DOUBLE], "test_verl:made", bucket_size=1 << 20, **{option: value})
    try:
        engine.begin("prepare")
        assert "UsageError: WEFT-E101 checkpoint_engine.engine_kwargs." + words in str(engine.end())
    finally:
        engine.close()


def test_verl__leaves_no_key_in_any_file():
    with Manager([DOUBLE], rollouts=1) as manager:
        key = manager.actors[0].call("prepare")["offer"]["key"]
        manager.update(1)
        secret = re.search(r"secret (\w+)", key)[1]
        temporary = pathlib.Path(os.environ.get("TMPDIR", "/tmp"))
        assert not [file for file in temporary.glob("key-*/*") if secret in file.read_text(errors="replace")]


@needs_verl
def test_verl__the_real_manager_updates_rollouts_through_ray_on_cpus():
    done = subprocess.run([sys.executable, HERE / "verl_manager.py"], capture_output=True, text=True, timeout=400,
                          env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0"})
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.stdout.count("2 rollouts have the bytes of step") == 3, done.stdout
