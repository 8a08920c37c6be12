"""The cells of a table as numbers that an encoder can read: only numpy, no torch.

Statistics decide what a value becomes. They are fitted once, on the rows visible at a cut-off, and kept with the
model (`statistics.py`): a row that comes later never changes the numbers of another row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Kind = Literal["number", "category", "multicategory", "time", "text"]

MISSING = 0  # the code of an absent cell: its embedding is zero
UNSEEN = 1  # the code of a value that the vocabulary does not have
FIRST_CODE = 2  # the code of the vocabulary's first value

CALENDAR = ("year", "month", "day", "weekday", "hour", "minute", "second")
NO_DATE = -1  # in every part of the calendar of an absent time


@dataclass(frozen=True)
class TableLayout:
    """What an encoder must know of a table: its columns by kind, and how large each is.

    The rows of a table without any feature differ by links and times alone.
    """

    name: str
    numbers: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    category_sizes: tuple[int, ...] = ()  # codes of each category, MISSING and UNSEEN included
    multicategories: tuple[str, ...] = ()
    multicategory_sizes: tuple[int, ...] = ()
    times: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    text_sizes: tuple[int, ...] = ()  # length of each text column's vectors

    @property
    def num_columns(self) -> int:
        return sum(map(len, (self.numbers, self.categories, self.multicategories, self.times, self.texts)))


@dataclass(frozen=True, eq=False)
class Bags:
    """One multi-category column: the codes of row i are `code[start[i] : start[i + 1]]`."""

    start: NDArray[np.int64]  # (N + 1,)
    code: NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class TableFeatures:
    """The N rows of one table; columns in the order of its layout."""

    layout: TableLayout
    numbers: NDArray[np.float32]  # (N, numbers) standardised; NaN where absent
    categories: NDArray[np.int32]  # (N, categories) codes
    multicategories: tuple[Bags, ...]  # one for each column
    calendar: NDArray[np.int16]  # (N, times, 7): years since the first, the other parts counted from 0
    texts: NDArray[np.int32]  # (N, texts) places among the column's vectors
    vectors: tuple[NDArray[np.float32], ...]  # for each text column (distinct + 1, size); place 0 is zero

    @property
    def num_rows(self) -> int:
        return len(self.numbers)


def rows_of(bags: Bags, rows: NDArray[Any]) -> Bags:
    """Returns the bags of some rows, in that order."""
    begin, end = bags.start[rows], bags.start[rows + 1]
    start = np.concatenate([[0], np.cumsum(end - begin)])
    place = np.arange(start[-1]) - np.repeat(start[:-1] - begin, end - begin)
    return Bags(start, bags.code[place])
