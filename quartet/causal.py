"""The one causal predicate: `visible(row, t)` means `known_at(row) <= t`.

Nothing else in this project compares the time of a row with the time of a seed. Every other
module asks one of the four functions below, which are the same predicate for an array of rows,
for a sorted array, for the ranks of a `TemporalGraph`, and for a compiled loop.

`rule="<"` reads "strictly before", as the text of the RelBench board does. Rows that were always
known carry the time `STATIC`, the smallest integer, so that either rule shows them.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

TimeRule = Literal["<=", "<"]
_END_OF_TIME = np.iinfo(np.int64).max - 1  # the time of what is never known is later even than this


def visible(
    known_at: NDArray[np.int64], time: int | NDArray[np.int64], rule: TimeRule = "<="
) -> NDArray[np.bool_]:
    """Which rows are knowable at a time (one time for all, or one for each row)."""
    time = np.minimum(time, _END_OF_TIME)
    return np.asarray(known_at <= time if rule == "<=" else known_at < time)


def num_visible(
    sorted_known_at: NDArray[np.int64], time: int | NDArray[np.int64], rule: TimeRule = "<="
) -> NDArray[np.int64]:
    """How many of the rows, sorted by time, are knowable at each time: they are a prefix."""
    side: Literal["left", "right"] = "right" if rule == "<=" else "left"
    time = np.minimum(time, _END_OF_TIME)
    return np.asarray(np.searchsorted(sorted_known_at, time, side=side), dtype=np.int64)


def last_visible_rank(
    distinct_times: NDArray[np.int64], time: int | NDArray[np.int64], rule: TimeRule = "<="
) -> NDArray[np.int64]:
    """The largest time rank that is knowable at each time, `distinct_times[rank]` being its time.

    With rank 0 for `STATIC`, an entry of the graph is visible exactly when its rank is at most this.
    """
    return num_visible(distinct_times, time, rule) - 1


def latest_visible(time: NDArray[np.int64], rule: TimeRule = "<=") -> NDArray[np.int64]:
    """The latest time that a visible row can have: a row is visible exactly when its time is at most this."""
    return np.asarray(np.minimum(time, _END_OF_TIME) - (rule == "<"))
