# SPDX-License-Identifier: Apache-2.0
"""weft.miles beside doubles of miles' and slime's actors (doubles/miles_trainer.py): two ranks of a real Megatron-Core model,
tensor parallel, into two engines of one and of two ranks (doubles/sglang_engine.py). Neither framework is on PyPI as it is
read."""
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import types

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "doubles"))

import miles_trainer as double
import sglang_servers as servers
import torch
from test_sglang import ask

import weft
import weft.miles

pytest.importorskip("megatron.core")


class Trainers:
    def __init__(self, processes):
        self.processes = processes

    def say(self, *lines):
        """One line to all, or one each; what each answers."""
        lines = lines * len(self.processes) if len(lines) == 1 else lines
        for process, line in zip(self.processes, lines):
            process.stdin.write(line + "\n")
            process.stdin.flush()
        return [process.stdout.readline().split(maxsplit=3) for process in self.processes]


@contextlib.contextmanager
def trainers(framework, folder, urls, counts, world=2, **environment):
    (folder / "config.json").write_text(json.dumps(double.CONFIG))
    command = [sys.executable, double.__file__, framework]
    processes = [subprocess.Popen([*command, str(rank), str(world), str(folder), ",".join(urls), ",".join(map(str, counts))],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment})
                 for rank in range(world)]
    try:
        yield Trainers(processes)
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait(10)


@contextlib.contextmanager
def engines(folder, *ranks, **environment):
    folder.mkdir(exist_ok=True)
    file = folder / "tensors.json"
    file.write_text(json.dumps([[name, "BF16", shape] for name, shape in double.shapes().items()]))
    with contextlib.ExitStack() as all_of_them:
        yield [all_of_them.enter_context(servers.engine(folder / f"engine-{number}", "new", count, WEFT_DOUBLE_TENSORS=str(file),
                                                        **environment)).url for number, count in enumerate(ranks)]


def all_ok(answers):
    assert all(said[0] == "ok" for said in answers), answers
    return True


def assert_has(url, version):
    state = ask(url, "/state")
    assert state["version"] == str(version)
    for name in double.shapes():
        assert torch.equal(torch.tensor(state["weights"][name.replace(".", "_")]), double.value(name, version).float()), name


@pytest.mark.parametrize("framework, way", [("miles", "shards"), ("slime", "shards"), ("miles", "gathered")])
def test_updates__put_every_element_of_megatrons_shards_into_both_engines(tmp_path, framework, way):
    with engines(tmp_path, 1, 2) as urls, trainers(framework, tmp_path, urls, [1, 2], WEFT_MEGATRON=way) as both:
        assert all_ok(both.say("connect"))
        for version in (1, 2):
            answers = both.say(f"update {version}")
            assert [said[:2] for said in answers] == [["ok", str(version)]] * 2, answers
            metrics = json.loads(f"{answers[0][2]} {answers[0][3]}")
            assert {"perf/update_weights_total_s", "perf/update_weights_send_s"} <= set(metrics)
            for url in urls:
                assert_has(url, version)
                assert not ask(url, "/state")["paused"]
        both.say("disconnect")  # slime does before it puts trainers to sleep
        assert all_ok(both.say("connect"))
        assert [said[:2] for said in both.say("update 3")] == [["ok", "3"]] * 2
        assert_has(urls[1], 3)


def test_a_rank_of_an_engine_that_fails__bumps_no_version_anywhere_and_nothing_continues(tmp_path):
    """The in-tree P2P logs the error of a transfer and bumps the version."""
    with engines(tmp_path, 2, WEFT_DOUBLE_BREAKS='{"post_load": [1, 2]}') as urls, trainers("miles", tmp_path, urls, [2]) as both:
        both.say("connect")
        assert [said[:2] for said in both.say("update 1")] == [["ok", "1"]] * 2
        failed = both.say("update 2")
        assert [said[:2] for said in failed] == [["error", "1"]] * 2
        assert all("the kernel of this rank failed" in said[3] for said in failed), failed
        state = ask(urls[0], "/state")
        assert state["version"] == "1" and state["paused"]
        again = both.say("update 3")
        assert all(said[0] == "error" and "connect_rollout_engines before the next" in said[3] for said in again), again


def test_a_killed_trainer__is_heard_by_the_other_which_reports_no_success(tmp_path):
    with engines(tmp_path, 1) as urls, trainers("miles", tmp_path, urls, [1]) as both:
        both.say("connect")
        both.say("update 1")
        both.processes[1].kill()
        both.processes[1].wait(10)
        both.processes[0].stdin.write("update 2\n")
        both.processes[0].stdin.flush()
        said = both.processes[0].stdout.readline().split(maxsplit=3)
        assert said[:2] == ["error", "1"], said
        assert ask(urls[0], "/state")["version"] == "1"


def test_update__before_connect_is_refused(tmp_path):
    with trainers("slime", tmp_path, ["http://127.0.0.1:9"], [1], world=1) as one:
        (said,) = one.say("update 1")
        assert said[0] == "error" and "update_weights before connect_rollout_engines" in said[3]


def test_an_engine_that_refuses__ends_connect_on_all_trainers(tmp_path):
    with engines(tmp_path, 1, WEFT_DOUBLE_BREAKS='{"open": 0}') as urls, trainers("miles", tmp_path, urls, [1]) as both:
        said = both.say("connect")
        assert all(one[0] == "error" and "this rank is told to refuse" in one[3] for one in said), said


@pytest.mark.parametrize("options, words", [
    ({"colocate": True}, "--colocate"), ({"update_weight_transfer_mode": "disk-delta"}, "weights go by 'disk-delta'"),
    ({"update_weight_transport": "disk"}, "weights go by 'disk'"),
    ({}, "where neither miles' nor slime's Megatron actor is loaded"),
])
def test_install__refuses_where_weights_would_not_go_by_weft(options, words):
    with pytest.raises(weft.UsageError, match=words):
        weft.miles.install(types.SimpleNamespace(**options))


def test_lora__is_refused_before_anything_is_made():
    with pytest.raises(weft.UnsupportedError, match="LoRA"):
        weft.miles.Updater(types.SimpleNamespace(), [], dict, model_name="m", quantization_config=None, is_lora=True)


def test_quantised_rollout__names_the_way_that_quantises(monkeypatch):
    updater = weft.miles.Updater(types.SimpleNamespace(rollout_num_gpus_per_engine=1), [], dict, model_name="m",
                                 quantization_config={"quant_method": "fp8"})
    with pytest.raises(weft.Error, match="WEFT_MEGATRON=gathered"):
        updater.connect_rollout_engines([object()], None)
