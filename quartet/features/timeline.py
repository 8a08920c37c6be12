"""Timeline: dated events of nodes, in an order in which what a node had at a time is one range."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quartet.causal import TimeRule, num_visible
from quartet.machine import set_aside
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
    def of(node: Ints, time: Ints, before: Timeline | None = None) -> Timeline:
        """Returns the timeline of events; one of those that come first (`before`) is not sorted again."""
        if before is not None and before._begins(node, time):
            return before._with(node[len(before.order) :], time[len(before.order) :])
        distinct, key = np.unique(time, return_inverse=True)
        distinct = set_aside(distinct)
        key += node * len(distinct)
        order = set_aside(np.argsort(key, kind="stable"))
        key = set_aside(key[order])
        return Timeline(order, set_aside(time[order]), distinct, key)

    def _begins(self, node: Ints, time: Ints) -> bool:
        """Returns whether its events are the first of these."""
        if len(self.order) > len(node) or not np.array_equal(time[self.order], self.time):
            return False
        return np.array_equal(node[self.order], self._node)

    @property
    def _node(self) -> Ints:
        return self._key // max(1, len(self.distinct_times))

    def _with(self, node: Ints, time: Ints) -> Timeline:
        """Returns the timeline with more events; of equal ones they come last, as in sorting all of them."""
        if not len(node):
            return self
        times = np.unique(time)
        low, high = (np.searchsorted(self.distinct_times, times, side) for side in ("left", "right"))
        distinct, key, is_new = self.distinct_times, self._key, low == high
        if is_new.any():
            distinct = np.insert(distinct, low[is_new], times[is_new])
            rank = key - self._node * len(self.distinct_times)
            moved = np.arange(len(self.distinct_times)) + np.searchsorted(times[is_new], self.distinct_times)
            key = self._node * len(distinct) + moved[rank]
        own = node * len(distinct) + np.searchsorted(distinct, time)
        order = np.argsort(own, kind="stable")
        at = np.searchsorted(key, own[order], "right")
        order, time, key, distinct = (
            set_aside(each)
            for each in (
                np.insert(self.order, at, len(self.order) + order),
                np.insert(self.time, at, time[order]),
                np.insert(key, at, own[order]),
                distinct,
            )
        )
        return Timeline(order, time, distinct, key)

    def until(self, node: Ints, time: Ints, rule: TimeRule = "<=") -> tuple[Ints, Ints]:
        """Returns for each pair (node, time) the range [begin, end) of the node's events that are known then."""
        first = node * len(self.distinct_times)
        begin = np.searchsorted(self._key, first)
        end = np.searchsorted(self._key, first + num_visible(self.distinct_times, time, rule))
        return begin, end

    def cuts(
        self, node: Ints, time: Ints, lengths: Sequence[int], last: Sequence[int], rule: TimeRule = "<="
    ) -> Ints:
        """Returns where the known events of each pair (node, time) are cut; of node -1 there are none.

        A line holds where they begin, where those of each length of time begin, where the last so many begin (more,
        where some came with the first of them), and where they end.
        """
        from quartet.features.sums import event_cuts  # compiled when it is first asked for

        times, place = np.unique(time, return_inverse=True)
        back = np.array([0, *lengths], np.int64)
        ranks = num_visible(self.distinct_times, _before(times[:, None], back), rule)  # (T, 1 + lengths)
        return np.asarray(
            event_cuts(self._key, len(self.distinct_times), node, ranks, place, np.array(last, np.int64))
        )

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


def _before(times: Ints, lengths: Ints) -> Ints:
    """Returns the times that lie so far back, none before the first that there is."""
    return np.where(times > STATIC + 1 + lengths, times - lengths, STATIC + 1)
