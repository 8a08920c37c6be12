"""The compiled loops of the graph: those that build it, each linear in what it reads, and those that read it.

Loops over tables are outermost, so that the number of foreign keys is fixed inside.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from quartet.machine import compiled, part

Ints = NDArray[Any]


class Parents(NamedTuple):
    """The parents of every node, one slot for each foreign key of its table, -1 for none."""

    offsets: Ints  # first node of each table
    parents: Ints
    parents_start: Ints  # where the parents of a table's nodes start
    num_foreign_keys: Ints  # of each table


class GraphArrays(NamedTuple):
    """The arrays of a `TemporalGraph`, as kernels take them. It can stand wherever `Parents` can."""

    offsets: Ints
    times: Ints
    node_rank: Ints
    stable_key: Ints
    stream: Ints
    indptr: Ints
    entries: Ints
    parents: Ints
    parents_start: Ints
    num_foreign_keys: Ints


# --- reading --------------------------------------------------------------------------------------


@part
def table_of(graph: Any, node: Any) -> Any:
    """Returns the table of a node. There are few tables, so they are tried in turn."""
    table = 0
    while node >= graph.offsets[table + 1]:
        table += 1
    return table


@part
def parent_slots(graph: Any, node: Any) -> Any:
    """Returns the range of a node's places in `parents`."""
    table = table_of(graph, node)
    width = graph.num_foreign_keys[table]
    first = graph.parents_start[table] + (node - graph.offsets[table]) * width
    return first, first + width


@part
def most_parents(graph: Any) -> Any:
    """Returns the most foreign keys that a table has, at least one. numba's own maximum takes seconds to compile."""
    most = np.int64(1)
    for width in graph.num_foreign_keys:
        most = max(most, width)
    return most


@part
def has_parent(graph: Any, child: Any, node: Any) -> Any:
    """Returns whether `child` names `node` as a parent."""
    first, last = parent_slots(graph, child)
    return _is_among(graph.parents, first, last, node)


@part
def visible_end(entries: Any, begin: Any, end: Any, last_rank: Any) -> Any:
    """Returns the end of the visible prefix of a list: of the entries whose rank is at most `last_rank`."""
    if begin == end or entries[end - 1] >> 32 <= last_rank:
        return end
    low, high = begin, end - 1
    while low < high:
        middle = (low + high) // 2
        if entries[middle] >> 32 <= last_rank:
            low = middle + 1
        else:
            high = middle
    return low


@part
def visible_range(graph: Any, node: Any, last_rank: Any) -> Any:
    """Returns where the list of a node begins, and how many of its entries are visible."""
    begin = graph.indptr[node]
    return begin, visible_end(graph.entries, begin, graph.indptr[node + 1], last_rank) - begin


@part
def seed_entries(graph: Any, node: Any, time: Any, last_rank: Any) -> Any:
    """Returns the visible entries of a seed's own list, in its order.

    At its own time a seed's row is known under either rule. Where the rule shows no other row of that time, the
    links of the seed are as late as their other ends; their ranks remain those of the later end.
    """
    begin, count = visible_range(graph, node, last_rank)
    rank = np.int64(graph.node_rank[node])
    if rank <= last_rank or graph.times[rank] != time:
        return graph.entries[begin : begin + count]
    end = visible_end(graph.entries, begin, graph.indptr[node + 1], rank)
    found, count = np.empty(end - begin, np.int64), 0
    for entry in range(begin, end):
        if graph.node_rank[graph.entries[entry] & 0xFFFFFFFF] <= last_rank:
            found[count] = graph.entries[entry]
            count += 1
    return found[:count]


@compiled
def count_visible(graph: Any, nodes: Any, last_ranks: Any) -> Any:
    """Returns the number of visible neighbours of each node."""
    counts = np.empty(len(nodes), np.int64)
    for place in range(len(nodes)):
        counts[place] = visible_range(graph, nodes[place], last_ranks[place])[1]
    return counts


# --- building -------------------------------------------------------------------------------------


@compiled
def make_simple(graph: Any, key: Any) -> Any:
    """Takes out loops and parallel links, in place, and counts both.

    Of two rows that name each other, the one with the smaller key keeps the link, whatever their order.
    """
    loops, parallel = 0, 0
    parents = graph.parents
    for table in range(len(graph.num_foreign_keys)):
        width = graph.num_foreign_keys[table]
        for node in range(graph.offsets[table], graph.offsets[table + 1]):
            slots = graph.parents_start[table] + (node - graph.offsets[table]) * width
            for slot in range(slots, slots + width):
                parent = np.int64(parents[slot])
                if parent < 0:
                    continue
                if parent == node:
                    parents[slot] = -1
                    loops += 1
                elif _is_among(parents, slots, slot, parent) or (
                    (key[parent], parent) < (key[node], node) and has_parent(graph, parent, node)
                ):
                    parents[slot] = -1
                    parallel += 1
    return loops, parallel


@part
def _is_among(parents: Any, begin: Any, end: Any, node: Any) -> Any:
    for slot in range(begin, end):
        if parents[slot] == node:
            return True
    return False


@compiled
def count_links(graph: Any) -> Any:
    """Returns how many children and how many parents each node has."""
    num_children = np.zeros(graph.offsets[-1], dtype=np.int64)
    num_parents = np.zeros(graph.offsets[-1], dtype=np.int32)
    for table in range(len(graph.num_foreign_keys)):
        width = graph.num_foreign_keys[table]
        for row in range(graph.offsets[table + 1] - graph.offsets[table]):
            for slot in range(width):
                parent = graph.parents[graph.parents_start[table] + row * width + slot]
                if parent >= 0:
                    num_children[parent] += 1
                    num_parents[graph.offsets[table] + row] += 1
    return num_children, num_parents


@compiled
def append_children(graph: Any, order: Any, rank: Any, indptr: Any, num_parents: Any, entries: Any) -> None:
    """Fills the lists with children, leaving room at the front of each for the parents."""
    cursor = indptr[:-1] + num_parents
    for node in order:
        first, last = parent_slots(graph, np.int64(node))
        for slot in range(first, last):
            parent = graph.parents[slot]
            if parent >= 0:
                edge = max(rank[node], rank[parent])
                entries[cursor[parent]] = (np.int64(edge) << 32) | np.int64(node)
                cursor[parent] += 1


@compiled
def count_older_children(rank: Any, key: Any, indptr: Any, num_parents: Any, entries: Any) -> Any:
    """Returns for each node how many children it has that are not newer than itself, if they are out of order.

    They were appended in the order of their own times, which the edge's time, the later of the two
    ends, has made equal: now their keys decide. Rare: a row that is older than the row it points to.
    """
    counts = np.zeros(len(rank), dtype=np.int64)
    for node in range(len(rank)):
        begin, end = indptr[node] + num_parents[node], indptr[node + 1]
        stop, is_sorted = begin, True
        while stop < end and entries[stop] >> 32 == rank[node]:
            if stop > begin and _comes_before(entries[stop], entries[stop - 1], key):
                is_sorted = False
            stop += 1
        if not is_sorted:
            counts[node] = stop - begin
    return counts


@compiled
def merge_parents(graph: Any, rank: Any, key: Any, indptr: Any, entries: Any) -> None:
    """Merges the parents of each node into its sorted children, in place."""
    front = np.empty(most_parents(graph), dtype=np.int64)
    for table in range(len(graph.num_foreign_keys)):
        width = graph.num_foreign_keys[table]
        for node in range(graph.offsets[table], graph.offsets[table + 1]):
            slots = graph.parents_start[table] + (node - graph.offsets[table]) * width
            count = 0
            for slot in range(slots, slots + width):
                parent = graph.parents[slot]
                if parent >= 0:
                    entry = (np.int64(max(rank[node], rank[parent])) << 32) | np.int64(parent)
                    place = count
                    while place > 0 and _comes_before(entry, front[place - 1], key):
                        front[place] = front[place - 1]
                        place -= 1
                    front[place] = entry
                    count += 1
            end = indptr[node + 1]
            write, child = indptr[node], indptr[node] + count
            for taken in range(count):
                while child < end and _comes_before(entries[child], front[taken], key):
                    entries[write] = entries[child]
                    write += 1
                    child += 1
                entries[write] = front[taken]
                write += 1


@part
def _comes_before(first: Any, second: Any, key: Any) -> Any:
    """Returns whether an entry stands before another: by rank, then by the stable key of the neighbour."""
    if first >> 32 != second >> 32:
        return first >> 32 < second >> 32
    return key[first & 0xFFFFFFFF] < key[second & 0xFFFFFFFF]


@compiled
def cut_by_table(graph: Any, order: Any) -> Any:
    """Returns nodes in some order, cut into one stream for each table."""
    stream, cursor = np.empty(len(order), np.int32), graph.offsets[:-1].copy()
    for node in order:
        table = table_of(graph, np.int64(node))
        stream[cursor[table]] = node
        cursor[table] += 1
    return stream
