"""When rows are known: when the row they point to is (`time_from`), or when a period is over (`known_at`)."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from quartet.database import Database, schema_yaml
from quartet.database.schema import CONFIRMED, Schema
from quartet.errors import SchemaError, TimeError, UsageError
from quartet.findings import Level, counted
from quartet.graph import TemporalGraph
from quartet.times import NEVER, parse_instant

SCHEMA = """
tables:
  orders: {pkey: id, time_col: at, fkeys: {}}
  products: {pkey: sku, time_col: null, fkeys: {}}
  lines: {pkey: null, fkeys: {order_id: orders, sku: products}TIME}
  parts: {pkey: id, fkeys: {order_id: orders}, time_from: order_id}
  screws: {pkey: id, fkeys: {part_id: parts}, time_from: part_id}
"""


def shop(tmp_path: Path, time: str, order_of_last: int | None = 2) -> Database:
    frames = {
        "orders": pa.table({"id": [1, 2], "at": ["2024-01-01", "2024-02-01"]}),
        "products": pa.table({"sku": ["a", "b"]}),
        "lines": pa.table({"order_id": [1, 1, order_of_last], "sku": ["a", "b", "a"]}),
        "parts": pa.table({"id": [10, 20], "order_id": [1, 2]}),
        "screws": pa.table({"id": [100], "part_id": [20]}),
    }
    path = tmp_path / "schema.yaml"
    path.write_text(SCHEMA.replace("TIME", time))
    return Database.load(frames, path)


def at(text: str) -> int:
    return parse_instant(text, "test")


def test_rows_take_the_time_of_what_they_point_to(tmp_path: Path) -> None:
    database = shop(tmp_path, ", time_from: order_id")
    assert database["lines"].known_at.tolist() == [at("2024-01-01")] * 2 + [at("2024-02-01")]
    assert database["screws"].known_at.tolist() == [at("2024-02-01")]  # through parts, whose time is orders'
    assert not [finding for finding in database.findings if finding.code == "D02"]


def test_without_it_a_product_would_show_its_future_sales(tmp_path: Path) -> None:
    """Both rows of line and product are always known, so their link is visible at any time."""
    product, early = "products", at("2023-01-01")
    leaking, honest = shop(tmp_path, ", time_col: null"), shop(tmp_path, ", time_from: order_id")
    seen = [
        TemporalGraph.build(database).neighbors(database.offsets[product], early).size
        for database in (leaking, honest)
    ]
    assert seen == [2, 0]
    (finding,) = [finding for finding in leaking.findings if finding.code == "D02"]
    assert (finding.where, finding.count) == ("lines", 3)
    assert finding.fix == "set time_from: order_id for lines in the schema file"


def test_a_row_that_points_nowhere_has_no_time(tmp_path: Path) -> None:
    with pytest.raises(TimeError, match=r"error\[T03\] lines.orders.at is empty in 1 rows"):
        shop(tmp_path, ", time_from: order_id", order_of_last=None)
    kept = shop(tmp_path, ", time_from: order_id, on_missing_time: drop", order_of_last=None)
    assert kept["lines"].num_rows == 2


def test_it_can_be_written_and_read_again(tmp_path: Path) -> None:
    database = shop(tmp_path, ", time_from: order_id")
    assert "time_from: order_id" in schema_yaml(database)
    (tmp_path / "again.yaml").write_text(schema_yaml(database))
    time = Schema.read(tmp_path / "again.yaml").tables["lines"].time
    assert time is not None
    assert time.link == ("order_id",)


@pytest.mark.parametrize(
    ("time", "message"),
    [
        (", time_from: sku", 'takes its time from "products", which has no time itself'),
        (", time_from: order", 'has no link "order" to take its time from (did you mean "order_id"?)'),
    ],
)
def test_what_cannot_give_a_time_is_refused(tmp_path: Path, time: str, message: str) -> None:
    with pytest.raises(TimeError) as caught:
        shop(tmp_path, time)
    assert message in str(caught.value)


# --- when the row that gives the time is known ----------------------------------------------------


def lines_of(orders: dict[str, Any], time: dict[str, Any], lines: dict[str, Any], **entries: Any) -> Database:
    own = {"pkey": None, "fkeys": {"order_id": "orders"}, "time_from": "order_id", **entries}
    schema = {"tables": {"orders": {"pkey": "id", **time}, "lines": own}}
    return Database.load({"orders": pa.table(orders), "lines": pa.table(lines)}, schema)


FEBRUARY = {"id": [1, 2], "at": ["2024-01-01", "2024-02-01"]}


def test_a_row_is_not_known_before_its_parent_is_available() -> None:
    late = {**FEBRUARY, "loaded": ["2024-01-05", "2024-03-01"]}
    database = lines_of(late, {"time_col": "at", "available_at": "loaded"}, {"order_id": [1, 2]})
    assert database["lines"].known_at.tolist() == [at("2024-01-05"), at("2024-03-01")]
    database = lines_of(FEBRUARY, {"time_col": "at", "known_at": "end of month"}, {"order_id": [1, 2]})
    assert database["lines"].known_at.tolist() == [at("2024-02-01"), at("2024-03-01")]


def test_the_zone_of_a_row_is_not_that_of_the_row_it_points_to() -> None:
    """The orders' times are UTC; Paris is where the lines were loaded, half an hour after midnight."""
    lines = {"order_id": [1, 2], "loaded": ["2024-01-01 00:30", "2024-02-01 12:00"]}
    database = lines_of(FEBRUARY, {"time_col": "at"}, lines, timezone="Europe/Paris")
    assert database["lines"].known_at.tolist() == database["orders"].known_at.tolist()
    database = lines_of(FEBRUARY, {"time_col": "at"}, lines, timezone="Europe/Paris", available_at="loaded")
    assert database["lines"].known_at.tolist() == [at("2024-01-01"), at("2024-02-01 11:00")]


@pytest.mark.parametrize("kind", [pa.decimal128(19, 0), pa.float64(), pa.int8(), "dictionary"])
def test_keys_of_other_types_are_the_same_keys(kind: Any) -> None:
    keys = pa.array([2, 1, 2])
    keys = keys.dictionary_encode() if kind == "dictionary" else keys.cast(kind)
    database = lines_of(FEBRUARY, {"time_col": "at"}, {"order_id": keys})
    assert database["lines"].known_at.tolist() == [at("2024-02-01"), at("2024-01-01"), at("2024-02-01")]


def test_keys_that_cannot_be_compared_are_refused() -> None:
    with pytest.raises(SchemaError, match=r"error\[S08\] lines.order_id is text, orders.id is int64"):
        lines_of(FEBRUARY, {"time_col": "at"}, {"order_id": ["1", "2"]})


# --- links that give a time unasked ---------------------------------------------------------------


def open_shop(schema: dict[str, Any] | None = None, **tables: Any) -> Database:
    orders = {"order_id": list(range(10)), "ordered_at": [f"2024-01-{day:02}" for day in range(11, 21)]}
    lines = {"order_id": [n // 2 for n in range(20)], "sku": [n % 4 for n in range(20)]}
    frames = {"orders": orders, "lines": lines, **tables}
    return Database.load({name: pa.table(table) for name, table in frames.items()}, schema)


def test_rows_that_belong_to_dated_rows_take_their_time_unasked(tmp_path: Path) -> None:
    products = {"sku": [0, 1, 2, 3], "created_at": [f"2023-01-0{day}" for day in range(1, 5)]}
    links = {"tables": {"lines": {"fkeys": {"order_id": "orders", "sku": "products.sku"}}}}
    for database in (
        open_shop(links, products=products),
        open_shop(),
    ):  # every order is newer than its products
        time = database["lines"].schema.time
        assert time
        assert (time.link, time.origin.source, time.on_missing) == (("order_id",), "inferred", "error")
        assert database["lines"].known_at.tolist() == [at(f"2024-01-{11 + n // 2}") for n in range(20)]
        assert "D02" not in {finding.code for finding in database.findings}
    assert time.origin.why == "its rows belong to those of orders, by order_id"
    text = schema_yaml(database)
    assert f"    time_from: order_id  # inferred, 80%: {time.origin.why}\n" in text
    (tmp_path / "again.yaml").write_text(text)
    again = Schema.read(tmp_path / "again.yaml").tables["lines"].time
    assert again
    assert again.link == ("order_id",)


def test_what_belongs_to_a_line_belongs_to_its_order() -> None:
    parts = {"part_id": list(range(8)), "line_id": [5, 5, 6, 7, 8, 9, 9, 9]}
    lines = {"line_id": list(range(20)), "order_id": [n // 2 for n in range(20)]}
    database = open_shop(parts=parts, lines=lines)
    assert database["parts"].known_at.tolist() == [at(f"2024-01-{11 + n // 2}") for n in parts["line_id"]]


def test_rows_that_point_nowhere_are_never_seen() -> None:
    """One later row without an order must not make all the others always known."""
    lines = {"order_id": [*(n // 2 for n in range(19)), 99], "sku": [n % 4 for n in range(20)]}
    database = open_shop(lines=lines)
    assert database["lines"].known_at[-1] == NEVER
    assert counted(database.findings, "T03") == 1


@pytest.mark.parametrize(
    ("schema", "tables"),
    [
        ({"tables": {"lines": {"time_col": None}}}, {}),
        (  # of two links neither leads to the newer row each time
            {"tables": {"lines": {"fkeys": {"order_id": "orders", "sku": "products.sku"}}}},
            {"products": {"sku": [0, 1, 2, 3], "created_at": [f"2024-01-{day}" for day in (11, 19, 12, 13)]}},
        ),
        (  # scans came before the lines would be known
            {"tables": {"scans": {"time_col": "at", "fkeys": {"line_id": "lines"}}}},
            {
                "lines": {"line_id": list(range(20)), "order_id": [n // 2 for n in range(20)]},
                "scans": {"line_id": list(range(5)), "at": ["2024-01-01"] * 5},
            },
        ),
        (None, {"lines": {"order_id": [*range(10), *[None] * 10], "sku": [n % 4 for n in range(20)]}}),
    ],
    ids=["settled", "two parents", "needed before", "half of them"],
)  # fmt: skip
def test_a_link_that_may_not_be_meant_is_left_to_the_user(schema: dict[str, Any] | None, tables: Any) -> None:
    database = open_shop(schema, **tables)
    assert database["lines"].schema.time is None
    assert counted(database.findings, "D02", "lines")


# --- the end of a period --------------------------------------------------------------------------


def seasons(column: Any, **time: Any) -> Database:
    return Database.load(
        {"s": pa.table({"season": column})}, {"tables": {"s": {"time_col": "season", **time}}}
    )


@pytest.mark.parametrize(
    ("column", "time", "known_at"),
    [
        ([2023, 2024], {"time_format": "%Y", "known_at": "end of period"}, ["2024-01-01", "2025-01-01"]),
        ([2023, 2024], {"time_format": "%Y", "known_at": "end of period", "timezone": "America/New_York"},
         ["2024-01-01 05:00", "2025-01-01 05:00"]),
        (["2024-02", "2023-12"], {"time_format": "%Y-%m", "known_at": "end of period"}, ["2024-03-01", "2024-01-01"]),
        ([date(2024, 2, 28), date(2024, 2, 29)], {"known_at": "end of period"}, ["2024-02-29", "2024-03-01"]),
        (["2024-02-28", "2024-02-29T23:30+02:00"], {"known_at": "end of day", "timezone": "Europe/Paris"},
         ["2024-02-28 23:00", "2024-03-01"]),
        ([datetime(2024, 5, 1), datetime(2024, 5, 31, 12)], {"known_at": "end of month"}, ["2024-06-01"] * 2),
        ([1_700_000_000], {"time_unit": "s", "known_at": "end of year"}, ["2024-01-01"]),
    ],
)  # fmt: skip
def test_a_row_is_known_at_the_end_of_its_period(
    column: Any, time: dict[str, Any], known_at: list[str]
) -> None:
    database = seasons(column, **time)
    assert database["s"].known_at.tolist() == list(map(at, known_at))
    plain = seasons(column, **{name: value for name, value in time.items() if name != "known_at"})
    assert database["s"].data.equals(plain["s"].data)  # the column still tells when the period began
    assert Schema.from_dict(yaml.safe_load(schema_yaml(database))).tables["s"].time == replace(
        database["s"].schema.time, origin=CONFIRMED
    )


@pytest.mark.parametrize(
    ("time", "message"),
    [
        ({"known_at": "end of year", "time_from": "season", "time_col": None}, "known_at is 'end of year'"),
        ({"known_at": "end of century"}, "known_at is 'end of century'"),
        ({"known_at": ["end of year"]}, "known_at is ['end of year']"),
        ({"known_at": "end of period"}, "neither the type (large_string) nor a time_format says which"),
    ],
)
def test_a_period_that_nobody_named(time: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        seasons(["2024-02-28"], **time)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("column", "time", "level", "period"),
    [
        ([2023, 2024], {"time_format": "%Y"}, Level.WARNING, "year"),
        ([date(2023, 1, 1), date(2024, 1, 1)], {}, Level.WARNING, "year"),
        ([date(2023, 1, 1), date(2024, 3, 1)], {}, Level.WARNING, "month"),
        ([date(2023, 1, 1), date(2024, 3, 5)], {"timezone": "Asia/Tokyo"}, Level.NOTE, "day"),
        ([datetime(2023, 1, 1), datetime(2024, 3, 5, 12)], {}, None, ""),
        ([date(2023, 1, 1)] * 2, {}, None, ""),
        ([2023, 2024], {"time_format": "%Y", "known_at": "end of year"}, None, ""),
    ],
)
def test_inspect_asks_when_a_period_is_known(
    column: Any, time: Any, level: Level | None, period: str
) -> None:
    asked = [finding for finding in seasons(column, **time).findings if finding.code == "T18"]
    assert [finding.level for finding in asked] == ([level] if level else [])
    assert all(f"known_at: end of {period}" in finding.fix for finding in asked)


def test_one_line_dates_many_tables() -> None:
    frames = {
        "batting": pa.table({"year": [2001, 2002]}),
        "pitching": pa.table({"year": [2003], "at": ["2003-05-01"]}),
        "people": pa.table({"id": [1]}),
    }
    times = {"year": {"time_format": "%Y", "known_at": "end of year"}}
    database = Database.load(frames, {"times": times, "tables": {"pitching": {"time_col": "at"}}})
    assert database["batting"].known_at.tolist() == [at("2002-01-01"), at("2003-01-01")]
    assert database["pitching"].known_at.tolist() == [at("2003-05-01")]
    assert not database["people"].is_timed
    with pytest.raises(TimeError, match=r'times names a column "yaer" that no table has'):
        Database.load(frames, {"times": {"yaer": None}})


def test_a_row_that_is_always_known_has_no_time_to_give() -> None:
    orders = pa.table({"id": [1, 2], "at": pa.array([None, datetime(2024, 2, 1)], pa.timestamp("ns"))})
    frames = {"orders": orders, "lines": pa.table({"order_id": [1, 2]})}

    def opened(**said: object) -> Database:
        always = {"pkey": "id", "time_col": "at", "on_missing_time": "always_known"}
        lines = {"pkey": None, "fkeys": {"order_id": "orders"}, **said}
        return Database.load(frames, {"tables": {"orders": always, "lines": lines}})

    with pytest.raises(TimeError, match=r"error\[T01\] .* 1 of its rows point to a row without a time"):
        opened(time_from="order_id")
    assert [finding.where for finding in opened().findings if finding.code == "D02"] == ["lines"]
