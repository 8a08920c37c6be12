"""The samplers are what their definitions say: number by number against the twins in plain Python."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quartet.config import SamplingConfig
from quartet.database import Database
from quartet.graph import TemporalGraph
from tests.contexts.configs import configs
from tests.contexts.twins import assert_twins, pairs_of
from tests.reference.graph import build_twin
from tests.shop import day, raw_shop
from tests.strategies import Raw, examples, random_db, seeds_of

SHOP = raw_shop()
GRAPH = TemporalGraph.build(Database.build(*SHOP))
TWIN = build_twin(*SHOP)
EVERY_SEED = [(node, day(number)) for node in range(30) for number in range(10)]

SETTINGS: dict[str, SamplingConfig] = {
    "the paper's": SamplingConfig(),
    "strictly before": SamplingConfig(time_rule="<"),
    "no restart": SamplingConfig(restart_prob=0.0, num_walks=20),
    "always restart but once": SamplingConfig(restart_prob=0.95),
    "no truncation": SamplingConfig(max_recent=None),
    "the two most recent": SamplingConfig(max_recent=2),
    "any two": SamplingConfig(max_recent=2, truncation="random"),
    "any two, another run": SamplingConfig(max_recent=2, truncation="random", rng_seed=2**63),
    "few walks": SamplingConfig(num_walks=3, walk_length=4),
    "one step": SamplingConfig(walk_length=1, local_budget=4),
    "the longest walk": SamplingConfig(num_walks=2, walk_length=254, restart_prob=0.0),
    "the smallest budgets": SamplingConfig(local_budget=2, temporal_budget=1, collab_budget=1),
    "four hops": SamplingConfig(collab_hops=4),
    "narrow probes": SamplingConfig(first_fanout=2, second_fanout=1, collab_budget=5),
    "narrow probes of four hops": SamplingConfig(collab_hops=4, first_fanout=2, second_fanout=2),
    "two days": SamplingConfig(lookback_days=2, temporal_budget=7),
    "BFS2": SamplingConfig(local_sampler="bfs"),
    "BFS2, small": SamplingConfig(local_sampler="bfs", local_budget=6),
    "uniform": SamplingConfig(local_sampler="uniform"),
    "uniform, narrow": SamplingConfig(local_sampler="uniform", first_fanout=2, second_fanout=1),
    "uniform, small": SamplingConfig(
        local_sampler="uniform", local_budget=6, first_fanout=3, second_fanout=2
    ),
    "no fallback": SamplingConfig(fallback="null"),
    "no branches": SamplingConfig(branches=()),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_every_seed_of_the_shop(name: str) -> None:
    """Each of the thirty rows at each of the ten days."""
    assert_twins(GRAPH, TWIN, EVERY_SEED, SETTINGS[name])


@examples(120)
@given(random_db(), configs(), st.data())
def test_random_databases(raw: Raw, config: SamplingConfig, data: st.DataObject) -> None:
    database = Database.build(*raw)
    seeds = data.draw(seeds_of(database))
    assert_twins(TemporalGraph.build(database), build_twin(*raw), pairs_of(database, seeds), config)
