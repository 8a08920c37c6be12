"""Paths of links that begin with the children of a row, and what the rows at their ends hold on average.

Nothing counts before everything on the way to it is visible: a path is known when the last of its rows is.

Averages come from running sums of whole numbers. These are exact, so a difference of two of them holds nothing of the
rows outside, and neither the future nor the order of rows can change a bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from quartet.causal import TimeRule
from quartet.database import Database, Relation
from quartet.features.arrays import FIRST_CODE
from quartet.features.table import FeatureTable
from quartet.features.timeline import Columns, Ints, Timeline
from quartet.times import DAY

RECENT = (90, 365)  # days
LAST = 12  # events, however long they take
MOST_VALUES = 4
_ONE = 2.0**24  # of the whole numbers that are summed: finer than the cells, whose sizes are below 2**5


@dataclass(frozen=True, eq=False)
class Events:
    """The rows to which a path leads: `about[i]` is where it begins, `shown[i]` where it ends."""

    label: str
    table: str  # where it ends
    about: Ints
    shown: Ints
    known_at: Ints
    is_count: bool = True  # whether each row is shown once, so that counting them says something

    @staticmethod
    def children(
        database: Database, relation: Relation, label: str = "", counts_parent: bool = True
    ) -> Events:
        """Returns the rows that name a row by a relation; one that names itself is no child.

        The time of the row that is named counts too, unless that row is a seed, which is known at its own time.
        """
        child = _linked(relation)
        parent, known_at = relation.rows[child], database[relation.table].known_at[child]
        if counts_parent:
            known_at = np.maximum(known_at, database[relation.parent].known_at[parent])
        label = f"{label}{relation.table} by {relation.foreign_key.distinct_label}"
        return Events(label, relation.table, parent, child, known_at)

    def below(self, database: Database, relation: Relation) -> Events:
        """Returns, instead of the rows that are shown, those which name them."""
        place = np.full(database[self.table].num_rows, -1)
        place[self.shown] = np.arange(len(self.shown))
        child = _linked(relation)
        child = child[place[relation.rows[child]] >= 0]
        of = place[relation.rows[child]]
        known_at = np.maximum(self.known_at[of], database[relation.table].known_at[child])
        label = f"{self.label}, {relation.table} by {relation.foreign_key.distinct_label}"
        return Events(label, relation.table, self.about[of], child, known_at)

    def above(self, database: Database, relation: Relation) -> Events:
        """Returns, instead of the rows that are shown, those which they name."""
        parent = relation.rows[self.shown]
        has = parent >= 0
        known_at = np.maximum(self.known_at[has], database[relation.parent].known_at[parent[has]])
        label = f"{self.label}, {relation.foreign_key.distinct_label} -> {relation.parent}"
        return Events(label, relation.parent, self.about[has], parent[has], known_at, is_count=False)


def _linked(relation: Relation) -> Ints:
    """Returns the rows that name another row."""
    is_linked = relation.rows >= 0
    if relation.table == relation.parent:
        is_linked &= relation.rows != np.arange(len(relation.rows))
    return np.flatnonzero(is_linked)


def events_below(
    database: Database, table: str, label: str, goes_up: bool, counts_parent: bool = True
) -> Iterator[Events]:
    """Yields the children of a table's rows, their children, and, if paths may go up again, their other parents."""
    for first in (relation for relation in database.relations if relation.parent == table):
        children = Events.children(database, first, label, counts_parent)
        yield children
        for relation in database.relations:
            if relation.parent == children.table:
                yield children.below(database, relation)
            if goes_up and relation.table == children.table and relation is not first:
                yield children.above(database, relation)


def _averaged_cells(features: FeatureTable, table: str) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Yields the cells of a table that can be averaged over rows, by name: numbers, then 1 where a category has one
    of its most frequent values. Of two values, the second says nothing more."""
    cells = features.tables[table]
    for place, name in enumerate(cells.layout.numbers):
        yield name, cells.numbers[:, place]
    for place, (name, column) in enumerate(features.statistics.tables[table].of("category").items()):
        num_values = min(MOST_VALUES, max(1, len(column.vocabulary) - 1))
        for number, value in enumerate(column.vocabulary[:num_values]):
            yield f"{name} = {value}", (cells.categories[:, place] == FIRST_CODE + number).astype(np.float32)


@dataclass(frozen=True, eq=False)
class Path:
    """Events in the order of time."""

    label: str
    table: str
    timeline: Timeline
    shown: Ints  # in the order of the timeline
    is_count: bool

    @staticmethod
    def of(events: Events) -> Path:
        timeline = Timeline.of(events.about, events.known_at)
        return Path(events.label, events.table, timeline, events.shown[timeline.order], events.is_count)

    def columns(
        self, features: FeatureTable, rows: Ints, times: Ints, rule: TimeRule, num_averaged: int
    ) -> Columns:
        """Returns how many events of each row are visible at its time, and what they show on average."""
        columns = self.timeline.counts(self.label, rows, times, rule) if self.is_count else {}
        begin, end = self.timeline.until(rows, times, rule)
        ranges = {"mean": (begin, end)}
        for days in RECENT:
            ranges[f"mean of {days} days"] = (self.timeline.until(rows, times - days * DAY, rule)[1], end)
        ranges[f"mean of the last {LAST}"] = (self._last(rows, begin, end, LAST), end)
        ranges["latest"] = (self._last(rows, begin, end, 1), end)
        for name, values in islice(_averaged_cells(features, self.table), num_averaged):
            for what, mean in range_means(values[self.shown], ranges).items():
                columns[f"{self.label} -> {name}: {what}"] = mean
        return columns

    def _last(self, rows: Ints, begin: Ints, end: Ints, count: int) -> Ints:
        """Returns where the last `count` events of each range begin, or more where some came with the first."""
        since = self.timeline.last_known(begin, np.maximum(end - count + 1, np.minimum(begin + 1, end)))
        return np.minimum(self.timeline.until(rows, since, "<")[1], end)


def range_means(values: NDArray[np.float32], ranges: Mapping[str, tuple[Ints, Ints]]) -> Columns:
    """Returns the means of the values in each range [begin, end), NaN where none is there."""
    is_there = ~np.isnan(values)
    whole = np.rint(np.where(is_there, values, 0.0) * _ONE).astype(np.int64)
    total = np.concatenate([[0], np.cumsum(whole)])
    count = np.concatenate([[0], np.cumsum(is_there, dtype=np.int64)])
    means: Columns = {}
    for name, (begin, end) in ranges.items():
        num_there = count[end] - count[begin]
        mean = np.full(len(begin), np.nan)
        means[name] = np.divide(total[end] - total[begin], num_there * _ONE, out=mean, where=num_there > 0)
    return means
