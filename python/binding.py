#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the binding, out of the installed headers, which are the only place where the interface stands:

    binding.py OUTPUT HEADER...       as binding.py weft/_binding.py ../worker/api/weft_base.h ../worker/api/weft.h

What comes out is cffi's module of the ABI mode: names, types and offsets, no machine code. It is the same for every
Python, and needs no compiler, neither here nor where it is used.
"""
from __future__ import annotations

import pathlib
import re
import sys

import cffi

COMMENT = re.compile(r"/\*.*?\*/", re.S)
# what only C++ sees, and what C++ and C see differently; the marks around the file
CONDITIONAL = re.compile(r"^#ifdef __cplusplus\n(?:(?!^#(?:ifdef|if|else|endif)).*\n)*"
                         r"(?:^#else\n(?:(?!^#endif).*\n)*)?^#endif.*\n", re.M)
INLINE = re.compile(r"^static inline .*?^}\n", re.M | re.S)
NUMBER = re.compile(r"^#define\s+(WEFT_[A-Z_]+)\s+(\d+)\s*$")


def declarations(text: str) -> str:
    """A header as cffi reads it: without comments, directives and functions that it defines itself."""
    text = INLINE.sub("", CONDITIONAL.sub("", COMMENT.sub("", text)))
    kept = []
    for line in text.splitlines():
        if line.startswith("#"):
            number = NUMBER.match(line)
            if number:
                kept.append(f"#define {number.group(1)} {number.group(2)}")
            continue
        kept.append(line.replace("WEFT_API ", ""))
    return "\n".join(line for line in kept if line.strip())


def builder(headers: list[pathlib.Path]) -> cffi.FFI:
    """All of it, checked as far as it can be without a compiler."""
    ffi = cffi.FFI()
    for header in headers:
        ffi.cdef(declarations(header.read_text()))
    ffi.set_source("weft._binding", None)
    return ffi


def main() -> int:
    if len(sys.argv) < 3:
        print("usage: binding.py OUTPUT HEADER...", file=sys.stderr)
        return 2
    output, headers = pathlib.Path(sys.argv[1]), [pathlib.Path(name) for name in sys.argv[2:]]
    builder(headers).emit_python_code(str(output))
    return 0


if __name__ == "__main__":
    sys.exit(main())
