"""The cells of a column as features see them: what is absent, infinite or too long is settled here.

A cell that is null or NaN is absent. So is an infinite number, which is counted, and a list without parts.
Text is cut after `MOST_LETTERS` letters, which is counted too. -0.0 is 0.0.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from quartet.causal import visible
from quartet.database import Table, canonical, is_plain

# What a type can hold, whatever its width: a column must stay in its family from training to prediction.
Family = Literal["number", "truth", "time", "text", "number list", "text list", "nothing", "other"]
Numbers = NDArray[Any]

MOST_LETTERS = 8192


def family_of(kind: pa.DataType) -> Family:
    """The family of a canonical type."""
    if pa.types.is_null(kind):
        return "nothing"
    if not is_plain(kind):
        return "other"
    if pa.types.is_nested(kind):
        return _list_family(kind.value_type)
    if pa.types.is_boolean(kind):
        return "truth"
    if pa.types.is_timestamp(kind):
        return "time"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "text"
    return "number" if pa.types.is_integer(kind) or pa.types.is_floating(kind) else "other"


def _list_family(part: pa.DataType) -> Family:
    """A list type has its parts as the source gave them: a column of such parts shows what becomes of them."""
    canonical_part = canonical(pa.table({"part": pa.nulls(0, part)}))["part"].type
    family = family_of(canonical_part)
    return "nothing" if family == "nothing" else "text list" if family == "text" else "number list"


@dataclass(frozen=True, eq=False)
class Cells:
    """A column in which only what is absent is null, and how many cells were changed for that."""

    data: pa.ChunkedArray
    family: Family
    num_infinite: int = 0
    num_cut: int = 0

    def __len__(self) -> int:
        return len(self.data)

    @property
    def is_list(self) -> bool:
        return self.family.endswith("list")

    @cached_property
    def num_filled(self) -> int:
        if self.is_list:
            return int(np.count_nonzero(np.diff(self.parts[0])))
        return len(self.data) - int(self.data.null_count)

    @property
    def num_absent(self) -> int:
        return len(self) - self.num_filled

    @cached_property
    def is_constant(self) -> bool:
        """Whether every cell is filled, and all with the same."""
        if self.num_absent or not len(self):
            return False
        if self.is_list:
            return _all_lists_equal(*self.parts)
        ends = pc.min_max(self.data)
        return bool(ends["min"] == ends["max"])

    @cached_property
    def sorted(self) -> Numbers:
        """The filled cells of a column of numbers, in order: sums over them do not depend on that of the rows."""
        return np.sort(as_numpy(self.data.drop_null()))

    @cached_property
    def is_whole(self) -> bool:
        """Whether there are only whole numbers: with absent cells they often arrive as decimals."""
        return bool(self.sorted.dtype.kind == "i" or (np.floor(self.sorted) == self.sorted).all())

    @cached_property
    def num_distinct(self) -> int:
        if self.family == "number":
            return int(np.count_nonzero(np.diff(self.sorted))) + bool(len(self.sorted))
        return len(self.counts[0])

    @cached_property
    def counts(self) -> tuple[pa.Array, NDArray[np.int64]]:
        """The distinct filled values (the parts, of lists), and how often each stands there."""
        values = self.parts[1] if self.is_list else self.data
        found = pc.value_counts(values.drop_null())
        return found.field("values"), as_numpy(found.field("counts"))

    @cached_property
    def parts(self) -> tuple[NDArray[np.int64], pa.Array]:
        """Of a column of lists: the first part of each row (and the end), and the parts."""
        return parts_of(self.data)


def cells_of(column: pa.ChunkedArray) -> Cells:
    """The cells of a canonical column."""
    if pa.types.is_floating(column.type):
        return _decimals(column)
    family = family_of(column.type)
    if family == "nothing":  # a column of nulls, or of lists of nothing
        column = pa.chunked_array([pa.nulls(len(column))])
    return _text(column) if family == "text" else Cells(column, family)


def _decimals(column: pa.ChunkedArray) -> Cells:
    numbers = as_numpy(column) + 0.0
    finite = np.isfinite(numbers)
    data = pa.chunked_array([pa.array(numbers, mask=None if finite.all() else ~finite)])
    return Cells(data, "number", num_infinite=int(np.isinf(numbers).sum()))


def _text(column: pa.ChunkedArray) -> Cells:
    if (pc.max(pc.binary_length(column)).as_py() or 0) <= MOST_LETTERS:
        return Cells(column, "text")
    num_cut = pc.sum(pc.greater(pc.utf8_length(column), MOST_LETTERS)).as_py()
    return Cells(pc.utf8_slice_codeunits(column, 0, MOST_LETTERS), "text", num_cut=num_cut)


def visible_cells(table: Table, columns: Iterable[str], upto: int) -> dict[str, Cells]:
    """The cells of some columns in the rows that are known at a time, and no others."""
    known = visible(table.known_at, upto)
    data = table.data.select(list(columns))
    data = data if known.all() else data.filter(pa.array(known))
    return {name: cells_of(data[name]) for name in data.column_names}


def parts_of(lists: pa.ChunkedArray) -> tuple[NDArray[np.int64], pa.Array]:
    """Where the parts of each list start (and the last one ends), and all parts: whole numbers or text."""
    parts = canonical(pa.table({"part": pc.list_flatten(lists)}))["part"]
    parts = parts.cast(pa.int64()) if pa.types.is_boolean(parts.type) else parts
    return _filled_parts(lists, parts.combine_chunks())


def split_parts(strings: pa.Array, separator: str) -> tuple[NDArray[np.int64], pa.Array]:
    """The same for text whose parts a separator keeps apart; spaces around a part do not count."""
    lists = pc.split_pattern(strings, separator)
    parts = pc.utf8_trim_whitespace(pc.list_flatten(lists))
    return _filled_parts(lists, pc.if_else(pc.equal(parts, ""), None, parts))


def _filled_parts(lists: pa.Array, parts: pa.Array) -> tuple[NDArray[np.int64], pa.Array]:
    length = as_numpy(pc.fill_null(pc.list_value_length(lists), 0)).astype(np.int64)
    if parts.null_count:
        row = np.repeat(np.arange(len(length)), length)
        length = np.bincount(row[as_numpy(parts.is_valid())], minlength=len(length))
        parts = parts.drop_null()
    return np.concatenate([[0], np.cumsum(length)]), parts


def _all_lists_equal(start: NDArray[np.int64], parts: pa.Array) -> bool:
    lengths = np.diff(start)
    if (lengths != lengths[0]).any():
        return False
    codes = as_numpy(parts.dictionary_encode().indices).reshape(len(lengths), -1)
    return bool((codes == codes[0]).all())


def as_numpy(values: pa.Array | pa.ChunkedArray) -> NDArray[Any]:
    """The values as numpy has them: NaN for an absent number."""
    return np.asarray(values.to_numpy(zero_copy_only=False))
