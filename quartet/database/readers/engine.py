"""Engine: one open SQL database, which lists its tables and reads them one by one."""

from __future__ import annotations

import importlib
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from quartet.errors import ResourceError, UsageError, did_you_mean
from quartet.findings import Finding, note, warning

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Link:
    """A declared foreign key. It may lead out of what is read; without `references`, to the primary key."""

    columns: tuple[str, ...]
    schema: str
    table: str
    references: tuple[str, ...] = ()


@dataclass(frozen=True)
class DeclaredTable:
    """A table and the types of its columns, in the words of its database."""

    name: str
    columns: Mapping[str, str]
    primary_key: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()
    is_view: bool = False


Tables = dict[str, DeclaredTable]


class QueryError(Exception):
    """The reason why a database refused a query, and what may help."""

    def __init__(self, reason: str, fix: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.fix = fix


class Engine(ABC):
    """An open, read-only connection that sees one state of one schema of a database.

    With `reads_views`, the catalogue has the views, too.
    """

    reads_views = False

    def __init__(self, connection: Any, schema: str, location: str) -> None:
        self._connection = connection
        self._schema = schema
        self._location = location

    @abstractmethod
    def catalogue(self) -> tuple[Tables, list[Finding]]:
        """Returns the tables of the schema by name, and findings on what is left out."""

    @abstractmethod
    def read(self, table: DeclaredTable, keys: frozenset[str]) -> tuple[pa.Table, list[Finding]]:
        """Returns the rows of a table; `keys` are the columns that name rows, which must stay exact."""

    @abstractmethod
    def query(self, sql: str) -> pa.Table:
        """Returns the rows of a query, or raises a `QueryError`."""

    def schemas(self) -> list[str]:
        """Returns the schemas that hold tables, where a database has several."""
        return []

    def _rows(self, sql: str) -> Rows:
        rows: Rows = self.query(sql).to_pylist()
        return rows

    def _check_schema(self, known: Iterable[str]) -> None:
        if self._schema not in known:
            meant = did_you_mean(self._schema, known)
            raise UsageError("C01", f'there is no schema "{self._schema}" in "{self._location}"{meant}')

    def _left_out(self, kind: str, names: list[str]) -> list[Finding]:
        """Returns the note on what is not a table, if there is any; views that are read are not left out."""
        if kind == "views" and self.reads_views:
            return []
        text = f"left out, because only tables are read: {kind} {', '.join(map(quote, names))}"
        fix = "to read them, say --views, or views: true in the schema" if kind == "views" else ""
        finding = note("S19", self._schema, text, len(names), fix or "to use one, copy it into a table")
        return [finding] if names else []

    def _read(
        self,
        table: DeclaredTable,
        source: str,
        expressions: Mapping[str, str],
        is_finite: Mapping[str, str],
        text: str,
    ) -> tuple[pa.Table, list[Finding]]:
        """Returns the rows of a table by one expression for each column.

        Times that fail the test `is_finite` are read as empty; a column that the driver cannot bring is
        read as the type `text` instead.
        """
        findings = []
        if is_finite:
            tests = [f"count(*) FILTER (WHERE NOT ({test}))" for test in is_finite.values()]
            counts = self.query(f"SELECT {', '.join(tests)} FROM {source}")
            for name, (count,) in zip(is_finite, (c.to_pylist() for c in counts.columns), strict=True):
                where = f"{table.name}.{name}"
                message = f"{where}: infinite or out-of-range times in {count:,} rows; they are read as empty"
                findings += [warning("V02", where, message, count)] if count else []
        finite = {name: f"CASE WHEN {test} THEN {quote(name)} END" for name, test in is_finite.items()}
        expressions = {**expressions, **finite}
        failed: dict[str, str] = {}
        try:
            rows = self.query(f"SELECT {', '.join(expressions.values())} FROM {source}")
        except QueryError as first:
            for name, expression in expressions.items():
                try:
                    self.query(f"SELECT {expression} FROM {source}")
                except QueryError as error:
                    failed[name] = error.reason
            expressions |= {name: f"CAST({quote(name)} AS {text})" for name in failed}
            try:
                rows = self.query(f"SELECT {', '.join(expressions.values())} FROM {source}")
            except QueryError:
                raise first from None
        for name, reason in failed.items():
            where = f"{table.name}.{name}"
            message = f"{where} ({table.columns[name]}) is read as text: {reason}"
            findings.append(note("V11", where, message, rows.num_rows))
        return rows.rename_columns(list(expressions)), findings


def declared_tables(columns: Rows, keys: Rows, views: Collection[str] = ()) -> Tables:
    """Returns the tables of a catalogue's columns (`table_name`, `name`, `type`) and its keys.

    A key has a `kind` (p for primary, f for foreign), `columns`, `target_schema`, `target` and `target_columns`.
    """
    tables = {}
    for name in dict.fromkeys(row["table_name"] for row in columns):
        mine = [row for row in keys if row["table_name"] == name]
        tables[name] = DeclaredTable(
            name,
            {row["name"]: row["type"] for row in columns if row["table_name"] == name},
            next((tuple(row["columns"]) for row in mine if row["kind"] == "p"), ()),
            tuple(
                Link(tuple(row["columns"]), row["target_schema"], row["target"], tuple(row["target_columns"]))
                for row in mine
                if row["kind"] == "f"
            ),
            name in views,
        )
    return tables


def quote(name: str) -> str:
    """Returns a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Returns a text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def scale_of(type_: str) -> int | None:
    """Returns the declared number of decimals of `numeric(10,2)`: 2; of `numeric(10)`: 0; of `numeric`: None."""
    _, bracket, parameters = type_.partition("(")
    _, comma, scale = parameters.rstrip(") ").partition(",")
    return None if not bracket else int(scale) if comma else 0


def driver(module: str, package: str, pip: str = '"quartet-rdl[sql]"') -> Any:
    """Imports an optional module; the error says how to install it: by `pip`, what belongs to no extra by itself."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise ResourceError(
            "R01",
            f'reading this database needs the package "{package}", which is not installed',
            f"pip install {pip}",
        ) from None


def driver_errors() -> tuple[type[Exception], ...]:
    """Returns the errors of an ADBC driver: its own, or Arrow's in the middle of a stream."""
    return (driver("adbc_driver_manager", "adbc-driver-manager").Error, OSError, pa.ArrowException)


def reason_of(error: Exception) -> str:
    """Returns the words of the database in an error of its driver, without the driver's own."""
    first, *_ = str(error).strip().splitlines()
    reason = re.search(r"(?:ERROR|FATAL):\s+(.*)", first)
    return reason[1] if reason else re.sub(r"^[A-Z_]+: |\[\w+\] |Failed to [a-z ]+: ", "", first).strip()
