# SPDX-License-Identifier: Apache-2.0
"""What `weft model layout` says of one rank, and a digest of it that only the layout changes."""
import hashlib
import json
import subprocess

PARTS = ("param", "offset", "bytes", "tensor", "src", "make", "from", "to", "scales")


def spec_of(engine, tp, ep, experts, option=""):
    """The experts of a vLLM of today are in a module of their own. option: what the runner of its experts asks for."""
    vllm = ",names=vllm" + (",routed_experts=1" if experts else "")
    return f"tp={tp}" + (f",ep={ep}" if ep > 1 else "") + (vllm if engine == "vllm" else "") + option


def pieces_of(weft, folder, spec, rank):
    done = subprocess.run([weft, "model", "layout", str(folder), "--infer", spec, "--rank", str(rank), "--json"],
                          check=True, capture_output=True, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def digest(pieces):
    """Of the pieces in any order, and of nothing that a line may say beside them."""
    lines = sorted(json.dumps([piece.get(part) for part in PARTS]) for piece in pieces)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]
