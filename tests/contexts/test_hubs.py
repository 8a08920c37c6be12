"""Rows with thousands of neighbours: the same contexts, at no greater size (P17), and no list too long."""

from __future__ import annotations

import numpy as np
import pytest

from quartet.config import SamplingConfig
from quartet.contexts import Context, sample
from quartet.contexts.bfs import most_in_pool
from quartet.contexts.sketch import STRIDE
from quartet.database import Database
from quartet.graph import TemporalGraph, seed_entries
from tests.contexts.small import END, sales
from tests.contexts.twins import assert_twins, seeds_from
from tests.reference.graph import build_twin
from tests.strategies import SECOND


def beside_a_hub(degree: int, config: SamplingConfig) -> Context:
    """A buyer of three things, one of which `degree` others have bought since, the first of them last.

    The most recent sales are the same ones at every degree.
    """
    pairs = [(0, 0), (0, 1), (0, 2)] + [(other, 0) for other in range(degree, 0, -1)]
    graph = TemporalGraph.build(Database.build(*sales(pairs, 1 + degree, 3)))
    return sample(graph, seeds_from([(0, END)]), config)


@pytest.mark.parametrize("truncation", ["recent", "random"])
def test_a_hub_does_not_make_a_context_larger(truncation: str) -> None:
    """P17 without a clock: degree 100 to 100,000, the same numbers of rows, edges and look-alikes."""
    config = SamplingConfig(truncation=truncation)  # type: ignore[arg-type]
    contexts = [beside_a_hub(10**power, config) for power in (2, 3, 4, 5)]
    sizes = [
        (len(c.local_node), len(c.edges()[1]), len(c.collab_node), c.local_count.tolist()) for c in contexts
    ]
    if truncation == "recent":
        assert sizes == [sizes[0]] * 4
    assert all(rows <= 7 + 2 * 50 and edges <= 7 + 2 * 50 for rows, edges, *_ in sizes)
    assert [num_alike for *_, num_alike, _ in sizes] == [3] * 4


def test_four_hops_beside_a_hub_stay_within_their_fan_outs() -> None:
    contexts = [beside_a_hub(10**power, SamplingConfig(collab_hops=4)) for power in (2, 3, 4, 5)]
    assert all(0 < len(context.collab_node) <= 50 for context in contexts)


def test_the_sketch_of_a_hub_is_counted_across_its_checkpoints() -> None:
    """One list of two kinds of neighbour, at every time around every checkpoint."""
    assert STRIDE == 256
    pairs = [(0, 0) if number % 3 else (1, 0) for number in range(600)]
    raw = sales(pairs, 2, 1)
    graph, twin = TemporalGraph.build(Database.build(*raw)), build_twin(*raw)
    edges = [0, 1, 2, 254, 255, 256, 257, 300, 510, 511, 512, 513, 598, 599, 600]
    seeds = [(node, number * SECOND) for node in (0, 1, 2) for number in edges]
    config = SamplingConfig(num_walks=5, walk_length=2, local_budget=10)
    for rule in ("<=", "<"):
        assert_twins(graph, twin, seeds, config.changed(time_rule=rule))


@pytest.mark.parametrize("degree", [1000, 1001, 1300])
def test_bfs_looks_at_a_thousand_neighbours_of_a_neighbour(degree: int) -> None:
    """A thousand visible ones: at the time of the middle sale, those that come later do not take a place."""
    raw = sales([(number, 0) for number in range(degree)], degree, 1)
    graph, twin = TemporalGraph.build(Database.build(*raw)), build_twin(*raw)
    sale = graph.nodes("sales")[3]
    seeds = [(sale, END), (0, END), (sale, 1050 * SECOND), (sale, 999 * SECOND), (sale, 600 * SECOND)]
    assert_twins(graph, twin, seeds, SamplingConfig(local_sampler="bfs", local_budget=2000))


@pytest.mark.parametrize("degree", [5000, 5001, 5600])
def test_bfs_looks_at_five_thousand_neighbours(degree: int) -> None:
    raw = sales([(number % 50, 0) for number in range(degree)], 50, 1)
    graph, twin = TemporalGraph.build(Database.build(*raw)), build_twin(*raw)
    config, thing = (
        SamplingConfig(local_sampler="bfs", local_budget=300, branches=()),
        graph.nodes("things")[0],
    )
    assert_twins(graph, twin, [(thing, END), (thing, 5200 * SECOND), (thing, 3000 * SECOND)], config)


@pytest.mark.parametrize("degree", [1000, 1001, 5001])
def test_uniform_looks_at_as_many_neighbours_as_bfs(degree: int) -> None:
    raw = sales([(number, 0) for number in range(degree)], degree, 1)
    graph, twin = TemporalGraph.build(Database.build(*raw)), build_twin(*raw)
    sale, thing = graph.nodes("sales")[3], graph.nodes("things")[0]
    config = SamplingConfig(
        local_sampler="uniform", first_fanout=128, second_fanout=64, local_budget=1000, branches=()
    )
    context = assert_twins(graph, twin, [(thing, END), (sale, END), (sale, 600 * SECOND)], config)
    assert np.diff(context.local_start)[0] == 1 + 128 + 128  # the sales, and the buyer of each


def test_bfs_makes_room_for_what_it_looks_at() -> None:
    """A thing of 5,001 sales, each of another buyer: 5,000 of them, of each the buyer and the thing."""
    graph = TemporalGraph.build(Database.build(*sales([(number, 0) for number in range(5001)], 5001, 1)))
    own = seed_entries(graph.arrays, graph.nodes("things")[0], END, len(graph.times))
    assert most_in_pool(graph.arrays, own, len(graph.times), np.uint64(7)) == 1 + 5000 + 2 * 5000
