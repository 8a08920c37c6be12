"""Keys of any type (text, UUIDs, composite, sparse integers) as dense row numbers, and back.

A key column is brought to one of three kinds that can be compared exactly: integers, text and
times. Values are never compared through floating point, where two keys above 2^53 may fall together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from quartet.database.columns import ENDING_ZEROS, is_binary
from quartet.errors import SchemaError, examples

Kind = Literal["int64", "text", "time"]
NULL_KEY = -1
NO_SUCH_KEY = -2
_EXACT_FLOAT = 2.0**53
_DENSE_RANGE = 4  # a lookup table may have this many slots for each key


@dataclass(frozen=True)
class KeyColumn:
    """One column of a key in its exact, comparable form."""

    where: str
    kind: Kind
    values: pa.ChunkedArray

    @staticmethod
    def of(column: pa.ChunkedArray, where: str) -> KeyColumn:
        kind, values = _comparable(column, where)
        return KeyColumn(where, kind, values)

    def show(self, row: int) -> str:
        return str(self.values[row].as_py())


def _comparable(column: pa.ChunkedArray, where: str) -> tuple[Kind, pa.ChunkedArray]:
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _comparable(column.cast(kind.value_type), where)
    if pa.types.is_null(kind):
        return "int64", column.cast(pa.int64())
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return _integers(column, where)
    if pa.types.is_floating(kind):
        return "int64", _whole_numbers(column, where)
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return "time", _instants(column)
    if is_binary(kind):
        return "text", _hex(column)
    if pa.types.is_nested(kind):
        raise SchemaError("S08", f"{where} is a {kind}, which cannot be a key", "choose another column")
    return "text", column.cast(pa.string())


def _integers(column: pa.ChunkedArray, where: str) -> tuple[Kind, pa.ChunkedArray]:
    try:
        return "int64", column.cast(pa.int64())
    except pa.ArrowInvalid:
        raise SchemaError(
            "S17", f"{where} holds keys of 2^63 and above", "declare the column as text"
        ) from None


def _whole_numbers(column: pa.ChunkedArray, where: str) -> pa.ChunkedArray:
    """Integers that arrived as decimals (a nullable integer often does), if nothing was lost."""
    size = pc.abs(column)
    lost = column.filter(pc.and_(pc.greater_equal(size, _EXACT_FLOAT), pc.is_finite(column)))
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


def _instants(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Times as text without trailing zeros: exact, whatever the unit, and for any year."""
    unit = "s" if pa.types.is_date(column.type) else column.type.unit
    text = column.cast(pa.timestamp(unit)).cast(pa.string())
    return pc.replace_substring_regex(text, ENDING_ZEROS, r"\1")


def _hex(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pa.chunked_array(
        [[None if cell is None else cell.hex() for cell in column.to_pylist()]], type=pa.string()
    )


class KeyMap:
    """The map from the key values of a table to its row numbers, exact for any kind of key."""

    def __init__(self, columns: Sequence[KeyColumn]) -> None:
        self.columns = tuple(columns)
        self.kinds = tuple(column.kind for column in columns)
        self._parts = [pc.unique(column.values) for column in columns[:-1]]
        self._values = self._combined(columns)

    @property
    def num_rows(self) -> int:
        return len(self.columns[0].values)

    def rows(self, columns: Sequence[KeyColumn]) -> NDArray[np.int64]:
        """The row of each key; `NULL_KEY` where a part is empty, `NO_SUCH_KEY` where none matches."""
        return _find(self._combined(columns), self._values)

    def repeated(self) -> tuple[int, list[str]]:
        """How many key values stand in more than one row, and the first few of them."""
        values = self._values.drop_null()  # empty cells are no keys, however many there are
        if pc.count_distinct(values).as_py() == len(values):
            return 0, []
        counts = pc.value_counts(values)
        values = counts.field(0).filter(pc.greater(counts.field(1), 1))
        first = pc.index_in(values.slice(0, 3), self._values).to_pylist()
        return len(values), [self.show(row) for row in first]

    def show(self, row: int) -> str:
        """The key of a row as people would write it."""
        parts = [column.show(row) for column in self.columns]
        return parts[0] if len(parts) == 1 else "(" + ", ".join(parts) + ")"

    def _combined(self, columns: Sequence[KeyColumn]) -> pa.ChunkedArray:
        """One value for each row: the column itself, or the exact code of several columns.

        A composite key (a, b) becomes the text "<number of a among the known a's>:<b>", which is
        exact: the number holds no colon.
        """
        if len(columns) == 1:
            return columns[0].values
        codes = [pc.index_in(c.values, known) for c, known in zip(columns, self._parts, strict=False)]
        texts = [code.cast(pa.string()) for code in codes] + [columns[-1].values.cast(pa.string())]
        # An unknown first part gives a null code; it must read "no such key", not "empty".
        known = pc.binary_join_element_wise(*[pc.fill_null(t, "?") for t in texts], ":")
        return pc.if_else(_any_null(columns), None, known)


def _any_null(columns: Sequence[KeyColumn]) -> pa.ChunkedArray:
    empty = pc.is_null(columns[0].values)
    for column in columns[1:]:
        empty = pc.or_(empty, pc.is_null(column.values))
    return empty


def _find(wanted: pa.ChunkedArray, known: pa.ChunkedArray) -> NDArray[np.int64]:
    if pa.types.is_integer(known.type) and len(known) and not known.null_count:
        low, high = (bound.as_py() for bound in pc.min_max(known).values())
        if high - low < _DENSE_RANGE * len(known) + 1024:
            return _find_dense(wanted, known, low, high)
    found = pc.fill_null(pc.index_in(wanted, known), NO_SUCH_KEY)
    return _rows(pc.if_else(pc.is_null(wanted), NULL_KEY, found.cast(pa.int64())))


def _find_dense(wanted: pa.ChunkedArray, known: pa.ChunkedArray, low: int, high: int) -> NDArray[np.int64]:
    slots = np.full(high - low + 2, NO_SUCH_KEY, dtype=np.int64)
    slots[known.to_numpy() - low] = np.arange(len(known))
    is_null = pc.is_null(wanted).to_numpy() if wanted.null_count else None
    values = pc.fill_null(wanted, low).to_numpy()
    inside = (values >= low) & (values <= high)
    rows = slots[np.where(inside, values - low, high - low + 1)]
    if is_null is not None:
        rows[is_null] = NULL_KEY
    return rows


def _rows(found: pa.ChunkedArray) -> NDArray[np.int64]:
    return np.array(found.to_numpy(), dtype=np.int64)
