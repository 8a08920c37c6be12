"""RelBench's sampler: of each relation some visible neighbours of the seed, and some of theirs."""

from __future__ import annotations

from quartet.config import SamplingConfig
from tests.reference.bfs import FIRST_CAP, SECOND_CAP, equal_counts
from tests.reference.draws import below, draw, seed_key, spread
from tests.reference.graph import Twin
from tests.reference.walk import Local, distances, induced_edges


def uniform_context(twin: Twin, seed: int, time: int, config: SamplingConfig) -> Local:
    key = seed_key(twin.nodes[seed].key, time, config.rng_seed, "uniform")
    slots = config.local_budget - 1
    first, second = pool(twin, seed, time, config, key)
    chosen = [(node, 1) for node in shuffled(first, slots, key, 1)]
    chosen += [(node, 2) for node in shuffled(second, slots - len(chosen), key, 1 + len(first))]
    local = Local([seed, *(node for node, _ in chosen)])
    local.edges = induced_edges(twin, local.nodes, time, config.time_rule)
    distance = distances(len(local.nodes), local.edges)
    local.hops = [0] + [min(distance[place + 1], hop) for place, (_, hop) in enumerate(chosen)]
    local.counts = [1, *equal_counts(len(chosen), slots)]
    return local


def pool(twin: Twin, seed: int, time: int, config: SamplingConfig, key: int) -> tuple[list[int], list[int]]:
    """The distinct rows one link away, and those two links away, in the order of their discovery."""

    def some(node: int, owner: int, cap: int, fanout: int) -> list[int]:
        seen, count = twin.visible_to(seed, node, time, config.time_rule), (owner + 1) << 32
        kept: dict[tuple[int, bool], list[int]] = {}
        met: dict[tuple[int, bool], int] = {}
        for place, spot in enumerate(spread(key, count, len(seen), cap)):
            other = seen[spot]
            relation = (twin.names.index(twin.nodes[other].table), other in twin.parents[node])
            number = met[relation] = met.get(relation, -1) + 1
            reservoir = kept.setdefault(relation, [])
            if number < fanout:
                reservoir.append(other)
            elif (lot := below(draw(key, count + 2**31 + place), number + 1)) < fanout:
                reservoir[lot] = other
        return [other for relation in sorted(kept) for other in kept[relation]]

    first = some(seed, 0, FIRST_CAP, config.first_fanout)
    second = [
        p for place, r in enumerate(first) for p in some(r, place + 2, SECOND_CAP, config.second_fanout)
    ]
    near = {seed, *first}
    return first, [node for node in dict.fromkeys(second) if node not in near]


def shuffled(rows: list[int], wanted: int, key: int, count: int) -> list[int]:
    """Up to `wanted` of some rows: the shuffle of Fisher and Yates, cut short."""
    rows = list(rows)
    for place in range(min(wanted, len(rows))):
        other = place + below(draw(key, count + place), len(rows) - place)
        rows[place], rows[other] = rows[other], rows[place]
    return rows[: max(wanted, 0)]
