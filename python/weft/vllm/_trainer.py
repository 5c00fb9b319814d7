# SPDX-License-Identifier: Apache-2.0
"""The trainer side "weft" of vLLM's trainer objects (releases from 0.27; the table in _generation.py).

    init_info = weft.vllm.TrainerInitInfo(rank=rank, world=world)
    trainer = WeightTransferTrainerFactory.trainer_init(init_info, client=client, source=source)      on every rank
    trainer.send_weights()                                                                            on every rank

Every rank sends: each has the tensors whole while its source yields them, and Weft shares the sending. Only rank 0 uses the
client, which may be vLLM's own (HTTP of one server, Ray of one or several) or weft.vllm.HTTPClient of several servers."""
from __future__ import annotations

import inspect
import logging
import threading
from dataclasses import dataclass, field
from typing import Any, Callable, ClassVar, Iterator, Optional

from vllm.distributed.weight_transfer.base import TrainerInitInfo, TrainerWeightTransferEngine

from weft._errors import UsageError
from weft.vllm._client import HTTPClient
from weft.vllm._sync import WeightSync

logger = logging.getLogger("weft.vllm")


@dataclass
class WeftTrainerInitInfo(TrainerInitInfo):  # type: ignore[misc, unused-ignore]
    """
    Attributes:
        rank: of this trainer (keyword).
        world: of the trainers. 0: torch.distributed's, 1 where it is not initialised.
        engines: replicas of the model in all servers; 0: one for each server or actor, times its data parallelism.
        ranks: inference ranks of one replica (tp times pp); 0: the servers are asked, which works over HTTP.
        share: gives every rank rank 0's value. None: torch.distributed.broadcast_object_list over all ranks.
        options: more of weft.vllm.WeightSync's and of weft.engines.Sender's (bind, transport, key_file, ..).
    """
    backend: ClassVar[str] = "weft"
    world: int = 0
    engines: int = 0
    ranks: int = 0
    share: Optional[Callable[[Any], Any]] = None
    options: "dict[str, Any]" = field(default_factory=dict)

    @property
    def is_sender(self) -> bool:
        return True


class WeftTrainerWeightTransferEngine(TrainerWeightTransferEngine):  # type: ignore[misc, unused-ignore]
    init_info_cls = WeftTrainerInitInfo

    def __init__(self, *, client: Any, source: Any, sync: WeightSync, rank: int):
        taken = inspect.signature(TrainerWeightTransferEngine.__init__).parameters
        super().__init__(client=client, source=source, is_sender=True, **({"rank": rank} if "rank" in taken else {}))
        self.rank = rank
        self._weft_sync = sync

    @classmethod
    def trainer_init(cls, init_info: WeftTrainerInitInfo, *, client: Any,
                     source: Any = None) -> "WeftTrainerWeightTransferEngine":
        if source is None:
            raise UsageError("weft sends a WeightSource's tensors: give source=")
        world = init_info.world or _world()
        tensors = _tensors(source, world)
        servers = Servers(client) if init_info.rank == 0 else None
        sync = WeightSync(tensors, servers, rank=init_info.rank, world=world, engines=init_info.engines or None,
                          ranks=init_info.ranks or None, share=init_info.share or _share, **init_info.options)
        try:
            sync.connect()
        except BaseException:
            sync.close()
            raise
        return cls(client=client, source=source, sync=sync, rank=init_info.rank)

    def send_weights(self) -> None:
        """One version, started and finished on the servers by rank 0; ``version`` is what responses say."""
        self._weft_sync.send(_whole(self.source))

    @property
    def version(self) -> int:
        return self._weft_sync.version

    def stats(self) -> "dict[str, Any]":
        """Of the last version."""
        return dict(self._weft_sync.last)

    def shutdown(self) -> None:
        self._weft_sync.close()


def _world() -> int:
    import torch.distributed
    return int(torch.distributed.get_world_size()) if torch.distributed.is_initialized() else 1


def _share(value: Any) -> Any:
    import torch.distributed
    if not torch.distributed.is_initialized():
        raise UsageError("several trainers, and torch.distributed is not initialised: give share=, a function that gives every "
                         "rank rank 0's value")
    given = [value]
    torch.distributed.broadcast_object_list(given, src=0)
    return given[0]


def _tensors(source: Any, world: int) -> "list[tuple[str, Any, tuple[int, ...]]]":
    """What the source declares. Every trainer sends of every tensor, so each has to own each."""
    metadata = source.metadata() if callable(source.metadata) else source.metadata
    for meta in metadata:
        owners = getattr(meta, "owners", None)
        if owners is not None and set(owners) != set(range(world)):
            raise UsageError(f"parameter {meta.name!r} is owned by the trainers {tuple(owners)} of {world}: weft's trainer side "
                             "wants each tensor whole on every rank; give a source that gathers over all of them, or "
                             "declare shards yourself (weft.torch)")
    implements = getattr(source, "implements_iter_full", None)
    if implements is not None and not implements():
        raise UsageError(f"{type(source).__name__} has no iter_full(): weft's trainer side sends full tensors")
    return [(meta.name, meta.dtype, tuple(meta.shape)) for meta in metadata]


def _whole(source: Any) -> "Iterator[tuple[str, Any]]":
    """(name, full tensor), by whatever name this release has for it."""
    iterate = getattr(source, "iter_full", None)
    for name, tensor in (iterate() if iterate is not None else iter(source)):
        tensor = tensor.detach()
        yield name, tensor if tensor.is_contiguous() else tensor.contiguous()


class Servers:
    """What WeightSync wants of a client, over any client of vLLM's protocol. Its init takes one endpoint for all that are behind
    it, so each actor of a Ray client gets a client of its own for that."""

    def __init__(self, client: Any):
        self.client = client
        handles = getattr(client, "handles", None)
        self._each = [client] if not handles or len(handles) == 1 else [type(client)(handle) for handle in handles]

    def world_sizes(self) -> "list[tuple[int, int]]":
        if hasattr(self.client, "world_sizes"):
            return list(self.client.world_sizes())
        url = getattr(self.client, "base_url", None)
        if url is None:
            raise UsageError(f"{type(self.client).__name__} does not say how many ranks its engines have: give engines= and "
                             "ranks= (tp times pp) in TrainerInitInfo")
        return HTTPClient(url).world_sizes()

    def init(self, endpoints: "list[dict[str, Any]]") -> None:
        if hasattr(self.client, "init"):
            self.client.init(endpoints)
            return
        if len(endpoints) % len(self._each):
            raise UsageError(f"engines={len(endpoints)} behind {len(self._each)} clients: give engines= as what all have together")
        stride = len(endpoints) // len(self._each)  # replicas of data parallelism behind a client find their own place
        failures: "list[BaseException]" = []

        def one(client: Any, endpoint: "dict[str, Any]") -> None:
            try:
                client.init_weight_transfer_engine(endpoint)
            except BaseException as error:  # told below
                failures.append(error)
        threads = [threading.Thread(target=one, args=(client, endpoints[i * stride]), daemon=True)
                   for i, client in enumerate(self._each)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]

    def start(self) -> None:
        self.client.start_weight_update()

    def update(self, version: int) -> None:
        self.client.update_weights({"version": version})

    def finish(self, version: int) -> None:
        self.client.finish_weight_update(str(version))

    def abandon(self) -> None:
        if hasattr(self.client, "abandon"):
            self.client.abandon()
            return
        for end in (lambda: self.client.update_weights({"abandon": True}), self.client.finish_weight_update):
            try:
                end()
            except Exception as error:  # about the failure that is known
                logger.info("after the failed update: %s", error)
