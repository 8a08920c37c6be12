"""Drawn databases with a column of every kind, and seeds about them in names: a row keeps its name when others move."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st

from quartet.causal import TimeRule
from quartet.database import Database
from tests.strategies import (
    Raw,
    interesting_times,
    is_future,
    scrambled_future,
    shuffled,
    without_future,
)

Change = Callable[[Raw, int, TimeRule, random.Random], Raw]
Name = tuple[Any, ...]
NamedSeed = tuple[Name, int]  # of which row, at what time

RULES: list[TimeRule] = ["<=", "<"]
TAGS = (None, "", "a|b", "b|c", "c", "a|c|b", "d|a")
WORDS = ("red tea", "green tea", "a cup of tea", "teapot", "cup", "Übergröße", "", None)


def reordered(raw: Raw, time: int, rule: TimeRule, rng: random.Random) -> Raw:
    """The database with another future, and all rows in another order."""
    return shuffled(scrambled_future(raw, time, rule, rng), rng)


CHANGES: list[Change] = [without_future, scrambled_future, reordered]


def with_features(raw: Raw, rng: random.Random) -> Raw:
    """The database with a column of every kind in each table; few values or many, so that kinds differ."""
    tables, schema = raw
    spread = rng.choice([2, 5, 1000])

    def share() -> float | None:
        return rng.choice(
            [None, float("inf"), *(rng.random() * 10.0 ** rng.randrange(-9, 9) for _ in range(4))]
        )

    def words() -> str | None:
        return rng.choice(WORDS) if spread < 1000 else f"{rng.choice(WORDS)} {rng.randrange(spread)}"

    def wider(table: pa.Table) -> pa.Table:
        rows = range(table.num_rows)
        more = {
            "size": pa.array([rng.choice([None, rng.randrange(spread)]) for _ in rows], pa.int64()),
            "share": pa.array([share() for _ in rows], pa.float64()),
            "type": pa.array([rng.randrange(spread) for _ in rows], pa.int64()),
            "tags": pa.array([rng.choice(TAGS) for _ in rows], pa.string()),
            "born": pa.array([rng.choice([None, rng.randrange(2**31)]) for _ in rows], pa.timestamp("s")),
            "words": pa.array([words() for _ in rows], pa.string()),
        }
        for name, column in more.items():
            table = table.append_column(name, column)
        return table

    return {name: wider(table) for name, table in tables.items()}, schema


def with_lists(raw: Raw) -> Raw:
    """The database with the tags as lists too: a function of the cell, so that changes of the future reach it."""
    tables, schema = raw
    listed = {
        name: table.append_column("items", pc.split_pattern(table["tags"].cast(pa.string()), "|"))
        for name, table in tables.items()
    }
    return listed, schema


def named_rows(database: Database) -> dict[Name, int]:
    """The row of each name: the table, its key or else all of its cells, and which of equal rows it is."""
    rows, equal = {}, Counter[Name]()
    for table in database.tables.values():
        columns = [_plain(table.data[column]) for column in table.primary_key or table.data.column_names]
        cells = list(zip(*columns, strict=True)) or [()] * table.num_rows
        for row, values in enumerate(cells):
            name = (table.name, *values)
            rows[(*name, equal[name])] = row
            equal[name] += 1
    return rows


def _plain(column: pa.ChunkedArray) -> list[Any]:
    """Cells that compare as the values they are: all NaN alike, no negative zero, times as numbers."""
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.int64()).to_pylist()
    return [str(cell + 0.0) if isinstance(cell, float) else cell for cell in column.to_pylist()]


def some_seeds(
    database: Database, time: int, rule: TimeRule, count: int, rng: random.Random
) -> list[NamedSeed]:
    """Rows that are visible at a time, asked about then; some of them also earlier, at a time that matters."""
    known_at = {name: int(database[name[0]].known_at[row]) for name, row in named_rows(database).items()}
    visible = [name for name, known in known_at.items() if not is_future(known, time, rule)]
    chosen = rng.sample(visible, min(count, len(visible)))
    earlier = [moment for moment in interesting_times(database) if moment <= time]
    seeds = [(name, time) for name in chosen] + [
        (name, rng.choice(earlier)) for name in chosen[::3] if earlier
    ]
    return [(name, moment) for name, moment in seeds if not is_future(known_at[name], moment, rule)]


def drawn_seeds(
    database: Database, data: st.DataObject, rule: TimeRule, rng: random.Random
) -> tuple[int, list[NamedSeed]]:
    """A time that matters in a database, and seeds that may be asked about then."""
    time = data.draw(st.sampled_from(interesting_times(database)))
    return time, some_seeds(database, time, rule, 8, rng)
