"""Evidence from the values of a column: their kind, whether they are unique, and which keys they hold.

Everything is worked out when it is first needed, because most columns are never looked at.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from quartet.database.columns import canonical, is_text
from quartet.database.inference.names import Words
from quartet.database.schema import Fact

ACCEPT = 0.7  # a fact this sure is used
LIST = 0.4  # a fact this sure is shown to the user

_Kind = Literal["integer", "text", "binary", "time", "other"]
_HEAD = 2000
_EXACT_FLOAT = 2.0**53
_LETTERS = {"A": 26, "a": 26, "9": 10}


@dataclass(frozen=True)
class Possible:
    """A fact that the data suggest, for the user to look at. `target` is the table of a link."""

    table: str
    fact: Fact
    columns: tuple[str, ...]
    target: str | None
    confidence: float
    why: str
    reading: str = ""  # what the schema file has to say besides, so that the values can be read

    @property
    def may_be_time(self) -> bool:
        """Whether the name of a time does not say that it is of something other than the row, or of a later step."""
        return "something other" not in self.why and "a later step" not in self.why

    def line_for_all(self, others: Iterable[Possible]) -> str:
        """The line of the schema file that dates every table with such a column; its own `line`, if it is alone."""
        alike = {
            p.table
            for p in others
            if (p.fact, p.columns, p.reading) == (self.fact, self.columns, self.reading)
        }
        if self.fact != "time_col" or len(alike) < 2:
            return self.line
        return f"times: {{{self.columns[0]}: {{{self.reading}}}}}"

    @property
    def line(self) -> str:
        """The line of the schema file that settles it as true."""
        column = ", ".join(self.columns)
        fact = f"fkeys: {{{column}: {self.target}}}" if self.target else f"{self.fact}: {column}"
        return f"tables: {{{self.table}: {{{', '.join(filter(None, (fact, self.reading)))}}}}}"


@dataclass(frozen=True, eq=False)
class Column:
    """One column with its name taken apart. Missing cells, NaN included, are never counted as values."""

    table: str
    name: str
    position: int
    words: Words
    raw: pa.ChunkedArray

    @property
    def num_rows(self) -> int:
        return len(self.raw)

    @property
    def label(self) -> str:
        return f"{self.table}.{self.name}"

    @cached_property
    def kind(self) -> _Kind:
        """The values with which these can be compared; whole numbers kept as decimals are integers."""
        if pa.types.is_duration(self.raw.type):
            return "other"
        kind = self._canonical.type
        if pa.types.is_integer(kind):
            return "integer"
        if pa.types.is_floating(kind):
            parts = (self._canonical.slice(0, _HEAD), self._canonical)  # the head alone settles most columns
            return "integer" if all(_are_whole(part.drop_null().to_numpy()) for part in parts) else "other"
        if is_text(kind):
            return "text"
        if pa.types.is_timestamp(kind):
            return "time"
        return "binary" if pa.types.is_fixed_size_binary(kind) else "other"

    @cached_property
    def _canonical(self) -> pa.ChunkedArray:
        return canonical(pa.table([self.raw], names=[self.name])).column(0)

    @cached_property
    def cells(self) -> pa.ChunkedArray:
        """The values that are there, in row order."""
        cells = self._canonical.drop_null() if self._canonical.null_count else self._canonical
        if self.kind == "integer" and pa.types.is_floating(cells.type):
            return cells.filter(pc.is_finite(cells)).cast(pa.int64())
        return cells

    @property
    def num_missing(self) -> int:
        return self.num_rows - len(self.cells)

    @cached_property
    def distinct(self) -> Any:
        """The distinct values: a sorted NumPy array of integers, or an Arrow array of anything else."""
        if self.kind != "integer":
            return pc.unique(self.cells)
        values = np.sort(self.cells.to_numpy())
        return values[np.diff(values, prepend=values[:1] - 1) != 0]

    @cached_property
    def is_unique(self) -> bool:
        """Whether every row has a value and no two have the same, by all rows."""
        if self.num_rows == 0 or self._canonical.null_count:
            return False
        if len(pc.unique(self._canonical.slice(0, _HEAD))) < min(self.num_rows, _HEAD):
            return False
        return len(self.distinct) == self.num_rows

    @cached_property
    def code_shapes(self) -> Counter[str]:
        """How often each shape (AA999) occurs in a sample of a text column; empty unless they are codes."""
        sample = set(self.sample()) if self.kind == "text" else set()
        codes = sum(map(_is_code, sample))
        return Counter(map(_shape, sample)) if codes and codes >= 0.95 * len(sample) else Counter()

    def sample(self, size: int = 1000) -> list[Any]:
        """Returns up to `size` values, evenly spread over the rows."""
        places = np.unique(np.linspace(0, max(len(self.cells) - 1, 0), size).astype(np.int64))
        return [self.cells[int(place)].as_py() for place in places] if len(self.cells) else []


def _are_whole(values: NDArray[np.float64]) -> bool:
    values = values[~np.isnan(values)]
    return bool(np.all((np.abs(values) < _EXACT_FLOAT) & (values == np.floor(values))))


def share_held(column: Column, key: Column) -> float:
    """Returns the share of the column's distinct values that are values of the key, by all of them."""
    values, keys = column.distinct, key.distinct
    if len(values) == 0 or len(keys) == 0:
        return 0.0
    if column.kind != "integer":
        return float(pc.sum(pc.is_in(values, value_set=keys.cast(values.type))).as_py() / len(values))
    places = np.minimum(np.searchsorted(keys, values), len(keys) - 1)
    return float(np.mean(keys[places] == values))


def chance_of_share(column: Column, key: Column) -> float:
    """Returns how likely it is that integers drawn at random from the column's range would all be keys too.

    Near 1 where keys are numbered 1..n: there, being a key proves nothing.
    """
    values, keys = column.distinct, key.distinct
    if len(values) == 0:
        return 1.0
    low, high = int(values[0]), int(values[-1])
    inside = int(np.searchsorted(keys, high, side="right") - np.searchsorted(keys, low))
    return float((inside / (high - low + 1)) ** len(values))


def codes_held(column: Column, key: Column) -> float:
    """Returns the share of a text column's distinct values that are keys, or 0 where that proves nothing.

    Words may be shared by chance of meaning ("red", "Germany"), and short or few codes by chance
    alone: only codes of three characters and more count, if hitting keys by luck is unlikely.
    """
    if not column.code_shapes.keys() & key.code_shapes.keys() or _luck(column, key) > 1e-3:
        return 0.0
    sampled = pa.array(sorted(set(column.sample(200))), key.cells.type)
    found = pc.sum(pc.is_in(key.distinct, value_set=sampled)).as_py()
    if found < 0.5 * len(sampled) or len(column.distinct) < 3:
        return 0.0
    return share_held(column, key)


def _is_code(value: str) -> bool:
    has_letter, has_digit = any(map(str.isalpha, value)), any(map(str.isdigit, value))
    return (
        3 <= len(value) <= 64
        and not any(map(str.isspace, value))
        and has_letter
        and (has_digit or value.isupper())
    )


def _shape(value: str) -> str:
    return "".join("A" if c.isupper() else "a" if c.islower() else "9" if c.isdigit() else c for c in value)


def _luck(column: Column, key: Column) -> float:
    """Returns the chance that random codes of the column's shapes would all be keys."""
    keys_for_one = key.num_rows / key.code_shapes.total()
    log_luck = 0.0
    for shape, count in column.code_shapes.items():
        keys = max(key.code_shapes[shape], 0.5) * keys_for_one
        codes = sum(math.log(_LETTERS.get(char, 1)) for char in shape)
        log_luck += count * min(0.0, math.log(keys) - codes)
    return math.exp(max(log_luck, -700.0))
