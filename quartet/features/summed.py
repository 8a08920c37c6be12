"""The cells of a table that can be summed up over rows, and those that are columns of their own row.

Numbers come first, then the most frequent values of categories and of sets of categories as 0 or 1. Texts and sets
count by their size. Numbers that tell the date, such as a year or a running number, are left out: no tree can tell what
comes after the last it has seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from quartet.causal import visible
from quartet.database import Database, Table
from quartet.features.arrays import FIRST_CODE, Bags
from quartet.features.table import FeatureTable
from quartet.machine import empty_aside, set_aside
from quartet.times import STATIC

MEAN, SUM, TREND = 0, 1, 2  # how cells are summed up
ONE = 2.0**24  # of the whole numbers that are summed: finer than the cells, whose sizes are below 2**5
MOST_VALUES = 4  # of a category
CODE = " (code)"  # how the name of a column ends whose numbers have no order
_MOST_DIMENSIONS = 4  # of a text's vector
_FURTHEST = 1e6  # of the mean from zero, in deviations: beyond, a sum says no more than a count
_MANY, _GLANCE, _FAR_FROM_IT = 2**15, 2**13, 0.9
_TELLS_THE_DATE, _FEWEST = 0.98, 20  # rank correlation with time, over so many rows at least

_MOST_DATES = 10_000
_DATES: dict[bytes, bool] = {}  # by a digest of times and cells

Cells = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class TableCells:
    """The cells of one table, by name, as columns of numbers; NaN where absent."""

    table: Table
    features: FeatureTable  # of this table alone: others may grow

    @cached_property
    def numbers(self) -> dict[str, tuple[Cells, float]]:
        """Returns numbers, each with what must be added to a cell to have its value, in the cell's unit."""
        cells, statistics = self.features.tables[self.table.name], self.features.statistics
        columns = statistics.tables[self.table.name].of("number")
        known = {name: cells.numbers[:, place] for place, name in enumerate(cells.layout.numbers)}
        late = visible(self.table.known_at, statistics.cutoff) & (self.table.known_at != STATIC)
        numbers = {
            name: (values, float(np.clip(columns[name].mean / columns[name].std, -_FURTHEST, _FURTHEST)))
            for name, values in known.items()
            if not _tells_the_date(self.table.known_at[late], values[late])
        }
        return numbers | {name: (values, 0.0) for name, values in self._sizes()}

    @cached_property
    def flags(self) -> dict[str, Cells]:
        """Returns 1 where a category has one of its most frequent values, or a set holds it.

        Of a category with two values, the second says nothing more.
        """
        cells, statistics = (
            self.features.tables[self.table.name],
            self.features.statistics.tables[self.table.name],
        )
        flags = {}
        for place, (name, column) in enumerate(statistics.of("category").items()):
            for number, value in enumerate(column.vocabulary[: _num_flags(column)]):
                flags[f"{name} = {value}"] = set_aside(
                    (cells.categories[:, place] == FIRST_CODE + number).astype(np.float32)
                )
        for place, (name, column) in enumerate(statistics.of("multicategory").items()):
            for number, value in enumerate(column.vocabulary[:MOST_VALUES]):
                flags[f"{name} has {value}"] = holds(cells.multicategories[place], FIRST_CODE + number)
        return flags

    @cached_property
    def own(self) -> dict[str, NDArray[Any]]:
        """Returns the columns that a row shows of itself: codes, numbers, and the first dimensions of texts."""
        cells = self.features.tables[self.table.name]
        own: dict[str, NDArray[Any]] = {
            name + CODE: cells.categories[:, at] for at, name in enumerate(cells.layout.categories)
        }
        own |= {f"{name} (number)": values for name, (values, _) in self.numbers.items()}
        for place, name in enumerate(cells.layout.texts):
            vectors = cells.vectors[place][cells.texts[:, place]]
            for number in range(min(_MOST_DIMENSIONS, vectors.shape[1])):
                own[f"{name} (text {number + 1})"] = vectors[:, number]
        return own

    @cached_property
    def dates(self) -> dict[str, NDArray[np.float64]]:
        """Returns columns of dates as days since 1970, in UTC: not their calendar, which has an end."""
        columns = self.features.statistics.tables[self.table.name].of("time")
        return {name: _days(self.table.data[name]) for name in columns}

    def beside(self, part: Part) -> Cells:
        """Returns the (rows, cells) of some numbers or flags, made once for all paths that end here."""
        kept: dict[Part, Cells] = self.__dict__.setdefault("_beside", {})
        if part not in kept:
            columns = [self.numbers[n][0] if part.is_number else self.flags[n] for n in part.names]
            together = empty_aside((self.table.num_rows, len(columns)), np.float32)
            for place, column in enumerate(columns):
                together[:, place] = column
            kept[part] = together
        return kept[part]

    def _sizes(self) -> Iterator[tuple[str, Cells]]:
        layout = self.features.tables[self.table.name].layout
        for name in layout.texts:
            letters = pc.utf8_length(pc.cast(self.table.data[name], pa.large_string()))
            yield f"letters of {name}", np.log1p(pc.cast(letters, pa.float32()).to_numpy())
        for place, name in enumerate(layout.multicategories):
            sizes = np.diff(self.features.tables[self.table.name].multicategories[place].start)
            yield f"parts of {name}", np.log1p(sizes).astype(np.float32)


class Part(NamedTuple):
    """Cells that are summed up in the same ways."""

    is_number: bool
    is_brief: bool
    names: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Summed:
    """The first so many cells of a table, as they are summed up over its rows, and so many others, in brief."""

    table: TableCells
    most: int
    most_brief: int = 0

    @cached_property
    def parts(self) -> list[Part]:
        """Returns numbers and flags, and then those that are told in brief."""
        numbers, flags = tuple(self.table.numbers), tuple(self.table.flags)
        of = len(numbers[: self.most])
        left, in_brief = flags[self.most - of :], numbers[of:][: self.most_brief]
        return [
            Part(True, False, numbers[:of]),
            Part(False, False, flags[: self.most - of]),
            Part(True, True, in_brief),
            Part(False, True, left[: self.most_brief - len(in_brief)]),
        ]

    def cells(
        self, part: Part, rows: NDArray[np.int64] | slice = slice(None)
    ) -> tuple[Cells, NDArray[np.float64]]:
        """Returns the (rows, cells) of a part, and what the value behind each has beyond its cell."""
        offset = [self.table.numbers[n][1] if part.is_number else 0.0 for n in part.names]
        return self.table.beside(part)[rows], np.array(offset)


def table_cells(
    database: Database, features: FeatureTable, before: Mapping[str, TableCells] | None = None
) -> dict[str, TableCells]:
    """Returns the cells of each table; of one that is as it was `before`, those of then."""
    own = {name: replace(features, tables={name: features.tables[name]}) for name in database.tables}
    cells = {name: TableCells(table, own[name]) for name, table in database.tables.items()}
    old = {n: c for n, c in (before or {}).items() if c.features.tables[n] is features.tables.get(n)}
    return cells | old


def _num_flags(column: Any) -> int:
    return min(MOST_VALUES, max(1, len(column.vocabulary) - 1))


def holds(bags: Bags, code: int) -> Cells:
    """Returns 1 for each row whose bag holds the code."""
    row = np.repeat(np.arange(len(bags.start) - 1), np.diff(bags.start))
    held = np.zeros(len(bags.start) - 1, np.float32)
    held[row[bags.code == code]] = 1
    return held


def _tells_the_date(known_at: NDArray[np.int64], values: Cells) -> bool:
    """Returns whether a number rises or falls with the time of its row, as years and running numbers do.

    It is asked again whenever a model is bound, mostly about the same rows.
    """
    digest = blake2b(known_at.tobytes())
    digest.update(values.tobytes())
    if digest.digest() not in _DATES:
        if len(_DATES) >= _MOST_DATES:
            _DATES.clear()
        _DATES[digest.digest()] = _rises_with_time(known_at, values)
    return _DATES[digest.digest()]


def _rises_with_time(known_at: NDArray[np.int64], values: Cells) -> bool:
    is_there = ~np.isnan(values)
    times, values = known_at[is_there], values[is_there]
    if len(times) > _MANY:  # a part of so many rows settles all cases but those near the limit
        some = slice(None, None, len(times) // _GLANCE)
        if _rank_correlation(times[some], values[some]) < _FAR_FROM_IT:
            return False
    return _rank_correlation(times, values) > _TELLS_THE_DATE


def _rank_correlation(times: NDArray[np.int64], values: Cells) -> float:
    """Returns how far ranks go together, up or down; 0 of few rows, or of fewer than three values."""
    if len(times) < _FEWEST:
        return 0.0
    order = np.lexsort((values, times))  # rows in any order have one sum
    times, values = times[order], values[order]
    del order
    ranks = [np.zeros(len(times)), np.unique(values, return_inverse=True)[1].astype(np.float64)]
    np.cumsum(times[1:] != times[:-1], out=ranks[0][1:])
    if any(rank.max() < 2 for rank in ranks):
        return 0.0
    return float(np.abs(np.corrcoef(np.stack(ranks)))[0, 1])


def _days(column: pa.ChunkedArray) -> NDArray[np.float64]:
    days = column.to_numpy().astype("datetime64[D]")
    return np.where(np.isnat(days), np.nan, days.astype(np.int64))
