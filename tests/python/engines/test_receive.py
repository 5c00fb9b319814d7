# SPDX-License-Identifier: Apache-2.0
"""Whole jobs over shm, in a process each: a Sender's trainers, and the ranks of toy engines. After every version each live
model is what a load of that version would have left, to the bit, derived tensors and all."""
import contextlib
import re
import time

import pytest
import torch
import toy
from forked import SECONDS, Child, all_done

import weft
import weft.engines
from weft.engines._describe import must
from weft.engines._state import equal, state_of

NOWHERE = "tcp://127.0.0.1:1"  # for what is refused before anybody is asked


def wrong(model, version, habits, listed, **size):
    """What is not as a load of the version leaves it."""
    want = state_of(toy.engine_model(habits, version=version, listed=listed, **size))
    have = state_of(model)
    return [name for name in want if name not in have or not equal(have[name], want[name])]


def trainer(listed, versions=(1, 2), send=None, **options):
    """One trainer, which says the endpoints. ``send(sender, hear)`` in place of sending versions."""
    def run(say, hear):
        memory = "cuda" if torch.get_default_device().type == "cuda" else None
        with weft.engines.Sender(listed.values(), update_timeout_s=SECONDS, join_timeout_s=SECONDS, memory=memory,
                                 **options) as sender:
            say([sender.endpoint(engine) for engine in range(sender.engines)])
            sender.join()
            if send is not None:
                return send(sender, hear)
            for version in versions:
                sender.send(toy.values(listed, version), version)
            return sender.stats()
    return Child(run)


def receiver(endpoint, habits=(), versions=(1, 2), receive=None, listed=None, load=None, **size):
    """One rank. ``receive(receiver, model, say, hear)`` in place of receiving versions: what is wrong after each."""
    def run(say, hear):
        model = toy.engine_model(habits, version=9, listed=listed, **size)
        with weft.engines.Receiver(model, endpoint, load=load and load(model)) as rank:
            rank.join()
            if receive is not None:
                return receive(rank, model, say, hear)
            bad = []
            for version in versions:
                assert rank.receive(version) == version == rank.version
                bad += wrong(model, version, habits, listed, **size)
            return rank.way, bad, rank.notes, rank.stats()
    return Child(run)


def job(habits=(), engines=1, world=1, options=None, checkpoint=None, **size):
    """What each rank returned, engine by engine."""
    listed = toy.tensors(size.get("layers", 2), size.get("dense", 1), habits, **(checkpoint or {}))
    ranks = size.pop("ranks", 1)
    size = {"layers": 2, **size}
    mine = {"engines": engines, "ranks": ranks, "world": world, **(options or {})}
    trainers = [trainer(listed, **mine)]
    endpoints = trainers[0].heard()
    trainers += [trainer(listed, rank=rank, controller=endpoints[0]["controller"], **mine) for rank in range(1, world)]
    return all_done([*trainers[1:], *(receiver(endpoint, habits, rank=rank, listed=listed, **size)
                                      for endpoint in endpoints for rank in range(ranks)), trainers[0]])[world - 1:-1]


@pytest.mark.parametrize("habits", ["swap absorb turned", "attribute float helper ones sentinel", "loaded buffer pad rename"])
def test_direct__updates_are_what_a_load_leaves(habits):
    (way, bad, notes, stats), = job(habits.split())
    assert (way, bad) == ("direct", []) and any("layout: by a probe" in note for note in notes)
    assert 0 < stats["write_s"] + stats["post_load_s"] <= stats["update_s"] and stats["bytes"] > 0


@pytest.mark.parametrize("habits", [["product"], ["max"], ["attribute", "stale"]])
def test_loader__is_the_way_where_writes_are_not_enough(habits):
    (way, bad, notes, _), = job(habits)
    assert (way, bad) == ("loader", []) and any(note.startswith("loader: after a load the engine computes") for note in notes)


def test_loader__is_the_way_where_trainers_ask_for_it():
    (way, bad, notes, _), = job(["swap"], options={"layout": "loader"})
    assert (way, bad) == ("loader", []) and "loader: as the trainers asked" in notes


def test_dtype__of_trainers_that_the_engine_has_otherwise_is_converted():
    (way, bad, _, _), = job(["attribute"], checkpoint={"dtype": "F32"})
    assert (way, bad) == ("direct", [])


def test_engines__each_have_their_ranks_and_trainers_share_the_sending():
    results = job(["swap"], engines=2, world=2, ranks=2, tp=2)
    assert [(way, bad) for way, bad, _, _ in results] == [("direct", [])] * 4


def test_stages__each_take_their_layers():
    results = job(["attribute"], ranks=2, stages=2, layers=3)
    assert [(way, bad) for way, bad, _, _ in results] == [("direct", [])] * 2


def test_dummies__where_no_load_writes_get_what_a_load_leaves():
    listed = toy.tensors(2, habits=["ones"])

    def receive(rank, model, say, hear):
        rank.receive(1)
        return rank.notes, wrong(model, 1, ["ones", "sentinel"], listed, layers=2)
    sends = trainer(listed, versions=[1], engines=1, ranks=1)
    gets = receiver(sends.heard()[0], ["ones", "sentinel", "dummy"], receive=receive, listed=listed, layers=2)
    notes, bad = all_done([gets, sends])[0]
    assert bad == [] and any("4 parameters have, where no load writes, other values than a new model" in note for note in notes)


def test_head__that_is_the_embeddings_memory_is_written_once():
    (way, bad, _, _), = job(["alias"])
    assert (way, bad) == ("direct", [])


# ---- what fails, and what comes after

def test_update__given_up_taints_the_engine_and_a_later_one_recovers():
    listed = toy.tensors(2)

    def send(sender, hear):
        def half(version):
            yield from list(toy.values(listed, version))[:9]
            raise ZeroDivisionError("a loss was not a number")
        sender.send(toy.values(listed, 1), 1)
        with pytest.raises(ZeroDivisionError):
            sender.send(half(2), 2)
        with pytest.raises(weft.UsageError, match="version 3 lacks 9 of"):
            sender.send(list(toy.values(listed, 3))[9:], 3)
        sender.send(toy.values(listed, 4), 4)

    def receive(rank, model, say, hear):
        found = [(rank.receive(1), rank.tainted)]
        for version in (2, 3):
            with pytest.raises(weft.Aborted, match="trainer 0"):
                rank.receive(version)
            found.append((rank.version, rank.tainted))
        return [*found, (rank.receive(4), rank.tainted), wrong(model, 4, (), listed, layers=2)]
    sends = trainer(listed, send=send, engines=1, ranks=1)
    gets = receiver(sends.heard()[0], receive=receive, layers=2)
    assert all_done([gets, sends])[0] == [(1, False), (0, True), (0, True), (4, False), []]


def test_update__given_up_before_the_engines_own_loader_began_leaves_the_last_version():
    listed = toy.tensors(2)

    def send(sender, hear):
        sender.send(toy.values(listed, 1), 1)
        with pytest.raises(weft.UsageError, match="version 2 lacks"):
            sender.send(list(toy.values(listed, 2))[9:], 2)

    def receive(rank, model, say, hear):
        rank.receive(1)
        with pytest.raises(weft.Aborted):
            rank.receive(2)
        return rank.version, rank.tainted, wrong(model, 1, (), listed, layers=2)
    sends = trainer(listed, send=send, engines=1, ranks=1, layout="loader")
    assert all_done([receiver(sends.heard()[0], receive=receive, layers=2), sends])[0] == (1, False, [])


def test_trainer__that_is_killed_ends_the_engines_wait_with_its_name():
    listed = toy.tensors(2)

    def send(sender, hear):
        def slowly():
            for number, pair in enumerate(toy.values(listed, 1)):
                if number == 5:
                    time.sleep(SECONDS)
                yield pair
        sender.send(slowly(), 1)

    def receive(rank, model, say, hear):
        say("joined")
        began = time.monotonic()
        with pytest.raises(weft.PeerLost, match="trainer 1 .*(was lost|is gone)"):  # whoever finds it first
            rank.receive(1)
        found = time.monotonic() - began, rank.tainted
        rank.close()
        return found
    first = trainer(listed, send=send, engines=1, ranks=1, world=2)
    endpoint = first.heard()[0]
    second = trainer(listed, send=send, engines=1, ranks=1, world=2, rank=1, controller=endpoint["controller"])
    gets = receiver(endpoint, receive=receive, layers=2)
    assert gets.heard() == "joined"
    time.sleep(0.3)
    second.kill()
    try:
        took, tainted = gets.done()
    finally:
        first.kill()
    assert took < 15 and tainted


def test_parameter__that_moved_since_join_is_refused_by_name():
    listed = toy.tensors(2)

    def receive(rank, model, say, hear):
        weight = model.model.norm.weight
        weight.data = weight.data.clone()
        with pytest.raises(weft.StateError, match=r"1 parameters do not lie where they lay at join, first model\.norm\.weight"):
            rank.receive(1)
        del model.lm_head.weight
        with pytest.raises(weft.StateError, match="2 parameters do not lie"):
            rank.receive(1)

    def send(sender, hear):
        return None
    sends = trainer(listed, send=send, engines=1, ranks=1)
    all_done([receiver(sends.heard()[0], receive=receive, layers=2), sends])


def test_load__of_the_callers_own_that_fails_taints_and_says_why():
    listed = toy.tensors(2)
    calls = []

    def load(model):
        def run(named):
            calls.append(dict(named).keys())
            if len(calls) == 1:
                raise LookupError("no such layer here")
            model.norms = len(calls)
        return run

    def receive(rank, model, say, hear):
        with pytest.raises(weft.HookFailed, match="LookupError: no such layer here"):
            rank.receive(1)
        tainted = rank.tainted and rank.version == 0
        return tainted, rank.receive(2), rank.tainted, calls[1] == listed.keys(), rank.way

    sends = trainer(listed, engines=1, ranks=1, layout="loader")
    gets = receiver(sends.heard()[0], receive=receive, load=load, layers=2)
    assert all_done([gets, sends])[0] == (True, 2, False, True, "loader")


def test_join__without_the_engine_names_who_is_missing():
    with weft.engines.Sender(toy.tensors(2).values(), engines=1, ranks=2) as sender, \
            pytest.raises(weft.WaitTimeout, match=r"inference"):
        sender.join(0.3)


# ---- refused before any job

def refused(kind, words, model, **endpoint):
    with pytest.raises(kind, match=words) as failure:
        weft.engines.Receiver(model, {"controller": NOWHERE, **endpoint})
    return str(failure.value)


def given(change=None, habits=()):
    listed = toy.tensors(2, habits=habits)
    if change:
        change(listed)
    return [[tensor.name, tensor.dtype, list(tensor.shape)] for tensor in listed.values()]


@pytest.fixture
def checkpoint(tmp_path):
    """A folder with config and checkpoint, as an engine has it."""
    import json
    import struct

    def make(habits=(), dtype="BF16"):
        (tmp_path / "config.json").write_text(json.dumps(toy.config(2)))
        header = {tensor.name: {"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [0, 0]}
                  for tensor in toy.tensors(2, habits=habits, dtype=dtype).values()}
        text = json.dumps(header).encode()
        (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text)
        return str(tmp_path)
    return make


def larger(listed):
    name = "model.embed_tokens.weight"
    listed[name] = listed[name]._replace(shape=(toy.VOCABULARY + 5, toy.HIDDEN))


def without(listed):
    del listed["model.layers.1.mlp.gate.weight"]


@pytest.mark.parametrize("layout", ["auto", "probe", "loader"])
def test_trainers__that_send_another_shape_than_the_engines_checkpoint_are_refused(checkpoint, layout):
    model = toy.engine_model(layers=2, folder=checkpoint())
    refused(weft.ConflictError, r"trainers send model.embed_tokens.weight \[208, 64\], and the engine's checkpoint has it "
                                r"\[203, 64\]", model, tensors=given(larger), layout=layout)


@pytest.mark.parametrize("layout", ["auto", "probe", "loader"])
def test_trainers__that_lack_a_tensor_of_the_engines_are_refused(checkpoint, layout):
    model = toy.engine_model(layers=2, folder=checkpoint())
    refused(weft.UsageError, "the engine wants 1 tensors that the trainers do not send, first model.layers.1.mlp.gate.weight",
            model, tensors=given(without), layout=layout)


def test_trainers__whose_dtype_the_engines_loader_was_not_made_for_are_refused(checkpoint):
    model = toy.engine_model(["product"], layers=2, folder=checkpoint(["product"], "F8_E4M3"))
    refused(weft.ConflictError, "as BF16, and the engine's checkpoint has F8_E4M3: its own loader, which this engine needs",
            model, tensors=given(habits=["product"]), layout="loader")


def test_parameters__that_share_memory_and_are_of_other_elements_are_refused():
    model = toy.engine_model(layers=2)
    description = weft.engines.describe(model, tensors=toy.tensors(2))
    model.lm_head.weight.data = model.model.embed_tokens.weight.data
    with pytest.raises(weft.ConflictError, match="model.embed_tokens.weight and lm_head.weight share memory"):
        weft.engines.Receiver(model, {"controller": NOWHERE}, description=description)


@pytest.mark.parametrize("how", ["turned", "gone", "float"])
def test_description__of_another_model_is_refused(how):
    model = toy.engine_model(layers=2)
    description = weft.engines.describe(model, tensors=toy.tensors(2))
    layer = model.model.layers["0"].self_attn.o_proj
    if how == "gone":
        del layer.weight
    else:
        layer.weight = torch.nn.Parameter(layer.weight.t() if how == "turned" else layer.weight.float(), requires_grad=False)
    with pytest.raises(weft.ConflictError, match="self_attn.o_proj.weight is .*: describe the engine anew"):
        weft.engines.Receiver(model, {"controller": NOWHERE}, description=description)


def test_engine__whose_reload_is_wrong_and_writes_are_not_enough_is_refused():
    model = toy.engine_model(["product", "forgets"], layers=2)
    words = refused(weft.ConflictError, "no write makes them", model, tensors=given(habits=["product"]))
    assert re.search("after a load it computes", words)


def test_rows__are_used_where_they_agree_and_the_order_of_halves_is_the_probes():
    model = toy.engine_model(["swap", "loaded"], layers=2, dense=0)
    description = weft.engines.describe(model, tensors=toy.tensors(2, 0, ["loaded"]))
    assert description.infer.endswith("expert_halves=up_gate") and must(description).source == "rows"
    assert "model.layers.1.mlp.gate.bias" in {param.name for param in description.layout.params}, "a buffer, which rows do not know"


def test_close__twice_and_in_a_with_block():
    model = toy.engine_model(layers=2)
    with contextlib.closing(weft.engines.Receiver(model, {"controller": NOWHERE, "tensors": given()})) as rank:
        rank.close()
        assert rank.inference.state == "closed"
