# SPDX-License-Identifier: Apache-2.0
"""SGLang: every tensor-parallel rank of a server receives one-sided writes into its live parameters.

    pip install weft                    in the server's environment; nothing else, `python -m weft.sglang` says what is found
    python -m sglang.launch_server ..   as before: the entry point group sglang.srt.plugins finds `register`

    trainer                        server (HTTP)                         each scheduler rank
    sender.endpoint(0) --------->  POST /init_weights_update_group --->  Receiver(model, endpoint), join
    sender.join()                  backend "weft"                        (both block until all are there)
    sender.send(named, 7) ------>  POST /update_weights_from_distributed Receiver.receive(7)
        one-sided writes ============================================>   live parameters
    client.continue_generation()   group_name "weft", names ["weft:7"]

    register    what SGLang calls in each of its processes; idempotent
    Client      the trainer's side of the HTTP surface: pause, flush, init, update, version, continue
    receiver    for --weight-update-receivers, where SGLang has it (newer than 0.5.23)

Routes, fields and requests are SGLang's own, so that any client of it works (wire: weft.sglang._wire). Importing this imports
neither torch nor sglang."""
from __future__ import annotations

from typing import Any

from weft.sglang._client import Client, ServerError
from weft.sglang._wire import BACKEND, GROUP, init_body, update_body

__all__ = ["BACKEND", "GROUP", "Client", "ServerError", "init_body", "receiver", "register", "update_body"]


def register() -> None:
    """The entry point ``weft`` of the group ``sglang.srt.plugins``: hooks the requests that change weights. SGLang only logs
    what a plug-in raises, so what goes wrong is said on the standard error too."""
    from weft.sglang._hooks import register as hook

    hook()


def receiver(context: Any) -> Any:
    """A factory for ``--weight-update-receivers weft.sglang.receiver``: needs no hook, but the flag."""
    from weft.sglang._hooks import External

    return External(context)
