# SPDX-License-Identifier: Apache-2.0
"""The way into every release of vLLM: --worker-extension-cls weft.vllm.WorkerExtension, called by collective_rpc.

    llm.collective_rpc("weft_init", args=(endpoint,))         or POST /collective_rpc {"method": "weft_init", "args": [endpoint]}
    llm.collective_rpc("weft_receive", args=(version,))

vLLM makes the class a base of its worker and refuses names that the worker has, so all begin with weft (one hook of vLLM's
apart, which it calls by name when a worker ends)."""
from __future__ import annotations

import importlib
from typing import Any, Optional

from weft.vllm._session import Session, endpoint_of


class WorkerExtension:
    """A mix-in of vLLM's worker; all methods run in each worker's process."""

    model_runner: Any
    vllm_config: Any

    def _weft_of(self) -> Session:
        session: Optional[Session] = self.__dict__.get("_weft_session")
        if session is None:
            session = Session(lambda: self.model_runner.model, self.vllm_config)
            self.__dict__["_weft_session"] = session
        return session

    def weft_init(self, endpoint: "dict[str, Any]", timeout_s: Optional[float] = None) -> "dict[str, Any]":
        """Joins the job (weft.engines.Sender.endpoint(k)), while trainers join too. Again: another job."""
        session = self._weft_of()
        session.init(endpoint_of(endpoint), timeout_s)
        return session.describe()

    def weft_receive(self, version: Optional[int] = None, timeout_s: Optional[float] = None) -> int:
        """One version into this worker's parameters; the version that is there now."""
        session = self._weft_of()
        session.receive(version, timeout_s)
        return session.finish()

    def weft_version(self) -> int:
        """The version that this worker's parameters are; 0: of the checkpoint."""
        return self._weft_of().version

    def weft_describe(self) -> "dict[str, Any]":
        """State of the job, and what weft.engines found out about this worker's model."""
        session = self._weft_of()
        found = session.describe()
        engines = importlib.import_module("weft.engines")
        found["description"] = _plain(engines.describe(self.model_runner.model, config=self.vllm_config))
        return found

    def weft_close(self) -> None:
        """Leaves the job."""
        self._weft_of().close()

    @staticmethod
    def destroy_worker_extension(worker: Any) -> None:
        session = worker.__dict__.get("_weft_session")
        if session is not None:
            session.close()


def _plain(found: Any) -> Any:
    """Of what JSON has."""
    if isinstance(found, dict):
        return {str(key): _plain(value) for key, value in found.items()}
    if isinstance(found, (list, tuple)) and not hasattr(found, "_asdict"):
        return [_plain(value) for value in found]
    if hasattr(found, "_asdict"):
        return _plain(found._asdict())
    if hasattr(found, "__dataclass_fields__"):
        return {name: _plain(getattr(found, name)) for name in found.__dataclass_fields__}
    return found if isinstance(found, (str, int, float, bool, type(None))) else str(found)
