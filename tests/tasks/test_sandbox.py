"""Task SQL can read its tables and do nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quartet.errors import TaskError
from quartet.tasks import run_task_sql
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


def test_runaway_query_is_stopped() -> None:
    with pytest.raises(TaskError, match=r"ran for more than 0\.5 s and was stopped"):
        run("SELECT COUNT(*) FROM range(100000000) a, range(100000000) b WHERE a.range + b.range = 7", 0.5)


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
