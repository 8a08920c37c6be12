"""RelBench's sampler: uniform visible neighbours of each relation, two links far.

Of the seed's neighbours up to M1 for each relation, of theirs up to M2 each, without replacement. As in BFS2 at most
5,000 entries of the seed and 1,000 of a neighbour are looked at, so that no hub is scanned. Where the rows are more
than the budget, those one link away stay, and of the others a uniform sample: every row keeps a way to the seed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from quartet.contexts.bfs import FIRST_CAP, SECOND_CAP, most_in_pool, pool_space
from quartet.contexts.chunk import Chunk
from quartet.contexts.draws import below, draw, member
from quartet.contexts.local import LocalRows, fill_equal_counts, link_rows
from quartet.contexts.nodes import find_or_add
from quartet.graph import has_parent, seed_entries, table_of, visible_range
from quartet.machine import compiled, part

_CHOICE = 1 << 31  # draws that choose among entries are counted from here, behind those that cap them


def uniform_local(seeds: Chunk, rows: LocalRows) -> None:
    """Samples the local context of each seed among its neighbours and theirs, relation by relation."""
    config, keys = seeds.config, seeds.keys("uniform")
    budgets = (config.local_budget, config.first_fanout, config.second_fanout)
    _uniform_many(seeds.graph.arrays, seeds.node, seeds.time, seeds.last_rank, keys, budgets, rows)


@compiled
def _uniform_many(
    graph: Any, nodes: Any, times: Any, last_ranks: Any, keys: Any, budgets: Any, rows: Any
) -> None:
    node, hop, counts, _, num_rows, _, _ = rows
    budget, first_fanout, second_fanout = budgets
    num_relations = 2 * (len(graph.offsets) - 1)
    first_kept = np.empty((num_relations, min(first_fanout, FIRST_CAP)), np.int64)
    second_kept = np.empty((num_relations, min(second_fanout, SECOND_CAP)), np.int64)
    seen = np.empty(num_relations, np.int64)
    room = 1 << 12
    table, ids, order, place_of = pool_space(room)
    for seed in range(len(nodes)):
        key, last_rank = keys[seed], last_ranks[seed]
        own = seed_entries(graph, nodes[seed], times[seed], last_rank)
        needed = most_in_pool(graph, own, last_rank, key)
        if needed > room:
            room = needed
            table, ids, order, place_of = pool_space(room)
        find_or_add(nodes[seed], np.int64(0), seed, table)
        ids[0] = nodes[seed]
        _choose(graph, nodes[seed], own, key, 1 << 32, FIRST_CAP, first_kept, seen)
        num_first = _add(first_kept, seen, 1, seed, table, ids) - 1
        num = num_first + 1
        for first in range(1, num_first + 1):
            begin, total = visible_range(graph, ids[first], last_rank)
            entries = graph.entries[begin : begin + total]
            _choose(graph, ids[first], entries, key, (first + 2) << 32, SECOND_CAP, second_kept, seen)
            num = _add(second_kept, seen, num, seed, table, ids)
        place_of[:num] = -1
        place_of[0] = 0
        for number in range(1, num):
            order[number] = number
        count = min(num - 1, budget - 1)
        for place in range(1, count + 1):  # a shuffle of each hop, the first one first
            last = num_first + 1 if place <= num_first else num
            other = place + below(draw(key, place), last - place)
            order[place], order[other] = order[other], order[place]
            number = order[place]
            place_of[number] = place
            node[seed, place], hop[seed, place] = ids[number], 1 if number <= num_first else 2
        fill_equal_counts(counts[seed], count, budget - 1)
        num_rows[seed] = count + 1
        link_rows(graph, seed, count + 1, place_of, table, rows)


@part
def _choose(
    graph: Any, node: Any, entries: Any, key: Any, first_draw: Any, cap: Any, kept: Any, seen: Any
) -> None:
    """Fills `kept` with neighbours of each relation, every one as likely, and `seen` with how many there were.

    A relation is the neighbour's table and whether the neighbour is the parent. Reservoirs, all of them in one pass.
    """
    seen[:] = 0
    fanout = kept.shape[1]
    for place in range(min(len(entries), cap)):
        other = entries[member(key, first_draw, place, len(entries), cap)] & 0xFFFFFFFF
        relation = 2 * table_of(graph, other) + has_parent(graph, node, other)
        spot = seen[relation]
        seen[relation] += 1
        if spot >= fanout:
            spot = below(draw(key, first_draw + _CHOICE + place), spot + 1)
        if spot < fanout:
            kept[relation, spot] = other


@part
def _add(kept: Any, seen: Any, num: Any, mark: Any, table: Any, ids: Any) -> Any:
    """Numbers the kept rows that are new, relation by relation; returns the next free number."""
    for relation in range(len(seen)):
        for spot in range(min(seen[relation], kept.shape[1])):
            ids[num] = kept[relation, spot]
            num += find_or_add(ids[num], num, mark, table) == num
    return num
