"""The loops behind `TemporalGraph.build`, compiled. Each is linear in what it reads.

Loops over tables are outermost, so that the number of foreign keys is fixed inside. `start` says
where the parents of a table begin, `offsets` where its nodes do.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from quartet.machine import compiled

Ints = NDArray[Any]


@compiled
def make_simple(parents: Ints, start: Ints, num_fks: Ints, offsets: Ints, key: Ints) -> tuple[int, int]:
    """Takes out loops and parallel links, in place, and counts both.

    Of two rows that name each other, the one with the smaller key keeps the link, whatever their order.
    """
    loops, parallel = 0, 0
    for table in range(len(num_fks)):
        width = num_fks[table]
        for row in range(offsets[table + 1] - offsets[table]):
            node = offsets[table] + row
            slots = start[table] + row * width
            for slot in range(slots, slots + width):
                parent = parents[slot]
                if parent < 0:
                    continue
                if parent == node:
                    parents[slot] = -1
                    loops += 1
                elif _stands_in(parents, slots, slot, parent) or (
                    (key[parent], parent) < (key[node], node)
                    and _names(parents, start, num_fks, offsets, parent, node)
                ):
                    parents[slot] = -1
                    parallel += 1
    return loops, parallel


@compiled
def _stands_in(parents: Ints, begin: int, end: int, node: int) -> bool:
    for slot in range(begin, end):
        if parents[slot] == node:
            return True
    return False


@compiled
def _names(parents: Ints, start: Ints, num_fks: Ints, offsets: Ints, child: int, node: int) -> bool:
    """Whether `child` names `node` as a parent: then the link between them stands there already."""
    table = np.searchsorted(offsets, child, side="right") - 1
    slots = start[table] + (child - offsets[table]) * num_fks[table]
    found: bool = _stands_in(parents, slots, slots + num_fks[table], node)
    return found


@compiled
def count_links(parents: Ints, start: Ints, num_fks: Ints, offsets: Ints) -> tuple[Ints, Ints]:
    num_children = np.zeros(offsets[-1], dtype=np.int64)
    num_parents = np.zeros(offsets[-1], dtype=np.int32)
    for table in range(len(num_fks)):
        width = num_fks[table]
        for row in range(offsets[table + 1] - offsets[table]):
            for slot in range(width):
                parent = parents[start[table] + row * width + slot]
                if parent >= 0:
                    num_children[parent] += 1
                    num_parents[offsets[table] + row] += 1
    return num_children, num_parents


@compiled
def append_children(
    order: Ints,
    rank: Ints,
    parents: Ints,
    start: Ints,
    num_fks: Ints,
    offsets: Ints,
    indptr: Ints,
    num_parents: Ints,
    entries: Ints,
) -> None:
    """Fills the lists with children, leaving room at the front of each for the parents."""
    cursor = indptr[:-1] + num_parents
    for node in order:
        table = np.searchsorted(offsets, node, side="right") - 1
        slots = start[table] + (node - offsets[table]) * num_fks[table]
        for slot in range(slots, slots + num_fks[table]):
            parent = parents[slot]
            if parent >= 0:
                edge = max(rank[node], rank[parent])
                entries[cursor[parent]] = (np.int64(edge) << 32) | np.int64(node)
                cursor[parent] += 1


@compiled
def _comes_before(first: int, second: int, key: Ints) -> bool:
    """Whether an entry stands before another: by rank, then by the stable key of the neighbour."""
    if first >> 32 != second >> 32:
        return first >> 32 < second >> 32
    is_smaller: bool = key[first & 0xFFFFFFFF] < key[second & 0xFFFFFFFF]
    return is_smaller


@compiled
def merge_parents(
    rank: Ints,
    key: Ints,
    parents: Ints,
    start: Ints,
    num_fks: Ints,
    offsets: Ints,
    indptr: Ints,
    entries: Ints,
) -> None:
    """Merges the parents of each node into its sorted children, in place."""
    front = np.empty(max(1, num_fks.max()), dtype=np.int64)
    for table in range(len(num_fks)):
        width = num_fks[table]
        for row in range(offsets[table + 1] - offsets[table]):
            node = offsets[table] + row
            count = 0
            for slot in range(width):
                parent = parents[start[table] + row * width + slot]
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


@compiled
def count_older_children(rank: Ints, key: Ints, indptr: Ints, num_parents: Ints, entries: Ints) -> Ints:
    """For each node, how many children it has that are not newer than itself and stand out of order.

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
def partition(order: Ints, offsets: Ints, stream: Ints) -> None:
    cursor = offsets[:-1].copy()
    for node in order:
        table = np.searchsorted(offsets, node, side="right") - 1
        stream[cursor[table]] = node
        cursor[table] += 1


@compiled
def visible_end(entries: Ints, begin: int, end: int, last_rank: int) -> int:
    """The end of the visible prefix of a list: of the entries whose rank is at most `last_rank`."""
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


@compiled
def prefix_lengths(indptr: Ints, entries: Ints, nodes: Ints, last_rank: Ints) -> Ints:
    """The length of each node's visible prefix."""
    lengths = np.empty(len(nodes), dtype=np.int64)
    for place in range(len(nodes)):
        begin, end = indptr[nodes[place]], indptr[nodes[place] + 1]
        lengths[place] = visible_end(entries, begin, end, last_rank[place]) - begin
    return lengths
