# SPDX-License-Identifier: Apache-2.0
"""One rank of a real vLLM engine, in this process and without a GPU: its model class, its loader, and the methods of its own
worker class (vllm.v1.worker.gpu_worker.Worker) over a stand-in that has what they ask for. Forked after the import."""
import inspect
import types

import loaders
import torch

if not torch.accelerator.is_available():  # vLLM waits for the device after each update
    torch.accelerator.synchronize = lambda *_: None


def on_the_processor():
    """The wheel is for CUDA, and without a device releases before 0.33 find no platform: vLLM's own one for processors."""
    loaders.import_torchvision()
    import vllm.platforms
    from vllm.platforms.cpu import CpuPlatform

    if not vllm.platforms.current_platform.device_type:
        vllm.platforms._current_platform = CpuPlatform()


class Rank:
    """What collective_rpc calls in a worker."""

    def __init__(self, engine, folder, rank, tp, backend="weft"):
        from vllm.config import get_current_vllm_config
        from vllm.v1.worker import gpu_worker

        kept = {}

        def keep(model, load, process=None):
            from vllm.model_executor.model_loader.reload import record_metadata_for_reloading
            from vllm.model_executor.model_loader.utils import process_weights_after_loading

            record_metadata_for_reloading(model)
            load(model)
            config = get_current_vllm_config()
            process_weights_after_loading(model, config.model_config, torch.device("cpu"))
            kept.update(model=model, config=config)
            return {}
        loaders.parameters_of = keep
        engine.load(folder, rank, loaders.Setup(tp=tp))
        self.model, config = kept["model"], kept["config"]
        config.weight_transfer_config = types.SimpleNamespace(backend=backend)
        torch.set_default_dtype(torch.float32)
        self.methods = gpu_worker.Worker
        self.worker = types.SimpleNamespace(
            vllm_config=config, model_config=config.model_config, parallel_config=config.parallel_config, rank=rank,
            device=torch.device("cpu"), speculative_config=None, _weight_update_active=False, _weight_update_is_draft=False,
            _is_checkpoint_format=True, get_draft_model=lambda: None,
            model_runner=types.SimpleNamespace(model=self.model, vllm_config=config, reset_lora_state=lambda: None))
        for name in ("_check_weight_transfer_engine", "_start_weight_update"):
            if hasattr(self.methods, name):
                setattr(self.worker, name, types.MethodType(getattr(self.methods, name), self.worker))
        if backend:
            self.worker.weight_transfer_engine = self._engine(config)

    def _engine(self, config):
        """As load_model of the worker makes it."""
        from vllm.distributed.weight_transfer import WeightTransferEngineFactory
        from vllm.distributed.weight_transfer.base import WeightTransferEngine

        create = WeightTransferEngineFactory.create_engine
        if "device" in inspect.signature(WeightTransferEngine.__init__).parameters:
            return create(config.weight_transfer_config, config, torch.device("cpu"), self.model)
        return create(config.weight_transfer_config, config.parallel_config, self.model)

    def call(self, method, *arguments, **named):
        return getattr(self.methods, method)(self.worker, *arguments, **named)

    def bytes_of(self):
        return {name: parameter.detach().contiguous().reshape(-1).view(torch.uint8).clone()
                for name, parameter in self.model.named_parameters()}
