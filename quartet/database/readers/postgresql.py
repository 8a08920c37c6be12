"""PostgreSQL, read through ADBC: keys and rows in one transaction, hence of one moment.

Keys come from the system catalogue itself, which names columns by number. Reflection libraries
read the text of the constraints instead, and go wrong where a column is called "a, b" or where a
key leads into another schema of the search path.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from getpass import getpass
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
    scale_of,
)
from quartet.errors import QuartetError, ResourceError, UsageError
from quartet.findings import Finding, warning

_TEXT = frozenset(
    ["bpchar", "uuid", "enum", "json", "jsonb", "xml", "inet", "cidr", "macaddr", "macaddr8", "citext"]
)
_TIMES = frozenset(["timestamp", "timestamptz", "date"])
_NO_PASSWORD = "no password supplied"  # in the words of libpq
# Text and names come out in one form, and rows in one order, whatever the server's settings.
_SETTINGS = {
    "search_path": "pg_catalog",
    "TimeZone": "UTC",
    "DateStyle": "ISO",
    "standard_conforming_strings": "on",
    "synchronize_seqscans": "off",
    "max_parallel_workers_per_gather": "0",
}

# Text comes as UTF-8, unless the server itself does not know how its text is written.
_SET_ENCODING = """
SELECT set_config('client_encoding', 'SQL_ASCII', true) WHERE current_setting('server_encoding') = 'SQL_ASCII'
"""
_RELATIONS = """
SELECT relname::text AS name, relkind::text AS kind,
       row_security_active(c.oid) AS is_filtered, has_table_privilege(c.oid, 'SELECT') AS is_readable
FROM pg_class c
WHERE relnamespace = {schema}::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT relispartition
ORDER BY relname
"""
_FILLED_SCHEMAS = """
SELECT DISTINCT nspname::text AS name FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
WHERE relkind IN ('r', 'p') AND nspname !~ '^pg_' AND nspname <> 'information_schema' ORDER BY name
"""
# Domains give way to the type beneath, however deep.
_COLUMNS = """
WITH RECURSIVE base(domain, type, modifier) AS (
  SELECT oid, oid, -1 FROM pg_type WHERE typtype <> 'd'
  UNION ALL
  SELECT d.oid, b.type, CASE WHEN d.typtypmod >= 0 THEN d.typtypmod ELSE b.modifier END
  FROM pg_type d JOIN base b ON d.typbasetype = b.domain WHERE d.typtype = 'd'
)
SELECT c.relname::text AS table_name, a.attname::text AS name,
       CASE WHEN t.typtype = 'e' THEN 'enum'
            WHEN t.typname = 'numeric' THEN format_type(
              t.oid, CASE WHEN a.atttypmod >= 0 THEN a.atttypmod ELSE b.modifier END)
            ELSE t.typname::text END AS type
FROM pg_attribute a
JOIN pg_class c ON c.oid = a.attrelid
JOIN base b ON b.domain = a.atttypid
JOIN pg_type t ON t.oid = b.type
WHERE c.relnamespace = {schema}::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm')
  AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY c.relname, a.attnum
"""
# A key of a partitioned table is repeated for every partition; only the first has no parent.
_KEYS = """
SELECT c.relname::text AS table_name, k.contype::text AS kind,
       ARRAY(SELECT attname::text FROM unnest(k.conkey) WITH ORDINALITY AS u(number, place)
             JOIN pg_attribute ON attrelid = k.conrelid AND attnum = number ORDER BY place) AS columns,
       n.nspname::text AS target_schema, f.relname::text AS target,
       ARRAY(SELECT attname::text FROM unnest(k.confkey) WITH ORDINALITY AS u(number, place)
             JOIN pg_attribute ON attrelid = k.confrelid AND attnum = number ORDER BY place) AS target_columns
FROM pg_constraint k
JOIN pg_class c ON c.oid = k.conrelid
LEFT JOIN pg_class f ON f.oid = k.confrelid
LEFT JOIN pg_namespace n ON n.oid = f.relnamespace
WHERE c.relnamespace = {schema}::regnamespace AND k.contype IN ('p', 'f') AND k.conparentid = 0
"""


@contextmanager
def open_postgresql(address: Address) -> Iterator[Engine]:
    """Opens a database in one read-only transaction that sees one moment of it."""
    with connected(address) as connection:
        yield _PostgresqlEngine(connection, address.schema, address.location, address.secrets)


@contextmanager
def connected(address: Address) -> Iterator[Any]:
    """Yields a connection to a database.

    libpq itself looks for a password that is not given, in PGPASSWORD and .pgpass; then a person is asked for it.
    """
    connection, failure = _connect(address.connection)
    if _NO_PASSWORD in failure and sys.stdin.isatty():
        password = getpass(f"Password for {address.location}: ")
        address = replace(address, connection={**address.connection, "password": password})
        connection, failure = _connect(address.connection)
    # Raised here and not in the handler: the driver's own words must not hang on to the error.
    if connection is None:
        raise _no_connection(without(address.secrets, failure), address)
    with closing(connection):
        yield connection


def _connect(words: Mapping[str, str]) -> tuple[Any, str]:
    """Returns a connection, or None and the reason."""
    dbapi = driver("adbc_driver_postgresql.dbapi", "adbc-driver-postgresql")
    words = {"connect_timeout": "5", **words, "client_encoding": "UTF8"}
    escaped = {word: value.replace("\\", "\\\\").replace("'", "\\'") for word, value in words.items()}
    try:
        text = " ".join(f"{word}='{value}'" for word, value in escaped.items())
        return dbapi.connect(text, autocommit=True), ""
    except driver_errors() as error:
        return None, reason_of(error)


def _no_connection(reason: str, address: Address) -> QuartetError:
    what = f'no connection to "{address.location}": {reason}'
    if "invalid connection option" in reason or re.search(r'database ".*" does not exist', reason):
        return UsageError("C01", what, "correct the name in the URL")
    if _NO_PASSWORD in reason:
        fix = "give the password in the variable PGPASSWORD, in the file .pgpass, or in the URL"
        return UsageError("C13", what, fix)
    if re.search(r"authentication failed|password|role .* does not exist", reason):
        return UsageError("C13", what, "correct the user and the password in the URL")
    host, port = (address.connection.get("host", "the default host"), address.connection.get("port", "5432"))
    return ResourceError("R02", what, f"check that the server runs and can be reached at {host}, port {port}")


def without(secrets: list[str], text: str) -> str:
    """Returns a text in which `***` stands for every secret."""
    for secret in secrets:
        text = text.replace(secret, "***")
    return text


class _PostgresqlEngine(Engine):
    def __init__(self, connection: Any, schema: str, location: str, secrets: list[str]) -> None:
        super().__init__(connection, schema, location)
        self._secrets = secrets
        self._partitioned: set[str] = set()
        # The driver's own transactions cannot go on after an error; these can, by savepoints.
        self._run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        for name, value in _SETTINGS.items():
            self._run(f"SET LOCAL {name} = {literal(value)}")
        self.query(_SET_ENCODING)

    def catalogue(self) -> tuple[Tables, list[Finding]]:
        names = [row["name"] for row in self._rows("SELECT nspname::text AS name FROM pg_namespace")]
        if self._schema not in names:  # then only the user's own are suggested
            names = [name for name in names if not name.startswith("pg_") and name != "information_schema"]
        self._check_schema(names)
        relations, columns, keys = (
            self._rows(sql.replace("{schema}", literal(quote(self._schema))))
            for sql in (_RELATIONS, _COLUMNS, _KEYS)
        )
        self._partitioned = {row["name"] for row in relations if row["kind"] == "p"}
        views = [row["name"] for row in relations if row["kind"] in "vm"]
        tables = declared_tables(columns, keys, views)
        kinds = "rpvm" if self.reads_views else "rp"
        readable = [row["name"] for row in relations if row["kind"] in kinds and row["is_readable"]]
        findings = self._findings(relations, tables)
        return {name: tables[name] for name in readable if name in tables}, findings

    def schemas(self) -> list[str]:
        return [row["name"] for row in self._rows(_FILLED_SCHEMAS)]

    def _findings(self, relations: Rows, tables: Tables) -> list[Finding]:
        def named(kinds: str) -> list[str]:
            return [row["name"] for row in relations if row["kind"] in kinds]

        hidden = []
        for row in relations:
            if row["kind"] in ("rpvm" if self.reads_views else "rp") and (
                row["is_filtered"] or not row["is_readable"]
            ):
                reason = (
                    "row security is on, so only the rows that this user may see are read"
                    if row["is_readable"]
                    else "this user may not read it, so it is left out"
                )
                text, fix = f'table "{row["name"]}": {reason}', "connect as a user who may read it all"
                hidden.append(warning("S20", row["name"], text, fix=fix))
        left_out = self._left_out("views", named("vm")) + self._left_out("foreign tables", named("f"))
        empty = [name for name in named("rp") if name not in tables]
        return left_out + self._left_out("tables without columns", empty) + hidden

    def read(self, table: DeclaredTable, keys: frozenset[str]) -> tuple[pa.Table, list[Finding]]:
        # ONLY: the rows of an inheriting table are its own, and would be read twice.
        only = "" if table.name in self._partitioned or table.is_view else "ONLY "
        source = f"{only}{quote(self._schema)}.{quote(table.name)}"
        expressions = {name: _expression(name, kind, name in keys) for name, kind in table.columns.items()}
        # PostgreSQL's times go further than 64-bit microseconds since 1970.
        is_finite = {
            name: f"isfinite({quote(name)})"
            + ("" if kind == "date" else f" AND {quote(name)} < '294247-01-01'")
            for name, kind in table.columns.items()
            if kind in _TIMES
        }
        return self._read(table, source, expressions, is_finite, "text")

    def query(self, sql: str) -> pa.Table:
        self._run("SAVEPOINT before_query")
        try:
            return self._run(sql, has_rows=True)
        except QueryError:
            with suppress(QueryError):
                self._run("ROLLBACK TO SAVEPOINT before_query")
            raise

    def _run(self, sql: str, has_rows: bool = False) -> pa.Table | None:
        try:
            with closing(self._connection.cursor()) as cursor:
                cursor.execute(sql)
                return cursor.fetch_arrow_table() if has_rows else None
        except driver_errors() as error:
            reason = without(self._secrets, reason_of(error))
            raise QueryError(reason, "check that this user may read the tables, and run again") from None


def _expression(name: str, declared: str, is_key: bool) -> str:
    name, kind = quote(name), declared.partition("(")[0]
    if kind == "numeric" and is_key:
        scale = scale_of(declared)
        # Without its last zeros a decimal is written in one way only, as equal keys must be.
        whole = scale is not None and scale <= 0
        return f"CAST({name} AS int8)" if whole else f"CAST(trim_scale({name}) AS text)"
    if kind in _TEXT:
        return f"CAST({name} AS text)"
    return {
        "numeric": f"CAST({name} AS float8)",
        "money": f"CAST(CAST({name} AS numeric) AS float8)",
        "interval": f"EXTRACT(epoch FROM {name})::float8",
        "oid": f"CAST({name} AS int8)",
    }.get(kind, name)
