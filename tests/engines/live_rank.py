# SPDX-License-Identifier: Apache-2.0
"""A rank of an engine that runs: its own model, loaded and processed as the engine does it, which then receives a version from
real trainers; and the same of the new checkpoint through the engine's own loader, to compare every tensor with.

    forked(engine, before, after, case, rank, endpoint)   what came of it, from a process of its own: an engine is for one rank"""
import os
import pathlib
import pickle
import tempfile
import traceback

import loaders
import torch
from safetensors.torch import load_file

import weft.engines
from weft.engines._engine import layers_of
from weft.engines._state import equal, state_of

WAIT_S = 100


def stand_ins(engine):
    """What runs experts of BF16 on a processor wants kernels that vLLM's wheel has not; Triton's keep weights as they are."""
    if engine.name != "vllm":
        return
    import vllm.model_executor.layers.fused_moe.unquantized_fused_moe_method as method
    from vllm.model_executor.layers.fused_moe.oracle import unquantized

    triton = unquantized.UnquantizedMoeBackend.TRITON
    kernels = unquantized.backend_to_kernel_cls(triton)
    chosen = triton, kernels[0] if isinstance(kernels, (list, tuple)) else kernels
    method.select_unquantized_moe_backend = lambda *_, **__: chosen
    torch.ops._C.causal_conv1d_weight_pack = lambda weight: weight


def running(engine, folder, case, rank):
    """The engine's own model with the weights of a folder, as it computes with them; and weft.engines' view of it."""
    kept = {}

    def keep(model, load, process=None):
        load(model)
        kept["model"] = model
        if engine.name == "vllm":
            from vllm.config import get_current_vllm_config

            kept["config"] = get_current_vllm_config()
        return {}
    loaders.parameters_of = keep
    engine.load(pathlib.Path(folder), rank, case.setup)
    seen = weft.engines.engine_of(kept["model"], kept.get("config"))
    with torch.no_grad():
        seen.process(seen.model, seen.context())
    return seen


def received(engine, before, after, case, rank, endpoint):
    """(way, notes, [what differs from a load of the new checkpoint])"""
    seen = running(engine, before, case, rank)
    with weft.engines.Receiver(seen.model, endpoint, config=seen.config) as receiver:
        receiver.join(WAIT_S)
        assert receiver.receive(1, WAIT_S) == 1 and receiver.version == 1 and not receiver.tainted
        way, notes = receiver.way, receiver.notes
    fresh, context = seen.scratch(layers_of(seen.hf_config()))
    with torch.no_grad():
        seen.load(fresh, context, iter(load_file(pathlib.Path(after) / "model.safetensors").items()))
        seen.process(fresh, context)
    mine, theirs = state_of(seen.model), state_of(fresh)
    return way, notes, [name for name in theirs if name not in mine or not equal(mine[name], theirs[name])], len(theirs)


def forked(engine, before, after, case, rank, endpoint):
    """(process, file): what ``received`` gave, or the traceback as a string, when the process has ended."""
    file = pathlib.Path(tempfile.mkstemp(suffix=".result")[1])
    child = os.fork()
    if child == 0:
        try:
            result = received(engine, before, after, case, rank, endpoint)
        except BaseException:
            result = traceback.format_exc()
        file.write_bytes(pickle.dumps(result))
        os._exit(0)
    return child, file


def ended(child, file):
    """Of ``forked``."""
    os.waitpid(child, 0)
    result = pickle.loads(file.read_bytes())
    file.unlink()
    assert not isinstance(result, str), result
    return result
