# SPDX-License-Identifier: Apache-2.0
"""FSDP1's flat parameters, of torch's own class on each rank of a group that is none; ZeRO-3's partitions, by stand-ins
with the attributes that DeepSpeed gives a parameter."""
import types

import pytest
import torch
from ranks import alone, each_rank
from recorder import Recorder, assert_all, assert_right, numbered, numbers
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

import weft.torch


class Unit(nn.Module):
    """Three parameters, of which the flat one is: 15, 10 and 2 elements."""

    def __init__(self):
        super().__init__()
        self.p0 = nn.Parameter(torch.empty(5, 3))
        self.p1 = nn.Parameter(torch.empty(2, 5))
        self.p2 = nn.Parameter(torch.empty(2))

    def forward(self, x):
        return (self.p0.sum() + self.p1.sum() + self.p2.sum()) * x


def wrapped(model, **options):
    return FullyShardedDataParallel(model, device_id=torch.device("cpu"), **options)


def declared(model, **options):
    trainer = Recorder()
    record = weft.torch.declare(trainer, model, **options)
    found, left = trainer.found(record.memory(model))
    return found, left, trainer


UNITS = {
    False: [[("p0", 0, 7, 0)], [("p0", 7, 14, 0)], [("p0", 14, 15, 0), ("p1", 0, 6, 1)],
            [("p1", 6, 10, 0), ("p2", 0, 2, 4)]],
    True: [[("p0", 0, 8, 0)], [("p0", 8, 15, 0)], [("p1", 0, 8, 0)], [("p1", 8, 10, 0), ("p2", 0, 2, 4)]],
}


@pytest.mark.parametrize("orig", [False, True])
def test_fsdp1__declares_flat_ranges_of_a_unit(orig):
    """As torch lays it out: without gaps, or each parameter from 16 bytes on; what is between and behind is
    nobody's."""
    def hold(rank):
        model = Unit()
        bases = numbered(model)
        found, left, trainer = declared(wrapped(model, use_orig_params=orig))
        assert_right(found, bases)
        assert [name for name, _, _ in trainer.locals] == ["_flat_param"]
        flats = [(name, start, stop, at) for name, start, stop, _, at in trainer.flats]
        return found, bases, flats, left["_flat_param"]
    ranks = each_rank(4, hold)
    assert [flats for _, _, flats, _ in ranks] == UNITS[orig]
    assert [left for *_, left in ranks] == ([0, 0, 0, 1] if not orig else [0, 1, 0, 4])
    assert_all([found for found, *_ in ranks], ranks[0][1])


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(9, 4)
        self.layers = nn.ModuleList([Unit(), Unit()])
        self.norm = nn.LayerNorm(4)
        self.head = nn.Linear(4, 9, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x):
        x = self.embed(x).sum()
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x * torch.ones(4))).sum()


STRATEGIES = [ShardingStrategy.FULL_SHARD, ShardingStrategy.SHARD_GRAD_OP, ShardingStrategy.NO_SHARD,
              ShardingStrategy.HYBRID_SHARD]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda each: each.name)
@pytest.mark.parametrize("orig", [False, True])
def test_fsdp1__of_any_strategy_declares_all_units_before_and_after_a_step(orig, strategy):
    """A step changes what the flat parameter shows, not where its shard lies. A tied parameter is in it once."""
    def hold(rank):
        model = Model()
        bases = numbered(model)
        more = {}
        if strategy is ShardingStrategy.HYBRID_SHARD:
            from torch.distributed.device_mesh import init_device_mesh
            more["device_mesh"] = init_device_mesh("cpu", (2, 2))
        model = wrapped(model, use_orig_params=orig, sharding_strategy=strategy,
                        auto_wrap_policy=ModuleWrapPolicy({Unit}), **more)
        trainer = Recorder()
        record = weft.torch.declare(trainer, model)
        found, _ = trainer.found(record.memory(model))
        assert_right(found, bases)
        where = {number: memory.data_ptr() for number, memory in record.memory(model).items()}
        assert record.aliases == {"head.weight": "embed.weight"}
        # gathers of a fake group give what is in memory: only that it all goes on is seen here
        model(torch.tensor([1, 2]))
        again, _ = trainer.found(record.memory(model))
        assert_right(again, bases)
        assert where == {number: memory.data_ptr() for number, memory in record.memory(model).items()}
        return found, bases, {name: order for name, (_, _, order) in trainer.declared.items()}
    ranks = each_rank(4, hold)
    assert_all([found for found, *_ in ranks], ranks[0][1])
    orders = {}
    for *_, some in ranks:
        assert all(orders.setdefault(name, order) == order for name, order in some.items())
    assert sorted(orders.values()) == list(range(len(orders))) and len(orders) == len(ranks[0][1])


def test_fsdp1__parts_of_a_flat_parameter_are_boxes():
    """gate and up in one parameter, of which ranks have ranges that begin where they like."""
    def names(name, parameter):
        return [("gate", slice(0, 3)), ("up", slice(3, 5))] if name == "p0" else name

    def hold(rank):
        model = Unit()
        numbered(model)
        return declared(wrapped(model), names=names)[0]
    ranks = each_rank(4, hold)
    bases = {"gate": ((3, 3), 0), "up": ((2, 3), 9), "p1": ((2, 5), 15), "p2": ((2,), 25)}
    for found in ranks:
        assert_right(found, bases)
    assert_all(ranks, bases)


def test_fsdp1__keeps_full_precision_whatever_it_computes_in():
    def hold(rank):
        model = Unit()
        numbered(model)
        model = wrapped(model, mixed_precision=MixedPrecision(param_dtype=torch.bfloat16))
        model(torch.ones(1))
        return declared(model)[2].locals
    assert each_rank(2, hold) == [[("_flat_param", "F32", (14,))]] * 2


def test_fsdp1__a_tied_parameter_that_is_to_be_apart_is_held_from_the_same_memory():
    def hold(rank):
        model = Model()
        bases = numbered(model)
        found, _, trainer = declared(wrapped(model), untie=["head.weight"])
        bases["head.weight"] = bases["embed.weight"]
        assert_right(found, bases)
        return found, bases
    ranks = each_rank(2, hold)
    assert_all([found for found, _ in ranks], ranks[0][1])


# ---- ZeRO-3

def partitioned(parameter, rank, world, **others):
    """As deepspeed.zero.Init leaves a parameter: empty, with its range in ds_tensor, padded."""
    values = parameter.detach().flatten()
    size = -(-values.numel() // world)
    shard = torch.full((size,), -7.0)
    mine = values[rank * size:(rank + 1) * size]
    shard[:mine.numel()] = mine
    shard.ds_numel, shard.status = size, types.SimpleNamespace(name="AVAILABLE")
    for name, value in others.pop("shard", {}).items():
        setattr(shard, name, value)
    parameter.ds_shape, parameter.ds_numel, parameter.ds_id = parameter.shape, parameter.numel(), id(parameter)
    parameter.ds_tensor, parameter.ds_zero_partition_rank = shard, rank
    parameter.ds_secondary_tensor = torch.full((3 * size,), -9.0)  # stale
    parameter.data = torch.empty(0)
    for name, value in others.items():
        setattr(parameter, name, value)


class Engine(nn.Module):
    """deepspeed.initialize's."""

    def __init__(self, module):
        super().__init__()
        self.module = module


def zero3(rank, world, **others):
    model = Model()
    bases = numbered(model)
    for parameter in model.parameters():
        partitioned(parameter, rank, world, **others)
    return Engine(model), bases


@pytest.mark.parametrize("world", [1, 4, 7])
def test_zero3__declares_each_parameters_own_range(world):
    """The last ranks' padding is in no tensor, and of small parameters the last ranks have nothing."""
    def hold(rank):
        model, bases = zero3(rank, world)
        found, _, trainer = declared(model)
        assert_right(found, bases)
        return found, bases, trainer.flats
    ranks = each_rank(world, hold, alone)
    assert_all([found for found, *_ in ranks], ranks[0][1])
    if world == 4:
        flats = [[flat[1:3] for flat in flats if flat[0] == "layers.0.p0"] for *_, flats in ranks]
        assert flats == [[(0, 4)], [(4, 8)], [(8, 12)], [(12, 15)]]
    if world == 7:
        assert "layers.0.p2" not in ranks[2][0]


def test_zero3__reads_the_partition_of_a_parameter_that_is_gathered_too():
    """Persistent ones are, between steps."""
    model, bases = zero3(1, 2)
    for name, parameter in model.module.named_parameters():
        shape, first = bases[name]
        parameter.data = numbers(shape, first).float()
    assert_right(declared(model)[0], bases)


def test_zero3__asks_the_partitions_own_group_for_its_rank():
    def hold(rank):
        model, bases = zero3(rank // 2, 2)
        group = torch.distributed.new_group([rank % 2, rank % 2 + 2])
        for parameter in model.parameters():
            del parameter.ds_zero_partition_rank
            parameter.ds_process_group = group
        assert_right(declared(model)[0], bases)
    for rank in range(4):
        groups = [[0, 2], [1, 3]]

        def init(number, world, rank=rank):
            from ranks import fake
            fake(rank, 4)
        assert groups and each_rank(1, lambda number, rank=rank: hold(rank), init) == [None]


@pytest.mark.parametrize("shard, error, words", [
    ({"ds_quant_scale": torch.ones(1)}, weft.UsageError, "stored quantised"),
    ({"status": types.SimpleNamespace(name="NOT_AVAILABLE")}, weft.UsageError, "NVMe"),
])
def test_zero3__a_partition_that_is_not_there_is_refused_by_name(shard, error, words):
    model, _ = zero3(0, 2, shard=shard)
    with pytest.raises(error, match=rf"'embed\.weight'.*{words}"):
        weft.torch.declare(Recorder(), model)


def test_zero3__states_that_are_offloaded_are_refused_by_name():
    model, _ = zero3(0, 2)
    trainer = Recorder()
    record = weft.torch.declare(trainer, model)
    for parameter in model.parameters():
        parameter.ds_tensor.data = torch.empty(0)
    with pytest.raises(weft.StateError, match="'embed.weight'.*offload_states"):
        record.memory(model)
