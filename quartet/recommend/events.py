"""Events: pairs of a source and an item, each known from a time on, and which of them some sources know at their times.

Sources that have no past of their own, rows whose link is to be filled in, have that of a group: see `past.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from quartet.causal import TimeRule, num_visible, visible
from quartet.database import Database
from quartet.graph import TemporalGraph
from quartet.times import STATIC

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Places:
    """The rows of a table in the order of their stable keys: an order that rows of another future do not change."""

    first_node: int
    rows: Ints  # by place
    of_row: Ints  # the place of each row
    known_at: Ints  # by place
    key: NDArray[np.uint64]  # by place

    @staticmethod
    def of(database: Database, graph: TemporalGraph, table: str) -> Places:
        nodes = graph.nodes(table)
        key = graph.stable_key[nodes.start : nodes.stop]
        rows = np.argsort(key, kind="stable")
        of_row = np.empty(len(rows), np.int64)
        of_row[rows] = np.arange(len(rows))
        return Places(nodes.start, rows, of_row, database[table].known_at[rows], key[rows])

    def __len__(self) -> int:
        return len(self.rows)

    def of_nodes(self, nodes: Ints) -> Ints:
        return self.of_row[nodes - self.first_node]

    def nodes(self, places: Ints) -> Ints:
        return self.rows[places] + self.first_node


@dataclass(frozen=True, eq=False)
class Groups:
    """Whose events count as those of each source, -1 for nobody's, since when that is known, and how many there are."""

    of_source: Ints  # by place
    known_at: Ints  # by place
    size: int

    @staticmethod
    def alone(size: int) -> Groups:
        """Returns groups of one source each."""
        return Groups(np.arange(size), np.full(size, STATIC), size)

    def at(self, sources: Sources, rule: TimeRule) -> Ints:
        """Returns the group of each source at its time; one more than there are where it has none."""
        own = self.of_source[sources.place]
        is_known = (own >= 0) & visible(self.known_at[sources.place], sources.time, rule)
        return np.where(is_known, own, self.size)


@dataclass(frozen=True, eq=False)
class Sources:
    """Sources by their places, each at a time."""

    place: Ints
    time: Ints
    _known: dict[str, Known] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.place)

    def known(self, path: Events, num_items: int, rule: TimeRule) -> Known:
        """Returns what each source knows of a path at its time, which is found once."""
        if path.name not in self._known:
            number = num_visible(path.time, self.time, rule)
            self._known[path.name] = Known(path, path.groups.at(self, rule), number, num_items)
        return self._known[path.name]


@dataclass(frozen=True, eq=False)
class Events:
    """Pairs of a source, or a group of them, and an item, by one path, each known from a time on: oldest first."""

    name: str
    source: Ints
    item: Ints
    time: Ints
    groups: Groups
    most: int = 2**31  # events, the latest, that are looked at

    def __len__(self) -> int:
        return len(self.time)

    @staticmethod
    def sorted_by_time(
        name: str, source: Ints, item: Ints, time: Ints, groups: Groups, most: int = 2**31
    ) -> Events:
        order = np.lexsort((item, source, time))
        return Events(name, source[order], item[order], time[order], groups, most)

    def num_known(self, time: int, rule: TimeRule) -> int:
        """Returns how many events are visible at a time: the first ones."""
        return int(num_visible(self.time, time, rule))

    @cached_property
    def by_source(self) -> _Index:
        return _Index.of(self.source)

    @cached_property
    def by_item(self) -> _Index:
        return _Index.of(self.item)


@dataclass(frozen=True, eq=False)
class RowCells:
    """Numbers in the cells of rows whose link is filled in, and of the earlier rows that each item was linked to."""

    names: tuple[str, ...]
    own: NDArray[np.float32]  # (sources, names), by place
    path: Events  # of all rows
    of_events: NDArray[np.float32]  # (events, names)

    def gaps(self, sources: Sources, of: Ints, item: Ints, most: int, rule: TimeRule) -> NDArray[np.float32]:
        """Returns (P, names): how far the cells of a source are from the mean of those that the item had last."""
        known = num_visible(self.path.time, sources.time, rule)
        pair, at = self.path.by_item.latest(item, known[of], most)
        mean = np.full((len(of), len(self.names)), np.nan)
        if len(pair):
            cells, first = self.of_events[at].astype(np.float64), np.flatnonzero(np.diff(pair, prepend=-1))
            total = np.add.reduceat(np.nan_to_num(cells), first)
            count = np.add.reduceat((~np.isnan(cells)).astype(np.int64), first)
            mean[pair[first]] = np.where(count > 0, total / np.maximum(count, 1), np.nan)
        return (self.own[sources.place][of] - mean).astype(np.float32)


class _Index(NamedTuple):
    """The places of all events by their source or item, oldest first, and these as ascending numbers."""

    place: Ints
    number: Ints  # owner * (events + 1) + place

    @staticmethod
    def of(owner: Ints) -> _Index:
        place = np.argsort(owner, kind="stable")
        return _Index(place, owner[place] * (len(owner) + 1) + place)

    def ranges(self, owner: Ints, num_known: Ints) -> tuple[Ints, Ints]:
        """Returns where the events of each owner begin and end among those that it knows, the first so many of all."""
        size = len(self.place) + 1
        return np.searchsorted(self.number, owner * size), np.searchsorted(
            self.number, owner * size + num_known
        )

    def latest(self, owner: Ints, num_known: Ints, most: int) -> tuple[Ints, Ints]:
        """Returns the places of the latest known events of each owner, oldest first, after the number of the owner."""
        first, end = self.ranges(owner, num_known)
        num = np.minimum(end - first, most)
        of, at = ranges(end - num, num)
        return of, self.place[at]


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of a source and an item in order, and what is known of each: how often, first and last when."""

    key: Ints
    source: Ints
    item: Ints
    count: Ints
    first: Ints
    last: Ints


@dataclass(frozen=True, eq=False)
class Known:
    """The events of a path that some sources know, each at its time."""

    path: Events
    group: Ints  # of each source
    number: Ints  # of all events, that each source knows
    num_items: int

    def latest(self, most: int) -> tuple[Ints, Ints]:
        """Returns the places of the latest events of each source, and before them that of the source."""
        return self.path.by_source.latest(self.group, self.number, most)

    @cached_property
    def events(self) -> tuple[Ints, Ints, Ints]:
        """Returns all events of the sources: the place of the source, the item, the time; oldest first for each."""
        of, at = self.latest(self.path.most)
        return of, self.path.item[at], self.path.time[at]

    @cached_property
    def totals(self) -> Ints:
        first, end = self.path.by_source.ranges(self.group, self.number)
        return end - first

    @cached_property
    def pairs(self) -> Pairs:
        """Returns the pairs that the sources have been part of, by the places of these."""
        of, item, time = self.events
        order = np.argsort(of * self.num_items + item, kind="stable")
        key, time = (of * self.num_items + item)[order], time[order]
        first = np.flatnonzero(np.append(True, key[1:] != key[:-1])) if len(key) else np.empty(0, np.int64)
        end = np.append(first[1:], len(key))[: len(first)]
        source, item = key[first] // self.num_items, key[first] % self.num_items
        return Pairs(key[first], source, item, end - first, time[first], time[end - 1])


def ranges(first: Ints, num: Ints) -> tuple[Ints, Ints]:
    """Returns the numbers from each first on, so many, and to which range each belongs."""
    of = np.repeat(np.arange(len(num)), num)
    return of, np.arange(len(of)) + np.repeat(first - (np.cumsum(num) - num), num)


def places_in(group: Ints) -> Ints:
    """Returns the place of each row in its group, where groups stand together."""
    is_first = np.append(True, group[1:] != group[:-1])[: len(group)]
    firsts = np.flatnonzero(is_first)
    return np.arange(len(group)) - np.repeat(firsts, np.diff(np.append(firsts, len(group))))
