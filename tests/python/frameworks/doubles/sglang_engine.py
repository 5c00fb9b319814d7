# SPDX-License-Identifier: Apache-2.0
"""An engine of the shape of SGLang's, written from its sources (0.5.23, 0.5.12): one process a tensor-parallel rank, a
TokenizerManager and HTTP routes on rank 0, handlers of weights in the scheduler's class of that generation, HookRegistry. Its
answer to a request is rank 0's. The model is two parameters, cut in rows; a route of its own shows what the ranks hold.

    python sglang_engine.py GENERATION RANKS RANK FOLDER     GENERATION: new (0.5.23), old (0.5.12)

The file FOLDER/port has the HTTP port when all ranks are up."""
import asyncio
import dataclasses
import enum
import http.server
import importlib.machinery
import json
import os
import pathlib
import sys
import threading
import types
from typing import Optional

import torch
import torch.distributed as dist

DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16}


def tensors():
    """[name, dtype, shape] of the checkpoint that this engine serves: a file's, or two."""
    file = os.environ.get("WEFT_DOUBLE_TENSORS")
    return json.loads(pathlib.Path(file).read_text()) if file else [["model.a.weight", "F32", [8, 16]],
                                                                    ["model.b.weight", "F32", [8, 16]]]


# ---- modules by SGLang's names

def module(name, **members):
    made = types.ModuleType(name)
    made.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
    made.__path__ = []
    vars(made).update(members)
    sys.modules[name] = made
    above, _, last = name.rpartition(".")
    if above:
        if above not in sys.modules:
            module(above)
        setattr(sys.modules[above], last, made)
    return made


def request(name, *fields):
    made = globals()[name] = dataclasses.make_dataclass(name, fields, kw_only=True)
    made.__module__ = __name__  # pickled on its way to the other ranks
    return made


Init = request("InitWeightsUpdateGroupReqInput", ("master_address", str), ("master_port", int), ("rank_offset", int),
               ("world_size", int), ("group_name", str, "weight_update_group"), ("backend", str, "nccl"))
Update = request("UpdateWeightsFromDistributedReqInput", ("names", list), ("dtypes", list), ("shapes", list),
                 ("group_name", str, "weight_update_group"), ("flush_cache", bool, True), ("abort_all_requests", bool, False),
                 ("weight_version", Optional[str], None), ("load_format", Optional[str], None), ("selector", str, "all"),
                 ("torch_empty_cache", bool, False))
Destroy = request("DestroyWeightsUpdateGroupReqInput", ("group_name", str, "weight_update_group"))
Tags = request("ReleaseMemoryOccupationReqInput", ("tags", Optional[list], None))
ANSWERS = {name: request(name, ("success", bool), ("message", str)) for name in (
    "InitWeightsUpdateGroupReqOutput", "UpdateWeightsFromDistributedReqOutput", "DestroyWeightsUpdateGroupReqOutput")}


class HookType(enum.Enum):
    AROUND = "around"


class HookRegistry:
    hooks: list = []

    @classmethod
    def register(cls, target, hook, kind):
        cls.hooks.append((target, hook))

    @classmethod
    def apply_hooks(cls):
        import pkgutil

        for target, hook in cls.hooks:
            path, _, name = target.rpartition(".")
            owner = pkgutil.resolve_name(path)
            setattr(owner, name, cls.around(getattr(owner, name), hook))

    @staticmethod
    def around(original, hook):
        return lambda *arguments, **named: hook(original, *arguments, **named)


# ---- the scheduler's side

class Handlers:
    """What both generations' classes do of themselves."""

    def init_weights_update_group(self, given):
        message = "Failed to initialize custom process group: no NCCL"
        return ANSWERS["InitWeightsUpdateGroupReqOutput"](success=False, message=message)

    def destroy_weights_update_group(self, given):
        return ANSWERS["DestroyWeightsUpdateGroupReqOutput"](success=False, message="The group to be destroyed does not exist.")

    def update_weights_from_distributed(self, given):
        message = f"Group {given.group_name} not in []. Please call"
        return ANSWERS["UpdateWeightsFromDistributedReqOutput"](success=False, message=message)

    def release_memory_occupation(self, given):
        self.offload_tags |= set(given.tags or ("kv_cache", "weights", "cuda_graph"))

    def resume_memory_occupation(self, given):
        self.offload_tags -= set(given.tags or ("kv_cache", "weights", "cuda_graph"))

    def flush_cache(self, empty_cache=True):
        return not self.running


class Engine(Handlers):
    def set_up(self, rank, ranks):
        generator = torch.Generator().manual_seed(rank)
        model = torch.nn.Module()
        for name, dtype, shape in tensors():
            made = torch.rand(shape[0] // ranks, *shape[1:], generator=generator).to(DTYPES[dtype])
            model.register_parameter(name.replace(".", "_"), torch.nn.Parameter(made, requires_grad=False))
        self.tp_worker = types.SimpleNamespace(model_runner=types.SimpleNamespace(model=model))
        self.draft_worker = None
        self.tp_cpu_group = dist.group.WORLD
        self.offload_tags, self.running, self._session, self.told = set(), False, None, []
        self.memory_saver_adapter = types.SimpleNamespace(enabled=False)


class New(Engine):
    """0.5.23: SchedulerWeightUpdaterManager."""

    def record_weight_version_after_update(self, version):
        self.told.append(version)


class Old(Engine):
    """0.5.12: SchedulerUpdateWeightsMixin, which the Scheduler is."""


class Receiver:
    """weft.engines.Receiver over a model that is no engine's: the rank's rows of each tensor."""
    way, notes = "direct", ["a double"]

    def __init__(self, model, endpoint):
        import weft

        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.breaks = json.loads(os.environ.get("WEFT_DOUBLE_BREAKS", "{}"))
        if self.breaks.get("open") == self.rank:
            raise weft.UnsupportedError("this rank is told to refuse")
        self.model, self.addresses = model, {}
        self.inference = weft.Inference(endpoint["controller"], endpoint.get("rank_offset", 0) + self.rank, own_memory=True,
                                        update_timeout_s=endpoint.get("update_timeout_s"))
        params = dict(model.named_parameters())
        for name, dtype, shape in endpoint.get("tensors") or tensors():
            part, rows = name.replace(".", "_"), shape[0] // self.ranks
            self.addresses[part] = params[part].data_ptr()
            number = self.inference.declare_param(part, dtype, tuple(params[part].shape), memory=params[part].detach())
            self.inference.declare_piece(weft.Tensor(name, dtype, tuple(shape)), number,
                                         lo=(self.rank * rows, *[0] * len(shape[1:])), hi=((self.rank + 1) * rows, *shape[1:]))
        self.inference.set_post_load(self.post_load)

    def post_load(self, version):
        if self.breaks.get("post_load") == [self.rank, version]:
            raise RuntimeError("the kernel of this rank failed")

    def join(self, timeout_s=None):
        self.inference.join(timeout_s)

    def receive(self, version=None, timeout_s=None):
        import weft

        moved = [name for name, param in self.model.named_parameters() if param.data_ptr() != self.addresses[name]]
        if moved:
            raise weft.StateError(f"{moved[0]} does not lie where it lay at join: init again")
        return self.inference.wait(version, timeout_s)

    @property
    def tainted(self):
        return self.inference.tainted

    def stats(self):
        return {}

    def close(self):
        self.inference.close()


# ---- the HTTP side

class TokenizerManager:
    def __init__(self, ask):
        self.ask, self.weight_version, self.paused, self.aborted = ask, "default", False, 0

    async def update_weights_from_distributed(self, given, request=None):
        answer = self.ask("update_weights_from_distributed", given)
        if answer.success and given.weight_version is not None:
            self.weight_version = given.weight_version
        return answer.success, answer.message

    async def update_weights_from_disk(self, given, request=None):
        return True, "Succeeded", 0

    async def update_weights_from_tensor(self, given, request=None):
        return True, "Success"

    async def continue_generation(self, given):
        self.paused = False


class HTTPException(Exception):
    def __init__(self, status_code, detail):
        super().__init__(detail)
        self.status_code, self.detail = status_code, detail


def set_up_modules(generation):
    tp = types.SimpleNamespace(rank_in_group=dist.get_rank(), world_size=dist.get_world_size())
    module("sglang.version", __version__=f"double-{generation}")
    module("sglang.srt.plugins.hook_registry", HookRegistry=HookRegistry, HookType=HookType)
    module("sglang.srt.managers.io_struct", **ANSWERS)
    module("sglang.srt.managers.tokenizer_manager", TokenizerManager=TokenizerManager)
    module("sglang.srt.distributed.parallel_state", get_tp_group=lambda: tp,
           get_pp_group=lambda: types.SimpleNamespace(world_size=int(os.environ.get("WEFT_DOUBLE_STAGES", "1"))))
    module("fastapi", HTTPException=HTTPException)
    if generation == "new":
        module("sglang.srt.managers.scheduler_components.weight_updater", SchedulerWeightUpdaterManager=New)
        return New
    module("sglang.srt.managers.scheduler_update_weights_mixin", SchedulerUpdateWeightsMixin=Old)
    return Old


class Server:
    """Rank 0: routes, and each request to all ranks, as a scheduler broadcasts it."""

    def __init__(self, engine):
        self.engine, self.lock = engine, threading.Lock()
        self.tokenizer = TokenizerManager(self.ask)

    def ask(self, method, given):
        with self.lock:
            dist.broadcast_object_list([(method, given)], src=0)
            return act(self.engine, method, given)

    def route(self, path, body):
        tokenizer, engine = self.tokenizer, self.engine
        if path == "/init_weights_update_group":
            return self.answered(self.ask("init_weights_update_group", Init(**body)))
        if path == "/destroy_weights_update_group":
            return self.answered(self.ask("destroy_weights_update_group", Destroy(**body)))
        if path == "/update_weights_from_distributed":
            success, message = asyncio.run(tokenizer.update_weights_from_distributed(Update(**body)))
            return (200 if success else 400), {"success": success, "message": message}
        if path == "/update_weight_version":
            tokenizer.aborted += bool(body.get("abort_all_requests", True))
            tokenizer.weight_version = body["new_version"]
            return 200, {"success": True, "message": "", "new_version": body["new_version"]}
        if path == "/pause_generation":
            tokenizer.paused = True
            return 200, {"status": "ok", "message": "Generation paused successfully."}
        if path == "/continue_generation":
            asyncio.run(tokenizer.continue_generation(None))
            return 200, {"status": "ok", "message": "Generation continued successfully."}
        if path == "/flush_cache":
            return (200, "Cache flushed.\n") if engine.flush_cache() else (400, "Flush cache failed.\n")
        if path in ("/release_memory_occupation", "/resume_memory_occupation"):
            return 200, self.ask(path[1:], Tags(**body))
        if path == "/double":  # what SGLang has no route for
            return 200, self.ask("double", body)
        if path == "/state":
            return 200, {"version": tokenizer.weight_version, "paused": tokenizer.paused, "aborted": tokenizer.aborted,
                         "spans": engine.told, "weights": self.ask("weights", None)}
        if path == "/server_info":
            return 200, {"tp_size": dist.get_world_size(), "pp_size": 1}
        return 404, {"detail": "Not Found"}

    @staticmethod
    def answered(answer):
        return (200 if answer.success else 400), {"success": answer.success, "message": answer.message}


def act(engine, method, given):
    if method == "weights":
        told = [None] * dist.get_world_size()
        model = engine.tp_worker.model_runner.model
        dist.all_gather_object(told, {name: param.tolist() for name, param in model.named_parameters()})
        return {name: sum((one[name] for one in told), []) for name in told[0]}
    if method == "double":
        for name, value in given.items():
            if name == "move":  # as an in-place reload or an offload leaves a parameter
                part = dict(engine.tp_worker.model_runner.model.named_parameters())[value]
                part.data = part.data.clone()
            elif name == "draft":
                engine.draft_worker = types.SimpleNamespace(weight_update_runners=lambda: [("draft", None)])
            elif name == "saver":
                engine.memory_saver_adapter = types.SimpleNamespace(enabled=value)
            else:
                setattr(engine, name, value)
        return {}
    return getattr(engine, method)(given)


def serve(server, folder):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            try:
                status, answer = server.route(self.path, json.loads(body or b"{}"))
            except HTTPException as error:
                status, answer = error.status_code, {"detail": error.detail}
            data = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST

        def log_message(self, *_):
            pass

    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    (folder / "port.new").write_text(str(made.server_port))
    (folder / "port.new").rename(folder / "port")
    made.serve_forever()


def main():
    generation, ranks, rank, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), pathlib.Path(sys.argv[4])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=ranks)
    kind = set_up_modules(generation)
    if not os.environ.get("WEFT_DOUBLE_UNPLUGGED"):
        import weft.sglang
        from weft.sglang import _groups

        weft.sglang.register()
        weft.sglang.register()  # SGLang may load plug-ins twice
        HookRegistry.apply_hooks()
        _groups._receiver = Receiver
    engine = kind()
    engine.set_up(rank, ranks)
    if rank == 0:
        serve(Server(engine), folder)
    while True:
        told = [None]
        dist.broadcast_object_list(told, src=0)
        act(engine, *told[0])


if __name__ == "__main__":
    main()
