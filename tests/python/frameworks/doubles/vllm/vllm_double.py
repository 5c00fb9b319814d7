# SPDX-License-Identifier: Apache-2.0
"""vLLM's weight transfer as each generation has it, written from its sources (python/weft/vllm/_generation.py has the table):
the registries, the base classes, the worker's methods, its plug-in loader. No model, no loader: what a worker does to its
parameters before and after an update is kept as words in ``Worker.did``.

    double = vllm_double.put(monkeypatch, "0.33.0")      # sys.modules has a vllm now"""
import contextlib
import dataclasses
import functools
import importlib
import importlib.metadata
import sys
import types
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, Literal, Optional, TypeVar, Union

import torch

GENERATIONS = ("0.17.1", "0.22.1", "0.24.0", "0.27.1", "0.33.0")
WITH_PLUGIN = GENERATIONS[1:]
WITH_TRAINER = GENERATIONS[3:]
Init, Update = TypeVar("Init"), TypeVar("Update")


def number(generation):
    return tuple(int(part) for part in generation.split("."))


class _Factory:
    def __init_subclass__(cls):
        cls._registry = {}

    @classmethod
    def register_engine(cls, name, module_path_or_cls, class_name=None):
        if name in cls._registry:
            raise ValueError(f"Weight transfer engine '{name}' is already registered.")
        if isinstance(module_path_or_cls, str):
            cls._registry[name] = lambda: getattr(importlib.import_module(module_path_or_cls), class_name)
        else:
            cls._registry[name] = lambda: module_path_or_cls

    @classmethod
    def _class(cls, backend):
        if backend not in cls._registry:
            raise ValueError(f"Invalid weight transfer backend: {backend}. Available engines: {list(cls._registry)}")
        return cls._registry[backend]()


@dataclasses.dataclass
class WeightTransferInitInfo(ABC):  # noqa: B024
    pass


@dataclasses.dataclass
class WeightTransferUpdateInfo(ABC):  # noqa: B024
    pass


class _Parses:
    def parse_init_info(self, init_dict):
        try:
            return self.init_info_cls(**init_dict)
        except TypeError as error:
            raise ValueError(f"Invalid init_info for {type(self).__name__}: {error}") from error

    def parse_update_info(self, update_dict):
        try:
            return self.update_info_cls(**update_dict)
        except TypeError as error:
            raise ValueError(f"Invalid update_info for {type(self).__name__}: {error}") from error

    @abstractmethod
    def init_transfer_engine(self, init_info):
        raise NotImplementedError

    @abstractmethod
    def shutdown(self):
        raise NotImplementedError


class NoModelEngine(_Parses, ABC, Generic[Init, Update]):  # 0.17
    def __init__(self, config, parallel_config):
        self.config, self.parallel_config = config, parallel_config

    @abstractmethod
    def receive_weights(self, update_info, load_weights):
        raise NotImplementedError

    @staticmethod
    @abstractmethod
    def trainer_send_weights(iterator, trainer_args):
        raise NotImplementedError


class CallbackEngine(_Parses, ABC, Generic[Init, Update]):  # 0.22 to 0.24
    def __init__(self, config, parallel_config, model):
        self.config, self.parallel_config, self.model = config, parallel_config, model

    receive_weights = NoModelEngine.receive_weights
    trainer_send_weights = NoModelEngine.trainer_send_weights


class ModelEngine(_Parses, ABC, Generic[Init, Update]):  # from 0.27
    supports_draft_weight_update = True

    def __init__(self, config, vllm_config, device, model):
        self.config, self.vllm_config, self.device, self.model = config, vllm_config, device, model
        self.parallel_config, self.model_config = vllm_config.parallel_config, vllm_config.model_config
        self._default_model = model

    def set_weight_update_target(self, model, model_config):
        self.model, self.model_config = model, model_config

    def reset_weight_update_target(self):
        self.model = self._default_model

    @abstractmethod
    def start_weight_update(self):
        raise NotImplementedError

    @abstractmethod
    def finish_weight_update(self):
        raise NotImplementedError

    def update_weights(self, update_info):
        self.receive_weights(self.parse_update_info(update_info))

    @abstractmethod
    def receive_weights(self, update_info):
        raise NotImplementedError


@dataclasses.dataclass
class TrainerInitInfo:
    backend: ClassVar[str]
    rank: int = dataclasses.field(kw_only=True)

    @property
    def is_sender(self):
        return self.rank == 0


class TrainerEngine(ABC, Generic[Init]):
    def __init__(self, *, client, source=None, is_sender=True, rank=0):
        self.client, self.source, self.is_sender, self.rank = client, source, is_sender, rank

    @classmethod
    @abstractmethod
    def trainer_init(cls, init_info, *, client, source=None):
        raise NotImplementedError

    @abstractmethod
    def send_weights(self):
        raise NotImplementedError

    def shutdown(self):
        pass


class TrainerEngineOf27(TrainerEngine):
    def __init__(self, *, client, source, is_sender=True):
        super().__init__(client=client, source=source, is_sender=is_sender)


class CuMemAllocator:
    """Memory that sleep takes; of nothing here."""

    def sleep(self, offload_tags=None):
        self.slept = offload_tags

    def wake_up(self, tags=None):
        self.woken = tags


class Worker:
    """The part of vLLM's worker that updates go through."""

    def __init__(self, double, model, backend="weft", rank=0):
        self.double, self.did, self.rank = double, [], rank
        self.model_runner = types.SimpleNamespace(model=model)
        self.vllm_config = types.SimpleNamespace(
            parallel_config=types.SimpleNamespace(world_size=1, data_parallel_index=0, data_parallel_rank=0,
                                                  enable_expert_parallel=False),
            model_config=types.SimpleNamespace(dtype=torch.float32))
        self.active, self.weight_transfer_engine = False, None
        if backend:
            config = types.SimpleNamespace(backend=backend)
            self.weight_transfer_engine = double.factory.WeightTransferEngineFactory.create_engine(
                config, *({"model": (self.vllm_config, torch.device("cpu"), model),
                           "callback": (self.vllm_config.parallel_config, model),
                           "none": (self.vllm_config.parallel_config,)}[double.worker]))

    def _engine(self):
        if self.weight_transfer_engine is None:
            raise RuntimeError("Weight transfer not configured. Please set weight_transfer_config to enable weight transfer.")
        return self.weight_transfer_engine

    def init_weight_transfer_engine(self, init_info):
        self._engine().init_transfer_engine(self._engine().parse_init_info(init_info))

    def start_weight_update(self, is_checkpoint_format=True):
        engine = self._engine()
        if self.active:
            raise RuntimeError("start_weight_update called while a weight update is already active.")
        if self.double.worker == "model":
            engine.start_weight_update()
        elif is_checkpoint_format:
            self.double.reload.initialize_layerwise_reload(self.model_runner.model)
        self.active, self.checkpoint = True, is_checkpoint_format

    def update_weights(self, update_info):
        engine = self._engine()
        if not self.active:
            raise RuntimeError("start_weight_update must be called before update_weights.")
        try:
            if self.double.worker == "model":
                engine.update_weights(update_info)
            else:
                engine.receive_weights(engine.parse_update_info(update_info), load_weights=lambda weights: None)
        except BaseException:
            if self.double.number >= (0, 24):
                self.active = False
            raise

    def finish_weight_update(self):
        engine = self._engine()
        if not self.active:
            raise RuntimeError("finish_weight_update called without a matching start_weight_update.")
        if self.double.worker == "model":
            engine.finish_weight_update()
        elif self.checkpoint:
            self.double.reload.finalize_layerwise_reload(self.model_runner.model, self.vllm_config.model_config)
        self.active = False

    def shutdown_weight_transfer_engine(self):
        self._engine().shutdown()


class Reload:
    """Layerwise: parameters go to the meta device, and come back."""

    def __init__(self):
        self.aside, self.calls = {}, []

    def initialize_layerwise_reload(self, model):
        self.calls.append("initialize")
        for module in model.modules():
            for name, parameter in list(module._parameters.items()):
                self.aside[module, name] = parameter
                module._parameters[name] = torch.nn.Parameter(torch.empty_like(parameter, device="meta"), requires_grad=False)

    def finalize_layerwise_reload(self, model, model_config):
        self.calls.append("finalize")
        for (module, name), parameter in self.aside.items():
            module._parameters[name] = parameter
        self.aside.clear()


def put(monkeypatch, generation, entry_points=()):
    """A vllm of that generation in sys.modules, until the test ends. ``entry_points``: of its plug-in loader."""
    version = number(generation)
    worker = "model" if version >= (0, 27) else "callback" if version >= (0, 22) else "none"
    base = types.ModuleType("vllm.distributed.weight_transfer.base")
    base.WeightTransferEngine = {"model": ModelEngine, "callback": CallbackEngine, "none": NoModelEngine}[worker]
    base.WeightTransferInitInfo = WeightTransferInitInfo
    base.WeightTransferUpdateInfo = _update_info(version)
    factory = types.ModuleType("vllm.distributed.weight_transfer.factory")

    class WeightTransferEngineFactory(_Factory):
        @classmethod
        def create_engine(cls, config, *others):
            return cls._class(config.backend)(config, *others)
    factory.WeightTransferEngineFactory = WeightTransferEngineFactory
    if version >= (0, 27):
        base.TrainerInitInfo = TrainerInitInfo
        base.TrainerWeightTransferEngine = TrainerEngine if version >= (0, 33) else TrainerEngineOf27

        class WeightTransferTrainerFactory(_Factory):
            @classmethod
            def trainer_init(cls, init_info, *, client, source=None):
                return cls._class(init_info.backend).trainer_init(init_info=init_info, client=client, source=source)
        factory.WeightTransferTrainerFactory = WeightTransferTrainerFactory
    config = types.ModuleType("vllm.config.weight_transfer")
    config.WeightTransferConfig = _config(version)
    reload = Reload()
    cumem = types.ModuleType("vllm.device_allocator.cumem")
    cumem.CuMemAllocator = type("CuMemAllocator", (CuMemAllocator,), {})
    modules = {"vllm.distributed.weight_transfer.base": base, "vllm.distributed.weight_transfer.factory": factory,
               "vllm.config.weight_transfer": config, "vllm.device_allocator.cumem": cumem,
               "vllm.model_executor.model_loader.reload": reload, "vllm.plugins": _plugins(entry_points)}
    _put(monkeypatch, modules)
    sys.modules["vllm.config"].set_current_vllm_config = lambda config: contextlib.nullcontext()
    for name in ("weft.vllm._engine", "weft.vllm._trainer"):  # made over the vllm that is there when they are imported
        monkeypatch.delitem(sys.modules, name, raising=False)
    real = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: generation if name == "vllm" else real(name))
    return types.SimpleNamespace(generation=generation, number=version, worker=worker, factory=factory, base=base, reload=reload,
                                 plugins=modules["vllm.plugins"], allocator=cumem.CuMemAllocator,
                                 make=functools.partial(_make_worker))


def _make_worker(double, *arguments, **named):
    return Worker(double, *arguments, **named)


def _put(monkeypatch, modules):
    for name, module in modules.items():
        parts = name.split(".")
        for i in range(1, len(parts)):
            above = ".".join(parts[:i])
            if above not in modules and not getattr(sys.modules.get(above), "_double", False):
                package = types.ModuleType(above)
                package.__path__, package._double = [], True
                monkeypatch.setitem(sys.modules, above, package)
        monkeypatch.setitem(sys.modules, name, module)
    for name in list(modules):
        above, _, last = name.rpartition(".")
        setattr(sys.modules[above], last, modules[name])


def _update_info(version):
    if version >= (0, 22) and version < (0, 24) or version >= (0, 27):
        return WeightTransferUpdateInfo

    @dataclasses.dataclass
    class OfBoth(WeightTransferUpdateInfo):
        _: dataclasses.KW_ONLY
        update_kind: str = "dense"
        is_checkpoint_format: bool = True
        num_updates_list: Optional[list] = None
    return OfBoth


def _config(version):
    kind: Any = Literal["nccl", "ipc"] if version < (0, 22) else str if version < (0, 24) else Union[Literal["nccl", "ipc"], str]
    return dataclasses.make_dataclass("WeightTransferConfig", [("backend", kind, "nccl")])


def _plugins(entry_points):
    """load_general_plugins: of all entry points, or of those in $VLLM_PLUGINS; what does not load is logged."""
    import os
    module = types.ModuleType("vllm.plugins")

    def load_general_plugins():
        allowed = os.environ.get("VLLM_PLUGINS")
        for point in entry_points:
            if allowed is None or point.name in allowed.split(","):
                point.load()()
    module.load_general_plugins = load_general_plugins
    return module
