# SPDX-License-Identifier: Apache-2.0
"""The trainers' part of a job whose model is Megatron's, one object in each rank: its shards as they are cut, or whole tensors as a
framework's conversion gathers them.

    rank 0   starts the controller ── its address ──► all ranks, by the framework's own group
    all      declare ── join ── send(version) ── close
"""
from __future__ import annotations

import importlib
import json
import os
import time
from typing import Any, Callable, Iterator, Optional, Sequence

from weft._controller import Controller
from weft._trainer import Trainer

_LEAVE_S = 2.0


def options_of(args: Any, hosts_many: bool) -> dict[str, Any]:
    """From options that the frameworks' users know, and Weft's variables.

        --p2p-transfer-timeout       update_timeout_s, on both sides
        --p2p-transfer-num-workers   threads that pack
        WEFT_TRANSPORT, WEFT_BIND, WEFT_KEY_FILE (a path on each host), WEFT_INSECURE=1
    """
    p2p = getattr(args, "update_weight_transfer_mode", None) == "p2p"
    return {"transport": os.environ.get("WEFT_TRANSPORT") or ("auto" if hosts_many else None),
            "bind": os.environ.get("WEFT_BIND") or (f"tcp://{_address()}:0" if hosts_many else None),
            "key_file": os.environ.get("WEFT_KEY_FILE") or None, "insecure": os.environ.get("WEFT_INSECURE") == "1",
            "update_timeout_s": float(args.p2p_transfer_timeout) if p2p else None,
            "pack_threads": int(args.p2p_transfer_num_workers) if p2p else None}


def _address() -> str:
    ray: Any = importlib.import_module("ray")
    return str(ray.util.get_node_ip_address())


class _Job:
    """What both have: the controller on rank 0, and where engines are in it."""

    def __init__(self, train: str, rank: int, counts: Sequence[int], options: dict[str, Any]):
        self.train, self.rank, self._counts, self._options = train, rank, list(counts), options
        self.infer = f"engines={len(counts)},tp={counts[0]}" if len(set(counts)) == 1 else f"engines=1,tp={sum(counts)}"
        self.controller = ""
        self._own: Optional[Controller] = None
        self.trainer: Optional[Trainer] = None
        self._last: dict[str, float] = {}

    def start(self) -> str:
        """On rank 0: the controller; its address, which the others are to be told."""
        options = self._options
        self._own = Controller(self.train, self.infer, bind=options["bind"], key_file=options["key_file"],
                               insecure=options["insecure"], update_timeout_s=options["update_timeout_s"])
        return self._own.address

    def _trainer(self, device: str) -> Trainer:
        options = self._options
        return Trainer(self.controller, self.rank, transport=options["transport"], key_file=options["key_file"],
                       memory="cuda" if device == "cuda" else None, update_timeout_s=options["update_timeout_s"],
                       pack_threads=options["pack_threads"])

    def _endpoint(self, engine: int, tensors: Any) -> dict[str, Any]:
        from weft.engines import Endpoint

        return Endpoint(self.controller, sum(self._counts[:engine]), tensors, None, self._options["transport"],
                        self._options["key_file"], update_timeout_s=self._options["update_timeout_s"]).to_dict()

    def join(self, timeout_s: float) -> None:
        assert self.trainer is not None
        self.trainer.join(timeout_s)

    def metrics(self) -> dict[str, float]:
        return {f"perf/update_weights_{name}": value for name, value in self._last.items()}

    def close(self) -> None:
        trainer, self.trainer = self.trainer, None
        own, self._own = self._own, None
        try:
            if trainer is not None:
                trainer.close()
        finally:
            if own is not None:
                own.end(_LEAVE_S)


class Shards(_Job):
    """Each rank's parameters as Megatron cuts them; nothing is gathered.

    Args:
        checkpoint: the HuggingFace folder, for the model's config.
        model: the rank's chunks.
    """

    def __init__(self, rank: int, counts: Sequence[int], options: dict[str, Any], checkpoint: str, model: Sequence[Any]):
        import weft.torch

        self._model, self._checkpoint = list(model), checkpoint
        super().__init__(weft.torch.megatron_train(self._model, vocab_pad=_vocab_pad()), rank, counts, options)

    def declare(self, controller: str) -> None:
        import weft.torch

        self.controller = controller
        device = next(parameter for chunk in self._model for parameter in chunk.parameters()).device.type
        self.trainer = self._trainer(device)
        self.trainer.declare_model(self._checkpoint, self.train, self.infer)
        self.trainer.declare_labels("custom", "custom", "custom")  # as engines are labelled, which declare what they found
        weft.torch.declare(self.trainer, self._model, config=_config_of(self._checkpoint))

    def endpoint(self, engine: int) -> dict[str, Any]:
        return self._endpoint(engine, None)  # engines find the tensors in their own checkpoint

    def send(self, version: int) -> None:
        import weft.torch

        assert self.trainer is not None
        began = time.monotonic()
        weft.torch.publish(self.trainer, self._model, version)
        self._last = {"send_s": time.monotonic() - began}


class Gathered(_Job):
    """Whole tensors, as ``chunks()`` yields them on every rank; the ranks share the sending."""

    def __init__(self, rank: int, counts: Sequence[int], options: dict[str, Any], world: int,
                 chunks: Callable[[], Iterator["tuple[str, Any]"]]):
        super().__init__(f"world={world},source=gathered", rank, counts, options)
        self._world, self._chunks = world, chunks
        self._sender: Any = None

    def declare(self, controller: str) -> None:
        from weft.engines import Sender

        self.controller, options = controller, self._options
        named, device = [], "cpu"
        for name, tensor in self._chunks():  # once, for what will be sent
            named.append((name, tensor.dtype, tuple(tensor.shape)))
            device = tensor.device.type
        self._sender = Sender(named, engines=1, ranks=sum(self._counts), rank=self.rank, world=self._world, controller=controller,
                              transport=options["transport"], key_file=options["key_file"],
                              update_timeout_s=options["update_timeout_s"], memory="cuda" if device == "cuda" else None,
                              pack_threads=options["pack_threads"])
        self.trainer = self._sender.trainer

    def endpoint(self, engine: int) -> dict[str, Any]:
        return self._endpoint(engine, self._sender.tensors)

    def send(self, version: int) -> None:
        self._sender.send(self._chunks(), version)
        stats = self._sender.stats()
        self._last = {name: float(stats[name]) for name in ("wait_s", "send_s")}


def _vocab_pad() -> Optional[int]:
    """Megatron-LM's --make-vocab-size-divisible-by, which only its global arguments keep."""
    try:
        from megatron.training.global_vars import get_args

        return int(get_args().make_vocab_size_divisible_by)
    except Exception:  # frameworks that do not set them: Megatron's default
        return None


def _config_of(checkpoint: str) -> Any:
    with open(os.path.join(checkpoint, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    return {"vocab_size": config.get("vocab_size") or config.get("text_config", {}).get("vocab_size"), **config}
