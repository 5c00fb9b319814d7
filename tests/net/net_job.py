# SPDX-License-Identifier: Apache-2.0
"""Whole jobs on hosts of hosts.py, under a key, and what a job that was disturbed may have done.

    net_job.py CASE ...       runs these cases of NETEM (tests/vm/test_vm_net.py does, in the test machine)
"""
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

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


# What a network does to packets, on the way there and back (tc-netem(8)); kernels of clouds lack it, the test
# machine's has it.
NETEM = {
    "loss": "loss 1%",
    "delay": "delay 20ms 5ms",
    "duplicate": "duplicate 5%",
    "reorder": "delay 5ms reorder 25% 50%",
}
PATIENT = ("--join-timeout", "120s", "--update-timeout", "120s")


def updates(job):
    return min(len(job.processes[f"inference-{rank}"].updates()) for rank in range(job.inference))


def one_job(folder, cases, count, model, referee, pair):
    """A job that meets one case after the other, `count` updates in each; the cases that are left when it ends with
    an error. Every version that it published is compared."""
    with NetJob(folder, model, pair[0], [pair[0]], [pair[1]]) as job:
        for number, case in enumerate(cases):
            for host in pair:
                host.netem(*NETEM[case].split())
            if not number:
                job.controller("--lost-after", "30s", *PATIENT)
                job.workers(*PATIENT, "--interval", "700ms", updates=1000000)
            before, deadline = updates(job), time.monotonic() + 240
            while updates(job) < before + count:
                assert time.monotonic() < deadline, f"{case}: {updates(job) - before} updates in 240 s\n{job.said()}"
                if all(process.code is not None for process in job.processes.values()):
                    assert not job.right_or_clean(referee, count), job.said()
                    print(f"{case}: an error: {job.said()}", flush=True)
                    return cases[number + 1:]
                time.sleep(0.05)
            shown = pair[0].net("tc", "-s", "qdisc", "show", "dev", "eth0").stdout.split("\n")[1].strip()
            print(f"{case}: right; {shown}", flush=True)
        for name in job.processes:
            job.kill(name)
        job.wait()
        assert all(len(versions) >= count * len(cases) for versions in job.published(referee).values())
    return []


def disturbed(folder, cases, count=2):
    model = jobs.make_model(folder, "qwen2")
    referee = jobs.expected(model, INFER)
    with hosts.Hosts(2, pair=True) as pair:
        while cases:
            cases = one_job(folder / f"job-{len(cases)}", cases, count, model, referee, pair)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        disturbed(pathlib.Path(scratch), sys.argv[1:])
