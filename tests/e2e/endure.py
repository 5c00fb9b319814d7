# SPDX-License-Identifier: Apache-2.0
"""A job that goes on (--on-loss continue, --orphan) while trainers, inference ranks and controllers are killed, one after the
other, at random moments, and started again.

    tests/e2e/endure.py COUNT SEED [shm|tcp|list|cuda]

Nothing that is shown may be wrong, and nobody else may end. Exits 0 when all was well; else with the reasons.
"""
import collections
import json
import os
import pathlib
import random
import statistics
import sys
import tempfile
import time

import job as jobs

WAYS = [[], ["--register-sources"], ["--replica", "full"]]
COPIES = [[], ["--own-memory"], ["--shadow"]]
DELTA = ["--delta"]
ASKS = ["--repeat", "--admit"]
Network = collections.namedtuple("Network", "all trainers ranks")  # flags
NETWORKS = {"shm": Network([], [], []), "tcp": Network(["--transport", "tcp", "--nic", "lo"], [], []),
            "list": Network(["--transport", "shm,tcp", "--nic", "lo"], [], []),
            "cuda": Network(["--transport", "cuda", "--memory", "cuda"], [], [])}  # with WEFT_CUDA_MOCK


class Lines:
    """The lines that a file has grown by, each once."""

    def __init__(self, path):
        self.path, self.at = path, 0

    def new(self):
        if not self.path.exists():
            return []
        with open(self.path, "rb") as file:
            file.seek(self.at)
            whole = file.read().rpartition(b"\n")[0]
        self.at += len(whole) + 1 if whole else 0
        return whole.decode().splitlines()


class Shown:
    """What one process of an inference rank has published: versions, each what the same rank of other engines has by it. (Each has
    verified it too: here it would take longer than the update.)"""

    def __init__(self, job, rank, name, params, known):
        self.lines, self.rank, self.name = Lines(job.folder / f"{name}.digests"), rank, name
        self.params, self.known = params, known
        self.open, self.versions = {}, []

    def read(self):
        for line in self.lines.new():
            record = json.loads(line)
            params = self.open.setdefault(record["version"], {})
            params[record["param"]] = (record["digest"], record["bytes"])
            if len(params) == self.params:
                self.complete(record["version"])

    def complete(self, version):
        assert not self.versions or self.versions[-1] < version, f"{self.name} shows {version} after {self.versions[-1]}"
        digests = self.open.pop(version)
        known = self.known.setdefault((version, self.rank % 2), digests)
        assert digests == known, f"{self.name}: another content of version {version}"
        self.versions.append(version)

    def last(self):
        self.read()
        return self.versions[-1] if self.versions else 0


class Enduring:
    """A job of two trainers and two engines that goes on whoever of it is killed; who was is started again."""

    def __init__(self, job, chance, network):
        self.job, self.chance, self.network, self.known = job, chance, network, {}
        self.way = chance.choice(WAYS[:2] if "cuda" in network.all else WAYS)  # tensors of a GPU pass no replica that keeps them
        self.copies, self.delta = chance.choice(COPIES), chance.choice([[], DELTA])
        if os.environ.get("WEFT_HEDGE"):  # which the controller reads too
            self.delta = []
        self.asks = [chance.choice(ASKS) for _ in range(2)]
        self.commit = chance.choice(["engine", "job"])
        self.one_in = 20 if self.delta else 1
        self.referee = jobs.expected(job.model, job.infer, self.one_in)
        self.flags = ["--checksums", "--verify", "--change-one-in", self.one_in]
        self.params = len(self.referee.digests(1)[0])
        self.number, self.names, self.shown = 0, {}, {}
        self.control("tcp://127.0.0.1:0")
        for rank in range(2):
            self.start("trainer", rank)
        for rank in range(4):
            self.start("inference", rank)

    def control(self, bind):
        self.names["controller"] = f"controller-{self.number}"
        self.job.controller("--on-loss", "continue", "--commit", self.commit, "--orphan", "120s", "--heartbeat", "500ms", "--lost-after", "5s", *self.delta,
                            bind=bind, name=self.names["controller"])

    def start(self, role, rank):
        name = self.names[f"{role}-{rank}"] = f"{role}-{rank}-{self.number}"
        own = [*self.network.ranks, *self.copies]
        if role == "trainer":
            own = [*self.network.trainers, "--interval", "100ms", self.asks[rank], *self.way]
        if role == "inference":
            self.shown[rank] = Shown(self.job, rank, name, self.params, self.known)
        self.job.worker(role, rank, *self.network.all, *self.flags, *own, updates=1000000, name=name)

    def until(self, what, done, seconds=90):
        began = time.monotonic()
        while not done():
            gone = [who for who, name in self.names.items()
                    if self.job.processes[name].code is not None and not self.start_again(who)]
            assert not gone, f"{gone} ended, before {what}\n{self.job.said()[-20000:]}"
            assert time.monotonic() - began < seconds, f"not {what} after {seconds} s\n{self.job.said()[-20000:]}"
            time.sleep(0.02)
        return time.monotonic() - began

    def start_again(self, who):
        """What was about to come in when its controller was lost ends with it."""
        role, _, rank = who.partition("-")
        came = role == "controller" or (self.shown[int(rank)].last() if role == "inference" else
                                        self.job.processes[self.names[who]].updates())
        if not came and "WEFT-E132" in self.job.processes[self.names[who]].stderr:
            self.number += 1
            self.start(role, int(rank))
        return not came

    def all_show(self, ranks, version):
        return all(self.shown[rank].last() > version for rank in ranks)

    def settled(self):
        said = self.job.processes[self.names["controller"]].stderr
        return ((self.names["controller"] == "controller-0" or "takes over a job" in said) and self.all_show(range(4), 0)
                and all(self.job.processes[self.names[f"trainer-{rank}"]].updates() for rank in range(2)))

    def newest(self):
        return max(shown.last() for shown in self.shown.values())

    def check(self):
        """The newest that somebody shows is what a recomputation gives, and so then is what the other ranks show by it."""
        version = self.newest()
        for rank, digests in enumerate(self.referee.digests(version)):
            assert self.known.get((version, rank), digests) == digests, f"version {version} of inference {rank} is wrong"

    def kill(self):
        """One of them, at any moment; the seconds until those that are left show another version."""
        role = self.chance.choice(["controller", "trainer", "inference"])
        victim = self.chance.choice([name for name in self.names if name.startswith(role)])
        rank = victim.rpartition("-")[2]
        if role == "inference":  # the rest of its engine ends when there is a controller
            self.until("all are in", self.settled)
        self.number += 1
        time.sleep(self.chance.uniform(0, 0.5))
        process = self.job.processes[self.names[victim]]
        self.job.kill(self.names[victim])
        process.popen.wait()
        if role == "inference":
            return victim, self.lose_engine(int(rank) // 2)
        if role == "controller":
            time.sleep(self.chance.uniform(0, 1))
            self.control(self.job.address)
        else:
            time.sleep(self.chance.choice([0, self.chance.uniform(0, 1)]))
            self.start(role, int(rank))
        return victim, self.until("the engines show another version", lambda at=self.newest(): self.all_show(range(4), at))

    def lose_engine(self, engine):
        """Its other rank ends too, and both are started again; the other engine misses no version."""
        lost, rest = (2 * engine, 2 * engine + 1), (2 - 2 * engine, 3 - 2 * engine)
        names = [self.names.pop(f"inference-{rank}") for rank in lost]
        for rank in lost:
            self.shown[rank].read()
        before = {rank: self.shown[rank].last() for rank in rest}
        took = self.until("the other engine shows another version", lambda at=max(before.values()): self.all_show(rest, at))
        self.until("the engine has ended", lambda: all(self.job.processes[name].code is not None for name in names))
        for rank in lost:
            self.start("inference", rank)
        self.until("the engine comes in", lambda at=self.newest(): self.all_show(range(4), at))
        for rank in rest:
            after = [version for version in self.shown[rank].versions if version > before[rank]]
            assert after == list(range(before[rank] + 1, after[-1] + 1)), f"inference {rank} missed one: {before[rank]}, {after}"
        return took


def endure(folder, count, seed, network):
    """Of a job a process is killed, and started again, so many times; nothing that is shown is wrong, and nobody else ends."""
    model = jobs.make_model(folder, "qwen2")
    took = {"controller": [], "trainer": [], "inference": []}
    for first in range(0, count, 25):
        chance = random.Random(seed * 1000003 + first)
        train = ["world=2,source=gathered", "world=2,fsdp=2,source=sharded"][first // 25 % 2]
        with jobs.Job(folder / f"job-{first}", model, train, "engines=2,tp=2") as job:
            enduring = Enduring(job, chance, network)
            enduring.until("all show the first version", lambda: enduring.all_show(range(4), 0))
            for number in range(first, min(first + 25, count)):
                victim, seconds = enduring.kill()
                took[victim.partition("-")[0]].append(seconds)
                print(f"kill {number}: {victim}, the others show another version {seconds:.1f} s later", flush=True)
            enduring.check()
            flags = [enduring.commit] + enduring.way + enduring.copies + enduring.delta + enduring.asks
            print(f"{train} {flags}: up to version {enduring.newest()}", flush=True)
    for role, seconds in took.items():
        if seconds:
            print(f"{len(seconds)} of {role}: median {statistics.median(seconds):.1f} s, longest {max(seconds):.1f} s", flush=True)
    print(f"{count} losses, 0 wrong", flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="endure-") as place:
        endure(pathlib.Path(place), int(sys.argv[1]), int(sys.argv[2]), NETWORKS[(sys.argv[3:] or ["shm"])[0]])
