#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""New weights into running vLLM servers, a few times, with their requests frozen meanwhile. What a trainer does each step; here
the weights are those of a checkpoint, moved a little.

    VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --weight-transfer-config '{"backend": "weft"}'
    python send.py http://localhost:8000 --model MODEL_FOLDER"""
import argparse
import logging
import pathlib

import torch
from safetensors.torch import load_file

import weft.vllm


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("servers", nargs="+")
    parser.add_argument("--model", type=pathlib.Path, required=True, help="a folder with *.safetensors")
    parser.add_argument("--versions", type=int, default=3)
    parser.add_argument("--bind", help="this host's address, where servers are on other hosts: tcp://10.0.0.5:0 (needs a key)")
    parser.add_argument("--extension", action="store_true", help="servers run --worker-extension-cls weft.vllm.WorkerExtension")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")

    weights = {name: tensor for file in sorted(arguments.model.glob("*.safetensors")) for name, tensor in load_file(file).items()}
    if not weights:
        parser.error(f"--model {arguments.model}: no *.safetensors there; give a local folder, not a model's name")
    tensors = [(name, tensor.dtype, tuple(tensor.shape)) for name, tensor in weights.items()]
    client = weft.vllm.HTTPClient(arguments.servers, extension=arguments.extension)
    client.wait_ready()
    with weft.vllm.WeightSync(tensors, client, bind=arguments.bind) as sync:
        for _ in range(arguments.versions):
            for tensor in weights.values():
                if tensor.dtype in (torch.float32, torch.bfloat16, torch.float16):
                    tensor.mul_(1.001)
            client.pause("keep")
            version = sync.send(weights.items())
            client.reset_prefix_cache()
            client.resume()
            print(f"version {version}: {sync.last['bytes'] / 1e9:.3f} GB in {sync.last['weight_sync_time_s']:.3f} s")
        client.shutdown()  # servers leave the job, and serve on


if __name__ == "__main__":
    main()
