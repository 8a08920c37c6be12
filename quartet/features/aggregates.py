"""What a row looks like at a time, in columns: its own cells, and those of the rows around it.

    results by driverId: 90 days                               how many children are visible, and since when
    results by driverId -> points: mean of the last 12         what they hold, on average
    results by driverId, raceId -> races -> round: latest      what their other parents hold
    orders by customer, items by order -> price: mean          what their children hold
    teamId -> teams, founded (number)                          what its parent holds
    teamId -> teams, leagueId -> leagues, level (number)       what a parent's parent holds
    teamId -> teams, results by teamId -> points: mean         what a parent's children hold, by then
    teamId -> teams, results by teamId, laps by resultId: all  and their children

So it goes up to two links far, and from a parent two links down.

Nothing counts before everything on the way to it is visible: a path is known when the last of its rows is. Where
nothing is visible a column is NaN. About `MOST_AVERAGES` averages are made in all: at the end of each path the same
number of cells is averaged, numbers first, then the `MOST_VALUES` most frequent values of each category. Texts and
sets of categories are not looked at.

Averages come from running sums of whole numbers. These are exact, so a difference of two of them holds nothing of the
rows outside, and neither the future nor the order of rows can change a bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quartet.causal import TimeRule, visible
from quartet.database import Database, Relation
from quartet.features.arrays import FIRST_CODE, NO_DATE, TableFeatures
from quartet.features.counts import Columns, days_since, last_known, link_counts, own_columns, time_columns
from quartet.features.fit import TableStatistics
from quartet.features.table import FeatureTable
from quartet.features.timeline import Timeline
from quartet.tasks import Seeds
from quartet.times import DAY

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]

MOST_UPS = 2
RECENT = (90, 365)  # days
LAST = 12  # events, however long they take
MOST_AVERAGES = 1000
MOST_VALUES = 4
CODE = " (code)"  # how the name of a column ends whose numbers have no order
_ONE = 2.0**24  # of the whole numbers that are summed: finer than the cells, whose sizes are below 2**5


@dataclass(frozen=True)
class Sight:
    """Which rows are visible at a time, and how many cells of each path are averaged."""

    rule: TimeRule
    num_averaged: int

    @staticmethod
    def over(num_paths: int, rule: TimeRule) -> Sight:
        averages_of_a_cell = 3 + len(RECENT)
        return Sight(rule, max(1, MOST_AVERAGES // (averages_of_a_cell * max(1, num_paths))))


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
    def children(database: Database, relation: Relation) -> Events:
        """The rows that name a row by a relation; one that names itself is no child."""
        child = _linked(relation)
        parent = relation.rows[child]
        known_at = np.maximum(
            database[relation.table].known_at[child], database[relation.parent].known_at[parent]
        )
        return Events(_below(relation), relation.table, parent, child, known_at)

    def parents(self, database: Database, relation: Relation) -> Events:
        """Instead of the rows that are shown, those which they name."""
        parent = relation.rows[self.shown]
        has = parent >= 0
        known_at = np.maximum(self.known_at[has], database[relation.parent].known_at[parent[has]])
        label = f"{self.label}, {_above(relation)}"
        return Events(label, relation.parent, self.about[has], parent[has], known_at, is_count=False)

    def below(self, database: Database, relation: Relation) -> Events:
        """Instead of the rows that are shown, those which name them."""
        place = np.full(database[self.table].num_rows, -1)
        place[self.shown] = np.arange(len(self.shown))
        child = _linked(relation)
        child = child[place[relation.rows[child]] >= 0]
        of = place[relation.rows[child]]
        known_at = np.maximum(self.known_at[of], database[relation.table].known_at[child])
        return Events(f"{self.label}, {_below(relation)}", relation.table, self.about[of], child, known_at)


def _linked(relation: Relation) -> Ints:
    """The rows that name another row."""
    is_linked = relation.rows >= 0
    if relation.table == relation.parent:
        is_linked &= relation.rows != np.arange(len(relation.rows))
    return np.flatnonzero(is_linked)


def _below(relation: Relation) -> str:
    return f"{relation.table} by {relation.foreign_key.label}"


def _above(relation: Relation) -> str:
    return f"{relation.foreign_key.label} -> {relation.parent}"


def _paths(database: Database, first: Relation, goes_up: bool) -> Iterator[Events]:
    """The children by a relation, their children, and, if the path may go up again, their other parents."""
    children = Events.children(database, first)
    yield children
    for relation in database.relations:
        if relation.parent == children.table:
            yield children.below(database, relation)
        if goes_up and relation.table == children.table and relation is not first:
            yield children.parents(database, relation)


@dataclass(frozen=True, eq=False)
class Path:
    """Events in the order of time, with the cells of the rows that they show."""

    label: str
    timeline: Timeline
    shown: Ints  # in the order of the timeline
    cells: TableCells
    is_count: bool

    @staticmethod
    def of(events: Events, cells: TableCells) -> Path:
        timeline = Timeline.of(events.about, events.known_at)
        return Path(events.label, timeline, events.shown[timeline.order], cells, events.is_count)

    def columns(self, rows: Ints, times: Ints, sight: Sight) -> Columns:
        """How many events of each row are visible at its time, and what they show on average."""
        found = link_counts(self.label, self.timeline, rows, times, sight.rule) if self.is_count else {}
        ranges = self._ranges(rows, times, sight.rule)
        for name, values in islice(self.cells.averaged(), sight.num_averaged):
            sums = RunningSums.of(values[self.shown])
            for what, (begin, end) in ranges.items():
                found[f"{self.label} -> {name}: {what}"] = sums.mean(begin, end)
        return found

    def _ranges(self, rows: Ints, times: Ints, rule: TimeRule) -> dict[str, tuple[Ints, Ints]]:
        """Which events are averaged: all, the recent ones, the last ones and the last."""
        begin, end = self.timeline.until(rows, times, rule)
        ranges = {"mean": (begin, end)}
        for days in RECENT:
            ranges[f"mean of {days} days"] = (self.timeline.until(rows, times - days * DAY, rule)[1], end)
        ranges[f"mean of the last {LAST}"] = (self._last(rows, begin, end, LAST), end)
        ranges["latest"] = (self._last(rows, begin, end, 1), end)
        return ranges

    def _last(self, rows: Ints, begin: Ints, end: Ints, count: int) -> Ints:
        """Where the last events of each range begin: so many, or more where some came at the same time as the first."""
        since = last_known(self.timeline, begin, np.maximum(end - count + 1, np.minimum(begin + 1, end)))
        return np.minimum(self.timeline.until(rows, since, "<")[1], end)


@dataclass(frozen=True, eq=False)
class RunningSums:
    """Exact sums of a column's cells up to each, and how many are there."""

    total: Ints  # (E + 1,)
    count: Ints

    @staticmethod
    def of(values: Floats) -> RunningSums:
        is_there = ~np.isnan(values)
        whole = np.rint(np.where(is_there, values, 0.0) * _ONE).astype(np.int64)
        return RunningSums(
            np.concatenate([[0], np.cumsum(whole)]),
            np.concatenate([[0], np.cumsum(is_there, dtype=np.int64)]),
        )

    def mean(self, begin: Ints, end: Ints) -> NDArray[np.float64]:
        """The mean of each range of cells, NaN where none is there."""
        count = self.count[end] - self.count[begin]
        found = np.full(len(begin), np.nan)
        np.divide(self.total[end] - self.total[begin], count * _ONE, out=found, where=count > 0)
        return found


@dataclass(frozen=True, eq=False)
class TableCells:
    """The cells of a table that columns are made of."""

    features: TableFeatures
    statistics: TableStatistics
    known_at: Ints

    @staticmethod
    def of(database: Database, features: FeatureTable, table: str) -> TableCells:
        return TableCells(features.tables[table], features.statistics.tables[table], database[table].known_at)

    def averaged(self) -> Iterator[tuple[str, Floats]]:
        """The cells that can be averaged over rows, by the names of columns."""
        yield from self._numbers()
        yield from self._frequent_values()

    def _numbers(self) -> Iterator[tuple[str, Floats]]:
        for place, name in enumerate(self.features.layout.numbers):
            yield name, self.features.numbers[:, place]

    def _frequent_values(self) -> Iterator[tuple[str, Floats]]:
        """1 where a category has one of its most frequent values; of two, the second says nothing more."""
        for place, (name, column) in enumerate(self.statistics.of("category").items()):
            codes = self.features.categories[:, place]
            for number, value in enumerate(
                column.vocabulary[: min(MOST_VALUES, max(1, len(column.vocabulary) - 1))]
            ):
                yield f"{name} = {value}", (codes == FIRST_CODE + number).astype(np.float32)

    def columns(self, label: str, rows: Ints, times: Ints) -> Columns:
        """The cells of some rows, dates as days until each row's time."""
        numbers, codes = own_columns(self.features, rows)
        dates = {
            f"days since {name}": _days_since_date(
                self.features.calendar[rows, place], column.first_year, times
            )
            for place, (name, column) in enumerate(self.statistics.of("time").items())
        }
        return {label + name: cells for name, cells in (codes | numbers | dates).items()}


def _days_since_date(calendar: NDArray[np.int16], first_year: int, times: Ints) -> NDArray[np.float64]:
    """The days from dates to times, NaN where there is no date."""
    year, month, day = (calendar[:, place].astype(np.int64) for place in range(3))
    months = (12 * (first_year - 1970 + year) + month).astype("datetime64[M]")
    date = months.astype("datetime64[D]").astype(np.int64) + day
    return np.where(year == NO_DATE, np.nan, times / DAY - date)


@dataclass(frozen=True, eq=False)
class Surroundings:
    """What can be seen from the rows of a table: themselves, paths that begin with their children, their parents."""

    label: str
    cells: TableCells
    paths: tuple[Path, ...]
    parents: tuple[tuple[Relation, Surroundings], ...]

    @staticmethod
    def of(
        database: Database, features: FeatureTable, table: str, ups: int = 0, label: str = ""
    ) -> Surroundings:
        """What can be seen from a table that is itself so many links above the entity."""
        cells = {name: TableCells.of(database, features, name) for name in database.tables}
        below = [r for r in database.relations if r.parent == table and ups < MOST_UPS]
        above = [r for r in database.relations if r.table == table and ups < MOST_UPS]
        paths = [
            Path.of(replace(events, label=label + events.label), cells[events.table])
            for relation in below
            for events in _paths(database, relation, goes_up=not ups)
        ]
        parents = [
            (r, Surroundings.of(database, features, r.parent, ups + 1, f"{label}{_above(r)}, "))
            for r in above
        ]
        return Surroundings(label, cells[table], tuple(paths), tuple(parents))

    @property
    def num_paths(self) -> int:
        return len(self.paths) + sum(parent.num_paths for _, parent in self.parents)

    def columns(self, rows: Ints, times: Ints, sight: Sight) -> Columns:
        """What is visible from each row at its time, the row itself included."""
        found = self.cells.columns(self.label, rows, times)
        for path in self.paths:
            found |= path.columns(rows, times, sight)
        for relation, parent in self.parents:
            found |= _of_parents(relation, parent, rows, times, sight)
        return found


def _of_parents(relation: Relation, parent: Surroundings, rows: Ints, times: Ints, sight: Sight) -> Columns:
    """What is seen from the rows that some rows name, NaN where none is visible."""
    named = relation.rows[rows]
    seen = named >= 0
    seen[seen] = visible(parent.cells.known_at[named[seen]], times[seen], sight.rule)
    known = days_since(parent.cells.known_at[named[seen]], times[seen])
    columns = parent.columns(named[seen], times[seen], sight) | {f"{parent.label}days since": known}
    return {name: _spread(cells, seen) for name, cells in columns.items()}


def _spread(cells: NDArray[Any], where: NDArray[np.bool_]) -> Floats:
    """The cells at their places, NaN at the others."""
    found = np.full(len(where), np.nan, np.float32)
    found[where] = cells
    return found


@dataclass(frozen=True, eq=False)
class RelationalColumns:
    """What a model sees of a seed: its place in the calendar, and what is visible from its entity."""

    first_node: int
    entity: Surroundings
    sight: Sight

    @staticmethod
    def of(
        database: Database, table: str, features: FeatureTable, rule: TimeRule = "<="
    ) -> RelationalColumns:
        entity = Surroundings.of(database, features, table)
        return RelationalColumns(database.offsets[table], entity, Sight.over(entity.num_paths, rule))

    def of_seeds(self, seeds: Seeds) -> Columns:
        rows = seeds.node - self.first_node
        return {
            **time_columns(self.entity.cells.known_at[rows], seeds.time),
            **self.entity.columns(rows, seeds.time, self.sight),
        }
