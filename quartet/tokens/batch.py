"""TokenBatch: the contexts of a batch of seeds as tensors, with nothing in them twice.

Every distinct row of the batch stands once in `tables`, and everything else names it by its place; a temporal
context stands once for each distinct time; a row that the paper would repeat stands once, with how often.
Local contexts come in parts of seeds of like length, so that short ones are not padded to the longest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quartet.contexts import Array, Context, draw, seed_keys
from quartet.features import FeatureTable, TableFeatures, rows_of
from quartet.graph import TemporalGraph
from quartet.machine import compiled
from quartet.times import STATIC

DAY = 86_400 * 10**9
PART_TOKENS = 2400  # local tokens of a part, padding included: eight seeds of 300 rows
_DRAWS_A_SEED = 2**15  # no local context is longer


@dataclass(frozen=True, eq=False)
class TableRows:
    """n distinct rows of one table: the cells of `TableFeatures`, gathered."""

    numbers: Tensor  # (n, numbers), NaN where absent
    categories: Tensor  # (n, categories) codes
    bags: tuple[tuple[Tensor, Tensor], ...]  # for each multi-category column: starts (n,) and codes
    calendar: Tensor  # (n, times, 7)
    texts: tuple[Tensor, ...]  # for each text column (n, size)

    def __len__(self) -> int:
        return len(self.numbers)


@dataclass(frozen=True, eq=False)
class Part:
    """The local and collaborative contexts of b seeds of like length. The seed is token 0 of its K."""

    seed: Tensor  # (b,) places in the batch
    row: Tensor  # (b, K) places among the batch's rows
    type: Tensor  # (b, K) the row's table
    hop: Tensor  # (b, K)
    age: Tensor  # (b, K) days from the row to the seed's time; NaN for rows without a time
    share: Tensor  # (b, K) how often the token stands in the paper's padded sequence; 0 for padding
    noise: Tensor  # (b, K) standard normal
    edge: Tensor  # (2, E) from and to, as places among the b * K tokens: first all from child to parent, then back
    collab: Tensor  # (b, C) places among the batch's context tokens
    num_collab: Tensor  # (b,)


@dataclass(frozen=True, eq=False)
class TokenBatch:
    """B seeds. R distinct rows, P distinct context tokens (a row at a time), T distinct times."""

    tables: tuple[TableRows, ...]  # one for each table of the database; together R rows, in this order
    row_type: Tensor  # (R,)
    seed_row: Tensor  # (B,)
    sketch: Tensor  # (B, sketch)
    context_row: Tensor  # (P,)
    context_age: Tensor  # (P,)
    num_peers: int  # the first so many context tokens are those of collaborative contexts
    temporal: Tensor  # (T, C) places among the context tokens
    num_temporal: Tensor  # (T,)
    time_index: Tensor  # (B,)
    parts: tuple[Part, ...]
    whole_sketch: Tensor | None = None  # (G, sketch) of all seeds of a step, where these are a part of them

    def __len__(self) -> int:
        return len(self.seed_row)

    @property
    def order(self) -> Tensor:
        """(B,) the places of the seeds in the batch, in the order of the parts."""
        return torch.cat([part.seed for part in self.parts])

    def to(self, *target: Any) -> TokenBatch:
        """The batch on another device, or with its floating point numbers in another type."""
        device = [word for word in target if not isinstance(word, torch.dtype)]

        def move(tensor: Tensor) -> Tensor:
            where = target if tensor.is_floating_point() else device  # whole numbers keep their type
            return tensor.to(*where) if where else tensor

        moved: TokenBatch = with_tensors(self, move)
        return moved


def with_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The value with every tensor in it, in dataclasses and tuples inside each other, changed."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, tuple):
        items = [with_tensors(item, change) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if is_dataclass(value):
        return replace(value, **{f.name: with_tensors(getattr(value, f.name), change) for f in fields(value)})  # type: ignore[type-var]
    return value


@dataclass(frozen=True, eq=False)
class Tokenizer:
    """Makes token batches from the contexts of one graph, and the features of its rows.

    The noise of the position encoder is counted, not remembered: it is a function of the seed, the place of
    the token and `draw`. Evaluation always uses draw 0, training another number at each step.
    """

    graph: TemporalGraph
    features: FeatureTable
    rng_seed: int = 0
    part_tokens: int = PART_TOKENS

    def __call__(self, context: Context, draw: int = 0) -> TokenBatch:
        """The token batch of all seeds of a context."""
        rows = _Rows.of(self.graph, (context.local_node, context.collab_node, context.temporal_node))
        contexts = _ContextTokens.of(context, rows.place, len(rows.node))
        return TokenBatch(
            tables=tuple(self._tables(rows)),
            row_type=_tensor(rows.type),
            seed_row=_tensor(rows.place[context.seed_node]),
            sketch=_tensor(context.sketch),
            context_row=_tensor(contexts.row),
            context_age=_tensor(self._ages(rows.node[contexts.row], contexts.time)),
            num_peers=contexts.num_peers,
            temporal=_tensor(contexts.temporal),
            num_temporal=_tensor(np.diff(context.temporal_start)),
            time_index=_tensor(context.time_index),
            parts=tuple(self._parts(context, rows.place, contexts.collab, draw)),
        )

    def _tables(self, rows: _Rows) -> Iterator[TableRows]:
        bounds = np.searchsorted(rows.type, np.arange(len(self.graph.names) + 1))
        for number, table in enumerate(self.features.tables.values()):
            node = rows.node[bounds[number] : bounds[number + 1]]
            yield _table_rows(table, node - self.graph.offsets[number])

    def _ages(self, node: Array, time: Array) -> NDArray[np.float32]:
        """Days from each row to a time; NaN for rows that were always known."""
        known = self.graph.times[self.graph.node_rank[node]]
        is_static = known == STATIC
        days = np.where(is_static, 0, time - np.where(is_static, 0, known)) / DAY
        return np.where(is_static, np.nan, days).astype(np.float32)

    def _parts(self, context: Context, place: Array, collab: Array, draw: int) -> Iterator[Part]:
        length = np.diff(context.local_start)
        age = self._ages(context.local_node, np.repeat(context.seed_time, length))
        keys = seed_keys(
            self.graph, context.seed_node.astype(np.int64), context.seed_time, self.rng_seed, "position"
        )
        noise = _normal(keys, context.local_start, draw * _DRAWS_A_SEED)
        row, share = place[context.local_node], context.local_count.astype(np.float32)
        types = self.graph.types(context.local_node)
        num_collab = np.diff(context.collab_start)
        for seeds in _of_like_length(length, self.part_tokens):
            width = int(length[seeds].max())
            where, is_real = _places(context.local_start, seeds, width)
            peers, _ = _places(context.collab_start, seeds)

            def padded(values: Array, where: Array = where, is_real: Array = is_real) -> Tensor:
                return _tensor(np.where(is_real, values[where], values.dtype.type(0)))

            yield Part(
                seed=_tensor(seeds),
                row=padded(row),
                type=padded(types),
                hop=padded(context.local_hop),
                age=padded(age),
                share=padded(share),
                noise=padded(noise),
                edge=_tensor(_edges(context, seeds, width)),
                collab=_tensor(collab[peers] if len(collab) else peers),
                num_collab=_tensor(num_collab[seeds]),
            )


def shuffled_places(
    num_seeds: int, batch_size: int, rng: np.random.Generator, time_index: Array | None = None
) -> list[NDArray[np.int64]]:
    """The places of all seeds in random batches; with `time_index`, seeds of one time stay together.

    Grouping makes batches of few distinct times, which are cheaper to encode, and changes the order in which
    a model sees its seeds: the groups come in random order and a large group is cut into several batches.
    """
    order = rng.permutation(num_seeds)
    if time_index is not None:
        rank = rng.permutation(int(time_index.max()) + 1 if num_seeds else 0)
        order = order[np.argsort(rank[time_index[order]], kind="stable")]
    cut = [order[first : first + batch_size] for first in range(0, num_seeds, batch_size)]
    return [cut[number] for number in rng.permutation(len(cut))] if time_index is not None else cut


@dataclass(frozen=True)
class _Rows:
    """The distinct rows of a batch, each table's side by side, in an order that other rows cannot change."""

    node: Array  # (R,)
    type: Array  # (R,)
    place: Array  # (N,) where each of them stands; for other nodes without meaning

    @staticmethod
    def of(graph: TemporalGraph, nodes: Sequence[Array]) -> _Rows:
        is_there = np.zeros(graph.num_nodes, bool)
        for some in nodes:
            is_there[some] = True
        node = np.flatnonzero(is_there)
        # By key, not by number, which moves when unrelated rows do: a sum in another order has other last bits.
        node = node[np.lexsort((graph.stable_key[node], graph.types(node)))]
        place = np.empty(graph.num_nodes, np.int64)
        place[node] = np.arange(len(node))
        return _Rows(node, graph.types(node), place)


@dataclass(frozen=True)
class _ContextTokens:
    """Each pair of a row and a time that the temporal or the collaborative contexts name, once; these first."""

    row: Array  # (P,)
    time: Array  # (P,)
    temporal: Array  # (T, C)
    collab: Array  # a place for each of the context's collaborative rows
    num_peers: int

    @staticmethod
    def of(context: Context, place: Array, num_rows: int) -> _ContextTokens:
        times = np.unique(context.seed_time)  # `time_index` counts them in this order
        temporal_time = np.repeat(np.arange(len(times)), np.diff(context.temporal_start))
        collab_time = np.repeat(context.time_index.astype(np.int64), np.diff(context.collab_start))
        recent = temporal_time * num_rows + place[context.temporal_node]
        peers, collab = np.unique(collab_time * num_rows + place[context.collab_node], return_inverse=True)
        pair = np.concatenate([peers, np.setdiff1d(recent, peers)])
        order = np.argsort(pair)
        temporal = order[np.searchsorted(pair, recent, sorter=order)]
        where, _ = _places(context.temporal_start, np.arange(len(times)))
        return _ContextTokens(
            row=pair % max(num_rows, 1),
            time=times[pair // max(num_rows, 1)],
            temporal=temporal[where] if len(temporal) else where,
            collab=collab.reshape(-1),
            num_peers=len(peers),
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


def _of_like_length(length: Array, part_tokens: int) -> Iterator[NDArray[np.int64]]:
    """The seeds in parts, the longest contexts first, each with at most so many tokens when padded."""
    order = np.argsort(-length, kind="stable")
    first = 0
    while first < len(order):
        end = first + max(1, part_tokens // int(length[order[first]]))
        yield order[first:end]
        first = end


def _places(start: Array, parts: Array, width: int | None = None) -> tuple[Array, NDArray[np.bool_]]:
    """For each part a line of places among its content, and which of them are real; the others are 0."""
    count = start[parts + 1] - start[parts]
    column = np.arange(int(count.max(initial=0)) if width is None else width)
    is_real = column < count[:, None]
    return np.where(is_real, start[parts, None] + column, 0), is_real


def _edges(context: Context, seeds: Array, width: int) -> NDArray[np.int64]:
    """All links of some seeds, in both directions, as places among their padded tokens."""
    where, is_real = _places(context.edge_start, seeds)
    if not where.size:
        return np.empty((2, 0), np.int64)
    ends = context.edge[where].astype(np.int64) + (width * np.arange(len(seeds)))[:, None, None]
    child, parent = ends[is_real].T
    return np.stack([np.concatenate([child, parent]), np.concatenate([parent, child])])


@compiled
def _normal(keys: Any, start: Any, first: Any) -> Any:
    """A standard normal number for each token of each seed, from draw `first` of its key on (Box and Muller)."""
    noise = np.empty(start[-1], np.float32)
    for seed in range(len(keys)):
        for token in range(start[seed], start[seed + 1]):
            bits = draw(keys[seed], first + token - start[seed])
            radius = np.sqrt(-2 * np.log((np.float64(bits >> np.uint64(32)) + 0.5) / 2**32))
            noise[token] = radius * np.cos(2 * np.pi * np.float64(bits & np.uint64(0xFFFFFFFF)) / 2**32)
    return noise


def _tensor(array: Array) -> Tensor:
    """The array as a tensor; whole numbers become int64, which torch wants of places."""
    return torch.from_numpy(
        np.ascontiguousarray(array if array.dtype.kind == "f" else array.astype(np.int64))
    )
