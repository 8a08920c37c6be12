"""CRW by Algorithm 1: one walk after the other, dicts for what it writes down."""

from __future__ import annotations

from dataclasses import dataclass, field

from quartet.config import SamplingConfig
from tests.reference.draws import below, chance, draw, seed_key, spread
from tests.reference.graph import Twin

INFINITY = 10**9


@dataclass
class Local:
    """The local context of one seed, the seed first."""

    nodes: list[int]
    hops: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    edges: list[tuple[int, int]] = field(default_factory=list)  # places of child and parent
    peak: int = 0  # the largest visit count


@dataclass
class Visits:
    """What W walks write down, the seed left out."""

    count: dict[int, int] = field(default_factory=dict)
    depth: dict[int, int] = field(default_factory=dict)
    found: dict[int, tuple[int, int]] = field(default_factory=dict)  # first step and its walk


def walk_context(twin: Twin, seed: int, time: int, config: SamplingConfig) -> Local:
    visits = walk(twin, seed, time, config)
    ranked = sorted(visits.count, key=lambda v: (-visits.count[v], visits.found[v]))
    chosen = ranked[: config.local_budget - 1]
    local = Local([seed, *chosen], peak=max(visits.count.values(), default=0))
    local.edges = induced_edges(twin, local.nodes, time, config.time_rule)
    distance = distances(len(local.nodes), local.edges)
    local.hops = [0] + [min(distance[place + 1], visits.depth[v]) for place, v in enumerate(chosen)]
    local.counts = [1, *largest_remainders([visits.count[v] for v in chosen], config.local_budget - 1)]
    return local


def walk(twin: Twin, seed: int, time: int, config: SamplingConfig) -> Visits:
    """Lines 1 to 13 of Algorithm 1."""
    key = seed_key(twin.nodes[seed].key, time, config.rng_seed, "walk")
    lists: dict[int, list[int]] = {}
    visits = Visits()
    for number in range(config.num_walks):
        u, k = seed, 0
        for step in range(config.walk_length):
            bits = draw(key, step * config.num_walks + number)
            if u not in lists:
                lists[u] = truncated(twin, seed, u, time, config, key)
            if chance(bits) < int(config.restart_prob * 2**32) / 2**32 or not lists[u]:
                u, k = seed, 0
                continue
            u, k = lists[u][below(bits, len(lists[u]))], k + 1
            if u != seed:
                visits.count[u] = visits.count.get(u, 0) + 1
                visits.depth[u] = min(visits.depth.get(u, INFINITY), k)
                visits.found[u] = min(visits.found.get(u, (step, number)), (step, number))
    return visits


def truncated(twin: Twin, seed: int, node: int, time: int, config: SamplingConfig, key: int) -> list[int]:
    """The neighbours that a walk may go to from here: the M most recent, M at random, or all."""
    seen, most = twin.visible_to(seed, node, time, config.time_rule), config.max_recent
    if most is None or len(seen) <= most:
        return seen
    if config.truncation == "recent":
        return seen[-most:]
    return [seen[place] for place in spread(key ^ twin.nodes[node].key, 0, len(seen), most)]


def induced_edges(twin: Twin, nodes: list[int], time: int, rule: str) -> list[tuple[int, int]]:
    """The causal edges among a seed and some nodes, child first: in the order of the children, then of their keys."""
    places = {node: place for place, node in enumerate(nodes)}
    seed, own = nodes[0], twin.visible_to(nodes[0], nodes[0], time, rule)
    return [
        (places[child], places[parent])
        for child in nodes
        for parent in twin.parents[child]
        if parent in places
        if (
            (parent if child == seed else child) in own
            if seed in (child, parent)
            else parent in twin.visible(child, time, rule)
        )
    ]


def distances(count: int, edges: list[tuple[int, int]]) -> list[int]:
    """How far each place is from place 0."""
    beside: dict[int, list[int]] = {place: [] for place in range(count)}
    for one, other in edges:
        beside[one].append(other)
        beside[other].append(one)
    distance = [INFINITY] * count
    ring, radius = [0], 0
    while ring:
        for place in ring:
            distance[place] = radius
        ring = [n for n in dict.fromkeys(n for p in ring for n in beside[p]) if distance[n] == INFINITY]
        radius += 1
    return distance


def largest_remainders(weights: list[int], slots: int) -> list[int]:
    """One slot for each weight, and the rest in proportion; what a fraction leaves, to the largest ones.

    Equal fractions: to the earlier weight.
    """
    if not weights:
        return []
    free, total = slots - len(weights), sum(weights)
    slots_of = [1 + free * weight // total for weight in weights]
    by_remainder = sorted(range(len(weights)), key=lambda place: (-(free * weights[place] % total), place))
    for place in by_remainder[: slots - sum(slots_of)]:
        slots_of[place] += 1
    return slots_of
