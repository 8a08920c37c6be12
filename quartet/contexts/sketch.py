"""The structural sketch of a seed (equation 4): size, span, density and type mix of its neighbourhood.

F = log(1 + [d_c, s, ρ, π_max, c]): visible degree, span in days from the first to the last timed link,
links per day, the largest visit count of the walks, and the visible neighbours of each table. The counts
by table come from checkpoints along the lists of hubs, so that no hub is scanned.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from quartet.contexts.nodes import table_of
from quartet.graph import TemporalGraph, visible_end
from quartet.machine import compiled
from quartet.times import DAY

NUM_SCALARS = 4
STRIDE = 256  # entries between two checkpoints


def type_checkpoints(graph: TemporalGraph) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """For each node where its checkpoints start, and the neighbours by table up to each checkpoint."""
    num_points = np.diff(graph.indptr) // STRIDE
    starts = np.concatenate([[0], np.cumsum(num_points)])
    counts = np.zeros((starts[-1], len(graph.names)), dtype=np.int32)
    _fill_checkpoints(graph.indptr, graph.entries, graph.offsets, starts, counts)
    return starts, counts


@compiled
def _fill_checkpoints(indptr: Any, entries: Any, offsets: Any, starts: Any, counts: Any) -> None:
    seen = np.zeros(len(offsets) - 1, np.int32)
    for node in range(len(indptr) - 1):
        seen[:] = 0
        for point in range(starts[node], starts[node + 1]):
            begin = indptr[node] + (point - starts[node]) * STRIDE
            for entry in range(begin, begin + STRIDE):
                seen[table_of(entries[entry] & 0xFFFFFFFF, offsets)] += 1
            counts[point] = seen


@compiled
def sketch_many(
    graph: Any, times: Any, points: Any, nodes: Any, last_ranks: Any, peaks: Any, sketch: Any
) -> None:
    """Writes the sketch of each seed into its row."""
    indptr, entries, offsets = graph[0], graph[1], graph[6]
    starts, counts = points
    row = np.empty(sketch.shape[1], np.float64)  # rounded once, at the end
    for seed in range(len(nodes)):
        begin = indptr[nodes[seed]]
        end = visible_end(entries, begin, indptr[nodes[seed] + 1], last_ranks[seed])
        row[:] = 0.0
        sketch[seed] = 0.0
        if end == begin:
            continue
        full = (end - begin) // STRIDE
        if full:
            row[NUM_SCALARS:] = counts[starts[nodes[seed]] + full - 1]
        for entry in range(begin + full * STRIDE, end):
            row[NUM_SCALARS + table_of(entries[entry] & 0xFFFFFFFF, offsets)] += 1
        first_timed = visible_end(entries, begin, end, 0)  # rank 0: always known
        if first_timed < end:
            span = times[entries[end - 1] >> 32] - times[entries[first_timed] >> 32]
            row[1] = span / DAY
        row[0] = end - begin
        row[2] = row[0] / max(row[1], 1.0)
        row[3] = peaks[seed]
        sketch[seed] = np.log1p(row)
