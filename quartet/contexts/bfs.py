"""BFS2, the baseline sampler: a uniform sample of the visible one- and two-hop neighbours.

As in RelGT, at most 5,000 first neighbours and 1,000 of each are looked at; unlike there, what is not
visible is left out before that, never after, and no distinct row is lost to sampling with replacement.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from quartet.contexts.chunk import Chunk
from quartet.contexts.draws import below, draw, member
from quartet.contexts.local import LocalRows, fill_equal_counts, link_rows
from quartet.contexts.nodes import find_or_add, node_table
from quartet.graph import seed_entries, visible_range
from quartet.machine import compiled, part

FIRST_CAP = 5_000
SECOND_CAP = 1_000


def bfs_local(seeds: Chunk, rows: LocalRows) -> None:
    """Samples the local context of each seed among its neighbours and theirs."""
    budget = seeds.config.local_budget
    _bfs_many(seeds.graph.arrays, seeds.node, seeds.time, seeds.last_rank, seeds.keys("bfs"), budget, rows)


@compiled
def _bfs_many(graph: Any, nodes: Any, times: Any, last_ranks: Any, keys: Any, budget: Any, rows: Any) -> None:
    node, hop, counts, _, num_rows, _, _ = rows
    room = 1 << 12
    table, ids, order, place_of = pool_space(room)
    for seed in range(len(nodes)):
        own = seed_entries(graph, nodes[seed], times[seed], last_ranks[seed])
        needed = most_in_pool(graph, own, last_ranks[seed], keys[seed])
        if needed > room:
            room = needed
            table, ids, order, place_of = pool_space(room)
        num_first, num = _pool(graph, nodes[seed], own, last_ranks[seed], keys[seed], seed, table, ids)
        place_of[:num] = -1
        place_of[0] = 0
        count = min(num - 1, budget - 1)
        for number in range(1, num):
            order[number] = number
        for place in range(1, count + 1):  # the beginning of a shuffle: every subset is equally likely
            other = place + below(draw(keys[seed], place), num - place)
            order[place], order[other] = order[other], order[place]
            number = order[place]
            place_of[number] = place
            node[seed, place], hop[seed, place] = ids[number], 1 if number <= num_first else 2
        fill_equal_counts(counts[seed], count, budget - 1)
        num_rows[seed] = count + 1
        link_rows(graph, seed, count + 1, place_of, table, rows)


@part
def pool_space(room: Any) -> Any:
    """Returns room for so many rows within two hops: a table of nodes, their ids, an order and places."""
    return node_table(room), np.empty(room, np.int32), np.empty(room, np.int32), np.empty(room, np.int32)


@part
def most_in_pool(graph: Any, own: Any, last_rank: Any, key: Any) -> Any:
    """Returns how many entries are looked at within two hops, repetitions included, the seed counted."""
    num_first = min(len(own), FIRST_CAP)
    most = 1 + num_first
    for place in range(num_first):
        middle = own[member(key, 1 << 32, place, len(own), FIRST_CAP)] & 0xFFFFFFFF
        most += min(visible_range(graph, middle, last_rank)[1], SECOND_CAP)
    return most


@part
def _pool(
    graph: Any, seed_node: Any, own: Any, last_rank: Any, key: Any, mark: Any, table: Any, ids: Any
) -> Any:
    """Numbers the seed 0, then its first neighbours, then theirs; returns where each kind ends."""
    entries = graph.entries
    find_or_add(seed_node, np.int64(0), mark, table)
    ids[0], num = seed_node, 1
    for place in range(min(len(own), FIRST_CAP)):
        ids[num] = own[member(key, 1 << 32, place, len(own), FIRST_CAP)] & 0xFFFFFFFF
        num += find_or_add(ids[num], num, mark, table) == num
    num_first = num - 1
    for first in range(1, num_first + 1):
        begin, total = visible_range(graph, ids[first], last_rank)
        for place in range(min(total, SECOND_CAP)):
            entry = begin + member(key, (first + 2) << 32, place, total, SECOND_CAP)
            ids[num] = entries[entry] & 0xFFFFFFFF
            num += find_or_add(ids[num], num, mark, table) == num
    return num_first, num
