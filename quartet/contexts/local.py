"""What the samplers of local contexts share: where they write, the edges among the rows, and the hops."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from quartet.contexts.chunk import Chunk, packed
from quartet.contexts.context import Array, Arrays, starts
from quartet.contexts.nodes import find
from quartet.graph import parent_slots
from quartet.machine import compiled

UNREACHED = 255


class LocalRows(NamedTuple):
    """Local contexts of a chunk of seeds, a row for each; K is the budget, the first place is the seed's."""

    node: Array  # (seeds, K) int32
    hop: Array  # (seeds, K) uint8
    counts: Array  # (seeds, K) uint16
    edge: Array  # (seeds, K times the most foreign keys, 2) uint16
    num_rows: Array  # (seeds,) int64, as the next two
    num_edges: Array
    peak: Array  # the largest visit count of the walks

    @staticmethod
    def alone(seeds: Chunk) -> LocalRows:
        """Returns room for the contexts of some seeds, each of which stands alone."""
        num_seeds, budget = len(seeds), seeds.config.local_budget
        most_edges = budget * max(1, int(seeds.graph.num_foreign_keys.max()))
        rows = LocalRows(
            np.empty((num_seeds, budget), np.int32),
            np.empty((num_seeds, budget), np.uint8),
            np.empty((num_seeds, budget), np.uint16),
            np.empty((num_seeds, most_edges, 2), np.uint16),
            *np.zeros((3, num_seeds), np.int64),
        )
        return rows.cut_to_seeds(seeds.node)

    def cut_to_seeds(self, nodes: Array) -> LocalRows:
        """Leaves nothing but the seeds."""
        self.node[:, 0], self.hop[:, 0], self.counts[:, 0] = nodes, 0, 1
        self.num_rows[:], self.num_edges[:] = 1, 0
        return self

    def arrays(self) -> Arrays:
        """Returns the fields of a context, and beside them `peak`, which the sketch reads."""
        return {
            "local_start": starts(self.num_rows),
            "local_node": packed(self.node, self.num_rows),
            "local_hop": packed(self.hop, self.num_rows),
            "local_count": packed(self.counts, self.num_rows),
            "edge_start": starts(self.num_edges),
            "edge": packed(self.edge, self.num_edges),
            "peak": self.peak,
        }


@compiled
def fill_equal_counts(counts: Any, num_others: Any, slots: Any) -> None:
    """Says how often each row but the seed stands in the padded context: equally often, earlier ones once more."""
    free = slots - num_others
    for place in range(1, num_others + 1):
        counts[place] = 1 + free // num_others + (place <= free % num_others)


@compiled
def induce_edges(graph: Any, node: Any, count: Any, place_of: Any, mark: Any, table: Any, edges: Any) -> Any:
    """Writes the edges among the chosen rows as (child, parent) places; returns how many there are.

    Two loops: the parents are far apart in memory, and reading them all first lets the reads overlap.
    """
    parents = graph.parents
    named, child, num_named = np.empty(len(edges), np.int32), np.empty(len(edges), np.int32), 0
    for place in range(count):
        first, last = parent_slots(graph, np.int64(node[place]))
        for slot in range(first, last):
            named[num_named], child[num_named] = parents[slot], place
            num_named += 1
    num_edges = 0
    for spot in range(num_named):
        if named[spot] >= 0:
            number = find(np.int64(named[spot]), mark, table)
            if number >= 0 and place_of[number] >= 0:
                edges[num_edges, 0], edges[num_edges, 1] = child[spot], place_of[number]
                num_edges += 1
    return num_edges


@compiled
def shorten_hops(hop: Any, count: Any, edges: Any, num_edges: Any) -> None:
    """hop = min(hop, distance from the seed inside the induced graph), in place."""
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
