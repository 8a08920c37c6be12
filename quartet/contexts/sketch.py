"""The structural sketch of a seed (equation 4): size, span, density and type mix of its neighbourhood.

F = log(1 + [d_c, s, ρ, π_max, c]): visible degree, span in days from the first to the last timed link,
links per day, the largest visit count of the walks, and the visible neighbours of each table. The counts
by table come from checkpoints along the lists of hubs, so that no hub is scanned.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from quartet.config import SamplingConfig
from quartet.contexts.chunk import Chunk, Sampler
from quartet.contexts.context import Array, Arrays
from quartet.graph import TemporalGraph, seed_entries, table_of, visible_end
from quartet.machine import compiled
from quartet.times import DAY

NUM_SCALARS = 4
STRIDE = 256  # entries between two checkpoints


def sketch_sampler(graph: TemporalGraph, _: SamplingConfig) -> Sampler:
    """Returns the sampler of the seeds' sketches, which reads the `peak` of their walks."""
    first_point, by_table = checkpoints(graph)

    def sample(seeds: Chunk, gathered: Arrays) -> Arrays:
        sketch = np.zeros((len(seeds), NUM_SCALARS + len(graph.names)), np.float32)
        _sketch_many(
            graph.arrays,
            first_point,
            by_table,
            seeds.node,
            seeds.time,
            seeds.last_rank,
            gathered["peak"],
            sketch,
        )
        return {"sketch": sketch}

    return sample


def checkpoints(graph: TemporalGraph) -> tuple[Array, Array]:
    """Returns where the checkpoints of each node begin, and the neighbours of each table up to each of them."""
    if "checkpoints" not in graph.made:
        first_point = np.concatenate([[0], np.cumsum(np.diff(graph.indptr) // STRIDE)])
        by_table = np.zeros((first_point[-1], len(graph.names)), dtype=np.int32)
        _fill_checkpoints(graph.arrays, first_point, by_table)
        for array in (first_point, by_table):
            array.flags.writeable = False  # as where they are mapped from a file: kernels are compiled once
        graph.made["checkpoints"] = first_point, by_table
    first_point, by_table = graph.made["checkpoints"]
    return first_point, by_table


@compiled
def _fill_checkpoints(graph: Any, first_point: Any, by_table: Any) -> None:
    """Counts for each node the neighbours of each table up to each of its checkpoints."""
    seen = np.zeros(len(graph.offsets) - 1, np.int32)
    for node in range(len(graph.indptr) - 1):
        seen[:] = 0
        for point in range(first_point[node], first_point[node + 1]):
            begin = graph.indptr[node] + (point - first_point[node]) * STRIDE
            for entry in range(begin, begin + STRIDE):
                seen[table_of(graph, graph.entries[entry] & 0xFFFFFFFF)] += 1
            for table in range(len(seen)):  # cell by cell: whole rows take a second more to compile
                by_table[point, table] = seen[table]


@compiled
def _sketch_many(
    graph: Any, first_point: Any, by_table: Any, nodes: Any, seed_times: Any, last_ranks: Any, peaks: Any,
    sketch: Any,
) -> None:  # fmt: skip
    times = graph.times
    row = np.empty(sketch.shape[1], np.float64)  # rounded once, at the end
    for seed in range(len(nodes)):
        own = seed_entries(graph, nodes[seed], seed_times[seed], last_ranks[seed])
        degree = len(own)
        if degree == 0:
            continue
        # Checkpoints stand along the whole list, of which these entries are the beginning, or a few.
        is_prefix = graph.node_rank[nodes[seed]] <= last_ranks[seed]
        num_points = degree // STRIDE if is_prefix else 0
        row[:] = 0.0
        if num_points:
            point = first_point[nodes[seed]] + num_points - 1
            for table in range(by_table.shape[1]):
                row[NUM_SCALARS + table] = by_table[point, table]
        for place in range(num_points * STRIDE, degree):
            row[NUM_SCALARS + table_of(graph, own[place] & 0xFFFFFFFF)] += 1
        first_timed = visible_end(own, np.int64(0), degree, np.int64(0))  # rank 0: always known
        if first_timed < degree:
            row[1] = (times[own[degree - 1] >> 32] - times[own[first_timed] >> 32]) / DAY
        row[0] = degree
        row[2] = row[0] / max(row[1], 1.0)
        row[3] = peaks[seed]
        for place in range(len(row)):
            sketch[seed, place] = np.log1p(row[place])
