"""The temporal context: what happened lately anywhere in the database (section 2.2.2, Algorithm 2).

It depends on the time alone, so it is sampled once for each distinct time. Every table with a time column
gets an equal part of the budget; what one cannot fill goes to the others. Tables that are always known
have no "lately" and take no part.

RGP counts links instead of rows (appendix A.4.4): the newest of each foreign key, and the rows at their ends.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from quartet.causal import num_visible
from quartet.config import SamplingConfig
from quartet.contexts.chunk import Chunk, Sampler
from quartet.contexts.context import Arrays, starts
from quartet.graph import TemporalGraph
from quartet.times import DAY, NEVER, STATIC

Rows = NDArray[np.int32]


def temporal_sampler(graph: TemporalGraph, config: SamplingConfig) -> Sampler:
    """Returns the sampler of what happened lately, in the unit that is wanted."""
    newest = UNITS[config.temporal_unit]

    def sample(moments: Chunk, _: Arrays) -> Arrays:
        rows = newest(graph, moments.time, config)
        return {
            "temporal_start": starts(np.array([len(each) for each in rows], np.int64)),
            "temporal_node": np.concatenate([np.empty(0, np.int32), *rows]),
        }

    return sample


def newest_rows(graph: TemporalGraph, times: NDArray[np.int64], config: SamplingConfig) -> list[Rows]:
    """Returns for each time the newest rows of every timed table in the window, newest first within a table."""
    streams = timed_streams(graph)
    span = min(config.lookback_days * DAY, NEVER)
    first = np.maximum(times, STATIC + span) - span  # a window may begin before the first instant there is
    ends = [num_visible(known_at, times, config.time_rule) for _, known_at in streams]
    begins = [np.searchsorted(known_at, first, side="left") for _, known_at in streams]
    found = []
    for place in range(len(times)):
        windows = [
            nodes[begin[place] : end[place]]
            for (nodes, _), begin, end in zip(streams, begins, ends, strict=True)
        ]
        parts = fair_parts([len(window) for window in windows], config.temporal_budget)
        chosen = [window[len(window) - part :][::-1] for window, part in zip(windows, parts, strict=True)]
        found.append(np.concatenate([np.empty(0, np.int32), *chosen]))
    return found


def timed_streams(graph: TemporalGraph) -> list[tuple[Rows, NDArray[np.int64]]]:
    """Returns the nodes of each timed table, oldest first, with their times."""
    if "stream times" not in graph.made:
        graph.made["stream times"] = graph.times[graph.stream_rank]
    found = []
    for first, end in pairwise(graph.offsets.tolist()):
        known_at = graph.made["stream times"][first:end]
        if end > first and known_at[-1] != STATIC:
            found.append((graph.stream[first:end], known_at))
    return found


def newest_links(graph: TemporalGraph, times: NDArray[np.int64], config: SamplingConfig) -> list[Rows]:
    """Returns for each time the rows at the ends of the newest links of every foreign key, each row once.

    Foreign keys come in the order of the schema, their links newest first, of a link the child before its parent.
    """
    if "timed links" not in graph.made:
        graph.made["timed links"] = _timed_links(graph)
    relations = graph.made["timed links"]
    ends = [num_visible(known_at, times, config.time_rule) for _, known_at in relations]
    found = []
    for place in range(len(times)):
        newest = [
            links[max(end[place] - config.recent_links, 0) : end[place]][::-1]
            for (links, _), end in zip(relations, ends, strict=True)
        ]
        rows = np.concatenate([np.empty((0, 2), np.int32), *newest]).reshape(-1)
        _, first = np.unique(rows, return_index=True)
        found.append(rows[np.sort(first)])
    return found


def _timed_links(graph: TemporalGraph) -> list[tuple[Rows, NDArray[np.int64]]]:
    """Returns the links (child, parent) of each foreign key, oldest first, with their times; not those always known.

    Of one time, the child's stable key decides: a row has one parent for each foreign key.
    """
    found = []
    for table, num_keys in enumerate(graph.num_foreign_keys):
        children = np.arange(graph.offsets[table], graph.offsets[table + 1], dtype=np.int32)
        slots = graph.parents[graph.parents_start[table] : graph.parents_start[table + 1]]
        for parents in slots.reshape(len(children), num_keys).T:
            links = np.stack([children, parents], 1)[parents >= 0]
            rank = graph.node_rank[links].max(1)  # known when both ends are
            order = np.lexsort((graph.stable_key[links[:, 0]], rank))
            order = order[np.searchsorted(rank[order], 1) :]  # rank 0 is "always known"
            found.append((links[order], graph.times[rank[order]]))
    return found


def fair_parts(available: list[int], budget: int) -> list[int]:
    """Returns the budget in equal parts, none above what is available, what is left going to the others.

    Parts that cannot be equal differ by one, the earlier tables having more.
    """
    parts = [0] * len(available)
    left = min(budget, sum(available))
    while left:
        hungry = [place for place, part in enumerate(parts) if part < available[place]]
        each = max(left // len(hungry), 1)
        for place in hungry[:left]:
            more = min(each, available[place] - parts[place])
            parts[place] += more
            left -= more
    return parts


UNITS: dict[str, Callable[[TemporalGraph, NDArray[np.int64], SamplingConfig], list[Rows]]] = {
    "rows": newest_rows,
    "links": newest_links,
}
