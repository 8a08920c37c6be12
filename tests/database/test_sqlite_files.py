"""SQLite files that must stay as they are: living, interrupted and damaged ones."""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from quartet.database.readers.address import parse_address
from quartet.database.readers.sql import read_sql
from quartet.database.readers.sqlite import open_sqlite
from quartet.errors import ResourceError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.db"


def execute(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def state(folder: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir()}


def write_ahead(path: Path) -> None:
    execute(path, "PRAGMA journal_mode = wal", "CREATE TABLE t (x INTEGER)", "INSERT INTO t VALUES (1)")


def test_reading_leaves_no_trace(path: Path) -> None:
    execute(path, "CREATE TABLE t (x INTEGER)", "INSERT INTO t VALUES (1)")
    before = state(path.parent)
    assert read_sql(str(path)).tables["t"].to_pydict() == {"x": [1]}
    assert state(path.parent) == before


def test_reading_a_closed_write_ahead_file_leaves_no_trace(path: Path) -> None:
    write_ahead(path)
    before = state(path.parent)
    assert list(before) == ["x.db"]
    assert read_sql(str(path)).tables["t"].to_pydict() == {"x": [1]}
    assert state(path.parent) == before


WRITER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA wal_autocheckpoint = 0")
for line in sys.stdin:
    connection.execute(line)
    print("done", flush=True)
"""


@pytest.fixture
def writer(path: Path) -> Iterator[Any]:
    """Executes statements in another process; locks do not hold within one."""
    write_ahead(path)
    command = [sys.executable, "-c", WRITER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def write(statement: str) -> None:
            assert process.stdin
            assert process.stdout
            process.stdin.write(statement + "\n")
            process.stdin.flush()
            assert process.stdout.readline() == "done\n"

        yield write
        assert process.stdin
        process.stdin.close()


def test_what_a_living_writer_has_committed_is_read(path: Path, writer: Any) -> None:
    writer("INSERT INTO t VALUES (2)")
    assert sorted(file.name for file in path.parent.iterdir()) == ["x.db", "x.db-shm", "x.db-wal"]
    assert read_sql(str(path)).tables["t"].to_pydict() == {"x": [1, 2]}


def test_all_tables_are_of_one_moment(path: Path, writer: Any) -> None:
    writer("CREATE TABLE u (x INTEGER)")
    with open_sqlite(parse_address(str(path))) as engine:
        tables = engine.catalogue()[0]
        engine.read(tables["t"], frozenset())
        writer("INSERT INTO u VALUES (5)")
        rows, _ = engine.read(tables["u"], frozenset())
    assert rows.num_rows == 0
    assert read_sql(str(path)).tables["u"].num_rows == 1


def test_a_copy_with_its_log_is_read_whole_and_leaves_no_trace(
    path: Path, writer: Any, tmp_path: Path
) -> None:
    writer("INSERT INTO t VALUES (2)")
    copy = tmp_path / "copy"
    copy.mkdir()
    shutil.copy(path, copy)
    shutil.copy(f"{path}-wal", copy)
    before = state(copy)
    assert sorted(before) == ["x.db", "x.db-wal"]
    assert read_sql(str(copy / "x.db")).tables["t"].to_pydict() == {"x": [1, 2]}
    assert state(copy) == before


def test_a_file_written_to_meanwhile_is_reported(path: Path) -> None:
    write_ahead(path)

    def read_while_written() -> None:
        with open_sqlite(parse_address(str(path))) as engine:
            engine.catalogue()
            execute(path, "INSERT INTO t VALUES (2)")

    with pytest.raises(ResourceError) as caught:
        read_while_written()
    assert str(caught.value) == f'error[R02] "{path}" was written to while it was read. Fix: run again'


def test_a_locked_file(path: Path) -> None:
    execute(path, "CREATE TABLE t (x INTEGER)")
    holder = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("BEGIN EXCLUSIVE")
print(flush=True)
sys.stdin.read()
"""
    command = [sys.executable, "-c", holder, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        with pytest.raises(ResourceError) as caught:
            read_sql(str(path))
        process.communicate()
    assert str(caught.value) == (
        f'error[R02] "{path}" cannot be read: database is locked. '
        "Fix: wait for the program that writes to it, then run again"
    )


def test_an_interrupted_writer(path: Path, tmp_path: Path) -> None:
    crash = """
import os, sqlite3, sys
c = sqlite3.connect(sys.argv[1])
c.execute("PRAGMA cache_size = 2")
c.execute("CREATE TABLE t (x TEXT)")
c.executemany("INSERT INTO t VALUES (?)", [("x" * 1000,)] * 200)
c.commit()
c.execute("UPDATE t SET x = 'y' || x")
os._exit(0)
"""
    subprocess.run([sys.executable, "-c", crash, str(path)], check=True)
    before = state(tmp_path)
    assert sorted(before) == ["x.db", "x.db-journal"]
    with pytest.raises(ResourceError) as caught:
        read_sql(str(path))
    assert str(caught.value) == (
        f'error[R02] "{path}" cannot be read: attempt to write a readonly database. '
        "Fix: its last writer was interrupted; open it once with a program that may write, to repair it"
    )
    assert state(tmp_path) == before


def test_a_damaged_file(path: Path) -> None:
    execute(path, "CREATE TABLE t (x TEXT)", f"INSERT INTO t VALUES ('{'x' * 20_000}')")
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(ResourceError) as caught:
        read_sql(str(path))
    assert str(caught.value) == (
        f'error[R02] "{path}" cannot be read: database disk image is malformed. '
        "Fix: check that the file is whole"
    )


@pytest.mark.parametrize("kept", [4096, 8192, -4096, -1000, -10])
@pytest.mark.parametrize("num_pages", [b"", bytes(4)], ids=["counted pages", "uncounted pages"])
def test_a_file_that_is_cut_off_is_not_read_as_fewer_rows(path: Path, kept: int, num_pages: bytes) -> None:
    rows = ", ".join(f"({i}, '{'x' * 50}')" for i in range(500))
    execute(path, "CREATE TABLE t (id INTEGER PRIMARY KEY, x TEXT)", f"INSERT INTO t VALUES {rows}")
    content = bytearray(path.read_bytes()[:kept])
    content[28 : 28 + len(num_pages)] = num_pages  # old writers leave the place empty
    path.write_bytes(content)
    with pytest.raises(
        ResourceError, match=r"error\[R02\] .* cannot be read: .*\. Fix: check that the file is whole"
    ):
        read_sql(str(path))


def test_a_table_that_breaks_its_own_rules_is_read(path: Path) -> None:
    execute(
        path,
        "CREATE TABLE t (x INTEGER CHECK (x > 0))",
        "PRAGMA ignore_check_constraints = on",
        "INSERT INTO t VALUES (-1)",
    )
    assert read_sql(str(path)).tables["t"].to_pydict() == {"x": [-1]}


def test_a_file_without_a_byte_has_no_tables(path: Path) -> None:
    path.touch()
    with pytest.raises(Exception, match=r"error\[S01\] no tables found"):
        read_sql(f"sqlite:///{path}")
    assert path.stat().st_size == 0
