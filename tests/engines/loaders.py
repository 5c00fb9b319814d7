# SPDX-License-Identifier: Apache-2.0
"""SGLang's and vLLM's own model classes and weight loaders, as one rank of an engine of any size in one process without a
GPU: torch's "fake" process groups, which answer for ranks that are not there. Every parameter is filled with 0xA5 before
the load, so that a byte that nobody writes shows.

    engine(name, device)      imported once, then a fork a rank: a process can have one engine, and one device
      .load(folder, rank, setup)   {name: (shape, dtype, values)} after the engine's own load
      .version

load_vllm.py and load_sglang.py have what each does; device.py what they are told of a GPU."""
import dataclasses
import os

os.environ["OMP_NUM_THREADS"] = "1"  # also of threads that a loader starts: a pool's are not there after a fork, and waited for
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("VLLM_TARGET_DEVICE", "cpu")

import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

torch.set_num_threads(1)
# else vLLM's and SGLang's ways for processors pack weights where this processor could use that, with operators that the wheels
# for GPUs do not have
torch.cpu._is_amx_tile_supported = lambda: False
UNWRITTEN = 0xA5


@dataclasses.dataclass(frozen=True)
class Setup:
    """How an engine is run: the ranks of one engine, what runs its experts, and what more its command line says."""

    tp: int = 1  # all ranks of the engine, as in --infer
    ep: int = 1
    dp: int = 1  # attention's
    runner: str | None = None  # the engine's name of what runs experts; None: its own choice, or what a CPU loads with
    device: str = ""  # "sm90", "sm100": what the engine is told to run on; "": a CPU
    arguments: tuple[tuple[str, object], ...] = ()  # further ones of the engine
    processed: bool = False  # as they are after process_weights_after_loading


def import_torchvision() -> None:
    """Beside a torch that it was not built for: its operators, which nobody calls, are left out."""
    real = torch.library.register_fake

    def register(operator, *arguments, **named):
        if isinstance(operator, str) and operator.startswith("torchvision::"):
            return lambda function: function
        return real(operator, *arguments, **named)

    torch.library.register_fake = register
    try:
        import torchvision.transforms.v2  # noqa: F401
    finally:
        torch.library.register_fake = real


def fake_groups(rank: int, world: int) -> None:
    made = dist.new_group
    dist.new_group = lambda ranks=None, *_, **__: made(ranks, backend="fake")
    dist.init_process_group(backend="fake", store=FakeStore(), rank=rank, world_size=world)


def parameters_of(model, load, process=None):
    """load, process: functions of the model; process: what the engine makes of its parameters after the load."""
    for parameter in model.parameters():
        parameter.data.view(-1).view(torch.uint8).fill_(UNWRITTEN)
    load(model)
    if process:
        process(model)
    return {name: (list(parameter.shape), str(parameter.dtype), parameter.data.contiguous())
            for name, parameter in model.named_parameters()}


def engine(name: str, device: str = ""):
    import_torchvision()
    if name == "vllm":
        import load_vllm

        return load_vllm.Vllm(device)  # which tells of it those alone who choose
    if device:
        import device as devices

        devices.pretend(device)
    import load_sglang

    return load_sglang.Sglang(device)


ENGINES = ("vllm", "sglang")
