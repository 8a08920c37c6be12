"""Explanations of every model: they add up, are those of the prediction, are the same twice, and see no future."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from quartet.database import Database
from quartet.errors import UsageError
from quartet.explain import Explanation, Explanations, explain
from quartet.registry import MODELS
from quartet.runs import Checkpoint
from quartet.tasks import SPLITS, Task
from quartet.times import parse_instant, show_instant
from tests.explain.small import bad_orders, bound, untrained
from tests.features.drawn import CHANGES, Change
from tests.tasks.small import CHURN
from tests.trained import KINDS, churn, from_labels, opened, shop_tables

pytestmark = pytest.mark.usefixtures("one_thread")  # sums in the same order: bits are compared here

AT = "2023-07-20"
WHO = ["C03", "C07", "C21"]
VIEWS = {
    "quartet": {"local", "feature", "topology", "collab", "temporal"},
    "auto": {"local", "feature", "topology", "collab", "temporal", "trees"},
    "tower": set(),
    "relgt": {"local", "memory"},
    "rgp": {"local", "feature", "temporal"},
    "hgt": {"local"},
    "sage": {"local"},
    "lightgbm": {"trees"},
}
READ: dict[str, set[str]] = {"lightgbm": set()}  # all others have a tower


@pytest.fixture(scope="module")
def task() -> Task:
    return opened(shop_tables()).task(CHURN)


@pytest.fixture(scope="module")
def box(task: Task) -> dict[str, Checkpoint]:
    return {name: untrained(task, name) for name in MODELS}


def told(database: Database, *members: Checkpoint, **options: Any) -> Explanations:
    return explain(bound(database, *members), WHO, AT, **options)


def check_sums(explained: Explanations, scores: list[float]) -> None:
    for each, score in zip(explained, scores, strict=True):
        assert each.score == pytest.approx(score, abs=1e-6)
        assert sum(part.effect for part in each.parts) == pytest.approx(each.score - each.base, abs=1e-9)
        of_columns = [part.effect for part in each.parts if part.name in ("columns", "trees")]
        assert sum(column.effect for column in each.columns) == pytest.approx(sum(of_columns), abs=1e-9)


@pytest.mark.parametrize("name", MODELS)
def test_parts_and_columns_add_up_to_the_score(name: str, task: Task, box: dict[str, Checkpoint]) -> None:
    live = bound(task.full_database, box[name])
    scores = live.predict(WHO, AT).table["score"].to_pylist()
    explained = explain(live, WHO, AT)
    check_sums(explained, scores)
    assert {part.name for part in explained[0].parts} == VIEWS[name] | READ.get(name, {"columns"})
    assert all(each.columns for each in explained)
    assert bool(explained[0].archetype) == (name in ("quartet", "auto"))
    assert any(each.rows for each in explained)
    assert len(explained[0].lookalikes) == 5
    assert all(case.time + task.spec.lag <= explained[0].time for case in explained[0].lookalikes)


@pytest.mark.parametrize("name", ["quartet", "relgt", "rgp", "hgt", "sage"])
def test_what_a_network_does_not_have_is_absent(name: str, task: Task) -> None:
    """Without a tower no columns are read."""
    each = told(task.full_database, untrained(task, name, tower=0))[0]
    assert {part.name for part in each.parts} == VIEWS[name]
    assert each.columns == ()
    assert each.reasons() == [row.words for row in sorted(each.rows, key=_first(each))][:3]


def _first(each: Explanation) -> Any:
    side = 1 if each.score >= each.base else -1
    return lambda row: (side * row.effect < 0, -abs(row.effect))


def test_those_of_an_ensemble_add_up_to_the_mean_of_its_scores(
    task: Task, box: dict[str, Checkpoint]
) -> None:
    members = [box["lightgbm"], box["quartet"], untrained(task, "lightgbm", past_labels=True)]
    live = bound(task.full_database, *members)
    check_sums(explain(live, WHO, AT), live.predict(WHO, AT).table["score"].to_pylist())


@pytest.mark.parametrize("kind", ["regression", "multiclass_classification"])
@pytest.mark.parametrize("name", ["lightgbm", "auto"])
def test_values_and_classes_are_explained_too(kind: str, name: str) -> None:
    task = churn(**KINDS[kind])
    live = bound(task.full_database, untrained(task, name))
    table, explained = live.predict(WHO, AT).table, explain(live, WHO, AT)
    if kind == "regression":
        scores = table["score"].to_pylist()
    else:
        assert [each.predicted for each in explained] == table["predicted"].to_pylist()
        scores = [row[f"score_{row['predicted']}"] for row in table.to_pylist()]
    check_sums(explained, scores)


@pytest.mark.parametrize("name", MODELS)
def test_no_later_row_and_no_other_order_changes_a_bit(
    name: str, task: Task, box: dict[str, Checkpoint]
) -> None:
    whole, time = task.full_database, parse_instant(AT, "")
    raw = {table.name: table.data for table in whole.tables.values()}, whole.schema
    expected = told(whole, box[name]).to_dict()
    assert told(whole, box[name]).to_dict() == expected
    for number, change in enumerate(CHANGES):
        other = Database.build(*_changed(change, raw, time, random.Random(number)))
        assert told(other, box[name]).to_dict() == expected


def _changed(change: Change, raw: Any, time: int, rng: random.Random) -> Any:
    return change(raw, time, "<=", rng)


def test_an_explanation_does_not_depend_on_when_it_was_asked_for(task: Task) -> None:
    """Nor on what was asked before: past labels and known cases are those of the asked time."""
    member = untrained(task, "lightgbm", past_labels=True)
    live = bound(task.full_database, member)
    first = explain(live, WHO, AT).to_dict()
    explain(live, WHO, "2023-10-01")
    assert explain(live, WHO, AT).to_dict() == first
    many = explain(live, [*WHO, *WHO], [AT] * 3 + ["2023-10-01"] * 3)
    assert [each.to_dict() for each in many][:3] == first["explanations"]


def test_rows_can_be_left_out(task: Task, box: dict[str, Checkpoint]) -> None:
    whole, short = (told(task.full_database, box["auto"], rows=rows)[0] for rows in (True, False))
    assert not short.rows
    assert not short.changes
    assert short.parts == whole.parts
    assert short.columns == whole.columns
    assert short.reasons() == whole.reasons()


def test_what_would_change_it_is_verified(task: Task, box: dict[str, Checkpoint]) -> None:
    explained = explain(bound(task.full_database, box["lightgbm"]), None, AT)
    changes = [(each.score, change) for each in explained for change in each.changes]
    assert changes
    for score, change in changes:
        assert (score - change.threshold) * (change.score - change.threshold) < 0


def test_who_is_asked_about_is_checked(task: Task, box: dict[str, Checkpoint]) -> None:
    live = bound(task.full_database, box["lightgbm"])
    with pytest.raises(UsageError, match="2 entities and 3 times"):
        live.explain(["C03", "C07"], [AT, AT, AT])
    assert [each.key for each in live.explain(["C03"], AT, rows=False)] == ["C03"]


def test_without_labels_those_who_come_later_are_not_usual() -> None:
    made = bad_orders(per_window=30)
    labels = pa.concat_tables(map(made.label_rows, SPLITS))
    given = Task.from_labels(
        made.full_database, labels, name="given", task_type="binary_classification", entity_table="customers",
        entity_col="customer", time_col="timestamp", target_col="complains", timedelta="10 days",
        val_timestamp=show_instant(made.splits.val), test_timestamp=show_instant(made.splits.test),
    )  # fmt: skip
    member, at = untrained(given, "lightgbm"), made.splits.val
    whole, past = (
        explain(bound(database, member), [3, 100], at).to_dict()
        for database in (given.full_database, given.full_database.upto(at))
    )
    assert whole == past
    assert not whole["explanations"][0]["lookalikes"]


def test_without_labels_those_who_are_known_are_usual() -> None:
    given = from_labels(churn())
    live = bound(given.full_database, untrained(given, "lightgbm"))
    each = explain(live, ["C03"], AT)[0]
    assert each.lookalikes == ()
    assert np.isfinite(each.base)
