"""The front door of a database: what may be opened, with which schema, and the tasks on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from quartet.database import Database
from quartet.errors import QuartetError, TaskError, UsageError
from quartet.tasks import Task
from tests import market
from tests.tasks.small import CHURN, small_shop


@pytest.mark.parametrize("source", [42, None, 1.5, [], object(), b"shop.db", ("a", "b"), "", "  "])
def test_a_source_of_a_wrong_type_is_refused(source: object) -> None:
    with pytest.raises(UsageError, match=r"error\[C02\] the source is .*Fix: give a folder"):
        Database.load(source)


@pytest.mark.parametrize("source", ["x" * 5000, "SELECT 1;\n" * 100, "a\0b", "~no-such-user-here/x"])
def test_a_text_that_is_no_source_is_refused(source: str) -> None:
    with pytest.raises(QuartetError) as caught:
        Database.load(source)
    assert len(str(caught.value)) < 2000


@pytest.mark.parametrize("table", [None, 3, "orders.csv", {"id": [1]}, [1]])
def test_a_dict_with_a_value_that_is_no_table_is_refused(table: object) -> None:
    with pytest.raises(UsageError, match=r'error\[S01\] table "orders" is of type '):
        Database.load({"customers": pa.table({"id": [1]}), "orders": table})


@pytest.mark.parametrize("schema", [3, [], True, b"x.yaml"])
def test_a_schema_of_a_wrong_type_is_refused(schema: Any) -> None:
    with pytest.raises(UsageError, match=r"error\[C02\] the schema is of type "):
        Database.load(market.arrow_tables(), schema)


def test_a_schema_may_be_a_file_or_a_dict(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(market.SCHEMA)
    content = yaml.safe_load(market.SCHEMA)
    content["tables"]["orders"]["fkeys"] = {
        "customer": "customers", ("country", "city"): "cities"  # a tuple is natural in Python
    }  # fmt: skip
    schemas = [tmp_path / "s.yaml", str(tmp_path / "s.yaml"), yaml.safe_load(market.SCHEMA), content]
    databases = [Database.load(market.arrow_tables(), schema) for schema in schemas]
    assert len({database.fingerprint for database in databases}) == 1
    assert len({database.schema.name for database in databases}) == 1
    with pytest.raises(UsageError, match=r'error\[C01\] the schema: unknown field "tabels"'):
        Database.load(market.arrow_tables(), {"tabels": {}})


# --- tasks ----------------------------------------------------------------------------------------


def test_a_task_by_its_fields() -> None:
    shop = small_shop()
    expected = Task.from_sql(shop, **CHURN)
    for task in (shop.task(CHURN), shop.task(**CHURN), shop.task({**CHURN, "name": "x"}, name=CHURN["name"])):
        assert task.spec == expected.spec
        assert task.splits == expected.splits


def test_a_task_by_its_file(tmp_path: Path) -> None:
    (tmp_path / "churn.yaml").write_text(yaml.safe_dump({"kind": "forecast", **CHURN}))
    shop = small_shop()
    for path in (tmp_path / "churn.yaml", str(tmp_path / "churn.yaml")):
        assert shop.task(path, regenerate=True).spec == Task.from_sql(shop, **CHURN).spec


def test_a_task_by_its_labels(tmp_path: Path) -> None:
    shop = small_shop()
    labels = Task.from_sql(shop, **CHURN).label_rows("train")
    fields = {name: value for name, value in CHURN.items() if name != "sql"}
    pq.write_table(labels, tmp_path / "labels.parquet")
    specs = [
        shop.task(fields, labels=given).spec
        for given in (
            labels,
            labels.to_pandas(),
            tmp_path / "labels.parquet",
            str(tmp_path / "labels.parquet"),
        )
    ]
    assert all(spec == specs[0] for spec in specs)
    assert specs[0].kind == "external"


@pytest.mark.parametrize("definition", [3, ["churn"], b"churn", True])
def test_a_task_of_a_wrong_type_is_refused(definition: Any) -> None:
    with pytest.raises(UsageError, match=r"error\[C02\] the task is of type "):
        small_shop().task(definition)


def test_what_else_is_refused_as_a_task() -> None:
    shop = small_shop()
    with pytest.raises(UsageError, match=r"error\[C02\] no task is given"):
        shop.task()
    with pytest.raises(UsageError, match=r'error\[C02\] the task "churn" is given by name'):
        shop.task("churn", sql="SELECT 1")
    with pytest.raises(UsageError, match=r"error\[C02\]"):
        shop.task(CHURN, labels=3)
    with pytest.raises(TaskError, match=r'unknown .*"sqll"'):
        shop.task({**CHURN, "sqll": "SELECT 1"})
    with pytest.raises(QuartetError):
        shop.task("no-such-task")
