"""The contexts of a database, sampled and by the twins."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from quartet.config import SamplingConfig
from quartet.contexts import Context, sample
from quartet.database import Database
from quartet.graph import TemporalGraph
from quartet.tasks import Seeds
from tests.reference.bfs import bfs_context
from tests.reference.collab import collab_context
from tests.reference.fallback import fall_back
from tests.reference.graph import Twin
from tests.reference.sketch import sketch
from tests.reference.temporal import temporal_context
from tests.reference.uniform import uniform_context
from tests.reference.walk import Local, walk_context
from tests.strategies import Seed

_LOCAL = {"walk": walk_context, "bfs": bfs_context, "uniform": uniform_context}


def seeds_from(pairs: Sequence[tuple[int, int]]) -> Seeds:
    """Seeds without targets, from pairs (node, time)."""
    node, time = np.array(pairs, np.int64).reshape(-1, 2).T
    return Seeds(node.copy(), time.copy(), None)


def pairs_of(database: Database, seeds: Sequence[Seed]) -> list[tuple[int, int]]:
    return [(database.offsets[table] + row, time) for table, row, time in seeds]


def assert_twins(
    graph: TemporalGraph, twin: Twin, pairs: Sequence[tuple[int, int]], config: SamplingConfig
) -> Context:
    """The samplers give what the twins give, number by number; returns the contexts."""
    context = sample(graph, seeds_from(pairs), config)
    assert len(context) == len(pairs)
    for place, (seed, time) in enumerate(pairs):
        local = local_twin(twin, seed, time, config)
        nodes, hops, counts, edges = context.local(place)
        assert nodes.tolist() == local.nodes
        assert hops.tolist() == local.hops
        assert counts.tolist() == local.counts
        assert [tuple(edge) for edge in edges.tolist()] == local.edges
        collab = collab_context(twin, seed, time, config) if config.has("collab") else []
        assert context.collab(place).tolist() == collab
        recent = temporal_context(twin, time, config) if config.has("temporal") else []
        assert context.temporal(place).tolist() == recent
        peak = walk_context(twin, seed, time, config).peak  # the walks', whatever gathered the rows
        drawn = sketch(twin, seed, time, config, peak) if config.has("topology") else []
        assert context.sketch[place].tolist() == drawn
    return context


def local_twin(twin: Twin, seed: int, time: int, config: SamplingConfig) -> Local:
    gather = _LOCAL[config.local_sampler]
    return fall_back(twin, seed, time, config, gather(twin, seed, time, config))
