"""What a context holds: budgets, counts, hops, edges and the sketch (P16, P18, P25)."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quartet.config import SamplingConfig
from quartet.contexts import Context, sample
from quartet.database import FACTS, Database, ForeignKey, TableSchema, TimeColumn
from quartet.database.schema import Schema
from quartet.graph import TemporalGraph
from tests.contexts.configs import configs
from tests.contexts.twins import pairs_of, seeds_from
from tests.reference.graph import Twin, build_twin
from tests.reference.walk import distances
from tests.shop import day, labels, shop
from tests.strategies import SECOND, Raw, examples, random_db, seeds_of

DTYPES = {
    "seed_node": "int32",
    "seed_time": "int64",
    "local_start": "int64",
    "local_node": "int32",
    "local_hop": "uint8",
    "local_count": "uint16",
    "link_start": "int64",
    "link": "uint8",
    "collab_start": "int64",
    "collab_node": "int32",
    "time_index": "int32",
    "temporal_start": "int64",
    "temporal_node": "int32",
    "sketch": "float32",
    "columns": "float32",
}


@examples(100)
@given(random_db(), configs(), st.data())
def test_contexts_keep_their_promises(raw: Raw, config: SamplingConfig, data: st.DataObject) -> None:
    """P16, P18 and P25 at once: they are promises about one object."""
    database = Database.build(*raw)
    graph, twin = TemporalGraph.build(database), build_twin(*raw)
    pairs = pairs_of(database, data.draw(seeds_of(database)))
    context = sample(graph, seeds_from(pairs), config)
    assert {name: str(array.dtype) for name, array in context.arrays.items()} == DTYPES
    for place, (seed, time) in enumerate(pairs):
        assert_counts(context, place, seed, config)
        assert_hops(context, place, twin, time, config)
        assert_lists(context, place, twin, seed, time, config)
    assert np.isfinite(context.sketch).all()
    assert (context.sketch >= 0).all()


def assert_counts(context: Context, place: int, seed: int, config: SamplingConfig) -> None:
    """P16: K tokens, the seed once and first, no row twice, more visits never fewer tokens."""
    nodes, _, counts, _ = context.local(place)
    assert nodes[0] == seed
    assert len(set(nodes.tolist())) == len(nodes) <= config.local_budget
    assert counts[0] == 1
    assert counts.min() >= 1
    assert (np.diff(counts[1:].astype(int)) <= 0).all()
    assert counts.sum() == (config.local_budget if len(nodes) > 1 else 1)


def assert_hops(context: Context, place: int, twin: Twin, time: int, config: SamplingConfig) -> None:
    """P18: no row is nearer than it is, none farther than the induced edges or the longest walk make it."""
    nodes, hops, _, edges = context.local(place)
    if config.fallback_hop in hops.tolist():
        assert set(hops[1:].tolist()) == {config.fallback_hop}
        return
    induced = distances(len(nodes), [(a, b) for a, b in edges.tolist()])
    nearest = true_distances(twin, int(nodes[0]), time, config)
    longest = config.walk_length if config.local_sampler == "walk" else 2
    for node, hop, bound in zip(nodes.tolist(), hops.tolist(), induced, strict=True):
        assert nearest[node] <= hop <= min(bound, longest)
        assert (hop == 0) == (node == nodes[0])
        assert (hop == 1) == (nearest[node] == 1)


def true_distances(twin: Twin, seed: int, time: int, config: SamplingConfig) -> dict[int, int]:
    """How many visible links away from the seed each row is."""
    found, ring = {seed: 0}, [seed]
    while ring:
        beside = [v for u in ring for v in twin.visible_to(seed, u, time, config.time_rule)]
        ring = [v for v in dict.fromkeys(beside) if v not in found]
        found |= dict.fromkeys(ring, max(found.values()) + 1)
    return found


def assert_lists(
    context: Context, place: int, twin: Twin, seed: int, time: int, config: SamplingConfig
) -> None:
    """Budgets of the other contexts, no row twice, no look-alike that is the seed or (by the paper) next to it."""
    alike, recent = context.collab(place).tolist(), context.temporal(place).tolist()
    assert len(set(alike)) == len(alike) <= config.collab_budget
    assert len(set(recent)) == len(recent) <= config.temporal_budget
    assert seed not in alike
    if config.collab_hops == 2:
        assert not set(alike) & set(twin.visible_to(seed, seed, time, config.time_rule))
    else:
        assert {twin.nodes[row].table for row in alike} <= {twin.nodes[seed].table}
    if not config.has("collab"):
        assert alike == []
    if not config.has("temporal"):
        assert recent == []


def test_the_second_hop_of_bfs_is_not_the_fallback_bin() -> None:
    assert SamplingConfig(local_sampler="bfs", walk_length=1).fallback_hop > 2


# --- the shop, by hand ------------------------------------------------------------------------------


def test_the_look_alikes_of_a_customer() -> None:
    """On day 4, the two-hop probe of 103 finds products and the others of its orders, not customers like her.

    103 bought tea (#3) on day 3 and is the recipient of #5, which 102 bought. FR leads to 101, who is there too.
    """
    database = shop()
    graph, names = TemporalGraph.build(database), labels(database)
    seed = seeds_from([(names.index("103"), day(4))])
    two = sample(graph, seed, SamplingConfig()).collab(0)
    assert {names[n] for n in two} == {"tea", "102", "101"}
    four = sample(graph, seed, SamplingConfig(collab_hops=4)).collab(0)
    assert {names[n] for n in four} <= {"101", "102"}


def test_the_recent_rows_of_the_shop() -> None:
    """Day 6, two days back: customers, products (none), orders and visits in turn, newest first."""
    database = shop()
    graph, names = TemporalGraph.build(database), labels(database)
    context = sample(graph, seeds_from([(0, day(6))]), SamplingConfig(lookback_days=2, temporal_budget=6))
    rows = [names[n] for n in context.temporal(0)]
    assert (set(rows[:2]), rows[2], set(rows[3:5]), rows[5]) == (
        {"104", "105"},
        "#8",
        {"#6", "#7"},
        "visit 4",
    )


def test_the_sketch_of_a_hub_by_hand() -> None:
    """Tea on day 5: orders 1, 2, 3, 4, 6 and 7, over three days."""
    database = shop()
    graph, names = TemporalGraph.build(database), labels(database)
    context = sample(
        graph, seeds_from([(names.index("tea"), day(5))]), SamplingConfig(num_walks=1, walk_length=1)
    )
    tables = {"countries": 0, "customers": 0, "products": 0, "orders": 6, "visits": 0}
    peak = int(context.local(0)[2].size > 1)
    expected = [math.log1p(x) for x in (6, 3.0, 2.0, peak, *tables.values())]
    assert context.sketch[0].tolist() == np.array(expected, np.float32).tolist()


def neighbourhood(times: list[int | None]) -> Context:
    """The context of a row whose children have some times (None: the child is always known)."""
    said = TableSchema(("id",), (ForeignKey(("to",), "hubs"),), TimeColumn("at", unit="s"), settled=FACTS)
    known, always = [t for t in times if t is not None], [t for t in times if t is None]

    def children(count: int) -> dict[str, object]:
        return {"id": pa.array(range(count), pa.int64()), "to": pa.array([0] * count, pa.int64())}

    tables = {
        "hubs": pa.table({"id": [0]}),
        "timed": pa.table(children(len(known)) | {"at": pa.array(known, pa.int64())}),
        "static": pa.table(children(len(always))),
    }
    schema = {"hubs": TableSchema(("id",)), "timed": said, "static": TableSchema(("id",), said.foreign_keys)}
    graph = TemporalGraph.build(Database.build(tables, Schema(schema)))
    return sample(graph, seeds_from([(0, 10**6 * SECOND)]), SamplingConfig())


@pytest.mark.parametrize(
    ("times", "degree", "span", "density"),
    [
        ([], 0, 0, 0),
        ([5], 1, 0, 1),
        ([5, 5, 5], 3, 0, 3),
        ([None, None], 2, 0, 2),
        ([None, 86_400, 3 * 86_400], 3, 2, 1.5),
        ([0, 43_200], 2, 0.5, 2),
    ],
    ids=str,
)
def test_the_sketch_is_finite_at_its_edges(
    times: list[int | None], degree: float, span: float, density: float
) -> None:
    """P25: no neighbour, one, many at one moment, static ones only, and a span below a day."""
    sketch = neighbourhood(times).sketch[0]
    np.testing.assert_array_equal(sketch[:3], np.log1p(np.array([degree, span, density])).astype(np.float32))
    assert np.isfinite(sketch).all()
    if not times:
        assert not sketch.any()


@pytest.mark.parametrize("change", [{"local_sampler": "bfs"}, {"local_sampler": "uniform"}, {"local": False}])
def test_a_sketch_is_that_of_the_walks_whatever_gathers_the_local_rows(change: dict[str, Any]) -> None:
    """The paper's "No CRW" changes the local context; π^max, the largest visit count of the walks, stays."""
    graph, pairs = TemporalGraph.build(shop()), [(node, day(7)) for node in range(30)]
    walked = sample(graph, seeds_from(pairs), SamplingConfig()).sketch
    assert (walked[:, 3] > 0).sum() > 10
    other = sample(graph, seeds_from(pairs), SamplingConfig().changed(**change)).sketch
    np.testing.assert_array_equal(other, walked)


def test_the_contexts_of_the_shop_are_pinned() -> None:
    """The same bytes on every machine and in every version: whoever changes them makes caches and models stale."""
    pairs = [(node, day(number)) for node in range(30) for number in range(10)]
    graph, digest = TemporalGraph.build(shop()), hashlib.sha256()
    for config in (
        SamplingConfig(),
        SamplingConfig(local_sampler="bfs", collab_hops=4, time_rule="<", rng_seed=1),
    ):
        context = sample(graph, seeds_from(pairs), config)
        start, edge = context.edges()  # as they are read, however they are written
        for name, array in (context.arrays | {"link_start": start, "link": edge}).items():
            # The sketch is made of logarithms, which two mathematical libraries may round differently.
            digest.update(array.tobytes() if name != "sketch" else b"")
    assert digest.hexdigest() == "34ccdad3508bd8715a1595e755420e4a75e140362a97a21a6cb224b9db2a6aff"


def test_no_seeds_give_an_empty_context() -> None:
    context = sample(TemporalGraph.build(shop()), seeds_from([]), SamplingConfig())
    assert len(context) == 0
    assert {name: str(array.dtype) for name, array in context.arrays.items()} == DTYPES
