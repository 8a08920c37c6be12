"""No row that was not knowable at the seed's time can change a context, by one bit (P1 to P5, P11).

Contexts are compared in names (`named.py`). A changed database holds other rows after the time, or the same
in another order; the seeds are visible rows, asked about at that time and earlier.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Literal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quartet.causal import TimeRule
from quartet.config import SamplingConfig
from quartet.contexts import sample, sampling
from quartet.database import FACTS, Database, ForeignKey, TableSchema, TimeColumn
from quartet.database.schema import Schema
from quartet.graph import TemporalGraph
from quartet.times import NEVER, STATIC
from tests.contexts.configs import configs
from tests.contexts.named import Named, World, future_rows
from tests.contexts.twins import seeds_from
from tests.contexts.unnoticed import RULES, asked, assert_unnoticed, rng_seeds
from tests.reference.graph import dated_rows
from tests.shop import day, raw_shop
from tests.strategies import SECOND, Raw, examples, is_future, random_db

# --- P1 to P3, P5 ---------------------------------------------------------------------------------


@examples(120)
@given(random_db(), configs(), st.data(), rng_seeds)
def test_neither_the_future_nor_the_order_of_rows_is_noticed(
    raw: Raw, config: SamplingConfig, data: st.DataObject, rng_seed: int
) -> None:
    """P1 to P3, and P5: every row that is shown is visible, those of seeds without history in the last bin."""
    rng = random.Random(rng_seed)
    world, time, seeds = asked(raw, data, config.time_rule, rng)
    assert_unnoticed(world, raw, time, seeds, config, rng)
    context = world.sample(seeds, config)
    for place, (name, when) in enumerate(seeds):
        _, hops, _, edges = context.local(place)
        has_history = len(world.graph.neighbors(world.nodes[name], when, config.time_rule)) > 0
        if not has_history or config.fallback_hop in hops:
            assert set(hops[1:].tolist()) <= {config.fallback_hop}
            assert len(edges) == 0


@pytest.mark.parametrize("hops", [2, 4])
def test_the_order_of_rows_decides_nothing_about_a_couple(hops: Literal[2, 4]) -> None:
    """P3 of two rows that name each other, in each order: edges are (child, parent), and z *names* a look-alike."""
    said = TableSchema(("id",), (ForeignKey(("to",), "people"),), settled=FACTS)
    people = pa.table({"id": [2, 8, 0], "to": [8, 2, 8]})
    seeds, config = [(("people", 0, 0), day(0))], SamplingConfig(collab_hops=hops)

    def seen(order: list[int]) -> list[Named]:
        database = Database.build({"people": people.take(order)}, Schema({"people": said}))
        return World(database).contexts(seeds, config)

    assert seen([0, 1, 2]) == seen([1, 0, 2])


SHOP_CONFIGS = [
    SamplingConfig(
        time_rule=rule, collab_hops=hops, local_sampler=sampler, truncation=truncation, max_recent=3
    )
    for rule in RULES
    for hops, sampler, truncation in (
        (2, "walk", "recent"),
        (4, "walk", "random"),
        (2, "bfs", "recent"),
        (2, "uniform", "recent"),
    )
]  # type: ignore[arg-type]


@pytest.mark.parametrize("number", range(10))
@pytest.mark.parametrize("shift", [-1, 0, 1])
def test_the_shop_keeps_its_secrets(number: int, shift: int) -> None:
    """Every visible row of the shop, at each day, a nanosecond before and one after, under both rules."""
    raw, time, rng = raw_shop(), day(number) + shift, random.Random(number)
    world = World(Database.build(*raw))
    for config in SHOP_CONFIGS:
        seeds = world.some_seeds(time, config.time_rule, 60, rng)
        assert_unnoticed(world, raw, time, seeds, config, rng)


def test_the_contexts_of_the_shop_are_not_blind() -> None:
    """Each day shows customer 101 something new, so the tests above compare something."""
    world = World(Database.build(*raw_shop()))
    seen = {
        world.contexts([(("customers", 101, 0), day(number))], SamplingConfig())[0] for number in range(1, 10)
    }
    assert len(seen) == 9


def test_the_rule_decides_about_the_moment_itself() -> None:
    """Order 8 was placed on day 6 exactly: one rule shows it then, the other a nanosecond later."""
    world = World(Database.build(*raw_shop()))
    order, buyer = ("orders", 8, 0), ("customers", 101, 0)

    def shows(time: int, rule: TimeRule) -> bool:
        found = world.contexts([(buyer, time)], SamplingConfig(time_rule=rule))[0]
        return order in {name for name, *_ in found.local}

    assert [shows(day(6) + shift, "<=") for shift in (-1, 0, 1)] == [False, True, True]
    assert [shows(day(6) + shift, "<") for shift in (-1, 0, 1)] == [False, False, True]


@examples(60)
@given(random_db(), configs(), rng_seeds)
def test_a_seed_that_is_new_at_its_time_sees_older_rows_and_nothing_of_its_own_time(
    raw: Raw, config: SamplingConfig, rng_seed: int
) -> None:
    """An autocomplete seed under `<`: deleting every other row of its time or later changes nothing."""
    config, (tables, schema) = config.changed(time_rule="<"), raw
    world = World(Database.build(*raw))
    dated = [n for n, known_at in enumerate(world.known_at) if STATIC < known_at < NEVER]
    for node in random.Random(rng_seed).sample(dated, min(4, len(dated))):
        seed, time = world.names[node], world.known_at[node]
        table, row = world.graph.names[world.graph.types(np.array([node]))[0]], node
        row -= world.graph.nodes(table).start
        older = {}
        for name, whole in tables.items():
            known = dated_rows(whole, schema.tables[name])[1]
            kept = [place for place, t in enumerate(known) if not is_future(t, time, "<")]
            if name == table:  # rows without a time may have been dropped when the table was built
                is_dropped = (
                    schema.tables[name].time.on_missing == "drop" if schema.tables[name].time else False
                )
                built = [place for place, t in enumerate(known) if t is not None or not is_dropped]
                kept = sorted({*kept, built[row]})
            older[name] = whole.filter(pa.array([place in kept for place in range(len(whole))], pa.bool_()))
        found = world.contexts([(seed, time)], config)
        assert future_rows(world, world.sample([(seed, time)], config), "<") == 0
        if world.names.count((*seed[:-1], 1)) == 0:  # equal rows have no name of their own
            assert World(Database.build(older, schema)).contexts([(seed, time)], config) == found


@pytest.mark.parametrize("sampler", ["walk", "bfs", "uniform"])
def test_an_order_knows_its_customer_under_either_rule(sampler: Literal["walk", "bfs", "uniform"]) -> None:
    """Order 8 at the moment it was placed, as an autocomplete task asks about it."""
    world, seeds = World(Database.build(*raw_shop())), [(("orders", 8, 0), day(6))]
    for rule in RULES:
        config = SamplingConfig(time_rule=rule, local_sampler=sampler)
        found = world.contexts(seeds, config)[0]
        assert ("customers", 101, 0) in {name for name, *_ in found.local}
        assert (seeds[0][0], ("customers", 101, 0)) in found.edges
        assert found.collab


def test_a_row_that_is_not_known_yet_is_no_look_alike() -> None:
    """Order 7 of day 5 names a recipient who joins on day 6; on day 5 nobody can look like her."""
    world = World(Database.build(*raw_shop()))
    late, config = ("customers", 104, 0), SamplingConfig(collab_hops=4)

    def look_alikes(number: int) -> set[tuple[object, ...]]:
        seeds = [(("customers", key, 0), day(number)) for key in (101, 103)]
        return {row for found in world.contexts(seeds, config) for row in found.collab}

    assert late not in look_alikes(5)
    assert late in look_alikes(6)


# --- P4 -------------------------------------------------------------------------------------------


@examples(100)
@given(random_db(), configs(), st.data(), rng_seeds, st.sampled_from([1, 2, 3, 1024]))
def test_the_company_of_a_seed_does_not_matter(
    raw: Raw, config: SamplingConfig, data: st.DataObject, rng_seed: int, chunk: int
) -> None:
    """P4: alone, or among others, in any order, repeated, in chunks of any size, on any number of threads."""
    rng = random.Random(rng_seed)
    world, _, seeds = asked(raw, data, config.time_rule, rng)
    alone = {seed: world.contexts([seed], config)[0] for seed in seeds[:6]}
    company = rng.choices(seeds, k=12) if seeds else []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling, "CHUNK", chunk)
        together = world.contexts([*alone, *company, *alone], config)
    for seed, found in zip([*alone, *company, *alone], together, strict=True):
        assert found == alone.get(seed, found)


@pytest.mark.parametrize("rule", RULES)
def test_one_customer_on_every_day(rule: TimeRule) -> None:
    """P4 word for word: one entity at many times in one call equals as many calls."""
    world, config = World(Database.build(*raw_shop())), SamplingConfig(time_rule=rule)
    seeds = [(("customers", 101, 0), day(number)) for number in (9, 2, 5, 3, 9, 7)]
    apart = [world.contexts([seed], config)[0] for seed in seeds]
    assert world.contexts(seeds, config) == apart
    assert len(set(apart)) == 5


# --- P5 of the fallback -------------------------------------------------------------------------------------------


def lonely(num_rows: int, num_seeds: int) -> TemporalGraph:
    """Seeds that link to nothing, beside a table whose rows become known second by second."""
    links = (ForeignKey(("other",), "seeds"),)
    tables = {
        "seeds": pa.table({"id": range(num_seeds + 1)}),
        "rows": pa.table({"id": range(num_rows), "other": [num_seeds] * num_rows, "at": range(num_rows)}),
    }
    said = {"seeds": TableSchema(("id",)), "rows": TableSchema(("id",), links, TimeColumn("at", unit="s"))}
    return TemporalGraph.build(Database.build(tables, Schema(said)))


@pytest.mark.parametrize("rule", RULES)
def test_a_million_random_rows_hold_no_future_one(rule: TimeRule) -> None:
    """P5: 4,000 seeds without history, 300 tokens each, at all times and the nanoseconds around them."""
    graph = lonely(num_rows=3000, num_seeds=4000)
    pairs = [(node, (node * 7919 % 3000) * SECOND + node % 3 - 1) for node in range(4000)]
    context = sample(graph, seeds_from(pairs), SamplingConfig(time_rule=rule, walk_length=3))
    time = np.repeat(context.seed_time, np.diff(context.local_start))
    is_late = graph.node_time[context.local_node] > time
    is_late |= (graph.node_time[context.local_node] == time) & (rule == "<")
    assert int(context.local_count.sum(dtype=np.int64)) == 4000 * 300
    assert is_late.sum() == 0
    shown = context.local_hop == 4
    assert shown.sum() == len(context.local_node) - 4000
    is_timed = graph.node_time[context.local_node[shown]] > 0
    assert is_timed.sum() > 100_000  # rows of the table, not other seeds alone


# --- P11 ------------------------------------------------------------------------------------------


@examples(100)
@given(random_db(), st.sampled_from(RULES), st.data(), rng_seeds)
def test_what_was_shown_is_shown_later(raw: Raw, rule: TimeRule, data: st.DataObject, rng_seed: int) -> None:
    """P11: with room for all, what a seed sees at a time it sees at every later one; its degree never shrinks."""
    config = SamplingConfig(
        local_sampler="bfs", time_rule=rule, local_budget=4000, fallback="null", branches=("topology",)
    )
    world, late, seeds = asked(raw, data, rule, random.Random(rng_seed))
    after = [(name, late) for name, _ in seeds]
    for small, large in zip(world.contexts(seeds, config), world.contexts(after, config), strict=True):
        assert {row for row, *_ in small.local} <= {row for row, *_ in large.local}
        assert (np.frombuffer(small.sketch, "f4")[[0, 4]] <= np.frombuffer(large.sketch, "f4")[[0, 4]]).all()


# --- each randomness has its own key ------------------------------------------------------------------


def test_another_run_draws_other_numbers() -> None:
    """The run's number, the seed's time and the sampler all enter the key, so contexts do differ by them."""
    world = World(Database.build(*raw_shop()))
    config = SamplingConfig(num_walks=3, walk_length=3, first_fanout=2, second_fanout=1)
    seed = (("products", "tea", 0), day(9))

    def found(config: SamplingConfig, shift: int = 0) -> Named:
        return world.contexts([(seed[0], seed[1] + shift)], config)[0]

    assert len({found(replace(config, rng_seed=number)).local for number in range(20)}) > 15
    assert len({found(replace(config, rng_seed=number)).collab for number in range(20)}) > 5
    assert len({found(config, shift).local for shift in range(20)}) > 15
    assert found(config) == found(config)
