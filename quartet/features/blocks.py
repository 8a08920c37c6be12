"""Blocks of relational columns: what a row, the rows at the end of a path, or a whole table show of a seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from quartet.causal import TimeRule, visible
from quartet.database import Relation
from quartet.features.counts import time_columns
from quartet.features.paths import LAST, RECENT, Path
from quartet.features.summed import CODE, Summed, TableCells
from quartet.features.timeline import Ints, days_since
from quartet.times import DAY

WORLD = "world: "
PLACE, GAP = ", place among ", ", gap to the first of "
_MOST_LAGS = 5
_CLASS_WAYS = ("the latest", f"most of the last {LAST}")
_MOST_WORLD = 8  # cells of a table whose means over all rows are told
_MOST_PLACES = 4  # cells of a path by which rows are compared with each other
_AT_ONCE = 2**18  # rows that are compared, at all times together

_MOMENTS_KEPT = 4  # times for which what all seeds share is kept

Matrix = NDArray[np.float32]
_Standings = tuple[
    int, Matrix, list[Matrix]
]  # the place of a moment, columns of everybody, those to compare with


class Block(Protocol):
    """Some columns of a seed that are made together."""

    @property
    def names(self) -> list[str]: ...

    def fill(self, rows: Ints, times: Ints, rule: TimeRule, out: Matrix) -> None:
        """Fills the (S, names) columns of rows of the entity table at times."""


@dataclass(frozen=True, eq=False)
class Calendar:
    """Where a seed stands in the year, the week and the day, and how old its row is."""

    known_at: Ints

    @property
    def names(self) -> list[str]:
        return list(time_columns(self.known_at[:0], self.known_at[:0]))

    def fill(self, rows: Ints, times: Ints, rule: TimeRule, out: Matrix) -> None:  # noqa: ARG002
        out[:] = np.column_stack(list(time_columns(self.known_at[rows], times).values()))


@dataclass(frozen=True, eq=False)
class Group:
    """Rows that have something in common: the number of each one's group, -1 where it has none."""

    rows: Ints


@dataclass(frozen=True)
class Way:
    """The way from an entity up to a row: a link after the other. Each must be visible."""

    label: str = ""
    links: tuple[tuple[Relation | Group, Ints], ...] = ()  # and when each row above is known

    def above(self, relation: Relation, known_at: Ints) -> Way:
        label = f"{self.label}{relation.foreign_key.distinct_label} -> {relation.parent}, "
        return Way(label, (*self.links, (relation, known_at)))

    def follow(self, rows: Ints, times: Ints, rule: TimeRule) -> Ints:
        """Returns the rows at its end, -1 where there is none that is visible."""
        for relation, known_at in self.links:
            named = np.full(len(rows), -1)
            named[rows >= 0] = relation.rows[rows[rows >= 0]]
            there = np.flatnonzero(named >= 0)
            named[there[~visible(known_at[named[there]], times[there], rule)]] = -1
            rows = named
        return rows


HERE = Way()


@dataclass(frozen=True, eq=False)
class OwnBlock:
    """What a row shows of itself: the entity's, or that of a parent with how long it has been known."""

    way: Way
    cells: TableCells

    @cached_property
    def names(self) -> list[str]:
        own = [*self.cells.own, *(f"days since {name}" for name in self.cells.dates)]
        return [self.way.label + name for name in own + ["days since"] * bool(self.way.links)]

    def fill(self, rows: Ints, times: Ints, rule: TimeRule, out: Matrix) -> None:
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
class PathBlock:
    """What the rows at the end of a path hold together."""

    way: Way
    path: Path
    cells: TableCells
    most: int = 0
    most_brief: int = 0

    def looking_at(self, most: int, most_brief: int) -> PathBlock:
        return PathBlock(self.way, self.path, self.cells, most, most_brief)

    @cached_property
    def summed(self) -> Summed:
        return Summed(self.cells, self.most, self.most_brief)

    @cached_property
    def names(self) -> list[str]:
        return self.path.names(self.summed)

    def fill(self, rows: Ints, times: Ints, rule: TimeRule, out: Matrix) -> None:
        self.path.fill(self.summed, self.way.follow(rows, times, rule), times, rule, out)


@dataclass(frozen=True, eq=False)
class LagBlock:
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

    def fill(self, rows: Ints, times: Ints, rule: TimeRule, out: Matrix) -> None:
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
class ClassBlock:
    """Which class the latest labels at the end of a path have, and the last twelve mostly, as codes.

    Of many classes, summaries tell of the most frequent few alone. Labels of one time count together.
    """

    way: Way
    path: Path
    cells: TableCells
    label: str

    @cached_property
    def names(self) -> list[str]:
        return [f"{self.path.label} -> {self.label}: {what}{CODE}" for what in _CLASS_WAYS]

    @cached_property
    def codes(self) -> NDArray[np.int32]:
        layout = self.cells.features.tables[self.cells.table.name].layout
        return np.asarray(
            self.cells.features.tables[self.cells.table.name].categories[
                :, layout.categories.index(self.label)
            ]
        )

    def fill(self, rows: Ints, times: Ints, rule: TimeRule, out: Matrix) -> None:
        cuts = self.path.timeline.cuts(self.way.follow(rows, times, rule), times, (), (1, LAST), rule)
        for place in range(len(_CLASS_WAYS)):
            begin, end = cuts[:, 1 + place], cuts[:, -1]
            count = np.maximum(end - begin, 0)
            seed = np.repeat(np.arange(len(rows)), count)
            within = np.arange(len(seed)) - np.repeat(np.cumsum(count) - count, count)
            out[:, place] = commonest(seed, self.codes[self.path.shown[begin[seed] + within]], len(rows))


def commonest(seed: Ints, codes: NDArray[Any], num_seeds: int) -> NDArray[np.float32]:
    """Returns the code that each seed has most often, of equal ones the lowest; NaN where it has none."""
    found = np.full(num_seeds, np.nan, np.float32)
    size = int(codes.max(initial=0)) + 1
    pairs, count = np.unique(seed * size + codes, return_counts=True)
    order = np.lexsort((pairs % size, -count, pairs // size))
    owner = pairs[order] // size
    is_first = np.append(True, owner[1:] != owner[:-1])[: len(owner)]
    found[owner[is_first]] = (pairs[order] % size)[is_first]
    return found


@dataclass(frozen=True, eq=False)
class PlaceBlock:
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
        return [f"{names[place]}{what}{self.table}" for place in self._kept for what in (PLACE, GAP)]

    def fill(self, rows: Ints, times: Ints, rule: TimeRule, out: Matrix) -> None:
        moments, number = np.unique(times, return_inverse=True)
        order = np.argsort(number, kind="stable")
        first = np.searchsorted(number[order], np.arange(len(moments) + 1))
        at_once = max(1, _AT_ONCE // max(1, len(self.known_at)))
        for begin in range(0, len(moments), at_once):
            some = moments[begin : begin + at_once]
            for place, values, compared in self._among(some, rule, len(moments) == 1):
                seeds = order[first[begin + place] : first[begin + place + 1]]
                for at, others in enumerate(compared):
                    out[seeds, 2 * at : 2 * at + 2] = _standing(others, values[rows[seeds], at])

    def _among(self, moments: Ints, rule: TimeRule, is_kept: bool) -> list[_Standings]:
        """Returns for each moment its place, the columns of everybody, and of each those to compare with, ascending.

        A single moment is asked about again and again, by a service: its answer is kept.
        """
        known = self._latest.get((int(moments[0]), rule)) if is_kept else None
        if known is not None:
            return known
        everyone = np.arange(len(self.known_at))
        asked, when = np.tile(everyone, len(moments)), np.repeat(moments, len(everyone))
        found = np.empty((len(asked), len(self.path.names(self.summed))), np.float32)
        self.path.fill(self.summed, asked, when, rule, found, self._kept)
        is_there = visible(self.known_at[asked], when, rule) & (found[:, RECENT] > 0)
        told: list[_Standings] = []
        for place in range(len(moments)):
            part = slice(place * len(everyone), (place + 1) * len(everyone))
            values = found[part][:, self._kept]
            compared = [np.sort(own[is_there[part] & ~np.isnan(own)]) for own in values.T]
            told.append((place, values, compared))
        if is_kept:
            _keep(self._latest, (int(moments[0]), rule), told)
        return told

    @cached_property
    def _latest(self) -> dict[tuple[int, str], list[_Standings]]:
        return {}


def _keep(kept: dict[tuple[int, str], Any], moment: tuple[int, str], told: Any) -> None:
    """Keeps what is so at a moment; those that have been kept longest go. Several threads may do so at once."""
    for oldest in list(kept)[: max(0, len(kept) + 1 - _MOMENTS_KEPT)]:
        kept.pop(oldest, None)
    kept[moment] = told


def _standing(others: NDArray[np.float32], values: NDArray[np.float32]) -> Matrix:
    """Returns the part of the others (ascending) below each value, equal ones by half, and its gap to the last."""
    if not len(others):
        return np.full((len(values), 2), np.nan, np.float32)
    below = (np.searchsorted(others, values) + np.searchsorted(others, values, "right")) / (2 * len(others))
    return np.column_stack([np.where(np.isnan(values), np.nan, below), values - others[-1]]).astype(
        np.float32
    )


@dataclass(frozen=True, eq=False)
class WorldBlock:
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

    def fill(self, rows: Ints, times: Ints, rule: TimeRule, out: Matrix) -> None:  # noqa: ARG002
        moments, place = np.unique(times, return_inverse=True)
        if len(moments) > 1:
            out[:] = self._at(moments, rule)[place]
            return
        for moment in moments.tolist():  # asked about again and again, by a service
            known = self._latest.get((moment, rule))
            out[:] = self._at(moments, rule) if known is None else known
            if known is None:
                _keep(self._latest, (moment, rule), out[:1].copy())

    @cached_property
    def _latest(self) -> dict[tuple[int, str], Matrix]:
        return {}

    def _at(self, moments: Ints, rule: TimeRule) -> Matrix:
        path, everything = self.path, np.zeros(len(moments), np.int64)
        columns = np.full((len(moments), len(path.names(self.summed))), np.nan, np.float32)
        path.fill(self.summed, everything, moments, rule, columns, self._kept)
        recent = columns[:, 1:5].astype(np.float64)  # counts of the windows
        with np.errstate(divide="ignore", invalid="ignore"):
            rates = [recent[:, i] / recent[:, i + 1] for i in (1, 2)]
        return np.column_stack([*rates, columns[:, self._kept]])
