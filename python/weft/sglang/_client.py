# SPDX-License-Identifier: Apache-2.0
"""The trainer's side of SGLang's HTTP surface, for several servers at once: one process, rank 0, talks to all of them while every
trainer sends.

    pause_generation -> flush_cache -> [once: init || sender.join] -> update || sender.send -> continue_generation

What SGLang expects, and what goes wrong otherwise:
    flush_cache before the update   is refused while requests run or wait: pause with "abort" or "retract" first
    /update_weight_version          aborts all requests by default: said False here (and `update` sets the version already)
    begin_, end_weight_update       are for loaders; an update by Weft needs none and is refused inside of one
    continue_generation             answers 409 while weights are mixed

Only urllib: a trainer needs no package for this."""
from __future__ import annotations

import json
import logging
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Iterable, Mapping, Optional, Sequence, Union

from weft._errors import Code, Error, UsageError, WaitTimeout
from weft.sglang._beside import beside
from weft.sglang._wire import GROUP, RECEIVER, init_body, update_body

logger = logging.getLogger("weft.sglang")


class ServerError(Error):
    """A server answered no, or not at all.

    Attributes:
        url, route: which one; status: HTTP's, 0 without an answer; body: what it said.
    """
    _code = Code.HOST

    def __init__(self, text: str, code: int = 0, url: str = "", route: str = "", status: int = 0, body: str = ""):
        super().__init__(text, code)
        self.url, self.route, self.status, self.body = url, route, status, body


class Client:
    """SGLang servers that get the same weights.

    Args:
        urls: "http://host:30000" of each, in the order of the sender's engines.
        group: name of the update group on the servers; another name for each sender that a server has.
        timeout_s: of each request; init and update are given theirs on top.
        api_key: of servers that were started with --api-key (or --admin-api-key).
        receivers: servers were started with ``--weight-update-receivers weft.sglang.receiver``; False: hooks, no flag.
    """

    def __init__(self, urls: Union[str, Sequence[str]], *, group: str = GROUP, timeout_s: float = 60.0,
                 api_key: Optional[str] = None, receivers: bool = False):
        self.urls = [url.rstrip("/") for url in ([urls] if isinstance(urls, str) else urls)]
        if not self.urls or not all(url.startswith(("http://", "https://")) for url in self.urls):
            raise UsageError(f"urls of SGLang servers are ['http://host:port', ..]; given: {urls!r}")
        if len(set(self.urls)) != len(self.urls):
            raise UsageError(f"urls of SGLang servers: give each server once; given: {urls!r}")
        self.group, self.timeout_s, self._receivers = group, timeout_s, receivers
        self._headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {api_key}"} if api_key else {})}
        self.paused = False

    # ---- one request

    def _request(self, url: str, route: str, body: Optional[Mapping[str, Any]], timeout_s: float) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url + route, data, self._headers, method="GET" if body is None else "POST")
        where = f"{request.get_method()} {url}{route}"
        try:
            with urllib.request.urlopen(request, timeout=timeout_s) as answer:
                status, text = answer.status, answer.read().decode(errors="replace")
        except urllib.error.HTTPError as error:
            with error:
                text = error.read().decode(errors="replace")
            said = f"{where}: HTTP {error.code}: {_said(text)}{_hint(error.code, route, text)}"
            raise ServerError(said, 0, url, route, error.code, text) from None
        except (TimeoutError, OSError) as error:  # URLError is an OSError
            reason = getattr(error, "reason", error)
            if isinstance(reason, TimeoutError):
                raise WaitTimeout(f"{where}: no answer within {timeout_s:g} s; is the server alive, and its scheduler not "
                                  "waiting for trainers that are gone?") from None
            raise ServerError(f"{where}: {reason}; is the server up, and is the address right?", 0, url, route) from None
        found = _json(text)
        if isinstance(found, dict) and found.get("success") is False:
            raise ServerError(f"{where}: HTTP {status}: {_said(text)}", 0, url, route, status, text)
        return found

    def each(self, route: str, bodies: Any = None, timeout_s: Optional[float] = None) -> list[Any]:
        """The same request to every server at once.

        Args:
            route: "/flush_cache".
            bodies: one for all; a list: one each; None: GET.
        Raises:
            ServerError, WaitTimeout: after all have answered or timed out; the text has every failure.
        """
        given = bodies if isinstance(bodies, list) else [bodies] * len(self.urls)
        if len(given) != len(self.urls):
            raise UsageError(f"{route}: {len(given)} bodies for {len(self.urls)} servers")
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        with ThreadPoolExecutor(len(self.urls), "weft-sglang") as pool:
            asked = [pool.submit(self._request, url, route, body, limit_s) for url, body in zip(self.urls, given)]
            failures = [error for error in (one.exception() for one in asked) if error is not None]
        for failure in failures:
            if not isinstance(failure, Error):
                raise failure
        if len(failures) == 1:
            raise failures[0]
        if failures:
            first = failures[0]
            text = f"{len(failures)} of {len(self.urls)} servers failed: " + " | ".join(
                getattr(one, "text", str(one)) for one in failures)
            if isinstance(first, ServerError):
                raise ServerError(text, 0, first.url, first.route, first.status, first.body)
            raise WaitTimeout(text)
        return [one.result() for one in asked]

    # ---- what servers are

    def server_info(self) -> list[dict[str, Any]]:
        return self._newer("/server_info", "/get_server_info")

    def ranks(self) -> int:
        """Inference ranks of one server, the same of all: for ``weft.engines.Sender(ranks=..)``."""
        counts = [int(info.get("tp_size", 1)) * int(info.get("pp_size", 1)) for info in self.server_info()]
        if len(set(counts)) != 1:
            raise UsageError("servers of one sender have the same number of ranks; these have "
                             + ", ".join(f"{url}: {count}" for url, count in zip(self.urls, counts)))
        return counts[0]

    def weight_versions(self) -> list[str]:
        """What responses of each server show."""
        return [str(info.get("weight_version")) for info in self._newer("/model_info", "/get_model_info")]

    def _newer(self, route: str, older: str) -> list[Any]:
        try:
            return self.each(route)
        except ServerError as error:
            if error.status != 404:
                raise
            return self.each(older)

    # ---- the order of a sync

    def pause_generation(self, mode: str = "abort") -> None:
        """abort: requests end; retract: they wait, and are computed anew; in_place: they wait with their caches, which are of the
        old weights then."""
        if mode not in ("abort", "retract", "in_place"):
            raise UsageError(f"pause_generation: mode {mode!r} is none of abort, retract, in_place")
        self.each("/pause_generation", {"mode": mode})
        self.paused = True

    def flush_cache(self, timeout_s: float = 30.0) -> None:
        """Asked again until servers have no request left: an abort takes a moment."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                self.each("/flush_cache", {})
                return
            except ServerError as error:
                if error.status != 400 or time.monotonic() > deadline:
                    raise
            time.sleep(0.1)

    def init(self, endpoints: Sequence[Mapping[str, Any]], ranks: int = 1, *, join_timeout_s: float = 60.0,
             update_timeout_s: Optional[float] = None, draft: str = "refuse") -> None:
        """Each server joins; blocks until the trainers have too (``connect`` does both)."""
        if len(endpoints) != len(self.urls):
            raise UsageError(f"init: {len(endpoints)} endpoints for {len(self.urls)} servers: give "
                             f"Sender(engines={len(self.urls)}, ..), and endpoint(k) for the k-th")
        self.each("/init_weights_update_group",
                  [init_body(dict(one), ranks, group=self.group, join_timeout_s=join_timeout_s, update_timeout_s=update_timeout_s,
                             draft=draft, receiver=RECEIVER if self._receivers else None) for one in endpoints],
                  join_timeout_s + self.timeout_s)

    def update(self, version: Optional[int] = None, *, weight_version: Optional[str] = None, flush_cache: bool = False,
               selector: Optional[str] = None, timeout_s: Optional[float] = None) -> None:
        """Each server receives a version; blocks until it has, while the trainers send (``sync`` does both).

        Args:
            weight_version: what responses show. None: the number.
            flush_cache: after the update, in the same request. It fails while requests run or wait, which were paused otherwise.
        """
        self.each("/update_weights_from_distributed",
                  update_body(version, weight_version=weight_version, group=self.group, flush_cache=flush_cache, selector=selector,
                              receiver=self._receivers), timeout_s)

    def update_weight_version(self, version: str) -> None:
        self.each("/update_weight_version", {"new_version": version, "abort_all_requests": False})

    def continue_generation(self) -> None:
        self.each("/continue_generation", {})
        self.paused = False

    def weights_checker(self, action: str = "checksum", **fields: Any) -> list[Any]:
        """snapshot, reset_tensors, compare, checksum: SGLang's own checks, over the live parameters."""
        return self.each("/weights_checker", {"action": action, **fields})

    def destroy(self) -> None:
        """The servers leave the job."""
        self.each("/destroy_weights_update_group", {"group_name": self.group})

    # ---- beside the trainers' own calls

    def connect(self, sender: Any, *, ranks: int = 1, timeout_s: float = 60.0, **order: Any) -> None:
        """init on the servers while ``sender`` joins. Other trainers call sender.join at the same time."""
        endpoints = [sender.endpoint(engine) for engine in range(len(self.urls))]
        beside(lambda: self.init(endpoints, ranks, join_timeout_s=timeout_s, **order), lambda: sender.join(timeout_s),
               sender.close)

    def sync(self, sender: Any, named: Iterable[tuple[str, Any]], version: Optional[int] = None, *, pause: Optional[str] = "abort",
             weight_version: Optional[str] = None, **options: Any) -> int:
        """A whole sync, on the trainer that talks to the servers; the others call ``sender.send`` with the same tensors.

        Args:
            pause: mode of pause_generation; None: servers are paused already, and stay so.

        Returns:
            The version. Where something fails, servers stay paused: the text says whether their weights are as before.
        """
        started = time.monotonic()
        number = sender.version + 1 if version is None else version
        if pause is not None:
            self.pause_generation(pause)
            if pause != "in_place":
                self.flush_cache()
        sent = beside(lambda: self.update(number, weight_version=weight_version, **options),
                      lambda: sender.send(named, number), sender.close)
        if pause is not None:
            self.continue_generation()
        logger.info("[weft] %d SGLang server(s) have version %s: total=%.3fs", len(self.urls), number, time.monotonic() - started)
        return int(sent)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _said(text: str) -> str:
    found = _json(text)
    if isinstance(found, dict):
        for key in ("message", "detail", "error"):
            if found.get(key):
                found = found[key]
                break
        if isinstance(found, dict) and found.get("message"):
            found = found["message"]
    return str(found).strip()[:2000] or "(no words)"


def _hint(status: int, route: str, text: str) -> str:
    """What of SGLang's own words means that no hook took the request."""
    if status == 400 and route in ("/init_weights_update_group", "/update_weights_from_distributed") and "weft:" not in text:
        return (". SGLang itself handled this request: the plug-in is not active there. Is weft installed in the server's "
                "environment, and not left out by SGLANG_PLUGINS? `python -m weft.sglang` there says so")
    if status in (401, 403):
        return ". The server wants a key: Client(api_key=..)"
    return ""
