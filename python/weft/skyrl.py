# SPDX-License-Identifier: Apache-2.0
"""Weft in SkyRL (0.3.0): a launcher and a config key.

    python -m weft.skyrl skyrl.train.entrypoints.main_base generator.inference_engine.weight_sync_backend=weft ..

SkyRL chooses among its two strategies by an if. What is replaced, when it is imported:

    backends.skyrl_train.weight_sync.get_transfer_strategy        "weft" for the key "weft": vLLM's back end of that name
                                    .get_transfer_strategy_cls    WeftTransferStrategy for it
    backends.skyrl_train.inference_servers.utils                  the first of both, which it has imported by name

    rank 0     extractor's chunks ──► Sender ═══► ranks of all servers, by vLLM's own routes /init_weight_transfer_engine,
    rank r     extractor's chunks (it gathers)    /start_weight_update, /update_weights, /finish_weight_update

Rank 0 sends. With another key everything is as it was. Not with trainer.placement.colocate_all, nor with Megatron's
strategy, whose config check takes no key but "nccl"."""
from __future__ import annotations

import asyncio
import importlib
import logging
import sys
import time
from typing import Any, Iterable, Iterator, Optional

from weft._errors import StateError, UnsupportedError, UsageError
from weft.vllm._after_import import after_import, bind_of, launch, must_have
from weft.vllm._sync import WeightSync

logger = logging.getLogger("weft.skyrl")

BACKEND = "weft"
TESTED = "0.3.0"
_SYNC, _UTILS = "skyrl.backends.skyrl_train.weight_sync", "skyrl.backends.skyrl_train.inference_servers.utils"


def install() -> None:
    """In each process: again, nothing more."""
    after_import(_SYNC, _change)
    after_import(_UTILS, lambda module: setattr(module, "get_transfer_strategy", sys.modules[_SYNC].get_transfer_strategy))


def _change(module: Any) -> None:
    must_have(module, ["get_transfer_strategy", "get_transfer_strategy_cls", "WeightTransferStrategy"], TESTED)
    if getattr(module, "_weft", False):
        return
    name_of, class_of = module.get_transfer_strategy, module.get_transfer_strategy_cls

    def get_transfer_strategy(weight_sync_backend: str, colocate_all: bool) -> Any:
        if weight_sync_backend != BACKEND:
            return name_of(weight_sync_backend, colocate_all)
        if colocate_all:
            raise UnsupportedError("weight_sync_backend=weft with placement.colocate_all: engines share the trainers' GPUs there, "
                                   "and weights go by CUDA IPC; use nccl for the key, or leave colocate_all out")
        return BACKEND

    def get_transfer_strategy_cls(weight_sync_backend: str, colocate_all: bool) -> Any:
        if get_transfer_strategy(weight_sync_backend, colocate_all) == BACKEND:
            return WeftTransferStrategy
        return class_of(weight_sync_backend, colocate_all)
    module.get_transfer_strategy, module.get_transfer_strategy_cls = get_transfer_strategy, get_transfer_strategy_cls
    module._weft = True


class WeftInitInfo:
    """SkyRL would tell the servers now; what is sent is known with the first update, and they are told then."""
    override_existing_receiver = True

    def __init__(self, inference_world_size: int):
        self.inference_world_size = inference_world_size

    def for_servers(self, world_size_per_server: int, num_servers: int, dp_size: int = 1) -> "list[Any]":
        return []


class WeftTransferStrategy:
    """What SkyRL calls WeightTransferStrategy."""

    @staticmethod
    def create_init_info(ie_cfg: Any, inference_world_size: Optional[int] = None) -> WeftInitInfo:
        if not inference_world_size:
            raise UsageError("create_init_info without inference_world_size: servers have to be asked before (get_world_size)")
        return WeftInitInfo(inference_world_size)

    @staticmethod
    def get_vllm_transfer_engine() -> Any:
        return importlib.import_module("weft.vllm._engine").WeftWeightTransferEngine

    @staticmethod
    def create_sender(init_info: WeftInitInfo, inference_client: Any) -> "WeftSender":
        return WeftSender(init_info, inference_client)


class Servers:
    """SkyRL's client, as WeightSync wants it: from a thread of WeightSync's, on the loop that awaits ``send_chunks``."""

    def __init__(self, client: Any, loop: asyncio.AbstractEventLoop, world_size: int):
        self._client, self._loop, self._world_size = client, loop, world_size

    def world_sizes(self) -> "list[tuple[int, int]]":
        number = len(self._client.server_urls)
        if self._world_size % number:
            raise UsageError(f"{number} servers with {self._world_size} ranks: they have to be alike")
        return [(self._world_size // number, 1)] * number

    def init(self, endpoints: "list[dict[str, Any]]") -> None:
        self._wait(self._each("/init_weight_transfer_engine", [{"init_info": endpoint} for endpoint in endpoints]))

    def start(self) -> None:
        self._all("/start_weight_update", {"is_checkpoint_format": False})

    def update(self, version: int) -> None:
        self._all("/update_weights", {"update_info": {"version": version}})

    def finish(self, version: int) -> None:
        self._all("/finish_weight_update", {"weight_version": str(version)})

    def abandon(self) -> None:
        for route, body in (("/update_weights", {"update_info": {"abandon": True}}), ("/finish_weight_update", {})):
            try:
                self._all(route, body)
            except Exception as error:  # about the failure that is known
                logger.info("after the failed update: %s", error)

    def _all(self, route: str, body: "dict[str, Any]") -> None:
        self._wait(self._client._call_all_servers(route, body))

    async def _each(self, route: str, bodies: "list[dict[str, Any]]") -> None:
        await asyncio.gather(*[self._client._call_server(url, route, body)
                               for url, body in zip(self._client.server_urls, bodies)])

    def _wait(self, coroutine: Any) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()


class WeftSender:
    """What SkyRL calls WeightTransferSender; one on each trainer rank."""

    def __init__(self, init_info: WeftInitInfo, inference_client: Any):
        self._info, self._client = init_info, inference_client
        self._sync: Optional[WeightSync] = None
        self._torn_down = False

    async def send_chunks(self, chunks: "Iterable[Any]", weight_metadata: "Optional[dict[str, list[Any]]]" = None) -> None:
        """On all ranks: gathering is a collective of theirs."""
        torch = importlib.import_module("torch")
        if self._torn_down:
            raise StateError("send_chunks after teardown: SkyRL has to make a new sender")
        if weight_metadata is None:
            raise UsageError("send_chunks without weight_metadata: what is sent has to be known beforehand (get_weight_metadata)")
        if torch.distributed.get_rank() == 0:
            await asyncio.to_thread(self._send, chunks, weight_metadata, asyncio.get_running_loop())
        else:
            for _ in chunks:
                pass
        torch.distributed.barrier()

    def _send(self, chunks: "Iterable[Any]", metadata: "dict[str, list[Any]]", loop: asyncio.AbstractEventLoop) -> None:
        began = time.monotonic()
        if self._sync is None:
            tensors = list(zip(metadata["names"], metadata["dtype_names"], metadata["shapes"]))
            address = importlib.import_module("ray").util.get_node_ip_address()
            sync = WeightSync(tensors, Servers(self._client, loop, self._info.inference_world_size), bind=bind_of(address))
            sync.connect()
            self._sync = sync
        self._sync.send(_named(chunks))
        logger.info("version %d: weight_sync_time_s=%.3f", self._sync.version, time.monotonic() - began)

    def teardown(self) -> None:
        sync, self._sync, self._torn_down = self._sync, None, True
        if sync is not None:
            sync.close()


def _named(chunks: "Iterable[Any]") -> "Iterator[tuple[str, Any]]":
    for chunk in chunks:
        for name, tensor in zip(chunk.names, chunk.tensors):
            yield name, tensor.detach().contiguous()


if __name__ == "__main__":
    sys.modules["weft.skyrl"] = sys.modules["__main__"]
    launch("weft.skyrl", "WEFT_SKYRL", install, sys.argv[1:])
