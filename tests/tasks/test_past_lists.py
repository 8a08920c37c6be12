"""Known lists of classes as rows: each class once, each window once it has closed, and the rules that read them."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import numpy as np
import pytest

from quartet.database import Database
from quartet.errors import TaskError
from quartet.evaluation.rules import entity_mean
from quartet.tasks import Task
from quartet.tasks.past_labels import with_past_labels
from tests.evaluation.small import label_task
from tests.known_labels import known
from tests.shop import DAY, day
from tests.tasks.small import small_shop

LISTS = "multilabel_classification"
LISTED: list[tuple[str, int, Any]] = [
    ("ann", 0, ["b", "a", "b"]), ("bob", 0, []), ("cleo", 10, ["b"]), ("ann", 60, ["z", "a"]), ("bob", 70, ["a"]),
    ("bob", 80, ["b"]), ("ann", 95, ["a"]),
]  # fmt: skip


@pytest.mark.parametrize("as_text", [False, True])
def test_a_list_is_a_cell_with_each_class_once(as_text: bool) -> None:
    """On day 80 those whose window of ten days has closed; empty lists are known, too."""
    labels = [(who, at, json.dumps(y) if as_text else y) for who, at, y in LISTED]
    task = label_task(labels, LISTS).under("frozen", past_labels=True)
    closed = sorted((who, day(at + 10), sorted(set(y))) for who, at, y in LISTED if at <= 70)
    assert known(task.database) == closed
    rolling = label_task(labels, LISTS).under("rolling", past_labels=True)
    assert known(rolling.database) == sorted([*closed, ("bob", day(90), ["b"])])


def test_rules_read_them() -> None:
    """Classes that training lacks are left out of lists, whose other classes count."""
    task = label_task(LISTED, LISTS).under("frozen", past_labels=True)
    assert task.classes == ["a", "b"]
    labels = task.known_labels()
    told = dict(zip(zip(labels.node.tolist(), labels.time.tolist(), strict=True), labels.target, strict=True))  # type: ignore[arg-type]
    assert told[(0, day(60))].tolist() == [1, 0]  # ann: z is new
    assert told[(1, day(0))].tolist() == [0, 0]
    scores = entity_mean(task).predict(task.seeds("test"))
    assert scores.tolist() == [[0.5, 0.0], [1.0, 0.5]]  # bob had [] and [a], ann [a, b] and [a]


@pytest.mark.parametrize(
    ("classes", "shown"),
    [
        ([1, 3], [1, 3]),
        ([True, False], [False, True]),
        ([0.5, 2.25], ["0.5", "2.25"]),
        ([dt.date(2024, 1, 2), dt.date(2023, 5, 6)], ["2023-05-06", "2024-01-02"]),
    ],
)
def test_classes_of_other_types(classes: list[Any], shown: list[Any]) -> None:
    """Rules and rows agree on which class is which, whatever its type is."""
    labels = [("ann", 0, classes), ("bob", 0, classes[:1]), ("bob", 10, []), ("ann", 60, classes[1:])]
    task = label_task([*labels, ("bob", 80, classes)], LISTS).under("frozen", past_labels=True)
    assert known(task.database)[0] == ("ann", day(10), shown)
    lists = [classes, classes[:1], [], classes[1:]]
    expected = [[int(name in cell) for name in sorted(classes)] for cell in lists]
    assert sorted(np.asarray(task.known_labels().target).tolist()) == sorted(expected)


def test_two_lists_of_one_window_contradict_each_other() -> None:
    """The same classes in another order, or twice, do not."""
    task = label_task(LISTED, LISTS)
    for other, is_clash in ((["a", "b"], False), (["b"], True)):
        labels = label_task([*LISTED, ("ann", 0, other)], LISTS).labels
        given = task.full_database, task.spec, task.splits, day(80), labels
        if is_clash:
            with pytest.raises(TaskError, match=r"L10.*ann at 2024-01-01"):
                with_past_labels(*given)
        else:
            assert len(known(with_past_labels(*given))) == 5


def test_lists_of_a_forecast_are_those_of_closed_windows() -> None:
    """Made again in Python: the weekdays on which a customer ordered in each window, from rows known by its end."""
    shop = small_shop()
    task = _weekdays(shop)
    assert task.tells_past_labels
    rows = known(task.under("frozen", past_labels=True).database)
    assert len(rows) > 400
    orders = shop["orders"]
    bought = list(zip(orders.data["customer"].to_pylist(), orders.known_at.tolist(), strict=True))
    for who, at, classes in rows[:: len(rows) // 60]:
        days = {int((t // DAY + 3) % 7) for name, t in bought if name == who and at - 10 * DAY < t <= at}
        assert classes == sorted({f"day {number}" for number in days})
    assert max(at for _, at, _ in rows) <= task.splits.test


def _weekdays(shop: Database) -> Task:
    return Task.from_sql(
        shop,
        name="weekdays",
        task_type=LISTS,
        entity_table="customers",
        entity_col="customer",
        target_col="days",
        time_col="timestamp",
        timedelta="10 days",
        sql="""
            SELECT t.timestamp, c.customer,
                   COALESCE(LIST(DISTINCT 'day ' || ((DAYOFWEEK(o.bought) + 6) % 7)) FILTER (o.bought IS NOT NULL), [])
                   AS days
            FROM timestamps t CROSS JOIN customers c
            LEFT JOIN orders o ON o.customer = c.customer AND o.bought > t.timestamp
                              AND o.bought <= t.timestamp + INTERVAL '{timedelta}'
            GROUP BY t.timestamp, c.customer
        """,
    )
