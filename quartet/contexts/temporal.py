"""The temporal context: what happened lately anywhere in the database (section 2.2.2, Algorithm 2).

It depends on the time alone, so it is sampled once for each distinct time. Every table with a time column
gets an equal part of the budget; what one cannot fill goes to the others. Tables that are always known
have no "lately" and take no part.

RGP counts links instead of rows (appendix A.4.4): the newest of each foreign key, and the rows at their ends.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from quartet.causal import TimeRule, num_visible
from quartet.graph import TemporalGraph
from quartet.times import DAY, NEVER, STATIC


def sample_temporal(
    graph: TemporalGraph, times: NDArray[np.int64], budget: int, lookback_days: int, rule: TimeRule
) -> list[NDArray[np.int32]]:
    """For each time the newest rows of every timed table in the window, newest first within a table."""
    streams = _timed_streams(graph)
    span = min(lookback_days * DAY, NEVER)
    first = np.maximum(times, STATIC + span) - span  # a window may begin before the first instant there is
    ends = [num_visible(known_at, times, rule) for _, known_at in streams]
    begins = [np.searchsorted(known_at, first, side="left") for _, known_at in streams]
    return [
        _newest(
            [
                nodes[begin[place] : end[place]]
                for (nodes, _), begin, end in zip(streams, begins, ends, strict=True)
            ],
            budget,
        )
        for place in range(len(times))
    ]


def _timed_streams(graph: TemporalGraph) -> list[tuple[NDArray[np.int32], NDArray[np.int64]]]:
    """The nodes of each timed table, oldest first, with their times."""
    found = []
    for name in graph.names:
        nodes = graph.stream_of(name)
        known_at = graph.times[graph.node_rank[nodes]]
        if len(nodes) and known_at[-1] != STATIC:
            found.append((nodes, known_at))
    return found


def sample_recent_links(
    graph: TemporalGraph, times: NDArray[np.int64], count: int, rule: TimeRule
) -> list[NDArray[np.int32]]:
    """For each time the rows at the ends of the newest `count` links of every foreign key, each row once.

    Foreign keys come in the order of the schema, their links newest first, of a link the child before its parent.
    """
    relations = _timed_links(graph)
    ends = [num_visible(known_at, times, rule) for _, known_at in relations]
    return [
        _distinct(
            [
                links[max(end[place] - count, 0) : end[place]][::-1]
                for (links, _), end in zip(relations, ends, strict=True)
            ]
        )
        for place in range(len(times))
    ]


def _timed_links(graph: TemporalGraph) -> list[tuple[NDArray[np.int32], NDArray[np.int64]]]:
    """The links (child, parent) of each foreign key, oldest first, with their times; not those always known.

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


def _distinct(links: list[NDArray[np.int32]]) -> NDArray[np.int32]:
    """The rows that links name, each once, where it is named first."""
    rows = np.concatenate([np.empty((0, 2), np.int32), *links]).reshape(-1)
    _, first = np.unique(rows, return_index=True)
    return rows[np.sort(first)]


def _newest(windows: list[NDArray[np.int32]], budget: int) -> NDArray[np.int32]:
    parts = fair_parts([len(window) for window in windows], budget)
    chosen = [window[len(window) - part :][::-1] for window, part in zip(windows, parts, strict=True)]
    return np.concatenate([np.empty(0, np.int32), *chosen])


def fair_parts(available: list[int], budget: int) -> list[int]:
    """The budget in equal parts, none above what is available, what is left going to the others.

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
