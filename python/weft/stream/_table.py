# SPDX-License-Identifier: Apache-2.0
"""What lies where in a bucket: the table that each trainer sends beside its share.

    0     4 ────────────────────────────────────────────────────────────────┐ table_bytes
    | n | {"stream":1,"step":7,"bucket":0,"last":false,"tensors":[..]}  n B | unused

A row is [name, dtype, shape, start, offset, size]: bytes [start, start + size) of the tensor lie at ``offset`` of the bucket.
"""
from __future__ import annotations

import json
from typing import Any, NamedTuple, Optional, Sequence

from weft import ConflictError, UsageError

_LENGTH_BYTES = 4
_HEAD_BYTES = 160  # what stands around the rows, at most: three integers of 20 digits, one flag, five names


class Row(NamedTuple):
    """Part of a tensor, or all of it."""
    name: str
    dtype: str                # torch's word: "bfloat16"
    shape: tuple[int, ...]
    start: int                # of this part in the tensor, in bytes
    offset: int               # in the bucket
    size: int

    def __str__(self) -> str:
        return f"{self.name!r} {self.dtype} {list(self.shape)}, {self.size} bytes from its byte {self.start} on"


CLOSING = -1  # number of the bucket with which trainers leave


class Head(NamedTuple):
    """Of a bucket."""
    stream: int               # since join, from 1
    step: Optional[int]       # the framework's
    bucket: int               # of this stream, from 0; or CLOSING
    last: bool

    def __str__(self) -> str:
        return (f"stream {self.stream}, bucket {self.bucket}" + ("" if self.step is None else f", step {self.step}")
                + (", the last one" if self.last else ""))


class Draft:
    """The table of a bucket that is being packed; knows when it is full."""

    def __init__(self, table_bytes: int):
        self._capacity = table_bytes - _LENGTH_BYTES - _HEAD_BYTES
        self._rows: list[str] = []
        self._used = 0

    def add(self, row: Row) -> bool:
        """False: no room; the bucket is full.

        Raises:
            UsageError: nor has an empty table.
        """
        words = json.dumps(row, separators=(",", ":"))  # ASCII: a character is a byte
        if len(words) + 1 > self._capacity:
            raise UsageError(f"the name of a tensor has {len(row.name)} characters, from {row.name[:60]!r} on, and its row in the "
                             f"bucket's table takes {len(words)} bytes, more than the {self._capacity} there are: give all senders "
                             "and receivers a larger table_bytes")
        if self._used + len(words) + 1 > self._capacity:
            return False
        self._rows.append(words)
        self._used += len(words) + 1
        return True

    def encoded(self, head: Head) -> bytes:
        fields = json.dumps(head._asdict(), separators=(",", ":"))
        text = f"{fields[:-1]},\"tensors\":[{','.join(self._rows)}]}}".encode()
        return len(text).to_bytes(_LENGTH_BYTES, "little") + text


def used(table: memoryview) -> bytes:
    """The bytes of a table that came, without what lies behind them."""
    return bytes(table[:_LENGTH_BYTES + int.from_bytes(table[:_LENGTH_BYTES], "little")])


def decoded(table: bytes) -> tuple[Head, list[Row]]:
    try:
        given: dict[str, Any] = json.loads(table[_LENGTH_BYTES:])
        rows = [Row(name, dtype, tuple(shape), start, offset, size) for name, dtype, shape, start, offset, size in given["tensors"]]
        return Head(given["stream"], given["step"], given["bucket"], given["last"]), rows
    except (ValueError, KeyError, TypeError) as error:
        raise ConflictError(f"the table of a bucket cannot be read ({type(error).__name__}: {error}): it is none of weft.stream's, "
                            "or memory was written over; with checksums=True on all sides every piece is verified") from error


def difference(tables: Sequence[bytes]) -> Optional[str]:
    """None: all are equal. Otherwise the first tensor, or word of the head, in which a trainer differs from trainer 0."""
    rank = next((rank for rank, table in enumerate(tables) if table != tables[0]), None)
    if rank is None:
        return None
    (head, rows), (other_head, other_rows) = decoded(tables[0]), decoded(tables[rank])
    where = f"trainers 0 and {rank} do not send the same tensors in the same order"
    for at, (row, other) in enumerate(zip(rows, other_rows)):
        if row != other:
            return f"{where}: bucket {head.bucket}, entry {at}: trainer 0 has {row}; trainer {rank} has {other}"
    if len(rows) != len(other_rows):
        at, more, fewer = min(len(rows), len(other_rows)), rows, rank
        if len(other_rows) > len(rows):
            more, fewer = other_rows, 0
        return f"{where}: bucket {head.bucket}, entry {at}: {more[at]} is not there on trainer {fewer}"
    return f"{where}: trainer 0 is in {head}; trainer {rank} in {other_head}"
