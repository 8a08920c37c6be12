from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from quartet.database import Database
from quartet.errors import IntegrityError, SchemaError, UsageError
from quartet.tasks import Task, TaskRecord
from tests.tasks.small import CHURN, small_shop, write_small_shop


def _color_task(**changes: object) -> Task:
    """Fills in the colours of orders, a multiclass task with hidden columns."""
    shop = small_shop()
    color = pa.array(np.array(["red", "green", "blue"])[np.arange(shop["orders"].num_rows) % 3])
    data = shop["orders"].data.append_column("color", color)
    tables = {"customers": shop["customers"].data, "orders": data}
    definition = {
        "name": "color",
        "task_type": "multiclass_classification",
        "kind": "autocomplete",
        "entity_table": "orders",
        "target_col": "color",
        "remove_columns": [["orders", "amount"]],
    }
    return Task.from_sql(Database.build(tables, shop.schema), **(definition | changes))


@pytest.fixture(scope="module", params=["churn", "color"])
def task(request: pytest.FixtureRequest) -> Task:
    return Task.from_sql(small_shop(), **CHURN) if request.param == "churn" else _color_task()


def test_a_record_survives_json_exactly(task: Task) -> None:
    record = replace(TaskRecord.of(task), source="shop.sqlite", path="churn.yaml")
    again = TaskRecord.from_dict(json.loads(json.dumps(record.to_dict())))
    assert again == record
    assert hash(again) == hash(record)


def test_a_record_binds_its_task_again(task: Task, tmp_path: Path) -> None:
    record = TaskRecord.of(task)
    again = record.reopen(task.full_database)
    assert TaskRecord.of(again) == record
    assert again.seeds("train").time.tolist() == task.seeds("train").time.tolist()
    folder = write_small_shop(tmp_path / "shop")
    named = TaskRecord.of(Task.load(Database.load(folder), "churn"))
    assert named.path == "churn"
    assert TaskRecord.of(named.reopen(Database.load(folder))) == named
    with pytest.raises(UsageError, match=r"L01.*were given in memory"):
        replace(record, spec=replace(record.spec, kind="external")).reopen(task.full_database)


def test_a_record_says_what_its_task_says(task: Task) -> None:
    record = TaskRecord.of(task)
    spec = task.spec
    assert (record.name, record.type, record.entity_table) == (task.name, spec.type, spec.entity_table)
    assert (record.target, record.horizon) == (spec.target_col, spec.horizon)
    assert (record.val_timestamp, record.test_timestamp) == (task.splits.val, task.splits.test)
    assert record.classes == (None if task.classes is None else tuple(task.classes))
    assert record.fingerprint == task.visible_database.fingerprint


def test_a_record_shows_a_database_as_its_task_does(task: Task) -> None:
    record = TaskRecord.of(task)
    visible = record.visible(task.full_database)
    assert visible.fingerprint == task.visible_database.fingerprint
    assert record.visible(visible).fingerprint == visible.fingerprint  # hidden already
    assert list(record.visible(visible, ["orders", "nowhere"]).tables) == ["orders", "customers"]
    past = task.under("rolling", past_labels=True).database
    upto = int(task.seeds("test").time.max())
    assert record.with_past_labels(task.full_database, upto).fingerprint == past.fingerprint


def test_a_record_names_the_link_that_is_lost_or_new() -> None:
    shop, record = small_shop(), TaskRecord.of(Task.from_sql(small_shop(), **CHURN))
    record.check_structure(shop)
    unlinked = _without_links(shop)
    with pytest.raises(SchemaError, match=r'V04.*"orders.customer links to customers" held in training'):
        record.check_structure(unlinked)
    with pytest.raises(SchemaError, match=r'V05.*"orders.customer links to customers" did not hold'):
        TaskRecord.of(Task.from_sql(unlinked, **CHURN)).check_structure(shop)


def _without_links(shop: Database) -> Database:
    orders = replace(shop["orders"].schema, foreign_keys=())
    schema = replace(shop.schema, tables={**shop.schema.tables, "orders": orders})
    return Database.build({name: table.data for name, table in shop.tables.items()}, schema)


def test_records_of_another_format_are_refused(task: Task) -> None:
    good = TaskRecord.of(task).to_dict()
    with pytest.raises(IntegrityError, match=r"C10.*newer version"):
        TaskRecord.from_dict({**good, "version": 99})
    for bad in ({}, {**good, "more": 1}, {**good, "spec": {}}, {**good, "spec": 1}, {**good, "version": "1"}):
        with pytest.raises(IntegrityError, match="C06"):
            TaskRecord.from_dict(bad)
