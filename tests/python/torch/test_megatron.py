# SPDX-License-Identifier: Apache-2.0
"""Megatron-Core's GPTModel on each rank of a group that is none: its parameters, matched with those that weft knows by
the model's config and the train spec. What a parameter is called in weft's list, Megatron's own sharded_state_dict says
here (tests/trainers), and that the boxes are right is tested there."""
import json
import re

import jobs
import megatron_locals
import pytest
import test_megatron_trainers as account
import torch
from ranks import alone, each_rank, fake, finished, started
from test_attach import module_of

import job
import weft.torch

CASES = [
    # model, what is other in its config, the train spec
    ("qwen2", {}, "world=2,tp=2"),
    ("qwen2", {}, "world=4,tp=4,vocab_pad=8"),
    ("qwen2", {"num_hidden_layers": 3}, "world=4,tp=2,pp=2,vocab_pad=8,first=1"),  # tied, in two stages
    ("qwen3", {"num_hidden_layers": 4}, "world=4,tp=2,pp=2,vpp=2"),
    ("llama", {"num_hidden_layers": 3}, "world=8,tp=2,cp=2,pp=2,first=1,last=2"),
    ("llama", {"num_hidden_layers": 6}, "world=2,pp=2,vpp=2,account_embedding=1,account_loss=1"),
    ("qwen3-moe", {}, "world=4,tp=2,ep=2,etp=1"),
    ("qwen3-moe", {}, "world=8,tp=2,pp=2,ep=2,etp=1,order=tp-cp-ep-pp-dp"),
    ("qwen3-moe", {}, "world=4,tp=2,ep=2,grouped=legacy"),
    ("glm4-moe", {}, "world=4,tp=2,ep=2,etp=1,mtp=1"),
    ("glm4-moe", {"num_hidden_layers": 6}, "world=4,pp=4,layout=Ett|(tt|)*2,mL"),
    ("glm4-moe-lite", {"num_nextn_predict_layers": 0}, "world=4,tp=2,ep=2,etp=1"),  # latent attention
    ("deepseek-v2", {}, "world=4,tp=2,pp=2,ep=2,etp=1"),
    ("gpt2", {}, "world=4,tp=2,pp=2,vocab_pad=8"),
    ("gpt-oss", {}, "world=4,tp=2,pp=2,ep=2,etp=1,glu_interleave=1"),
    ("qwen3-next", {}, "world=4,tp=2,ep=2,etp=1,out_norm=plus_one"),
]
IDS = ["-".join([kind, *(f"{key}={value}" for key, value in changes.items()), text]) for kind, changes, text in CASES]
DERIVED = ("_in_turn", "_plus_one")


def built(case, config):
    """The rank's chunks in the config's dtype, and its config as HuggingFace writes it."""
    chunks = list(megatron_locals.chunks(case))
    for chunk in chunks:
        for parameter in chunk.parameters():
            parameter.data = parameter.data.to(getattr(torch, config["torch_dtype"]))
    return chunks


def called(case, chunks):
    """{what weft calls it: what the module does, with the chunk before it}."""
    shapes, parts = {}, []
    for number, chunk in enumerate(chunks):
        prefix = f"chunk{number}." if len(chunks) > 1 else ""
        tensors = {**dict(chunk.named_parameters()),
                   **{name: buffer for name, buffer in chunk.named_buffers() if name.endswith("expert_bias")}}
        shapes.update((prefix + name, tensor) for name, tensor in tensors.items())
        memory = {tensor.data_ptr(): name for name, tensor in tensors.items()}
        for part in megatron_locals.pieces(chunk):
            at = part.data.untyped_storage().data_ptr()
            if at in memory:
                parts.append((prefix + memory[at], part.key))
    found = {account.of_transformer_engine(name, key, shapes): name for name, key in parts}
    # of experts in one Megatron's account is a copy, in another order; they are called the same
    return {**found, **{name: name for name in shapes.keys() - set(found.values()) if ".experts.weight" in name}}


def declared(number, folder, rank, **options):
    """The rank's chunks, its worker and what was declared."""
    kind, changes, text = CASES[number]
    case, config = account.as_megatron(CASES[number]), account.config_of(kind, changes)
    file = folder / f"{number}.{rank}.json"  # ranks run side by side
    file.write_text(json.dumps(config))
    chunks = built(case, config)
    trainer = weft.Trainer("tcp://127.0.0.1:9", rank)
    trainer.declare_model(str(file), f"source=megatron,{text}", "engines=1,tp=1")

    def derived():
        for view in trainer.tensors:
            if view.name.endswith(DERIVED):
                yield view.name, torch.zeros(view.shape, dtype=weft.torch.dtype_of(view.dtype))
    record = weft.torch.declare(trainer, chunks if len(chunks) > 1 else chunks[0], config=config, gathered=derived,
                                **options)
    return chunks, trainer, record, case


@pytest.mark.parametrize("number", range(len(CASES)), ids=IDS)
def test_megatron__each_tensor_of_wefts_list_is_the_parameter_that_megatron_says(number, tmp_path):
    def hold(rank):
        chunks, trainer, record, case = declared(number, tmp_path, rank)
        views = {view.id: view for view in trainer.tensors}
        names = called(case, chunks)
        for held in record.held:
            assert names[views[held.id].name] == held.local
        assert {held.id for held in record.held} | set(record.gathered.values()) == set(views)
        memory = record.memory(chunks)
        assert all(memory[held.id].nbytes == views[held.id].bytes for held in record.held)
        spec = weft.torch.megatron_train(chunks)
        trainer.close()
        return spec
    specs = each_rank(int(job.spec(CASES[number][2])["world"]), hold)
    assert len(set(specs)) == 1
    said, want = job.spec(specs[0]), job.spec(CASES[number][2])
    assert said.pop("source") == "megatron"
    for key in ("vocab_pad", "out_norm", "glu_interleave"):  # which the model does not keep
        want.pop(key, None)
    assert said == {key: value for key, value in want.items() if key not in ("etp",) or value != want.get("tp", "1")}


def test_megatron__a_share_of_the_vocabulary_that_is_all_padding_is_none_of_wefts(tmp_path):
    """Of 200 rows in 512, ranks 2 and 3 have none; they say so by the config, and are refused without it."""
    kind, changes, text = "qwen2", {}, "world=4,tp=4"
    case, config = account.as_megatron((kind, changes, text)), account.config_of(kind, changes)
    (tmp_path / "config.json").write_text(json.dumps(config))

    def hold(rank):
        (model,) = built(case, config)
        trainer = weft.Trainer("tcp://127.0.0.1:9", rank)
        trainer.declare_model(str(tmp_path), "world=4,source=megatron,tp=4", "engines=1,tp=1")
        if rank >= 2:
            with pytest.raises(weft.ConflictError, match="embedding.word_embeddings.weight"):
                weft.torch.declare(trainer, model)
        record = weft.torch.declare(trainer, model, config=config)
        trainer.close()
        return any("word_embeddings" in held.local for held in record.held)
    assert each_rank(4, hold) == [True, True, False, False]


WRONG = [
    ("world=2,source=megatron,tp=1", r"linear_qkv.weight is BF16 \[192, 96\], and the model's .* BF16 \[96, 96\]"),
    ("world=2,source=megatron,pp=2,vocab_pad=8", r"differs from the \d+ tensors .* in \d+: .* and others. Change"),
]


@pytest.mark.parametrize("spec, words", WRONG)
def test_megatron__a_spec_that_is_not_the_models_is_refused_with_what_differs(spec, words, tmp_path):
    case, config = account.as_megatron(CASES[0]), account.config_of("qwen2", {})
    (tmp_path / "config.json").write_text(json.dumps(config))

    def hold(rank):
        (model,) = built(case, config)
        trainer = weft.Trainer("tcp://127.0.0.1:9", rank)
        trainer.declare_model(str(tmp_path), spec, "engines=1,tp=1")
        with pytest.raises(weft.ConflictError) as raised:
            weft.torch.declare(trainer, model)
        trainer.close()
        return str(raised.value)
    for message in each_rank(2, hold):
        assert re.search(words, message) and "megatron_train" in message


def test_megatron__wrappers_and_skip_change_nothing_but_what_they_say(tmp_path):
    def hold(rank):
        (model,) = built(account.as_megatron(CASES[0]), account.config_of("qwen2", {}))
        holder = torch.nn.Module()
        holder.module = torch.nn.Module()
        holder.module.module = model  # DistributedDataParallel of a Float16Module
        model.register_parameter("value_head", torch.nn.Parameter(torch.zeros(3)))
        (tmp_path / "config.json").write_text(json.dumps(account.config_of("qwen2", {})))
        trainer = weft.Trainer("tcp://127.0.0.1:9", rank)
        trainer.declare_model(str(tmp_path), weft.torch.megatron_train(holder), "engines=1,tp=1")
        with pytest.raises(weft.ConflictError, match="value_head F32"):
            weft.torch.declare(trainer, holder)
        count = len(weft.torch.declare(trainer, holder, skip=["value_head"]).held)
        assert count == len(trainer.tensors)
        trainer.close()
    each_rank(2, hold)


def test_megatron__overlapped_gather_of_parameters_is_brought_to_its_end():
    """Until then most parameters of the distributed optimizer's are of the last step."""
    from types import SimpleNamespace

    from weft.torch._megatron import synchronised
    calls = []

    class Wrapped(torch.nn.Module):
        def __init__(self, overlap):
            super().__init__()
            self.ddp_config = SimpleNamespace(overlap_param_gather=overlap)

        def start_param_sync(self, *, force_sync):
            calls.append(force_sync)
    synchronised([Wrapped(True), Wrapped(False)])
    assert calls == [True]


def test_megatron__trains_an_engine_that_is_cut_otherwise(tmp_path):
    """A real job: tensor parallel 2 to an engine of one, matched on both sides; to the bit."""
    config = {**account.config_of("qwen3", {}), "torch_dtype": "float32"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    spec, infer = "world=2,source=megatron,tp=2,vocab_pad=1", "engines=1,tp=1"
    case = account.as_megatron(("qwen3", {}, "world=2,tp=2,vocab_pad=1"))
    with weft.Controller(spec, infer) as controller:
        def train(rank):
            (model,) = built(case, config)
            torch.manual_seed(rank)
            with weft.Trainer(controller.address, rank, **jobs.TIMEOUTS) as trainer:
                trainer.declare_model(str(tmp_path / "config.json"), spec, infer)
                weft.torch.declare(trainer, model)
                trainer.join()
                with torch.no_grad():
                    for parameter in model.parameters():
                        parameter.normal_()
                weft.torch.publish(trainer, model, 1)
            return {name: parameter.detach() for name, parameter in model.named_parameters()}

        def receive(rank):
            with weft.Inference(controller.address, rank, **jobs.TIMEOUTS) as inference:
                inference.declare_model(str(tmp_path / "config.json"), spec, infer)
                attached = weft.torch.attach(inference, module_of(inference.params))
                inference.join()
                attached.wait()
                with attached.read():
                    return jobs.copied(attached.module)
        sending, receiving = started(2, train, fake), started(1, receive, alone)
        (have,), sent = finished(receiving, "inference rank"), finished(sending, "trainer")
    layer, d, groups, heads = "model.layers.1", 40, 2, 4
    jobs.assert_same(have[f"{layer}.self_attn.o_proj.weight"],
                     torch.cat([each["decoder.layers.1.self_attention.linear_proj.weight"] for each in sent], dim=1))
    # group after group, queries, key and value
    fused = torch.cat([each["decoder.layers.1.self_attention.linear_qkv.weight"] for each in sent])
    fused = fused.view(groups, heads // groups + 2, d, -1)
    jobs.assert_same(have[f"{layer}.self_attn.qkv_proj.weight"], torch.cat([
        part.reshape(-1, fused.shape[-1]) for part in (fused[:, :-2], fused[:, -2], fused[:, -1])]))
    gate, up = zip(*(each["decoder.layers.1.mlp.linear_fc1.weight"].chunk(2) for each in sent))
    jobs.assert_same(have[f"{layer}.mlp.gate_up_proj.weight"], torch.cat([*gate, *up]))
