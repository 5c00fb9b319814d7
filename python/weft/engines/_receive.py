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

import dataclasses
import logging
import os
import threading
import time
from types import TracebackType
from typing import Any, Callable, Iterable, Mapping, Optional, Union

import torch

from weft._dtypes import dtype_of
from weft._errors import ConflictError, HookFailed, StateError, UnsupportedError, UsageError, VersionError
from weft._inference import Inference, Snapshot
from weft.engines._describe import Description, describe, must
from weft.engines._endpoint import Endpoint
from weft.engines._engine import Engine, engine_of
from weft.engines._given import must_fit, needed
from weft.engines._layout import Layout, Param, tensors_of_folder
from weft.engines._marks import in_memory
from weft.engines._state import bytes_of, loadable
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
        self._at: dict[str, int] = {}
        self._kept: list[tuple[torch.Tensor, torch.Tensor]] = []  # bytes of no tensor, which the engine keeps; and a copy
        self._started, self._version, self._mixed = 0.0, 0, False
        self._waiting: Optional[threading.Thread] = None
        self._arrived: Union[int, BaseException] = 0
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
            self._note(f"{len(alone)} parameters are left alone, first {alone[0]}: {', '.join(self.endpoint.left_alone)}")
        live, memory = loadable(self.engine.model), {}
        params: list[Param] = []
        for param in layout.params:
            memory[param.name] = _memory_of(param, live.get(param.name))
            if not _same_memory(param, memory, params, layout):
                params.append(param)
        used = {piece.tensor: layout.tensors[piece.tensor] for param in params for piece in param.pieces}
        given = layout.tensors
        if self._given is not None:
            must_fit(self._given, used)
            given = {**layout.tensors, **self._given}
            more = [name for name in self._given if name not in layout.tensors]
            if more:
                self._note(f"trainers send {len(more)} tensors that the engine's checkpoint does not have, first {more[0]}: "
                           "nothing is done with them")
        self._at = {name: tensor.data_ptr() for name, tensor in memory.items()}
        dummies = layout.constants if self.engine.dummy() else {}
        for param in params:
            mine, value = bytes_of(memory[param.name]), bytes_of(dummies.get(param.name, memory[param.name]))
            self._kept += [(mine[first:last], value[first:last].clone()) for first, last in param.kept]
        self._kept += [(bytes_of(live[name]), bytes_of(value)) for name, value in dummies.items() if name not in memory]
        self._params = {param.name: memory[param.name] for param in params}
        dataclasses.replace(layout, params=tuple(params)).declare(inference, memory if self.way == "direct" else {}, given)

    def _note(self, line: str) -> None:
        self.notes.append(line)
        log.info("rank %d: %s", self.description.rank, line)

    def _declare_whole(self, inference: Inference) -> None:
        checkpoint = None
        if self._given is None or os.path.isdir(self.engine.folder()):
            checkpoint = tensors_of_folder(self.engine.folder())
        elif self.description.layout is not None:
            checkpoint = self.description.layout.tensors
        shapes = {name: tensor.shape for name, tensor in (checkpoint or {}).items()}
        whole = {name: tensor._replace(shape=folded_shape(tensor.shape)) for name, tensor in (checkpoint or {}).items()}
        tensors = whole if self._given is None else self._given
        if self._given is not None and checkpoint is not None:
            wanted = needed(whole, self.engine.hf_config())
            must_fit(self._given, {name: tensor for name, tensor in wanted.items()
                                   if not name.startswith(self.endpoint.left_alone or ("\0",))}, "its own loader")
        for tensor in tensors.values():
            inference.declare_param(tensor.name, tensor.dtype, tensor.shape)
            inference.declare_piece(tensor, tensor.name)
        self._whole: "dict[str, tuple[int, ...]]" = {name: shapes.get(name, tensor.shape) for name, tensor in tensors.items()}

    # ---- a job

    def join(self, timeout_s: Optional[float] = None) -> None:
        """Waits until all trainers and all ranks of all engines are here.

        Raises:
            WaitTimeout: with who is missing.
        """
        self.inference.join(timeout_s)
        for place, value in self._kept:  # join has zeroed them, or the engine has never had them
            place.copy_(value)

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
        if self._waiting is not None:
            raise StateError("a version is being prepared: install it")
        self._same_places()
        began = self._started = time.monotonic()
        try:
            found = self.inference.wait(version, timeout_s)
        except (UsageError, StateError, VersionError):  # nothing was opened
            raise
        except BaseException:
            self._mixed = self._mixed or self.way == "direct"  # from the first moment of the wait on trainers may write
            raise
        if self.way != "direct":
            self._last["write_s"] = time.monotonic() - began
            self._install(found)
        self._mixed, self._version = False, found
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
        self._mixed, self._version = False, self._arrived
        self._last["update_s"] = time.monotonic() - self._started
        return self._arrived

    def _install(self, version: int) -> None:
        began = time.monotonic()
        try:
            with self.inference.read() as snapshot, torch.no_grad():
                self._mixed = True  # until it is over
                if self.way == "loader":
                    self._load((name, tensor_over(snapshot[name]).view(shape)) for name, shape in self._whole.items())
                else:
                    self._put(snapshot)
            if self.way == "shadow":
                self._derive(version)
        except Exception as error:  # of the engine's own code, or of the job
            raise HookFailed(f"version {version} is here, and putting it in place failed: {type(error).__name__}: {error}") \
                from error
        self._last["install_s"] = time.monotonic() - began

    def _put(self, snapshot: Snapshot) -> None:
        """The copy into the live parameters, but for what is the engine's own in them."""
        kept = [(place, place.clone()) for place, _ in self._kept]
        for name, place in self._params.items():
            bytes_of(place).copy_(bytes_of(tensor_over(snapshot[name])))
        for place, value in kept:
            place.copy_(value)

    def _same_places(self) -> None:
        if self.way == "loader":
            return
        live = loadable(self.engine.model)
        moved = [name for name, at in self._at.items() if name in live and live[name].data_ptr() != at]
        gone = [name for name in self._at if name not in live]
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
        """What the parameters are of; 0: of none yet, or of no one version (``tainted``)."""
        return 0 if self._mixed else self._version

    @property
    def tainted(self) -> bool:
        """An update failed in the middle: the parameters are of no one version until another succeeds. By shadow and loader
        they are of the last one until ``install`` has begun to change them."""
        return self._mixed

    def stats(self) -> "dict[str, Any]":
        """Of the last version: seconds of all of it (update_s), until every byte was here (write_s), of putting it in place
        (install_s: shadow and loader), of derived tensors (post_load_s); and the worker's own counters."""
        return {**self._last, **self.inference.stats()}

    def close(self) -> None:
        """Leaves the job. Parameters stay where they are, with what they hold."""
        waiting, self._waiting = self._waiting, None
        self.inference.close()
        if waiting is not None:
            waiting.join()

    def __enter__(self) -> "Receiver":
        return self

    def __exit__(self, kind: Optional[type[BaseException]], exception: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        self.inference.__exit__(kind, exception, traceback)


def _memory_of(param: Param, live: Optional[torch.Tensor]) -> torch.Tensor:
    """Where a parameter lies, as its layout has it."""
    lying = None if live is None else in_memory(live.detach())
    if live is None or lying is None or tuple(lying.shape) != param.shape or dtype_of(lying.dtype).name != param.dtype \
            or param.turned is live.is_contiguous():
        there = "not there" if live is None else f"{live.dtype} {list(live.shape)} with strides {tuple(live.stride())}"
        raise ConflictError(f"the engine's parameter {param.name} is {there}, and it was described as {param.dtype} "
                            f"{list(param.shape)}, {'turned' if param.turned else 'row after row'}: describe the engine anew")
    return lying


def _same_memory(param: Param, memory: "dict[str, torch.Tensor]", params: "list[Param]", layout: Layout) -> bool:
    """Whether another parameter of the same elements lies in just this memory: it is written once. Parameters that share
    memory otherwise would be of whoever is written last."""
    mine = memory[param.name]
    first, last = mine.data_ptr(), mine.data_ptr() + param.bytes
    for other in params:
        begin = memory[other.name].data_ptr()
        if not (first < begin + other.bytes and begin < last):
            continue
        same = (begin, other.bytes, other.pieces) == (first, param.bytes, param.pieces)
        if not same:
            raise ConflictError(f"the engine's parameters {other.name} and {param.name} share memory, and by {layout.source} they "
                                "are of other elements: weft cannot write both")
        return True
    return False
