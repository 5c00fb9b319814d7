# SPDX-License-Identifier: Apache-2.0
"""Processes of a job: forked, each with a pipe for what it says and what becomes of it."""
import multiprocessing
import os
import signal
import sys
import time
import traceback

import torch

SECONDS = 60.0


class Child:
    """``function(say, hear)`` in a process of its own: ``say(value)`` is heard by ``heard()``, ``hear()`` gets ``tell(value)``."""

    def __init__(self, function):
        self._pipe, theirs = multiprocessing.Pipe()
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            self._run(function, theirs)
        theirs.close()

    def _run(self, function, pipe):
        code = 1
        try:
            self._pipe.close()
            torch.set_num_threads(1)
            torch.set_default_device(os.environ.get("WEFT_TEST_DEVICE"))
            pipe.send(("done", function(lambda value: pipe.send(("said", value)), pipe.recv)))
            code = 0
        except BaseException:
            pipe.send(("failed", traceback.format_exc()))
        finally:
            os._exit(code)

    def _next(self):
        assert self._pipe.poll(SECONDS), "a process of the job says nothing"
        return self._pipe.recv()

    def heard(self):
        kind, value = self._next()
        assert kind == "said", value
        return value

    def tell(self, value=None):
        self._pipe.send(value)

    def done(self):
        """What the function returned."""
        try:
            kind = "said"
            while kind == "said":
                kind, value = self._next()
            assert kind == "done", value
            return value
        finally:
            self.end()

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)
        self.end()

    def end(self):
        """Waits for the process, and ends it where it does not end."""
        if self.pid:
            deadline = time.monotonic() + SECONDS
            while os.waitpid(self.pid, os.WNOHANG) == (0, 0):
                if time.monotonic() > deadline:
                    os.kill(self.pid, signal.SIGKILL)
                    deadline += SECONDS
                time.sleep(0.005)
            self.pid = 0


def all_done(children):
    """What each returned; none is left behind."""
    try:
        return [child.done() for child in children]
    finally:
        for child in children:
            child.end()
