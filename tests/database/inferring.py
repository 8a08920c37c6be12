"""Inference from small tables, and what it found in short form."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa

from quartet.database import Possible
from quartet.database.inference.infer import infer as infer_schema
from quartet.database.schema import Schema

Facts = tuple[dict[str, str], dict[str, str], dict[str, str]]


class Inference(NamedTuple):
    schema: Schema
    possible: list[Possible]


def infer(tables: Mapping[str, pa.Table], schema: Schema) -> Inference:
    return Inference(*infer_schema(tables, schema))


def facts(schema: Schema) -> Facts:
    """Keys {table: column}, links {table.column: table} and times {table: column} of a schema."""
    tables = schema.tables.items()
    return (
        {name: ", ".join(table.primary_key) for name, table in tables if table.primary_key},
        {f"{name}.{fk.label}": fk.table for name, table in tables for fk in table.foreign_keys},
        {name: table.time.column for name, table in tables if table.time},
    )


def infer_from(**columns: Mapping[str, Any]) -> Inference:
    return infer({name: pa.table(dict(table)) for name, table in columns.items()}, Schema())


def listed(found: Inference, fact: str) -> dict[str, str]:
    """{table.column: target or ""} of what was left for the user."""
    return {f"{p.table}.{p.columns[0]}": p.target or "" for p in found.possible if p.fact == fact}


def ids(n: int) -> list[int]:
    return list(range(1, n + 1))


def some(n: int, upto: int, start: int = 1) -> list[int]:
    """`n` integers that run through start..upto in a scattered order, with repetitions."""
    return [start + (i * 7 + i // 3) % (upto - start + 1) for i in range(n)]


def floats(n: int) -> list[float]:
    return [i * 1.37 + 0.11 for i in range(n)]


def texts(word: str, n: int) -> list[str]:
    return [f"{word} {i}" for i in range(n)]


def stamps(n: int, hours: int = 7) -> list[datetime]:
    """Times in no order, as rows of a real table often are."""
    return [datetime(2024, 1, 1) + timedelta(hours=hours * i) for i in (*range(1, n, 2), *range(0, n, 2))]


def days(n: int) -> list[date]:
    return [date(1980, 1, 1) + timedelta(days=13 * ((i * 11) % n)) for i in range(n)]


AIRPORTS = {"faa": [f"{a}{b}{c}" for a in "ABCDE" for b in "KLMNO" for c in "PQRST"], "alt": floats(125)}
