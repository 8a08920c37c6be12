"""Where the cause is known, it is found; where there is none, nothing is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from quartet.explain import Explanations, explain, global_view
from quartet.runs import TrainedModel
from quartet.tasks import Task
from tests.explain.small import bad_orders, bound, fitted, planted_rows
from tests.trained import SIZES

pytestmark = pytest.mark.usefixtures("one_thread")

NETWORK: dict[str, Any] = {**SIZES, "epochs": 10, "batch_size": 64, "learning_rate": 3e-3, "tower": 0}
NUM_SEEDS = 40


@pytest.fixture(scope="module")
def task() -> Task:
    return bad_orders()


def explained(task: Task, name: str, **settings: Any) -> tuple[Explanations, dict[str, str]]:
    """The explanations of customers who had a bad order, and which it was."""
    rows = planted_rows(task, task.splits.test)
    live = bound(task.full_database, fitted(task, name, **settings))
    return explain(live, [int(key) for key in list(rows)[:NUM_SEEDS]], task.splits.test), rows


def test_trees_name_the_row_and_the_cell_that_decide(task: Task) -> None:
    told, rows = explained(task, "lightgbm")
    assert np.mean([any(row.key == rows[each.key] for row in each.rows[:3]) for each in told]) >= 0.95
    assert np.mean([any("state" in reason for reason in each.reasons(3)) for each in told]) >= 0.95
    assert (
        np.mean([bool(each.changes) and each.changes[0].rows[0].key == rows[each.key] for each in told])
        >= 0.95
    )


def test_a_network_names_the_row_that_decides_and_the_branch_that_sees_it(task: Task) -> None:
    told, rows = explained(task, "quartet", **NETWORK)
    assert np.mean([any(row.key == rows[each.key] for row in each.rows[:3]) for each in told]) >= 0.95
    strongest = [max(each.parts, key=lambda part: abs(part.effect)).name for each in told]
    assert np.mean([name == "local" for name in strongest]) >= 0.95


def test_known_cases_that_are_alike_ended_alike(task: Task) -> None:
    told, _ = explained(task, "lightgbm")
    outcomes = [case.outcome for each in told for case in each.lookalikes]
    assert np.mean([outcome == "complains: yes" for outcome in outcomes]) >= 0.95


def test_where_nothing_decides_nothing_explains(task: Task) -> None:
    """A tower of labels by lot: the same rows move the score by a small part of what they move it where they decide."""
    moved = []
    for one in (task, bad_orders(is_cause=False)):
        told, _ = explained(one, "tower", **NETWORK | {"tower": 4})
        moved.append([max((abs(row.effect) for row in each.rows), default=0.0) for each in told])
    assert np.mean(moved[1]) < 0.1 * np.mean(moved[0])


def test_the_global_view_names_what_decides(task: Task) -> None:
    model = TrainedModel([(fitted(task, "lightgbm"), None)], task)
    view = global_view(model, num_seeds=50)
    assert view.parts[0].name == "trees"
    assert "state" in view.columns[0].words
    assert view.tables[0].name == "orders"
    assert view.links[0].name == "orders by customer"
    assert view.spans[0].name == "in the last 10 days"
    assert view.curves[0].name == view.columns[0].name
    assert view.curves[0].scores[0] > view.curves[0].scores[-1]  # the more are good, the fewer complain
