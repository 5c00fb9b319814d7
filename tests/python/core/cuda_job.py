# SPDX-License-Identifier: Apache-2.0
"""A trainer and a rank whose memory lies on GPUs, which are mock ones: test_cuda.py runs it with the library of the tests."""
import ctypes
import os

import numpy
from pair import K, Q, Thread, pair, right, values

import weft
from weft._library import ffi
from weft._structs import sized

play = ctypes.CDLL(os.environ["WEFT_LIBRARY"])


def address(pointer):
    return ctypes.c_void_p(int(ffi.cast("uintptr_t", pointer)))


class OnGpu:
    """An array of a package that has GPU memory: its interface is all that weft gets to see."""

    def __init__(self, device, array):
        self.struct, error = sized("weft_memory"), ffi.new("weft_error *", {"size": ffi.sizeof("weft_error")})
        assert play.weft_play_allocate(device, ctypes.c_uint64(array.nbytes), address(self.struct), address(error)) == 0
        self.shape, self.typestr, self.device = array.shape, array.dtype.str, type("Device", (), {"id": device})
        self.fill(array)

    def fill(self, array):
        assert play.weft_play_copy(self.device.id, address(self.struct.pointer), ctypes.c_void_p(array.ctypes.data),
                                   ctypes.c_uint64(array.nbytes), None) == 0

    @property
    def __cuda_array_interface__(self):
        return {"shape": self.shape, "typestr": self.typestr, "data": (address(self.struct.pointer).value, False), "version": 3,
                "stream": None}


def host(array):
    """A copy of an Array of a GPU."""
    copy = numpy.empty(array.shape, "f4")
    interface = array.__cuda_array_interface__
    assert play.weft_play_copy(array.device, ctypes.c_void_p(copy.ctypes.data), ctypes.c_void_p(interface["data"][0]),
                               ctypes.c_uint64(copy.nbytes), None) == 0
    return type("Copy", (), {"buffer": copy})


def refused(words, function, *arguments):
    try:
        function(*arguments)
    except weft.UsageError as error:
        assert words in error.text, error.text
    else:
        raise AssertionError(f"not refused: {words}")


ON_GPU = {"transport": "cuda", "memory": "cuda:0"}
with pair(trainer_options=ON_GPU, **ON_GPU) as (sender, receiver):
    there = receiver.memory("qk")
    assert there.device == 0 and there.__dlpack_device__() == (2, 0) and not hasattr(there, "__array_interface__")
    refused("lies on a GPU", lambda: there.buffer)
    data = {name: OnGpu(0, array) for name, array in values(1).items()}
    for version in (1, 2, 3):
        waits = Thread(receiver.wait, version)
        for name, array in values(version).items():
            data[name].fill(array)
        if version == 2:
            with sender.update(version) as update:
                update.write("k", data["k"])
                update.write("q", data["q"])
        else:
            sender.publish(version, data)
        waits.done()
        assert right(host(there), version)

    waits = Thread(receiver.wait, 4)
    sender.begin(4)
    refused("cuda:1", sender.write, "q", OnGpu(1, values(4)["q"]))
    refused("host", sender.write, "q", values(4)["q"])
    sender.abort()
    try:
        waits.done()
    except weft.Aborted:
        print(f"{Q.name}, {K.name} on GPUs")
