"""What every SQL database has to say of itself, and how it is asked.

An `Engine` is one open, read-only connection that sees one state of the database: it lists its
tables (`Catalogue`) and reads them one by one.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from quartet.errors import ResourceError
from quartet.findings import Finding, note, warning

Query = Callable[[str], pa.Table]


@dataclass(frozen=True)
class Column:
    """A column and its type, in the words of its database."""

    name: str
    type: str


@dataclass(frozen=True)
class Link:
    """A declared foreign key. It may lead out of what is read; no `references`: the primary key."""

    columns: tuple[str, ...]
    schema: str
    table: str
    references: tuple[str, ...] = ()


@dataclass(frozen=True)
class DeclaredTable:
    name: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()


@dataclass(frozen=True)
class Catalogue:
    """The base tables of one schema by name, and findings on what is left out."""

    schema: str
    tables: Mapping[str, DeclaredTable]
    findings: tuple[Finding, ...] = ()


class QueryError(Exception):
    """What a database said instead of giving rows, and what may help."""

    def __init__(self, reason: str, fix: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.fix = fix


class Engine(Protocol):
    def catalogue(self) -> Catalogue: ...

    def read(self, table: DeclaredTable, keys: frozenset[str]) -> tuple[pa.Table, list[Finding]]:
        """The rows of a table; `keys` are its columns that name rows, which must stay exact."""
        ...


def left_out(schema: str, kind: str, names: list[str]) -> tuple[Finding, ...]:
    """The note on what is not a table, if there is any."""
    if not names:
        return ()
    listed = ", ".join(quote(name) for name in names)
    fix = "to use one, copy it into a table"
    return (note("S19", schema, f"left out, because only tables are read: {kind} {listed}", len(names), fix),)


# How rows are asked for


def quote(name: str) -> str:
    """A name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def select(expressions: Mapping[str, str], source: str) -> str:
    return f"SELECT {', '.join(expressions.values())} FROM {source}"


def read_columns(
    query: Query,
    table: DeclaredTable,
    source: str,
    expressions: Mapping[str, str],
    as_text: Callable[[str], str],
) -> tuple[pa.Table, list[Finding]]:
    """The rows of a table; a column that the driver cannot bring is asked for as text instead."""
    failed: dict[str, str] = {}
    try:
        rows = query(select(expressions, source))
    except QueryError as error:
        failed = _failing(query, expressions, source)
        texts = {name: as_text(quote(name)) for name in failed}
        rows = _read_again(query, select({**expressions, **texts}, source), error)
    types = {column.name: column.type for column in table.columns}
    return rows.rename_columns(list(expressions)), [
        note(
            "V11",
            f"{table.name}.{name}",
            f"{table.name}.{name} ({types[name]}) is read as text: {reason}",
            rows.num_rows,
        )
        for name, reason in failed.items()
    ]


def _read_again(query: Query, sql: str, first: QueryError) -> pa.Table:
    """The rows after all, or else the first error, which says most."""
    try:
        return query(sql)
    except QueryError:
        raise first from None


def _failing(query: Query, expressions: Mapping[str, str], source: str) -> dict[str, str]:
    """The columns that cannot be read even alone, each with the reason."""
    failed = {}
    for name, expression in expressions.items():
        try:
            query(select({name: expression}, source))
        except QueryError as error:
            failed[name] = error.reason
    return failed


def without_infinity(
    query: Query, table: DeclaredTable, source: str, is_finite: Mapping[str, str]
) -> tuple[dict[str, str], list[Finding]]:
    """Expressions that give null for a time that no calendar holds, and how many there are."""
    if not is_finite:
        return {}, []
    counts = query(
        select({name: f"count(*) FILTER (WHERE NOT ({test}))" for name, test in is_finite.items()}, source)
    )
    findings = [
        warning(
            "V02",
            f"{table.name}.{name}",
            f"{table.name}.{name}: infinite or out-of-range times in {count:,} rows; they are read as empty",
            count,
        )
        for name, column in zip(is_finite, counts.columns, strict=True)
        if (count := column[0].as_py())
    ]
    return {name: f"CASE WHEN {test} THEN {quote(name)} END" for name, test in is_finite.items()}, findings


def scale_of(type_: str) -> int | None:
    """The declared number of decimals of `numeric(10,2)`: 2; of `numeric(10)`: 0; of `numeric`: None."""
    _, bracket, parameters = type_.partition("(")
    if not bracket:
        return None
    _, comma, scale = parameters.rstrip(") ").partition(",")
    return int(scale) if comma else 0


def driver(module: str, package: str) -> Any:
    """An optional module, or how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise ResourceError(
            "R01",
            f'reading this database needs the package "{package}", which is not installed',
            'pip install "quartet-rdl[sql]"',
        ) from None


def driver_errors() -> tuple[type[Exception], ...]:
    """What an ADBC driver raises: its own errors, or Arrow's in the middle of a stream."""
    return (driver("adbc_driver_manager", "adbc-driver-manager").Error, OSError, pa.ArrowException)


def reason_of(error: Exception) -> str:
    """The words of the database in an error of its driver, without the driver's own."""
    first, *_ = str(error).strip().splitlines()
    said = re.search(r"(?:ERROR|FATAL):\s+(.*)", first)
    if said:
        return said[1]
    return re.sub(r"^[A-Z_]+: |\[\w+\] |Failed to [a-z ]+: ", "", first).strip()
