# SPDX-License-Identifier: Apache-2.0
"""Names, order, tied and left-out parameters, and those that have no boxes."""
import json

import pytest
import torch
import transformers
from ranks import each_rank
from recorder import Recorder, assert_right, numbered
from torch import nn

import weft.torch


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(6, 4)
        self.layers = nn.ModuleList([nn.Linear(4, 8), nn.Linear(8, 4, bias=False)])
        self.lm_head = nn.Linear(4, 6, bias=False)
        self.lm_head.weight = self.embed.weight
        self.register_buffer("bias", torch.arange(6.0))
        self.register_buffer("cache", torch.zeros(3), persistent=False)

    def forward(self, x):
        return self.lm_head(self.layers[1](self.layers[0](self.embed(x))))


NAMES = ["embed.weight", "layers.0.weight", "layers.0.bias", "layers.1.weight"]


def orders(trainer):
    return {name: order for name, (_, _, order) in trainer.declared.items()}


# ---- names

def test_plain__parameters_are_whole_tensors_in_the_models_order():
    model, trainer = Model(), Recorder()
    bases = numbered(model)
    declared = weft.torch.declare(trainer, model)
    assert orders(trainer) == {name: order for order, name in enumerate(NAMES)}
    assert trainer.rows == {"embed.weight": (0, 6), "layers.0.weight": (0, 8), "layers.0.bias": (0, 8),
                            "layers.1.weight": (0, 4)}
    found, left = trainer.found(declared.memory(model))
    assert_right(found, bases)
    assert not any(left.values())


def wrapped_in(kind):
    if kind == "compile":
        return torch.compile(Model())
    if kind == "checkpoint":
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
        model = Model()
        apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, nn.Linear))
        return model
    engine = nn.Module()
    engine.module = torch.compile(Model())
    outer = nn.Module()
    outer.module = engine
    return outer


@pytest.mark.parametrize("kind", ["compile", "checkpoint", "engines"])
def test_names__are_those_of_the_module_that_was_wrapped(kind):
    trainer = Recorder()
    weft.torch.declare(trainer, wrapped_in(kind))
    assert list(trainer.declared) == NAMES


def test_ddp__each_rank_holds_all():
    def hold(rank):
        trainer = Recorder()
        model = nn.parallel.DistributedDataParallel(Model())
        bases = {name.removeprefix("module."): each for name, each in numbered(model).items()}
        assert_right(trainer.found(weft.torch.declare(trainer, model).memory(model))[0], bases)
        return orders(trainer), trainer.rows
    first, second = each_rank(2, hold)
    assert first == second and list(first[0]) == NAMES


def test_tied__parameters_are_declared_once_under_the_first_name():
    model, trainer = Model(), Recorder()
    declared = weft.torch.declare(trainer, model)
    assert declared.aliases == {"lm_head.weight": "embed.weight"} and "lm_head.weight" not in trainer.declared


def test_tied__by_memory_is_tied_too():
    model, trainer = Model(), Recorder()
    model.lm_head.weight = nn.Parameter(model.embed.weight.data)
    assert weft.torch.declare(trainer, model).aliases == {"lm_head.weight": "embed.weight"}


def test_tied__name_that_is_demanded_is_a_tensor_of_its_own_from_the_same_memory():
    model, trainer = Model(), Recorder()
    declared = weft.torch.declare(trainer, model, untie=["lm_head.weight"])
    memory = declared.memory(model)
    ids = {name: number for number, (name, _, _) in enumerate(trainer.locals)}
    assert memory[ids["embed.weight"]].data_ptr() == memory[ids["lm_head.weight"]].data_ptr()


def test_tied__name_that_is_none_is_refused():
    with pytest.raises(weft.UsageError, match=r"'layers.0.weight' is no further name.*lm_head.weight"):
        weft.torch.declare(Recorder(), Model(), untie=["layers.0.weight"])


def test_names__hook_is_told_the_whole_parameter_and_answers_with_names_parts_or_nothing():
    told = {}

    def names(name, parameter):
        told[name] = parameter
        return {"embed.weight": "model.embed_tokens.weight", "layers.0.bias": None,
                "layers.0.weight": [("gate", slice(0, 4)), weft.torch.Part("up", slice(4, 8))]}.get(name, name)
    model, trainer = Model(), Recorder()
    bases = numbered(model)
    declared = weft.torch.declare(trainer, model, names=names)
    assert told["layers.0.weight"] == weft.Tensor("layers.0.weight", "F32", (8, 4))
    assert orders(trainer) == {"model.embed_tokens.weight": 0, "gate": 1, "up": 2, "layers.1.weight": 3}
    assert declared.skipped == ["layers.0.bias"]
    shape, first = bases["layers.0.weight"]
    assert_right(trainer.found(declared.memory(model))[0], {
        "model.embed_tokens.weight": bases["embed.weight"], "gate": ((4, 4), first), "up": ((4, 4), first + 16),
        "layers.1.weight": bases["layers.1.weight"]})


def test_experts_apart__are_the_tensors_of_the_checkpoint():
    parts = weft.torch.experts_apart("experts.down_proj", weft.Tensor("", "F32", (2, 3, 4)))
    assert [part.name for part in parts] == ["experts.0.down_proj.weight", "experts.1.down_proj.weight"]
    model = nn.Module()
    model.experts = nn.Module()
    model.experts.gate_up_proj = nn.Parameter(torch.empty(3, 4, 5))
    model.experts.down_proj = nn.Parameter(torch.empty(3, 5, 2))
    holder, trainer = nn.Module(), Recorder()
    holder.mlp = model
    numbered(holder)
    declared = weft.torch.declare(trainer, holder, names=weft.torch.experts_apart)
    found, left = trainer.found(declared.memory(holder))
    assert not any(left.values()) and len(found) == 9
    assert_right(found, {**{f"mlp.experts.{e}.gate_proj.weight": ((2, 5), e * 20) for e in range(3)},
                         **{f"mlp.experts.{e}.up_proj.weight": ((2, 5), e * 20 + 10) for e in range(3)},
                         **{f"mlp.experts.{e}.down_proj.weight": ((5, 2), 60 + e * 10) for e in range(3)}})


def test_skip__leaves_out_names_and_what_a_function_says():
    for skip in (["layers.1.weight"], lambda name: name.startswith("layers.1")):
        trainer = Recorder()
        weft.torch.declare(trainer, Model(), skip=skip)
        assert list(trainer.declared) == NAMES[:-1]
    with pytest.raises(weft.UsageError, match="one string"):
        weft.torch.declare(Recorder(), Model(), skip="layers.1.weight")


def test_buffers__that_are_asked_for_come_behind_the_parameters():
    for buffers in (True, ["bias"], lambda name: name == "bias"):
        trainer = Recorder()
        weft.torch.declare(trainer, Model(), buffers=buffers)
        assert list(trainer.declared) == [*NAMES, "bias"]


def test_order__of_stages_is_given_by_the_names_of_all():
    model, trainer = Model(), Recorder()
    weft.torch.declare(trainer, model.layers, names=lambda name, _: f"layers.{name}", order=[*NAMES, "other"])
    assert orders(trainer) == {"layers.0.weight": 1, "layers.0.bias": 2, "layers.1.weight": 3}
    with pytest.raises(weft.UsageError, match="`order` has no 'embed.weight'"):
        weft.torch.declare(Recorder(), Model(), order=["layers.0.weight"])


def test_stages__of_one_rank_are_one_model():
    first, second = nn.Module(), nn.Module()
    first.layers, second.layers = nn.ModuleDict({"0": nn.Linear(2, 2)}), nn.ModuleDict({"4": nn.Linear(2, 2)})
    trainer = Recorder()
    weft.torch.declare(trainer, [first, second])
    assert list(trainer.declared) == ["layers.0.weight", "layers.0.bias", "layers.4.weight", "layers.4.bias"]
    with pytest.raises(weft.UsageError, match="twice"):
        weft.torch.declare(Recorder(), [first, first])


def test_gpt2__declares_its_transposed_linears_as_they_are():
    config = transformers.GPT2Config(n_embd=8, n_layer=1, n_head=2, vocab_size=11, n_positions=5)
    model, trainer = transformers.GPT2LMHeadModel(config), Recorder()
    bases = numbered(model)
    declared = weft.torch.declare(trainer, model)
    assert declared.aliases == {"lm_head.weight": "transformer.wte.weight"}
    assert trainer.declared["transformer.h.0.attn.c_attn.weight"][1] == (8, 24)
    assert_right(trainer.found(declared.memory(model))[0], bases)


# ---- memory that is not as it looks

def test_memory__that_is_not_contiguous_is_declared_with_its_strides():
    """A transposed parameter, and one that is a column of a table."""
    model, trainer = nn.Module(), Recorder()
    table = torch.empty(5, 7)
    model.a, model.b = nn.Parameter(torch.empty(4, 3).t()), nn.Parameter(table[:, 2:4])
    bases = numbered(model)
    declared = weft.torch.declare(trainer, model)
    memory = declared.memory(model)
    assert [each.shape for each in memory.values()] == [(12,), (30,)]
    assert memory[0].data_ptr() == model.a.data_ptr() and memory[1].data_ptr() == model.b.data_ptr()
    assert_right(trainer.found(memory)[0], bases)


class Packed(torch.Tensor):
    """As quantised tensors are: their elements are made when they are asked for."""

    @staticmethod
    def __new__(cls, shape):
        return torch.Tensor._make_wrapper_subclass(cls, shape)

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        if function is torch.ops.aten.detach.default:
            return args[0]
        raise NotImplementedError(function)


def strange(kind):
    model = Model()
    if kind == "class":
        model.layers[0].weight = nn.Parameter(Packed((8, 4)))
    elif kind == "bits":
        model.layers[0].weight.quant_state = object()
    elif kind == "expanded":
        model.layers[0].weight = nn.Parameter(torch.zeros(1, 4).expand(8, 4))
    elif kind == "meta":
        model.layers[0].weight = nn.Parameter(torch.empty(8, 4, device="meta"))
    elif kind == "dtype":
        model.layers[0].weight = nn.Parameter(torch.zeros(8, 4, dtype=torch.complex64))
    elif kind == "megatron":
        model.layers[0].weight.tensor_model_parallel = True
    else:
        model.layers[0].weight.data.untyped_storage().resize_(0)
    return model


@pytest.mark.parametrize("kind, words", [
    ("class", "Packed.*gathered"), ("bits", "quantised.*gathered"), ("expanded", "share memory"),
    ("meta", "meta device"), ("dtype", "complex64.*gathered"), ("megatron", "megatron_train"), ("freed", "no storage")])
def test_parameter__that_has_no_boxes_is_refused_by_name(kind, words):
    with pytest.raises(weft.Error, match=rf"(?s)'layers\.0\.weight'.*{words}"):
        weft.torch.declare(Recorder(), strange(kind))


def test_parameter__that_is_marked_as_another_on_each_rank_is_refused():
    model = Model()
    next(model.parameters()).allreduce = False  # DeepSpeed's experts
    with pytest.raises(weft.UsageError, match="allreduce = False"):
        weft.torch.declare(Recorder(), model)
    weft.torch.declare(Recorder(), model, names=lambda name, parameter: name)  # the user says what they are


def test_declare__that_was_refused_has_declared_nothing_and_can_be_called_again():
    model, trainer = Model(), Recorder()
    refused = list(dict(model.named_parameters()))[-1]

    def names(name, parameter):
        if name == refused:
            raise weft.UsageError(f"{name} has no name")
        return name
    with pytest.raises(weft.UsageError, match="has no name"):
        weft.torch.declare(trainer, model, names=names)
    assert not trainer.locals and not trainer.boxes
    declared = weft.torch.declare(trainer, model, names=names, skip=[refused])
    assert len(declared.held) == len(dict(model.named_parameters())) - 1


def test_declare_model__takes_no_parameter_that_does_not_lie_row_after_row(tmp_path):
    config = transformers.Qwen2Config(vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
                                      num_attention_heads=2, num_key_value_heads=2)
    model = transformers.AutoModelForCausalLM.from_config(config)
    (tmp_path / "config.json").write_text(json.dumps({**config.to_dict(), "architectures": ["Qwen2ForCausalLM"],
                                                      "torch_dtype": "float32"}))
    square = model.model.layers[0].self_attn.o_proj
    square.weight = nn.Parameter(square.weight.detach().t())
    with weft.Controller("world=1,source=gathered", "engines=1,tp=1") as running:
        trainer = weft.Trainer(running.address, 0)
        trainer.declare_model(tmp_path, "world=1,source=gathered", "engines=1,tp=1")
        with pytest.raises(weft.ConflictError, match="o_proj.*row after row"):
            weft.torch.declare(trainer, model)
        running.stop()
        trainer.close()
