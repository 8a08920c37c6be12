"""Rows written back into a database: into a new table, or into one that was written so before.

    shop.sqlite#scores      sqlite:///shop.db#scores      shop.duckdb#scores
    postgresql://user@host/database?schema=shop#scores

All of it, of several tables too, is one transaction: readers see the tables as they were, or as they are then.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from quartet.database.readers.address import Address, hide_passwords, parse_address
from quartet.database.readers.engine import driver_errors, quote, reason_of
from quartet.database.readers.postgresql import connected, without
from quartet.errors import ResourceError, UsageError, examples

_SUFFIXES = {".sqlite": "sqlite", ".sqlite3": "sqlite", ".db": "sqlite", ".duckdb": "duckdb"}
_READ_ALONE = ("mysql", "mariadb", "snowflake", "bigquery")
_TIME = pa.timestamp("us", "UTC")  # as fine as databases keep them
_TYPES = {
    "sqlite": {"number": "REAL", "whole": "INTEGER", "truth": "INTEGER", "time": "TEXT", "text": "TEXT"},
    "duckdb": {"number": "DOUBLE", "whole": "BIGINT", "truth": "BOOLEAN", "time": "TIMESTAMPTZ", "text": "TEXT"},
    "postgresql": {
        "number": "DOUBLE PRECISION", "whole": "BIGINT", "truth": "BOOLEAN", "time": "TIMESTAMPTZ", "text": "TEXT",
    },
}  # fmt: skip
_FORMS: dict[str, pa.DataType] = {
    "number": pa.float64(), "whole": pa.int64(), "truth": pa.bool_(), "time": _TIME, "text": pa.string(),
}  # fmt: skip

Run = Callable[[str, Sequence[Sequence[Any]]], Any]  # runs SQL with each of some parameters


@dataclass(frozen=True)
class DatabaseTable:
    """A table of a database that can be written to. It may not be there yet, nor the file around it."""

    address: Address
    name: str

    @staticmethod
    def parse(text: str) -> DatabaseTable | None:
        """Returns the table that `DATABASE#TABLE` names; None if the text names a file of another kind."""
        where, _, name = text.rpartition("#") if "#" in text else (text, "", "")
        scheme, is_url, rest = where.partition("://")
        path = Path(rest[1:].partition("?")[0] if is_url else where).expanduser()
        if not is_url and path.suffix not in _SUFFIXES:
            return None
        if not name:
            shown = hide_passwords(where)
            raise UsageError(
                "C02", f'"{shown}" is a database, and no table is named', f'write "{shown}#scores"'
            )
        kind = scheme.lower() if is_url else _SUFFIXES[path.suffix]
        if kind.partition("+")[0] in _READ_ALONE:
            what = f'"{scheme}://" is read, but nothing is written to it'
            fix = "write to sqlite:///, duckdb:/// or postgresql://, or to a .parquet or .csv file"
            raise UsageError("C02", what, fix)
        if kind in ("sqlite", "duckdb") and path.name and not path.exists():
            return DatabaseTable(Address(kind, where, "main", path), name)
        return DatabaseTable(parse_address(where), name)

    def __str__(self) -> str:
        return f"{self.address.location}#{self.name}"

    def write(self, rows: pa.Table, replacing: Sequence[str]) -> None:
        """Adds rows. Those that are there with the same values in the columns `replacing` make room for them.

        A table that has other columns is refused: it is somebody else's.
        """
        self.write_together({self.name: rows}, replacing)

    def write_together(self, tables: Mapping[str, pa.Table], replacing: Sequence[str]) -> None:
        """Adds rows to several tables of the database, this one or others, in one transaction, as `write` does."""
        write = {
            "sqlite": self._write_sqlite,
            "duckdb": self._write_duckdb,
            "postgresql": self._write_postgresql,
        }
        parts = []
        # In one order, so that two who write at once wait for each other.
        for name, rows in sorted(tables.items()):
            names = dict(zip(rows.column_names, self._apart(rows.column_names), strict=True))
            kept = pa.table([_as_kept(column) for column in rows.columns], names=list(names.values()))
            parts.append((replace(self, name=name), kept, [names[own] for own in replacing]))
        failure = write[self.address.kind](parts)
        if failure:  # raised here: a driver's own words must not hang on to the error
            reason = without(self.address.secrets, failure)
            fix = "check that it may be written to, and that nobody else is writing"
            raise ResourceError("R02", f'"{self}" cannot be written: {reason}', fix)

    def _write_sqlite(self, parts: _Parts) -> str:
        self.address.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with closing(sqlite3.connect(self.address.path, isolation_level=None)) as connection:
                connection.execute("BEGIN IMMEDIATE")
                for table, rows, replacing in parts:
                    sql, told = "SELECT name FROM pragma_table_info(?)", [_values(c) for c in rows.columns]
                    there = [name for (name,) in connection.execute(sql, [table.name]).fetchall()]
                    table._make_room(rows, replacing, there, connection.executemany)
                    sql = f"INSERT INTO {table._place} ({_names(rows)}) VALUES ({', '.join('?' * len(told))})"
                    connection.executemany(sql, zip(*told, strict=True))
                connection.execute("COMMIT")
        except sqlite3.Error as error:
            return str(error)
        return ""

    def _write_duckdb(self, parts: _Parts) -> str:
        import duckdb

        self.address.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with closing(duckdb.connect(self.address.path)) as connection:
                connection.execute("SET TimeZone = 'UTC'")
                connection.execute("BEGIN")
                for table, rows, replacing in parts:
                    sql, names = _COLUMNS.format("?", "?"), _names(rows)
                    there = connection.execute(sql, [table.address.schema, table.name]).fetchall()
                    table._make_room(rows, replacing, [name for (name,) in there], connection.executemany)
                    connection.register("fresh rows", rows)
                    connection.execute(
                        f'INSERT INTO {table._place} ({names}) SELECT {names} FROM "fresh rows"'
                    )
                    connection.unregister("fresh rows")
                connection.execute("COMMIT")
        except duckdb.Error as error:
            return str(error).splitlines()[0]
        return ""

    def _write_postgresql(self, parts: _Parts) -> str:
        with connected(self.address) as connection, closing(connection.cursor()) as cursor:

            def run(sql: str, parameters: Sequence[Sequence[Any]]) -> Any:
                cursor.executemany(sql, [*parameters] if parameters[0] else None)  # `execute` may wait

            transaction = connection.adbc_connection
            try:
                transaction.set_autocommit(False)  # else the driver ends a BEGIN of ours after each parameter
                for table, rows, replacing in parts:
                    # Of two who write at once the second waits, and then finds the rows that it replaces.
                    cursor.execute(_LOCK, [table._place])
                    cursor.fetchall()
                    cursor.execute(_COLUMNS.format("$1", "$2"), [table.address.schema, table.name])
                    there = [name for (name,) in cursor.fetchall()]
                    table._make_room(rows, replacing, there, run)
                    cursor.adbc_ingest(table.name, rows, mode="append", db_schema_name=table.address.schema)
                transaction.commit()
            except driver_errors() as error:
                return reason_of(error)
        return ""

    def _apart(self, names: Sequence[str]) -> list[str]:
        """Returns names of columns that this kind of database tells apart: most heed no case, so a number follows."""
        if self.address.kind == "postgresql":
            return list(names)
        told: list[str] = []
        taken = {name.lower() for name in names}
        for name in names:
            own, number = name, 1
            while own.lower() in map(str.lower, told) or (number > 1 and own.lower() in taken):
                number += 1
                own = f"{name}_{number}"
            told.append(own)
        return told

    @property
    def _place(self) -> str:
        """Returns the name of the table in SQL."""
        is_file = self.address.kind == "sqlite"
        return quote(self.name) if is_file else f"{quote(self.address.schema)}.{quote(self.name)}"

    def _make_room(self, rows: pa.Table, replacing: Sequence[str], there: Sequence[str], run: Run) -> None:
        """Makes the table, or takes away the rows that are replaced."""
        kind = self.address.kind
        if there and set(there) != set(rows.column_names):
            text = f'table "{self.name}" is there, with other columns {examples(there, 8)} than those to be written'
            raise UsageError("C02", f"{text} {examples(rows.column_names, 8)}", "name another table")
        if not there:
            types = [f"{quote(f.name)} {_TYPES[kind][_form(f.type)]}" for f in rows.schema]
            run(f"CREATE TABLE {self._place} ({', '.join(types)})", [()])
        sign = "${}" if kind == "postgresql" else "?"
        tests = [f"{quote(name)} = {sign.format(number)}" for number, name in enumerate(replacing, 1)]
        old = rows.select(list(replacing)).group_by(list(replacing)).aggregate([]).to_pylist()
        if there and old:
            values = [
                [_plain(row[name]) if kind == "sqlite" else row[name] for name in replacing] for row in old
            ]
            run(f"DELETE FROM {self._place} WHERE {' AND '.join(tests)}", values)


# Tables, the rows that are added to each, and the columns in which those are equal that are replaced.
_Parts = Sequence[tuple[DatabaseTable, pa.Table, Sequence[str]]]


def is_predictions(columns: Iterable[str]) -> bool:
    """Returns whether a table with these columns holds what a model said and was written back: it is no data."""
    names = set(columns)
    said = {"score", "predicted", "embedding", "neighbour", "segment"}
    return names >= {"model", "time", "horizon"} and bool(names & said)


_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"
_COLUMNS = "SELECT column_name FROM information_schema.columns WHERE table_schema = {} AND table_name = {}"


def _form(kind: pa.DataType) -> str:
    if pa.types.is_timestamp(kind):
        return "time"
    if pa.types.is_boolean(kind):
        return "truth"
    if pa.types.is_integer(kind):
        return "whole"
    return "number" if pa.types.is_floating(kind) else "text"


def _as_kept(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Returns a column in one of the few types that all databases keep."""
    form = _FORMS[_form(column.type)]
    try:
        return column.cast(form, safe=not pa.types.is_timestamp(form))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.chunked_array(
            [[None if value is None else str(value) for value in column.to_pylist()]], pa.string()
        )


def _values(column: pa.ChunkedArray) -> list[Any]:
    return [_plain(value) for value in column.to_pylist()]


def _plain(value: Any) -> Any:
    """Returns a value as SQLite keeps it: times as text in UTC."""
    return value.astimezone(UTC).replace(tzinfo=None).isoformat(" ") if isinstance(value, datetime) else value


def _names(rows: pa.Table) -> str:
    return ", ".join(map(quote, rows.column_names))
