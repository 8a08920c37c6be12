"""A set of nodes that numbers its members in the order of their discovery, for use in kernels.

Nothing is cleared between seeds: each has a mark of its own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from quartet.machine import part

_STEP = np.uint64(0x9E3779B97F4A7C15)
ABSENT = -1


class NodeTable(NamedTuple):
    """An open-addressed table; a mark tells the entries of the current seed from those of earlier ones."""

    key: Any  # the mark and the node, in one number
    number: Any


@part
def node_table(most: Any) -> Any:
    """Returns an empty table for up to `most` nodes, a quarter full at the most."""
    size = 64
    while size < 4 * most:
        size *= 2
    return NodeTable(np.full(size, -1, np.int64), np.empty(size, np.int32))


@part
def _place(key: Any, table: Any) -> Any:
    """Returns where a node stands, or where it would."""
    mask, mark = len(table.key) - 1, key >> 32
    place = np.int64((np.uint64(key & 0xFFFFFFFF) * _STEP) >> np.uint64(40)) & mask
    while table.key[place] != key and table.key[place] >> 32 == mark:
        place = (place + 1) & mask
    return place


@part
def find(node: Any, mark: Any, table: Any) -> Any:
    """Returns the number of a node, or `ABSENT`."""
    key = np.int64(mark) << 32 | np.int64(node)
    place = _place(key, table)
    return np.int64(table.number[place]) if table.key[place] == key else np.int64(ABSENT)


@part
def find_or_add(node: Any, number: Any, mark: Any, table: Any) -> Any:
    """Returns the number of a node, which becomes `number` if the node is new."""
    key = np.int64(mark) << 32 | np.int64(node)
    place = _place(key, table)
    if table.key[place] != key:
        table.key[place] = key
        table.number[place] = number
    return np.int64(table.number[place])


@part
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
