"""ListBlock: what an entity's past lists of classes tell of each class: how often it was there, and how lately."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from quartet.causal import TimeRule
from quartet.features.arrays import FIRST_CODE
from quartet.features.paths import LAST, Path
from quartet.features.summed import TableCells, holds
from quartet.features.timeline import Ints
from quartet.tasks import KNOWN_LABELS, LABEL

MOST_CLASSES = 50  # the most frequent
NUM_LISTS = f"{KNOWN_LABELS} by entity: all"
LIST_WAYS = ("share of all", f"share of the last {LAST}", "units since")


def list_column(name: str) -> str:
    """Returns the column that tells the share of an entity's last lists that had a class."""
    return f"{KNOWN_LABELS} by entity -> {LABEL} has {name}: {LIST_WAYS[1]}"


@dataclass(frozen=True, eq=False)
class ListBlock:
    """For each class, the share of an entity's known lists that had it, of all and of the last twelve, and how many
    units of the path (horizons of the task) ago one that had it became known."""

    path: Path
    cells: TableCells
    label: str  # the column of lists

    @cached_property
    def classes(self) -> list[str]:
        column = self.cells.features.statistics.tables[self.path.table].of("multicategory")[self.label]
        return [str(value) for value in column.vocabulary[:MOST_CLASSES]]

    @cached_property
    def names(self) -> list[str]:
        return [
            f"{self.path.label} -> {self.label} has {name}: {way}"
            for name in self.classes
            for way in LIST_WAYS
        ]

    @cached_property
    def held(self) -> NDArray[np.bool_]:
        """Returns which lists have each class, in the order of the path: (classes, lists)."""
        cells = self.cells.features.tables[self.path.table]
        bags = cells.multicategories[cells.layout.multicategories.index(self.label)]
        held = np.empty((len(self.classes), len(self.path.shown)), bool)
        for number in range(len(held)):
            held[number] = holds(bags, FIRST_CODE + number)[self.path.shown] > 0
        return held

    def fill(self, rows: Ints, times: Ints, rule: TimeRule, out: NDArray[np.float32]) -> None:
        begin, recent, end = self.path.timeline.cuts(rows, times, (), (LAST,), rule).T
        there = np.flatnonzero(end > begin)
        begin, recent, end = begin[there], recent[there], end[there]
        for number, held in enumerate(self.held):
            so_far = np.concatenate([[0], np.cumsum(held)])  # whole numbers, so nothing of others is left
            latest = np.maximum.accumulate(np.where(held, np.arange(len(held)), -1))
            place = len(LIST_WAYS) * number
            for way, first in enumerate((begin, recent)):
                out[there, place + way] = (so_far[end] - so_far[first]) / (end - first)
            last = latest[end - 1]
            has = last >= begin
            ago = times[there[has]] - self.path.timeline.time[last[has]]
            out[there[has], place + 2] = ago / self.path.unit
