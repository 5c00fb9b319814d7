# SPDX-License-Identifier: Apache-2.0
"""Megatron-Core: parameters matched with those that declare_model gave the trainer, and the train spec of a running
job.

What of which tensor of the checkpoint is where in a parameter of Megatron's is known to weft (docs/sources.md), by the
names of the TransformerEngine specification. Modules of the other specification and of SequentialMLP have other names
for the same.
"""
from __future__ import annotations

import re
from typing import Any, Collection, Iterator, Mapping, NamedTuple, Optional, cast

import torch

from weft import TensorView, UsageError
from weft.torch._survey import Local, Modules, Survey, modules_of

#: What a parameter may be called in weft's list: (pattern, replacement), tried in this order until one is there.
_OTHER_NAMES = tuple((re.compile(pattern), other) for pattern, other in (
    (r"\.input_layernorm\.(weight|bias)$", r".self_attention.linear_qkv.layer_norm_\1"),
    (r"\.input_layernorm\.(weight|bias)$", r".self_attention.in_proj.layer_norm_\1"),
    (r"\.pre_mlp_layernorm\.(weight|bias)$", r".mlp.linear_fc1.layer_norm_\1"),
    (r"\.self_attention\.q_layernorm\.(weight|bias)$", r".self_attention.linear_q_up_proj.layer_norm_\1"),
    (r"\.self_attention\.kv_layernorm\.(weight|bias)$", r".self_attention.linear_kv_up_proj.layer_norm_\1"),
    (r"\.local_experts\.(\d+)\.(linear_fc[12])\.(weight|bias)$", r".\2.\3\1"),
    (r"^((?:chunk\d+\.)?mtp\.layers\.\d+)\.mtp_model_layer\.", r"\1.transformer_layer."),
    (r"^model\.(.*_flat_param)$", r"\1"),
))
#: The memory of all experts in one is [experts, hidden, theirs], which is not what torch shows.
_RESHAPED = re.compile(r".*\.experts\.weight[12]")
_VOCABULARY = re.compile(r"(?:chunk\d+\.)?(?:embedding\.word_embeddings|output_layer)\.weight")


class Matched(NamedTuple):
    """Attributes:
        matched: by the name in weft's list.
        extra: parameters that are in no tensor of the list.
    """
    matched: dict[str, Local]
    extra: list[Local]


def _names_of(name: str) -> Iterator[str]:
    yield name
    for pattern, other in _OTHER_NAMES:
        changed, times = pattern.subn(other, name)
        if times:
            yield changed
            yield from (further for further in _names_of(changed) if further != changed)


def matched(views: Mapping[str, TensorView], survey: Survey, made: Collection[str]) -> Matched:
    """Each of the model's parameters, and the tensor of the trainer that it is.

    Args:
        made: tensors that have no parameter: the user's function makes them.
    """
    found: dict[str, Local] = {}
    extra = []
    for local in survey.locals:
        name = next((name for name in _names_of(local.name) if name in views and name not in made), None)
        if name is None:
            extra.append(local)
        elif name in found:
            raise UsageError(f"{local.name!r} and {found[name].name!r} of the model are both {name!r}")
        else:
            found[name] = local
    return Matched(found, [local for local in extra if not _is_derived(local, made)])


def _is_derived(local: Local, made: Collection[str]) -> bool:
    """What is sent as something that the trainer makes of it: ``.._plus_one``, ``.._in_turn`` (docs/sources.md)."""
    return any(f"{name}{suffix}" in made for name in _names_of(local.name) for suffix in ("_plus_one", "_in_turn"))


def is_buffer(name: str) -> bool:
    """The buffer of Megatron's that its checkpoints' models have: the bias of a router."""
    return name.endswith(".router.expert_bias")


def same_shape(name: str, have: tuple[int, ...], want: tuple[int, ...]) -> bool:
    """As torch shows it, or only as memory where that is known to differ."""
    return have == want or _RESHAPED.fullmatch(name) is not None


def is_padding(local: Local, config: Any) -> bool:
    """A share of the vocabulary that is all behind its end: in no box of the checkpoint."""
    if config is None or not _VOCABULARY.fullmatch(local.name):
        return False
    from megatron.core import parallel_state
    size = config["vocab_size"] if isinstance(config, Mapping) else config.vocab_size
    return bool(parallel_state.get_tensor_model_parallel_rank() * local.shape[0] >= size)


# ---- a running job's own words

def megatron_train(model: Optional[Modules] = None, *, vocab_pad: Optional[int] = None, **changes: Any) -> str:
    """The train spec of the Megatron-Core job that this process is in, for the controller and ``declare_model``: its
    grid is parallel_state's, and layers and experts are cut as the model's TransformerConfig says. The same on every
    rank.

    Args:
        model: the rank's model, wrapped or not, or its chunks. None: the grid alone, for layers cut evenly.
        vocab_pad: Megatron-LM's --make-vocab-size-divisible-by, which the model does not keep. None: 128.
        changes: keys of the spec that are to be other, or None to leave them out (``grouped="each"``).

    Returns:
        "world=16,source=megatron,tp=2,pp=2,..".
    """
    from megatron.core import parallel_state as grid
    keys: dict[str, Any] = {
        "world": torch.distributed.get_world_size(), "source": "megatron",
        "tp": grid.get_tensor_model_parallel_world_size(), "pp": grid.get_pipeline_model_parallel_world_size(),
        "cp": grid.get_context_parallel_world_size(), "ep": grid.get_expert_model_parallel_world_size(),
        "etp": grid.get_expert_tensor_parallel_world_size(),
        "vpp": grid.get_virtual_pipeline_model_parallel_world_size() or 1}
    keys["order"] = _order(keys)
    if model is not None:
        keys.update(_of_config(next(module.config for module in _all_modules(model) if hasattr(module, "config"))))
    keys["vocab_pad"] = vocab_pad
    keys.update(changes)
    if "layout" in keys and keys["layout"]:
        keys["vpp"] = None
    ones = {key for key in ("tp", "pp", "cp", "ep", "vpp") if keys.get(key) == 1}
    if keys.get("etp") == keys.get("tp") or keys.get("ep") == 1 and keys.get("etp") == 1 and "etp" not in changes:
        ones.add("etp")
    return ",".join(f"{key}={value}" for key, value in keys.items() if value is not None and key not in ones)


def _all_modules(model: Modules) -> Iterator[torch.nn.Module]:
    for module in modules_of(model):
        yield from module.modules()


def _order(keys: Mapping[str, Any]) -> Optional[str]:
    """Which of pp and dp is counted first: by how far the ranks of a pipeline are apart."""
    from megatron.core import parallel_state as grid
    if keys["pp"] == 1:
        return None
    first, second = torch.distributed.get_process_group_ranks(grid.get_pipeline_model_parallel_group())[:2]
    dense, apart = keys["tp"] * keys["cp"], second - first
    if apart == keys["world"] // keys["pp"]:
        return None
    if apart == dense:
        return "tp-cp-ep-pp-dp"
    raise UsageError(f"Megatron's pipeline stages are {apart} ranks apart; of the orders that weft has it is "
                     f"{keys['world'] // keys['pp']} (tp-cp-ep-dp-pp) or {dense} (tp-cp-ep-pp-dp)")


def _of_config(config: Any) -> dict[str, Any]:
    """Keys of a TransformerConfig's fields that say other than their defaults."""
    layout = getattr(config, "pipeline_model_parallel_layout", None)
    layout = getattr(layout, "input_data", layout)
    if layout is not None and not isinstance(layout, str):
        raise UsageError("pipeline_model_parallel_layout is a list: give Megatron the string (\"Ett|tt|ttL\"), or "
                         "megatron_train(model, layout=\"..\")")
    rows = (("first", "num_layers_in_first_pipeline_stage"), ("last", "num_layers_in_last_pipeline_stage"),
            ("glu_interleave", "moe_mlp_glu_interleave_size"),
            ("shared_glu_interleave", "moe_shared_expert_glu_interleave_size"), ("mtp", "mtp_num_layers"))
    flags = (("account_embedding", "account_for_embedding_in_pipeline_split"),
             ("account_loss", "account_for_loss_in_pipeline_split"))
    keys: dict[str, Any] = {key: getattr(config, field, None) or None for key, field in rows}
    keys.update((key, 1) for key, field in flags if getattr(config, field, False))
    keys["layout"] = layout
    if layout is not None:
        keys["mtp"] = None  # the layout has its m
    if getattr(config, "moe_use_legacy_grouped_gemm", False) and getattr(config, "moe_grouped_gemm", False):
        keys["grouped"] = "legacy"
    elif getattr(config, "moe_single_grouped_weight", False):
        keys["grouped"] = "one"
    return keys


def synchronised(model: Modules) -> None:
    """Megatron's distributed optimizer with overlap_param_gather gathers the new parameters only in the next forward:
    until then most of them are of the last step. They are gathered now, on all ranks of the data-parallel group."""
    for module in _all_modules(model):
        settings = getattr(module, "ddp_config", None)
        if getattr(settings, "overlap_param_gather", False):
            cast(Any, module).start_param_sync(force_sync=True)
