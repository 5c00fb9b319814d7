#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The parameters of one engine rank, as `weft model check --live` and `weft-worker --live-params`
read them: one JSON object a line.

In the engine's process of that rank:

    import engine_params
    engine_params.write(model, "rank0.jsonl")
"""
import json


def rows(model):
    """`model`: anything with torch's named_parameters(). Parameters that share memory (tied
    weights) are named once, as torch does."""
    for name, parameter in model.named_parameters():
        yield {"name": name, "shape": list(parameter.shape), "dtype": str(parameter.dtype),
               "bytes": parameter.numel() * parameter.element_size()}


def write(model, path):
    with open(path, "w", encoding="utf-8") as file:
        for row in rows(model):
            file.write(json.dumps(row) + "\n")
