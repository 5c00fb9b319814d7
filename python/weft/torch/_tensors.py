# SPDX-License-Identifier: Apache-2.0
"""weft's dtypes and memory, as torch has them."""
from __future__ import annotations

import contextlib
import math
from typing import Any, Iterator, Union

import torch

import weft
from weft import Array, Inference, UsageError


def dtype_of(dtype: Any) -> torch.dtype:
    """torch's dtype of weft's name: ``dtype_of("BF16") is torch.bfloat16``. Takes what ``weft.dtype_of`` takes.

    Raises:
        UsageError: this torch has none.
    """
    row = weft.dtype_of(dtype)
    found = getattr(torch, row.torch, None)
    if not isinstance(found, torch.dtype):
        raise UsageError(f"torch {torch.__version__} has no {row.torch}, which weft's {row.name} is")
    return found


class _Bytes:
    """The bytes of an array on a GPU. (CUDA array interface, version 3; it has no bfloat16 and no float8.)"""

    def __init__(self, array: Array):
        self._array = array  # the tensor keeps this object, and it the memory
        self.__cuda_array_interface__ = {"shape": (array.bytes,), "typestr": "|u1", "data": (array.pointer, False),
                                         "version": 3, "strides": None, "stream": None}


def tensor_over(array: Array) -> torch.Tensor:
    """A tensor that lies over weft's memory, without a copy, of any dtype that weft and torch have. The memory stays as
    long as the tensor or a view of it does; what it holds changes with updates (``Inference.read``)."""
    dtype = dtype_of(array.dtype)
    if array.device is None:
        return torch.frombuffer(array.buffer, dtype=dtype, count=math.prod(array.shape)).view(array.shape)
    data = torch.as_tensor(_Bytes(array), device=f"cuda:{array.device}")
    return data.view(dtype).view(array.shape)


def empty_shared(inference: Inference, param: Union[int, str]) -> torch.Tensor:
    """After join: a tensor over weft's own memory of a parameter, which trainers of the host write into ("shm"), or
    NICs: for engines that take tensors from an allocator of theirs. Empty as torch.empty is: nothing has been written
    yet.

    Args:
        param: id or name.

    Raises:
        StateError: not joined yet; or with shadow, where no version is here (there are two copies, and ``attach``
        changes over).
    """
    return tensor_over(inference.memory(param))


@contextlib.contextmanager
def without_memory() -> Iterator[None]:
    """Modules that are made in it have their parameters on the meta device, and buffers where they always are:
    ``attach`` then gives them weft's memory at join, and no second copy of the model is ever there. One thread at a
    time.

    ::

        with weft.torch.without_memory():
            model = Engine(config)
        attached = weft.torch.attach(inference, model)
        inference.join()
    """
    plain = torch.nn.Module.register_parameter

    def register(self: torch.nn.Module, name: str, param: Any) -> None:
        plain(self, name, param)
        made = self._parameters[name]
        if made is not None and not made.is_meta:
            moved = torch.nn.Parameter(made.detach().to("meta"), requires_grad=made.requires_grad)
            moved.__dict__.update(made.__dict__)
            self._parameters[name] = moved
    torch.nn.Module.register_parameter = register  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.nn.Module.register_parameter = plain  # type: ignore[method-assign]
