"""Where a number could run out: before the first instant, and when almost everything visible is wanted."""

from __future__ import annotations

import pyarrow as pa

from quartet.config import SamplingConfig
from quartet.contexts import sample
from quartet.database import FACTS, Database, TableSchema, TimeColumn
from quartet.database.schema import Schema
from quartet.graph import TemporalGraph
from quartet.times import parse_instant
from tests.contexts.twins import local_twin, seeds_from
from tests.reference.graph import build_twin


def test_a_look_back_beyond_the_first_instant_sees_everything() -> None:
    """548 years before 1961 is no int64 of nanoseconds."""
    said = TableSchema(("id",), (), TimeColumn("at"), settled=FACTS)
    log = pa.table({"id": [1, 2], "at": ["1960-01-01", "1960-06-01"]})
    graph = TemporalGraph.build(Database.build({"log": log}, Schema({"log": said})))
    seeds = seeds_from([(0, parse_instant("1961-01-01", "test"))])
    assert sample(graph, seeds, SamplingConfig(lookback_days=200_000)).temporal(0).tolist() == [1, 0]


def test_the_fallback_draws_to_the_end() -> None:
    """3,000 rows without a link, 2,999 wanted: the last ones are found by drawing on, not in order."""
    rows = {"things": pa.table({"id": range(3000)})}
    schema = Schema({"things": TableSchema(("id",), settled=FACTS)})
    graph, twin = TemporalGraph.build(Database.build(rows, schema)), build_twin(rows, schema)
    config = SamplingConfig(local_budget=3000, branches=())
    pairs = [(node, 0) for node in range(10)]
    context = sample(graph, seeds_from(pairs), config)
    for place, (node, time) in enumerate(pairs):
        assert context.local(place)[0].tolist() == local_twin(twin, node, time, config).nodes
