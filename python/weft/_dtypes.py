# SPDX-License-Identifier: Apache-2.0
"""Types of elements by the names that others give them. Ours are those of safetensors' header, as weft.h has them."""
from __future__ import annotations

from typing import Any, NamedTuple, Optional

from weft._errors import UsageError


class DType(NamedTuple):
    """A row of the table."""
    name: str                # ours
    bytes: int               # of an element
    torch: str               # torch.NAME, numpy and ml_dtypes have the same but as `others` says
    others: tuple[str, ...]  # further names
    typestr: Optional[str]   # of the array interfaces; None where they have no word for it
    dlpack: tuple[int, int]  # DLDataTypeCode, bits (DLPack's header, version 1.1)
    buffer: Optional[str]    # struct's character, of the buffer protocol


_ROWS = (
    DType("BF16", 2, "bfloat16", (), None, (4, 16), None),
    DType("F16", 2, "float16", ("half",), "<f2", (2, 16), "e"),
    DType("F32", 4, "float32", ("float",), "<f4", (2, 32), "f"),
    DType("F64", 8, "float64", ("double",), "<f8", (2, 64), "d"),
    DType("F8_E4M3", 1, "float8_e4m3fn", (), None, (10, 8), None),
    DType("F8_E5M2", 1, "float8_e5m2", (), None, (12, 8), None),
    DType("I64", 8, "int64", ("long",), "<i8", (0, 64), "q"),
    DType("I32", 4, "int32", ("int",), "<i4", (0, 32), "i"),
    DType("I16", 2, "int16", ("short",), "<i2", (0, 16), "h"),
    DType("I8", 1, "int8", (), "|i1", (0, 8), "b"),
    DType("U8", 1, "uint8", (), "|u1", (1, 8), "B"),
    DType("U64", 8, "uint64", (), "<u8", (1, 64), "Q"),
    DType("U32", 4, "uint32", (), "<u4", (1, 32), "I"),
    DType("U16", 2, "uint16", (), "<u2", (1, 16), "H"),
    DType("BOOL", 1, "bool", ("bool_",), "|b1", (6, 8), "?"),
)
_BY_NAME = {name.lower(): row for row in _ROWS for name in (row.name, row.torch, *row.others)}
BY_TYPESTR = {row.typestr: row for row in _ROWS if row.typestr}
BY_DLPACK = {row.dlpack: row for row in _ROWS}
BY_BUFFER = {**{row.buffer: row for row in _ROWS if row.buffer}, "l": _BY_NAME["i64"], "L": _BY_NAME["u64"]}


def dtype_of(given: Any) -> DType:
    """The row of a dtype: ours by name ("BF16"), torch's, numpy's, ml_dtypes', or their names ("bfloat16").

    Raises:
        UsageError: there is none.
    """
    if isinstance(given, DType):
        return given
    name = given if isinstance(given, str) else getattr(given, "name", None) or getattr(given, "__name__", None) or str(given)
    found = _BY_NAME.get(str(name).rpartition(".")[2].lower())
    if found is None:
        raise UsageError(f"dtype {given!r} is none that weft moves; it knows {', '.join(row.name for row in _ROWS)}, "
                         "and the names that torch and numpy have for them")
    return found


def dtype_name(given: Any) -> str:
    """weft's name of a dtype: ``dtype_name(torch.bfloat16) == "BF16"``."""
    return dtype_of(given).name
