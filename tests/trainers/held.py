# SPDX-License-Identifier: Apache-2.0
"""What Weft says that a trainer holds (`weft model holding`), as the elements of its parameters; and what a real one
has, from a process of torch. An element of the checkpoint is a number, counted through all tensors, and what belongs to
none is NOBODY."""
import itertools
import json
import os
import pathlib
import pickle
import re
import subprocess

import numpy

import job as jobs

HERE = pathlib.Path(__file__).resolve().parent
TORCHRUN = os.environ.get("WEFT_TORCHRUN")
NOBODY = -1


def two_layers(kind):
    return {} if "n_layer" in jobs.config_of(kind) else {"num_hidden_layers": 2}


def tensors_of(model):
    """Shape of each tensor of the checkpoint, and the number of its first element."""
    with open(model / "model.safetensors", "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    header.pop("__metadata__", None)
    shapes = {name: header[name]["shape"] for name in sorted(header)}
    bases = itertools.accumulate((int(numpy.prod(shape)) for shape in shapes.values()), initial=0)
    return {name: (shape, base) for (name, shape), base in zip(shapes.items(), bases)}


def holding(model, spec, rank):
    said = jobs.weft("model", "holding", model, "--train", spec, "--rank", rank, "--json").stdout
    return [json.loads(line) for line in said.splitlines()]


def filled(boxes, tensors):
    """{local parameter: (shape, elements)} as the boxes say; no element of it is in two boxes."""
    found = {}
    for box in boxes:
        shape, base = tensors[box["tensor"]]
        assert box["shape"] == shape
        size = int(numpy.prod(box["local_shape"]))
        known, elements = found.setdefault(box["local"], (box["local_shape"], numpy.full(size, NOBODY)))
        assert known == box["local_shape"]
        inside = numpy.indices([hi - lo for lo, hi in zip(box["lo"], box["hi"])]).reshape(len(shape), -1)
        of_tensor = numpy.ravel_multi_index([inside[d] + box["lo"][d] for d in range(len(shape))], shape)
        at = box["offset"] + sum(inside[d] * box["strides"][d] for d in range(len(shape)))
        assert at.size and at.min() >= 0 and at.max() < size, box
        assert (elements[at] == NOBODY).all() and numpy.unique(at).size == at.size, box
        elements[at] = base + of_tensor
    return found


def compared(said, real, rank, reshaped="$"):
    """The elements that the rank has. A parameter in which there are none is none of Weft's."""
    real = {name: both for name, both in real.items() if (both[1] != NOBODY).any()}
    assert sorted(said) == sorted(real), f"rank {rank}: {sorted(said.keys() ^ real.keys())}"
    for name, (shape, elements) in real.items():
        assert said[name][0] == shape or re.fullmatch(reshaped, name), f"rank {rank}: {name}"
        assert numpy.array_equal(said[name][1], elements), f"rank {rank}: {name}"
    return set().union(*(elements[elements != NOBODY].tolist() for _, elements in real.values()))


def assert_all(seen, tensors):
    assert len(seen) == sum(int(numpy.prod(shape)) for shape, _ in tensors.values()), "elements are on no rank"


def names(cases):
    return ["-".join([kind, *(f"{key}={value}" for key, value in changes.items()), spec])
            for kind, changes, spec in cases]


def real(script, cases, folder):
    """By the number of a case and the rank: what the script has written of it. All cases in one process, which takes
    seconds to load."""
    (folder / "cases.json").write_text(json.dumps(cases))
    done = subprocess.run([pathlib.Path(TORCHRUN).with_name("python"), HERE / script, folder / "cases.json", folder],
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return lambda number, rank: pickle.loads((folder / f"{number}.{rank}").read_bytes())
