"""Past: what sources have had to do with items before, by every path through the schema that joins the two.

A path is a table whose rows lead, over at most three foreign keys in all, to a source and to an item:
`results.driverId` and `results.raceId > races.circuitId`. The table may be that of the items or of the sources. Nothing
is configured.

A row whose link is to be filled in has no past: its paths are those of what it shares with earlier rows (`groups.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from quartet.causal import TimeRule, visible
from quartet.database import Database
from quartet.errors import TaskError
from quartet.graph import TemporalGraph
from quartet.recommend.events import Events, Groups, Ints, Known, Places, RowCells, Sources, places_in
from quartet.recommend.groups import ALL_ROWS, row_cells, shared_paths
from quartet.recommend.paths import joining_paths, taken
from quartet.tasks import KNOWN_LABELS, Links, Seeds, TaskSpec
from quartet.times import STATIC

_MOST_LINKS = 3  # of a path, both ways together
_MOST_PATHS = 8
_MOST_ASKED = 2000  # labels, the latest, that tell which groups know of them


@dataclass(frozen=True, eq=False)
class Past:
    """All events of a database, the path that is most like the labels first, and what links items with each other.

    Of a link that is to be filled in, the first path is that of all rows, and the one that tells most is the second.
    """

    sources: Places
    items: Places
    paths: tuple[Events, ...]
    links: Events  # of an item with an item: source and item are both items
    parents: tuple[tuple[str, Ints, Ints], ...]  # of each item, by each foreign key: row, and known when
    rule: TimeRule
    is_link: bool = False  # that is to be filled in
    cells: RowCells | None = None  # of such rows

    @staticmethod
    def of(
        database: Database,
        graph: TemporalGraph,
        spec: TaskSpec,
        rule: TimeRule,
        names: tuple[str, ...] = (),
        categories: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
        numbers: Mapping[str, NDArray[np.float32]] = MappingProxyType({}),
    ) -> Past:
        """Returns the past by some paths, in their order; by default by all that there are.

        `categories` are the columns of each table by whose cells rows have something in common, `numbers` the cells of
        the entity table by which they are near.
        """
        sources, items = (Places.of(database, graph, table) for table in (spec.entity_table, spec.item_table))
        is_link, alone = spec.kind == "autocomplete", Groups.alone(len(sources))
        every: Iterable[Events] = (
            Events.sorted_by_time(name, sources.of_row[source], items.of_row[item], time, alone)
            for name, source, item, time in joining_paths(
                database, spec.entity_table, spec.item_table, _MOST_LINKS, with_empty=bool(names)
            )
        )
        if is_link:
            every = shared_paths(database, graph, spec, sources, items, categories, bool(names))
        if names:  # those that a model has chosen count before their first event, too
            found = {path.name: path for path in every if path.name in names}
        else:
            found = {path.name: path for path in every if len(path) or path.name == ALL_ROWS}
        if set(names) - set(found) or not (names or any(map(len, found.values()))):
            raise _no_path(spec, sorted(set(names) - set(found)))
        links = [
            (items.of_row[one], items.of_row[other], time)
            for _, one, other, time in joining_paths(database, spec.item_table, spec.item_table, 2)
        ]
        there, back, when = (
            np.concatenate([np.empty(0, np.int64), *parts])
            for parts in (zip(*links, strict=True) if links else [()] * 3)
        )
        parents = tuple(
            (r.label, r.rows[items.rows], taken(database[r.parent].known_at, r.rows[items.rows], STATIC))
            for r in database.relations
            if r.table == spec.item_table
        )
        linked = Events.sorted_by_time("linked", there, back, when, Groups.alone(len(items)))
        paths = tuple(found[name] for name in names or found)
        cells = None
        if is_link and numbers:
            every_cell = np.stack(list(numbers.values()), 1)
            cells = row_cells(database, spec, sources, items, tuple(numbers), every_cell)
        return Past(sources, items, paths, linked, parents, rule, is_link, cells)

    @property
    def main(self) -> Events:
        """Returns the path whose events are most like the labels."""
        return self.paths[1 if self.is_link and len(self.paths) > 1 else 0]

    def known(self, path: Events, sources: Sources) -> Known:
        return sources.known(path, len(self.items), self.rule)

    def like_labels(self, labels: Seeds, spec: TaskSpec) -> Past:
        """Returns the paths that tell most about labels of training, first the one whose events are most like them.

        A path is like the labels if its events in the windows are the labelled pairs, and these alone. Of the others,
        those are kept that have known most of the labelled pairs before. Past labels are no events: they come late.
        """
        assert isinstance(labels.target, Links)
        if self.is_link:
            return self._telling(labels)
        counts = np.diff(labels.target.offsets)
        source = np.repeat(self.sources.of_nodes(labels.node), counts)
        item, time = self.items.of_nodes(labels.target.nodes), np.repeat(labels.time, counts)
        moments = np.unique(labels.time)[-24:]  # the last are most like what will be asked
        paths = [path for path in self.paths if path.num_known(spec.known_at(int(moments[-1])), self.rule)]
        if not paths:
            raise _no_path(spec)
        likeness, before = [], []
        for path in paths:
            same, either, known = 0, 0, 0
            for moment in moments.tolist():
                at = time == moment
                wanted = np.unique(self.pair_key(source[at], item[at]))
                end = path.num_known(moment, self.rule)
                later = path.num_known(spec.known_at(moment), self.rule)
                fresh = np.unique(self.pair_key(path.source[end:later], path.item[end:later]))
                common = len(np.intersect1d(fresh, wanted, assume_unique=True))
                same, either = same + common, either + len(fresh) + len(wanted) - common
                known += int(np.isin(wanted, self.pair_key(path.source[:end], path.item[:end])).sum())
            is_label = path.name.startswith(f"{KNOWN_LABELS}.")
            likeness.append(-1.0 if is_label else same / max(1, either))
            before.append(known)
        first = int(np.argmax(likeness))
        others = [n for n in np.argsort(before, kind="stable")[::-1].tolist() if n != first and before[n]]
        chosen = [first, *others[: _MOST_PATHS - 1]]
        return replace(self, paths=tuple(paths[n] for n in chosen))

    def _telling(self, labels: Seeds) -> Past:
        """Returns the paths whose groups knew most of the labels before: by their place, the latest or commonest first.

        That of all rows is the first of them.
        """
        assert isinstance(labels.target, Links)
        latest = np.argsort(-labels.time, kind="stable")[:_MOST_ASKED]
        sources = Sources(self.sources.of_nodes(labels.node[latest]), labels.time[latest])
        wanted = self.pair_key(np.arange(len(latest)), self.items.of_nodes(labels.target.nodes)[latest])
        told = []
        for path in self.paths:
            pairs, best = self.known(path, sources).pairs, 0.0
            for score in (pairs.last, pairs.count):
                order = np.lexsort((pairs.item, -score, pairs.source))
                place = places_in(pairs.source[order])[np.isin(pairs.key[order], wanted)]
                best = max(best, float((1 / (1 + place)).sum()))
            told.append(best)
        first = [n for n, path in enumerate(self.paths) if path.name == ALL_ROWS]
        others = [n for n in np.argsort(told, kind="stable")[::-1].tolist() if told[n] and n not in first]
        return replace(self, paths=tuple(self.paths[n] for n in [*first, *others[: _MOST_PATHS - 1]]))

    def pair_key(self, source: Ints, item: Ints) -> Ints:
        return source * len(self.items) + item

    def visible_items(self, time: int) -> NDArray[np.bool_]:
        return visible(self.items.known_at, time, self.rule)


def _no_path(spec: TaskSpec, names: Sequence[str] = ()) -> TaskError:
    text = f'no path of links leads from "{spec.entity_table}" to "{spec.item_table}"'
    text += f": {', '.join(names)}" if names else " by rows that are known in the time of training"
    fix = "declare foreign keys of a table whose rows name both"
    if spec.kind == "autocomplete":
        fix = "train with past labels, so that earlier rows tell: --past-labels"
    return TaskError("S14", text, fix)
