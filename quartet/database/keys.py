"""Keys of any type (text, UUIDs, composite, sparse integers) as dense row numbers, and back.

A key column is brought to one of three kinds that can be compared exactly: integers, text and
times. Values are never compared through floating point, where two keys above 2^53 may fall together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from quartet.database.columns import ENDING_ZEROS, is_binary
from quartet.errors import SchemaError, examples

_Kind = Literal["int64", "text", "time"]
NULL_KEY = -1
NO_SUCH_KEY = -2
_EXACT_FLOAT = 2.0**53
_DENSE_RANGE = 4  # a lookup table may have this many slots for each key


@dataclass(frozen=True)
class KeyColumn:
    """One column of a key in its exact, comparable form."""

    where: str
    kind: _Kind
    values: pa.ChunkedArray

    @staticmethod
    def of(column: pa.ChunkedArray, where: str) -> KeyColumn:
        kind = column.type
        if pa.types.is_dictionary(kind):
            return KeyColumn.of(column.cast(kind.value_type), where)
        if pa.types.is_nested(kind):
            raise SchemaError("S08", f"{where} is a {kind}, which cannot be a key", "choose another column")
        if pa.types.is_floating(kind):
            return KeyColumn(where, "int64", _whole_numbers(column, where))
        if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind):
            try:
                return KeyColumn(where, "int64", column.cast(pa.int64()))
            except pa.ArrowInvalid:
                raise SchemaError(
                    "S17", f"{where} holds keys of 2^63 and above", "declare the column as text"
                ) from None
        if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
            # As text without trailing zeros a time is exact, whatever its unit, and in any year.
            unit = "s" if pa.types.is_date(kind) else kind.unit
            text = column.cast(pa.timestamp(unit)).cast(pa.string())
            return KeyColumn(where, "time", pc.replace_substring_regex(text, ENDING_ZEROS, r"\1"))
        if is_binary(kind):
            digits = [None if cell is None else cell.hex() for cell in column.to_pylist()]
            return KeyColumn(where, "text", pa.chunked_array([digits], type=pa.string()))
        return KeyColumn(where, "text", column.cast(pa.string()))


def _whole_numbers(column: pa.ChunkedArray, where: str) -> pa.ChunkedArray:
    """Returns integers that arrived as decimals (a nullable integer often does), if no digit was lost."""
    lost = column.filter(pc.and_(pc.greater_equal(pc.abs(column), _EXACT_FLOAT), pc.is_finite(column)))
    if len(lost):
        raise SchemaError(
            "S18",
            f"{where} was read as decimal and lost digits near {lost[0].as_py():.0f}",
            "declare it int64 or text",
        )
    column = pc.if_else(pc.is_nan(column), None, column)
    try:
        return column.cast(pa.int64())
    except pa.ArrowInvalid:
        broken = column.filter(pc.or_(pc.not_equal(pc.floor(column), column), pc.is_inf(column)))
        raise SchemaError(
            "S08",
            f"{where} is a decimal column with {len(broken):,} values that are not whole "
            f"{examples(v.as_py() for v in broken)} and cannot be a key",
            "choose another column",
        ) from None


def rows_named(columns: Sequence[KeyColumn], known: KeyMap) -> NDArray[np.int64]:
    """Returns the row that each of the keys names, `NULL_KEY` or `NO_SUCH_KEY`; keys of another kind are refused.

    An empty column or table may arrive with any type; then nothing matches.
    """
    num_known = len(known.columns[0].values)
    for column, key in zip(columns, known.columns, strict=True):
        if column.kind != key.kind and column.values.null_count < len(column.values) and num_known:
            raise SchemaError(
                "S08", f"{column.where} is {column.kind}, {key.where} is {key.kind}", "cast one"
            )
    if tuple(column.kind for column in columns) == known.kinds:
        return known.rows(columns)
    filled = np.logical_and.reduce([column.values.is_valid().to_numpy() for column in columns])
    return np.where(filled, NO_SUCH_KEY, NULL_KEY)


class KeyMap:
    """Maps the key values of a table to its row numbers, exactly, for any kind of key."""

    def __init__(self, columns: Sequence[KeyColumn]) -> None:
        self.columns = tuple(columns)
        self.kinds = tuple(column.kind for column in columns)
        self._parts = [pc.unique(column.values) for column in columns[:-1]]
        self._values = self._combined(columns)

    def rows(self, columns: Sequence[KeyColumn]) -> NDArray[np.int64]:
        """Returns the row of each key: `NULL_KEY` where a part is empty, `NO_SUCH_KEY` where none matches."""
        wanted, known = self._combined(columns), self._values
        if pa.types.is_integer(known.type) and len(known) and not known.null_count:
            low, high = (bound.as_py() for bound in pc.min_max(known).values())
            if high - low < _DENSE_RANGE * len(known) + 1024:
                slots = np.full(high - low + 2, NO_SUCH_KEY, dtype=np.int64)
                slots[known.to_numpy() - low] = np.arange(len(known))
                values = pc.fill_null(wanted, low).to_numpy()
                inside = (values >= low) & (values <= high)
                found: NDArray[np.int64] = slots[np.where(inside, values - low, high - low + 1)]
                found[pc.is_null(wanted).to_numpy()] = NULL_KEY
                return found
        places = pc.fill_null(pc.index_in(wanted, known), NO_SUCH_KEY).cast(pa.int64())
        return np.array(pc.if_else(pc.is_null(wanted), NULL_KEY, places).to_numpy(), dtype=np.int64)

    def repeated(self) -> tuple[int, list[str]]:
        """Returns how many key values stand in more than one row, and the first few of them."""
        values = self._values.drop_null()  # empty cells are no keys, however many there are
        if _are_distinct(values):
            return 0, []
        counts = pc.value_counts(values)
        values = counts.field(0).filter(pc.greater(counts.field(1), 1))
        first = pc.index_in(values.slice(0, 3), self._values).to_pylist()
        return len(values), [self.show(row) for row in first]

    def show(self, row: int) -> str:
        """Returns the key of a row as people would write it."""
        parts = [str(column.values[row].as_py()) for column in self.columns]
        return parts[0] if len(parts) == 1 else "(" + ", ".join(parts) + ")"

    def _combined(self, columns: Sequence[KeyColumn]) -> pa.ChunkedArray:
        """Returns one value for each row: the column itself, or the exact code of several columns.

        A composite key (a, b) becomes the text "<number of a among the known a's>:<b>", which is
        exact: the number holds no colon.
        """
        if len(columns) == 1:
            return columns[0].values
        codes = [pc.index_in(c.values, known) for c, known in zip(columns, self._parts, strict=False)]
        texts = [code.cast(pa.string()) for code in codes] + [columns[-1].values.cast(pa.string())]
        # An unknown first part gives a null code; it must read "no such key", not "empty".
        known = pc.binary_join_element_wise(*[pc.fill_null(t, "?") for t in texts], ":")
        return pc.if_else(reduce(pc.or_, [pc.is_null(c.values) for c in columns]), None, known)


def _are_distinct(values: pa.ChunkedArray) -> bool:
    """Returns whether no value stands there twice; numbers that lie close together are marked off, which is faster."""
    if len(values) and pa.types.is_integer(values.type):
        low, high = (bound.as_py() for bound in pc.min_max(values).values())
        if high - low < _DENSE_RANGE * len(values) + 1024:
            seen = np.zeros(high - low + 1, bool)
            for chunk in values.chunks:
                seen[chunk.to_numpy() - low] = True
            return int(seen.sum()) == len(values)
    return bool(pc.count_distinct(values).as_py() == len(values))
