# SPDX-License-Identifier: Apache-2.0
"""Inside inference engines: what SGLang and vLLM are made of, and weights into them while they run.

    describe        an engine rank, in its own process: options, parameters, and what each is made of
    probe           the same by marked weights through the engine's own loader
    Receiver        an engine rank as the target of a job
    Sender          the trainers' side, of tensors by name
    Endpoint        what an engine is told

Imports torch; the engine's own package only where a model is one of its.
"""
from __future__ import annotations

from weft.engines._describe import Description, describe
from weft.engines._endpoint import Endpoint
from weft.engines._engine import engine_of
from weft.engines._layout import Layout, Param, Piece
from weft.engines._probe import Probed, probe
from weft.engines._receive import Receiver
from weft.engines._send import Sender

__all__ = ["Description", "Endpoint", "Layout", "Param", "Piece", "Probed", "Receiver", "Sender", "describe", "engine_of", "probe"]
