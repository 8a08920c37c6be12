"""The samplers, by name, and `sample`, which runs those that are asked for over many seeds.

A context of its own for a new branch is a sampler in a file of its own, a row of `SAMPLERS`, and its fields in
`Context`. A new way to gather local rows is a file and a row of `LOCAL_SAMPLERS`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple
from weakref import proxy

import numpy as np

from quartet.config import Branch, SamplingConfig
from quartet.contexts.bfs import bfs_local
from quartet.contexts.chunk import Chunk, Sampler
from quartet.contexts.collab import collab_sampler
from quartet.contexts.context import FIELDS, Array, Arrays, Context, Owner, joined
from quartet.contexts.fallback import fall_back
from quartet.contexts.local import LocalRows
from quartet.contexts.sketch import sketch_sampler
from quartet.contexts.temporal import temporal_sampler
from quartet.contexts.uniform import uniform_local
from quartet.contexts.walk import walk_local
from quartet.graph import TemporalGraph
from quartet.listener import SILENT, Listener
from quartet.machine import mapped, usable_cores
from quartet.tasks import Seeds

CHUNK = 1024  # seeds that a thread samples at a time
_MOST_KEPT = 2  # settings whose samplers a graph keeps: those of the members of a portfolio

LOCAL_SAMPLERS: dict[str, Callable[[Chunk, LocalRows], None]] = {
    "walk": walk_local,
    "bfs": bfs_local,
    "uniform": uniform_local,
}


def local_sampler(graph: TemporalGraph, config: SamplingConfig) -> Sampler:
    """Returns the sampler of local contexts; without one, seeds stand alone."""

    def sample(seeds: Chunk, _: Arrays) -> Arrays:
        rows = LocalRows.alone(seeds)
        if config.has("topology") or (config.local and config.local_sampler == "walk"):
            walk_local(seeds, rows)  # a sketch holds the walks' largest count, whatever the local context is
        if config.local and config.local_sampler != "walk":
            LOCAL_SAMPLERS[config.local_sampler](seeds, rows)
        if not config.local:
            rows.cut_to_seeds(seeds.node)
        elif config.fallback == "visible":
            fall_back(seeds, rows, graph.stream_rank)
        return rows.arrays()

    return sample


class SamplerRow(NamedTuple):
    """A context: whose it is, the branch that reads it (None: every model), and what makes its sampler."""

    owner: Owner
    branch: Branch | None
    make: Callable[[TemporalGraph, SamplingConfig], Sampler]


SAMPLERS = {  # in the order in which they run
    "local": SamplerRow("seed", None, local_sampler),
    "sketch": SamplerRow("seed", "topology", sketch_sampler),
    "collab": SamplerRow("seed", "collab", collab_sampler),
    "temporal": SamplerRow("time", "temporal", temporal_sampler),
}


def _samplers(graph: TemporalGraph, config: SamplingConfig) -> dict[Owner, list[Sampler]]:
    """Returns the samplers of each owner, which keep what they need of a graph from one call to the next."""
    made: dict[str, dict[Owner, list[Sampler]]] = graph.made.setdefault("samplers", {})
    own = made.get(config.digest())
    if own is None:
        own = {"seed": [], "time": []}
        weak = proxy(graph)  # what a graph keeps does not keep it: it goes as soon as nobody asks it any more
        for row in SAMPLERS.values():
            if row.branch is None or config.has(row.branch):
                own[row.owner].append(row.make(weak, config))
        if len(made) == _MOST_KEPT:
            made.clear()
        made[config.digest()] = own
    return own


def sample(
    graph: TemporalGraph,
    seeds: Seeds,
    config: SamplingConfig,
    num_threads: int | None = None,
    listener: Listener = SILENT,
    what: str = "contexts",
) -> Context:
    """Samples the contexts of all seeds, equal whatever the threads, the order or the company of a seed.

    The listener is told of progress in `what`: first of none, before the work begins, then of each chunk.
    """
    node, time = np.asarray(seeds.node, np.int64), np.asarray(seeds.time, np.int64)
    times, time_index = np.unique(time, return_inverse=True)
    samplers = _samplers(graph, config)

    def gather(owner: Owner, chunk: Chunk) -> dict[str, Array]:
        """Runs the samplers of an owner; what none has gathered is empty."""
        gathered: dict[str, Array] = {"seed_node": chunk.node.astype(np.int32), "seed_time": chunk.time}
        for sampler in samplers[owner]:
            gathered |= sampler(chunk, gathered)
        own = (each for each in FIELDS if each.owner == owner)
        return {
            each.name: gathered[each.name] if each.name in gathered else each.empty(len(chunk))
            for each in own
        }

    def gather_seeds(first: int) -> dict[str, Array]:
        some = slice(first, first + CHUNK)
        return gather("seed", Chunk.of(graph, config, node[some], time[some]))

    listener.progress(what, 0, len(seeds))
    parts = []
    chunks = range(0, max(len(seeds), 1), CHUNK)
    for part in mapped(gather_seeds, chunks, min(len(chunks), num_threads or usable_cores())):
        parts.append(part)
        listener.progress(what, len(part["seed_node"]), len(seeds))
    by_time = gather("time", Chunk.of(graph, config, np.empty(0, np.int64), times))
    arrays = joined(parts) | by_time | {"time_index": time_index.astype(np.int32).reshape(-1)}
    return Context(**arrays)
