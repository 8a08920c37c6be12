"""Columns and links in plain words."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest

from quartet.database import Database, Schema
from quartet.features import ColumnWords, FeatureTable, RelationalColumns, column_words, link_words
from quartet.times import DAY
from tests.features.small import table_schema


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1078.4, "1,078"), (999.7, "1,000"), (-999.7, "-1,000"), (148.2, "148"), (0.4351, "0.435"), (12345.6, "12,346"),
        (-0.00001, "0"), (3.0, "3"), (math.nan, "none"),
    ],
)  # fmt: skip
def test_numbers_are_shown_without_powers_of_ten(value: float, shown: str) -> None:
    assert ColumnWords("x").show(value) == shown


def test_a_link_is_named_where_several_lead_to_a_table() -> None:
    tables = {
        "airports": pa.table({"id": [1]}),
        "planes": pa.table({"id": [1]}),
        "flights": pa.table({"id": [1], "origin_id": [1], "destId": [1], "plane_id": [1]}),
        "weather": pa.table({"id": [1], "spot": [1], "spot_id": [1]}),
        "known_labels": pa.table({"id": [1], "entity": [1]}),
    }
    schemas = {
        "airports": table_schema("id"),
        "planes": table_schema("id"),
        "flights": table_schema("id", origin_id="airports", destId="airports", plane_id="planes"),
        "weather": table_schema("id", spot="airports", spot_id="airports"),
        "known_labels": table_schema("id", entity="airports"),
    }
    relations = Database.build(tables, Schema(schemas)).relations
    told = {
        (each.table, each.foreign_key.label): (
            link_words(each, relations),
            link_words(each, relations, to_parent=True),
        )
        for each in relations
    }
    assert told == {
        ("flights", "origin_id"): ("flights by origin", "airports by origin"),
        ("flights", "destId"): ("flights by dest", "airports by dest"),
        ("flights", "plane_id"): ("flights", "planes"),
        ("weather", "spot"): ("weather by spot", "airports by spot"),  # "spot" would be both
        ("weather", "spot_id"): ("weather by spot_id", "airports by spot_id"),
        ("known_labels", "entity"): ("past labels", "airports"),
    }


@pytest.mark.parametrize(
    ("unit", "told"),
    [
        (DAY, ["day", "2 days", "4 days", "12 days", "50 days"]),
        (DAY // 8, ["3 hours", "6 hours", "12 hours", "36 hours", "150 hours"]),
        (DAY // 24, ["hour", "2 hours", "4 hours", "12 hours", "50 hours"]),
        (DAY // 24 // 60 * 27, ["27 minutes", "54 minutes", "108 minutes", "324 minutes", "1350 minutes"]),
    ],
)
def test_windows_are_said_as_people_say_them(unit: int, told: list[str]) -> None:
    tables = {
        "shops": pa.table({"id": [1]}),
        "sales": pa.table({"shop": [1], "at": pa.array([DAY], pa.timestamp("ns"))}),
    }
    schema = Schema({"shops": table_schema("id"), "sales": table_schema(None, "at", shop="shops")})
    database = Database.build(tables, schema)
    columns = RelationalColumns.of(database, "shops", FeatureTable.fit(database, DAY), horizon=unit)
    words = [each.words for each in column_words(columns).values()]
    assert [f"sales in the last {window}" in words for window in told] == [True] * 5
    assert f"all sales in the last {told[1]}, as a part of those in the last {told[2]}" in words
