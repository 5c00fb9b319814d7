# SPDX-License-Identifier: Apache-2.0
"""Jobs whose plans must not change: every built-in model and every family, the nine policies and the
three orders, the ways trainers hold and engines cut. What is kept of each (golden/jobs.json) is the
plan's digest and the SHA-256 of its whole dump: a build that moves one byte elsewhere, sends in
another order or words the dump differently is found here and named by job.

WEFT_GOLDEN_WRITE=1 rewrites the file from the programs of WEFT_BIN; a job that is new is added so."""
import hashlib
import itertools
import json
import os
import pathlib

import job as jobs
import pytest

GOLDEN = pathlib.Path(__file__).parent / "golden" / "jobs.json"
POLICIES = ("greedy", "round-robin", "round-robin-affinity", "prefix", "first-holder", "modulo", "hash", "lpt",
            "balanced")
ORDERS = ("table", "rotated", "rounds")

# model (a built-in name, or a small one of job.py): trainers, engines, further flags
MODELS = {
    "Qwen2.5-0.5B": ("world=4,pp=2", "engines=2,tp=2", "--memory", "process"),
    "Qwen2.5-7B": ("world=8,fsdp=4,source=sharded", "engines=2,tp=4"),
    "Qwen3-4B": ("world=6,pp=3,fsdp=2,source=sharded", "engines=3,tp=2", "--topology", "per_host=4,nics=2,gbps=200"),
    "Llama-3.1-8B": ("world=3", "engines=1,tp=8,dtype=F32"),
    "GLM-Z1-9B-0414": ("world=16,fsdp=8,source=sharded", "engines=1,tp=4", "--topology",
                       "per_host=8,nics=4,gbps=400,uplink_gbps=600"),
    "Qwen3-30B-A3B": ("world=4", "engines=2,tp=4,ep=4,fp8=128x128"),
    "Qwen3-30B-A3B-FP8": ("world=2,pp=2", "engines=1,tp=4,ep=2"),
    "Qwen3-235B-A22B": ("world=4,pp=4", "engines=1,tp=4,ep=4,names=vllm"),
    "Qwen3-235B-A22B-FP8": ("world=2", "engines=1,tp=4,ep=4", "--summary"),
    "GLM-4.5-Air": ("world=4,fsdp=4,source=sharded", "engines=1,tp=4,dp=2,ep=4"),
    "GLM-4.7-Flash": ("world=3", "engines=2,tp=4,fuse_shared=1"),
    "Moonlight-16B-A3B": ("world=8,pp=2", "engines=1,tp=8,dp=8,ep=8,a2a=1", "--topology", "per_host=8,nics=4,gbps=200,rails=1"),
    "DeepSeek-V3": ("world=4,pp=2", "engines=1,tp=8,dp=8,ep=8", "--summary"),
    "DeepSeek-V3-BF16": ("world=2", "engines=1,tp=8,ep=8,dp=8,fp8=128x128,gate=F32", "--summary"),
    "DeepSeek-V3.2": ("world=2", "engines=1,tp=4,ep=4,names=vllm,dp=2,indexer=fused", "--summary"),
    "Kimi-K2": ("world=2", "engines=1,tp=4,ep=4,names=vllm", "--summary"),
    "Kimi-K2-block64": ("world=2,pp=2", "engines=1,tp=4,ep=4", "--summary"),
    "GLM-5": ("world=4,fsdp=4,source=sharded", "engines=1,tp=4,ep=4", "--summary"),
    "GLM-5-FP8": ("world=2", "engines=1,tp=4,ep=2,moe_dense_tp=1", "--summary"),
    "GLM-5.2": ("world=2", "engines=1,tp=4,ep=4,dp=2,embed_replicated=1", "--summary"),
    # behind the others, whose policies stay
    "Kimi-K2-BF16": ("world=8,source=megatron,tp=4,ep=8,etp=1", "engines=1,tp=4,ep=4,fp8=64x64", "--summary"),
}
# every family at sizes that no power of two divides, and the options that big models show too slowly
SMALL = {
    "qwen2": ("world=5", "engines=2,tp=4", "--order", "rounds", "--policy", "balanced", "--sessions-max", "2"),
    "qwen3": ("world=4,pp=2,fsdp=2,source=sharded", "engines=2,tp=2", "--memory", "process"),
    "llama": ("world=4,fsdp=4,source=sharded", "engines=1,tp=8"),
    "glm4": ("world=2", "engines=3,tp=2", "--topology", "per_host=2,nics=2,gbps=400,uplink_gbps=600"),
    "qwen3-moe": ("world=6,pp=3", "engines=2,tp=4,ep=2", "--summary"),
    "glm4-moe": ("world=2", "engines=2,tp=4,dp=2,dp_lm_head=1"),
    "moonlight": ("world=4,fsdp=2,source=sharded", "engines=1,tp=4,ep=4,dp=4,a2a=1"),
    "deepseek-fp8": ("world=2", "engines=2,tp=2,ep=2,fp8=none"),
    "glm-dsa": ("world=2,pp=2", "engines=1,tp=2,indexer=split"),
    "glm4-moe-lite": ("world=3", "engines=2,tp=2,fuse_shared=1,gate=F32"),
    "deepseek-v2": ("world=2,fsdp=2,source=sharded", "engines=1,tp=4,dp=2,embed_replicated=1,dtype=BF16"),
    "deepseek-v32": ("world=2", "engines=2,tp=2,ep=2,names=vllm,indexer=fused"),
}


def table():
    """name -> (model, flags). Policies and orders rotate over the models, so that each pair of them occurs."""
    pairs = itertools.cycle(itertools.product(POLICIES, ORDERS))
    found = {}
    for model, (train, infer, *flags) in MODELS.items():
        for policy, order in (next(pairs), next(pairs)):
            found[f"{model} {policy} {order}"] = (
                model, ["--train", train, "--infer", infer, "--policy", policy, "--order", order, *flags])
    for model, (train, infer, *flags) in SMALL.items():
        found[f"small-{model}"] = (model, ["--train", train, "--infer", infer, *flags])
    return found


JOBS = table()
KEPT = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}


@pytest.fixture(scope="module")
def configs(tmp_path_factory):
    """The small models, in folders whose names are the labels."""
    folder = tmp_path_factory.mktemp("configs")
    for kind, config in jobs.CONFIGS.items():
        (folder / f"small-{kind}").mkdir()
        (folder / f"small-{kind}" / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("name", JOBS)
def test_job__has_the_dump_that_is_kept(configs, name):
    model, flags = JOBS[name]
    where = configs / f"small-{model}" if model in SMALL else model
    dump = jobs.weft("route", "plan", "--model", where, "--json", *flags).stdout
    now = {"digest": json.loads(dump)["digest"], "sha256": hashlib.sha256(dump.encode()).hexdigest()}
    if "WEFT_GOLDEN_WRITE" in os.environ:
        KEPT[name] = now
        GOLDEN.write_text(json.dumps({name: KEPT[name] for name in JOBS if name in KEPT}, indent=1) + "\n")
    assert now == KEPT[name], f"{name}: weft route plan --model {model} --json {' '.join(flags)}"


def test_jobs__are_of_every_model_family_policy_and_order():
    listed = jobs.weft("model", "list").stdout.splitlines()[1:]
    assert {line.split()[0] for line in listed if not line.startswith(" ")} == set(MODELS)
    assert set(SMALL) == set(jobs.CONFIGS)
    used = {tuple(name.split()[1:]) for name in JOBS if " " in name}
    assert used == set(itertools.product(POLICIES, ORDERS))
    assert set(KEPT) == set(JOBS) and len(JOBS) >= 36
