# SPDX-License-Identifier: Apache-2.0
"""weft.sglang beside a double of SGLang, over its HTTP routes and with real ranks (doubles/sglang_engine.py); real SGLang is in
tests/engines."""
import json
import pathlib
import signal
import subprocess
import sys
import threading
import time
import urllib.request

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "doubles"))

import sglang_servers as servers
import torch

import weft
from weft.engines import Sender
from weft.sglang import Client, ServerError, _wire

BOTH = pytest.mark.parametrize("generation", ["new", "old"])


def ask(url, route, body=None):
    request = urllib.request.Request(url + route, json.dumps(body or {}).encode())
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.loads(answer.read())


def held(url):
    return {name: torch.tensor(rows) for name, rows in ask(url, "/state")["weights"].items()}


def assert_has(url, value):
    want = servers.weights(value)
    for have, name in zip(held(url).values(), want):
        assert torch.equal(have, want[name])


def sender(engines=1, ranks=1, **options):
    return Sender(servers.TENSORS, engines=engines, ranks=ranks, **{"update_timeout_s": 20, **options})


def connected(one, client, **order):
    client.connect(one, ranks=one.ranks, timeout_s=30, **order)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A server for tests that leave it as it was."""
    with servers.engine(tmp_path_factory.mktemp("shared")) as served:
        yield served


@BOTH
def test_sync__every_rank_of_two_servers_has_the_version_and_responses_say_so(tmp_path, generation):
    with servers.engine(tmp_path / "0", generation, ranks=2) as first, \
            servers.engine(tmp_path / "1", generation, ranks=2) as second, sender(engines=2, ranks=2) as one:
        client = Client([first.url, second.url])
        assert client.ranks() == 2
        connected(one, client)
        for version in (1, 2, 3):
            assert client.sync(one, servers.weights(version).items(), version) == version
            for served in (first, second):
                assert_has(served.url, version)
                state = ask(served.url, "/state")
                assert (state["version"], state["paused"]) == (str(version), False)
                assert state["spans"] == ([str(each) for each in range(1, version + 1)] if generation == "new" else [])
        client.destroy()


def test_update_weight_version__does_not_abort_requests(shared):
    Client(shared.url).update_weight_version("step-9")
    assert ask(shared.url, "/state")["version"] == "step-9"
    assert ask(shared.url, "/state")["aborted"] == 0
    ask(shared.url, "/update_weight_version", {"new_version": "x"})  # what SGLang does when nothing is said
    assert ask(shared.url, "/state")["aborted"] == 1


def test_init__a_rank_that_refuses_is_the_answer_of_all_at_once(tmp_path):
    with servers.engine(tmp_path, ranks=2, WEFT_DOUBLE_BREAKS='{"open": 1}') as served, sender(ranks=2) as one:
        started = time.monotonic()
        with pytest.raises(ServerError, match="rank 1 of 2: UnsupportedError: this rank is told to refuse"):
            connected(one, Client(served.url))
        assert time.monotonic() - started < 15  # not the deadline of a join


@BOTH
def test_update__a_rank_that_fails_alone_bumps_no_version_and_nothing_continues(tmp_path, generation):
    with servers.engine(tmp_path, generation, ranks=2, WEFT_DOUBLE_BREAKS='{"post_load": [1, 2]}') as served, \
            sender(ranks=2) as one:
        client = Client(served.url)
        connected(one, client)
        client.sync(one, servers.weights(1).items(), 1)
        with pytest.raises(weft.Error, match="the kernel of this rank failed"):
            client.sync(one, servers.weights(2).items(), 2)
        assert ask(served.url, "/state")["version"] == "1"
        with pytest.raises(ServerError, match="weights are mixed") as refused:
            client.continue_generation()
        assert refused.value.status == 409
        assert ask(served.url, "/state")["paused"]


def test_update__a_version_that_comes_whole_mends_what_was_mixed(tmp_path):
    with servers.engine(tmp_path, ranks=2, WEFT_DOUBLE_BREAKS='{"post_load": [1, 2]}') as served:
        client = Client(served.url)
        with sender(ranks=2) as one:
            connected(one, client)
            with pytest.raises(weft.Error):
                client.sync(one, servers.weights(2).items(), 2)
        with sender(ranks=2) as one:
            connected(one, client)
            client.sync(one, servers.weights(3).items(), 3)
            assert_has(served.url, 3)
            assert not ask(served.url, "/state")["paused"]


def test_update__before_init_says_what_is_missing(tmp_path):
    with servers.engine(tmp_path) as served:
        with pytest.raises(ServerError, match="group 'weft' was never made here: POST /init_weights_update_group"):
            Client(served.url).update(1)


def test_update__after_destroy_says_why_the_group_ended(tmp_path):
    with servers.engine(tmp_path) as served, sender() as one:
        client = Client(served.url)
        connected(one, client)
        client.destroy()
        with pytest.raises(ServerError, match="has ended .it was destroyed by request."):
            client.update(1)


def test_requests__that_are_not_for_weft_get_sglangs_own_answers(shared):
    client = Client(shared.url)
    with pytest.raises(ServerError, match="no NCCL"):
        client.each("/init_weights_update_group", {"master_address": "host", "master_port": 1, "rank_offset": 0, "world_size": 2})
    with pytest.raises(ServerError, match="Please call"):
        client.each("/update_weights_from_distributed", {"names": ["w"], "dtypes": ["float32"], "shapes": [[1]]})


def test_a_server_without_the_plug_in__is_named_as_such(tmp_path):
    with servers.engine(tmp_path, WEFT_DOUBLE_UNPLUGGED="1") as served, sender() as one:
        with pytest.raises(ServerError, match="the plug-in is not active there.*python -m weft.sglang"):
            connected(one, Client(served.url))


@pytest.mark.parametrize("body, words", [
    ({"master_address": "tcp://host:1"}, "has JSON in master_address"),
    ({"master_address": "{}"}, "has JSON in master_address"),
    ({"master_address": '{"endpoint": {"controller": "tcp://h:1"}, "timeout": 3}'}, "unknown beside it: timeout"),
    ({"master_address": '{"endpoint": {"controller": "tcp://h:1"}, "draft": "new"}'}, "'refuse' a server that has a draft model"),
    ({"master_address": '{"endpoint": {"controller": "tcp://h:1"}}', "group_name": ""}, "group_name is empty"),
])
def test_init__what_is_no_order_is_refused(shared, body, words):
    with pytest.raises(ServerError, match=words):
        Client(shared.url).each("/init_weights_update_group", {**_wire.init_body({"controller": "tcp://h:1"}), **body})


@pytest.mark.parametrize("change, words", [
    ({"names": ["w"]}, "names is .'weft:VERSION'."),
    ({"names": ["weft:two"]}, "names is .'weft:VERSION'."),
    ({"names": ["weft:1"], "shapes": [[1]]}, "dtypes and shapes stay empty"),
    ({"names": ["weft:1"], "selector": "draft"}, "Weft writes the target model only"),
])
def test_update__what_is_no_update_by_weft_changes_nothing_and_the_group_lives_on(shared, change, words):
    with sender() as one:
        client = Client(shared.url)
        connected(one, client)
        client.sync(one, servers.weights(1).items(), 1)
        with pytest.raises(ServerError, match=words) as refused:
            client.each("/update_weights_from_distributed", {**_wire.update_body(2), **change})
        assert "nothing was received, weights are as before" in refused.value.body
        client.sync(one, servers.weights(2).items(), 2)
        assert_has(shared.url, 2)
        client.destroy()


def test_update__is_refused_by_name_while_weights_are_released(tmp_path):
    with servers.engine(tmp_path) as served, sender() as one:
        client = Client(served.url)
        connected(one, client)
        ask(served.url, "/release_memory_occupation", {"tags": ["weights"]})
        with pytest.raises(ServerError, match="memory is released: POST /resume_memory_occupation"):
            client.update(1)
        ask(served.url, "/resume_memory_occupation", {"tags": ["weights"]})
        client.sync(one, servers.weights(1).items(), 1)  # addresses held: nothing has to be set up anew
        assert_has(served.url, 1)


def test_release__that_unmaps_memory_ends_the_group_and_init_binds_the_new(tmp_path):
    with servers.engine(tmp_path) as served:
        client = Client(served.url)
        ask(served.url, "/double", {"saver": True})
        with sender() as one:
            connected(one, client)
            ask(served.url, "/release_memory_occupation", {"tags": ["weights"]})
            ask(served.url, "/resume_memory_occupation", {"tags": ["weights"]})
            with pytest.raises(ServerError, match="release_memory_occupation gave the weights' memory back"):
                client.update(1)
        with sender() as one:
            connected(one, client)
            client.sync(one, servers.weights(1).items(), 1)
            assert_has(served.url, 1)


def test_update__finds_a_parameter_that_moved_and_init_binds_it(tmp_path):
    with servers.engine(tmp_path) as served:
        client = Client(served.url)
        with sender() as one:
            connected(one, client)
            ask(served.url, "/double", {"move": "model_b_weight"})
            with pytest.raises(weft.Error, match="model_b_weight does not lie where it lay"):
                client.sync(one, servers.weights(1).items(), 1)
        with sender() as one:
            connected(one, client)
            client.sync(one, servers.weights(1).items(), 1)
            assert_has(served.url, 1)


def test_draft_model__is_refused_or_kept_by_name(tmp_path):
    with servers.engine(tmp_path) as served:
        client = Client(served.url)
        ask(served.url, "/double", {"draft": True})
        with sender() as one, pytest.raises(ServerError, match="the server has a draft model .draft. that no update would reach"):
            connected(one, client)
        with sender() as one:
            connected(one, client, draft="keep")
            client.sync(one, servers.weights(1).items(), 1, selector="target")
            assert_has(served.url, 1)


def test_pipeline_stages__are_refused_and_not_waited_for(tmp_path):
    with servers.engine(tmp_path, WEFT_DOUBLE_STAGES="2") as served, sender() as one:
        with pytest.raises(ServerError, match="pipeline parallelism .2 stages."):
            connected(one, Client(served.url))


def test_an_open_update_session__is_refused(tmp_path):
    with servers.engine(tmp_path) as served, sender() as one:
        client = Client(served.url)
        connected(one, client)
        ask(served.url, "/double", {"_session": "open"})
        with pytest.raises(ServerError, match="a weight-update session is open"):
            client.update(1)


def test_flush_in_the_update__that_finds_requests_running_fails_the_request(tmp_path):
    with servers.engine(tmp_path) as served, sender() as one:
        client = Client(served.url)
        connected(one, client)
        ask(served.url, "/double", {"running": True})
        with pytest.raises(weft.Error, match="the cache was not flushed"):
            client.sync(one, servers.weights(1).items(), 1, pause=None, flush_cache=True)
        assert ask(served.url, "/state")["version"] == "default"


TRAINER = """
import sys, time
sys.path.insert(0, {doubles!r})
import sglang_servers as servers
from weft.engines import Sender
from weft.sglang import Client
client = Client({url!r})
sender = Sender(servers.TENSORS, engines=1, ranks=1, update_timeout_s=60)
client.connect(sender, timeout_s=30)
client.sync(sender, servers.weights(1).items(), 1)
print("synced", flush=True)
sender.trainer.begin(2)
sender.trainer.write("model.a.weight", servers.weights(2)["model.a.weight"])
sender.trainer.drain()
print("half", flush=True)
time.sleep(60)
"""


def test_a_killed_trainer__ends_the_update_within_seconds_and_mixed_weights_do_not_continue(tmp_path):
    with servers.engine(tmp_path) as served:
        client = Client(served.url)
        trainer = subprocess.Popen([sys.executable, "-c", TRAINER.format(doubles=str(servers.HERE), url=served.url)],
                                   stdout=subprocess.PIPE, text=True)
        try:
            assert trainer.stdout.readline() == "synced\n"
            failures = []

            def update():
                try:
                    client.update(2)
                except weft.Error as error:
                    failures.append(error)
            thread = threading.Thread(target=update)
            thread.start()
            assert trainer.stdout.readline() == "half\n"
            trainer.send_signal(signal.SIGKILL)
            thread.join(20)
            assert not thread.is_alive()
        finally:
            trainer.kill()
            trainer.wait(10)
        assert "trainer 0" in str(failures[0]) or "controller" in str(failures[0])
        assert "weights are mixed" in failures[0].body and "has ended: init again" in failures[0].body
        assert ask(served.url, "/state")["version"] == "1"
        with pytest.raises(ServerError, match="weights are mixed"):
            client.continue_generation()
        with sender() as one:
            connected(one, client)
            client.sync(one, servers.weights(3).items(), 3)
            assert_has(served.url, 3)


def test_client__names_every_server_that_does_not_answer():
    client = Client(["http://127.0.0.1:9", "http://127.0.0.1:10"], timeout_s=2)
    with pytest.raises(ServerError, match="2 of 2 servers failed: .*127.0.0.1:9/flush_cache.*127.0.0.1:10/flush_cache"):
        client.flush_cache()


@pytest.mark.parametrize("urls", [[], "a:30000", ["http://a:30000", "http://a:30000/"]])
def test_client__wants_each_server_once(urls):
    with pytest.raises(weft.UsageError, match="urls of SGLang servers"):
        Client(urls)


def test_client__has_deadlines(tmp_path):
    import socket

    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        client = Client(f"http://127.0.0.1:{deaf.getsockname()[1]}", timeout_s=0.5)
        with pytest.raises(weft.WaitTimeout, match="/pause_generation: no answer within 0.5 s"):
            client.pause_generation()


def test_import__brings_neither_torch_nor_sglang():
    code = "import sys, weft.sglang; assert not {'torch', 'sglang', 'numpy'} & set(sys.modules), sorted(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


def test_report__says_that_sglang_itself_does_not_import(tmp_path, monkeypatch):
    (tmp_path / "sglang").mkdir()
    (tmp_path / "sglang" / "__init__.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')\n")
    path = [str(tmp_path), *(entry for entry in sys.path if entry)]
    monkeypatch.setenv("PYTHONPATH", ":".join(path))
    done = subprocess.run([sys.executable, "-m", "weft.sglang"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and done.stderr == ""
    assert "sglang: does not import: RuntimeError: operator torchvision::nms does not exist" in done.stdout


def test_register__that_cannot_hook_says_so_loudly():
    """SGLang only logs what a plug-in raises."""
    code = """
import sys
sys.path.insert(0, {doubles!r})
import sglang_engine as double
double.module("sglang.version", __version__="9.9")
double.module("sglang.srt.plugins.hook_registry", HookRegistry=double.HookRegistry, HookType=double.HookType)
double.module("sglang.srt.managers")
import weft.sglang
weft.sglang.register()
""".format(doubles=str(servers.HERE))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "SGLang plug-in NOT active" in done.stderr and "SGLang 9.9 has none of" in done.stderr
