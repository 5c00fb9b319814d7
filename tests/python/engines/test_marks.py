# SPDX-License-Identifier: Apache-2.0
"""Marks: which element of which tensor a value is, through casts; and what is computed is no mark."""
import pytest
import torch

import weft
from weft.engines._marks import CHECKS, COMPUTED, KEPT, NOWHERE, Found, Marks, in_memory

CPU = torch.device("cpu")


def found(marks, made, dtype):
    """What ``made(checkpoint)`` leaves, load by load, in a parameter of a dtype."""
    result = None
    for load in range(marks.loads + CHECKS):
        value = made(dict(marks.named(load, CPU))).to(dtype)
        result = result or Found(value.shape, dtype, marks)
        result.add(value, load)
    return result


def numbers(result):
    return result.numbers(0, result.count)


def marks_of(**tensors):
    return Marks({name: weft.Tensor(name, dtype, shape) for name, (dtype, *shape) in tensors.items()})


@pytest.mark.parametrize("dtype, to", [
    ("BF16", torch.bfloat16), ("F16", torch.float16), ("F32", torch.float32), ("F32", torch.bfloat16), ("BF16", torch.float16),
    ("F16", torch.float32), ("F8_E4M3", torch.float8_e4m3fn), ("I32", torch.int32), ("I64", torch.int32), ("U8", torch.uint8),
    ("I8", torch.int8), ("F64", torch.float32)])
def test_element__is_known_after_any_cast(dtype, to):
    marks = marks_of(other=(dtype, 5), matrix=(dtype, 300, 260))
    result = found(marks, lambda named: named["matrix"].t().contiguous(), to)
    want = marks.first("matrix") + torch.arange(300 * 260).view(300, 260).t().reshape(-1)
    assert result.computed() == 0
    assert torch.equal(numbers(result), want)


def test_number__larger_than_a_digit_and_than_32_bits():
    marks = marks_of(matrix=("BF16", 1 << 17, 1 << 15), last=("BF16", 3, 2))
    assert marks.loads == 5 and marks.first("last") == 1 << 32
    result = Found((3, 2), torch.bfloat16, marks)
    for load in range(marks.loads + CHECKS):
        wide = torch.arange(marks.first("last"), marks.first("last") + 6)
        result.add(marks.values(result.kind, wide, load).to(torch.bfloat16).view(3, 2), load)
    assert numbers(result).tolist() == [(1 << 32) + n for n in range(6)]


def test_kinds__of_one_checkpoint_have_as_many_loads_as_the_longest_needs():
    marks = marks_of(fp8=("F8_E4M3", 512, 300), bf16=("BF16", 3, 70), scale=("F32", 1))
    assert marks.loads == 5, "16 to the fifth; 256 to the fourth is more than 32 bits have"
    for name, dtype in (("fp8", torch.float8_e4m3fn), ("bf16", torch.bfloat16), ("scale", torch.float32)):
        result = found(marks, lambda named, name=name: named[name], dtype)
        assert result.computed() == 0 and int(result.numbers(0, 1)) == marks.first(name)


def test_values__do_not_depend_on_the_width_of_their_numbers():
    marks = marks_of(vector=("BF16", 700), matrix=("BF16", 900, 70))
    some = torch.arange(60_000)
    for load in range(marks.loads + CHECKS):
        for kind in marks._end:
            wide, narrow = marks.values(kind, some, load), marks.values(kind, some.to(torch.int32), load)
            assert torch.equal(wide, narrow.to(torch.int64))


COMPUTE = {"sum": lambda a, b: a + b, "product": lambda a, b: a * b, "mean": lambda a, b: (a + b) / 2, "max": torch.maximum,
           "min": torch.minimum, "times two": lambda a, b: a * 2, "halved": lambda a, b: a / 2}


@pytest.mark.parametrize("shape", [(1,), (64,), (16, 8)])
@pytest.mark.parametrize("how", COMPUTE)
def test_computed__of_two_tensors_is_no_mark(how, shape):
    for before in range(24):  # of a single scale luck must not do it: at many numbers
        marks = marks_of(lead=("F32", before + 1), a=("F32", *shape), b=("F32", *shape))
        result = found(marks, lambda named: COMPUTE[how](named["a"], named["b"]), torch.float32)
        assert result.computed() > 0, before


def test_largest__of_many_scales_is_no_mark():
    for count in (2, 3, 8, 100):
        for before in range(24):
            marks = marks_of(lead=("F32", before + 1), scales=("F32", count))
            assert found(marks, lambda named: named["scales"].max().view(1), torch.float32).computed() == 1


@pytest.mark.parametrize("how", [torch.abs, torch.relu, lambda x: x.clamp(min=1e-6), lambda x: x.clamp(max=100)])
def test_matrix__whose_values_are_changed_is_computed_though_digits_are_positive(how):
    marks = marks_of(matrix=("BF16", 32, 32))
    assert found(marks, lambda named: how(named["matrix"]), torch.bfloat16).computed() > 0


@pytest.mark.parametrize("value", [1.0, 2.0, 7.0, -1.0, 0.5, float("nan"), float("inf"), 300.0])
def test_constant__is_no_mark(value):
    marks = marks_of(scale=("F32", 1), other=("F32", 1000))
    assert numbers(found(marks, lambda named: torch.full((1,), value), torch.float32)).tolist() == [COMPUTED]


def test_fp8__into_bf16_is_computed_since_its_scale_is_not_seen():
    marks = marks_of(weight=("F8_E4M3", 64, 64), other=("BF16", 64, 64))
    assert found(marks, lambda named: named["weight"].to(torch.bfloat16), torch.bfloat16).computed() > 0
    assert found(marks, lambda named: named["other"], torch.float8_e4m3fn).computed() > 0


def test_zero__is_what_nothing_writes():
    marks = marks_of(matrix=("BF16", 4, 6))
    result = found(marks, lambda named: torch.nn.functional.pad(named["matrix"], (0, 2)), torch.bfloat16)
    first = marks.first("matrix")
    assert numbers(result)[:8].tolist() == [*range(first, first + 6), NOWHERE, NOWHERE] and result.computed() == 0


def test_written__only_in_some_loads_is_computed():
    marks, calls = marks_of(matrix=("BF16", 4, 6), other=("BF16", 60, 60)), []

    def sometimes(named):
        calls.append(1)
        return named["matrix"] * (len(calls) == 2)
    assert found(marks, sometimes, torch.bfloat16).computed() == 24


def test_kept__is_what_nothing_writes_and_has_a_value():
    marks = marks_of(matrix=("BF16", 2, 2))
    result = found(marks, lambda named: torch.cat((named["matrix"].view(-1), torch.zeros(3))), torch.bfloat16)
    result.keep(torch.tensor([9, 9, 9, 9, 0, 5, float("nan")]))
    assert numbers(result)[4:].tolist() == [NOWHERE, KEPT, KEPT]


def test_dtype__of_which_the_checkpoint_has_nothing():
    marks = marks_of(matrix=("BF16", 2, 2))
    result = found(marks, lambda named: torch.zeros(3), torch.int32)
    assert numbers(result).tolist() == [NOWHERE] * 3
    assert found(marks, lambda named: torch.ones(3), torch.int32).computed() == 3


def test_memory__of_a_turned_view_is_in_the_order_in_which_it_lies():
    base = torch.arange(24).view(2, 3, 4)
    assert torch.equal(in_memory(base.permute(2, 0, 1)), base)
    assert in_memory(base) is base
    assert in_memory(base[:, :, :3]) is None
    assert in_memory(torch.zeros(3, 1).expand(3, 4)) is None
