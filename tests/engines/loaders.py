# SPDX-License-Identifier: Apache-2.0
"""SGLang's and vLLM's own model classes and weight loaders, as one rank of an engine of any size in one process without a
GPU: torch's "fake" process groups, which answer for ranks that are not there. Every parameter is filled with 0xA5 before
the load, so that a byte that nobody writes shows.

Imported once, then a fork a rank: a process can have one engine."""
import os
import sys
import types

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("VLLM_TARGET_DEVICE", "cpu")

import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

torch.set_num_threads(1)  # threads of a pool are not there after a fork, and waited for


def fake_groups(rank, world):
    made = dist.new_group
    dist.new_group = lambda ranks=None, *_, **__: made(ranks, backend="fake")
    dist.init_process_group(backend="fake", store=FakeStore(), rank=rank, world_size=world)


def parameters_of(model, load):
    for parameter in model.parameters():
        parameter.data.view(-1).view(torch.uint8).fill_(0xA5)
    load(model)
    return {name: (list(parameter.shape), str(parameter.dtype), parameter.data.contiguous())
            for name, parameter in model.named_parameters()}


class Vllm:
    name = "vllm"

    def __init__(self):
        import vllm
        import vllm.distributed.parallel_state
        import vllm.engine.arg_utils
        import vllm.model_executor.model_loader.utils
        from vllm.model_executor.models import deepseek_v2, gemma3_mm, kimi_k25, llama  # noqa: F401, before the first fork
        from vllm.model_executor.models import registry

        registry._run_in_subprocess = lambda function: function()  # an interpreter a rank otherwise
        torch.ops._C.gelu_new = torch.ops._C.gelu_quick = None  # of an extension that a CPU has not; loading runs none
        from vllm.model_executor.layers.fused_moe.oracle import mxfp4 as oracle
        from vllm.model_executor.layers.fused_moe.oracle.fp8 import Fp8MoeBackend
        from vllm.model_executor.layers.quantization import fp8, mxfp4

        # no backend runs on a CPU; this one pads the least and is Hopper's
        mxfp4.select_mxfp4_moe_backend = lambda *_, **__: (oracle.Mxfp4MoeBackend.TRITON, None)
        fp8.select_fp8_moe_backend = lambda *_, **__: (Fp8MoeBackend.TRITON, None)
        fp8.init_fp8_linear_kernel = lambda *_, **__: None  # nor does a kernel, and loading runs none
        self.mxfp4, self.backends = mxfp4, oracle.Mxfp4MoeBackend
        self.version = vllm.__version__

    def load(self, folder, rank, tp, ep, runner):
        """runner: of experts in MXFP4, a name of vLLM's; None: as above"""
        from vllm.config import set_current_vllm_config
        from vllm.distributed import parallel_state
        from vllm.distributed.device_communicators import shm_broadcast
        from vllm.engine.arg_utils import EngineArgs
        from vllm.model_executor.model_loader import get_model_loader
        from vllm.model_executor.model_loader.utils import initialize_model

        if runner:
            self.mxfp4.select_mxfp4_moe_backend = lambda *_, **__: (self.backends[runner], None)
        fake_groups(rank, tp)
        shm_broadcast.MessageQueue.create_from_process_group = staticmethod(lambda *_, **__: None)
        config = EngineArgs(model=str(folder), tensor_parallel_size=tp, load_format="safetensors", enforce_eager=True,
                            skip_tokenizer_init=True, dtype="bfloat16", enable_expert_parallel=ep > 1).create_engine_config()
        with set_current_vllm_config(config):
            parallel_state.init_distributed_environment(tp, rank, "env://", rank, "fake")
            parallel_state.initialize_model_parallel(tp)
            torch.set_default_dtype(torch.bfloat16)
            model = initialize_model(vllm_config=config)
            loader = get_model_loader(config.load_config)
            return parameters_of(model, lambda model: loader.load_weights(model, config.model_config))


def empty_module(name, **members):
    """In place of an extension that only a device has; nothing of it runs while weights are loaded."""
    *above, last = name.split(".")
    made = sys.modules.setdefault(name, types.ModuleType(name))
    vars(made).update(members)
    if above:
        setattr(empty_module(".".join(above)), last, made)
    return made


class Sglang:
    name = "sglang"

    def __init__(self):
        empty_module("vllm._custom_ops", rotary_embedding=None)
        import sglang.srt.distributed.bootstrap
        import sglang.srt.model_loader
        import sglang.srt.models.registry  # noqa: F401, all classes, before the first fork
        import sglang.version
        from sglang.srt.layers import quantization
        from sglang.srt.layers.quantization import mxfp4
        from sglang.srt.models import kimi_vl_moonvit

        kimi_vl_moonvit.get_device = lambda: "cpu"  # of tables that no tensor holds
        quantization.QUANTIZATION_METHODS["mxfp4"] = mxfp4.Mxfp4Config  # which only devices have
        self.mxfp4 = mxfp4
        self.version = sglang.version.__version__

    def load(self, folder, rank, tp, ep, runner):
        """runner: --moe-runner-backend, a device beside it; or "installed": its own choice where the package triton_kernels is"""
        from sglang.srt import runtime_context
        from sglang.srt.configs.device_config import DeviceConfig
        from sglang.srt.configs.load_config import LoadConfig
        from sglang.srt.configs.model_config import ModelConfig
        from sglang.srt.distributed import parallel_state
        from sglang.srt.distributed.device_communicators import shm_broadcast
        from sglang.srt.layers import dp_attention
        from sglang.srt.layers.moe.utils import initialize_moe_config
        from sglang.srt.model_loader import get_model_loader
        from sglang.srt.model_loader.loader import _get_quantization_config, _initialize_model
        from sglang.srt.server_args import ServerArgs

        self.mxfp4.has_triton_kernels = runner in ("triton_kernel", "installed")  # loading runs none of it
        runner, _, device = (runner or "auto").partition(" ")
        if device:
            self.mxfp4.get_platform = lambda: types.SimpleNamespace(**{f"is_{one}": one == device for one in ("sm90", "sm100", "sm120")})
            self.mxfp4._FI_HAS_SM90_CUTLASS_MXFP4 = True
        fake_groups(rank, tp)
        arguments = ServerArgs(model_path=str(folder), tp_size=tp, ep_size=ep, device="cpu", skip_tokenizer_init=True,
                               dtype="bfloat16", disable_cuda_graph=True, disable_radix_cache=True,
                               moe_runner_backend="auto" if runner == "installed" else runner)
        runtime_context.publish(arguments, role="scheduler",
                                ranks=runtime_context.SpawnRanks(world_rank=rank, gpu_id=0, dp_rank=None))
        shm_broadcast.MessageQueue.create_from_process_group = staticmethod(lambda *_, **__: None)
        parallel_state.init_distributed_environment(backend="fake", world_size=tp, rank=rank, local_rank=0)
        parallel_state.initialize_model_parallel()
        initialize_moe_config()
        dp_attention.initialize_dp_attention(arguments)
        config = ModelConfig.from_server_args(arguments)
        dp_attention.init_dp_gathered_buffer(config)
        loading = LoadConfig()
        torch.set_default_dtype(torch.bfloat16)
        loader = get_model_loader(loading, config)
        model = _initialize_model(config, loading, _get_quantization_config(config, loading))
        return parameters_of(model, lambda model: model.load_weights(loader._get_all_weights(config, model)))


ENGINES = {"vllm": Vllm, "sglang": Sglang}
