# SPDX-License-Identifier: Apache-2.0
"""weft.skyrl in the order in which SkyRL's workers call it (skyrl 0.3.0), beside a double of
vLLM's server, and in the real package's module where it is."""
import asyncio
import importlib
import json
import sys
import types
import typing
import urllib.error
import urllib.request

import pytest
import torch
from servers import SHAPES, running

import weft
import weft.skyrl


class Client:
    """SkyRL's RemoteInferenceClient, the part that WeftSender uses."""

    def __init__(self, urls):
        self.server_urls = urls

    async def _call_server(self, url, route, body):
        def post():
            request = urllib.request.Request(url + route, json.dumps(body).encode(), {"Content-Type": "application/json"})
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    return answer.read()
            except urllib.error.HTTPError as error:
                raise RuntimeError(f"{route}: {error.code} {error.read().decode()}") from error
        return url, await asyncio.to_thread(post)

    async def _call_all_servers(self, route, body):
        return dict(await asyncio.gather(*[self._call_server(url, route, body) for url in self.server_urls]))

    async def init_weight_update_communicator(self, init_info):
        for url, payload in zip(self.server_urls, init_info.for_servers(1, len(self.server_urls))):
            await self._call_server(url, "/init_weight_transfer_engine", payload)


def chunks(value):
    for name, shape in SHAPES.items():
        yield types.SimpleNamespace(names=[name], tensors=[torch.full(shape, float(value))])


METADATA = {"names": list(SHAPES), "dtype_names": ["float32"] * len(SHAPES), "shapes": [list(shape) for shape in SHAPES.values()]}


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    monkeypatch.setenv("WEFT_BIND", "tcp://127.0.0.1:0")
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 0)
    monkeypatch.setattr(torch.distributed, "barrier", lambda: None)
    ray = types.ModuleType("ray")
    ray.util = types.SimpleNamespace(get_node_ip_address=lambda: "127.0.0.1")
    monkeypatch.setitem(sys.modules, "ray", ray)


def test_sender__brings_each_version_to_all_servers(tmp_path):
    with running(tmp_path, "0.24.0", servers=2) as both:
        client = Client([server.url for server in both])

        async def train():
            info = weft.skyrl.WeftTransferStrategy.create_init_info(None, inference_world_size=2)
            sender, _ = await asyncio.gather(
                asyncio.to_thread(weft.skyrl.WeftTransferStrategy.create_sender, init_info=info, inference_client=client),
                client.init_weight_update_communicator(info))
            for value in (5, 6):
                await sender.send_chunks(chunks(value), weight_metadata=METADATA)
                assert all(server.holds(value) for server in both)
            sender.teardown()
            sender.teardown()
            with pytest.raises(weft.StateError, match="after teardown"):
                await sender.send_chunks(chunks(1), weight_metadata=METADATA)
        asyncio.run(train())
        assert both[0].get("/log")["log"] == ["/init_weight_transfer_engine"] + 2 * [
            "/start_weight_update", "/update_weights", "/finish_weight_update"]


def test_sender__says_a_servers_own_words(tmp_path):
    with running(tmp_path, "0.24.0") as (server,):
        sender = weft.skyrl.WeftSender(weft.skyrl.WeftInitInfo(1), Client([server.url]))
        metadata = {**METADATA, "names": ["embed", "layer.weight", "layer.other"]}
        with pytest.raises(weft.Error, match="layer.bias"):
            asyncio.run(sender.send_chunks(chunks(1), weight_metadata=metadata))


def test_other_ranks__only_gather(monkeypatch):
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    seen = []
    sender = weft.skyrl.WeftSender(weft.skyrl.WeftInitInfo(1), None)
    asyncio.run(sender.send_chunks((seen.append(chunk) for chunk in chunks(1)), weight_metadata=METADATA))
    assert len(seen) == len(SHAPES)


def test_sender__wants_metadata_and_a_world():
    with pytest.raises(weft.UsageError, match="weight_metadata"):
        asyncio.run(weft.skyrl.WeftSender(weft.skyrl.WeftInitInfo(1), None).send_chunks(chunks(1)))
    with pytest.raises(weft.UsageError, match="get_world_size"):
        weft.skyrl.WeftTransferStrategy.create_init_info(None)


def _module():
    module = types.ModuleType(weft.skyrl._SYNC)
    module.WeightTransferStrategy = object
    module.get_transfer_strategy = lambda backend, colocate_all: "ipc" if colocate_all else "nccl"
    module.get_transfer_strategy_cls = lambda weight_sync_backend, colocate_all: "theirs"
    return module


def check_choice(module):
    weft.skyrl._change(module)
    weft.skyrl._change(module)
    assert module.get_transfer_strategy("weft", False) == "weft"
    assert module.get_transfer_strategy_cls(weight_sync_backend="weft", colocate_all=False) is weft.skyrl.WeftTransferStrategy
    with pytest.raises(weft.UnsupportedError, match="colocate_all"):
        module.get_transfer_strategy("weft", True)
    assert module.get_transfer_strategy("nccl", True) == "ipc" and module.get_transfer_strategy("nccl", False) == "nccl"


def test_choice__is_weft_for_its_key_alone():
    module = _module()
    check_choice(module)
    assert module.get_transfer_strategy_cls("nccl", False) == "theirs"


def test_another_release__is_named():
    with pytest.raises(weft.ConfigError, match=r"no get_transfer_strategy.*0\.3\.0"):
        weft.skyrl._change(types.ModuleType(weft.skyrl._SYNC))


def test_real_skyrl__chooses_weft(monkeypatch):
    """Its module needs ray and torch; SkyRL itself Python 3.12, for a TypedDict that typing_extensions has too."""
    monkeypatch.undo()  # the real ray: it stays imported
    pytest.importorskip("ray")
    pytest.importorskip("skyrl")
    monkeypatch.setattr(typing, "TypedDict", pytest.importorskip("typing_extensions").TypedDict)
    weft.skyrl.install()
    try:
        module = importlib.import_module(weft.skyrl._SYNC)
    except ImportError as error:
        pytest.skip(f"skyrl is there, and something that it wants is not: {error}")
    check_choice(module)
    strategy = weft.skyrl.WeftTransferStrategy
    missing = [name for name in module.WeightTransferStrategy.__abstractmethods__ if not hasattr(strategy, name)]
    assert missing == []
    missing = [name for name in module.WeightTransferSender.__abstractmethods__ if not hasattr(weft.skyrl.WeftSender, name)]
    assert missing == []
