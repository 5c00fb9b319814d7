# SPDX-License-Identifier: Apache-2.0
"""The back end "weft" of vLLM's workers, for each generation (the table in _generation.py). vLLM imports it when it makes
one; what it does is Session's.

    0.22 to 0.24   made with (config, parallel_config, model). The worker begins and ends a layerwise reload around the update
                   unless it is told is_checkpoint_format=False; Session undoes a reload that was begun before it writes.
    from 0.27      made with (config, vllm_config, device, model). Each back end decides: this one begins none. Where weights
                   have to go through vLLM's loader, the receiver reloads by itself when all bytes are here."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Iterator, Optional

from vllm.distributed.weight_transfer.base import WeightTransferEngine, WeightTransferInitInfo, WeightTransferUpdateInfo

from weft._errors import StateError, UsageError
from weft.vllm._session import Session, endpoint_of


@dataclass
class WeftInitInfo(WeightTransferInitInfo):  # type: ignore[misc, unused-ignore]
    """The job to join: what weft.engines.Sender.endpoint(k) says."""
    endpoint: "dict[str, Any]" = field(default_factory=dict)


@dataclass
class WeftUpdateInfo(WeightTransferUpdateInfo):  # type: ignore[misc, unused-ignore]
    """The version to wait for; None: the next one. ``abandon``: none: the update failed elsewhere, and finish ends it."""
    version: Optional[int] = None
    timeout_s: Optional[float] = None
    abandon: bool = False


class WeftWeightTransferEngine(WeightTransferEngine):  # type: ignore[misc, unused-ignore]
    init_info_cls = WeftInitInfo
    update_info_cls = WeftUpdateInfo
    supports_draft_weight_update = False  # a job has the main model's tensors

    def __init__(self, config: Any, parallel_or_vllm_config: Any, *others: Any):
        super().__init__(config, parallel_or_vllm_config, *others)
        model = others[-1]
        if len(others) > 1:
            self._weft_session = Session(lambda: model, vllm_config=parallel_or_vllm_config)
        else:
            self._weft_session = Session(lambda: model, parallel_config=parallel_or_vllm_config)

    def parse_init_info(self, init_dict: "dict[str, Any]") -> WeftInitInfo:
        """The endpoint's own fields are those that were posted."""
        try:
            return WeftInitInfo(endpoint=endpoint_of(init_dict))
        except UsageError as error:
            raise ValueError(error.text) from error

    def init_transfer_engine(self, init_info: WeftInitInfo) -> None:
        self._weft_session.init(init_info.endpoint)

    def start_weight_update(self) -> None:
        self._weft_session.start()

    def receive_weights(self, update_info: WeftUpdateInfo, load_weights: Any = None) -> None:
        """``load_weights``: of releases up to 0.24, for what comes as named tensors; the receiver has a way of its own."""
        if update_info.abandon:
            self._weft_session.abandon()
        else:
            self._weft_session.receive(update_info.version, update_info.timeout_s)

    def finish_weight_update(self) -> None:
        self._weft_session.finish()

    def shutdown(self) -> None:
        self._weft_session.close()

    def set_weight_update_target(self, model: Any, model_config: Any) -> None:
        raise StateError("weft updates the main model alone: a draft model has no tensors in the job")

    @staticmethod
    def trainer_init(init_info: "dict[str, Any]") -> Any:
        """Trainer side of releases without trainer objects: arguments of weft.vllm.WeightSync; joined."""
        from weft.vllm._sync import WeightSync
        sync = WeightSync(**init_info)
        try:
            sync.connect()
        except BaseException:
            sync.close()
            raise
        return sync

    @staticmethod
    def trainer_send_weights(iterator: "Iterator[tuple[str, Any]]", trainer_args: "dict[str, Any]") -> None:
        """{"sync": what trainer_init gave, "version": None}. Starts, sends and finishes the update."""
        sync = trainer_args.get("sync") if isinstance(trainer_args, dict) else None
        if sync is None:
            raise UsageError("trainer_args has no \"sync\": give what WeftWeightTransferEngine.trainer_init returned")
        sync.send(iterator, trainer_args.get("version"))
