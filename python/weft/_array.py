# SPDX-License-Identifier: Apache-2.0
"""Memory of weft's that a program reads: an engine's parameter, without a copy.

An Array, and whatever was made of it (a memoryview, a tensor of torch), keeps the memory there after its worker was closed:
the library frees it when the last is gone.
"""
from __future__ import annotations

import ctypes
import threading
from typing import Any, Optional

from weft._dtypes import dtype_of
from weft._errors import UsageError
from weft._library import ffi
from weft._memory import _CPU, _CUDA, _DLTensor, _is_valid, _pointer_of
from weft._structs import ParamView


class _Hold:
    """One reason for the memory to stay."""

    def __init__(self, handle: Any):
        self._handle: Any = None
        handle.array_made()
        self._handle = handle

    def __del__(self) -> None:
        if self._handle is not None:
            self._handle.array_gone()


class Array:
    """An engine's parameter in weft's memory, or in memory that was bound.

    numpy.asarray(array), torch.from_dlpack(array), cupy.asarray(array) and memoryview(array.buffer) lie over it.
    What it holds changes with updates: read it within ``Inference.read``.

    Attributes:
        name: of the parameter.
        dtype: weft's name, "BF16".
        shape: in elements, row-major.
        pointer: address of the first byte, on the GPU where ``device`` is one.
        bytes: how many.
        device: number of the GPU; None: the host's memory.
    """

    def __init__(self, handle: Any, view: ParamView, pointer: int, device: Optional[int]):
        self._hold = _Hold(handle)
        self.name, self.dtype, self.shape, self.bytes = view.name, view.dtype, view.shape, view.bytes
        self.pointer, self.device = pointer, device

    def __repr__(self) -> str:
        where = "host" if self.device is None else f"cuda:{self.device}"
        return f"weft.Array({self.name!r}, {self.dtype}, {self.shape}, {where})"

    @property
    def buffer(self) -> memoryview:
        """The bytes, of the host's memory: a memoryview of them, flat, which torch.frombuffer takes with any dtype."""
        if self.device is not None:
            raise UsageError(f"{self!r} lies on a GPU: it has no buffer; take it by __cuda_array_interface__ or __dlpack__")
        hold = self._hold
        start = ffi.gc(ffi.cast("char *", self.pointer), lambda pointer: hold is None)  # the buffer keeps it, and it the hold
        return memoryview(ffi.buffer(start, self.bytes))

    def _interface(self) -> dict[str, Any]:
        row = dtype_of(self.dtype)
        if row.typestr is None:
            raise AttributeError(f"{self.dtype} has no word in the array interfaces: use __dlpack__, or buffer")
        return {"shape": self.shape, "typestr": row.typestr, "data": (self.pointer, False), "version": 3, "strides": None}

    @property
    def __array_interface__(self) -> dict[str, Any]:
        if self.device is not None:
            raise AttributeError("it lies on a GPU")
        return self._interface()

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.device is None:
            raise AttributeError("it lies in the host's memory")
        return {**self._interface(), "stream": None}

    def __dlpack_device__(self) -> tuple[int, int]:
        return (_CPU, 0) if self.device is None else (_CUDA, self.device)

    def __dlpack__(self, *, stream: Any = None, max_version: Optional[tuple[int, int]] = None, dl_device: Any = None,
                   copy: Optional[bool] = None) -> Any:
        """A capsule "dltensor". What was published was complete before it was published: no stream has to wait."""
        if copy or (dl_device is not None and tuple(dl_device) != self.__dlpack_device__()):
            raise BufferError(f"{self!r} is given where it lies, and without a copy")
        return _capsule(self)


class _Managed(ctypes.Structure):
    """DLManagedTensor of DLPack, with what it points to behind it."""
    _fields_ = [("tensor", _DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
                ("shape", ctypes.c_int64 * 4)]


_given: dict[int, tuple[_Managed, _Hold]] = {}  # by address, until its consumer lets it go
_given_lock = threading.Lock()


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)  # type: ignore[untyped-decorator, unused-ignore]
def _delete(address: int) -> None:
    with _given_lock:
        held = _given.pop(address, None)
    del held


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)  # type: ignore[untyped-decorator, unused-ignore]
def _not_taken(capsule: int) -> None:
    """A capsule that nobody consumed dies with its tensor. Its name says so."""
    raw = ctypes.cast(capsule, ctypes.py_object)
    if _is_valid(raw, b"dltensor"):
        _delete(_pointer_of(raw, b"dltensor"))


def _capsule(array: Array) -> Any:
    row = dtype_of(array.dtype)
    managed = _Managed()
    managed.tensor.data, managed.tensor.byte_offset = array.pointer, 0
    managed.tensor.device_type, managed.tensor.device_id = array.__dlpack_device__()
    managed.tensor.ndim = len(array.shape)
    managed.tensor.code, managed.tensor.bits, managed.tensor.lanes = row.dlpack[0], row.dlpack[1], 1
    managed.shape[:len(array.shape)] = array.shape
    address = ctypes.addressof(managed)
    managed.tensor.shape = ctypes.cast(address + _Managed.shape.offset, ctypes.POINTER(ctypes.c_int64))
    managed.deleter = ctypes.cast(_delete, ctypes.c_void_p).value
    with _given_lock:
        _given[address] = managed, array._hold
    return _new_capsule(address, b"dltensor", ctypes.cast(_not_taken, ctypes.c_void_p))
