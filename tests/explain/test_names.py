"""What rows are called in an explanation is decided by what was known at its time, as everything else in it."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from quartet.database import Database
from quartet.explain import explain
from quartet.tasks import Task
from quartet.times import parse_instant
from tests.explain.small import bound, untrained
from tests.features.drawn import CHANGES
from tests.tasks.small import CHURN
from tests.trained import SHOP_SCHEMA, opened, shop_tables

pytestmark = pytest.mark.usefixtures("one_thread")

AT = "2023-07-20"
WHO = ["C03", "C07", "C21"]


def told_in_other_futures(task: Task, **settings: Any) -> tuple[Any, list[Any]]:
    """Explanations of trees, and those in databases with other rows after their time or another order of rows."""
    whole, member, time = (
        task.full_database,
        untrained(task, "lightgbm", **settings),
        parse_instant(AT, ""),
    )
    raw = {table.name: table.data for table in whole.tables.values()}, whole.schema
    others = [Database.build(*change(raw, time, "<=", random.Random(n))) for n, change in enumerate(CHANGES)]
    return explain(bound(whole, member), WHO, AT), [explain(bound(each, member), WHO, AT) for each in others]


def test_rows_without_a_key_are_not_called_by_their_place() -> None:
    """Their places move with rows that come later."""
    tables = shop_tables()
    orders = tables.pop("orders").drop_columns(["order"])
    schema = {**SHOP_SCHEMA, "orders": {**SHOP_SCHEMA["orders"], "pkey": None}}
    told, others = told_in_other_futures(opened({**tables, "orders": orders}, schema).task(CHURN))
    for other in others:
        assert other.to_dict() == told.to_dict()
    single = [row for each in told for row in each.rows if row.count == 1]
    assert single
    for row in single:
        assert row.key == ""
        assert row.words.startswith("orders of 2023-")
        assert f"amount {dict(row.cells)['amount']}" in row.sentence


def test_later_rows_do_not_decide_by_which_column_rows_are_named() -> None:
    """Words that tell orders apart until then, and never again after it."""
    tables = shop_tables()
    is_late = tables["orders"]["bought"].cast(pa.int64()).to_numpy() > parse_instant(AT, "")
    words = np.where(is_late, "the same", [f"parcel {chr(97 + n % 26)}{n}" for n in range(len(is_late))])
    orders = tables["orders"].append_column("wrapped", pa.array(words))
    task = opened({**tables, "orders": orders}).task(CHURN)
    told, others = told_in_other_futures(task)
    for other in others:
        assert other.to_dict() == told.to_dict()
    names = [row.name for each in told for row in each.rows if row.count == 1]
    assert names
    assert all(name.startswith("parcel ") for name in names)


def test_known_cases_are_not_named_by_a_hidden_column() -> None:
    tables = shop_tables()
    customers = tables["customers"].drop_columns(["full_name"])
    secret = pa.array([f"secret {chr(97 + n % 26)}{n}" for n in range(len(customers))])
    tables = {**tables, "customers": customers.append_column("customer_name", secret)}
    task = Task.from_sql(opened(tables), **CHURN, remove_columns=[["customers", "customer_name"]])
    told = explain(bound(task.full_database, untrained(task, "lightgbm")), WHO, AT)
    assert told[0].lookalikes
    assert "secret" not in str(told.to_dict())


def test_entities_without_a_key_are_explained_too() -> None:
    """They are called by their place, as in predictions; no known case can be named beside them."""
    tables = shop_tables()
    schema = {**SHOP_SCHEMA, "orders": {**SHOP_SCHEMA["orders"], "pkey": None}}
    amount = {"name": "amount", "kind": "autocomplete", "entity_table": "orders", "target_col": "amount"}
    orders = tables["orders"].drop_columns(["order"])
    task = opened({**tables, "orders": orders}, schema).task({**amount, "task_type": "regression"})
    live = bound(task.full_database, untrained(task, "lightgbm", past_labels=False))
    scores = live.predict(None, AT, everyone=True).table
    told = explain(live, None, AT, everyone=True, rows=False)
    assert [each.key for each in told] == [str(row) for row in scores["row"].to_pylist()]
    assert [each.score for each in told] == pytest.approx(scores["score"].to_pylist())
    assert not told[0].lookalikes
