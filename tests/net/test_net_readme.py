# SPDX-License-Identifier: Apache-2.0
"""README.md's commands, word for word: on one host, and its third example, two hosts over tcp. The model is a small one in
the place of Qwen2.5-0.5B, which WEFT_NET_README=Qwen2.5-0.5B (./bootstrap soak) puts back."""
import os
import pathlib
import re

import job as jobs
import pytest
from hosts import Host

REAL, MADE = "Qwen2.5-0.5B", "/tmp/qwen"
TRAIN, INFER = "world=2,source=gathered", "engines=1,tp=2"
BLOCKS = [text for language, text in re.findall(r"^```(\w*)\n(.*?)^```", (jobs.ROOT / "README.md").read_text(), re.S | re.M)
          if not language]
ONE_HOST = next(block for block in BLOCKS if "checkpoint make" in block)
TWO_HOSTS = next(block for block in BLOCKS if "ip netns add" in block)
# each program's end counts, not the last one's
ENDS = 'done; for process in $(jobs -p); do wait "$process" || exit 1; done'


def script(block, model, checkpoint, folder):
    """The block, with this model, whose workers also write down digests."""
    for old, new, least in (("--verify", f"--verify --digests {folder}/inference-$r.digests", 1), ("done; wait", ENDS, 1),
                            (f"--model {REAL}", f"--model {model}", 2), (MADE, str(checkpoint), 1),
                            ("PATH=$PWD/build/release:$PATH\n", "", 0), (f"weft checkpoint make {REAL}", "#", 0)):
        assert block.count(old) >= least, f"'{old}' is not in the block any more:\n{block}"
        block = block.replace(old, new)
    return block


@pytest.fixture(scope="module")
def model(possible, tmp_path_factory):
    """(what the commands name, its checkpoint)."""
    folder = tmp_path_factory.mktemp("readme")
    if os.environ.get("WEFT_NET_README"):
        jobs.weft("checkpoint", "make", REAL, folder / "qwen")
        return REAL, folder / "qwen"
    made = jobs.make_model(folder, "qwen2")
    return made, made


@pytest.mark.parametrize("block", [ONE_HOST, TWO_HOSTS], ids=["one-host", "two-hosts-over-tcp"])
def test_readme__its_commands_deliver_every_byte(model, tmp_path, block):
    name, checkpoint = model
    with Host("readme", tmp_path) as host:  # its ports, and the names of its namespaces, are nobody else's
        words = "mount -t tmpfs tmpfs /run && ip link set lo up\n" + script(block, name, checkpoint, tmp_path)
        done = host.run("bash", "-c", words, cwd=tmp_path, timeout=300, check=False, env={"PATH": f"{jobs.BIN}:{os.environ['PATH']}"})
    assert done.returncode == 0, done.stdout + done.stderr
    jobs.Job(tmp_path, checkpoint, TRAIN, INFER).verify(jobs.expected(pathlib.Path(checkpoint), INFER), (1, 2, 3))
