"""Events: what sources have had to do with items before, by every path through the schema that joins the two.

A path is a table whose rows lead, over at most three foreign keys in all, to a source and to an item:
`results.driverId` and `results.raceId > races.circuitId`. The table may be that of the items or of the sources. Nothing
is configured.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quartet.causal import TimeRule, num_visible, visible
from quartet.database import Database, Relation
from quartet.errors import TaskError
from quartet.graph import TemporalGraph
from quartet.tasks import Links, Seeds, TaskSpec
from quartet.times import NEVER, STATIC

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
_MOST_LINKS = 3  # of a path, both ways together
_MOST_PATHS = 8


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
class Events:
    """Pairs of a source and an item, by one path, each with the time from which it is known: oldest first."""

    name: str
    source: Ints
    item: Ints
    time: Ints

    def __len__(self) -> int:
        return len(self.time)

    @staticmethod
    def sorted_by_time(name: str, source: Ints, item: Ints, time: Ints) -> Events:
        order = np.lexsort((item, source, time))
        return Events(name, source[order], item[order], time[order])

    def upto(self, time: int, rule: TimeRule) -> Events:
        """Returns the events that are visible at a time."""
        end = int(num_visible(self.time, time, rule))
        return Events(self.name, self.source[:end], self.item[:end], self.time[:end])

    @cached_property
    def by_source(self) -> Ints:
        """Returns the places of all events by source, oldest first."""
        return np.argsort(self.source, kind="stable")

    @cached_property
    def by_item(self) -> Ints:
        return np.argsort(self.item, kind="stable")


@dataclass(frozen=True, eq=False)
class Past:
    """All events of a database, the path that is most like the labels first, and what links items with each other."""

    sources: Places
    items: Places
    paths: tuple[Events, ...]
    links: Events  # of an item with an item: source and item are both items
    parents: tuple[
        tuple[str, Ints, Ints], ...
    ]  # of each item, by each foreign key of theirs: row, and known when
    rule: TimeRule

    @staticmethod
    def of(
        database: Database, graph: TemporalGraph, spec: TaskSpec, rule: TimeRule, names: tuple[str, ...] = ()
    ) -> Past:
        """Returns the past by some paths, in their order; by default by all that there are."""
        sources, items = (Places.of(database, graph, table) for table in (spec.entity_table, spec.item_table))
        found = {}
        for name, source, item, time in _paths(database, spec.entity_table, spec.item_table, _MOST_LINKS):
            if not names or name in names:
                told = Events.sorted_by_time(name, sources.of_row[source], items.of_row[item], time)
                if names or len(told):
                    found[name] = told
        if not found or set(names) - set(found):
            text = f'no path of links leads from "{spec.entity_table}" to "{spec.item_table}"'
            text += f": {', '.join(sorted(set(names) - set(found)))}" if names else ""
            raise TaskError("S14", text, "declare foreign keys of a table whose rows name both")
        links = [
            Events.sorted_by_time("", items.of_row[one], items.of_row[other], time)
            for _, one, other, time in _paths(database, spec.item_table, spec.item_table, 2)
        ]
        both = [
            np.concatenate([np.empty(0, np.int64), *parts])
            for parts in (
                [part for link in links for part in (link.source, link.item)],
                [part for link in links for part in (link.item, link.source)],
                [part for link in links for part in (link.time, link.time)],
            )
        ]
        parents = tuple(
            (r.label, r.rows[items.rows], database[r.parent].known_at[r.rows][items.rows])
            for r in database.relations
            if r.table == spec.item_table and r.num_links
        )
        return Past(
            sources,
            items,
            tuple(found[name] for name in names or found),
            Events.sorted_by_time("linked", *both),
            parents,
            rule,
        )

    def like_labels(self, labels: Seeds, spec: TaskSpec) -> Past:
        """Returns the paths that tell most about labels of training, first the one whose events are most like them.

        A path is like the labels if its events in the windows are the labelled pairs, and these alone. Of the others,
        those are kept that have known most of the labelled pairs before.
        """
        assert isinstance(labels.target, Links)
        counts = np.diff(labels.target.offsets)
        source = np.repeat(self.sources.of_nodes(labels.node), counts)
        item, time = self.items.of_nodes(labels.target.nodes), np.repeat(labels.time, counts)
        moments = np.unique(labels.time)[-24:]  # the last are most like what will be asked
        likeness, before = [], []
        for path in self.paths:
            same, either, known = 0, 0, 0
            for moment in moments.tolist():
                at = time == moment
                wanted = np.unique(self.pair_key(source[at], item[at]))
                past, later = path.upto(moment, self.rule), path.upto(spec.known_at(moment), self.rule)
                after = slice(len(past), len(later))
                fresh = np.unique(self.pair_key(path.source[after], path.item[after]))
                common = len(np.intersect1d(fresh, wanted, assume_unique=True))
                same, either = same + common, either + len(fresh) + len(wanted) - common
                known += int(np.isin(wanted, self.pair_key(past.source, past.item)).sum())
            likeness.append(same / max(1, either))
            before.append(known)
        first = int(np.argmax(likeness))
        others = [n for n in np.argsort(before, kind="stable")[::-1].tolist() if n != first and before[n]]
        chosen = [first, *others[: _MOST_PATHS - 1]]
        return Past(self.sources, self.items, tuple(self.paths[n] for n in chosen), *self._rest)

    @property
    def _rest(self) -> tuple[Events, tuple[tuple[str, Ints, Ints], ...], TimeRule]:
        return self.links, self.parents, self.rule

    def pair_key(self, source: Ints, item: Ints) -> Ints:
        return source * len(self.items) + item

    def visible_items(self, time: int) -> NDArray[np.bool_]:
        return visible(self.items.known_at, time, self.rule)


def _paths(
    database: Database, source: str, item: str, most_links: int
) -> Iterator[tuple[str, Ints, Ints, Ints]]:
    """Yields name, source rows, item rows and times of each path, those of fewest links first."""
    found: list[Any] = []
    for name, table in database.tables.items():
        for to_source in _chains(database, name, source):
            for to_item in _chains(database, name, item):
                length = len(to_source) + len(to_item)
                is_same = source == item and [r.label for r in to_source] >= [r.label for r in to_item]
                if 0 < length <= most_links and not is_same:
                    found.append((length, len(found), table, to_source, to_item))
    for _, _, table, *chains in sorted(found, key=lambda one: one[:2]):
        time, ends = table.known_at.copy(), []
        for chain in chains:
            rows = np.arange(table.num_rows)
            for relation in chain:
                is_linked = rows >= 0
                rows = np.where(is_linked, relation.rows[rows], -1)
                known = database[relation.parent].known_at
                time = np.maximum(time, np.where(rows >= 0, known[rows], STATIC)) if len(known) else time
            ends.append(rows)
        is_whole = (ends[0] >= 0) & (ends[1] >= 0) & (time != NEVER)
        names = [" > ".join(r.label for r in chain) or table.name for chain in chains]
        yield f"{names[0]} & {names[1]}", ends[0][is_whole], ends[1][is_whole], time[is_whole]


def _chains(database: Database, start: str, end: str) -> Iterator[tuple[Relation, ...]]:
    """Yields the ways up from a table to another over no, one or two foreign keys."""
    if start == end:
        yield ()
    for first in database.relations:
        if first.table == start and first.num_links:
            if first.parent == end:
                yield (first,)
            for second in database.relations:
                if second.table == first.parent and second.parent == end and second.num_links:
                    yield first, second
