# SPDX-License-Identifier: Apache-2.0
"""Where SGLang is hooked, in which of its versions, and what of a scheduler the hooks read. Everything that names SGLang's
own modules is in this file.

    process            class                                                        methods
    each scheduler     SchedulerWeightUpdaterManager (0.5.23, holds .tp_worker)     init_, destroy_, update_, release_, resume_
                       SchedulerUpdateWeightsMixin (until 0.5.12, is the Scheduler)   the same
    HTTP               TokenizerManager                                             update_weights_from_*, continue_generation

A request that is not for Weft goes to SGLang's own method untouched. HookRegistry is used where there is one; releases without
srt/plugins are started by `python -m weft.sglang launch_server`, which sets the same wrappers itself."""
from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import logging
import os
import sys
from typing import Any, Callable, Iterator, Optional

from weft._errors import StateError, UnsupportedError
from weft.sglang import _groups
from weft.sglang._wire import BACKEND, is_update

logger = logging.getLogger("weft.sglang")

_MANAGERS = ("sglang.srt.managers.scheduler_components.weight_updater.SchedulerWeightUpdaterManager",
             "sglang.srt.managers.scheduler_update_weights_mixin.SchedulerUpdateWeightsMixin")
_TOKENIZER = "sglang.srt.managers.tokenizer_manager.TokenizerManager"
_registered = False
_mixed: Optional[str] = None  # in the process of the HTTP routes: why generation does not continue


# ---- what a scheduler is

def _agree(group: Any) -> Callable[[Optional[str]], "list[Optional[str]]"]:
    def agree(mine: Optional[str]) -> "list[Optional[str]]":
        import torch.distributed as dist

        if group is None or not dist.is_initialized() or dist.get_world_size(group) == 1:
            return [mine]
        told: list[Optional[str]] = [None] * dist.get_world_size(group)
        dist.all_gather_object(told, mine, group=group)
        return told
    return agree


def _drafts(manager: Any) -> list[str]:
    """Draft models that have weights of their own; n-gram speculation has none."""
    worker = getattr(manager, "draft_worker", None)
    if worker is None or "ngram" in type(worker).__name__.lower():
        return []
    if hasattr(worker, "weight_update_runners"):
        return [role for role, _ in worker.weight_update_runners()]
    return [type(worker).__name__]


def _stages() -> int:
    from sglang.srt.distributed.parallel_state import get_pp_group

    return int(get_pp_group().world_size)


def _engines_refusal(manager: Any) -> Optional[str]:
    """What SGLang itself says against changing weights in place, where it has such checks."""
    updater = getattr(manager.tp_worker.model_runner, "weight_updater", None)
    if updater is None:
        return None
    if hasattr(updater, "_assert_weight_cache_inactive"):
        try:
            updater._assert_weight_cache_inactive("an update by weft")
        except RuntimeError as error:
            return str(error)
    check = getattr(sys.modules.get(type(updater).__module__), "_unsupported_derived_weight_cache_error", None)
    said = check(manager.tp_worker.model_runner.model) if check is not None else None
    return None if said is None else str(said)


def _refusal(manager: Any, keeps_draft: bool) -> Optional[str]:
    stages = _stages()
    if stages > 1:
        return (f"pipeline parallelism ({stages} stages): SGLang hands a request to the next stage when this one has answered "
                "it, so that the stages would wait for each other. Serve with --pp-size 1")
    drafts = _drafts(manager)
    if drafts and not keeps_draft:
        return (f"the server has a draft model ({', '.join(drafts)}) that no update would reach: it would go on guessing by old "
                "weights, which costs speed and changes no output. Init with draft='keep' to have that, or serve without "
                "--speculative-algorithm")
    tags = getattr(manager, "offload_tags", ())
    if "weights" in tags:
        return "the weights' memory is released: POST /resume_memory_occupation with tags ['weights'] first"
    if getattr(manager, "_session", None) is not None:
        return ("a weight-update session is open: /begin_weight_update has put weights into the form that loaders want, and Weft "
                "writes them as the engine computes with them. POST /end_weight_update first; an update by Weft needs none")
    return _engines_refusal(manager)


def _rank(manager: Any) -> _groups.Rank:
    from sglang.srt.distributed.parallel_state import get_tp_group

    tp = get_tp_group()
    return _groups.Rank(manager.tp_worker.model_runner.model, f"rank {tp.rank_in_group} of {tp.world_size}",
                        _agree(manager.tp_cpu_group), functools.partial(_refusal, manager))


# ---- hooks of a scheduler

def _answer(kind: str, handle: Callable[[], tuple[bool, str]]) -> Any:
    try:
        success, message = handle()
    except Exception as error:  # would end the scheduler process; ranks fail alike here, as none has heard of the others yet
        logger.exception("weft: %s", kind)
        success, message = False, f"weft: {_groups.words(error)}"
    if not success:
        logger.error(message)
    return getattr(importlib.import_module("sglang.srt.managers.io_struct"), kind)(success=success, message=message)


def _init(original: Callable[..., Any], manager: Any, request: Any) -> Any:
    if request.backend != BACKEND or getattr(request, "receiver", None) is not None:
        if request.group_name in _groups.groups:
            text = (f"weft: group {request.group_name!r} is Weft's: POST /destroy_weights_update_group first, or use another "
                    "name")
            return _answer("InitWeightsUpdateGroupReqOutput", lambda: (False, text))
        return original(manager, request)
    return _answer("InitWeightsUpdateGroupReqOutput",
                   lambda: _groups.open_group(_rank(manager), request.group_name, request.master_address))


def _destroy(original: Callable[..., Any], manager: Any, request: Any) -> Any:
    if request.group_name not in _groups.groups:
        return original(manager, request)

    def handle() -> tuple[bool, str]:
        failed = _groups.close(request.group_name, "it was destroyed by request")
        failures = [one for one in _rank(manager).agree(failed) if one]
        return not failures, f"weft: group {request.group_name!r} " + (" | ".join(failures) or "has ended")
    return _answer("DestroyWeightsUpdateGroupReqOutput", handle)


@contextlib.contextmanager
def _timed(manager: Any) -> Iterator[None]:
    observe = getattr(manager, "_observe_weight_load", None)  # SGLang's weight_load_duration_seconds
    with observe("distributed") if observe is not None else contextlib.nullcontext():
        yield


def _update(original: Callable[..., Any], manager: Any, request: Any) -> Any:
    if not is_update(request, _groups.groups):
        return original(manager, request)

    def handle() -> tuple[bool, str]:
        success, text = _groups.update(_rank(manager), request.group_name, request)
        if success:
            if hasattr(manager, "record_weight_version_after_update"):
                manager.record_weight_version_after_update(request.weight_version)
            if request.flush_cache and not manager.flush_cache(empty_cache=request.torch_empty_cache):
                return False, (f"{text}, but the cache was not flushed, as requests are running or waiting: abort or retract them "
                               "(/pause_generation), POST /flush_cache, and do not continue before that")
        return success, text
    with _timed(manager):
        return _answer("UpdateWeightsFromDistributedReqOutput", handle)


def _release(original: Callable[..., Any], manager: Any, request: Any) -> Any:
    if not request.tags or "weights" in request.tags:
        _groups.releasing(_rank(manager), not getattr(manager.memory_saver_adapter, "enabled", False))
    return original(manager, request)


def _resume(original: Callable[..., Any], manager: Any, request: Any) -> Any:
    answer = original(manager, request)
    if not request.tags or "weights" in request.tags:
        _groups.resumed()
    return answer


# ---- hooks of the process that has the HTTP routes

async def _heard(original: Callable[..., Any], manager: Any, *arguments: Any, **named: Any) -> Any:
    """Of every way of updating: keeps whether weights are mixed."""
    global _mixed
    answer = await original(manager, *arguments, **named)
    if answer[0]:
        _mixed = None
    elif _groups.MIXED in str(answer[1]):
        _mixed = str(answer[1])
    return answer


async def _continue(original: Callable[..., Any], manager: Any, *arguments: Any, **named: Any) -> Any:
    if _mixed is not None:
        from fastapi import HTTPException

        raise HTTPException(status_code=409, detail=f"generation does not continue: {_mixed}")
    return await original(manager, *arguments, **named)


# ---- registration

def _version() -> str:
    return str(importlib.import_module("sglang.version").__version__)


def manager_target() -> str:
    """The class of this SGLang that handles weights in a scheduler. Nothing of SGLang's is imported but packages above it."""
    for target in _MANAGERS:
        with contextlib.suppress(ModuleNotFoundError):
            if importlib.util.find_spec(target.rpartition(".")[0]) is not None:
                return target
    raise UnsupportedError(f"SGLang {_version()} has none of {', '.join(_MANAGERS)}: this release of Weft does not know where its "
                           "weights are updated. Read: 0.5.9, 0.5.12, 0.5.23")


def hooks() -> list[tuple[str, Callable[..., Any]]]:
    """(target, hook), every target looked up: HookRegistry only logs one that is not there."""
    found = [(manager_target(), method, hook) for method, hook in (
        ("init_weights_update_group", _init), ("destroy_weights_update_group", _destroy),
        ("update_weights_from_distributed", _update), ("release_memory_occupation", _release),
        ("resume_memory_occupation", _resume))]
    found += [(_TOKENIZER, method, _heard) for method in (
        "update_weights_from_disk", "update_weights_from_tensor", "update_weights_from_distributed")]
    found.append((_TOKENIZER, "continue_generation", _continue))
    missing = [f"{owner}.{method}" for owner, method, _ in found if not hasattr(_owner(owner), method)]
    if missing:
        raise UnsupportedError(f"SGLang {_version()} has no {', '.join(missing)}: this release of Weft does not know where its "
                               "weights are updated. Read: 0.5.9, 0.5.12, 0.5.23")
    return [(f"{owner}.{method}", hook) for owner, method, hook in found]


def _owner(target: str) -> Any:
    module, _, name = target.rpartition(".")
    return getattr(importlib.import_module(module), name, None)


def _say(failure: BaseException) -> None:
    text = f"weft: SGLang plug-in NOT active in process {os.getpid()}: {_groups.words(failure)}"
    logger.error(text)
    print(text, file=sys.stderr, flush=True)


def register() -> None:
    """Called by SGLang's load_plugins, which applies what is registered right after."""
    global _registered
    if _registered:
        return
    try:
        from sglang.srt.plugins.hook_registry import HookRegistry, HookType

        found = hooks()
        for target, hook in found:
            HookRegistry.register(target, hook, HookType.AROUND)
    except BaseException as failure:
        _say(failure)
        raise
    _registered = True
    text = (f"weft: SGLang {_version()}: weights can be sent by Weft (backend 'weft'), {len(found)} hooks, the first on "
            f"{found[0][0]}")
    logger.info(text)
    if not logger.isEnabledFor(logging.INFO):  # SGLang sets its log up after its plug-ins
        print(text, file=sys.stderr, flush=True)


def install() -> None:
    """For releases without srt/plugins: sets the wrappers itself."""
    global _registered
    if _registered:
        return
    try:
        for target, hook in hooks():
            owner, _, method = target.rpartition(".")
            setattr(_owner(owner), method, _wrapped(hook, getattr(_owner(owner), method)))
    except BaseException as failure:
        _say(failure)
        raise
    _registered = True


def _wrapped(hook: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*arguments: Any, **named: Any) -> Any:
        return hook(original, *arguments, **named)
    return call


# ---- --weight-update-receivers

class External:
    """What SGLang's receiver factory makes, where it has that mechanism. SGLang has checked the weight cache, and answers with
    what rank 0 says: hence `agree` here too."""

    def __init__(self, context: Any):
        self._name = context.group_name
        group = None
        if context.tp_size > 1:
            from sglang.srt.distributed.parallel_state import get_tp_group

            group = get_tp_group().cpu_group
        self._rank = _groups.Rank(context.model, f"rank {context.tp_rank} of {context.tp_size}", _agree(group),
                                  lambda keeps_draft: None)
        self._done(_groups.open_group(self._rank, self._name, context.init_payload))

    def receive(self, payload: Any) -> None:
        """One version: {"version": 7}, or nothing for whichever comes."""
        version = (payload or {}).get("version")

        class Request:
            group_name, dtypes, shapes, selector = self._name, (), (), "target"
            names = [] if version is None else [f"weft:{int(version)}"]
        self._done(_groups.update(self._rank, self._name, Request))

    def destroy(self) -> None:
        failed = _groups.close(self._name, "it was destroyed by request")
        if failed is not None:
            raise StateError(f"weft: group {self._name!r}: {failed}")

    @staticmethod
    def _done(outcome: tuple[bool, str]) -> None:
        if not outcome[0]:
            raise StateError(outcome[1])
