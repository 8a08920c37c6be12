"""What is learned is plain, comes back exactly, and is all that encoding needs."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from quartet.database import Database
from quartet.features import FeatureStatistics, FeatureTable
from quartet.times import DAY, NEVER, parse_instant
from tests.features.small import one_table, same_bits
from tests.shared import shared_data

MIXED = {
    "price": [0.1, 2.7, None, 1e300, 0.3] * 4,
    "code": [7, 9, 7, None, 9] * 4,
    "flag": [True, None, False, True, True] * 4,
    'odd "name".\n': ["a", "b", "a", "b", None] * 4,
    "tags": ["a|b", "b", "c|a", None, "b|c"] * 4,
    "parts": [[1, 2], [2], None, [], [3]] * 4,
    "born": pa.array([0, 10**9, None, 5, 6] * 4, pa.timestamp("s")),
    "words": [f"some words {n}" for n in range(20)],
    "same": [1] * 20,
    "nothing": [None] * 20,
    "blob": [b"x"] * 20,
}


def again(statistics: FeatureStatistics) -> FeatureStatistics:
    """The statistics through JSON and bytes, as a checkpoint keeps them."""
    arrays = {
        name: np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape)
        for name, array in statistics.arrays.items()
    }
    return FeatureStatistics.from_dict(json.loads(json.dumps(statistics.to_dict())), arrays)


def test_what_is_learned_is_plain() -> None:
    statistics = FeatureStatistics.fit(one_table(MIXED), NEVER)
    (table,) = statistics.to_dict()["tables"]
    assert [(c["name"], c["kind"]) for c in table["columns"]] == [
        ("price", "number"), ("code", "category"), ("flag", "category"), ('odd "name".\n', "category"),
        ("tags", "multicategory"), ("parts", "multicategory"), ("born", "time"), ("words", "text"),
    ]  # fmt: skip
    assert table["unused"] == ["same", "nothing", "blob"]
    assert table["columns"][1] == {
        "name": "code", "kind": "category", "vocabulary": [7, 9], "family": "number",
    }  # fmt: skip
    assert table["columns"][4] == {
        "name": "tags", "kind": "multicategory", "vocabulary": ["b", "a", "c"], "family": "text", "separator": "|",
    }  # fmt: skip
    assert sorted(statistics.arrays) == ["0.7.basis", "0.7.buckets", "0.7.rarity"]


def test_what_is_learned_comes_back_exactly() -> None:
    database = one_table(MIXED)
    statistics = FeatureStatistics.fit(database, NEVER)
    same = again(statistics)
    assert same.to_dict() == statistics.to_dict()
    assert {n: a.tobytes() for n, a in same.arrays.items()} == {
        n: a.tobytes() for n, a in statistics.arrays.items()
    }
    before, after = FeatureTable.encode(database, statistics), FeatureTable.encode(database, same)
    assert same_bits(before.tables["t"], after.tables["t"])
    assert before.layouts == after.layouts


def test_later_rows_do_not_change_what_was_learned() -> None:
    database = one_table({"x": [0.5, 1.5, 1000.5], "y": ["a b", "c d", "e f"]}, days=[0, 1, 2])
    before = FeatureStatistics.fit(database.upto(1 * DAY), 1 * DAY)
    statistics = FeatureStatistics.fit(database, 1 * DAY)
    assert statistics.to_dict() == before.to_dict()
    assert statistics.tables["t"].columns["x"].mean == 1.0  # type: ignore[union-attr]
    assert statistics.cutoff == 1 * DAY


@pytest.mark.parametrize("name", ["rel-f1", "rel-travel"])
def test_real_databases(name: str) -> None:
    database = Database.load(shared_data(name))
    cutoff = parse_instant(database.schema.val_timestamp or "", "val_timestamp")
    table = FeatureTable.fit(database, cutoff)
    assert list(table.tables) == list(database.tables)
    for features, rows in zip(table.tables.values(), database.tables.values(), strict=True):
        assert features.num_rows == rows.num_rows
        assert not np.isinf(features.numbers).any()
        for codes, size in zip(features.categories.T, features.layout.category_sizes, strict=True):
            assert 0 <= codes.min() <= codes.max() < size
        assert all(np.isfinite(vectors).all() for vectors in features.vectors)
    same = FeatureTable.encode(database, again(table.statistics))
    assert all(
        same_bits(one, other) for one, other in zip(table.tables.values(), same.tables.values(), strict=True)
    )
