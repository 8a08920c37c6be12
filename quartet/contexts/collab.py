"""The collaborative context: rows that share neighbours with the seed (section 2.2.3, Algorithm 3).

Two hops: M1 of the seed's visible neighbours r, M2 visible neighbours p of each, both without replacement;
p counts one hit for each r that led to it. E[m(p)] = Σ over shared r of min(1, M1/d) · min(1, M2/d_r).

Four hops: two customers who bought one product are four rows apart (customer, purchase, product, purchase,
customer), and the two-hop probe of a customer returns products. From each r one neighbour y is drawn, from
y M2 neighbours z, and every visible row of the seed's own table that z names counts a hit: a row may be
older than one it names, so that z is no proof of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from quartet.contexts.draws import below, choose, draw
from quartet.contexts.nodes import are_linked, find_or_add, node_table, parent_slots, rank_by_count, table_of
from quartet.graph import visible_end
from quartet.machine import compiled


@compiled
def probe_many(
    graph: Any, nodes: Any, last_ranks: Any, keys: Any, settings: Any, peer: Any, size: Any
) -> None:
    """Samples the look-alikes of each seed into its row of `peer`; `size` says how many there are.

    `settings`: (M1, M2, hops, budget).
    """
    first_fanout, second_fanout, hops, budget = settings
    num_fks = graph[5]
    most = first_fanout * second_fanout * (max(1, num_fks.max()) if hops == 4 else 1) + 1
    table = node_table(most)
    ids, hits = np.empty(most, np.int32), np.empty(most, np.int32)
    near, far = np.empty(first_fanout, np.int64), np.empty(second_fanout, np.int64)
    ranked, starts = np.empty(budget, np.int32), np.empty(most + 1, np.int64)
    for seed in range(len(nodes)):
        if hops == 2:
            num = _two_hops(
                graph, nodes[seed], last_ranks[seed], keys[seed], settings, seed, table, ids, hits, near, far
            )
        else:
            num = _four_hops(
                graph, nodes[seed], last_ranks[seed], keys[seed], settings, seed, table, ids, hits, near, far
            )
        size[seed] = rank_by_count(hits, num, budget, ranked, starts)
        for place in range(size[seed]):
            peer[seed, place] = ids[ranked[place]]


@compiled
def _two_hops(
    graph: Any, seed_node: Any, last_rank: Any, key: Any, settings: Any, mark: Any, table: Any,
    ids: Any, hits: Any, near: Any, far: Any,
) -> Any:  # fmt: skip
    indptr, entries = graph[0], graph[1]
    begin = indptr[seed_node]
    total = visible_end(entries, begin, indptr[seed_node + 1], last_rank) - begin
    num_near, count, num = choose(key, 0, total, settings[0], near), settings[0], 1
    for place in range(num_near):
        middle = entries[begin + near[place]] & 0xFFFFFFFF
        start = indptr[middle]
        wide = visible_end(entries, start, indptr[middle + 1], last_rank) - start
        num_far = choose(key, count, wide, settings[1], far)
        count += settings[1]
        for spot in range(num_far):
            peer = entries[start + far[spot]] & 0xFFFFFFFF
            if peer != seed_node:
                num = _hit(peer, num, mark, table, ids, hits)
    return _without_neighbors(graph, seed_node, num, ids, hits)


@compiled
def _four_hops(
    graph: Any, seed_node: Any, last_rank: Any, key: Any, settings: Any, mark: Any, table: Any,
    ids: Any, hits: Any, near: Any, far: Any,
) -> Any:  # fmt: skip
    indptr, entries, parents, parents_start = graph[0], graph[1], graph[3], graph[4]
    num_fks, offsets, node_rank = graph[5], graph[6], graph[7]
    own = table_of(seed_node, offsets)
    begin = indptr[seed_node]
    total = visible_end(entries, begin, indptr[seed_node + 1], last_rank) - begin
    num_near, count, num = choose(key, 0, total, settings[0], near), settings[0], 1
    for place in range(num_near):
        fact = entries[begin + near[place]] & 0xFFFFFFFF
        start = indptr[fact]
        wide = visible_end(entries, start, indptr[fact + 1], last_rank) - start
        shared = entries[start + below(draw(key, count), wide)] & 0xFFFFFFFF
        count += 1
        if shared != seed_node:
            start = indptr[shared]
            wide = visible_end(entries, start, indptr[shared + 1], last_rank) - start
            num_far = choose(key, count, wide, settings[1], far)
            for spot in range(num_far):
                other = entries[start + far[spot]] & 0xFFFFFFFF
                first, last = parent_slots(other, parents_start, num_fks, offsets)
                for slot in range(first, last):
                    peer = parents[slot]
                    is_same_kind = offsets[own] <= peer < offsets[own + 1]
                    if is_same_kind and peer != seed_node and node_rank[peer] <= last_rank:
                        num = _hit(peer, num, mark, table, ids, hits)
        count += settings[1]
    return num


@compiled
def _hit(peer: Any, num: Any, mark: Any, table: Any, ids: Any, hits: Any) -> Any:
    """Counts a hit of a peer; returns how many peers are known now."""
    number = find_or_add(peer, num, mark, table)
    if number == num:
        ids[num], hits[num] = peer, 0
        num += 1
    hits[number] += 1
    return num


@compiled
def _without_neighbors(graph: Any, seed_node: Any, num: Any, ids: Any, hits: Any) -> Any:
    """Takes out the seed's direct neighbours, keeping the order; returns how many peers are left."""
    parents, parents_start, num_fks, offsets = graph[3], graph[4], graph[5], graph[6]
    kept = 1
    for number in range(1, num):
        if not are_linked(ids[number], seed_node, parents, parents_start, num_fks, offsets):
            ids[kept], hits[kept] = ids[number], hits[number]
            kept += 1
    return kept
