# SPDX-License-Identifier: Apache-2.0
"""A Sender and one rank, in threads: what is refused, what no engine then shows, and that a good version comes after it."""
import asyncio
import contextlib
import threading

import pytest
import torch
from forked import SECONDS, Child

import weft
from weft.engines import Sender

LISTED = [("a.weight", torch.bfloat16, (64, 32)), ("b.weight", "F32", (16,)), ("c.weight", "BF16", (32, 32))]


def values(version):
    return {name: torch.full(shape, float(version), dtype=torch.float32 if name[0] == "b" else torch.bfloat16)
            for name, _, shape in LISTED}


def rank_of(endpoint):
    """An inference rank of whole tensors."""
    rank = weft.Inference(endpoint["controller"], endpoint["rank_offset"], update_timeout_s=SECONDS)
    for name, dtype, shape in endpoint["tensors"]:
        rank.declare_piece(weft.Tensor(name, dtype, tuple(shape)), rank.declare_param(name, dtype, shape))
    return rank


class Rank(threading.Thread):
    """Receives so many versions, then leaves: each version with its values, or what it failed with."""

    def __init__(self, endpoint, count):
        super().__init__(daemon=True)
        self.found, self.count, self.rank = [], count, rank_of(endpoint)
        self.start()

    def run(self):
        with self.rank:
            self.rank.join(SECONDS)
            for _ in range(self.count):
                try:
                    version = self.rank.wait()
                    self.found.append({name: torch.from_dlpack(self.rank.memory(name)).float().unique().tolist()
                                       for name, _, _ in LISTED} | {"version": version})
                except weft.Aborted as error:
                    self.found.append(error)


@contextlib.contextmanager
def job(count, **options):
    with Sender(LISTED, engines=1, ranks=1, update_timeout_s=SECONDS, **options) as sender:
        rank = Rank(sender.endpoint(), count)
        sender.join(SECONDS)
        yield sender, rank
        rank.join(SECONDS)


def shown(rank):
    """Versions that the rank has shown, with their values."""
    assert all(each[name] == [float(each["version"])] for each in rank.found if isinstance(each, dict) for name, _, _ in LISTED)
    return [each["version"] if isinstance(each, dict) else type(each).__name__ for each in rank.found]


def test_versions__count_from_one_or_as_they_are_told():
    with job(3) as (sender, rank):
        assert sender.send(values(1).items()) == 1
        assert sender.send(reversed(values(2).items())) == 2 == sender.version
        assert sender.send(values(7).items(), 7) == 7
        stats = sender.stats()
        assert stats["version"] == 7 and stats["bytes"] == 64 * 32 * 2 + 16 * 4 + 32 * 32 * 2
        assert stats["wait_s"] + stats["send_s"] <= stats["total_s"] + 1e-6
        with pytest.raises(weft.VersionError):
            sender.send(values(3).items(), 3)
        assert sender.version == 7
    assert shown(rank) == [1, 2, 7]


def change(**more):
    made = values(1)
    for name, value in more.items():
        made[name.replace("_", ".")] = value
    return list(made.items())


WRONG = {
    "missing": (lambda: change()[1:], "version 1 lacks 1 of 3 tensors: a.weight"),
    "none": (lambda: [], r"version 1 lacks 3 of 3 tensors: a.weight, b.weight, c.weight"),
    "twice": (lambda: change() + change()[:1], "'a.weight' came twice in version 1"),
    "unknown": (lambda: change(d_weight=torch.zeros(2)), "'d.weight' was not declared; version 1 has 3 tensors"),
    "dtype": (lambda: change(b_weight=torch.zeros(16, dtype=torch.float64)), "'b.weight' was declared as F32, .*has F64"),
    "shape": (lambda: change(a_weight=torch.zeros(32, 64, dtype=torch.bfloat16)),
              r"'a.weight' was declared as \[64, 32\], and .* is \[32, 64\]"),
    "larger": (lambda: change(b_weight=torch.zeros(17)), r"'b.weight' was declared as \[16\], and .* is \[17\]"),
    "turned": (lambda: change(c_weight=values(1)["c.weight"].t()), r"\(32, 32\) is not contiguous: its strides are \(1, 32\)"),
    "no tensor": (lambda: change(a_weight=None), "NoneType")}


@pytest.mark.parametrize("what", WRONG)
def test_version__that_is_wrong_is_shown_nowhere_and_the_next_is(what):
    made, words = WRONG[what]
    with job(2) as (sender, rank):
        with pytest.raises(weft.UsageError, match=words):
            sender.send(made())
        assert sender.version == 0
        assert sender.send(values(2).items(), 2) == 2
    assert shown(rank) == ["Aborted", 2]


def test_generator__that_raises_gives_the_version_up():
    def broken():
        yield "a.weight", values(1)["a.weight"]
        raise MemoryError("gather failed")
    with job(2) as (sender, rank):
        with pytest.raises(MemoryError, match="gather failed"):
            sender.send(broken(), 1)
        sender.send(values(2).items(), 2)
    assert shown(rank) == ["Aborted", 2]


def test_tensors__made_one_after_the_other_are_let_go(monkeypatch):
    monkeypatch.setattr("weft.engines._send._DRAIN_BYTES", 1)
    import weakref
    alive = []

    def one_by_one():
        for name, value in values(1).items():
            fresh = value.clone()
            alive.append(weakref.ref(fresh))
            yield name, fresh
            del fresh
            assert sum(ref() is not None for ref in alive) <= 2
    with job(1) as (sender, rank):
        sender.send(one_by_one(), 1)
    assert shown(rank) == [1]


def test_scalar__is_a_tensor_of_one_element():
    with Sender([("s", "F32", ())], engines=1, ranks=1, update_timeout_s=SECONDS) as sender:
        rank = rank_of(sender.endpoint())
        joins = threading.Thread(target=rank.join)
        joins.start()
        sender.join()
        joins.join()
        waits = threading.Thread(target=rank.wait)
        waits.start()
        sender.send([("s", torch.tensor(3.0))])
        waits.join()
        assert torch.from_dlpack(rank.memory("s")).tolist() == [3.0]
        rank.close()


def test_send__in_an_event_loop():
    async def run(sender):
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.001)
        task = asyncio.ensure_future(tick())
        version = await sender.send_async(values(1).items())
        task.cancel()
        return version, ticks
    with job(1) as (sender, rank):
        version, ticks = asyncio.run(run(sender))
        assert version == 1 and ticks > 0
    assert shown(rank) == [1]


def test_trainers__share_what_is_sent():
    def second(say, hear):
        with Sender(LISTED, engines=1, ranks=1, rank=1, world=2, controller=hear(), update_timeout_s=SECONDS) as sender:
            sender.join()
            sender.send(values(1).items())
            return sender.trainer.plan.bytes
    other = Child(second)
    with Sender(LISTED, engines=1, ranks=1, world=2, update_timeout_s=SECONDS) as sender:
        other.tell(sender.controller)
        rank = Rank(sender.endpoint(), 1)
        sender.join(SECONDS)
        sender.send(values(1).items())
        mine, all_bytes = sender.trainer.plan.bytes, sender.stats()["bytes"]
        rank.join(SECONDS)
    theirs = other.done()
    assert mine > 0 and theirs > 0 and mine + theirs == all_bytes and shown(rank) == [1]


@pytest.mark.parametrize("options, words", [
    ({"engines": 0}, "engines=0: a whole number, at least 1"), ({"ranks": "2"}, "ranks='2'"), ({"world": 0}, "world=0"),
    ({"rank": -1}, "rank=-1"), ({"rank": 2, "world": 2}, "rank 2 of world=2: ranks count from 0"),
    ({"rank": 1, "world": 2}, "trainer 1 has no controller: give it trainer 0's Sender.controller"),
    ({"tensors": []}, "no tensors: list what is sent"), ({"tensors": [*LISTED, LISTED[0]]}, "'a.weight' is listed twice"),
    ({"layout": "guess"}, "layout is one of"), ({"engines": True}, "engines=True")])
def test_options__that_are_wrong_are_refused_and_leave_no_controller(options, words, monkeypatch):
    started = []

    def start(*arguments, **named):
        started.append(weft.Controller(*arguments, **named))
        return started[-1]
    monkeypatch.setattr("weft.engines._send.Controller", start)
    with pytest.raises(weft.UsageError, match=words):
        Sender(**{"tensors": LISTED, "engines": 1, "ranks": 1, **options})
    assert all(each.exit_code is not None for each in started)


def test_controller__ends_with_its_sender():
    sender = Sender(LISTED, engines=1, ranks=1)
    own = sender._own
    sender.close()
    with pytest.raises(weft.Error):
        weft.Inference(sender.controller, 0, join_timeout_s=1.0).join()
    assert sender._own is None and own is not None
    sender.close()
