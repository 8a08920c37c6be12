"""Context: everything the samplers gathered for S seeds, as a few flat arrays.

Rows are kept once, with how often each stands in the padded sequence of the paper (`share`); the temporal
context is kept once for each distinct time. Sampled live or opened from the cache, it is the same object
with the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quartet.causal import last_visible_rank
from quartet.config import SamplingConfig
from quartet.contexts.bfs import bfs_many
from quartet.contexts.collab import probe_many
from quartet.contexts.draws import seed_keys
from quartet.contexts.fallback import fall_back
from quartet.contexts.sketch import NUM_SCALARS, sketch_many, type_checkpoints
from quartet.contexts.temporal import sample_recent_links, sample_temporal
from quartet.contexts.walk import walk_many
from quartet.graph import TemporalGraph
from quartet.machine import compiled, usable_cores
from quartet.tasks import Seeds

CHUNK = 1024  # seeds that a thread samples at a time
Progress = Callable[[int], None]
Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Context:
    """The contexts of S seeds. The seed itself is the first of its local rows.

    A context that was not asked for has zero rows everywhere, and costs nothing.
    """

    seed_node: Array  # (S,) int32
    seed_time: Array  # (S,) int64
    local_start: Array  # (S + 1,) int64
    local_node: Array  # int32
    local_hop: Array  # uint8: 0 for the seed, the fallback bin for rows drawn at random
    local_count: Array  # uint16: how often the row stands in the padded sequence
    edge_start: Array  # (S + 1,) int64
    edge: Array  # (E, 2) uint16: child and parent, as places among the seed's local rows
    collab_start: Array  # (S + 1,) int64
    collab_node: Array  # int32, best first
    time_index: Array  # (S,) int32: which temporal context is the seed's
    temporal_start: Array  # (distinct times + 1,) int64
    temporal_node: Array  # int32
    sketch: Array  # (S, 4 + tables) float32

    def __post_init__(self) -> None:
        for start, rows in _PAIRS:
            ends, content = getattr(self, start), getattr(self, rows)
            if ends[0] != 0 or ends[-1] != len(content) or (np.diff(ends) < 0).any():
                raise ValueError(f"{start} does not cut {rows} into parts")
        if not len(self) == len(self.seed_time) == len(self.time_index) == len(self.local_start) - 1:
            raise ValueError("arrays of different numbers of seeds")
        if (
            len(self)
            and not 0 <= self.time_index.min() <= self.time_index.max() < len(self.temporal_start) - 1
        ):
            raise ValueError("time_index names a temporal context that is not there")

    def __len__(self) -> int:
        return len(self.seed_node)

    @property
    def arrays(self) -> dict[str, Array]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def num_bytes(self) -> int:
        return sum(array.nbytes for array in self.arrays.values())

    def local(self, seed: int) -> tuple[Array, Array, Array, Array]:
        """Nodes, hops, shares and edges of one seed."""
        rows = slice(self.local_start[seed], self.local_start[seed + 1])
        edges = slice(self.edge_start[seed], self.edge_start[seed + 1])
        return self.local_node[rows], self.local_hop[rows], self.local_count[rows], self.edge[edges]

    def collab(self, seed: int) -> Array:
        return self.collab_node[self.collab_start[seed] : self.collab_start[seed + 1]]

    def temporal(self, seed: int) -> Array:
        which = self.time_index[seed]
        return self.temporal_node[self.temporal_start[which] : self.temporal_start[which + 1]]


_PAIRS = (
    ("local_start", "local_node"),
    ("local_start", "local_hop"),
    ("local_start", "local_count"),
    ("edge_start", "edge"),
    ("collab_start", "collab_node"),
    ("temporal_start", "temporal_node"),
)


def sample(
    graph: TemporalGraph,
    seeds: Seeds,
    config: SamplingConfig,
    num_threads: int | None = None,
    progress: Progress = lambda _: None,
) -> Context:
    """The contexts of all seeds, equal whatever the threads, the order or the company of a seed.

    `progress` is told after each chunk how many seeds it had.
    """
    space = _Space.of(graph, config)
    threads = num_threads or usable_cores()
    chunks = [slice(first, first + CHUNK) for first in range(0, len(seeds), CHUNK)]
    node, time = np.asarray(seeds.node, np.int64), np.asarray(seeds.time, np.int64)

    def one(chunk: slice) -> _Part:
        return space.sample(node[chunk], time[chunk])

    parts = []
    with ThreadPoolExecutor(threads) as pool:
        for part in _in_order(pool, one, chunks, threads):
            parts.append(part)
            progress(len(part.counts))
    return _joined(graph, node, time, parts, config)


def _in_order(
    pool: ThreadPoolExecutor, work: Callable[[slice], _Part], chunks: list[slice], threads: int
) -> Iterator[_Part]:
    """Results in the order of the chunks, with only a few chunks under way at a time."""
    waiting = []
    for chunk in chunks:
        waiting.append(pool.submit(work, chunk))
        if len(waiting) > 2 * threads:
            yield waiting.pop(0).result()
    for future in waiting:
        yield future.result()


@dataclass(frozen=True)
class _Part:
    """The flat local, collaborative and sketch arrays of one chunk."""

    counts: Array  # (seeds, 2): local rows, edges
    node: Array
    hop: Array
    share: Array
    edge: Array
    num_collab: Array
    collab: Array
    sketch: Array


@dataclass(frozen=True)
class _Space:
    """What every chunk needs and none changes."""

    graph: TemporalGraph
    config: SamplingConfig
    arrays: tuple[Array, ...]
    points: tuple[Array, Array]
    stream_ranks: Array

    @staticmethod
    def of(graph: TemporalGraph, config: SamplingConfig) -> _Space:
        arrays = (
            graph.indptr,
            graph.entries,
            graph.stable_key,
            graph.parents,
            graph.parents_start,
            graph.num_foreign_keys,
            graph.offsets,
            graph.node_rank,
        )
        empty = np.zeros(graph.num_nodes + 1, np.int64), np.empty((0, len(graph.names)), np.int32)
        points = type_checkpoints(graph) if config.has("topology") else empty
        return _Space(graph, config, arrays, points, graph.node_rank[graph.stream])

    def sample(self, node: Array, time: Array) -> _Part:
        last = last_visible_rank(self.graph.times, time, self.config.time_rule)
        shape = (len(node), self.config.local_budget)
        most_edges = self.config.local_budget * max(1, int(self.graph.num_foreign_keys.max()))
        local = np.empty(shape, np.int32), np.empty(shape, np.uint8), np.empty(shape, np.uint16)
        edges, size = np.empty((len(node), most_edges, 2), np.uint16), np.zeros((len(node), 3), np.int32)
        if self.config.local or self.config.has("topology"):  # a sketch holds the walks' largest count
            self._local(node, time, last, local, edges, size)
        if not self.config.local:
            _keep_the_seed(node, local, size)
        # Contiguous whatever the number of seeds: else kernels are compiled once more for a single one.
        num_rows, num_edges, peaks = np.ascontiguousarray(size.T)
        peers, num_peers = self._collab(node, time, last)
        sketch = np.zeros((len(node), NUM_SCALARS + len(self.graph.names)), np.float32)
        if self.config.has("topology"):
            sketch_many(self.arrays, self.graph.times, self.points, node, last, peaks, sketch)
        else:
            sketch = sketch[:, :0]
        rows, hop, share = (_packed(array, num_rows) for array in local)
        edge, peer = _packed(edges, num_edges), _packed(peers, num_peers)
        return _Part(size[:, :2], rows, hop, share, edge, num_peers, peer, sketch)

    def _local(self, node: Array, time: Array, last: Array, local: Any, edges: Array, size: Array) -> None:
        config = self.config
        keys = seed_keys(self.graph, node, time, config.rng_seed, config.local_sampler)
        if config.local_sampler == "walk":
            settings = (
                config.num_walks,
                config.walk_length,
                int(config.restart_prob * 2**32),
                config.max_recent or 0,
                config.truncation == "random",
                config.local_budget,
            )
            walk_many(self.arrays, node, last, keys, settings, *local, edges, size)
        else:
            bfs_many(self.arrays, node, last, keys, config.local_budget, *local, edges, size)
        if config.fallback == "visible":
            keys = seed_keys(self.graph, node, time, config.rng_seed, "fallback")
            fall_back(
                self.arrays, self.stream_ranks, self.graph.stream, node, last, keys, config.fallback_hop,
                *local, size,
            )  # fmt: skip

    def _collab(self, node: Array, time: Array, last: Array) -> tuple[Array, Array]:
        config = self.config
        peers, count = np.empty((len(node), config.collab_budget), np.int32), np.zeros(len(node), np.int64)
        if config.has("collab"):
            keys = seed_keys(self.graph, node, time, config.rng_seed, f"collab{config.collab_hops}")
            settings = (config.first_fanout, config.second_fanout, config.collab_hops, config.collab_budget)
            probe_many(self.arrays, node, last, keys, settings, peers, count)
        return peers, count


def _joined(
    graph: TemporalGraph, node: Array, time: Array, parts: list[_Part], config: SamplingConfig
) -> Context:
    """One context from the parts, with the temporal context of each distinct time."""
    times, which = np.unique(time, return_inverse=True)
    recent: list[NDArray[np.int32]] = [np.empty(0, np.int32) for _ in times]
    if config.has("temporal") and config.temporal_unit == "links":
        recent = sample_recent_links(graph, times, config.recent_links, config.time_rule)
    elif config.has("temporal"):
        recent = sample_temporal(graph, times, config.temporal_budget, config.lookback_days, config.time_rule)

    def all_of(name: str, like: Array) -> Array:
        return np.concatenate([like, *(getattr(part, name) for part in parts)])

    counts = all_of("counts", np.empty((0, 2), np.int32))
    width = NUM_SCALARS + len(graph.names) if config.has("topology") else 0
    return Context(
        seed_node=node.astype(np.int32),
        seed_time=time,
        local_start=_starts(counts[:, 0]),
        local_node=all_of("node", np.empty(0, np.int32)),
        local_hop=all_of("hop", np.empty(0, np.uint8)),
        local_count=all_of("share", np.empty(0, np.uint16)),
        edge_start=_starts(counts[:, 1]),
        edge=all_of("edge", np.empty((0, 2), np.uint16)),
        collab_start=_starts(all_of("num_collab", np.empty(0, np.int64))),
        collab_node=all_of("collab", np.empty(0, np.int32)),
        time_index=which.astype(np.int32).reshape(-1),
        temporal_start=_starts(np.array([len(rows) for rows in recent], np.int64)),
        temporal_node=np.concatenate([np.empty(0, np.int32), *recent]),
        sketch=all_of("sketch", np.empty((0, width), np.float32)),
    )


def _keep_the_seed(node: Array, local: Any, size: Array) -> None:
    """Cuts local contexts down to the seed."""
    rows, hop, share = local
    rows[:, 0], hop[:, 0], share[:, 0] = node, 0, 1
    size[:, :2] = (1, 0)


@compiled
def _packed(rows: Any, counts: Any) -> Any:
    """The first so many cells of each row, one row after the other."""
    packed = np.empty((counts.sum(), *rows.shape[2:]), rows.dtype)
    end = 0
    for place in range(len(rows)):
        packed[end : end + counts[place]] = rows[place, : counts[place]]
        end += counts[place]
    return packed


def _starts(counts: Array) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
