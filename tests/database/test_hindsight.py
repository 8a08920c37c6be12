"""What later rows change in the reading of earlier ones is found, and the entry that is advised mends it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from quartet.database import Database, read_differently
from quartet.findings import counted
from quartet.times import parse_instant
from tests.shared import shared_data

UPTO = parse_instant("2024-02-15", "test")
Rows = list[dict[str, Any]]


def shop() -> dict[str, Rows]:
    customers = [{"customer_id": n, "city": f"city {n % 5}"} for n in range(30)]
    orders = [
        {"order_id": n, "customer_id": n % 30, "amount": n * 1.5, "sent": f"2024-0{1 + n // 28}-{1 + n % 28:02}",
         "ordered_at": f"2024-0{1 + n // 28}-{1 + n % 28:02}"}
        for n in range(84)
    ]  # fmt: skip
    lines = [{"order_id": n // 2, "sku": f"sku {n % 7}", "count": n % 9} for n in range(168)]
    return {"customers": customers, "orders": orders, "lines": lines}


def load(folder: Path, tables: dict[str, Rows], schema: Any = None) -> Database:
    for name, rows in tables.items():
        lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
    return Database.load(folder, schema)


def advised(database: Database) -> dict[str, Any]:
    """The schema that the findings advise, put together."""
    entries: dict[str, Any] = {}
    for finding in read_differently(database, UPTO):
        line = finding.fix.removeprefix("write under tables in the schema file: ")
        for table, fields in yaml.safe_load(line).items():
            mine = entries.setdefault(table, {})
            mine |= {**fields, "kinds": {**mine.get("kinds", {}), **fields.get("kinds", {})}}
    return {"tables": entries}


def late(table: str, **cells: Any) -> Callable[[dict[str, Rows]], None]:
    """Changes cells of the last row of a table, which is not known before March."""
    return lambda tables: tables[table][-1].update(cells)


def many_empty(tables: dict[str, Rows]) -> None:
    for row in tables["orders"][50:]:
        row["ordered_at"] = ""


def many_dangling(tables: dict[str, Rows]) -> None:
    for row in tables["orders"][50:]:
        row["customer_id"] += 1000


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (
            late("orders", amount="unknown"),
            "orders.amount would hold no text by the rows known at 2024-02-15, but double",
        ),
        (late("lines", count="many"), "lines.count would hold no text"),
        (late("orders", sent="soon"), "orders.sent would hold no text"),
        (
            late("orders", order_id=5),
            "the key of orders would be order_id by the rows known at 2024-02-15, and is none",
        ),
        (late("orders", customer_id="?"), "orders.customer_id would hold no text"),
        (late("orders", ordered_at="unknown"), "the time of orders would be ordered_at"),
        (many_empty, "the time of orders would be ordered_at"),
        (many_dangling, "orders.customer_id would point to customers"),
    ],
    ids=[
        "number",
        "number of a line",
        "date",
        "repeated key",
        "text in a link",
        "time",
        "empty times",
        "dangling",
    ],
)
def test_the_advised_entry_mends_what_later_rows_change(
    change: Callable[[dict[str, Rows]], None], what: str, tmp_path: Path
) -> None:
    tables = shop()
    assert read_differently(load(tmp_path, tables), UPTO) == []
    change(tables)
    database = load(tmp_path, tables)
    findings = read_differently(database, UPTO)
    assert any(what in finding.message for finding in findings), [str(finding) for finding in findings]
    assert {finding.code for finding in findings} == {"S21"}
    schema = advised(database)
    mended = load(tmp_path, tables, schema)
    assert read_differently(mended, UPTO) == []
    early = load(tmp_path, {**tables, "orders": tables["orders"][:46], "lines": tables["lines"][:92]}, schema)
    for name in tables:
        known = early.upto(UPTO)[name].data
        assert known.equals(mended.upto(UPTO)[name].data.slice(0, known.num_rows))


def test_a_cell_that_is_no_number_is_missing_and_counted(tmp_path: Path) -> None:
    tables = shop()
    for row in tables["orders"][-2:]:
        row["amount"] = "unknown"
    database = load(tmp_path, tables, {"tables": {"orders": {"kinds": {"amount": "number", "sent": "time"}}}})
    assert database["orders"].data["amount"].to_pylist()[-3:] == [121.5, None, None]
    assert counted(database.findings, "V12", "orders.amount") == 2
    (finding,) = [finding for finding in database.findings if finding.code == "V12"]
    assert "2 cells cannot be read so and are missing (unknown)" in finding.message


def test_published_datasets_are_read_as_they_declare() -> None:
    database = Database.load(shared_data("rel-f1"))
    assert read_differently(database, parse_instant("2005-01-01", "test")) == []


def test_dates_in_text_can_be_told_to_be_times() -> None:
    """What a frame holds as text, a database may declare as a date; told, both give the same column."""
    days = ["2024-01-31", "2024-02-01", ""]
    frame = {"orders": pa.table({"id": [1, 2, 3], "due": days})}
    plain = Database.load(frame, {"tables": {"orders": {"pkey": "id"}}})
    (finding,) = [finding for finding in plain.findings if finding.code == "V13"]
    assert finding.fix == "set kinds: {due: time} for orders in the schema file"
    told = Database.load(frame, {"tables": {"orders": {"kinds": {"due": "time"}}}})
    declared = pa.array([date(2024, 1, 31), date(2024, 2, 1), None])
    typed = Database.load({"orders": frame["orders"].set_column(1, "due", declared)})
    assert told["orders"].data.equals(typed["orders"].data)
    assert counted(told.findings, "V13") == 0
