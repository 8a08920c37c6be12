"""The exact law of the visits: by dynamic programming over the steps of one walk."""

from __future__ import annotations

from quartet.config import SamplingConfig
from tests.reference.draws import seed_key
from tests.reference.graph import Twin
from tests.reference.walk import truncated

Law = dict[int, float]


def expected_visits(twin: Twin, seed: int, time: int, config: SamplingConfig) -> Law:
    """How often one walk visits each node, on average; restarts are no visits.

    The kernel is equation 2 over the truncated lists. The seed is among the nodes.
    """
    key = seed_key(twin.nodes[seed].key, time, config.rng_seed, "walk")
    restart = int(config.restart_prob * 2**32) / 2**32
    lists: dict[int, list[int]] = {}
    visits: Law = {}
    at: Law = {seed: 1.0}
    for _ in range(config.walk_length):
        moved: Law = {}
        for u, mass in at.items():
            if u not in lists:
                lists[u] = truncated(twin, seed, u, time, config, key)
            for v in lists[u]:
                moved[v] = moved.get(v, 0.0) + mass * (1 - restart) / len(lists[u])
        for v, mass in moved.items():
            visits[v] = visits.get(v, 0.0) + mass
        back = 1.0 - sum(moved.values())
        at = moved | {seed: moved.get(seed, 0.0) + back}
    return visits


def page_rank(twin: Twin, seed: int, time: int, config: SamplingConfig) -> Law:
    """The personalised PageRank that the paper names as the limit: the stationary law of the same kernel."""
    key = seed_key(twin.nodes[seed].key, time, config.rng_seed, "walk")
    at: Law = {seed: 1.0}
    for _ in range(400):
        moved: Law = {}
        for u, mass in at.items():
            found = truncated(twin, seed, u, time, config, key)
            for v in found:
                moved[v] = moved.get(v, 0.0) + mass * (1 - config.restart_prob) / len(found)
        at = moved | {seed: moved.get(seed, 0.0) + 1.0 - sum(moved.values())}
    return at


def total_variation(one: Law, other: Law) -> float:
    return sum(abs(one.get(v, 0.0) - other.get(v, 0.0)) for v in one.keys() | other.keys()) / 2
