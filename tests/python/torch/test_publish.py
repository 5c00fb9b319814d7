# SPDX-License-Identifier: Apache-2.0
"""What is gathered, and what publish makes of a model that moved, changed, or was left unsharded."""
import asyncio

import pytest
import torch
from ranks import each_rank
from recorder import Publisher, Recorder, assert_right, numbered, numbers
from test_declare import NAMES, Model, orders, strange
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

import weft.torch

# ---- gathered

def test_gathered__names_are_whole_tensors_behind_the_others_and_written_in_each_publish():
    model, trainer, calls = strange("class"), Publisher(), []

    def make():
        calls.append(len(calls))
        yield "layers.0.weight", torch.full((8, 4), float(len(calls)))
        yield "merged", torch.ones(3, dtype=torch.bfloat16).requires_grad_()
        yield "elsewhere", None
    declared = weft.torch.declare(trainer, model, gathered=make)
    assert orders(trainer) == {"embed.weight": 0, "layers.0.bias": 1, "layers.1.weight": 2, "layers.0.weight": 3,
                               "merged": 4}
    weft.torch.publish(trainer, model, 7)
    assert calls == [0, 1] and trainer.calls == [("begin", 7), "write", "write", "write_all", "end"]
    assert torch.equal(trainer.written[declared.gathered["layers.0.weight"]], torch.full((8, 4), 2.0))
    assert sorted(trainer.written) == list(range(len(trainer.locals)))


def test_gathered__memory_is_bounded_by_draining(monkeypatch):
    monkeypatch.setattr(weft.torch._publish, "GATHERED_BYTES", 100)
    model, trainer = nn.Module(), Publisher()
    weft.torch.declare(trainer, model, gathered=lambda: ((f"t{i}", torch.zeros(20)) for i in range(4)))
    weft.torch.publish(trainer, model, 1)
    assert trainer.calls == [("begin", 1), "write", "write", "drain", "write", "write", "drain", "write_all", "end"]


def test_gathered__goes_on_where_a_drain_waits_for_scales_that_come_next(monkeypatch):
    monkeypatch.setattr(weft.torch._publish, "GATHERED_BYTES", 100)
    model, trainer = nn.Module(), Publisher()
    refusals = iter([weft.StateError("w was written, but what is made from it needs w_scale_inv too"), None])

    def drain():
        refusal = next(refusals)
        trainer.calls.append("drain" if refusal is None else "refused")
        if refusal is not None:
            raise refusal
    trainer.drain = drain
    weft.torch.declare(trainer, model, gathered=lambda: ((f"t{i}", torch.zeros(20)) for i in range(4)))
    weft.torch.publish(trainer, model, 1)
    assert trainer.calls == [("begin", 1), "write", "write", "refused", "write", "write", "drain", "write_all", "end"]


@pytest.mark.parametrize("later, words", [
    ([("a", torch.zeros(2))], "does not yield 'b'"), ([("a", None), ("b", torch.zeros(2))], "'a' as None"),
    ([("a", torch.zeros(2)), ("b", torch.zeros(2)), ("c", torch.zeros(2))], "'c'"),
    ([("a", torch.zeros(2)), ("a", torch.zeros(2))], "'a' twice")])
def test_gathered__that_differs_from_what_was_declared_gives_the_update_up(later, words):
    rounds = iter([[("a", torch.zeros(2)), ("b", torch.zeros(2))], later])
    model, trainer = nn.Module(), Publisher()
    weft.torch.declare(trainer, model, gathered=lambda: next(rounds))
    with pytest.raises(weft.UsageError, match=words):
        weft.torch.publish(trainer, model, 1)
    assert trainer.calls[-1] == "abort"


# ---- publish

def test_publish__sends_what_the_step_has_made():
    model, trainer = Model(), Publisher()
    weft.torch.declare(trainer, model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.5)
    for version in (1, 2):
        model(torch.tensor([1, 2])).sum().backward()
        optimizer.step()
        weft.torch.publish(trainer, model, version)
        assert torch.equal(trainer.written[0], model.embed.weight)
    assert trainer.calls == [("begin", 1), "write_all", "end", ("begin", 2), "write_all", "end"]


def test_publish_async__is_the_same():
    model, trainer = Model(), Publisher()
    weft.torch.declare(trainer, model, gathered=lambda: [("x", torch.ones(1))])
    asyncio.run(weft.torch.publish_async(trainer, model, 3))
    assert trainer.calls == [("begin", 3), "write", "write_all", "end"]


def test_publish__finds_parameters_that_moved():
    model, trainer = Model(), Publisher()
    weft.torch.declare(trainer, model)
    model.load_state_dict({name: torch.ones_like(value) for name, value in model.state_dict().items()}, assign=True)
    weft.torch.publish(trainer, model, 1)
    assert all((each == 1).all() for each in trainer.written.values())


def changed(model, what):
    if what == "dtype":
        model.layers[0].to(torch.bfloat16)
    elif what == "local shape":
        model.layers[0].weight = nn.Parameter(torch.zeros(9, 4))
    elif what == "cut":
        model.layers[0].weight = nn.Parameter(torch.zeros(4, 8).t())
    else:
        model.layers[0] = nn.Identity()


@pytest.mark.parametrize("what", ["dtype", "local shape", "cut", "no"])
def test_publish__names_a_parameter_that_is_not_what_was_declared_and_begins_nothing(what):
    model, trainer = Model(), Publisher()
    weft.torch.declare(trainer, model)
    changed(model, what)
    with pytest.raises(weft.StateError, match=rf"(?s){what}.*layers\.0\.weight|layers\.0\.weight.*{what}"):
        weft.torch.publish(trainer, model, 1)
    assert trainer.calls == []


def test_register__takes_each_storage_once_and_then_nothing_moves():
    model, trainer = Model(), Publisher()
    flat = torch.zeros(32 + 8)
    model.layers[0].weight.data, model.layers[0].bias.data = flat[:32].view(8, 4), flat[32:]
    weft.torch.declare(trainer, model, register=True)
    assert sorted(each.bytes for each in trainer.registered) == [96, 128, 160]
    weft.torch.publish(trainer, model, 1)
    model.layers[1].weight.data = model.layers[1].weight.data.clone()
    with pytest.raises(weft.StateError, match=r"'layers\.1\.weight' lies at .*registered"):
        weft.torch.publish(trainer, model, 2)


def test_declare__is_once_a_trainer_and_publish_comes_after_it():
    model, trainer = Model(), Publisher()
    with pytest.raises(weft.StateError, match="call weft.torch.declare"):
        weft.torch.publish(trainer, model, 1)
    weft.torch.declare(trainer, model)
    with pytest.raises(weft.StateError, match="has a model already"):
        weft.torch.declare(trainer, model)


# ---- FSDP2

@pytest.mark.parametrize("when", ["declare", "publish"])
def test_fsdp2__modules_that_are_gathered_are_put_back(when):
    """A root after its forward, and what was unsharded by hand: their parameters are plain tensors of other memory."""
    def hold(rank):
        model = Model()
        bases = numbered(model)
        for layer in model.layers:
            fully_shard(layer, mesh=init_device_mesh("cpu", (2,)))
        fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
        trainer = Publisher()
        if when == "publish":
            weft.torch.declare(trainer, model)
        model.unshard()
        model.layers[0].unshard()
        assert not isinstance(model.embed.weight, DTensor)
        if when == "declare":
            weft.torch.declare(trainer, model)
        weft.torch.publish(trainer, model, 1)
        assert isinstance(model.embed.weight, DTensor) and isinstance(model.layers[0].weight, DTensor)
        assert_right(trainer.found(trainer.written)[0], bases)
        assert trainer.rows["embed.weight"] == (3 * rank, 3 * rank + 3)
    each_rank(2, hold)


def test_fsdp2__tied_parameters_are_declared_once():
    def hold(rank):
        model, trainer = Model(), Recorder()
        fully_shard(model, mesh=init_device_mesh("cpu", (8,)))
        return weft.torch.declare(trainer, model).aliases, orders(trainer)
    ranks = each_rank(8, hold)
    assert all(aliases == {"lm_head.weight": "embed.weight"} for aliases, _ in ranks)
    assert all(order == NAMES.index(name) for _, places in ranks for name, order in places.items())
    assert "embed.weight" not in ranks[7][1]


def test_dtensor__that_is_cut_otherwise_than_when_it_was_declared_is_refused():
    def hold(rank):
        model, trainer, mesh = nn.Module(), Publisher(), init_device_mesh("cpu", (1,))
        model.weight = nn.Parameter(distribute_tensor(numbers((4, 4), 0), mesh, [Shard(0)], src_data_rank=None))
        weft.torch.declare(trainer, model)
        model.weight = nn.Parameter(distribute_tensor(numbers((4, 4), 0), mesh, [Replicate()], src_data_rank=None))
        with pytest.raises(weft.StateError, match="'weight' has cut.*Replicate.*Shard"):
            weft.torch.publish(trainer, model, 1)
    each_rank(1, hold)
