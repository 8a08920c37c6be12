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

from typing import Any, NamedTuple

import numpy as np

from quartet.config import SamplingConfig
from quartet.contexts.chunk import Chunk
from quartet.contexts.draws import below, chance, draw, member
from quartet.contexts.local import UNREACHED, LocalRows, link_rows
from quartet.contexts.nodes import find_or_add, node_table, rank_by_count
from quartet.graph import parent_slots, prefetch, seed_entries, visible_end, visible_range
from quartet.machine import compiled, part


class WalkSettings(NamedTuple):
    num_walks: int
    length: int
    restart: int  # a draw below this, of 2^32, goes back
    max_recent: int  # 0: all
    is_random: bool  # whether truncation is
    budget: int

    @staticmethod
    def of(config: SamplingConfig) -> WalkSettings:
        return WalkSettings(
            config.num_walks, config.walk_length, int(config.restart_prob * 2**32), config.max_recent or 0,
            config.truncation == "random", config.local_budget,
        )  # fmt: skip


class WalkSpace(NamedTuple):
    """Room for the walks of one seed, used for one seed after the other. Rows are numbered by discovery."""

    table: Any  # the number of each row
    ids: Any  # its node, as the next four by number
    visits: Any
    depth: Any
    begin: Any  # of the neighbours that a walk may go to
    width: Any  # how many these are
    at: Any  # where each walk is: a row's number
    steps: Any  # how many steps ago it left the seed
    target: Any  # where it goes next: the place of an entry, or -1 for the seed


def walk_local(seeds: Chunk, rows: LocalRows) -> None:
    """Samples the local context of each seed by walks."""
    settings = WalkSettings.of(seeds.config)
    keys = seeds.keys("walk")
    _walk_many(seeds.graph.arrays, seeds.node, seeds.time, seeds.last_rank, keys, settings, rows)


@compiled
def _walk_many(
    graph: Any, nodes: Any, times: Any, last_ranks: Any, keys: Any, settings: Any, rows: Any
) -> None:
    node, hop, counts, _, num_rows, _, peak = rows
    most = settings.num_walks * settings.length + 1
    space = walk_space(settings.num_walks, most)
    ranked, starts = np.empty(settings.budget, np.int32), np.empty(most + 1, np.int64)
    place_of = np.empty(most, np.int32)
    for seed in range(len(nodes)):
        own = seed_entries(graph, nodes[seed], times[seed], last_ranks[seed])
        num = walk_one(graph, nodes[seed], own, last_ranks[seed], keys[seed], settings, seed, space)
        count = rank_by_count(space.visits, num, settings.budget - 1, ranked, starts)
        place_of[:num] = -1
        place_of[0] = 0
        for place in range(count):
            number = ranked[place]
            place_of[number] = place + 1
            node[seed, place + 1] = space.ids[number]
            hop[seed, place + 1] = space.depth[number]
        num_rows[seed] = count + 1
        if count:
            peak[seed] = space.visits[ranked[0]]
            _fill_counts(space.visits, ranked, count, settings.budget - 1, counts[seed])
        link_rows(graph, seed, count + 1, place_of, space.table, rows)


@part
def walk_space(num_walks: Any, most: Any) -> Any:
    """Returns room for walks that meet up to `most` rows, the seed included."""
    return WalkSpace(
        node_table(most),
        np.empty(most, np.int32),
        np.empty(most, np.int32),
        np.empty(most, np.uint8),
        np.empty(most, np.int64),
        np.empty(most, np.int64),
        np.empty(num_walks, np.int32),
        np.empty(num_walks, np.uint8),
        np.empty(num_walks, np.int64),
    )


@part
def walk_one(
    graph: Any, seed_node: Any, own: Any, last_rank: Any, key: Any, settings: Any, mark: Any, space: Any
) -> Any:
    """Runs all walks of a seed; returns how many distinct rows were met, the seed being number 0.

    `own` are the seed's entries: the beginning of its list, or, where the seed is as late as what it may see, some of
    it that stand by themselves.
    """
    table, ids, visits, depth, begin, width, at, steps, target = space
    num_walks, length, restart, max_recent, is_random, _ = settings
    find_or_add(seed_node, np.int64(0), mark, table)
    num = np.int64(1)  # of one type with all that follow, as everywhere here: each type is compiled by itself
    ids[0], visits[0], depth[0] = seed_node, 0, 0
    width[0] = min(len(own), max_recent) if max_recent else len(own)
    begin[0] = 0 if is_random else len(own) - width[0]
    is_listed = graph.node_rank[seed_node] <= last_rank
    if is_listed:
        begin[0] += graph.indptr[seed_node]
    at[:] = 0
    steps[:] = 0
    for step in range(length):
        for walk in range(num_walks):  # reads of different walks do not wait for each other
            bits = draw(key, step * num_walks + walk)
            now = at[walk]
            if chance(bits) < restart or width[now] == 0:
                target[walk] = -1
            else:
                spot = below(bits, width[now])
                if is_random and width[now] == max_recent:  # the same random subset at every visit
                    total = visible_range(graph, ids[now], last_rank)[1] if now else len(own)
                    spot = member(key ^ graph.stable_key[ids[now]], 0, spot, total, max_recent)
                target[walk] = begin[now] + spot
                prefetch(graph.entries, target[walk])
        first_new = num
        for walk in range(num_walks):
            if target[walk] < 0:
                at[walk], steps[walk] = 0, 0
                continue
            entry = graph.entries[target[walk]] if is_listed or at[walk] else own[target[walk]]
            node = entry & 0xFFFFFFFF
            number = find_or_add(node, num, mark, table)
            if number == num:
                ids[num], visits[num], depth[num] = node, 0, UNREACHED
                num += 1
            at[walk] = number
            steps[walk] += 1
            visits[number] += 1
            depth[number] = min(depth[number], steps[walk])
        if step + 1 < length:
            _find_ranges(graph, last_rank, settings, space, first_new, num)
    return num


@part
def _find_ranges(graph: Any, last_rank: Any, settings: Any, space: Any, first: Any, last: Any) -> None:
    """Finds the visible, truncated range of neighbours of each new row. What a loop reads, the one before has fetched.

    The parents are fetched, too: edges are found by them once the walks have ended.
    """
    ids, begin, width = space.ids, space.begin, space.width
    for number in range(first, last):
        prefetch(graph.indptr, np.int64(ids[number]))
    for number in range(first, last):
        begin[number] = graph.indptr[ids[number]]
        width[number] = graph.indptr[ids[number] + 1]
        prefetch(graph.entries, width[number] - 1)
        prefetch(graph.parents, parent_slots(graph, np.int64(ids[number]))[0])
    for number in range(first, last):
        end = visible_end(graph.entries, begin[number], width[number], last_rank)
        count = end - begin[number]
        if settings.max_recent and count > settings.max_recent:
            count = settings.max_recent
            if not settings.is_random:
                begin[number] = end - count
        width[number] = count


@part
def _fill_counts(visits: Any, ranked: Any, count: Any, slots: Any, counts: Any) -> None:
    """Says how often each row stands in the padded context: once, plus its part of the free slots.

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
            counts[place + 1] = 1 + extra
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
            counts[place + 1] += 1
        left -= ends[best] - first
        rests[best] = -1
