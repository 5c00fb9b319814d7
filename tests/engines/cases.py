# SPDX-License-Identifier: Apache-2.0
"""What each model is compared in: how the engine is run, and what --infer says of it.

    of(name, engine, arguments)   the cases of a model on this engine, version and device"""
import models
from compare_ranks import Case, spec_of
from loaders import Setup

WITH_EXPERTS = ("deepseek-v2", "deepseek-v3.2", "glm-5", "glm-5-freq", "glm4-moe", "glm4-moe-lite", "qwen3-moe-odd",
                "qwen3-moe-tied", "qwen3-moe-own-head", "qwen3-moe-wide", "glm4-moe-wide", "deepseek-v3-wide",
                "qwen3-moe-fp8-128", "deepseek-v3-256",
                "mixtral", "qwen2-moe", "qwen3-moe", "qwen3-next", "gpt-oss", "gpt-oss-in-out", "gpt-oss-mxfp4",
                "gpt-oss-mxfp4-64", "gpt-oss-mxfp4-128", "gpt-oss-mxfp4-sm90", "gpt-oss-mxfp4-sm100", "deepseek-v3",
                "deepseek-v3-fp8", "deepseek-v3-cast", "deepseek-v3-q", "qwen3-moe-fp8", "kimi-k2.5", "kimi-vl")

# what runs experts where it says their sizes or how they lie: (the engine's name of it, the option of --infer)
RUNNERS = {("gpt-oss-in-out", "sglang"): ("triton_kernel", ",expert_weights=in_out"),
           ("gpt-oss-mxfp4-64", "sglang"): ("installed", ",mxfp4_pad=64x1"),
           ("gpt-oss-mxfp4-64", "vllm"): ("TRITON", ",mxfp4_pad=64x1"),
           ("gpt-oss-mxfp4-128", "sglang"): ("marlin", ",mxfp4_pad=128x256"),
           ("gpt-oss-mxfp4-sm90", "sglang"): ("flashinfer_mxfp4 sm90", ",mxfp4_pad=1x256"),
           ("gpt-oss-mxfp4-sm100", "sglang"): ("flashinfer_mxfp4 sm100", ",mxfp4_pad=128x256"),
           ("gpt-oss-mxfp4-128", "vllm"): ("MARLIN", ",mxfp4_pad=128x256")}


FUSED_INDEXER, GATES_IN_32 = ("deepseek-v3.2", "glm-5", "glm-5-freq"), ("glm4-moe", "glm4-moe-wide", "glm4-moe-lite")
WITHOUT_INDEXER = "indexer"  # what weft model check names of older lists, where all layers have one


def option_of(name, engine):
    """Of --infer: what the engine does with this class."""
    if name in FUSED_INDEXER and engine.name == "vllm":
        return ",indexer=fused"
    if name in GATES_IN_32 and not (engine.name == "sglang" and engine.old):
        return ",gate=F32"
    if name.endswith("own-head") and engine.name == "vllm" and not engine.old:
        return ",untied=1"  # which believes the checkpoint, not config.json
    return ""


def refused_of(name, engine):
    if name == "qwen3-moe-tied" and engine.name == "sglang":
        return "never ties lm_head to the embedding"
    if name == "glm-5-freq" and engine.old:
        return WITHOUT_INDEXER
    return ""


def sizes_of(name, engine):
    """What an engine does: (tp, ep, dp)"""
    if (name, engine.name) == ("llava", "sglang"):
        return  # which has no class for a CLIP tower by itself, and takes transformers', which has no embedding of tokens
    if (name, engine.name, engine.old) == ("glm-5-freq", "vllm", True):
        return  # which makes an indexer in every layer and loads no checkpoint that has not
    if engine.name == "vllm" and name in ("gpt-oss-in-out", "gpt-oss-mxfp4-sm90", "gpt-oss-mxfp4-sm100"):
        return  # which has one way, or the same sizes in another backend
    yield from ((1, 1, 1), (2, 1, 1))
    if name != "qwen3-moe-fp8-128":  # whose shares would end inside of a block
        yield (4, 1, 1)
    if name in ("gpt-oss", "gpt-oss-in-out") and engine.name == "sglang":
        return  # whose loader takes experts apart only of MXFP4 checkpoints
    if (name, engine.name) == ("qwen3-moe-odd", "sglang"):
        yield (2, 2, 1)  # experts that its ranks do not divide it does not load
    elif name in WITH_EXPERTS:
        yield from ((2, 2, 1), (4, 4, 1))
        if engine.name == "sglang":
            yield (4, 2, 1)  # vLLM shares experts out to all ranks or to none


# attention by itself, replicated; with experts shared out too, where vLLM's DeepSeek has its shared experts whole
WITH_DP = ("qwen3", "qwen3-moe", "qwen3-moe-odd", "qwen2-moe", "deepseek-v3", "glm4-moe")
EP_WITH_DP = {"qwen3-moe": "", "qwen3-moe-odd": "", "deepseek-v3": ",a2a=1", "deepseek-v2": ",a2a=1", "glm4-moe": "",
              "glm4-moe-lite": ""}


# SGLang's own choice on a device: model: (what --infer says, (tp, ep) of it)
PLAIN, BOTH = ((1, 1), (2, 1), (4, 1)), ((1, 1), (2, 1), (2, 2), (4, 2))
ON_DEVICE = {
    "sm90": {"qwen3-moe": ("", BOTH), "qwen3-moe-fp8": ("", BOTH), "deepseek-v3": ("", BOTH), "deepseek-v3-fp8": ("", BOTH),
             "deepseek-v3-256": (",fuse_shared=1", PLAIN), "glm4-moe": (",gate=F32,fuse_shared=1", PLAIN),
             "qwen3-next": ("", PLAIN), "qwen2-moe": ("", PLAIN)},
    "sm100": {"qwen3-moe-wide": (",expert_halves=up_gate", ((1, 1), (2, 1), (2, 2))),
              "qwen3-moe-fp8": (",expert_halves=up_gate", ((1, 1), (2, 2), (4, 4))),
              "deepseek-v3-wide": (",expert_halves=up_gate", ((1, 1), (2, 1), (2, 2))),
              "deepseek-v3-fp8": (",expert_halves=up_gate", ((1, 1), (2, 2), (4, 4))),
              "glm4-moe-wide": (",gate=F32,expert_halves=up_gate", ((1, 1), (2, 1), (2, 2)))},
}


def models_of(arguments):
    """The short selection is one model a way of cutting and naming."""
    if arguments.device:
        return ON_DEVICE[arguments.device]
    return [name for name in models.MODELS if not arguments.short or name in SHORT]


SHORT = ("llama", "qwen2-own-head", "gemma3", "qwen3-moe-tied", "deepseek-v3-fp8", "glm4-moe", "gpt-oss-mxfp4-64", "qwen3-next")


def plain(name, engine, arguments):
    """In every size."""
    runner, option = RUNNERS.get((name, engine.name), (None, option_of(name, engine)))
    for tp, ep, dp in sizes_of(name, engine):
        setup = Setup(tp=tp, ep=ep, dp=dp, runner=runner, device=arguments.device)
        yield Case(setup, spec_of(engine, setup, name in WITH_EXPERTS, option), refused_of(name, engine))


def with_dp(name, engine, arguments):
    sets = [((4, 1, 2), "")] if name in WITH_DP else []
    if name in EP_WITH_DP and (name, engine.name) != ("qwen3-moe-odd", "sglang"):
        sets.append(((4, 4, 2), EP_WITH_DP[name] if engine.name == "vllm" else ""))
    for (tp, ep, dp), option in sets:
        setup = Setup(tp=tp, ep=ep, dp=dp, device=arguments.device)
        option += option_of(name, engine)
        yield Case(setup, spec_of(engine, setup, name in WITH_EXPERTS, option))


def in_turn(name, engine, arguments):
    """vLLM's other way of handing out experts, of a model with expert groups and of one without."""
    if engine.name != "vllm" or name not in ("deepseek-v3", "qwen3-moe", "glm4-moe"):
        return
    setup = Setup(tp=4, ep=4, device=arguments.device, arguments=(("expert_placement_strategy", "round_robin"),))
    plain_spec = spec_of(engine, setup, True, option_of(name, engine))
    if name == "deepseek-v3":
        yield Case(setup, plain_spec + ",experts=round_robin")
    else:
        yield Case(setup, plain_spec)  # it fell back
        yield Case(setup, plain_spec + ",experts=round_robin", "falls back to linear there; say experts=linear")


def transposed(name, engine, arguments):
    """SGLang's experts for Triton's own kernels, which of other classes than gpt-oss no layout has."""
    if engine.name == "sglang" and name in ("qwen3-moe", "deepseek-v3", "mixtral"):
        setup = Setup(tp=2, runner="triton_kernel")
        yield Case(setup, spec_of(engine, setup, True), "another --moe-runner-backend than triton_kernel")
        yield Case(setup, spec_of(engine, setup, True, ",expert_weights=in_out"), "another --moe-runner-backend than triton_kernel")


def on_device(name, arguments, engine):
    option, sizes = ON_DEVICE[arguments.device][name]
    for tp, ep in sizes:
        setup = Setup(tp=tp, ep=ep, device=arguments.device)
        yield Case(setup, spec_of(engine, setup, True, option))


def of(name, engine, arguments):
    if arguments.device:
        yield from on_device(name, arguments, engine)
        return
    for kind in (plain, with_dp, in_turn, transposed):
        cases = list(kind(name, engine, arguments))
        if arguments.short:
            cases = [case for case in cases if case.setup.tp == 2] + cases[-1:]
        yield from dict.fromkeys(cases)
