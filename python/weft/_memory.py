# SPDX-License-Identifier: Apache-2.0
"""Where an object's bytes lie: whatever speaks DLPack, an array interface or the buffer protocol, and torch's tensors,
by themselves; none of their packages is imported. Nothing is copied, and what would need a copy is refused by name.
"""
from __future__ import annotations

import ctypes
import sys
from typing import Any, Callable, NamedTuple, Optional

from weft._dtypes import BY_BUFFER, BY_DLPACK, BY_TYPESTR, DType, dtype_of
from weft._errors import UsageError


class Memory(NamedTuple):
    """Contiguous memory, row-major.

    Attributes:
        pointer: address of the first byte.
        bytes: how many.
        device: number of the GPU; None: the host's memory.
        stream: of a GPU: the cudaStream_t whose work comes first (0: the default stream); else 0.
        dtype: weft's name of the elements' type ("BF16"); None where the object has no word for it.
        shape: in elements; None where the object has none.
        owner: what keeps the memory alive.
        readonly: the owner lets nobody write there.
    """
    pointer: int
    bytes: int
    device: Optional[int] = None
    stream: int = 0
    dtype: Optional[str] = None
    shape: Optional[tuple[int, ...]] = None
    owner: Any = None
    readonly: bool = False


def _named(given: Any) -> str:
    return f"{type(given).__module__}.{type(given).__qualname__}"


def _contiguous(given: Any, shape: tuple[int, ...], strides: Optional[tuple[int, ...]], item: int) -> None:
    """strides in the unit of `item`, None: contiguous."""
    if strides is None or 0 in shape:
        return
    expected = item
    for size, stride in zip(reversed(shape), reversed(strides)):
        if size != 1 and stride != expected:
            raise UsageError(f"{_named(given)} of shape {shape} is not contiguous: its strides are {strides} where "
                             "row-major memory is needed; give a contiguous copy of it, or declare the memory as it "
                             "lies (Trainer.declare_local and declare_holding take strides)")
        expected *= size


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def _of_torch(given: Any) -> Memory:
    torch = sys.modules["torch"]
    if given.layout is not torch.strided or given.is_meta:
        raise UsageError(f"a torch tensor of shape {tuple(given.shape)} has no memory of its own "
                         f"({'on the meta device' if given.is_meta else given.layout}): weft needs a strided one")
    if type(given) not in (torch.Tensor, torch.nn.Parameter) and hasattr(given, "to_local"):
        raise UsageError(f"a {_named(given)} of shape {tuple(given.shape)} is cut over ranks: give to_local() of it, or "
                         "declare the model with weft.torch.declare")
    if not given.is_contiguous():
        _contiguous(given, tuple(given.shape), tuple(given.stride()), 1)
    if given.is_conj() or given.is_neg():
        raise UsageError("a torch tensor with a conjugate or negative view: its memory has other values; resolve it first")
    device, stream = None, 0
    if given.device.type == "cuda":
        device = given.device.index
        stream = torch.cuda.current_stream(device).cuda_stream
    elif given.device.type != "cpu":
        raise UsageError(f"a torch tensor on {given.device}: weft reads memory of the host and of CUDA's GPUs")
    return Memory(given.data_ptr(), given.numel() * given.element_size(), device, stream, dtype_of(given.dtype).name,
                  tuple(given.shape), given)


def _of_interface(given: Any, interface: dict[str, Any], cuda: bool) -> Memory:
    """numpy's __array_interface__ (version 3) and Numba's __cuda_array_interface__ (version 3)."""
    shape, typestr = tuple(interface["shape"]), interface["typestr"]
    if interface.get("mask") is not None:
        raise UsageError(f"{_named(given)} has a mask: weft moves memory as it is")
    row: Optional[DType] = BY_TYPESTR.get(typestr)
    if typestr[0] == ">" and int(typestr[2:]) > 1:
        raise UsageError(f"{_named(given)} is big-endian ({typestr}): weft moves little-endian elements")
    if row is None and typestr[1] in "cmMUSO":
        raise UsageError(f"{_named(given)} has elements {typestr!r}: weft has no dtype for them; give a view of them as one "
                         "that it has, or as bytes")
    item = int(typestr[2:])
    _contiguous(given, shape, interface.get("strides"), item)
    pointer, readonly = interface["data"]
    device, stream = None, 0
    if cuda:
        device, stream = getattr(getattr(given, "device", None), "id", None), interface.get("stream") or 0
        device = _cuda_device(given) if device is None else int(device)
    if row is None and typestr[1] == "V" and hasattr(given, "dtype"):  # ml_dtypes' bfloat16 and float8 under numpy
        row = dtype_of(given.dtype)
    return Memory(pointer or 0, _count(shape) * item, device, stream, row.name if row else None, shape, given, readonly)


def _cuda_device(given: Any) -> int:
    """The interface has no field for it; DLPack has."""
    if hasattr(given, "__dlpack_device__"):
        return int(given.__dlpack_device__()[1])
    raise UsageError(f"{_named(given)} has a __cuda_array_interface__, which does not say on which GPU it lies, and "
                     "neither .device.id nor __dlpack_device__: wrap it in an array of torch or CuPy")


class _DLTensor(ctypes.Structure):
    """DLPack's header, version 1.1."""
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned."""
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
                ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", _DLTensor)]


_CPU, _CUDA, _CUDA_HOST, _CUDA_MANAGED = 1, 2, 3, 13
_READ_ONLY = 1
_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]


def _capsule(given: Any, stream: Optional[int]) -> Any:
    """Not consumed: its memory lives as long as it does."""
    named = {} if stream is None else {"stream": stream}
    try:
        return given.__dlpack__(max_version=(1, 1), copy=False, **named)
    except TypeError:  # older than these two
        return given.__dlpack__(**named)
    except (BufferError, ValueError) as error:
        raise UsageError(f"{_named(given)} cannot be had without a copy: {error}") from error


def _of_dlpack(given: Any) -> Memory:
    kind, number = given.__dlpack_device__()
    if kind not in (_CPU, _CUDA, _CUDA_HOST, _CUDA_MANAGED):
        raise UsageError(f"{_named(given)} lies on a device of DLPack's type {int(kind)}: weft reads memory of the host and "
                         "of CUDA's GPUs")
    cuda = kind in (_CUDA, _CUDA_MANAGED)
    capsule = _capsule(given, 1 if cuda else None)  # 1: what weft queues on the default stream comes after it
    readonly = False
    if _is_valid(capsule, b"dltensor_versioned"):
        versioned = _Versioned.from_address(_pointer_of(capsule, b"dltensor_versioned"))
        tensor, readonly = versioned.tensor, bool(versioned.flags & _READ_ONLY)
    else:
        tensor = _DLTensor.from_address(_pointer_of(capsule, b"dltensor"))
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    strides = tuple(tensor.strides[i] for i in range(tensor.ndim)) if tensor.strides else None
    row = BY_DLPACK.get((tensor.code, tensor.bits))
    if tensor.lanes != 1 or tensor.bits % 8:
        raise UsageError(f"{_named(given)} has elements of {tensor.bits} bits in {tensor.lanes} lanes: weft moves whole bytes")
    _contiguous(given, shape, strides, 1)
    return Memory((tensor.data or 0) + tensor.byte_offset, _count(shape) * tensor.bits // 8, int(number) if cuda else None,
                  0, row.name if row else None, shape, (given, capsule), readonly)


class _Buffer(ctypes.Structure):
    """Py_buffer, for the address of what is read-only too."""
    _fields_ = [("buf", ctypes.c_void_p), ("obj", ctypes.py_object), ("len", ctypes.c_ssize_t),
                ("itemsize", ctypes.c_ssize_t), ("readonly", ctypes.c_int), ("ndim", ctypes.c_int),
                ("format", ctypes.c_char_p), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
                ("suboffsets", ctypes.c_void_p), ("internal", ctypes.c_void_p)]


def _of_buffer(given: Any) -> Memory:
    view = memoryview(given)  # held: a bytearray stays where it is
    if view.format and view.format[0] in ">!" and view.itemsize > 1:
        raise UsageError(f"{_named(given)} is big-endian ({view.format}): weft moves little-endian elements")
    if not view.c_contiguous:
        _contiguous(given, view.shape or (), view.strides, view.itemsize)
    raw = _Buffer()
    if ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(view), ctypes.byref(raw), 0):
        raise BufferError("no buffer")
    pointer = raw.buf or 0
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(raw))
    row = BY_BUFFER.get(view.format.lstrip("@<=") if view.format else "B")
    typed = row is not None and row.name != "U8" and row.bytes == view.itemsize
    return Memory(pointer, view.nbytes, dtype=row.name if row and typed else None, shape=tuple(view.shape or ()) if typed else None,
                  owner=view, readonly=view.readonly)


def memory_of(given: Any) -> Memory:
    """Where the bytes of ``given`` are.

    Args:
        given: a Memory; a tensor of torch; or anything with ``__cuda_array_interface__``, ``__array_interface__``,
            ``__dlpack__`` or the buffer protocol (numpy, CuPy, JAX, mmap, bytearray, ..), asked in this order.

    Raises:
        UsageError: it is not contiguous, would need a copy, lies where weft does not read, or is no memory.
    """
    if type(given) is Memory:
        return given
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(given, torch.Tensor):
        return _of_torch(given)
    for name, read in _PROTOCOLS:
        if hasattr(given, name):
            return read(given)
    try:
        return _of_buffer(given)
    except TypeError:
        raise UsageError(f"{_named(given)} is no memory: it has neither __dlpack__, an array interface nor the buffer "
                         "protocol") from None


_PROTOCOLS: tuple[tuple[str, Callable[[Any], Memory]], ...] = (
    ("__cuda_array_interface__", lambda given: _of_interface(given, given.__cuda_array_interface__, cuda=True)),
    ("__array_interface__", lambda given: _of_interface(given, given.__array_interface__, cuda=False)),
    ("__dlpack__", _of_dlpack),
)
