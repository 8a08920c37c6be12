"""The samplers are what their definitions say: number by number against the twins in plain Python."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quartet.config import SamplerConfig
from quartet.database.database import Database
from quartet.graph import TemporalGraph
from tests.reference.graph import build_twin
from tests.samplers.configs import configs
from tests.samplers.twins import assert_twins, pairs_of
from tests.shop import day, raw_shop
from tests.strategies import Raw, examples, random_db, seeds_of

SHOP = raw_shop()
GRAPH = TemporalGraph.build(Database.build(*SHOP))
TWIN = build_twin(*SHOP)
EVERY_SEED = [(node, day(number)) for node in range(30) for number in range(10)]

SETTINGS: dict[str, SamplerConfig] = {
    "the paper's": SamplerConfig(),
    "strictly before": SamplerConfig(time_rule="<"),
    "no restart": SamplerConfig(restart_prob=0.0, num_walks=20),
    "always restart but once": SamplerConfig(restart_prob=0.95),
    "no truncation": SamplerConfig(max_recent=None),
    "the two most recent": SamplerConfig(max_recent=2),
    "any two": SamplerConfig(max_recent=2, truncation="random"),
    "any two, another run": SamplerConfig(max_recent=2, truncation="random", rng_seed=-1),
    "few walks": SamplerConfig(num_walks=3, walk_length=4),
    "one step": SamplerConfig(walk_length=1, local_budget=4),
    "the longest walk": SamplerConfig(num_walks=2, walk_length=254, restart_prob=0.0),
    "the smallest budgets": SamplerConfig(local_budget=2, temporal_budget=1, collab_budget=1),
    "four hops": SamplerConfig(collab_hops=4),
    "narrow probes": SamplerConfig(first_fanout=2, second_fanout=1, collab_budget=5),
    "narrow probes of four hops": SamplerConfig(collab_hops=4, first_fanout=2, second_fanout=2),
    "two days": SamplerConfig(lookback_days=2, temporal_budget=7),
    "BFS2": SamplerConfig(sampler="bfs"),
    "BFS2, small": SamplerConfig(sampler="bfs", local_budget=6),
    "no fallback": SamplerConfig(fallback="null"),
    "no branches": SamplerConfig(branches=()),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_every_seed_of_the_shop(name: str) -> None:
    """Each of the thirty rows at each of the ten days."""
    assert_twins(GRAPH, TWIN, EVERY_SEED, SETTINGS[name])


@examples(300)
@given(random_db(), configs(), st.data())
def test_random_databases(raw: Raw, config: SamplerConfig, data: st.DataObject) -> None:
    database = Database.build(*raw)
    seeds = data.draw(seeds_of(database))
    assert_twins(TemporalGraph.build(database), build_twin(*raw), pairs_of(database, seeds), config)
