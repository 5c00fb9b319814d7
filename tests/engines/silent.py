# SPDX-License-Identifier: Apache-2.0
"""Where name, shape and dtype of every parameter agree and the bytes do not, unless --infer says what the engine does.

    silent.py --engine sglang --device sm100 --weft build/release/weft      one JSON object a case and spec

An engine, told of a device, in one process; test_silent.py runs it and says what must come of each. `wrong` is the layout
without the option, `right` the one with it."""
import argparse
import dataclasses
import json
import pathlib
import sys
import tempfile

import compare_ranks
import loaders
import models
from cases import option_of
from loaders import Setup

UP_GATE, NONE = ",expert_halves=up_gate", ""
IN_TURN = (("expert_placement_strategy", "round_robin"),)


@dataclasses.dataclass(frozen=True)
class Silent:
    engine: str
    device: str
    model: str
    setup: Setup
    wrong: str
    right: str


def sglang(device, model, ep=1, runner=None):
    return Silent("sglang", device, model, Setup(tp=2, ep=ep, runner=runner, device=device), NONE, UP_GATE)


def vllm(device, model, wrong, right, processed=False, arguments=(), ranks=2):
    return Silent("vllm", device, model, Setup(tp=ranks, ep=ranks, device=device, processed=processed, arguments=arguments),
                  wrong, right)


SILENT = {
    # the loader itself puts up first
    "bf16 flashinfer_cutlass": sglang("sm90", "qwen3-moe-wide", runner="flashinfer_cutlass"),
    "bf16 flashinfer_trtllm": sglang("sm90", "qwen3-moe-wide", runner="flashinfer_trtllm"),
    "fp8 flashinfer_trtllm": sglang("sm90", "qwen3-moe-fp8", ep=2, runner="flashinfer_trtllm"),
    # what is chosen where nothing is said
    "Blackwell Qwen3-MoE bf16": sglang("sm100", "qwen3-moe-wide"),
    "Blackwell Qwen3-MoE fp8": sglang("sm100", "qwen3-moe-fp8", ep=2),
    "Blackwell DeepSeek-V3 bf16": sglang("sm100", "deepseek-v3-wide"),
    "Blackwell DeepSeek-V3 fp8": sglang("sm100", "deepseek-v3-fp8", ep=2),
    "Blackwell Glm4Moe bf16": sglang("sm100", "glm4-moe-wide"),
    # the other way round: right after the load as Weft says by itself, then changed in place
    "Hopper fp8 loaded": vllm("sm90", "qwen3-moe-fp8-128", UP_GATE, NONE),
    "Hopper fp8 processed": vllm("sm90", "qwen3-moe-fp8-128", NONE, UP_GATE, processed=True),
    "round_robin with groups": vllm("", "deepseek-v3", NONE, ",experts=round_robin", arguments=IN_TURN),
}


def verdicts(engine, weft, folder, case):
    """{"wrong": [verdict a rank], "right": ..}, and what runs the experts."""
    made = {}
    for which in ("wrong", "right"):
        setup, option = case.setup, option_of(case.model, engine) + getattr(case, which)
        spec = compare_ranks.spec_of(engine, setup, True, option)
        made[which] = []
        for rank in range(setup.tp):
            found = compare_ranks.forked(engine, weft, folder, compare_ranks.Case(setup, spec), rank)
            made[which].append("silent" if found.bytes_differ else "equal" if not found.lines else found.lines[0])
            made["chosen"] = found.chosen
            made["bytes"] = found.bytes_differ or made.get("bytes", [])
    return made


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", required=True)
    parser.add_argument("--device", default="")
    parser.add_argument("--weft", required=True)
    options = parser.parse_args()
    cases = {name: case for name, case in SILENT.items() if (case.engine, case.device) == (options.engine, options.device)}
    with tempfile.TemporaryDirectory() as folder:
        models.make_all(folder, {case.model for case in cases.values()})
        engine = loaders.engine(options.engine, options.device)
        for name, case in cases.items():
            found = verdicts(engine, options.weft, pathlib.Path(folder) / case.model, case)
            print("SILENT " + json.dumps({"case": name, "version": engine.version} | found), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
