# SPDX-License-Identifier: Apache-2.0
"""One engine rank as the target of a job.

    direct   trainers ══ one-sided writes ══► the live parameters ─► derived tensors anew ─► published
    loader   trainers ══ one-sided writes ══► whole tensors beside the model ─► the engine's own reload ─► published

Direct is what an engine gets unless it computes parameters from what it loads; nothing turns from one way to the other
silently: ``notes`` and the log say which and why.
"""
from __future__ import annotations

import logging
import time
from types import TracebackType
from typing import Any, Callable, Iterable, Mapping, Optional, Union

import torch

from weft._errors import StateError, UnsupportedError, UsageError
from weft._inference import Inference
from weft._structs import Tensor
from weft.engines._describe import Description, describe, must
from weft.engines._endpoint import Endpoint
from weft.engines._engine import Engine, engine_of
from weft.engines._layout import tensors_of_folder
from weft.torch._cuts import folded_shape
from weft.torch._tensors import tensor_over

Load = Callable[[Iterable["tuple[str, torch.Tensor]"]], None]
log = logging.getLogger("weft.engines")


class Receiver:
    """Receives versions into a live engine rank.

    ::

        receiver = weft.engines.Receiver(worker.model_runner, endpoint)
        receiver.join()                          # while the trainers join
        receiver.receive(version)                # while they send; the engine computes nothing meanwhile

    Args:
        model: the module that the engine runs, or its model runner or worker.
        endpoint: what Sender.endpoint gave, or its dictionary.
        config: vLLM: its VllmConfig, where the model does not lead to it.
        description: of the model, if the caller has one.
        load: the loader way's function of all (name, tensor), with the engine's post-load work. None: the engine's own.

    Raises:
        UnsupportedError, ConflictError: weft must not write into this engine as it runs; with what to change.

    Attributes:
        way: "direct" or "loader".
        notes: what was decided, and by what.
    """

    def __init__(self, model: Any, endpoint: "Union[Endpoint, Mapping[str, Any]]", *, config: Any = None,
                 description: Optional[Description] = None, load: Optional[Load] = None):
        self.endpoint = endpoint = Endpoint.of(endpoint)
        self.engine: Engine = engine_of(model, config)
        self._given = None if endpoint.tensors is None else {tensor.name: tensor for tensor in endpoint.tensors}
        self.description = description or describe(model, config=config, tensors=self._given, layout=endpoint.layout)
        self.way, self.notes = self._decide(endpoint.layout, load)
        for line in (f"{self.description.engine} {self.description.version}: {self.way}", *self.notes):
            log.info("rank %d: %s", self.description.rank, line)
        self._load = load or self._reload
        self._at: dict[str, int] = {}
        self._started = 0.0
        self._last: dict[str, float] = {}
        devices = {param.device.type for param in self.engine.model.parameters()}
        if devices - {"cpu", "cuda"} or len(devices) != 1:
            raise UnsupportedError(f"the model's parameters are on {', '.join(sorted(devices))}; weft writes into memory of the "
                                   "host or of one kind of GPU")
        self._device = devices.pop()
        self.inference = self._open()

    def _decide(self, layout: str, load: Optional[Load]) -> "tuple[str, list[str]]":
        notes = list(self.description.notes)
        if layout == "loader":
            return "loader", [*notes, "loader: as the trainers asked"]
        if layout == "auto" and self.description.computed and not self.description.refusals:
            refused = "" if load is not None else self.engine.reload_refused() or self.description.reload_refused
            if not refused:
                return "loader", [*notes, f"loader: after a load the engine computes {len(self.description.computed)} tensors, "
                                          f"first {self.description.computed[0]}"]
            notes.append(refused)
        must(self.description)
        return "direct", notes

    def _open(self) -> Inference:
        endpoint, rank = self.endpoint, self.endpoint.rank_offset + self.description.rank
        direct = self.way == "direct"
        inference = Inference(endpoint.controller, rank, job=endpoint.job, transport=endpoint.transport,
                              key_file=endpoint.key_file, own_memory=direct,
                              memory=self._device if direct and self._device == "cuda" else None,
                              join_timeout_s=endpoint.join_timeout_s, update_timeout_s=endpoint.update_timeout_s)
        try:
            self._declare_direct(inference) if direct else self._declare_whole(inference)
            inference.set_post_load(self._post_load)
        except BaseException:
            inference.close()
            raise
        return inference

    def _declare_direct(self, inference: Inference) -> None:
        layout, alone = must(self.description).without(self.endpoint.left_alone)
        if alone:
            line = f"{len(alone)} parameters are left alone, first {alone[0]}: {', '.join(self.endpoint.left_alone)}"
            self.notes.append(line)
            log.info("rank %d: %s", self.description.rank, line)
        given = layout.tensors if self._given is None else self._given
        missing = sorted({piece.tensor for param in layout.params for piece in param.pieces} - set(given))
        if missing:
            raise UsageError(f"the engine wants {len(missing)} tensors that the trainers do not send, first {missing[0]}: send "
                             "them, or name what may stay as it is in left_alone")
        wanted = {param.name for param in layout.params}
        memory = {name: param.detach().view(folded_shape(param.shape))
                  for name, param in self.engine.model.named_parameters() if name in wanted}
        self._at = {name: tensor.data_ptr() for name, tensor in memory.items()}
        layout.declare(inference, memory, given)

    def _declare_whole(self, inference: Inference) -> None:
        tensors = self._given if self._given is not None else tensors_of_folder(self.engine.folder())
        for tensor in tensors.values():
            inference.declare_param(tensor.name, tensor.dtype, tensor.shape)
            inference.declare_piece(tensor, tensor.name)
        self._whole: "dict[str, Tensor]" = dict(tensors)

    # ---- a job

    def join(self, timeout_s: Optional[float] = None) -> None:
        """Waits until all trainers and all ranks of all engines are here.

        Raises:
            WaitTimeout: with who is missing.
        """
        self.inference.join(timeout_s)

    def receive(self, version: Optional[int] = None, timeout_s: Optional[float] = None) -> int:
        """Waits for a version, verifies it, does what has to be done after a load, publishes it. The engine computes nothing
        meanwhile, and after an error nothing until a later version is here (``tainted``).

        Args:
            version: None: the next.
            timeout_s: None: the job's update timeout.

        Returns:
            The version.

        Raises:
            StateError: parameters do not lie where they lay at join. Others: as Inference.wait.
        """
        self._same_places()
        began = self._started = time.monotonic()
        found = self.inference.wait(version, timeout_s)
        self._last["update_s"] = time.monotonic() - began
        return found

    def _same_places(self) -> None:
        if self.way == "loader":
            return
        moved = [name for name, param in self.engine.model.named_parameters()
                 if name in self._at and param.data_ptr() != self._at[name]]
        gone = sorted(set(self._at) - {name for name, _ in self.engine.model.named_parameters()})
        if moved or gone:
            raise StateError(f"{len(moved) + len(gone)} parameters do not lie where they lay at join, first {(moved + gone)[0]}: "
                             "weights were released or loaded again since; have the engine's transfer set up anew (its init "
                             "request) before the next update")

    def _post_load(self, version: int) -> None:
        began = time.monotonic()
        self._last["write_s"] = began - self._started
        if self.way == "loader":
            self._load((name, self._loaded(tensor)) for name, tensor in self._whole.items())
        else:
            self.engine.derive(self.engine.model, self.engine.context())
        self._last["post_load_s"] = time.monotonic() - began

    def _loaded(self, tensor: Tensor) -> torch.Tensor:
        return tensor_over(self.inference.loaded_memory(tensor.name))

    def _reload(self, named: Iterable["tuple[str, torch.Tensor]"]) -> None:
        self.engine.reload(self.engine.model, self.engine.context(), named)

    @property
    def version(self) -> int:
        """That readers get; 0: none yet, or one is being written."""
        return self.inference.published

    @property
    def tainted(self) -> bool:
        """An update failed in the middle: the parameters are of no one version until another succeeds."""
        return self.inference.tainted

    def stats(self) -> "dict[str, Any]":
        """Of the last version: seconds of all of it (update_s), until every byte was here (write_s), of work after it
        (post_load_s); and the worker's own counters."""
        return {**self._last, **self.inference.stats()}

    def close(self) -> None:
        """Leaves the job. Parameters stay where they are, with what they hold."""
        self.inference.close()

    def __enter__(self) -> "Receiver":
        return self

    def __exit__(self, kind: Optional[type[BaseException]], exception: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        self.inference.__exit__(kind, exception, traceback)
