# SPDX-License-Identifier: Apache-2.0
"""vLLM as an Engine: 0.22 to 0.33."""
from __future__ import annotations

import copy
import inspect
from typing import Any

import torch

from weft._errors import UnsupportedError, UsageError
from weft.engines._engine import Engine, Named, first_attribute, kept_in_place, set_layers


def make(given: Any, module: torch.nn.Module, config: Any) -> "Vllm":
    """Of a model, a worker or a model runner."""
    if config is None:
        config = first_attribute(given, ("vllm_config", "model_runner.vllm_config"))
    if config is None:
        config = next((each.vllm_config for each in module.modules() if hasattr(each, "vllm_config")), None)
    if config is None:
        from vllm.config import get_current_vllm_config_or_none

        config = get_current_vllm_config_or_none()
    if config is None:
        raise UsageError("a vLLM model does not keep its VllmConfig: give config=, or the worker or model runner in its place")
    return Vllm(module, config)


class Vllm(Engine):
    """A worker of vLLM."""

    name = "vllm"

    def version(self) -> str:
        import vllm

        return str(vllm.__version__)

    def rank(self) -> int:
        return self._replica() * self._ranks_a_replica() + self._place_in_replica()

    def place(self) -> int:
        return self.rank() if self._dp() > 1 else self._place_in_replica()

    def ranks(self) -> int:
        return int(self.config.parallel_config.data_parallel_size) * self._ranks_a_replica()

    def stages(self) -> int:
        return int(self.config.parallel_config.pipeline_parallel_size)

    def _ranks_a_replica(self) -> int:
        parallel = self.config.parallel_config
        return int(parallel.pipeline_parallel_size * parallel.tensor_parallel_size)

    def _place_in_replica(self) -> int:
        from vllm.distributed import get_pp_group, get_tp_group

        return int(get_pp_group().rank_in_group * self.config.parallel_config.tensor_parallel_size
                   + get_tp_group().rank_in_group)

    def _replica(self) -> int:
        parallel = self.config.parallel_config
        return int(parallel.data_parallel_rank) if parallel.data_parallel_size > 1 else 0

    def _dp(self) -> int:
        """Attention dp that shares experts; without experts over it every replica is whole."""
        parallel = self.config.parallel_config
        return int(parallel.data_parallel_size) if parallel.enable_expert_parallel and self._experts() else 1

    def sizes(self) -> dict[str, str]:
        parallel, dp = self.config.parallel_config, self._dp()
        found = {"tp": str(parallel.tensor_parallel_size * dp)}
        if dp > 1:
            found["dp"] = str(dp)
        if parallel.enable_expert_parallel and self._experts():
            found["ep"] = found["tp"]
        found["names"] = "vllm"
        if any(".routed_experts." in name for name, _ in self.model.named_parameters()):
            found["routed_experts"] = "1"
        return found

    def _experts(self) -> bool:
        return any(".experts." in name for name, _ in self.model.named_parameters())

    def own_config(self) -> dict[str, Any]:
        return dict(self.config.model_config.hf_config.to_dict())

    def folder(self) -> str:
        return str(self.config.model_config.model)

    def refusals(self) -> list[str]:
        parallel, found = self.config.parallel_config, []
        if getattr(parallel, "enable_eplb", False):
            found.append("--enable-eplb moves experts between ranks while the engine runs: run without it")
        if getattr(getattr(self.config, "cache_config", None), "cpu_offload_gb", 0):
            found.append("--cpu-offload-gb keeps parameters on the host and copies them for each layer: run without it")
        return found

    def dummy(self) -> bool:
        return str(getattr(getattr(self.config, "load_config", None), "load_format", "")).rpartition(".")[2].lower() == "dummy"

    def scratch(self, layers: int) -> "tuple[torch.nn.Module, Any]":
        from vllm.config import set_current_vllm_config
        from vllm.model_executor.model_loader.utils import initialize_model

        config = copy.copy(self.config)
        config.model_config = copy.copy(self.config.model_config)
        config.model_config.hf_config = copy.deepcopy(self.config.model_config.hf_config)
        text = config.model_config.hf_config
        config.model_config.hf_text_config = text.get_text_config() if hasattr(text, "get_text_config") else text
        set_layers(text, layers * self.stages())
        config.compilation_config = copy.copy(self.config.compilation_config)
        for name in ("static_forward_context", "static_all_moe_layers"):  # layers register themselves there, by name
            if hasattr(config.compilation_config, name):
                setattr(config.compilation_config, name, type(getattr(config.compilation_config, name))())
        device, dtype = _device(self.model), torch.get_default_dtype()
        try:
            torch.set_default_dtype(config.model_config.dtype)
            with set_current_vllm_config(config), torch.device(device):
                model: torch.nn.Module = initialize_model(vllm_config=config)
        finally:
            torch.set_default_dtype(dtype)
        return model, config

    def load(self, model: torch.nn.Module, kept: Any, named: Named) -> None:
        from vllm.config import set_current_vllm_config

        with set_current_vllm_config(kept):
            model.load_weights(named)  # type: ignore[operator]

    def process(self, model: torch.nn.Module, kept: Any) -> None:
        from vllm.config import set_current_vllm_config
        from vllm.model_executor.model_loader.utils import process_weights_after_loading

        with set_current_vllm_config(kept):
            process_weights_after_loading(model, kept.model_config, _device(model))

    def context(self) -> Any:
        return self.config

    def derive(self, model: torch.nn.Module, kept: Any) -> None:
        """Attention's own tensors: MLA's absorbed projections, scales; and what FlashInfer's kernels want of the smallest
        scales of blocks, which no marks show: they are raised after each load (vLLM 0.22 to 0.33)."""
        dtype = kept.model_config.dtype
        layers = [module for module in model.modules() if _is_attention(module)]

        def run() -> None:
            for layer in layers:
                process: Any = layer.process_weights_after_loading
                process(dtype) if inspect.signature(process).parameters else process()
        from vllm.config import set_current_vllm_config

        with set_current_vllm_config(kept), torch.no_grad():
            kept_in_place(layers, run)
            for scale in _least_scales(model):
                scale.clamp_(min=_SCALE_LEAST)

    def reload_refused(self) -> str:
        try:
            from vllm.model_executor.model_loader.reload import finalize_layerwise_reload  # noqa: F401
        except ImportError:
            return f"vLLM {self.version()} has no reload layer by layer, and loading again over processed parameters is wrong"
        return ""

    def reload(self, model: torch.nn.Module, kept: Any, named: Named) -> None:
        if self.reload_refused():
            raise UnsupportedError(self.reload_refused())
        from vllm.config import set_current_vllm_config
        from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

        with set_current_vllm_config(kept), torch.device(_device(model)):
            initialize_layerwise_reload(model)
            model.load_weights(named)  # type: ignore[operator]
            finalize_layerwise_reload(model, kept.model_config)


_SCALE_LEAST = 1e-10


def _least_scales(model: torch.nn.Module) -> "list[torch.Tensor]":
    """Scales of experts in fp8 blocks, where FlashInfer runs them."""
    found = []
    for module in model.modules():
        method = getattr(module, "quant_method", None)
        backend = str(getattr(getattr(method, "fp8_backend", None), "name", ""))
        if backend.startswith("FLASHINFER") and getattr(method, "block_quant", False):
            found += [scale for name in ("w13_weight_scale_inv", "w2_weight_scale_inv")
                      for scale in [getattr(module, name, None)] if isinstance(scale, torch.Tensor)]
    return found


def _is_attention(module: torch.nn.Module) -> bool:
    """A layer that processes after all others, by itself."""
    return hasattr(module, "process_weights_after_loading") and "ttention" in type(module).__name__


def _device(model: torch.nn.Module) -> torch.device:
    return next(model.parameters()).device
