# SPDX-License-Identifier: Apache-2.0
"""DTensors of all placements, as torch's own classes cut them on each rank of a group that is none: what is declared of
each element is the element that lies there."""
import itertools
from types import SimpleNamespace

import pytest
import torch
from ranks import each_rank
from recorder import NOBODY, Recorder, assert_all, assert_right, numbered, numbers
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.distributed.tensor.placement_types import _StridedShard

import weft.torch


def declared(model, **options):
    trainer = Recorder()
    record = weft.torch.declare(trainer, model, **options)
    return trainer.found(record.memory(model))[0], trainer


def rows_of(found):
    """The rows of a matrix that a rank has, and its columns."""
    rows, columns = (found != NOBODY).nonzero()
    return sorted(set(rows.tolist())), sorted(set(columns.tolist()))


class Cut(nn.Module):
    """One weight of which the rest of the ranks is somewhere else."""

    def __init__(self, shape, mesh, placements):
        super().__init__()
        tensor = distribute_tensor(numbers(shape, 0), mesh, placements, src_data_rank=None)
        self.weight = nn.Parameter(tensor)


def cut(shape, sizes, placements):
    """On each rank: rows and columns of the weight that are declared, all of them right."""
    world = torch.Size(sizes).numel()

    def hold(rank):
        model = Cut(shape, init_device_mesh("cpu", sizes), placements)
        found, trainer = declared(model)
        assert_right(found, {"weight": (shape, 0)})
        return found, len(trainer.boxes)
    ranks = each_rank(world, hold)
    assert_all([found for found, _ in ranks], {"weight": (shape, 0)})
    return [rows_of(found["weight"]) if found else None for found, _ in ranks], [boxes for _, boxes in ranks]


@pytest.mark.parametrize("rows, ranks, want", [
    (10, 4, [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]), (3, 4, [[0], [1], [2], None]),
    (9, 4, [[0, 1, 2], [3, 4, 5], [6, 7, 8], None])])
def test_shard__has_chunks_of_which_the_last_are_short_or_empty(rows, ranks, want):
    found, _ = cut((rows, 2), (ranks,), [Shard(0)])
    assert [each and each[0] for each in found] == want


def test_shard__of_columns_is_a_box_with_the_local_rows_strides():
    found, _ = cut((3, 10), (4,), [Shard(1)])
    assert [each[1] for each in found] == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]


def test_shard__by_two_mesh_dimensions_cuts_from_left_to_right():
    found, _ = cut((11, 2), (2, 2), [Shard(0), Shard(0)])
    assert [each[0] for each in found] == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10]]


def test_replicas__hold_the_same():
    found, _ = cut((6, 2), (2, 2), [Replicate(), Shard(0)])
    assert [each[0] for each in found] == [[0, 1, 2], [3, 4, 5]] * 2


@pytest.mark.parametrize("rows, ranks, want", [
    (8, 2, [[0, 1, 4, 5], [2, 3, 6, 7]]), (10, 3, [[0, 1, 5, 6], [2, 3, 7, 8], [4, 9]])])
def test_strided_shard__alone_has_a_run_of_each_chunk(rows, ranks, want):
    """compute_local_shape_and_global_offset says only where the first run begins."""
    found, boxes = cut((rows, 3), (ranks,), [_StridedShard(0, split_factor=2)])
    assert [each[0] for each in found] == want and boxes == [2] * ranks


def test_strided_shard__of_columns_alone_has_a_run_of_each_chunk():
    found, _ = cut((2, 8), (2,), [_StridedShard(1, split_factor=2)])
    assert [each[1] for each in found] == [[0, 1, 4, 5], [2, 3, 6, 7]]


def test_dtensor__with_partial_sums_is_refused_by_name():
    def hold(rank):
        model = nn.Module()
        local = DTensor.from_local(torch.ones(2, 2), init_device_mesh("cpu", (2,)), [Partial()], run_check=False)
        model.weight = nn.Parameter(local)
        with pytest.raises(weft.UsageError, match=r"'weight'.*Partial.*gathered"):
            weft.torch.declare(Recorder(), model)
    each_rank(2, hold)


def test_dtensor__on_another_mesh_than_this_rank_is_held_by_the_others():
    def hold(rank):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "tp"))
        stage = torch.distributed.device_mesh.DeviceMesh("cpu", torch.tensor([2, 3]), _init_backend=False,
                                                         mesh_dim_names=("tp",)) if rank < 2 else mesh["tp"]
        model = nn.Module()
        local = numbers((4, 2), 0)[2 * (rank % 2):][:2] if rank >= 2 else torch.empty(0, 2)
        model.weight = nn.Parameter(DTensor.from_local(local, stage, [Shard(0)], run_check=False, shape=(4, 2),
                                                       stride=(2, 1)))
        return declared(model)[0]
    found = each_rank(4, hold)
    assert found[0] == found[1] == {}
    assert_all(found[2:], {"weight": ((4, 2), 0)})


def test_megatron_fsdp__says_itself_which_rows_a_rank_has():
    """Its placements look like Shard(0), and rows are cut where its buffers are: here 5 and 1 of 6."""
    def hold(rank):
        model, low, rows = nn.Module(), (0, 5)[rank], (5, 1)[rank]
        local = numbers((6, 2), 0)[low:low + rows].clone()
        cut = DTensor.from_local(local, init_device_mesh("cpu", (2,)), [Shard(0)], run_check=False, shape=(6, 2),
                                 stride=(2, 1))
        model.weight = nn.Parameter(cut)
        chunk = SimpleNamespace(offsets=torch.Size((low, 0)), sizes=torch.Size((rows, 2)))
        model.weight._local_tensor.__create_chunk_list__ = lambda: [chunk]
        bare = nn.Module()
        bare.weight = nn.Parameter(DTensor.from_local(local.clone(), cut.device_mesh, [Shard(0)], run_check=False,
                                                      shape=(6, 2), stride=(2, 1)))
        with pytest.raises(weft.UsageError, match="cut by another rule"):
            weft.torch.declare(Recorder(), bare)
        return declared(model)[0]
    ranks = each_rank(2, hold)
    assert [rows_of(found["weight"])[0] for found in ranks] == [[0, 1, 2, 3, 4], [5]]
    for found in ranks:
        assert_right(found, {"weight": ((6, 2), 0)})


# ---- FSDP2, with tensor and expert parallelism

class Linear(nn.Module):
    def __init__(self, rows, columns):
        super().__init__()
        self.linear = nn.Linear(columns, rows, bias=False, dtype=torch.float64)


def sharded(model, sizes, names, plan=None, placement=None):
    """(replicate,) shard (, tp): what a rank holds."""
    mesh = init_device_mesh("cpu", sizes, mesh_dim_names=names)
    if plan is not None:
        parallelize_module(model, mesh["tp"], plan, src_data_rank=None)
    data = tuple(name for name in names if name != "tp")
    fully_shard(model, mesh=mesh[data if len(data) > 1 else data[0]], shard_placement_fn=placement)


COLUMNS, ROWS = {"linear": ColwiseParallel()}, {"linear": RowwiseParallel()}
FT, RFT = ("fsdp", "tp"), ("replicate", "fsdp", "tp")
CASES = [
    # rows, columns, mesh, its names, tensor parallelism, FSDP's dimension, {coordinates: (rows, columns)}
    (8, 2, (2, 2), FT, COLUMNS, 0, {(0, 0): ([0, 1], None), (0, 1): ([4, 5], None), (1, 0): ([2, 3], None),
                                    (1, 1): ([6, 7], None)}),
    (10, 2, (3, 2), FT, COLUMNS, 0, {(0, 0): ([0, 1], None), (0, 1): ([5, 6], None), (1, 0): ([2, 3], None),
                                     (1, 1): ([7, 8], None), (2, 0): ([4], None), (2, 1): ([9], None)}),
    (10, 4, (3, 2), FT, ROWS, 0, {(0, 0): ([0, 1, 2, 3], [0, 1]), (0, 1): ([0, 1, 2, 3], [2, 3]),
                                  (1, 1): ([4, 5, 6, 7], [2, 3]), (2, 0): ([8, 9], [0, 1])}),
    (8, 6, (2, 2), FT, COLUMNS, 1, {(0, 0): ([0, 1, 2, 3], [0, 1, 2]), (1, 0): ([0, 1, 2, 3], [3, 4, 5]),
                                    (1, 1): ([4, 5, 6, 7], [3, 4, 5])}),
    (4, 8, (2, 2), FT, ROWS, 1, {(0, 0): (None, [0, 1]), (0, 1): (None, [4, 5]), (1, 0): (None, [2, 3]),
                                 (1, 1): (None, [6, 7])}),
    (6, 2, (2, 2), ("replicate", "fsdp"), None, 0, {(0, 0): ([0, 1, 2], None), (0, 1): ([3, 4, 5], None),
                                                   (1, 0): ([0, 1, 2], None), (1, 1): ([3, 4, 5], None)}),
    (12, 2, (2, 2, 2), RFT, COLUMNS, 0, {(0, 0, 0): ([0, 1, 2], None), (1, 0, 1): ([6, 7, 8], None),
                                         (0, 1, 1): ([9, 10, 11], None)}),
    # shards without rows where the chunks before tensor parallelism's end do not come out even
    (9, 2, (4, 2), FT, COLUMNS, 0, {(2, 0): ([4], None), (3, 0): None, (3, 1): ([8], None)}),
    (7, 2, (2, 4), FT, COLUMNS, 0, {(0, 3): ([6], None), (1, 3): None}),
    (3, 2, (5,), ("fsdp",), None, 0, {(2,): ([2], None), (3,): None, (4,): None}),
]


@pytest.mark.parametrize("number", range(len(CASES)))
def test_fsdp2__declares_the_box_that_each_rank_has(number):
    rows, columns, sizes, names, plan, dim, want = CASES[number]

    def hold(rank):
        model = Linear(rows, columns)
        bases = numbered(model)
        sharded(model, sizes, names, plan, (lambda _: Shard(dim)) if dim else None)
        found, trainer = declared(model)
        assert_right(found, bases)
        assert len(trainer.boxes) <= 1, "one run, whatever the strides say"
        return found, bases
    ranks = each_rank(torch.Size(sizes).numel(), hold)
    assert_all([found for found, _ in ranks], ranks[0][1])
    for (found, _), at in zip(ranks, itertools.product(*map(range, sizes))):
        if at in want and want[at] is None:
            assert not found
        elif at in want:
            for have, asked in zip(rows_of(found["linear.weight"]), want[at]):
                assert asked is None or have == asked, at


def test_fsdp2__rows_are_declared_as_rows():
    """Which is the plainest of declarations: no local parameter."""
    def hold(rank):
        model = Linear(10, 3)
        numbered(model)
        sharded(model, (4,), ("fsdp",))
        return declared(model)[1].rows
    assert each_rank(4, hold) == [{"linear.weight": rows} for rows in [(0, 3), (3, 6), (6, 9), (9, 10)]]


class Experts(nn.Module):
    def __init__(self, *shape):
        super().__init__()
        self.w1 = nn.Parameter(torch.empty(shape, dtype=torch.float64))


EXPERTS = [
    # shape, shards, ep, FSDP's dimension, {(shard, ep): (experts, rows)}
    ((8, 3, 2), 2, 2, 0, {(0, 0): [0, 1], (1, 0): [2, 3], (0, 1): [4, 5], (1, 1): [6, 7]}),
    ((8, 3, 2), 2, 4, 0, {(0, 0): [0], (1, 0): [1], (0, 3): [6], (1, 2): [5]}),
    ((8, 3, 2), 3, 2, 0, {(0, 0): [0, 1], (1, 1): [6, 7], (2, 0): None, (2, 1): None}),
    ((2, 4, 3), 2, 2, 1, {(0, 0): [0], (1, 0): [0], (0, 1): [1], (1, 1): [1]}),
]


@pytest.mark.parametrize("named", ["whole", "apart"])
@pytest.mark.parametrize("number", range(len(EXPERTS)))
def test_experts__cut_over_two_meshes_are_declared_whole_or_each_as_its_own_tensor(number, named):
    shape, shards, ep, dim, want = EXPERTS[number]

    def apart(name, parameter):
        return [(f"experts.{e}.gate_proj.weight", e) for e in range(parameter.shape[0])]

    def hold(rank):
        mesh = init_device_mesh("cpu", (shards, ep), mesh_dim_names=("efsdp", "ep"))
        model = Experts(*shape)
        numbered(model)
        local = distribute_tensor(model.w1.detach(), mesh["ep"], [Shard(0)], src_data_rank=None)
        model.w1 = nn.Parameter(local)
        fully_shard(model, mesh=mesh["efsdp"], shard_placement_fn=(lambda _: Shard(dim)) if dim else None)
        found, trainer = declared(model, names=apart if named == "apart" else None)
        return found, {name: order for name, (_, _, order) in trainer.declared.items()}
    ranks = each_rank(shards * ep, hold)
    each = shape[1] * shape[2]
    bases = {"w1": (shape, 0)} if named == "whole" else {
        f"experts.{e}.gate_proj.weight": (shape[1:], e * each) for e in range(shape[0])}
    assert_all([found for found, _ in ranks], bases)
    for (found, orders), at in zip(ranks, itertools.product(range(shards), range(ep))):
        assert_right(found, bases)
        if named == "apart":  # the same on ranks that have other experts
            assert all(order == int(name.split(".")[1]) for name, order in orders.items())
            assert at not in want or sorted(orders.values()) == (want[at] or [])
        elif at in want and want[at] is not None:
            assert sorted(set((found["w1"] != NOBODY).nonzero()[0].tolist())) == want[at]


def test_fsdp2__of_random_meshes_declares_each_element_as_it_lies():
    """Uneven rows, tensor parallelism of both kinds, replicas: boxes beside what torch put into memory."""
    cases = [(rows, columns, sizes, plan) for rows, columns in [(13, 4), (5, 8), (16, 4)]
             for sizes in [(1, 3, 2), (2, 2, 2), (1, 2, 4)] for plan in (COLUMNS, ROWS)]
    for sizes in {sizes for _, _, sizes, _ in cases}:
        some = [case for case in cases if case[2] == sizes]

        def hold(rank, some=some, sizes=sizes):
            results = []
            for rows, columns, _, plan in some:
                model = Linear(rows, columns)
                bases = numbered(model)
                sharded(model, sizes, RFT, plan)
                found, _ = declared(model)
                assert_right(found, bases)
                results.append((found, bases))
            return results
        ranks = each_rank(torch.Size(sizes).numel(), hold)
        for number in range(len(some)):
            assert_all([rank[number][0] for rank in ranks], ranks[0][number][1])
