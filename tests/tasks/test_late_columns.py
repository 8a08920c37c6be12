"""Columns filled in later: each planted one is found, with and without a task; a clean database has none.

Orders (`orders.py`), and players whose last game is known all along.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml

from quartet.database import FACTS, Database, ForeignKey, TableSchema, TimeColumn, late_columns, schema_yaml
from quartet.database.schema import Schema
from quartet.errors import QuartetError
from quartet.tasks import Task, read_query
from tests.tasks.orders import CLEAN, PLANTED, RNG, dates, orders, returns
from tests.tasks.small import DAY


def found(findings: Any) -> set[tuple[str, str]]:
    return {(finding.code, finding.where) for finding in findings if finding.code in ("D03", "L04")}


def test_a_clean_database_has_none() -> None:
    database = orders(**CLEAN)
    assert not late_columns(database)
    assert found(returns(database).check()) == set()


@pytest.mark.parametrize(
    ("column", "codes"),
    [
        ("shipped", {"D03"}),
        ("shipped_text", {"D03"}),
        ("arrived", {"D03"}),
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


def players_with_games() -> tuple[Database, Any, Any]:
    """Returns 80 players, whose last game is known all along, with the days of their first and last ones."""
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
    return Database.build({"players": players, "games": games}, Schema(said)), first, last


def test_a_date_of_a_row_that_is_always_known() -> None:
    """Of 80 players: the last game is later than the first, and its distance to t tells who will retire."""
    database, first, last = players_with_games()
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


def test_a_query_hides_dates_that_are_proven_to_be_later() -> None:
    database, _, _ = players_with_games()
    retires = "PREDICT COUNT(games.*, 0, 100, days) = 0 FOR EACH players.id"
    task = database.query(retires)
    assert task.spec.remove_columns == (("players", "last"),)
    assert set(task.database["players"].data.column_names) == {"id", "born"}
    assert not found(task.check())
    (told,) = (why for what, why in read_query(retires, database).facts if what == "hidden")
    assert told.startswith("players.last: it is filled in later than its row: ")
    assert told.endswith("--keep players.last")
    kept = database.query(retires, keep_columns=[["players", "last"]])
    assert kept.spec.remove_columns == ()
    assert ("D03", "players.last") in found(kept.check())
    for table, column, told in (
        ("players", "lost", 'no column "lost".*did you mean "last"'),
        ("game", "on", "game"),
    ):
        with pytest.raises(QuartetError, match=told):
            database.query(retires, keep_columns=[[table, column]])
    both = database.query(retires, remove_columns=[["players", "born"]])
    assert both.spec.remove_columns == (("players", "born"), ("players", "last"))


def test_a_query_leaves_links_and_gaps_to_the_user() -> None:
    """What is empty in the latest rows may be known long before t in older ones; a link would take a path away."""
    database = orders(**CLEAN, shipped=PLANTED["shipped"], invoice=PLANTED["invoice"])
    task = database.query("PREDICT COUNT(orders.*, 0, 30, days) FOR EACH customers.id")
    assert task.spec.remove_columns == (("orders", "shipped"),)


def test_the_written_schema_offers_the_fix_as_a_comment() -> None:
    database = orders(**CLEAN, shipped=PLANTED["shipped"], invoice=PLANTED["invoice"])
    text = schema_yaml(database)
    shipped, invoice, kinds = (
        line.strip() for line in text.splitlines() if "is filled in later" in line or "unused" in line
    )
    assert shipped.startswith("# shipped is filled in later (100% of its ")
    assert shipped.endswith("hide it by the line below, or set available_at: shipped for the whole row")
    assert invoice.endswith("delete its line under fkeys")
    fixed = Schema.from_dict({"tables": {"orders": yaml.safe_load(kinds.removeprefix("# "))}})
    raw = {name: table.data for name, table in database.tables.items()}
    left = late_columns(Database.build(raw, database.schema.corrected_by(fixed)))
    assert [column.column for column in left] == ["invoice"]
