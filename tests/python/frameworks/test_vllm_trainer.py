# SPDX-License-Identifier: Apache-2.0
"""vLLM's trainer side by weft: its trainer objects, and the static functions of releases before them; beside doubles."""
import importlib
import sys
import threading

import pytest
import vllm_double
from servers import QUICK, TENSORS, named, running

import weft
import weft.vllm


class Meta:
    def __init__(self, name, dtype, shape, owners=None):
        self.name, self.dtype, self.shape, self.owners = name, dtype, shape, owners


class SourceOf27:
    value = 1

    def metadata(self):
        return [Meta(*tensor) for tensor in TENSORS]

    def __iter__(self):
        return named(self.value)


class SourceOf33:
    value = 1
    owners = None

    @property
    def metadata(self):
        return [Meta(*tensor, self.owners) for tensor in TENSORS]

    def implements_iter_full(self):
        return True

    def iter_full(self):
        return named(self.value)


SOURCES = {"0.27.1": SourceOf27, "0.33.0": SourceOf33}


class OwnClient:
    """vLLM's own over HTTP: one server, one init for all that is behind it."""

    def __init__(self, base_url):
        self.base_url, self._client = base_url, weft.vllm.HTTPClient(base_url)
        self.init_weight_transfer_engine = self._client.init_weight_transfer_engine
        self.start_weight_update = self._client.start_weight_update
        self.update_weights = self._client.update_weights
        self.finish_weight_update = self._client.finish_weight_update


@pytest.mark.parametrize("generation", vllm_double.WITH_TRAINER)
def test_trainer_object__sends_a_source_by_vllms_own_client(tmp_path, monkeypatch, generation):
    double = vllm_double.put(monkeypatch, generation)
    weft.vllm.register()
    info = weft.vllm.TrainerInitInfo(rank=0, options=dict(QUICK))
    assert info.is_sender and info.backend == "weft"
    with running(tmp_path, generation) as (server,):
        source = SOURCES[generation]()
        trainer = double.factory.WeightTransferTrainerFactory.trainer_init(info, client=OwnClient(server.url), source=source)
        for source.value in (4, 5):
            trainer.send_weights()
            assert server.holds(source.value)
        assert trainer.version == 2 and server.get("/weight_info")["weight_version"] == "2"
        trainer.shutdown()


def test_trainer_object__sends_from_every_rank(tmp_path, monkeypatch):
    double = vllm_double.put(monkeypatch, "0.33.0")
    weft.vllm.register()
    box, there = [], threading.Barrier(2)

    def share(rank):
        def shared(value):
            if rank == 0:
                box.append(value)
            there.wait(30)
            return box[0]
        return shared
    with running(tmp_path, "0.33.0") as (server,):
        failures, trainers = [], {}

        def one(rank):
            try:
                info = weft.vllm.TrainerInitInfo(rank=rank, world=2, share=share(rank), options=dict(QUICK))
                assert info.is_sender
                source = SourceOf33()
                source.value = 9
                trainers[rank] = double.factory.WeightTransferTrainerFactory.trainer_init(
                    info, client=OwnClient(server.url), source=source)
                trainers[rank].send_weights()
            except BaseException as error:
                failures.append(error)
        threads = [threading.Thread(target=one, args=(rank,)) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not failures and server.holds(9)
        sent = [trainers[rank].stats()["bytes"] for rank in range(2)]
        assert all(sent)
        for trainer in trainers.values():
            trainer.shutdown()


def test_trainer_object__refuses_what_not_every_rank_has(monkeypatch):
    vllm_double.put(monkeypatch, "0.33.0")
    weft.vllm.register()
    source = SourceOf33()
    source.owners = (1,)
    factory = sys.modules["vllm.distributed.weight_transfer.factory"].WeightTransferTrainerFactory
    with pytest.raises(weft.UsageError, match=r"'embed' is owned by the trainers \(1,\) of 2"):
        factory.trainer_init(weft.vllm.TrainerInitInfo(rank=0, world=2, engines=1, ranks=1), client=OwnClient("http://a:1"),
                             source=source)
    with pytest.raises(weft.UsageError, match="source="):
        factory.trainer_init(weft.vllm.TrainerInitInfo(rank=0), client=OwnClient("http://a:1"))


def test_ray_client__of_several_actors_gets_an_endpoint_for_each(monkeypatch):
    vllm_double.put(monkeypatch, "0.33.0")
    trainer = importlib.import_module("weft.vllm._trainer")
    told = []

    class RayClient:
        def __init__(self, handle):
            self.handles = handle if isinstance(handle, list) else [handle]

        def init_weight_transfer_engine(self, endpoint):
            told.append((self.handles, endpoint["rank_offset"]))
    client = trainer.Servers(RayClient(["a", "b"]))
    client.init([{"rank_offset": 0}, {"rank_offset": 4}])
    assert sorted(told) == [(["a"], 0), (["b"], 4)]
    with pytest.raises(weft.UsageError, match="engines= and ranks="):
        client.world_sizes()


@pytest.mark.parametrize("generation", ["0.22.1", "0.24.0"])
def test_static_functions__are_the_trainer_side_of_older_releases(tmp_path, monkeypatch, generation):
    vllm_double.put(monkeypatch, generation)
    engine = importlib.import_module("weft.vllm._engine").WeftWeightTransferEngine
    with running(tmp_path, generation) as (server,):
        sync = engine.trainer_init({"tensors": TENSORS, "client": weft.vllm.HTTPClient(server.url), **QUICK})
        engine.trainer_send_weights(named(6), {"sync": sync})
        assert server.holds(6)
        sync.close()
    with pytest.raises(weft.UsageError, match="trainer_init"):
        engine.trainer_send_weights(named(6), {})

