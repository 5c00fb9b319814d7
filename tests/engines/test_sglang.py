# SPDX-License-Identifier: Apache-2.0
"""weft.sglang in real, whole SGLang servers on the processor: launch_server, its own plug-in loading, scheduler processes, HTTP.
Trainers are other processes; what a server holds afterwards is what its own loader makes of the same checkpoint, by its own
checker. Slow: a server takes about a minute to come up on two cores; `./bootstrap engines` runs it.

Rank 0's answer is the engine's: the newest release has two tensor-parallel ranks here."""
import json
import pathlib
import signal
import subprocess
import sys
import threading
import time
import urllib.request

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import sglang_server as servers

if not servers.PYTHON or not servers.RELEASES:
    pytest.skip("WEFT_ENGINES_PYTHON and WEFT_SGLANG name no SGLang (tests/engines/sglang_server.py)", allow_module_level=True)

MAKE = """
import sys
import torch
from transformers import LlamaConfig, LlamaForCausalLM
config = LlamaConfig(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=128,
                     vocab_size=500, max_position_embeddings=512, head_dim=16, tie_word_embeddings=False)
for seed, folder in enumerate(sys.argv[1:]):
    torch.manual_seed(seed)
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
"""
TRAINER = """
import pathlib, sys, time
from safetensors.torch import load_file
from weft.engines import Sender
from weft.sglang import Client
url, ranks, *folders = sys.argv[1:]
models = [load_file(pathlib.Path(folder) / "model.safetensors") for folder in folders]
client = Client(url, timeout_s=120)
tensors = [(name, one.dtype, one.shape) for name, one in models[0].items()]
with Sender(tensors, engines=1, ranks=int(ranks), update_timeout_s=60) as sender:
    client.connect(sender, ranks=int(ranks), timeout_s=120)
    print("joined", flush=True)
    for line in sys.stdin:
        what, version, which = line.split()
        if what == "sync":
            client.sync(sender, models[int(which)].items(), int(version))
            print("synced", flush=True)
        else:
            sender.trainer.begin(int(version))
            for name, one in list(models[int(which)].items())[:5]:
                sender.trainer.write(name, one)
            sender.trainer.drain()
            print("half", flush=True)
            time.sleep(600)
    client.destroy()
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Two checkpoints of one shape."""
    folder = tmp_path_factory.mktemp("models")
    made = [folder / "first", folder / "second"]
    subprocess.run([servers.PYTHON, "-c", MAKE, *map(str, made)], check=True, timeout=200,
                   env=servers.environment(servers.RELEASES[0]))
    return made


@pytest.fixture(scope="module", params=servers.RELEASES, ids=map(servers.version_of, servers.RELEASES))
def served(request, models, tmp_path_factory):
    """A server that serves the first checkpoint, and how many ranks it has."""
    ranks = 1 if servers.is_old(request.param) else 2
    with servers.server(request.param, models[0], tmp_path_factory.mktemp("server"), ranks) as (url, log):
        yield Served(request.param, url, log, ranks)


class Served:
    def __init__(self, release, url, log, ranks):
        self.release, self.url, self.log, self.ranks = release, url, log, ranks

    def ask(self, route, body=None, status=200):
        request = urllib.request.Request(self.url + route, json.dumps(body or {}).encode(), {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=200) as answer:
                said, code = answer.read(), answer.status
        except urllib.error.HTTPError as error:
            said, code = error.read(), error.code
        assert code == status, (route, code, said[:2000])
        return json.loads(said or b"null")

    def checksums(self):
        """Of each rank's live parameters, by SGLang's own checker."""
        answer = self.ask("/weights_checker", {"action": "checksum"})
        found = [one["checksums"] for one in answer["ranks"]]
        assert len(found) == self.ranks and all(found)
        return found

    def version(self):
        with urllib.request.urlopen(self.url + "/model_info", timeout=60) as answer:
            return json.loads(answer.read())["weight_version"]

    def generated(self):
        answer = self.ask("/generate", {"input_ids": [1, 2, 3, 4, 5], "sampling_params": {"temperature": 0, "max_new_tokens": 2}})
        return answer["output_ids"], answer["meta_info"]["weight_version"]

    def loaded(self, folder):
        """SGLang's own loader, into the same live parameters."""
        self.ask("/update_weights_from_disk", {"model_path": str(folder)})
        return self.checksums()


class Trainer:
    """A trainer's process; it does as its input says."""

    def __init__(self, served, models):
        self.process = subprocess.Popen([servers.PYTHON, "-c", TRAINER, served.url, str(served.ranks), *map(str, models)],
                                        text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        env=servers.environment(served.release))
        self.heard("joined")

    def heard(self, want):
        line = self.process.stdout.readline().strip()
        assert line == want, line

    def say(self, line, want):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        self.heard(want)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        try:
            self.process.wait(30)
        finally:
            self.process.kill()
            self.process.wait(10)


def update(served, version):
    return {"names": [f"weft:{version}"], "dtypes": [], "shapes": [], "group_name": "weft", "flush_cache": False,
            "weight_version": str(version)}


def test_plug_in__is_loaded_and_its_hooks_applied_by_sglang_itself(served):
    """That they are applied where they must be, the other tests see."""
    log = served.log.read_text()
    assert log.count("hooks, the first on") >= 1 + served.ranks  # the launcher, and each scheduler
    assert "NOT active" not in log and "Failed to apply hooks" not in log


def test_update__before_init_changes_nothing_and_says_what_to_do(served):
    before = served.checksums()
    answer = served.ask("/update_weights_from_distributed", update(served, 1), status=400)
    assert "never made here: POST /init_weights_update_group" in answer["message"]
    assert served.checksums() == before and served.version() == "default"


def test_sync__leaves_what_the_engines_own_loader_makes_on_every_rank(served, models):
    first, second = served.loaded(models[0]), served.loaded(models[1])
    assert first != second
    served.loaded(models[0])
    with Trainer(served, models) as trainer:
        for version, which, want in ((1, 1, second), (2, 0, first), (3, 1, second)):
            trainer.say(f"sync {version} {which}", "synced")
            assert served.checksums() == want
            assert served.version() == str(version)


def test_sync__passes_the_engines_own_snapshot_reset_compare(served, models):
    """As --check-weight-update-equal of slime and miles does."""
    if servers.is_old(served.release):
        pytest.skip("what this release calls a snapshot is, on the processor, the parameters themselves")
    served.loaded(models[1])
    with Trainer(served, models) as trainer:
        served.ask("/weights_checker", {"action": "snapshot"})
        served.ask("/weights_checker", {"action": "reset_tensors"})
        served.ask("/weights_checker", {"action": "compare"}, status=400)
        trainer.say("sync 1 1", "synced")
        served.ask("/weights_checker", {"action": "compare"})
        trainer.say("sync 2 0", "synced")
        served.ask("/weights_checker", {"action": "compare"}, status=400)


def test_sync__is_what_the_engine_computes_with_and_responses_name_the_version(served, models):
    served.loaded(models[1])
    wanted, _ = served.generated()
    served.loaded(models[0])
    assert served.generated()[0] != wanted
    with Trainer(served, models) as trainer:
        trainer.say("sync 7 1", "synced")
        assert served.generated() == (wanted, "7")


def test_update__is_refused_while_weights_are_released(served, models):
    with Trainer(served, models) as trainer:
        served.ask("/release_memory_occupation", {"tags": ["weights"]})
        answer = served.ask("/update_weights_from_distributed", update(served, 1), status=400)
        assert "the weights' memory is released" in answer["message"]
        served.ask("/resume_memory_occupation", {"tags": ["weights"]})
        trainer.say("sync 1 1", "synced")


def test_update__is_refused_inside_of_a_session_for_loaders(served, models):
    if servers.is_old(served.release):
        pytest.skip("this release has no sessions")
    with Trainer(served, models) as trainer:
        served.ask("/begin_weight_update", {})
        answer = served.ask("/update_weights_from_distributed", update(served, 1), status=400)
        assert "a weight-update session is open" in answer["message"]
        served.ask("/end_weight_update", {})
        trainer.say("sync 1 0", "synced")


def test_a_killed_trainer__is_the_answer_within_seconds_and_mixed_weights_do_not_continue(served, models):
    answers = []
    with Trainer(served, models) as trainer:
        trainer.say("sync 1 0", "synced")
        served.ask("/pause_generation", {"mode": "abort"})
        thread = threading.Thread(target=lambda: answers.append(
            served.ask("/update_weights_from_distributed", update(served, 2), status=400)))
        thread.start()
        trainer.say("half 2 1", "half")
        trainer.process.send_signal(signal.SIGKILL)
        killed = time.monotonic()
        thread.join(60)
    assert not thread.is_alive() and time.monotonic() - killed < 30
    assert "weights are mixed" in answers[0]["message"] and "init again" in answers[0]["message"]
    assert served.version() == "1"
    assert "weights are mixed" in json.dumps(served.ask("/continue_generation", {}, status=409))
    with Trainer(served, models) as trainer:  # a whole version mends it
        trainer.say("sync 5 1", "synced")
    assert served.checksums() == served.loaded(models[1])
