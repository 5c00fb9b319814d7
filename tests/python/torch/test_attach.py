# SPDX-License-Identifier: Apache-2.0
"""An engine's module: where its parameters lie before, between and after versions, and what readers of it see."""
import gc
import json
import pathlib
import subprocess
import sys
import threading

import jobs
import pytest
import torch
import transformers
from torch import nn

import weft.torch


class Model(nn.Module):
    def __init__(self, dtype=torch.float32):
        super().__init__()
        torch.manual_seed(7)
        self.first = nn.Linear(6, 8, dtype=dtype)
        self.second = nn.Linear(8, 6, bias=False, dtype=dtype)
        self.head = nn.Linear(6, 6, bias=False, dtype=dtype)
        self.register_buffer("steps", torch.arange(3.0))

    def forward(self, x):
        return self.head(self.second(self.first(x)))


def sender(versions):
    """Version v has v in every element."""
    def train(worker, rank):
        model = Model()
        weft.torch.declare(worker, model)
        worker.join()
        for version in versions:
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.fill_(version)
            weft.torch.publish(worker, model, version)
    return train


def run(receive, versions=(1,), **options):
    _, (result,) = jobs.run(1, 1, sender(versions), receive, options=options)
    return result


def values(module):
    return {value for parameter in module.parameters() for value in parameter.flatten().tolist()}


def test_attach__moves_parameters_with_what_they_hold_and_leaves_buffers():
    def receive(worker, rank):
        model = Model()
        before, buffer = jobs.copied(model), model.steps
        optimizer_sees = list(model.parameters())
        attached = weft.torch.attach(worker, model)
        worker.join()
        for name, parameter in model.named_parameters():
            jobs.assert_same(parameter, before[name], name)
            assert parameter.data_ptr() == worker.memory(name).pointer
        assert [*map(id, model.parameters())] == [*map(id, optimizer_sees)] and model.steps is buffer
        attached.wait()
        return values(model)
    assert run(receive) == {1.0}


def test_attach__with_own_memory_leaves_parameters_where_they_are():
    def receive(worker, rank):
        model = Model()
        where = [parameter.data_ptr() for parameter in model.parameters()]
        attached = weft.torch.attach(worker, model)
        worker.join()
        attached.wait()
        assert where == [parameter.data_ptr() for parameter in model.parameters()]
        with attached.read():
            return values(model)
    assert run(receive, own_memory=True) == {1.0}


def test_attach__gives_a_module_without_memory_wefts_own():
    """No second copy is ever there; what hangs on a parameter stays on it, and buffers are where they always are."""
    def receive(worker, rank):
        with weft.torch.without_memory():
            model = Model()
            model.first.weight.loader = "kept"
        assert all(parameter.is_meta for parameter in model.parameters()) and not model.steps.is_meta
        assert nn.Linear(2, 2).weight.device.type == "cpu"
        attached = weft.torch.attach(worker, model)
        worker.join()
        assert model.first.weight.loader == "kept"
        attached.wait()
        with attached.read():
            model(torch.ones(1, 6))
            return values(model)
    assert run(receive) == {1.0}


def test_attach__with_shadow_gives_readers_the_version_that_they_read():
    def receive(worker, rank):
        model = Model()
        before = jobs.copied(model)
        attached = weft.torch.attach(worker, model)
        worker.join()
        with pytest.raises(weft.NothingPublished), attached.read():
            pass
        for name, parameter in model.named_parameters():
            jobs.assert_same(parameter, before[name])
        seen = []
        attached.wait(1)
        waiting = threading.Thread(target=lambda: [attached.wait(version) for version in (2, 3, 4)])
        waiting.start()
        while not seen or seen[-1] < 4:
            try:
                with attached.read() as snapshot:
                    found = values(model)
            except weft.Torn:  # two versions came meanwhile
                continue
            assert found == {float(snapshot.version)}
            seen.append(snapshot.version)
        waiting.join()
        return seen
    seen = run(receive, (1, 2, 3, 4), shadow=True)
    assert seen == sorted(seen) and seen[-1] == 4


def test_read__in_place_that_an_update_came_into_is_torn():
    def receive(worker, rank):
        attached = weft.torch.attach(worker, Model())
        worker.join()
        attached.wait(1)
        with pytest.raises(weft.Torn), attached.read():
            attached.wait(2)
        with attached.read() as snapshot:
            return snapshot.version, values(attached.module)
    assert run(receive, (1, 2)) == (2, {2.0})


def test_read__with_shadow_of_another_version_while_one_is_read_is_refused():
    """A module's parameters lie in one place at a time."""
    def receive(worker, rank):
        attached = weft.torch.attach(worker, Model())
        worker.join()
        attached.wait(1)
        failed = []

        def other():
            try:
                with attached.read():
                    pass
            except weft.StateError as error:
                failed.append(str(error))
        with pytest.raises(weft.Torn), attached.read():
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
            assert not failed and values(attached.module) == {1.0}
            attached.wait(2)
            assert values(attached.module) == {1.0}, "the copy of version 1 stays while version 3 is not there"
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
            attached.wait(3)
        return failed
    (message,) = run(receive, (1, 2, 3), shadow=True)
    assert "version 2" in message and "version 1" in message


@pytest.mark.parametrize("options", [{}, {"own_memory": True}, {"shadow": True}])
def test_parameters__that_were_replaced_after_join_are_named_and_no_version_is_read(options):
    def receive(worker, rank):
        model = Model()
        attached = weft.torch.attach(worker, model)
        worker.join()
        attached.wait(1)
        with attached.read():
            assert values(model) == {1.0}
        model.load_state_dict({name: tensor.clone() for name, tensor in model.state_dict().items()}, assign=True)
        with pytest.raises(weft.StateError, match="'first.weight' lies at .*replaced"), attached.read():
            pass
        if options.get("shadow"):  # the next version puts them back
            attached.wait(2)
            with attached.read():
                assert values(model) == {2.0}
        else:
            with pytest.raises(weft.StateError, match="'first.weight' lies at"):
                attached.wait(2)
        return "refused"
    assert run(receive, versions=(1, 2), **options) == "refused"


def test_join__that_was_ended_while_parameters_moved_moves_the_others(monkeypatch):
    def receive(worker, rank):
        model = Model()
        before = jobs.copied(model)
        attached = weft.torch.attach(worker, model)
        real, moved = attached._put, []

        def put(bound, tensor):
            if len(moved) == 2:
                moved.append("ended")
                raise KeyboardInterrupt
            moved.append(bound.name)
            real(bound, tensor)
        attached._put = put
        with pytest.raises(KeyboardInterrupt):
            worker.join()
        worker.join()
        assert moved[2] == "ended" and len(moved) == 3 + len(list(model.parameters()))
        for name, tensor in before.items():
            assert torch.equal(model.state_dict()[name], tensor)
        attached.wait(1)
        with attached.read():
            return values(model)
    assert run(receive) == {1.0}


@pytest.mark.parametrize("shadow", [False, True])
def test_post_load__finds_the_new_version_in_the_module(shadow):
    def receive(worker, rank):
        attached, derived = weft.torch.attach(worker, Model()), []
        attached.set_post_load(lambda version: derived.append((version, values(attached.module))))
        worker.join()
        for version in (1, 2):
            attached.wait(version)
            with attached.read():
                assert values(attached.module) == {float(version)}
        return derived
    assert run(receive, (1, 2), shadow=shadow) == [(1, {1.0}), (2, {2.0})]


def test_empty_shared__is_the_memory_that_trainers_write():
    def receive(worker, rank):
        for name, parameter in Model().named_parameters():
            worker.declare_piece(weft.Tensor(name, "F32", parameter.shape),
                                 worker.declare_param(name, "F32", parameter.shape))
        worker.join()
        mine = weft.torch.empty_shared(worker, "first.weight")
        assert mine.shape == (8, 6) and mine.dtype == torch.float32
        worker.wait()
        return mine.unique().tolist(), weft.torch.empty_shared(worker, 0).data_ptr() == mine.data_ptr()
    assert run(receive) == ([1.0], True)


def test_tensors__outlive_their_worker_and_detached_parameters_do_not_need_it():
    def receive(worker, rank):
        model = Model()
        attached = weft.torch.attach(worker, model)
        worker.join()
        attached.wait()
        kept = model.first.weight.detach()
        attached.detach()
        worker.leave()
        worker.close()
        gc.collect()
        return kept.unique().tolist(), values(model)
    assert run(receive) == ([1.0], {1.0})


def test_process__with_an_attached_module_ends():
    """Its parameters go when the interpreter does: nobody waits for a thread then."""
    program = """
import sys, torch, weft, weft.torch
model = torch.nn.Linear(2, 2)
with weft.Controller("world=1", "engines=1,tp=1") as controller:
    import threading
    def train():
        with weft.Trainer(controller.address, 0) as trainer:
            sent = torch.nn.Linear(2, 2)
            weft.torch.declare(trainer, sent)
            trainer.join()
            weft.torch.publish(trainer, sent, 1)
    thread = threading.Thread(target=train)
    thread.start()
    with weft.Inference(controller.address, 0) as inference:
        attached = weft.torch.attach(inference, model)
        inference.join()
        attached.wait()
    thread.join()
print("done")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


# ---- pieces

class Fake:
    """What attach asks an inference rank for."""
    own_memory = shadow = False
    params = ()

    def __init__(self):
        self.declared, self.pieces, self.fills = [], [], []

    def declare_param(self, name, dtype, shape, memory=None):
        self.declared.append((name, dtype, tuple(shape)))
        return len(self.declared) - 1

    def declare_piece(self, tensor, param, *, lo, hi, offset_bytes):
        self.pieces.append((tensor, param, tuple(lo), tuple(hi), offset_bytes))

    def declare_fill(self, param, offset_bytes, size):
        self.fills.append((param, offset_bytes, size))

    def on_join(self, callback):
        pass


def test_attach__of_tied_parameters_declares_the_first_name():
    model, worker = Model(), Fake()
    model.head = model.first.__class__(8, 6, bias=False)
    model.head.weight = model.second.weight
    weft.torch.attach(worker, model)
    assert [name for name, *_ in worker.declared] == ["first.weight", "first.bias", "second.weight"]


def test_attach__names_and_skip_say_what_is_received():
    worker = Fake()
    weft.torch.attach(worker, Model(), skip=["first.bias"], trained=torch.bfloat16,
                      names=lambda name: None if name.startswith("head") else f"model.{name}")
    assert [name for name, *_ in worker.declared] == ["model.first.weight", "model.second.weight"]
    assert worker.pieces[0][0] == weft.Tensor("model.first.weight", "BF16", (8, 6))


@pytest.mark.parametrize("pieces", [[], [weft.torch.Fill(4)], [(weft.Tensor("t", "F32", (8, 7)), None, None)]])
def test_pieces__that_are_not_the_parameters_bytes_are_refused(pieces):
    with pytest.raises(weft.UsageError, match=r"'first\.weight' is F32 \[8, 6\], 192 bytes, and its pieces are"):
        weft.torch.attach(Fake(), Model(), pieces=lambda name, parameter: pieces)


def test_pieces__are_counted_in_the_parameters_own_dtype():
    worker = Fake()
    table = weft.Tensor("t", torch.float32, (16, 6))
    weft.torch.attach(worker, nn.Linear(6, 8, bias=False, dtype=torch.float16), pieces=lambda name, parameter: [
        (table, (0, 0), (4, 6)), weft.torch.Fill(12), (table, (8, 0), (11, 6))])
    assert [piece[4] for piece in worker.pieces] == [0, 60] and worker.fills == [(0, 48, 12)]


# ---- a worker that knows the model

CONFIG = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "vocab_size": 48, "hidden_size": 16,
          "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
          "tie_word_embeddings": False, "torch_dtype": "float32", "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
          "hidden_act": "silu", "max_position_embeddings": 64, "bos_token_id": 1, "eos_token_id": 2}


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    file = tmp_path_factory.mktemp("qwen2") / "config.json"
    file.write_text(json.dumps(CONFIG))
    return str(file)


def module_of(views):
    """A module of a rank's parameters, by their names."""
    root = nn.Module()
    for view in views:
        *path, name = view.name.split(".")
        holder = root
        for part in path:
            if part not in holder._modules:
                holder.add_module(part, nn.Module())
            holder = holder._modules[part]
        holder.register_parameter(name, nn.Parameter(torch.zeros(view.shape, dtype=weft.torch.dtype_of(view.dtype))))
    return root


def test_declare_model__of_an_engine_is_matched_by_name_and_fed_by_a_model_of_transformers(config):
    """The engine's rows are weft's own; the trainer is HuggingFace's class, as it is."""
    train_spec, infer = "world=1,source=gathered", "engines=1,tp=2"

    def train(worker, rank):
        worker.declare_labels(pathlib.Path(config).parent.name, train_spec, infer)
        torch.manual_seed(1)
        model = transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**CONFIG))
        weft.torch.declare(worker, model)
        worker.join()
        weft.torch.publish(worker, model, 1)
        return {name: tensor.clone() for name, tensor in model.state_dict().items()}

    def receive(worker, rank):
        worker.declare_model(config, train_spec, infer)
        module = module_of(worker.params)
        attached = weft.torch.attach(worker, module)
        worker.join()
        attached.wait()
        with attached.read():
            return jobs.copied(module)
    (state,), ranks = jobs.run(1, 2, train, receive, world=train_spec, infer=infer)
    for rank, have in enumerate(ranks):
        layer = "model.layers.1.self_attn"
        jobs.assert_same(have[f"{layer}.qkv_proj.weight"], torch.cat(
            [state[f"{layer}.{part}_proj.weight"].chunk(2)[rank] for part in "qkv"]))
        jobs.assert_same(have[f"{layer}.o_proj.weight"], state[f"{layer}.o_proj.weight"].chunk(2, 1)[rank])


def test_declare_model__names_what_the_module_has_otherwise(config):
    worker = weft.Inference("tcp://127.0.0.1:9", 0)
    worker.declare_model(config, "world=1,source=gathered", "engines=1,tp=1")
    module = module_of(worker.params)
    module.model.norm.weight = nn.Parameter(torch.zeros(17))
    with pytest.raises(weft.ConflictError, match="norm.weight"):
        weft.torch.attach(worker, module)
    with pytest.raises(weft.UsageError, match="without declare_model"):
        weft.torch.attach(worker, module, trained="BF16")
    worker.close()


# ---- memory as tensors

@pytest.mark.parametrize("name", ["BF16", "F16", "F32", "F64", "F8_E4M3", "F8_E5M2", "I64", "I32", "I8", "U8"])
def test_dtype__of_weft_is_torchs(name):
    assert weft.dtype_name(weft.torch.dtype_of(name)) == name


def test_tensor_over__takes_fp8_and_bfloat16_as_they_lie():
    def train(worker, rank):
        for name, dtype in (("a", torch.float8_e4m3fn), ("b", torch.bfloat16)):
            worker.declare_tensor(weft.Tensor(name, dtype, (2, 3)))
        worker.join()
        worker.publish(1, {name: torch.tensor([[1.5, 2, 3], [4, 5, 6]]).to(dtype)
                           for name, dtype in (("a", torch.float8_e4m3fn), ("b", torch.bfloat16))})

    def receive(worker, rank):
        for name, dtype in (("a", "F8_E4M3"), ("b", "BF16")):
            worker.declare_piece(weft.Tensor(name, dtype, (2, 3)), worker.declare_param(name, dtype, (2, 3)))
        worker.join()
        worker.wait()
        with worker.read() as snapshot:
            return [(weft.torch.tensor_over(snapshot[name]).dtype, weft.torch.tensor_over(snapshot[name]).float())
                    for name in "ab"]
    _, (result,) = jobs.run(1, 1, train, receive)
    assert [dtype for dtype, _ in result] == [torch.float8_e4m3fn, torch.bfloat16]
    assert all(each.tolist() == [[1.5, 2, 3], [4, 5, 6]] for _, each in result)
