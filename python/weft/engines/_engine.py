# SPDX-License-Identifier: Apache-2.0
"""What an inference engine is asked in its own process: a row of methods for each engine (_vllm, _sglang), none of which
touches the live model's parameters."""
from __future__ import annotations

import json
import os
from typing import Any, Callable, Iterable, Optional

import torch

from weft._errors import UsageError

Named = Iterable["tuple[str, torch.Tensor]"]
_LAYERS = ("num_hidden_layers", "n_layer")  # what configs call how many there are


class Engine:
    """One rank of an engine, as its own code has it.

    Args:
        model: the live module.
        config: what the engine keeps its configuration in (vLLM: VllmConfig; SGLang: ModelConfig). None: found.
    """

    name = ""

    def __init__(self, model: torch.nn.Module, config: Any = None):
        self.model = model
        self.config = config

    def version(self) -> str:
        """The package's."""
        raise NotImplementedError

    def rank(self) -> int:
        """Of this process among the engine's, replicas of it (data parallel) included, from 0."""
        raise NotImplementedError

    def place(self) -> int:
        """The rank in its replica: what --infer counts."""
        return self.rank()

    def ranks(self) -> int:
        """How many the engine has."""
        raise NotImplementedError

    def stages(self) -> int:
        """Pipeline stages of a replica, which its layers are shared out to."""
        return 1

    def sizes(self) -> dict[str, str]:
        """Keys of an --infer spec that parallel sizes and arguments say."""
        raise NotImplementedError

    def own_config(self) -> dict[str, Any]:
        """The model's config as the engine keeps it."""
        raise NotImplementedError

    def hf_config(self) -> dict[str, Any]:
        """The model's config.json: the file where there is one, since engines change what they keep."""
        try:
            with open(os.path.join(self.folder(), "config.json")) as file:
                found: dict[str, Any] = json.load(file)
                return found
        except (OSError, ValueError):
            return self.own_config()

    def folder(self) -> str:
        """Where the checkpoint lies on this host; a name that is no folder where it does not."""
        raise NotImplementedError

    def refusals(self) -> list[str]:
        """Why this engine cannot take updates as it runs, each with what to change."""
        return []

    def dummy(self) -> bool:
        """Whether the live model was given values of nobody's, to be overwritten by the first update."""
        return False

    def scratch(self, layers: int) -> "tuple[torch.nn.Module, Any]":
        """A new model of the same class and options with so many layers a stage, its parameters not loaded; and what
        ``load`` and ``process`` want of it."""
        raise NotImplementedError

    def load(self, model: torch.nn.Module, kept: Any, named: Named) -> None:
        """The engine's own loader."""
        raise NotImplementedError

    def process(self, model: torch.nn.Module, kept: Any) -> None:
        """What the engine does after a load."""
        raise NotImplementedError

    def context(self) -> Any:
        """Of the live model, what ``scratch`` gives of a new one."""
        return None

    def derive(self, model: torch.nn.Module, kept: Any) -> None:
        """Computes anew what the engine keeps beside its parameters, in the memory where it lies."""
        raise NotImplementedError

    def reload(self, model: torch.nn.Module, kept: Any, named: Named) -> None:
        """The engine's own way to load weights into a model that runs, with all that it does after a load."""
        raise NotImplementedError

    def reload_refused(self) -> str:
        """Why ``reload`` must not be used in this version; "" where it may."""
        return ""


def engine_of(model: Any, config: Any = None) -> Engine:
    """The engine whose model class it is.

    Raises:
        UsageError: it is none that weft knows.
    """
    for each in rows():
        module = getattr(model, "model_runner", model)
        module = module if isinstance(module, torch.nn.Module) else getattr(module, "model", None)
        if isinstance(module, torch.nn.Module) and each.is_mine(module):
            found: Engine = each.make(model, module, config)
            return found
    raise UsageError(f"{type(model).__module__}.{type(model).__name__} is no model, worker or model runner of vLLM or SGLang: "
                     "give the module that the engine runs, or declare its parameters yourself (weft.torch.attach)")


class Row:
    """How an engine is told from the others."""

    def __init__(self, package: str, make: Callable[[Any, torch.nn.Module, Any], Engine]):
        self.package, self.make = package, make

    def is_mine(self, module: torch.nn.Module) -> bool:
        """Its class, or the class of a module in it, is of the package."""
        return any(type(each).__module__.split(".")[0] == self.package for each in module.modules())


def rows() -> list[Row]:
    """The engines that are known."""
    from weft.engines import _sglang, _vllm

    return [Row("vllm", _vllm.make), Row("sglang", _sglang.make)]


def layers_of(config: dict[str, Any]) -> int:
    """num_hidden_layers, wherever the config has it."""
    for each in (config, config.get("text_config") or {}):
        for key in _LAYERS:
            if isinstance(each.get(key), int):
                return int(each[key])
    raise UsageError("the model's config has no num_hidden_layers: weft cannot make a model of fewer layers to probe")


def set_layers(config: Any, layers: int) -> None:
    """num_hidden_layers of a transformers config and of its text part."""
    for each in (config, getattr(config, "text_config", None)):
        for key in _LAYERS:
            if each is not None and isinstance(getattr(each, key, None), int):
                setattr(each, key, layers)


def kept_in_place(modules: Iterable[torch.nn.Module], run: Callable[[], None]) -> None:
    """Runs what may replace tensors of modules, and has the old ones take the new values: addresses that graphs and kernels
    keep stay good."""
    before = [(module, name, tensor) for module in modules
              for name, tensor in [*tensors_beside(module), *module._parameters.items()] if tensor is not None]
    run()
    for module, name, old in before:
        new = getattr(module, name, None)
        if isinstance(new, torch.Tensor) and new is not old and new.shape == old.shape and new.dtype == old.dtype:
            if new.data_ptr() != old.data_ptr():
                with torch.no_grad():
                    old.copy_(new)
            setattr(module, name, old)


def tensors_beside(module: torch.nn.Module) -> list["tuple[str, torch.Tensor]"]:
    """A module's own tensors that are no parameters: buffers and attributes."""
    found = [(name, value) for name, value in vars(module).items() if isinstance(value, torch.Tensor)]
    return found + [(name, value) for name, value in module._buffers.items() if value is not None]


def first_attribute(given: Any, names: Iterable[str]) -> Optional[Any]:
    """The first of the dotted names that is there."""
    for name in names:
        value = given
        for part in name.split("."):
            value = getattr(value, part, None)
            if value is None:
                break
        if value is not None:
            return value
    return None
