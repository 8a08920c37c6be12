"""SQLite: columns that hold anything, and files that must stay as they are."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from quartet.database import Database, ForeignKey
from quartet.database.readers.sql import read_sql
from quartet.database.readers.sqlite import _expression
from quartet.findings import Finding, counted

MANY = 70_000  # more rows than the driver brings at once


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.db"


def execute(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def read_column(path: Path, declared: str, values: list[Any]) -> tuple[pa.ChunkedArray, tuple[Finding, ...]]:
    """What comes back of a column `t.c` that was declared so and filled with the values."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"CREATE TABLE t (c {declared})")
        connection.executemany("INSERT INTO t VALUES (?)", [(value,) for value in values])
        connection.commit()
    source = read_sql(str(path))
    return source.tables["t"].column("c"), source.findings


@pytest.mark.parametrize(
    ("declared", "last", "kind"),
    [
        ("INTEGER", 2**63 - 1, pa.int64()),
        ("", 5, pa.int64()),
        ("REAL", 0.1, pa.float64()),
        ("TEXT", "x", pa.string()),
        ("", "x", pa.string()),
        ("BLOB", b"\x00\xff", pa.binary()),
        ("BOOLEAN", True, pa.bool_()),
        ("DATE", date(2024, 1, 31), pa.date32()),
        ("TIMESTAMP", datetime(2024, 1, 31, 10), pa.timestamp("us")),
    ],
)
def test_nulls_before_the_first_value(path: Path, declared: str, last: Any, kind: pa.DataType) -> None:
    stored = last.isoformat() if isinstance(last, date) else last
    column, findings = read_column(path, declared, [None] * MANY + [stored])
    assert column.type == kind
    assert column.null_count == MANY
    assert column[MANY].as_py() == last
    assert findings == ()


@pytest.mark.parametrize(
    ("declared", "kind"),
    [
        ("INTEGER", pa.int64()), ("BIGINT", pa.int64()), ("REAL", pa.float64()), ("DOUBLE", pa.float64()),
        ("DECIMAL(10,2)", pa.float64()), ("NUMERIC", pa.float64()), ("VARCHAR(20)", pa.string()),
        ("TEXT", pa.string()), ("", pa.string()), ("JSON", pa.string()), ("BLOB", pa.binary()),
        ("BOOLEAN", pa.bool_()), ("DATE", pa.date32()), ("DATETIME", pa.timestamp("us")),
        ("TIMESTAMPTZ", pa.timestamp("us", "UTC")),
    ],
)  # fmt: skip
@pytest.mark.parametrize("values", [[], [None, None]])
def test_a_column_without_values_has_its_declared_type(
    path: Path, declared: str, kind: pa.DataType, values: list[None]
) -> None:
    column, findings = read_column(path, declared, values)
    assert column.type == kind
    assert column.to_pylist() == values
    assert findings == ()


@pytest.mark.parametrize("declared", ["", "NUMERIC", "DECIMAL(10, 2)"])
def test_integers_then_floats_are_floats(path: Path, declared: str) -> None:
    column, findings = read_column(path, declared, [1] * MANY + [1.5])
    assert column.type == pa.float64()
    assert column[0].as_py() == 1.0
    assert column[MANY].as_py() == 1.5
    assert findings == ()


def test_whole_decimals_are_floats_all_the_same(path: Path) -> None:
    column, _ = read_column(path, "DECIMAL(10,2)", [3, 4])
    assert column.type == pa.float64()


def test_integers_beyond_2_to_the_53_are_exact(path: Path) -> None:
    column, findings = read_column(path, "INTEGER", [2**53 + 1, -(2**63), 2**63 - 1])
    assert column.to_pylist() == [2**53 + 1, -(2**63), 2**63 - 1]
    assert findings == ()


def test_large_integers_among_floats_are_text(path: Path) -> None:
    column, findings = read_column(path, "", [2**53 + 1, 0.5, 7])
    assert column.to_pylist() == ["9007199254740993", "0.5", "7"]
    assert [str(finding) for finding in findings] == [
        "warning[V11] t.c holds values of several types (2 integer, 1 real); they are read as text"
    ]


def test_mixed_types_are_text_and_nothing_is_lost(path: Path) -> None:
    values = [1, None, 0.1 + 0.2, "abc", b"\x00\xff", -5, "", 1e300, 0.5]
    column, findings = read_column(path, "", [7] * MANY + values)
    assert column.slice(MANY).to_pylist() == [
        "1", None, "0.30000000000000004", "abc", "0x00FF", "-5", "", "1.0e+300", "0.5"
    ]  # fmt: skip
    assert [float(column[MANY + i].as_py()) for i in (2, 7, 8)] == [0.1 + 0.2, 1e300, 0.5]
    assert str(findings[0]) == (
        "warning[V11] t.c holds values of several types (70,002 integer, 3 real, 2 text, 1 blob); "
        "they are read as text"
    )
    assert findings[0].count == MANY + 8


def test_numbers_as_text_are_the_same_numbers_in_older_sqlite() -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        text = _expression("c", "text", ("real", "text"))
        for number in (0.1 + 0.2, 0.5, 1e300, -1 / 3, 5e-324, 123456789.123456789):
            found = connection.execute(f"SELECT {text} FROM (SELECT ? AS c)", [number]).fetchone()[0]
            assert float(found) == number


def test_text_in_a_column_of_integers(path: Path) -> None:
    column, findings = read_column(path, "INTEGER", [1, 2, "n/a"])
    assert column.to_pylist() == ["1", "2", "n/a"]
    assert [finding.count for finding in findings] == [3]


@pytest.mark.parametrize(
    ("values", "kind"),
    [([1, 0, None], pa.bool_()), ([0, 2], pa.int64()), (["true"], pa.string()), ([-1], pa.int64())],
)
def test_booleans(path: Path, values: list[Any], kind: pa.DataType) -> None:
    column, _ = read_column(path, "BOOLEAN", values)
    assert column.type == kind
    assert column.to_pylist() == values


@pytest.mark.parametrize(
    ("declared", "values", "expected"),
    [
        ("DATE", ["2024-02-29", None], [date(2024, 2, 29), None]),
        ("DATE", ["2024-02-29", "2024-03-01 10:00"], [datetime(2024, 2, 29), datetime(2024, 3, 1, 10)]),
        ("DATETIME", ["2024-03-01 10:00:00", "2024-03-01T10:00:00.25"],
         [datetime(2024, 3, 1, 10), datetime(2024, 3, 1, 10, 0, 0, 250_000)]),
        ("TIMESTAMP", ["2024-03-01T10:00:00Z", "2024-03-01 10:00:00+02:00"],
         [datetime(2024, 3, 1, 10, tzinfo=UTC), datetime(2024, 3, 1, 8, tzinfo=UTC)]),
        ("TIMESTAMP WITH TIME ZONE", ["2024-03-01 10:00:00"], [datetime(2024, 3, 1, 10)]),
        ("DATETIME", ["2024-03-01 10:00:00", "01/03/2024"], ["2024-03-01 10:00:00", "01/03/2024"]),
        ("TIMESTAMP", ["2024-03-01T10:00:00Z", "2024-03-01 10:00:00"],
         ["2024-03-01T10:00:00Z", "2024-03-01 10:00:00"]),
        ("DATETIME", [1709287200, 1709287201], [1709287200, 1709287201]),
        ("TEXT", ["2024-02-29"], ["2024-02-29"]),
    ],
)  # fmt: skip
def test_times(path: Path, declared: str, values: list[Any], expected: list[Any]) -> None:
    column, findings = read_column(path, declared, values)
    assert column.to_pylist() == expected
    assert findings == ()


def test_nine_digits_of_a_second(path: Path) -> None:
    column, _ = read_column(path, "TIMESTAMP", ["2024-03-01 10:00:00.123456789"])
    assert column.type == pa.timestamp("ns")
    assert column[0].value == 1_709_287_200_123_456_789


def test_broken_text_is_replaced_and_counted(path: Path) -> None:
    execute(path, "CREATE TABLE t (c TEXT)", "INSERT INTO t VALUES ('é'), (CAST(x'FF41' AS TEXT)), (NULL)")
    database = Database.load(path)
    assert database["t"].data["c"].to_pylist() == ["é", "\ufffdA", None]
    assert counted(database.findings, "V08", "t.c") == 1


def test_a_thousand_columns(path: Path) -> None:
    names = [f"c{i}" for i in range(1000)]
    execute(
        path,
        f"CREATE TABLE t ({', '.join(names)})",
        f"INSERT INTO t VALUES ({', '.join(map(str, range(1000)))})",
    )
    assert read_sql(str(path)).tables["t"].to_pylist() == [{name: i for i, name in enumerate(names)}]


def test_generated_columns_are_read(path: Path) -> None:
    execute(
        path,
        "CREATE TABLE t (a INTEGER, b INTEGER AS (a * 2) STORED, c TEXT AS ('x' || a))",
        "INSERT INTO t VALUES (4)",
    )
    assert read_sql(str(path)).tables["t"].to_pylist() == [{"a": 4, "b": 8, "c": "x4"}]


# Keys


def test_links_without_a_column_and_in_other_letters(path: Path) -> None:
    execute(
        path,
        "CREATE TABLE Parent (Id INTEGER PRIMARY KEY, Code TEXT UNIQUE)",
        "CREATE TABLE child (a INTEGER REFERENCES PARENT, b TEXT REFERENCES parent(CODE))",
    )
    assert read_sql(str(path)).schema.tables["child"].foreign_keys == (
        ForeignKey(("a",), "Parent"),
        ForeignKey(("b",), "Parent", ("Code",)),
    )


def test_links_that_lead_nowhere(path: Path) -> None:
    execute(
        path,
        "CREATE TABLE customers (id INTEGER PRIMARY KEY)",
        "CREATE TABLE plain (x INTEGER)",
        "CREATE VIEW seen AS SELECT * FROM customers",
        "CREATE TABLE t (a INTEGER REFERENCES custmers(id), b INTEGER REFERENCES customers(idd), "
        "c INTEGER REFERENCES plain, d INTEGER REFERENCES seen(id), e INTEGER REFERENCES customers)",
    )
    source = read_sql(str(path))
    assert source.schema.tables["t"].foreign_keys == (ForeignKey(("e",), "customers"),)
    assert sorted(str(finding) for finding in source.findings if finding.code == "S09") == [
        'warning[S09] t.a: the foreign key leads to "custmers", which is not read '
        '(did you mean "customers"?); it is left out',
        'warning[S09] t.b: the foreign key leads to "customers"."idd", which does not exist '
        '(did you mean "id"?); it is left out',
        'warning[S09] t.c: the foreign key leads to "plain", which has no primary key; it is left out',
        'warning[S09] t.d: the foreign key leads to "seen", which is not read '
        '(there are: "customers", "plain", "t"); it is left out',
    ]


def test_a_text_link_to_an_integer_key_holds_as_it_does_in_sqlite(path: Path) -> None:
    execute(
        path,
        "CREATE TABLE parent (id INTEGER PRIMARY KEY)",
        "CREATE TABLE child (parent TEXT REFERENCES parent(id))",
        "CREATE TABLE grandchild (parent INTEGER REFERENCES parent(id), untyped REFERENCES parent(id))",
        "INSERT INTO parent VALUES (1), (2)",
        "INSERT INTO child VALUES ('2')",
        "INSERT INTO grandchild VALUES (1, NULL)",
    )
    tables = read_sql(str(path)).tables
    assert tables["parent"].to_pydict() == {"id": ["1", "2"]}
    assert tables["child"].to_pydict() == {"parent": ["2"]}
    assert tables["grandchild"].to_pydict() == {"parent": ["1"], "untyped": [None]}


def test_text_spreads_along_a_chain_of_links(path: Path) -> None:
    execute(
        path,
        "CREATE TABLE d (id TEXT PRIMARY KEY)",
        "CREATE TABLE c (id INTEGER PRIMARY KEY REFERENCES d(id))",
        "CREATE TABLE b (id INTEGER PRIMARY KEY REFERENCES c(id))",
        "CREATE TABLE a (id INTEGER PRIMARY KEY REFERENCES b(id))",
        *(f"INSERT INTO {name} VALUES (1)" for name in "dcba"),
    )
    source = read_sql(str(path))
    assert [source.tables[name].to_pydict() for name in "abcd"] == [{"id": ["1"]}] * 4
    assert [finding.where for finding in source.findings] == ["c.id", "b.id", "a.id"]


def test_an_empty_link_changes_no_key(path: Path) -> None:
    execute(
        path,
        "CREATE TABLE parent (id INTEGER PRIMARY KEY)",
        "CREATE TABLE child (parent REFERENCES parent(id))",
        "INSERT INTO parent VALUES (1)",
        "INSERT INTO child VALUES (NULL)",
    )
    source = read_sql(str(path))
    assert source.tables["parent"].to_pydict() == {"id": [1]}
    assert source.findings == ()


def test_virtual_tables_are_left_out(path: Path) -> None:
    execute(
        path,
        "CREATE TABLE t (id INTEGER PRIMARY KEY AUTOINCREMENT)",
        "CREATE VIRTUAL TABLE search USING fts5(words)",
    )
    source = read_sql(str(path))
    assert list(source.tables) == ["t"]
    assert [finding.code for finding in source.findings] == ["S19"]
    assert source.findings[0].message.startswith(
        'left out, because only tables are read: virtual tables "search", "search_config", '
    )
