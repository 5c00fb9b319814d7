# SPDX-License-Identifier: Apache-2.0
"""Whole small models of every family, with the options that engines have, through real processes:
every byte of every parameter on every rank is what numpy makes of the checkpoint (engine_layout.py:
no code of Weft), also where it is converted, quantised or taken out of its blocks on the way."""
import json

import pytest

import contents
import job as jobs

GATHERED, STAGES = "world=2,source=gathered", "world=4,pp=2,source=gathered"
CASES = [
    # model, trainers, an engine, flags of all workers
    ("qwen2", STAGES, "engines=2,tp=2,dtype=F16", ["--checksums"]),
    ("llama", "world=3,source=gathered", "engines=1,tp=4,dp=2,names=vllm,dtype=BF16", []),
    ("llama", "world=4,fsdp=4,source=sharded", "engines=1,tp=2,dtype=F16", ["--checksums"]),
    ("qwen3", "world=4,fsdp=2,source=sharded", "engines=2,tp=2,fp8=8x8", ["--checksums"]),
    ("glm4", "world=4,pp=2,fsdp=2,source=sharded", "engines=1,tp=2,dtype=F32", []),
    ("qwen3-moe", STAGES, "engines=1,tp=4,ep=2,gate=F32,fp8=8x8", ["--checksums"]),
    ("qwen3-moe", "world=2,fsdp=2,source=sharded", "engines=1,tp=4,ep=4,dp=2,dp_lm_head=1,fp8=8x16", []),
    ("qwen3-moe", GATHERED, "engines=2,tp=3,ep=3,dp=3,names=vllm", []),
    ("glm4-moe", GATHERED, "engines=1,tp=4,fuse_shared=1,gate=F32", ["--checksums"]),
    ("glm4-moe", "world=3,fsdp=3,source=sharded", "engines=1,tp=4,ep=4,dp=4,dp_lm_head=1,moe_dense_tp=1,a2a=1", []),
    ("glm4-moe-lite", STAGES, "engines=1,tp=4,ep=4,names=vllm,gate=F32", []),
    ("glm4-moe-lite", "world=4,fsdp=2,source=sharded", "engines=2,tp=2,fuse_shared=1,fp8=4x4", ["--checksums"]),
    ("moonlight", "world=4,pp=2,fsdp=2,source=sharded", "engines=1,tp=4,ep=2,dp=2,embed_replicated=1,a2a=1", []),
    ("deepseek-v2", GATHERED, "engines=1,tp=2,ep=2,dp=2,dp_lm_head=1,fp8=16x8", []),
    ("deepseek-fp8", GATHERED, "engines=1,tp=4,ep=4,dp=2,a2a=1,fp8=none", ["--checksums"]),
    ("deepseek-fp8", "world=2,fsdp=2,source=sharded", "engines=1,tp=2,fuse_shared=1", []),
    ("deepseek-fp8", STAGES, "engines=1,tp=2,ep=2,fp8=4x8", ["--checksums"]),
    ("deepseek-fp8", "world=2,fsdp=2,source=sharded", "engines=1,tp=2,fuse_shared=1,expert_halves=up_gate", []),
    ("qwen3-moe", STAGES, "engines=1,tp=4,ep=4,names=vllm,routed_experts=1,fp8=8x8,expert_halves=up_gate", ["--checksums"]),
    ("deepseek-v32", GATHERED, "engines=1,tp=2,dtype=F16", []),
    ("deepseek-v32", GATHERED, "engines=1,tp=4,ep=4,dp=4,dp_lm_head=1,indexer=fused,fp8=8x8", ["--checksums"]),
    ("glm-dsa", "world=4,fsdp=2,source=sharded", "engines=1,tp=2,ep=2,indexer=fused,gate=F32,moe_dense_tp=1", []),
]
# what a sanitized build runs of them: a copy, a conversion, blocks made, blocks changed
FEW = [
    ("glm4-moe", GATHERED, "engines=1,tp=2,fuse_shared=1,gate=F32", []),
    ("qwen3-moe", "world=2,fsdp=2,source=sharded", "engines=1,tp=2,ep=2,fp8=8x8", ["--checksums"]),
    ("deepseek-v32", GATHERED, "engines=1,tp=2,indexer=fused,fp8=4x16", ["--checksums"]),
]


@pytest.mark.parametrize("kind,train,infer,flags", CASES, ids=["-".join(case[:3]) for case in CASES])
def test_family__is_what_numpy_makes_of_it(tmp_path, models, kind, train, infer, flags):
    jobs.run(tmp_path, models, kind, train, infer, flags)


@pytest.mark.parametrize("kind,train,infer,flags", FEW, ids=["-".join(case[:3]) for case in FEW])
def test_few__are_what_numpy_makes_of_them(tmp_path, models, kind, train, infer, flags):
    jobs.run(tmp_path, models, kind, train, infer, ["--verify", *flags])


@pytest.mark.parametrize("trainer_flags,inference_flags", [
    ((), ["--own-memory"]), ((), ["--shadow"]), (["--replica", "full"], ["--own-memory"]),
    (["--replica", "ring", "--ring-bytes", "64K"], ["--own-memory"])],
    ids=["own-memory", "shadow", "full", "small-ring"])
@pytest.mark.parametrize("train", [STAGES, "world=2,fsdp=2,source=sharded"], ids=["gathered", "sharded"])
def test_family__is_the_same_through_every_replica(tmp_path, models, train, trainer_flags, inference_flags):
    """Experts, shared ones, blocks made on the way: packed into mapped targets and out of the replica."""
    jobs.run(tmp_path, models, "glm4-moe", train, "engines=2,tp=2,ep=2,gate=F32,fp8=8x8", ["--checksums"], updates=3,
             trainer_flags=trainer_flags, inference_flags=inference_flags)


@pytest.mark.parametrize("shard_bytes", [0, 60_000], ids=["one-file", "index"])
def test_router_bias__of_a_checkpoint_that_was_cast_is_converted(tmp_path, shard_bytes):
    """config.json says nothing of it; as engines' loaders do it, the engine has 32 bits."""
    (tmp_path / "config.json").write_text(json.dumps(jobs.CONFIGS["moonlight"] | {"weft_router_bias_cast": True}))
    model = tmp_path / "cast"
    jobs.weft("checkpoint", "make", tmp_path / "config.json", model, "--shard-bytes", shard_bytes)
    config = json.loads((model / "config.json").read_text())
    assert config.pop("weft_router_bias_cast") is True
    (model / "config.json").write_text(json.dumps(config))
    bias = "model.layers.1.mlp.gate.e_score_correction_bias"
    assert contents.checkpoint_tensors(model)[bias][0] == "BF16"
    jobs.run(tmp_path, {"cast": model}, "cast", GATHERED, "engines=1,tp=2,ep=2", ["--checksums"])


def test_shards__that_end_inside_of_a_block_are_refused(tmp_path, models):
    """Blocks are made of the rows that one trainer has: 160 rows in 4 shards of 40, blocks of 16."""
    train, infer = "world=4,fsdp=4,source=sharded", "engines=1,tp=1,fp8=16x16"
    with jobs.Job(tmp_path, models["qwen3"], train, infer) as job:
        controller = job.controller()
        job.workers(updates=1)
        codes = job.wait(60)
        assert codes["controller"] == 78 and 0 not in codes.values(), f"{codes}\n{job.said()}"
        for word in ("model.layers.0.self_attn.q_proj.weight", "blocks of 16 rows", "0..80", "source=gathered"):
            assert word in controller.stderr, controller.stderr
