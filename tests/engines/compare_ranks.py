# SPDX-License-Identifier: Apache-2.0
"""One engine rank beside its layout: what `weft model check` says of the engine's own list, and every byte.

        the engine's own load, in a fork        weft model layout --json        the checkpoint
        {name: (shape, dtype, bytes)}    <-->   pieces of its tensors     <--   the same file"""
import dataclasses
import faulthandler
import json
import os
import pickle
import subprocess
import sys
import traceback

from loaders import UNWRITTEN, Setup
from pieces import pieces_of

SECONDS_A_RANK = 240


@dataclasses.dataclass(frozen=True)
class Case:
    """How an engine is run, and what --infer says of it."""

    setup: Setup
    spec: str
    refused: str = ""  # what Weft says no with, where the engine does what no layout can be


@dataclasses.dataclass
class Found:
    parameters: int = 0
    bytes: int = 0
    lines: list = dataclasses.field(default_factory=lambda: ["the engine did not load it"])  # of weft model check
    bytes_differ: list = dataclasses.field(default_factory=list)
    chosen: str = ""  # what the engine runs experts with, where it says so


def spec_of(engine, setup, experts, option=""):
    """The experts of a newer vLLM are in a module of their own. option: what the runner of its experts asks for."""
    spec = f"tp={setup.tp}" + (f",ep={setup.ep}" if setup.ep > 1 else "") + (f",dp={setup.dp}" if setup.dp > 1 else "")
    if engine.name == "vllm":
        spec += ",names=vllm" + (",routed_experts=1" if experts and engine.routed_experts else "")
    return spec + option


def from_pieces(pieces, tensors, shapes):
    """The bytes of each parameter as the layout's pieces make them of the checkpoint, and which of them are padding: no piece
    writes them, or one that pads. They are zero."""
    import torch

    dtypes = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
    made = {name: bytearray(size) for name, size in shapes.items()}
    own = {name: bytearray(size) for name, size in shapes.items()}
    for piece in pieces:
        part = tensors[piece["tensor"]][tuple(slice(*pair) for pair in piece["src"])]
        how = piece.get("make", "copy")
        assert how in ("copy", "convert", "transpose") or how.startswith("pad "), piece
        if how == "transpose":
            part = part.transpose(-2, -1)
        part = part.to(dtypes[piece["to"]]) if piece.get("to") in dtypes else part
        mask = torch.ones_like(part, dtype=torch.uint8)
        if how.startswith("pad "):
            part, mask = (torch.nn.functional.pad(one.flatten(2), (0, int(how[4:]) - one[0, 0].numel())) for one in (part, mask))
        data = part.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        assert len(data) == piece["bytes"], piece
        place = slice(piece["offset"], piece["offset"] + len(data))
        made[piece["param"]][place] = data
        own[piece["param"]][place] = mask.repeat_interleave(part.element_size()).numpy().tobytes()
    return made, own


def check(weft, folder, spec, rank, parameters):
    """What `weft model check` says of the engine's list, and the names that it leaves alone."""
    live = folder / "live.jsonl"
    live.write_text("".join(json.dumps({"name": name, "shape": shape, "dtype": dtype}) + "\n"
                            for name, (shape, dtype, _) in parameters.items()))
    done = subprocess.run([weft, "model", "check", "--model", folder, "--infer", spec, "--rank", str(rank), "--live", live],
                          capture_output=True, text=True)
    lines = (done.stdout + done.stderr).splitlines()
    tail = ": no source, left alone"
    alone = {line.removesuffix(tail) for line in lines if line.endswith(tail)}
    return [line for line in lines if done.returncode and not line.endswith(tail)], alone


def differences(parameters, alone, pieces, tensors, padded):
    """Padding that the loader does not write either is what it was filled with before."""
    import torch

    sizes = {name: value.numel() * value.element_size() for name, (_, _, value) in parameters.items()}
    made, own = from_pieces([piece for piece in pieces if piece["param"] in parameters], tensors, sizes)
    for name, (shape, dtype, value) in parameters.items():
        if name in alone:
            continue
        data = value.reshape(-1).view(torch.uint8).numpy().tobytes()
        if padded and ".experts." in name:
            data = bytes(0 if byte == UNWRITTEN and not ours else byte for byte, ours in zip(data, own[name]))
        if data != bytes(made[name]):
            wrong = sum(a != b for a, b in zip(data, made[name]))
            yield f"{name} {shape} {dtype}: {wrong} of {len(data)} bytes differ"


def one_rank(engine, weft, folder, case, rank, out):
    """In a process of its own: the engine's parameters beside the layout, into a file."""
    from safetensors import safe_open

    with safe_open(folder / "model.safetensors", "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}
    parameters = engine.load(folder, rank, case.setup)
    found = Found(len(parameters), sum(value.numel() * value.element_size() for _, _, value in parameters.values()))
    found.chosen = getattr(engine, "chosen", "")
    found.lines, alone = check(weft, folder, case.spec, rank, parameters)
    if not found.lines:
        pieces = pieces_of(weft, folder, case.spec, rank)
        found.bytes_differ = list(differences(parameters, alone, pieces, tensors, "mxfp4_pad" in case.spec))
    out.write_bytes(pickle.dumps(found))


def forked(engine, weft, folder, case, rank) -> Found:
    out = folder / "result"
    out.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        try:
            faulthandler.dump_traceback_later(SECONDS_A_RANK, exit=True)
            one_rank(engine, weft, folder, case, rank, out)
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
    os.waitpid(child, 0)
    return pickle.loads(out.read_bytes()) if out.exists() else Found()
