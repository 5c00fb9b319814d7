# SPDX-License-Identifier: Apache-2.0
"""What ends a worker's calls, from where, and what is told of it; many threads that begin at once."""
import asyncio
import os
import pathlib
import socket
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy
import pytest
from pair import K, Q, Thread, controller, inference, pair, right, trainer, values

import weft


def test_close__by_another_thread_ends_a_wait_of_the_main_one():
    with pair() as (sender, receiver):
        threading.Timer(0.2, receiver.close).start()
        began = time.monotonic()
        with pytest.raises(weft.Error):
            receiver.wait(1)
        assert time.monotonic() - began < 5


@pytest.mark.parametrize("thread", [False, True])
def test_close__ends_a_task_that_waits(thread):
    async def job(receiver):
        task = asyncio.ensure_future(receiver.wait_async(1))
        await asyncio.sleep(0.1)
        if thread:
            await asyncio.get_running_loop().run_in_executor(None, receiver.close)
        else:
            receiver.close()
        with pytest.raises(weft.Error):
            await asyncio.wait_for(task, 5)
    with pair() as (sender, receiver):
        asyncio.run(job(receiver))


def test_failure__of_a_rank_with_arrays_over_its_memory_is_told_all_the_same():
    with pair() as (sender, receiver):
        array = receiver.memory("qk")

        def fails(version):
            raise ValueError("no room for scales")
        receiver.set_post_load(fails)
        sends = Thread(sender.publish, 1, values(1))
        with pytest.raises(weft.HookFailed):
            receiver.wait(1)
        sends.done()
        receiver.close()
        with pytest.raises(weft.Error, match="inference 0.*hook.*ValueError: no room for scales"):
            sender.publish(2, values(2))
        assert array.bytes == 96 * 32 * 4


def test_handled_failure__of_a_rank_with_arrays_is_not_told():
    with pair() as (sender, receiver):
        for version in (1, 2):
            sends = Thread(sender.publish, version, values(version))
            receiver.wait(version)
            sends.done()
        array = receiver.memory("qk")
        with pytest.raises(weft.VersionError):
            receiver.wait(1)
        receiver.close()
        sender.leave()
        assert right(array, 2)


def test_write__of_nothing_is_refused_by_name():
    with pair() as (sender, receiver):
        waits = Thread(receiver.wait, 1)
        with pytest.raises(weft.UsageError, match="NoneType is no memory"):
            sender.publish(1, {"q": None, "k": values(1)["k"]})
        with pytest.raises(weft.Aborted):
            waits.done()


def test_array__of_a_worker_that_was_closed_meanwhile_is_not_made():
    with pair() as (sender, receiver):
        view, handle = receiver.params[0], receiver._handle
        receiver.close()
        with pytest.raises(weft.StateError, match="closed meanwhile"):
            weft.Array(handle, view, 4096, None)


def test_write__by_many_threads_as_the_first_of_all():
    count = 64
    tensors = [weft.Tensor(f"t{i}", "F32", (16,)) for i in range(count)]
    with weft.Controller(train="world=1", infer="engines=1") as running, weft.Trainer(running.address, 0) as sender, \
            weft.Inference(running.address, 0) as receiver:
        for tensor in tensors:
            sender.declare_tensor(tensor)
            receiver.declare_piece(tensor, receiver.declare_param(tensor.name, "F32", (16,)))
        joins = Thread(sender.join)
        receiver.join()
        joins.done()
        waits = Thread(receiver.wait, 1)
        old = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            with sender.update(1), ThreadPoolExecutor(8) as pool:
                list(pool.map(sender.write, (tensor.name for tensor in tensors),
                              (numpy.full(16, i, "f4") for i in range(count))))
        finally:
            sys.setswitchinterval(old)
        waits.done()
        for i in range(count):
            assert set(numpy.asarray(receiver.memory(f"t{i}")).tolist()) == {float(i)}


def test_drain__keeps_what_is_written_meanwhile():
    with pair() as (sender, receiver):
        waits = Thread(receiver.wait, 1)
        with sender.update(1) as update:
            update.write("q", values(1)["q"])
            before = sender._kept
            sender.drain()
            assert before and sender._kept == []
            update.write("k", values(1)["k"])
            assert len(sender._kept) == 1
        waits.done()


def test_join__of_more_workers_than_a_loops_pool_has_threads():
    count = 24
    tensor = weft.Tensor("t", "F32", (16,))

    async def job(workers):
        await asyncio.gather(*(worker.join_async() for worker in workers))
        await asyncio.gather(*(worker.leave_async() for worker in workers))
    with weft.Controller(train="world=1", infer=f"engines={count},tp=1") as running:
        workers = [weft.Trainer(running.address, 0), *(weft.Inference(running.address, rank) for rank in range(count))]
        workers[0].declare_tensor(tensor)
        for worker in workers[1:]:
            worker.declare_piece(tensor, worker.declare_param("t", "F32", (16,)))
        asyncio.run(job(workers))
        for worker in workers:
            worker.close()


def test_join__that_was_over_when_its_wait_was_ended_runs_what_is_left():
    """As when Ctrl-C comes while a module's parameters are moved."""
    with controller() as running, trainer(running.address) as sender, inference(running.address) as receiver:
        calls = []

        def struck():
            calls.append(len(calls))
            if len(calls) == 1:
                raise KeyboardInterrupt
        receiver.on_join(struck)
        receiver.on_join(lambda: calls.append("other"))
        joins = Thread(sender.join)
        with pytest.raises(KeyboardInterrupt):
            receiver.join()
        receiver.join()
        joins.done()
        assert calls == [0, 1, "other"]
        with pytest.raises(weft.StateError):
            receiver.join()


def test_begin__that_was_accepted_as_ctrl_c_came_can_be_begun_again(monkeypatch):
    with pair() as (sender, receiver):
        waits, real = Thread(receiver.wait, 1), sender._until

        def until(attempt):
            real(attempt)
            raise KeyboardInterrupt
        monkeypatch.setattr(sender, "_until", until)
        with pytest.raises(KeyboardInterrupt):
            sender.publish(1, values(1))
        monkeypatch.undo()
        with pytest.raises(weft.Aborted):
            waits.done()
        waits = Thread(receiver.wait, 2)
        sender.publish(2, values(2))
        waits.done()
        assert right(receiver.memory("qk"), 2)


def test_forgotten__worker_is_freed_where_warnings_are_errors(monkeypatch):
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: None)
    with controller() as running:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            worker = trainer(running.address)
            handle = worker._handle
            del worker
        deadline = time.monotonic() + 10
        while not handle.freed:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_numbers__below_zero_are_refused_as_errors_of_weft():
    with controller() as running, trainer(running.address) as worker:
        with pytest.raises(weft.UsageError):
            worker.declare_tensor(weft.Tensor("other", "F32", (4, 4)), rows=(-1, 4))
        worker.close()


def test_fork__logs_of_a_worker_in_the_child_are_the_loggers():
    code = """
import logging, os, sys
sys.path.insert(0, sys.argv[1])
from pair import controller, trainer
logging.basicConfig(stream=sys.stdout, level=logging.DEBUG, format="%(name)s %(message)s")
with controller() as running:
    trainer(running.address).close()
    child = os.fork()
    if not child:
        worker = trainer(running.address)
        try:
            worker.join(0.3)
        except Exception:
            pass
        import weft._log
        weft._log.flush()
        sys.stdout.flush()
        print("in the child", flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code, pathlib.Path(__file__).resolve().parent],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "in the child" in done.stdout, done.stderr
    assert "weft t0: > hello" in done.stdout and not done.stderr, done.stderr


def free_port():
    with socket.socket() as listener:
        listener.bind(("", 0))
        return listener.getsockname()[1]


@pytest.mark.parametrize("mode", [0o700, 0o755])
def test_of_launch__makes_the_key_that_the_others_wait_for(tmp_path, monkeypatch, mode):
    for name in [name for name in os.environ if name.startswith(("WEFT_", "PMI_", "OMPI_", "SLURM_"))]:
        if name not in ("WEFT_BIN", "WEFT_LIBRARY"):
            monkeypatch.delenv(name)
    for name, value in {"WEFT_CONTROLLER": "auto", "RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2",
                        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port() - 100),
                        "XDG_RUNTIME_DIR": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    launch = weft.launch_find()
    assert launch.starts_controller and launch.key_waits
    key = pathlib.Path(launch.key_file)
    key.parent.mkdir(mode=mode)
    if mode != 0o700:
        with pytest.raises(weft.ConfigError, match="not a folder of this user alone"):
            weft.Controller.of_launch(launch, "world=1", "engines=1,tp=1")
        return
    with weft.Controller.of_launch(launch, "world=1", "engines=1,tp=1") as running:
        assert key.stat().st_mode & 0o777 == 0o600
        sender, receiver = trainer(None), inference(launch.controller, key_file=key)
        joins = Thread(sender.join)
        receiver.join()
        joins.done()
        for worker in (sender, receiver):
            worker.leave()
            worker.close()
        running.wait(20)
    assert not key.exists() and (Q.bytes, K.bytes) == (8192, 4096)
