# SPDX-License-Identifier: Apache-2.0
"""Games with routing ids, by strangers that a job without a key lets in: on this host, short of joining."""
import struct
import time

import job as jobs
from stranger import Wire

TRAIN, INFER = "world=1,source=gathered", "engines=1,tp=1"
FIRST = 0x6b8b4567  # what rand() says first in a process that did not seed it


def automatic(number):
    """The id that ROUTER gives to a connection that names none."""
    return b"\0" + struct.pack(">I", number & 0xffffffff)


def test_next_automatic_id__claimed_by_a_stranger_does_not_end_the_controller(tmp_path, model):
    with jobs.Job(tmp_path, model, TRAIN, INFER) as job:
        controller = job.controller()
        strangers = [Wire(job.address, automatic(FIRST + i)) for i in range(8)]
        time.sleep(0.3)
        strangers += [Wire(job.address) for _ in range(8)]
        time.sleep(0.3)
        assert controller.code is None, controller.stderr
        job.workers()
        job.succeed()
        for stranger in strangers:
            stranger.socket.close()


def test_workers_id__claimed_by_a_stranger_ends_nobody(tmp_path, model):
    """The workers' ids are the first ones given; a junk byte in a worker's name ended the job."""
    with jobs.Job(tmp_path, model, TRAIN, INFER) as job:
        job.controller()
        job.workers("--interval", "20ms", updates=40)
        deadline = time.monotonic() + 20
        while len(job.processes["inference-0"].updates()) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
        strangers = [Wire(job.address, automatic(FIRST + i)) for i in range(8)]
        for stranger in strangers:
            stranger.send(b"\xc1")
        time.sleep(0.3)
        for stranger in strangers:
            stranger.socket.close()
        job.succeed()


def test_refusal__does_not_tell_the_id(tmp_path, model):
    with jobs.Job(tmp_path, model, TRAIN, INFER) as job:
        job.controller()
        with Wire(job.address) as stranger:
            stranger.send(b"\xc1")
            said = b""
            while b"refuse" not in said:
                data = stranger.read()
                assert data, said
                said += data
        assert b"#00" not in said and b"unreadable" not in said, said
