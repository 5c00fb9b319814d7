# SPDX-License-Identifier: Apache-2.0
"""Jobs from torch to torch: models that train, cut in every way, and an engine's rank cut in another. Each version is
what the trainers had, to the bit."""
import asyncio

import jobs
import pytest
import torch
import transformers
from ranks import gloo
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import weft.torch

HIDDEN, HEADS, GROUPS, DIM, FEED, VOCABULARY = 16, 4, 2, 4, 24, 13


class Layer(nn.Module):
    """Llama's, by HuggingFace's names."""

    def __init__(self):
        super().__init__()
        self.q_proj = nn.Linear(HIDDEN, HEADS * DIM, bias=False)
        self.k_proj = nn.Linear(HIDDEN, GROUPS * DIM, bias=False)
        self.v_proj = nn.Linear(HIDDEN, GROUPS * DIM, bias=False)
        self.o_proj = nn.Linear(HEADS * DIM, HIDDEN, bias=False)
        self.gate_proj = nn.Linear(HIDDEN, FEED, bias=False)
        self.up_proj = nn.Linear(HIDDEN, FEED, bias=False)
        self.down_proj = nn.Linear(FEED, HIDDEN, bias=False)
        self.norm = nn.LayerNorm(HIDDEN)

    def forward(self, x):
        k, v = self.k_proj(x).repeat(1, HEADS // GROUPS), self.v_proj(x).repeat(1, HEADS // GROUPS)
        x = self.norm(x + self.o_proj(self.q_proj(x) * k + v))
        return x + self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.embed = nn.Embedding(VOCABULARY, HIDDEN)
        self.layers = nn.ModuleList([Layer() for _ in range(2)])
        self.lm_head = nn.Linear(HIDDEN, VOCABULARY, bias=False)
        self.lm_head.weight = self.embed.weight

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(x)


def full(model):
    """All of each parameter, by its clean name; a collective where it is cut."""
    return {name.replace("module.", "").replace("_fsdp_wrapped_module.", ""):
            (parameter.full_tensor() if isinstance(parameter, DTensor) else parameter).detach().clone()
            for name, parameter in model.named_parameters()}


def trained(worker, model, versions=3, of=full, **options):
    """Declares, joins, and trains: what the model was, version by version."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    weft.torch.declare(worker, model, **options)
    worker.join()
    history = []
    for version in range(1, versions + 1):
        loss = nn.functional.cross_entropy(model(torch.arange(8)), torch.arange(8) % VOCABULARY)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        weft.torch.publish(worker, model, version)
        history.append(of(model))
    return history


def received(attached, versions=3):
    history = []
    for version in range(1, versions + 1):
        attached.wait(version)
        with attached.read() as snapshot:
            assert snapshot.version == version
            history.append(jobs.copied(attached.module))
    return history


def assert_learned(history):
    assert not torch.equal(history[0]["embed.weight"], history[-1]["embed.weight"])


# ---- an engine's rank of two, with fused parameters

class EngineLayer(nn.Module):
    def __init__(self, tp, dtype):
        super().__init__()
        self.qkv_proj = nn.Linear(HIDDEN, (HEADS + 2 * GROUPS) * DIM // tp, bias=False, dtype=dtype)
        self.o_proj = nn.Linear(HEADS * DIM // tp, HIDDEN, bias=False, dtype=dtype)
        self.gate_up_proj = nn.Linear(HIDDEN, 2 * FEED // tp, bias=False, dtype=dtype)
        self.down_proj = nn.Linear(FEED // tp, HIDDEN, bias=False, dtype=dtype)
        self.norm = nn.LayerNorm(HIDDEN, dtype=dtype)


class Engine(nn.Module):
    """The vocabulary is padded to 16 rows."""

    def __init__(self, tp=2, dtype=torch.bfloat16):
        super().__init__()
        self.embed = nn.Embedding(16 // tp, HIDDEN, dtype=dtype)
        self.layers = nn.ModuleList([EngineLayer(tp, dtype) for _ in range(2)])


SIZES = {"q_proj": HEADS * DIM, "k_proj": GROUPS * DIM, "v_proj": GROUPS * DIM, "gate_proj": FEED, "up_proj": FEED}


def pieces_of(rank, tp=2, dtype=torch.float32):
    """As engines cut: fused rows, columns, a padded vocabulary."""
    def rows(prefix, kind):
        size = SIZES[kind]
        return (weft.Tensor(f"{prefix}.{kind}.weight", dtype, (size, HIDDEN)), (size // tp * rank, 0),
                (size // tp * (rank + 1), HIDDEN))

    def columns(name, size):
        return weft.Tensor(name, dtype, (HIDDEN, size)), (0, size // tp * rank), (HIDDEN, size // tp * (rank + 1))

    def pieces(name, parameter):
        prefix, _, kind = name.removesuffix(".weight").rpartition(".")
        if kind == "qkv_proj":
            return [rows(prefix, part) for part in ("q_proj", "k_proj", "v_proj")]
        if kind == "gate_up_proj":
            return [rows(prefix, part) for part in ("gate_proj", "up_proj")]
        if kind == "o_proj":
            return [columns(name, HEADS * DIM)]
        if kind == "down_proj":
            return [columns(name, FEED)]
        if kind == "embed":
            low, high = 16 // tp * rank, min(16 // tp * (rank + 1), VOCABULARY)
            width = HIDDEN * weft.dtype_of(parameter.dtype).bytes
            return [(weft.Tensor(name, dtype, (VOCABULARY, HIDDEN)), (low, 0), (high, HIDDEN)),
                    *([weft.torch.Fill((16 // tp * (rank + 1) - high) * width)] if high - low < 16 // tp else [])]
        return [weft.Tensor(name, dtype, parameter.shape)]
    return pieces


def want(state, name, rank, tp=2):
    """What an engine's own loader makes of a trainer's state."""
    prefix, _, kind = name.removesuffix(".weight").rpartition(".")
    rows = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
    if kind in rows:
        return torch.cat([state[f"{prefix}.{part}.weight"].chunk(tp)[rank] for part in rows[kind]])
    if kind in ("o_proj", "down_proj"):
        return state[name].chunk(tp, dim=1)[rank]
    if kind == "embed":
        return nn.functional.pad(state[name], (0, 0, 0, 16 - VOCABULARY)).chunk(tp)[rank]
    return state[name]


def assert_engine(history, versions, rank, tp=2):
    for state, have in zip(history, versions):
        for name, tensor in have.items():
            jobs.assert_same(tensor, want(state, name, rank, tp).to(tensor.dtype), name)


def engine_of(tp=2, dtype=torch.bfloat16, trainers=torch.float32):
    def engine(worker, rank):
        attached = weft.torch.attach(worker, Engine(tp, dtype), pieces=pieces_of(rank, tp, trainers))
        worker.join()
        return received(attached)
    return engine


def fsdp2(model):
    for layer in model.layers:
        fully_shard(layer)
    return fully_shard(model)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("shadow", [False, True])
def test_fsdp2__of_two_ranks_to_an_engine_of_two_with_fused_parameters(tmp_path, dtype, shadow):
    """F32 on one side, and on the other what engines compute in: converted on the way as torch does it."""
    sent, have = jobs.run(2, 2, lambda worker, rank: trained(worker, fsdp2(Model())), engine_of(dtype=dtype),
                          gloo(tmp_path), options={"shadow": shadow})
    assert_learned(sent[0])
    for rank in range(2):
        assert_engine(sent[0], have[rank], rank)


def test_fsdp2__in_bfloat16_is_sent_as_it_is(tmp_path):
    sent, have = jobs.run(2, 2, lambda worker, rank: trained(worker, fsdp2(Model().bfloat16())),
                          engine_of(trainers=torch.bfloat16), gloo(tmp_path))
    for rank in range(2):
        assert_engine(sent[0], have[rank], rank)


def tensor_parallel(model, mesh):
    columns, rows = ColwiseParallel(), RowwiseParallel()
    for layer in model.layers:
        parallelize_module(layer, mesh["tp"], {
            **dict.fromkeys(("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"), columns),
            **dict.fromkeys(("o_proj", "down_proj"), rows)}, src_data_rank=None)
        fully_shard(layer, mesh=mesh["fsdp"])
    return fully_shard(model, mesh=mesh["fsdp"])


@pytest.mark.parametrize("tp", [1, 2])
def test_fsdp2_over_tensor_parallelism__of_four_ranks_to_an_engine(tmp_path, tp):
    """Columns of o_proj are cut finer than an engine of one has them."""
    def train(worker, rank):
        model = tensor_parallel(Model(), init_device_mesh("cpu", (2, 2), mesh_dim_names=("fsdp", "tp")))
        weft.torch.declare(worker, model)
        worker.join()
        history = []
        for version in (1, 2, 3):
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.mul_(1.25)
            weft.torch.publish(worker, model, version)
            history.append(full(model))
        return history
    sent, have = jobs.run(4, tp, train, engine_of(tp), gloo(tmp_path))
    for rank in range(tp):
        assert_engine(sent[0], have[rank], rank, tp)


# ---- engines with the trainers' own names

def plain_engine(worker, rank):
    model = Model()
    attached = weft.torch.attach(worker, model)
    worker.join()
    assert attached.module.lm_head.weight is model.embed.weight
    return received(attached)


def assert_plain(history, versions):
    for state, have in zip(history, versions):
        assert state.keys() == have.keys()
        for name, tensor in have.items():
            jobs.assert_same(tensor, state[name], name)


def test_ddp__both_ranks_hold_all_and_share_the_sending(tmp_path):
    def train(worker, rank):
        history = trained(worker, nn.parallel.DistributedDataParallel(Model()))
        return history, worker.stats()["bytes"]
    sent, have = jobs.run(2, 1, train, plain_engine, gloo(tmp_path))
    assert_plain(sent[0][0], have[0])
    assert_learned(have[0])
    assert all(count > 0 for _, count in sent)


@pytest.mark.parametrize("orig", [False, True])
def test_fsdp1__flat_shards_to_whole_parameters(tmp_path, orig):
    def state(model):
        with FullyShardedDataParallel.summon_full_params(model, writeback=False):
            return full(model)

    def train(worker, rank):
        model = FullyShardedDataParallel(Model(), use_orig_params=orig, device_id=torch.device("cpu"))
        return trained(worker, model, of=state)
    sent, have = jobs.run(2, 1, train, plain_engine, gloo(tmp_path))
    assert_learned(have[0])
    assert_plain(sent[0], have[0])


def test_zero3__partitions_to_whole_parameters():
    from test_flat import partitioned

    def train(worker, rank):
        model, history = Model(), []
        whole = full(model)
        for parameter in model.parameters():
            partitioned(parameter, rank, 2)
        weft.torch.declare(worker, model)
        worker.join()
        for version in (1, 2, 3):
            for parameter in model.parameters():
                parameter.ds_tensor.mul_(2)
            weft.torch.publish(worker, model, version)
            history.append({name: tensor * 2 ** version for name, tensor in whole.items()})
        return history
    sent, have = jobs.run(2, 1, train, plain_engine)
    assert_plain(sent[0], have[0])


def test_stages__of_a_pipeline_with_the_order_of_all(tmp_path):
    order = [name for name, _ in Model().named_parameters()]

    def train(worker, rank):
        model, history = Model(), []
        stage = nn.Module()
        stage.layers = nn.ModuleDict({str(rank): model.layers[rank]})
        if rank == 0:
            stage.embed = model.embed
        weft.torch.declare(worker, stage, order=order)
        worker.join()
        for version in (1, 2, 3):
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.mul_(2)
            weft.torch.publish(worker, stage, version)
            history.append(full(model))
        return history
    sent, have = jobs.run(2, 1, train, plain_engine, world="world=2,pp=2")
    assert_plain(sent[0], have[0])


# ---- experts

def test_experts__in_three_dimensions_over_two_meshes_to_an_engines_fused_ones(tmp_path):
    """transformers' fused parameters, whose checkpoint has a tensor an expert and kind; an engine with gate and up in
    one, cut for two."""
    experts, inner = 4, 6

    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(5)
            self.gate_up_proj = nn.Parameter(torch.randn(experts, 2 * inner, HIDDEN))
            self.down_proj = nn.Parameter(torch.randn(experts, HIDDEN, inner))

    def train(worker, rank):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("efsdp", "ep"))
        model = nn.Module()
        model.experts = Experts()
        whole = full(model)
        for name, parameter in list(model.experts.named_parameters()):
            local = distribute_tensor(parameter.detach(), mesh["ep"], [Shard(0)], src_data_rank=None)
            model.experts.register_parameter(name, nn.Parameter(local))
        fully_shard(model, mesh=mesh["efsdp"])
        holder = nn.Module()
        holder.mlp = model
        weft.torch.declare(worker, holder, names=weft.torch.experts_apart)
        worker.join()
        weft.torch.publish(worker, holder, 1)
        return whole

    def receive(worker, rank):
        module = nn.Module()
        module.w13 = nn.Parameter(torch.zeros(experts, inner, HIDDEN))
        module.w2 = nn.Parameter(torch.zeros(experts, HIDDEN, inner // 2))
        half = inner // 2

        def pieces(name, parameter):
            at = f"mlp.experts.{{}}.{'{}'}_proj.weight"
            if name == "w2":
                return [(weft.Tensor(at.format(e, "down"), "F32", (HIDDEN, inner)), (0, rank * half),
                         (HIDDEN, (rank + 1) * half)) for e in range(experts)]
            return [(weft.Tensor(at.format(e, kind), "F32", (inner, HIDDEN)), (rank * half, 0),
                     ((rank + 1) * half, HIDDEN)) for e in range(experts) for kind in ("gate", "up")]
        attached = weft.torch.attach(worker, module, pieces=pieces)
        worker.join()
        return received(attached, 1)[0]
    sent, have = jobs.run(4, 2, train, receive, gloo(tmp_path))
    gate, up = sent[0]["experts.gate_up_proj"].chunk(2, dim=1)
    for rank in range(2):
        jobs.assert_same(have[rank]["w13"], torch.cat([gate.chunk(2, 1)[rank], up.chunk(2, 1)[rank]], dim=1))
        jobs.assert_same(have[rank]["w2"], sent[0]["experts.down_proj"].chunk(2, dim=2)[rank])


# ---- what cannot be seen through, and event loops

def test_gathered__tensors_come_with_the_others(tmp_path):
    """An adapter that is merged into its base, by its first rank; the rest goes as it is cut."""
    def train(worker, rank):
        model = fsdp2(Model())

        def merged():
            for name, parameter in model.named_parameters():
                if name.endswith("q_proj.weight"):
                    base = parameter.full_tensor().detach()
                    yield name, base + 1 if rank == 0 else None
        history = trained(worker, model, gathered=merged)
        return [{name: tensor + 1 if name.endswith("q_proj.weight") else tensor for name, tensor in state.items()}
                for state in history]
    sent, have = jobs.run(2, 1, train, plain_engine, gloo(tmp_path))
    assert_plain(sent[0], have[0])


def test_async__publishes_and_waits_in_event_loops():
    def train(worker, rank):
        model = Model()
        weft.torch.declare(worker, model)

        async def go():
            await worker.join_async()
            await weft.torch.publish_async(worker, model, 1)
            with torch.no_grad():
                model.embed.weight.mul_(3)
            await weft.torch.publish_async(worker, model, 2)
        asyncio.run(go())
        return full(model)

    def receive(worker, rank):
        attached = weft.torch.attach(worker, Model())

        async def go():
            await worker.join_async()
            assert await attached.wait_async() == 1
            assert await attached.wait_async() == 2
        asyncio.run(go())
        with attached.read():
            return jobs.copied(attached.module)
    sent, have = jobs.run(1, 1, train, receive)
    assert_plain(sent, have)


def test_gpt2__of_transformers_on_both_sides_with_its_transposed_linears():
    def model():
        torch.manual_seed(4)
        config = transformers.GPT2Config(n_embd=8, n_layer=2, n_head=2, vocab_size=11, n_positions=8, bos_token_id=None,
                                         eos_token_id=None)
        return transformers.GPT2LMHeadModel(config).eval()

    def train(worker, rank):
        trainer = model()
        with torch.no_grad():
            for parameter in trainer.parameters():
                parameter.add_(1)
        weft.torch.declare(worker, trainer)
        worker.join()
        weft.torch.publish(worker, trainer, 1)
        return trainer(torch.arange(5)[None]).logits.detach()

    def receive(worker, rank):
        engine = model()
        attached = weft.torch.attach(worker, engine)
        worker.join()
        attached.wait()
        with attached.read(), torch.no_grad():
            return engine(torch.arange(5)[None]).logits
    (sent,), (have,) = jobs.run(1, 1, train, receive)
    jobs.assert_same(have, sent)
