"""Groups: what a row whose link is to be filled in shares with earlier rows, and which items these were linked to.

all rows                   the latest labels of the table
documents.shop             of earlier rows that name the same row, over one or two links
documents.country          of earlier rows with the same cell, their own or that of a row that they name
races: qualifying.race...  items that another table links with a row that this one names

Labels are those of `known_labels`, each known from its time on; a row that is named counts once it is known. Of a group
the latest events alone are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from quartet.database import Database
from quartet.graph import TemporalGraph
from quartet.recommend.events import Events, Groups, Ints, Places, RowCells
from quartet.recommend.paths import chains, climbed, joining_paths, taken, words
from quartet.tasks import KNOWN_LABELS, TaskSpec
from quartet.times import NEVER, STATIC

Cells = NDArray[np.float32]
ALL_ROWS = "all rows"
_MOST_EVENTS = 500  # of a group, the latest


def shared_paths(
    database: Database,
    graph: TemporalGraph,
    spec: TaskSpec,
    sources: Places,
    items: Places,
    categories: Mapping[str, tuple[str, ...]],
    with_empty: bool,
) -> Iterator[Events]:
    """Yields the events of each group that rows of the entity table can have something in common with."""
    table = spec.entity_table
    rows, linked, time = _known_labels(database, table, spec.item_table)
    linked = items.of_row[linked]

    def labels_of(name: str, of_row: Ints, known_at: Ints, size: int) -> Events:
        is_told = of_row[rows] >= 0
        groups = Groups(of_row[sources.rows], known_at[sources.rows], size)
        known = np.maximum(time, known_at[rows])
        group, item, since = (part[is_told] for part in (of_row[rows], linked, known))
        return Events.sorted_by_time(name, group, item, since, groups, _MOST_EVENTS)

    always = np.full(len(sources), STATIC)
    yield labels_of(ALL_ROWS, np.zeros(len(sources), np.int64), always, 1)
    for end, chain in chains(database, table, with_empty):
        ends, known_at = climbed(database, table, chain)
        if chain:
            parents = Places.of(database, graph, end)
            of_row = taken(parents.of_row, ends, -1)
            yield labels_of(words(chain), of_row, known_at, len(parents))
            groups = Groups(of_row[sources.rows], known_at[sources.rows], len(parents))
            item = spec.item_table
            for name, one, other, when in joining_paths(database, end, item, 2, KNOWN_LABELS, with_empty):
                pairs = parents.of_row[one], items.of_row[other], when
                yield Events.sorted_by_time(f"{words(chain)}: {name}", *pairs, groups, _MOST_EVENTS)
        for column in categories.get(end, ()) if len(chain) < 2 else ():
            codes = _codes(database[end].data[column])
            of_row = taken(codes, ends, -1)
            name = " > ".join([*(relation.label for relation in chain), f"{end}.{column}"])
            yield labels_of(name, of_row, known_at, int(codes.max(initial=-1)) + 1)


def row_cells(
    database: Database, spec: TaskSpec, sources: Places, items: Places, names: tuple[str, ...], numbers: Cells
) -> RowCells:
    """Returns the numbers in the rows of the entity table, and those of the rows whose link is known."""
    rows, linked, time = _known_labels(database, spec.entity_table, spec.item_table)
    nobody, linked = np.zeros(len(rows), np.int64), items.of_row[linked]
    every = Groups(np.zeros(len(sources), np.int64), np.full(len(sources), STATIC), 1)
    path = Events.sorted_by_time(ALL_ROWS, nobody, linked, time, every)
    of_events = numbers[rows[np.lexsort((linked, nobody, time))]]
    return RowCells(names, numbers[sources.rows], path, of_events)


def _known_labels(database: Database, table: str, item: str) -> tuple[Ints, Ints, Ints]:
    """Returns the rows whose link is known, the items that they name, and since when; none without past labels."""
    if KNOWN_LABELS not in database.tables:
        return (np.empty(0, np.int64),) * 3
    of, items = (
        next(
            r.rows
            for r in database.relations
            if (r.table, r.parent, r.label) == (KNOWN_LABELS, parent, label)
        )
        for parent, label in ((table, f"{KNOWN_LABELS}.entity"), (item, f"{KNOWN_LABELS}.label"))
    )
    known = database[KNOWN_LABELS].known_at
    for name, rows in ((table, of), (item, items)):
        known = np.maximum(known, taken(database[name].known_at, rows, NEVER))
    kept = (of >= 0) & (items >= 0) & (known != NEVER)
    return of[kept], items[kept], known[kept]


def _codes(column: pa.ChunkedArray) -> Ints:
    """Returns a number of each value, -1 for an empty cell; greater values have greater ones."""
    coded = column.combine_chunks().dictionary_encode()
    order = pc.sort_indices(coded.dictionary).to_numpy()
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    place = pc.fill_null(coded.indices, -1).to_numpy().astype(np.int64)
    return np.where(place >= 0, rank[place], -1) if len(rank) else place
