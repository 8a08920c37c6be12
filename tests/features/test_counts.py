"""Counts of visible links, by hand. That no future changes them is in `test_causality.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from quartet.database import FACTS, Database, ForeignKey, TableSchema, TimeColumn
from quartet.database.schema import Schema
from quartet.features import FeatureTable, SeedColumns
from quartet.tasks import Seeds
from quartet.times import DAY, NEVER
from tests.features.small import one_table
from tests.shop import day, shop


def counts(database: Database, table: str, row: int, time: int) -> dict[str, Any]:
    columns = SeedColumns.of(database, table, FeatureTable.fit(database, NEVER))
    cells = columns.of_seeds(Seeds(np.array([database.offsets[table] + row]), np.array([time]), None))
    return {name: column[0].item() for name, column in cells.items()}


def test_a_customer_of_the_shop() -> None:
    """Customer 101 on day 5: orders 1, 4, 7 as buyer, 1 and 2 as recipient, two visits, and 102 referred."""
    cells = counts(shop(), "customers", 0, day(5))
    shown = {name: value for name, value in cells.items() if name.endswith((": all", ": days since"))}
    assert shown == {
        "customers.referred_by -> customers: all": 1,
        "customers.referred_by -> customers: days since": 3.0,
        "orders.buyer -> customers: all": 3,
        "orders.buyer -> customers: days since": 0.0,
        "orders.recipient -> customers: all": 2,
        "orders.recipient -> customers: days since": 3.0,
        "visits.who -> customers: all": 2,
        "visits.who -> customers: days since": 4.0,
        "any: all": 8,
        "any: days since": 0.0,
    }
    assert cells["customers.country -> countries: named"] is True
    assert cells["customers.referred_by -> customers: named"] is False


def test_a_row_counts_when_it_and_the_entity_are_known() -> None:
    """Order 5 of day 4 is about a pot that is added on day 7: the link is of that day."""
    cells = counts(shop(), "products", 2, day(8))
    assert cells["orders.product -> products: all"] == 1
    assert cells["orders.product -> products: days since"] == 1.0


def test_a_row_that_names_itself_or_nothing_has_no_link() -> None:
    """103 names itself, 104 a country that is not there, 105 someone who comes two days later."""
    assert counts(shop(), "customers", 2, day(9))["customers.referred_by -> customers: all"] == 0
    assert counts(shop(), "customers", 3, day(9))["customers.country -> countries: named"] is False
    named = "customers.referred_by -> customers: named"
    assert [counts(shop(), "customers", 4, day(n))[named] for n in (6, 7, 8)] == [False, False, True]


def test_a_table_without_links_has_empty_counts() -> None:
    alone = one_table({"id": [1]}, primary_key=("id",))
    cells = counts(alone, "t", 0, day(0))
    windows = ("all", "30 days", "90 days", "365 days", "days since")
    assert {name for name in cells if ":" in name} == {f"any: {what}" for what in windows}
    assert cells["any: all"] == 0
    assert np.isnan(cells["any: days since"])


def sales_at(*times: int | None) -> Database:
    """One thing and its sales, at these times; without a time in a table without times."""
    is_timed = times[0] is not None
    columns: dict[str, Any] = {"id": range(len(times)), "thing": [1] * len(times)}
    if is_timed:
        columns["at"] = pa.array(times, pa.timestamp("ns"))
    sales = TableSchema(("id",), (ForeignKey(("thing",), "things"),), TimeColumn("at") if is_timed else None)
    return Database.build(
        {"things": pa.table({"id": [1]}), "sales": pa.table(columns)},
        Schema({"things": TableSchema(("id",), settled=FACTS), "sales": sales}),
    )


@pytest.mark.parametrize("days", [30, 90, 365])
def test_a_window_ends_now_and_begins_just_after_its_length(days: int) -> None:
    now, edge = day(400), day(400 - days)
    for time, expected in ((edge, 0), (edge + 1, 1), (now, 1), (now + 1, 0)):
        cells = counts(sales_at(time), "things", 0, now)
        assert cells[f"sales.thing -> things: {days} days"] == expected
        assert cells["sales.thing -> things: all"] == (time <= now)


def test_what_was_always_known_is_in_no_window() -> None:
    cells = counts(sales_at(None, None), "things", 0, day(0))
    assert [cells[f"any: {what}"] for what in ("all", "30 days", "365 days")] == [2, 0, 0]
    assert np.isnan(cells["any: days since"])


def test_the_calendar_of_a_seed() -> None:
    """2024-02-29 was a Thursday; the row was a day and a half old at 18:00. No column tells the date."""
    time = int(np.datetime64("2024-02-29T18:00", "ns").astype(np.int64))
    joined = pa.array([time - DAY * 3 // 2], pa.timestamp("ns"))
    schema = Schema({"t": TableSchema(time=TimeColumn("joined"), settled=FACTS)})
    cells = counts(Database.build({"t": pa.table({"joined": joined})}, schema), "t", 0, time)
    assert {name: value for name, value in cells.items() if ":" not in name} == {
        "month": 1, "weekday": 3, "hour": 18.0, "age in days": 1.5
    }  # fmt: skip
    assert np.isnan(counts(one_table({"x": [1]}), "t", 0, time)["age in days"])


def test_the_code_columns_come_first() -> None:
    """LightGBM is told which columns are codes by their number."""
    database = one_table({"age": [0.5, 1.5] * 4, "type": ["a", "b"] * 4}, days=[0] * 8)
    columns = SeedColumns.of(database, "t", FeatureTable.fit(database, NEVER))
    seeds = Seeds(np.arange(8), np.full(8, 60 * DAY), None)
    windows = ("all", "30 days", "90 days", "365 days", "days since")
    assert list(columns.of_seeds(seeds)) == [
        "type (code)", "age (number)", "month", "weekday", "hour", "age in days",
        *(f"any: {what}" for what in windows),
    ]  # fmt: skip
    matrix = columns.matrix(seeds)
    assert (matrix.shape, matrix.dtype) == ((8, 11), np.float32)
    assert matrix[:, 0].tolist() == [2.0, 3.0] * 4
