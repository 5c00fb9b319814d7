# SPDX-License-Identifier: Apache-2.0
"""From the numbers of elements to pieces and back: what pieces say is what lay there, whatever the boxes."""
import random

import pytest
import torch

import weft
from weft.engines._boxes import param_of
from weft.engines._layout import Layout
from weft.engines._marks import CHECKS, NOWHERE, Found, Marks

CPU = torch.device("cpu")


def read(param, tensors):
    """The parameter's bytes by its pieces, each element its (tensor, number in it); None: a fill."""
    element = weft._dtypes.dtype_of(param.dtype).bytes
    found = [None] * (param.bytes // element)
    for piece in param.pieces:
        box = tensors[piece.tensor][tuple(slice(lo, hi) for lo, hi in zip(piece.lo, piece.hi))]
        if piece.transform is not None and piece.transform.transposed:
            box = box.transpose(-1, -2)
        values = box.reshape(-1).tolist()
        at = piece.offset_bytes // element
        assert len(values) * element == piece.bytes and found[at:at + len(values)] == [None] * len(values)
        found[at:at + len(values)] = [(piece.tensor, value) for value in values]
    for first, last in param.fills + param.kept:
        assert found[first // element:last // element] == [None] * ((last - first) // element)
    assert sum(last - first for first, last in param.fills + param.kept) == element * found.count(None)
    return found


def param(made, shapes, dtype="BF16"):
    """(Param, what it must be by element) of ``made(checkpoint)``."""
    listed = {name: weft.Tensor(name, dtype, shape) for name, shape in shapes.items()}
    marks, result = Marks(listed), None
    for load in range(marks.loads + CHECKS):
        value = made(dict(marks.named(load, CPU)))
        result = result or Found(value.shape, value.dtype, marks)
        result.add(value, load)
    own = {name: torch.arange(tensor.bytes // weft._dtypes.dtype_of(dtype).bytes).view(tensor.shape)
           for name, tensor in listed.items()}
    return param_of("p", result, marks), own, result, marks


def check(made, shapes, dtype="BF16"):
    """Pieces are read back as the elements that lay there; as Param."""
    found, own, result, marks = param(made, shapes, dtype)
    assert not found.computed, found.computed
    numbers = result.numbers(0, result.count)
    tensor, names = marks.tensor_at(numbers.clamp(min=0), result.kind)
    want = [None if number == NOWHERE else (names[which], number - marks.first(names[which]))
            for number, which in zip(numbers.tolist(), tensor.tolist())]
    assert read(found, own) == want
    return found


def random_shape(draw, dims):
    return tuple(draw.randint(1, 7 if dims > 2 else 19) for _ in range(dims))


def random_box(draw, shape):
    """Uneven ends; often whole in the last dimensions, as engines cut."""
    box = []
    for size in shape:
        lo = 0 if draw.random() < 0.5 else draw.randrange(size)
        box.append(slice(lo, size if draw.random() < 0.5 else draw.randint(lo + 1, size)))
    return tuple(box)


@pytest.mark.parametrize("seed", range(60))
def test_boxes__of_random_tensors_come_back(seed):
    draw = random.Random(seed)
    shapes = {f"t{number}": random_shape(draw, draw.randint(1, 4)) for number in range(draw.randint(1, 4))}
    order = [name for name in shapes for _ in range(draw.randint(1, 3))]
    draw.shuffle(order)
    boxes = [(name, random_box(draw, shapes[name])) for name in order]
    gap = [draw.choice([0, 0, draw.randint(1, 9)]) for _ in boxes]

    def made(named):
        return torch.cat([torch.nn.functional.pad(named[name][box].reshape(-1), (0, pad)) for (name, box), pad in zip(boxes, gap)])
    found = check(made, shapes, draw.choice(["BF16", "F32", "F8_E4M3", "I32"]))
    listed = {name: weft.Tensor(name, "BF16", shape) for name, shape in shapes.items()}
    assert Layout((found,), listed, "a").differences(Layout((found,), listed, "b")) == []


@pytest.mark.parametrize("seed", range(20))
def test_transposed__boxes_come_back_as_few_pieces(seed):
    draw = random.Random(seed)
    columns = draw.randint(8, 40)
    shapes = {f"t{number}": (columns, draw.randint(2, 30)) for number in range(draw.randint(1, 3))}
    boxes = {name: (lo := draw.randrange(shape[1] - 1), draw.randint(lo + 2, shape[1])) for name, shape in shapes.items()}
    found = check(lambda named: torch.cat([named[name][:, lo:hi].t() for name, (lo, hi) in boxes.items()]).contiguous(), shapes)
    assert all(piece.transform.transposed for piece in found.pieces) and len(found.pieces) <= len(shapes)


def test_transposed__experts_are_a_piece_each():
    shapes = {f"e{expert}": (24, 16) for expert in range(6)}
    found = check(lambda named: torch.stack([tensor.t() for tensor in named.values()]), shapes)
    assert len(found.pieces) == 6
    found = check(lambda named: named["w"].transpose(1, 2).contiguous(), {"w": (6, 24, 16)})
    assert len(found.pieces) == 6 and found.pieces[3].lo == (3, 0, 0)


def test_columns__are_one_piece():
    found = check(lambda named: named["o"][:, 16:32].contiguous(), {"o": (64, 48)})
    assert [(piece.lo, piece.hi) for piece in found.pieces] == [((0, 16), (64, 32))]


def test_experts__halves_and_columns_are_a_piece_each():
    shapes = {f"{part}{expert}": (16, 32) if part != "down" else (32, 16) for expert in range(4) for part in ("gate", "up", "down")}
    w13 = check(lambda named: torch.stack([torch.cat((named[f"up{e}"][:8], named[f"gate{e}"][:8])) for e in range(4)]), shapes)
    assert [piece.tensor for piece in w13.pieces] == ["up0", "gate0", "up1", "gate1", "up2", "gate2", "up3", "gate3"]
    w2 = check(lambda named: torch.stack([named[f"down{e}"][:, 8:] for e in range(4)]), shapes)
    assert len(w2.pieces) == 4


def test_neighbours__in_number_of_several_tensors_are_pieces_of_each():
    shapes = {"a": (3, 4), "b": (2, 4), "c": (5,), "d": (1, 4)}
    found = check(lambda named: torch.cat([tensor.reshape(-1) for tensor in named.values()]), shapes)
    assert [piece.tensor for piece in found.pieces] == ["a", "b", "c", "d"]


def test_heads__that_change_places_are_a_piece_each():
    found = check(lambda named: named["q"].view(4, 16, 8).flip(0).reshape(64, 8), {"q": (64, 8)})
    assert [piece.lo[0] for piece in found.pieces] == [48, 32, 16, 0]


@pytest.mark.parametrize("how", [lambda x: x.view(-1)[torch.randperm(x.numel(), generator=torch.Generator().manual_seed(1))],
                                 lambda x: x.view(64, 32, 2).flip(2).reshape(64, 64), lambda x: x.rot90().rot90().contiguous()])
def test_shuffled__elements_are_refused(how):
    found, *_ = param(lambda named: how(named["w"]), {"w": (64, 64)})
    assert "an order that no boxes have" in found.computed and not found.pieces


def test_empty__parameters_and_tensors():
    found = check(lambda named: named["a"][:0], {"a": (4, 4), "none": (0, 4), "b": (4, 4)})
    assert found.pieces == () and found.fills == ()
    assert check(lambda named: named["b"], {"a": (4, 4), "none": (0, 4), "b": (4, 4)}).pieces[0].tensor == "b"


def test_padding__is_filled_and_what_the_class_gave_is_kept():
    found, _, result, marks = param(lambda named: torch.cat((named["v"], torch.zeros(5, 4, dtype=torch.bfloat16))), {"v": (3, 4)})
    assert found.fills == ((24, 64),) and not found.kept
    result.keep(torch.ones(8, 4))
    assert param_of("p", result, marks).kept == ((24, 64),) and not param_of("p", result, marks).fills
