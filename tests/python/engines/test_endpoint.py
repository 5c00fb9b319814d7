# SPDX-License-Identifier: Apache-2.0
"""What an engine is told, as JSON and back."""
import json

import pytest
import torch

import weft
from weft.engines import Endpoint, Sender

TENSORS = [("a.weight", torch.bfloat16, (4, 8)), ("scale", "F32", ())]
AT = "tcp://127.0.0.1:29600"


def test_endpoint__comes_back_from_json():
    made = Endpoint(AT, 4, (weft.Tensor("a", "BF16", (2, 3)),), job="j", transport="shm", key_file="/k", layout="probe",
                    join_timeout_s=5.0)
    assert Endpoint.of(json.loads(json.dumps(made.to_dict()))) == made
    assert Endpoint.of(made) is made
    assert "update_timeout_s" not in made.to_dict()


def test_endpoint__of_each_engine_has_its_ranks_offset():
    with Sender(TENSORS, engines=3, ranks=2, job="j", layout="rows", update_timeout_s=7.0) as sender:
        given = [json.loads(json.dumps(sender.endpoint(engine))) for engine in range(3)]
        assert [each["rank_offset"] for each in given] == [0, 2, 4]
        assert given[0]["tensors"] == [["a.weight", "BF16", [4, 8]], ["scale", "F32", [1]]]
        endpoint = Endpoint.of(given[2])
        assert (endpoint.controller, endpoint.layout, endpoint.job) == (sender.controller, "rows", "j")
        assert endpoint.update_timeout_s == 7.0 and endpoint.join_timeout_s is None
        for wrong in (-1, 3):
            with pytest.raises(weft.UsageError, match=f"engine {wrong}: this job has 3"):
                sender.endpoint(wrong)


@pytest.mark.parametrize("given, words", [
    ({}, "controller is missing: give the engine what Sender.endpoint"),
    ({"controller": AT, "rank": 1, "world": 2}, "rank, world is none of them"),
    ({"controller": "localhost:29600"}, "controller is \"tcp://host:port\""),
    ({"controller": 5}, "not 5"),
    ({"controller": AT, "rank_offset": -1}, "rank_offset is the number of inference ranks before"),
    ({"controller": AT, "rank_offset": "2"}, "not '2'"),
    ({"controller": AT, "rank_offset": True}, "not True"),
    ({"controller": AT, "layout": "guess"}, "layout is one of auto, rows, probe, loader, not 'guess'"),
    ({"controller": AT, "tensors": [["a", "BF16", [2]], ["a", "BF16", [2]]]}, "tensor 'a' is listed twice"),
    ({"controller": AT, "tensors": [["a", "E9M9", [2]]]}, "E9M9"),
    ({"controller": AT, "tensors": [["a", "BF16"]]}, r"tensors are \[name, dtype, shape\]"),
    ({"controller": AT, "tensors": "a"}, r"tensors are \[name, dtype, shape\]"),
    ({"controller": AT, "join_timeout_s": "soon"}, "join_timeout_s"),
    ({"controller": AT, "update_timeout_s": 0}, "update_timeout_s"),
    ([AT], "an endpoint is a dictionary"),
    (None, "an endpoint is a dictionary")])
def test_endpoint__that_is_none_is_refused_with_why(given, words):
    with pytest.raises(weft.UsageError, match=words):
        Endpoint.of(given)
