"""Definitions and SQL that make no task are refused where they are read, each with a code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml

from quartet.database import Database
from quartet.errors import DataError, TaskError, UsageError
from quartet.runs import fit
from quartet.tasks import Task
from tests.tasks.small import CHURN, CHURN_SQL, DAY, small_shop
from tests.trained import Heard, run, write_shop

LABEL = "CAST(COUNT(*) FILTER (WHERE o.bought > t.timestamp) = 0 AS BIGINT)"


@pytest.fixture(scope="module")
def shop() -> Database:
    return small_shop()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"eval_k": "abc"}, "C01] the task: eval_k is 'abc'"),
        ({"eval_k": float("inf")}, "C01] the task: eval_k is inf"),
        ({"num_eval_timestamps": -1}, "C01] the task: num_eval_timestamps is -1"),
        ({"num_eval_timestamps": 2.5}, "C01] the task: num_eval_timestamps is 2.5"),
        ({"remove_columns": ["abc"]}, "C01] the task: remove_columns is ['abc']"),
        ({"timedelta": "1 ns"}, "C01] the task: timedelta is 1 ns"),
        ({"timedelta": "1 us"}, 'T13] task "churn": the data span 25,833,600,000,000 windows of 00:00:00.000001'),
        ({"timedelta": ["1 day"]}, "C01] the task: timedelta is ['1 day']"),
        ({"name": "a\0b"}, "C01] the task: name is 'a\\x00b'"),
        ({"name": True}, "C01] the task: name is True"),
        ({"target_col": "customer"}, "L01] the task: time_col, entity_col and target_col are timestamp, customer, "),
        ({"kind": "autocomplete", "entity_table": "orders", "target_col": "bought"}, "L02] the target orders.b"),
        ({"entity_table": "orders"}, "S08] "),
    ],
)  # fmt: skip
def test_definitions(changes: dict[str, Any], says: str, shop: Database) -> None:
    with pytest.raises(DataError) as caught:
        Task.load(shop, {"kind": "forecast", **CHURN, **changes}).seeds("train")
    assert str(caught.value).startswith(f"error[{says}")


@pytest.mark.parametrize("task_type", ["binary_classification", "regression", "multiclass_classification"])
@pytest.mark.parametrize("label", ["[1, 2]", "{'a': 1}", "map {'a': 1}", "INTERVAL 1 day"])
def test_labels_that_are_no_values(label: str, task_type: str, shop: Database) -> None:
    sql = CHURN_SQL.replace(LABEL, label)
    with pytest.raises(TaskError) as caught:
        Task.from_sql(shop, **(CHURN | {"sql": sql, "task_type": task_type})).seeds("train")
    assert caught.value.code in ("L07", "L12")


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("SELECT t.timestamp,", "SELECT t.timestamp, t.timestamp,", "L12"),
        ("o.customer AS customer", "[o.customer] AS customer", "L12"),
        ("o.customer AS customer", "1 AS customer", "S08"),
        ("SELECT t.timestamp,", "SELECT {'a': 1} AS timestamp,", "L12"),
    ],
)
def test_columns_that_are_no_columns(old: str, new: str, code: str, shop: Database) -> None:
    with pytest.raises(DataError) as caught:
        Task.from_sql(shop, **(CHURN | {"sql": CHURN_SQL.replace(old, new)})).seeds("train")
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("changes", "settings", "says"),
    [
        ({"sql": CHURN_SQL.replace(LABEL, "1")}, {}, "L05] all 829 training labels are 1. A classifier cannot"),
        ({"sql": CHURN_SQL.replace(LABEL, "'x'"), "task_type": "multiclass_classification"}, {},
         "L05] all 829 training labels are x. A classifier cannot"),
        ({"sql": CHURN_SQL + " LIMIT 0"}, {}, "L05] there are no training labels"),
        ({"sql": CHURN_SQL + " LIMIT 0", "task_type": "regression"}, {}, "L05] there are no training labels. A model"),
        ({}, {"validation_seeds": 1}, "L06] no model can be selected by the roc_auc of validation: n/a (only class "),
    ],
)  # fmt: skip
def test_labels_that_carry_no_model(
    changes: dict[str, Any], settings: dict[str, Any], says: str, shop: Database, tmp_path: Path
) -> None:
    """Whether in a check or in `fit`, it is said before any work."""
    task, heard = Task.from_sql(shop, **(CHURN | changes)), Heard()
    with pytest.raises(TaskError) as caught:
        fit(task, runs=tmp_path, listener=heard, **settings)
    assert str(caught.value).startswith(f"error[{says}")
    assert (heard.begun, list(tmp_path.iterdir())) == ([], [])


def test_items_that_no_link_leads_to_are_not_recommended(shop: Database, tmp_path: Path) -> None:
    words = CHURN | {
        "task_type": "recommendation", "sql": CHURN_SQL.replace(LABEL, "[1, 2]"), "src_entity_table": "customers",
        "src_entity_col": "customer", "dst_entity_table": "orders",
    }  # fmt: skip
    task = Task.from_sql(shop, **words)
    assert np.diff(task.seeds("train").target.offsets).tolist() == [2] * 829  # type: ignore[union-attr]
    with pytest.raises(UsageError, match=r"C01.*\"hgt\" ranks no items.*--model"):
        fit(task, "hgt", runs=tmp_path, listener=Heard())
    assert list(tmp_path.iterdir()) == []


def test_early_seeds_are_left_out_in_training_and_ever_after(tmp_path: Path) -> None:
    """T05 names an option of the verb that failed, and a run remembers that it was given."""
    source, task, runs = write_shop(tmp_path / "shop"), tmp_path / "big.yaml", tmp_path / "runs"
    orders = pq.read_table(source / "orders.parquet")
    bought = pc.cast(orders["bought"], pa.int64()).to_numpy() + DAY * (np.arange(len(orders)) > 0) - 1
    big = pc.greater(orders["amount"], 20).cast(pa.int64())
    pq.write_table(
        pa.table([orders["order"], bought.astype("M8[ns]"), big], names=["o", "at", "big"]),
        tmp_path / "l.parquet",
    )
    words = {
        "name": "big",
        "kind": "external",
        "task_type": "binary_classification",
        "entity_table": "orders",
    }
    words |= {"entity_col": "o", "time_col": "at", "target_col": "big", "labels": "l.parquet"}
    task.write_text(yaml.safe_dump(words))
    train = ("train", source, task, "--model", "lightgbm", "--runs", runs)
    refused = run(*train)
    assert refused.returncode == 3
    assert "T05" in refused.stderr
    assert "--drop-early" in refused.stderr
    assert run(*train, "--drop-early").returncode == 0
    assert run("evaluate", runs / "latest").returncode == 0
