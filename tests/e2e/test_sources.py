# SPDX-License-Identifier: Apache-2.0
"""Trainers as they are cut, through real processes: Megatron's parameters, DTensors of two dimensions, flat shards. Every byte of
every parameter on every rank is what numpy makes of the checkpoint (engine_layout.py: no code of Weft), and no trainer has anything
but its shard."""
import json
import re

import pytest

import job as jobs

CASES = [
    # model, trainers, an engine, flags of all workers
    ("qwen2", "world=4,source=megatron,tp=2,pp=2,layers=1/2,vocab_pad=8", "engines=2,tp=2", ["--checksums"]),
    ("qwen3", "world=4,source=megatron,tp=4,vocab_pad=1", "engines=1,tp=4", []),
    ("qwen3", "world=4,source=megatron,tp=1,pp=2,vpp=2", "engines=2,tp=2,dtype=F16", ["--checksums"]),
    ("llama", "world=8,source=megatron,tp=2,cp=2,pp=2,first=1,last=2", "engines=1,tp=4,dtype=BF16", []),
    ("glm4", "world=4,source=megatron,tp=2,pp=2,layers=2/3", "engines=1,tp=2", ["--checksums"]),
    ("qwen3-moe", "world=4,source=megatron,tp=2,ep=2,etp=1", "engines=2,tp=2,ep=2", ["--checksums"]),
    ("qwen3-moe", "world=8,source=megatron,tp=2,pp=2,ep=2,etp=2,layers=1/2", "engines=1,tp=4", []),
    ("qwen3-moe", "world=4,source=megatron,tp=2,ep=2,etp=1,grouped=one", "engines=1,tp=2,ep=2,fp8=8x8", ["--checksums"]),
    ("qwen3-moe", "world=4,source=megatron,tp=2,ep=2,etp=2,grouped=legacy", "engines=1,tp=4,ep=2", ["--checksums"]),
    ("glm4-moe", "world=6,source=megatron,tp=2,pp=3,ep=2,etp=1", "engines=1,tp=4,ep=2,gate=F32", ["--checksums"]),
    ("glm4-moe-lite", "world=4,source=megatron,tp=2,ep=2,etp=1", "engines=2,tp=2,ep=2", []),
    ("moonlight", "world=4,source=megatron,tp=2,ep=4,etp=1", "engines=1,tp=4,ep=4", ["--checksums"]),
    ("deepseek-v2", "world=4,source=megatron,tp=2,pp=2,ep=2,etp=1", "engines=1,tp=2,fp8=16x8", []),
    ("glm-dsa", "world=4,source=megatron,tp=2,ep=2,etp=1", "engines=1,tp=2,ep=2,gate=F32", []),
    ("qwen3-moe", "world=4,source=megatron,tp=2,ep=2,etp=1,glu_interleave=8", "engines=2,tp=2,ep=2,fp8=8x8", ["--checksums"]),
    ("glm4-moe", "world=4,source=megatron,tp=2,pp=2,mtp=1,shared_glu_interleave=8,layout=Ett|t,mL", "engines=1,tp=2,ep=2", []),
    ("qwen3", "world=2,source=megatron,pp=2,layout=(Et|)*1tt|t|L", "engines=1,tp=2", []),
    ("qwen3", "world=4,source=dtensor,mesh=2/2", "engines=2,tp=2", ["--checksums"]),
    ("qwen2", "world=6,source=dtensor,mesh=2/3/1", "engines=1,tp=4", []),
    ("llama", "world=6,source=dtensor,mesh=3/2", "engines=1,tp=4,dtype=F16", ["--checksums"]),
    ("qwen3-moe", "world=4,source=dtensor,mesh=2/2,ep=2", "engines=1,tp=4,ep=2", ["--checksums"]),
    ("qwen3-moe", "world=6,source=dtensor,mesh=3/2", "engines=1,tp=4", []),
    # cut finer than the engine: runs of what they hold, in each row of the target
    ("qwen3", "world=4,source=megatron,tp=4", "engines=2,tp=2", ["--checksums"]),
    ("qwen3", "world=4,source=megatron,tp=4", "engines=1,tp=1,dtype=F16", ["--checksums"]),
    ("qwen3-moe", "world=4,source=megatron,tp=2,ep=2,etp=2", "engines=1,tp=2,ep=2", ["--checksums"]),
    ("qwen3-moe", "world=4,source=megatron,tp=2,ep=2,etp=2,grouped=legacy", "engines=1,tp=2,ep=2", []),
    ("glm4", "world=4,source=dtensor,mesh=1/4", "engines=2,tp=1", ["--checksums"]),
    ("qwen3-moe", "world=6,source=dtensor,mesh=3/2", "engines=1,tp=2,ep=2", ["--checksums"]),
    # .. and in blocks, whose scales are such runs too
    ("qwen3-moe", "world=4,source=megatron,tp=2,ep=2,etp=2", "engines=1,tp=2,ep=2,fp8=8x8", ["--checksums"]),
    ("qwen3", "world=4,source=megatron,tp=4", "engines=2,tp=2,fp8=8x8", ["--checksums", "--replica", "full"]),
    ("glm4-moe", "world=4,source=dtensor,mesh=2/2,ep=2", "engines=2,tp=1,fp8=4x4", []),
    ("qwen3", "world=3,source=zero3", "engines=2,tp=2", ["--checksums"]),
    ("qwen3-moe", "world=5,source=zero3", "engines=1,tp=4,ep=2", []),
    ("qwen2", "world=4,source=fsdp1", "engines=1,tp=2", ["--checksums"]),
    ("llama", "world=3,source=fsdp1,orig=1", "engines=2,tp=4,dtype=BF16", []),
]
# what a sanitized build runs of them
FEW = [
    ("qwen3-moe", "world=4,source=megatron,tp=2,ep=2,etp=2,grouped=legacy", "engines=1,tp=4,ep=2", ["--checksums"]),
    ("qwen3", "world=3,source=zero3", "engines=1,tp=2", ["--checksums"]),
]


@pytest.mark.parametrize("kind,train,infer,flags", CASES, ids=["-".join(case[:3]) for case in CASES])
def test_source__is_what_numpy_makes_of_the_checkpoint(tmp_path, models, kind, train, infer, flags):
    jobs.run(tmp_path, models, kind, train, infer, flags)


@pytest.mark.parametrize("kind,train,infer,flags", FEW, ids=["-".join(case[:3]) for case in FEW])
def test_few__are_what_numpy_makes_of_them(tmp_path, models, kind, train, infer, flags):
    jobs.run(tmp_path, models, kind, train, infer, ["--verify", *flags])


FINER = "world=4,source=megatron,tp=2,ep=2,etp=2"


@pytest.mark.parametrize("flags,inference_flags", [
    (["--transport", "tcp"], []), (["--transport", "tcp", "--checksums"], ["--shadow"]),
    (["--checksums"], ["--own-memory"]), (["--transport", "tcp"], ["--landing-bytes", "1"]),
    (["--transport", "shm,tcp", "--checksums"], [])], ids=["tcp", "sums-shadow", "own-memory", "small-window", "list"])
def test_finer__lands_where_the_targets_memory_is_not_mapped(tmp_path, models, flags, inference_flags):
    """Written densely into a window beside the parameters, and put in place by the rank."""
    jobs.run(tmp_path, models, "qwen3-moe", FINER, "engines=2,tp=2,ep=2", flags, updates=3, inference_flags=inference_flags)


@pytest.mark.parametrize("flags", [["--transport", "tcp", "--checksums"], ["--own-memory"]], ids=["tcp", "own-memory"])
def test_finer__lands_in_blocks_with_their_scales(tmp_path, models, flags):
    own = {"inference_flags": flags} if "--own-memory" in flags else {"trainer_flags": []}
    jobs.run(tmp_path, models, "qwen3-moe", FINER, "engines=2,tp=2,ep=2,fp8=8x8", [] if own.get("inference_flags") else flags,
             updates=3, **own)


def test_finer__inside_of_a_block_is_refused_by_name(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen3-moe"], FINER, "engines=1,tp=2,ep=2,fp8=8x16") as job:
        job.controller()
        job.workers()
        assert set(job.wait().values()) == {78}
        for name, process in job.processes.items():
            assert "is transformed in blocks of 16 columns of tensor 'model.layers.0.mlp.experts." in process.stderr, name
            assert "or at multiples of 16 columns" in process.stderr, name


@pytest.mark.parametrize("train", [FINER, "world=4,source=dtensor,mesh=1/4", "world=6,fsdp=6,source=sharded", "world=8,source=megatron,tp=8"])
def test_finer__inside_of_a_block_is_refused_with_sizes_that_would_do(models, train):
    """What is said is taken at its word."""
    job = ("route", "plan", "--model", models["qwen3-moe"], "--infer", "engines=1,tp=2,ep=2,fp8=16x16", "--summary", "--train")
    refused = jobs.weft(*job, train, check=False)
    assert refused.returncode != 0, refused.stdout
    said = re.search(r"; --train (\S+) would do$", refused.stderr.strip())
    assert said and said[1] != train, refused.stderr
    jobs.weft(*job, said[1])


@pytest.mark.parametrize("replica", [["--replica", "full"], ["--replica", "ring", "--ring-bytes", "64K"]])
def test_finer__is_the_same_through_every_replica(tmp_path, models, replica):
    jobs.run(tmp_path, models, "qwen3-moe", FINER, "engines=2,tp=2,ep=2", ["--checksums"], updates=3, trainer_flags=replica)


SMALL = "world=6,source=dtensor,mesh=3/2"


@pytest.mark.parametrize("flags,trainer_flags,inference_flags", [
    (["--transport", "tcp"], [], []), (["--transport", "tcp", "--checksums"], ["--replica", "full"], ["--shadow"]),
    (["--transport", "tcp", "--checksums"], ["--ring-bytes", "64K"], ["--landing-bytes", "1"]),
    (["--checksums"], ["--pack-threads", "3"], ["--own-memory"])], ids=["tcp", "full-shadow", "small", "threads"])
def test_small__go_out_many_to_a_write(tmp_path, models, flags, trainer_flags, inference_flags):
    """What mesh and engine cut into pieces of a few rows is packed behind each other and lands together."""
    job = jobs.run(tmp_path, models, "qwen3-moe", SMALL, "engines=1,tp=4,ep=2", flags, updates=3, trainer_flags=trainer_flags,
                   inference_flags=inference_flags)
    for rank in range(6):
        first, *_, last = map(json.loads, job.processes[f"trainer-{rank}"].stdout.splitlines())
        assert last["writes"] < 2 * first["pieces"]  # of three updates


def draft_model(folder, model, infer):
    """The engine's layout file, and parameters of a draft model beside its own: all that is of the layer behind the last,
    but for what it shares with the model."""
    path = folder / "draft.json"
    jobs.weft("model", "layout", model, "--infer", infer, "--output", path)
    file = json.loads(path.read_text())
    draft = [tensor for tensor in file.pop("left_alone") if not re.search(r"layers\.\d+\.(embed_tokens|shared_head\.head)", tensor["name"])]
    assert {"model.layers.3.eh_proj.weight", "model.layers.3.mlp.experts.3.down_proj.weight"} <= {t["name"] for t in draft}
    file["tensors"] += [{**tensor, "layer": file["layers"]} for tensor in draft]
    file["params"] += [{"name": f"draft.{tensor['name']}", "dtype": tensor["dtype"], "shape": tensor["shape"],
                        "pieces": [{"tensor": tensor["name"]}]} for tensor in draft]
    path.write_text(json.dumps(file))
    return path


@pytest.mark.parametrize("kind,train", [("glm4-moe", "world=6,source=megatron,tp=2,pp=3,layout=Ett|t,m|L"),
                                        ("glm4-moe-lite", "world=4,source=megatron,tp=2,ep=2,etp=1,mtp=1,glu_interleave=8")])
def test_mtp__a_draft_model_is_sent_to_an_engine_that_says_what_it_is_made_of(tmp_path, models, kind, train):
    infer = "engines=1,tp=2"
    draft = draft_model(tmp_path, models[kind], infer)
    with jobs.Job(tmp_path, models[kind], train, infer) as job:
        job.controller()
        job.workers("--verify", "--checksums", inference_flags=["--model", draft])
        job.succeed()
        for rank in range(2):
            assert "draft.model.layers.3.eh_proj.weight" in job.digests(rank)[2]
