# SPDX-License-Identifier: Apache-2.0
"""Whole jobs on hosts of hosts.py, under a key, and what a job that was disturbed may have done.

    net_job.py CASE ...       runs these cases of NETEM (tests/vm/test_vm_net.py does, in the test machine)
"""
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "e2e"), str(ROOT / "tests" / "net")]
import hosts  # noqa: E402
import job as jobs  # noqa: E402

TRAIN, INFER = "world=2,source=gathered", "engines=1,tp=2"
TRY_AGAIN = 75
# 20 MB
LARGE = {"hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 8,
         "vocab_size": 2000}


class NetJob(jobs.Job):
    """A job whose processes run on hosts: `places` says on which, by role: rank R on the R-th of its row, around."""

    def __init__(self, folder, model, controller, trainers, ranks, train=TRAIN, infer=INFER, transport="tcp", version=None):
        super().__init__(folder, model, train, infer)
        self.places = {"controller": [controller], "trainer": trainers, "inference": ranks}
        self.transport, self.version = transport, version
        self.key = folder / "job.key"
        subprocess.run([jobs.WEFT, "key", "make", self.key], check=True, capture_output=True)

    def host_of(self, name):
        role, _, rank = name.partition("-")
        row = self.places[role]
        return row[int(rank or 0) % len(row)]

    def start(self, name, command, env=None):
        return super().start(name, self.host_of(name).words(command), {"WEFT_KEY_FILE": str(self.key), **(env or {})})

    def controller(self, *flags, env=None, interface=0):
        process = super().controller(*flags, env=env, bind="tcp://*:0")
        port = self.address.rsplit(":", 1)[1]
        self.address = self.host_of("controller").url(port, interface, self.version)
        return process

    def workers(self, *flags, **how):
        super().workers("--transport", self.transport, *flags, **how)

    def kill(self, name, number=signal.SIGKILL):
        """The program itself; what we started is nsenter, which ends as it does."""
        popen = self.processes[name].popen
        with contextlib.suppress(hosts.Missing, ProcessLookupError):
            if popen.poll() is None:
                os.kill(hosts.child_of(popen.pid, 1), number)

    def __exit__(self, *_):
        for name, process in self.processes.items():
            self.kill(name)
            process.popen.send_signal(signal.SIGCONT)
            process.popen.wait()

    def published(self, referee):
        """What was published, all of it compared: versions by rank. A killed rank may have told half of its last one."""
        versions = {}
        for rank in range(self.inference):
            told = self.digests(rank)
            for version, got in told.items():
                want = referee.digests(version)[rank % referee.tp]
                wrong = [name for name in got if got[name] != want.get(name)]
                assert not wrong, f"version {version} on inference {rank} has wrong bytes in {wrong}"
            versions[rank] = sorted(told)
        return versions

    def right_or_clean(self, referee, updates, timeout=120, without=()):
        """Everybody ends in time: all well and every byte right, or with an error that says what to do, and no wrong
        byte published. True: all well."""
        codes = self.wait(timeout, [name for name in self.processes if name not in without])
        versions = self.published(referee)
        if not any(codes.values()) and not without:
            assert all(told == list(range(1, updates + 1)) for told in versions.values()), versions
            return True
        for name, code in codes.items():
            if code:
                assert code == TRY_AGAIN and "WEFT-E" in self.processes[name].stderr, f"{name}: {codes}\n{self.said()}"
        return False

    def named(self, loser, names):
        """Each of these ended with 75, and its last words name the loser."""
        for name in names:
            process = self.processes[name]
            lines = [line for line in process.stderr.splitlines() if "WEFT-E" in line]
            assert process.code == TRY_AGAIN and lines and loser in lines[-1], f"{name} of {loser}:\n{self.said()}"
