"""The structural sketch by equation 4, rounded once."""

from __future__ import annotations

import math
import struct

from quartet.config import SamplingConfig
from quartet.times import STATIC
from tests.reference.graph import Twin

DAY = 86_400 * 10**9


def sketch(twin: Twin, seed: int, time: int, config: SamplingConfig, peak: int) -> list[float]:
    """log(1 + [degree, span in days, links per day, most visits, neighbours by table]), as float32."""
    seen = set(twin.visible_to(seed, seed, time, config.time_rule))
    if not seen:
        return [0.0] * (4 + len(twin.names))
    times = [edge for edge, node in twin.neighbors[seed] if node in seen and edge != STATIC]
    span = (max(times) - min(times)) / DAY if times else 0.0
    tables = [twin.nodes[node].table for node in seen]
    scalars = [len(seen), span, len(seen) / max(span, 1.0), peak]
    return [rounded(math.log1p(x)) for x in [*scalars, *(tables.count(name) for name in twin.names)]]


def rounded(number: float) -> float:
    """The nearest float32."""
    return float(struct.unpack("<f", struct.pack("<f", number))[0])
