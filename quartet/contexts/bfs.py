"""BFS2, the baseline sampler: a uniform sample of the visible one- and two-hop neighbours.

As in RelGT, at most 5,000 first neighbours and 1,000 of each are looked at; unlike there, what is not
visible is left out before that, never after, and no distinct row is lost to sampling with replacement.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from quartet.contexts.draws import below, draw, member
from quartet.contexts.nodes import find_or_add, node_table
from quartet.contexts.walk import induce_edges, shorten_hops
from quartet.graph import visible_end
from quartet.machine import compiled

FIRST_CAP = 5_000
SECOND_CAP = 1_000


@compiled
def bfs_many(
    graph: Any, nodes: Any, last_ranks: Any, keys: Any, budget: Any,
    node: Any, hop: Any, share: Any, edges: Any, size: Any,
) -> None:  # fmt: skip
    """Samples the local context of each seed into its row of the output arrays, as `walk_many` does."""
    room = 1 << 12
    table, ids, order, place_of = _space(room)
    for seed in range(len(nodes)):
        needed = _most_in_pool(graph, nodes[seed], last_ranks[seed])
        if needed > room:
            room = needed
            table, ids, order, place_of = _space(room)
        num_first, num = _pool(graph, nodes[seed], last_ranks[seed], keys[seed], seed, table, ids)
        place_of[:num] = -1
        place_of[0] = 0
        node[seed, 0], hop[seed, 0], share[seed, 0] = nodes[seed], 0, 1
        count = min(num - 1, budget - 1)
        free = budget - 1 - count
        for number in range(1, num):
            order[number] = number
        for place in range(1, count + 1):  # the beginning of a shuffle: every subset is equally likely
            other = place + below(draw(keys[seed], place), num - place)
            order[place], order[other] = order[other], order[place]
            number = order[place]
            place_of[number] = place
            node[seed, place], hop[seed, place] = ids[number], 1 if number <= num_first else 2
            share[seed, place] = 1 + free // count + (place <= free % count)
        size[seed, 0], size[seed, 2] = count + 1, 0
        size[seed, 1] = induce_edges(graph, node[seed], count + 1, place_of, seed, table, edges[seed])
        shorten_hops(hop[seed], count + 1, edges[seed], size[seed, 1])


@compiled
def _space(room: Any) -> Any:
    return node_table(room), np.empty(room, np.int32), np.empty(room, np.int32), np.empty(room, np.int32)


@compiled
def _most_in_pool(graph: Any, seed_node: Any, last_rank: Any) -> Any:
    """How many entries lie within two hops, repetitions included, the seed counted."""
    indptr, entries = graph[0], graph[1]
    begin = indptr[seed_node]
    total = visible_end(entries, begin, indptr[seed_node + 1], last_rank) - begin
    if total > FIRST_CAP:
        return 1 + FIRST_CAP * (1 + SECOND_CAP)
    most = 1 + total
    for entry in range(begin, begin + total):
        middle = entries[entry] & 0xFFFFFFFF
        wide = visible_end(entries, indptr[middle], indptr[middle + 1], last_rank) - indptr[middle]
        most += min(wide, SECOND_CAP)
    return most


@compiled
def _pool(graph: Any, seed_node: Any, last_rank: Any, key: Any, mark: Any, table: Any, ids: Any) -> Any:
    """Numbers the seed 0, then its first neighbours, then theirs; returns where each kind ends."""
    entries = graph[1]
    find_or_add(seed_node, 0, mark, table)
    ids[0], num = seed_node, 1
    begin, total = _visible(graph, seed_node, last_rank)
    for place in range(min(total, FIRST_CAP)):
        entry = begin + member(key, 1 << 32, place, total, FIRST_CAP)
        ids[num] = entries[entry] & 0xFFFFFFFF
        num += find_or_add(ids[num], num, mark, table) == num
    num_first = num - 1
    for first in range(1, num_first + 1):
        begin, total = _visible(graph, ids[first], last_rank)
        for place in range(min(total, SECOND_CAP)):
            entry = begin + member(key, (first + 2) << 32, place, total, SECOND_CAP)
            ids[num] = entries[entry] & 0xFFFFFFFF
            num += find_or_add(ids[num], num, mark, table) == num
    return num_first, num


@compiled
def _visible(graph: Any, node: Any, last_rank: Any) -> Any:
    begin = graph[0][node]
    return begin, visible_end(graph[1], begin, graph[0][node + 1], last_rank) - begin
