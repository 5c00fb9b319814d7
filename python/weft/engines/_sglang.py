# SPDX-License-Identifier: Apache-2.0
"""SGLang as an Engine: 0.5."""
from __future__ import annotations

import copy
import functools
from typing import Any

import torch

from weft._errors import UsageError
from weft.engines._engine import Engine, Named, first_attribute, kept_in_place, set_layers


def make(given: Any, module: torch.nn.Module, config: Any) -> "Sglang":
    """Of a model, a model runner or a worker."""
    if config is None:
        config = first_attribute(given, ("model_config", "model_runner.model_config", "tp_worker.model_runner.model_config"))
    return Sglang(module, config, first_attribute(given, ("load_config", "model_runner.load_config")))


def server_args() -> Any:
    """The process's resolved arguments.

    Raises:
        UsageError: this process has none.
    """
    found = None
    try:
        from sglang.srt.server_args import get_global_server_args

        found = get_global_server_args()
    except Exception:  # older, newer, or not set: each version has another exception
        pass
    if found is None:
        try:
            from sglang.srt.runtime_context import get_server_args

            found = get_server_args()
        except Exception:
            pass
    if found is None:
        raise UsageError("SGLang's server arguments are not set in this process: describe the model in the scheduler's process")
    return found


def _plus_one(norm: Any) -> None:
    """Of releases before 0.5.18, which do so in the weight's loader alone."""
    torch.add(norm.weight.data, 1.0, out=norm.gemma_weight)


class Sglang(Engine):
    """A rank of SGLang's scheduler processes."""

    name = "sglang"

    def __init__(self, model: torch.nn.Module, config: Any = None, load_config: Any = None):
        super().__init__(model, config)
        self.arguments = server_args()
        if self.config is None:
            from sglang.srt.configs.model_config import ModelConfig

            self.config = ModelConfig.from_server_args(self.arguments)
        self.load_config = load_config

    def version(self) -> str:
        import sglang

        return str(sglang.__version__)

    def rank(self) -> int:
        from sglang.srt.distributed.parallel_state import get_pp_group, get_tp_group

        return int(get_pp_group().rank_in_group * self.arguments.tp_size + get_tp_group().rank_in_group)

    def ranks(self) -> int:
        return int(self.arguments.pp_size * self.arguments.tp_size)

    def stages(self) -> int:
        return int(self.arguments.pp_size)

    def sizes(self) -> dict[str, str]:
        arguments, found = self.arguments, {"tp": str(self.arguments.tp_size)}
        if arguments.ep_size > 1 and any(".experts." in name for name, _ in self.model.named_parameters()):
            found["ep"] = str(arguments.ep_size)
        if arguments.enable_dp_attention and arguments.dp_size > 1:
            found["dp"] = str(arguments.dp_size)
        if getattr(arguments, "enable_dp_lm_head", False):
            found["dp_lm_head"] = "1"
        if getattr(arguments, "moe_dense_tp_size", None) == 1:
            found["moe_dense_tp"] = "1"
        if getattr(arguments, "moe_a2a_backend", "none") not in ("none", None):
            found["a2a"] = "1"
        return found

    def own_config(self) -> dict[str, Any]:
        return dict(self.config.hf_config.to_dict())

    def folder(self) -> str:
        return str(self.arguments.model_path)

    def refusals(self) -> list[str]:
        found = []
        if getattr(self.arguments, "enable_eplb", False):
            found.append("--enable-eplb moves experts between ranks while the engine runs: run without it")
        if getattr(self.arguments, "cpu_offload_gb", 0):
            found.append("--cpu-offload-gb keeps parameters on the host and copies them for each layer: run without it")
        return found

    def dummy(self) -> bool:
        return str(getattr(self.arguments, "load_format", "")).rpartition(".")[2].lower() == "dummy"

    def scratch(self, layers: int) -> "tuple[torch.nn.Module, Any]":
        from sglang.srt.configs.load_config import LoadConfig
        from sglang.srt.model_loader import loader as loaders

        config = copy.copy(self.config)
        config.hf_config = copy.deepcopy(self.config.hf_config)
        text = config.hf_config
        config.hf_text_config = text.get_text_config() if hasattr(text, "get_text_config") else text
        set_layers(text, layers * self.stages())
        loading = self.load_config or LoadConfig()
        device, dtype = next(self.model.parameters()).device, torch.get_default_dtype()
        try:
            torch.set_default_dtype(config.dtype)
            with torch.device(device):
                model: torch.nn.Module = loaders._initialize_model(
                    config, loading, loaders._get_quantization_config(config, loading))
        finally:
            torch.set_default_dtype(dtype)
        return model, None

    def load(self, model: torch.nn.Module, kept: Any, named: Named) -> None:
        model.load_weights(named)  # type: ignore[operator]

    def process(self, model: torch.nn.Module, kept: Any) -> None:
        for module in model.modules():
            method = getattr(module, "quant_method", None)
            if method is not None and hasattr(method, "process_weights_after_loading"):
                method.process_weights_after_loading(module)

    def derive(self, model: torch.nn.Module, kept: Any) -> None:
        """What models compute at the end of load_weights: MLA's absorbed projections; and what norms of Gemma's keep of their
        weights, which their loader computes."""
        loaders: list[Any] = [module.post_load_weights for module in model.modules() if hasattr(module, "post_load_weights")]
        norms: list[Any] = [getattr(module, "refresh_gemma_weight", functools.partial(_plus_one, module))
                            for module in model.modules() if isinstance(getattr(module, "gemma_weight", None), torch.Tensor)]

        def run() -> None:
            for again in (*loaders[:1], *norms):  # of several the outermost, which has the others in it
                again()
        if loaders or norms:
            with torch.no_grad():
                kept_in_place(list(model.modules()), run)

    def reload(self, model: torch.nn.Module, kept: Any, named: Named) -> None:
        from sglang.srt.model_loader.loader import DefaultModelLoader

        device = next(model.parameters()).device
        restore = getattr(DefaultModelLoader, "restore_weights_before_loading", None)
        if restore is not None:
            restore(model, device)
        DefaultModelLoader.load_weights_and_postprocess(model, named, device)
