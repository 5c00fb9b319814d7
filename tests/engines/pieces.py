# SPDX-License-Identifier: Apache-2.0
"""What `weft model layout` says of one rank, and a digest of it that only the layout changes."""
import hashlib
import json
import subprocess

PARTS = ("param", "offset", "bytes", "tensor", "src", "make", "from", "to", "scales")


def layout(weft, folder, spec, rank):
    return subprocess.run([weft, "model", "layout", str(folder), "--infer", spec, "--rank", str(rank), "--json"],
                          capture_output=True, text=True)


def pieces_of(weft, folder, spec, rank):
    done = layout(weft, folder, spec, rank)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def digest(pieces):
    """Of the pieces in any order, and of nothing that a line may say beside them."""
    lines = sorted(json.dumps([piece.get(part) for part in PARTS]) for piece in pieces)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]
