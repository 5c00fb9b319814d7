# SPDX-License-Identifier: Apache-2.0
"""The multimodal models that layouts are compared on: a shrunken text model beside the smallest tower that engines load."""

SIGLIP = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4, "image_size": 28,
          "patch_size": 14}
QWEN_TOWER = {"depth": 1, "num_heads": 4}
SECTIONS = {"rope_parameters": {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 10000}}


def towers(small, latent):
    """name: (transformers' model_type, its config's sizes)"""
    return {
        "gemma3-mm": ("gemma3", {"text_config": small | {"head_dim": 24, "model_type": "gemma3_text"},
                                 "vision_config": SIGLIP | {"vision_use_head": False}, "mm_tokens_per_image": 4}),
        "mistral3": ("mistral3", {"text_config": small | {"head_dim": 24, "model_type": "mistral"},
                                  "vision_config": SIGLIP | {"model_type": "pixtral", "head_dim": 8},
                                  "tie_word_embeddings": False}),
        "llava": ("llava", {"text_config": small | {"model_type": "llama"},
                            "vision_config": SIGLIP | {"model_type": "clip_vision_model"}}),
        "llava-pixtral": ("llava", {"text_config": small | {"head_dim": 24, "model_type": "mistral"},
                                    "vision_config": SIGLIP | {"model_type": "pixtral", "head_dim": 8},
                                    "vision_feature_select_strategy": "full"}),  # as published
        "kimi-vl": ("deepseek_v3", small | latent | {"q_lora_rank": None, "n_shared_experts": 2}),  # as published
        "qwen2-vl": ("qwen2_vl", {"text_config": small | SECTIONS,
                                  "vision_config": QWEN_TOWER | {"embed_dim": 32, "hidden_size": 64, "patch_size": 14}}),
        "qwen2.5-vl": ("qwen2_5_vl", {"text_config": small | SECTIONS,
                                      "vision_config": QWEN_TOWER | {"hidden_size": 32, "out_hidden_size": 64,
                                                                     "intermediate_size": 48}}),
        "qwen3-vl": ("qwen3_vl", {"text_config": small | SECTIONS | {"head_dim": 16},
                                  "vision_config": QWEN_TOWER | {"hidden_size": 32, "out_hidden_size": 64,
                                                                 "intermediate_size": 48, "num_position_embeddings": 16,
                                                                 "deepstack_visual_indexes": [0]}}),
        "kimi-k2.5": ("kimi_k25", {"text_config": small | latent | {"model_type": "deepseek_v3"},
                                   "vision_config": SIGLIP | {"pos_emb_height": 4, "pos_emb_width": 4},
                                   "projection_hidden_size": 32, "tie_word_embeddings": False}),
    }


# how published files call what transformers 5.23 writes otherwise; engines read the published names
# Kimi-VL's config and tower, of which transformers have no class: its text model is a DeepSeek-V3
KIMI_VL = {"architectures": ["KimiVLForConditionalGeneration"], "model_type": "kimi_vl", "dtype": "bfloat16",
           "tie_word_embeddings": False,
           "vision_config": {"model_type": "moonvit", "patch_size": 14, "init_pos_emb_height": 4, "init_pos_emb_width": 4,
                             "num_attention_heads": 4, "num_hidden_layers": 1, "hidden_size": 32, "intermediate_size": 48,
                             "merge_kernel_size": [2, 2]}}


def kimi_vl_tower(text_hidden, hidden=32, inner=48, merged=128):
    """The shapes of its tensors as published files name them."""
    block, projector = "vision_tower.encoder.blocks.0.", "multi_modal_projector."
    linears = {block + "wqkv": (3 * hidden, hidden), block + "wo": (hidden, hidden), block + "mlp.fc0": (inner, hidden),
               block + "mlp.fc1": (hidden, inner), projector + "linear_1": (merged, merged),
               projector + "linear_2": (text_hidden, merged), "vision_tower.patch_embed.proj": (hidden, 3, 14, 14),
               block + "norm0": (hidden,), block + "norm1": (hidden,), "vision_tower.encoder.final_layernorm": (hidden,),
               projector + "pre_norm": (hidden,)}
    shapes = {f"{name}.weight": shape for name, shape in linears.items()}
    shapes |= {f"{name}.bias": shape[:1] for name, shape in linears.items()}
    return shapes | {"vision_tower.patch_embed.pos_emb.weight": (4, 4, hidden)}


SIGLIP_NAMES = (("vision_tower.", "vision_tower.vision_model."),)
RENAMED = {
    "gemma3-mm": SIGLIP_NAMES,
    "llava": SIGLIP_NAMES,
    "kimi-k2.5": (("language_model.model.blocks.", "language_model.model.layers."),
                  ("model.mm_projector.", "mm_projector."),
                  ("vision_tower.encoder.patch_embed.", "vision_tower.patch_embed.")),
}
