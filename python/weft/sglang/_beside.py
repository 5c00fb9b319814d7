# SPDX-License-Identifier: Apache-2.0
"""Two sides that wait for each other: engines are asked in a thread while the trainers do their part here.

    ask    POST .. ............................ answer         a thread
    act    join, or begin, write, end ......... returns        the caller's

What fails first is the cause: where the engines refuse, ``give_up`` ends the caller's wait; where the caller fails, the engines
hear of it through the job, and their answer is waited for, as it says what weights they have."""
from __future__ import annotations

import logging
import threading
from typing import Any, Callable

from weft._errors import Error

logger = logging.getLogger("weft.sglang")


class Asking:
    """A request that runs while the caller acts.

    Args:
        ask: has deadlines of its own.
        give_up: ends the caller's act from another thread.
    """

    def __init__(self, ask: Callable[[], None], give_up: Callable[[], None]):
        self._ask, self._give_up = ask, give_up
        self._failures: list[BaseException] = []
        self._acting = threading.Event()
        self._acting.set()
        self._thread = threading.Thread(target=self._run, name="weft-ask", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._ask()
        except BaseException as error:
            self._failures.append(error)
            if self._acting.is_set():
                try:
                    self._give_up()
                except Error:
                    logger.debug("weft: closing after %s", error, exc_info=True)

    def answered(self) -> None:
        """The act went well: waits for the answer.

        Raises:
            what the request failed with.
        """
        self._acting.clear()
        self._thread.join()
        if self._failures:
            raise self._failures[0]

    def failed(self, error: Exception) -> Exception:
        """The act failed: what to raise, when the answer is there."""
        refused = list(self._failures)
        self._acting.clear()
        self._thread.join()
        if refused and isinstance(refused[0], Exception):
            return refused[0]
        if self._failures and isinstance(error, Error) and type(error).__init__ is Error.__init__:
            return type(error)(f"{error.text}. Engines: {getattr(self._failures[0], 'text', self._failures[0])}", error.code)
        return error


def beside(ask: Callable[[], None], act: Callable[[], Any], give_up: Callable[[], None]) -> Any:
    """Runs both; what act returned."""
    asking = Asking(ask, give_up)
    try:
        result = act()
    except Exception as error:
        failure = asking.failed(error)
        if failure is error:
            raise
        raise failure from error
    asking.answered()
    return result
