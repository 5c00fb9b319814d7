# SPDX-License-Identifier: Apache-2.0
"""The one operation of vLLM's that SGLang's models call on a CPU without its kernels, in torch."""
import torch


def rotary_embedding(positions, query, key, head_size, cos_sin_cache, is_neox):
    cos, sin = cos_sin_cache[positions.flatten()].float().chunk(2, -1)
    cos, sin = cos[:, None], sin[:, None]
    for given in (query, key):
        heads = given.view(positions.numel(), -1, head_size)
        first, second = heads[..., :2 * cos.shape[-1]].float().chunk(2, -1)
        heads[..., :2 * cos.shape[-1]] = torch.cat([first * cos - second * sin, second * cos + first * sin], -1).to(heads.dtype)
