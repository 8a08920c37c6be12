"""`time_from`: rows that are known when the row they point to is."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from quartet.database import Database
from quartet.database.schema import Schema
from quartet.errors import TimeError
from quartet.features import schema_yaml
from quartet.graph import TemporalGraph
from quartet.times import parse_instant

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
