# SPDX-License-Identifier: Apache-2.0
"""Routing dumps of any size made by a rule, for what reads dumps: no model has 10^6 routes and
names that attack the reader."""
import json

HOSTILE = [
    "</script><script>document.title='owned'</script>",
    "<!--<script>", "]]>", "--><img src=x onerror=\"document.title='owned'\">",
    "quotes \" ' ` ${1+1} {{data}} {{title}}", "back\\slash \\u003c/script\\u003e &lt;b&gt; &amp;",
    "\u2028line\u2029paragraph", "right\u202eto left", "tab\tnew\nline", "\u65e5\u672c\u8a9e \U0001f9f5 e\u0301",
    "javascript:alert(1)", "http-looking // name", "x" * 300,
]


def write(path, trainers, ranks, tensors, stages=1, per_engine=1, names=(), policy="greedy", turn=0,
          labels=("synthetic", None, None)):
    """A dump of tensors x ranks routes: tensor k goes from stage k % stages; its bytes follow a rule
    that leaves no two loads alike. `turn` moves every choice, for a second policy. Returns its sums."""
    each = trainers // stages
    trainer_bytes, inference_bytes = [0] * trainers, [0] * ranks
    peers = [set() for _ in range(trainers)]
    hows = ("direct", "mapped", "replica")
    how_bytes = dict.fromkeys(hows, 0)
    put = json.dumps
    with open(path, "w") as out:
        model, train, infer = labels
        head = {"schema": "weft.routing/1", "policy": policy, "order": "rotated", "model": model,
                "train": train or f"world={trainers}", "infer": infer or f"engines={ranks // per_engine},tp={per_engine}",
                "trainers": [{"rank": t, "stage": t // each} for t in range(trainers)],
                "inference": [{"rank": r, "engine": r // per_engine, "engine_rank": r % per_engine}
                              for r in range(ranks)]}
        out.write(put(head)[:-1] + ',"routes":[\n')
        for k in range(tensors):
            name = put(names[k] if k < len(names) else f"model.layers.{k // 7}.part{k % 7}.weight")
            stage = k % stages * each
            size = 1024 * (1 + (k * 7919) % 1000)
            how = hows[0 if k % 3 else 1 + k % 2]
            for r in range(ranks):
                t = stage + (r + k // stages + turn * (r * r + k)) % each
                out.write(f'{"," if k or r else ""}{{"tensor":{name},"trainer":{t},"inference":{r},"bytes":{size},'
                          f'"how":"{how}","pieces":[{{"src":[[0,{size}]],"param":"p","offset":0,"bytes":{size}}}]}}\n')
                trainer_bytes[t] += size
                inference_bytes[r] += size
                peers[t].add(r)
                how_bytes[how] += size
        total = sum(trainer_bytes)
        bound = -(-total // trainers)
        figures = {"routes": tensors * ranks, "pieces": tensors * ranks, "bytes_total": total,
                   "trainer_bytes": trainer_bytes, "inference_bytes": inference_bytes,
                   "makespan_bytes": max(trainer_bytes), "lower_bound_bytes": bound,
                   "receiver_bound_bytes": max(inference_bytes), "gap": round(max(trainer_bytes) / bound - 1, 9),
                   "imbalance": round(max(trainer_bytes) * trainers / total, 9), "prepared_bytes": total,
                   "prepared_minimum_bytes": total // ranks, "sessions": [len(p) for p in peers],
                   "how_bytes": how_bytes}
        hostile = list(names)
        summary = {**figures, "unwanted": hostile, "filled": hostile, "filled_bytes": 0, "round_robin": figures}
        out.write(f'],"summary":{put(summary)},"digest":"{"0123456789abcdef" * 2}"}}\n')
    return figures
