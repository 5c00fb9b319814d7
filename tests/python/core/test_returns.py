# SPDX-License-Identifier: Apache-2.0
"""Engines and trainers that come back to a job that goes on, and controllers that are replaced: what the host of each side calls,
blocking and in an event loop."""
import asyncio
import contextlib
import os
import signal
import time

import numpy
import pytest
from pair import SECONDS, K, Q, Thread, inference, right, values
from pair import trainer as new_trainer
from test_losses import all_at, begun_with_one_engine, engine, fails, heard, two_engines

import weft


def comes_back(address, first, last):
    """An engine takes the place of the one that left. It says its first version, and ends with what is said to be the last."""
    with engine(address, 1) as again:
        again.join(SECONDS)
        while not last or again.published < last[0]:
            version = again.wait()
            with again.read() as snapshot:
                assert snapshot.version == version and right(snapshot["qk"], version)
            assert first or version == again.next_version
            first[:] = first or [version]


async def publish_and_wait(trainer, inference, version):
    """Both sides in one thread."""
    await asyncio.wait_for(asyncio.gather(trainer.publish_async(version, values(version)), inference.wait_async(version)), SECONDS)


@pytest.mark.parametrize("loops", [False, True], ids=["threads", "event loop"])
def test_engine__that_comes_back_is_taken_in_by_publish_and_wait(loops):
    first, last, version = [], [], 1
    with two_engines() as (address, trainer, (inference, other)):
        fails(other)
        heard(trainer)
        again = Thread(comes_back, address, first, last)
        while not last:
            assert version < 10000 and again.is_alive()
            last[:] = first and [version + 1]
            version += 1
            if loops:
                asyncio.run(publish_and_wait(trainer, inference, version))
            else:
                all_at(trainer, inference, version)
        again.done()
        assert 1 < first[0] < version and trainer.next_version == inference.next_version == first[0]
        for worker in (trainer, inference):
            assert worker.losses[0].back and worker.losses[0].ranks == range(1, 2)
        with inference.read() as snapshot:
            assert right(snapshot["qk"], version)
        assert trainer.stats()["updates"] == version


def shows(worker, version):
    assert worker.wait() == version
    with worker.read() as snapshot:
        assert snapshot.version == version and right(snapshot["qk"], version)


def repeats(trainer, loops):
    """Asks until an engine waits; the version that it lacks."""
    while not (lacking := asyncio.run(trainer.repeat_async()) if loops else trainer.repeat()):
        time.sleep(0.01)
    return lacking


@pytest.mark.parametrize("loops", [False, True], ids=["threads", "event loop"])
def test_engine__that_comes_back_is_sent_the_last_version_by_a_trainer_with_nothing_new(loops):
    with two_engines(catch_up_from="trainers") as (address, trainer, (inference, other)):
        fails(other)
        heard(trainer)
        assert trainer.repeat() == 0
        waits = Thread(inference.wait, 2)
        with engine(address, 1) as again:
            joins = Thread(again.join, SECONDS)
            lacking = Thread(repeats, trainer, loops).done()
            joins.done()
            assert lacking == again.next_version == 1 and inference.published == 1
            assert trainer.repeat() == 1  # until it is sent
            with pytest.raises(weft.StateError, match="version 1 is to be sent once more first"):
                trainer.begin(2)
            served = Thread(shows, again, 1)
            trainer.publish(1, values(1))
            served.done()
            assert trainer.repeat() == 0 and trainer.version == 1
            with pytest.raises(weft.VersionError, match="versions grow"):
                trainer.begin(1)
            served = Thread(shows, again, 2)
            trainer.publish(2, values(2))
            served.done()
            assert waits.done() == 2


def admits(trainer, loops, joins):
    """Lets in who waits, with nothing to send; until that one is in."""
    while joins.is_alive():
        if loops:
            asyncio.run(trainer.admit_async())
        else:
            trainer.admit()
        time.sleep(0.01)


@pytest.mark.parametrize("loops", [False, True], ids=["threads", "event loop"])
def test_engine__that_comes_back_is_sent_the_last_version_by_another_engine(loops):
    with two_engines() as (address, trainer, (inference, other)):
        fails(other)
        heard(trainer)
        trainer.admit()  # nobody waits
        waits = Thread(lambda: asyncio.run(inference.wait_async(2)) if loops else inference.wait(2))
        with engine(address, 1) as again:
            joins = Thread(again.join, SECONDS)
            admits(trainer, loops, joins)
            joins.done()
            assert again.next_version == 1 and trainer.repeat() == 0
            shows(again, 1)
            assert inference.published == 1 and trainer.stats()["updates"] == 1
            served = Thread(shows, again, 2)
            trainer.publish(2, values(2))
            served.done()
            assert waits.done() == 2


def test_admit__of_a_trainer_in_an_update_is_refused():
    with two_engines() as (_, trainer, (inference, other)):
        waits = [Thread(worker.wait, 2) for worker in (inference, other)]
        trainer.begin(2)
        with pytest.raises(weft.StateError, match="weft_update_admit: update 2 is open"):
            trainer.admit()
        trainer.abort("no more of it")
        for wait in waits:
            with pytest.raises(weft.Aborted):
                wait.done()
        other.close()


def test_engine__that_declares_another_layout_comes_back_with_it():
    """As when experts have moved: the host closes it on all ranks and opens another one."""
    with two_engines() as (address, trainer, (inference, other)):
        other.close()
        heard(trainer)
        waits = Thread(inference.wait, 2)
        with weft.Inference(address, 1, update_timeout_s=SECONDS) as again:
            again.declare_param("k", "F32", K.shape)
            again.declare_piece(K, "k")
            joins = Thread(again.join, SECONDS)
            assert Thread(repeats, trainer, False).done() == 1
            joins.done()
            for version in (1, 2):
                served = Thread(again.wait, version)
                trainer.publish(version, values(version))
                assert served.done() == version
                with again.read() as snapshot:
                    assert (numpy.frombuffer(snapshot["k"].buffer, "f4") == -version).all()
            assert waits.done() == 2


def engine_with(address, names):
    """Parameters of one size, k of K and q of the same number of Q's rows, declared in that order."""
    worker = weft.Inference(address, 1, update_timeout_s=SECONDS)
    for name in names:
        worker.declare_param(name, "F32", K.shape)
        worker.declare_piece({"k": K, "q": Q}[name], name, lo=(0, 0), hi=K.shape)
    return worker


@pytest.mark.parametrize("replica", ["ring", "full"])
def test_engine__that_declares_its_parameters_in_another_order_has_each_in_its_place(replica):
    """Its plan has the digest of the one before, which names them."""
    with contextlib.ExitStack() as stack:
        running = weft.Controller(train="world=1", infer="engines=2,tp=1", on_loss="continue")
        stack.callback(running.stop)
        trainer = stack.enter_context(new_trainer(running.address, replica=replica))
        first, second = stack.enter_context(inference(running.address, shadow=True)), engine_with(running.address, "kq")
        for join in [Thread(worker.join) for worker in (trainer, first, second)]:
            join.done()
        waits = [Thread(worker.wait, 1) for worker in (first, second)]
        trainer.publish(1, values(1))
        assert [wait.done() for wait in waits] == [1, 1]
        digest = trainer.plan.digest
        second.close()
        heard(trainer)
        waits = Thread(first.wait, 2)
        with engine_with(running.address, "qk") as again:
            joins = Thread(again.join, SECONDS)
            assert Thread(repeats, trainer, False).done() == 1
            joins.done()
            assert trainer.plan.digest == digest
            for version in (1, 2):
                served = Thread(again.wait, version)
                if version == 1 and replica == "full":
                    with pytest.raises(weft.StateError):
                        trainer.replay(1)
                trainer.publish(version, values(version))
                assert served.done() == version
                with again.read() as snapshot:
                    for name, value in (("q", version), ("k", -version)):
                        assert (numpy.frombuffer(snapshot[name].buffer, "f4") == value).all()
            assert waits.done() == 2


@pytest.mark.parametrize("loops", [False, True], ids=["threads", "event loop"])
def test_engine__that_was_not_here_at_the_beginning_comes_in_and_is_all_that_is_left(loops):
    with begun_with_one_engine(catch_up_from="trainers") as (address, trainer, first):
        all_at(trainer, first, 1)
        assert trainer.losses == first.losses == ()
        waits = Thread(first.wait, 2)
        with engine(address, 2) as second:
            joins = Thread(second.join, SECONDS)
            assert Thread(repeats, trainer, loops).done() == 1
            joins.done()
            served = Thread(shows, second, 1)
            trainer.publish(1, values(1))
            served.done()
            served = Thread(shows, second, 2)
            trainer.publish(2, values(2))
            served.done()
            assert waits.done() == 2
            fails(first)
            assert heard(trainer)[-1].ranks == range(0, 1)
            served = Thread(shows, second, 3)
            trainer.publish(3, values(3))
            served.done()


def publishes(trainer, version, loops):
    if loops:
        asyncio.run(trainer.publish_async(version, values(version)))
    else:
        trainer.publish(version, values(version))


@pytest.mark.parametrize("loops", [False, True], ids=["threads", "event loop"])
def test_trainer__that_has_no_engine_any_more_waits_for_one(loops):
    with begun_with_one_engine() as (address, trainer, first):
        all_at(trainer, first, 1)
        fails(first)
        heard(trainer)
        publish = Thread(publishes, trainer, 2, loops)
        time.sleep(0.5)
        assert publish.is_alive()
        with engine(address, 1) as second:
            second.join(SECONDS)
            assert second.next_version == second.wait() == 2
            publish.done()


@pytest.mark.parametrize("loops", [False, True], ids=["threads", "event loop"])
def test_trainer__that_fails_is_replaced_by_one_that_asks_for_the_next_version(loops):
    with two_engines() as (address, trainer, engines), engines[1]:
        fails(trainer)
        with new_trainer(address) as another:
            waits = [Thread(asyncio.run, worker.wait_async()) if loops else Thread(worker.wait) for worker in engines]
            another.join(SECONDS)
            assert another.next_version == 2
            another.publish(2, values(2))
            assert [wait.done() for wait in waits] == [2, 2]
            for worker in engines:
                (loss,) = worker.losses
                assert loss.role == "trainer" and loss.ranks == range(1) and loss.back and "ZeroDivisionError" in loss.text, loss
                with worker.read() as snapshot:
                    assert snapshot.version == 2 and right(snapshot["qk"], 2)


def test_job__whose_controller_is_lost_runs_on_and_is_taken_over():
    options = {"train": "world=1", "infer": "engines=1,tp=1", "orphan_s": 60.0, "heartbeat_s": 0.2, "lost_after_s": 2.0}
    with contextlib.ExitStack() as stack:
        running = weft.Controller(**options)
        stack.callback(running.stop)
        sender = stack.enter_context(new_trainer(running.address))
        receiver = stack.enter_context(inference(running.address))
        join = Thread(sender.join)
        receiver.join()
        join.done()
        all_at(sender, receiver, 1)
        os.kill(running.pid, signal.SIGKILL)
        time.sleep(2.5)
        all_at(sender, receiver, 2)
        another = weft.Controller(bind=running.address, **options)
        stack.callback(another.stop)
        for version in range(3, 30):
            all_at(sender, receiver, version)
            time.sleep(0.05)
        for worker in (receiver, sender):
            worker.close()
        another.wait(SECONDS)
