# SPDX-License-Identifier: Apache-2.0
"""weft.openrlhf beside doubles of OpenRLHF 0.11.2 (doubles/vllm/openrlhf_double.py); the job is a real one."""
import sys
import time
import types

import engines_double
import openrlhf_double
import pytest
import torch
import vllm_double

import weft
import weft.engines
import weft.openrlhf
from weft.vllm import _after_import


@pytest.fixture(autouse=True)
def local(monkeypatch):
    monkeypatch.setenv("WEFT_BIND", "tcp://127.0.0.1:0")
    monkeypatch.setattr(weft.engines, "Receiver", engines_double.Receiver)


def module_of(value):
    module = torch.nn.Module()
    module.embed = torch.nn.Parameter(torch.full((8, 16), float(value)))
    module.layer = torch.nn.Linear(16, 32)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(value)
    return module


def engines_of(monkeypatch, number):
    double = vllm_double.put(monkeypatch, "0.22.1")
    wrap = types.ModuleType("openrlhf.trainer.ray.vllm_worker_wrap")
    wrap.WorkerWrap = type("WorkerWrap", (openrlhf_double.WorkerWrap,), {})
    weft.openrlhf._change_wrap(wrap)
    weft.openrlhf._change_wrap(wrap)
    models = [module_of(0) for _ in range(number)]
    workers = [openrlhf_double.workers_of(double, wrap.WorkerWrap, [model]) for model in models]
    return [openrlhf_double.RolloutRayActor(each) for each in workers], models


def trainer_of(monkeypatch, engines, backend="weft", value=1, **given):
    actor = openrlhf_double.actor_module(monkeypatch)
    weft.openrlhf._change_actor(actor)
    weft.openrlhf._change_actor(actor)
    return actor.ActorPPOTrainer(module_of(value), engines, backend, **given)


def holds(model, value):
    return all(bool((parameter == value).all()) for parameter in model.parameters())


def test_broadcast__brings_each_version_to_all_engines(monkeypatch):
    engines, models = engines_of(monkeypatch, 2)
    trainer = trainer_of(monkeypatch, engines)
    for value in (3, 4):
        with torch.no_grad():
            for parameter in trainer.actor.model.module.parameters():
                parameter.fill_(value)
        trainer.broadcast_to_vllm()
        assert all(holds(model, value) for model in models)
    assert trainer.did == [] and trainer._weft_sync.version == 2
    assert [engine.resets for engine in engines] == [2, 2]
    trainer._weft_sync.close()


def test_another_backend__is_as_it_was(monkeypatch):
    engines, _ = engines_of(monkeypatch, 1)
    trainer = trainer_of(monkeypatch, engines, "nccl")
    trainer.broadcast_to_vllm()
    assert trainer.did == ["init nccl", "broadcast"]
    worker = engines[0].workers[0]
    worker.init_process_group("host", 1, 1, 2, "group", "nccl", False)
    worker.update_weight("a.weight", torch.float32, (1,))
    assert (worker.joined, worker.updated) == ("group", "a.weight")


def test_colocated_engines__are_refused(monkeypatch):
    engines, _ = engines_of(monkeypatch, 1)
    trainer = trainer_of(monkeypatch, engines, colocate_all=True)
    with pytest.raises(weft.UnsupportedError, match="colocate_all"):
        trainer.broadcast_to_vllm()


def test_engine_that_refuses__ends_the_broadcast_with_its_words(monkeypatch):
    engines, models = engines_of(monkeypatch, 2)
    models[1].layer.bias = None
    models[1].layer.other = torch.nn.Parameter(torch.zeros(32))
    trainer = trainer_of(monkeypatch, engines)
    began = time.monotonic()
    with pytest.raises(weft.Error, match="layer.other"):
        trainer.broadcast_to_vllm()
    assert time.monotonic() - began < 30


def test_update_before_init__is_refused_by_the_worker(monkeypatch):
    engines, _ = engines_of(monkeypatch, 1)
    with pytest.raises(weft.StateError, match="before init"):
        engines[0].workers[0].update_weight("weft", None, 1)


def test_another_release__is_named():
    with pytest.raises(weft.ConfigError, match=r"no ActorPPOTrainer._init_vllm_sync_group.*0\.11\.2"):
        weft.openrlhf._change_actor(types.ModuleType("openrlhf.trainer.ray.ppo_actor"))


def test_install__changes_modules_when_they_are_imported(monkeypatch, tmp_path):
    folder = tmp_path / "openrlhf" / "trainer" / "ray"
    folder.mkdir(parents=True)
    for at in (folder, folder.parent, folder.parent.parent):
        (at / "__init__.py").write_text("")
    (folder / "vllm_worker_wrap.py").write_text("class WorkerWrap:\n    def init_process_group(self): pass\n"
                                                "    def update_weight(self): pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(_after_import, "_finder", None)
    for name in [name for name in sys.modules if name.split(".")[0] == "openrlhf"]:
        monkeypatch.delitem(sys.modules, name)
    weft.openrlhf.install()
    weft.openrlhf.install()
    import openrlhf.trainer.ray.vllm_worker_wrap as wrap
    assert issubclass(wrap.WorkerWrap, weft.vllm.WorkerExtension) and wrap.WorkerWrap.__module__ == wrap.__name__
    for name in [name for name in sys.modules if name.split(".")[0] == "openrlhf"]:
        monkeypatch.delitem(sys.modules, name)


@pytest.mark.parametrize("name, variable", [("weft.openrlhf", "WEFT_OPENRLHF"), ("weft.skyrl", "WEFT_SKYRL")])
def test_launch__has_every_process_of_ray_install(monkeypatch, tmp_path, name, variable):
    ray, started = types.ModuleType("ray"), []
    ray.init = lambda *given, **named: started.append(named["runtime_env"])
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "some_program.py").write_text("import sys, ray\nray.init(runtime_env={'env_vars': {'A': 'b'}})\n"
                                                   "assert sys.argv[1:] == ['--flag'], sys.argv\n")
    _after_import.launch(name, variable, lambda: None, ["some_program", "--flag"])
    (environment,) = started
    assert environment["worker_process_setup_hook"] == f"{name}.install"
    assert environment["env_vars"]["A"] == "b" and environment["env_vars"][variable] == "1"
    with pytest.raises(weft.UsageError, match="MODULE"):
        _after_import.launch(name, variable, lambda: None, [])


