"""Rows that are taken away leave no trace: not in contexts, not in sketches, not in columns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from quartet.config import SamplingConfig
from quartet.contexts import Context, sample
from quartet.database import Database
from quartet.explain.occlude import lost_rows, sketch_without
from quartet.explain.reader import Reader
from quartet.explain.rows import Occlusion, nearby, path_words, span_words
from quartet.graph import TemporalGraph
from quartet.registry import MODELS
from quartet.runs import LiveModel
from quartet.tasks import Seeds, Task
from quartet.times import DAY, parse_instant
from tests.explain.small import bound, untrained
from tests.features.test_without import never_known
from tests.shop import shop
from tests.tasks.small import CHURN
from tests.trained import opened, shop_tables

pytestmark = pytest.mark.usefixtures("one_thread")

AT = parse_instant("2023-07-20", "")


@pytest.fixture(scope="module")
def task() -> Task:
    return opened(shop_tables()).task(CHURN)


def occlusion(live: LiveModel, row: int) -> Occlusion:
    live.bind(AT)
    reader = Reader(live)
    reading = reader.read(np.array([row]), np.array([AT]))
    return Occlusion(reader, row, AT, 0, float(reader.score(reading, np.array([0]))[0]))


@pytest.mark.parametrize("name", MODELS)
def test_nothing_taken_away_changes_nothing(name: str, task: Task) -> None:
    seed = occlusion(bound(task.full_database, untrained(task, name)), 3)
    assert seed.scores([np.empty(0, np.int64)] * 3) == pytest.approx([seed.score] * 3, abs=1e-6)


@pytest.mark.parametrize("name", ["quartet", "relgt", "rgp", "hgt", "sage"])
def test_other_cells_of_rows_that_are_gone_change_nothing(name: str, task: Task) -> None:
    """Of a row that is not there nothing is seen: whatever its cells, the score without it is the same.

    Columns have a test of their own, and those about others are said to be held as they are.
    """
    whole, member = task.full_database, untrained(task, name, tower=0)
    seed = occlusion(bound(whole, member), 3)
    rows = [node for node, path in seed.nearby().path.items() if path == "orders by customer"][:6]
    rows = np.array(rows, np.int64)
    orders = whole["orders"].data
    amount = orders["amount"].to_numpy().copy()
    amount[rows - seed.view.database.offsets["orders"]] *= 7.0
    other = whole.with_tables(
        dict(whole.tables)
        | {"orders": replace(whole["orders"], data=orders.set_column(3, "amount", pa.array(amount)))}
    )
    assert orders.column_names[3] == "amount"
    before, after = (occlusion(bound(database, member), 3).scores([rows]) for database in (whole, other))
    assert before.tobytes() == after.tobytes()


def test_rows_that_only_a_lost_one_led_to_are_lost_too() -> None:
    database, node, time = some_market()
    graph = TemporalGraph.build(database)
    context = sample(graph, Seeds(np.array([node]), np.array([time]), None), SamplingConfig(local_budget=40))
    nodes, _, _, edge = context.local(0)
    gone = [nodes[[place]].astype(np.int64) for place in range(1, len(nodes))]
    lost = lost_rows(context, gone)
    whole = reached(context, set())
    for variant, some in enumerate(gone):
        away = {place for place in range(len(nodes)) if nodes[place] in some}
        expected = away | (whole - reached(context, away))
        assert set(np.flatnonzero(lost[variant]).tolist()) == expected
    assert len(edge)


def reached(context: Context, away: set[int]) -> set[int]:
    """The plain twin: places to which links lead from the seed."""
    edges = [tuple(pair) for pair in context.local(0)[3].tolist()]
    found, queue = {0}, [0]
    for place in queue:
        for one, other in (*edges, *((b, a) for a, b in edges)):
            if one == place and other not in found | away:
                found.add(other)
                queue.append(other)
    return found


def some_market() -> tuple[Database, int, int]:
    database = shop()
    graph = TemporalGraph.build(database)
    time = int(graph.times[-1])
    degrees = graph.degrees(np.arange(graph.num_nodes), np.full(graph.num_nodes, time))
    return database, int(degrees.argmax()), time


def test_a_sketch_without_rows_is_that_of_a_database_without_them(task: Task) -> None:
    live = bound(task.full_database, untrained(task, "quartet"))
    seed = occlusion(live, 3)
    view: Any = seed.view
    neighbours = view.graph.neighbors(seed.node, AT)
    gone = [neighbours[:2], neighbours[-3:], neighbours, neighbours[:0]]
    seeds = Seeds(np.array([seed.node]), np.array([AT]), None)
    config = view.recipe.sampling
    before = sample(view.graph, seeds, config).sketch[0]
    found = sketch_without(view, seed.node, AT, before, gone)
    for variant, some in enumerate(gone):
        twin = sample(TemporalGraph.build(never_known(view.database, some)), seeds, config).sketch[0]
        is_told = np.arange(len(twin)) != 3  # the largest count of the walks is held
        assert found[variant][is_told] == pytest.approx(twin[is_told], abs=1e-6)


def test_rows_nearby_are_visible_and_their_paths_lead_there(task: Task) -> None:
    live = bound(task.full_database, untrained(task, "quartet"))
    seed = occlusion(live, 3)
    found = nearby(seed.view, seed.node, AT, None)
    assert set(found.path.values()) == {"orders by customer"}
    graph = seed.view.graph
    assert (graph.node_time[list(found.path)] <= AT).all()
    newest = sorted(found.whole["orders by customer"], key=lambda node: -graph.node_time[node])
    assert list(found.path)[:5] == newest[:5]


def test_paths_are_said_as_people_say_them(task: Task) -> None:
    view = occlusion(bound(task.full_database, untrained(task, "lightgbm")), 3).view
    assert path_words(view, "orders by customer") == "orders"
    assert path_words(view, "orders by customer, customer -> customers") == "customers of its orders"
    assert path_words(view, "linked to the same rows") == "linked to the same rows"


def test_spans_are_said_as_people_say_them() -> None:
    assert span_words(DAY) == [
        "in the last day",
        "1 to 4 days ago",
        "4 to 12 days ago",
        "more than 12 days ago",
    ]
    assert span_words(30 * DAY)[:2] == ["in the last 30 days", "30 to 120 days ago"]
    assert span_words(DAY // 4)[1:3] == ["6 hours to 1 day ago", "1 to 3 days ago"]
