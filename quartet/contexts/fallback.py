"""Rows for a seed without history: a uniform sample of everything that is visible at its time.

The paper draws from the whole graph, which would show the future; and such seeds are not rare.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from quartet.contexts.draws import below, draw
from quartet.contexts.nodes import find_or_add, node_table
from quartet.machine import compiled


@compiled
def fall_back(
    graph: Any, stream_ranks: Any, stream: Any, nodes: Any, last_ranks: Any, keys: Any, hop_bin: Any,
    node: Any, hop: Any, share: Any, size: Any,
) -> None:  # fmt: skip
    """Fills the row of each seed that has no other row with random visible ones, without edges."""
    offsets = graph[6]
    budget = node.shape[1]
    table = node_table(budget)
    ends = np.empty(len(offsets), np.int64)
    for seed in range(len(nodes)):
        if size[seed, 0] > 1:
            continue
        ends[0] = 0
        for kind in range(len(offsets) - 1):
            part = stream_ranks[offsets[kind] : offsets[kind + 1]]
            ends[kind + 1] = ends[kind] + np.searchsorted(part, last_ranks[seed], side="right")
        find_or_add(nodes[seed], 0, seed, table)
        count = _draw_rows(ends, offsets, stream, keys[seed], budget - 1, seed, table, node[seed])
        free = budget - 1 - count
        for place in range(1, count + 1):
            hop[seed, place] = hop_bin
            share[seed, place] = 1 + free // count + (place <= free % count)
        size[seed, 0] = count + 1


@compiled
def _draw_rows(
    ends: Any, offsets: Any, stream: Any, key: Any, wanted: Any, mark: Any, table: Any, node: Any
) -> Any:
    """Up to `wanted` distinct visible rows into `node[1:]`: all there are, or draws until it is enough."""
    total, count, attempt = ends[-1], 0, 0
    if total <= wanted:
        for number in range(total):
            count = _take(number, ends, offsets, stream, count, mark, table, node)
        return count
    while count < wanted:
        number = below(draw(key, attempt), total)
        count = _take(number, ends, offsets, stream, count, mark, table, node)
        attempt += 1
    return count


@compiled
def _take(
    number: Any, ends: Any, offsets: Any, stream: Any, count: Any, mark: Any, table: Any, node: Any
) -> Any:
    """Adds visible row `number` unless it is there already; returns how many there are now."""
    kind = np.searchsorted(ends, number, side="right") - 1
    row = stream[offsets[kind] + number - ends[kind]]
    if find_or_add(row, count + 1, mark, table) != count + 1:
        return count
    node[count + 1] = row
    return count + 1
