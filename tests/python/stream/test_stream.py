# SPDX-License-Identifier: Apache-2.0
"""Named tensors in buckets, between processes over shared memory: what goes well, and how it fails."""
from __future__ import annotations

import os
import signal
import time

import pytest
import stream_ranks as ranks
from stream_processes import SECONDS, Outcome, Processes, run

import weft

torch = pytest.importorskip("torch")


def all_of(outcomes: dict[str, Outcome], role: str) -> list[Outcome]:
    return [outcome for key, outcome in sorted(outcomes.items()) if key[0] == role]


@pytest.mark.parametrize("world, receivers", [(2, 2), (3, 1)])
def test_stream__brings_every_tensor_of_any_kind_in_order_and_equal_step_after_step(world, receivers):
    outcomes = run(ranks.sends, ranks.receives, 3, world=world, receivers=receivers)
    expected = [ranks.marks(step) for step in (1, 2, 3)]
    for outcome in all_of(outcomes, "i"):
        found, figures = outcome.right()
        assert found == expected
        assert figures.step == 3 and figures.tensors == len(expected[2])
    for outcome in all_of(outcomes, "t"):
        sent = outcome.right()
        assert sent[2].tensors == len(expected[2]) and sent[2].bytes == figures.bytes and sent[2].buckets == figures.buckets
        # all trainers share the sending
        assert sum(one.right()[2].moved_bytes for one in all_of(outcomes, "t")) == figures.moved_bytes * receivers
        assert sent[2].moved_bytes * world == figures.moved_bytes * receivers


def test_stream__does_the_same_from_event_loops_that_go_on_meanwhile():
    outcomes = run(ranks.sends_async, ranks.receives_async, 2)
    for outcome in all_of(outcomes, "i"):
        assert outcome.right()[0] == [ranks.marks(1), ranks.marks(2)]
    for outcome in all_of(outcomes, "t"):
        assert outcome.right() > 3


def test_stream__leaves_a_bucket_alone_while_it_is_read_and_the_next_arrives():
    outcomes = run(ranks.sends, ranks.receives_slowly, 2)
    for outcome in all_of(outcomes, "i"):
        assert outcome.right() == [ranks.marks(1), ranks.marks(2)]


def test_stream__of_no_tensors_ends_and_another_follows():
    outcomes = run(ranks.sends_nothing, ranks.receives_nothing)
    for outcome in all_of(outcomes, "i"):
        assert outcome.right() == ([], ranks.marks(2))


def test_stream__whose_generator_raises_is_whole_for_nobody_and_all_hear_why():
    outcomes = run(ranks.sends_or_raises, ranks.receives_two)
    assert outcomes["t1"].failed("RuntimeError") == "CUDA out of memory, say"
    for key in ("t0", "i0", "i1"):
        assert "trainer 1" in outcomes[key].failed("HostFailed") and "CUDA out of memory, say" in outcomes[key].text


@pytest.mark.parametrize("device, words", [
    ("xpuu", "device 'xpuu' is none that torch"),
    pytest.param("cuda", "sees no GPU of CUDA in this process",
                 marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is one")),
])
def test_stream__to_a_device_that_is_none_fails_for_all_with_why_and_within_seconds(device, words):
    began = time.monotonic()
    outcomes = run(ranks.sends_one, ranks.receives_on_no_device, device)
    assert words in outcomes["i1"].failed("UsageError")
    for key in ("t0", "t1", "i0"):
        assert outcomes[key].kind in ("UsageError", "HostFailed") and words in str(outcomes[key].text), outcomes[key]
    assert time.monotonic() - began < 15, "update_timeout_s is 20"


@pytest.mark.parametrize("how, words", [
    ("order", "entry 3: trainer 0 has 'fp8' float8_e4m3fn [33, 65]"),
    ("dtype", "trainer 1 has 'fp8' float8_e5m2 [33, 65]"),
    ("fewer", "is not there on trainer 1"),
    ("more", "'one_more' float32 [3], 12 bytes from its byte 0 on is not there on trainer 0"),
    ("step", "trainer 0 is in stream 1, bucket 0, step 1; trainer 1 in stream 1, bucket 0, step 2"),
])
def test_stream__of_trainers_that_differ_fails_for_all_with_the_first_tensor_and_the_rank(how, words):
    outcomes = run(ranks.sends_differently, ranks.receives_one, how)
    assert any(outcome.kind == "ConflictError" for outcome in all_of(outcomes, "i"))
    for outcome in outcomes.values():
        assert outcome.kind in ("ConflictError", "PeerLost"), outcome
        assert words in outcome.text and "trainers 0 and 1 do not send the same" in outcome.text


def test_stream__of_another_step_than_the_receivers_expect_fails_for_all():
    outcomes = run(ranks.sends_with_another_step, ranks.receives_one)
    for outcome in outcomes.values():
        assert "the trainers send step 9" in outcome.text and "expects step 1" in outcome.text


@pytest.mark.parametrize("victim", ["t1", "i0"])
def test_stream__ends_in_seconds_for_all_when_a_process_is_killed_and_names_it(victim, tmp_path):
    killed, streaming = [], tmp_path / "streaming"

    def kill(processes: Processes) -> None:
        deadline = time.monotonic() + SECONDS
        while not streaming.exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(0.5)
        assert processes.of[victim].is_alive()
        os.kill(processes.of[victim].pid, signal.SIGKILL)
        killed.append(time.monotonic())
    outcomes = run(ranks.sends_for_ever, ranks.receives_for_ever, str(streaming), between=kill, lost_after_s=2.0)
    assert outcomes.pop(victim) == Outcome()
    name = {"t1": "trainer 1", "i0": "inference 0"}[victim]
    for outcome in outcomes.values():
        assert name in outcome.failed("PeerLost")
        assert outcome.at - killed[0] < 12


def test_stream__with_a_receiver_that_stops_taking_ends_at_the_deadline_and_names_it():
    outcomes = run(ranks.sends_with_a_deadline, ranks.stops_receiving, "sleeps")
    senders = all_of(outcomes, "t")
    assert any(outcome.kind == "WaitTimeout" for outcome in senders)
    assert all("inference 1" in outcome.text for outcome in senders)
    assert outcomes["i0"].kind is not None and outcomes["i1"].kind is not None  # the one that slept finds out when it goes on


def test_stream__that_does_not_come_ends_at_the_receivers_deadline_and_names_who_did_not_send():
    outcomes = run(ranks.sends_one_and_waits, ranks.receives_two_with_a_deadline)
    told = [outcome.text for outcome in all_of(outcomes, "i") if outcome.kind == "WaitTimeout"]
    assert told and all("trainer 0" in text and "trainer 1" in text for text in told), outcomes
    assert all(outcome.kind == "WaitTimeout" for outcome in all_of(outcomes, "t")), outcomes


@pytest.mark.parametrize("how", ["breaks", "raises"])
def test_stream__that_a_receiver_gives_up_fails_for_all_others_and_says_so(how):
    outcomes = run(ranks.sends_with_a_deadline, ranks.stops_receiving, how)
    for key in ("t0", "t1", "i0"):
        assert outcomes[key].kind is not None, outcomes[key]
        assert "inference 1" in outcomes[key].text and "given up by who received" in outcomes[key].text


def test_stream__that_is_cancelled_fails_for_all_others_and_says_so():
    outcomes = run(ranks.sends_cancelled, ranks.receives_one)
    assert outcomes["t0"].kind == "CancelledError"
    for key in ("t1", "i0", "i1"):
        assert "trainer 0" in outcomes[key].text and "cancelled in the middle of a stream" in outcomes[key].text


def test_stream__with_sides_of_different_buckets_is_refused_at_join_by_name():
    with weft.stream.start_controller(1, 1) as controller:
        import threading
        failures = []

        def receives():
            try:
                with ranks.receiver(controller.address, 0, 1, 1, bucket_bytes=2 * ranks.BUCKET) as end:
                    end.join()
            except weft.Error as failure:
                failures.append(failure)
        thread = threading.Thread(target=receives)
        thread.start()
        with pytest.raises(weft.Error) as told, ranks.sender(controller.address, 0, 1, 1) as end:
            end.join()
        thread.join(30)
        assert "share.0" in str(told.value) and "share.0" in str(failures[0])
        controller.stop()
