# SPDX-License-Identifier: Apache-2.0
"""weft.xorl beside a double of xorl's handler (doubles/xorl_modules.py), into engines of doubles/sglang_engine.py."""
import os
import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "doubles"))

import sglang_servers as servers
import xorl_modules as double
from test_sglang import ask, assert_has

import weft
import weft.xorl
from weft.sglang import Client


@pytest.fixture
def handler():
    found = double.install()
    weft.xorl.install()
    weft.xorl.install()  # in each worker, perhaps twice
    yield found
    weft.xorl._close_all()


def config(*served, ranks=1, **options):
    endpoints = [double.EndpointConfig("127.0.0.1", int(one.url.rpartition(":")[2]), ranks) for one in served]
    return double.TransportConfig(endpoints, **options)


def buckets(version):
    return [[(name, tensor)] for name, tensor in servers.weights(version).items()]


def test_syncs__the_first_learns_what_is_sent_and_each_lands_whole_in_all_servers(tmp_path, handler):
    with servers.engine(tmp_path / "0", ranks=2) as first, servers.engine(tmp_path / "1", ranks=2) as second:
        client = Client([first.url, second.url])
        for version, said in ((1, "step-10"), (2, "step-20"), (3, None)):
            backend = double.sync(handler, client, config(first, second, ranks=2), buckets(version), said, flush_cache=True)
            assert [one["success"] for one in backend.endpoint_results] == [True, True]
            for served in (first, second):
                assert_has(served.url, version)
                state = ask(served.url, "/state")
                assert (state["version"], state["paused"], state["aborted"]) == (said or "step-20", False, 0)


def test_syncs__a_folder_says_what_is_sent_and_nothing_is_kept(tmp_path, handler, monkeypatch):
    safetensors = pytest.importorskip("safetensors.torch")
    safetensors.save_file(servers.weights(0), tmp_path / "model.safetensors")
    with servers.engine(tmp_path / "0") as served:
        monkeypatch.setattr(weft.xorl.Backend, "_learn", None)
        double.sync(handler, Client(served.url), config(served, backend_config={"weft_model": str(tmp_path)}), buckets(1), "1")
        assert_has(served.url, 1)


def test_a_sync_that_is_given_up__is_not_marked_complete_and_mixed_weights_do_not_continue(tmp_path, handler):
    """After a failure xorl resumes inference; the server does not take that."""
    with servers.engine(tmp_path) as served:
        client = Client(served.url)
        double.sync(handler, client, config(served), buckets(1), "1")
        with pytest.raises(RuntimeError, match="unsharding failed"):
            double.sync(handler, client, config(served), buckets(2), "2", fail_after=1)
        assert ask(served.url, "/state")["version"] == "1"
        with pytest.raises(weft.Error, match="weights are mixed"):
            client.continue_generation()
        double.sync(handler, client, config(served), buckets(3), "3")  # a new job, and a whole version
        assert_has(served.url, 3)
        assert not ask(served.url, "/state")["paused"]


def test_a_rank_that_fails__is_the_syncs_failure_and_no_version(tmp_path, handler):
    with servers.engine(tmp_path, ranks=2, WEFT_DOUBLE_BREAKS='{"post_load": [1, 2]}') as served:
        client = Client(served.url)
        double.sync(handler, client, config(served, ranks=2), buckets(1), "1")
        with pytest.raises(weft.Error, match="the kernel of this rank failed"):
            double.sync(handler, client, config(served, ranks=2), buckets(2), "2")
        assert ask(served.url, "/state")["version"] == "1"
        assert "weights are mixed" in str(double.sync.refused)


def test_a_killed_server__ends_the_sync_with_its_name(tmp_path, handler):
    with servers.engine(tmp_path) as served:
        client = Client(served.url)
        double.sync(handler, client, config(served), buckets(1), "1")
        backend = handler.create_backend("weft", config(served))
        backend.initialize()
        backend.transfer_bucket(buckets(2)[0])
        for process in served.processes:
            process.kill()
        with pytest.raises(weft.Error, match="inference 0|127.0.0.1"):
            backend.transfer_bucket(buckets(2)[1])
            backend.flush_pending_transfers()
        assert not backend.endpoint_results[0]["success"]
        backend.destroy(complete_receiver=False)


def test_tensors_that_are_missing__are_named_and_nothing_is_published(tmp_path, handler):
    with servers.engine(tmp_path) as served:
        client = Client(served.url)
        double.sync(handler, client, config(served), buckets(1), "1")
        with pytest.raises(weft.StateError, match="model.b.weight"):
            double.sync(handler, client, config(served), buckets(2)[:1], "2")
        assert ask(served.url, "/state")["version"] == "1"


def test_wrong_calls__are_refused_by_name(handler):
    one = config(type("Served", (), {"url": "http://127.0.0.1:9"}))
    backend = handler.create_backend("weft", one)
    with pytest.raises(weft.UsageError, match="rank 0 alone sends"):
        backend.transfer_bucket([], src_rank=3)
    with pytest.raises(weft.UsageError, match="no endpoints"):
        handler.create_backend("weft", config()).initialize()
    with pytest.raises(weft.UsageError, match="rank 2 initializes"):
        handler.create_backend("weft", config(type("Served", (), {"url": "http://h:9"}), training_rank=2)).initialize()
    backend.flush_pending_transfers()  # nothing was sent
    backend.destroy()
    backend.destroy(complete_receiver=False)
    with pytest.raises(ValueError, match="Unknown weight sync backend: 'p3p'"):
        handler.create_backend("p3p", one)


def test_python_m_weft_xorl__installs_it_in_processes_that_import_xorls_backends(tmp_path):
    folder = tmp_path / "xorl" / "server" / "weight_sync" / "backends"
    folder.mkdir(parents=True)
    for package in (folder, *list(folder.parents)[:3]):
        (package / "__init__.py").write_text("")
    (folder / "base.py").write_text("from xorl_modules import WeightTransportBackend")
    (folder / "__init__.py").write_text("from xorl_modules import create_backend")
    code = ("import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', "
            "'import xorl.server.weight_sync.backends as b; assert b.create_backend.weft']))")
    path = f"{tmp_path}:{servers.HERE}:{pathlib.Path(weft.__file__).parents[1]}"
    subprocess.run([sys.executable, "-m", "weft.xorl", sys.executable, "-c", code], check=True, timeout=60,
                   env={**os.environ, "PYTHONPATH": path})
