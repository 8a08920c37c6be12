"""A small shop for the tests of tasks: 40 customers, one order each on some days of 2023."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import yaml

from quartet.database import FACTS, Database, ForeignKey, TableSchema, TimeColumn
from quartet.database.schema import Schema
from quartet.tasks import Task, write_relbench

DAY = 86_400 * 10**9
START = int(np.datetime64("2023-01-01", "ns").astype(np.int64))
NUM_DAYS = 300

CHURN_SQL = """
    SELECT t.timestamp, o.customer AS customer,
           CAST(COUNT(*) FILTER (WHERE o.bought > t.timestamp) = 0 AS BIGINT) AS churned
    FROM timestamps t
    JOIN orders o ON o.bought > t.timestamp - INTERVAL '30 days'
                 AND o.bought <= t.timestamp + INTERVAL '{timedelta}'
    GROUP BY t.timestamp, o.customer
    HAVING MIN(o.bought) <= t.timestamp
"""
CHURN = {
    "name": "churn",
    "task_type": "binary_classification",
    "entity_table": "customers",
    "entity_col": "customer",
    "target_col": "churned",
    "time_col": "timestamp",
    "timedelta": "10 days",
    "sql": CHURN_SQL,
}


def write_small_shop(folder: Path) -> Path:
    """The small shop as a RelBench folder with the task churn, as a user would have it."""
    write_relbench(small_shop(), folder)
    manifest = folder / "tasks" / "churn" / "manifest.yaml"
    manifest.parent.mkdir(parents=True)
    manifest.write_text(yaml.safe_dump({**CHURN, "kind": "forecast", "manifest_version": 1}))
    return folder


def small_shop(rng_seed: int = 0, **extra_customer_columns: object) -> Database:
    """Customers C00..C39, known from the start, who order on random days with their own rates."""
    rng = np.random.default_rng(rng_seed)
    names = [f"C{k:02d}" for k in range(40)]
    rate = rng.uniform(0.02, 0.25, 40)
    orders = [(names[c], day) for day in range(NUM_DAYS) for c in range(40) if rng.random() < rate[c]]
    customers = {"customer": names, "age": rng.integers(18, 80, 40), **extra_customer_columns}
    tables = {
        "customers": pa.table(customers),
        "orders": pa.table(
            {
                "order": np.arange(len(orders)),
                "customer": [name for name, _ in orders],
                "bought": pa.array([START + DAY * day for _, day in orders], pa.timestamp("ns")),
                "amount": rng.gamma(2.0, 10.0, len(orders)),
            }
        ),
    }
    schema = Schema(
        {
            "customers": TableSchema(("customer",), settled=FACTS),
            "orders": TableSchema(
                ("order",), (ForeignKey(("customer",), "customers"),), TimeColumn("bought"), settled=FACTS
            ),
        },
        name="small",
    )
    return Database.build(tables, schema)


def growing_shop() -> Task:
    """Churn in a small shop where a customer joins every nine days, asked at four times of validation and of test."""
    shop = small_shop()
    joined = pa.array(START + DAY * np.maximum(0, np.arange(40) - 8) * 9, pa.timestamp("ns"))
    customers = shop["customers"].data.append_column("joined", joined)
    schema = replace(shop.schema.tables["customers"], time=TimeColumn("joined"))
    database = Database.build(
        {"customers": customers, "orders": shop["orders"].data},
        replace(shop.schema, tables={**shop.schema.tables, "customers": schema}),
    )
    sql = """
        SELECT t.timestamp, c.customer, CAST(COUNT(o."order") = 0 AS BIGINT) AS churned
        FROM timestamps t JOIN customers c ON c.joined <= t.timestamp LEFT JOIN orders o ON o.customer = c.customer
        AND o.bought > t.timestamp AND o.bought <= t.timestamp + INTERVAL '{timedelta}' GROUP BY ALL
    """
    return Task.from_sql(database, **(CHURN | {"sql": sql, "num_eval_timestamps": 4}))
