# SPDX-License-Identifier: Apache-2.0
"""Whole jobs: a controller, trainers and inference ranks as forked processes of one host, over shm."""
import contextlib

import ranks
import torch

import weft
import weft.torch

TIMEOUTS = {"join_timeout_s": 60, "update_timeout_s": 60}


def run(trainers, engines, trainer, engine, group=ranks.alone, world=None, infer=None, options=None):
    """``trainer(worker, rank)`` on each of `trainers` ranks and ``engine(worker, rank)`` on each of `engines`: what
    they return, as two lists. Workers are open; who joins is the function."""
    with weft.Controller(world or f"world={trainers}", infer or f"engines=1,tp={engines}") as controller:

        def train(rank):
            with weft.Trainer(controller.address, rank, **TIMEOUTS) as worker:
                return trainer(worker, rank)

        def receive(rank):
            with weft.Inference(controller.address, rank, **TIMEOUTS, **(options or {})) as worker:
                return engine(worker, rank)
        sending = ranks.started(trainers, train, group)
        receiving = ranks.started(engines, receive, ranks.alone)
        with contextlib.ExitStack() as both:
            results = []
            both.callback(lambda: results.append(ranks.finished(receiving, "inference rank")))
            both.callback(lambda: results.append(ranks.finished(sending, "trainer")))
        return results


def copied(module):
    return {name: parameter.detach().clone() for name, parameter in module.named_parameters()}


def bits(tensor):
    """Comparable to the bit: NaN too."""
    return tensor.contiguous().view(torch.uint8)


def assert_same(have, want, what=""):
    assert have.dtype == want.dtype and have.shape == want.shape, what
    assert torch.equal(bits(have), bits(want)), what
