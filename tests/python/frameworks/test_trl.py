# SPDX-License-Identifier: Apache-2.0
"""weft.trl: in the order in which TRL calls it (trl 1.16.0), and in the real AsyncGRPOTrainer where the
package is."""
import os
import time

import numpy
import pytest
import torch
from servers import QUICK, SHAPES, TENSORS, named, running

import weft
import weft.trl


class Trainer:
    """What AsyncGRPOTrainer does with its weight_transfer, on the main process."""

    def __init__(self, weight_transfer):
        self.weight_transfer, self.model_version, self.value = weight_transfer, 0, 1

    def sync(self):
        self.weight_transfer.pause()
        self.weight_transfer.send_weights(iter(named(self.value)))
        self.weight_transfer.resume()
        self.model_version += 1

    def train(self, steps):
        try:
            self.weight_transfer.init_weight_transfer()
            self.sync()
            for _ in range(steps):
                self.value += 1
                self.sync()
        finally:
            self.weight_transfer.destroy()


ORDER = ["/pause", "/start_weight_update", "/update_weights", "/finish_weight_update", "/resume"]


@pytest.mark.parametrize("generation, known", [
    ("0.22.1", True), ("0.33.0", False), *([("0.22.1", False), ("0.33.0", True)] if os.environ.get("WEFT_SOAK") else [])])
def test_trainer__brings_each_version_to_the_servers(tmp_path, generation, known):
    with running(tmp_path, generation, servers=2) as both:
        transfer = weft.trl.WeightTransfer([server.url for server in both], tensors=TENSORS if known else None, **QUICK)
        trainer = Trainer(transfer)
        trainer.train(2)
        assert all(server.holds(3) for server in both)
        assert trainer.model_version == 3
        log = both[0].get("/log")
        assert not log["paused"]
        init = ["/init_weight_transfer_engine"]
        assert log["log"] == (init + ORDER if known else ORDER[:1] + init + ORDER[1:]) + 2 * ORDER


def test_metrics__have_trls_names(tmp_path):
    with running(tmp_path, "0.33.0") as (server,):
        transfer = weft.trl.WeightTransfer(server.url, reset_prefix_cache=True, **QUICK)
        transfer.init_weight_transfer()
        trainer = Trainer(transfer)
        trainer.sync()
        assert transfer.version == 1
        assert 0 < transfer.metrics["weight_sync_time_s"] <= transfer.metrics["pause_s"]
        assert transfer.metrics["bytes"] == sum(4 * torch.Size(shape).numel() for shape in SHAPES.values())
        assert server.get("/log")["log"][-2:] == ["/reset_prefix_cache", "/resume"]
        transfer.destroy()
        transfer.destroy()


def test_send__before_init_is_refused():
    with pytest.raises(weft.StateError, match="before init_weight_transfer"):
        weft.trl.WeightTransfer("http://127.0.0.1:1").send_weights(iter(named(1)))


def test_init__says_that_no_server_is_there():
    began = time.monotonic()
    with pytest.raises(weft.WaitTimeout, match="http://127.0.0.1:1/health.*refused"):
        weft.trl.WeightTransfer("http://127.0.0.1:1", server_timeout_s=0.2).init_weight_transfer()
    assert time.monotonic() - began < 10


def test_iterator__that_raises_leaves_servers_paused_and_reports_nothing(tmp_path):
    with running(tmp_path, "0.33.0") as (server,):
        transfer = weft.trl.WeightTransfer(server.url, tensors=TENSORS, **QUICK)
        transfer.init_weight_transfer()

        def failing():
            yield next(named(1))
            raise RuntimeError("out of memory")
        transfer.pause()
        with pytest.raises(weft.Error, match="out of memory"):
            transfer.send_weights(failing())
        assert server.get("/log")["paused"]
        assert server.get("/weight_info")["weight_version"] == "default"
        transfer.destroy()


def test_killed_server__ends_the_training_with_an_error(tmp_path):
    with running(tmp_path, "0.33.0") as (server,):
        transfer = weft.trl.WeightTransfer(server.url, tensors=TENSORS, **QUICK)
        transfer.init_weight_transfer()

        def dying():
            for one in named(1):
                server.kill()
                yield one
        began = time.monotonic()
        with pytest.raises(weft.Error):
            transfer.send_weights(dying())
        assert time.monotonic() - began < 18
        transfer.destroy()


def test_arguments__that_contradict_are_refused():
    with pytest.raises(weft.UsageError, match="give one"):
        weft.trl.WeightTransfer("http://a:1", tensors=TENSORS, model=torch.nn.Linear(1, 1))
    with pytest.raises(weft.UsageError, match="keep, wait, abort"):
        weft.trl.WeightTransfer("http://a:1", pause_mode="stop")


# ---- the real package


@pytest.fixture
def tiny(tmp_path):
    """A model and a tokenizer of this machine."""
    pytest.importorskip("trl.experimental.async_grpo")
    import tokenizers
    import transformers

    words = {"<pad>": 0, "<eos>": 1, "a": 2, "b": 3, "c": 4}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="a"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>")
    fast.chat_template = "{% for message in messages %}{{ message.content }} {% endfor %}"
    config = transformers.Qwen2Config(vocab_size=8, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
                                      num_attention_heads=2, num_key_value_heads=2, tie_word_embeddings=False)
    model = transformers.Qwen2ForCausalLM(config)
    folder = tmp_path / "tiny"
    model.save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder, {name: list(parameter.shape) for name, parameter in model.named_parameters()}, model


def test_real_trl__trains_and_brings_its_weights_to_the_server(tmp_path, tiny, monkeypatch):
    folder, shapes, model = tiny
    import queue

    from datasets import Dataset
    from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer
    from trl.experimental.async_grpo.async_rollout_worker import RolloutSample

    class Rollouts:
        """TRL's RolloutWorkerProtocol: samples without end."""

        def __init__(self):
            self.rollout_buffer, self.metrics_queue, self.versions, self.made = self, queue.Queue(), [], 0

        def get(self, *arguments, **named):
            self.made += 1
            return sample(RolloutSample, self.made)

        get_nowait = get

        def qsize(self):
            return 4

        def start(self):
            pass

        def stop(self):
            pass

        def update_model_version(self, version):
            self.versions.append(version)

        def check_health(self, stale_after_s):
            pass
    on_a_cpu(monkeypatch)
    with running(tmp_path, "0.33.0", shapes=shapes) as (server,):
        rollouts = Rollouts()
        transfer = weft.trl.WeightTransfer(server.url, **QUICK)
        sent = []
        send = transfer.send_weights
        monkeypatch.setattr(transfer, "send_weights", lambda iterator: send(_seen(iterator, sent)))
        config = AsyncGRPOConfig(output_dir=str(tmp_path / "out"), max_steps=2, per_device_train_batch_size=2, use_cpu=True,
                                 bf16=False, report_to=[], learning_rate=0.1, weight_sync_steps=1, logging_steps=1,
                                 vllm_server_base_url=server.url, gradient_checkpointing=False, save_strategy="no",
                                 **_known(AsyncGRPOConfig, dtype="float32", model_init_kwargs={"dtype": "float32"}))
        trainer = AsyncGRPOTrainer(str(folder), reward_funcs=lambda completions, **_: [0.0] * len(completions), args=config,
                                   train_dataset=Dataset.from_dict({"prompt": ["a b"] * 8}), rollout_worker=rollouts,
                                   weight_transfer=transfer)
        trainer.train()
        last = {name: tensor.float().mean().item() for name, tensor in sent[-1]}
        held = server.get("/parameters")[0]
        assert set(held) == set(last)
        assert all(held[name] == pytest.approx(last[name], abs=1e-7) for name in last)
        assert rollouts.versions[-1] == len(sent) >= 2
        logged = set().union(*(row.keys() for row in trainer.state.log_history))
        assert any("weight_sync" in key for key in logged), logged


def on_a_cpu(monkeypatch):
    """TRL computes attention with a kernel that only GPUs have, and asks the device for its name."""
    import types

    from trl.experimental.async_grpo import async_grpo_trainer, packing

    def varlen(query, key, value, starts_q, starts_k, max_q, max_k, softmax_scale=None, causal=True, **_):
        groups, out = query.shape[1] // key.shape[1], []
        for a, b, c, d in zip(starts_q[:-1], starts_q[1:], starts_k[:-1], starts_k[1:]):
            q, k, v = (x.transpose(0, 1) for x in (query[a:b], key[c:d].repeat_interleave(groups, 1),
                                                   value[c:d].repeat_interleave(groups, 1)))
            mask = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool).tril(k.shape[1] - q.shape[1])
            out.append(torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, scale=softmax_scale).transpose(0, 1))
        return torch.cat(out)
    monkeypatch.setattr(packing, "_flash_attn", lambda: types.SimpleNamespace(flash_attn_varlen_func=varlen))
    monkeypatch.setattr(async_grpo_trainer, "get_peak_flops_per_device", lambda *_: None)


def _seen(iterator, sent):
    sent.append([])
    for name, tensor in iterator:
        sent[-1].append((name, tensor.detach().clone()))
        yield name, tensor


def _known(config, **given):
    import dataclasses
    names = {field.name for field in dataclasses.fields(config)}
    return {name: value for name, value in given.items() if name in names}


def sample(kind, i):
    """A sample of two words and an answer of two, by the names that this TRL has."""
    import dataclasses
    given = {"prompt": [{"role": "user", "content": "a b"}], "completion": [{"role": "assistant", "content": "c"}],
             "input_ids": numpy.array([2, 3, 4, 1]), "completion_mask": numpy.array([0, 0, 1, 1]),
             "old_log_probs": numpy.array([0.0, 0.0, -1.0, -1.0], "f4"),
             "advantage": 1.0 if i % 2 else -1.0, "model_version": 10, "metrics": {}, "group_id": i // 2}
    names = {field.name for field in dataclasses.fields(kind)}
    return kind(**{name: value for name, value in given.items() if name in names})
