# SPDX-License-Identifier: Apache-2.0
"""Metrics of workers and of a controller in a Python program (docs/metrics.md)."""
from __future__ import annotations

import threading

import numpy
import pytest

import weft

TENSOR = weft.Tensor("q", "F32", (64, 32))


def test_metrics_file__tells_of_every_worker_and_of_the_controller(tmp_path):
    file = str(tmp_path / "%r.prom")
    with weft.Controller("world=1,source=gathered", "engines=1,tp=1", metrics_file=file) as controller:
        with weft.Trainer(controller.address, 0, metrics_file=file) as trainer, \
                weft.Inference(controller.address, 0, metrics_file=file, metrics="off") as inference:
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
    for who, role in (("t0", "trainer"), ("i0", "inference")):
        assert f'weft_weight_version{{weft_job="weft",role="{role}",rank="0"}} 1\n' in (tmp_path / f"{who}.prom").read_text()
    assert 'weft_job_state{weft_job="weft",state="done"} 1\n' in (tmp_path / "controller.prom").read_text()


def test_metrics__with_a_wrong_address_name_the_option(tmp_path):
    with pytest.raises(weft.ConfigError, match=r"metrics \(--metrics\) ':x': the port is no number"):
        weft.Trainer("tcp://127.0.0.1:1", 0, metrics=":x")
