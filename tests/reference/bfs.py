"""BFS2: a uniform sample of the visible neighbours within two hops."""

from __future__ import annotations

from quartet.config import SamplingConfig
from tests.reference.draws import below, draw, seed_key, spread
from tests.reference.graph import Twin
from tests.reference.walk import Local, distances, induced_edges

FIRST_CAP = 5_000
SECOND_CAP = 1_000


def bfs_context(twin: Twin, seed: int, time: int, config: SamplingConfig) -> Local:
    key = seed_key(twin.nodes[seed].key, time, config.rng_seed, "bfs")
    first, second = pool(twin, seed, time, config, key)
    rows = [(node, 1) for node in first] + [(node, 2) for node in second]
    chosen = []
    while rows and len(chosen) < config.local_budget - 1:  # the shuffle of Fisher and Yates, cut short
        place = below(draw(key, len(chosen) + 1), len(rows))
        chosen.append(rows[place])
        rows = [*rows[1:place], rows[0], *rows[place + 1 :]] if place else rows[1:]
    local = Local([seed, *(node for node, _ in chosen)])
    local.edges = induced_edges(twin, local.nodes, time, config.time_rule)
    distance = distances(len(local.nodes), local.edges)
    local.hops = [0] + [min(distance[place + 1], hop) for place, (_, hop) in enumerate(chosen)]
    local.counts = [1, *equal_counts(len(chosen), config.local_budget - 1)]
    return local


def pool(twin: Twin, seed: int, time: int, config: SamplingConfig, key: int) -> tuple[list[int], list[int]]:
    """The distinct rows one hop away, and those two hops away, in the order of their discovery."""

    def capped(node: int, owner: int, cap: int) -> list[int]:
        seen = twin.visible_to(seed, node, time, config.time_rule)
        return [seen[place] for place in spread(key, (owner + 1) << 32, len(seen), cap)]

    first = capped(seed, 0, FIRST_CAP)
    second = [p for place, r in enumerate(first) for p in capped(r, place + 2, SECOND_CAP)]
    near = {seed, *first}
    return first, [node for node in dict.fromkeys(second) if node not in near]


def equal_counts(count: int, slots: int) -> list[int]:
    """The slots in equal parts, earlier places having one more where that is needed."""
    return [len(range(place, slots, count)) for place in range(count)]
