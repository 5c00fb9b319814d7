# SPDX-License-Identifier: Apache-2.0
"""The groups of one scheduler process: a group is one Receiver, under the name that the init request gave it.

    open ----------------> group ----- update ----> group            all ranks are well
      |                      | \\
      v                      |  `----- update ----> group, mixed     some bytes came, a later version mends it
    nothing, all ranks       v
    closed theirs          ended (its reason is kept and told):      peer lost, memory given back, destroyed, init again

SGLang answers a request with what tensor-parallel rank 0 says. Whatever a rank does here is therefore followed by `agree`: every
rank tells how it fared, and all answer alike; rank 0 cannot report success over a rank that failed. An exception must not
leave a handler either: it would end the scheduler process."""
from __future__ import annotations

import dataclasses
import logging
import time
from typing import Any, Callable, Optional

from weft._errors import Error, StateError, UnsupportedError, UsageError
from weft.sglang._wire import Order, version_of

logger = logging.getLogger("weft.sglang")

#: In the text of an answer: parameters are of two versions. The process that has the HTTP routes reads it there.
MIXED = "weights are mixed"
#: After these the job goes on, and a later version recovers; after any other error of weft.h the worker is of no more use.
_RECOVERS = ("Aborted", "VersionError", "UsageError", "HookFailed", "WaitTimeout", "ChecksumError")


@dataclasses.dataclass
class Group:
    order: Order
    receiver: Any
    released: bool = False  # the weights' memory is given back at the moment


@dataclasses.dataclass
class Rank:
    """What this module needs to know of a scheduler, so that it needs no version of SGLang."""
    model: Any
    name: str  # "rank 1 of 4"
    agree: Callable[[Optional[str]], "list[Optional[str]]"]  # of all ranks: why each failed, or None
    refusal: Callable[[bool], Optional[str]]  # why this engine takes no weights now; True: it keeps its draft model as it is


groups: dict[str, Group] = {}
ended: dict[str, str] = {}  # why, of groups that are no more


def _receiver(model: Any, endpoint: dict[str, Any]) -> Any:
    from weft.engines import Receiver

    return Receiver(model, endpoint)


def words(error: BaseException) -> str:
    text = error.text if isinstance(error, Error) else str(error)
    return f"{type(error).__name__}: {text}"


def _attempt(act: Callable[[], Any]) -> tuple[Any, Optional[BaseException]]:
    """Also SystemExit and KeyboardInterrupt of a rank must be told to the others before they go on."""
    try:
        return act(), None
    except BaseException as error:
        return None, error


def _told(rank: Rank, error: Optional[BaseException]) -> Optional[str]:
    """Tells all ranks how this one fared; what failed on which, or None."""
    mine = None if error is None else f"{rank.name}: {words(error)}"
    if error is not None:
        logger.error("weft: %s", mine)
    failed = [one for one in rank.agree(mine) if one is not None]
    if error is not None and not isinstance(error, Exception):
        raise error
    return " | ".join(dict.fromkeys(failed)) or None


def close(name: str, why: str) -> Optional[str]:
    """Ends a group; what failed while it was closed."""
    group = groups.pop(name, None)
    if group is None:
        return None
    ended[name] = why
    _, error = _attempt(group.receiver.close)
    logger.info("weft: group %r has ended: %s", name, why)
    return None if error is None else words(error)


def open_group(rank: Rank, name: str, given: Any) -> tuple[bool, str]:
    """Handles init: two steps, so that a rank that refuses is heard before the others wait for it in join."""
    if name in groups:
        close(name, "init was asked for again")

    def made() -> Group:
        if not name:
            raise UsageError("group_name is empty: name the group, 'weft' for instance")
        order = Order.of(given)
        why = rank.refusal(order.draft == "keep")
        if why is not None:
            raise UnsupportedError(why)
        return Group(order, _receiver(rank.model, order.endpoint))

    started = time.monotonic()
    group, error = _attempt(made)
    failed = _told(rank, error)
    if failed is None:
        _, error = _attempt(lambda: group.receiver.join(group.order.join_timeout_s))
        failed = _told(rank, error)
    if failed is not None:
        ended[name] = failed
        if group is not None:
            _attempt(group.receiver.close)
        return False, f"weft: group {name!r} was not made: {failed}"
    groups[name] = group
    ended.pop(name, None)
    way = f"way {group.receiver.way}, in {time.monotonic() - started:.2f} s"
    logger.info("weft: group %r joined on %s, %s%s", name, rank.name, way, "".join(f"; {one}" for one in group.receiver.notes))
    return True, f"weft: group {name!r} joined on all ranks, {way}"


def _ready(rank: Rank, name: str, request: Any) -> tuple[Group, Optional[int]]:
    version = version_of(request)
    group = groups.get(name)
    if group is None:
        raise StateError(f"group {name!r} " + (f"has ended ({ended[name]})" if name in ended else "was never made here")
                         + ": POST /init_weights_update_group with backend 'weft' first, while the trainers join")
    if list(request.dtypes or []) or list(request.shapes or []):
        raise UsageError(f"group {name!r} is Weft's: dtypes and shapes stay empty, the trainers said them when they joined")
    if getattr(request, "selector", "all") == "draft":
        raise UnsupportedError("selector 'draft': Weft writes the target model only")
    if group.released:
        raise StateError("the weights' memory is released: POST /resume_memory_occupation with tags ['weights'] before an update")
    why = rank.refusal(group.order.draft == "keep")
    if why is not None:
        raise UnsupportedError(why)
    return group, version


def update(rank: Rank, name: str, request: Any) -> tuple[bool, str]:
    """Handles an update: (success, text). Nothing has changed if a rank was not ready."""
    ready, error = _attempt(lambda: _ready(rank, name, request))
    failed = _told(rank, error)
    if failed is not None:
        return False, f"weft: nothing was received, weights are as before: {failed}"
    group, version = ready
    started = time.monotonic()
    received, error = _attempt(lambda: group.receiver.receive(version, group.order.update_timeout_s))
    failed = _told(rank, error)
    if failed is None:
        took, stats = time.monotonic() - started, group.receiver.stats()
        logger.info("[weft] weights of version %s received: way=%s total=%.3fs write=%.3fs post_load=%.3fs", received,
                    group.receiver.way, took, stats.get("write_s", 0.0), stats.get("post_load_s", 0.0))
        return True, f"weft: version {received} received on all ranks in {took:.3f} s"
    return False, _after_failure(rank, name, group, error, failed)


def _after_failure(rank: Rank, name: str, group: Group, error: Optional[BaseException], failed: str) -> str:
    """A rank that has the version while another failed is as mixed, seen from the engine, as one that has half of it."""
    mixed = rank.agree("mixed" if error is None or group.receiver.tainted else None)
    lost = rank.agree("lost" if error is not None and type(error).__name__ not in _RECOVERS else None)
    text = f"weft: version not taken: {failed}"
    if any(mixed):
        text += f". The {MIXED} of two versions on {len([one for one in mixed if one])} of {len(mixed)} rank(s): do not " \
                "continue generation before an update has come whole, or start the server again"
    else:
        text += ". Weights are as before"
    if any(lost):
        close(name, failed)
        text += f". Group {name!r} has ended: init again for further updates"
    return text


def releasing(rank: Rank, keeps_addresses: bool) -> None:
    """Before the weights' memory is given back. Where that unmaps it, nobody may write there any more, and what resume maps
    is other memory: the groups end."""
    for name in list(groups):
        if keeps_addresses:
            groups[name].released = True
        else:
            close(name, f"release_memory_occupation gave the weights' memory back ({rank.name}); after resume init again")


def resumed() -> None:
    for group in groups.values():
        group.released = False
