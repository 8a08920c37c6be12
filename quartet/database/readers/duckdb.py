"""DuckDB files, read through DuckDB itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from quartet.database.readers.engine import (
    Catalogue,
    Column,
    DeclaredTable,
    Link,
    QueryError,
    left_out,
    literal,
    quote,
    read_columns,
    scale_of,
    without_infinity,
)
from quartet.errors import ResourceError, UsageError, did_you_mean
from quartet.findings import Finding

_DECIMALS = frozenset(["DECIMAL", "HUGEINT", "UHUGEINT"])
_TEXT = frozenset(["UUID", "ENUM", "JSON"])
_TIMES = frozenset(
    ["TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMP WITH TIME ZONE", "DATE"]
)

_SEALED = {"enable_external_access": "false", "autoload_known_extensions": "false"}


@contextmanager
def open_duckdb(path: Path, schema: str, location: str) -> Iterator[DuckdbEngine]:
    """The open file, unable to write or to reach anything else."""
    import duckdb

    try:
        connection = duckdb.connect(path, read_only=True, config=_SEALED)
    except duckdb.Error as error:
        raise ResourceError(
            "R02",
            f'"{location}" cannot be opened: {_reason(error)}',
            "close the program that has it open, or write it with a version of DuckDB that this one reads",
        ) from None
    with closing(connection):
        connection.execute("SET TimeZone = 'UTC'")
        yield DuckdbEngine(connection, schema, location)


def _reason(error: Exception) -> str:
    return str(error).strip().splitlines()[0]


class DuckdbEngine:
    """An open DuckDB file, and one schema of it."""

    def __init__(self, connection: Any, schema: str, location: str) -> None:
        self._connection = connection
        self._schema = schema
        self._location = location

    def catalogue(self) -> Catalogue:
        self._check_schema()
        columns: dict[str, list[Column]] = {}
        for row in self._listed("columns"):
            columns.setdefault(row["table_name"], []).append(Column(row["column_name"], row["data_type"]))
        names = [row["table_name"] for row in self._listed("tables")]
        views = sorted(row["view_name"] for row in self._listed("views"))
        keys = self._listed("constraints")
        return Catalogue(
            self._schema,
            {name: self._declared(name, columns[name], keys) for name in names},
            left_out(self._schema, "views", views),
        )

    def _check_schema(self) -> None:
        known = [
            row["schema_name"]
            for row in self._rows("SELECT schema_name FROM duckdb_schemas() WHERE NOT internal")
        ]
        if self._schema not in {"main", *known}:
            raise UsageError(
                "C01",
                f'there is no schema "{self._schema}" in "{self._location}"'
                + did_you_mean(self._schema, {"main", *known}),
            )

    def _declared(self, name: str, columns: list[Column], keys: list[dict[str, Any]]) -> DeclaredTable:
        mine = [row for row in keys if row["table_name"] == name]
        primary = [row for row in mine if row["constraint_type"] == "PRIMARY KEY"]
        foreign = [row for row in mine if row["constraint_type"] == "FOREIGN KEY"]
        return DeclaredTable(
            name,
            tuple(columns),
            tuple(primary[0]["constraint_column_names"]) if primary else (),
            tuple(
                Link(
                    tuple(row["constraint_column_names"]),
                    self._schema,
                    row["referenced_table"],
                    tuple(row["referenced_column_names"]),
                )
                for row in foreign
            ),
        )

    def read(self, table: DeclaredTable, keys: frozenset[str]) -> tuple[pa.Table, list[Finding]]:
        source = f"{quote(self._schema)}.{quote(table.name)}"
        is_finite = {c.name: f"isfinite({quote(c.name)})" for c in table.columns if c.type in _TIMES}
        times, infinite = without_infinity(self.query, table, source, is_finite)
        expressions = {c.name: times.get(c.name) or _expression(c, c.name in keys) for c in table.columns}
        rows, findings = read_columns(self.query, table, source, expressions, "CAST({} AS VARCHAR)".format)
        return rows, infinite + findings

    def _listed(self, what: str) -> list[dict[str, Any]]:
        """The rows of `duckdb_tables()` and its like for this schema."""
        return self._rows(
            f"SELECT * FROM duckdb_{what}() WHERE schema_name = {literal(self._schema)} "
            "AND database_name = current_database()"
            + ("" if what == "constraints" else " AND NOT internal")
            + (" ORDER BY column_index" if what == "columns" else "")
        )

    def _rows(self, sql: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.query(sql).to_pylist()
        return rows

    def query(self, sql: str) -> pa.Table:
        import duckdb

        try:
            return self._connection.sql(sql).to_arrow_table()
        except (duckdb.Error, pa.ArrowException) as error:
            raise QueryError(_reason(error), "check that the file is whole") from None


def _expression(column: Column, is_key: bool) -> str:
    name = quote(column.name)
    kind = column.type.partition("(")[0]
    if kind in _TEXT:
        return f"CAST({name} AS VARCHAR)"
    if kind == "INTERVAL":
        return f"epoch({name})"
    if kind not in _DECIMALS:
        return name
    if not is_key:
        return f"CAST({name} AS DOUBLE)"
    # Without its last zeros a decimal is written in one way only, as equal keys must be.
    text = f"rtrim(rtrim(CAST({name} AS VARCHAR), '0'), '.')"
    return text if scale_of(column.type) else f"CAST({name} AS BIGINT)"
