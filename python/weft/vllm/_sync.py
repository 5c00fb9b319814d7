# SPDX-License-Identifier: Apache-2.0
"""The trainers' side of updates to vLLM, without a framework: a Sender on each trainer rank, and on rank 0 a client that tells
the servers. TRL's, OpenRLHF's, SkyRL's and vLLM's own trainer objects are made over it.

    rank 0   connect   post endpoint k to server k   ║  join           both block until all are there
             send      start, update(version)        ║  send(version)  the posts by a thread
                       finish(version)               after both
    rank r   connect   join;   send   send           with the same tensors

Where one side fails the other ends too: the error that comes out has both sides' words, the servers are told that the update
is over, and no version is reported."""
from __future__ import annotations

import importlib
import logging
import threading
import time
from typing import Any, Callable, Iterable, Optional

from weft._errors import Error, HostFailed, Interrupted, StateError, UsageError, WaitTimeout, of_code
from weft.vllm._client import UPDATE_S

logger = logging.getLogger("weft.vllm")

_GRACE_S = 30.0  # for the other side's words, after one side failed


class _Posted:
    """A post on a thread of its own, beside what this thread does with the sender. Where the post fails first, the sender's wait
    is ended: the servers will not come."""

    def __init__(self, post: Callable[[], None], sender: Any):
        self.error: Optional[BaseException] = None
        self._post, self._worker = post, getattr(sender, "trainer", sender)
        self._lock, self._acts, self._ended = threading.Lock(), True, False
        self._thread = threading.Thread(target=self._run, name="weft-post", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._post()
        except BaseException as error:  # told by the other thread
            self.error = error
            with self._lock:
                if self._acts:
                    self._ended = True
                    self._worker.interrupt()

    def acted(self) -> bool:
        """The other thread is done with the sender. Whether its wait was ended."""
        with self._lock:
            self._acts = False
            if self._ended:
                self._worker.interrupt_clear()
            return self._ended

    def over(self, timeout_s: float) -> bool:
        self._thread.join(timeout_s)
        return not self._thread.is_alive()


class WeightSync:
    """One trainer rank's.

    Args:
        tensors: what is sent, as of weft.engines.Sender; a function that gives it: called in ``connect``.
        client: on rank 0: weft.vllm.HTTPClient, or an object with init(endpoints), start(), update(version), finish(version),
            abandon() and world_sizes(). None on other ranks.
        rank, world: of the trainers.
        engines, ranks: replicas of the model in all servers, and inference ranks of one. None: rank 0 asks the servers.
        share: of several ranks: a function that gives every rank rank 0's value (torch.distributed.broadcast_object_list).
        update_timeout_s: of one update, on both sides.
        options: of weft.engines.Sender: bind, transport, key_file, insecure, layout, ..
    """

    def __init__(self, tensors: Any, client: Any = None, *, rank: int = 0, world: int = 1, engines: Optional[int] = None,
                 ranks: Optional[int] = None, share: Optional[Callable[[Any], Any]] = None,
                 join_timeout_s: Optional[float] = None, update_timeout_s: Optional[float] = None, **options: Any):
        if rank == 0 and client is None:
            raise UsageError("rank 0 tells the servers, and has no client: give weft.vllm.HTTPClient([\"http://host:8000\", ..])")
        if world > 1 and share is None:
            raise UsageError(f"trainer {rank} of world={world} has no share(): a function that gives all ranks rank 0's value")
        self._tensors, self.client, self.rank, self.world = tensors, client, rank, world
        self._engines, self._ranks, self._share, self._options = engines, ranks, share, options
        self._join_s, self._update_s = join_timeout_s, update_timeout_s
        self._sender: Any = None
        self._per_server = 1
        self._over = ""                  # why this job takes no more updates
        self.version = 0
        self._tried = 0                  # a version that was given up does not come again
        self.last: "dict[str, Any]" = {}

    @property
    def connected(self) -> bool:
        return self._sender is not None

    def connect(self) -> None:
        """Joins a job of all trainers and all servers. Again: a new job."""
        self.close()
        if self.rank == 0:
            self._connect_first()
            return
        engines, ranks, controller = self._shared(None)
        self._sender = self._made(engines, ranks, controller)
        self._joined()

    def _connect_first(self) -> None:
        """Whatever fails before the others know where the controller is has to be told them: they wait for that."""
        try:
            engines, ranks = self._sizes()
            self._sender = self._made(engines, ranks, None)
            endpoints = [self._sender.endpoint(i * self._per_server) for i in range(engines // self._per_server)]
        except BaseException as error:
            self._shared((0, 0, f"failed: {error}"))
            self.close()
            raise
        self._shared((engines, ranks, self._sender.controller))
        self._beside("init", lambda: self.client.init(endpoints), lambda: self._sender.join(self._join_s))

    def _sizes(self) -> "tuple[int, int]":
        if self._engines is not None and self._ranks is not None:
            return self._engines, self._ranks
        found = self.client.world_sizes()
        if len(set(found)) != 1:
            raise UsageError(f"servers have (ranks, replicas) {found}: a job's engines have to be alike")
        ranks, self._per_server = found[0]
        return len(found) * self._per_server, ranks

    def _made(self, engines: int, ranks: int, controller: Optional[str]) -> Any:
        tensors = self._tensors() if callable(self._tensors) else self._tensors
        return importlib.import_module("weft.engines").Sender(
            tensors, engines=engines, ranks=ranks, rank=self.rank, world=self.world, controller=controller,
            join_timeout_s=self._join_s, update_timeout_s=self._update_s, **self._options)

    def _shared(self, value: Any) -> Any:
        if self.world == 1:
            return value
        assert self._share is not None
        found = self._share(value)
        if self.rank and str(found[2]).startswith("failed: "):
            raise HostFailed(f"trainer 0 {found[2]}")
        return found

    def _joined(self) -> None:
        try:
            self._sender.join(self._join_s)
        except BaseException:
            self.close()
            raise

    def send(self, named: "Iterable[tuple[str, Any]]", version: Optional[int] = None) -> int:
        """One version to all servers; on every rank, with the same tensors. Returns it when it is what they serve (which a
        paused server does once it is resumed)."""
        if self._sender is None:
            raise StateError("send before connect: these trainers are in no job")
        if self._over:
            raise StateError(f"this job takes no more updates ({self._over}): connect again")
        version = max(self.version, self._tried) + 1 if version is None else version
        self._tried, began = version, time.monotonic()
        if self.rank:
            self._sent(lambda: self._sender.send(named, version))
        else:
            self._started()
            self._beside("update", lambda: self.client.update(version), lambda: self._sender.send(named, version))
            self.client.finish(version)
        self.version = version
        self.last = {**self._sender.stats(), "weight_sync_time_s": time.monotonic() - began}
        logger.info("version %d is with all engines: %.3f s", version, self.last["weight_sync_time_s"])
        return version

    def _started(self) -> None:
        """Where a server refuses, nothing was begun here; but other trainers are in ``send`` by now."""
        try:
            self.client.start()
        except BaseException as error:
            self.client.abandon()
            if self.world > 1:
                self._over = str(error)
                self._tell(str(error))
            raise

    def _sent(self, send: Callable[[], Any]) -> None:
        try:
            send()
        except BaseException as error:
            self._note(error)
            raise

    def _note(self, error: BaseException) -> None:
        """Whether a later version can mend it: what was given up can, a job that lost somebody cannot."""
        names = {each.__name__ for each in type(error).__mro__}
        if names & {"PeerLost", "HostFailed", "ControllerLost", "WaitTimeout", "Unsafe", "Interrupted"}:
            self._over = str(error)

    def _beside(self, what: str, post: Callable[[], None], act: Callable[[], Any]) -> None:
        """``post`` by a thread, ``act`` here. Out comes the first failure, with the other's words."""
        posted = _Posted(post, self._sender)
        try:
            act()
        except BaseException as error:
            # by us: the others of the job do not know yet. Who failed for a reason of its own has told them, and servers may
            # have answered to that before this thread was let run
            ended = posted.acted() and isinstance(error, Interrupted)
            posted.over(_GRACE_S)
            both = _joined_words(what, posted.error, error)
            if ended:
                self._tell(str(both))
            self._note(error)
            self._failed(what)
            raise both from error
        posted.acted()
        if not posted.over(self._update_s or UPDATE_S):
            late = WaitTimeout(f"{what}: the weights were sent, and servers do not answer")
            self._note(late)
            self._failed(what)
            raise late
        if posted.error is not None:
            self._failed(what)
            raise posted.error

    def _tell(self, text: str) -> None:
        """Everybody of the job, within a second; it is over then."""
        try:
            getattr(self._sender, "trainer", self._sender).fail(text)
        except Error as error:  # the job is over already
            logger.info("%s", error.text)

    def _failed(self, what: str) -> None:
        if what == "init":
            self.close()
        else:
            self.client.abandon()

    def __enter__(self) -> "WeightSync":
        self.connect()
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Leaves the job; servers hear it. Again: nothing."""
        sender, self._sender = self._sender, None
        self._over, self.version, self._tried = "", 0, 0
        if sender is not None:
            sender.close()


def _joined_words(what: str, posted: Optional[BaseException], acted: BaseException) -> BaseException:
    """One error of both: the servers' words come first where it was they that failed."""
    if not isinstance(acted, Exception) or posted is None:
        return acted
    if not isinstance(posted, Error):
        return HostFailed(f"{what}: {type(posted).__name__}: {posted}")
    own = acted.text if isinstance(acted, Error) else f"{type(acted).__name__}: {acted}"
    return of_code(posted.code, f"{posted.text}; here: {own}")
