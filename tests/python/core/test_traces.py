# SPDX-License-Identifier: Apache-2.0
"""Traces of workers and of a controller in a Python program (docs/traces.md), and a controller's lines whatever form others want
them in."""
from __future__ import annotations

import json
import threading

import numpy
import pytest

import weft

TENSOR = weft.Tensor("q", "F32", (64, 32))


def test_trace__is_written_by_every_worker_and_the_controller(tmp_path):
    file = str(tmp_path / "%r.json")
    with weft.Controller("world=1,source=gathered", "engines=1,tp=1", trace=file) as controller:
        with weft.Trainer(controller.address, 0, trace=file) as trainer, \
                weft.Inference(controller.address, 0, trace=file) as inference:
            trainer.declare_tensor(TENSOR)
            inference.declare_piece(TENSOR, inference.declare_param("p", "F32", (64, 32)))
            joins = threading.Thread(target=trainer.join)
            joins.start()
            inference.join()
            joins.join()
            publishes = threading.Thread(target=trainer.publish, args=(1, {"q": numpy.ones((64, 32), "f4")}))
            publishes.start()
            assert inference.wait() == 1
            publishes.join()
    names = {who: {row["name"] for row in json.loads((tmp_path / f"{who}.json").read_text())} for who in ("t0", "i0", "controller")}
    assert names["t0"] >= {"join", "accept", "write", "end", "update"}
    assert names["i0"] >= {"join", "update", "commit", "pause"}
    assert names["controller"] >= {"plan", "running"}
    rows = json.loads((tmp_path / "t0.json").read_text())
    assert sum(row["args"]["bytes"] for row in rows if row["name"] == "write" and "piece" in row["args"]) == 64 * 32 * 4


def test_trace__that_cannot_be_written_names_the_option(tmp_path):
    with pytest.raises(weft.Error, match=r"trace \(--trace\): cannot write"):
        weft.Trainer("tcp://127.0.0.1:1", 0, trace=str(tmp_path / "none" / "t.json"))


def test_controller__is_understood_where_others_want_json(monkeypatch):
    monkeypatch.setenv("WEFT_LOG_FORMAT", "json")
    with pytest.raises(weft.ConfigError, match="engines"):
        weft.Controller("world=1,source=gathered", "engines=nonsense")
