"""The cells of a column as features see them: what is absent, infinite or too long is settled here.

A cell that is null or NaN is absent. So is an infinite number, which is counted, and a list without parts.
Text is cut after `MOST_LETTERS` letters, which is counted too. -0.0 is 0.0.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from quartet.causal import visible
from quartet.database import Table, canonical, is_plain
from quartet.features.arrays import Kind

# What a type can hold, whatever its width: a column must stay in its family from training to prediction.
Family = Literal["number", "truth", "time", "text", "number list", "text list", "nothing", "other"]


class FamilyFacts(NamedTuple):
    words: str  # as messages name it
    kinds: tuple[Kind, ...] = ()  # those that its columns can be
    type: pa.DataType | None = None  # of a column without a value


FAMILIES: dict[Family, FamilyFacts] = {
    "number": FamilyFacts("numbers", ("number", "category"), pa.float64()),
    "truth": FamilyFacts("truth values", ("category",), pa.bool_()),
    "time": FamilyFacts("timestamps", ("time",), pa.timestamp("ns")),
    "text": FamilyFacts("text", ("category", "multicategory", "text"), pa.string()),
    "number list": FamilyFacts("lists of whole numbers", ("multicategory",), pa.list_(pa.int64())),
    "text list": FamilyFacts("lists of text", ("multicategory",), pa.list_(pa.string())),
    "nothing": FamilyFacts("no value"),
    "other": FamilyFacts("nested or binary values"),
}
Parts = tuple[
    NDArray[np.int64], pa.Array
]  # where the parts of each row start (and the last one ends), all parts

MOST_LETTERS = 8192


def family_of(kind: pa.DataType) -> Family:
    """Returns the family of a canonical type."""
    types = pa.types
    if types.is_null(kind):
        return "nothing"
    if not is_plain(kind):
        return "other"
    if types.is_nested(
        kind
    ):  # the parts are as the source gave them; a column of them shows what they become
        part = family_of(canonical(pa.table({"part": pa.nulls(0, kind.value_type)}))["part"].type)
        return "nothing" if part == "nothing" else "text list" if part == "text" else "number list"
    if types.is_boolean(kind):
        return "truth"
    if types.is_timestamp(kind):
        return "time"
    if types.is_string(kind) or types.is_large_string(kind):
        return "text"
    return "number" if types.is_integer(kind) or types.is_floating(kind) else "other"


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

    @cached_property
    def is_constant(self) -> bool:
        """Whether every cell is filled, and all with the same."""
        if self.num_filled < len(self) or not len(self):
            return False
        if self.is_list:
            lengths = np.diff(self.parts[0])
            if (lengths != lengths[0]).any():
                return False
            codes = as_numpy(self.parts[1].dictionary_encode().indices).reshape(len(lengths), -1)
            return bool((codes == codes[0]).all())
        ends = pc.min_max(self.data)
        return bool(ends["min"] == ends["max"])

    @cached_property
    def sorted(self) -> NDArray[Any]:
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
        counted = pc.value_counts(values.drop_null())
        return counted.field("values"), as_numpy(counted.field("counts"))

    @cached_property
    def parts(self) -> Parts:
        """The parts of a column of lists: whole numbers or text."""
        parts = canonical(pa.table({"part": pc.list_flatten(self.data)}))["part"]
        parts = parts.cast(pa.int64()) if pa.types.is_boolean(parts.type) else parts
        return _filled_parts(self.data, parts.combine_chunks())


def cells_of(column: pa.ChunkedArray) -> Cells:
    """Returns the cells of a canonical column."""
    if pa.types.is_floating(column.type):
        numbers = as_numpy(column) + 0.0
        finite = np.isfinite(numbers)
        data = pa.chunked_array([pa.array(numbers, mask=None if finite.all() else ~finite)])
        return Cells(data, "number", num_infinite=int(np.isinf(numbers).sum()))
    family = family_of(column.type)
    if family == "nothing":  # a column of nulls, or of lists of nothing
        column = pa.chunked_array([pa.nulls(len(column))])
    if family != "text" or (pc.max(pc.binary_length(column)).as_py() or 0) <= MOST_LETTERS:
        return Cells(column, family)
    num_cut = pc.sum(pc.greater(pc.utf8_length(column), MOST_LETTERS)).as_py()
    return Cells(pc.utf8_slice_codeunits(column, 0, MOST_LETTERS), "text", num_cut=num_cut)


def visible_cells(table: Table, columns: Iterable[str], cutoff: int) -> dict[str, Cells]:
    """Returns the cells of some columns in the rows that are known at a time, and no others."""
    known = visible(table.known_at, cutoff)
    data = table.data.select(list(columns))
    data = data if known.all() else data.filter(pa.array(known))
    return {name: cells_of(data[name]) for name in data.column_names}


def split_parts(strings: pa.Array, separator: str) -> Parts:
    """Returns the parts of texts that a separator keeps apart; spaces around a part do not count."""
    lists = pc.split_pattern(strings, separator)
    parts = pc.utf8_trim_whitespace(pc.list_flatten(lists))
    return _filled_parts(lists, pc.if_else(pc.equal(parts, ""), None, parts))


def _filled_parts(lists: pa.Array, parts: pa.Array) -> Parts:
    length = as_numpy(pc.fill_null(pc.list_value_length(lists), 0)).astype(np.int64)
    if parts.null_count:
        row = np.repeat(np.arange(len(length)), length)
        length = np.bincount(row[as_numpy(parts.is_valid())], minlength=len(length))
        parts = parts.drop_null()
    return np.concatenate([[0], np.cumsum(length)]), parts


def as_numpy(values: pa.Array | pa.ChunkedArray) -> NDArray[Any]:
    """Returns the values as numpy has them: NaN for an absent number."""
    return np.asarray(values.to_numpy(zero_copy_only=False))
