"""Rows for a seed without history: a uniform sample of everything that is visible at its time.

The paper draws from the whole graph, which would show the future; and such seeds are not rare.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from quartet.contexts.chunk import Chunk
from quartet.contexts.context import Array
from quartet.contexts.draws import below, draw
from quartet.contexts.local import LocalRows, fill_equal_counts
from quartet.contexts.nodes import find_or_add, node_table
from quartet.machine import compiled, part


def fall_back(seeds: Chunk, rows: LocalRows, stream_ranks: Array) -> None:
    """Fills the context of each seed that stands alone with random visible rows, without edges.

    `stream_ranks` are the time ranks of the graph's streams.
    """
    hop_bin = seeds.config.fallback_hop
    keys = seeds.keys("fallback")
    _fall_back_many(seeds.graph.arrays, stream_ranks, seeds.node, seeds.last_rank, keys, hop_bin, rows)


@compiled
def _fall_back_many(
    graph: Any, stream_ranks: Any, nodes: Any, last_ranks: Any, keys: Any, hop_bin: Any, rows: Any
) -> None:
    node, hop, counts, _, num_rows, _, _ = rows
    budget, offsets = node.shape[1], graph.offsets
    table = node_table(budget)
    ends = np.empty(len(offsets), np.int64)  # of each table's visible rows, one table after the other
    for seed in range(len(nodes)):
        if num_rows[seed] > 1:
            continue
        ends[0] = 0
        for kind in range(len(offsets) - 1):
            first, last = offsets[kind], offsets[kind + 1]
            ends[kind + 1] = ends[kind] + _first_above(stream_ranks, first, last, last_ranks[seed]) - first
        find_or_add(nodes[seed], np.int64(0), seed, table)
        count = _draw_rows(graph, ends, keys[seed], budget - 1, seed, table, node[seed])
        fill_equal_counts(counts[seed], count, budget - 1)
        hop[seed, 1 : count + 1] = hop_bin
        num_rows[seed] = count + 1


@part
def _first_above(values: Any, low: Any, high: Any, most: Any) -> Any:
    """Returns the first place in values[low:high], which ascend, whose value is above `most`; `high` if there is none.

    numba's own search takes a second to compile.
    """
    while low < high:
        middle = (low + high) >> 1
        if values[middle] <= most:
            low = middle + 1
        else:
            high = middle
    return low


@part
def _draw_rows(graph: Any, ends: Any, key: Any, wanted: Any, mark: Any, table: Any, node: Any) -> Any:
    """Writes up to `wanted` distinct visible rows into `node[1:]`: all there are, or draws until it is enough."""
    stream, offsets = graph.stream, graph.offsets
    total, count, attempt = ends[-1], 0, 0
    takes_all = total <= wanted
    while attempt < total if takes_all else count < wanted:
        number = attempt if takes_all else below(draw(key, attempt), total)
        attempt += 1
        kind = _first_above(ends, np.int64(0), len(ends), number) - 1
        row = np.int64(stream[offsets[kind] + number - ends[kind]])
        if find_or_add(row, count + 1, mark, table) == count + 1:
            node[count + 1] = row
            count += 1
    return count
