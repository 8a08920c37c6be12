"""A shop that fits on a page, for the words, errors and times of queries.

cities        customers C1..C3, joined on days 0, 10, 20       visits (of nobody)
    ^              ^      ^
    +- city        |      | payer                 products 1, 2
          customer |      |                          ^
                 orders, on days 1, 2, ...           | product
                    ^ order                          |
                    +------------- items ------------+      known with their order, at the end of the day
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from quartet.database import FACTS, Database, ForeignKey, TableSchema, TimeColumn
from quartet.database.schema import Schema

DAY = 86_400 * 10**9
START = int(np.datetime64("2024-01-01", "ns").astype(np.int64))


def days(*places: float | None) -> pa.Array:
    return pa.array([None if p is None else START + int(p * DAY) for p in places], pa.timestamp("ns"))


def at(place: float) -> int:
    return START + int(place * DAY)


TABLES = {
    "cities": pa.table({"id": [1, 2], "name": ["Bonn", "Köln"]}),
    "customers": pa.table(
        {
            "id": ["C1", "C2", "C3"],
            "joined": days(0, 10, 20),
            "age": [30, None, 50],
            "city": [1, 2, None],
            "tags": [["a"], [], ["b"]],
        }
    ),
    "orders": pa.table(
        {
            "id": range(8),
            "customer": ["C1", "C1", "C2", "C1", "C2", "C1", None, "C3"],
            "payer": ["C1", "C2", "C2", "C1", "C1", "C1", "C3", "C3"],
            "placed": days(1, 5, 11, 12, 22, 22, 23, 40),
            "loaded": days(1, 9, 11, 12, 22, 30, 23, 40),
            "amount": [1.0, 2.0, None, float("nan"), 5.0, 6.0, 7.0, 8.0],
            "status": ["new", "sent", None, "new", "sent", "sent", "new", "new"],
            "is_gift": [True, False, None, True, False, True, False, True],
        }
    ),
    "items": pa.table(
        {"order": [0, 0, 1, 3, 5, 7], "product": [1, 2, 1, 1, 2, 2], "on": days(1, 1, 5, 12, 22, 40)}
    ),
    "products": pa.table({"id": [1, 2], "price": [10, 20]}),
    "visits": pa.table({"text": ["a", "b"], "seen": days(1, 2)}),
}


def shop(available_at: str | None = None, end_of: str | None = None) -> Database:
    """The shop; orders may be available later than they were placed, items at the end of their day."""

    def said(key: str, time: TimeColumn | None = None, **links: str) -> TableSchema:
        keys = tuple(ForeignKey((column,), table) for column, table in links.items())
        return TableSchema((key,) if key else (), keys, time, settled=FACTS)

    orders = said("id", TimeColumn("placed"), customer="customers", payer="customers")
    schema = {
        "cities": said("id"),
        "customers": said("id", TimeColumn("joined"), city="cities"),
        "orders": TableSchema(
            orders.primary_key, orders.foreign_keys, orders.time, available_at, settled=FACTS
        ),
        "items": said("", TimeColumn("on", end_of=end_of), order="orders", product="products"),
        "products": said("id"),
        "visits": said(""),
    }
    return Database.build(TABLES, Schema(schema, name="shop"))
