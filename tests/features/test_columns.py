"""What each kind of column becomes, number by number."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quartet.features import CALENDAR, FeatureStatistics, FeatureTable, TableLayout
from quartet.features.arrays import NO_DATE
from quartet.features.columns import MOST_VALUES
from quartet.times import DAY, NEVER
from tests.features.small import bags, features_of, fitted, grown, one_table
from tests.shop import shop
from tests.strategies import examples

NAN = math.nan
FLOAT = np.finfo(np.float64)


def statistics(values: Any, kind: str) -> Any:
    database = one_table({"x": values}, kinds={"x": kind})
    return FeatureStatistics.fit(database, NEVER).tables["t"].columns["x"]


# --- numbers --------------------------------------------------------------------------------------


def test_numbers_are_standardised_by_the_deviation_of_the_population() -> None:
    features = features_of({"x": [1.5, None, 2.5, NAN, 5.0]})
    mean, std = 3.0, math.sqrt((1.5**2 + 0.5**2 + 2.0**2) / 3)
    expected = np.array([-1.5 / std, NAN, -0.5 / std, NAN, 2.0 / std], dtype=np.float32)
    np.testing.assert_array_equal(features.numbers, expected[:, None])
    assert features.layout == TableLayout("t", numbers=("x",))
    learned = statistics([1.5, None, 2.5, NAN, 5.0], "number")
    assert (learned.mean, learned.std) == (mean, std)


def test_several_columns_of_numbers_stand_in_order() -> None:
    features = features_of({"b": [0.5, 1.5], "a": [3.5, 1.5]})
    assert features.layout.numbers == ("b", "a")
    assert features.numbers.tolist() == [[-1.0, 1.0], [1.0, -1.0]]
    assert features.numbers.dtype == np.float32


def test_numbers_are_those_of_numpy() -> None:
    values = np.random.default_rng(0).lognormal(size=1001)
    learned = statistics(values, "number")
    assert learned.mean == pytest.approx(values.mean(), rel=1e-14)
    assert learned.std == pytest.approx(values.std(), rel=1e-14)


def test_a_number_that_is_there_or_not_is_zero_where_it_is_there() -> None:
    assert features_of({"x": [50, None, 50]}, kinds={"x": "number"}).numbers[:, 0].tolist()[::2] == [0.0, 0.0]
    assert np.isnan(features_of({"x": [50, None]}, kinds={"x": "number"}).numbers[1, 0])


@pytest.mark.parametrize(
    "values",
    [
        [FLOAT.max / 4, -FLOAT.max / 4, FLOAT.max / 4],
        [FLOAT.tiny, 2 * FLOAT.tiny, 4 * FLOAT.tiny],
        [5e-324, 1e-323, 1.5e-323],
        [2**62, 2**62 + 2**40, -(2**63)],
        [1e308, 1e308, -1e308],
        [1e-300, 2e-300, 1e300],
    ],
)
def test_numbers_of_any_size(values: list[float]) -> None:
    numbers = features_of({"x": values}, kinds={"x": "number"}).numbers[:, 0].astype(np.float64)
    assert np.isfinite(numbers).all()
    assert numbers.mean() == pytest.approx(0, abs=1e-6)
    assert numbers.std() == pytest.approx(1, rel=0.2)


def test_numbers_far_away_are_clipped_and_counted() -> None:
    table = grown({"x": [0.5, 1.5, 2.5]}, {"x": [1e300, -1e300, 1.5, FLOAT.max, None]})
    assert table.tables["t"].numbers[:4, 0].tolist() == [30.0, -30.0, 0.0, 30.0]
    assert [(f.code, f.count) for f in table.findings] == [("V11", 3)]


def test_whole_numbers_may_arrive_as_decimals_later() -> None:
    numbers = {"x": list(range(20))}
    one = grown(numbers, {"x": [3, 4]}).tables["t"].numbers
    assert grown(numbers, {"x": [3.0, 4.0]}).tables["t"].numbers.tolist() == one.tolist()


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=30), st.randoms())
@examples(100)
def test_the_order_of_rows_changes_no_bit(values: list[float], rng: Any) -> None:
    mixed = rng.sample(values, len(values))
    assert statistics(values, "number") == statistics(mixed, "number")


# --- categories -----------------------------------------------------------------------------------


def test_categories_are_numbered_by_frequency_then_value() -> None:
    features = features_of({"x": ["b", "a", None, "c", "c", "a", "b", "c", "a", "b", "", "c"] * 2})
    assert features.layout == TableLayout("t", categories=("x",), category_sizes=(6,))
    assert features.categories[:12, 0].tolist() == [4, 3, 0, 2, 2, 3, 4, 2, 3, 4, 5, 2]
    assert features.categories.dtype == np.int32
    assert statistics(["b", "a", "b", "a", "c"], "category").vocabulary == ("a", "b", "c")


@pytest.mark.parametrize(
    ("values", "vocabulary"),
    [
        ([True, False, True, None], (True, False)),
        ([3, 1, 3, None], (3, 1)),
        ([3.0, 1.0, 3.0, None, NAN], (3, 1)),
        ([0.5, -0.0, 0.0, math.inf], (0, 0.5)),
        ([2**60 + 1, 2**60 + 1, 2**60], (2**60 + 1, 2**60)),
        (["é", "z", "é"], ("é", "z")),
    ],
)
def test_vocabularies_are_plain_values(values: list[Any], vocabulary: tuple[Any, ...]) -> None:
    learned = statistics(values, "category")
    assert learned.vocabulary == vocabulary
    assert list(map(type, learned.vocabulary)) == list(map(type, vocabulary))


def test_unseen_categories_have_one_code() -> None:
    table = grown({"x": ["a", "b"] * 4}, {"x": ["b", "zzz", None, "", "a"]})
    assert table.tables["t"].categories[:, 0].tolist() == [3, 1, 0, 1, 2]


def test_codes_do_not_depend_on_whether_a_whole_number_is_a_decimal() -> None:
    whole, decimals = {"x": [5, 7, 7, 5, 7] * 4}, {"x": [5.0, 7.0, 7.0, None, 5.0] * 4}
    later = {"x": [7.0, 5.5, 5.0, NAN, math.inf, -0.0]}
    assert grown(whole, later).tables["t"].categories[:, 0].tolist() == [2, 1, 3, 0, 0, 1]
    assert grown(decimals, {"x": [7, 6, 5]}).tables["t"].categories[:, 0].tolist() == [3, 1, 2]


def test_a_fraction_of_the_vocabulary_matches_no_whole_number() -> None:
    table = grown({"x": [0.5, 1.0]}, {"x": [0, 1]}, kinds={"x": "category"})
    assert table.tables["t"].categories[:, 0].tolist() == [1, 3]


def test_only_so_many_values_have_a_code() -> None:
    values = [f"v{n:05}" for n in range(MOST_VALUES + 2)] + ["v10001"]
    features = features_of({"x": values}, kinds={"x": "category"})
    assert features.layout.category_sizes == (MOST_VALUES + 2,)
    codes = features.categories[:, 0].tolist()
    assert codes[-2:] == [2, 2]  # the only value that stands twice comes first
    assert codes[:-2] == [*range(3, MOST_VALUES + 2), 1, 1]


@pytest.mark.parametrize("kind", [pa.int64(), pa.float64(), pa.string(), pa.bool_()])
def test_a_vocabulary_without_values(kind: pa.DataType) -> None:
    features = features_of({"x": pa.array([None, None], kind)}, kinds={"x": "category"})
    assert features.layout.category_sizes == (2,)
    assert features.categories[:, 0].tolist() == [0, 0]


# --- several categories ---------------------------------------------------------------------------


def test_parts_of_text() -> None:
    features = features_of({"x": ["a|b", "b|c", "b", " c | a", None, "", "|", "b|b"]})
    assert features.layout == TableLayout("t", multicategories=("x",), multicategory_sizes=(5,))
    assert bags(features) == [[3, 2], [2, 4], [2], [4, 3], [], [], [], [2, 2]]
    assert features.multicategories[0].start.dtype == np.int64
    assert features.multicategories[0].code.dtype == np.int32


def test_parts_are_counted_by_rows() -> None:
    features = features_of({"x": ["a|b", "b|c", *["c|d"] * 5, "d|a"]})
    assert bags(features)[0] == [4, 5]  # c stands in 6 rows, d in 6, a in 2, b in 2
    assert bags(features)[2] == [2, 3]


@pytest.mark.parametrize("make", [pa.list_, pa.large_list])
@pytest.mark.parametrize("part", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())])
def test_lists_of_text(make: Any, part: pa.DataType) -> None:
    lists = pa.array([["b", "a"], None, [], ["b", None, "c"]], pa.list_(pa.string()))
    chunks = [_list_of(lists, make, part), _list_of(lists[:0], make, part), _list_of(lists[3:], make, part)]
    features = features_of({"x": pa.chunked_array(chunks)})
    assert bags(features) == [[2, 4], [], [], [2, 3], [2, 3]]


def _list_of(lists: pa.Array, make: Any, part: pa.DataType) -> pa.Array:
    values = lists.flatten()
    values = values.dictionary_encode().cast(part) if pa.types.is_dictionary(part) else values.cast(part)
    lengths = [len(row or []) for row in lists.to_pylist()]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    whole = pa.ListArray if make is pa.list_ else pa.LargeListArray
    kind = pa.int32() if make is pa.list_ else pa.int64()
    mask = pa.array([row is None for row in lists.to_pylist()], pa.bool_())
    return whole.from_arrays(pa.array(offsets, kind), values, mask=mask if len(lists) else None)


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.int64()), pa.list_(pa.int8()), pa.list_(pa.int16(), 2), pa.large_list(pa.int32())]
)
def test_lists_of_numbers(kind: pa.DataType) -> None:
    features = features_of({"x": pa.array([[7, 7], None, [5, 7], [5, 6]], kind)})
    assert bags(features) == [[2, 2], [], [3, 2], [3, 4]]


def test_unseen_parts_are_counted_by_rows() -> None:
    table = grown({"x": ["a|b", "b|c", "a|c", "a"]}, {"x": ["a|new", "a|new", "new|old", "b"]})
    assert bags(table.tables["t"]) == [[2, 1], [2, 1], [1, 1], [3]]
    assert [(f.code, f.count) for f in table.findings] == [("V03", 4)]


# --- times ----------------------------------------------------------------------------------------

MOMENTS = [datetime(2024, 2, 29, 23, 59, 58), datetime(2021, 1, 1), None, datetime(2023, 12, 31, 1, 2, 3)]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_are_calendars(unit: str) -> None:
    features = features_of({"x": pa.array(MOMENTS, pa.timestamp(unit))})
    assert features.layout == TableLayout("t", times=("x",))
    assert CALENDAR == ("year", "month", "day", "weekday", "hour", "minute", "second")
    assert features.calendar[:, 0].tolist() == [
        [3, 1, 28, 3, 23, 59, 58],
        [0, 0, 0, 4, 0, 0, 0],
        [NO_DATE] * 7,
        [2, 11, 30, 6, 1, 2, 3],
    ]
    assert features.calendar.dtype == np.int16


def test_years_are_counted_from_the_first_that_was_known() -> None:
    calendar = features_of({"x": [1, 2, 3]}, upto=4015 * DAY, days=[3660, 4015, 8000]).calendar
    assert calendar[:, 0, 0].tolist() == [0, 0, 11]
    times = pa.array([0, 365 * 86_400, -(10**10), 2**40, None], pa.timestamp("s"))
    later = grown({"x": pa.array([0, 400 * 86_400], pa.timestamp("s"))}, {"x": times})
    assert later.tables["t"].calendar[:, 0, 0].tolist() == [0, 1, 0, np.iinfo(np.int16).max, NO_DATE]


@given(
    st.lists(st.datetimes(datetime(1700, 1, 1), datetime(2200, 1, 1)), min_size=2, max_size=20, unique=True)
)
@examples(100)
def test_calendars_are_those_of_python(moments: list[datetime]) -> None:
    first = min(moments).year
    expected = [
        [m.year - first, m.month - 1, m.day - 1, m.weekday(), m.hour, m.minute, m.second] for m in moments
    ]
    assert features_of({"x": pa.array(moments, pa.timestamp("us"))}).calendar[:, 0].tolist() == expected


# --- text -----------------------------------------------------------------------------------------


def test_texts_are_places_among_vectors() -> None:
    features = features_of({"x": ["red tea", None, "", "green tea", "red tea", "a cup"]})
    assert features.layout == TableLayout("t", texts=("x",), text_sizes=(64,))
    assert features.texts[:, 0].tolist() == [1, 0, 0, 2, 1, 3]
    assert features.texts.dtype == np.int32
    (vectors,) = features.vectors
    assert (vectors.shape, vectors.dtype) == ((4, 64), np.float32)
    assert not vectors[0].any()
    assert np.linalg.norm(vectors[1:], axis=1).min() > 1


def test_empty_text_first_or_last() -> None:
    for values in (["", "b", "a"], ["b", "", "a"], ["b", "a", ""]):
        features = features_of({"x": values}, kinds={"x": "text"})
        expected = {"": 0, **{text: place for place, text in enumerate((t for t in values if t), 1)}}
        assert features.texts[:, 0].tolist() == [expected[text] for text in values]
        assert len(features.vectors[0]) == 3


# --- tables ---------------------------------------------------------------------------------------


def test_a_table_without_features() -> None:
    features = features_of({"id": [1, 2]}, primary_key=("id",))
    assert features.layout == TableLayout("t")
    assert features.layout.num_columns == 0
    assert features.num_rows == 2
    assert (features.numbers.shape, features.categories.shape) == ((2, 0), (2, 0))
    assert (features.calendar.shape, features.texts.shape) == ((2, 0, 7), (2, 0))
    assert (features.multicategories, features.vectors) == ((), ())


def test_a_table_of_one_row_has_no_features_yet() -> None:
    assert features_of({"x": [1.5], "y": ["a"]}).layout.num_columns == 0


def test_an_empty_table_keeps_its_shapes() -> None:
    columns = {
        "x": [0.5, 1.5],
        "y": ["a|b", "b|a"],
        "z": ["a", "b"],
        "w": pa.array([0, 1], pa.timestamp("s")),
    }
    kinds = {"z": "category"}
    empty = {name: pa.array(values).slice(0, 0) for name, values in columns.items()}
    features = grown(columns, empty, kinds=kinds).tables["t"]
    assert features.num_rows == 0
    assert (features.numbers.shape, features.categories.shape, features.calendar.shape) == (
        (0, 1),
        (0, 1),
        (0, 1, 7),
    )
    assert features.multicategories[0].start.tolist() == [0]
    assert fitted(empty, kinds=kinds).tables["t"].layout.num_columns == 1  # z, as told


def test_tables_stand_in_the_order_of_the_database() -> None:
    database = shop()
    table = FeatureTable.fit(database, NEVER)
    assert list(table.tables) == list(database.tables) == [layout.name for layout in table.layouts]
    assert [features.num_rows for features in table.tables.values()] == [3, 6, 3, 12, 6]
