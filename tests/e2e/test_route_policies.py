# SPDX-License-Identifier: Apache-2.0
"""The policies on a real model: what the published routers are known to cost."""
import json

import pytest

import job as jobs

# Qwen2.5-0.5B from n trainers that hold everything to n or 8 whole copies: largest load / mean
FIGURES = [
    (8, 8, {"lpt": 1.000, "modulo": 1.0, "prefix": 2.204, "first-holder": 8.0}),
    (16, 8, {"lpt": 1.000, "modulo": 2.0, "prefix": 4.409, "first-holder": 16.0}),
    (24, 8, {"lpt": 1.000, "modulo": 3.0, "prefix": 6.613, "first-holder": 24.0}),
    (32, 8, {"lpt": 1.102, "modulo": 4.0, "prefix": 8.818, "first-holder": 32.0}),
    (128, 32, {"lpt": 1.102, "modulo": 4.0, "prefix": 35.27, "first-holder": 128.0}),
]


@pytest.mark.parametrize("trainers,ranks,figures", FIGURES)
def test_policies__have_the_imbalance_that_is_known_of_them(trainers, ranks, figures):
    for policy, expected in figures.items():
        text = jobs.weft("route", "plan", "--model", "Qwen2.5-0.5B", "--train", f"world={trainers}",
                         "--infer", f"engines={ranks}", "--policy", policy, "--json", "--summary").stdout
        assert json.loads(text)["summary"]["imbalance"] == pytest.approx(expected, rel=5e-4), policy
