"""A graph that nobody asks any more is gone at once: a service binds a new one for each row that comes."""

from __future__ import annotations

import gc
from weakref import ref

import numpy as np

from quartet.config import SamplingConfig
from quartet.contexts import sample
from quartet.database import Database
from quartet.graph import TemporalGraph
from quartet.tasks import Seeds
from tests.shop import day, raw_shop


def test_what_samplers_keep_does_not_keep_the_graph() -> None:
    database = Database.build(*raw_shop())
    graph = TemporalGraph.build(database)
    seeds = Seeds(np.array([database.offsets["customers"]]), np.array([day(30)]), None)
    for _ in range(2):
        sample(graph, seeds, SamplingConfig(), 1)
    known = ref(graph)
    gc.disable()
    try:
        del graph
        assert known() is None
    finally:
        gc.enable()
