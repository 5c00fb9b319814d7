# SPDX-License-Identifier: Apache-2.0
"""Qwen2.5-0.5B between four processes of this host: two trainers, an engine of two ranks, three versions.

    python four_processes.py [MODEL [VERSIONS]]

Each version's bytes are all the version's number, so that a rank can say what arrived. A trainer of your own gives its
tensors where this one gives bytes (weft.torch.declare and publish do it for a whole model).
"""
import multiprocessing
import sys

import weft

TRAIN, INFER = "world=2,source=gathered", "engines=1,tp=2"


def train(controller, rank, model, versions):
    with weft.Trainer(controller, rank) as trainer:
        trainer.declare_model(model, TRAIN, INFER)
        trainer.join()
        tensors = trainer.tensors
        for version in range(1, versions + 1):
            content = bytes([version % 256]) * max(tensor.bytes for tensor in tensors)
            with trainer.update(version) as update:
                for tensor in tensors:
                    update.write(tensor.id, memoryview(content)[:tensor.bytes])


def infer(controller, rank, model, versions):
    with weft.Inference(controller, rank) as inference:
        inference.declare_model(model, TRAIN, INFER)
        inference.join()
        for version in range(1, versions + 1):
            inference.wait(version)
            with inference.read() as snapshot:
                moved = sum(param.bytes for param in inference.params)
                right = sum(bytes(snapshot[param.id].buffer).count(version % 256) for param in inference.params)
            print(f"rank {rank}: version {snapshot.version}, {right} of {moved} bytes are its own", flush=True)
            assert right == moved


def main(model="Qwen2.5-0.5B", versions="3"):
    start = multiprocessing.get_context("spawn").Process
    with weft.Controller(train=TRAIN, infer=INFER) as controller:
        processes = [start(target=role, args=(controller.address, rank, model, int(versions)))
                     for role in (train, infer) for rank in range(2)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
    sys.exit(max(process.exitcode for process in processes))


if __name__ == "__main__":
    main(*sys.argv[1:])
