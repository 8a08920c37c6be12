"""The temporal context by a look at every row."""

from __future__ import annotations

from quartet.config import SamplingConfig
from quartet.times import STATIC
from tests.reference.graph import Twin

DAY = 86_400 * 10**9


def temporal_context(twin: Twin, time: int, config: SamplingConfig) -> list[int]:
    """The newest rows of the window, one for each table in turn until the budget is spent."""
    queues = [window(twin, name, time, config) for name in twin.names]
    taken: list[list[int]] = [[] for _ in queues]
    left = config.temporal_budget
    while left and any(queues):
        for queue, rows in zip(queues, taken, strict=True):
            if queue and left:
                rows.append(queue.pop(0))
                left -= 1
    return [row for rows in taken for row in rows]


def window(twin: Twin, table: str, time: int, config: SamplingConfig) -> list[int]:
    """The visible timed rows of a table that are not older than the window, newest first."""
    first = time - config.lookback_days * DAY
    found = []
    for number in twin.nodes_of(table):
        known_at = twin.nodes[number].time
        is_known = known_at <= time if config.time_rule == "<=" else known_at < time
        if known_at != STATIC and first <= known_at and is_known:
            found.append(number)
    return sorted(found, key=lambda n: (twin.nodes[n].time, twin.nodes[n].key, n), reverse=True)
