"""Snowflake and BigQuery, read through their ADBC drivers. Untried: no such server was at hand.

Tables and columns come from the information schema; keys, which a warehouse does not enforce, are inferred.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pyarrow as pa

from quartet.database.readers.address import Address
from quartet.database.readers.engine import (
    DeclaredTable,
    Engine,
    QueryError,
    Rows,
    Tables,
    declared_tables,
    driver,
    driver_errors,
    literal,
    quote,
    reason_of,
)
from quartet.errors import ResourceError
from quartet.findings import Finding

_MODULES = {"snowflake": "adbc_driver_snowflake", "bigquery": "adbc_driver_bigquery"}
_COLUMNS = """
SELECT table_name AS "table_name", column_name AS "name", data_type AS "type" FROM {place}.columns
WHERE table_schema = {schema} ORDER BY table_name, ordinal_position
"""
_RELATIONS = """
SELECT table_name AS "name", table_type AS "kind" FROM {place}.tables WHERE table_schema = {schema}
ORDER BY table_name
"""


@contextmanager
def open_warehouse(address: Address) -> Iterator[Engine]:
    """Opens a schema of Snowflake, or a dataset of BigQuery."""
    module = _MODULES[address.kind]
    dbapi = driver(f"{module}.dbapi", module.replace("_", "-"), pip=module.replace("_", "-"))
    words = dict(address.connection)
    if address.kind == "bigquery":
        prefix = "adbc.bigquery.sql."
        given: dict[str, Any] = {
            f"{prefix}project_id": words.pop("host"),
            f"{prefix}dataset_id": words.pop("dbname"),
        }
        options = {"db_kwargs": given | {f"{prefix}{word}": value for word, value in words.items()}}
    else:
        prefix = "adbc.snowflake.sql."
        database, schema = words.pop("dbname").split("/")
        given = {"username": words.pop("user", ""), "password": words.pop("password", "")}
        given |= {f"{prefix}account": words.pop("host"), f"{prefix}db": database, f"{prefix}schema": schema}
        given |= {f"{prefix}{word}": value for word, value in words.items()}
        options = {"db_kwargs": {word: value for word, value in given.items() if value}}
    connection, reason = None, ""
    try:
        connection = dbapi.connect(**options)
    except driver_errors() as error:
        reason = reason_of(error)
        for secret in address.secrets:
            reason = reason.replace(secret, "***")
    if connection is None:
        fix = "check the names in the URL and the credentials of the driver"
        raise ResourceError("R02", f'no connection to "{address.location}": {reason}', fix)
    with closing(connection):
        yield _WarehouseEngine(connection, address.schema, address.location, address.kind, address.secrets)


class _WarehouseEngine(Engine):
    def __init__(self, connection: Any, schema: str, location: str, kind: str, secrets: list[str]) -> None:
        super().__init__(connection, schema, location)
        self._is_bigquery, self._secrets = kind == "bigquery", secrets

    def catalogue(self) -> tuple[Tables, list[Finding]]:
        place = (
            f"{self._quoted(self._schema)}.INFORMATION_SCHEMA" if self._is_bigquery else "information_schema"
        )
        relations, columns = (self._asked(sql, place) for sql in (_RELATIONS, _COLUMNS))
        views = [row["name"] for row in relations if "VIEW" in row["kind"]]
        tables = declared_tables(columns, [], views)
        read = {name: table for name, table in tables.items() if self.reads_views or not table.is_view}
        return read, self._left_out("views", views)

    def _asked(self, sql: str, place: str) -> Rows:
        sql = sql.replace("{place}", place).replace("{schema}", literal(self._schema))
        return self._rows(sql.replace('"', "`") if self._is_bigquery else sql)

    def _quoted(self, name: str) -> str:
        return f"`{name}`" if self._is_bigquery else quote(name)

    def read(self, table: DeclaredTable, keys: frozenset[str]) -> tuple[pa.Table, list[Finding]]:  # noqa: ARG002
        names = ", ".join(map(self._quoted, table.columns))
        return self.query(f"SELECT {names} FROM {self._quoted(self._schema)}.{self._quoted(table.name)}"), []

    def query(self, sql: str) -> pa.Table:
        try:
            with closing(self._connection.cursor()) as cursor:
                cursor.execute(sql)
                return cursor.fetch_arrow_table()
        except driver_errors() as error:
            reason = reason_of(error)
            for secret in self._secrets:
                reason = reason.replace(secret, "***")
            raise QueryError(reason, "check that this user may read the tables") from None
