"""Segments in words: the columns in which the members of a group differ most from all others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from quartet.features import ColumnWords, column_words
from quartet.tasks import Seeds
from quartet.training import View

_DESCRIBED = 20_000  # entities by which segments are described, spread among all
_MOST_WORDS = 3  # columns that are named of a segment
_FEWEST_APART = 0.3  # deviations by which a column must differ to be named
_MOST_ALIKE = 0.8  # the correlation of two columns of which one is enough

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def segment_table(view: View, seeds: Seeds, group: Ints, time: Any) -> pa.Table:
    count = int(group.max(initial=-1)) + 1
    words = segment_words(view, seeds, group)
    sizes = np.bincount(group, minlength=count)
    return pa.table(
        {
            "segment": pa.array(np.arange(1, count + 1)),
            "time": time.take(pa.array(np.zeros(count, np.int64))) if count else time,
            "entities": pa.array(sizes),
            "share": pa.array(sizes / max(1, len(group))),
            "common": pa.array(["; ".join(words[number]) for number in range(count)], pa.string()),
        }
    )


def segment_words(view: View, seeds: Seeds, group: Ints) -> dict[int, list[str]]:
    """Returns of each group in words the columns of its members' own rows and linked ones that differ most from others.

    A difference is one of means, in deviations of all; of categories it is that of the shares with one value.
    """
    some = np.unique(np.linspace(0, max(0, len(seeds) - 1), _DESCRIBED).astype(np.int64))[: len(seeds)]
    told = column_words(view.columns)
    near = view.columns.near
    names = tuple(n for n in view.columns.names if n in near and n in told and not told[n].is_shared)
    asked = Seeds(seeds.node[some], seeds.time[some], None)
    matrix, of = view.matrix(asked, names).astype(np.float64), group[some]
    found = {}
    for number in range(int(group.max(initial=-1)) + 1):
        inside = of == number
        apart: list[_Apart] = []
        if inside.any() and not inside.all():
            apart = [
                one
                for place, name in enumerate(names)
                if (one := _apart(told[name], matrix[:, place], inside))
            ]
        named: list[_Apart] = []
        for one in sorted(apart, key=lambda one: (-one.far, one.words)):
            if one.far < _FEWEST_APART or len(named) == _MOST_WORDS:
                break
            if all(abs(np.mean(one.scaled * other.scaled)) < _MOST_ALIKE for other in named):
                named.append(one)
        found[number] = [one.words for one in named]
    return found


@dataclass(frozen=True, eq=False)
class _Apart:
    """By how many deviations a column sets a group apart from all others, and how that is said."""

    far: float
    words: str
    scaled: Floats  # its values, 0 on average and with a deviation of 1


def _apart(words: ColumnWords, values: Floats, inside: NDArray[np.bool_]) -> _Apart | None:
    known = np.isfinite(values)
    if words.names:  # how many have the value that is commonest inside
        code = np.where(known, values, 0).astype(np.int64)
        value = int(np.bincount(code[inside]).argmax())
        known, told = np.ones_like(known), (code == value).astype(np.float64)
    elif (known & inside).any() and (known & ~inside).any():
        told = np.clip(values, *np.quantile(values[known], (0.01, 0.99)))
    else:
        return None
    spread = float(told[known].std())
    mine, theirs = float(told[known & inside].mean()), float(told[known & ~inside].mean())
    if spread <= 0 or (words.names and mine <= theirs):
        return None
    text = f"{words.words}: {words.show(mine)} on average, of the others {words.show(theirs)}"
    if words.names:
        text = f"{words.words}: {words.show(value)} ({mine:.0%}, of the others {theirs:.0%})"
    middle = float(told[known].mean())
    return _Apart(
        abs(mine - theirs) / spread * float(known[inside].mean()),
        text,
        np.where(known, (told - middle) / spread, 0.0),
    )
