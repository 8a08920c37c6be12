"""Nothing that is not known at the cut-off changes what is learned, or a single bit of a row that is known (P1-P3)."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given
from hypothesis import strategies as st

from quartet.causal import visible
from quartet.database import Database
from quartet.features import FeatureStatistics, FeatureTable
from tests.features.small import row_bits
from tests.strategies import (
    Raw,
    examples,
    interesting_times,
    random_db,
    scrambled_future,
    shuffled,
    without_future,
)

Change = Callable[[Raw, int, random.Random], Raw]

CHANGES: dict[str, Change] = {
    "deleted": lambda raw, time, rng: without_future(raw, time, "<=", rng),
    "scrambled": lambda raw, time, rng: scrambled_future(raw, time, "<=", rng),
    "shuffled": lambda raw, time, rng: shuffled(raw, rng),  # noqa: ARG005
    "all of it": lambda raw, time, rng: shuffled(scrambled_future(raw, time, "<=", rng), rng),
}
TAGS = (None, "", "a|b", "b|c", "c", "a|c|b", "d|a")
WORDS = ("red tea", "green tea", "a cup of tea", "teapot", "cup", "Übergröße", "", None)


def with_features(raw: Raw, rng: random.Random) -> Raw:
    """The database with a column of every kind in each table; few values or many, so that kinds differ."""
    tables, schema = raw
    spread = rng.choice([2, 5, 1000])

    def wider(table: pa.Table) -> pa.Table:
        rows = range(table.num_rows)
        more = {
            "size": pa.array([rng.choice([None, rng.randrange(spread)]) for _ in rows], pa.int64()),
            "share": pa.array([_share(rng) for _ in rows], pa.float64()),
            "type": pa.array([rng.randrange(spread) for _ in rows], pa.int64()),
            "tags": pa.array([rng.choice(TAGS) for _ in rows], pa.string()),
            "born": pa.array([rng.choice([None, rng.randrange(2**31)]) for _ in rows], pa.timestamp("s")),
            "words": pa.array([_words(spread, rng) for _ in rows], pa.string()),
        }
        for name, column in more.items():
            table = table.append_column(name, column)
        return table

    return {name: wider(table) for name, table in tables.items()}, schema


def _share(rng: random.Random) -> float | None:
    return rng.choice([None, float("inf"), *(rng.random() * 10.0 ** rng.randrange(-9, 9) for _ in range(4))])


def _words(spread: int, rng: random.Random) -> str | None:
    return rng.choice(WORDS) if spread < 1000 else f"{rng.choice(WORDS)} {rng.randrange(spread)}"


def with_lists(raw: Raw) -> Raw:
    """The database with the tags as lists too: a function of the cell, so that changes of the future reach it."""
    tables, schema = raw
    listed = {
        name: table.append_column("items", pc.split_pattern(table["tags"].cast(pa.string()), "|"))
        for name, table in tables.items()
    }
    return listed, schema


def learned(statistics: FeatureStatistics) -> tuple[object, dict[str, bytes]]:
    return statistics.to_dict(), {name: array.tobytes() for name, array in statistics.arrays.items()}


def visible_rows(database: Database, table: FeatureTable, time: int) -> dict[str, list[bytes]]:
    """The bits of all rows that are known at a time, in an order that is not that of the rows."""
    found = {}
    for name, features in table.tables.items():
        known = np.flatnonzero(visible(database[name].known_at, time))
        bits = row_bits(features)
        found[name] = sorted(bits[row] for row in known)
    return found


@given(st.data(), random_db(), st.sampled_from(sorted(CHANGES)), st.integers(0, 2**32))
@examples(200)
def test_no_other_future_and_no_other_order_changes_a_bit(
    data: st.DataObject, raw: Raw, change: str, seed: int
) -> None:
    rng = random.Random(seed)
    raw = with_features(raw, rng)
    database = Database.build(*with_lists(raw))
    time = data.draw(st.sampled_from(interesting_times(database)))
    other = Database.build(*with_lists(CHANGES[change](raw, time, rng)))
    before, after = FeatureTable.fit(database, time), FeatureTable.fit(other, time)
    assert learned(after.statistics) == learned(before.statistics)
    assert after.layouts == before.layouts
    assert visible_rows(other, after, time) == visible_rows(database, before, time)
    assert after.statistics.findings == before.statistics.findings


@given(st.data(), random_db(), st.integers(0, 2**32))
@examples(50)
def test_a_grown_database_leaves_the_rows_there_were(data: st.DataObject, raw: Raw, seed: int) -> None:
    database = Database.build(*with_lists(with_features(raw, random.Random(seed))))
    time = data.draw(st.sampled_from(interesting_times(database)))
    past = database.upto(time)
    statistics = FeatureStatistics.fit(past, time)
    assert visible_rows(past, FeatureTable.encode(past, statistics), time) == visible_rows(
        database, FeatureTable.encode(database, statistics), time
    )
