# SPDX-License-Identifier: Apache-2.0
"""Whole jobs of real processes for the tests: small models, a controller, workers, their output
in files, and a deadline on everything."""
import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import time
import uuid

import engine_layout

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("WEFT_BIN", ROOT / "build" / "release"))
WEFT, CONTROLLER, WORKER = (BIN / name for name in ("weft", "weft-controller", "weft-worker"))
# the same with what a release does not have: for WEFT_FAULT, --transport mock and WEFT_CUDA_MOCK
TESTED_WEFT, TESTED_WORKER = (BIN / "tests" / "programs" / name for name in ("weft", "weft-worker"))

# vocab 200 is padded to 256; kv heads 2 are replicated at tp=4; nothing is a round power of two
CONFIGS = {
    "qwen2": {"architectures": ["Qwen2ForCausalLM"], "hidden_size": 96, "intermediate_size": 160,
              "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 200,
              "tie_word_embeddings": True, "torch_dtype": "bfloat16"},
    "qwen3": {"architectures": ["Qwen3ForCausalLM"], "hidden_size": 96, "intermediate_size": 160,
              "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 40,
              "vocab_size": 200, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
              "attention_bias": False},
    "llama": {"architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 176,
              "num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 256,
              "tie_word_embeddings": False, "torch_dtype": "float32", "attention_bias": False,
              "mlp_bias": False},
    "glm4": {"architectures": ["Glm4ForCausalLM"], "hidden_size": 64, "intermediate_size": 144,
             "num_hidden_layers": 5, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 16,
             "vocab_size": 320, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
             "attention_bias": True},
    "qwen3-moe": {"architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 64, "num_hidden_layers": 3,
                  "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 16, "num_experts": 8,
                  "moe_intermediate_size": 48, "vocab_size": 200, "tie_word_embeddings": False,
                  "torch_dtype": "bfloat16"},
    "glm4-moe": {"architectures": ["Glm4MoeForCausalLM"], "hidden_size": 64, "intermediate_size": 96,
                 "num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 16,
                 "n_routed_experts": 4, "n_shared_experts": 1, "moe_intermediate_size": 48,
                 "first_k_dense_replace": 1, "num_nextn_predict_layers": 1, "use_qk_norm": True,
                 "attention_bias": True, "vocab_size": 256, "torch_dtype": "bfloat16"},
    # latent attention without a query latent, two shared experts, rotary tensors
    "moonlight": {"architectures": ["DeepseekV3ForCausalLM"], "hidden_size": 64, "intermediate_size": 96,
                  "num_hidden_layers": 3, "num_attention_heads": 4, "n_routed_experts": 8,
                  "n_shared_experts": 2, "moe_intermediate_size": 24, "first_k_dense_replace": 1,
                  "q_lora_rank": None, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
                  "v_head_dim": 16, "vocab_size": 256, "weft_rotary_inv_freq": True, "torch_dtype": "bfloat16"},
    # fp8 in blocks that are no squares; the last block of the fused projection is short
    "deepseek-fp8": {"architectures": ["DeepseekV3ForCausalLM"], "hidden_size": 64, "intermediate_size": 64,
                     "num_hidden_layers": 3, "num_attention_heads": 4, "n_routed_experts": 8,
                     "n_shared_experts": 1, "moe_intermediate_size": 64, "first_k_dense_replace": 1,
                     "q_lora_rank": 48, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
                     "v_head_dim": 16, "vocab_size": 256, "num_nextn_predict_layers": 1,
                     "torch_dtype": "bfloat16",
                     "quantization_config": {"quant_method": "fp8", "weight_block_size": [8, 16]}},
    # an indexer in layers 0, 1 and 3
    "glm-dsa": {"architectures": ["GlmMoeDsaForCausalLM"], "hidden_size": 64, "intermediate_size": 64,
                "num_hidden_layers": 4, "num_attention_heads": 4, "n_routed_experts": 4,
                "n_shared_experts": 1, "moe_intermediate_size": 32, "first_k_dense_replace": 1,
                "q_lora_rank": 48, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
                "v_head_dim": 16, "index_n_heads": 4, "index_head_dim": 16, "index_topk_freq": 2,
                "index_skip_topk_offset": 2, "num_nextn_predict_layers": 1, "vocab_size": 256,
                "torch_dtype": "bfloat16"},
    "glm4-moe-lite": {"architectures": ["Glm4MoeLiteForCausalLM"], "hidden_size": 64, "intermediate_size": 96,
                      "num_hidden_layers": 3, "num_attention_heads": 4, "n_routed_experts": 6,
                      "n_shared_experts": 1, "moe_intermediate_size": 32, "first_k_dense_replace": 1,
                      "q_lora_rank": 32, "kv_lora_rank": 16, "qk_nope_head_dim": 24, "qk_rope_head_dim": 8,
                      "v_head_dim": 32, "num_nextn_predict_layers": 1, "vocab_size": 256,
                      "torch_dtype": "bfloat16"},
    # stored in 16 bits of the other kind, no query latent, no router bias
    "deepseek-v2": {"architectures": ["DeepseekV2ForCausalLM"], "hidden_size": 64, "intermediate_size": 96,
                    "num_hidden_layers": 2, "num_attention_heads": 4, "n_routed_experts": 4,
                    "n_shared_experts": 2, "moe_intermediate_size": 32, "first_k_dense_replace": 1,
                    "q_lora_rank": None, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
                    "v_head_dim": 16, "topk_method": "greedy", "vocab_size": 200, "torch_dtype": "float16"},
    # an indexer in every layer, in blocks
    "deepseek-v32": {"architectures": ["DeepseekV32ForCausalLM"], "hidden_size": 64, "intermediate_size": 64,
                     "num_hidden_layers": 3, "num_attention_heads": 4, "n_routed_experts": 4,
                     "n_shared_experts": 1, "moe_intermediate_size": 32, "first_k_dense_replace": 1,
                     "q_lora_rank": 32, "kv_lora_rank": 24, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
                     "v_head_dim": 16, "index_n_heads": 4, "index_head_dim": 16, "vocab_size": 256,
                     "num_nextn_predict_layers": 1, "torch_dtype": "bfloat16",
                     "quantization_config": {"quant_method": "fp8", "weight_block_size": [16, 8]}},
}

# of classes whose tests are apart: not in every test of all families
SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 203,
         "torch_dtype": "bfloat16"}
MORE_CONFIGS = {
    "gpt2": {"architectures": ["GPT2LMHeadModel"], "n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 203,
             "n_positions": 40, "torch_dtype": "float32"},
    "qwen3-next": {"architectures": ["Qwen3NextForCausalLM"], **SMALL, "num_key_value_heads": 4, "head_dim": 16,
                   "num_experts": 4, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 48,
                   "linear_num_value_heads": 8, "linear_num_key_heads": 4, "linear_key_head_dim": 16,
                   "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4, "full_attention_interval": 2},
    "gpt-oss": {"architectures": ["GptOssForCausalLM"], **SMALL, "num_key_value_heads": 4, "head_dim": 16,
                "intermediate_size": 128, "num_local_experts": 4},
}


def weft(*arguments, check=True, timeout=300, program=WEFT):
    done = subprocess.run([str(program), *map(str, arguments)], capture_output=True, text=True, timeout=timeout)
    if check:
        assert done.returncode == 0, f"weft {' '.join(map(str, arguments))}: {done.stderr}"
    return done


def elsewhere(folder, host):
    """What stands before a command that is to run on another host, as far as weft can see: another name and
    boot id."""
    boot = folder / f"{host}.boot"
    boot.write_text(f"{uuid.uuid5(uuid.NAMESPACE_DNS, host)}\n")
    return ["unshare", *([] if os.geteuid() == 0 else ["--map-root-user"]), "--mount", "--uts", "sh", "-c",
            'hostname "$0" && mount --bind "$1" /proc/sys/kernel/random/boot_id && shift && exec "$@"', host, boot]


def config_of(kind):
    return CONFIGS.get(kind) or MORE_CONFIGS[kind]


def make_model(folder, kind, **changes):
    """A checkpoint of a small model; returns its folder."""
    source = folder / f"{kind}-config"
    source.mkdir(parents=True)
    (source / "config.json").write_text(json.dumps({**config_of(kind), **changes}))
    weft("checkpoint", "make", source / "config.json", folder / kind)
    return folder / kind


def spec(text):
    """Of a spec; what has no "=" is of the value before it, as commas of a layout are."""
    return dict(item.split("=", 1) for item in re.split(r",(?=[^,|]*=)", text))


def counts(train, infer):
    train, infer = spec(train), spec(infer)
    return int(train.get("world", 1)), int(infer.get("engines", 1)) * int(infer.get("tp", 1))


class Process:
    def __init__(self, name, command, folder, env=None):
        self.name, self.log, self.errors = name, folder / f"{name}.out", folder / f"{name}.err"
        with open(self.log, "w") as out, open(self.errors, "w") as err:
            self.popen = subprocess.Popen([str(part) for part in command], stdout=out, stderr=err,
                                          stdin=subprocess.DEVNULL, env={**os.environ, **(env or {})})

    @property
    def code(self):
        return self.popen.poll()

    @property
    def stderr(self):
        return self.errors.read_text(errors="replace")

    @property
    def stdout(self):
        return self.log.read_text(errors="replace")

    def updates(self):
        return [json.loads(line) for line in self.stdout.splitlines()
                if line.startswith('{"event":"update"') and line.endswith("}")]


class Job:
    """One controller and its workers. Use as a context manager: nothing survives it."""

    def __init__(self, folder, model, train, infer, name="test"):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.model, self.train, self.infer, self.name = folder, model, train, infer, name
        self.trainers, self.inference = counts(train, infer)
        self.processes, self.address = {}, None
        self.hosts = {}  # by a worker's name: the host that it is on; else this one

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes.values():
            if process.code is None:
                process.popen.kill()
            process.popen.wait()

    def start(self, name, command, env=None):
        self.processes[name] = Process(name, command, self.folder, env)
        return self.processes[name]

    def controller(self, *flags, env=None, bind="tcp://127.0.0.1:0", name="controller"):
        port = self.folder / f"{name}.port"
        port.unlink(missing_ok=True)
        process = self.start(name, [CONTROLLER, "--job", self.name, "--bind", bind, "--port-file", port,
                                    "--train", self.train, "--infer", self.infer, *flags], env)
        deadline = time.monotonic() + 20
        while not port.exists():
            assert process.code is None and time.monotonic() < deadline, process.stderr
            time.sleep(0.01)
        self.address = f"tcp://127.0.0.1:{port.read_text().strip()}"
        return process

    def worker(self, role, rank, *flags, updates=2, env=None, name=None):
        tested = {"WEFT_FAULT", "WEFT_CUDA_MOCK"} & {**os.environ, **(env or {})}.keys()
        program = TESTED_WORKER if tested else WORKER
        command = [program, "--controller", self.address, "--job", self.name, "--model", self.model, "--train",
                   self.train, "--infer", self.infer, "--role", role, "--rank", rank, "--updates", updates,
                   "--checkpoint", self.model, "--json", *flags]
        name = name or f"{role}-{rank}"
        if name in self.hosts:
            command = elsewhere(self.folder, self.hosts[name]) + command
        if role == "inference" and "--digests" not in flags:
            command += ["--digests", self.folder / f"{name}.digests"]
        return self.start(name, command, env)

    def workers(self, *flags, updates=2, trainer_flags=(), inference_flags=(), env=None):
        for rank in range(self.trainers):
            self.worker("trainer", rank, *flags, *trainer_flags, updates=updates, env=env)
        for rank in range(self.inference):
            self.worker("inference", rank, *flags, *inference_flags, updates=updates, env=env)

    def wait(self, timeout=60, names=None):
        """Exit codes by name; fails when a process is still there at the deadline."""
        deadline = time.monotonic() + timeout
        names = list(names or self.processes)
        while any(self.processes[name].code is None for name in names):
            if time.monotonic() > deadline:
                hanging = [name for name in names if self.processes[name].code is None]
                raise AssertionError(f"still running after {timeout} s: {hanging}\n" + self.said(hanging))
            time.sleep(0.005)
        return {name: self.processes[name].code for name in names}

    def said(self, names=None):
        return "".join(f"--- {name} ({self.processes[name].code}):\n{self.processes[name].stderr}"
                       for name in names or self.processes)

    def succeed(self, timeout=60):
        codes = self.wait(timeout)
        assert set(codes.values()) == {0}, f"{codes}\n{self.said()}"

    def kill(self, name, number=signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            self.processes[name].popen.send_signal(number)

    def digests(self, rank, name=None):
        """version -> {parameter: (digest, bytes)} as the inference rank reported after publishing."""
        versions = {}
        path = self.folder / f"{name or f'inference-{rank}'}.digests"
        for line in (path.read_text().splitlines() if path.exists() else []):
            if not line.endswith("}"):
                continue  # the process was killed inside the line
            record = json.loads(line)
            versions.setdefault(record["version"], {})[record["param"]] = (record["digest"], record["bytes"])
        return versions

    def verify(self, expected, versions):
        """Every version on every rank equals the independent recomputation."""
        for version in versions:
            want = expected.digests(version)
            for rank in range(self.inference):
                got = self.digests(rank).get(version)
                assert got == want[rank % expected.tp], f"version {version} on inference {rank} differs"


def expected(model, infer, one_in=1):
    return engine_layout.Expected(model, spec(infer), one_in)


def run(folder, models, kind, train, infer, flags, updates=2, **more):
    """A whole job, whose every version is what numpy makes of the checkpoint."""
    with Job(folder, models[kind], train, infer) as job:
        job.controller()
        job.workers(*flags, updates=updates, **more)
        job.succeed()
        job.verify(expected(models[kind], infer), range(1, updates + 1))
        return job


def files_of_jobs():
    """Shared memory files and sockets of ours. The folders of machines and of hosts (tests/vm, tests/net) are no job's."""
    return {str(path) for folder in ("/dev/shm", "/tmp") for path in pathlib.Path(folder).glob("weft*")
            if not path.name.startswith(("weft-vm-", "weft-net-"))}


BEFORE = files_of_jobs()  # of jobs that are no test's, or of a run of the tests that was killed


def leftovers(patience=20):
    """What the jobs of these tests have left behind. What other tests hold for a while beside us goes by itself: only what
    stays is left behind."""
    found, deadline = files_of_jobs() - BEFORE, time.monotonic() + patience
    while found and time.monotonic() < deadline:
        time.sleep(0.2)
        found &= files_of_jobs()
    return sorted(found)
