# SPDX-License-Identifier: Apache-2.0
"""Sends a checkpoint into running SGLang servers, as a trainer does after a step: the smallest trainer there is.

    python -m sglang.launch_server --model-path FOLDER --port 30000          (weft is installed there)
    python sync.py FOLDER --server http://127.0.0.1:30000 --times 3

FOLDER has safetensors of the model that the servers serve: its values may be others, names and shapes may not."""
import argparse
import logging
import pathlib

from safetensors import safe_open

import weft.engines
from weft.sglang import Client


def tensors_of(folder):
    """(name, tensor) of all files, one after the other."""
    for path in sorted(pathlib.Path(folder).glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            for name in file.keys():
                yield name, file.get_tensor(name)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--server", action="append", required=True, help="http://host:port; may be given again")
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--pause", default="abort", choices=["abort", "retract", "in_place"])
    parser.add_argument("--bind", help="where the controller listens, for servers on other hosts: tcp://10.0.0.1:0")
    parser.add_argument("--transport", help="auto, shm, cuda, verbs, tcp")
    parser.add_argument("--key-file", help="the job's key, for --bind (weft key make)")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")

    servers = Client(options.server)
    sent = [(name, tensor.dtype, tensor.shape) for name, tensor in tensors_of(options.folder)]
    if not sent:
        parser.error(f"{options.folder}: no *.safetensors there; give a local folder, not a model's name")
    with weft.engines.Sender(sent, engines=len(options.server), ranks=servers.ranks(), bind=options.bind,
                             transport=options.transport, key_file=options.key_file) as sender:
        servers.connect(sender, ranks=sender.ranks)
        for version in range(1, options.times + 1):
            servers.sync(sender, tensors_of(options.folder), version, pause=options.pause)
            print(f"version {version}: responses say {servers.weight_versions()}")
        servers.destroy()


if __name__ == "__main__":
    main()
