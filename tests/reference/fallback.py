"""Rows for a seed without history: drawn with equal chances from all that is visible."""

from __future__ import annotations

from quartet.config import SamplingConfig
from tests.reference.bfs import equal_counts
from tests.reference.draws import below, draw, seed_key
from tests.reference.graph import Twin
from tests.reference.walk import Local


def fall_back(twin: Twin, seed: int, time: int, config: SamplingConfig, local: Local) -> Local:
    """The context itself, or, if the seed is alone in it, one with random rows in the last hop bin."""
    if len(local.nodes) > 1 or config.fallback == "null":
        return local
    key = seed_key(twin.nodes[seed].key, time, config.rng_seed, "fallback")
    rows = fallback_rows(visible_rows(twin, time, config.time_rule), seed, config.local_budget - 1, key)
    counts = equal_counts(len(rows), config.local_budget - 1)
    last_bin = max(config.walk_length, 2) + 1  # beyond every walk, and beyond the two hops of BFS2
    return Local([seed, *rows], [0] + [last_bin] * len(rows), [1, *counts])


def visible_rows(twin: Twin, time: int, rule: str) -> list[int]:
    """Every row that is knowable at a time, table by table, oldest first."""
    rows = [node for name in twin.names for node in twin.stream(name)]
    return [n for n in rows if (twin.nodes[n].time <= time if rule == "<=" else twin.nodes[n].time < time)]


def fallback_rows(rows: list[int], seed: int, wanted: int, key: int) -> list[int]:
    """Draws with replacement, repetitions and the seed ignored, until there are enough; all if there are few."""
    if len(rows) <= wanted:
        return [row for row in rows if row != seed]
    found: dict[int, None] = {}
    attempt = 0
    while len(found) < wanted:
        row = rows[below(draw(key, attempt), len(rows))]
        attempt += 1
        if row != seed:
            found[row] = None
    return list(found)
