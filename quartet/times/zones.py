"""When the clocks of a zone changed. Arrow's own time zones know no summer after 2037."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import numpy as np

from quartet.times.instant import Int64s


def clock_changes(timezone: str, first: int, last: int) -> tuple[Int64s, Int64s]:
    """When clocks changed, in seconds UTC, and the offsets before the first and after each change."""
    zone, epoch = ZoneInfo(timezone), datetime(1970, 1, 1, tzinfo=UTC)

    def offset(second: int) -> int:
        shift = (epoch + timedelta(seconds=second)).astimezone(zone).utcoffset()
        return 0 if shift is None else shift // timedelta(seconds=1)

    def changes(low: int, high: int, before: int, after: int) -> list[int]:
        if before == after or high - low == 1:
            return [] if before == after else [high]
        middle = (low + high) // 2
        between = offset(middle)
        return changes(low, middle, before, between) + changes(middle, high, between, after)

    # A look at each day misses nothing: the closest two changes of any zone are four days apart.
    days = range(first - 2 * 86_400, last + 3 * 86_400, 86_400)
    sampled = [*zip(days, map(offset, days), strict=True)]
    found = [t for (low, a), (high, b) in pairwise(sampled) for t in changes(low, high, a, b)]
    return np.array(found, np.int64), np.array([sampled[0][1], *map(offset, found)], np.int64)
