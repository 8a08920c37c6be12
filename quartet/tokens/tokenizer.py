"""The Tokenizer, which makes token batches from contexts, and the order of seeds in random batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quartet.contexts import Array, Context, draw, seed_keys
from quartet.features import FeatureTable, TableFeatures, rows_of
from quartet.graph import TemporalGraph
from quartet.machine import compiled
from quartet.times import DAY, STATIC
from quartet.tokens.batch import SeedGroup, TableRows, TokenBatch

# Local tokens of a group, padding included. On a CPU eight seeds of 300 rows, which stay in its cache; an accelerator
# is busy only with more. The size decides the last bits of a logit.
_CPU_TOKENS, _ACCELERATOR_TOKENS = 2400, 2**16
_LEAST_TOKENS = 32  # as many a seed counts at least: it has a global context beside the shortest local one
_FEW_NODES = 64  # one in so many
_DRAWS_A_SEED = 2**15  # no local context is longer


@dataclass(frozen=True, eq=False)
class Tokenizer:
    """Makes token batches from the contexts of one graph and the features of its rows.

    The noise of the position encoder is counted, not remembered: it is a function of the seed, the place of the token
    and `draw`. Evaluation always uses draw 0, training another number at each step.
    """

    graph: TemporalGraph
    features: FeatureTable
    rng_seed: int = 0
    group_tokens: int | None = None  # the most local tokens of a group; None: as many as suit the device

    def __call__(self, context: Context, draw: int = 0, device: torch.device | str = "cpu") -> TokenBatch:
        """Returns the token batch of all seeds of a context, on a device."""
        nodes = (context.local_node, context.collab_node, context.temporal_node)
        node, place = self._distinct_rows(nodes)
        types = self.graph.types(node)
        bounds = np.searchsorted(types, np.arange(len(self.graph.names) + 1))
        pairs = _GlobalTokens.of(context, place, len(node))
        batch = TokenBatch(
            tables=tuple(
                _table_rows(table, node[bounds[number] : bounds[number + 1]] - self.graph.offsets[number])
                for number, table in enumerate(self.features.tables.values())
            ),
            row_type=_tensor(types),
            seed_row=_tensor(place[context.seed_node]),
            sketch=_tensor(context.sketch),
            global_row=_tensor(pairs.row),
            global_age=_tensor(self._ages(node[pairs.row], pairs.time)),
            num_collab_tokens=pairs.num_collab_tokens,
            temporal=_tensor(pairs.temporal),
            num_temporal=_tensor(np.diff(context.temporal_start)),
            time_index=_tensor(context.time_index),
            columns=_tensor(context.columns),
            groups=tuple(self._groups(context, place, pairs.collab, draw, torch.device(device))),
        )
        return batch if torch.device(device).type == "cpu" else batch.to(device)

    def _distinct_rows(self, nodes: tuple[Array, ...]) -> tuple[Array, Array]:
        """Returns the distinct nodes, table by table, and (N,) where each stands among them.

        They are in the order of their keys, not of their numbers, which move when unrelated rows do: a sum in another
        order has other last bits.
        """
        graph = self.graph
        if sum(map(len, nodes)) * _FEW_NODES < graph.num_nodes:  # looking at all of them takes longer
            node = np.unique(np.concatenate(nodes)).astype(np.int64)
        else:
            is_there = np.zeros(graph.num_nodes, bool)
            for some in nodes:
                is_there[some] = True
            node = np.flatnonzero(is_there)
        node = node[np.lexsort((graph.stable_key[node], graph.types(node)))]
        place = np.empty(graph.num_nodes, np.int64)  # for other nodes without meaning
        place[node] = np.arange(len(node))
        return node, place

    def _ages(self, node: Array, time: Array) -> NDArray[np.float32]:
        """Returns the days from each row to a time; NaN for rows without a time."""
        known = self.graph.times[self.graph.node_rank[node]]
        is_static = known == STATIC
        days = np.where(is_static, 0, time - np.where(is_static, 0, known)) / DAY
        return np.where(is_static, np.nan, days).astype(np.float32)

    def _groups(
        self, context: Context, place: Array, collab: Array, draw: int, device: torch.device
    ) -> Iterator[SeedGroup]:
        length, num_collab = np.diff(context.local_start), np.diff(context.collab_start)
        keys = seed_keys(
            self.graph, context.seed_node.astype(np.int64), context.seed_time, self.rng_seed, "position"
        )
        tokens = {
            "row": place[context.local_node],
            "type": self.graph.types(context.local_node),
            "hop": context.local_hop,
            "age": self._ages(context.local_node, np.repeat(context.seed_time, length)),
            "count": context.local_count.astype(np.float32),
            "noise": _normal(keys, context.local_start, draw * _DRAWS_A_SEED),
        }
        edges = context.edges()
        most = self.group_tokens or (_CPU_TOKENS if device.type == "cpu" else _ACCELERATOR_TOKENS)
        for seeds in _of_similar_length(length, most):
            width = int(length[seeds].max())
            where, is_real = _places(context.local_start, seeds, width)
            look_alikes, _ = _places(context.collab_start, seeds)
            padded = {
                name: np.where(is_real, values[where], values.dtype.type(0))
                for name, values in tokens.items()
            }
            yield SeedGroup(
                seed=_tensor(seeds),
                edge=_tensor(_edges(*edges, seeds, width)),
                collab=_tensor(collab[look_alikes] if len(collab) else look_alikes),
                num_collab=_tensor(num_collab[seeds]),
                **{name: _tensor(values) for name, values in padded.items()},
            )


def shuffled_places(
    num_seeds: int, batch_size: int, rng: np.random.Generator, time_index: Array | None = None
) -> list[NDArray[np.int64]]:
    """Returns the places of all seeds in random batches; with `time_index`, seeds of one time stay together.

    Grouping makes batches of few distinct times, which are cheaper to encode, and changes the order in which a model
    sees its seeds: the times come in random order, and the seeds of a frequent one are cut into several batches.
    """
    order = rng.permutation(num_seeds)
    if time_index is not None:
        rank = rng.permutation(int(time_index.max()) + 1 if num_seeds else 0)
        order = order[np.argsort(rank[time_index[order]], kind="stable")]
    cut = [order[first : first + batch_size] for first in range(0, num_seeds, batch_size)]
    return [cut[number] for number in rng.permutation(len(cut))] if time_index is not None else cut


@dataclass(frozen=True)
class _GlobalTokens:
    """Each pair of a row and a time that the collaborative or the temporal contexts name, once; the former first."""

    row: Array  # (P,)
    time: Array  # (P,)
    temporal: Array  # (T, C)
    collab: Array  # a place for each of the context's collaborative rows
    num_collab_tokens: int

    @staticmethod
    def of(context: Context, place: Array, num_rows: int) -> _GlobalTokens:
        times = np.unique(context.seed_time)  # `time_index` counts them in this order
        temporal_time = np.repeat(np.arange(len(times)), np.diff(context.temporal_start))
        collab_time = np.repeat(context.time_index.astype(np.int64), np.diff(context.collab_start))
        recent = temporal_time * num_rows + place[context.temporal_node]
        look_alikes, collab = np.unique(
            collab_time * num_rows + place[context.collab_node], return_inverse=True
        )
        pair = np.concatenate([look_alikes, np.setdiff1d(recent, look_alikes)])
        order = np.argsort(pair)
        temporal = order[np.searchsorted(pair, recent, sorter=order)]
        where, _ = _places(context.temporal_start, np.arange(len(times)))
        return _GlobalTokens(
            row=pair % max(num_rows, 1),
            time=times[pair // max(num_rows, 1)],
            temporal=temporal[where] if len(temporal) else where,
            collab=collab.reshape(-1),
            num_collab_tokens=len(look_alikes),
        )


def _table_rows(table: TableFeatures, rows: Array) -> TableRows:
    bags = (rows_of(column, rows) for column in table.multicategories)
    return TableRows(
        numbers=_tensor(table.numbers[rows]),
        categories=_tensor(table.categories[rows]),
        bags=tuple((_tensor(bag.start[:-1]), _tensor(bag.code)) for bag in bags),
        calendar=_tensor(table.calendar[rows]),
        texts=tuple(
            _tensor(vectors[table.texts[rows, column]]) for column, vectors in enumerate(table.vectors)
        ),
    )


def _of_similar_length(length: Array, most_tokens: int) -> Iterator[NDArray[np.int64]]:
    """Yields the seeds in groups, the longest contexts first, each with at most so many tokens when padded."""
    order = np.argsort(-length, kind="stable")
    first = 0
    while first < len(order):
        end = first + max(1, most_tokens // max(_LEAST_TOKENS, int(length[order[first]])))
        yield order[first:end]
        first = end


def _places(start: Array, which: Array, width: int | None = None) -> tuple[Array, NDArray[np.bool_]]:
    """Returns for each context a line of places among its content, and which of them are real; others are 0."""
    count = start[which + 1] - start[which]
    column = np.arange(int(count.max(initial=0)) if width is None else width)
    is_real = column < count[:, None]
    return np.where(is_real, start[which, None] + column, 0), is_real


def _edges(start: Array, edge: Array, seeds: Array, width: int) -> NDArray[np.int64]:
    """Returns all links of some seeds, in both directions, as places among their padded tokens."""
    where, is_real = _places(start, seeds)
    if not where.size:
        return np.empty((2, 0), np.int64)
    ends = edge[where].astype(np.int64) + (width * np.arange(len(seeds)))[:, None, None]
    child, parent = ends[is_real].T
    return np.stack([np.concatenate([child, parent]), np.concatenate([parent, child])])


@compiled
def _normal(keys: Any, start: Any, first: Any) -> Any:
    """Returns a standard normal number for each token of each seed, from draw `first` of its key on (Box, Muller)."""
    noise = np.empty(start[-1], np.float32)
    for seed in range(len(keys)):
        for token in range(start[seed], start[seed + 1]):
            bits = draw(keys[seed], first + token - start[seed])
            radius = np.sqrt(-2 * np.log((np.float64(bits >> np.uint64(32)) + 0.5) / 2**32))
            noise[token] = radius * np.cos(2 * np.pi * np.float64(bits & np.uint64(0xFFFFFFFF)) / 2**32)
    return noise


def _tensor(array: Array) -> Tensor:
    """Returns the array as a tensor; whole numbers become int64, which torch wants of places."""
    return torch.from_numpy(
        np.ascontiguousarray(array if array.dtype.kind == "f" else array.astype(np.int64))
    )
