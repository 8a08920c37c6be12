"""The collaborative context: look-alikes, rows that share neighbours with the seed (section 2.2.3, Algorithm 3).

Two hops: M1 of the seed's visible neighbours r, M2 visible neighbours p of each, both without replacement;
p counts one hit for each r that led to it. E[m(p)] = Σ over shared r of min(1, M1/d) · min(1, M2/d_r).

Four hops: two customers who bought one product are four rows apart (customer, purchase, product, purchase,
customer), and the two-hop probe of a customer returns products. From each r one neighbour y is drawn, from
y M2 neighbours z, and every visible row of the seed's own table that z names counts a hit: a row may be
older than one it names, so that z is no proof of it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from quartet.config import SamplingConfig
from quartet.contexts.chunk import Chunk, Sampler, packed
from quartet.contexts.context import Arrays, starts
from quartet.contexts.draws import below, choose, draw
from quartet.contexts.nodes import find_or_add, node_table, rank_by_count
from quartet.graph import (
    TemporalGraph,
    has_parent,
    most_parents,
    parent_slots,
    seed_entries,
    table_of,
    visible_range,
)
from quartet.machine import compiled, part


class CollabSettings(NamedTuple):
    first_fanout: int  # M1
    second_fanout: int  # M2
    hops: int
    budget: int


class CollabSpace(NamedTuple):
    """Room for the probe of one seed, used for one seed after the other. Look-alikes are numbered from 1."""

    table: Any
    ids: Any
    hits: Any
    near: Any  # (M1,)
    far: Any  # (M2,)


def collab_sampler(_: TemporalGraph, config: SamplingConfig) -> Sampler:
    """Returns the sampler of the seeds' look-alikes."""
    settings = CollabSettings(
        config.first_fanout, config.second_fanout, config.collab_hops, config.collab_budget
    )

    def sample(seeds: Chunk, _: Arrays) -> Arrays:
        node, count = np.empty((len(seeds), settings.budget), np.int32), np.zeros(len(seeds), np.int64)
        keys = seeds.keys(f"collab{settings.hops}")
        _probe_many(seeds.graph.arrays, seeds.node, seeds.time, seeds.last_rank, keys, settings, node, count)
        return {"collab_start": starts(count), "collab_node": packed(node, count)}

    return sample


@compiled
def _probe_many(
    graph: Any, nodes: Any, times: Any, last_ranks: Any, keys: Any, settings: Any, node: Any, count: Any
) -> None:
    most = settings.first_fanout * settings.second_fanout + 1
    if settings.hops == 4:
        most = (most - 1) * most_parents(graph) + 1
    space = collab_space(settings, most)
    ranked, starts = np.empty(settings.budget, np.int32), np.empty(most + 1, np.int64)
    for seed in range(len(nodes)):
        own = seed_entries(graph, nodes[seed], times[seed], last_ranks[seed])
        if settings.hops == 2:
            num = two_hops(graph, nodes[seed], own, last_ranks[seed], keys[seed], settings, seed, space)
        else:
            num = _four_hops(graph, nodes[seed], own, last_ranks[seed], keys[seed], settings, seed, space)
        count[seed] = rank_by_count(space.hits, num, settings.budget, ranked, starts)
        for place in range(count[seed]):
            node[seed, place] = space.ids[ranked[place]]


@part
def collab_space(settings: Any, most: Any) -> Any:
    """Returns room for probes that meet fewer than `most` look-alikes."""
    return CollabSpace(
        node_table(most),
        np.empty(most, np.int32),
        np.empty(most, np.int32),
        np.empty(settings.first_fanout, np.int64),
        np.empty(settings.second_fanout, np.int64),
    )


@part
def two_hops(
    graph: Any, seed_node: Any, own: Any, last_rank: Any, key: Any, settings: Any, mark: Any, space: Any
) -> Any:
    """Counts the hits of the two-hop probe; returns one more than there are look-alikes."""
    num_near = choose(key, np.int64(0), len(own), settings.first_fanout, space.near)
    count, num = settings.first_fanout, np.int64(1)
    for place in range(num_near):
        middle = own[space.near[place]] & 0xFFFFFFFF
        first, width = visible_range(graph, middle, last_rank)
        num_far = choose(key, count, width, settings.second_fanout, space.far)
        count += settings.second_fanout
        for spot in range(num_far):
            node = graph.entries[first + space.far[spot]] & 0xFFFFFFFF
            if node != seed_node:
                num = _hit(node, num, mark, space)
    kept = 1
    for number in range(1, num):  # the seed's own neighbours are none
        node = np.int64(space.ids[number])
        if not (has_parent(graph, node, seed_node) or has_parent(graph, seed_node, node)):
            space.ids[kept], space.hits[kept] = node, space.hits[number]
            kept += 1
    return kept


@part
def _four_hops(
    graph: Any, seed_node: Any, own: Any, last_rank: Any, key: Any, settings: Any, mark: Any, space: Any
) -> Any:
    """Counts the hits of the four-hop probe; returns one more than there are look-alikes."""
    kind = table_of(graph, seed_node)
    num_near = choose(key, np.int64(0), len(own), settings.first_fanout, space.near)
    count, num = settings.first_fanout, np.int64(1)
    for place in range(num_near):
        fact = own[space.near[place]] & 0xFFFFFFFF
        first, width = visible_range(graph, fact, last_rank)
        shared = seed_node  # the list of a row shows no seed that is new at its time, and may be empty then
        if width:
            shared = graph.entries[first + below(draw(key, count), width)] & 0xFFFFFFFF
        count += 1
        if shared != seed_node:
            first, width = visible_range(graph, shared, last_rank)
            num_far = choose(key, count, width, settings.second_fanout, space.far)
            for spot in range(num_far):
                other = graph.entries[first + space.far[spot]] & 0xFFFFFFFF
                start, end = parent_slots(graph, other)
                for slot in range(start, end):
                    node = np.int64(graph.parents[slot])
                    is_same_kind = graph.offsets[kind] <= node < graph.offsets[kind + 1]
                    if is_same_kind and node != seed_node and graph.node_rank[node] <= last_rank:
                        num = _hit(node, num, mark, space)
        count += settings.second_fanout
    return num


@part
def _hit(node: Any, num: Any, mark: Any, space: Any) -> Any:
    """Counts a hit of a look-alike; returns one more than are known now."""
    number = find_or_add(node, num, mark, space.table)
    if number == num:
        space.ids[num], space.hits[num] = node, 0
        num += 1
    space.hits[number] += 1
    return num
