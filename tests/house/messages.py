# SPDX-License-Identifier: Apache-2.0
"""docs/messages.md, out of the tables of base/error.h and base/error_help.c.

    python3 tests/house/messages.py --write     # after either has changed
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "messages.md"
TEXT = r'"((?:[^"\\]|\\.)*)"'
HEAD = """# Messages

What a process says when it fails begins with a code, `WEFT-E130 deadline passed: ..`, and the message names what, where, the value seen and the one needed, and what to change. This page says what
holds for all messages of a code; so does `weft explain CODE`. Codes are numbers that keep their meaning ([abi](abi.md)); a program ends with the exit code beside it: 1 failed, 2 usage, 75 try again
(network, deadline, a lost worker), 78 bad configuration, which nobody should try again as it is. Metrics count them (`weft_failures_total`, [metrics](metrics.md)), JSON lines have them as `code` ([logs](logs.md)).

The page is made of `base/error.h` and `base/error_help.c` by `tests/house/messages.py`.

"""


def codes():
    """[(name, number, exit code, words)], in the order of error.h."""
    text = (ROOT / "base" / "error.h").read_text()
    return [(name, int(number), int(exit_code), words)
            for name, number, exit_code, words in re.findall(rf"X\((\w+), (\d+), (\d+), {TEXT}\)", text)]


def helps():
    """{name: (meaning, remedy)} of error_help.c."""
    text = re.sub(r'"\s*\n\s*"', "", (ROOT / "base" / "error_help.c").read_text())
    return {name: (meaning, remedy) for name, meaning, remedy in re.findall(rf"ROW\((\w+),\s*{TEXT},\s*{TEXT}\)", text)}


def page():
    found = helps()
    parts = [HEAD]
    for name, number, exit_code, words in codes():
        meaning, remedy = found[name]
        parts.append(f"## WEFT-E{number}\n\n{words[0].upper()}{words[1:]}. In C `WEFT_E_{name}`, exit code {exit_code}.\n\n"
                     f"{meaning}\n\n*What to do:* {remedy}\n\n")
    return "".join(parts).rstrip("\n") + "\n"


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit(__doc__)
    PAGE.write_text(page())
