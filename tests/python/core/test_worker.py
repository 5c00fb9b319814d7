# SPDX-License-Identifier: Apache-2.0
"""Workers of a job: versions, readers, what fails, and what it is told as."""
import asyncio
import gc
import logging
import os
import pathlib
import pickle
import threading

import numpy
import pytest
import torch
from pair import K, Q, Thread, controller, inference, pair, right, trainer, values

import weft


def soon_freed(handle):
    """Another thread does it."""
    for _ in range(200):
        if handle.freed:
            break
        threading.Event().wait(0.02)
    return handle.freed


@pytest.mark.parametrize("shadow", [False, True])
def test_versions__arrive_as_they_were_written(shadow):
    with pair(shadow=shadow) as (sender, receiver):
        for version in (1, 2, 5):
            sends = Thread(sender.publish, version, values(version))
            assert receiver.wait(None if version == 2 else version) == version
            sends.done()
            with receiver.read() as snapshot:
                assert snapshot.version == version == receiver.published and right(snapshot["qk"], version)
        assert sender.version == 5 and sender.stats()["updates"] == 3 and sender.plan == sender.plan
        assert receiver.digest("qk", 5) and not receiver.tainted


def test_write__takes_tensors_one_by_one_and_keeps_them_alive():
    with pair() as (sender, receiver):
        waits = Thread(receiver.wait, 1)
        with sender.update(1) as update:
            update.write("q", torch.full(Q.shape, 1.0))
            update.write(1, torch.full(K.shape, -1.0))
            gc.collect()
            assert len(sender._kept) == 2
        waits.done()
        assert sender._kept == [] and right(receiver.memory("qk"), 1)


@pytest.mark.parametrize("at_once", [False, True])
def test_write__of_the_same_tensor_looks_again_where_it_lies_and_what_it_is(at_once):
    with pair() as (sender, receiver):
        q, k = torch.full(Q.shape, 1.0), torch.full(K.shape, -1.0)

        def write(update):
            if at_once:
                update.write_all({"q": q, "k": k})
            else:
                update.write("q", q)
                update.write("k", k)
        for version in (1, 2, 3):
            waits = Thread(receiver.wait, version)
            q.fill_(version) if version != 2 else q.set_(torch.full(Q.shape, 2.0))
            k.fill_(-version)
            with sender.update(version) as update:
                write(update)
            waits.done()
            assert right(receiver.memory("qk"), version)
        k.data = k.data.view(torch.int32)  # where it was, and as large
        Thread(receiver.wait, 4)
        with pytest.raises(weft.UsageError, match="declared as F32.*I32"), sender.update(4) as update:
            write(update)


def test_write_all__of_some_leaves_out_what_an_update_before_had():
    with pair() as (sender, receiver):
        q, k = torch.full(Q.shape, 1.0), torch.full(K.shape, -1.0)
        waits = Thread(receiver.wait, 1)
        sender.publish(1, {"q": q, "k": k})
        waits.done()
        waits = Thread(receiver.wait, 2)
        with pytest.raises(weft.UsageError, match="tensor k is wanted"), sender.update(2) as update:
            update.write_all({"q": q})
        with pytest.raises(weft.Aborted):
            waits.done()


@pytest.mark.parametrize("data,words", [
    ({"q": numpy.zeros(Q.shape, "f2")}, "declared as F32.*F16"),
    ({"q": numpy.zeros((64, 31), "f4")}, "q"),
    ({"nobody": numpy.zeros(Q.shape, "f4")}, "'nobody' is no tensor"),
    ({"q": numpy.zeros((32, 64), "f4").T}, "not contiguous"),
])
def test_write__of_something_else_is_refused_and_aborts(data, words):
    with pair() as (sender, receiver):
        waits = Thread(receiver.wait, 1)
        with pytest.raises(weft.UsageError, match=words):
            sender.publish(1, data)
        with pytest.raises(weft.Aborted):
            waits.done()
        sends = Thread(sender.publish, 2, values(2))  # and a later version recovers
        receiver.wait(2)
        sends.done()


def test_end__without_a_wanted_tensor_names_it():
    with pair() as (sender, receiver):
        waits = Thread(receiver.wait, 1)
        with pytest.raises(weft.StateError, match='k'), sender.update(1) as update:
            update.write("q", values(1)["q"])
        with pytest.raises(weft.Aborted):
            waits.done()


def test_readers__get_none_before_the_first_version_and_are_told_when_torn():
    with pair() as (sender, receiver):
        with pytest.raises(weft.NothingPublished, match="none has come"), receiver.read():
            pass
        sends = Thread(sender.publish, 1, values(1))
        receiver.wait(1)
        sends.done()
        with pytest.raises(weft.Torn, match="version 1"), receiver.read():
            sends = Thread(sender.publish, 2, values(2))
            receiver.wait(2)
            sends.done()


def test_hook__runs_on_the_waiting_thread_before_publication_and_its_failure_is_the_cause():
    with pair() as (sender, receiver):
        seen = []

        def hook(version):
            assert receiver.published < version
            seen.append((version, threading.get_ident(), right(receiver.loaded_memory("qk"), version)))
            if version == 2:
                raise ValueError("no room for scales")
        receiver.set_post_load(hook)
        for version in (1, 2, 3):
            sends = Thread(sender.publish, version, values(version))
            if version == 2:
                with pytest.raises(weft.HookFailed) as caught:
                    receiver.wait(2)
                assert isinstance(caught.value.__cause__, ValueError)
            else:
                receiver.wait(version)
            sends.done()
        assert seen == [(version, threading.get_ident(), True) for version in (1, 2, 3)]


def test_asyncio__waits_for_both_sides_in_one_loop_and_a_cancelled_wait_goes_on():
    async def job(sender, receiver):
        task = asyncio.ensure_future(receiver.wait_async(1))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        for version in (1, 2, 3):
            published, _ = await asyncio.gather(receiver.wait_async(version), sender.publish_async(version, values(version)))
            assert published == version and right(receiver.memory("qk"), version)
        await asyncio.gather(sender.leave_async(), receiver.leave_async())
    with pair() as (sender, receiver):
        asyncio.run(job(sender, receiver))


def test_asyncio__a_cancelled_join_can_be_joined_again():
    async def again(worker, others):
        task = asyncio.ensure_future(worker.join_async())
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.gather(worker.join_async(), others.join_async())
    with controller() as running, trainer(running.address) as sender, inference(running.address) as receiver:
        asyncio.run(again(sender, receiver))
        assert sender.state == receiver.state == "joined"


def test_timeouts__name_who_is_missing():
    with controller() as running:
        worker = inference(running.address)
        with pytest.raises(weft.WaitTimeout, match="trainer 0|trainers") as caught:
            worker.join(0.3)
        assert isinstance(caught.value, TimeoutError) and caught.value.code == weft.Code.TIMEOUT and caught.value.exit_code == 75
        worker.close()


def test_exception__in_a_with_statement_is_told_to_the_others():
    with controller() as running:
        receiver = inference(running.address)
        joins = Thread(receiver.join)
        with pytest.raises(KeyError), trainer(running.address):
            raise KeyError("no such checkpoint")
        with pytest.raises(weft.Error, match="KeyError: 'no such checkpoint'"):
            joins.done()
        receiver.close()


def test_interrupt__ends_a_wait_of_another_thread_until_it_is_cleared():
    with pair() as (sender, receiver):
        waits = Thread(receiver.wait, 1)
        while not waits.is_alive():
            pass
        receiver.interrupt()
        with pytest.raises(weft.Interrupted):
            waits.done()
        receiver.interrupt_clear()
        sends = Thread(sender.publish, 1, values(1))
        assert receiver.wait(1) == 1
        sends.done()


def test_close__with_a_tensor_over_its_memory_keeps_that_and_not_the_job():
    with pair() as (sender, receiver):
        sends = Thread(sender.publish, 1, values(1))
        receiver.wait(1)
        sends.done()
        taken = [torch.from_dlpack(receiver.memory("qk")), numpy.asarray(receiver.memory("qk")),
                 torch.frombuffer(receiver.memory("qk").buffer, dtype=torch.float32)]
        handle = receiver._handle
        receiver.close()
        assert all(float(one.flatten()[0]) == 1.0 for one in taken) and not handle.freed
        del taken
        gc.collect()
        assert soon_freed(handle)
        with pytest.raises(weft.StateError, match="closed"):
            receiver.wait(2)


def test_close__while_another_thread_waits_ends_that_call():
    with pair() as (sender, receiver):
        waits = Thread(receiver.wait, 1)
        threading.Event().wait(0.1)
        receiver.close()
        with pytest.raises(weft.Error):
            waits.done()
        receiver.close()


def test_open_and_close__again_and_again_leave_nothing_behind():
    cycles = 5000 if os.environ.get("WEFT_SOAK") else 1000
    with controller() as running:
        def cycle():
            trainer(running.address).close()
            inference(running.address).close()

        def kept():
            gc.collect()
            pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
            return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), pages * 4096
        for _ in range(50):
            cycle()
        files, threads, memory = kept()
        for _ in range(cycles):
            cycle()
        after = kept()
        assert after[0] <= files and after[1] <= threads and after[2] < memory + 2000 * cycles, ((files, threads, memory), after)


def test_worker__that_nobody_closed_warns_and_is_freed():
    with controller() as running:
        worker = trainer(running.address)
        handle = worker._handle
        with pytest.warns(ResourceWarning, match="never closed"):
            del worker
            gc.collect()
        assert soon_freed(handle)


def test_fork__a_child_lets_go_and_the_parent_goes_on():
    with pair() as (sender, receiver):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                try:
                    sender.begin(1)
                except weft.StateError:
                    code = 0
                sender.close()
                receiver.close()
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        sends = Thread(sender.publish, 1, values(1))
        assert receiver.wait(1) == 1
        sends.done()


def test_fork__workers_of_a_data_loader_come_and_go_while_versions_are_sent():
    data = torch.utils.data.DataLoader(torch.arange(64.0), batch_size=4, num_workers=2)
    with pair() as (sender, receiver):
        for version in (1, 2, 3):
            waits, seen = Thread(receiver.wait, version), 0.0
            for batch in data:
                seen += batch.sum().item()
            sender.publish(version, values(version))
            waits.done()
            assert seen == 2016.0 and right(receiver.memory("qk"), version)


def test_log__lines_are_those_of_the_logger(caplog):
    with caplog.at_level(logging.INFO, logger="weft"), pair():
        weft.flush_log()
    assert any("plan" in record.getMessage() and record.name == "weft" for record in caplog.records)


def test_errors__are_of_their_code_and_survive_pickling():
    error = pickle.loads(pickle.dumps(weft.WaitTimeout("inference 3 is missing")))
    assert type(error) is weft.WaitTimeout and str(error) == "WEFT-E130 inference 3 is missing"


@pytest.mark.parametrize("train,words", [("world=x", "world"), ("world=1,source=nowhere", "source")])
def test_controller__that_ends_at_once_says_its_own_words(train, words):
    with pytest.raises(weft.Error, match=words):
        weft.Controller(train=train, infer="engines=1")


def test_controller__refuses_who_shows_versions_together():
    with pytest.raises(weft.UsageError, match="--commit 'most' is none of engine"):
        weft.Controller(train="world=1", infer="engines=1", commit="most")


def test_controller__outlives_the_thread_that_started_it():
    running = Thread(lambda: weft.Controller(train="world=1", infer="engines=1")).done()
    threading.Event().wait(0.3)
    assert running.exit_code is None
    running.stop()
    assert running.exit_code is not None


def test_bind__of_memory_of_another_dtype_is_refused():
    with controller() as running, weft.Inference(running.address, 0, own_memory=True) as receiver:
        with pytest.raises(weft.UsageError, match="BF16.*F32"):
            receiver.declare_param("qk", "BF16", (96, 32), memory=numpy.zeros((96, 32), "f4"))
        receiver.declare_param("qk", "F32", (96, 32))
        with pytest.raises(weft.UsageError, match="F32.*F16"):
            receiver.bind("qk", numpy.zeros((96, 32), "f2"))
        running.stop()


def test_ranks__are_counted_from_the_specs():
    assert weft.count_ranks("world=4,source=gathered", "engines=2,tp=2") == (4, 4)
    with pytest.raises(weft.ConfigError, match="tp"):
        weft.count_ranks("world=4", "engines=1,tp=zero")


def test_options__that_are_none_are_refused():
    with pytest.raises(weft.UsageError, match="rank"):
        weft.Trainer("tcp://127.0.0.1:9", -1)
    with pytest.raises(weft.Error, match="transport"):
        weft.Trainer("tcp://127.0.0.1:9", 0, transport="pigeon")
    with pytest.raises(weft.UsageError, match="timeout"):
        weft.Trainer("tcp://127.0.0.1:9", 0, join_timeout_s=-1)
