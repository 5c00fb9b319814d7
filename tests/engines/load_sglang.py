# SPDX-License-Identifier: Apache-2.0
"""SGLang's model classes and loader for one rank, as loaders.py has them. Of 0.5.17 and 0.5.23: what moved between them is
asked for by both names."""
import concurrent.futures
import inspect
import sys
import types

import loaders
import torch


def empty_module(name, **members):
    """In place of an extension that only a device has; nothing of it runs while weights are loaded."""
    *above, last = name.split(".")
    made = sys.modules.setdefault(name, types.ModuleType(name))
    vars(made).update(members)
    if above:
        setattr(empty_module(".".join(above)), last, made)
    return made


def call(function, *arguments, **named):
    """With those of the arguments that this version of the function has."""
    known = inspect.signature(function).parameters
    return function(*arguments[:len(known)], **{name: value for name, value in named.items() if name in known})


class OneThread(concurrent.futures.ThreadPoolExecutor):
    """Of loaders: several at once race for torch's own pool, which a fork has not."""

    def __init__(self, *_, **__):
        super().__init__(max_workers=1)


class Sglang:
    name = "sglang"

    def __init__(self, device: str):
        empty_module("vllm._custom_ops", rotary_embedding=None)
        concurrent.futures.ThreadPoolExecutor = OneThread
        import sglang.srt.distributed.bootstrap
        import sglang.srt.model_loader
        import sglang.srt.models.registry  # noqa: F401, all classes, before the first fork
        import sglang.version
        from sglang.srt.layers import quantization
        from sglang.srt.layers.quantization import mxfp4
        from sglang.srt.models import kimi_vl_moonvit

        kimi_vl_moonvit.get_device = lambda: "cpu"  # of tables that no tensor holds
        quantization.QUANTIZATION_METHODS["mxfp4"] = mxfp4.Mxfp4Config  # which only devices have
        if device:
            from sglang.srt.models.deepseek_common import deepseek_weight_loader

            # w_kc and w_vc, which a GPU's kernels make of kv_b_proj
            deepseek_weight_loader.DeepseekV2WeightLoaderMixin.post_load_weights = lambda *_, **__: None
        else:  # asked for by arguments of sparse attention, whatever the device is
            torch.cuda.get_device_capability = lambda *_: (9, 0)
        self.mxfp4, self.device = mxfp4, device
        self.version = sglang.version.__version__
        self.old = tuple(int(part) for part in self.version.split(".")[:3]) < (0, 5, 20)

    def _tell_mxfp4(self, runner: str | None) -> str:
        """A name of --moe-runner-backend, a device beside it; or "installed": its own choice where the package triton_kernels is"""
        self.mxfp4.has_triton_kernels = runner in ("triton_kernel", "installed")  # loading runs none of it
        runner, _, device = (runner or "auto").partition(" ")
        if device:
            self.mxfp4.get_platform = lambda: types.SimpleNamespace(**{f"is_{one}": one == device
                                                                       for one in ("sm90", "sm100", "sm120")})
            for one in ("sm90", "sm100", "sm120"):
                setattr(self.mxfp4, f"is_{one}_supported", lambda one=one: one == device)
            self.mxfp4._FI_HAS_SM90_CUTLASS_MXFP4 = True
        return "auto" if runner == "installed" else runner

    def load(self, folder, rank: int, setup: loaders.Setup):
        from sglang.srt import runtime_context
        from sglang.srt.configs.load_config import LoadConfig
        from sglang.srt.configs.model_config import ModelConfig
        from sglang.srt.distributed import parallel_state
        from sglang.srt.distributed.device_communicators import shm_broadcast
        from sglang.srt.layers import dp_attention
        from sglang.srt.layers.moe.utils import initialize_moe_config
        from sglang.srt.model_loader import get_model_loader
        from sglang.srt.model_loader.loader import _get_quantization_config, _initialize_model
        from sglang.srt.server_args import ServerArgs

        loaders.fake_groups(rank, setup.tp)
        arguments = ServerArgs(model_path=str(folder), tp_size=setup.tp, ep_size=setup.ep, dp_size=setup.dp,
                               enable_dp_attention=setup.dp > 1, device="cuda" if self.device else "cpu",
                               skip_tokenizer_init=True, dtype="bfloat16", disable_cuda_graph=True, disable_radix_cache=True,
                               moe_runner_backend=self._tell_mxfp4(setup.runner), **dict(setup.arguments))
        ranks = {"ranks": runtime_context.SpawnRanks(world_rank=rank, gpu_id=0, dp_rank=None)} \
            if hasattr(runtime_context, "SpawnRanks") else {}
        runtime_context.publish(arguments, role="scheduler", **ranks)
        shm_broadcast.MessageQueue.create_from_process_group = staticmethod(lambda *_, **__: None)
        parallel_state.init_distributed_environment(backend="fake", world_size=setup.tp, rank=rank, local_rank=0)
        call(parallel_state.initialize_model_parallel, tensor_model_parallel_size=setup.tp,
             attention_data_parallel_size=setup.dp, expert_model_parallel_size=setup.ep)
        call(initialize_moe_config, arguments)
        config = ModelConfig.from_server_args(arguments)
        call(dp_attention.initialize_dp_attention, arguments, config)
        if hasattr(dp_attention, "init_dp_gathered_buffer"):
            dp_attention.init_dp_gathered_buffer(config)
        loading = LoadConfig()
        torch.set_default_dtype(torch.bfloat16)
        loader = get_model_loader(loading, config)
        model = _initialize_model(config, loading, _get_quantization_config(config, loading))
        return loaders.parameters_of(model, lambda model: model.load_weights(loader._get_all_weights(config, model)),
                                     process if setup.processed else None)


def process(model) -> None:
    """What the engine makes of the experts' parameters after the load; linears' kernels are a GPU's alone."""
    for module in model.modules():
        method = getattr(module, "quant_method", None)
        if hasattr(method, "process_weights_after_loading") and hasattr(module, "w13_weight"):
            method.process_weights_after_loading(module)
