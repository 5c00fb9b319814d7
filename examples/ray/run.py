# SPDX-License-Identifier: Apache-2.0
"""Trainers, engines and the controller as actors of Ray.

    pip install . torch ray && python examples/ray/run.py [--versions 5] [--kill engine|trainer] [--restart]

Two trainers hold the same small model and share the sending; two engines are of one rank each and keep two copies, so that
they can be asked while the next version arrives. With --kill an actor dies in the middle: whoever waits then fails with weft's
own error, which names it, and the program ends with that error's exit code. With --kill engine --restart the job goes on
without that engine, Ray starts its actor again, and it comes in between two versions.
"""
from __future__ import annotations

import argparse
import sys
import time

import ray
import torch

import weft
import weft.torch

TRAINERS, ENGINES = 2, 2
TRAIN, INFER = f"world={TRAINERS}", f"engines={ENGINES},tp=1"
SOON = {"heartbeat_s": 0.2, "lost_after_s": 2.0}  # a host's death is known after that


def model() -> torch.nn.Module:
    """The same on every rank."""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 256))


def told(worker: weft.Worker, seconds: float) -> None:
    """Raises what the job has failed with, as soon as this worker knows."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        worker.check()
        time.sleep(0.05)


@ray.remote
class Controller:
    """Its process is this actor's child: where the actor dies, it ends, and all workers hear of it."""

    def __init__(self, bind: str | None, on_loss: str):
        self._controller = weft.Controller(TRAIN, INFER, bind=bind, on_loss=on_loss, **SOON)

    def address(self) -> str:
        return self._controller.address

    def wait(self) -> None:
        self._controller.wait(60)


@ray.remote
class Trainer:
    def __init__(self, controller: str, rank: int):
        self._model = model()
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=0.1)
        self._weft = weft.Trainer(controller, rank, update_timeout_s=30)
        weft.torch.declare(self._weft, self._model)

    def join(self) -> None:
        self._weft.join()

    def step(self, version: int) -> float:
        """One step on data that all trainers have, and the version that it makes."""
        torch.manual_seed(version)
        self._optimizer.zero_grad()
        data = torch.randn(32, 256)
        loss = (self._model(data) - data).square().mean()
        loss.backward()
        self._optimizer.step()
        weft.torch.publish(self._weft, self._model, version)
        return loss.item()

    def check(self, seconds: float) -> None:
        told(self._weft, seconds)

    def lost(self, rank: int) -> tuple[bool, bool]:
        """Whether that engine was lost, and whether another one has come in its place."""
        found = [loss.back for loss in self._weft.losses if loss.role == "inference" and rank in loss.ranks]
        return bool(found), any(found)

    def says(self) -> list[float]:
        with torch.no_grad():
            return self._model(torch.ones(1, 256))[0, :4].tolist()

    def leave(self) -> None:
        self._weft.leave()
        self._weft.close()


@ray.remote
class Engine:
    def __init__(self, controller: str, rank: int):
        self._module = model().requires_grad_(False)
        self._weft = weft.Inference(controller, rank, shadow=True, update_timeout_s=30)
        self._attached = weft.torch.attach(self._weft, self._module)

    def join(self) -> None:
        self._weft.join()

    def wait(self, version: int) -> int:
        return self._weft.wait(version)

    @ray.method(max_task_retries=-1)  # called while Ray starts the actor again, which it warns of
    def come_back(self) -> int:
        """In a job that runs: the first version that this engine gets."""
        self._weft.join()
        return self._weft.wait()

    def check(self, seconds: float) -> None:
        told(self._weft, seconds)

    def says(self) -> list[float]:
        with self._attached.read(), torch.no_grad():
            return self._module(torch.ones(1, 256))[0, :4].tolist()

    def leave(self) -> None:
        self._attached.detach()
        self._weft.leave()
        self._weft.close()


def update(trainers: list, engines: list, away: dict, version: int) -> None:
    """``away``: engines that were killed, by rank, each with the call in which it comes back; None: it is not known to be lost."""
    waits = [engine.wait.remote(version) for rank, engine in enumerate(engines) if rank not in away]
    losses = ray.get([trainer.step.remote(version) for trainer in trainers])
    ray.get(waits)
    for rank, coming in list(away.items()):
        lost, back = ray.get(trainers[0].lost.remote(rank))
        if lost and not coming:
            away[rank] = engines[rank].come_back.remote()
        elif back or coming and ray.wait([coming], timeout=0)[0]:
            assert ray.get(away.pop(rank)) == version  # or raises what it failed with
            print(f"engine {rank} is back", flush=True)
    here = [engine for rank, engine in enumerate(engines) if rank not in away]
    said = ray.get([actor.says.remote() for actor in trainers + here])
    assert all(one == said[0] for one in said), said
    print(f"version {version}: loss {losses[0]:.4f}, {len(here)} engines say what the trainers say", flush=True)


def why(actors: list, death: ray.exceptions.RayActorError) -> None:
    """Ray says that an actor is dead; who lives has weft's words, which name the worker."""
    for actor in actors:
        try:
            ray.get(actor.check.remote(10.0))
        except ray.exceptions.RayActorError:
            continue
    raise death


def run(versions: int, kill: str | None, restart: bool, bind: str | None) -> None:
    controller = Controller.remote(bind, "continue" if restart else "end")
    address = ray.get(controller.address.remote())
    trainers = [Trainer.remote(address, rank) for rank in range(TRAINERS)]
    engines = [Engine.options(max_restarts=-1 if restart else 0).remote(address, rank) for rank in range(ENGINES)]
    actors, away, version = trainers + engines, {}, 0
    ray.get([actor.join.remote() for actor in actors])
    try:
        while version < versions or away:
            version += 1
            if kill and version == (versions + 1) // 2:
                ray.kill((engines if kill == "engine" else trainers)[-1], no_restart=not restart)
                if restart:
                    away[ENGINES - 1] = None
            update(trainers, engines, away, version)
    except ray.exceptions.RayActorError as death:
        why(actors, death)
    ray.get([actor.leave.remote() for actor in actors])
    ray.get(controller.wait.remote())


def main() -> int:
    parser = argparse.ArgumentParser(description="Weft between actors of Ray")
    parser.add_argument("--versions", type=int, default=5)
    parser.add_argument("--kill", choices=["engine", "trainer"], help="an actor that dies in the middle")
    parser.add_argument("--restart", action="store_true", help="with --kill engine: Ray starts it again, and the job goes on")
    parser.add_argument("--bind", help="where the controller listens, for actors on several hosts: tcp://HOST:0 (with "
                                       "WEFT_KEY_FILE)")
    arguments = parser.parse_args()
    if arguments.versions < 1:
        parser.error("--versions: at least 1")
    if arguments.restart and arguments.kill != "engine":
        parser.error("--restart: only with --kill engine (another trainer would need the weights of this one)")
    try:
        run(arguments.versions, arguments.kill, arguments.restart, arguments.bind)
    except weft.Error as error:  # Ray raises a worker's exception as what it is
        print(f"the job failed: {error.text}", file=sys.stderr)
        return error.exit_code
    except ray.exceptions.RayActorError as error:
        print(f"the job failed: {error}", file=sys.stderr)
        return 75
    return 0


if __name__ == "__main__":
    sys.exit(main())
