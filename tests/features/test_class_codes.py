"""The class of the latest labels of rows that name the same row, and of the last twelve: against plain twins."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quartet.causal import TimeRule
from quartet.database import Database
from quartet.features import FeatureTable, RelationalColumns, column_words, columns_without
from quartet.features.arrays import FIRST_CODE
from quartet.tasks import Seeds
from quartet.times import NEVER
from tests.shop import DAY, FIRST_DAY, day
from tests.strategies import examples

PATH = "customer -> customers, orders by customer, known_labels by entity -> label: "
LATEST, MOST = f"{PATH}the latest (code)", f"{PATH}most of the last 12 (code)"


def orders_with_labels(rng: np.random.Generator, num: int = 60) -> Database:
    """Orders of four customers, each with a label of one of nine classes that is known a day later; many at a time."""
    at = FIRST_DAY + np.sort(rng.integers(0, 20, num)) * DAY
    tables = {
        "customers": pa.table({"id": np.arange(4)}),
        "orders": pa.table(
            {"id": np.arange(num), "at": pa.array(at).cast(pa.timestamp("ns")), "customer": rng.integers(0, 4, num)}
        ),
        "known_labels": pa.table(
            {
                "entity": np.arange(num), "known_at": pa.array(at + DAY).cast(pa.timestamp("ns")),
                "label": [f"c{number}" for number in rng.integers(0, 9, num)],
            }
        ),
    }  # fmt: skip
    schema = {
        "customers": {"pkey": "id", "time_col": None},
        "orders": {"pkey": "id", "time_col": "at", "fkeys": {"customer": "customers"}},
        "known_labels": {
            "pkey": ["entity", "known_at"], "time_col": "known_at", "fkeys": {"entity": "orders"},
            "kinds": {"label": "category"},
        },
    }  # fmt: skip
    return Database.load(tables, {"tables": schema})


def plain(database: Database, vocabulary: list[str], row: int, time: int, rule: TimeRule, most: int) -> float:
    """The code of the class that most of the last so many labels have, those of one time counting together."""
    orders, labels = database["orders"], database["known_labels"]
    owner = orders.data["customer"].to_pylist()
    entity, told = labels.data["entity"].to_pylist(), labels.data["label"].to_pylist()

    def is_seen(known_at: int) -> bool:
        return known_at <= time if rule == "<=" else known_at < time

    seen = sorted(
        (max(int(labels.known_at[i]), int(orders.known_at[e])), told[i])
        for i, e in enumerate(entity)
        if owner[e] == owner[row] and is_seen(int(labels.known_at[i])) and is_seen(int(orders.known_at[e]))
    )
    if not seen:
        return float("nan")
    first = seen[-min(most, len(seen))][0]
    names = [name for known, name in seen if known >= first]
    return float(
        FIRST_CODE + min(map(vocabulary.index, names), key=lambda c: (-names.count(vocabulary[c]), c))
    )


@pytest.mark.parametrize("rule", ["<=", "<"])
@examples(25)
@given(st.integers(0, 2**32))
def test_classes_of_the_same_customer(rule: TimeRule, rng_seed: int) -> None:
    rng = np.random.default_rng(rng_seed)
    database = orders_with_labels(rng)
    features = FeatureTable.fit(database, day(30))
    column = features.statistics.tables["known_labels"].columns["label"]
    vocabulary = list(column.vocabulary)  # type: ignore[union-attr]
    columns = RelationalColumns.of(database, "orders", features, rule, DAY)
    rows = np.arange(database["orders"].num_rows)
    times = database["orders"].known_at + rng.integers(0, 4, len(rows)) * DAY
    found = columns.of_seeds(Seeds(rows + database.offsets["orders"], times, None))
    for name, most in ((LATEST, 1), (MOST, 12)):
        expected = [
            plain(database, vocabulary, r, int(t), rule, most) for r, t in zip(rows, times, strict=True)
        ]
        assert np.array_equal(found[name], np.array(expected, np.float32), equal_nan=True)


@examples(25)
@given(st.integers(0, 2**32))
def test_without_rows_they_are_those_of_a_database_without_them(rng_seed: int) -> None:
    rng = np.random.default_rng(rng_seed)
    database = orders_with_labels(rng, 40)
    features = FeatureTable.fit(database, day(30))
    columns = RelationalColumns.of(database, "orders", features, "<=", DAY)
    places = [columns.names.index(name) for name in (LATEST, MOST)]
    node, time = int(rng.integers(20, 40)) + database.offsets["orders"], day(22)
    others = np.setdiff1d(np.arange(database.num_rows), [node])
    gone = [rng.choice(others, size, replace=False) for size in (0, 1, 3, 10, 25)]
    found = columns_without(columns, database, node, time, gone)
    for variant, nodes in enumerate(gone):
        tables = {}
        for name, table in database.tables.items():
            known_at, own = table.known_at.copy(), nodes - database.offsets[name]
            known_at[own[(own >= 0) & (own < len(known_at))]] = NEVER
            tables[name] = replace(table, known_at=known_at)
        twin = RelationalColumns.of(replace(database, tables=tables), "orders", features, "<=", DAY)
        asked = Seeds(np.array([node]), np.array([time]), None)
        expected = dict(zip(twin.names, twin.matrix(asked)[0], strict=True))
        wanted = [expected[columns.names[place]] for place in places]
        assert np.array_equal(found[variant, places], wanted, equal_nan=True), variant


def test_they_are_told_in_words() -> None:
    database = orders_with_labels(np.random.default_rng(0))
    columns = RelationalColumns.of(database, "orders", FeatureTable.fit(database, day(30)), "<=", DAY)
    words = column_words(columns)
    assert set(words) == set(columns.names)
    assert words[LATEST].words == "the latest of past labels of its orders of its customers"
    assert words[LATEST].show(FIRST_CODE).startswith("c")
