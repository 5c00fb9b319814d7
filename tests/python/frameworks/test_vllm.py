# SPDX-License-Identifier: Apache-2.0
"""weft.vllm beside doubles of each generation of vLLM's interface (doubles/vllm/vllm_double.py): the real vLLM is in
tests/engines. Jobs are real ones, over shm."""
import contextlib
import http.server
import importlib
import logging
import os
import subprocess
import sys
import threading
import time
import types

import pytest
import torch
import vllm_double
from servers import QUICK, TENSORS, named, running

import weft
import weft.engines
import weft.vllm
from weft.vllm import _sleep
from weft.vllm._session import Session

EACH = pytest.mark.parametrize("generation", vllm_double.WITH_PLUGIN)


def some(generations):
    """For whole jobs: the oldest and the newest, in a soak all. What differs between them each has tests of, without processes."""
    return generations if os.environ.get("WEFT_SOAK") else (generations[0], generations[-1])


class Recorded:
    """A receiver that receives at once, or fails as it is told."""
    way, notes, tainted = "direct", [], False
    made = []

    def __init__(self, model, endpoint, *, config=None):
        self.endpoint, self.version, self.closed, self.config = endpoint, 0, False, config
        self.fails = None
        Recorded.made.append(self)

    def join(self, timeout_s=None):
        if self.endpoint.get("join") == "fails":
            raise weft.WaitTimeout("trainer 0 has not joined")

    def receive(self, version=None, timeout_s=None):
        if self.fails:
            raise self.fails
        self.version = version or self.version + 1
        return self.version

    def stats(self):
        return {"updates": self.version}

    def close(self):
        self.closed = True


@pytest.fixture
def recorded(monkeypatch):
    monkeypatch.setattr(weft.engines, "Receiver", Recorded)
    monkeypatch.setattr(_sleep, "_watch", _sleep._Watch())
    monkeypatch.setattr(Recorded, "made", [])
    return Recorded.made


def model():
    return torch.nn.Linear(4, 3)


# ---- the plug-in


@EACH
def test_register__makes_weft_a_back_end_and_may_be_called_again(monkeypatch, generation):
    double = vllm_double.put(monkeypatch, generation)
    for _ in range(3):
        weft.vllm.register()
    assert list(double.factory.WeightTransferEngineFactory._registry) == ["weft"]
    trainer = getattr(double.factory, "WeightTransferTrainerFactory", None)
    assert (trainer is not None) == (generation in vllm_double.WITH_TRAINER)
    assert trainer is None or list(trainer._registry) == ["weft"]


def test_register__says_why_where_vllm_takes_no_back_end_but_its_own(monkeypatch, caplog):
    double = vllm_double.put(monkeypatch, "0.17.1")
    with caplog.at_level(logging.INFO, "weft.vllm"):
        weft.vllm.register()
    assert double.factory.WeightTransferEngineFactory._registry == {}
    assert "takes no back end but its own" in caplog.text and "weft.vllm.WorkerExtension" in caplog.text


def test_register__breaks_no_process_that_has_no_weight_transfer(monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "vllm", None)
    with caplog.at_level(logging.INFO, "weft.vllm"):
        weft.vllm.register()
    assert "has no weight transfer" in caplog.text and len(caplog.records) == 1


def test_register__breaks_no_process_whose_registry_is_broken(monkeypatch, caplog):
    double = vllm_double.put(monkeypatch, "0.33.0")
    monkeypatch.setattr(double.factory.WeightTransferEngineFactory, "register_engine",
                        classmethod(lambda *_: (_ for _ in ()).throw(RuntimeError("no more"))))
    weft.vllm.register()
    assert "RuntimeError: no more" in caplog.text


def test_register__has_wefts_lines_in_vllms_log(monkeypatch):
    vllm_double.put(monkeypatch, "0.33.0")
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    theirs, ours, root = logging.getLogger("vllm"), logging.getLogger("weft"), logging.getLogger()
    monkeypatch.setattr(theirs, "handlers", [handler])
    monkeypatch.setattr(ours, "handlers", [])
    monkeypatch.setattr(root, "handlers", [])
    levels = ours.level, theirs.level
    theirs.setLevel(logging.INFO)
    try:
        for _ in range(2):
            weft.vllm.register()
        logging.getLogger("weft.vllm").info("joined")
        assert lines == ["joined"]
    finally:
        ours.setLevel(levels[0])
        theirs.setLevel(levels[1])


def test_import__brings_neither_torch_nor_vllm():
    code = ("import sys, weft.vllm; weft.vllm.HTTPClient('http://a:1'); "
            "assert not {'torch', 'vllm', 'numpy', 'weft.engines'} & set(sys.modules), sys.modules.keys()")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "PYTHONPATH": ":".join(entry for entry in sys.path if entry)})
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("given, good, said", [(None, True, "all plug-ins"), ("weft", True, "has 'weft'"),
                                               ("other", False, "add 'weft'"),
                                               ("other, weft", False, "set it to 'other,weft'")])
def test_report__says_whether_the_plug_in_is_filtered_out(monkeypatch, given, good, said):
    main = importlib.import_module("weft.vllm.__main__")
    point = types.SimpleNamespace(name="weft", value="weft.vllm:register", load=lambda: weft.vllm.register)
    vllm_double.put(monkeypatch, "0.33.0", [point])
    monkeypatch.setattr(main, "_entry_point", lambda: point)
    monkeypatch.delenv("VLLM_PLUGINS", raising=False)
    if given is not None:
        monkeypatch.setenv("VLLM_PLUGINS", given)
    lines, found = main.report()
    assert found == good
    assert said in dict(lines)["VLLM_PLUGINS"]
    assert dict(lines)["back end"].startswith("registered") == good
    assert ("for VLLM_PLUGINS" in dict(lines)["back end"]) == (not good)


def test_report__finds_no_entry_point_and_says_what_to_do(monkeypatch):
    main = importlib.import_module("weft.vllm.__main__")
    vllm_double.put(monkeypatch, "0.17.1")
    monkeypatch.setattr(main, "_entry_point", lambda: None)
    lines, _ = main.report()
    assert "install the weft package" in dict(lines)["plug-in"]
    assert "--worker-extension-cls" in dict(lines)["use"]


# ---- a worker: orders


@pytest.fixture
def worker(monkeypatch, recorded, request):
    double = vllm_double.put(monkeypatch, request.param)
    weft.vllm.register()
    made = vllm_double.Worker(double, model())
    made.receivers = recorded
    return made


EACH_WORKER = pytest.mark.parametrize("worker", vllm_double.WITH_PLUGIN, indirect=True)
WITH_HOOKS = pytest.mark.parametrize("worker", vllm_double.WITH_TRAINER, indirect=True)


@EACH_WORKER
def test_worker__goes_through_an_update(worker):
    worker.init_weight_transfer_engine({"controller": "tcp://a:1"})
    worker.start_weight_update()
    worker.update_weights({"version": 7})
    worker.finish_weight_update()
    assert worker.receivers[0].version == 7


@EACH_WORKER
def test_receive__before_init_is_refused(worker):
    with pytest.raises(weft.StateError, match="before init"):
        worker.start_weight_update()
        worker.update_weights({"version": 1})


@EACH_WORKER
def test_update__without_start_is_refused_by_the_worker(worker):
    worker.init_weight_transfer_engine({"controller": "tcp://a:1"})
    with pytest.raises(RuntimeError, match="start_weight_update must be called"):
        worker.update_weights({"version": 1})
    with pytest.raises(RuntimeError, match="without a matching start"):
        worker.finish_weight_update()


@EACH_WORKER
def test_init__again_leaves_the_first_job(worker):
    worker.init_weight_transfer_engine({"controller": "tcp://a:1"})
    worker.init_weight_transfer_engine({"controller": "tcp://b:1"})
    first, second = worker.receivers
    assert first.closed and not second.closed


@EACH_WORKER
def test_init__that_fails_leaves_nothing_behind(worker):
    with pytest.raises(weft.WaitTimeout):
        worker.init_weight_transfer_engine({"controller": "tcp://a:1", "join": "fails"})
    assert worker.receivers[0].closed
    with pytest.raises(weft.StateError, match="before init"):
        worker.start_weight_update()
        worker.update_weights({"version": 1})


@EACH_WORKER
def test_init__without_an_endpoint_says_what_to_give(worker):
    with pytest.raises(ValueError, match="Sender.endpoint"):
        worker.init_weight_transfer_engine({})


@EACH_WORKER
def test_update__with_an_unknown_field_is_refused_by_vllm(worker):
    worker.init_weight_transfer_engine({"controller": "tcp://a:1"})
    worker.start_weight_update()
    with pytest.raises(ValueError, match="Invalid update_info"):
        worker.update_weights({"names": ["a"]})


@WITH_HOOKS
def test_finish__after_an_update_that_failed_reports_nothing(worker):
    worker.init_weight_transfer_engine({"controller": "tcp://a:1"})
    worker.start_weight_update()
    worker.receivers[0].fails = weft.PeerLost("trainer 0 is gone")
    with pytest.raises(weft.PeerLost):
        worker.update_weights({"version": 1})
    with pytest.raises(weft.StateError, match="trainer 0 is gone"):
        worker.weight_transfer_engine.finish_weight_update()


@WITH_HOOKS
def test_finish__without_an_update_is_refused(worker):
    worker.init_weight_transfer_engine({"controller": "tcp://a:1"})
    worker.start_weight_update()
    with pytest.raises(weft.StateError, match="no version was received"):
        worker.finish_weight_update()


@WITH_HOOKS
def test_abandoned_update__is_finished_without_a_version_and_another_begins(worker):
    worker.init_weight_transfer_engine({"controller": "tcp://a:1"})
    worker.start_weight_update()
    worker.update_weights({"abandon": True})
    worker.finish_weight_update()
    assert worker.receivers[0].version == 0
    worker.start_weight_update()
    with pytest.raises(weft.StateError, match="no version was received"):
        worker.finish_weight_update()


@WITH_HOOKS
def test_finish__of_a_tainted_model_is_refused(worker):
    worker.init_weight_transfer_engine({"controller": "tcp://a:1"})
    worker.start_weight_update()
    worker.update_weights({"version": 1})
    worker.receivers[0].tainted = True
    with pytest.raises(weft.StateError, match="mixture"):
        worker.finish_weight_update()


@WITH_HOOKS
def test_draft_model__is_refused(worker):
    engine = worker.weight_transfer_engine
    assert not engine.supports_draft_weight_update
    with pytest.raises(weft.StateError, match="draft"):
        engine.set_weight_update_target(model(), None)


@pytest.mark.parametrize("worker", ["0.22.1", "0.24.0"], indirect=True)
def test_layerwise_reload__that_the_worker_began_is_undone_before_weights_come(worker):
    at = {name: value.data_ptr() for name, value in worker.model_runner.model.named_parameters()}
    worker.init_weight_transfer_engine({"controller": "tcp://a:1"})
    worker.start_weight_update()
    assert all(value.is_meta for value in worker.model_runner.model.parameters())
    worker.update_weights({"version": 1})
    assert {name: value.data_ptr() for name, value in worker.model_runner.model.named_parameters()} == at
    worker.finish_weight_update()
    assert worker.double.reload.calls == ["initialize", "finalize", "finalize"]
    worker.start_weight_update(is_checkpoint_format=False)
    worker.update_weights({"version": 2})
    worker.finish_weight_update()
    assert len(worker.double.reload.calls) == 3


@WITH_HOOKS
def test_layerwise_reload__is_not_begun(worker):
    worker.init_weight_transfer_engine({"controller": "tcp://a:1"})
    worker.start_weight_update()
    worker.update_weights({"version": 1})
    worker.finish_weight_update()
    assert worker.double.reload.calls == []


# ---- sleep


@EACH_WORKER
@pytest.mark.parametrize("tags, level", [(("weights",), 1), ((), 2)])
def test_sleep__refuses_an_update_and_names_the_level(worker, tags, level):
    worker.init_weight_transfer_engine({"controller": "tcp://a:1"})
    allocator = worker.double.allocator()
    allocator.sleep(offload_tags=tags)
    with pytest.raises(weft.StateError, match=rf'level {level}.*wake_up\(tags=\["weights"\]\)'):
        worker.start_weight_update()
        worker.update_weights({"version": 1})
    allocator.wake_up(tags=["kv_cache"])
    with pytest.raises(weft.StateError, match=f"level {level}"):
        worker.init_weight_transfer_engine({"controller": "tcp://a:1"})


@EACH_WORKER
def test_sleep__since_join_wants_a_new_init_though_no_pointer_moved(worker):
    worker.init_weight_transfer_engine({"controller": "tcp://a:1"})
    allocator = worker.double.allocator()
    allocator.sleep(offload_tags=("weights",))
    allocator.wake_up(["weights"])
    with pytest.raises(weft.StateError, match="init again after wake_up"):
        worker.start_weight_update()
        worker.update_weights({"version": 1})
    worker.init_weight_transfer_engine({"controller": "tcp://b:1"})
    worker.active = False
    worker.start_weight_update()
    worker.update_weights({"version": 1})


@EACH_WORKER
def test_moved_parameters__are_named(worker):
    worker.init_weight_transfer_engine({"controller": "tcp://a:1"})
    module = worker.model_runner.model
    module.weight.data = module.weight.data.clone()
    with pytest.raises(weft.StateError, match=r"1 of 2 parameters.*\(weight\).*init again"):
        worker.start_weight_update(*([] if worker.double.worker == "model" else [False]))
        worker.update_weights({"version": 1})


# ---- replicas, the extension


def test_session__of_a_replica_takes_the_next_ranks_of_the_job(recorded):
    parallel = types.SimpleNamespace(world_size=4, data_parallel_index=2, data_parallel_size=1)
    session = Session(model, parallel_config=parallel)
    session.init({"controller": "tcp://a:1", "rank_offset": 16})
    assert recorded[0].endpoint["rank_offset"] == 24


def test_session__of_replicas_that_share_experts_leaves_their_places_to_the_engine(recorded):
    parallel = types.SimpleNamespace(world_size=4, data_parallel_index=2, data_parallel_size=4)
    session = Session(model, parallel_config=parallel)
    session.init({"controller": "tcp://a:1", "rank_offset": 16})
    assert recorded[0].endpoint["rank_offset"] == 16


def test_extension__has_no_name_of_vllms_worker_and_ends_with_it(monkeypatch, recorded):
    double = vllm_double.put(monkeypatch, "0.17.1")
    own = {name for name in dir(weft.vllm.WorkerExtension) if not name.startswith("__")}
    assert own and all("weft" in name for name in own - {"destroy_worker_extension"})
    worker = type("Extended", (vllm_double.Worker, weft.vllm.WorkerExtension), {})(double, model(), backend=None)
    with pytest.raises(weft.StateError, match="before init"):
        worker.weft_receive(1)
    assert worker.weft_init({"controller": "tcp://a:1"})["joined"]
    assert worker.weft_receive(3) == 3 and worker.weft_version() == 3
    weft.vllm.WorkerExtension.destroy_worker_extension(worker)
    assert recorded[0].closed and worker.weft_version() == 0


# ---- whole jobs


@pytest.mark.parametrize("generation", some(vllm_double.WITH_PLUGIN))
def test_sync__brings_every_version_to_all_servers(tmp_path, generation):
    with running(tmp_path, generation, servers=2, ranks=2) as both:
        client = weft.vllm.HTTPClient([server.url for server in both])
        sync = weft.vllm.WeightSync(TENSORS, client, engines=2, ranks=2, **QUICK)
        sync.connect()
        for version in (1, 2):
            client.pause()
            assert sync.send(named(version * 10)) == version
            client.resume()
            assert all(server.holds(version * 10) for server in both)
        if generation in vllm_double.WITH_TRAINER:
            assert client.weight_versions() == ["2", "2"]
        assert sync.last["weight_sync_time_s"] > 0
        sync.close()
        log = both[0].get("/log")["log"]
        assert log == ["/init_weight_transfer_engine"] + 2 * [
            "/pause", "/start_weight_update", "/update_weights", "/finish_weight_update", "/resume"]


@pytest.mark.parametrize("generation", some(vllm_double.GENERATIONS))
def test_sync__by_the_extension_works_in_every_generation(tmp_path, generation):
    with running(tmp_path, generation, ranks=2, extension=True) as (server,):
        client = weft.vllm.HTTPClient(server.url, extension=True)
        with_sync = weft.vllm.WeightSync(TENSORS, client, engines=1, ranks=2, **QUICK)
        with_sync.connect()
        with_sync.send(named(3))
        assert server.holds(3)
        with_sync.close()


def test_sync__connects_again_to_servers_that_are_in_another_job(tmp_path):
    with running(tmp_path, "0.33.0") as (server,):
        client = weft.vllm.HTTPClient(server.url)
        for value in (1, 2):
            sync = weft.vllm.WeightSync(TENSORS, client, **QUICK)
            sync.connect()
            assert sync.send(named(value)) == 1
            assert server.holds(value)
        sync.close()


def test_send__before_connect_is_refused():
    sync = weft.vllm.WeightSync(TENSORS, weft.vllm.HTTPClient("http://127.0.0.1:1"))
    with pytest.raises(weft.StateError, match="before connect"):
        sync.send(named(1))


def test_connect__ends_at_once_where_no_server_listens():
    sync = weft.vllm.WeightSync(TENSORS, weft.vllm.HTTPClient("http://127.0.0.1:1"), engines=1, ranks=1, **QUICK)
    began = time.monotonic()
    with pytest.raises(weft.HostFailed, match=r"POST http://127.0.0.1:1/init_weight_transfer_engine: .*refused"):
        sync.connect()
    assert time.monotonic() - began < 10 and not sync.connected


def test_connect__says_a_servers_own_words(tmp_path):
    with running(tmp_path, "0.33.0") as (server,):
        tensors = [*TENSORS[:-1], ("layer.other", torch.float32, (32,))]
        sync = weft.vllm.WeightSync(tensors, weft.vllm.HTTPClient(server.url), engines=1, ranks=1, **QUICK)
        with pytest.raises(weft.Error, match="layer.bias"):
            sync.connect()


def test_send__of_the_wrong_tensors_reports_no_version(tmp_path):
    with running(tmp_path, "0.33.0") as (server,):
        client = weft.vllm.HTTPClient(server.url)
        sync = weft.vllm.WeightSync(TENSORS, client, **QUICK)
        sync.connect()
        began = time.monotonic()
        with pytest.raises(weft.Error, match="lacks 1 of 3 tensors: layer.bias"):
            sync.send(list(named(1))[:2])
        assert time.monotonic() - began < 15
        assert client.weight_versions() == ["default"]
        assert sync.send(named(2)) == 2, "what was given up is mended by the next"
        assert server.holds(2) and client.weight_versions() == ["2"]
        sync.close()


def test_start__that_a_server_refuses_begins_nothing(tmp_path):
    with running(tmp_path, "0.33.0") as (server,):
        client = weft.vllm.HTTPClient(server.url)
        with weft.vllm.WeightSync(TENSORS, client, **QUICK) as sync:
            client.start()  # somebody's, that was not finished
            with pytest.raises(weft.HostFailed, match="already active"):
                sync.send(named(1))
            assert sync.send(named(2)) == 2
            assert server.holds(2)


def test_killed_engine__ends_the_send_with_its_name(tmp_path):
    with running(tmp_path, "0.33.0", servers=2) as both:
        client = weft.vllm.HTTPClient([server.url for server in both])
        sync = weft.vllm.WeightSync(TENSORS, client, **QUICK)
        sync.connect()
        sync.send(named(1))

        def dying():
            for name, tensor in named(2):
                both[1].kill()
                yield name, tensor
        began = time.monotonic()
        with pytest.raises(weft.Error) as found:
            sync.send(dying())
        assert time.monotonic() - began < 18
        assert "inference 1" in str(found.value) or both[1].url in str(found.value)
        assert both[0].get("/weight_info")["weight_version"] == "1"
        with pytest.raises(weft.StateError, match="connect again"):
            sync.send(named(3))
        sync.close()


def test_killed_trainer__ends_the_servers_update_and_the_next_job_mends_it(tmp_path):
    code = f"""
import os, sys; sys.path[:0] = {[entry for entry in sys.path if entry]!r}
import servers, weft.vllm
sync = weft.vllm.WeightSync(servers.TENSORS, weft.vllm.HTTPClient(sys.argv[1]), **servers.QUICK)
sync.connect(); sync.send(servers.named(1))
def dying():
    for one in servers.named(2):
        yield one
        os.kill(os.getpid(), 9)
sync.send(dying())
"""
    with running(tmp_path, "0.33.0") as (server,):
        done = subprocess.run([sys.executable, "-c", code, server.url], timeout=60)
        assert done.returncode == -9
        deadline = time.monotonic() + 15
        client = weft.vllm.HTTPClient(server.url, control_timeout_s=15)
        while True:  # the worker is in its update until it hears of the loss
            try:
                client.finish(2)
                pytest.fail("an update of a dead trainer was finished")
            except weft.HostFailed as error:
                if "without a matching start" in str(error) or "nothing to finish" in str(error):
                    break
                assert time.monotonic() < deadline, error
                time.sleep(0.2)
        assert client.weight_versions() == ["1"]
        sync = weft.vllm.WeightSync(TENSORS, client, **QUICK)
        sync.connect()
        sync.send(named(5))
        assert server.holds(5)
        sync.close()


# ---- the client


def test_client__names_server_and_route_and_shows_the_answer(tmp_path):
    with running(tmp_path, "0.33.0", servers=2) as both:
        client = weft.vllm.HTTPClient([both[0].url, both[1].url])
        with pytest.raises(weft.HostFailed) as found:
            client.update(1)
    text = str(found.value)
    assert f"POST {both[0].url}/update_weights answered 500" in text and f"POST {both[1].url}/update_weights" in text
    assert "start_weight_update must be called" in text and "2 of 2 servers" in text


def test_client__explains_a_route_that_is_not_there(tmp_path):
    with running(tmp_path, "0.17.1", extension=True) as (server,):
        with pytest.raises(weft.HostFailed, match="VLLM_SERVER_DEV_MODE=1"):
            weft.vllm.HTTPClient(server.url).start()


@contextlib.contextmanager
def answering(code, body):
    """A server that says the same to everything."""
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST

        def log_message(self, *_):
            pass
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def test_client__of_a_server_with_another_backend_says_how_to_start_it():
    with answering(500, b"NCCLWeightTransferInitInfo got an unexpected argument") as url:
        with pytest.raises(weft.HostFailed) as found:
            weft.vllm.HTTPClient(url).init([{}])
    assert "answered 500: is weft its backend? Start it with --weight-transfer-config '{\"backend\": \"weft\"}'; it said: NCCL" \
        in str(found.value)
    with answering(500, b"WEFT-E130 nobody came") as url:
        with pytest.raises(weft.HostFailed, match="answered 500: WEFT-E130 nobody came"):
            weft.vllm.HTTPClient(url).init([{}])


def test_client__with_a_path_behind_the_servers_address_says_to_leave_it_out():
    with answering(404, b"Not Found") as url:
        with pytest.raises(weft.WaitTimeout, match='v1/health answered 404: .*give its address alone, "http://host:port"'):
            weft.vllm.HTTPClient(url + "/v1").wait_ready(timeout_s=0.1)


def test_client__has_a_deadline(caplog):
    import socket
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        client = weft.vllm.HTTPClient(f"http://127.0.0.1:{listening.getsockname()[1]}", control_timeout_s=0.5)
        with pytest.raises(weft.WaitTimeout, match="POST .*/pause.*: no answer within"):
            client.pause()
        with pytest.raises(weft.WaitTimeout, match="not ready within"):
            client.wait_ready(timeout_s=0.1)
    with caplog.at_level("INFO", "weft.vllm"), pytest.raises(weft.WaitTimeout, match="not ready within"):
        weft.vllm.HTTPClient("http://127.0.0.1:1").wait_ready(timeout_s=1.2)
    waited = [record.message for record in caplog.records if "waiting for servers" in record.message]
    assert waited == ["waiting for servers, up to 1 s: GET http://127.0.0.1:1/health: [Errno 111] Connection refused"]


@pytest.mark.parametrize("given", [[], ["http://a:1", "http://a:1/"], "a:1"])
def test_client__wants_each_server_once(given):
    with pytest.raises(weft.UsageError, match="server"):
        weft.vllm.HTTPClient(given)


@pytest.mark.parametrize("error,told", [(weft.UsageError("version 1 lacks layer.bias"), 0), (weft.Interrupted("interrupted"), 1)])
def test_send__ends_the_job_only_where_the_servers_failed_first(error, told):
    """Servers answer at once to what this side gives up, perhaps before it has come to say so."""
    fails, gone = [], threading.Event()
    sync = weft.vllm.WeightSync([], types.SimpleNamespace(abandon=lambda: None))
    sync._sender = types.SimpleNamespace(fail=fails.append, interrupt=gone.set, interrupt_clear=lambda: None)

    def post():
        raise weft.HostFailed("answered 500")

    def act():
        assert gone.wait(10)
        raise error

    with pytest.raises(weft.Error, match="answered 500"):
        sync._beside("update", post, act)
    assert len(fails) == told
