# SPDX-License-Identifier: Apache-2.0
"""Two sides that wait for each other: engines are asked in a thread while the trainers do their part here.

    ask    POST .. ............................ answer         a thread
    act    join, or begin, write, end ......... returns        the caller's
"""
from __future__ import annotations

import logging
import threading
from typing import Any, Callable

from weft._errors import Error

logger = logging.getLogger("weft.sglang")


def beside(ask: Callable[[], None], act: Callable[[], Any], give_up: Callable[[], None]) -> Any:
    """Runs both; what act returned. What fails first is the cause: where the engines refuse, ``give_up`` ends act; where act
    fails, the engines hear of it through the job, and their answer is waited for, as it says what weights they have.

    Args:
        ask: has deadlines of its own.
        give_up: ends act from another thread.
    """
    failures: list[BaseException] = []
    acting = threading.Event()
    acting.set()

    def asked() -> None:
        try:
            ask()
        except BaseException as error:
            failures.append(error)
            if acting.is_set():
                try:
                    give_up()
                except Error:
                    logger.debug("weft: closing after %s", error, exc_info=True)

    thread = threading.Thread(target=asked, name="weft-ask", daemon=True)
    thread.start()
    try:
        result = act()
    except Exception as error:
        refused = list(failures)
        acting.clear()
        thread.join()
        if refused:
            raise refused[0] from error
        if failures and isinstance(error, Error):
            raise type(error)(f"{error.text}. Engines: {getattr(failures[0], 'text', failures[0])}", error.code) from error
        raise
    acting.clear()
    thread.join()
    if failures:
        raise failures[0]
    return result
