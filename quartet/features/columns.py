"""What is learned of a column of each kind, and how its cells become numbers with it.

Everything here is learned from the cells that are visible at the cut-off, and does not depend on the order of the
rows. All of it is plain values, but for the arrays that an embedder learns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from quartet.features.arrays import CALENDAR, FIRST_CODE, MISSING, NO_DATE, UNSEEN, Bags, Kind, rows_of
from quartet.features.cells import Cells, Family, as_numpy, split_parts
from quartet.features.kinds import ColumnKind
from quartet.features.text import Embedder, embed

Value = str | int | float | bool

MOST_DEVIATIONS = 30.0
MOST_VALUES = 10_000
_LAST_YEAR = int(np.iinfo(np.int16).max)


@dataclass(frozen=True)
class Encoded:
    """The cells of a column as numbers, and what had to be done for it."""

    values: Any
    num_unseen: int = 0
    unseen: tuple[Value, ...] = ()  # the first of them
    num_clipped: int = 0


@dataclass(frozen=True)
class NumberColumn:
    """Mean and standard deviation; where all values are equal, the deviation counts as 1."""

    mean: float
    std: float
    family: Family = "number"
    kind: ClassVar[Kind] = "number"

    @staticmethod
    def fit(cells: Cells) -> NumberColumn:
        """Learns from values of any size: a power of two keeps their squares in the range of a float, exactly."""
        values = cells.sorted.astype(np.float64)
        if not len(values):
            return NumberColumn(0.0, 1.0)
        _, exponent = math.frexp(max(abs(values[0]), abs(values[-1])))
        small = np.ldexp(values, -exponent)
        mean, std = math.ldexp(small.mean(), exponent), math.ldexp(small.std(), exponent)
        is_constant = values[0] == values[-1]
        return NumberColumn(values[0].item(), 1.0) if is_constant or not std else NumberColumn(mean, std)

    def encode(self, cells: Cells) -> Encoded:
        with np.errstate(over="ignore"):  # beyond all numbers is beyond 30 deviations
            values = (as_numpy(cells.data).astype(np.float64, copy=False) - self.mean) / self.std
        clipped = np.clip(values, -MOST_DEVIATIONS, MOST_DEVIATIONS)
        count = np.count_nonzero((clipped != values) & ~np.isnan(values))
        return Encoded(clipped.astype(np.float32), num_clipped=int(count))


@dataclass(frozen=True)
class CategoryColumn:
    """The values that have a code of their own, the most frequent first."""

    vocabulary: tuple[Value, ...]
    family: Family
    kind: ClassVar[Kind] = "category"

    @property
    def size(self) -> int:
        return FIRST_CODE + len(self.vocabulary)

    def encode(self, cells: Cells) -> Encoded:
        codes = self._codes(cells.data)
        return Encoded(codes, int((codes == UNSEEN).sum()), _unseen(cells.data, codes))

    def _codes(self, values: pa.Array | pa.ChunkedArray) -> NDArray[np.int32]:
        """Returns the codes of values; whole numbers may have become decimals since, or decimals whole."""
        kind = values.type
        known: Any = list(self.vocabulary)
        if pa.types.is_integer(kind):
            known = [value if isinstance(value, int) else None for value in known]
        if pa.types.is_floating(kind):
            known = np.array(known, dtype=np.float64)
        places = pc.index_in(values, value_set=pa.array(known, kind))
        codes = as_numpy(pc.fill_null(places, UNSEEN - FIRST_CODE)).astype(np.int32) + np.int32(FIRST_CODE)
        if values.null_count:
            codes[~as_numpy(values.is_valid())] = MISSING
        return codes


@dataclass(frozen=True)
class MulticategoryColumn(CategoryColumn):
    """The parts that have a code of their own, and what keeps them apart where they stand in one text."""

    separator: str = ""
    kind: ClassVar[Kind] = "multicategory"

    @staticmethod
    def fit(cells: Cells, separator: str) -> MulticategoryColumn:
        """Learns from parts; one counts once for each time that it stands in a row."""
        if cells.is_list:
            return MulticategoryColumn(_vocabulary(*cells.counts), cells.family)
        strings, rows = cells.counts
        start, parts = split_parts(strings, separator)
        coded = parts.dictionary_encode()
        counts = np.bincount(as_numpy(coded.indices), np.repeat(rows, np.diff(start)), len(coded.dictionary))
        return MulticategoryColumn(_vocabulary(coded.dictionary, counts), cells.family, separator)

    def encode(self, cells: Cells) -> Encoded:
        """Returns bags, empty ones for cells that are absent."""
        if cells.is_list:
            start, parts = cells.parts
            codes = self._codes(parts)
            bags = Bags(start, codes)
        else:
            strings, places = _distinct(cells.data)
            start, parts = split_parts(strings, self.separator)
            codes = self._codes(parts)
            bags = rows_of(Bags(np.concatenate([[0], start]), codes), places)
        return Encoded(bags, int((bags.code == UNSEEN).sum()), _unseen(parts, codes))


@dataclass(frozen=True)
class DateColumn:
    """The year from which years are counted."""

    first_year: int
    family: Family = "time"
    kind: ClassVar[Kind] = "time"

    @staticmethod
    def fit(cells: Cells) -> DateColumn:
        return DateColumn(int(_years(pa.array([pc.min(cells.data)]))[0]) if cells.num_filled else 1970)

    def encode(self, cells: Cells) -> Encoded:
        """Returns the calendar of each cell in UTC (n, 7), in the order of `CALENDAR`."""
        is_full = cells.num_filled == len(cells)
        times = cells.data if is_full else pc.fill_null(cells.data, 0)
        calendar = np.empty((len(cells), len(CALENDAR)), dtype=np.int16)
        calendar[:, 0] = np.clip(_years(times) - self.first_year, 0, _LAST_YEAR)
        calendar[:, 1] = as_numpy(pc.month(times)) - 1
        calendar[:, 2] = as_numpy(pc.day(times)) - 1
        for place, part in enumerate((pc.day_of_week, pc.hour, pc.minute, pc.second), 3):
            calendar[:, place] = as_numpy(part(times))
        if not is_full:
            calendar[~as_numpy(cells.data.is_valid())] = NO_DATE
        return Encoded(calendar)


def _years(times: pa.Array | pa.ChunkedArray) -> NDArray[np.int64]:
    """Returns the years. Arrow counts them in 16 bits, enough for nanoseconds; numpy is slower, and exact."""
    if times.type.unit == "ns":
        return as_numpy(pc.year(times))
    return as_numpy(times).astype("datetime64[Y]").astype(np.int64) + 1970


@dataclass(frozen=True)
class TextColumn:
    """The embedder, with what it has learned of this column."""

    embedder: Embedder
    family: Family = "text"
    kind: ClassVar[Kind] = "text"

    @property
    def size(self) -> int:
        return self.embedder.size

    def encode(self, cells: Cells, known: NDArray[np.float32] | None = None) -> Encoded:
        """Returns (places, vectors): place 0 is for cells that are absent or empty, and its vector is zero.

        `known` are the vectors of the first cells, before others came.
        """
        strings, places = _distinct(cells.data)
        empty = pc.index(strings, "").as_py()
        if empty >= 0:
            new_place = np.arange(len(strings) + 1, dtype=np.int32) - (np.arange(len(strings) + 1) > empty)
            new_place[empty + 1] = 0
            strings, places = strings.filter(pc.not_equal(strings, "")), new_place[places]
        vectors = np.zeros((len(strings) + 1, self.size), dtype=np.float32)
        first = 1 if known is None else len(known)
        if known is not None:
            vectors[:first] = known
        vectors[first:] = embed(self.embedder, strings.slice(first - 1).to_pylist())
        return Encoded((places, vectors))


Column = NumberColumn | CategoryColumn | MulticategoryColumn | DateColumn | TextColumn
COLUMN_CLASSES: dict[str, type[Any]] = {
    column.kind: column
    for column in (NumberColumn, CategoryColumn, MulticategoryColumn, DateColumn, TextColumn)
}


def fit_column(kind: ColumnKind, cells: Cells, embedder: Embedder) -> Column:
    """Learns what there is to learn of a column of this kind from these cells."""
    match kind.kind:
        case "number":
            return NumberColumn.fit(cells)
        case "category":
            return CategoryColumn(_vocabulary(*cells.counts), cells.family)
        case "multicategory":
            return MulticategoryColumn.fit(cells, kind.separator)
        case "time":
            return DateColumn.fit(cells)
    return TextColumn(embedder.fit([text for text in cells.counts[0].to_pylist() if text]))


def _vocabulary(values: pa.Array, counts: NDArray[Any]) -> tuple[Value, ...]:
    """Returns the most frequent values, those of the same number in their own order."""
    table = pa.table({"value": values, "count": counts})
    order = pc.sort_indices(table, sort_keys=[("count", "descending"), ("value", "ascending")])
    return tuple(map(_plain, values.take(order[:MOST_VALUES]).to_pylist()))


def _plain(value: Value) -> Value:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _unseen(values: pa.Array | pa.ChunkedArray, codes: NDArray[np.int32]) -> tuple[Value, ...]:
    """Returns the first values that the vocabulary does not have."""
    is_unseen = codes == UNSEEN
    first = values.filter(pa.array(is_unseen)).unique()[:3].to_pylist() if is_unseen.any() else []
    return tuple(map(_plain, first))


def _distinct(column: pa.ChunkedArray) -> tuple[pa.Array, NDArray[np.int32]]:
    """Returns the distinct texts by their first rows, and each row's place: 0 if absent, else from 1."""
    chunks = column.dictionary_encode().unify_dictionaries().chunks
    if not chunks:
        return pa.array([], column.type), np.empty(0, dtype=np.int32)
    places = np.concatenate([as_numpy(pc.fill_null(chunk.indices, -1)) for chunk in chunks])
    return chunks[0].dictionary, places.astype(np.int32) + np.int32(1)
