# SPDX-License-Identifier: Apache-2.0
"""weft.vllm in the real vLLM on a processor: its plug-in loader, its registries, its HTTP routes, its worker's methods, its model
classes and loaders. Weights come from another process over shm, into the live parameters; what they have to be is what vLLM's
own loader makes of the same checkpoint.

Needs what tests/engines/install makes; skipped without. Each engine rank is a fork: a process can have one engine."""
import asyncio
import json
import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import types

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
pytest.importorskip("vllm")
import models  # noqa: E402
import vllm_rank  # noqa: E402  before loaders' vLLM looks for its platform

vllm_rank.on_the_processor()
import loaders  # noqa: E402
import torch  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

import weft  # noqa: E402
import weft.engines  # noqa: E402
import weft.vllm  # noqa: E402

FORK = multiprocessing.get_context("fork")
QUICK = {"join_timeout_s": 60, "update_timeout_s": 20}
DEADLINE_S = 150
FOUND = weft.vllm.generation()
OBJECTS = pytest.mark.skipif(not FOUND.trainer, reason="this vLLM has no trainer objects")


@pytest.fixture(scope="module")
def engine():
    weft.vllm.register()
    return loaders.engine("vllm")


@pytest.fixture(scope="module", params=["llama", "phi3"])
def checkpoint(request, tmp_path_factory):
    """As it is served, and as it is after training: (folder, folder)."""
    before = tmp_path_factory.mktemp(f"{request.param}-before")
    models.make(request.param, before)
    after = tmp_path_factory.mktemp(f"{request.param}-after")
    for file in before.iterdir():
        (after / file.name).write_bytes(file.read_bytes())
    generator = torch.Generator().manual_seed(5)
    trained = {name: torch.randn(tensor.shape, generator=generator).to(tensor.dtype)
               for name, tensor in load_file(before / "model.safetensors").items()}
    save_file(trained, after / "model.safetensors", metadata={"format": "pt"})
    return before, after


class Child:
    """A forked function; what it returns, or its exception's text."""

    def __init__(self, function, *arguments):
        self.here, there = FORK.Pipe()
        self.process = FORK.Process(target=self._run, args=(there, function, arguments), daemon=True)
        self.process.start()
        there.close()

    @staticmethod
    def _run(there, function, arguments):
        try:
            there.send((True, function(there, *arguments)))
        except BaseException as error:
            there.send((False, f"{type(error).__name__}: {error}"))
        there.close()
        os._exit(0)  # engines leave threads behind

    def hear(self):
        assert self.here.poll(DEADLINE_S), "nothing came from the process"
        return self.here.recv()

    def result(self):
        good, found = self.hear()
        self.process.join(20)
        assert good, found
        return found

    def kill(self):
        if self.process.is_alive():
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.join(10)


@pytest.fixture
def children():
    made = []

    def start(function, *arguments):
        made.append(Child(function, *arguments))
        return made[-1]
    yield start
    for child in made:
        child.kill()


def loaded(pipe, engine, folder, rank, tp):
    """What vLLM's own loader makes of a folder."""
    return {name: value.numpy().tobytes() for name, value in vllm_rank.Rank(engine, folder, rank, tp, None).bytes_of().items()}


def train(pipe, folders, ranks, options):
    """A trainer: says its endpoint, sends a version of each folder when it hears of it."""
    shapes = [(name, tensor.dtype, tuple(tensor.shape)) for name, tensor in load_file(folders[0] / "model.safetensors").items()]
    with weft.engines.Sender(shapes, engines=1, ranks=ranks, **QUICK, **options) as sender:
        pipe.send(sender.endpoint(0))
        sender.join()
        for folder in folders:
            sender.send(load_file(folder / "model.safetensors").items())
            pipe.send("sent")
        pipe.recv()


def serve(pipe, engine, folder, rank, tp, versions):
    """A rank: joins by the endpoint that it hears, goes through updates as vLLM's worker does; the parameters after each."""
    made = vllm_rank.Rank(engine, folder, rank, tp)
    pipe.send("loaded")
    made.call("init_weight_transfer_engine", pipe.recv())
    where, found = {name: value.data_ptr() for name, value in made.model.named_parameters()}, []
    for version in range(1, versions + 1):
        made.call("start_weight_update")
        made.call("update_weights", {"version": version})
        made.call("finish_weight_update")
        found.append({name: value.numpy().tobytes() for name, value in made.bytes_of().items()})
    assert where == {name: value.data_ptr() for name, value in made.model.named_parameters()}, "addresses that graphs keep"
    way = made.worker.weight_transfer_engine._weft_session.describe()["way"]
    made.worker.weight_transfer_engine.shutdown()
    return found, way


@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("layout, way", [("auto", "direct"), ("loader", "loader")])
def test_live_parameters__are_what_vllms_loader_makes(engine, checkpoint, children, tp, layout, way):
    before, after = checkpoint
    wanted = [[children(loaded, engine, folder, rank, tp).result() for folder in (after, before)] for rank in range(tp)]
    ranks = [children(serve, engine, before, rank, tp, 2) for rank in range(tp)]
    assert [rank.hear() for rank in ranks] == ["loaded"] * tp
    trainer = children(train, [after, before], tp, {"layout": layout})
    endpoint = json.loads(json.dumps(trainer.hear()))
    for rank in ranks:
        rank.here.send(endpoint)
    assert [trainer.hear(), trainer.hear()] == ["sent", "sent"]
    for rank, want in zip(ranks, wanted):
        found, used = rank.result()
        assert used == way
        assert found[0] != found[1]
        for have, must in zip(found, want):
            assert have.keys() == must.keys()
            assert [name for name in must if have[name] != must[name]] == []
    trainer.here.send("done")
    trainer.result()


def test_killed_trainer__fails_the_update_by_name_and_nothing_is_finished(engine, checkpoint, children):
    before, after = checkpoint

    def left(pipe):
        made = vllm_rank.Rank(engine, before, 0, 1)
        pipe.send("loaded")
        made.call("init_weight_transfer_engine", pipe.recv())
        pipe.send("joined")
        made.call("start_weight_update", *([] if FOUND.worker == "model" else [False]))
        began = time.monotonic()
        with pytest.raises(weft.Error) as found:
            made.call("update_weights", {"version": 1})
        took = time.monotonic() - began
        engine_of = made.worker.weight_transfer_engine
        with pytest.raises(weft.StateError, match="was not received"):
            engine_of.finish_weight_update()
        engine_of.shutdown()
        return took, str(found.value)

    def killed(pipe):
        tensors = load_file(after / "model.safetensors")
        sender = weft.engines.Sender([(name, tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items()],
                                     engines=1, ranks=1, **QUICK)
        pipe.send(sender.endpoint(0))
        sender.join()

        def dying():
            for i, one in enumerate(tensors.items()):
                if i == 3:
                    os.kill(os.getpid(), signal.SIGKILL)
                yield one
        sender.send(dying())
    rank = children(left)
    assert rank.hear() == "loaded"
    trainer = children(killed)
    rank.here.send(trainer.hear())
    assert rank.hear() == "joined"
    took, said = rank.result()
    assert took < 18 and ("trainer 0" in said or "controller" in said), said


# ---- vLLM's own machinery


def test_plugin__is_found_by_its_entry_point(tmp_path):
    folder = tmp_path / "weft-0.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: weft\nVersion: 0.0\n")
    (folder / "entry_points.txt").write_text("[vllm.general_plugins]\nweft = weft.vllm:register\n")
    code = "import vllm_rank, sys; vllm_rank.on_the_processor(); from weft.vllm.__main__ import main; sys.exit(main())"
    path = ":".join([str(tmp_path), str(HERE), *(entry for entry in sys.path if entry)])
    for allowed, good, said in ((None, 0, "registered"), ("weft,other", 0, "registered"),
                                ("other", 1, "leaves it out: add 'weft'")):
        given = {name: value for name, value in os.environ.items() if name != "VLLM_PLUGINS"} | {"PYTHONPATH": path}
        done = subprocess.run([sys.executable, "-c", f"{PRELUDE}{code}"], capture_output=True, text=True, timeout=DEADLINE_S,
                              env=given | ({"VLLM_PLUGINS": allowed} if allowed else {}))
        assert done.returncode == good and said in done.stdout, done.stdout + done.stderr[-2000:]
        assert "vllm.general_plugins: weft = weft.vllm:register" in done.stdout


# what a machine whose torchvision is of another torch wants before vLLM is imported; a module of that machine's
PRELUDE = "import importlib.util\nif importlib.util.find_spec('pre'): import pre\n"


def test_registries__take_weft_once_and_make_its_engine(engine):
    from vllm.distributed.weight_transfer import WeightTransferEngineFactory
    for _ in range(2):
        weft.vllm.register()
    made = WeightTransferEngineFactory._registry["weft"]()
    assert made.__name__ == "WeftWeightTransferEngine" and not made.__abstractmethods__
    if FOUND.trainer:
        from vllm.distributed.weight_transfer import WeightTransferTrainerFactory
        assert not WeightTransferTrainerFactory._registry["weft"]().__abstractmethods__


@OBJECTS
def test_worker_extension__has_no_name_of_the_real_worker(engine):
    from vllm.v1.worker import gpu_worker
    names = [name for name in dir(weft.vllm.WorkerExtension) if not name.startswith("__")]
    assert [name for name in names if hasattr(gpu_worker.Worker, name)] == []


def extended(pipe, engine, folder):
    made = vllm_rank.Rank(engine, folder, 0, 1, None)
    worker = type("Extended", (weft.vllm.WorkerExtension,), {})()
    worker.model_runner, worker.vllm_config = made.worker.model_runner, made.worker.vllm_config
    pipe.send(json.loads(json.dumps(worker.weft_describe())))
    joined = worker.weft_init(pipe.recv())
    received = worker.weft_receive(1)
    found = {name: value.numpy().tobytes() for name, value in made.bytes_of().items()}
    worker.weft_close()
    return joined["way"], received, found


def test_worker_extension__brings_a_version_and_describes_the_worker(engine, checkpoint, children):
    before, after = checkpoint
    wanted = children(loaded, engine, after, 0, 1).result()
    rank = children(extended, engine, before)
    said = rank.hear()
    assert said["joined"] is False and said["description"]["engine"] == "vllm" and said["description"]["version"] == FOUND.vllm
    trainer = children(train, [after], 1, {})
    rank.here.send(trainer.hear())
    way, received, found = rank.result()
    assert (way, received) == ("direct", 1)
    assert [name for name in wanted if found[name] != wanted[name]] == []
    assert trainer.hear() == "sent"
    trainer.here.send("done")
    trainer.result()


@OBJECTS
def test_trainer_object__over_the_real_routes_reports_its_version(engine, checkpoint, children):
    """vLLM's router, its AsyncLLM's methods, its HTTP client and its ModuleSource; one worker behind them."""
    before, after = checkpoint
    wanted = children(loaded, engine, after, 0, 1).result()
    server = children(routes, engine, before)
    port = server.hear()
    trainer = children(object_train, after, f"http://127.0.0.1:{port}")
    version, own = trainer.result()
    assert version == "1" and own == 1
    server.here.send("end")
    found, log = server.result()
    assert [name for name in wanted if found[name] != wanted[name]] == []
    assert log == ["init_weight_transfer_engine", "start_weight_update", "update_weights", "finish_weight_update"]


def object_train(pipe, folder, url):
    import urllib.request

    from vllm.distributed.weight_transfer import HTTPVLLMWeightSyncClient, ModuleSource, WeightTransferTrainerFactory

    module = torch.nn.Module()
    for name, tensor in load_file(folder / "model.safetensors").items():
        at = module
        for part in name.split(".")[:-1]:
            if part not in at._modules:
                at.add_module(part, torch.nn.Module())
            at = at._modules[part]
        at.register_parameter(name.split(".")[-1], torch.nn.Parameter(tensor, requires_grad=False))
    trainer = WeightTransferTrainerFactory.trainer_init(weft.vllm.TrainerInitInfo(rank=0, options=QUICK),
                                                        client=HTTPVLLMWeightSyncClient(url), source=ModuleSource(module))
    trainer.send_weights()
    with urllib.request.urlopen(url + "/weight_info", timeout=20) as answer:
        said = json.loads(answer.read())["weight_version"]
    own = trainer.version
    trainer.shutdown()
    return said, own


def routes(pipe, engine, folder):
    """A server of vLLM's own routes over one worker."""
    import uvicorn
    from fastapi import FastAPI
    from vllm.entrypoints.rl.online.api_router import router
    from vllm.v1.engine.async_llm import AsyncLLM

    made, log, versions = vllm_rank.Rank(engine, folder, 0, 1), [], ["default"]

    async def collective_rpc(method, kwargs=None):
        log.append(method)
        return [await asyncio.to_thread(made.call, method, **(kwargs or {}))]

    async def update_weight_version(version):
        versions.append(version)

    async def get_weight_version():
        return versions[-1]
    client = types.SimpleNamespace(
        collective_rpc=collective_rpc, update_weight_version=update_weight_version, get_weight_version=get_weight_version,
        vllm_config=types.SimpleNamespace(parallel_config=types.SimpleNamespace(world_size=1, world_size_across_dp=1)))
    for name in ("init_weight_transfer_engine", "start_weight_update", "update_weights", "finish_weight_update"):
        setattr(client, name, types.MethodType(getattr(AsyncLLM, name), client))
    app = FastAPI()
    app.include_router(router)
    app.state.engine_client = client
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error"))
    threading.Thread(target=server.run, daemon=True).start()
    deadline = time.monotonic() + 30
    while not server.started:
        assert time.monotonic() < deadline, "uvicorn does not start"
        time.sleep(0.02)
    pipe.send(server.servers[0].sockets[0].getsockname()[1])
    assert pipe.recv() == "end"
    found = {name: value.numpy().tobytes() for name, value in made.bytes_of().items()}
    made.worker.weight_transfer_engine.shutdown()
    return found, log
