"""DuckDB files, read through DuckDB itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import pyarrow as pa

from quartet.database.readers.address import Address
from quartet.database.readers.engine import (
    DeclaredTable,
    Engine,
    QueryError,
    Tables,
    declared_tables,
    literal,
    quote,
    scale_of,
)
from quartet.errors import ResourceError
from quartet.findings import Finding

_DECIMALS = ("DECIMAL", "HUGEINT", "UHUGEINT")
_TEXT = ("UUID", "ENUM", "JSON")
_TIMES = ("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMP WITH TIME ZONE", "DATE")
_SEALED = {"enable_external_access": "false", "autoload_known_extensions": "false"}
_HERE = "WHERE schema_name = {schema} AND database_name = current_database()"
_COLUMNS = f"""
SELECT c.table_name, c.column_name AS name, c.data_type AS type
FROM (SELECT * FROM duckdb_columns() {_HERE} AND NOT internal) c
JOIN (SELECT * FROM duckdb_tables() {_HERE} AND NOT internal) t USING (table_oid)
ORDER BY table_oid, column_index
"""
_KEYS = f"""
SELECT table_name, lower(constraint_type[1]) AS kind, constraint_column_names AS columns,
       schema_name AS target_schema, referenced_table AS target, referenced_column_names AS target_columns
FROM duckdb_constraints() {_HERE} AND constraint_type IN ('PRIMARY KEY', 'FOREIGN KEY')
"""
_VIEWS = f"SELECT view_name AS name FROM duckdb_views() {_HERE} AND NOT internal ORDER BY view_name"
_VIEW_COLUMNS = f"""
SELECT c.table_name, c.column_name AS name, c.data_type AS type
FROM (SELECT * FROM duckdb_columns() {_HERE} AND NOT internal) c
JOIN (SELECT view_oid AS table_oid FROM duckdb_views() {_HERE} AND NOT internal) v USING (table_oid)
ORDER BY c.table_name, column_index
"""
_SCHEMAS = "SELECT schema_name AS name FROM duckdb_schemas() WHERE NOT internal"
_FILLED_SCHEMAS = "SELECT DISTINCT schema_name AS name FROM duckdb_tables() WHERE NOT internal ORDER BY name"


@contextmanager
def open_duckdb(address: Address) -> Iterator[Engine]:
    """Opens a file, unable to write or to reach anything else."""
    import duckdb

    try:
        connection = duckdb.connect(address.path, read_only=True, config=_SEALED)
    except duckdb.Error as error:
        raise ResourceError(
            "R02",
            f'"{address.location}" cannot be opened: {_reason(error)}',
            "close the program that has it open, or write it with a version of DuckDB that this one reads",
        ) from None
    with closing(connection):
        connection.execute("SET TimeZone = 'UTC'")
        yield _DuckdbEngine(connection, address.schema, address.location)


def _reason(error: Exception) -> str:
    return str(error).strip().splitlines()[0]


class _DuckdbEngine(Engine):
    def catalogue(self) -> tuple[Tables, list[Finding]]:
        self._check_schema({"main", *(row["name"] for row in self._rows(_SCHEMAS))})
        columns, keys, views = (
            self._rows(sql.format(schema=literal(self._schema))) for sql in (_COLUMNS, _KEYS, _VIEWS)
        )
        names = [row["name"] for row in views]
        if self.reads_views:
            columns += self._rows(_VIEW_COLUMNS.format(schema=literal(self._schema)))
        return declared_tables(columns, keys, names), self._left_out("views", names)

    def schemas(self) -> list[str]:
        return [row["name"] for row in self._rows(_FILLED_SCHEMAS)]

    def read(self, table: DeclaredTable, keys: frozenset[str]) -> tuple[pa.Table, list[Finding]]:
        source = f"{quote(self._schema)}.{quote(table.name)}"
        expressions = {name: _expression(name, kind, name in keys) for name, kind in table.columns.items()}
        is_finite = {
            name: f"isfinite({quote(name)})" for name, kind in table.columns.items() if kind in _TIMES
        }
        return self._read(table, source, expressions, is_finite, "VARCHAR")

    def query(self, sql: str) -> pa.Table:
        import duckdb

        try:
            return self._connection.sql(sql).to_arrow_table()
        except (duckdb.Error, pa.ArrowException) as error:
            raise QueryError(_reason(error), "check that the file is whole") from None


def _expression(name: str, declared: str, is_key: bool) -> str:
    name, kind = quote(name), declared.partition("(")[0]
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
    return text if scale_of(declared) else f"CAST({name} AS BIGINT)"
