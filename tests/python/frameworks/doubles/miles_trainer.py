# SPDX-License-Identifier: Apache-2.0
"""A trainer rank as miles' and slime's actors are, written from their sources (miles 31f1ca961, slime 624b824a8): a real
Megatron-Core model over real gloo groups, the modules that weft.miles touches, Ray's remote calls as threads that post.

    python miles_trainer.py FRAMEWORK RANK WORLD FOLDER URL,URL,.. COUNTS      reads a line each: connect, update VERSION, ..;
                                                                            answers with one, "ok .." or "error .."
"""
import concurrent.futures
import json
import os
import pathlib
import sys
import types
import urllib.error
import urllib.request
import zlib

import torch
import torch.distributed as dist
from put import module

CONFIG = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 64, "num_attention_heads": 4,
          "num_key_value_heads": 2, "intermediate_size": 96, "num_hidden_layers": 2, "vocab_size": 256, "rms_norm_eps": 1e-6,
          "max_position_embeddings": 128, "tie_word_embeddings": False, "torch_dtype": "bfloat16", "hidden_act": "silu"}
HEAD, PER_GROUP = 16, 2  # of queries for a pair of key and value


def shapes():
    """The checkpoint's tensors."""
    hidden, inner, kv = CONFIG["hidden_size"], CONFIG["intermediate_size"], CONFIG["num_key_value_heads"] * HEAD
    found = {"model.embed_tokens.weight": [256, hidden], "model.norm.weight": [hidden], "lm_head.weight": [256, hidden]}
    for layer in range(CONFIG["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        found.update({f"{at}self_attn.q_proj.weight": [hidden, hidden], f"{at}self_attn.k_proj.weight": [kv, hidden],
                      f"{at}self_attn.v_proj.weight": [kv, hidden], f"{at}self_attn.q_proj.bias": [hidden],
                      f"{at}self_attn.k_proj.bias": [kv], f"{at}self_attn.v_proj.bias": [kv],
                      f"{at}self_attn.o_proj.weight": [hidden, hidden], f"{at}mlp.gate_proj.weight": [inner, hidden],
                      f"{at}mlp.up_proj.weight": [inner, hidden], f"{at}mlp.down_proj.weight": [hidden, inner],
                      f"{at}input_layernorm.weight": [hidden], f"{at}post_attention_layernorm.weight": [hidden]})
    return found


def value(name, version):
    generator = torch.Generator().manual_seed(zlib.crc32(f"{name} {version}".encode()))
    return torch.randn(shapes()[name], generator=generator).to(torch.bfloat16)


def shard(name, version, rank, world):
    """A Megatron parameter of the local specification, cut by hand."""
    def cut(tensor, dim=0):
        return tensor.chunk(world, dim)[rank]
    layer = name.split(".")[2] if ".layers." in name else ""
    at = f"model.layers.{layer}."
    if name == "embedding.word_embeddings.weight":
        return cut(value("model.embed_tokens.weight", version))
    if name == "output_layer.weight":
        return cut(value("lm_head.weight", version))
    if name == "decoder.final_layernorm.weight":
        return value("model.norm.weight", version)
    if name.endswith("linear_qkv.weight") or name.endswith("linear_qkv.bias"):
        kind = name.rpartition(".")[2]
        q, k, v = (value(f"{at}self_attn.{one}_proj.{kind}", version) for one in "qkv")
        groups = [part for group in range(k.shape[0] // HEAD) for part in (
            q[group * PER_GROUP * HEAD:(group + 1) * PER_GROUP * HEAD], k[group * HEAD:(group + 1) * HEAD],
            v[group * HEAD:(group + 1) * HEAD])]
        return cut(torch.cat(groups))
    if name.endswith("linear_proj.weight"):
        return cut(value(f"{at}self_attn.o_proj.weight", version), 1)
    if name.endswith("linear_fc1.weight"):
        return torch.cat([cut(value(f"{at}mlp.{one}_proj.weight", version)) for one in ("gate", "up")])
    if name.endswith("linear_fc2.weight"):
        return cut(value(f"{at}mlp.down_proj.weight", version), 1)
    if name.endswith("input_layernorm.weight"):
        return value(f"{at}input_layernorm.weight", version)
    assert name.endswith("pre_mlp_layernorm.weight"), name
    return value(f"{at}post_attention_layernorm.weight", version)


def megatron(rank, world):
    from megatron.core import parallel_state, tensor_parallel
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.transformer import TransformerConfig

    torch.cuda.current_device = lambda: torch.device("cpu")
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=world)
    tensor_parallel.random.initialize_rng_tracker()
    config = TransformerConfig(num_layers=2, hidden_size=64, ffn_hidden_size=96, num_attention_heads=4, num_query_groups=2,
                               kv_channels=HEAD, tensor_model_parallel_size=world, use_cpu_initialization=True,
                               gated_linear_unit=True, add_bias_linear=False, add_qkv_bias=True, normalization="RMSNorm",
                               bf16=True, params_dtype=torch.bfloat16, perform_initialization=False)
    model = GPTModel(config, get_gpt_layer_local_spec(normalization="RMSNorm"), vocab_size=256, max_sequence_length=128,
                     share_embeddings_and_output_weights=False, position_embedding_type="rope")
    return model.to(torch.bfloat16)  # torch's norms are not made as params_dtype says


# ---- Ray, and the engine's actor

POOL = concurrent.futures.ThreadPoolExecutor(8)


class GetTimeoutError(TimeoutError):
    pass


def ray_get(refs, timeout=None):
    try:
        return [ref.result(timeout) for ref in refs]
    except concurrent.futures.TimeoutError:
        raise GetTimeoutError("Get timed out") from None


class Remote:
    def __init__(self, function):
        self.remote = lambda *arguments, **named: POOL.submit(function, *arguments, **named)


class RolloutEngine:
    """SGLangEngine of both; each method of its actor handle has .remote."""

    def __init__(self, url, modes):
        for name in ("init_weights_update_group", "destroy_weights_update_group", "update_weights_from_distributed",
                     "pause_generation", "continue_generation", "flush_cache"):
            setattr(self, name, Remote(getattr(self, f"_{name}")))
        self._url, self._modes = url, modes

    def _post(self, route, body):
        request = urllib.request.Request(self._url + route, json.dumps(body).encode())
        try:
            with urllib.request.urlopen(request, timeout=100) as answer:
                return answer.read()
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{error.code} Client Error for url: {route}\nresponse.text={error.read().decode()!r}") from None

    def _init_weights_update_group(self, master_address, master_port, rank_offset, world_size, group_name, backend):
        self._post("/init_weights_update_group", {"master_address": master_address, "master_port": master_port,
                                                  "rank_offset": rank_offset, "world_size": world_size,
                                                  "group_name": group_name, "backend": backend})

    def _destroy_weights_update_group(self, group_name):
        try:
            self._post("/destroy_weights_update_group", {"group_name": group_name})
        except RuntimeError:
            pass

    def _update_weights_from_distributed(self, names, dtypes, shapes, group_name, flush_cache=False, weight_version=None):
        self._post("/update_weights_from_distributed", {"names": names, "dtypes": dtypes, "shapes": shapes,
                                                        "group_name": group_name, "flush_cache": flush_cache,
                                                        "weight_version": weight_version})

    def _pause_generation(self, **mode):
        assert bool(mode) == self._modes, mode  # slime's has no modes
        self._post("/pause_generation", mode)

    def _continue_generation(self):
        self._post("/continue_generation", {})

    def _flush_cache(self):
        self._post("/flush_cache", {})


def main():
    framework, rank, world, folder, urls, counts = sys.argv[1:]
    rank, world, folder = int(rank), int(world), pathlib.Path(folder)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous-trainers", rank=rank, world_size=world)
    model = megatron(rank, world)
    module("ray", get=ray_get, nodes=lambda: [{"Alive": True}])
    module(f"{framework}.utils.distributed_utils", get_gloo_group=lambda: dist.group.WORLD)
    actor = module(f"{framework}.backends.megatron_utils.actor", UpdateWeightP2P=None, UpdateWeightFromDistributed=None)

    class Iterator:
        """Whole tensors in buckets, on every rank."""

        @staticmethod
        def create(args, model, **_):
            return Iterator()

        def get_hf_weight_chunks(self, weights):
            names = list(shapes())
            for first in range(0, len(names), 5):
                yield [(name, value(name, weights)) for name in names[first:first + 5]]
    module(f"{framework}.backends.megatron_utils.update_weight.hf_weight_iterator_base", HfWeightIteratorBase=Iterator)
    args = types.SimpleNamespace(hf_checkpoint=str(folder), rollout_num_gpus_per_engine=1, colocate=False)
    if framework == "miles":
        args.update_weight_transfer_mode, args.p2p_transfer_timeout, args.p2p_transfer_num_workers = "p2p", 20.0, 2
        args.pause_generation_mode = "retract"

    import weft.miles

    weft.miles.install(args)
    chosen = actor.UpdateWeightP2P if framework == "miles" else actor.UpdateWeightFromDistributed
    now = [0]
    updater = chosen(args, [model], weights_getter=lambda: now[0], model_name="qwen2", quantization_config=None)
    engines = [RolloutEngine(url, framework == "miles") for url in urls.split(",")]
    for line in sys.stdin:
        what, *words = line.split()
        try:
            if what == "connect":
                updater.connect_rollout_engines(engines, None, engine_gpu_counts=list(map(int, counts.split(","))))
                said = ""
            elif what == "disconnect":
                updater.disconnect_rollout_engines()
                said = ""
            elif what == "die":
                os._exit(9)
            else:
                now[0] = int(words[0])
                with torch.no_grad():
                    for name, parameter in model.named_parameters():
                        parameter.copy_(shard(name, now[0], rank, world))
                updater.update_weights()
                said = json.dumps(updater.pop_metrics())
            print("ok", updater.weight_version, said, flush=True)
        except Exception as error:
            print("error", updater.weight_version, type(error).__name__, str(error).replace("\n", " "), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
