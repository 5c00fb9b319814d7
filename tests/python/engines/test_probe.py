# SPDX-License-Identifier: Apache-2.0
"""What a probe finds of an engine that does to its weights what engines do. Each layout is proved on values: an update by
its pieces, into a live model with other weights, leaves what a load of those weights would have left."""
import copy

import pytest
import torch
import toy

import weft
import weft.engines
from weft.engines._describe import must
from weft.engines._marks import in_memory
from weft.engines._probe import probe
from weft.engines._state import bytes_of, equal, loadable, state_of


def described(habits=(), **size):
    model = toy.engine_model(habits, version=1, **size)
    listed = toy.tensors(size.get("layers", 4), size.get("dense", 1), habits)
    return model, weft.engines.describe(model, tensors=listed, layout="probe")


@pytest.fixture
def other_default_device():
    """Of the host's process; the engine's own code sets its device, as engines do."""
    torch.set_default_device("meta")
    yield
    torch.set_default_device(None)


class OnCpu(toy.Toy):
    def __getattribute__(self, name):
        mine = super().__getattribute__(name)
        if name not in ("scratch", "load", "process", "derive", "reload"):
            return mine

        def on_cpu(*arguments):
            with torch.device("cpu"):
                return mine(*arguments)
        return on_cpu


def test_default_device__of_the_host_changes_nothing_of_a_probe(request):
    habits = ["swap", "pad", "ones", "sentinel", "attribute"]
    model, listed = toy.engine_model(habits, version=1), toy.tensors(4, 1, habits)
    want = probe(OnCpu(model), listed, reload=True)
    request.getfixturevalue("other_default_device")
    found = probe(OnCpu(model), listed, reload=True)
    assert found.layout.params == want.layout.params and found.layout.derived == want.layout.derived


def write(model, layout, listed, version):
    """What weft does: the pieces' bytes, and zeroes where nothing is."""
    given, live = dict(toy.values(listed, version)), loadable(model)
    for param in layout.params:
        memory = bytes_of(live[param.name])
        kept = [(place, memory[place[0]:place[1]].clone()) for place in param.kept]
        for first, last in param.fills + param.kept:
            memory[first:last] = 0
        for piece in param.pieces:
            box = given[piece.tensor][tuple(slice(lo, hi) for lo, hi in zip(piece.lo, piece.hi))]
            box = box.transpose(-1, -2) if piece.transform is not None and piece.transform.transposed else box
            box = box.to(live[param.name].dtype).contiguous().view(-1)
            memory[piece.offset_bytes:piece.offset_bytes + piece.bytes] = box.view(torch.uint8)
        for (first, last), value in kept:
            memory[first:last] = value


def assert_updated(habits=(), **size):
    """The description and the model after an update, which is as a load would have left it."""
    model, description = described(habits, **size)
    listed = toy.tensors(size.get("layers", 4), size.get("dense", 1), habits)
    write(model, must(description), listed, 2)
    engine = weft.engines.engine_of(model)
    engine.derive(model, engine.context())
    have, want = state_of(model), state_of(toy.engine_model(habits, version=2, **size))
    wrong = [name for name in want if not equal(have[name], want[name]) and not name.endswith("workspace")]
    assert set(want) <= set(have) and not wrong, wrong
    return description


MOVING = ["", "up_gate", "swap", "transposed", "beside", "turned", "sentinel", "ones", "absorb", "attribute", "buffer", "float",
          "helper", "view", "norms", "loaded", "pad", "pad rename", "noise", "projector",
          "up_gate swap absorb turned attribute float loaded ones rename"]


@pytest.mark.parametrize("habits", MOVING)
def test_update__by_a_probed_layout_leaves_what_a_load_leaves(habits):
    assert not assert_updated(habits.split(), tp=2, rank=1).computed


@pytest.mark.parametrize("rank", range(4))
def test_update__of_each_rank_of_pipeline_stages(rank):
    assert_updated(["swap", "attribute"], layers=6, tp=2, stages=2, rank=rank)


@pytest.mark.parametrize("rank", range(2))
def test_update__of_stages_with_uneven_layers(rank):
    """Of 5 layers on 2 stages, each stage's own are updated: what the checkpoint's cut leaves out is not taken for what no load
    writes."""
    assert_updated(layers=5, dense=0, stages=2, rank=rank)


def test_layers__of_another_kind_are_probed_each_and_others_are_like_them():
    _, description = described(layers=6, dense=2)
    model = toy.engine_model(layers=6, dense=2)
    found = probe(weft.engines.engine_of(model), toy.tensors(6, 2))
    assert found.layers == 3 and {param.name for param in description.layout.params} == set(loadable(model))


def test_halves__that_change_places_after_the_load_are_written_in_their_final_place():
    _, swapped = described(["swap"])
    _, plain = described()
    w13 = "model.layers.1.mlp.experts.w13_weight"
    first = {each: next(param for param in description.layout.params if param.name == w13).pieces[0].tensor
             for each, description in (("swapped", swapped), ("plain", plain))}
    assert "up_proj" in first["swapped"] and "gate_proj" in first["plain"]
    assert f"{w13}: elements are moved" in swapped.moved and not plain.moved


def test_parameter__that_no_load_writes_keeps_what_post_load_work_reads():
    model, description = described(["sentinel"])
    assert not [param for param in description.layout.params if "k_scale" in param.name]
    assert any("no load changes 4 parameters, first model.layers.0.self_attn.k_scale" in note for note in description.notes)


@pytest.mark.parametrize("habit, what", [("max", "scales: 1 of 1 elements are computed"),
                                         ("product", "qkv_proj.weight: 8192 of 8192 elements are computed")])
def test_computed__parameters_are_refused_with_why(habit, what):
    _, description = described([habit])
    assert any(what in line for line in description.computed), description.computed
    with pytest.raises(weft.ConflictError, match="no write makes them. Say layout=loader"):
        must(description)
    assert description.reload_refused == ""


@pytest.mark.parametrize("habit", ["attribute", "buffer", "float", "helper", "view", "norms"])
def test_stale__is_what_is_derived_and_not_derived_again(habit):
    _, description = described([habit, "stale"])
    assert description.stale and all("self_attn" in name for name in description.stale)
    with pytest.raises(weft.ConflictError, match="derived from parameters"):
        must(description)


def test_stale__is_what_drifts_when_it_is_derived_again_and_again():
    _, description = described(["drift"])
    assert "model.layers.0.self_attn.drifts" in description.stale


def test_memory__that_nobody_writes_is_not_stale():
    assert described(["noise", "attribute", "stale"])[1].stale == ("model.layers.0.self_attn.w_v", "model.layers.1.self_attn.w_v")


@pytest.mark.parametrize("habits, why", [(["max", "forgets"], "own reload failed on marked weights: RuntimeError"),
                                         (["product", "forgets"], "own reload leaves 2 tensors otherwise than a first load"),
                                         (["product"], "")])
def test_reload__that_is_wrong_is_refused(habits, why):
    refused = described(habits)[1].reload_refused
    assert why in refused and bool(why) == bool(refused)


def test_live_model__is_not_touched():
    model = toy.engine_model(["absorb", "attribute"], version=1)
    before = copy.deepcopy(state_of(model))
    torch.manual_seed(5)
    drawn = torch.rand(1)
    torch.manual_seed(5)
    weft.engines.describe(model, tensors=toy.tensors(habits=["absorb", "attribute"]), layout="probe")
    assert torch.equal(torch.rand(1), drawn), "the engine's random numbers are its own"
    after = state_of(model)
    assert before.keys() == after.keys() and all(equal(before[name], after[name]) for name in before)


def test_live_model__that_differs_from_a_new_one_is_refused():
    model = toy.engine_model(tp=2)
    weight = model.model.layers["0"].self_attn.o_proj.weight
    model.model.layers["0"].self_attn.o_proj.weight = torch.nn.Parameter(weight.float(), requires_grad=False)
    note = weft.engines.describe(model, tensors=toy.tensors()).notes[0]
    assert "self_attn.o_proj.weight is torch.float32 (64, 32)" in note and "changed after it was loaded" in note


def test_live_model__whose_square_parameter_lies_turned_is_refused():
    model = toy.engine_model()
    layer = model.model.layers["0"].self_attn.o_proj
    layer.weight = torch.nn.Parameter(layer.weight.t(), requires_grad=False)
    assert in_memory(layer.weight).shape == layer.weight.shape
    refused = weft.engines.describe(model, tensors=toy.tensors(), layout="probe").refusals
    assert "o_proj.weight is torch.bfloat16 (64, 64) with strides (1, 64) in the running engine" in refused[0]


def test_live_model__without_a_parameter_that_a_new_one_has_is_refused():
    model = toy.engine_model()
    del model.model.layers["0"].self_attn.q_norm.weight
    refused = weft.engines.describe(model, tensors=toy.tensors(), layout="probe").refusals
    assert "q_norm" in refused[0]


@pytest.mark.parametrize("change", ["gone", "other shape", "more"])
def test_checkpoint__whose_later_layer_has_other_tensors_is_refused(change):
    model, listed = toy.engine_model(), toy.tensors()
    name = "model.layers.3.mlp.experts.2.up_proj.weight"
    if change == "gone":
        del listed[name]
    elif change == "other shape":
        listed[name] = listed[name]._replace(shape=(8, 8))
    else:
        listed["model.layers.3.self_attn.q_proj.scale"] = weft.Tensor("model.layers.3.self_attn.q_proj.scale", "F32", (1,))
    refused = weft.engines.describe(model, tensors=listed, layout="probe").refusals
    assert "layers 1 and 3 of the checkpoint are not alike: first model.layers.N." in refused[0], refused


def test_layers__whose_tensors_have_other_layers_numbers_are_refused():
    model = toy.engine_model(["shifted"])
    refused = weft.engines.describe(model, tensors=toy.tensors(), layout="probe").refusals
    assert "q_norm.weight is made of model.layers.0.self_attn.q_norm.weight, which has another layer's number" in refused[0]


@pytest.mark.parametrize("dtype, experts, taken", [("BF16", False, True), ("BF16", True, False), ("F8_E4M3", False, False)])
def test_rows__alone_are_taken_only_where_nothing_can_lie_another_way(dtype, experts, taken):
    from weft.engines._describe import _Reading
    from weft.engines._layout import Layout, Param
    reading = _Reading(weft.engines.engine_of(toy.engine_model()), None, "auto")
    rows = Layout((Param("mlp.experts.w13_weight" if experts else "q.weight", dtype, (4, 4)),), {}, "rows")
    assert reading._rows_alone(rows) is (rows if taken else None)
    assert taken or "no probe could be made: say layout=rows" in reading.notes[-1]
    assert _Reading(reading.engine, None, "rows")._rows_alone(rows) is rows


@pytest.mark.parametrize("habit, words", [
    ("fails", "toy's own loader failed on marked weights: KeyError: 'model.layers.0.self_attn.q_norm.weight'"),
    ("full", "no memory for a second model of 2 layers.*1 GiB more is not there.*or say layout=rows"),
    ("strict", "toy's own loader failed on marked weights: ValueError: scales of q and k must be equal")])
def test_engine__that_cannot_be_probed_says_why(habit, words):
    have = ["max"] if habit == "strict" else []
    model = toy.engine_model(have)
    model.size = {**model.size, "habits": frozenset([*have, habit])}
    description = weft.engines.describe(model, tensors=toy.tensors(habits=have), layout="probe")
    assert description.layout is None
    with pytest.raises(weft.UnsupportedError, match=words):
        must(description)


def test_dtype__that_weft_does_not_move_is_named_with_its_parameter():
    model = toy.engine_model()
    model.lm_head.scale = torch.nn.Parameter(torch.zeros(2, dtype=torch.complex64), requires_grad=False)
    with pytest.raises(weft.UnsupportedError, match=r"parameter lm_head.scale: dtype torch.complex64"):
        weft.engines.describe(model, tensors=toy.tensors())


def test_module__of_no_engine_is_refused():
    with pytest.raises(weft.UsageError, match="Linear is no model, worker or model runner of vLLM or SGLang"):
        weft.engines.describe(torch.nn.Linear(2, 2))
