"""A set of nodes that numbers its members in the order of their discovery, for use in kernels.

Open addressing over three small arrays. A mark tells the entries of the current seed from those of
earlier ones, so that nothing is cleared between seeds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from quartet.machine import compiled

_STEP = np.uint64(0x9E3779B97F4A7C15)
ABSENT = -1


@compiled
def node_table(most: Any) -> Any:
    """Empty arrays (node, number, mark) for up to `most` nodes, a quarter full at the most."""
    size = 64
    while size < 4 * most:
        size *= 2
    return np.empty(size, np.int32), np.empty(size, np.int32), np.full(size, -1, np.int32)


@compiled
def _place(node: Any, mark: Any, table: Any) -> Any:
    """Where a node stands, or where it would."""
    nodes, _, marks = table
    mask = len(nodes) - 1
    place = np.int64((np.uint64(node) * _STEP) >> np.uint64(40)) & mask
    while marks[place] == mark and nodes[place] != node:
        place = (place + 1) & mask
    return place


@compiled
def find(node: Any, mark: Any, table: Any) -> Any:
    """The number of a node, or `ABSENT`."""
    place = _place(node, mark, table)
    return np.int64(table[1][place]) if table[2][place] == mark else np.int64(ABSENT)


@compiled
def find_or_add(node: Any, number: Any, mark: Any, table: Any) -> Any:
    """The number of a node, which becomes `number` if the node is new."""
    place = _place(node, mark, table)
    if table[2][place] != mark:
        table[0][place] = node
        table[1][place] = number
        table[2][place] = mark
    return np.int64(table[1][place])


@compiled
def rank_by_count(counts: Any, num: Any, wanted: Any, ranked: Any, starts: Any) -> Any:
    """Fills `ranked` with the numbers 1..num-1 of highest count, ties in the order of discovery.

    A stable counting sort: number 0 is the seed and takes no part. Returns how many were ranked.
    """
    highest = 0
    for number in range(1, num):
        highest = max(highest, counts[number])
    starts[: highest + 1] = 0
    for number in range(1, num):
        starts[counts[number]] += 1
    total = 0
    for count in range(highest, -1, -1):
        size = starts[count]
        starts[count] = total
        total += size
    for number in range(1, num):
        place = starts[counts[number]]
        starts[counts[number]] += 1
        if place < wanted:
            ranked[place] = number
    return min(total, wanted)


@compiled
def are_linked(one: Any, other: Any, parents: Any, parents_start: Any, num_fks: Any, offsets: Any) -> Any:
    """Whether two nodes are neighbours: one of them names the other as a parent."""
    return _has_parent(one, other, parents, parents_start, num_fks, offsets) or _has_parent(
        other, one, parents, parents_start, num_fks, offsets
    )


@compiled
def _has_parent(child: Any, node: Any, parents: Any, parents_start: Any, num_fks: Any, offsets: Any) -> Any:
    first, last = parent_slots(child, parents_start, num_fks, offsets)
    for slot in range(first, last):
        if parents[slot] == node:
            return True
    return False


@compiled
def table_of(node: Any, offsets: Any) -> Any:
    """The table of a node; there are few tables, so they are tried in turn."""
    table = 0
    while node >= offsets[table + 1]:
        table += 1
    return table


@compiled
def parent_slots(node: Any, parents_start: Any, num_fks: Any, offsets: Any) -> Any:
    """The range of a node's places in `parents`."""
    table = table_of(node, offsets)
    first = parents_start[table] + (node - offsets[table]) * num_fks[table]
    return first, first + num_fks[table]
