"""What the samplers of local contexts share: where they write, the edges among the rows, and the hops."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from quartet.contexts.chunk import Chunk, packed
from quartet.contexts.context import Array, Arrays, starts
from quartet.contexts.links import MOST_BYTES, write_links
from quartet.contexts.nodes import find
from quartet.graph import parent_slots, prefetch
from quartet.machine import part

UNREACHED = 255


class LocalRows(NamedTuple):
    """Local contexts of a chunk of seeds, a row for each; K is the budget, the first place is the seed's."""

    node: Array  # (seeds, K) int32
    hop: Array  # (seeds, K) uint8
    counts: Array  # (seeds, K) uint16
    links: Array  # (seeds, room) uint8: edges, as `links.py` writes them
    num_rows: Array  # (seeds,) int64, as the next two
    num_bytes: Array  # of the links
    peak: Array  # the largest visit count of the walks

    @staticmethod
    def alone(seeds: Chunk) -> LocalRows:
        """Returns room for the contexts of some seeds, each of which stands alone."""
        num_seeds, budget = len(seeds), seeds.config.local_budget
        room = budget * max(1, int(seeds.graph.num_foreign_keys.max())) * MOST_BYTES
        rows = LocalRows(
            np.empty((num_seeds, budget), np.int32),
            np.empty((num_seeds, budget), np.uint8),
            np.empty((num_seeds, budget), np.uint16),
            np.empty((num_seeds, room), np.uint8),
            *np.zeros((3, num_seeds), np.int64),
        )
        return rows.cut_to_seeds(seeds.node)

    def cut_to_seeds(self, nodes: Array) -> LocalRows:
        """Leaves nothing but the seeds."""
        self.node[:, 0], self.hop[:, 0], self.counts[:, 0] = nodes, 0, 1
        self.num_rows[:], self.num_bytes[:] = 1, 0
        return self

    def arrays(self) -> Arrays:
        """Returns the fields of a context, and beside them `peak`, which the sketch reads."""
        return {
            "local_start": starts(self.num_rows),
            "local_node": packed(self.node, self.num_rows),
            "local_hop": packed(self.hop, self.num_rows),
            "local_count": packed(self.counts, self.num_rows),
            "link_start": starts(self.num_bytes),
            "link": packed(self.links, self.num_bytes),
            "peak": self.peak,
        }


@part
def fill_equal_counts(counts: Any, num_others: Any, slots: Any) -> None:
    """Says how often each row but the seed stands in the padded context: equally often, earlier ones once more."""
    free = slots - num_others
    for place in range(1, num_others + 1):
        counts[place] = 1 + free // num_others + (place <= free % num_others)


@part
def link_rows(graph: Any, seed: Any, count: Any, place_of: Any, table: Any, rows: Any) -> None:
    """Finds the edges among the rows of a seed's context, how far each row is from the seed, and writes both."""
    node, hop = rows.node[seed], rows.hop[seed]
    edges = np.empty((rows.links.shape[1] // MOST_BYTES, 2), np.uint16)
    num_edges = induce_edges(graph, node, count, place_of, seed, table, edges)
    shorten_hops(hop, count, edges, num_edges)
    rows.num_bytes[seed] = write_links(edges, num_edges, rows.links[seed])


@part
def induce_edges(graph: Any, node: Any, count: Any, place_of: Any, mark: Any, table: Any, edges: Any) -> Any:
    """Fills `edges` with those among the chosen rows, as (child, parent) places; returns how many there are."""
    parents = graph.parents
    for place in range(count):
        prefetch(parents, parent_slots(graph, np.int64(node[place]))[0])
    num_edges = 0
    for place in range(count):
        first, last = parent_slots(graph, np.int64(node[place]))
        for slot in range(first, last):
            if parents[slot] >= 0:
                number = find(np.int64(parents[slot]), mark, table)
                if number >= 0 and place_of[number] >= 0:
                    edges[num_edges, 0], edges[num_edges, 1] = place, place_of[number]
                    num_edges += 1
    return num_edges


@part
def shorten_hops(hop: Any, count: Any, edges: Any, num_edges: Any) -> None:
    """hop = min(hop, distance from the seed inside the induced graph), in place."""
    starts = np.zeros(count + 1, np.int32)
    for edge in range(num_edges):
        starts[edges[edge, 0]] += 1
        starts[edges[edge, 1]] += 1
    for place in range(count):
        starts[place + 1] += starts[place]
    beside = np.empty(2 * num_edges, np.int32)
    for edge in range(num_edges - 1, -1, -1):
        child, parent = edges[edge, 0], edges[edge, 1]
        starts[child] -= 1
        starts[parent] -= 1
        beside[starts[child]], beside[starts[parent]] = parent, child
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
