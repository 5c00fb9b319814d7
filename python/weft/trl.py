# SPDX-License-Identifier: Apache-2.0
"""Weft in TRL's AsyncGRPOTrainer: one argument.

    trainer = AsyncGRPOTrainer(model, .., weight_transfer=weft.trl.WeightTransfer("http://localhost:8000"))

TRL calls it on its main process alone, in this order, and iterates the weights itself on the others:

    init_weight_transfer    servers are there, with a back end "weft"
    pause                   requests freeze
    send_weights(iterator)  the first one joins the job: only now is it known what is sent
    resume
    ..
    destroy

What is sent is the iterator's names, dtypes and shapes. They are not known before it runs, and cannot be taken from it without
the tensors: of the first version all tensors are held on the host until the job has been joined, of every later one few at a
time. ``tensors`` (or ``model``) says it beforehand and saves that."""
from __future__ import annotations

import logging
import time
from typing import Any, Iterable, Iterator, Optional, Sequence, Union

from weft._errors import StateError, UsageError
from weft.vllm._client import HTTPClient
from weft.vllm._sync import WeightSync

logger = logging.getLogger("weft.trl")


class WeightTransfer:
    """What TRL calls WeightTransferProtocol.

    Args:
        servers: the vLLM server, or several: "http://host:8000".
        tensors: what TRL will send, as (name, dtype, shape); or ``model``, a torch module, whose parameters it will send.
        extension: servers run --worker-extension-cls weft.vllm.WorkerExtension, and no back end "weft".
        pause_mode: of running requests: "keep" freezes them (TRL's own), "wait" lets them end, "abort" ends them.
        reset_prefix_cache: what was computed with old weights is not given to new requests: before each resume.
        server_timeout_s: until servers are ready. update_timeout_s: of one update.
        options: of weft.engines.Sender: bind (the trainer's address, where servers are on other hosts), transport, key_file, ..

    Attributes:
        metrics: of the last update: weight_sync_time_s, pause_s, and what Sender.stats says.
    """

    def __init__(self, servers: "Union[str, Sequence[str]]", *, tensors: "Optional[Iterable[Any]]" = None, model: Any = None,
                 extension: bool = False, pause_mode: str = "keep", reset_prefix_cache: bool = False,
                 server_timeout_s: float = 240.0, update_timeout_s: float = 1800.0, **options: Any):
        if tensors is not None and model is not None:
            raise UsageError("tensors and model both say what is sent: give one")
        if pause_mode not in ("keep", "wait", "abort"):
            raise UsageError(f"pause_mode {pause_mode!r} is none of vLLM's: keep, wait, abort")
        self.client = HTTPClient(servers, extension=extension, update_timeout_s=update_timeout_s)
        self._tensors = None if tensors is None else list(tensors)
        self._model, self._pause_mode, self._reset = model, pause_mode, reset_prefix_cache
        self._ready_s, self._options = server_timeout_s, {"update_timeout_s": update_timeout_s, **options}
        self._sync: Optional[WeightSync] = None
        self._initialised, self._paused_at = False, 0.0
        self.metrics: "dict[str, Any]" = {}

    @property
    def version(self) -> int:
        """Of the job; TRL counts its own from 1 too, as long as no update fails."""
        return 0 if self._sync is None else self._sync.version

    def init_weight_transfer(self) -> None:
        """Once, on train begin."""
        self.client.wait_ready(self._ready_s)
        sizes = self.client.world_sizes()
        logger.info("%d servers with (ranks, replicas) %s", len(sizes), sizes)
        self._initialised = True
        if self._model is not None:
            self._tensors = [(name, parameter.dtype, tuple(parameter.shape)) for name, parameter in sent_of(self._model)]
        if self._tensors is not None:
            self._connect(self._tensors)

    def pause(self) -> None:
        self._paused_at = time.monotonic()
        self.client.pause(self._pause_mode)

    def send_weights(self, iterator: "Iterator[tuple[str, Any]]") -> None:
        """One version. Where it fails servers stay paused, TRL's training ends with the error, and no version is reported."""
        if not self._initialised:
            raise StateError("send_weights before init_weight_transfer: servers were not asked for anything yet")
        began = time.monotonic()
        named: "Iterable[tuple[str, Any]]" = iterator
        if self._sync is None:
            held = [(name, tensor.detach().to("cpu", copy=True)) for name, tensor in iterator]
            self._connect([(name, tensor.dtype, tuple(tensor.shape)) for name, tensor in held])
            named = held
        assert self._sync is not None
        self._sync.send((name, _contiguous(tensor)) for name, tensor in named)
        self.metrics = {**self._sync.last, "weight_sync_time_s": time.monotonic() - began}

    def resume(self) -> None:
        if self._reset:
            self.client.reset_prefix_cache()
        self.client.resume()
        if self._paused_at:
            self.metrics["pause_s"] = time.monotonic() - self._paused_at
            logger.info("version %d: weight_sync_time_s=%.3f pause_s=%.3f bytes=%s", self.version,
                        self.metrics.get("weight_sync_time_s", 0.0), self.metrics["pause_s"], self.metrics.get("bytes", 0))

    def destroy(self) -> None:
        """On train end, after a failure too. Servers leave the job and go on serving."""
        sync, self._sync, self._initialised = self._sync, None, False
        if sync is not None:
            sync.close()

    def _connect(self, tensors: "list[Any]") -> None:
        sync = WeightSync(tensors, self.client, **self._options)
        sync.connect()
        self._sync = sync


def sent_of(model: Any) -> "Iterator[tuple[str, Any]]":
    """The parameters of a module as TRL names and chooses them: those that are trained; with adapters the base's, which they are
    merged into. TRL's own function, where there is one."""
    try:
        from trl.experimental.async_grpo.async_grpo_trainer import _iter_vllm_named_params
    except ImportError as error:
        raise UsageError(f"this TRL does not say which parameters it sends ({error}): give tensors= or leave both out") from error
    yield from _iter_vllm_named_params(model)


def _contiguous(tensor: Any) -> Any:
    return tensor if tensor.is_contiguous() else tensor.contiguous()
