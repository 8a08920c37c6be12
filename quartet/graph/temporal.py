"""TemporalGraph: rows as nodes, foreign keys as edges, every neighbour list in order of time.

Section 2.1 of the paper. A node is a row; its global id is the offset of its table plus its row
number. Each link joins a row (the child) with the row its foreign key names (the parent) and
stands in the list of both. Lists are *sets*: parallel links count once, loops are dropped, both
are counted. The time of an edge is the later of its ends.

Times are stored as ranks: rank 0 is "always known", rank r the r-th distinct time. One entry of a
list is a single integer, `rank << 32 | neighbour`, and each list ascends by (rank, stable key), so
what is visible at a time is a prefix, and one comparison tells whether an entry belongs to it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any
from weakref import ReferenceType, ref

import numpy as np
from numpy.typing import NDArray

from quartet.causal import TimeRule, last_visible_rank
from quartet.database import Database, Table, hash_rows, is_hashable
from quartet.errors import ResourceError
from quartet.graph.kernels import (
    GraphArrays,
    Ints,
    Parents,
    append_children,
    count_links,
    count_older_children,
    count_visible,
    cut_by_table,
    make_simple,
    merge_parents,
)
from quartet.machine import empty_aside, give_back, set_aside
from quartet.times import STATIC

MAX_NODES = 2**31 - 1
_FEW = 10_000  # rows that are put among those of before one by one
RANK_SHIFT = 32
NEIGHBOR_MASK = (1 << RANK_SHIFT) - 1


@dataclass(frozen=True, eq=False)
class TemporalGraph:
    """The relational entity graph. All arrays are read-only.

    N nodes, E entries (each link stands twice), T tables, R distinct times.
    """

    names: tuple[str, ...]  # the T tables, in order
    num_loops: int
    num_parallel: int
    source: str | ReferenceType[Database]  # what it was built from: its fingerprint, or where to ask for it
    offsets: Ints  # (T + 1,) int64: first node of each table
    times: Ints  # (R,) int64: distinct times; times[0] is STATIC
    node_rank: Ints  # (N,) int32: when the row became known
    stable_key: Ints  # (N,) uint64: from the primary key's value, never from the row number
    order: Ints  # (N,) int32: all nodes by (time, stable key)
    stream: Ints  # (N,) int32: within each table, its nodes by (time, stable key)
    indptr: Ints  # (N + 1,) int64
    entries: Ints  # (E,) int64: rank << 32 | neighbour
    parents: Ints  # int32: for each node the parents by foreign key, -1 for none
    parents_start: Ints  # (T + 1,) int64: where a table's parents start
    num_foreign_keys: Ints  # (T,) int64

    def __post_init__(self) -> None:
        for array in self.arrays:
            array.flags.writeable = False

    def __getstate__(self) -> dict[str, Any]:
        """Returns what another process is sent: not what samplers keep with a graph."""
        kept = {each.name: getattr(self, each.name) for each in fields(self)}
        return kept | {"source": self.fingerprint}

    @staticmethod
    def build(database: Database, before: TemporalGraph | None = None) -> TemporalGraph:
        """Builds the graph of a database in time linear in its links (plus one sort of its rows by time).

        `before` is the graph of a database from which this one has grown: its rows need not be sorted again.
        """
        if database.num_rows > MAX_NODES:
            raise ResourceError("S17", f"{database.num_rows:,} rows exceed the {MAX_NODES:,} of this version")
        tables = list(database.tables.values())
        stable_key = set_aside(np.concatenate([stable_keys(table) for table in tables]))
        known_at = np.concatenate([table.known_at for table in tables])
        order = None if before is None else _order_of_grown(before, database, known_at, stable_key)
        order, node_rank, times = _order_and_ranks(known_at, stable_key, order)
        order, node_rank = set_aside(order), set_aside(node_rank)
        links = _parents(database)
        num_loops, num_parallel = make_simple(links, stable_key)
        indptr, entries = _adjacency(links, order, node_rank, stable_key)
        links = links._replace(parents=set_aside(links.parents))
        give_back()
        source = database.fingerprint if before is None else ref(database)
        return TemporalGraph(
            tuple(database.tables), int(num_loops), int(num_parallel), source,
            order=order, stream=set_aside(cut_by_table(links, order)), times=set_aside(times), node_rank=node_rank,
            stable_key=stable_key, indptr=set_aside(indptr), entries=set_aside(entries), **links._asdict(),
        )  # fmt: skip

    @cached_property
    def fingerprint(self) -> str:
        """Returns the digest of the database that it was built from; of one that has grown, when it is asked for."""
        if isinstance(self.source, str):
            return self.source
        database = self.source()
        assert database is not None, "the database of a graph is there as long as its contexts are kept"
        return database.fingerprint

    @property
    def num_nodes(self) -> int:
        return int(self.offsets[-1])

    @property
    def num_entries(self) -> int:
        return len(self.entries)

    @property
    def num_bytes(self) -> int:
        return sum(array.nbytes for array in self.arrays)

    @cached_property
    def arrays(self) -> GraphArrays:
        """Returns the arrays as kernels take them."""
        return GraphArrays(*(getattr(self, name) for name in GraphArrays._fields))

    @cached_property
    def stream_rank(self) -> Ints:
        """Returns when each row of the stream became known, as a rank."""
        ranks = np.asarray(self.node_rank[self.stream])
        ranks.flags.writeable = False  # as where they are mapped from a file: kernels are compiled once
        return ranks

    @cached_property
    def made(self) -> dict[str, Any]:
        """Returns what others have made of this graph alone, by name, so that it is made once."""
        return {}

    @property
    def node_time(self) -> NDArray[np.int64]:
        """Returns when each row became known, in UTC nanoseconds (`STATIC` if always)."""
        return np.asarray(self.times[self.node_rank])

    def nodes(self, table: str) -> range:
        """Returns the global ids of a table's rows."""
        place = self.names.index(table)
        return range(int(self.offsets[place]), int(self.offsets[place + 1]))

    def types(self, nodes: Ints) -> NDArray[np.int64]:
        """Returns the table number of each node."""
        return np.searchsorted(self.offsets, nodes, side="right") - 1

    def degrees(self, nodes: Ints, times: Ints, rule: TimeRule = "<=") -> NDArray[np.int64]:
        """Returns how many neighbours of each node are visible at its time."""
        last = last_visible_rank(self.times, times, rule)
        return np.asarray(count_visible(self.arrays, np.asarray(nodes, dtype=np.int64), last))

    def neighbors(self, node: int, time: int, rule: TimeRule = "<=") -> NDArray[np.int64]:
        """Returns the neighbours of a node that are visible at a time, oldest first."""
        start = self.indptr[node]
        end = start + self.degrees(np.array([node]), np.array([time]), rule)[0]
        return np.asarray(self.entries[start:end] & NEIGHBOR_MASK)

    def stream_of(self, table: str) -> Ints:
        """Returns the nodes of a table, oldest first."""
        nodes = self.nodes(table)
        return self.stream[nodes.start : nodes.stop]


def stable_keys(table: Table) -> NDArray[np.uint64]:
    """Returns a key for each row that does not move when other rows come, go or change places.

    It is made from the primary key's value, or, in a table without one, from the row's content.
    """
    if table.primary_key:
        columns = [column.values for column in table.key_columns(table.primary_key)]
    else:
        names = sorted(f.name for f in table.data.schema if is_hashable(f.type))
        columns = [table.data[name] for name in names]
    return hash_rows(columns, salt=table.name, num_rows=table.num_rows)


def _order_of_grown(
    before: TemporalGraph, database: Database, known_at: NDArray[np.int64], stable_key: NDArray[np.uint64]
) -> Ints | None:
    """Returns the nodes by (time, stable key): the few new ones, at the end of tables, put among the others.

    None where the rows of before are not the first of each table, or the new ones are not few.
    """
    sizes, counts = np.diff(before.offsets), np.array([table.num_rows for table in database.tables.values()])
    if before.names != tuple(database.tables) or (counts < sizes).any():
        return None
    offsets = np.concatenate([[0], np.cumsum(counts)])
    old = np.concatenate(
        [np.arange(first, first + size) for first, size in zip(offsets, sizes, strict=False)]
    )
    new = np.setdiff1d(np.arange(len(known_at)), old, assume_unique=True)
    is_same = np.array_equal(known_at[old], before.node_time) and np.array_equal(
        stable_key[old], before.stable_key
    )
    if not is_same or len(new) > _FEW:
        return None
    order = old[before.order]
    times = known_at[order]
    new = new[np.lexsort((new, stable_key[new], known_at[new]))]
    places = np.searchsorted(times, known_at[new], "left")
    for number, last in enumerate(np.searchsorted(times, known_at[new], "right").tolist()):
        tied = order[places[number] : last]
        key, own = stable_key[tied], stable_key[new[number]]
        places[number] += int(((key < own) | ((key == own) & (tied < new[number]))).sum())
    return np.insert(order, places, new)


def _order_and_ranks(
    known_at: NDArray[np.int64], stable_key: NDArray[np.uint64], known_order: Ints | None = None
) -> tuple[Ints, Ints, NDArray[np.int64]]:
    """Returns the nodes by (time, stable key), each node's time rank, and the distinct times."""
    order = np.argsort(known_at, kind="stable") if known_order is None else known_order
    times = known_at[order]
    is_new = np.empty(len(times), dtype=bool)
    is_new[:1] = times[:1] != STATIC  # rank 0 belongs to STATIC, present or not
    np.not_equal(times[1:], times[:-1], out=is_new[1:])
    rank = np.empty(len(times), dtype=np.int32)
    rank[order] = np.cumsum(is_new, dtype=np.int32)
    distinct = np.concatenate([[STATIC], times[is_new]])
    if known_order is not None:
        return order.astype(np.int32), rank, distinct
    tied = np.flatnonzero(~(is_new & np.append(is_new[1:], True)))  # nodes of one time: by their keys
    nodes = order[tied]
    order[tied] = nodes[np.lexsort((stable_key[nodes], rank[nodes]))]
    return order.astype(np.int32), rank, distinct


def _parents(database: Database) -> Parents:
    """Returns the parents of every node by their global ids."""
    names = list(database.tables)
    offsets = np.cumsum([0] + [table.num_rows for table in database.tables.values()], dtype=np.int64)
    relations = [[r for r in database.relations if r.table == name] for name in names]
    num_keys = np.array([len(own) for own in relations], dtype=np.int64)
    start = np.concatenate([[0], np.cumsum(num_keys * np.diff(offsets))])
    parents = np.empty(start[-1], dtype=np.int32)
    for place, own in enumerate(relations):
        block = parents[start[place] : start[place + 1]].reshape(-1, max(len(own), 1))
        for slot, relation in enumerate(own):
            shift = offsets[names.index(relation.parent)]
            block[:, slot] = np.where(relation.rows >= 0, relation.rows + shift, -1)
    return Parents(offsets, parents, start, num_keys)


def _adjacency(links: Parents, order: Ints, rank: Ints, key: Ints) -> tuple[Ints, Ints]:
    """Returns every neighbour list, ascending by (edge rank, stable key): a counting sort.

    Rows are visited in the order of time and each is appended to the lists of its parents, so the
    children of every list are already sorted, but for the few that are older than their parent; the
    few parents of a node are merged in from the front.
    """
    num_children, num_parents = count_links(links)
    indptr = np.zeros(len(rank) + 1, dtype=np.int64)
    np.cumsum(num_children + num_parents, out=indptr[1:])
    entries = empty_aside((int(indptr[-1]),), np.int64)
    append_children(links, order, rank, indptr, num_parents, entries)
    counts = count_older_children(rank, key, indptr, num_parents, entries)
    nodes = np.flatnonzero(counts)
    owner = np.repeat(nodes, counts[nodes])
    firsts = np.repeat(np.cumsum(counts[nodes]) - counts[nodes], counts[nodes])
    places = indptr[owner] + num_parents[owner] + np.arange(len(owner)) - firsts
    older = entries[places]
    entries[places] = older[np.lexsort((key[older & NEIGHBOR_MASK], owner))]
    merge_parents(links, rank, key, indptr, entries)
    return indptr, entries
