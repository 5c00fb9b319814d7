# SPDX-License-Identifier: Apache-2.0
"""One engine rank as the target of a job.

    direct   trainers ══ writes ══► the live parameters ─────────────────────────────► derived tensors anew ─► version
    shadow   trainers ══ writes ══► a copy of them beside  │ install: put in place ──► derived tensors anew ─► version
    loader   trainers ══ writes ══► whole tensors beside   │ install: the engine's own reload ───────────────► version
             the engine: paused from the first byte (direct) or from │ on

Direct is what an engine gets unless it asked for shadow or computes parameters from what it loads; nothing turns from one way
to another silently: ``notes`` and the log say which and why.
"""
from __future__ import annotations

import logging
import threading
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
        way: "direct", "shadow" or "loader".
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
        self._installed = 0
        self._mixed = False
        self._waiting: Optional[threading.Thread] = None
        self._arrived: Union[int, BaseException] = 0
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
            refused = "" if load is not None else self.engine.reload_refused() or self.description.reload_refused
            if refused:
                raise UnsupportedError(f"layout=loader: {refused}")
            return "loader", [*notes, "loader: as the trainers asked"]
        if layout == "auto" and self.description.computed and not self.description.refusals:
            refused = "" if load is not None else self.engine.reload_refused() or self.description.reload_refused
            if not refused:
                return "loader", [*notes, f"loader: after a load the engine computes {len(self.description.computed)} tensors, "
                                          f"first {self.description.computed[0]}"]
            notes.append(refused)
        must(self.description)
        return ("shadow" if self.endpoint.update == "shadow" else "direct"), notes

    def _open(self) -> Inference:
        endpoint, rank = self.endpoint, self.endpoint.rank_offset + self.description.rank
        on_gpu = self.way != "loader" and self._device == "cuda"
        inference = Inference(endpoint.controller, rank, job=endpoint.job, transport=endpoint.transport,
                              key_file=endpoint.key_file, own_memory=self.way == "direct", memory="cuda" if on_gpu else None,
                              join_timeout_s=endpoint.join_timeout_s, update_timeout_s=endpoint.update_timeout_s)
        try:
            self._declare_whole(inference) if self.way == "loader" else self._declare_layout(inference)
            if self.way == "direct":
                inference.set_post_load(self._derive)
        except BaseException:
            inference.close()
            raise
        return inference

    def _declare_layout(self, inference: Inference) -> None:
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
        layout.declare(inference, memory if self.way == "direct" else {}, given)

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
        """Waits for a version, verifies it, does what has to be done after a load. The engine computes nothing meanwhile, and
        after an error in it nothing until a later version is here, where ``tainted`` says so.

        Args:
            version: None: the next.
            timeout_s: None: the job's update timeout.

        Returns:
            The version.

        Raises:
            StateError: parameters do not lie where they lay at join. Others: as Inference.wait.
        """
        if self._waiting is not None:
            raise StateError("a version is being prepared: install it")
        self._same_places()
        began = self._started = time.monotonic()
        found = self.inference.wait(version, timeout_s)
        if self.way != "direct":
            self._last["write_s"] = time.monotonic() - began
            self._install(found)
        self._last["update_s"] = time.monotonic() - began
        return found

    def prepare(self, version: Optional[int] = None, timeout_s: Optional[float] = None) -> None:
        """Shadow and loader: begins to receive a version while the engine goes on; ``install`` waits for the rest of it.

        Raises:
            StateError: the way is direct, in which the engine must be paused; or a version is being prepared already.
        """
        if self.way == "direct":
            raise StateError("the trainers' endpoint says update=paused: weights are written straight into the live parameters, "
                             "so the engine must not compute meanwhile: use receive, or say update=shadow")
        if self._waiting is not None:
            raise StateError("a version is being prepared already: install it first")
        self._started = time.monotonic()

        def wait() -> None:
            try:
                self._arrived = self.inference.wait(version, timeout_s)
            except BaseException as error:  # told by install
                self._arrived = error
        self._waiting = threading.Thread(target=wait, name="weft-receive", daemon=True)
        self._waiting.start()

    def install(self) -> int:
        """The version that ``prepare`` has begun, into the live model. The engine computes nothing meanwhile.

        Returns:
            The version.

        Raises:
            StateError: nothing was prepared. Others: as ``receive``; the live parameters are untouched unless ``tainted``.
        """
        waiting, self._waiting = self._waiting, None
        if waiting is None:
            raise StateError("no version was prepared: call prepare first, or receive")
        waiting.join()
        if isinstance(self._arrived, BaseException):
            raise self._arrived
        self._same_places()
        self._last["write_s"] = time.monotonic() - self._started
        self._install(self._arrived)
        self._last["update_s"] = time.monotonic() - self._started
        return self._arrived

    def _install(self, version: int) -> None:
        began = time.monotonic()
        self._mixed = True
        with self.inference.read() as snapshot, torch.no_grad():
            if self.way == "loader":
                self._load((name, tensor_over(snapshot[name])) for name in self._whole)
            else:
                for name, param in self.engine.model.named_parameters():
                    if name in self._at:
                        param.view(folded_shape(param.shape)).copy_(tensor_over(snapshot[name]))
        if self.way == "shadow":
            self._derive(version)
        self._mixed, self._installed = False, version
        self._last["install_s"] = time.monotonic() - began

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

    def _derive(self, version: int) -> None:
        began = time.monotonic()
        if self.way == "direct":
            self._last["write_s"] = began - self._started
        self.engine.derive(self.engine.model, self.engine.context())
        self._last["post_load_s"] = time.monotonic() - began

    def _reload(self, named: Iterable["tuple[str, torch.Tensor]"]) -> None:
        self.engine.reload(self.engine.model, self.engine.context(), named)

    @property
    def version(self) -> int:
        """That the engine computes with; 0: none of weft's yet, or one is being written."""
        if self.way == "direct":
            return self.inference.published
        return 0 if self._mixed else self._installed

    @property
    def tainted(self) -> bool:
        """An update failed in the middle: the live parameters are of no one version until another succeeds."""
        return self.inference.tainted if self.way == "direct" else self._mixed

    def stats(self) -> "dict[str, Any]":
        """Of the last version: seconds of all of it (update_s), until every byte was here (write_s), of putting it in place
        (install_s: shadow and loader), of derived tensors (post_load_s); and the worker's own counters."""
        return {**self._last, **self.inference.stats()}

    def close(self) -> None:
        """Leaves the job. Parameters stay where they are, with what they hold."""
        self.inference.close()
        if self._waiting is not None:
            self._waiting.join()
            self._waiting = None

    def __enter__(self) -> "Receiver":
        return self

    def __exit__(self, kind: Optional[type[BaseException]], exception: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        self.inference.__exit__(kind, exception, traceback)
