# SPDX-License-Identifier: Apache-2.0
"""Flat shards: FSDP1's units (torch.distributed.fsdp.FullyShardedDataParallel) and DeepSpeed's ZeRO-3 partitions."""
from __future__ import annotations

import sys
from typing import Any, Iterator, NamedTuple, Optional

import torch

from weft import StateError, UsageError
from weft.torch._cuts import Flat
from weft.torch._names import clean, joined

# ---- FSDP1

class Unit(NamedTuple):
    """A module that FSDP1 has flattened.

    Attributes:
        name: of its flat parameter, clean.
        prefix: of the names in it, clean.
        handle: torch's FlatParamHandle.
    """
    name: str
    prefix: str
    handle: Any

    @property
    def memory(self) -> torch.Tensor:
        """This rank's shard, whatever the flat parameter shows at the moment: it is switched between the shard and all
        of it (_flat_param.FlatParameter)."""
        flat = self.handle.flat_param
        shard = getattr(flat, "_local_shard", None)  # from the first forward on
        memory: torch.Tensor = flat.data if shard is None else shard.detach()
        if memory.untyped_storage().size() == 0:
            raise StateError(f"{self.name!r}: its shard was freed or is offloaded: bring it back before declare and "
                             "publish")
        return memory

    def contents(self) -> Iterator[tuple[str, tuple[int, ...], Flat]]:
        """(name, shape, range) of each of its parameters, an empty range where this rank has none of it."""
        flat = self.handle.flat_param
        extensions = getattr(flat, "_param_extensions", None) or [None] * len(flat._fqns)
        contiguous = getattr(flat, "_contiguities", None) or [True] * len(flat._fqns)
        for fqn, shape, part, extension, plain in zip(flat._fqns, flat._shapes, flat._shard_param_infos, extensions,
                                                      contiguous):
            name = joined(self.prefix, clean(fqn))
            if extension is not None or not plain:
                raise UsageError(f"{name!r} in FSDP1's {self.name!r} is "
                                 + ("a DTensor that was flattened" if plain else "flattened as it lies, and it is not "
                                                                                 "contiguous")
                                 + ": its flat elements are not those of the tensor, row after row; use FSDP2 "
                                 "(fully_shard), or give it to `gathered`")
            if part.in_shard:
                yield name, tuple(shape), Flat(part.intra_param_start_idx, part.intra_param_end_idx + 1,
                                               part.offset_in_shard)
            else:
                yield name, tuple(shape), Flat(0, 0, 0)

    def aliases(self) -> Iterator[tuple[str, str]]:
        """(further name, first name) of parameters that are in it once and have two names."""
        for shared in self.handle.flat_param._shared_param_infos:
            yield (joined(self.prefix, clean(joined(shared.module_name, shared.param_name))),
                   joined(self.prefix, clean(joined(shared.prim_module_name, shared.prim_param_name))))


def units_of(model: torch.nn.Module) -> list[Unit]:
    """FSDP1's units in the model, each under its own name."""
    loaded = sys.modules.get("torch.distributed.fsdp.fully_sharded_data_parallel")
    if loaded is None:
        return []
    units = []
    for path, module in model.named_modules():
        if isinstance(module, loaded.FullyShardedDataParallel) and module._handle is not None:
            prefix = clean(path)
            units.append(Unit(joined(prefix, "_flat_param"), prefix, module._handle))
    return units


def parameters_of(unit: Unit) -> list[Any]:
    """What named_parameters shows of it: the flat parameter, or with use_orig_params=True the original ones."""
    flat = unit.handle.flat_param
    return [flat, *(getattr(flat, "_params", None) or ()), *(getattr(flat, "_shared_params", None) or ())]


# ---- ZeRO-3

def is_partitioned(parameter: Any) -> bool:
    """deepspeed.zero.Init has taken the parameter over."""
    return hasattr(parameter, "ds_tensor") and hasattr(parameter, "ds_numel")


def _partition_rank(name: str, parameter: Any) -> int:
    rank: Optional[int] = getattr(parameter, "ds_zero_partition_rank", None)
    if rank is not None:
        return int(rank)
    group = getattr(parameter, "ds_process_group", None)
    if not torch.distributed.is_initialized():
        raise StateError(f"{name!r} is a ZeRO-3 partition and torch.distributed is not initialised: which one is "
                         "unknown")
    return int(torch.distributed.get_rank(group))


def partition_of(name: str, parameter: Any) -> tuple[torch.Tensor, tuple[int, ...], Flat]:
    """Memory, whole shape and range of a ZeRO-3 parameter: rank r of its group has elements [r s, (r + 1) s), s being
    the numel of a partition, and what is behind the parameter's end is padding
    (DeepSpeed's zero.partition_parameters). A second copy over fewer ranks (ds_secondary_tensor) is stale
    after a step, and not read."""
    shard = parameter.ds_tensor
    if shard is None:
        raise StateError(f"{name!r} has no ds_tensor: ZeRO-3 has not partitioned it yet; declare after "
                         "deepspeed.initialize")
    if hasattr(shard, "ds_quant_scale"):
        raise UsageError(f"{name!r} is stored quantised by ZeRO-3 (zero_quantized_nontrainable_weights): switch that "
                         "off, or give it to `gathered`")
    if getattr(getattr(shard, "status", None), "name", "AVAILABLE") != "AVAILABLE":
        raise UsageError(f"{name!r}: its partition is on NVMe, where there is no memory to read: offload to the CPU, "
                         "or give it to `gathered`")
    size, numel = int(getattr(shard, "ds_numel", shard.numel())), int(parameter.ds_numel)
    memory: torch.Tensor = shard.data.view(-1)
    start = min(_partition_rank(name, parameter) * size, numel)
    stop = min(start + size, numel)
    if memory.numel() < stop - start:
        raise StateError(f"{name!r}: its partition has {memory.numel()} elements where {stop - start} are needed: it "
                         "was offloaded (offload_states); bring it back before declare and publish")
    return memory, tuple(parameter.ds_shape), Flat(start, stop, 0)
