# SPDX-License-Identifier: Apache-2.0
"""Engines that leave a job that goes on: who is told, and of whom."""
import contextlib
import threading

import pair
import pytest
from pair import SECONDS, K, Q, Thread, right, values

import weft


def engine(address, rank):
    worker = weft.Inference(address, rank, shadow=True, update_timeout_s=SECONDS)
    worker.declare_param("qk", "F32", (96, 32))
    worker.declare_piece(Q, "qk")
    worker.declare_piece(K, "qk", offset_bytes=Q.bytes)
    return worker


def heard(worker):
    """They come on a thread of their own."""
    for _ in range(200):
        if worker.losses:
            break
        threading.Event().wait(0.05)
    return worker.losses


@contextlib.contextmanager
def begun_with_one_engine(**options):
    """The controller's address, a trainer and the first of three engines of a rank, the only one that is here."""
    with contextlib.ExitStack() as stack:
        running = weft.Controller(train="world=1", infer="engines=3,tp=1", on_loss="continue", engines_min=1, **options)
        stack.callback(running.stop)
        trainer = stack.enter_context(weft.Trainer(running.address, 0, update_timeout_s=SECONDS))
        trainer.declare_tensor(Q)
        trainer.declare_tensor(K)
        first = stack.enter_context(engine(running.address, 0))
        for join in [Thread(worker.join) for worker in (trainer, first)]:
            join.done()
        yield running.address, trainer, first


@contextlib.contextmanager
def two_engines(update_timeout_s=SECONDS, **options):
    """The controller's address, a trainer and two engines of a rank, which are at version 1. The trainer and engine 0 are closed
    at the end."""
    with contextlib.ExitStack() as stack:
        running = weft.Controller(train="world=1", infer="engines=2,tp=1", on_loss="continue", **options)
        stack.callback(running.stop)
        trainer = stack.enter_context(weft.Trainer(running.address, 0, update_timeout_s=update_timeout_s))
        trainer.declare_tensor(Q)
        trainer.declare_tensor(K)
        engines = [engine(running.address, rank) for rank in range(2)]
        stack.enter_context(engines[0])
        for join in [Thread(worker.join) for worker in (trainer, *engines)]:
            join.done()
        waits = [Thread(worker.wait, 1) for worker in engines]
        trainer.publish(1, values(1))
        assert [wait.done() for wait in waits] == [1, 1]
        assert trainer.losses == engines[0].losses == ()
        yield running.address, trainer, engines


def fails(worker):
    with contextlib.suppress(ZeroDivisionError), worker:
        raise ZeroDivisionError("of this test")


def all_at(trainer, inference, version):
    wait = Thread(inference.wait, version)
    trainer.publish(version, values(version))
    assert wait.done() == version


def test_losses__name_the_engine_that_left_and_why_to_all_that_go_on():
    with two_engines() as (_, trainer, engines):
        fails(engines[1])
        for version in (2, 3):
            all_at(trainer, engines[0], version)
        for worker in (trainer, engines[0]):
            (loss,) = heard(worker)
            assert loss.ranks == range(1, 2) and loss.code == weft.Code.HOST, loss
            assert "inference 1" in loss.text and "ZeroDivisionError" in loss.text, loss
        with engines[0].read() as snapshot:
            assert right(snapshot["qk"], 3)


@pytest.mark.parametrize("leaves, code", [(weft.Inference.close, 0), (fails, weft.Code.HOST)], ids=["done", "fails"])
def test_publish__that_waits_for_an_engine_goes_on_at_once_when_that_leaves(leaves, code):
    with two_engines(update_timeout_s=1000.0) as (_, trainer, engines):
        wait, publish = Thread(engines[0].wait, 2), Thread(trainer.publish, 2, values(2))
        publish.join(0.2)
        assert publish.is_alive()
        leaves(engines[1])
        assert wait.done() == 2
        publish.done()
        (loss,) = heard(trainer)
        assert loss.ranks == range(1, 2) and loss.code == code, loss


def test_publish__goes_on_without_an_engine_that_does_not_come():
    with two_engines(update_timeout_s=4.0) as (_, trainer, engines):  # half of which it waits
        wait = Thread(engines[0].wait, 2, 3.5)
        trainer.publish(2, values(2))
        assert wait.done() == 2
        (loss,) = heard(trainer)
        assert loss.ranks == range(1, 2) and loss.code == weft.Code.TIMEOUT, loss
        engines[1].close()


@pytest.mark.parametrize("on_miss", ["stay", "leave"])
def test_engine__that_misses_a_version_stays_or_leaves_as_the_fleet_wants(on_miss):
    def refuses(version):
        if version == 2:
            raise ValueError("no room for scales")

    with two_engines(on_miss=on_miss) as (_, trainer, engines):
        engines[1].set_post_load(refuses)
        waits = [Thread(worker.wait, 2) for worker in engines]
        trainer.publish(2, values(2))
        assert waits[0].done() == 2
        with pytest.raises(weft.HookFailed):
            waits[1].done()
        assert engines[1].published == 1
        if on_miss == "leave":
            all_at(trainer, engines[0], 3)
            (loss,) = heard(trainer)
            assert loss.ranks == range(1, 2) and loss.code == weft.Code.POST_LOAD, loss
            assert "inference 1" in loss.text and "post-load hook" in loss.text, loss
        else:
            waits = [Thread(worker.wait, 3) for worker in engines]
            trainer.publish(3, values(3))
            assert [wait.done() for wait in waits] == [3, 3] and not trainer.losses
        engines[1].close()


def test_trainer__that_has_failed_and_is_not_closed_has_let_go_of_the_ranks_memory():
    with contextlib.ExitStack() as stack:
        running = weft.Controller(train="world=2", infer="engines=1,tp=1", on_loss="continue")
        stack.callback(running.stop)
        trainers = [stack.enter_context(weft.Trainer(running.address, rank, update_timeout_s=SECONDS)) for rank in range(2)]
        for trainer in trainers:
            trainer.declare_tensor(Q)
            trainer.declare_tensor(K)
        rank = stack.enter_context(engine(running.address, 0))
        for join in [Thread(worker.join) for worker in (*trainers, rank)]:
            join.done()

        def publish(version, by):
            wait = Thread(rank.wait, version)
            for done in [Thread(trainer.publish, version, values(version)) for trainer in by]:
                done.done()
            assert wait.done() == version

        publish(1, trainers)
        trainers[1].fail("of this test")
        publish(2, trainers[:1])  # its process lives, and this one is it
        publish(3, trainers[:1])
        with rank.read() as snapshot:
            assert right(snapshot["qk"], 3)
        with pytest.raises(weft.Error, match="of this test"):
            trainers[1].publish(4, values(4))
        for worker in (*trainers, rank):
            worker.close()


@contextlib.contextmanager
def engines_of_a_job(late_s, tp, **way):
    """Two trainers, two engines that show versions together, and what publishes one: trainer 1, which alone writes to the last
    engine, so much later."""
    shape = (64, 32)
    with contextlib.ExitStack() as stack:
        running = weft.Controller(train="world=2", infer=f"engines=2,tp={tp}", on_loss="continue", commit="job")
        stack.callback(running.stop)
        trainers = [stack.enter_context(weft.Trainer(running.address, rank, update_timeout_s=6.0, **way)) for rank in range(2)]
        for trainer in trainers:
            trainer.declare_tensor(Q)
        ranks = []
        for number in range(2 * tp):
            ranks.append(stack.enter_context(weft.Inference(running.address, number, shadow=True, update_timeout_s=6.0, **way)))
            ranks[-1].declare_param("q", "F32", shape)
            ranks[-1].declare_piece(Q, "q")
        for join in [Thread(worker.join) for worker in (*trainers, *ranks)]:
            join.done()

        def publish(version):
            waits = [Thread(rank.wait, version) for rank in ranks]
            sent = {"q": values(version)["q"]}
            first = Thread(trainers[0].publish, version, sent)
            threading.Event().wait(late_s)
            trainers[1].publish(version, sent)
            first.done()
            return waits

        yield trainers, ranks, publish
        for worker in (*trainers, *ranks):
            worker.close()


@pytest.mark.parametrize("way", [{}, {"transport": "tcp", "nic": "lo"}], ids=["shm", "tcp"])
def test_engine__is_not_late_while_a_trainer_that_writes_to_it_is(way):
    """With --commit job, where another engine has long had its bytes from another trainer. Half of 6 s an engine may be late."""
    with engines_of_a_job(4.0, 1, **way) as (trainers, ranks, publish):
        assert [wait.done() for wait in publish(1)] == [1, 1]
        assert not trainers[0].losses and not ranks[0].losses


def test_engine__whose_hook_hangs_leaves_a_job_of_engines_though_it_had_waited_for_a_trainer():
    with engines_of_a_job(1.5, 2) as (trainers, ranks, publish):
        goes_on = threading.Event()
        ranks[3].set_post_load(lambda version: goes_on.wait(30))
        waits = publish(1)
        assert [wait.done() for wait in waits[:2]] == [1, 1]
        (loss,) = heard(trainers[0])
        assert loss.ranks == range(2, 4) and loss.code == weft.Code.TIMEOUT, loss
        goes_on.set()
        for wait in waits[2:]:
            with pytest.raises(weft.Error):
                wait.done()


def mappings():
    with open("/proc/self/maps", encoding="ascii") as lines:
        return sum("/memfd:weft" in line for line in lines)


@pytest.mark.parametrize("hears", [weft.Trainer.check, lambda trainer: trainer.fail("of this test, too")], ids=["check", "fail"])
def test_trainer__that_hears_of_the_jobs_end_lets_go(hears):
    running = weft.Controller(train="world=1", infer="engines=1,tp=1")
    trainer, rank = pair.trainer(running.address), pair.inference(running.address)
    for join in [Thread(worker.join) for worker in (trainer, rank)]:
        join.done()
    before = mappings()
    rank.fail("of this test")
    threading.Event().wait(0.5)
    with contextlib.suppress(weft.Error):
        hears(trainer)
    assert mappings() < before
    for worker in (trainer, rank):
        worker.close()
    running.stop()
