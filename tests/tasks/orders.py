"""1,500 orders of 60 customers over 1,000 days, columns of them that are honest, and columns filled in later."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from quartet.database import FACTS, Database, ForeignKey, TableSchema, TimeColumn
from quartet.database.schema import Schema
from quartet.tasks import Task
from tests.tasks.small import DAY, START

NUM, DAYS = 1500, 1000
RNG = np.random.default_rng(3)
CREATED = np.sort(RNG.integers(0, DAYS * 24, NUM)) * (DAY // 24)
IS_RETURNED = RNG.random(NUM) < 0.3
KEPT = RNG.integers(3, 40, NUM)  # days
HAS_SHIPPED = CREATED + 9 * DAY < DAYS * DAY
HAS_COME_BACK = IS_RETURNED & (CREATED + KEPT * DAY < DAYS * DAY)


def dates(days: np.ndarray, there: np.ndarray | None = None) -> pa.Array:
    return pa.array(START + days, pa.timestamp("ns"), mask=None if there is None else ~there)


CLEAN: dict[str, Any] = {
    "due": dates(CREATED + 28 * DAY),  # planned: it goes beyond the end of the data
    "priced_on": dates(CREATED // DAY * DAY),
    "discount": pa.array(RNG.random(NUM), mask=RNG.random(NUM) < 0.6),
    "channel": pa.array(RNG.choice(["web", "shop"], NUM), mask=CREATED < 500 * DAY),  # since some day
    "size": pa.array(RNG.integers(1, 9, NUM)),
}
PLANTED: dict[str, Any] = {
    "shipped": dates(CREATED + KEPT // 4 * DAY + DAY, HAS_SHIPPED),
    "shipped_text": pa.array(
        np.datetime_as_string((START + CREATED + 9 * DAY).astype("datetime64[ns]"), "s"), mask=~HAS_SHIPPED
    ),
    # written down two days after the last order
    "arrived": dates(CREATED + 9 * DAY, CREATED + 7 * DAY < DAYS * DAY),
    "returned_at": dates(CREATED + KEPT * DAY, HAS_COME_BACK),
    "status": pa.array(np.where(HAS_COME_BACK, "returned", np.where(HAS_SHIPPED, "shipped", "open"))),
    "days_kept": pa.array(KEPT, mask=~HAS_COME_BACK),
    "invoice": pa.array(np.arange(NUM), mask=~HAS_SHIPPED),
}


def orders(**columns: Any) -> Database:
    own = {"id": range(NUM), "customer": RNG.integers(0, 60, NUM), "created": dates(CREATED)}
    links = [ForeignKey(("customer",), "customers")]
    born = dates(-RNG.integers(7000, 20_000, 60) * DAY)
    tables = {"customers": pa.table({"id": range(60), "born": born}), "orders": pa.table({**own, **columns})}
    said = {"customers": TableSchema(("id",), settled=FACTS)}
    if "invoice" in columns:
        links.append(ForeignKey(("invoice",), "invoices"))
        tables["invoices"] = pa.table({"id": range(NUM), "at": dates(CREATED + 9 * DAY)})
        said["invoices"] = TableSchema(("id",), time=TimeColumn("at"), settled=FACTS)
    said["orders"] = TableSchema(("id",), tuple(links), TimeColumn("created"), settled=FACTS)
    return Database.build(tables, Schema(said))


def returns(database: Database) -> Task:
    """Whether an order will be returned, asked at its creation."""
    labels = pa.table({"id": range(NUM), "at": dates(CREATED), "returned": IS_RETURNED.astype(int)})
    return Task.from_labels(
        database, labels, name="returns", task_type="binary_classification", entity_table="orders",
        entity_col="id", time_col="at", target_col="returned", timedelta="40 days",
    )  # fmt: skip
