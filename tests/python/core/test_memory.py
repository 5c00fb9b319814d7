# SPDX-License-Identifier: Apache-2.0
"""What may be given as memory, and how what may not is refused."""
import array
import mmap

import numpy
import pytest
import torch

import weft


class Exports:
    """Speaks one protocol alone."""

    def __init__(self, **members):
        self.__dict__.update(members)
        self.kept = members


def dlpack_only(tensor):
    class Only:
        def __dlpack__(self, **named):
            return tensor.__dlpack__()

        def __dlpack_device__(self):
            return tensor.__dlpack_device__()
    return Only()


@pytest.mark.parametrize("dtype,name", [(torch.bfloat16, "BF16"), (torch.float16, "F16"), (torch.float32, "F32"),
                                        (torch.float8_e4m3fn, "F8_E4M3"), (torch.float8_e5m2, "F8_E5M2"),
                                        (torch.int64, "I64"), (torch.uint8, "U8"), (torch.bool, "BOOL")])
def test_torch__says_where_it_lies_and_what_it_is(dtype, name):
    tensor = torch.zeros(4, 6, dtype=dtype)
    found = weft.memory_of(tensor)
    assert (found.pointer, found.bytes, found.dtype, found.shape) == (tensor.data_ptr(), tensor.nbytes, name, (4, 6))
    assert found.device is None and found.owner is tensor
    assert weft.memory_of(torch.nn.Parameter(tensor, requires_grad=False)).pointer == tensor.data_ptr()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int32])
def test_dlpack__says_the_same(dtype):
    tensor = torch.zeros(10, 6, dtype=dtype)[2:]
    found, expected = weft.memory_of(dlpack_only(tensor)), weft.memory_of(tensor)
    assert found[:6] == expected[:6]


def test_numpy__is_taken_where_it_lies_and_read_only_is_said():
    held = numpy.zeros((3, 5), "f4")
    found = weft.memory_of(held)
    assert (found.pointer, found.bytes, found.dtype, found.shape) == (held.ctypes.data, 60, "F32", (3, 5))
    held.flags.writeable = False
    assert weft.memory_of(held).readonly and not found.readonly


@pytest.mark.parametrize("make", [lambda: bytearray(24), lambda: bytes(24), lambda: mmap.mmap(-1, 24),
                                  lambda: memoryview(bytearray(24)), lambda: array.array("f", [0.0] * 6)])
def test_buffers__are_memory_of_so_many_bytes(make):
    given = make()
    found = weft.memory_of(given)
    assert found.pointer and found.bytes == 24
    assert found.dtype == ("F32" if isinstance(given, array.array) else None)


@pytest.mark.parametrize("make,words", [
    (lambda: torch.zeros(4, 6).t(), "not contiguous"),
    (lambda: numpy.zeros((4, 6), order="F"), "not contiguous"),
    (lambda: numpy.zeros((4, 6))[:, ::2], "not contiguous"),
    (lambda: memoryview(bytes(24))[::2], "not contiguous"),
    (lambda: dlpack_only(torch.zeros(4, 6).t()), "not contiguous"),
    (lambda: torch.zeros(4, device="meta"), "meta device"),
    (lambda: torch.zeros(4, 4).to_sparse(), "strided"),
    (lambda: torch.zeros(4, dtype=torch.complex64), "dtype"),
    (lambda: numpy.zeros(4, ">f4"), "big-endian"),
    (lambda: memoryview(numpy.zeros(4, ">f4")), "big-endian"),
    (lambda: numpy.zeros(4, "c8"), "no dtype for them"),
    (lambda: Exports(__array_interface__={"shape": (4,), "typestr": "<f4", "data": (4096, False), "mask": 1}), "mask"),
    (lambda: [1, 2], "no memory"),
    (lambda: None, "no memory"),
    (lambda: Exports(__cuda_array_interface__={"shape": (4,), "typestr": "<f4", "data": (4096, False), "version": 3}),
     "which GPU"),
])
def test_memory__that_cannot_be_had_as_it_is_is_refused_by_name(make, words):
    with pytest.raises(weft.UsageError, match=words):
        weft.memory_of(make())


def test_cuda_interface__gives_device_and_stream():
    device = Exports(id=1)
    given = Exports(__cuda_array_interface__={"shape": (4, 2), "typestr": "<f2", "data": (4096, False), "version": 3,
                                              "strides": None, "stream": 7}, device=device)
    found = weft.memory_of(given)
    assert found[:6] == (4096, 16, 1, 7, "F16", (4, 2))


@pytest.mark.parametrize("given,name", [("bf16", "BF16"), ("bfloat16", "BF16"), (torch.bfloat16, "BF16"), ("torch.float32", "F32"),
                                        (numpy.float16, "F16"), (numpy.dtype("f4"), "F32"), ("F8_E4M3", "F8_E4M3"),
                                        (torch.float8_e4m3fn, "F8_E4M3")])
def test_dtypes__have_the_names_that_others_give_them(given, name):
    assert weft.dtype_name(given) == name


def test_dtypes__that_are_none_are_refused_with_those_that_are():
    with pytest.raises(weft.UsageError, match="BF16"):
        weft.dtype_name("complex64")
