# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C ends a wait in the main thread, and the worker goes on."""
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent

COMMON = """
import os, signal, sys, threading, time
sys.path.insert(0, sys.argv[1])
import weft
from pair import Thread, controller, inference, pair, right, trainer, values

signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell starts in the background ignores it

def strike(after=0.3):
    threading.Timer(after, os.kill, (os.getpid(), signal.SIGINT)).start()

def struck(function, *arguments):
    began = time.monotonic()
    strike()
    try:
        function(*arguments)
    except KeyboardInterrupt:
        assert time.monotonic() - began < 5, "the wait went on"
        return
    raise AssertionError("no KeyboardInterrupt")
"""

CASES = {
    "join": """
with controller() as running, trainer(running.address) as sender, inference(running.address) as receiver:
    struck(sender.join)
    joins = Thread(sender.join)
    receiver.join()
    joins.done()
""",
    "begin": """
with pair() as (sender, receiver):
    struck(sender.begin, 1)
    waits = Thread(receiver.wait, 1)
    sender.publish(1, values(1))
    waits.done()
    assert right(receiver.memory("qk"), 1)
""",
    "wait": """
with pair() as (sender, receiver):
    struck(receiver.wait, 1)
    sends = Thread(sender.publish, 1, values(1))
    assert receiver.wait(1) == 1
    sends.done()
""",
    "write": """
TENSOR = weft.Tensor("t", "U8", (64 << 20,))

def rank(address):
    with weft.Inference(address, 0, transport="tcp", nic="lo") as receiver:
        receiver.declare_piece(TENSOR, receiver.declare_param("t", "U8", TENSOR.shape))
        receiver.join()
        receiver.wait(1)

with controller() as running:
    child = os.fork()
    if not child:
        rank(running.address)
    sender = weft.Trainer(running.address, 0, transport="tcp", nic="lo", update_timeout_s=60.0)
    sender.declare_tensor(TENSOR)
    sender.join()
    sender.begin(1)
    os.kill(child, signal.SIGSTOP)  # it takes nothing, and what it has room for is soon full
    struck(sender.write, "t", bytes(TENSOR.bytes))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    sender.close()
""",
    "handler that returns": """
heard = []
signal.signal(signal.SIGUSR1, lambda *_: heard.append(1))
with pair() as (sender, receiver):
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1)).start()
    sends = threading.Timer(0.6, sender.publish, (1, values(1)))
    sends.start()
    assert receiver.wait(1) == 1 and heard == [1]
    sends.join()
""",
}


@pytest.mark.parametrize("case", CASES)
def test_signal__in_a_wait(case):
    done = subprocess.run([sys.executable, "-c", COMMON + CASES[case] + "\nprint('done')", HERE], capture_output=True, text=True,
                          timeout=90)
    assert done.returncode == 0 and done.stdout == "done\n", done.stderr
