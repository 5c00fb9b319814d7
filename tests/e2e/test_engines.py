# SPDX-License-Identifier: Apache-2.0
"""Layouts that were compared with the engines' own loaders, byte by byte (tests/engines/compare, docs/models.md), are still
what they were: config.json as transformers wrote it, and a digest of each rank's pieces."""
import json
import re
import sys

import pytest

import job as jobs

ENGINES = jobs.ROOT / "tests/engines"
sys.path.insert(0, str(ENGINES))
from pieces import digest, pieces_of  # noqa: E402

COMPARED = sorted((ENGINES / "compared").glob("*/*.json"))
RECORDS = [path for path in COMPARED if path.name != "config.json"]


@pytest.mark.parametrize("path", RECORDS, ids=[f"{path.parent.name}-{path.stem}" for path in RECORDS])
def test_layout__is_still_what_the_engine_was_seen_to_have(path):
    record = json.loads(path.read_text())
    for spec, ranks in record["equal"].items():
        for rank, seen in enumerate(ranks):
            assert digest(pieces_of(jobs.WEFT, path.parent / "config.json", spec, rank)) == seen, (spec, rank)


def test_records__are_of_both_engines_and_every_model():
    kept = {(path.parent.name, path.stem) for path in RECORDS}
    models = {path.parent.name for path in COMPARED}
    of_sglang = ("gpt-oss-in-out", "gpt-oss-mxfp4-sm90", "gpt-oss-mxfp4-sm100")  # vLLM has one way, or sizes of another
    of_one = {("llava", "sglang"), *((name, "vllm") for name in of_sglang)}  # the first does not start with CLIP
    of_one |= {("qwen3-moe-tied", "sglang")}  # refused: nothing fills its lm_head
    assert len(models) >= 10 and kept == {(name, engine) for name in models for engine in ("sglang", "vllm")} - of_one
    for path in RECORDS:
        specs = json.loads(path.read_text())["equal"]
        sizes = {re.match(r"tp=\d+(,ep=\d+)?", spec)[0] for spec in specs}
        assert {"tp=1", "tp=2", "tp=4"} <= sizes | ({"tp=4"} if path.parent.name.endswith("-128") else set()), path
        if path.stem == "sglang" and "tp=4,ep=4" in sizes:  # vLLM shares experts out to all ranks or to none
            assert "tp=4,ep=2" in sizes, path
