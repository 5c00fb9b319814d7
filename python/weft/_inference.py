# SPDX-License-Identifier: Apache-2.0
"""An inference rank: what it is made of, and versions that come."""
from __future__ import annotations

import threading
from types import TracebackType
from typing import Any, Callable, Iterable, NamedTuple, Optional, Sequence, Union

from weft import _waits
from weft._array import Array
from weft._dtypes import dtype_of
from weft._errors import HookFailed, NothingPublished, StateError, Torn, UsageError, failed, slot
from weft._library import ffi, lib, text
from weft._memory import memory_of
from weft._structs import ParamView, Tensor, described, memory_struct, milliseconds, param_view, shape_of, sized
from weft._worker import Worker

Hook = Callable[[int], None]


class Transform(NamedTuple):
    """fp8 in blocks (weft_transform of weft.h): ``from_block`` is the tensor's, ``to_block`` the parameter's, each (rows,
    columns) or None where there are none; ``scales_part``: the piece is the parameter's F32 scales, and not its elements.
    Or another order of elements without blocks: ``transposed``, column by column of a box of two dimensions, each a row of
    the parameter (of three: one matrix of the first), or ``padded_row``, elements of the parameter that a row has, which is
    all dimensions of the box but its first two; behind the box's own are zeroes."""
    from_block: Optional[tuple[int, int]] = None
    to_block: Optional[tuple[int, int]] = None
    scales_part: bool = False
    transposed: bool = False
    padded_row: Optional[int] = None


class Inference(Worker):
    """A rank of an inference engine.

    ::

        with weft.Inference("tcp://node0:29600", rank, shadow=True) as inference:
            param = inference.declare_param("qkv.weight", "BF16", (96, 64))
            inference.declare_piece(weft.Tensor("q.weight", "BF16", (64, 64)), param)
            inference.declare_piece(weft.Tensor("k.weight", "BF16", (32, 64)), param, offset_bytes=64 * 64 * 2)
            inference.join()
            while True:
                version = inference.wait()
                with inference.read() as snapshot:
                    generate(torch.from_dlpack(snapshot["qkv.weight"]))

    Args:
        controller: "tcp://host:29600"; None: what the launcher's variables say.
        rank: among the inference ranks, from 0; None: the launcher's.
        job: the job's name, if the controller has one.
        transport: as a trainer's.
        memory: where parameters lie: "host" (default), "cuda", "cuda:N".
        shadow: two copies of the parameters: readers keep the last version while the next arrives.
        commit_by_host: with shadow: ``wait`` ends when all ranks that show versions together have prepared one, and
            ``commit_at`` shows it here. All of them agree.
        own_memory: parameters lie in memory of this program (``declare_param`` with memory, ``bind``), not in weft's.
        stage: with memory "cuda": "none" (default), "device", "host" or "auto" (weft_options.stage in weft.h).
        landing_bytes: for pieces that land beside the parameters, at most. None: 256 MiB.
        checksums: every piece is verified; all workers agree.
        nic: which NICs. None: weft chooses.
        key_file: the job's key. None: what WEFT_KEY_FILE names.
        metrics: figures for Prometheus are served there, ":9464" or "127.0.0.1:9464" (":9464+": the first free port from there
            on); "off": nowhere. None: what WEFT_METRICS says (docs/metrics.md).
        metrics_file: and written there every 5 s, for node-exporter; %h, %p and %r are host, process and rank.
        trace: a file of when this worker did what, for ui.perfetto.dev (docs/traces.md); named as metrics_file.
        join_timeout_s: None: 60 s.
        update_timeout_s: None: the controller's.
    """

    _role = lib.WEFT_INFERENCE

    def __init__(self, controller: Optional[str] = None, rank: Optional[int] = None, *, job: Optional[str] = None,
                 transport: Optional[str] = None, memory: Optional[str] = None, shadow: bool = False,
                 commit_by_host: bool = False, own_memory: bool = False, stage: Optional[str] = None,
                 landing_bytes: Optional[int] = None, checksums: bool = False, nic: Optional[str] = None,
                 key_file: Optional[str] = None, metrics: Optional[str] = None, metrics_file: Optional[str] = None,
                 trace: Optional[str] = None,
                 join_timeout_s: Optional[float] = None,
                 update_timeout_s: Optional[float] = None):
        self._params: list[ParamView] = []
        self._names: dict[str, int] = {}
        self._hook: Any = None           # cffi's callback, while the library has it
        self._hook_thread: Optional[int] = None
        self._hook_failure: Optional[BaseException] = None
        self.shadow, self.own_memory = shadow, own_memory
        super().__init__(controller, rank, {
            "job": job, "transport": transport, "memory": memory, "shadow": int(shadow),
            "commit_by_host": int(commit_by_host), "own_memory": int(own_memory),
            "stage": stage, "landing_bytes": landing_bytes, "checksums": int(checksums), "nic": nic, "key_file": key_file,
            "metrics": metrics, "metrics_file": metrics_file, "trace": trace,
            "join_timeout_s": join_timeout_s, "update_timeout_s": update_timeout_s})

    # ---- declare

    def declare_param(self, name: str, dtype: Any, shape: Sequence[int], *, memory: Any = None) -> int:
        """A parameter of the engine.

        Args:
            name: unique on this rank.
            dtype: of its elements; where a tensor's is other, F32, BF16 and F16 are converted into each other.
            shape: in elements, row-major.
            memory: with own_memory: where it lies (``memory_of``), kept alive until ``close``. None: ``bind`` says it.

        Returns:
            Its id.
        """
        keep: list[Any] = []
        struct, number = described("weft_param", Tensor(name, dtype, tuple(shape)), keep), ffi.new("uint32_t *")
        if memory is not None:
            struct.memory = self._bound(memory, name, dtype_of(dtype).name, keep)
        self._now(lib.weft_declare_param, struct, number)
        self._params = []
        return int(number[0])

    def _bound(self, memory: Any, name: str, dtype: str, keep: list[Any]) -> Any:
        found = memory_of(memory)
        if found.dtype is not None and found.dtype != dtype:
            raise UsageError(f"parameter {name!r} is {dtype}, and the memory for it has {found.dtype}")
        if found.readonly:
            raise UsageError(f"{type(memory).__name__} is read-only: weft writes into memory that is bound")
        self._handle.keep.append(found.owner)
        keep.append(memory_struct(found))
        return keep[-1]

    def bind(self, param: Union[int, str], memory: Any) -> None:
        """With own_memory: where a parameter lies, that was declared without memory (``declare_model``)."""
        view = self._view(param)
        keep: list[Any] = []
        self._now(lib.weft_param_bind, view.id, self._bound(memory, view.name, view.dtype, keep))

    def declare_piece(self, tensor: Tensor, param: Union[int, str], *, lo: Optional[Sequence[int]] = None,
                      hi: Optional[Sequence[int]] = None, offset_bytes: int = 0) -> None:
        """The box [lo, hi) of a tensor becomes bytes of a parameter, from ``offset_bytes`` on, row after row.

        Args:
            tensor: the whole tensor, as the trainers declare it.
            param: id or name.
            lo, hi: in elements; None: the whole tensor.
            offset_bytes: in the parameter.
        """
        self.declare_transformed_piece(tensor, param, lo=lo, hi=hi, offset_bytes=offset_bytes)

    def declare_transformed_piece(self, tensor: Tensor, param: Union[int, str], *, lo: Optional[Sequence[int]] = None,
                                  hi: Optional[Sequence[int]] = None, offset_bytes: int = 0,
                                  transform: Optional[Transform] = None, scales: Optional[Tensor] = None) -> None:
        """``declare_piece``, with fp8 in blocks: out of blocks, into them, or both; or with elements in another order
        (weft_declare_transformed_piece).

        Args:
            scales: with a ``from_block``, the tensor of its scales.
        """
        keep: list[Any] = []
        struct = described("weft_tensor", tensor, keep)
        low, high = ffi.new("uint64_t[4]"), ffi.new("uint64_t[4]")
        box = sized("weft_holding")  # has the two arrays, and checks what is put there
        shape_of(box, (0,) * len(tensor.shape) if lo is None else lo, f"lo of {tensor.name!r}", "lo")
        shape_of(box, tensor.shape if hi is None else hi, f"hi of {tensor.name!r}", "hi")
        for d in range(4):
            low[d], high[d] = box.lo[d], box.hi[d]
        if transform is None:
            self._now(lib.weft_declare_piece, struct, low, high, self._id(param), offset_bytes)
            return
        how = sized("weft_transform")
        how.from_rows, how.from_columns = transform.from_block or (0, 0)
        how.to_rows, how.to_columns = transform.to_block or (0, 0)
        how.scales_part = int(transform.scales_part)
        if transform.transposed and transform.padded_row is not None:
            raise UsageError(f"{tensor.name!r}: a piece is transposed or has padded rows, not both")
        if transform.padded_row is not None:
            how.order, how.to_columns = lib.WEFT_PADDED_ROWS, transform.padded_row
        elif transform.transposed:
            how.order = lib.WEFT_TRANSPOSED
        self._now(lib.weft_declare_transformed_piece, struct, low, high, self._id(param), offset_bytes, how,
                  ffi.NULL if scales is None else described("weft_tensor", scales, keep))

    def declare_fill(self, param: Union[int, str], offset_bytes: int, bytes: int) -> None:
        """Bytes of a parameter that come from no tensor (padding of a vocabulary): zeroed at join."""
        self._now(lib.weft_declare_fill, self._id(param), offset_bytes, bytes)

    @property
    def params(self) -> list[ParamView]:
        """What was declared, by id."""
        return list(self._known())

    def _known(self) -> list[ParamView]:
        params = self._params
        if not params:
            params = self._views(lib.weft_param_at, "weft_param_view", param_view)
            self._names = {view.name: view.id for view in params}
            self._params = params  # the last: another thread that finds it finds the names
        return params

    def _view(self, param: Union[int, str]) -> ParamView:
        views = self._known()
        number = param if isinstance(param, int) else self._names.get(param, -1)
        if not 0 <= number < len(views):
            raise UsageError(f"{param!r} is no parameter that {self!r} declared; it has {len(views)}"
                             + (f", from {views[0].name!r} on" if views else ""))
        return views[number]

    def _id(self, param: Union[int, str]) -> int:
        return param if isinstance(param, int) else self._view(param).id

    def compare(self, live: Iterable[tuple[str, Any, Sequence[int]]]) -> None:
        """Before join: what was declared, beside the parameters that the engine really has.

        Args:
            live: (name, dtype, shape) of each.

        Raises:
            ConflictError: with the first differences, and the option of the infer spec that would agree, where one would.
        """
        given = [Tensor(name, dtype, tuple(shape)) for name, dtype, shape in live]
        keep: list[Any] = []
        structs = ffi.new("weft_param[]", max(len(given), 1))
        for i, param in enumerate(given):
            if param.shape:
                structs[i] = described("weft_param", param, keep)[0]
            else:  # a scalar: dims 0 is what weft.h has for it
                structs[i] = described("weft_param", param._replace(shape=(1,)), keep)[0]
                structs[i].dims = 0
        self._now(lib.weft_compare_params, structs, len(given), ffi.sizeof("weft_param"))

    # ---- updates

    def wait(self, version: Optional[int] = None, timeout_s: Optional[float] = None) -> int:
        """Opens this rank's memory for a version, waits until all of it is here, verifies it, runs the post-load hook on
        this thread, publishes it.

        Args:
            version: None: the next that the trainers begin.
            timeout_s: None: the update timeout.

        Returns:
            The version that is published now; with commit_by_host, that is prepared. Without shadow, readers have none from
            here until then.

        Raises:
            WaitTimeout: with who is missing. Aborted, ChecksumError, HookFailed: this version was not published; a later
            one recovers. After Ctrl-C the same version can be waited for again, and what arrived still counts.
        """
        number, published = self._number(version), ffi.new("uint64_t *")
        if _waits.hears_signals():
            self._until(lambda: self._hooked(lib.weft_update_try_wait, number, milliseconds(timeout_s), published))
        else:
            self._hooked(lib.weft_update_wait, number, milliseconds(timeout_s), published)
        return int(published[0])

    async def wait_async(self, version: Optional[int] = None, timeout_s: Optional[float] = None) -> int:
        """``wait`` for an event loop: verifying and the hook run on the loop's thread. Cancelled: as after Ctrl-C."""
        number, published = self._number(version), ffi.new("uint64_t *")
        await self._until_async(lambda: self._hooked(lib.weft_update_try_wait, number, milliseconds(timeout_s), published))
        return int(published[0])

    def commit_at(self, version: int) -> None:
        """With commit_by_host: shows the version that ``wait`` has prepared here, in one store, without a word to anybody: an
        engine's scheduler calls it on all ranks at the same step, once ``wait`` has returned on each of them. Until then
        readers have the version before. Also after the job has failed, for what is prepared is whole; once more is nothing.

        Raises:
            StateError: with what is prepared instead.
        """
        self._now(lib.weft_commit_at, self._number(version))

    def _number(self, version: Optional[int]) -> int:
        if version is not None and version < 1:
            raise UsageError(f"version {version}: versions count from 1; None waits for the next")
        return version or int(lib.WEFT_VERSION_NEXT)

    def _hooked(self, function: Any, *arguments: Any) -> int:
        self._hook_failure = None
        try:
            return self._now(function, *arguments)
        except HookFailed as error:
            failure, self._hook_failure = self._hook_failure, None
            if failure is not None and not isinstance(failure, Exception):
                raise failure from error  # KeyboardInterrupt in the hook
            if failure is not None:
                error = HookFailed(f"{error.text}: {type(failure).__name__}: {failure}")
                self._unhandled = error.text, error.code
            raise error from failure

    @property
    def published(self) -> int:
        """[any thread] The version that readers get; 0: none yet."""
        return self._value(lib.weft_published)

    @property
    def tainted(self) -> bool:
        """[any thread] An update failed in the middle: memory holds a mixture, and readers get none until one succeeds."""
        return bool(self._value(lib.weft_tainted))

    def _value(self, function: Any) -> int:
        return int(self._raw(function))

    def set_post_load(self, hook: Optional[Hook]) -> None:
        """``hook(version)`` runs inside of ``wait``, on its thread, when every byte of a version is here and verified,
        before it is published: there an engine rebuilds what it derives from parameters (``loaded_memory``). An exception
        in it: nothing is published, and ``wait`` raises HookFailed from it. None: no hook."""
        if hook is None:
            self._now(lib.weft_set_post_load, ffi.NULL, ffi.NULL)
            self._hook = None
            return

        def run(context: Any, version: int) -> int:
            self._hook_thread = threading.get_ident()
            try:
                hook(version)
                return 0
            except BaseException as failure:  # told by wait
                self._hook_failure = failure
                return 1
            finally:
                self._hook_thread = None
        callback = ffi.callback("weft_post_load", run, error=1)
        self._now(lib.weft_set_post_load, callback, ffi.NULL)
        self._hook = callback

    def _in_hook(self) -> bool:
        return self._hook_thread == threading.get_ident()

    # ---- read

    def read(self) -> "Snapshot":
        """[any thread] ``with inference.read() as snapshot``: parameters of one version. Nobody is waited for.

        Raises:
            NothingPublished: at the beginning: no version is here, or one is being written in place.
            Torn: at the end: an update came meanwhile; what was read is of no version.
        """
        return Snapshot(self)

    def memory(self, param: Union[int, str], version: int = 0) -> Array:
        """[any thread] Where a parameter lies.

        Args:
            param: id or name.
            version: as ``Snapshot.version``. 0, without shadow: at any time after join, whatever lies there.

        Raises:
            StateError: that version is not here; Torn, which is one: a later one has taken its place.
        """
        view = self._view(param)
        pointer = self._address(lib.weft_param_memory, view.id, version)
        if not pointer:
            gone = Torn if version and self.published > version else StateError
            raise gone(f"{self!r}: parameter {view.name!r} has no memory of version {version}: "
                       f"published is {self.published}"
                       + ("; with shadow there is no version 0: give the one that read() gave" if self.shadow else ""))
        return Array(self._handle, view, pointer, self.device)

    def loaded_memory(self, param: Union[int, str]) -> Array:
        """[any thread, while the hook runs] Where a parameter of the version lies that is being loaded."""
        view = self._view(param)
        pointer = self._address(lib.weft_loaded_memory, view.id)
        if not pointer:
            raise StateError(f"{self!r}: nothing is being loaded: loaded_memory is for the post-load hook")
        return Array(self._handle, view, pointer, self.device)

    def _address(self, function: Any, *arguments: Any) -> int:
        return int(ffi.cast("uintptr_t", self._raw(function, *arguments)))

    def digest(self, param: Union[int, str], version: int) -> str:
        """[any thread] XXH3-128 of a parameter's bytes, 32 hex digits.

        Raises:
            NothingPublished: that version is not here. Torn: an update came meanwhile.
        """
        digest = ffi.new("char[33]")
        rc = int(self._raw(lib.weft_param_digest, self._id(param), version, digest))
        if rc == lib.WEFT_NONE:
            raise NothingPublished(f"{self!r}: version {version} is not here; published is {self.published}")
        if rc == lib.WEFT_TORN:
            raise Torn(f"{self!r}: an update came while version {version} was summed")
        if rc < 0:
            raise failed(rc, slot.error)
        return text(digest)

    def stream_wait(self, version: int, stream: int = 0) -> None:
        """[any thread] With memory "cuda": what is queued on ``stream`` (a cudaStream_t; 0: the default one) from now on waits
        on the GPU until ``version``, or a later one, is published here."""
        self._now(lib.weft_stream_wait, version, ffi.cast("void *", stream))

    def _released(self) -> None:
        self._hook = None


class Snapshot:
    """Parameters of one version: what ``Inference.read`` gives.

    Attributes:
        version: that is read.
    """

    def __init__(self, inference: Inference):
        self._inference, self.version = inference, 0

    def __enter__(self) -> "Snapshot":
        version = ffi.new("uint64_t *")
        rc = self._call(lib.weft_read_begin, version)
        if rc == lib.WEFT_NONE:
            raise NothingPublished(f"{self._inference!r}: no version to read: "
                                   + ("an update is being written" if self._inference.published else "none has come yet"))
        if rc < 0:
            raise failed(rc, slot.error)
        self.version = int(version[0])
        return self

    def __getitem__(self, param: Union[int, str]) -> Array:
        return self._inference.memory(param, self.version)

    @property
    def torn(self) -> bool:
        """An update has come since the beginning: what was read is of no version."""
        return self._call(lib.weft_read_end, self.version) != 0

    def __exit__(self, kind: Optional[type[BaseException]], exception: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        if exception is None and self.torn:
            raise Torn(f"{self._inference!r}: an update came while version {self.version} was read: throw away what was "
                       "read, and read again (with shadow=True readers keep the last version meanwhile)")

    def _call(self, function: Any, argument: Any) -> int:
        return int(self._inference._raw(function, argument))
