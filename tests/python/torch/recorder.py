# SPDX-License-Identifier: Apache-2.0
"""A stand-in for weft.Trainer that keeps what was declared, and reads it out on real memory: each element of a model is
its own number, so which element of which tensor a box finds in memory is seen."""
import contextlib
import itertools
import math

import numpy
import torch

import weft

NOBODY = -1


class Recorder:
    """declare_* of weft.Trainer, with its checks of shapes and order."""

    def __init__(self):
        self.tensors = []
        self.declared = {}    # tensor: (dtype, shape, order)
        self.locals = []      # (name, dtype, shape)
        self.boxes = []       # (tensor, local id, lo, hi, offset, strides)
        self.flats = []
        self.rows = {}        # tensor: rows, of those that are memory of their own
        self.registered = []

    def _tensor(self, tensor, order):
        assert type(order) is int and 1 <= len(tensor.shape) <= 4 and all(size > 0 for size in tensor.shape), tensor
        known = self.declared.setdefault(tensor.name, (weft.dtype_name(tensor.dtype), tuple(tensor.shape), order))
        assert known == (weft.dtype_name(tensor.dtype), tuple(tensor.shape), order)

    def _local(self, name, dtype, shape):
        assert name not in [each[0] for each in self.locals], name
        assert 1 <= len(shape) <= 4 and all(size > 0 for size in shape), (name, shape)
        self.locals.append((name, weft.dtype_name(dtype), tuple(shape)))
        return len(self.locals) - 1

    def declare_tensor(self, tensor, *, rows=None, order=None):
        self._tensor(tensor, order)
        lo, hi = (0, tensor.shape[0]) if rows is None else rows
        assert 0 <= lo < hi <= tensor.shape[0]
        self.rows[tensor.name] = lo, hi
        shape = (hi - lo, *tensor.shape[1:])
        number = self._local(tensor.name, tensor.dtype, shape)
        self._box(tensor, number, (lo, *(0 for _ in shape[1:])), (hi, *tensor.shape[1:]), 0, strides(shape))
        return number

    def declare_local(self, local):
        return self._local(local.name, local.dtype, local.shape)

    def declare_holding(self, tensor, local, lo, hi, *, order=None, offset=0, strides=None):
        self._tensor(tensor, order)
        self._box(tensor, local, lo, hi, offset, strides)

    def _box(self, tensor, local, lo, hi, offset, strides):
        assert len(lo) == len(hi) == len(strides) == len(tensor.shape)
        assert all(0 <= low < high <= size for low, high, size in zip(lo, hi, tensor.shape)), (tensor, lo, hi)
        assert all(stride > 0 for stride in strides)
        assert weft.dtype_name(tensor.dtype) == self.locals[local][1]
        self.boxes.append((tensor.name, local, tuple(lo), tuple(hi), offset, tuple(strides)))

    def declare_flat(self, tensor, start, stop, local, *, order=None, offset=0):
        self._tensor(tensor, order)
        assert 0 <= start < stop <= math.prod(tensor.shape)
        self.flats.append((tensor.name, start, stop, local, offset))

    def register(self, memory):
        self.registered.append(weft.memory_of(memory))

    # ---- read out

    def found(self, memory):
        """{tensor: numbers}, as its boxes find them in memory (by id); NOBODY where this rank has none. Each element of
        the memory is in one box at most. And how many of it are in none."""
        values = {number: tensor.detach().flatten().numpy() for number, tensor in memory.items()}
        assert set(values) == set(range(len(self.locals)))
        taken = {number: numpy.zeros(len(each), dtype=int) for number, each in values.items()}
        found = {name: numpy.full(shape, NOBODY) for name, (_, shape, _) in self.declared.items()}
        for number, (name, _, shape) in enumerate(self.locals):
            assert math.prod(shape) == len(values[number]), name
        for name, local, lo, hi, offset, steps in self.boxes:
            inside = numpy.indices([high - low for low, high in zip(lo, hi)]).reshape(len(lo), -1)
            at = offset + sum(inside[d] * steps[d] for d in range(len(lo)))
            self._take(found[name], numpy.ravel_multi_index([inside[d] + lo[d] for d in range(len(lo))],
                                                            found[name].shape), values[local], at, taken[local])
        for name, start, stop, local, offset in self.flats:
            self._take(found[name], numpy.arange(start, stop), values[local],
                       numpy.arange(offset, offset + stop - start), taken[local])
        return found, {self.locals[number][0]: int((each == 0).sum()) for number, each in taken.items()}

    @staticmethod
    def _take(tensor, elements, values, at, taken):
        assert (tensor.reshape(-1)[elements] == NOBODY).all(), "two boxes of this rank have an element"
        assert numpy.unique(at).size == at.size
        tensor.reshape(-1)[elements] = values[at]
        taken[at] += 1
        assert taken.max() <= 1, "an element of memory is in two boxes"


class Publisher(Recorder):
    """And the calls of an update."""

    def __init__(self):
        super().__init__()
        self.calls, self.written = [], {}

    @contextlib.contextmanager
    def _update(self, version):
        self.calls.append(("begin", version))
        try:
            yield self
        except BaseException:
            self.calls.append("abort")
            raise
        self.calls.append("end")

    def update(self, version):
        plain = self._update(version)

        class Both:
            def __enter__(self):
                return plain.__enter__()

            def __exit__(self, *exception):
                return plain.__exit__(*exception)

            async def __aenter__(self):
                return plain.__enter__()

            async def __aexit__(self, *exception):
                return plain.__exit__(*exception)
        return Both()

    def write(self, number, data):
        assert not torch.is_grad_enabled() or not data.requires_grad
        self.written[number] = data.clone()
        self.calls.append("write")

    def write_all(self, data):
        self.written.update({number: memory.clone() for number, memory in data.items()})
        self.calls.append("write_all")

    async def write_all_async(self, data):
        self.write_all(data)

    def drain(self):
        self.calls.append("drain")

    async def drain_async(self):
        self.drain()


def strides(shape):
    return tuple(itertools.accumulate((1, *reversed(shape[1:])), int.__mul__))[::-1]


def numbered(model, first=0):
    """Fills the parameters, each element with its own number: {clean name: (shape, number of the first)}."""
    bases = {}
    for name, parameter in model.named_parameters():
        bases[name] = tuple(parameter.shape), first
        parameter.data.copy_(numbers(parameter.shape, first).to(parameter.dtype))
        first += parameter.numel()
    return bases


def numbers(shape, first):
    return torch.arange(first, first + math.prod(shape), dtype=torch.float64).reshape(shape)


def assert_right(found, bases):
    """Every element that a rank has of a tensor is that tensor's element."""
    for name, values in found.items():
        shape, first = bases[name]
        want = numpy.arange(first, first + math.prod(shape)).reshape(values.shape)
        assert ((values == want) | (values == NOBODY)).all(), name


def assert_all(ranks, bases):
    """Together the ranks have every element of every tensor."""
    for name in bases:
        some = [found[name] != NOBODY for found in ranks if name in found]
        assert some and numpy.logical_or.reduce(some).all(), f"elements of {name} are on no rank"
