"""RelationalColumns: what a seed looks like at its time, in columns: the cells of its row, and of the rows around it.

They look up to two links far, and from a parent two links down. Windows are counted in units of the task's horizon:

    results by driverId: last 120 days                         how many children are visible, and since when
    results by driverId -> points: mean of the last 12         what they hold, together
    results by driverId, raceId -> races -> round: latest      what their other parents hold
    orders by customer, items by order -> price: sum of 8 days what their children hold
    teamId -> teams, founded (number)                          what its parent holds
    teamId -> teams, leagueId -> leagues, level (number)       what a parent's parent holds
    teamId -> teams, results by teamId -> points: mean         what a parent's children hold, by then
    known_labels by entity -> label: 2 before the latest       earlier labels, one by one, and how old they are
    results by driverId -> points: mean of the last 12, place among drivers    who has less, and how far off the most is
    world: results -> points: mean of 30 days                  what all rows of a table held lately

Where nothing is visible a column is NaN. About `MOST_SUMMARIES` summaries are made in all: at the end of each path the
same number of cells is looked at. No column tells the date: a tree cannot know what comes after the last it has seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from quartet.causal import TimeRule, visible
from quartet.database import Database, Relation
from quartet.features.counts import time_columns
from quartet.features.paths import LAST, RECENT, Events, Path, events_below
from quartet.features.summed import Summed, TableCells, table_cells
from quartet.features.table import FeatureTable
from quartet.features.timeline import Columns, Ints, days_since
from quartet.tasks import KNOWN_LABELS, Seeds
from quartet.times import DAY, STATIC

MOST_SUMMARIES = 1000
_WORLD = "world: "
_PLACE, _GAP = ", place among ", ", gap to the first of "
_MOST_UPS = 2
_MOST_LAGS = 5
_MOST_WORLD = 8  # cells of a table whose means over all rows are told
_MOST_PLACES = 4  # cells of a path by which rows are compared with each other
_MOST_COMPARED = 10_000_000  # rows at all times of training
_AT_ONCE = 2**18  # rows that are compared, at all times together
_UNITS_OF_A_SPAN = 100  # where a task has no horizon

Matrix = NDArray[np.float32]


class Block(Protocol):
    """Some columns of a seed that are made together."""

    @property
    def names(self) -> list[str]: ...

    def fill(self, rows: Ints, times: Ints, rule: TimeRule, out: Matrix, threads: int) -> None:
        """Fills the (S, names) columns of rows of the entity table at times."""


@dataclass(frozen=True, eq=False)
class RelationalColumns:
    """What trees and the tower see of a seed: its place in the calendar, and what is visible from its entity."""

    first_node: int
    rule: TimeRule
    blocks: tuple[Block, ...]
    num_entities: int
    unit: int  # of the windows, in nanoseconds

    @staticmethod
    def of(
        database: Database, table: str, features: FeatureTable, rule: TimeRule = "<=", horizon: int = 0
    ) -> RelationalColumns:
        """Returns the columns of a table's rows; `horizon`, in nanoseconds, is the unit of their windows."""
        unit = horizon or _unit(database, features.statistics.cutoff)
        cells = table_cells(database, features)
        around = list(_around(database, cells, table, rule, unit))
        world = list(_world(database, cells, unit))
        most = _most_cells([block for block in around if isinstance(block, _PathBlock)])
        blocks: list[Block] = [_Calendar(database[table].known_at)]
        blocks += [block.looking_at(most) if isinstance(block, _PathBlock) else block for block in around]
        return RelationalColumns(
            database.offsets[table], rule, tuple(blocks + world), database[table].num_rows, unit
        )

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(name for block in self.blocks for name in block.names)

    @cached_property
    def near(self) -> frozenset[str]:
        """Returns the columns of the seed's row and of rows one link below it: what one would make by hand."""
        near = [
            block
            for block in self.blocks
            if isinstance(block, (_Calendar, _LagBlock))
            or (isinstance(block, _OwnBlock) and not block.way.links)
            or (isinstance(block, _PathBlock) and not block.way.links and block.path.is_near)
        ]
        return frozenset(name for block in near for name in block.names)

    def affordable(self, seeds: Seeds) -> tuple[str, ...]:
        """Returns the columns that can be made of many seeds: no places among all entities where times are many."""
        is_cheap = len(np.unique(seeds.time)) * self.num_entities <= _MOST_COMPARED
        return tuple(name for name in self.names if is_cheap or not is_place(name))

    def matrix(self, seeds: Seeds, wanted: AbstractSet[str] | None = None, threads: int = 1) -> Matrix:
        """Returns the (S, names) columns of seeds; those of blocks of which none is wanted are left NaN."""
        rows, place = seeds.node - self.first_node, 0
        out = np.full((len(seeds), len(self.names)), np.nan, np.float32)
        for block in self.blocks:
            names = block.names
            if wanted is None or not wanted.isdisjoint(names):
                block.fill(rows, seeds.time, self.rule, out[:, place : place + len(names)], threads)
            place += len(names)
        return out

    def of_seeds(self, seeds: Seeds) -> Columns:
        return dict(zip(self.names, self.matrix(seeds).T, strict=True))


def is_about_others(name: str) -> bool:
    """Returns whether a column tells of rows that no link leads to: of a whole table, or of other entities."""
    return name.startswith(_WORLD) or is_place(name)


def is_place(name: str) -> bool:
    """Returns whether a column compares an entity with all others, which takes long where times are many."""
    return _PLACE in name or _GAP in name


def _unit(database: Database, cutoff: int) -> int:
    """Returns the unit of a task without a horizon: a part of the time from the first row to the cut-off."""
    first = [
        table.known_at[table.known_at != STATIC].min(initial=cutoff) for table in database.tables.values()
    ]
    return max(DAY, (cutoff - int(min(first))) // _UNITS_OF_A_SPAN // DAY * DAY)


@dataclass(frozen=True, eq=False)
class _Calendar:
    """Where a seed stands in the year, the week and the day, and how old its row is."""

    known_at: Ints

    @property
    def names(self) -> list[str]:
        return list(time_columns(self.known_at[:0], self.known_at[:0]))

    def fill(self, rows: Ints, times: Ints, rule: TimeRule, out: Matrix, threads: int) -> None:  # noqa: ARG002
        out[:] = np.column_stack(list(time_columns(self.known_at[rows], times).values()))


@dataclass(frozen=True)
class _Way:
    """The way from an entity up to a row: a link after the other. Each must be visible."""

    label: str = ""
    links: tuple[tuple[Relation, Ints], ...] = ()  # and when each row above is known

    def above(self, relation: Relation, known_at: Ints) -> _Way:
        label = f"{self.label}{relation.foreign_key.distinct_label} -> {relation.parent}, "
        return _Way(label, (*self.links, (relation, known_at)))

    def follow(self, rows: Ints, times: Ints, rule: TimeRule) -> Ints:
        """Returns the rows at its end, -1 where there is none that is visible."""
        for relation, known_at in self.links:
            named = np.full(len(rows), -1)
            named[rows >= 0] = relation.rows[rows[rows >= 0]]
            there = np.flatnonzero(named >= 0)
            named[there[~visible(known_at[named[there]], times[there], rule)]] = -1
            rows = named
        return rows


_HERE = _Way()


@dataclass(frozen=True, eq=False)
class _OwnBlock:
    """What a row shows of itself: the entity's, or that of a parent with how long it has been known."""

    way: _Way
    cells: TableCells

    @cached_property
    def names(self) -> list[str]:
        own = [*self.cells.own, *(f"days since {name}" for name in self.cells.dates)]
        return [self.way.label + name for name in own + ["days since"] * bool(self.way.links)]

    def fill(self, rows: Ints, times: Ints, rule: TimeRule, out: Matrix, threads: int) -> None:  # noqa: ARG002
        rows = self.way.follow(rows, times, rule)
        seen = rows >= 0
        rows, times = rows[seen], times[seen]
        columns: list[NDArray[Any]] = [cells[rows] for cells in self.cells.own.values()]
        columns += [times / DAY - days[rows] for days in self.cells.dates.values()]
        if self.way.links:
            columns.append(days_since(self.cells.table.known_at[rows], times))
        for place, column in enumerate(columns):
            out[seen, place] = column
            out[~seen, place] = np.nan


@dataclass(frozen=True, eq=False)
class _PathBlock:
    """What the rows at the end of a path hold together."""

    way: _Way
    path: Path
    cells: TableCells
    most: int = 0

    def looking_at(self, most: int) -> _PathBlock:
        return _PathBlock(self.way, self.path, self.cells, most)

    @cached_property
    def summed(self) -> Summed:
        return Summed(self.cells, self.most)

    @cached_property
    def names(self) -> list[str]:
        return self.path.names(self.summed)

    def fill(self, rows: Ints, times: Ints, rule: TimeRule, out: Matrix, threads: int) -> None:
        self.path.fill(self.summed, self.way.follow(rows, times, rule), times, rule, out, threads)


@dataclass(frozen=True, eq=False)
class _LagBlock:
    """The latest labels of the entity, one by one, and how many days each has been known."""

    path: Path
    cells: TableCells

    @cached_property
    def _labels(self) -> Mapping[str, NDArray[np.float32]]:
        return {name: cells for name, (cells, _) in self.cells.numbers.items()} | self.cells.flags

    @cached_property
    def names(self) -> list[str]:
        what = [*self._labels, "days since"]
        ways = ["the latest", *(f"{lag} before the latest" for lag in range(1, _MOST_LAGS))]
        return [f"{self.path.label} -> {name}: {way}" for way in ways for name in what]

    def fill(self, rows: Ints, times: Ints, rule: TimeRule, out: Matrix, threads: int) -> None:  # noqa: ARG002
        cuts = self.path.timeline.cuts(rows, times, (), (), rule)
        place = 0
        for lag in range(1, _MOST_LAGS + 1):
            at = cuts[:, -1] - lag
            is_there = at >= cuts[:, 0]
            for cells in self._labels.values():
                out[is_there, place] = cells[self.path.shown[at[is_there]]]
                place += 1
            out[is_there, place] = days_since(self.path.timeline.time[at[is_there]], times[is_there])
            place += 1


@dataclass(frozen=True, eq=False)
class _PlaceBlock:
    """Where an entity stands among all that had a child lately: the part of them that has less, and how much the most
    is ahead. It depends on what is known of them at the seed's time, and not on who else is asked about."""

    path: Path
    cells: TableCells
    known_at: Ints  # of the entities
    table: str

    @cached_property
    def summed(self) -> Summed:
        return Summed(self.cells, _MOST_PLACES)

    @cached_property
    def _kept(self) -> list[int]:
        """Returns which columns of the path are compared: a count, and means of the last events."""
        ends = (f": last {self.path.windows[2]}", f": mean of the last {LAST}")
        return [place for place, name in enumerate(self.path.names(self.summed)) if name.endswith(ends)]

    @cached_property
    def names(self) -> list[str]:
        names = self.path.names(self.summed)
        return [f"{names[place]}{what}{self.table}" for place in self._kept for what in (_PLACE, _GAP)]

    def fill(self, rows: Ints, times: Ints, rule: TimeRule, out: Matrix, threads: int) -> None:
        moments, number = np.unique(times, return_inverse=True)
        order, everyone = np.argsort(number, kind="stable"), np.arange(len(self.known_at))
        first = np.searchsorted(number[order], np.arange(len(moments) + 1))
        at_once = max(1, _AT_ONCE // max(1, len(everyone)))
        for begin in range(0, len(moments), at_once):
            some = moments[begin : begin + at_once]
            asked, when = np.tile(everyone, len(some)), np.repeat(some, len(everyone))
            found = np.empty((len(asked), len(self.path.names(self.summed))), np.float32)
            self.path.fill(self.summed, asked, when, rule, found, threads)
            is_there = visible(self.known_at[asked], when, rule) & (found[:, RECENT] > 0)
            for place in range(len(some)):
                seeds = order[first[begin + place] : first[begin + place + 1]]
                part = slice(place * len(everyone), (place + 1) * len(everyone))
                for at, column in enumerate(self._kept):
                    values = found[part, column]
                    compared = np.sort(values[is_there[part] & ~np.isnan(values)])
                    out[seeds, 2 * at : 2 * at + 2] = _standing(compared, values[rows[seeds]])


def _standing(others: NDArray[np.float32], values: NDArray[np.float32]) -> Matrix:
    """Returns the part of the others (ascending) below each value, equal ones by half, and its gap to the last."""
    if not len(others):
        return np.full((len(values), 2), np.nan, np.float32)
    below = (np.searchsorted(others, values) + np.searchsorted(others, values, "right")) / (2 * len(others))
    return np.column_stack([np.where(np.isnan(values), np.nan, below), values - others[-1]]).astype(
        np.float32
    )


@dataclass(frozen=True, eq=False)
class _WorldBlock:
    """What all rows of a table held lately, and whether there were more of them than before: the same for all seeds
    of a time."""

    path: Path
    cells: TableCells

    @cached_property
    def summed(self) -> Summed:
        return Summed(self.cells, _MOST_WORLD)

    @cached_property
    def _kept(self) -> list[int]:
        """Returns which columns of the path are told: neither totals nor what grows with the database."""
        return [
            place
            for place, name in enumerate(self.path.names(self.summed))
            if " -> " in name
            and (": mean of " in name or name.endswith(": trend"))
            and "the last" not in name
        ]

    @cached_property
    def names(self) -> list[str]:
        names = self.path.names(self.summed)
        rates = [
            f"{self.path.label}: rows of {self.path.windows[i]} to {self.path.windows[i + 1]}" for i in (1, 2)
        ]
        return [*rates, *(names[place] for place in self._kept)]

    def fill(self, rows: Ints, times: Ints, rule: TimeRule, out: Matrix, threads: int) -> None:  # noqa: ARG002
        moments, place = np.unique(times, return_inverse=True)
        path, everything = self.path, np.zeros(len(moments), np.int64)
        columns = np.full((len(moments), len(path.names(self.summed))), np.nan, np.float32)
        path.fill(self.summed, everything, moments, rule, columns, threads)
        recent = columns[:, 1:5].astype(np.float64)  # counts of the windows
        with np.errstate(divide="ignore", invalid="ignore"):
            rates = [recent[:, i] / recent[:, i + 1] for i in (1, 2)]
        out[:] = np.column_stack([*rates, columns[:, self._kept]])[place]


def _around(
    database: Database,
    cells: Mapping[str, TableCells],
    table: str,
    rule: TimeRule,
    unit: int,
    way: _Way = _HERE,
) -> Iterator[Block]:
    """Yields what can be seen from a table at the end of a way: its rows, paths from their children, their parents.

    The entity's own row is known at its time even under the rule that shows no other row of that time.
    """
    ups = len(way.links)
    yield _OwnBlock(way, cells[table])
    if ups >= _MOST_UPS:
        return
    counts_parent = bool(ups) or rule == "<="
    for events in events_below(database, table, way.label, not ups, counts_parent):
        path = Path.of(events, unit, is_near=events.is_near)
        yield _PathBlock(way, path, cells[events.table])
        if events.is_near and not ups:
            yield _PlaceBlock(path, cells[events.table], database[table].known_at, table)
            if events.table == KNOWN_LABELS:
                yield _LagBlock(path, cells[events.table])
    for relation in (relation for relation in database.relations if relation.table == table):
        above = way.above(relation, database[relation.parent].known_at)
        yield from _around(database, cells, relation.parent, rule, unit, above)


def _world(database: Database, cells: Mapping[str, TableCells], unit: int) -> Iterator[Block]:
    """Yields the world columns of each table whose rows come in time."""
    for name, table in database.tables.items():
        dated = np.flatnonzero(table.known_at != STATIC)
        if table.is_timed:
            events = Events(
                f"{_WORLD}{name}", name, np.zeros(len(dated), np.int64), dated, table.known_at[dated]
            )
            yield _WorldBlock(Path.of(events, unit, is_near=True), cells[name])


def _most_cells(blocks: list[_PathBlock]) -> int:
    """Returns how many cells of each path can be looked at so that there are not too many summaries."""
    most, largest = 1, max((len(b.cells.numbers) + len(b.cells.flags) for b in blocks), default=1)
    while most < largest:
        names = (len(b.path.names(Summed(b.cells, most + 1))) for b in blocks)
        if sum(names) > MOST_SUMMARIES:
            break
        most += 1
    return most
