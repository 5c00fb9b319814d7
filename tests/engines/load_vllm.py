# SPDX-License-Identifier: Apache-2.0
"""vLLM's model classes and loader for one rank, as loaders.py has them. Of 0.22 and 0.33: what moved between them is asked for
by both names."""
import loaders
import torch

CAPABILITIES = {"sm90": 90, "sm100": 100}


class Vllm:
    name = "vllm"

    def __init__(self, device: str):
        import vllm.platforms
        from vllm.platforms.cpu import CpuPlatform

        vllm.platforms._current_platform = CpuPlatform()  # wheels are for CUDA, and older ones take no CPU by themselves
        import vllm
        import vllm.distributed.parallel_state
        import vllm.engine.arg_utils
        import vllm.model_executor.model_loader.utils
        from vllm.model_executor.models import deepseek_v2, gemma3_mm, kimi_k25, llama, registry  # noqa: F401, before the first fork

        registry._run_in_subprocess = lambda function: function()  # an interpreter a rank otherwise
        self.version, self.device, self.chosen = vllm.__version__, device, ""
        self.routed_experts = tuple(int(part) for part in self.version.split(".")[:2]) >= (0, 27)
        for name in ("gelu_new", "gelu_quick", "gelu_tanh_and_mul", "gelu_and_mul", "silu_and_mul"):
            setattr(torch.ops._C, name, None)  # of an extension that a CPU has not; loading runs none
        self.old = not self.routed_experts
        self._choose_backends()

    def _choose_backends(self) -> None:
        """What a CPU has not, and what loading runs none of."""
        from vllm.platforms.cpu import CpuPlatform
        from vllm.v1.attention.backends.registry import AttentionBackendEnum
        from vllm.v1.worker import workspace

        of_cpu = CpuPlatform.get_attn_backend_cls

        def attention(cls, selected_backend, attn_selector_config, num_heads=None):
            try:
                return of_cpu(selected_backend, attn_selector_config, num_heads)
            except NotImplementedError:  # a GPU's: latent attention in 0.22, sparse in both
                return (AttentionBackendEnum.FLASHMLA_SPARSE if attn_selector_config.use_sparse
                        else AttentionBackendEnum.TRITON_MLA).get_path()

        CpuPlatform.get_attn_backend_cls = classmethod(attention)
        CpuPlatform.num_compute_units = classmethod(lambda *_: 1)
        workspace.init_workspace_manager(torch.device("cpu"))
        torch.accelerator.empty_cache = lambda: None
        try:
            from vllm.v1.attention.backends.mla.prefill import flash_attn

            flash_attn.flash_attn_varlen_func = flash_attn.flash_attn_varlen_func or print  # asked for, not called
        except ImportError:
            pass
        from vllm.model_executor.layers.fused_moe.oracle import mxfp4 as oracle
        from vllm.model_executor.layers.fused_moe.oracle.fp8 import Fp8MoeBackend
        from vllm.model_executor.layers.quantization import fp8, mxfp4

        # no backend runs on a CPU; this one pads the least and is Hopper's
        mxfp4.select_mxfp4_moe_backend = lambda *_, **__: (oracle.Mxfp4MoeBackend.TRITON, None)
        if self.device:
            self._tell(CAPABILITIES[self.device])
        else:
            fp8.select_fp8_moe_backend = lambda *_, **__: (Fp8MoeBackend.TRITON, None)
        fp8.init_fp8_linear_kernel = lambda *_, **__: None  # nor does a kernel, and loading runs none
        self.mxfp4, self.backends = mxfp4, oracle.Mxfp4MoeBackend

    def _tell(self, capability: int) -> None:
        """What chooses the kernels of fp8 experts, and those kernels, are told of a GPU; the choice is the engine's own."""
        from vllm.model_executor.layers.fused_moe.experts import flashinfer_cutlass_moe
        from vllm.model_executor.layers.fused_moe.oracle import fp8 as oracle
        from vllm.model_executor.layers.quantization import fp8

        class Gpu:
            device_name = "cuda"
            is_cuda = staticmethod(lambda: True)
            is_device_capability = has_device_capability = staticmethod(lambda asked, *_: asked == capability)
            is_device_capability_family = staticmethod(lambda asked, *_: asked // 10 == capability // 10)

            def __getattr__(self, name):
                if name.startswith("is_"):
                    return lambda *_, **__: False
                raise AttributeError(name)

        oracle.current_platform = flashinfer_cutlass_moe.current_platform = Gpu()
        flashinfer_cutlass_moe.has_flashinfer_cutlass_fused_moe = lambda: True
        choose = oracle.select_fp8_moe_backend

        def chosen(*arguments, **named):
            backend, experts = choose(*arguments, **named)
            self.chosen = backend.value
            return backend, experts

        fp8.select_fp8_moe_backend = chosen
        fp8.make_fp8_moe_kernel = lambda *_, **__: None  # runs it

    def load(self, folder, rank: int, setup: loaders.Setup):
        """setup.runner: of experts in MXFP4, a name of vLLM's; None: as above"""
        from vllm.config import set_current_vllm_config
        from vllm.distributed import parallel_state
        from vllm.distributed.device_communicators import shm_broadcast
        from vllm.engine.arg_utils import EngineArgs
        from vllm.model_executor.model_loader import get_model_loader
        from vllm.model_executor.model_loader.utils import initialize_model

        if setup.runner:
            self.mxfp4.select_mxfp4_moe_backend = lambda *_, **__: (self.backends[setup.runner], None)
        attention = setup.tp // setup.dp
        loaders.fake_groups(rank, setup.tp)
        shm_broadcast.MessageQueue.create_from_process_group = staticmethod(lambda *_, **__: None)
        config = EngineArgs(model=str(folder), tensor_parallel_size=attention, data_parallel_size=setup.dp,
                            load_format="safetensors", enforce_eager=True, skip_tokenizer_init=True, dtype="bfloat16",
                            enable_expert_parallel=setup.ep > 1, **dict(setup.arguments)).create_engine_config()
        config.parallel_config.data_parallel_rank = rank // attention
        with set_current_vllm_config(config):
            parallel_state.init_distributed_environment(setup.tp, rank, "env://", rank, "fake")
            parallel_state.initialize_model_parallel(attention)
            torch.set_default_dtype(torch.bfloat16)
            model = initialize_model(vllm_config=config)
            loader = get_model_loader(config.load_config)
            return loaders.parameters_of(model, lambda model: loader.load_weights(model, config.model_config),
                                         (lambda model: process(model, config)) if setup.processed else None)


def process(model, config) -> None:
    """What the engine makes of the experts' parameters after the load; linears' kernels are a GPU's alone."""
    for module in model.modules():
        method = getattr(module, "quant_method", None)
        if hasattr(method, "process_weights_after_loading") and hasattr(module, "w13_weight"):
            method.process_weights_after_loading(module)
