# SPDX-License-Identifier: Apache-2.0
"""Options of a checkpoint engine as they come from a framework's configuration: "64k" for a number, "false" for false, a key with
a letter too few. Each worker says so when it makes its engine, by the key's whole name, and before any waits for another."""
from __future__ import annotations

from typing import Any, Callable, Mapping, NamedTuple

from weft import UsageError


class _Kind(NamedTuple):
    right: Callable[[Any], bool]
    words: str


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


_TEXT = "a text in quotes"
_FLAG = _Kind(lambda value: isinstance(value, bool), "true or false, without quotes")
_KINDS = {
    "bucket_bytes": _Kind(lambda value: value is None or _number(value) and isinstance(value, int) and value > 0,
                          "bytes as a whole number, 1 or more (67108864)"),
    "checksums": _FLAG,
    "rebuild_group": _FLAG,
    "release_after_refit": _FLAG,
    "timeout_s": _Kind(lambda value: _number(value) and value >= 0.001, "seconds as a number above 0 (300)"),
    "transport": _Kind(lambda value: isinstance(value, str), f"{_TEXT}, with commas between more (\"shm,tcp\")"),
}
_OTHER = _Kind(lambda value: value is None or isinstance(value, str), _TEXT)


def check(where: str, given: Mapping[str, Any], unknown: Mapping[str, Any]) -> None:
    """
    Args:
        where: of the configuration, without the option's name.
        given: options that the engine has, defaults included.
        unknown: those it has not.
    """
    for name, value in unknown.items():
        raise UsageError(f"{where}.{name} ({value!r}) is no option of weft's: there are {', '.join(sorted(given))}")
    for name, value in given.items():
        kind = _KINDS.get(name, _OTHER)
        if not kind.right(value):
            raise UsageError(f"{where}.{name} is {value!r}, of type {type(value).__name__}: give {kind.words}")
