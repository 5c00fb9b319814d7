#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What Python costs, as JSON lines:

    python tests/bench/python_trainer.py CHECKPOINT      of Qwen2.5-0.5B, made by `weft checkpoint make`

update   a trainer of Python beside weft-worker as the trainer, the same rank on the other side: seconds from the beginning of an
         update to its end, medians of 9 in turns, and the median of their ratios turn by turn (of Python: around publish; of
         weft-worker: what it prints)
write    microseconds of one Trainer.write of a small tensor of torch, of 2000, all of it; and of weft's own call in it
"""
import json
import multiprocessing
import re
import statistics
import subprocess
import sys
import time

import torch

import weft

MODEL, TRAIN, INFER = "Qwen2.5-0.5B", "world=1,source=gathered", "engines=1,tp=1"
UPDATES, TURNS, TENSORS = 10, 8, 2000
start = multiprocessing.get_context("spawn").Process


def rank(controller, versions):
    with weft.Inference(controller, 0) as inference:
        inference.declare_model(MODEL, TRAIN, INFER)
        inference.join()
        for version in range(1, versions + 1):
            inference.wait(version)


def python_seconds(controller):
    with weft.Trainer(controller, 0) as trainer:
        trainer.declare_model(MODEL, TRAIN, INFER)
        trainer.join()
        data = {view.id: torch.ones(view.bytes // 2, dtype=torch.bfloat16) for view in trainer.tensors}
        taken = []
        for version in range(1, UPDATES + 1):
            time.sleep(0.1)  # the rank accepts meanwhile
            began = time.perf_counter()
            trainer.publish(version, data)
            taken.append(time.perf_counter() - began)
        return taken[1:]


def program_seconds(controller, checkpoint):
    said = subprocess.run([weft.programs.path("weft-worker"), "--controller", controller, "--role", "trainer", "--rank", "0",
                           "--model", MODEL, "--checkpoint", checkpoint, "--train", TRAIN, "--infer", INFER,
                           "--updates", str(UPDATES)], capture_output=True, text=True, check=True, timeout=300).stdout
    return [float(seconds) for seconds in re.findall(r"^update .* seconds=([\d.]+)", said, re.M)][1:]


def job(train, *arguments):
    with weft.Controller(train=TRAIN, infer=INFER) as controller:
        engine = start(target=rank, args=(controller.address, UPDATES))
        engine.start()
        seconds = train(controller.address, *arguments)
        engine.join()
        return seconds


def small_rank(controller):
    with weft.Inference(controller, 0) as inference:
        for i in range(TENSORS):
            inference.declare_piece(weft.Tensor(f"t{i}", "F32", (16,)), inference.declare_param(f"p{i}", "F32", (16,)))
        inference.join()
        for version in range(1, 12):
            inference.wait(version)


def write_microseconds():
    with weft.Controller(train="world=1", infer="engines=1") as controller:
        engine = start(target=small_rank, args=(controller.address,))
        engine.start()
        with weft.Trainer(controller.address, 0) as trainer:
            for i in range(TENSORS):
                trainer.declare_tensor(weft.Tensor(f"t{i}", "F32", (16,)))
            trainer.join()
            tensors, all_of_it, own = [torch.zeros(16) for _ in range(TENSORS)], [], []
            for version in range(1, 12):
                trainer.begin(version)
                began = time.perf_counter()
                for i, tensor in enumerate(tensors):
                    trainer.write(i, tensor)
                all_of_it.append((time.perf_counter() - began) / TENSORS * 1e6)
                own.append(trainer.stats()["copy_ns"] / TENSORS / 1e3)
                trainer.end()
                time.sleep(0.02)
        engine.join()
        return statistics.median(all_of_it[1:]), statistics.median(own[1:])


def main(checkpoint):
    both = {"python": [], "program": []}
    for _ in range(TURNS):
        both["program"].append(statistics.median(job(program_seconds, checkpoint)))
        both["python"].append(statistics.median(job(python_seconds)))
    python, program = (statistics.median(both[name]) for name in ("python", "program"))
    ratio = statistics.median(mine / its for mine, its in zip(both["python"], both["program"]))
    print(json.dumps({"bench": "python_update", "model": MODEL, "python_s": round(python, 4), "program_s": round(program, 4),
                      "ratio": round(ratio, 3)}))
    whole, own = write_microseconds()
    print(json.dumps({"bench": "python_write", "tensors": TENSORS, "write_us": round(whole, 2), "library_us": round(own, 2),
                      "python_us": round(whole - own, 2)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
