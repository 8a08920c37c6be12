"""MySQL and MariaDB, read through PyMySQL: keys and rows in one transaction, hence of one moment.

The driver brings every cell as the bytes that the server sent, and Arrow reads whole columns of them by the types that
the server's own catalogue declares.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from getpass import getpass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from quartet.database.readers.address import Address
from quartet.database.readers.engine import (
    DeclaredTable,
    Engine,
    QueryError,
    Rows,
    Tables,
    declared_tables,
    driver,
    literal,
    scale_of,
)
from quartet.errors import QuartetError, ResourceError, UsageError
from quartet.findings import Finding, note, warning
from quartet.times import is_iso

_BATCH = 65_536  # rows
_WHOLE = frozenset(["tinyint", "smallint", "mediumint", "int", "integer", "bigint", "year", "bit"])
_BYTES = frozenset(
    ["binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "geometry", "point", "linestring",
     "polygon", "multipoint", "multilinestring", "multipolygon", "geometrycollection", "geomcollection", "vector"]
)  # fmt: skip
_TIMES = {"date": pa.date32(), "datetime": pa.timestamp("us"), "timestamp": pa.timestamp("us", "UTC")}
_REFUSED, _NO_DATABASE = (1044, 1045, 1698), 1049  # the numbers of the server's errors
# Times with a zone come in UTC, and text in one form, whatever the server's settings.
_SETTINGS = (
    "SET SESSION sql_mode = ''",
    "SET SESSION time_zone = '+00:00'",
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY",
)
_RELATIONS = """
SELECT table_name AS name, table_type AS kind, engine AS engine FROM information_schema.tables
WHERE table_schema = {schema} ORDER BY table_name
"""
_COLUMNS = """
SELECT table_name AS table_name, column_name AS name, column_type AS type FROM information_schema.columns
WHERE table_schema = {schema} ORDER BY table_name, ordinal_position
"""
_KEYS = """
SELECT table_name AS table_name, constraint_name AS constraint_name, column_name AS name,
       referenced_table_schema AS target_schema, referenced_table_name AS target,
       referenced_column_name AS target_column
FROM information_schema.key_column_usage
WHERE table_schema = {schema} AND (constraint_name = 'PRIMARY' OR referenced_table_name IS NOT NULL)
ORDER BY table_name, constraint_name, ordinal_position
"""


@contextmanager
def open_mysql(address: Address) -> Iterator[Engine]:
    """Opens a database in one read-only transaction that sees one moment of it.

    A password that is not given is that of the variable MYSQL_PWD; then a person is asked for it.
    """
    words = dict(address.connection)
    words.setdefault("password", os.environ.get("MYSQL_PWD", ""))
    connection, code, failure = _connect(words)
    if code in _REFUSED and not words["password"] and sys.stdin.isatty():
        words["password"] = getpass(f"Password for {address.location}: ")
        connection, code, failure = _connect(words)
    address = replace(address, connection=words)
    # Raised here and not in the handler: the driver's own words must not hang on to the error.
    if connection is None:
        raise _no_connection(code, failure, address)
    with closing(connection):
        yield _MysqlEngine(connection, address.schema, address.location)


def _connect(words: Mapping[str, str]) -> tuple[Any, int, str]:
    """Returns a connection, or None with the number of the error and the reason."""
    pymysql = driver("pymysql", "pymysql")
    converters = driver("pymysql.converters", "pymysql")
    given: dict[str, Any] = {word: value for word, value in words.items() if value}
    given["database"] = given.pop("dbname", "")
    for word in ("port", "connect_timeout"):
        if word in given:
            given[word] = int(given[word]) if given[word].isdigit() else 0
    try:
        connection = pymysql.connect(
            **{"connect_timeout": 5, **given},
            charset="utf8mb4",
            use_unicode=False,
            conv=converters.encoders,  # and no decoder: cells stay bytes
        )
        return connection, 0, ""
    except (pymysql.err.MySQLError, OSError, RuntimeError, TypeError, ValueError) as error:
        code, reason = _told(error)
        for secret in filter(None, [words.get("password", "")]):
            reason = reason.replace(secret, "***")
        return None, code, reason


def _told(error: Exception) -> tuple[int, str]:
    """Returns the number and the words of the server in an error of the driver."""
    if len(error.args) > 1 and isinstance(error.args[0], int):
        return error.args[0], str(error.args[1]).strip()
    return 0, str(error).strip() or type(error).__name__


def _no_connection(code: int, reason: str, address: Address) -> QuartetError:
    what = f'no connection to "{address.location}": {reason}'
    if code == _NO_DATABASE or "unexpected keyword argument" in reason:
        return UsageError("C01", what, "correct the name in the URL")
    if code in _REFUSED:
        fix = "give the user in the URL, and the password there or in the variable MYSQL_PWD"
        return UsageError("C13", what, fix)
    if "cryptography" in reason:
        return ResourceError(
            "R01", what, 'pip install "quartet-rdl[sql]", or name a certificate: ?ssl_ca=FILE'
        )
    host, port = (address.connection.get("host", "localhost"), address.connection.get("port", "3306"))
    return ResourceError("R02", what, f"check that the server runs and can be reached at {host}, port {port}")


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


class _MysqlEngine(Engine):
    def __init__(self, connection: Any, schema: str, location: str) -> None:
        super().__init__(connection, schema, location)
        for statement in _SETTINGS:
            self._bytes(statement)

    def catalogue(self) -> tuple[Tables, list[Finding]]:
        schema = literal(self._schema).replace("\\", "\\\\")
        relations, columns, keys = (
            self._rows(sql.replace("{schema}", schema)) for sql in (_RELATIONS, _COLUMNS, _KEYS)
        )
        views = [row["name"] for row in relations if row["kind"] == "VIEW"]
        others = [row["name"] for row in relations if row["kind"] == "SEQUENCE"]
        read = [
            row["name"]
            for row in relations
            if row["name"] not in others and (self.reads_views or row["name"] not in views)
        ]
        findings = self._left_out("views", views) + self._left_out("sequences", others)
        for row in relations:
            if row["engine"] in ("MyISAM", "Aria", "CSV") and row["name"] in read:
                text = f'table "{row["name"]}" is kept by {row["engine"]}, which knows no transactions: it may be of '
                findings.append(
                    note("S20", row["name"], text + "another moment if it is written to meanwhile")
                )
        tables = declared_tables(columns, _joined(keys), views)
        return {name: tables[name] for name in read if name in tables}, findings

    def read(self, table: DeclaredTable, keys: frozenset[str]) -> tuple[pa.Table, list[Finding]]:
        names = [_expression(name, kind) for name, kind in table.columns.items()]
        source = f"{_quoted(self._schema)}.{_quoted(table.name)}"
        raw = self._bytes(f"SELECT {', '.join(names)} FROM {source}")
        columns, findings = [], []
        for (name, kind), cells in zip(table.columns.items(), raw.columns, strict=True):
            column, noticed = _typed(f"{table.name}.{name}", kind, cells, name in keys)
            columns.append(column)
            findings += noticed
        return pa.table(columns, names=list(table.columns)), findings

    def query(self, sql: str) -> pa.Table:
        raw = self._bytes(sql)
        return pa.table([column.cast(pa.string()) for column in raw.columns], names=raw.column_names)

    def _bytes(self, sql: str) -> pa.Table:
        """Returns the rows of a query, every cell as bytes."""
        pymysql = driver("pymysql", "pymysql")
        cursors = driver("pymysql.cursors", "pymysql")
        try:
            with closing(self._connection.cursor(cursors.SSCursor)) as cursor:
                cursor.execute(sql)
                names = [field[0] for field in cursor.description or ()]
                names = [name.decode() if isinstance(name, bytes) else name for name in names]
                chunks: list[list[pa.Array]] = [[] for _ in names]
                while names and (rows := cursor.fetchmany(_BATCH)):
                    for chunk, cells in zip(chunks, zip(*rows, strict=True), strict=True):
                        chunk.append(pa.array(cells, pa.large_binary()))
                columns = [pa.chunked_array(chunk, pa.large_binary()) for chunk in chunks]
                return pa.table(columns, names=names)
        except (pymysql.err.MySQLError, OSError) as error:
            raise QueryError(_told(error)[1], "check that this user may read the tables") from None


def _joined(keys: Rows) -> Rows:
    """Returns one row for each key of the catalogue, which has one for each of its columns."""
    joined: dict[tuple[str, str], dict[str, Any]] = {}
    for row in keys:
        kind = "p" if row["target"] is None else "f"
        new = {**row, "kind": kind, "columns": [], "target_columns": []}
        key = joined.setdefault((row["table_name"], row["constraint_name"]), new)
        key["columns"].append(row["name"])
        key["target_columns"].append(row["target_column"])
    return list(joined.values())


def _base(declared: str) -> str:
    return declared.lower().partition("(")[0].split()[0]


def _expression(name: str, declared: str) -> str:
    kind = _base(declared)
    if kind == "bit":
        return f"CAST({_quoted(name)} AS UNSIGNED)"
    # A float is written with six digits; as a double it keeps all that it has.
    return f"({_quoted(name)} + 0e0)" if kind == "float" else _quoted(name)


def _typed(
    where: str, declared: str, cells: pa.ChunkedArray, is_key: bool
) -> tuple[pa.ChunkedArray, list[Finding]]:
    """Returns the cells of a column by its declared type, and what could not be read so."""
    kind = _base(declared)
    if kind in _BYTES:
        return cells.cast(pa.binary()), []
    try:
        text = cells.cast(pa.large_string())
    except pa.ArrowInvalid:  # the server keeps text as it was given to it; what is broken is replaced later
        cells = cells.cast(pa.binary())
        chunks = [
            pa.Array.from_buffers(pa.string(), len(c), c.buffers(), offset=c.offset) for c in cells.chunks
        ]
        return pa.chunked_array(chunks, pa.string()), []
    if kind in _TIMES:
        is_bad = pc.fill_null(pc.invert(is_iso(text)), False)
        count = pc.sum(is_bad).as_py() or 0
        message = f"{where}: zero or impossible dates in {count:,} rows; they are read as empty"
        findings = [warning("V02", where, message, count)] if count else []
        good = pc.if_else(is_bad, None, text)
        if kind == "timestamp":  # the session's zone is UTC
            return good.cast(pa.timestamp("us")).cast(_TIMES[kind]), findings
        return good.cast(_TIMES[kind]), findings
    scale = scale_of(declared.lower().partition(")")[0] + ")") if kind == "decimal" else None
    if kind in _WHOLE or (is_key and scale == 0):
        try:
            return text.cast(pa.int64()), []
        except pa.ArrowInvalid:
            message = f"{where} ({declared}) holds whole numbers of 2^63 and above; it is read as text"
            return text.cast(pa.string()), [note("V11", where, message, len(text))]
    if kind == "decimal" and is_key:  # without last zeros written in one way only, as equal keys must be
        trimmed = pc.utf8_rtrim(pc.utf8_rtrim(text, characters="0"), characters=".")
        return trimmed.cast(pa.string()), []
    if kind in ("decimal", "numeric", "float", "double", "real"):
        return text.cast(pa.float64()), []
    return text.cast(pa.string()), []
