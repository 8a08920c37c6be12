"""Paths: the ways up the schema that lead from the rows of a table to those of others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from quartet.database import Database, Relation
from quartet.recommend.events import Ints
from quartet.times import NEVER, STATIC

Chain = tuple[Relation, ...]


def chains(database: Database, start: str, with_empty: bool) -> Iterator[tuple[str, Chain]]:
    """Yields the ways up from a table over no, one or two foreign keys, each after the table where it ends."""
    yield start, ()
    for first in database.relations:
        if first.table == start and (first.num_links or with_empty):
            yield first.parent, (first,)
            for second in database.relations:
                if second.table == first.parent and (second.num_links or with_empty):
                    yield second.parent, (first, second)


def climbed(database: Database, start: str, chain: Chain) -> tuple[Ints, Ints]:
    """Returns the row at the end of a chain from each row of a table, -1 for none, and when the last on it is known."""
    rows = np.arange(database[start].num_rows)
    time = np.full(len(rows), STATIC)
    for relation in chain:
        rows = taken(relation.rows, rows, -1)
        time = np.maximum(time, taken(database[relation.parent].known_at, rows, STATIC))
    return rows, time


def taken(values: Ints, rows: Ints, absent: int) -> Ints:
    """Returns the value of each row, and another where there is none (-1)."""
    found, is_there = np.full(len(rows), absent), rows >= 0
    found[is_there] = values[rows[is_there]]
    return found


def words(chain: Chain) -> str:
    return " > ".join(relation.label for relation in chain)


def joining_paths(
    database: Database, source: str, item: str, most_links: int, without: str = "", with_empty: bool = False
) -> Iterator[tuple[str, Ints, Ints, Ints]]:
    """Yields name, source rows, item rows and times of each path that joins two tables, those of fewest links first.

    Of a table with itself, each way is a path: who follows whom, and who is followed by whom. Those that no row goes
    yet are among them if that is asked for.
    """
    found: list[Any] = []
    for name in database.tables:
        ways = list(chains(database, name, with_empty)) if name != without else []
        for to_source in (chain for end, chain in ways if end == source):
            for to_item in (chain for end, chain in ways if end == item):
                length = len(to_source) + len(to_item)
                if 0 < length <= most_links and to_source != to_item:
                    found.append((length, len(found), name, to_source, to_item))
    for _, _, name, *both in sorted(found, key=lambda one: one[:2]):
        (sources, known), (items, also_known) = (climbed(database, name, chain) for chain in both)
        time = np.maximum(database[name].known_at, np.maximum(known, also_known))
        is_whole = (sources >= 0) & (items >= 0) & (time != NEVER)
        told = " & ".join(words(chain) or name for chain in both)
        yield told, sources[is_whole], items[is_whole], time[is_whole]
