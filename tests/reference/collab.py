"""Look-alikes by Algorithm 3, and their four-hop form."""

from __future__ import annotations

from collections.abc import Iterator

from quartet.config import SamplingConfig
from tests.reference.draws import below, choose, draw, seed_key
from tests.reference.graph import Twin


def collab_context(twin: Twin, seed: int, time: int, config: SamplingConfig) -> list[int]:
    """The look-alikes with the most hits, ties in the order of their discovery."""
    hits = count_hits(twin, seed, time, config)
    order = {other: place for place, other in enumerate(hits)}
    return sorted(hits, key=lambda other: (-hits[other], order[other]))[: config.collab_budget]


def count_hits(twin: Twin, seed: int, time: int, config: SamplingConfig) -> dict[int, int]:
    """m, the hits of every look-alike, in the order of their discovery."""
    probe = two_hops if config.collab_hops == 2 else four_hops
    m: dict[int, int] = {}
    for other in probe(twin, seed, time, config):
        m[other] = m.get(other, 0) + 1
    return m


def two_hops(twin: Twin, seed: int, time: int, config: SamplingConfig) -> Iterator[int]:
    """M1 neighbours r, M2 neighbours p of each; p is neither the seed nor one of its neighbours."""
    key, near = _probe(twin, seed, time, config)
    own = twin.visible_to(seed, seed, time, config.time_rule)
    for place, r in enumerate(near):
        beside = twin.visible(r, time, config.time_rule)
        first = config.first_fanout + place * config.second_fanout
        for spot in choose(key, first, len(beside), config.second_fanout):
            if beside[spot] != seed and beside[spot] not in own:
                yield beside[spot]


def four_hops(twin: Twin, seed: int, time: int, config: SamplingConfig) -> Iterator[int]:
    """M1 neighbours r, one neighbour y of each, M2 neighbours z of y, the rows of the seed's table z names.

    All four links are visible ones.
    """
    key, near = _probe(twin, seed, time, config)
    rule = config.time_rule
    for place, r in enumerate(near):
        beside = twin.visible(r, time, rule)
        first = config.first_fanout + place * (1 + config.second_fanout)
        shared = beside[below(draw(key, first), len(beside))] if beside else seed
        if shared == seed:
            continue
        others = twin.visible(shared, time, rule)
        for spot in choose(key, first + 1, len(others), config.second_fanout):
            z = others[spot]
            for other in twin.parents[z]:
                is_same_kind = twin.nodes[other].table == twin.nodes[seed].table
                if other in twin.visible(z, time, rule) and is_same_kind and other != seed:
                    yield other


def _probe(twin: Twin, seed: int, time: int, config: SamplingConfig) -> tuple[int, list[int]]:
    """The key of the draws, and E: some neighbours of the seed."""
    key = seed_key(twin.nodes[seed].key, time, config.rng_seed, f"collab{config.collab_hops}")
    own = twin.visible_to(seed, seed, time, config.time_rule)
    return key, [own[place] for place in choose(key, 0, len(own), config.first_fanout)]


def expected_hits(twin: Twin, seed: int, time: int, config: SamplingConfig) -> dict[int, tuple[float, float]]:
    """Mean and variance of m[p] for every look-alike of the two-hop probe, without a single draw.

    The paper's formula with the min that it leaves out: a list shorter than the fan-out is taken whole.
    """
    own = twin.visible_to(seed, seed, time, config.time_rule)
    d = len(own)
    taken = min(config.first_fanout, d)
    both = taken * (taken - 1) / (d * (d - 1)) if d > 1 else 0.0  # two given neighbours are in E
    reach: dict[int, list[float]] = {}
    for r in own:
        beside = twin.visible(r, time, config.time_rule)
        for p in beside:
            if p != seed and p not in own:
                reach.setdefault(p, []).append(min(config.second_fanout, len(beside)) / len(beside))
    return {p: _moments(chances, taken / d, both) for p, chances in reach.items()}


def _moments(chances: list[float], one: float, both: float) -> tuple[float, float]:
    mean = one * sum(chances)
    pairs = sum(chances) ** 2 - sum(b * b for b in chances)
    return mean, mean + both * pairs - mean**2
