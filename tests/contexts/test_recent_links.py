"""RGP's temporal context: the ends of the newest links of every foreign key, drawn without the future or row order."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quartet.causal import TimeRule
from quartet.config import Recipe, SamplingConfig
from quartet.contexts import sample
from quartet.database import FACTS, Database, ForeignKey, TableSchema, TimeColumn
from quartet.database.schema import Schema
from quartet.graph import TemporalGraph
from tests.contexts.named import World
from tests.contexts.small import sales
from tests.contexts.twins import seeds_from
from tests.contexts.unnoticed import RULES, asked, assert_unnoticed, rng_seeds
from tests.reference.graph import build_twin
from tests.reference.recent_links import recent_links
from tests.shop import day, labels, raw_shop, shop
from tests.strategies import SECOND, Raw, examples, interesting_times, random_db

LINKS = SamplingConfig(
    local_sampler="bfs", branches=("temporal",), local=False, temporal_unit="links", fallback="null"
)
SHOP = TemporalGraph.build(shop())
LABELS = labels(shop())


def configs() -> st.SearchStrategy[SamplingConfig]:
    return st.builds(
        LINKS.changed, recent_links=st.sampled_from([1, 2, 3, 10]), time_rule=st.sampled_from(RULES)
    )


def lately(graph: TemporalGraph, time: int, config: SamplingConfig) -> list[int]:
    found: list[int] = sample(graph, seeds_from([(0, time)]), config).temporal(0).tolist()
    return found


def in_the_shop(time: int, count: int = 10, rule: TimeRule = "<=") -> list[str]:
    return [LABELS[node] for node in lately(SHOP, time, LINKS.changed(recent_links=count, time_rule=rule))]


# --- what is drawn ----------------------------------------------------------------------------------


def test_the_newest_link_of_each_foreign_key() -> None:
    """Country, referrer, product, buyer, recipient and visitor; rows that are there already are not repeated."""
    assert in_the_shop(day(8), count=1) == ["105", "IN", "106", "#10", "tea", "visit 5"]


def test_all_links_there_are() -> None:
    """On day 1 one customer has come, from one country, and visited twice."""
    assert in_the_shop(day(1))[:2] == ["101", "FR"]
    assert sorted(in_the_shop(day(1))) == ["101", "FR", "visit 1", "visit 2"]
    assert in_the_shop(day(0)) == []  # a product without an order


def test_a_link_is_known_when_both_its_ends_are() -> None:
    """Order 5 of day 4 names a product of day 7, order 7 of day 5 a recipient of day 6."""
    assert [("#5" in names, "pot" in names) for names in map(in_the_shop, map(day, (4, 6, 7)))] == [
        (True, False), (True, False), (True, True),
    ]  # fmt: skip
    assert ["104" in in_the_shop(day(number)) for number in (5, 6)] == [False, True]


def test_the_rule_decides_about_the_moment_itself() -> None:
    shown = [["#10" in in_the_shop(day(8) + shift, rule=rule) for shift in (-1, 0, 1)] for rule in RULES]
    assert shown == [[False, True, True], [False, False, True]]


def test_links_that_were_always_known_are_not_recent() -> None:
    """A static child of a static parent takes no part; one of a timed parent does, from the parent's time on."""
    tables = {
        "regions": pa.table({"id": [0]}),
        "shops": pa.table({"id": [0, 1], "region": [0, 0], "lease": pa.array([None, 0], pa.int64())}),
        "leases": pa.table({"id": [0], "at": [5]}),
    }
    links = (ForeignKey(("region",), "regions"), ForeignKey(("lease",), "leases"))
    said = {
        "regions": TableSchema(("id",), settled=FACTS),
        "shops": TableSchema(("id",), links, settled=FACTS),
        "leases": TableSchema(("id",), (), TimeColumn("at", unit="s"), settled=FACTS),
    }
    graph = TemporalGraph.build(Database.build(tables, Schema(said)))
    assert lately(graph, 5 * SECOND - 1, LINKS) == []
    assert lately(graph, 5 * SECOND, LINKS) == [2, 3]  # the second shop and its lease


def test_no_table_has_rows() -> None:
    raw = sales([], num_buyers=1, num_things=0)
    assert lately(TemporalGraph.build(Database.build(*raw)), day(0), LINKS) == []


def test_a_tie_is_broken_by_keys() -> None:
    """Forty sales of one second, ten drawn: the same ones in any order of rows, and not the last rows."""
    tables, schema = sales([(buyer, 0) for buyer in range(40)], num_buyers=40, num_things=1)
    at_once = tables["sales"].set_column(3, "at", pa.array([7] * 40, pa.int64()))

    def drawn(order: list[int]) -> list[int]:
        table = at_once.take(pa.array(order))
        graph = TemporalGraph.build(Database.build(tables | {"sales": table}, schema))
        sold = [node - 41 for node in lately(graph, 7 * SECOND, LINKS) if node >= 41]
        return [order[row] for row in sold]

    rng = random.Random(0)
    first = drawn(list(range(40)))
    assert len(first) == 10
    assert sorted(first) != list(range(30, 40))
    for _ in range(5):
        assert drawn(rng.sample(range(40), 40)) == first


def test_at_most_two_rows_for_each_link() -> None:
    graph = TemporalGraph.build(Database.build(*sales([(n, n) for n in range(50)], 50, 50)))
    for count in (1, 3, 10):
        found = lately(graph, day(0), LINKS.changed(recent_links=count))
        assert len(found) == 3 * count  # a sale has two links, and is one row
        assert sorted(found)[-count:] == list(range(150 - count, 150))
    assert lately(graph, day(0), LINKS.changed(recent_links=2)) == [149, 49, 148, 48, 99, 98]  # newest first


@examples(60)
@given(random_db(), configs(), st.data())
def test_random_databases(raw: Raw, config: SamplingConfig, data: st.DataObject) -> None:
    """Number by number what the twin in plain Python gives, for many times in one call."""
    database = Database.build(*raw)
    times = data.draw(st.lists(st.sampled_from(interesting_times(database)), min_size=1, max_size=8))
    graph, twin = TemporalGraph.build(database), build_twin(*raw)
    if graph.num_nodes:
        context = sample(graph, seeds_from([(0, time) for time in times]), config)
        for place, time in enumerate(times):
            assert context.temporal(place).tolist() == recent_links(twin, time, config)


# --- what changes nothing ---------------------------------------------------------------------------


@examples(50)
@given(random_db(), configs(), st.data(), rng_seeds)
def test_neither_the_future_nor_the_order_of_rows_is_noticed(
    raw: Raw, config: SamplingConfig, data: st.DataObject, rng_seed: int
) -> None:
    rng = random.Random(rng_seed)
    world, time, seeds = asked(raw, data, config.time_rule, rng)
    assert_unnoticed(world, raw, time, seeds, config, rng)


@pytest.mark.parametrize("rule", RULES)
def test_the_shop_keeps_its_secrets(rule: TimeRule) -> None:
    """At each day, a nanosecond before and one after, asked of tea, which is there from day 0 on."""
    raw, rng = raw_shop(), random.Random(0)
    world, config = World(Database.build(*raw)), LINKS.changed(recent_links=2, time_rule=rule)
    for time in (day(number) + shift for number in range(10) for shift in (-1, 0, 1)):
        if time >= day(0) + (rule == "<"):
            assert_unnoticed(world, raw, time, [(("products", "tea", 0), time)], config, rng)


def test_each_time_is_drawn_on_its_own() -> None:
    """Seeds of one time share one context, and other times in the call do not change it."""
    times = [day(number) for number in (9, 2, 5, 2, 9)]
    context = sample(SHOP, seeds_from([(node, time) for node, time in enumerate(times)]), LINKS)
    assert len(context.temporal_start) - 1 == 3
    for place, time in enumerate(times):
        assert context.temporal(place).tolist() == lately(SHOP, time, LINKS)


# --- how it is asked for ----------------------------------------------------------------------------


def test_rows_are_what_is_drawn_unless_asked_otherwise() -> None:
    """Neither field of links changes a context of rows, and without the branch nothing is drawn."""
    plain = SamplingConfig(branches=("temporal",))
    for config in (plain, replace(plain, recent_links=1)):
        assert lately(SHOP, day(9), config) == lately(SHOP, day(9), plain) != lately(SHOP, day(9), LINKS)
    assert lately(SHOP, day(9), replace(LINKS, branches=())) == []


def test_budgets_of_rows_do_not_bind_links() -> None:
    narrow = replace(LINKS, temporal_budget=1, lookback_days=1)
    assert lately(SHOP, day(9), narrow) == lately(SHOP, day(9), LINKS)


def test_a_cache_tells_them_apart() -> None:
    configs = [SamplingConfig(), SamplingConfig(temporal_unit="links"), SamplingConfig(recent_links=9)]
    assert len({config.digest() for config in configs}) == 3


def test_the_recipe_of_rgp_draws_links() -> None:
    sampler = Recipe.load("small", model="rgp").sampling
    assert (sampler.temporal_unit, sampler.recent_links, sampler.local_sampler) == ("links", 10, "bfs")
    assert sampler.branches == ("temporal",)
    assert Recipe.load("small").sampling.temporal_unit == "rows"


def test_rows_are_named_as_the_cache_keeps_them() -> None:
    found = sample(SHOP, seeds_from([(0, day(9))]), LINKS).temporal_node
    assert found.dtype == np.int32
    assert len(np.unique(found)) == len(found)
