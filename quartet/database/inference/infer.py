"""Inference of keys, links and times that a source does not declare.

What is inferred says so, with a confidence and a reason; what is too uncertain to be used is
listed for the user and not used. No guess is better than a wrong one: a wrong link is nonsense,
a wrong time a leak.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from quartet.database.inference.evidence import ACCEPT, LIST, Column, Possible
from quartet.database.inference.keys import guess_key
from quartet.database.inference.links import Target, guess_links
from quartet.database.inference.names import Noun, noun_of, take_apart
from quartet.database.inference.times import guess_time
from quartet.database.schema import ForeignKey, Schema, TableSchema, inferred

__all__ = ["ACCEPT", "LIST", "Inference", "Possible", "infer"]

Columns = dict[str, list[Column]]


@dataclass(frozen=True)
class Inference:
    """A schema completed by what the data say, and the facts left for the user to decide."""

    schema: Schema
    possible: tuple[Possible, ...] = ()


def infer(tables: Mapping[str, pa.Table], schema: Schema) -> Inference:
    """The schema with its open facts inferred from names and values, where they are sure enough.

    Settled facts stay as they are. Declared links stay, and other columns may become links.
    """
    nouns = {name: noun_of(name) for name in tables}
    columns = {name: _columns(name, table, nouns) for name, table in tables.items()}
    known = {name: schema.tables.get(name, TableSchema()) for name in tables}
    possible: list[Possible] = []
    for name in tables:
        known[name] = _with_key(name, known[name], columns, nouns, possible)
    targets = _targets(known, columns, nouns)
    for name in tables:
        known[name] = _with_links(known[name], columns[name], targets, nouns[name], possible)
        known[name] = _with_time(name, known[name], columns[name], nouns[name], possible)
    return Inference(replace(schema, tables={**schema.tables, **known}), tuple(possible))


def _columns(name: str, table: pa.Table, nouns: Mapping[str, Noun]) -> list[Column]:
    """The columns that can be spoken of: a name that is there twice, or empty, means no column."""
    times = Counter(table.column_names)
    named = [(i, c) for i, c in enumerate(table.column_names) if times[c] == 1 and not _is_row_number(c)]
    return [
        Column(name, column, place, take_apart(column, nouns.values()), table.column(i))
        for place, (i, column) in enumerate(named)
    ]


def _is_row_number(column: str) -> bool:
    """Whether the column is the unnamed row number that pandas writes in front of a table."""
    return not column.strip() or column.startswith(("Unnamed:", "__index_level_"))


def _with_key(
    name: str, known: TableSchema, columns: Columns, nouns: Mapping[str, Noun], possible: list[Possible]
) -> TableSchema:
    if known.primary_key or "pkey" in known.settled:
        return known
    linked = {column for fk in known.foreign_keys for column in fk.columns}
    free = {**columns, name: [c for c in columns[name] if c.name not in linked]}
    found = guess_key(name, free, nouns)
    if found and found[0].confidence >= ACCEPT:
        best = found[0]
        return replace(known, primary_key=best.columns, key_origin=inferred(best.confidence, best.why))
    possible += found
    return known


def _targets(known: Mapping[str, TableSchema], columns: Columns, nouns: Mapping[str, Noun]) -> list[Target]:
    """The tables with a key of one column."""
    return [
        Target(nouns[name], column)
        for name, table in known.items()
        for column in columns[name]
        if table.primary_key == (column.name,)
    ]


def _with_links(
    known: TableSchema, columns: list[Column], targets: list[Target], noun: Noun, possible: list[Possible]
) -> TableSchema:
    if "fkeys" in known.settled:
        return known
    spoken_for = {column for fk in known.foreign_keys for column in fk.columns}
    spoken_for |= {known.time.column} if known.time else set()
    links = list(known.foreign_keys)
    for column in columns:
        if column.name in spoken_for:
            continue
        best, others = guess_links(column, targets, noun, known.primary_key == (column.name,))
        possible += others
        if best is not None and best.target is not None:
            links.append(ForeignKey(best.columns, best.target, origin=inferred(best.confidence, best.why)))
    return replace(known, foreign_keys=tuple(links))


def _with_time(
    name: str, known: TableSchema, columns: list[Column], noun: Noun, possible: list[Possible]
) -> TableSchema:
    if known.time or "time_col" in known.settled:
        return known
    open_columns = [c for c in columns if c.name != known.available_at]
    is_linked = any(fk.table != name for fk in known.foreign_keys)
    time, others = guess_time(open_columns, noun, is_linked)
    possible += others
    return replace(known, time=time)
