#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a layout file (docs/layout-file.md): the tensors of any model's checkpoint and, for engines of
one --infer spec, what each parameter is made of. Nothing but Python is needed.

    import layout_file as lf
    file = lf.Layout("my-model", "tp=2", layers=24)
    file.checkpoint("/models/my-model")              # or file.tensor(name, dtype, shape, layer) for each
    file.param("head.weight", [lf.part("lm_head.weight", lf.cut(0, 2))])
    file.write("my-model.layout.json")
"""
import json
import pathlib
import re
import struct

# What the names of a multimodal model's other parts begin with, in checkpoints and in engines.
TOWERS = re.compile(r"(?:model\.)?((?:vision_tower|vision_model|visual|audio_tower|multi_modal_projector|mm_projector)\.)")
LAYER = re.compile(r"(?:^|\.)(?:layers|blocks|h)\.(\d+)\.")


def cut(dimension, parts):
    """Rank k takes the k-th of `parts` equal parts of that dimension."""
    return ("cut", dimension, parts)


def rows(low, high, step=0):
    """Rows low..high of dimension 0, step rows further from rank to rank."""
    return ("rows", low, high, step)


def part(tensor, which=None, make=None, scales=None):
    """What one tensor gives to a parameter: all of it, cut(..), rows(..), or a list of
    [low, high] or [low, high, step], one a dimension."""
    return {"tensor": tensor, "which": which, "make": make, "scales": scales}


def fill(size):
    """Bytes of the parameter that no tensor gives."""
    return {"fill": size}


class Layout:
    def __init__(self, model, infer, layers=0, tied=False):
        self.head = {"schema": "weft.layout/1", "model": model, "infer": infer}
        if layers:
            self.head["layers"] = layers
        if tied:
            self.head["tied"] = True
        self.tensors, self.left_alone, self.params = {}, {}, []
        self.beginnings = []  # of names that a checkpoint may have too: "vision_tower."

    def tensor(self, name, dtype, shape, layer=None, left_alone=False, scale=False):
        """In the order of the checkpoint. Layer -1 or None: before the layers; their number: after them.
        scale: of other tensors' elements, and no parameters."""
        row = {"name": name, "dtype": dtype, "shape": list(shape) or [1]}
        if layer is not None:
            row["layer"] = layer
        if scale:
            row["scale"] = True
        (self.left_alone if left_alone else self.tensors)[name] = row

    def leave(self, beginning):
        """Tensors of a checkpoint and parameters of an engine whose names begin so are nobody's concern."""
        if beginning not in self.beginnings:
            self.beginnings.append(beginning)

    def checkpoint(self, folder, leave_alone=lambda name: False, towers=False):
        """Every tensor of a folder's safetensors files, with the layer that its name says; those
        behind the last layer come after the layers. The other parts of a multimodal model are left
        alone unless `towers` says that they are sent too."""
        layers, layer = self.head.get("layers", 0), -1
        for path in sorted(pathlib.Path(folder).glob("*.safetensors")):
            with open(path, "rb") as file:
                header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
            header.pop("__metadata__", None)
            for name, row in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
                tower = None if towers else TOWERS.match(name)
                if tower:
                    self.leave(tower[0])
                    self.leave(tower[1])
                    continue
                found = LAYER.search(name)
                if found:
                    layer = int(found[1])
                at = layer if found or layer < 0 else layers
                self.tensor(name, row["dtype"], row["shape"], at if layers else None, leave_alone(name),
                            name.endswith("_scale_inv"))

    def src(self, piece):
        shape, which = self.tensors[piece["tensor"]]["shape"], piece["which"]
        if which is None or isinstance(which, list):
            return which
        whole = [[0, size] for size in shape]
        if which[0] == "rows":
            return [[*which[1:]], *whole[1:]]
        _, dimension, parts = which
        size, rest = divmod(shape[dimension], parts)
        if rest:
            raise ValueError(f"{piece['tensor']}: {parts} ranks cannot share {shape[dimension]} of dimension {dimension}")
        whole[dimension] = [0, size, size]
        return whole

    def shape(self, pieces):
        """Of pieces that stack on top of each other."""
        shapes = []
        for piece in pieces:
            src = self.src(piece)
            shapes.append([high[1] - high[0] for high in src] if src else self.tensors[piece["tensor"]]["shape"])
        return [sum(shape[0] for shape in shapes), *shapes[0][1:]]

    def param(self, name, pieces, dtype=None, shape=None, ranks=None):
        """Pieces in the order of the parameter's bytes. dtype and shape follow from them unless they
        are converted, filled or shaped anew. ranks: [0, 1], or [[0, 1], [2, 3]] where two share a part."""
        row = {"name": name, "dtype": dtype or self.tensors[pieces[0]["tensor"]]["dtype"],
               "shape": list(shape or self.shape(pieces))}
        if ranks is not None:
            row["ranks"] = ranks
        row["pieces"] = []
        for piece in pieces:
            made = {"fill": piece["fill"]} if "fill" in piece else {
                "tensor": piece["tensor"], "src": self.src(piece), "make": piece["make"], "scales": piece["scales"]}
            row["pieces"].append({key: value for key, value in made.items() if value is not None})
        self.params.append(row)

    def write(self, path):
        lists = {"tensors": list(self.tensors.values()), "left_alone": self.beginnings + list(self.left_alone.values()),
                 "params": self.params}
        with open(path, "w", encoding="utf-8") as file:
            file.write(json.dumps(self.head)[:-1])
            for key, items in lists.items():
                if items or key != "left_alone":
                    file.write(f',\n"{key}": [\n' + ",\n".join(map(json.dumps, items)) + "]")
            file.write("}\n")
