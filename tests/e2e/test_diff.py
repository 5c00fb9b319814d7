# SPDX-License-Identifier: Apache-2.0
"""`weft route diff`: bytes that come from another trainer, counted again in Python."""
import json

import job as jobs
import pytest

JOB = ("--model", "Qwen2.5-0.5B", "--train", "world=4,pp=2", "--infer", "engines=2,tp=2")


@pytest.fixture(scope="module")
def plans(tmp_path_factory):
    folder = tmp_path_factory.mktemp("diff")

    def plan(name, *flags, job=JOB):
        jobs.weft("route", "plan", *job, *flags, "--output", folder / name)
        return folder / name

    return {"greedy": plan("a.json"), "round-robin": plan("b.json", "--policy", "round-robin"),
            "balanced": plan("e.json", "--policy", "balanced"), "hash": plan("f.json", "--policy", "hash"),
            "table": plan("c.json", "--order", "table"),
            "hosts": plan("d.json", "--topology", "per_host=2,nics=2,gbps=100"),
            "other": plan("o.json", job=(*JOB[:3], "world=8,pp=2", *JOB[4:]))}


def diff(a, b, *flags, code=1):
    done = jobs.weft("route", "diff", a, b, *flags, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout


def borders(path):
    """(inference, param) -> [(offset, end, trainer, tensor)]"""
    found = {}
    for route in json.loads(path.read_text())["routes"]:
        for piece in route["pieces"]:
            found.setdefault((route["inference"], piece["param"]), []).append(
                (piece["offset"], piece["offset"] + piece["bytes"], route["trainer"], route["tensor"]))
    return found


@pytest.mark.parametrize("one,two", [("greedy", "round-robin"), ("greedy", "balanced"), ("hash", "balanced"),
                                     ("round-robin", "hash")])
def test_diff__counts_the_bytes_that_move(plans, one, two):
    a, b = borders(plans[one]), borders(plans[two])
    moved, pairs, tensors, lost, gained = 0, set(), {}, [0] * 4, [0] * 4
    for target, spans in a.items():
        for low, high, trainer, tensor in spans:
            for low2, high2, trainer2, _ in b[target]:
                size = min(high, high2) - max(low, low2)
                if size > 0 and trainer != trainer2:
                    moved += size
                    pairs.add((tensor, target[0]))
                    tensors[tensor] = tensors.get(tensor, 0) + size
                    lost[trainer] += size
                    gained[trainer2] += size
    said = json.loads(diff(plans[one], plans[two], "--json", "--top", "0", code=1))
    assert (said["moved_bytes"], said["moved_pairs"]) == (moved, len(pairs))
    assert {t["tensor"]: t["moved_bytes"] for t in said["tensors"]} == tensors
    for trainer in said["trainers"]:
        rank = trainer["trainer"]
        assert (trainer["lost_bytes"], trainer["gained_bytes"]) == (lost[rank], gained[rank])
        assert trainer["b_bytes"] - trainer["a_bytes"] == gained[rank] - lost[rank]
    assert not said["same"] and said["only_a_bytes"] == said["only_b_bytes"] == 0
    assert said["a"]["policy"] == one and said["b"]["policy"] == two
    people = diff(plans[one], plans[two], "--top", "3")
    assert "come from another trainer" in people and all(
        tensor["tensor"] in people for tensor in said["tensors"][:3])


def test_same__plan_is_0_in_any_layout(plans, tmp_path):
    pretty = tmp_path / "pretty.json"
    pretty.write_text(json.dumps(json.loads(plans["greedy"].read_text()), indent=3, sort_keys=True))
    assert "the same plan" in diff(plans["greedy"], pretty, code=0)
    assert json.loads(diff(plans["greedy"], pretty, "--json", code=0))["same"]


def test_order_and_topology__are_differences_that_move_nothing(plans):
    for name, key in (("table", "order_differs"), ("hosts", "topology_differs")):
        said = json.loads(diff(plans["greedy"], plans[name], "--json"))
        assert said[key] and not said["same"] and said["moved_bytes"] == 0
    assert "different topologies" in diff(plans["greedy"], plans["hosts"])


def test_made__in_another_way_is_a_difference_that_moves_nothing(tmp_path):
    """Labels, ranks, targets and digest as they were: only how the bytes are transformed differs."""
    model = jobs.make_model(tmp_path / "model", "deepseek-fp8")
    text = jobs.weft("route", "plan", "--model", model, "--train", "world=2", "--infer",
                     "engines=1,tp=2,dtype=F16,fp8=4x8", "--json").stdout
    plan, other = tmp_path / "plan.json", tmp_path / "other.json"
    plan.write_text(text)
    for before, after in [("requantise 8x16 4x8", "requantise 8x16 8x16"), ("rescale 8x16 4x8", "rescale 8x8 4x8"),
                          ('"to":"F16"', '"to":"BF16"'), ("0.mlp.up_proj.weight_scale", "0.mlp.gate_proj.weight_scale")]:
        made = [(piece["bytes"], "".join(f'"{key}":"{piece.get(key)}"' for key in ("make", "to", "scales")))
                for route in json.loads(text)["routes"] for piece in route["pieces"]]
        other.write_text(text.replace(before, after))
        said = json.loads(diff(plan, other, "--json"))
        assert not said["same"] and said["moved_bytes"] == said["only_a_bytes"] == said["only_b_bytes"] == 0
        assert said["remade_bytes"] == sum(size for size, how in made if before in how) > 0
        assert "are transformed in another way" in diff(plan, other)
    assert json.loads(diff(plan, plan, "--json", code=0))["remade_bytes"] == 0


def test_trouble__is_more_than_1(plans, tmp_path):
    def trouble(*arguments, code, word):
        done = jobs.weft("route", "diff", *arguments, check=False)
        assert (done.returncode, word in done.stderr) == (code, True), done.stderr

    trouble(plans["greedy"], code=2, word="name two routing dumps")
    trouble(plans["greedy"], plans["other"], code=78, word='two jobs: "train" is')
    trouble(plans["greedy"], tmp_path / "none", code=2, word="none")
    short = tmp_path / "short.json"
    short.write_text(jobs.weft("route", "plan", *JOB, "--json", "--summary").stdout)
    trouble(plans["greedy"], short, code=2, word="the second dump has no routes")
