# SPDX-License-Identifier: Apache-2.0
"""xorl: a weight transport backend that sends buckets into SGLang servers that have weft installed.

    python -m weft.xorl python -m xorl.server.launcher ..     xorl as before; its workers make this backend for "nccl_broadcast"

    handler (rank 0)                      backend                          servers
    create_backend, initialize()          prepare: Sender, join            POST /init_weights_update_group (first sync only)
    transfer_bucket(..), ..               begin, write, drain ══════════►  POST /update_weights_from_distributed, receiving
    flush_pending_transfers()             complete: end                    .. answers: every rank has the version
      (or destroy())                      weight version, cache flush      POST /update_weight_version, /flush_cache
    destroy(complete_receiver=False)      abort, leave                     the update fails; mixed weights do not continue

What is sent must be known before ranks join. WEFT_MODEL=FOLDER (the checkpoint that the servers serve) says it; without it the
first sync keeps its buckets on the host and sends them when it is flushed. The job lives on between syncs, as xorl makes a backend
for each."""
from __future__ import annotations

import atexit
import importlib
import importlib.abc
import importlib.util
import logging
import os
import sys
import threading
import time
from typing import Any, Optional

from weft._errors import Error, StateError, UnsupportedError, UsageError
from weft.sglang import Client
from weft.sglang._beside import Asking
from weft.sglang._wire import update_body

logger = logging.getLogger("weft.xorl")

METHODS = ("weft", "nccl_broadcast")  # of create_backend: xorl's own options know only the second
_BACKENDS = "xorl.server.weight_sync.backends"
_JOIN_S = 120.0
_CLOSE_S = 10.0


class _Job:
    """Servers that have joined, and what is sent to them."""

    def __init__(self, config: Any, tensors: Any, device: str):
        from weft.engines import Sender

        ranks = {int(endpoint.world_size) for endpoint in config.endpoints}
        if len(ranks) != 1:
            raise UsageError("servers have different numbers of ranks: " + ", ".join(
                f"{one.host}:{one.port} has {one.world_size}" for one in config.endpoints) + "; weft.xorl wants the same of all")
        self.client = Client(_urls(config))
        self.device = device
        settings = {name: _setting(config, name) for name in ("bind", "transport", "key_file")}
        settings["insecure"] = os.environ.get("WEFT_INSECURE") == "1"
        self.sender = Sender(tensors, engines=len(config.endpoints), ranks=ranks.pop(), update_timeout_s=_sync_s(),
                             memory="cuda" if device == "cuda" else None, **settings)
        try:
            self.client.connect(self.sender, ranks=self.sender.ranks, timeout_s=_JOIN_S)
        except BaseException:
            self.sender.close()
            raise

    def close(self) -> None:
        try:
            self.client.each("/destroy_weights_update_group", {"group_name": self.client.group}, _CLOSE_S)
        except Error as error:  # a server that is gone, or has left already, is no matter
            logger.debug("weft: leaving the servers: %s", error)
        self.sender.close()


_jobs: dict[tuple[Any, ...], _Job] = {}  # by servers
_lock = threading.Lock()


@atexit.register
def _close_all() -> None:
    while _jobs:
        _, job = _jobs.popitem()
        try:
            job.close()
        except Error as error:
            logger.warning("weft: leaving the servers: %s", error)


def _urls(config: Any) -> list[str]:
    try:
        build = importlib.import_module("xorl.server.security").build_http_endpoint_url  # checks the address as xorl's own do
    except ModuleNotFoundError:
        return [f"http://{endpoint.host}:{endpoint.port}" for endpoint in config.endpoints]
    return [build(endpoint.host, endpoint.port, "/") for endpoint in config.endpoints]


def _setting(config: Any, name: str) -> Any:
    """backend_config's weft_bind, or WEFT_BIND."""
    return (config.backend_config or {}).get(f"weft_{name}") or os.environ.get(f"WEFT_{name.upper()}") or None


def _sync_s() -> float:
    """Of one sync: all buckets are unsharded one after the other in it."""
    return float(os.environ.get("WEFT_SYNC_TIMEOUT_S", "600"))


def _made_class() -> type:
    base: Any = importlib.import_module(f"{_BACKENDS}.base").WeightTransportBackend
    return type("WeftBackend", (Backend, base), {"__module__": __name__})


class Backend:
    """WeightTransportBackend's methods; ``create`` makes a class of it and of xorl's abstract one."""

    def __init__(self, config: Any, **_: Any):
        self.config = config
        self.endpoint_results: list[dict[str, Any]] = []
        self._key = tuple((one.host, one.port, one.world_size) for one in config.endpoints)
        self._kept: dict[str, Any] = {}  # of a first sync that has to learn what is sent
        self._asking: Optional[Asking] = None
        self._version = 0
        self._bytes, self._began = 0, 0.0
        self._weight_version: Optional[str] = None
        self._flush_cache = False

    # ---- who sends

    @property
    def sender_ranks(self) -> frozenset[int]:
        return frozenset({0})

    @property
    def supports_direct_ep_transfer(self) -> bool:
        """Rank 0 gets the experts gathered: each rank would have to say before join what it will send."""
        return False

    @property
    def supports_direct_pp_transfer(self) -> bool:
        return False

    # ---- a sync

    def initialize(self) -> bool:
        """Servers join, if what is sent is known already.

        Raises:
            Error: why they do not; xorl would say no more of False than that it was.
        """
        if not self.config.endpoints:
            raise UsageError("no endpoints: xorl's sync needs the servers that get weights")
        if self.config.training_rank not in self.sender_ranks:
            raise UsageError(f"rank {self.config.training_rank} initializes, and rank 0 alone sends")
        folder = _setting(self.config, "model")
        if self._key not in _jobs and folder is not None:
            from weft.engines._layout import tensors_of_folder

            self._connect(list(tensors_of_folder(folder).values()), self.config.device.partition(":")[0])
        return True

    def _connect(self, tensors: Any, device: str) -> _Job:
        with _lock:
            job = _jobs[self._key] = _Job(self.config, tensors, "cuda" if device == "cuda" else "cpu")
        logger.info("weft: %d server(s) joined, %d tensors", len(self._key), len(job.sender.tensors))
        return job

    def transfer_bucket(self, bucket: list[tuple[str, Any]], *, src_rank: int = 0, flush_cache: bool = False,
                        weight_version: Optional[str] = None) -> None:
        """When it returns the bucket's memory may be used again. flush_cache and weight_version hold once all is there."""
        if src_rank not in self.sender_ranks:
            raise UsageError(f"a bucket of rank {src_rank}: rank 0 alone sends (supports_direct_ep_transfer is False)")
        self._flush_cache |= flush_cache
        self._weight_version = weight_version or self._weight_version
        job = _jobs.get(self._key)
        if job is None:
            self._learn(bucket)
            return
        if self._asking is None:
            self._begin(job)
        try:
            for name, tensor in bucket:
                self._write(job, name, tensor)
            job.sender.trainer.drain()
        except Exception as error:
            raise self._lost(error) from error

    def _learn(self, bucket: list[tuple[str, Any]]) -> None:
        if not self._kept:
            self._began = time.monotonic()
            logger.warning("weft: the first sync keeps all buckets on the host, to learn what is sent; set WEFT_MODEL to the "
                           "folder of the servers' checkpoint to have it sent at once")
        for name, tensor in bucket:
            if name in self._kept:
                raise UsageError(f"{name!r} came twice in one sync")
            self._kept[name] = (tensor.detach().to("cpu", copy=True), tensor.device.type)

    def _begin(self, job: _Job) -> None:
        self._version, self._bytes, self._began = job.sender.version + 1, 0, time.monotonic()
        body = update_body(self._version)
        del body["weight_version"]  # it comes with the last bucket
        self._asking = Asking(lambda: self._ask(job, body), job.sender.close)
        try:
            job.sender.trainer.begin(self._version)
        except Exception as error:
            raise self._lost(error) from error

    @staticmethod
    def _ask(job: _Job, body: dict[str, Any]) -> None:
        job.client.each("/update_weights_from_distributed", body, _sync_s() + job.client.timeout_s)

    def _write(self, job: _Job, name: str, tensor: Any) -> None:
        tensor = tensor.detach()
        if tensor.device.type != job.device:
            tensor = tensor.to(job.device)
        job.sender.trainer.write(name, tensor.contiguous())
        self._bytes += tensor.nbytes

    def flush_pending_transfers(self) -> None:
        """Every server has the version when this returns; it must have, before generation continues."""
        if self._kept:
            self._send_kept()
        if self._asking is None:
            return
        job = _jobs[self._key]
        try:
            job.sender.trainer.end()
        except Exception as error:
            raise self._lost(error) from error
        asking, self._asking = self._asking, None
        try:
            asking.answered()
            job.sender.version = self._version
            if self._weight_version is not None:
                job.client.update_weight_version(self._weight_version)
            if self._flush_cache:
                job.client.flush_cache()
        except Exception as error:
            self._report(False, str(error))
            self._drop()
            raise
        took = time.monotonic() - self._began
        self._report(True, f"version {self._version}")
        logger.info("[WeightSync] weft: version %d on %d server(s): %.2f GB in %.2fs, %.2f GB/s", self._version, len(self._key),
                    self._bytes / 1e9, took, self._bytes / 1e9 / max(took, 1e-9))

    def _send_kept(self) -> None:
        kept, self._kept = self._kept, {}
        device = next(iter(kept.values()))[1]
        job = self._connect([(name, tensor.dtype, tuple(tensor.shape)) for name, (tensor, _) in kept.items()], device)
        self._begin(job)
        try:
            for name in list(kept):
                self._write(job, name, kept[name][0])
                if device != "cpu":
                    job.sender.trainer.drain()  # copies on the device go one after the other
        except Exception as error:
            raise self._lost(error) from error

    def destroy(self, *, complete_receiver: bool = True) -> None:
        """True: the sync is complete, the job waits for the next. False: what is under way is given up, and servers leave: they
        answer that update with an error, and do not continue where their weights are mixed."""
        if complete_receiver:
            self.flush_pending_transfers()
            return
        self._kept = {}
        if self._asking is not None:
            self._lost(StateError("the sync was given up by xorl"))
        elif self._key in _jobs and not self._settled():
            self._drop()

    def _settled(self) -> bool:
        try:
            _jobs[self._key].sender.trainer.check()
        except Error:
            return False
        return True

    def _lost(self, error: Exception) -> Exception:
        """Gives the update up; what to raise."""
        asking, self._asking = self._asking, None
        job = _jobs.get(self._key)
        if job is not None:
            try:
                job.sender.trainer.abort(f"{type(error).__name__}: {getattr(error, 'text', error)}")
            except Error as further:
                logger.debug("weft: giving an update up: %s", further)
        failure = error if asking is None else asking.failed(error)
        self._report(False, str(failure))
        self._drop()
        return failure

    def _report(self, success: bool, message: str) -> None:
        self.endpoint_results = [{"host": one.host, "port": one.port, "success": success, "message": message}
                                 for one in self.config.endpoints]

    def _drop(self) -> None:
        job = _jobs.pop(self._key, None)
        if job is not None:
            try:
                job.close()
            except Error as error:
                logger.warning("weft: leaving the servers: %s", error)


# ---- into xorl

def install() -> None:
    """``create_backend("nccl_broadcast", ..)`` and ("weft", ..) make this backend, also where the handler has imported the function
    already. Idempotent."""
    backends: Any = importlib.import_module(_BACKENDS)
    original = backends.create_backend
    if getattr(original, "weft", False):
        return
    made = _made_class()

    def create_backend(method: str, config: Any, **options: Any) -> Any:
        return made(config, **options) if method in METHODS else original(method, config, **options)
    create_backend.weft = True  # type: ignore[attr-defined]
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("xorl.") and getattr(module, "create_backend", None) is original:
            vars(module)["create_backend"] = create_backend
    if backends.create_backend is not create_backend:
        raise UnsupportedError(f"{_BACKENDS}.create_backend could not be replaced; read: xorl 4d8c620")
    logger.info("weft: xorl's %s go by Weft", " and ".join(METHODS))


class _Later(importlib.abc.MetaPathFinder):
    """install() right after xorl's backends are imported, for processes that are not ours to change."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != _BACKENDS:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                run(module)
                install()
            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def install_later() -> None:
    sys.meta_path.insert(0, _Later())


def main() -> int:
    """Runs a command in whose Python processes xorl's workers get this backend."""
    import shutil
    import subprocess
    import tempfile

    if not sys.argv[1:]:
        print("usage: python -m weft.xorl COMMAND ..    (python -m weft.xorl python -m xorl.server.launcher ..)", file=sys.stderr)
        return 2
    folder = tempfile.mkdtemp(prefix="xorl-site-")
    try:
        with open(os.path.join(folder, "sitecustomize.py"), "w", encoding="utf-8") as file:
            file.write("import weft.xorl\nweft.xorl.install_later()\n")
        paths = [folder, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        return subprocess.call(sys.argv[1:], env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)})
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
