"""Infers keys, links and times that a source does not declare.

What is inferred says so, with a confidence and a reason; what is too uncertain to be used is
listed for the user and not used. No guess is better than a wrong one: a wrong link is nonsense,
a wrong time a leak.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from quartet.database.inference.evidence import ACCEPT, Column, Possible
from quartet.database.inference.keys import guess_key
from quartet.database.inference.links import Target, guess_links
from quartet.database.inference.names import Noun, noun_of, take_apart
from quartet.database.inference.times import guess_time
from quartet.database.schema import ForeignKey, Schema, TableSchema, inferred


def infer(
    tables: Mapping[str, pa.Table], schema: Schema, views: frozenset[str] = frozenset()
) -> tuple[Schema, list[Possible]]:
    """Returns the schema completed by facts that are sure enough, and those left for the user to decide.

    Settled facts stay as they are. Declared links stay, and other columns may become links. A link leads to one of the
    `views`, which show rows of the tables again, only where it can lead to no table.
    """
    nouns = {name: noun_of(name) for name in tables}
    columns = {name: _columns(name, table, nouns) for name, table in tables.items()}
    known = {name: schema.tables.get(name, TableSchema()) for name in tables}
    possible: list[Possible] = []
    for name, table in known.items():
        if not table.primary_key and "pkey" not in table.settled:
            linked = {column for fk in table.foreign_keys for column in fk.columns}
            free = [column for column in columns[name] if column.name not in linked]
            guesses = guess_key(name, {**columns, name: free}, nouns)
            if guesses and guesses[0].confidence >= ACCEPT:
                best = guesses[0]
                origin = inferred(best.confidence, best.why)
                known[name] = replace(table, primary_key=best.columns, key_origin=origin)
            else:
                possible += guesses
    targets = [
        Target(nouns[name], column)
        for name, table in known.items()
        for column in columns[name]
        if table.primary_key == (column.name,)
    ]
    for name, table in known.items():
        if "fkeys" not in table.settled:
            ranks = [t for t in targets if t.table not in views], [t for t in targets if t.table in views]
            table = _with_links(table, columns[name], ranks, nouns[name], possible)
        if not table.time and "time_col" not in table.settled:
            is_linked = any(fk.table != name for fk in table.foreign_keys)
            others = [column for column in columns[name] if column.name != table.available_at]
            keys = [c for c in columns[name] if table.primary_key == (c.name,) and c.kind == "integer"]
            time, guesses = guess_time(others, nouns[name], is_linked, keys[0] if keys else None)
            possible += guesses
            table = replace(table, time=time)
        known[name] = table
    return replace(schema, tables={**schema.tables, **known}), possible


def _columns(name: str, table: pa.Table, nouns: Mapping[str, Noun]) -> list[Column]:
    """Returns the columns with a name of their own; pandas writes unnamed row numbers in front of a table."""
    times = Counter(table.column_names)
    named = [
        (i, column)
        for i, column in enumerate(table.column_names)
        if times[column] == 1 and column.strip() and not column.startswith(("Unnamed:", "__index_level_"))
    ]
    return [
        Column(name, column, place, take_apart(column, nouns.values()), table.column(i))
        for place, (i, column) in enumerate(named)
    ]


def _with_links(
    table: TableSchema,
    columns: list[Column],
    ranks: Sequence[list[Target]],
    noun: Noun,
    possible: list[Possible],
) -> TableSchema:
    used = {column for fk in table.foreign_keys for column in fk.columns}
    used |= {table.time.column} if table.time else set()
    links = list(table.foreign_keys)
    for column in columns:
        if column.name not in used:
            is_key = table.primary_key == (column.name,)
            guesses = (guess_links(column, targets, noun, is_key) for targets in ranks)
            best, others = next((guess for guess in guesses if guess[0] or guess[1]), (None, []))
            possible += others
            if best is not None and best.target is not None:
                origin = inferred(best.confidence, best.why)
                links.append(ForeignKey(best.columns, best.target, origin=origin))
    return replace(table, foreign_keys=tuple(links))
