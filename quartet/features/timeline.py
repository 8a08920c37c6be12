"""Timeline: dated events of nodes, in an order in which what a node had at a time is one range."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quartet.causal import TimeRule, num_visible
from quartet.times import DAY, STATIC

Ints = NDArray[np.int64]
Columns = dict[str, NDArray[Any]]  # by name, one value for each seed

_WINDOWS = (30, 90, 365)  # days


@dataclass(frozen=True, eq=False)
class Timeline:
    """E events by (node, time). Event i of the timeline is the `order[i]`-th of those it was made from."""

    order: Ints  # (E,)
    time: Ints  # (E,)
    distinct_times: Ints  # ascending
    _key: Ints  # (E,) ascending: node * number of distinct times + rank of the event's time

    @staticmethod
    def of(node: Ints, time: Ints) -> Timeline:
        distinct, rank = np.unique(time, return_inverse=True)
        key = node * len(distinct) + rank
        order = np.argsort(key, kind="stable")
        return Timeline(order, time[order], distinct, key[order])

    def until(self, node: Ints, time: Ints, rule: TimeRule = "<=") -> tuple[Ints, Ints]:
        """Returns for each pair (node, time) the range [begin, end) of the node's events that are known then."""
        first = node * len(self.distinct_times)
        begin = np.searchsorted(self._key, first)
        end = np.searchsorted(self._key, first + num_visible(self.distinct_times, time, rule))
        return begin, end

    def last_known(self, begin: Ints, end: Ints) -> Ints:
        """Returns when the last event of each range was known, `STATIC` where there is none."""
        has_any = end > begin
        last = np.full(len(end), STATIC)
        last[has_any] = self.time[end[has_any] - 1]
        return last

    def counts(self, label: str, node: Ints, time: Ints, rule: TimeRule = "<=") -> Columns:
        """Returns how many events are visible, how many of them are recent, and how many days old the last is."""
        begin, end = self.until(node, time, rule)
        columns: Columns = {f"{label}: all": end - begin}
        for days in _WINDOWS:
            columns[f"{label}: {days} days"] = end - self.until(node, time - days * DAY, rule)[1]
        return columns | {f"{label}: days since": days_since(self.last_known(begin, end), time)}


def days_since(known: Ints, times: Ints) -> NDArray[np.float64]:
    """Returns the days from one time to the other, NaN from what was always known."""
    days = np.full(len(times), np.nan)
    dated = known != STATIC
    days[dated] = (times[dated] - known[dated]) / DAY
    return days
