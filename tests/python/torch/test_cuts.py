# SPDX-License-Identifier: Apache-2.0
"""Boxes of flat ranges, of parts, of tensors of many dimensions: beside torch's own indexing."""
import itertools
import random

import pytest
import torch

import weft
from weft.torch import Part
from weft.torch._cuts import Flat, Run, dense, flat_runs, folded, folded_shape, whole
from weft.torch._names import shares_of


def values_of(run, memory):
    """The box's elements, read from memory by its offset and strides."""
    return memory.clone().as_strided([hi - lo for lo, hi in zip(run.lo, run.hi)], run.strides, run.offset)


def box_of(run, tensor):
    return tensor[tuple(slice(lo, hi) for lo, hi in zip(run.lo, run.hi))]


@pytest.mark.parametrize("shape", [(7,), (5, 3), (2, 3, 4), (3, 2, 2, 3), (1, 4, 1)])
def test_flat__is_at_most_2n_minus_1_boxes_of_its_elements(shape):
    tensor = torch.arange(torch.Size(shape).numel()).reshape(shape)
    for start, stop in itertools.combinations(range(tensor.numel() + 1), 2):
        memory = torch.cat([torch.tensor([-1, -1]), tensor.flatten()[start:stop]])
        runs = list(flat_runs(shape, Flat(start, stop, 2)))
        assert len(runs) <= 2 * len(shape) - 1 and sum(run.numel for run in runs) == stop - start
        for run in runs:
            assert torch.equal(values_of(run, memory), box_of(run, tensor))


def test_flat__of_five_rows_of_three_is_as_computed_by_hand():
    assert list(flat_runs((5, 3), Flat(0, 8, 0))) == [Run((0, 0), (2, 3), 0, (3, 1)), Run((2, 0), (3, 2), 6, (2, 1))]
    assert list(flat_runs((5, 3), Flat(8, 15, 0))) == [Run((2, 2), (3, 3), 0, (1, 1)), Run((3, 0), (5, 3), 1, (3, 1))]
    assert list(flat_runs((5, 3), Flat(4, 8, 0))) == [Run((1, 1), (2, 3), 0, (2, 1)), Run((2, 0), (3, 2), 2, (2, 1))]


PARTS = [(), 2, slice(1, 5), slice(1, 6, 2), (slice(None), slice(2, 4)), (3, slice(1, None)), (slice(4, 5), 0, 3),
         (1, 2, 3), (slice(0, 6, 3), slice(None), slice(1, 4, 2)), -1]


@pytest.mark.parametrize("where", PARTS, ids=str)
def test_part__has_what_the_index_picks(where):
    """Of a parameter of which this rank has one box, in the middle and transposed in its memory."""
    parameter = torch.arange(6 * 4 * 5).reshape(6, 4, 5)
    want = parameter[where]
    shares = shares_of(weft.Tensor("p", "F32", (6, 4, 5)), lambda name, tensor: [Part("t", where)])
    for lo, hi in [((0, 0, 0), (6, 4, 5)), ((1, 1, 2), (5, 3, 4)), ((2, 2, 3), (4, 4, 5))]:
        memory = box_of(Run(lo, hi, 0, ()), parameter).transpose(0, 2).contiguous().flatten()
        sizes = [high - low for low, high in zip(lo, hi)]
        run = Run(lo, hi, 0, (1, sizes[0], sizes[0] * sizes[1]))
        (share,) = shares
        found, there = share.of(run), torch.zeros_like(parameter, dtype=torch.bool)
        box_of(run, there)[...] = True
        assert share.tensor.shape == (tuple(want.shape) or (1,))
        if found is None:
            assert not there[where].any()
            continue
        assert torch.equal(values_of(found, memory), box_of(found, want.reshape(share.tensor.shape)))
        assert found.numel == there[where].sum()


def test_part__may_be_a_box_of_a_larger_tensor():
    """Rows that lie in turn: those of torchtitan's rotary order."""
    (even, odd) = shares_of(weft.Tensor("wq", "F32", (8, 3)), lambda name, tensor: [
        Part("q", slice(0, 8, 2), (8, 3), (0, 0)), Part("q", slice(1, 8, 2), (8, 3), (4, 0))])
    assert even.of(whole((8, 3))) == Run((0, 0), (4, 3), 0, (6, 1))
    assert odd.of(whole((8, 3))) == Run((4, 0), (8, 3), 3, (6, 1))
    assert odd.of(Run((3, 0), (6, 3), 0, (3, 1))) == Run((5, 0), (7, 3), 0, (6, 1))


@pytest.mark.parametrize("where, shape, lo, words", [
    (slice(3, 3), None, None, "is empty"), (slice(4, 0, -1), None, None, "backwards"), (9, None, None, "index 9"),
    ((0, 0, 0), None, None, "3 indexes"), (slice(0, 4), (3, 3), None, "no box of a tensor"),
    (slice(0, 4), (8, 3), (5, 0), "no box of a tensor")])
def test_part__that_is_none_of_the_parameter_is_refused(where, shape, lo, words):
    with pytest.raises(weft.UsageError, match=words):
        shares_of(weft.Tensor("p", "F32", (8, 3)), lambda name, tensor: [Part("t", where, shape, lo)])


def test_shape__of_more_than_four_dimensions_is_folded_behind_the_third():
    """A convolution over space and time, and any cut of its first four dimensions."""
    shape = (2, 3, 4, 2, 5)
    tensor = torch.arange(240).reshape(shape)
    assert folded_shape(shape) == (2, 3, 4, 10) and folded_shape(()) == (1,)
    randomly = random.Random(5)
    for _ in range(40):
        lo = [randomly.randrange(size) for size in shape[:4]] + [0]
        hi = [randomly.randint(low + 1, size) for low, size in zip(lo, shape[:4])] + [5]
        memory = box_of(Run(tuple(lo), tuple(hi), 0, ()), tensor).contiguous()
        run = folded(Run(tuple(lo), tuple(hi), 0, dense(memory.shape)), shape, "conv")
        assert torch.equal(values_of(run, memory.flatten()), box_of(run, tensor.reshape(2, 3, 4, 10)))


def test_shape__cut_behind_the_fourth_dimension_is_refused():
    with pytest.raises(weft.UsageError, match="behind the fourth"):
        folded(Run((0, 0, 0, 0, 1), (2, 3, 4, 2, 5), 0, dense((2, 3, 4, 2, 4))), (2, 3, 4, 2, 5), "conv")


def test_parts__of_random_shards_cover_random_slices():
    """A parameter cut flat over ranks, of which three parts are tensors: each element of them is found once."""
    randomly = random.Random(3)
    for _ in range(30):
        shape = tuple(randomly.randint(2, 5) for _ in range(randomly.randint(1, 3)))
        parameter = torch.arange(torch.Size(shape).numel()).reshape(shape)
        borders = sorted(randomly.sample(range(1, shape[0]), min(2, shape[0] - 1)))
        slices = [slice(a, b) for a, b in zip([0, *borders], [*borders, shape[0]])]
        shares = shares_of(weft.Tensor("p", "F32", shape), lambda name, tensor, slices=slices: [
            (f"t{i}", where) for i, where in enumerate(slices)])
        cut = randomly.randint(0, parameter.numel())
        for where, share in zip(slices, shares):
            want, found = parameter[where], torch.full_like(parameter[where], -1)
            for flat in (Flat(0, cut, 0), Flat(cut, parameter.numel(), 0)):
                for run in flat_runs(shape, flat):
                    box = share.of(run)
                    if box is not None:
                        box_of(box, found)[...] = values_of(box, parameter.flatten()[flat.start:flat.stop])
            assert torch.equal(found, want)
