# SPDX-License-Identifier: Apache-2.0
"""weft.nemo in the order in which NeMo-RL's synchronizer calls an engine, with a double of its base module."""
from __future__ import annotations

import pathlib
import re
import sys
import time

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "stream")]

pytest.importorskip("torch")
import stream_ranks as ranks  # noqa: E402
from engines import Engine, Failed, of_all, right  # noqa: E402

DOUBLE = HERE / "doubles/nemo_rl"
NAME = "weft.nemo:WeftCheckpointEngine"


def made(bucket_size_bytes=ranks.BUCKET, **engine_kwargs):
    """What a worker of NeMo-RL does with its configuration."""
    from nemo_rl.utils.checkpoint_engines.base import create_checkpoint_engine
    return create_checkpoint_engine(NAME, bucket_size_bytes=bucket_size_bytes, engine_kwargs=engine_kwargs)


class Synchronizer:
    """Two policy workers, and two vLLM engines of a rank each; the synchronizer's order."""

    def __init__(self, policies=2, rollouts=2, **options):
        options = {"release_after_refit": False, "host": "127.0.0.1", "timeout_s": 20.0, **options}
        self.policies, self.rollouts = ([Engine([DOUBLE], "test_nemo:made", **options) for _ in range(count)]
                                        for count in (policies, rollouts))
        self.release_after_refit, self.ready = options["release_after_refit"], False

    @property
    def workers(self):
        return self.policies + self.rollouts

    def prepare(self):
        """Workers add their rank, which of vLLM's counts within an engine; the order is by it, or as engines are."""
        ranks_of = [*range(len(self.policies)), *[0] * len(self.rollouts)]
        return [{**said, "rank": rank} for said, rank in zip(right(of_all(self.workers, "prepare")), ranks_of)]

    def make_ready(self):
        if self.ready:
            return
        metadata = self.prepare()
        topology = {"metadata": metadata, "train_world_size": len(self.policies), "rollout_world_size": len(self.rollouts)}
        for rank, engine in enumerate(self.policies):
            engine.begin("init_policy_process_group", worker_rank=rank, **topology)
        for rank, engine in enumerate(self.rollouts):
            engine.begin("init_rollout_process_group", rollout_rank=rank, **topology)
        right([engine.end() for engine in self.workers])
        self.ready = True

    def transfer(self, step, dies=None, **breaks):
        for rank, engine in enumerate(self.policies):
            engine.begin("send", step, takes_step=False, **(breaks if rank == 1 else {}))
        for rank, engine in enumerate(self.rollouts):
            engine.begin("receive_batches", dies=rank == dies)
        return [engine.end() for engine in self.workers]

    def sync_weights(self, step):
        self.make_ready()
        results = right(self.transfer(step))
        for found in results[len(self.policies):]:
            assert found == ranks.marks(step)
        if self.release_after_refit:
            self.shutdown()

    def shutdown(self):
        right(of_all(self.workers, "finalize"))
        self.ready = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for engine in self.workers:
            engine.close()


@pytest.mark.parametrize("release", [False, True])
def test_nemo__refits_all_rollouts_from_all_policies_with_equal_bytes_again_and_again(release):
    with Synchronizer(release_after_refit=release) as synchronizer:
        for step in (1, 2, 3):
            synchronizer.sync_weights(step)
        synchronizer.shutdown()
        lines = [line for log in right(of_all(synchronizer.workers, "log")) for line in log]
        words = r"\[weft refit\] (trainer|receiver) [01]: (Sent|Received) \d+ tensors in \d+ batches; bytes=[\d.]+GiB total="
        assert len([line for line in lines if re.match(words, line)]) == 4 * 3, lines


def test_nemo__whose_generator_raises_fails_for_all_with_why():
    with Synchronizer() as synchronizer:
        synchronizer.make_ready()
        results = synchronizer.transfer(1, breaks_at=12)
        for result in results:
            assert isinstance(result, Failed) and "the optimizer's state is gone" in str(result)
        synchronizer.shutdown()
        synchronizer.sync_weights(2)


def test_nemo__names_a_rollout_that_was_killed_within_seconds():
    with Synchronizer() as synchronizer:
        synchronizer.make_ready()
        began = time.monotonic()
        results = synchronizer.transfer(1, dies=1)
        assert time.monotonic() - began < 30
        for result in results[:3]:
            assert isinstance(result, Failed) and "inference 1" in str(result), result


def test_nemo__says_what_to_call_first_when_calls_are_out_of_order():
    with Synchronizer(policies=1, rollouts=1) as synchronizer:
        (policy,), (rollout,) = synchronizer.policies, synchronizer.rollouts
        policy.begin("send", 1, takes_step=False)
        assert re.search("StateError.*joins one first", str(policy.end()))
        rollout.begin("receive_batches")
        assert re.search("StateError.*joins one first", str(rollout.end()))
        metadata = synchronizer.prepare()
        policy.begin("init_policy_process_group", worker_rank=0, train_world_size=1, rollout_world_size=2, metadata=metadata)
        assert "metadata of 2 workers came, of 1 policy and 2 rollout workers" in str(policy.end())
        policy.begin("init_policy_process_group", worker_rank=0, train_world_size=1, rollout_world_size=1, metadata=["nixl", 0])
        assert "policy worker 0 did not prepare weft's engine" in str(policy.end())
        policy.begin("init_policy_process_group", worker_rank=0, train_world_size=1, rollout_world_size=1, metadata=metadata[::-1])
        assert "the offer that was taken is not its own" in str(policy.end())
        assert policy.call("get_target_weight_layout") is None
        synchronizer.sync_weights(1)


@pytest.mark.parametrize("options, words", [
    ({"shard_expert_weights": True}, "shard_expert_weights: weft.nemo sends whole tensors"),
    ({"bucket_bytes": 1 << 30}, "above the 65536 bytes that update_weights_bucket_memory_ratio allows"),
    ({"chksums": True}, "WeftCheckpointEngine\"].chksums (True) is no option of weft's: there are bucket_bytes, checksums, "),
    ({"release_after_refit": "false"}, "release_after_refit is 'false', of type str: give true or false"),
])
def test_nemo__refuses_what_it_cannot_do_by_the_options_name(options, words):
    engine = Engine([DOUBLE], "test_nemo:made", **options)
    try:
        engine.begin("prepare")
        assert words in str(engine.end())
    finally:
        engine.close()
