"""DuckDB: its types, and files that must stay as they are."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from quartet.database.readers.sql import read_sql
from quartet.errors import ResourceError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.duckdb"


def execute(path: Path, *statements: str) -> None:
    with closing(duckdb.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)


def state(folder: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir()}


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("170141183460469231731687303715884105727::HUGEINT", pa.float64()),
        ("18446744073709551615::UBIGINT", pa.uint64()),
        ("1.25::DECIMAL(38, 10)", pa.float64()),
        ("1::TINYINT", pa.int8()),
        ("1.5::FLOAT", pa.float32()),
        ("'2024-01-01'::TIMESTAMP_S", pa.timestamp("s")),
        ("'2024-01-01'::TIMESTAMP_NS", pa.timestamp("ns")),
        ("'2024-01-01 10:00:00+02'::TIMESTAMPTZ", pa.timestamp("us", "UTC")),
        ("'ab'::BLOB", pa.binary()),
        ("[1, 2]", pa.list_(pa.field("c", pa.int32()))),
        ("{'a': 1}", pa.struct([("a", pa.int32())])),
        ("'101'::BIT", pa.binary()),
        ("'glad'::ENUM('sad', 'glad')", pa.string()),
    ],
)
def test_types(path: Path, value: str, kind: pa.DataType) -> None:
    execute(path, f"CREATE TABLE t AS SELECT {value} AS c")
    source = read_sql(str(path))
    assert source.tables["t"].column("c").type == kind
    assert source.findings == ()


def test_times_are_in_utc_whatever_the_zone_of_the_machine(path: Path) -> None:
    execute(
        path, "SET TimeZone = 'Asia/Tokyo'", "CREATE TABLE t AS SELECT TIMESTAMPTZ '2024-01-01 09:00:00' AS c"
    )
    code = f"from quartet.database.readers.sql import read_sql; print(read_sql({str(path)!r}).tables['t']['c'][0])"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"TZ": "America/New_York", "PYTHONPATH": ":".join(sys.path)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "2024-01-01 00:00:00+00:00\n"
    assert read_sql(str(path)).tables["t"]["c"][0].as_py() == datetime(2024, 1, 1, tzinfo=UTC)


def test_another_schema(path: Path) -> None:
    execute(
        path,
        "CREATE SCHEMA shop",
        "CREATE TABLE shop.t (id INTEGER PRIMARY KEY)",
        "CREATE TABLE u (x INTEGER)",
    )
    assert list(read_sql(f"duckdb:///{path}?schema=shop").tables) == ["t"]
    assert list(read_sql(f"duckdb:///{path}").tables) == ["u"]


def test_reading_leaves_no_trace(path: Path) -> None:
    execute(path, "CREATE TABLE t AS SELECT 1 AS x")
    before = state(path.parent)
    read_sql(str(path))
    assert state(path.parent) == before == {"x.duckdb": before["x.duckdb"]}


CRASH = """
import duckdb, os, sys
connection = duckdb.connect(sys.argv[1])
connection.execute("CREATE TABLE t AS SELECT 1 AS x")
connection.execute("CHECKPOINT")
connection.execute("PRAGMA disable_checkpoint_on_shutdown")
connection.execute("INSERT INTO t VALUES (2)")
os._exit(0)
"""


def test_the_log_of_an_interrupted_writer_is_read_and_left(path: Path) -> None:
    subprocess.run([sys.executable, "-c", CRASH, str(path)], check=True)
    before = state(path.parent)
    assert sorted(before) == ["x.duckdb", "x.duckdb.wal"]
    assert read_sql(str(path)).tables["t"].to_pydict() == {"x": [1, 2]}
    assert state(path.parent) == before


def test_a_file_that_another_program_has_open(path: Path) -> None:
    execute(path, "CREATE TABLE t AS SELECT 1 AS x")
    holder = "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", holder, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        with pytest.raises(ResourceError) as caught:
            read_sql(str(path))
        process.communicate()
    assert str(caught.value).startswith(
        f'error[R02] "{path}" cannot be opened: IO Error: Could not set lock on file'
    )
    assert caught.value.fix == (
        "close the program that has it open, or write it with a version of DuckDB that this one reads"
    )


def test_a_damaged_file(path: Path) -> None:
    execute(path, "CREATE TABLE t AS SELECT range AS x FROM range(100000)")
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))
    with pytest.raises(ResourceError, match=r"error\[R02\]"):
        read_sql(str(path))


def test_a_view_of_another_file_is_never_opened(path: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    execute(path, "CREATE TABLE t AS SELECT 1 AS x", f"CREATE VIEW v AS SELECT * FROM '{secret}'")
    source = read_sql(str(path))
    assert list(source.tables) == ["t"]
    assert [finding.count for finding in source.findings] == [1]
