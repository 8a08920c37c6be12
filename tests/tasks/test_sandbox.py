"""Task SQL can read its tables and do nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quartet.errors import SchemaError, TaskError
from quartet.tasks import run_task_sql
from quartet.tasks.sandbox import TaskTables, _Process
from tests.strategies import examples

DAY = 86_400 * 10**9
TABLES = {"orders": pa.table({"id": [1, 2, 3], "amount": [1.5, 2.5, 3.5]})}
TIMES = np.array([0, DAY], dtype=np.int64)
local_table = pa.table({"secret": [42]})  # a variable of this process, which SQL must not find


def run(sql: str, time_limit: float = 20.0) -> pa.Table:
    return run_task_sql(sql, TABLES, TIMES, 30 * DAY, "task", time_limit)


def test_select_sees_tables_times_and_the_horizon() -> None:
    found = run("SELECT timestamp + INTERVAL '{timedelta}' AS t, id FROM timestamps, orders ORDER BY t, id")
    assert found["id"].to_pylist() == [1, 2, 3, 1, 2, 3]
    assert str(found["t"][0].as_py()) == "1970-01-31 00:00:00"


ATTACKS = [
    "SELECT * FROM read_csv('{file}')",
    "SELECT * FROM read_text('{file}')",
    "SELECT * FROM read_blob('{file}')",
    "SELECT * FROM read_parquet('{file}')",
    "SELECT * FROM '{file}'",
    "SELECT * FROM glob('/*')",
    "SELECT * FROM sniff_csv('{file}')",
    "SELECT * FROM parquet_metadata('{file}')",
    "SELECT getenv('HOME')",
    "SELECT * FROM local_table",
    "SELECT * FROM TABLES",
    "COPY orders TO '{file}'",
    "COPY (SELECT 1) TO '{file}'",
    "EXPORT DATABASE '{folder}'",
    "ATTACH '{file}' AS other",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET enable_external_access = true",
    "RESET lock_configuration",
    "PRAGMA database_list",
    "CREATE TABLE x AS SELECT 1",
    "INSERT INTO orders VALUES (9, 9.0)",
    "UPDATE orders SET amount = 0",
    "DELETE FROM orders",
    "DROP VIEW orders",
    "CALL pragma_version()",
    "EXPLAIN ANALYZE SELECT 1",
    "SELECT 1; SELECT 2",
    "SELECT 1; COPY orders TO '{file}'",
    "",
    "nonsense",
    "SELECT * FROM query('COPY orders TO ''{file}''')",
    "SELECT * FROM read_json_auto('https://example.org/x.json')",
    "SELECT * FROM sqlite_scan('{file}', 't')",
    "SELECT * FROM duckdb_secrets(); ATTACH ':memory:'",
]


@pytest.mark.parametrize("attack", ATTACKS)
def test_nothing_else_is_possible(attack: str, tmp_path: Path) -> None:
    file = tmp_path / "file.csv"
    file.write_text("secret\n42\n")
    sql = attack.replace("{file}", str(file)).replace("{folder}", str(tmp_path / "out"))
    with pytest.raises(TaskError) as caught:
        run(sql)
    assert caught.value.code == "L12"
    assert file.read_text() == "secret\n42\n"
    assert [path.name for path in tmp_path.iterdir()] == ["file.csv"]


def test_statement_kinds_are_named() -> None:
    with pytest.raises(TaskError, match=r"must be a single SELECT that returns .*, got SELECT, SELECT"):
        run("SELECT 1; SELECT 2")


RUNAWAYS = {
    "join": "SELECT COUNT(*) FROM range(100000000) a, range(100000000) b WHERE a.range + b.range = 7",
    "levenshtein": "SELECT levenshtein(repeat('a', 300000), repeat('b', 300000))",
    "list": f"SELECT 1 IN ({', '.join(map(str, range(300_000)))}, id) FROM orders",
}


@pytest.mark.parametrize("name", RUNAWAYS)
def test_runaway_query_is_stopped(name: str) -> None:
    with pytest.raises(TaskError, match=r"ran for more than 0\.3 s and was stopped"):
        run(RUNAWAYS[name], 0.3)
    assert run("SELECT COUNT(*) AS n FROM orders")["n"].to_pylist() == [3], "the next query has a new process"


@pytest.mark.parametrize(
    "sql", ["SELECT repeat('a', 900000000) AS x", "SELECT list(range) AS x FROM range(200000000)"]
)
def test_memory_has_an_end(sql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quartet.tasks.sandbox._MEMORY", 1 << 28)
    monkeypatch.setattr("quartet.tasks.sandbox._Process.current", None)
    with pytest.raises(TaskError) as caught:
        run(sql)
    assert caught.value.code == "L12"
    _Process.running().end()


def test_the_prediction_times_have_a_name_of_their_own() -> None:
    """A table of the same name would take their place, and every split would have the same rows."""
    for name in ("timestamps", "Timestamps"):
        tables = {name: pa.table({"timestamp": [1, 2]})}
        with pytest.raises(
            SchemaError, match=r'S15.* "timestamps", but the database has a table of that name'
        ):
            run_task_sql("SELECT * FROM timestamps", tables, TIMES, DAY, "task")


def test_sql_runs_in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    found = run("SELECT current_setting('TimeZone') AS zone, TIMESTAMPTZ '2024-01-01 00:00:00' AS at")
    assert (found["zone"][0].as_py(), found["at"].cast(pa.int64())[0].as_py()) == (
        "UTC",
        1_704_067_200_000_000,
    )


def test_a_query_sees_the_rows_it_names_of_tables_that_are_sent_once() -> None:
    made: list[str] = []

    def orders(name: str) -> pa.Table:
        made.append(name)
        return TABLES[name]

    tables = TaskTables(["orders", "unused"], orders)
    for ranges, ids in (([(0, 2)], [1, 2]), ([(0, 1), (2, 3)], [1, 3]), ([], []), ([(1, 3)], [2, 3])):
        found = tables.query("SELECT id FROM orders", TIMES, DAY, "task", lambda _, ranges=ranges: ranges)
        assert found["id"].to_pylist() == ids
    assert made == ["orders"]


def test_tables_are_not_changed_by_a_query() -> None:
    before = TABLES["orders"].to_pylist()
    run("SELECT list_sort(list(amount)) FROM orders")
    assert TABLES["orders"].to_pylist() == before


@examples(15)
@given(st.integers(min_value=1, max_value=10**12))
def test_interval_is_exact_to_the_microsecond(microseconds: int) -> None:
    found = run_task_sql("SELECT INTERVAL '{timedelta}' AS i", {}, TIMES, microseconds * 1000, "task")
    days, rest = found["i"][0].as_py().days, found["i"][0].as_py().nanoseconds
    assert days * DAY + rest == microseconds * 1000
