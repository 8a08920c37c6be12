"""What samplers are given and what they give back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quartet.causal import last_visible_rank
from quartet.config import SamplingConfig
from quartet.contexts.context import Array, Arrays, parts_of
from quartet.contexts.draws import seed_keys
from quartet.graph import TemporalGraph


@dataclass(frozen=True)
class Chunk:
    """Some seeds; or some distinct times, for a context that depends on the time alone (then `node` is empty)."""

    graph: TemporalGraph
    config: SamplingConfig
    node: NDArray[np.int64]
    time: NDArray[np.int64]
    last_rank: NDArray[np.int64]  # the largest time rank that each may see

    @staticmethod
    def of(graph: TemporalGraph, config: SamplingConfig, node: Array, time: Array) -> Chunk:
        return Chunk(graph, config, node, time, last_visible_rank(graph.times, time, config.time_rule))

    def __len__(self) -> int:
        return len(self.time)

    def keys(self, stream: str) -> NDArray[np.uint64]:
        """Returns the key of each seed's random numbers in a stream of draws."""
        return seed_keys(self.graph, self.node, self.time, self.config.rng_seed, stream)


Sampler = Callable[[Chunk, Arrays], Arrays]
"""Takes a chunk and what the samplers before it gathered for it; returns arrays by the name of their field."""


def packed(rows: Array, counts: Array) -> Array:
    """Returns the first so many cells of each row, one row after the other."""
    begin = np.arange(len(rows), dtype=np.int64) * rows.shape[1]
    cells = rows.reshape(-1, *rows.shape[2:])
    return parts_of(cells, begin, begin + counts, int(counts.sum()))
