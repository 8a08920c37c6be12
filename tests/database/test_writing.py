"""Rows written back into SQLite, DuckDB and PostgreSQL: once, whole, and in no table of somebody else."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from quartet.database import Database, DatabaseTable
from quartet.errors import QuartetError, ResourceError, UsageError
from tests.postgres import ENCODED_PASSWORD, PASSWORD, USER, NewDatabase, new_database

__all__ = ["new_database"]

KEYS = ("model", "time")
KEY, TABLE = '"the ""key"""', '"my ""scores"""'
NOON = datetime(2024, 6, 1, 12, tzinfo=UTC)
Query = Callable[[str], list[tuple[Any, ...]]]


def rows(model: str = "m", time: datetime = NOON, scores: tuple[float, ...] = (0.25, 0.5)) -> pa.Table:
    count = len(scores)
    return pa.table(
        {
            "model": pa.array([model] * count, pa.string()),
            'the "key"': pa.array(range(count), pa.int32()),
            "name": pa.array(["Zoë", None, "x"][:count], pa.string()),
            "time": pa.array([time] * count, pa.timestamp("ns", "UTC")),
            "horizon": pa.array(["30 days"] * count, pa.string()),
            "score": pa.array(scores, pa.float64()),
        }
    )


@pytest.fixture(params=["sqlite", "duckdb", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Query]:
    """A database, with a table of somebody else's, and a way to query it."""
    theirs = "CREATE TABLE people (id INTEGER)"
    if request.param == "postgresql":
        import psycopg

        url = request.getfixturevalue("new_database")()

        def query(sql: str) -> list[tuple[Any, ...]]:
            with closing(psycopg.connect(url, autocommit=True)) as connection:
                connection.execute("SET TimeZone = 'UTC'")
                cursor = connection.execute(sql.encode())
                return cursor.fetchall() if cursor.description else []
    else:
        url = f"{request.param}:///{tmp_path}/new/scores.db"
        connect: Any = sqlite3.connect if request.param == "sqlite" else duckdb.connect
        (tmp_path / "new").mkdir()

        def query(sql: str) -> list[tuple[Any, ...]]:
            with closing(connect(tmp_path / "new" / "scores.db")) as connection:
                found: list[tuple[Any, ...]] = connection.execute(sql).fetchall()
                if request.param == "sqlite":
                    connection.commit()
                return found

    query(theirs)
    return url, query


def table_at(text: str) -> DatabaseTable:
    parsed = DatabaseTable.parse(text)
    assert parsed is not None
    return parsed


def test_rows_of_the_same_model_and_time_are_replaced_and_others_stay(place: tuple[str, Query]) -> None:
    url, query = place
    table, count = table_at(f'{url}#my "scores"'), 'SELECT count(*) FROM "my ""scores"""'
    for _ in range(2):
        table.write(rows(), KEYS)
    assert query(count) == [(2,)]
    table.write(rows("other"), KEYS)
    table.write(rows(time=NOON.replace(hour=13)), KEYS)
    assert query(count) == [(6,)]
    table.write(rows(scores=(0.75,)), KEYS)
    assert query(count) == [(5,)]
    told = query(f"SELECT {KEY}, name, horizon, score FROM {TABLE} WHERE score = 0.75")
    assert told == [(0, "Zoë", "30 days", 0.75)]
    hours = query(f"SELECT DISTINCT substr(CAST(time AS VARCHAR), 1, 19) FROM {TABLE} ORDER BY 1")
    assert hours == [("2024-06-01 12:00:00",), ("2024-06-01 13:00:00",)]


def test_rows_can_be_replaced_one_by_one(place: tuple[str, Query]) -> None:
    url, query = place
    table, keys = table_at(f'{url}#my "scores"'), (*KEYS, 'the "key"')
    table.write(rows(scores=(0.25, 0.5, 0.75)), keys)
    table.write(rows(scores=(0.125, 0.0625)), keys)
    assert query(f"SELECT {KEY}, score FROM {TABLE} ORDER BY 1") == [(0, 0.125), (1, 0.0625), (2, 0.75)]


def test_several_who_write_the_same_at_once_write_it_once(new_database: NewDatabase) -> None:
    import psycopg

    url = new_database()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: table_at(f"{url}#scores").write(rows(), KEYS), range(8)))
    with closing(psycopg.connect(url)) as connection:
        assert connection.execute("SELECT count(*) FROM scores").fetchall() == [(2,)]


def test_who_may_not_write_is_told_so(new_database: NewDatabase) -> None:
    import psycopg

    url = new_database()
    table_at(f"{url}#scores").write(rows(), KEYS)
    guest = f"guest_{url.rpartition('_')[2]}"
    with closing(psycopg.connect(url, autocommit=True)) as connection:
        connection.execute(f"CREATE ROLE {guest} LOGIN PASSWORD 'gu3st'".encode())
        connection.execute(f"GRANT SELECT ON scores TO {guest}".encode())
    theirs = url.replace(f"{USER}:{ENCODED_PASSWORD}", f"{guest}:gu3st")
    for name in ("scores", "fresh"):
        with pytest.raises(ResourceError, match=r"R02.*permission denied") as caught:
            table_at(f"{theirs}#{name}").write(rows(), KEYS)
        assert "gu3st" not in f"{caught.value!r}".replace(guest, "")


def test_a_table_of_somebody_else_is_not_touched(place: tuple[str, Query]) -> None:
    url, query = place
    with pytest.raises(UsageError, match=r'C02.*"people" is there, with other columns \(id\)'):
        table_at(f"{url}#people").write(rows(), KEYS)
    assert query("SELECT count(*) FROM people") == [(0,)]


def test_what_fails_in_the_middle_changes_nothing(
    place: tuple[str, Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, query = place
    table = table_at(f"{url}#scores")
    table.write(rows(), KEYS)
    original = DatabaseTable._make_room

    def half(self: DatabaseTable, *args: Any) -> None:
        original(self, *args)
        raise UsageError("C02", "interrupted")

    monkeypatch.setattr(DatabaseTable, "_make_room", half)
    for fresh in (rows(scores=(1.0,)), rows("other")):
        with pytest.raises(UsageError):
            table.write(fresh, KEYS)
    assert query("SELECT score FROM scores ORDER BY score") == [(0.25,), (0.5,)]
    with pytest.raises(UsageError):
        table_at(f"{url}#never").write(rows(), KEYS)
    monkeypatch.undo()
    table_at(f"{url}#never").write(rows(), KEYS)


def test_several_tables_are_written_together_or_not_at_all(place: tuple[str, Query]) -> None:
    url, query = place
    table = table_at(f"{url}#a")
    table.write_together({"a": rows(scores=(0.125,)), "b": rows()}, KEYS)
    assert query("SELECT count(*) FROM b") == [(2,)]
    with pytest.raises(UsageError, match="other columns"):  # by then the tables before it have been written
        table.write_together({"a": rows(), "c": rows(), "people": rows()}, KEYS)
    assert query("SELECT score FROM a") == [(0.125,)]
    with pytest.raises(Exception, match=r"no such table|does not exist"):
        query("SELECT * FROM c")
    table.write_together({"a": rows(), "c": rows()}, KEYS)
    assert query("SELECT count(*) FROM c") == [(2,)]


def test_predictions_in_a_database_are_no_data(place: tuple[str, Query]) -> None:
    url, query = place
    query("INSERT INTO people VALUES (1), (2)")
    table_at(f"{url}#scores").write(rows(), KEYS)
    database = Database.load(url)
    assert list(database.tables) == ["people"]
    assert any('hold predictions: "scores"' in finding.message for finding in database.findings)


def test_a_new_file_is_made_by_its_ending(tmp_path: Path) -> None:
    for name, kind in (("a.sqlite", "sqlite"), ("b.db", "sqlite"), ("c.duckdb", "duckdb")):
        table = table_at(f"{tmp_path}/deeper/{name}#scores")
        table.write(rows(), KEYS)
        assert table.address.kind == kind
        again = table_at(f"{tmp_path}/deeper/{name}#scores")
        again.write(rows(), KEYS)
        assert again.address.kind == kind
    assert DatabaseTable.parse("scores.csv") is None
    assert DatabaseTable.parse("scores.xls#a") is None


@pytest.mark.parametrize(
    "text", ["shop.sqlite", "shop.duckdb#", f"postgresql://me:{ENCODED_PASSWORD}@host/db"]
)
def test_a_database_without_a_table_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"C02.*no table is named") as caught:
        DatabaseTable.parse(text)
    assert ENCODED_PASSWORD not in str(caught.value)


@pytest.mark.parametrize("kind", ["mysql", "mariadb", "mysql+x", "snowflake", "bigquery"])
def test_a_database_that_is_only_read_is_refused_before_the_work(kind: str) -> None:
    with pytest.raises(UsageError, match=r"C02.*nothing is written") as caught:
        DatabaseTable.parse(f"{kind}://me:{ENCODED_PASSWORD}@host/db#scores")
    assert ENCODED_PASSWORD not in str(caught.value)


def test_no_message_shows_a_password(new_database: NewDatabase) -> None:
    url = new_database()
    wrong = url.replace(ENCODED_PASSWORD, "wrong-pa55")
    tables = [f"{wrong}#scores", f"{url}?schema=nowhere#scores", f"{url}_absent#scores"]
    for text in tables:
        with pytest.raises(QuartetError) as caught:
            table_at(text).write(rows(), KEYS)
        for secret in (PASSWORD, ENCODED_PASSWORD, "wrong-pa55"):
            assert secret not in f"{caught.value!r} {caught.value.__cause__!r} {caught.value.__context__!r}"
        assert secret not in str(table_at(text))


def test_a_locked_file_is_said_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_at(f"{tmp_path}/scores.db#scores")
    table.write(rows(), KEYS)
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda path, **options: connect(path, timeout=0, **options))
    with closing(connect(tmp_path / "scores.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(ResourceError, match=r"R02.*cannot be written: database is locked"):
            table.write(rows(), KEYS)
