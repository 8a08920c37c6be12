"""The samplers have the laws that the documents state: P12 to P15, P19."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quartet.causal import TimeRule
from quartet.config import SamplingConfig
from quartet.contexts import draw, sample, seed_keys
from quartet.contexts.draws import below, chance, choose, member
from quartet.contexts.temporal import fair_parts, newest_rows
from quartet.database import FACTS, Database, ForeignKey, TableSchema, TimeColumn
from quartet.database.schema import Schema
from quartet.graph import TemporalGraph
from tests.contexts.chances import assert_equally_included, assert_uniform
from tests.contexts.small import END, mean_hits, random_sales, sales, visits_of
from tests.contexts.twins import seeds_from
from tests.reference import draws as plain
from tests.reference.collab import expected_hits
from tests.reference.graph import build_twin
from tests.reference.temporal import temporal_context
from tests.reference.visit_law import expected_visits, page_rank, total_variation
from tests.strategies import SECOND, Raw, examples, interesting_times, random_db

# --- P12: the visits of the walk ------------------------------------------------------------------

WALKS = [
    SamplingConfig(max_recent=5),
    SamplingConfig(max_recent=None, walk_length=5),
    SamplingConfig(max_recent=3, truncation="random", walk_length=6),
    SamplingConfig(restart_prob=0.0, walk_length=4),
    SamplingConfig(restart_prob=0.6, max_recent=1),
    SamplingConfig(time_rule="<", walk_length=3),
]


def tv_bound(states: int, walks: int, delta: float = 1e-9) -> float:
    """What the distance exceeds with a probability below delta: Cauchy-Schwarz for its mean, McDiarmid above."""
    return 0.5 * math.sqrt(states / walks) + math.sqrt(math.log(1 / delta) / (2 * walks))


def measured_law(graph: TemporalGraph, seed: int, time: int, config: SamplingConfig) -> dict[int, float]:
    """Visits of each node by one walk in the mean over W."""
    visits = visits_of(graph, seed, time, config)
    return {node: count / config.num_walks for node, count in visits.items() if count}


@pytest.mark.parametrize("number", range(30))
def test_visits_follow_the_exact_law(number: int) -> None:
    """P12: thirty graphs, a million walks on each; a step is the unit, so that all visits are at most one."""
    graph, twin = random_sales(number)
    config = replace(WALKS[number % len(WALKS)], num_walks=10**6, rng_seed=number)
    seed, time = number % 2, (50 + number) * SECOND
    measured, law = measured_law(graph, seed, time, config), expected_visits(twin, seed, time, config)
    assert measured.keys() <= law.keys()
    assert len(law) <= 353
    assert total_variation(measured, law) / config.walk_length <= tv_bound(len(law), 10**6) < 0.01261


def test_the_law_is_not_pagerank() -> None:
    """Restarts are not counted and walks are finite, so the paper's limit is beyond the bound by far."""
    graph, twin = random_sales(0)
    config = SamplingConfig(num_walks=10**6)
    measured = measured_law(graph, 0, END, config)
    share = {node: visits / sum(measured.values()) for node, visits in measured.items()}
    assert total_variation(share, page_rank(twin, 0, END, config)) > 10 * tv_bound(len(share), 10**6)


@pytest.mark.parametrize(
    "change",
    [{"restart_prob": 0.2}, {"max_recent": 6}, {"walk_length": 11}, {"truncation": "random"}],
    ids=str,
)
def test_the_law_of_other_settings_is_beyond_the_bound(change: dict[str, object]) -> None:
    """The bound is narrow enough to tell neighbouring settings apart, so P12 tests something."""
    graph, twin = random_sales(5)
    config = SamplingConfig(num_walks=10**6, max_recent=5)
    law = expected_visits(twin, 0, END, replace(config, **change))  # type: ignore[arg-type]
    measured = measured_law(graph, 0, END, config)
    assert total_variation(measured, law) / config.walk_length > 2 * tv_bound(len(law), 10**6)


# --- the draws ------------------------------------------------------------------------------------


def test_draws_are_splitmix64() -> None:
    """The generator's published numbers for the states 0 and 1234567."""
    assert [hex(draw(np.uint64(0), count)) for count in (1, 2, 3)] == [
        "0xe220a8397b1dcdaf",
        "0x6e789e6aa1b965f4",
        "0x6c45d188009454f",
    ]
    assert draw(np.uint64(1234567), 1) == 6457827717110365317


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**40), st.integers(1, 2**31))
def test_draws_are_their_twins(key: int, count: int, limit: int) -> None:
    bits = np.uint64(draw(np.uint64(key), count))
    assert bits == plain.draw(key, count)
    assert below(bits, limit) == plain.below(int(bits), limit) < limit
    assert chance(bits) / 2**32 == plain.chance(int(bits))


FEW_SALES = random_sales(1)


@given(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-(2**70), 2**70),
    st.sampled_from(["walk", "bfs", "uniform", "collab2"]),
)
def test_keys_of_seeds_are_their_twins(time: int, rng_seed: int, sampler: str) -> None:
    graph, twin = FEW_SALES
    keys = seed_keys(graph, np.arange(3), np.full(3, time), rng_seed, sampler)
    assert keys.tolist() == [plain.seed_key(twin.nodes[n].key, time, rng_seed, sampler) for n in range(3)]


# --- P13: draws without replacement ---------------------------------------------------------------

SIZES = [(2, 1), (5, 2), (7, 6), (51, 50), (60, 50), (99, 50), (400, 30), (10, 10), (3, 8)]


def chosen(key: int, total: int, wanted: int) -> list[int]:
    out = np.full(wanted, -1, np.int64)
    count = choose(np.uint64(key), 5, total, wanted, out)
    return out[:count].tolist()


def members(key: int, total: int, wanted: int) -> list[int]:
    return [int(member(np.uint64(key), 5, place, total, wanted)) for place in range(min(total, wanted))]


@pytest.mark.parametrize(("total", "wanted"), SIZES)
@pytest.mark.parametrize("choice", [chosen, members])
def test_choices_repeat_nothing_and_favour_nothing(choice: object, total: int, wanted: int) -> None:
    keys = [plain.draw(total, count) for count in range(3000)]
    assert_equally_included([choice(key, total, wanted) for key in keys], total, wanted)  # type: ignore[operator]


@pytest.mark.parametrize(("total", "wanted"), SIZES)
def test_choices_are_their_twins(total: int, wanted: int) -> None:
    for key in (plain.draw(wanted, count) for count in range(50)):
        assert chosen(key, total, wanted) == plain.choose(key, 5, total, wanted)
        assert members(key, total, wanted) == plain.spread(key, 5, total, wanted)


def test_every_subset_is_as_likely() -> None:
    """All ten pairs of five, by Floyd's method."""
    subsets = [frozenset(chosen(plain.draw(1, count), 5, 2)) for count in range(4000)]
    assert_uniform(subsets, 10)


def seen_at(pairs: list[tuple[int, int]], graph: TemporalGraph, config: SamplingConfig) -> list[list[int]]:
    """The rows of each seed's local context, without the seed."""
    context = sample(graph, seeds_from(pairs), config)
    return [context.local(place)[0][1:].tolist() for place in range(len(pairs))]


def rows_alone(count: int) -> TemporalGraph:
    """Rows that are always known and link to nothing."""
    tables = {"rows": pa.table({"id": range(count)}), "links": pa.table({"to": pa.array([], pa.int64())})}
    said = {"rows": TableSchema(("id",)), "links": TableSchema((), (ForeignKey(("to",), "rows"),))}
    return TemporalGraph.build(Database.build(tables, Schema(said)))


@pytest.mark.parametrize(("total", "budget"), [(3, 2), (12, 4), (40, 39), (41, 40), (300, 30)])
def test_the_fallback_favours_no_row(total: int, budget: int) -> None:
    """P13: `budget` of `total` others, from which the seed, row 0, is excluded."""
    pairs = [(0, END + number) for number in range(3000)]
    found = seen_at(pairs, rows_alone(total + 1), SamplingConfig(local_budget=budget + 1))
    assert_equally_included([[row - 1 for row in rows] for rows in found], total, budget)


def test_the_fallback_favours_no_row_even_if_almost_all_are_wanted() -> None:
    """The one row of 3,000 that is left out stands anywhere: its place is uniform, in tenths."""
    pairs = [(0, END + number) for number in range(600)]
    found = seen_at(pairs, rows_alone(3001), SamplingConfig(local_budget=3000))
    left_out = [sum(range(3001)) - sum(rows) for rows in found]
    assert_uniform([(row - 1) // 300 for row in left_out], 10)


def star(leaves: int, rim: int) -> TemporalGraph:
    """Buyer 0 with one sale of each of `leaves` things; the last thing has `rim` sales to others as well."""
    pairs = [(0, thing) for thing in range(leaves)] + [(1 + other, leaves - 1) for other in range(rim)]
    return TemporalGraph.build(Database.build(*sales(pairs, 1 + rim, leaves)))


def test_bfs_is_uniform_over_both_hops() -> None:
    """Eight sales and eight things, of which five are chosen."""
    graph = star(8, 0)
    pairs = [(0, END + number) for number in range(3000)]
    found = seen_at(pairs, graph, SamplingConfig(local_sampler="bfs", local_budget=6))
    assert_equally_included([[row - 1 for row in rows] for rows in found], 16, 5)


def test_bfs_favours_no_row_of_a_hub() -> None:
    """A thing's 1,300 sales but the seed's own: 1,000 of 1,300 are looked at, every one as often."""
    graph = star(1, 1299)
    hub, config = graph.nodes("things")[0], SamplingConfig(local_sampler="bfs", local_budget=3000)
    first = graph.nodes("sales")[0]
    pairs = [(first, END + number) for number in range(300)]  # the hub is one hop away, its sales two
    found = seen_at(pairs, graph, config)
    subsets = [[row - first for row in rows if row >= first] for rows in found]
    assert {hub, 0} <= set(found[0])
    assert {len(subset) for subset in subsets} == {999, 1000}  # the seed's own sale may be one of the 1,000
    counts = Counter(row for subset in subsets for row in subset)
    expected, spread = 300 * 1000 / 1300, math.sqrt(300 * (10 / 13) * (3 / 13))
    assert all(abs(counts[row] - expected) < 5.5 * spread for row in range(1, 1300))


def test_uniform_takes_so_many_of_each_relation_and_favours_none() -> None:
    """Nine sales of a buyer, four of them taken; a sale's only other link is its thing, which always comes along."""
    graph = star(9, 0)
    config = SamplingConfig(local_sampler="uniform", first_fanout=4, second_fanout=3)
    found = seen_at([(0, END + number) for number in range(3000)], graph, config)
    sale, thing = graph.nodes("sales")[0], graph.nodes("things")[0]
    assert_equally_included([[row - sale for row in rows if row >= sale] for rows in found], 9, 4)
    assert_equally_included([[row - thing for row in rows if thing <= row < sale] for rows in found], 9, 4)


def test_uniform_favours_no_row_two_links_away() -> None:
    """A sale whose thing has twelve sales, of which five are taken; its buyer, another relation, takes no place."""
    graph = star(1, 11)
    sale = graph.nodes("sales")[0]
    config = SamplingConfig(local_sampler="uniform", second_fanout=5)
    found = seen_at([(sale, END + number) for number in range(3000)], graph, config)
    assert all({0, graph.nodes("things")[0]} <= set(rows) for rows in found)
    others = [[row - sale for row in rows if row > sale] for rows in found]
    assert {len(rows) for rows in others} == {4, 5}  # the seed's own sale may be one of the five
    counts = Counter(row for rows in others for row in rows)
    expected, spread = 3000 * 5 / 12, math.sqrt(3000 * (5 / 12) * (7 / 12))
    assert all(abs(counts[row] - expected) < 5.5 * spread for row in range(1, 12))


@pytest.mark.parametrize("budget", [2, 5, 9, 12, 17])
def test_where_uniform_finds_too_much_near_rows_stay_and_all_hang_together(budget: int) -> None:
    """Eight sales and eight things: the sales first, and a thing only where its sale is there as well."""
    graph, config = star(8, 0), SamplingConfig(local_sampler="uniform", local_budget=budget)
    context = sample(graph, seeds_from([(0, END + number) for number in range(50)]), config)
    for place in range(50):
        _, hops, counts, edges = context.local(place)
        assert sorted(hops) == [0, *[1] * min(8, budget - 1), *[2] * max(0, budget - 9)]
        assert counts.sum() == budget
        if budget >= 9:
            assert len(edges) == budget - 1


def test_random_truncation_favours_no_neighbour() -> None:
    """A walk of one step from a hub of 51 shows which fifty of them it may go to."""
    graph = star(51, 0)
    config = SamplingConfig(num_walks=2000, walk_length=1, restart_prob=0.0, truncation="random")
    found = seen_at([(0, END + number) for number in range(1500)], graph, config)
    first = graph.nodes("sales")[0]
    assert_equally_included([[row - first for row in rows] for rows in found], 51, 50)


# --- P14: the hits of the look-alikes ---------------------------------------------------------------

PROBES = [(3, 2), (2, 5), (50, 3), (4, 50), (50, 50), (1, 1)]


@pytest.mark.parametrize("number", range(30))
def test_hits_have_the_mean_with_the_min(number: int) -> None:
    """P14: 2,000 runs on each of thirty graphs; every look-alike within five standard errors of its exact mean."""
    graph, twin = random_sales(100 + number, most_sales=60)
    first, second = PROBES[number % len(PROBES)]
    config = SamplingConfig(first_fanout=first, second_fanout=second)
    seed = graph.nodes("things")[0] if number % 2 else 0
    measured = mean_hits(graph, seed, END, config, 2000)
    exact = expected_hits(twin, seed, END, config)
    assert measured.keys() <= exact.keys()
    for other, (mean, variance) in exact.items():
        error = abs(measured.get(other, 0.0) - mean)
        assert error <= 5 * math.sqrt(max(variance, 0.0) / 2000) + 1e-9


def test_the_formula_without_the_min_is_wrong() -> None:
    """The paper's mean, M1 M2 / d · Σ 1/d_r, promises hits by the dozen where the fan-outs exceed the lists."""
    graph, twin = random_sales(104, most_sales=60)
    config, thing = SamplingConfig(), graph.nodes("things")[0]
    measured, exact = mean_hits(graph, thing, END, config, 200), expected_hits(twin, thing, END, config)
    own = twin.visible(thing, END)
    lists = [twin.visible(r, END) for r in own]
    for other, (mean, _) in exact.items():
        without = 50 * 50 / len(own) * sum(1 / len(beside) for beside in lists if other in beside)
        assert without > mean + 3.75
        assert measured[other] == pytest.approx(mean, abs=1e-9)  # all are taken: nothing is left to chance


# --- P15: the temporal pool -------------------------------------------------------------------------


@examples(100)
@given(
    random_db(),
    st.data(),
    st.sampled_from(["<=", "<"]),
    st.sampled_from([1, 2, 3, 5, 11, 300]),
    st.sampled_from([1, 2, 15, 365, 10**5, 2**31 - 1]),
)
def test_the_temporal_pool_is_brute_force(
    raw: Raw, data: st.DataObject, rule: TimeRule, budget: int, days: int
) -> None:
    """P15: per table the newest visible rows of the window, seed-independent."""
    config = SamplingConfig(temporal_budget=budget, lookback_days=days, time_rule=rule)
    database = Database.build(*raw)
    twin, graph = build_twin(*raw), TemporalGraph.build(database)
    moments = st.sampled_from(interesting_times(database))
    times = np.array(data.draw(st.lists(moments, min_size=1, max_size=3)), np.int64)
    found = newest_rows(graph, times, config)
    assert [rows.tolist() for rows in found] == [temporal_context(twin, t, config) for t in times.tolist()]


@examples(300)
@given(st.lists(st.integers(0, 30), max_size=7), st.integers(1, 60))
def test_parts_of_the_budget_are_fair(available: list[int], budget: int) -> None:
    """The budget is spent as far as there are rows, and who has more than another by two could not be helped."""
    parts = fair_parts(available, budget)
    assert sum(parts) == min(budget, sum(available))
    assert all(part <= most for part, most in zip(parts, available, strict=True))
    for one in range(len(parts)):
        for other in range(len(parts)):
            if parts[other] < available[other]:
                assert parts[one] <= parts[other] + (one < other)


def test_what_one_table_cannot_fill_goes_to_the_others_alike() -> None:
    assert fair_parts([1, 10, 10], 5) == [1, 2, 2]
    assert fair_parts([0, 3, 100, 100], 10) == [0, 3, 4, 3]
    assert fair_parts([], 10) == []


def test_a_window_may_begin_before_the_first_instant() -> None:
    """A look back of a million days, or from the year 1700 of three hundred years, is a look at everything."""
    graph, _ = random_sales(3)
    config = SamplingConfig(temporal_budget=1000, lookback_days=2**31 - 1)
    everything = newest_rows(graph, np.array([END]), config)[0]
    assert sorted(everything) == list(graph.nodes("sales"))
    early = np.array([np.datetime64("1700-01-01", "ns").astype(np.int64)])
    assert len(newest_rows(graph, early, config.changed(lookback_days=110_000))[0]) == 0


# --- P19: ties ------------------------------------------------------------------------------------


def tied_graph(keys: list[int], name: str) -> TemporalGraph:
    """A hub whose children all have one time."""
    children = pa.table({"id": keys, "hub": [0] * len(keys), "at": [5] * len(keys)})
    said = TableSchema(("id",), (ForeignKey(("hub",), "hubs"),), TimeColumn("at", unit="s"), settled=FACTS)
    schema = Schema({name: said, "hubs": TableSchema(("id",), settled=FACTS)})
    return TemporalGraph.build(Database.build({name: children, "hubs": pa.table({"id": [0]})}, schema))


def newest_keys(keys: list[int], name: str) -> tuple[list[int], list[int]]:
    """Which of the tied children a walk of one step may reach, most visits first; which the pool shows."""
    graph = tied_graph(keys, name)
    config = SamplingConfig(num_walks=400, walk_length=1, max_recent=10, temporal_budget=10)
    context = sample(graph, seeds_from([(graph.nodes("hubs")[0], 6 * SECOND)]), config)
    return [keys[n] for n in context.local(0)[0][1:]], [keys[n] for n in context.temporal(0)]


@examples(50)
@given(st.integers(11, 60), st.integers(0, 2**32))
def test_ties_do_not_depend_on_the_order_of_rows(count: int, rng_seed: int) -> None:
    """P19: in order, backwards, or any other way."""
    rng = random.Random(rng_seed)
    keys = rng.sample(range(1000), count)
    found = newest_keys(keys, "sales")
    assert [len(found[0]), len(found[1])] == [10, 10]
    for order in (sorted(keys), sorted(keys, reverse=True), rng.sample(keys, count)):
        assert newest_keys(order, "sales") == found


def test_ties_favour_no_key() -> None:
    """P19: ten "most recent" of forty tied rows, over 300 tables, are every key as often."""
    found = [newest_keys(list(range(40)), f"sales{number}") for number in range(300)]
    for which in (0, 1):
        assert_equally_included([both[which] for both in found], 40, 10)
