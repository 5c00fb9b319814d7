# SPDX-License-Identifier: Apache-2.0
"""The control side of updates over HTTP: several vLLM servers as one.

              pause   init (once)   start   update   finish(version)   resume
    server 0  ──────────────────────────────────────────────────────────────►
    server 1  ──────────────────────────────────────────────────────────────►     each step on all servers at once

Routes are those of VLLM_SERVER_DEV_MODE=1. ``update`` returns when the servers' ranks have published the version, so it is
called beside ``Sender.send`` (WeightSync does that). Only the standard library is used."""
from __future__ import annotations

import json
import logging
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Callable, NamedTuple, Optional, Sequence, Union

from weft._errors import HostFailed, StateError, UsageError, WaitTimeout

logger = logging.getLogger("weft.vllm")

_BODY = 600       # characters of a server's answer in a message
_CONTROL_S = 300.0
UPDATE_S = 1800.0

Answer = Any


class _Failure(NamedTuple):
    server: str
    text: str
    late: bool


class HTTPClient:
    """All servers of a job.

    Args:
        servers: "http://host:8000", or several.
        extension: servers were started with --worker-extension-cls weft.vllm.WorkerExtension, and have no back end "weft".
        control_timeout_s: of each step that moves no weights.
        update_timeout_s: of init, update and finish.
    """

    def __init__(self, servers: "Union[str, Sequence[str]]", *, extension: bool = False, control_timeout_s: float = _CONTROL_S,
                 update_timeout_s: float = UPDATE_S):
        given = [servers] if isinstance(servers, str) else list(servers)
        self.servers = [server.rstrip("/") for server in given]
        for server in self.servers:
            if urllib.parse.urlsplit(server).scheme not in ("http", "https"):
                raise UsageError(f"server {server!r}: give \"http://host:port\"")
        if not self.servers or len(set(self.servers)) != len(self.servers):
            raise UsageError(f"servers {self.servers}: give each server once, and at least one")
        self.extension = extension
        self._control_s, self._update_s = control_timeout_s, update_timeout_s

    # ---- the steps

    def wait_ready(self, timeout_s: float = 240.0) -> None:
        """Until every server answers /health."""
        deadline, said = time.monotonic() + timeout_s, ""
        while True:
            try:
                self._all("GET", "/health", timeout_s=5.0)
                return
            except (HostFailed, WaitTimeout) as error:
                if error.text != said:
                    said = error.text
                    logger.info("waiting for servers, up to %.0f s: %s", timeout_s, said)
                if time.monotonic() > deadline:
                    raise WaitTimeout(f"not ready within {timeout_s:.0f} s: {error.text}") from error
            time.sleep(0.5)

    def world_sizes(self) -> "list[tuple[int, int]]":
        """Of each server: inference ranks of one replica (tp times pp), and replicas of data parallelism."""
        whole = self._all("GET", "/get_world_size", query={"include_dp": "true"})
        one = self._all("GET", "/get_world_size", query={"include_dp": "false"})
        return [(int(b["world_size"]), int(a["world_size"]) // int(b["world_size"])) for a, b in zip(whole, one)]

    def pause(self, mode: str = "keep") -> None:
        """Of running requests: "keep" freezes them, "wait" lets them end, "abort" ends them. "keep" leaves the prefix cache
        as it is (``reset_prefix_cache``)."""
        self._all("POST", "/pause", query={"mode": mode})

    def resume(self) -> None:
        self._all("POST", "/resume")

    def reset_prefix_cache(self) -> None:
        """What was computed with the old weights is no longer given to new requests."""
        self._all("POST", "/reset_prefix_cache")

    def init(self, endpoints: "Sequence[dict[str, Any]]") -> None:
        """Each server's ranks join the job, and return when all of it are there: the trainers have to join meanwhile.

        Args:
            endpoints: one for each server, as Sender.endpoint(k) made it.
        """
        if len(endpoints) != len(self.servers):
            raise UsageError(f"{len(endpoints)} endpoints for {len(self.servers)} servers: give each server its own")
        if self.extension:
            self._rpc("weft_init", [[endpoint] for endpoint in endpoints])
        else:
            self._all("POST", "/init_weight_transfer_engine", [{"init_info": endpoint} for endpoint in endpoints],
                      timeout_s=self._update_s)

    def start(self) -> None:
        if not self.extension:  # what the second says is for releases up to 0.24: no reload has to be prepared
            self._all("POST", "/start_weight_update", {"is_checkpoint_format": False})

    def update(self, version: Optional[int] = None) -> None:
        """The servers' ranks receive a version; the trainers have to send it meanwhile."""
        if self.extension:
            self._rpc("weft_receive", [[version]] * len(self.servers))
        else:
            self._all("POST", "/update_weights", {"update_info": {"version": version}}, timeout_s=self._update_s)

    def finish(self, version: Optional[int] = None) -> None:
        """The version is what responses say from here on, where this vLLM has that (from 0.27)."""
        said = None if version is None else str(version)
        if not self.extension:
            self._all("POST", "/finish_weight_update", {"weight_version": said}, timeout_s=self._update_s)
            return
        if version is not None:
            behind = {server: found for server, found in zip(self.servers, self._rpc("weft_version", [[]] * len(self.servers)))
                      if any(int(each) != version for each in found)}
            if behind:
                raise StateError(f"version {version} is not what all ranks have: {behind}")

    def abandon(self) -> None:
        """After a failure: ranks that wait for a finish take no further update before. No version is reported, and what servers
        answer is only logged: it is about the failure that is known."""
        if self.extension:
            return
        for route, body in (("/update_weights", {"update_info": {"abandon": True}}), ("/finish_weight_update", {})):
            try:
                self._all("POST", route, body)
            except (HostFailed, WaitTimeout) as error:
                logger.info("after the failed update: %s", error.text)

    def shutdown(self) -> None:
        """Servers leave the job and go on serving. Releases before 0.33 have no route for that: they leave at the next init."""
        if self.extension:
            self._rpc("weft_close", [[]] * len(self.servers))
            return
        try:
            self._all("POST", "/shutdown_weight_transfer_engine")
        except HostFailed as error:
            if "answered 404" not in error.text:
                raise
            logger.info("servers of this release leave the job when another one begins")

    def weight_versions(self) -> "list[str]":
        """What each server reports in responses (vLLM from 0.27)."""
        return [str(answer["weight_version"]) for answer in self._all("GET", "/weight_info")]

    # ---- vLLM's own words for them (its protocol VLLMWeightSyncClient), for one server

    def init_weight_transfer_engine(self, init_info: "dict[str, Any]") -> None:
        if len(self.servers) > 1:
            raise UsageError(f"one endpoint for {len(self.servers)} servers: call init(endpoints)")
        self.init([init_info])

    def start_weight_update(self) -> None:
        self.start()

    def update_weights(self, update_info: "dict[str, Any]") -> None:
        self.update(update_info.get("version"))

    def finish_weight_update(self, weight_version: Optional[str] = None) -> None:
        self.finish(None if weight_version is None else int(weight_version))

    def shutdown_weight_transfer_engine(self) -> None:
        self.shutdown()

    # ---- requests

    def _rpc(self, method: str, arguments: "Sequence[list[Any]]") -> "list[Any]":
        bodies = [{"method": method, "args": each} for each in arguments]
        found = self._all("POST", "/collective_rpc", bodies, timeout_s=self._update_s)
        return [each.get("results", []) if isinstance(each, dict) else [] for each in found]

    def _all(self, verb: str, route: str, body: Any = None, *, query: "Optional[dict[str, str]]" = None,
             timeout_s: Optional[float] = None) -> "list[Answer]":
        """One request to each server at once; answers in the servers' order. ``body``: of all, or a list of one for each."""
        timeout_s = timeout_s or self._control_s
        path = route + ("?" + urllib.parse.urlencode(query) if query else "")
        bodies = body if isinstance(body, list) else [body] * len(self.servers)
        answers: "list[Any]" = [None] * len(self.servers)
        threads = [threading.Thread(target=_keep, args=(answers, i, lambda i=i: _request(
            verb, self.servers[i], path, bodies[i], timeout_s)), daemon=True) for i in range(len(self.servers))]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + timeout_s + 5.0
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        for i, answer in enumerate(answers):
            if answer is None:
                answers[i] = _Failure(self.servers[i], f"{verb} {self.servers[i]}{path}: no answer within {timeout_s:.0f} s", True)
        failures = [answer for answer in answers if isinstance(answer, _Failure)]
        if failures:
            text = "; ".join(failure.text for failure in failures)
            if len(self.servers) > 1:
                text += f" ({len(failures)} of {len(self.servers)} servers)"
            raise (WaitTimeout if all(failure.late for failure in failures) else HostFailed)(text)
        return answers


def _keep(answers: "list[Any]", i: int, function: Callable[[], Any]) -> None:
    answers[i] = function()


def _request(verb: str, server: str, path: str, body: Any, timeout_s: float) -> Any:
    """The answer, or a _Failure that names server and route."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(server + path, data=data, method=verb,
                                     headers={"Content-Type": "application/json"} if data else {})
    where = f"{verb} {server}{path}"
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as response:
            return _decoded(response.read())
    except urllib.error.HTTPError as error:
        text = error.read(1 << 16).decode(errors="replace").strip()
        hint = ""
        if error.code == 404 and path == "/health":
            hint = ": every vLLM server has this route; give its address alone, \"http://host:port\""
        elif error.code == 404:
            hint = ": this server has no such route; start it with VLLM_SERVER_DEV_MODE=1"
        elif path == "/init_weight_transfer_engine" and "WEFT-E" not in text:
            hint = ": is weft its backend? Start it with --weight-transfer-config '{\"backend\": \"weft\"}'; it said"
        return _Failure(server, f"{where} answered {error.code}{hint}: {text[:_BODY] or 'nothing'}", False)
    except TimeoutError:
        return _Failure(server, f"{where}: no answer within {timeout_s:.0f} s", True)
    except (urllib.error.URLError, OSError) as error:
        reason = getattr(error, "reason", error)
        return _Failure(server, f"{where}: {reason}", isinstance(reason, TimeoutError))


def _decoded(data: bytes) -> Any:
    try:
        return json.loads(data) if data else {}
    except ValueError:
        return {"text": data.decode(errors="replace")}
