# SPDX-License-Identifier: Apache-2.0
"""What travels in which field of SGLang's requests. Both fields reach the scheduler of every rank unchanged in each release that
was read (0.5.9, 0.5.12, 0.5.23): a request is broadcast to the ranks as it came.

    /init_weights_update_group                       /update_weights_from_distributed
      backend         "weft"                           group_name      as in init
      master_address  JSON: the order, below           names           ["weft:7"]: the version; []: whichever comes
      master_port     0                                dtypes, shapes  []
      world_size      ranks of this engine             weight_version  what responses show
      rank_offset     0                                flush_cache     as SGLang has it

`load_format` would be the plainer place for the version, but frameworks' engine classes (miles) do not hand it on."""
from __future__ import annotations

import dataclasses
import json
from typing import Any, Optional

from weft._errors import UsageError

BACKEND = "weft"  # InitWeightsUpdateGroupReqInput.backend
GROUP = "weft"  # group_name, if nobody says another
RECEIVER = "weft.sglang.receiver"
_VERSION = "weft:"


@dataclasses.dataclass
class Order:
    """What init tells a rank.

    Attributes:
        endpoint: of this engine, as ``weft.engines.Sender.endpoint`` made it.
        join_timeout_s, update_timeout_s: of the rank's waits. None: weft.engines' own.
        draft: "refuse" a server that has a draft model, whose weights no update reaches; or "keep" that model as it is.
    """
    endpoint: dict[str, Any]
    join_timeout_s: Optional[float] = None
    update_timeout_s: Optional[float] = None
    draft: str = "refuse"

    def text(self) -> str:
        return json.dumps(dataclasses.asdict(self), separators=(",", ":"))

    @classmethod
    def of(cls, given: Any) -> "Order":
        """From a dict or its JSON; an endpoint alone is an order too."""
        what = "an init request with backend 'weft' has JSON in master_address: {\"endpoint\": {..}}, or the endpoint alone"
        if isinstance(given, (str, bytes)):
            try:
                given = json.loads(given)
            except ValueError as error:
                raise UsageError(f"{what}; this one has {str(given)[:80]!r} ({error})") from None
        if not isinstance(given, dict) or not given:
            raise UsageError(f"{what}; this one has {str(given)[:80]!r}")
        fields = {field.name for field in dataclasses.fields(cls)}
        if "endpoint" not in given:
            return cls(endpoint=given)
        unknown = sorted(set(given) - fields)
        if unknown:
            raise UsageError(f"{what}; unknown beside it: {', '.join(unknown)} (known: {', '.join(sorted(fields))})")
        order = cls(**given)
        if not isinstance(order.endpoint, dict):
            raise UsageError(f"{what}; the endpoint here is {order.endpoint!r}")
        if order.draft not in ("refuse", "keep"):
            raise UsageError(f"draft is {order.draft!r}: 'refuse' a server that has a draft model, or 'keep' that model as it is")
        return order


def init_body(endpoint: dict[str, Any], ranks: int = 1, *, group: str = GROUP, join_timeout_s: Optional[float] = None,
              update_timeout_s: Optional[float] = None, draft: str = "refuse", receiver: Optional[str] = None) -> dict[str, Any]:
    """The body of ``POST /init_weights_update_group``.

    Args:
        receiver: "weft.sglang.receiver" for servers that were started with --weight-update-receivers. None: by hooks.
    """
    order = Order(endpoint, join_timeout_s, update_timeout_s, draft)
    body: dict[str, Any] = {"master_address": order.text(), "master_port": 0, "rank_offset": 0, "world_size": ranks,
                            "group_name": group, "backend": BACKEND}
    if receiver is not None:
        body.update(master_address="", receiver=receiver, receiver_init_payload=dataclasses.asdict(order))
    return body


def update_body(version: Optional[int] = None, *, weight_version: Optional[str] = None, group: str = GROUP,
                flush_cache: bool = False, selector: Optional[str] = None, receiver: bool = False) -> dict[str, Any]:
    """The body of ``POST /update_weights_from_distributed``.

    Args:
        version: which one is received. None: the next that comes.
        weight_version: what responses show from then on. None: the number.
        selector: "target" where a draft model is kept; only servers that know the field are given it.
    """
    if weight_version is None and version is not None:
        weight_version = str(version)
    body: dict[str, Any] = {"names": [] if version is None or receiver else [f"{_VERSION}{version}"], "dtypes": [], "shapes": [],
                            "group_name": group, "flush_cache": flush_cache}
    if weight_version is not None:
        body["weight_version"] = weight_version
    if selector is not None:
        body["selector"] = selector
    if receiver:
        body["receiver_payload"] = {"version": version}
    return body


def is_update(request: Any, groups: Any) -> bool:
    """A request for Weft, also where the group was lost: it must not go to SGLang's own, which would say something else."""
    names = list(getattr(request, "names", None) or [""])
    return request.group_name in groups or str(names[0]).startswith(_VERSION)


def version_of(request: Any) -> Optional[int]:
    """The version that an update request names."""
    names = list(request.names or [])
    if not names:
        return None
    text = str(names[0])
    if len(names) != 1 or not text.startswith(_VERSION) or not text[len(_VERSION):].isdigit():
        raise UsageError(f"group {request.group_name!r} is Weft's: names is ['weft:VERSION'], or empty for whichever version "
                         f"comes; this request has {len(names)} name(s), the first {text[:60]!r}. To send tensors by SGLang's own "
                         "groups, use another group_name")
    return int(text[len(_VERSION):])
