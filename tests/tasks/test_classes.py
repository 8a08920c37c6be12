"""Classes of labels: those of train, those that come later, rare ones, lists of them, and columns that tell them."""

from __future__ import annotations

import datetime as dt
import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quartet.database import Database
from quartet.errors import TaskError
from quartet.evaluation import fit_rules
from quartet.evaluation.rules import linked_labels
from quartet.features import FeatureTable
from quartet.tasks import Task, TaskRecord, task_yaml
from quartet.tasks.late_columns import class_share
from quartet.tasks.spec import spec_from_dict
from tests.evaluation.small import label_task
from tests.shop import DAY, FIRST_DAY
from tests.strategies import examples

MULTI, LISTS = "multiclass_classification", "multilabel_classification"
TRAIN = [
    ("ann", 0, "b"),
    ("bob", 0, "a"),
    ("cleo", 0, "b"),
    ("dan", 0, "c"),
    ("ann", 10, "b"),
    ("bob", 10, "a"),
]
LATER = [
    ("ann", 60, "z"),
    ("bob", 60, "a"),
    ("cleo", 60, "y"),
    ("ann", 80, "x"),
    ("bob", 80, "z"),
    ("dan", 80, "b"),
]


def changed(task: Task, **words: Any) -> Task:
    """The same labels, with other words of the task."""
    fields = {
        "name": "small", "kind": "external", "task_type": task.spec.type, "entity_table": "people",
        "entity_col": "name", "time_col": "at", "target_col": "y", "timedelta": "10 days",
        "val_timestamp": "2024-03-01", "test_timestamp": "2024-03-21",
    }  # fmt: skip
    return Task.of(spec_from_dict(fields | words, "test"), task.full_database, task.labels)


def test_classes_that_come_later_stay_and_are_counted() -> None:
    task = label_task(TRAIN + LATER, MULTI)
    assert task.class_counts == {"a": 2, "b": 3, "c": 1}
    assert np.asarray(task.seeds("val").target).tolist() == [4, 0, 3]  # y and z come after the three
    assert np.asarray(task.vault.open("test")).tolist() == [3, 4, 1]
    val, test = (next(f for f in task.findings(split) if f.code == "L30") for split in ("val", "test"))
    assert (val.count, test.count) == (2, 2)
    assert "2 of 3 rows have one of 2 classes that train does not have (z, y)" in val.message
    assert "(" not in test.message  # test labels stay in the vault
    assert [f.code for f in task.findings("train")] == []


def test_rare_classes_are_pooled_on_request() -> None:
    task = changed(label_task(TRAIN + LATER, MULTI), pool_classes=2)
    assert task.class_counts == {"a": 2, "b": 3, "(other)": 1}
    assert np.asarray(task.seeds("val").target).tolist() == [2, 0, 2]
    assert not [f for f in task.findings("val") if f.code == "L30"]
    (told,) = (f for f in task.findings("train") if f.code == "L31")
    assert told.message.startswith(
        "1 classes with fewer than 2 training labels are pooled as (other): 1 of 6 labels"
    )
    assert "pool_classes: 2" in task_yaml(task)
    assert changed(task).definition["pool_classes"] != task.definition["pool_classes"]


def test_a_class_called_other_is_among_those_pooled() -> None:
    task = changed(
        label_task([*TRAIN, ("cleo", 10, "(other)"), ("dan", 10, "(other)")], MULTI), pool_classes=2
    )
    assert task.class_counts == {"a": 2, "b": 3, "(other)": 3}


def test_numbers_can_be_pooled_too() -> None:
    labels = [(who, at, ord(y) - 97) for who, at, y in TRAIN + LATER]
    task = changed(label_task(labels, MULTI), pool_classes=2)
    assert task.classes == [0, 1, "(other)"]
    assert np.asarray(task.vault.open("test")).tolist() == [2, 2, 1]


def test_only_classes_can_be_pooled() -> None:
    with pytest.raises(TaskError, match=r"C01.*regression has no classes to pool"):
        changed(label_task([("ann", 0, 1.0)], "regression"), pool_classes=2)


def test_rules_of_new_classes_know_nothing_of_them() -> None:
    """A class that train lacks is in no history: scores still add up to 1."""
    task = label_task(TRAIN + LATER, MULTI)
    for rule in fit_rules(task, FeatureTable.fit(task.database, task.splits.val)):
        scores = rule.knowing(label_task(TRAIN + LATER, MULTI).seeds("val")).predict(task.seeds("test"))
        assert scores.shape == (3, 3)
        assert scores.sum(1) == pytest.approx(1)


# --- lists ------------------------------------------------------------------------------------------

LISTED = [
    ("ann", 0, ["a", "b"]),
    ("bob", 0, []),
    ("cleo", 0, ["b"]),
    ("ann", 60, ["z", "a", "a"]),
    ("bob", 80, ["b"]),
]


@pytest.mark.parametrize("kind", ["lists", "json"])
def test_cells_are_lists_of_classes(kind: str) -> None:
    labels = [(who, at, y if kind == "lists" else json.dumps(y)) for who, at, y in LISTED]
    task = label_task(labels, LISTS)
    assert task.class_counts == {"a": 1, "b": 2}
    assert np.asarray(task.seeds("train").target).tolist() == [[1, 1], [0, 0], [0, 1]]
    assert np.asarray(task.seeds("val").target).tolist() == [[1, 0, 1]]  # z has a column of its own
    assert np.asarray(task.vault.open("test")).tolist() == [[0, 1]]
    assert next(f for f in task.findings("val") if f.code == "L30").count == 1
    assert not task.tells_past_labels
    joined = task.known_labels()
    assert np.asarray(joined.target).tolist() == [[1, 1], [0, 0], [0, 1], [1, 0]]


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        (["a", "b", "a"], "cells of a multilabel task are lists of classes, got string"),
        ([1, 2, 3], "cells of a multilabel task are lists of classes, got int64"),
        ([["a", None], [], ["b"]], "1 values in label lists are empty"),
        ([[0.5, math.nan], [], [1.5]], "1 values in label lists are empty"),
        ([[["a"]], [], [["b"]]], "label lists hold list.*, no classes"),
        ([[{"a": 1}], [], [{"a": 2}]], "label lists hold struct.*, no classes"),
    ],
)
def test_other_cells_are_refused(cells: list[Any], said: str) -> None:
    with pytest.raises(TaskError, match=f"L07.*{said}"):
        label_task([("ann", 0, cells[0]), ("bob", 0, cells[1]), ("ann", 60, cells[2])], LISTS).seeds("train")


def test_lists_of_numbers() -> None:
    labels = [("ann", 0, [3, 1]), ("bob", 0, [1]), ("ann", 60, [2, 3])]
    task = label_task(labels, LISTS)
    assert task.classes == [1, 3]
    assert np.asarray(task.seeds("val").target).tolist() == [[0, 1, 1]]


def test_dates_in_lists_are_told_as_text() -> None:
    """A record of the task is JSON."""
    first, then = dt.date(2024, 1, 2), dt.date(2024, 1, 9)
    task = label_task([("ann", 0, [then, first]), ("bob", 0, [then]), ("ann", 60, [first])], LISTS)
    assert task.classes == ["2024-01-02", "2024-01-09"]
    assert np.asarray(task.seeds("val").target).tolist() == [[1, 0]]
    record = TaskRecord.of(task)
    assert TaskRecord.from_dict(json.loads(json.dumps(record.to_dict()))).classes == record.classes


def test_no_label_that_differs_is_an_error() -> None:
    task = label_task([("ann", 0, ["a"]), ("bob", 0, ["a"]), ("ann", 60, ["a"])], LISTS)
    with pytest.raises(TaskError, match=r"L05.*no class is in some of the 2 training labels"):
        task.check()


# --- columns that tell a class --------------------------------------------------------------------


@examples(50)
@given(st.integers(0, 2**32))
def test_a_function_of_the_class_tells_all_and_chance_nothing(rng_seed: int) -> None:
    rng = np.random.default_rng(rng_seed)
    target = rng.integers(0, 5, 400)
    names = rng.permutation(50)[:5]
    assert class_share(names[target].astype(float), target) == pytest.approx(1.0)
    assert class_share(np.arange(400.0), target) == 0.0  # a value that occurs once tells nothing
    assert class_share(rng.integers(0, 5, 400).astype(float), target) < 0.3


def test_a_column_that_names_the_class_is_found() -> None:
    """A text that follows from the target in other words; and one that does not."""
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 6, 600)
    times = FIRST_DAY + np.sort(rng.integers(0, 100 * DAY, 600))
    tables = {
        "orders": pa.table(
            {
                "id": np.arange(600), "at": pa.array(times).cast(pa.timestamp("ns")),
                "status": [f"s{number}" for number in kind], "colour": [f"c{5 - number}" for number in kind],
                "noise": [f"n{number}" for number in rng.integers(0, 6, 600)],
            }
        )
    }  # fmt: skip
    database = Database.load(tables, {"tables": {"orders": {"pkey": "id", "time_col": "at"}}})
    task = database.query("PREDICT orders.status FOR EACH orders.id")
    assert task.spec.type == MULTI
    found = [finding for finding in task.check() if finding.code == "L04"]
    assert [finding.where for finding in found] == ["orders.colour"]


# --- links as classes -----------------------------------------------------------------------------


def deliveries(num_depots: int = 5, num: int = 300) -> Database:
    """Deliveries from depots: which one follows the customer."""
    rng = np.random.default_rng(0)
    who = rng.integers(0, 20, num)
    tables = {
        "depots": pa.table({"depot": np.arange(num_depots) + 100}),
        "customers": pa.table({"customer": np.arange(20)}),
        "deliveries": pa.table(
            {
                "id": np.arange(num), "at": pa.array(FIRST_DAY + np.arange(num) * DAY // 4).cast(pa.timestamp("ns")),
                "customer": who, "depot": 100 + (who * 7) % num_depots,
            }
        ),
    }  # fmt: skip
    schema = {
        "depots": {"pkey": "depot", "time_col": None},
        "customers": {"pkey": "customer", "time_col": None},
        "deliveries": {
            "pkey": "id", "time_col": "at", "fkeys": {"customer": "customers", "depot": "depots"},
        },
    }  # fmt: skip
    return Database.load(tables, {"tables": schema})


def test_a_link_to_few_rows_is_a_class() -> None:
    """It is hidden, and the link over it goes with it."""
    database = deliveries()
    task = database.query("PREDICT deliveries.depot FOR EACH deliveries.id")
    assert task.spec.type == MULTI
    assert task.classes == [100, 101, 102, 103, 104]
    assert "depot" not in task.database["deliveries"].data.column_names
    assert {relation.parent for relation in task.database.relations} == {"customers"}


def test_a_link_to_many_rows_is_a_list() -> None:
    given = deliveries(num_depots=140, num=2000)
    spread = given["deliveries"].data.set_column(3, "depot", pa.array(100 + np.arange(2000) % 140))
    tables = {"depots": given["depots"].data, "deliveries": spread}
    schema = {
        "depots": {"pkey": "depot", "time_col": None},
        "deliveries": {"pkey": "id", "time_col": "at", "fkeys": {"depot": "depots"}},
    }
    database = Database.load(tables, {"tables": schema})
    listed = database.query("PREDICT deliveries.depot FOR EACH deliveries.id").spec
    assert (listed.type, listed.item_table, listed.eval_k) == ("recommendation", "depots", 10)
    task = database.query("PREDICT deliveries.depot CLASSIFY FOR EACH deliveries.id")
    assert len(task.classes or ()) == 140


def test_a_link_is_no_number() -> None:
    words = {
        "name": "depot",
        "kind": "autocomplete",
        "task_type": "regression",
        "entity_table": "deliveries",
        "target_col": "depot",
    }
    with pytest.raises(TaskError, match=r"L02.*Fix: say task_type: multiclass_classification"):
        Task.load(deliveries(), words).seeds("train")


def test_a_rule_of_rows_that_name_the_same_row() -> None:
    """What was last delivered to the same customer; a label of the same moment or later changes nothing."""
    task = deliveries().query("PREDICT deliveries.depot FOR EACH deliveries.id")
    rule = linked_labels(task)
    assert rule is not None
    assert rule.name == "last 12 of the same customers"
    every = [rule.name for rule in fit_rules(task, FeatureTable.fit(task.database, task.splits.val))]
    assert every == ["constant", rule.name, "LightGBM on counts"]  # a row has no labels of its own before
    test = task.seeds("test")
    truth = np.asarray(task.vault.open("test"))
    knowing = rule.knowing(replace(test, target=truth))
    scores = knowing.predict(test)
    assert (scores.argmax(1) == truth).mean() > 0.95
    later = np.where(test.time >= np.median(test.time), (truth + 1) % 5, truth)
    other = rule.knowing(replace(test, target=later)).predict(test)
    before = test.time <= np.median(test.time)
    assert np.array_equal(scores[before], other[before])
