"""The catalogue of bad values, V01 to V11: each case is made for real and its message pinned."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quartet.database import FACTS, Database, TableSchema
from quartet.database.schema import Schema
from quartet.errors import SchemaError
from quartet.features import FeatureTable
from quartet.findings import Finding, Level, counted
from quartet.times import DAY, NEVER
from tests.features.small import bags, fitted, grown, one_table
from tests.strategies import examples

X = {"x": [0.5, 1.5, 2.5]}
WORDS = {"x": ["a", "b"] * 4}


def said(findings: tuple[Finding, ...]) -> list[tuple[str, int]]:
    return [(str(finding), finding.count) for finding in findings]


# --- what tells nothing ---------------------------------------------------------------------------


def test_v01_columns_without_a_value() -> None:
    one = fitted({**X, "y": [None, None, 1]}, upto=1 * DAY, days=[0, 1, 2])
    assert said(one.findings) == [
        ('note[V01] table "t": 1 column has no value in any row known at 1970-01-02 and is not used (y)', 1)
    ]
    nothing = [None] * 3
    many = fitted({**X, "a": nothing, "b": nothing, "c": [math.nan] * 3, "d": nothing})
    assert said(many.findings) == [
        ('note[V01] table "t": 4 columns have no value in any row and are not used (a, b, c)', 4)
    ]


def test_v01_nothing_known_at_all() -> None:
    table = fitted(X, upto=-1, days=[0, 1, 2])
    assert said(table.findings) == [
        ('note[V01] table "t": 2 columns have no value in any row known at 1969-12-31 23:59:59.999999999 '
         "and are not used (x, at)", 2)
    ]  # fmt: skip
    assert table.layouts[0].num_columns == 0


def test_v10_columns_of_one_value() -> None:
    table = fitted({**X, "y": [7, 7, 7]})
    assert said(table.findings) == [
        ('note[V10] table "t": 1 column has the same value in every row and is not used (y)', 1)
    ]
    assert table.layouts[0].numbers == ("x",)


def test_v09_nested_columns() -> None:
    database = one_table({**X, "y": [{"a": 1}] * 3, "z": [[1], [2], [3]]})
    assert 'note[V09] table "t": 1 nested or binary columns are not used (y)' in map(str, database.findings)
    table = FeatureTable.fit(database, NEVER)
    assert table.findings == ()
    assert table.layouts[0].multicategories == ("z",)


# --- what is repaired -----------------------------------------------------------------------------


def test_v02_infinite_numbers() -> None:
    table = fitted({"x": [0.5, 1.5, math.inf, -math.inf, math.nan, None]})
    assert said(table.findings) == [("warning[V02] t.x: 2 of 6 rows are infinite and count as absent", 2)]
    numbers = table.tables["t"].numbers[:, 0]
    assert numbers[:2].tolist() == [-1.0, 1.0]
    assert np.isnan(numbers[2:]).all()


def test_v03_unseen_categories() -> None:
    table = grown(WORDS, {"x": ["a", "zoo", "b", "yak", None, "zoo", "xerus", "wolf"]})
    assert said(table.findings) == [
        ("warning[V03] t.x: 5 values are not in the vocabulary and count as unseen (zoo, yak, xerus)", 5)
    ]
    codes = {"x": [1.0, 2.0] * 4}
    assert said(grown(codes, {"x": [3.0, 1.0]}).findings) == [
        ("warning[V03] t.x: 1 values are not in the vocabulary and count as unseen (3)", 1)
    ]


def test_v07_long_texts() -> None:
    long = "é" * 8192
    table = grown(
        {"x": ["one text", "two texts"]}, {"x": [long, long + "x", "é" * 10_000_000, None, "two texts"]}
    )
    assert said(table.findings) == [
        ("warning[V07] t.x: 2 of 5 rows hold more than 8,192 letters and are cut there", 2)
    ]
    assert table.tables["t"].texts[:, 0].tolist() == [1, 1, 1, 0, 2]


def test_v08_bytes_that_are_not_utf8() -> None:
    raw = pa.array([b"caf\xe9", b"tea", None, b"\xff", b"tea"], pa.binary())
    for kind in (pa.string(), pa.large_string()):
        broken = raw if kind == pa.string() else raw.cast(pa.large_binary())
        text = pa.Array.from_buffers(kind, len(raw), broken.buffers())
        database = one_table({"x": text, "y": [1, 2, 3, 4, 5]})
        found = [f for f in database.findings if f.code == "V08"]
        assert said(tuple(found)) == [
            ("warning[V08] t.x: 2 values are not valid UTF-8; the broken bytes are replaced", 2)
        ]
        assert database["t"].data["x"].to_pylist() == ["caf\ufffd", "tea", None, "\ufffd", "tea"]
        FeatureTable.fit(database, NEVER)


def test_v11_numbers_far_from_all_others() -> None:
    table = grown(X, {"x": [1.5, 1e9, -1e9]})
    assert said(table.findings) == [
        (
            "warning[V11] t.x: 2 of 3 rows lie more than 30 standard deviations from the mean and are set to that",
            2,
        )
    ]


def test_what_is_repaired_is_a_warning_and_what_is_left_out_a_note() -> None:
    table = grown({**X, "y": [1, 1, 1]}, {"x": [math.inf], "y": [1], "z": [1]})
    assert {f.code: f.level for f in table.findings} == {
        "V02": Level.WARNING, "V05": Level.NOTE, "V10": Level.NOTE,
    }  # fmt: skip


# --- other columns than in training ---------------------------------------------------------------


def error(before: dict[str, Any], after: dict[str, Any]) -> str:
    with pytest.raises(SchemaError) as caught:
        grown(before, after)
    assert caught.value.exit_code == 3
    return str(caught.value)


def test_v04_a_column_that_is_gone() -> None:
    assert error({**X, "price": [1.5, 2, 3]}, {**X, "prices": [1.5, 2, 3]}) == (
        'error[V04] table "t": column "price" was used in training and is absent (did you mean "prices"?). '
        "Fix: give the column, or train anew without it"
    )
    grown({**X, "same": [1, 1, 1]}, X)  # it was not used


def test_v05_a_new_column() -> None:
    table = grown(X, {**X, "y": [1, 2, 3], "z": ["a", "b", "c"]})
    assert said(table.findings) == [
        ('note[V05] table "t": 2 columns were not there in training and are not used (y, z)', 2)
    ]
    assert table.layouts[0].num_columns == 1
    alone = grown({**X, "same": [1, 1, 1]}, {**X, "same": [1, 2, 3], "y": [1, 2, 3]})
    assert [str(f) for f in alone.findings if f.code == "V05"] == [
        'note[V05] table "t": 1 column was not there in training and is not used (y)'
    ]


TYPES: dict[str, Any] = {
    "numbers": [0.5, 1.5, 2.5],
    "truth values": [True, False, True],
    "timestamps": pa.array([1, 2, 3], pa.timestamp("s")),
    "text": ["a", "b", "c"],
    "lists of whole numbers": [[1], [2], [3]],
    "lists of text": [["a"], ["b"], ["c"]],
    "nested or binary values": [b"a", b"b", b"c"],
}


@pytest.mark.parametrize("now", TYPES)
@pytest.mark.parametrize("before", [name for name in TYPES if name != "nested or binary values"])
def test_v06_a_column_of_another_type(before: str, now: str) -> None:
    if before == now:
        grown({"x": TYPES[before]}, {"x": TYPES[now]})
    else:
        assert error({"x": TYPES[before]}, {"x": TYPES[now]}) == (
            f"error[V06] t.x held {before} in training and holds {now} now. Fix: cast the column, or train anew"
        )


@pytest.mark.parametrize("before", [name for name in TYPES if name != "nested or binary values"])
@pytest.mark.parametrize(
    "empty", [pa.nulls(2), pa.array([[], []], pa.list_(pa.null()))], ids=["null", "lists"]
)
def test_a_column_without_a_value_fits_every_type(before: str, empty: pa.Array) -> None:
    table = grown({"x": TYPES[before]}, {"x": empty})
    assert table.findings == ()
    features = table.tables["t"]
    assert features.layout.num_columns == 1
    assert not features.categories.any()
    assert not features.texts.any()
    assert (features.calendar == -1).all()
    assert np.isnan(features.numbers).all()
    assert all(bags(features, place) == [[], []] for place in range(len(features.multicategories)))


def test_v06_a_kind_that_cannot_be() -> None:
    with pytest.raises(SchemaError) as caught:
        fitted({"x": ["a", "b"]}, kinds={"x": "number"})
    assert str(caught.value) == (
        "error[V06] t.x holds text and cannot be of the kind number. "
        "Fix: under kinds, say unused or category or multicategory or text"
    )


def two_tables(*names: str) -> Database:
    data = {name: pa.table({"x": [0.5, 1.5]}) for name in names}
    return Database.build(data, Schema({name: TableSchema(settled=FACTS) for name in names}))


def test_tables_that_are_gone_or_new() -> None:
    statistics = FeatureTable.fit(two_tables("cats", "dogs"), NEVER).statistics
    with pytest.raises(SchemaError) as gone:
        FeatureTable.encode(two_tables("cats"), statistics)
    assert str(gone.value) == (
        'error[V04] table "dogs" was used in training and is absent (there are: "cats"). '
        "Fix: give the table, or train anew without it"
    )
    with pytest.raises(SchemaError) as new:
        FeatureTable.encode(two_tables("cats", "dogs", "emus"), statistics)
    assert str(new.value) == (
        'error[V05] table "emus" was not there in training, and the model cannot read its rows. '
        "Fix: leave the table out, or train anew with it"
    )


def test_tables_follow_the_order_of_the_database() -> None:
    statistics = FeatureTable.fit(two_tables("cats", "dogs"), NEVER).statistics
    assert list(FeatureTable.encode(two_tables("dogs", "cats"), statistics).tables) == ["dogs", "cats"]


# --- P24: whatever comes is finite, and counted ---------------------------------------------------

CELLS: dict[str, st.SearchStrategy[Any]] = {
    "number": st.none() | st.floats() | st.sampled_from([0.5, 1.5, 2.5]),
    "code": st.none() | st.integers(-(2**63), 2**63 - 1) | st.sampled_from([1, 2]),
    "flag": st.none() | st.booleans(),
    "word": st.none() | st.text(max_size=5) | st.sampled_from(["a", "b"]),
    "tags": st.none() | st.text("ab|; ", max_size=8),
    "parts": st.none() | st.lists(st.none() | st.text(max_size=3) | st.sampled_from(["a", "b"]), max_size=4),
    "born": st.none() | st.integers(-(2**60), 2**60),
    "note": st.none() | st.text(max_size=40),
}
TYPED = {
    "number": pa.float64(), "code": pa.int64(), "flag": pa.bool_(), "word": pa.string(), "tags": pa.string(),
    "parts": pa.list_(pa.string()), "born": pa.timestamp("us"), "note": pa.string(),
}  # fmt: skip
KNOWN = {
    "number": [0.5, 1.5, 2.5, None] * 2,
    "code": [1, 2] * 4,
    "flag": [True, False] * 4,
    "word": ["a", "b"] * 4,
    "tags": ["a|b", "b", "a|b|b", None] * 2,
    "parts": [["a"], ["b"], ["a", "b"], []] * 2,
    "born": [0, 10**15] * 4,
    "note": [f"a note {n}" for n in range(8)],
}
STATISTICS = FeatureTable.fit(
    one_table({name: pa.array(values, TYPED[name]) for name, values in KNOWN.items()}), NEVER
).statistics


@given(st.lists(st.fixed_dictionaries(CELLS), max_size=6))
@examples(200)
def test_whatever_comes_is_finite_and_counted(rows: list[dict[str, Any]]) -> None:
    columns = {name: pa.array([row[name] for row in rows], kind) for name, kind in TYPED.items()}
    table = FeatureTable.encode(one_table(columns), STATISTICS)
    features = table.tables["t"]
    absent = [row["number"] is None or not math.isfinite(row["number"]) for row in rows]
    assert np.isnan(features.numbers[:, 0]).tolist() == absent
    assert not np.isinf(features.numbers).any()
    assert (np.abs(np.nan_to_num(features.numbers)) <= 30).all()
    assert ((features.categories >= 0) & (features.categories < features.layout.category_sizes)).all()
    assert ((features.calendar >= -1) & (features.calendar[..., 1:].max(initial=0) < 60)).all()
    assert all(np.isfinite(vectors).all() for vectors in features.vectors)
    assert counted(table.findings, "V02") == sum(row["number"] in (math.inf, -math.inf) for row in rows)
    unseen = sum(row["code"] not in (None, 1, 2) for row in rows)
    assert counted(table.findings, "V03", "t.code") == unseen == (features.categories[:, 0] == 1).sum()
    assert counted(table.findings, "V03", "t.word") == sum(
        row["word"] not in (None, "a", "b") for row in rows
    )
    parts = [part for row in rows for part in row["parts"] or [] if part is not None]
    assert counted(table.findings, "V03", "t.parts") == sum(part not in ("a", "b") for part in parts)
    assert sum(map(len, bags(features, 1))) == len(parts)


def test_every_code_has_a_case() -> None:
    source = Path(__file__).read_text(encoding="utf-8")
    assert {f"V{n:02}" for n in range(1, 12)} == {
        f"V{n:02}" for n in range(1, 12) if f"def test_v{n:02}_" in source
    }
