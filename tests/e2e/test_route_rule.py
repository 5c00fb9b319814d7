# SPDX-License-Identifier: Apache-2.0
"""The routing rule said again, naively and from the documents alone: a plan's routes, its summary and
its digest are recomputed from `weft model tensors` and `weft model layout` and must be equal."""
import collections
import json
import struct

import pytest
import xxhash

import job as jobs

# model, train, infer
JOBS = [
    ("Qwen2.5-0.5B", "world=4", "engines=2,tp=2"),
    ("Qwen2.5-0.5B", "world=3", "engines=1,tp=2"),
    ("Qwen2.5-0.5B", "world=8,pp=4", "engines=3,tp=1"),
    ("Qwen2.5-7B", "world=8,pp=2", "engines=2,tp=4"),
    ("Qwen2.5-0.5B", "world=2,fsdp=2,source=sharded", "engines=2,tp=2"),
    ("Qwen2.5-0.5B", "world=8,fsdp=4,source=sharded", "engines=1,tp=2"),
    ("Qwen2.5-7B", "world=8,fsdp=8,source=sharded", "engines=1,tp=4"),
    ("Qwen3-4B", "world=6,fsdp=3,source=sharded", "engines=2,tp=8"),
    ("Qwen3-4B", "world=16,pp=4,fsdp=2,source=sharded", "engines=3,tp=4"),
    ("Llama-3.1-8B", "world=5", "engines=3,tp=8"),
    ("Llama-3.1-8B", "world=6,pp=3,layers=10/11/11", "engines=2,tp=16"),
    ("GLM-Z1-9B-0414", "world=8,pp=4", "engines=2,tp=4"),
    ("GLM-Z1-9B-0414", "world=7,fsdp=7,source=sharded", "engines=1,tp=4"),
    ("GLM-Z1-9B-0414", "world=12,pp=2,fsdp=3,source=sharded", "engines=2,tp=2"),
    # pieces that are converted, quantised, taken out of their blocks or put into others
    ("Qwen3-4B", "world=4,pp=2", "engines=2,tp=2,dtype=F16,fp8=128x128"),
    ("deepseek-fp8", "world=3", "engines=2,tp=2,fp8=4x8"),
    ("deepseek-fp8", "world=2", "engines=1,tp=4,ep=2,fp8=none"),
    # configs of job.py, by their path in place of a name
    ("qwen3-moe", "world=4,pp=2", "engines=2,tp=4,ep=2"),
    ("deepseek-fp8", "world=3,fsdp=3,source=sharded", "engines=1,tp=4,ep=4,dp=2,dp_lm_head=1,moe_dense_tp=1"),
]


def lines(*arguments):
    return [json.loads(line) for line in jobs.weft(*arguments).stdout.splitlines()]


def chunks(rows, count):
    """torch.chunk along dimension 0: chunks of ceil(rows/count), the last ones short or empty."""
    size = -(-rows // count)
    return [(min(i * size, rows), min((i + 1) * size, rows)) for i in range(count)]


def stage_of(layer, layers, train):
    pp = int(train.get("pp", 1))
    if layer < 0:
        return 0
    if layer >= layers:
        return pp - 1
    sizes = [int(n) for n in train["layers"].split("/")] if "layers" in train else \
        [layers // pp + (s < layers % pp) for s in range(pp)]
    return next(s for s in range(pp) if layer < sum(sizes[:s + 1]))


class Problem:
    def __init__(self, model, train, infer):
        self.train, self.infer = jobs.spec(train), jobs.spec(infer)
        self.trainers, self.ranks = jobs.counts(train, infer)
        self.tp = int(self.infer.get("tp", 1))
        self.tensors = lines("model", "tensors", model, "--json")
        layouts = [lines("model", "layout", model, "--infer", infer, "--rank", rank, "--json")
                   for rank in range(self.tp)]
        self.layers = max(tensor["layer"] for tensor in self.tensors)  # the final norm's
        self.pieces = collections.defaultdict(list)
        for rank in range(self.ranks):
            for piece in layouts[rank % self.tp]:
                if piece.get("src"):
                    self.pieces[piece["tensor"], rank].append(piece)

    def shards(self, tensor):
        """[(lo, hi, trainers)] of one tensor, in row order."""
        pp, fsdp = int(self.train.get("pp", 1)), int(self.train.get("fsdp", 1))
        each = self.trainers // pp
        stage = stage_of(tensor["layer"], self.layers, self.train)
        members = range(stage * each, (stage + 1) * each)
        return [(lo, hi, tuple(r for r in members if r % fsdp == shard))
                for shard, (lo, hi) in enumerate(chunks(tensor["shape"][0], fsdp)) if lo < hi]

    def units(self):
        """(tensor, rank, holders, cut pieces) in the order of decision."""
        for tensor in self.tensors:
            shards = self.shards(tensor)
            for rank in range(self.ranks):
                pieces = self.pieces.get((tensor["tensor"], rank))
                if not pieces:
                    continue
                whole = [holders for lo, hi, holders in shards
                         if all(lo <= p["src"][0][0] and p["src"][0][1] <= hi for p in pieces)]
                if whole:
                    yield tensor, rank, whole[0], pieces
                    continue
                for lo, hi, holders in shards:
                    parts = [part for piece in pieces for part in cut(piece, lo, hi)]
                    if parts:
                        yield tensor, rank, holders, parts


def cut(piece, lo, hi):
    (first, last), *rest = piece["src"]
    row = piece["bytes"] // (last - first)
    low, high = max(first, lo), min(last, hi)
    if (low, high) == (first, last):  # of scales a row is of several rows of the tensor
        yield piece
    elif low < high:
        yield {"src": [[low, high], *rest], "param": piece["param"],
               "offset": piece["offset"] + (low - first) * row, "bytes": (high - low) * row}


def greedy(problem):
    loads = [0] * problem.trainers
    for tensor, rank, holders, pieces in problem.units():
        best = min(holders, key=lambda t: (loads[t], t))
        loads[best] += sum(p["bytes"] for p in pieces)
        yield tensor, best, rank, pieces


def published_plan(senders, engines, width):
    """The pseudo-code of the published plan, line by line: {(engine, rank): sender}."""
    targets = [(e, r) for e in range(engines) for r in range(width)]
    given, turn = {}, 0
    first = min(senders, len(targets))
    for s in range(first):
        given[targets[s]] = s
    for e, r in targets[first:]:
        counts = collections.Counter(s for (_, rank), s in given.items() if rank == r)
        if counts:
            s = min(counts, key=lambda c: (counts[c], c))
        else:
            s, turn = turn % senders, turn + 1
        given[e, r] = s
    return given


def round_robin(problem):
    plans = {}
    for tensor, rank, holders, pieces in problem.units():
        count = len(holders)
        if count not in plans:
            plans[count] = published_plan(count, problem.ranks // problem.tp, problem.tp)
        yield tensor, holders[plans[count][rank // problem.tp, rank % problem.tp]], rank, pieces


def transformed(piece):
    """(how, dtype, tensor of the scales) of a piece that is no copy, else ()."""
    return () if piece.get("make", "copy") == "copy" else (piece["make"], piece["to"], piece.get("scales", ""))


WAYS = ("direct", "mapped", "replica", "landed")


def how(tensor, piece, memory):
    """Direct when the box is one run of bytes of the tensor, copied as they are."""
    if memory == "landed":  # however it leaves
        return memory
    inner = False  # a dimension before this one has more than one element
    for (lo, hi), size in zip(piece["src"], tensor["shape"]):
        if transformed(piece) or inner and (lo, hi) != (0, size):
            return {"mapped": "mapped", "process": "replica"}[memory]
        inner = inner or hi - lo > 1
    return "direct"


def figures(problem, routes, memory):
    loads, needs = [0] * problem.trainers, [0] * problem.ranks
    sessions = [set() for _ in loads]
    prepared, distinct, ways, pieces_count = {}, {}, dict.fromkeys(WAYS, 0), 0
    for tensor, trainer, rank, pieces in routes:
        for piece in pieces:
            box = tuple(map(tuple, piece["src"]))
            loads[trainer] += piece["bytes"]
            needs[rank] += piece["bytes"]
            prepared[trainer, tensor["tensor"], box, transformed(piece)] = piece["bytes"]
            distinct[tensor["tensor"], box, transformed(piece)] = piece["bytes"]
            ways[how(tensor, piece, memory)] += piece["bytes"]
            pieces_count += 1
        sessions[trainer].add(rank)
    by_set = collections.Counter()
    for tensor in problem.tensors:  # no trainer is in two sets, so the bound is the fullest set's mean
        for lo, hi, holders in problem.shards(tensor):
            for rank in range(problem.ranks):
                for piece in problem.pieces.get((tensor["tensor"], rank), ()):
                    by_set[holders] += sum(part["bytes"] for part in cut(piece, lo, hi))
    bound = max(-(-count // len(holders)) for holders, count in by_set.items())
    return {"routes": len(routes), "pieces": pieces_count, "bytes_total": sum(loads), "trainer_bytes": loads,
            "inference_bytes": needs, "makespan_bytes": max(loads), "lower_bound_bytes": bound,
            "gap": max(loads) / bound - 1, "receiver_bound_bytes": max(needs),
            "imbalance": max(loads) / (sum(loads) / len(loads)), "prepared_bytes": sum(prepared.values()),
            "prepared_minimum_bytes": sum(distinct.values()), "sessions": [len(s) for s in sessions],
            "how_bytes": {way: count for way, count in ways.items() if count or way != "landed"}}


def digest(dump):
    """As docs/routing.md words it."""
    state = xxhash.xxh3_128()

    def number(*values):
        for value in values:
            state.update(struct.pack("<Q", value))

    def text(*values):
        for value in values:
            number(len(value.encode()))
            state.update(value.encode())

    text(dump["schema"], dump["policy"], dump["model"], dump["train"], dump["infer"])
    number(len(dump["trainers"]), len(dump["inference"]), len(dump["routes"]))
    for route in dump["routes"]:
        text(route["tensor"])
        number(route["trainer"], route["inference"], route["bytes"], len(route["pieces"]))
        for piece in route["pieces"]:
            text(piece["param"])
            number(len(piece["src"]))
            for low, high in piece["src"]:
                number(low, high)
            way = piece.get("how", route["how"])
            way = WAYS.index(way) + (bool(transformed(piece)) << 32)
            number(piece["offset"], piece["bytes"], way)
            if transformed(piece):
                word, *blocks = piece["make"].split()
                first, *_, last = [[int(n) for n in block.split("x")] for block in blocks * 2 or ["0x0"] * 2]
                number(word in ("scales", "rescale"), *(first if "scales" in piece else (0, 0)),
                       *(last if word != "dequantise" else (0, 0)))
                text(piece["to"], piece.get("scales", ""))
    return state.hexdigest()


def compare_figures(got, want):
    for key, value in want.items():
        if isinstance(value, float):
            assert got[key] == pytest.approx(value, abs=1e-8), key
        else:
            assert got[key] == value, key


@pytest.mark.parametrize("model,train,infer", JOBS, ids=["-".join(row) for row in JOBS])
def test_plan__is_what_the_rule_says(tmp_path, model, train, infer):
    if model in jobs.CONFIGS:
        (tmp_path / "config.json").write_text(json.dumps(jobs.CONFIGS[model]))
        model = tmp_path
    problem = Problem(model, train, infer)
    rules = {"greedy": list(greedy(problem)), "round-robin": list(round_robin(problem))}
    for policy, memory in (("greedy", "mapped"), ("round-robin", "process"), ("greedy", "landed")):
        text = jobs.weft("route", "plan", "--model", model, "--train", train, "--infer", infer, "--policy",
                         policy, "--memory", memory, "--json").stdout
        dump = json.loads(text)
        wanted = [{"tensor": tensor["tensor"], "trainer": trainer, "inference": rank,
                   "bytes": sum(p["bytes"] for p in pieces),
                   "pieces": [(p["src"], p["param"], p["offset"], p["bytes"], how(tensor, p, memory), transformed(p))
                              for p in pieces]} for tensor, trainer, rank, pieces in rules[policy]]
        planned = [{**{key: route[key] for key in ("tensor", "trainer", "inference", "bytes")},
                    "pieces": [(p["src"], p["param"], p["offset"], p["bytes"], p.get("how", route["how"]), transformed(p))
                               for p in route["pieces"]]} for route in dump["routes"]]
        assert len(planned) == len(wanted)
        for got, want in zip(planned, wanted):
            assert got == want
        compare_figures(dump["summary"], figures(problem, rules[policy], memory))
        compare_figures(dump["summary"]["round_robin"], figures(problem, rules["round-robin"], memory))
        assert dump["digest"] == digest(dump)
