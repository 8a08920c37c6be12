"""WaitingBlock: which of an entity's latest rows still wait for a row of another table that names them.

An order without a delivery, a flight without a report: what has not come yet tells something, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quartet.causal import TimeRule, latest_visible
from quartet.database import Relation
from quartet.features.blocks import Way
from quartet.features.paths import LAST, MANY, Path, linked
from quartet.features.timeline import Ints, days_since
from quartet.times import NEVER

COUNTED = (1, LAST, MANY)  # so many of the last events are looked at, to count those that wait
_MOST = 4 * MANY  # events of one time, beyond which nothing is told


@dataclass(frozen=True, eq=False)
class WaitingBlock:
    """How many of the latest rows of a path are named by no visible row of a table, and since when the first waits."""

    way: Way
    path: Path  # of the rows that may wait
    below: Relation  # by which others name them
    known_at: Ints  # of these others
    num_rows: int  # that may be named

    @property
    def label(self) -> str:
        return f"{self.path.label} without {self.below.table} by {self.below.foreign_key.distinct_label}"

    @property
    def names(self) -> list[str]:
        ways = ["the latest", *(f"of the last {number}" for number in COUNTED[1:])]
        return [f"{self.label}: {way}" for way in (*ways, f"days since the first of the last {LAST}")]

    @cached_property
    def answered_at(self) -> Ints:
        """Returns when the first row that names each row is known."""
        return self.answered_by(linked(self.below))

    def answered_by(self, rows: Ints) -> Ints:
        """Returns the same by some of the rows that name others."""
        first = np.full(self.num_rows, NEVER)
        np.minimum.at(first, self.below.rows[rows], self.known_at[rows])
        return first

    def fill(self, rows: Ints, times: Ints, rule: TimeRule, out: NDArray[np.float32]) -> None:
        cuts = self.path.timeline.cuts(self.way.follow(rows, times, rule), times, (), COUNTED, rule)
        self.told(cuts, self.path.shown, self.path.timeline.time, self.answered_at, times, rule, out)

    def told(
        self, cuts: Ints, shown: Ints, time: Ints, answered_at: Ints, times: Ints, rule: TimeRule, out: Any
    ) -> None:
        """Fills the columns of seeds from the cuts of their events; NaN where there are none, or too many at once."""
        from quartet.features.sums import count_waiting  # compiled when it is first asked for

        found = count_waiting(answered_at, shown, cuts, latest_visible(times, rule), _MOST)
        out[:, :-1] = np.where(found[:, :-1] < 0, np.nan, found[:, :-1])
        out[:, -1], waits = np.nan, found[:, -1] >= 0
        out[waits, -1] = days_since(time[found[waits, -1]], times[waits])
