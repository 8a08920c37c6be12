"""Models of the whole box on the small shop, bound to it: trees that have learned, and networks with random weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from quartet.config import Recipe
from quartet.database import FACTS, Database, ForeignKey, Schema, TableSchema, TimeColumn
from quartet.listener import SILENT
from quartet.registry import model_row
from quartet.runs import Checkpoint, LiveModel
from quartet.tasks import Task, TaskRecord
from quartet.times import DAY
from quartet.training import TrainingData
from tests.trained import SIZES

START = 19_000 * DAY
ORDERS = 5  # of each customer and window
WINDOW = 10  # days


def untrained(task: Task, name: str, **settings: Any) -> Checkpoint:
    """A model of the box: trees that have learned, networks with random weights."""
    sizes = {} if name == "lightgbm" else SIZES
    if name in ("tower", "auto"):
        sizes = {key: value for key, value in SIZES.items() if key not in ("local_budget",)}
    recipe = Recipe.load("small", model=name, **(sizes | {"time_limit": None} | settings))
    data = TrainingData.prepare(task, recipe)
    kind = model_row(name).model_class
    model = kind.new(data, recipe) if hasattr(kind, "new") else kind.fit(data).model
    if hasattr(model, "eval"):
        model.eval()
    return Checkpoint(
        model, recipe, data.output, data.features.statistics, TaskRecord.of(task), 0, float("nan")
    )


def bound(database: Database, *members: Checkpoint, labels: pa.Table | None = None) -> LiveModel:
    return LiveModel(members, database, labels, "cpu", SILENT)


def bad_orders(rng_seed: int = 0, num_customers: int = 300, windows: int = 8) -> Task:
    """Customers with five orders in each window of ten days; one of them is bad for half of the customers.

    Who had a bad order complains in the next window, and nobody else does: the cause is one row, and known.
    """
    rng = np.random.default_rng(rng_seed)
    keys = np.arange(num_customers)
    is_bad = rng.random((windows, num_customers)) < 0.5
    rows: dict[str, list[Any]] = {"order": [], "customer": [], "bought": [], "state": [], "amount": []}
    complaints: dict[str, list[Any]] = {"complaint": [], "customer": [], "at": []}
    for window in range(windows):
        begin = START + window * WINDOW * DAY
        bad = rng.integers(0, ORDERS, num_customers)
        for customer in keys.tolist():
            for place in range(ORDERS):
                rows["order"].append(len(rows["order"]))
                rows["customer"].append(customer)
                rows["bought"].append(begin + int(rng.uniform(0.5, WINDOW - 0.5) * DAY))
                rows["state"].append("bad" if is_bad[window, customer] and bad[customer] == place else "good")
                rows["amount"].append(float(rng.gamma(2.0, 10.0)))
            if window and is_bad[window - 1, customer]:
                complaints["complaint"].append(len(complaints["complaint"]))
                complaints["customer"].append(customer)
                complaints["at"].append(begin + int(rng.uniform(0.5, WINDOW - 0.5) * DAY))
    tables = {
        "customers": pa.table({"customer": keys}),
        "orders": pa.table(rows),
        "complaints": pa.table(complaints),
    }
    for name, column in (("orders", "bought"), ("complaints", "at")):
        times = tables[name][column].cast(pa.timestamp("ns"))
        tables[name] = tables[name].set_column(tables[name].column_names.index(column), column, times)
    link = (ForeignKey(("customer",), "customers"),)
    schema = Schema(
        {
            "customers": TableSchema(("customer",), settled=FACTS),
            "orders": TableSchema(("order",), link, TimeColumn("bought"), settled=FACTS),
            "complaints": TableSchema(("complaint",), link, TimeColumn("at"), settled=FACTS),
        },
        name="bad orders",
    )
    database = Database.build(tables, schema)
    end = START + windows * WINDOW * DAY
    return Task.from_sql(
        database,
        name="complains",
        entity_table="customers",
        target_col="complains",
        entity_col="customer",
        time_col="timestamp",
        task_type="binary_classification",
        timedelta=f"{WINDOW} days",
        num_eval_timestamps=1,
        val_timestamp=str(np.datetime64(end - 2 * WINDOW * DAY, "ns")),
        test_timestamp=str(np.datetime64(end - WINDOW * DAY, "ns")),
        sql="""
            SELECT t.timestamp, c.customer,
                   CAST(COUNT(x.complaint) > 0 AS BIGINT) AS complains
            FROM timestamps t CROSS JOIN customers c
            LEFT JOIN complaints x ON x.customer = c.customer
                AND x.at > t.timestamp AND x.at <= t.timestamp + INTERVAL '{timedelta}'
            GROUP BY t.timestamp, c.customer
        """,
    )
