"""Paths of links that begin with the children of a row, and what the rows at their ends hold together.

Nothing counts before everything on the way to it is visible: a path is known when the last of its rows is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from quartet.causal import TimeRule, visible
from quartet.database import Database, Relation
from quartet.features.summed import MEAN, SUM, TREND, Part, Summed
from quartet.features.timeline import Ints, Timeline, days_since
from quartet.machine import set_aside
from quartet.times import STATIC, show_length

WINDOWS = (1, 2, 4, 12, 50)  # in units, of which the task's horizon is one
LAST, FEW, MANY = 12, 3, 50  # events, however long they take
_BRIEFLY = ("latest", f"mean of the last {LAST}")  # how cells that are told in brief are summed up
RECENT = 4  # the place of the count over twelve units among the columns of a path that counts
GROWING = (0, -1)  # the places of all events, and of the time since the first, among those columns
_LONGEST = 2**62  # nanoseconds
# The cuts of `Timeline.cuts`.
_BEGIN, _ONE, _TWO, _FOUR, _TWELVE, _FIFTY, _LAST, _LATEST, _FEW, _MANY = range(10)


@dataclass(frozen=True, eq=False)
class Events:
    """The rows to which a path leads: `about[i]` is where it begins, `shown[i]` where it ends.

    They are found when they are first asked for, by `find`, from the arrays `found_in` and from nothing else.
    """

    label: str
    table: str  # where it ends
    found_in: tuple[Ints, ...]
    find: Callable[[], tuple[Ints, Ints, Ints]]  # `about`, `shown`, `known_at`
    is_count: bool = True  # whether each row is shown once, so that counting them says something
    is_near: bool = False  # one link away
    first: Relation | None = None  # by which the rows next to the beginning name it
    second: Relation | None = None  # by which those that are shown name these, or the reverse

    @cached_property
    def rows(self) -> tuple[Ints, Ints, Ints]:
        return self.find()

    @staticmethod
    def children(
        database: Database, relation: Relation, label: str = "", counts_parent: bool = True
    ) -> Events:
        """Returns the rows that name a row by a relation; one that names itself is no child.

        The time of the row that is named counts too, unless that row is a seed, which is known at its own time.
        """
        own, above = database[relation.table].known_at, database[relation.parent].known_at

        def find() -> tuple[Ints, Ints, Ints]:
            child = linked(relation)
            parent = relation.rows[child]
            return parent, child, np.maximum(own[child], above[parent]) if counts_parent else own[child]

        label = f"{label}{relation.table} by {relation.foreign_key.distinct_label}"
        found_in = (relation.rows, own, above) if counts_parent else (relation.rows, own)
        return Events(label, relation.table, found_in, find, is_near=True, first=relation)

    def below(self, database: Database, relation: Relation) -> Events:
        """Returns, instead of the rows that are shown, those which name them."""
        own, num_shown = database[relation.table].known_at, database[self.table].num_rows

        def find() -> tuple[Ints, Ints, Ints]:
            about, shown, known_at = self.rows
            place = np.full(num_shown, -1)
            place[shown] = np.arange(len(shown))
            child = linked(relation)
            child = child[place[relation.rows[child]] >= 0]
            of = place[relation.rows[child]]
            return about[of], child, np.maximum(known_at[of], own[child])

        label = f"{self.label}, {relation.table} by {relation.foreign_key.distinct_label}"
        found_in = (*self.found_in, relation.rows, own)
        return Events(label, relation.table, found_in, find, first=self.first, second=relation)

    def above(self, database: Database, relation: Relation) -> Events:
        """Returns, instead of the rows that are shown, those which they name."""
        own = database[relation.parent].known_at

        def find() -> tuple[Ints, Ints, Ints]:
            about, shown, known_at = self.rows
            parent = relation.rows[shown]
            has = parent >= 0
            return about[has], parent[has], np.maximum(known_at[has], own[parent[has]])

        label = f"{self.label}, {relation.foreign_key.distinct_label} -> {relation.parent}"
        found_in, is_count = (*self.found_in, relation.rows, own), False
        return Events(label, relation.parent, found_in, find, is_count, first=self.first, second=relation)


def linked(relation: Relation) -> Ints:
    """Returns the rows that name another row."""
    is_linked = relation.rows >= 0
    if relation.table == relation.parent:
        is_linked &= relation.rows != np.arange(len(relation.rows))
    return np.flatnonzero(is_linked)


def events_below(
    database: Database, table: str, label: str, goes_up: bool, counts_parent: bool = True
) -> Iterator[Events]:
    """Yields the children of a table's rows, their children, and, if paths may go up again, their other parents."""
    for first in (relation for relation in database.relations if relation.parent == table):
        children = Events.children(database, first, label, counts_parent)
        yield children
        for relation in database.relations:
            if relation.parent == children.table:
                yield children.below(database, relation)
            if goes_up and relation.table == children.table and relation is not first:
                yield children.above(database, relation)


@dataclass(frozen=True, eq=False)
class Path:
    """Events in the order of time, and how they are summed up: counts of them, and summaries of some of their cells."""

    label: str
    table: str
    timeline: Timeline
    shown: Ints  # in the order of the timeline
    is_count: bool
    is_near: bool  # one link away: looked at more closely
    unit: int  # nanoseconds
    found_in: tuple[Ints, ...]  # see `Events`
    first: Relation | None = None
    second: Relation | None = None

    @staticmethod
    def of(
        events: Events, unit: int, before: Mapping[str, Path] | None = None, is_near: bool = False
    ) -> Path:
        """Returns the path of some events. `before` are those of a database from which this one has grown, by label:
        the one of the same events is taken as it is, and one of fewer is gone on with."""
        old = (before or {}).get(events.label)
        if old is not None and [*map(id, old.found_in)] == [*map(id, events.found_in)]:
            return old
        about, shown, known_at = events.rows
        timeline = Timeline.of(about, known_at, None if old is None else old.timeline)
        shown = set_aside(shown[timeline.order])
        return Path(
            events.label, events.table, timeline, shown, events.is_count, is_near, unit, events.found_in,
            events.first, events.second,
        )  # fmt: skip

    def between(self, begin: int, end: int) -> tuple[str, Ints] | None:
        """Returns the rows between where the path begins and events of a range, with their table."""
        if self.second is None:
            return None
        if self.is_count:  # those which the shown rows name
            return self.second.parent, self.second.rows[self.shown[begin:end]]
        assert self.first is not None
        child = linked(self.first)
        child = child[self.second.rows[child] >= 0]
        return self.second.table, child[self.timeline.order[begin:end]]

    @cached_property
    def windows(self) -> list[str]:
        return [show_length(number * self.unit) for number in WINDOWS]

    @cached_property
    def lengths(self) -> list[int]:
        """Returns the windows in nanoseconds, none longer than there can be."""
        return [min(number * self.unit, _LONGEST) for number in WINDOWS]

    @cached_property
    def count_names(self) -> list[str]:
        names = [
            "all",
            *(f"last {window}" for window in self.windows),
            "trend",
            "days since",
            "days since the first",
        ]
        return [f"{self.label}: {name}" for name in names] if self.is_count else []

    def kinds(self, part: Part) -> dict[str, tuple[int, int, int]]:
        """Returns how the cells of a part are summed up, by name; numbers of near rows in more ways."""
        kinds = self._kinds[part.is_number]
        return {name: kinds[name] for name in _BRIEFLY} if part.is_brief else kinds

    @cached_property
    def _kinds(self) -> tuple[dict[str, tuple[int, int, int]], dict[str, tuple[int, int, int]]]:
        return self._kinds_of(False), self._kinds_of(True)

    def _kinds_of(self, is_number: bool) -> dict[str, tuple[int, int, int]]:
        one, _, four, twelve, fifty = self.windows
        kinds = {
            "mean": (MEAN, _BEGIN, 0),
            f"mean of {four}": (MEAN, _FOUR, 0),
            f"mean of the last {LAST}": (MEAN, _LAST, 0),
            "latest": (MEAN, _LATEST, 0),
            f"sum of {four}": (SUM, _FOUR, 0),
        }
        if is_number:
            kinds |= {
                f"mean of the last {FEW}": (MEAN, _FEW, 0),
                f"mean of the last {MANY}": (MEAN, _MANY, 0),
            }
        if self.is_near and is_number:
            kinds |= {
                f"mean of {one}": (MEAN, _ONE, 0),
                f"mean of {twelve}": (MEAN, _TWELVE, 0),
                f"sum of {one}": (SUM, _ONE, 0),
                f"sum of {fifty}": (SUM, _FIFTY, 0),
                "trend": (TREND, _ONE, _TWO),
            }
        return kinds

    def names(self, summed: Summed) -> list[str]:
        """Returns the names of all columns of this path, in their order."""
        cells = [
            f"{self.label} -> {name}: {what}"
            for part in summed.parts
            for name in part.names
            for what in self.kinds(part)
        ]
        return self.count_names + cells

    def growing(self, upto: int) -> list[str]:
        """Returns the columns that grow for as long as events come, where some had by a time: they tell the date.

        Events that come in no time are counted by nothing else.
        """
        known = self.timeline.distinct_times
        if not visible(known[known != STATIC], upto).any():
            return []
        return [self.count_names[place] for place in GROWING] if self.is_count else []

    def fill(
        self,
        summed: Summed,
        rows: Ints,
        times: Ints,
        rule: TimeRule,
        out: NDArray[np.float32],
        kept: Sequence[int] | None = None,
    ) -> None:
        """Fills all columns with what is visible from each row at its time; NaN where the row is -1.

        Of summaries, those among the places `kept` are filled, and perhaps others.
        """
        from quartet.features.sums import fill_summaries, narrowed  # compiled when it is first asked for

        cuts = self.timeline.cuts(rows, times, self.lengths, (LAST, 1, FEW, MANY), rule)
        place = len(self.count_names)
        if place:
            out[:, :place] = self._counts(cuts, times)
        for part in summed.parts:
            kinds = list(self.kinds(part).values())
            end = place + len(part.names) * len(kinds)
            asked = list(range(len(kinds)))
            if kept is not None:
                asked = sorted({(at - place) % len(kinds) for at in kept if place <= at < end})
            if part.names and asked:
                wanted = np.array(kinds, np.int64)[asked]
                shown, own_cuts = narrowed(self.shown, rows, cuts, wanted)
                is_few = shown is not self.shown
                cells, offset = summed.cells(part, shown if is_few else slice(None))
                shown = np.arange(len(shown)) if is_few else shown
                target = out[:, place:end]
                if len(asked) < len(kinds):
                    target = np.empty((len(rows), len(part.names) * len(asked)), np.float32)
                fill_summaries(shown, cells, offset, rows, own_cuts, list(map(tuple, wanted)), target)
                for cell in range(len(part.names) if len(asked) < len(kinds) else 0):
                    places = place + cell * len(kinds) + np.array(asked)
                    out[:, places] = target[:, cell * len(asked) : (cell + 1) * len(asked)]
            place = end
        out[rows < 0] = np.nan

    def _counts(self, cuts: Ints, times: Ints) -> NDArray[np.float64]:
        begin, end = cuts[:, _BEGIN], cuts[:, -1]
        recent = end[:, None] - cuts[:, _ONE : _FIFTY + 1]
        trend = 2 * recent[:, 0] - recent[:, 1]  # the last unit less the one before
        last = self.timeline.last_known(begin, end)
        first = self.timeline.last_known(begin, np.minimum(begin + 1, end))
        return np.column_stack(
            [end - begin, recent, trend, days_since(last, times), days_since(first, times)]
        )
