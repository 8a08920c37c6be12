"""Columns filled in later: each planted one is found, with and without a task; a clean database has none.

1,500 orders of 60 customers over 1,000 days, and players whose last game is known all along.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml

from quartet.database import FACTS, Database, ForeignKey, TableSchema, TimeColumn, late_columns
from quartet.database.schema import Schema
from quartet.features import schema_yaml
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


def found(findings: Any) -> set[tuple[str, str]]:
    return {(finding.code, finding.where) for finding in findings if finding.code in ("D03", "L04")}


def test_a_clean_database_has_none() -> None:
    database = orders(**CLEAN)
    assert late_columns(database) == []
    assert found(returns(database).check()) == set()


@pytest.mark.parametrize(
    ("column", "codes"),
    [
        ("shipped", {"D03"}),
        ("shipped_text", {"D03"}),
        ("returned_at", {"D03", "L04"}),
        ("status", {"L04"}),
        ("days_kept", {"L04"}),
        ("invoice", {"D03"}),
    ],
)
def test_a_planted_column_is_found_and_hidden_by_what_is_offered(column: str, codes: set[str]) -> None:
    task = returns(orders(**CLEAN, **{column: PLANTED[column]}))
    findings = task.check()
    assert found(findings) == {(code, f"orders.{column}") for code in codes}
    for finding in findings:
        if finding.code in codes:
            assert f"remove_columns: [[orders, {column}]]" in finding.fix
    if column == "invoice":
        assert "D01" in {finding.code for finding in findings}


def test_a_date_of_a_row_that_is_always_known() -> None:
    """The last game of 80 players: later than their first, and its distance to t tells who will retire."""
    first = RNG.integers(0, 2900, 80)
    last = first + 20 * np.minimum(RNG.integers(5, 125, 80), (2999 - first) // 20)
    played = [(p, d) for p in range(80) for d in range(first[p], last[p] + 1, 20)]
    players = pa.table(
        {"id": range(80), "born": dates(-RNG.integers(7000, 9000, 80) * DAY), "last": dates(last * DAY)}
    )
    games = pa.table({"player": [p for p, _ in played], "at": dates(np.array([d for _, d in played]) * DAY)})
    said = {
        "players": TableSchema(("id",), settled=FACTS),
        "games": TableSchema((), (ForeignKey(("player",), "players"),), TimeColumn("at"), settled=FACTS),
    }
    database = Database.build({"players": players, "games": games}, Schema(said))
    times = range(200, 2400, 100)
    asked = [(p, t) for t in times for p in range(80) if first[p] <= t <= last[p] + 100]
    labels = pa.table(
        {
            "id": [p for p, _ in asked],
            "at": dates(np.array([t for _, t in asked]) * DAY),
            "retires": [int(last[p] <= t + 300) for p, t in asked],
        }
    )
    task = Task.from_labels(
        database, labels, name="retires", task_type="binary_classification", entity_table="players",
        entity_col="id", time_col="at", target_col="retires", timedelta="300 days",
    )  # fmt: skip
    assert found(task.check()) == {("D03", "players.last"), ("L04", "players.last")}
    hidden = Task.from_labels(
        database, labels, name="retires", task_type="binary_classification", entity_table="players",
        entity_col="id", time_col="at", target_col="retires", timedelta="300 days",
        remove_columns=[["players", "last"]],
    )  # fmt: skip
    assert found(hidden.check()) == set()


def test_the_written_schema_offers_the_fix_as_a_comment() -> None:
    database = orders(**CLEAN, shipped=PLANTED["shipped"])
    text = schema_yaml(database)
    line = next(line for line in text.splitlines() if "shipped" in line)
    assert line.strip().startswith("# kinds: {shipped: unused}  # filled in later")
    assert "available_at: shipped" in line
    fixed = Schema.from_dict(
        {"tables": {"orders": yaml.safe_load(line.strip().removeprefix("# ").split("  #")[0])}}
    )
    said = database.schema.corrected_by(fixed)
    raw = {name: table.data for name, table in database.tables.items()}
    assert late_columns(Database.build(raw, said)) == []
