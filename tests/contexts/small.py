"""Small graphs for the laws: buyers, things and the sales that join them, drawn from one number."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from quartet.causal import last_visible_rank
from quartet.config import SamplingConfig
from quartet.contexts import seed_keys
from quartet.contexts.collab import CollabSettings, collab_space, two_hops
from quartet.contexts.walk import WalkSettings, walk_one, walk_space
from quartet.database import FACTS, Database, ForeignKey, TableSchema, TimeColumn
from quartet.database.schema import Schema
from quartet.graph import TemporalGraph, seed_entries
from tests.reference.graph import Twin, build_twin
from tests.strategies import SECOND, Raw

END = 10**6 * SECOND  # after every sale


def sales(pairs: Sequence[tuple[int, int]], num_buyers: int, num_things: int) -> Raw:
    """A sale for each pair (buyer, thing), one second after the other; buyers and things are always known."""
    links = (ForeignKey(("buyer",), "buyers"), ForeignKey(("thing",), "things"))
    tables = {
        "buyers": pa.table({"id": range(num_buyers)}),
        "things": pa.table({"id": range(num_things)}),
        "sales": pa.table(
            {
                "id": range(len(pairs)),
                "buyer": pa.array([buyer for buyer, _ in pairs], pa.int64()),
                "thing": pa.array([thing for _, thing in pairs], pa.int64()),
                "at": pa.array(range(len(pairs)), pa.int64()),
            }
        ),
    }
    said = {
        "buyers": TableSchema(("id",), settled=FACTS),
        "things": TableSchema(("id",), settled=FACTS),
        "sales": TableSchema(("id",), links, TimeColumn("at", unit="s"), settled=FACTS),
    }
    return tables, Schema(said)


def random_sales(rng_seed: int, most_sales: int = 150) -> tuple[TemporalGraph, Twin]:
    """Up to sixteen buyers and nine things, some of them much more in demand than others."""
    rng = random.Random(rng_seed)
    buyers, things = rng.randint(2, 16), rng.randint(1, 9)
    pairs = [
        (int(buyers * rng.random() ** 2), int(things * rng.random() ** 2))
        for _ in range(rng.randint(buyers, most_sales))
    ]
    raw = sales(pairs, buyers, things)
    return TemporalGraph.build(Database.build(*raw)), build_twin(*raw)


def visits_of(graph: TemporalGraph, node: int, time: int, config: SamplingConfig) -> dict[int, int]:
    """How often the walks of a seed visit each node, the seed included: what `sample` ranks and then forgets."""
    most = min(config.num_walks * config.walk_length, graph.num_nodes) + 1
    space = walk_space(config.num_walks, most)
    last_rank = int(last_visible_rank(graph.times, time, config.time_rule))
    key = seed_keys(graph, np.array([node]), np.array([time]), config.rng_seed, "walk")[0]
    own = seed_entries(graph.arrays, node, time, last_rank)
    num = walk_one(graph.arrays, node, own, last_rank, key, WalkSettings.of(config), 0, space)
    return dict(zip(space.ids[:num].tolist(), space.visits[:num].tolist(), strict=True))


def mean_hits(
    graph: TemporalGraph, node: int, time: int, config: SamplingConfig, num_runs: int
) -> dict[int, float]:
    """The mean hits of every look-alike over many runs of the two-hop probe."""
    settings = CollabSettings(config.first_fanout, config.second_fanout, 2, config.collab_budget)
    space = collab_space(settings, config.first_fanout * config.second_fanout + 1)
    total = np.zeros(graph.num_nodes, np.int64)
    last_rank = int(last_visible_rank(graph.times, time, config.time_rule))
    own = seed_entries(graph.arrays, node, time, last_rank)
    for run in range(num_runs):
        key = seed_keys(graph, np.array([node]), np.array([time]), run, "collab2")[0]
        num = two_hops(graph.arrays, node, own, last_rank, key, settings, run, space)
        np.add.at(total, space.ids[1:num], space.hits[1:num])
    return {other: total[other] / num_runs for other in np.flatnonzero(total).tolist()}
