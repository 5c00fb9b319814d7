# SPDX-License-Identifier: Apache-2.0
"""What trainers send beside what an engine's checkpoint has: a layout was found on the checkpoint's shapes, and its loader
tried with the checkpoint's tensors. Others would be cut in the wrong places."""
from __future__ import annotations

from typing import Any, Mapping

from weft._dtypes import dtype_of
from weft._errors import ConflictError, UsageError
from weft._structs import Tensor
from weft.engines._engine import layers_of
from weft.engines._stacks import place_of

_FLOATS = ("F32", "BF16", "F16")  # are converted into each other


def must_fit(given: Mapping[str, Tensor], wanted: Mapping[str, Tensor], loader: str = "") -> None:
    """All that is wanted is given, in the same shape; through a loader in a dtype that it can tell from no other.

    Raises:
        UsageError: a tensor is missing. ConflictError: one is another.
    """
    missing = [name for name in wanted if name not in given]
    if missing:
        raise UsageError(f"the engine wants {len(missing)} tensors that the trainers do not send, first {missing[0]}; they send "
                         f"{len(given)}" + (f", from {next(iter(given))} on" if given else ""))
    for name, tensor in wanted.items():
        theirs = given[name]
        if tuple(theirs.shape) != tuple(tensor.shape):
            raise ConflictError(f"trainers send {name} {list(theirs.shape)}, and the engine's checkpoint has it "
                                f"{list(tensor.shape)}: send what the engine's model is")
        pair = dtype_of(theirs.dtype).name, dtype_of(tensor.dtype).name
        if loader and pair[0] != pair[1] and not all(dtype in _FLOATS for dtype in pair):
            raise ConflictError(f"trainers send {name} as {pair[0]}, and the engine's checkpoint has {pair[1]}: {loader}, which "
                                f"this engine needs, takes what it was made for. Send {pair[1]}")


def needed(checkpoint: Mapping[str, Tensor], config: "dict[str, Any]") -> dict[str, Tensor]:
    """Of a checkpoint, what an engine's loader makes parameters of: not a tied head, and no layers for drafts behind the
    model's own."""
    layers, tied = layers_of(config), bool(config.get("tie_word_embeddings"))
    found = {}
    for name, tensor in checkpoint.items():
        place = place_of(name)
        draft = place is not None and place.stack.endswith("model.layers.") and place.layer >= layers
        if not draft and not (tied and name.endswith("lm_head.weight")):
            found[name] = tensor
    return found
