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
NOISE = 0.05  # of the customers do the opposite, so that no model stops at the first perfect one


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


def bad_orders(rng_seed: int = 0, per_window: int = 150, windows: int = 8, is_cause: bool = True) -> Task:
    """Customers who join in a window of ten days and order five times in it; for half of them one order is bad.

    Who had a bad order complains in the next window, and hardly anybody else does: the cause is one row, and known. If
    it is no cause, customers complain by lot.
    """
    rng = np.random.default_rng(rng_seed)
    count = windows * per_window
    begin = START + WINDOW * DAY * np.repeat(np.arange(windows), per_window)
    customer, is_bad = np.repeat(np.arange(count), ORDERS), rng.random(count) < 0.5
    place, bad = np.tile(np.arange(ORDERS), count), rng.integers(0, ORDERS, count)
    is_angry = is_bad ^ (rng.random(count) < NOISE) if is_cause else rng.random(count) < 0.5
    angry = np.flatnonzero(is_angry)

    def within(first: Any) -> pa.Array:
        return pa.array(
            first + (rng.uniform(0.5, WINDOW - 0.5, len(first)) * DAY).astype(np.int64), pa.timestamp("ns")
        )

    tables = {
        "customers": pa.table({"customer": np.arange(count), "joined": pa.array(begin, pa.timestamp("ns"))}),
        "orders": pa.table(
            {
                "order": np.arange(len(customer)),
                "customer": customer,
                "bought": within(begin[customer]),
                "state": np.where(is_bad[customer] & (place == bad[customer]), "bad", "good"),
                "amount": rng.gamma(2.0, 10.0, len(customer)),
            }
        ),
        "complaints": pa.table(
            {
                "complaint": np.arange(len(angry)),
                "customer": angry,
                "at": within(begin[angry] + WINDOW * DAY),
            }
        ),
    }
    link = (ForeignKey(("customer",), "customers"),)
    schema = Schema(
        {
            "customers": TableSchema(("customer",), (), TimeColumn("joined"), settled=FACTS),
            "orders": TableSchema(("order",), link, TimeColumn("bought"), settled=FACTS),
            "complaints": TableSchema(("complaint",), link, TimeColumn("at"), settled=FACTS),
        },
        name="bad orders",
    )
    end = START + windows * WINDOW * DAY
    return Task.from_sql(
        Database.build(tables, schema),
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
            SELECT t.timestamp, c.customer, CAST(COUNT(x.complaint) > 0 AS BIGINT) AS complains
            FROM timestamps t JOIN customers c
                ON c.joined >= t.timestamp - INTERVAL '{timedelta}' AND c.joined < t.timestamp
            LEFT JOIN complaints x ON x.customer = c.customer
                AND x.at > t.timestamp AND x.at <= t.timestamp + INTERVAL '{timedelta}'
            GROUP BY t.timestamp, c.customer
        """,
    )


def fitted(task: Task, name: str, **settings: Any) -> Checkpoint:
    """A model that has learned."""
    recipe = Recipe.load("small", model=name, **settings)
    data = TrainingData.prepare(task, recipe)
    found = model_row(name).model_class.fit(data)
    return Checkpoint(
        found.model,
        recipe,
        data.output,
        data.features.statistics,
        TaskRecord.of(task),
        0,
        found.best.validation,
    )


def planted_rows(task: Task, time: int) -> dict[str, str]:
    """The bad order of each customer who is asked about at a time and has one, by key."""
    orders = task.full_database["orders"]
    found = {}
    for order, customer, state, known in zip(
        *(orders.data[name].to_pylist() for name in ("order", "customer", "state")),
        orders.known_at,
        strict=True,
    ):
        if state == "bad" and time - WINDOW * DAY < known <= time:
            found[str(customer)] = str(order)
    return found
