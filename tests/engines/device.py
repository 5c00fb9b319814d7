# SPDX-License-Identifier: Apache-2.0
"""A GPU that is not there: torch says that there is one of this capability, and what is made on it is made on the CPU. Engines
choose kernels by it, and so how weights lie; loading runs none of them. Extensions that only a GPU's machine has are modules
in which everything is found and nothing can be called."""
import importlib.abc
import importlib.machinery
import sys
import types

import torch
from torch.overrides import TorchFunctionMode

CAPABILITIES = {"sm90": (9, 0), "sm100": (10, 0)}
NAMES = {"sm90": "NVIDIA H100 80GB HBM3", "sm100": "NVIDIA B200"}
MEMORY_BYTES = 80 << 30
EXTENSIONS = ("sgl_kernel", "flashinfer", "deep_gemm", "vllm._C", "vllm._C_stable_libtorch", "vllm._moe_C",
              "vllm._moe_C_stable_libtorch")


class Anything:
    """A name of an extension: a base class, a decorator, a constant."""

    def __init__(self, *_, **__):
        pass

    def __call__(self, *arguments, **__):
        return arguments[0] if len(arguments) == 1 and callable(arguments[0]) else Anything()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()

    def __or__(self, _):
        return object

    __ror__ = __or__


class Extension(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        made = Anything()
        setattr(self, name, made)
        return made


class Extensions(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if any(name == one or name.startswith(one + ".") for one in EXTENSIONS):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = Extension(spec.name)
        module.__version__ = "99.0"
        module.__path__ = []
        return module

    def exec_module(self, module):
        pass


def on_cpu(value):
    if isinstance(value, torch.device):
        return torch.device("cpu") if value.type == "cuda" else value
    if isinstance(value, str) and value.split(":")[0] == "cuda":
        return "cpu"
    return value


class OnCpu(TorchFunctionMode):
    def __torch_function__(self, function, kinds, arguments=(), named=None):
        named = named or {}
        if "device" in named:
            named = named | {"device": on_cpu(named["device"])}
            if isinstance(named["device"], int):
                named["device"] = "cpu"
        if function is torch.Tensor.to:
            arguments = tuple(on_cpu(one) for one in arguments)
        if function is torch.Tensor.cuda:
            return arguments[0]
        if named.get("pin_memory"):
            named = named | {"pin_memory": False}
        return function(*arguments, **named)


class Nothing:
    """A stream, an event."""

    cuda_stream = 0

    def __init__(self, *_, **__):
        pass

    def __getattr__(self, name):
        return lambda *_, **__: None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def pretend(device: str) -> None:
    capability = CAPABILITIES[device]
    cuda = torch.cuda
    torch.version.cuda = "13.0"
    cuda.is_available = lambda: True
    cuda.device_count = lambda: 8
    cuda.current_device = lambda: 0
    cuda.get_device_capability = lambda *_: capability
    cuda.get_device_name = lambda *_: NAMES[device]
    cuda.get_device_properties = lambda *_: types.SimpleNamespace(
        name=NAMES[device], major=capability[0], minor=capability[1], total_memory=MEMORY_BYTES, multi_processor_count=132,
        warp_size=32, max_threads_per_multi_processor=2048, shared_memory_per_block_optin=232448, L2_cache_size=50 << 20,
        is_integrated=False, uuid="GPU-0")
    cuda.mem_get_info = lambda *_: (MEMORY_BYTES, MEMORY_BYTES)
    for name in ("set_device", "synchronize", "empty_cache", "init", "_lazy_init", "reset_peak_memory_stats"):
        setattr(cuda, name, lambda *_, **__: None)
    for name in ("memory_allocated", "memory_reserved", "max_memory_allocated"):
        setattr(cuda, name, lambda *_, **__: 0)
    cuda.Stream = cuda.Event = Nothing
    cuda.current_stream = cuda.default_stream = lambda *_: Nothing()
    cuda.stream = cuda.device = Nothing
    sys.meta_path.insert(0, Extensions())
    OnCpu().__enter__()
