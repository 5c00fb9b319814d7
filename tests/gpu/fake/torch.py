# SPDX-License-Identifier: Apache-2.0
"""As much of torch as torch_tensors.py uses, over mock devices: so the script is proved where there is neither."""
import contextlib
import ctypes
import os

import numpy

float32 = numpy.float32
library = ctypes.CDLL(os.environ["FAKE_TORCH_WEFT"])


class Memory(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("kind", ctypes.c_uint32), ("device", ctypes.c_int32),
                ("pointer", ctypes.c_void_p), ("bytes", ctypes.c_uint64), ("stream", ctypes.c_void_p)]


class DeviceTensor:
    """Of 32-bit elements; lives as long as the process."""

    def __init__(self, address, count):
        self.address, self.count = address, count

    def __getitem__(self, part):
        return DeviceTensor(self.address + 4 * part.start, part.stop - part.start)

    def data_ptr(self):
        return self.address

    def numel(self):
        return self.count

    def copy_(self, host, non_blocking):
        assert non_blocking and host.nbytes == 4 * self.count
        copy(self.address, host.ctypes.data, host.nbytes)

    def clone(self):
        return self  # nothing is queued here: read when it is asked for

    def cpu(self):
        host = numpy.zeros(self.count, float32)
        copy(host.ctypes.data, self.address, host.nbytes)
        return host.view(HostTensor)


class HostTensor(numpy.ndarray):
    def pin_memory(self):
        return self


def copy(to, source, count):
    assert library.weft_play_copy(0, ctypes.c_void_p(to), ctypes.c_void_p(source), ctypes.c_uint64(count), None) == 0


def zeros(count, dtype, device):
    assert dtype is float32 and device == "cuda:0"
    memory = Memory(size=ctypes.sizeof(Memory))
    assert library.weft_play_allocate(0, ctypes.c_uint64(4 * count), ctypes.byref(memory), None) == 0
    return DeviceTensor(memory.pointer, count)


def arange(count, dtype):
    return numpy.arange(count, dtype=dtype).view(HostTensor)


def equal(one, other):
    return numpy.array_equal(one, other)


class cuda:
    class Stream:
        cuda_stream = None

        def synchronize(self):
            pass

    @staticmethod
    def is_available():
        return True

    @staticmethod
    def stream(_):
        return contextlib.nullcontext()

    @staticmethod
    def _sleep(_):
        pass
