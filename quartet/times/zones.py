"""Local times as UTC, by the clock changes that `zoneinfo` knows. Arrow's own zones know no summer after 2037."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import numpy as np

from quartet.times.instants import Int64s


def local_offsets(timezone: str, seconds: Int64s) -> tuple[Int64s, Int64s]:
    """Returns what to subtract from local seconds, and by how much the clocks jump at each: 0, but where a change
    makes them happen twice (below 0) or never (above 0)."""
    changes, offsets = _clock_changes(timezone, int(seconds.min()), int(seconds.max()))
    shown = np.sort([changes + offsets[:-1], changes + offsets[1:]], axis=0)  # by clocks around a change
    before, after = (np.searchsorted(edge, seconds, side="right") for edge in (shown[1], shown[0]))
    return offsets[before], offsets[after] - offsets[before]


def _clock_changes(timezone: str, first: int, last: int) -> tuple[Int64s, Int64s]:
    """Returns when clocks changed, in seconds UTC, and the offsets before the first and after each change."""
    zone, epoch = ZoneInfo(timezone), datetime(1970, 1, 1, tzinfo=UTC)

    def offset(second: int) -> int:
        shift = (epoch + timedelta(seconds=second)).astimezone(zone).utcoffset()
        return 0 if shift is None else shift // timedelta(seconds=1)

    def between(low: int, high: int, before: int, after: int) -> list[int]:
        if before == after or high - low == 1:
            return [] if before == after else [high]
        middle = (low + high) // 2
        there = offset(middle)
        return between(low, middle, before, there) + between(middle, high, there, after)

    # A look at each day misses nothing: the closest two changes of any zone are four days apart.
    days = range(first - 2 * 86_400, last + 3 * 86_400, 86_400)
    sampled = [*zip(days, map(offset, days), strict=True)]
    changes = [t for (low, a), (high, b) in pairwise(sampled) for t in between(low, high, a, b)]
    return np.array(changes, np.int64), np.array([sampled[0][1], *map(offset, changes)], np.int64)
