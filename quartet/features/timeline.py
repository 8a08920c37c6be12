"""Timeline: dated events of nodes, in an order in which what a node had at a time is one range."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quartet.causal import TimeRule, num_visible

Ints = NDArray[np.int64]


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
        """For each pair (node, time) the range [begin, end) of the node's events that are known then."""
        first = node * len(self.distinct_times)
        begin = np.searchsorted(self._key, first)
        end = np.searchsorted(self._key, first + num_visible(self.distinct_times, time, rule))
        return begin, end
