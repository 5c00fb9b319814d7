# SPDX-License-Identifier: Apache-2.0
"""What an engine is told by its trainers: where the job is, which ranks of it are this engine's, what trainers send. It
travels as JSON, in whatever request of the engine's carries a dictionary."""
from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Iterable, Optional, Union

from weft._dtypes import dtype_of
from weft._errors import UsageError
from weft._structs import Tensor
from weft.torch._cuts import folded_shape

LAYOUTS = ("auto", "rows", "probe", "loader")
UPDATES = ("paused", "shadow")
GivenTensor = Union[Tensor, "tuple[str, Any, Iterable[int]]"]


def tensors_of(given: Iterable[GivenTensor]) -> tuple[Tensor, ...]:
    """Tensors as trainers hold them whole, from (name, dtype, shape) too. A scalar has the shape (1,), and dimensions behind
    the third are one."""
    try:
        found = tuple(Tensor(str(name), dtype_of(dtype).name, folded_shape(tuple(int(size) for size in shape)))
                      for name, dtype, shape in given)
    except (TypeError, ValueError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"tensors are [name, dtype, shape] each, as of weft.Tensor: {error}") from error
    seen: set[str] = set()
    for tensor in found:
        if tensor.name in seen:
            raise UsageError(f"tensor {tensor.name!r} is listed twice: give each tensor of the checkpoint once")
        seen.add(tensor.name)
    return found


@dataclasses.dataclass(frozen=True)
class Endpoint:
    """One engine's place in a job.

    Attributes:
        controller: "tcp://host:29600".
        rank_offset: of the engine's first rank among all inference ranks of the job.
        tensors: what trainers hold, whole, by the checkpoint's names. None: what the model's folder says.
        job, transport, key_file: as of weft.Inference. A key never travels: `key_file` is a path on the engine's host.
        layout: "auto", or one way to find what each parameter is made of (``Receiver``).
        update: "paused": written straight into the live parameters, so that the engine computes nothing from the first byte
            to the last. "shadow": into a copy, while the engine goes on, which is then put in place; costs the memory of the
            parameters once more.
        left_alone: beginnings of names of tensors that the engine has and trainers do not send (a frozen tower's:
            "visual."): parameters that are made of such alone keep what they hold.
        join_timeout_s, update_timeout_s: None: weft's own.
    """
    controller: str
    rank_offset: int = 0
    tensors: Optional[tuple[Tensor, ...]] = None
    job: Optional[str] = None
    transport: Optional[str] = None
    key_file: Optional[str] = None
    layout: str = "auto"
    update: str = "paused"
    left_alone: tuple[str, ...] = ()
    join_timeout_s: Optional[float] = None
    update_timeout_s: Optional[float] = None

    def __post_init__(self) -> None:
        if not isinstance(self.controller, str) or "://" not in self.controller:
            raise UsageError(f"an endpoint's controller is \"tcp://host:port\" (Sender.controller), not {self.controller!r}")
        if type(self.rank_offset) is not int or self.rank_offset < 0:
            raise UsageError(f"an endpoint's rank_offset is the number of inference ranks before this engine's, not "
                             f"{self.rank_offset!r}")
        if self.update not in UPDATES:
            raise UsageError(f"an endpoint's update is paused or shadow, not {self.update!r}")
        if self.layout not in LAYOUTS:
            raise UsageError(f"an endpoint's layout is one of {', '.join(LAYOUTS)}, not {self.layout!r}")
        for what in ("join_timeout_s", "update_timeout_s"):
            value = getattr(self, what)
            if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0):
                raise UsageError(f"an endpoint's {what} is in seconds, more than 0, not {value!r}")

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it; what is None is left out."""
        found = {name: value for name, value in vars(self).items() if value is not None and value != ()}
        if self.tensors is not None:
            found["tensors"] = [[tensor.name, tensor.dtype, list(tensor.shape)] for tensor in self.tensors]
        if self.left_alone:
            found["left_alone"] = list(self.left_alone)
        return found

    @classmethod
    def of(cls, given: "Union[Endpoint, Mapping[str, Any]]") -> "Endpoint":
        """From what ``to_dict`` made.

        Raises:
            UsageError: a key is unknown or missing, or a value is none.
        """
        if isinstance(given, Endpoint):
            return given
        if not isinstance(given, Mapping):
            raise UsageError(f"an endpoint is a dictionary, as Sender.endpoint() returned it, and not {type(given).__name__}")
        names = [field.name for field in dataclasses.fields(cls)]
        unknown = sorted(set(given) - set(names))
        if unknown or "controller" not in given:
            raise UsageError(f"an endpoint has {', '.join(names)}"
                             + (f"; {', '.join(unknown)} is none of them" if unknown else "; controller is missing")
                             + ": give the engine what Sender.endpoint() returned")
        values = {name: value for name, value in given.items() if value is not None}
        if "tensors" in values:
            values["tensors"] = tensors_of(values["tensors"])
        alone = values.get("left_alone", ())
        if isinstance(alone, str) or not all(isinstance(each, str) and each for each in alone):
            raise UsageError(f"left_alone is a list of beginnings of names, not {alone!r}")
        values["left_alone"] = tuple(alone)
        return cls(**values)
