"""Orders whose customer is to be filled in: 130 customers, 12 shops in 4 towns, and who visited which shop.

    customers <- orders -> shops -> towns
    customers <- visits -> shops
    customers <- friends -> customers

A customer orders at the same two shops through the same channel, mostly. One shop becomes known after its first orders.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from quartet.database import FACTS, Database, ForeignKey, TableSchema, TimeColumn
from quartet.database.schema import Schema
from quartet.tasks import Task
from tests.recommend.small import DAY, START, Raw

NUM_CUSTOMERS, NUM_SHOPS, NUM_DAYS, LATE_SHOP = 130, 12, 300, 3
QUERY = "PREDICT orders.customer FOR EACH orders.number"
WHO: dict[str, Any] = {
    "name": "who",
    "kind": "autocomplete",
    "task_type": "recommendation",
    "entity_table": "orders",
    "target_col": "customer",
    "dst_entity_table": "customers",
    "eval_k": 5,
    "known_after": "3 days",
    "val_timestamp": "2023-08-01",
    "test_timestamp": "2023-09-15",
}


def raw_orders(rng_seed: int = 0, per_day: int = 5) -> Raw:
    rng = np.random.default_rng(rng_seed)
    joined = np.sort(rng.integers(0, 250, NUM_CUSTOMERS)) * (np.arange(NUM_CUSTOMERS) > 40)
    liked = rng.integers(0, NUM_SHOPS, (NUM_CUSTOMERS, 2))
    channel = rng.choice(["web", "phone", "desk"], NUM_CUSTOMERS)
    orders, visits = [], []
    for day in range(NUM_DAYS):
        for _ in range(per_day):
            who = int(rng.integers(0, np.searchsorted(joined, day, side="right")))
            shop = int(rng.choice(liked[who])) if rng.random() < 0.9 else int(rng.integers(NUM_SHOPS))
            way = str(channel[who]) if rng.random() < 0.9 else "web"
            amount = None if rng.random() < 0.05 else float(np.round(10 * (1 + who % 7) + rng.normal(), 2))
            orders.append((day, shop, way if rng.random() < 0.97 else None, who, amount))
            if rng.random() < 0.3:
                visits.append((day, int(rng.choice(liked[who])), who))

    def days(values: Any) -> pa.Array:
        return pa.array(START + DAY * np.asarray(list(values)), pa.timestamp("ns"))

    opened = [40 * (shop == LATE_SHOP) for shop in range(NUM_SHOPS)]
    tables = {
        "towns": pa.table({"town": ["N", "E", "S", "W"]}),
        "shops": pa.table(
            {
                "shop": [f"S{n:02d}" for n in range(NUM_SHOPS)],
                "opened": days(opened),
                "town": [["N", "E", "S", "W"][n % 4] for n in range(NUM_SHOPS)],
            }
        ),
        "customers": pa.table(
            {
                "customer": [f"C{n:03d}" for n in range(NUM_CUSTOMERS)],
                "name": [f"Customer {n}" for n in range(NUM_CUSTOMERS)],
                "joined": days(joined),
            }
        ),
        "orders": pa.table(
            {
                "number": np.arange(len(orders)),
                "placed": days(order[0] for order in orders),
                "shop": [f"S{order[1]:02d}" for order in orders],
                "channel": [order[2] for order in orders],
                "amount": [order[4] for order in orders],
                "customer": [f"C{order[3]:03d}" for order in orders],
            }
        ),
        "visits": pa.table(
            {
                "visit": np.arange(len(visits)),
                "at": days(visit[0] for visit in visits),
                "shop": [f"S{visit[1]:02d}" for visit in visits],
                "customer": [f"C{visit[2]:03d}" for visit in visits],
            }
        ),
        "friends": pa.table(
            {
                "since": days(rng.integers(0, NUM_DAYS, NUM_CUSTOMERS)),
                "one": [f"C{n:03d}" for n in range(NUM_CUSTOMERS)],
                "other": [f"C{n:03d}" for n in rng.permutation(NUM_CUSTOMERS)],
            }
        ),
    }
    shop, customer = ForeignKey(("shop",), "shops"), ForeignKey(("customer",), "customers")
    schema = {
        "towns": TableSchema(("town",), settled=FACTS),
        "shops": TableSchema(
            ("shop",), (ForeignKey(("town",), "towns"),), TimeColumn("opened"), settled=FACTS
        ),
        "customers": TableSchema(("customer",), (), TimeColumn("joined"), settled=FACTS),
        "orders": TableSchema(("number",), (shop, customer), TimeColumn("placed"), settled=FACTS),
        "visits": TableSchema(("visit",), (shop, customer), TimeColumn("at"), settled=FACTS),
    }
    both = ForeignKey(("one",), "customers"), ForeignKey(("other",), "customers")
    schema["friends"] = TableSchema((), both, TimeColumn("since"), settled=FACTS)
    return tables, Schema(schema, name="orders")


def orders(rng_seed: int = 0) -> Database:
    return Database.build(*raw_orders(rng_seed))


def who(**changes: Any) -> Task:
    return Task.load(orders(), {**WHO, **changes})


def write_orders(folder: Path) -> Path:
    """The orders as a folder of files with a schema file, and beside it the task who.yaml."""
    folder.mkdir(parents=True)
    tables, schema = raw_orders()
    for name, table in tables.items():
        pq.write_table(table, folder / f"{name}.parquet")
    told = {
        name: {
            "pkey": said.primary_key[0] if said.primary_key else None,
            "time_col": said.time.column if said.time else None,
            "fkeys": {fk.columns[0]: fk.table for fk in said.foreign_keys},
        }
        for name, said in schema.tables.items()
    }
    (folder / "quartet.yaml").write_text(yaml.safe_dump({"name": "orders", "tables": told}))
    (folder.parent / "who.yaml").write_text(yaml.safe_dump(WHO))
    return folder
