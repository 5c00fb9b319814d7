#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""TRL's asynchronous GRPO with weights moved by weft: one argument beside what TRL's own example has. A GPU for the trainer,
one for the server:

    export VLLM_SERVER_DEV_MODE=1 MODEL=Qwen/Qwen2.5-0.5B-Instruct
    CUDA_VISIBLE_DEVICES=1 vllm serve $MODEL --weight-transfer-config '{"backend": "weft"}'
    CUDA_VISIBLE_DEVICES=0 python train.py --model $MODEL"""
import argparse

from datasets import Dataset
from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer

import weft.trl


def reward(completions, **_):
    """Short answers are better."""
    return [-len(completion[0]["content"]) / 100 for completion in completions]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="Qwen/Qwen2.5-0.5B-Instruct")
    parser.add_argument("--servers", nargs="+", default=["http://localhost:8000"])
    parser.add_argument("--steps", type=int, default=20)
    arguments = parser.parse_args()
    questions = Dataset.from_dict({"prompt": [[{"role": "user", "content": f"What is {i} plus {i}?"}] for i in range(256)]})
    trainer = AsyncGRPOTrainer(
        model=arguments.model, reward_funcs=reward, train_dataset=questions,
        args=AsyncGRPOConfig(output_dir="async-grpo", max_steps=arguments.steps, vllm_server_base_url=arguments.servers[0],
                             dtype="bfloat16", logging_steps=1),
        weight_transfer=weft.trl.WeightTransfer(arguments.servers))
    trainer.train()


if __name__ == "__main__":
    main()
