"""CRW: the causal random walk with restart (section 2.2.1, Algorithm 1, appendix A.1.2).

W walks of L steps from the seed. A step goes back to the seed with probability p, or else to one of the
M most recent visible neighbours. Rows are ranked by visits, ties by discovery (earlier step, then walk);
the visits themselves follow the finite-L law that `tests/reference/visit_law.py` computes exactly: a
truncated restart-walk score, not a PageRank.

All walks advance together, one step at a time, so that their memory accesses overlap; the range of
neighbours of a row is found once for each seed. Induced edges are found from the child's side: every
edge is some row's foreign key, so no hub is ever scanned.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from quartet.contexts.draws import below, chance, draw, member
from quartet.contexts.nodes import find, find_or_add, node_table, parent_slots, rank_by_count
from quartet.graph import visible_end
from quartet.machine import compiled

UNREACHED = 255


@compiled
def walk_many(
    graph: Any, nodes: Any, last_ranks: Any, keys: Any, settings: Any,
    node: Any, hop: Any, share: Any, edges: Any, size: Any,
) -> None:  # fmt: skip
    """Samples the local context of each seed into its row of the output arrays.

    `settings`: (W, L, restart below this of 2^32, M or 0, whether truncation is random, K).
    Outputs: node, hop, share (seeds, K); edges (seeds, most, 2); size (seeds, 3) with the number of
    nodes, of edges, and the largest visit count.
    """
    walks, length, budget = settings[0], settings[1], settings[5]
    most = walks * length + 1
    table = node_table(most)
    ids, visits = np.empty(most, np.int32), np.empty(most, np.int32)
    depth = np.empty(most, np.uint8)
    begin, width = np.empty(most, np.int64), np.empty(most, np.int64)
    at, steps, target = np.empty(walks, np.int32), np.empty(walks, np.uint8), np.empty(walks, np.int64)
    ranked, starts = np.empty(budget, np.int32), np.empty(most + 1, np.int64)
    place_of = np.empty(most, np.int32)
    for seed in range(len(nodes)):
        num = _walk(
            graph, nodes[seed], last_ranks[seed], keys[seed], settings, seed, table,
            ids, visits, depth, begin, width, at, steps, target,
        )  # fmt: skip
        count = rank_by_count(visits, num, budget - 1, ranked, starts)
        place_of[:num] = -1
        place_of[0] = 0
        node[seed, 0], hop[seed, 0], share[seed, 0] = nodes[seed], 0, 1
        for place in range(count):
            number = ranked[place]
            place_of[number] = place + 1
            node[seed, place + 1], hop[seed, place + 1] = ids[number], depth[number]
        size[seed, 0] = count + 1
        size[seed, 2] = 0
        if count:
            size[seed, 2] = visits[ranked[0]]
            fill_shares(visits, ranked, count, budget - 1, share[seed])
        size[seed, 1] = induce_edges(graph, node[seed], count + 1, place_of, seed, table, edges[seed])
        shorten_hops(hop[seed], count + 1, edges[seed], size[seed, 1])


@compiled
def _walk(
    graph: Any, seed_node: Any, last_rank: Any, key: Any, settings: Any, mark: Any, table: Any,
    ids: Any, visits: Any, depth: Any, begin: Any, width: Any, at: Any, steps: Any, target: Any,
) -> Any:  # fmt: skip
    """Runs all walks of a seed; returns how many distinct rows were met, the seed being number 0."""
    walks, length, restart, most_recent, is_random, _ = settings
    entries, stable_key = graph[1], graph[2]
    find_or_add(seed_node, 0, mark, table)
    ids[0], visits[0], depth[0], num = seed_node, 0, 0, 1
    _find_ranges(graph, last_rank, most_recent, is_random, ids, 0, 1, begin, width)
    at[:] = 0
    steps[:] = 0
    for step in range(length):
        for walk in range(walks):  # reads of different walks do not wait for each other
            bits = draw(key, step * walks + walk)
            now = at[walk]
            if chance(bits) < restart or width[now] == 0:
                target[walk] = -1
            else:
                spot = below(bits, width[now])
                if is_random and width[now] == most_recent:
                    spot = _spread(key, stable_key[ids[now]], spot, graph, ids[now], last_rank, most_recent)
                target[walk] = entries[begin[now] + spot] & 0xFFFFFFFF
        first_new = num
        for walk in range(walks):
            if target[walk] < 0:
                at[walk], steps[walk] = 0, 0
                continue
            number = find_or_add(target[walk], num, mark, table)
            if number == num:
                ids[num], visits[num], depth[num] = target[walk], 0, UNREACHED
                num += 1
            at[walk] = number
            steps[walk] += 1
            visits[number] += 1
            depth[number] = min(depth[number], steps[walk])
        if step + 1 < length:
            _find_ranges(graph, last_rank, most_recent, is_random, ids, first_new, num, begin, width)
    return num


@compiled
def _find_ranges(
    graph: Any, last_rank: Any, most_recent: Any, is_random: Any, ids: Any, first: Any, last: Any,
    begin: Any, width: Any,
) -> None:  # fmt: skip
    """The visible, truncated range of neighbours of each new row. Two loops, so that reads overlap."""
    indptr, entries = graph[0], graph[1]
    for number in range(first, last):
        begin[number] = indptr[ids[number]]
        width[number] = indptr[ids[number] + 1]
    for number in range(first, last):
        end = visible_end(entries, begin[number], width[number], last_rank)
        count = end - begin[number]
        if most_recent and count > most_recent:
            count = most_recent
            if not is_random:
                begin[number] = end - count
        width[number] = count


@compiled
def _spread(key: Any, row_key: Any, spot: Any, graph: Any, node: Any, last_rank: Any, most: Any) -> Any:
    """Member `spot` of a random subset of `most` visible neighbours, the same at every visit."""
    begin = graph[0][node]
    total = visible_end(graph[1], begin, graph[0][node + 1], last_rank) - begin
    return member(key ^ row_key, 0, spot, total, most)


@compiled
def fill_shares(visits: Any, ranked: Any, count: Any, slots: Any, share: Any) -> None:
    """How often each row stands in the padded context: once, plus its share of the free slots.

    Largest remainders in proportion to visits, ties to the higher rank. Rows are sorted by visits, and rows
    of equal visits have equal remainders, so whole groups are served, largest remainder first.
    """
    total = 0
    for place in range(count):
        total += visits[ranked[place]]
    free, left = slots - count, slots - count
    ends, rests = np.empty(count, np.int64), np.empty(count, np.int64)
    num_groups, place = 0, 0
    while place < count:
        seen = visits[ranked[place]]
        extra, rest = free * seen // total, free * seen % total
        while place < count and visits[ranked[place]] == seen:
            share[place + 1] = 1 + extra
            left -= extra
            place += 1
        ends[num_groups], rests[num_groups] = place, rest
        num_groups += 1
    while left > 0:
        best = 0
        for group in range(1, num_groups):
            if rests[group] > rests[best]:
                best = group
        first = ends[best - 1] if best else 0
        for place in range(first, min(ends[best], first + left)):
            share[place + 1] += 1
        left -= ends[best] - first
        rests[best] = -1


@compiled
def induce_edges(graph: Any, node: Any, count: Any, place_of: Any, mark: Any, table: Any, edges: Any) -> Any:
    """Writes the edges among the chosen rows as (child, parent) places; returns how many there are.

    Two loops: the parents are far apart in memory, and reading them all first lets the reads overlap.
    """
    parents, parents_start, num_fks, offsets = graph[3], graph[4], graph[5], graph[6]
    named, child, num_named = np.empty(len(edges), np.int32), np.empty(len(edges), np.int32), 0
    for place in range(count):
        first, last = parent_slots(node[place], parents_start, num_fks, offsets)
        for slot in range(first, last):
            named[num_named], child[num_named] = parents[slot], place
            num_named += 1
    found = 0
    for spot in range(num_named):
        if named[spot] >= 0:
            number = find(named[spot], mark, table)
            if number >= 0 and place_of[number] >= 0:
                edges[found, 0], edges[found, 1] = child[spot], place_of[number]
                found += 1
    return found


@compiled
def shorten_hops(hop: Any, count: Any, edges: Any, num_edges: Any) -> None:
    """hop = min(walk depth, distance from the seed inside the induced graph), in place."""
    starts = np.zeros(count + 1, np.int32)
    for edge in range(num_edges):
        starts[edges[edge, 0] + 1] += 1
        starts[edges[edge, 1] + 1] += 1
    for place in range(count):
        starts[place + 1] += starts[place]
    cursor, beside = starts[:-1].copy(), np.empty(2 * num_edges, np.int32)
    for edge in range(num_edges):
        child, parent = edges[edge, 0], edges[edge, 1]
        beside[cursor[child]], beside[cursor[parent]] = parent, child
        cursor[child] += 1
        cursor[parent] += 1
    far = np.full(count, UNREACHED, np.uint8)
    queue = np.empty(count, np.int32)
    far[0], queue[0] = 0, 0
    head, tail = 0, 1
    while head < tail:
        place = queue[head]
        head += 1
        for spot in range(starts[place], starts[place + 1]):
            other = beside[spot]
            if far[other] == UNREACHED:
                far[other] = min(far[place] + 1, UNREACHED - 1)
                queue[tail] = other
                tail += 1
    for place in range(count):
        hop[place] = min(hop[place], far[place])
