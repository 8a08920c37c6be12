"""Which kind a column is, why, and that the schema file can say otherwise."""

from __future__ import annotations

from typing import Any, get_args

import pyarrow as pa
import pytest

from quartet.database import COLUMN_KINDS, FACTS, Database, ForeignKey, TableSchema, TimeColumn
from quartet.database.schema import Schema
from quartet.errors import SchemaError
from quartet.features import FeatureTable, inspected_kinds
from quartet.features.arrays import Kind
from quartet.features.cells import visible_cells
from quartet.features.kinds import feature_columns, kinds_of
from quartet.times import DAY, NEVER
from tests.features.small import one_table
from tests.shared import shared_data
from tests.shop import shop


def kinds(columns: dict[str, Any], upto: int = NEVER, **facts: Any) -> dict[str, tuple[str, str]]:
    table = one_table(columns, **facts)["t"]
    found = kinds_of(table, visible_cells(table, feature_columns(table), upto))
    return {name: (column.kind, column.why) for name, column in found.items()}


def kind(values: Any, name: str = "x") -> tuple[str, str]:
    return kinds({name: values})[name]


TIMES = pa.array([0, 1, None], pa.timestamp("s"))
TAGS = ["a|b", "b|c", "a", "c | a", None]


@pytest.mark.parametrize(
    ("values", "name", "expected"),
    [
        ([True, False, None], "x", ("category", "yes or no")),
        (TIMES, "x", ("time", "timestamps")),
        (pa.array([0, 1], pa.date32()), "x", ("time", "timestamps")),
        ([0.5, 1.0, None], "x", ("number", "decimals")),
        ([1, 2, 3, 4], "x", ("number", "4 whole numbers")),
        ([1, 2] * 4, "x", ("category", "2 whole numbers")),
        ([1, 2] * 3 + [1], "x", ("number", "2 whole numbers")),  # each stands in less than four rows
        ([1.0, 2.0, None] * 4, "x", ("category", "2 whole numbers")),
        ([1.0, 2.0, float("nan")] * 4, "x", ("category", "2 whole numbers")),
        (list(range(10)) * 4, "x", ("category", "10 whole numbers")),
        (list(range(11)) * 4, "x", ("number", "11 whole numbers")),
        (list(range(11)) * 2, "statusId", ("category", "named like a code, 11 values")),
        ([*range(11), *range(10)], "statusId", ("number", "11 whole numbers")),
        ([float(n) for n in range(11)] * 2, "statusId", ("category", "named like a code, 11 values")),
        ([n + 0.5 for n in range(11)] * 2, "statusId", ("number", "decimals")),
        ([2**60, 2**60 + 1] * 4, "x", ("category", "2 whole numbers")),
        (["a", "b"] * 4, "x", ("category", "2 values")),
        (["a", ""] * 4, "x", ("category", "2 values")),
        (["a b", "b c d"] * 3, "x", ("text", "2 texts of 2.5 words")),
        ([f"v{n}" for n in range(1000)] * 4, "x", ("category", "1,000 values")),
        ([f"v{n}" for n in range(1001)] * 4, "x", ("text", "1,001 texts of 1.0 words")),
        ([f"v{n}" for n in range(1001)] * 20, "x", ("category", "1,001 values")),
        (TAGS, "x", ("multicategory", '3 parts between "|"')),
        ([t and t.replace("|", ";") for t in TAGS], "x", ("multicategory", '3 parts between ";"')),
        ([t and t.replace("|", ",") for t in TAGS], "x", ("text", "4 texts of 1.5 words")),
        ([f"a{n % 3},b{n % 7},c{n % 11}" for n in range(231)], "x", ("multicategory", '21 parts between ","')),
        ([f"a{n % 3},b{n % 7}" for n in range(231)], "x", ("category", "21 values")),
        (["one|two", "three|four"], "x", ("text", "2 texts of 1.0 words")),  # no part comes again
        ([["a", "b"], ["a"], [], None], "x", ("multicategory", "lists of 2 parts")),
        ([[1, 2], [2, 3]], "x", ("multicategory", "lists of 3 parts")),
        ([[True], [False]], "x", ("multicategory", "lists of 2 parts")),
        ([{"a": 1}, {"a": 2}], "x", ("unused", "nested or binary")),
        ([b"a", b"b"], "x", ("unused", "nested or binary")),
        ([[0.5], [1.5]], "x", ("unused", "nested or binary")),
        ([None, None], "x", ("unused", "no value")),
        ([float("nan"), float("inf")], "x", ("unused", "no value")),
        ([[], None], "x", ("unused", "no value")),
        ([[None], None], "x", ("unused", "no value")),
        ([7, 7], "x", ("unused", "one value")),
        ([7.5, 7.5], "x", ("unused", "one value")),
        (["a", "a"], "x", ("unused", "one value")),
        ([True, True], "x", ("unused", "one value")),
        ([["a", "b"], ["a", "b"]], "x", ("unused", "one value")),
        ([["a", "b"], ["b", "a"]], "x", ("multicategory", "lists of 2 parts")),
        ([0.0, -0.0], "x", ("unused", "one value")),
        ([7, None], "x", ("number", "1 whole number")),  # whether it is there tells something
        (["a", None], "x", ("text", "1 text of 1.0 words")),
    ],
)  # fmt: skip
def test_the_kind_of_a_column(values: Any, name: str, expected: tuple[str, str]) -> None:
    assert kind(values, name) == expected


@pytest.mark.parametrize(
    "name", ["id", "statusId", "PostTypeId", "zip_code", "flight number", "Class", "groups"]
)
def test_names_of_codes(name: str) -> None:
    assert kind(list(range(11)) * 2, name)[0] == "category"


@pytest.mark.parametrize("name", ["amount", "idle", "paid", "codes_used", "", "🙂", "year"])
def test_names_of_other_things(name: str) -> None:
    assert kind(list(range(11)) * 2, name)[0] == "number"


def test_keys_and_links_are_no_features_and_times_are() -> None:
    assert {name: feature_columns(table) for name, table in shop().tables.items()} == {
        "countries": [],
        "customers": ["joined"],
        "products": ["added"],
        "orders": ["placed"],
        "visits": ["at", "page"],
    }


def test_the_time_of_availability_is_a_feature() -> None:
    times = pa.array([1, 2], pa.timestamp("s"))
    found = kinds({"loaded": times}, days=[0, 1], available_at="loaded")
    assert found == {"loaded": ("time", "timestamps"), "at": ("time", "timestamps")}


def test_a_kind_comes_from_rows_that_are_known() -> None:
    days = list(range(9))
    column = [1, 2] * 4 + [3000]
    assert kinds({"x": column}, 7 * DAY, days=days)["x"] == ("category", "2 whole numbers")
    assert kinds({"x": column}, 8 * DAY, days=days)["x"] == ("number", "3 whole numbers")
    assert kinds({"x": [None] * 8 + [1]}, 7 * DAY, days=days)["x"] == ("unused", "no value")
    assert kinds({"x": [1] * 8 + [2]}, 7 * DAY, days=days)["x"] == ("unused", "one value")


def test_a_table_of_which_nothing_is_known() -> None:
    assert kinds({"x": [1, 2]}, -1, days=[0, 1]) == {
        "x": ("unused", "no value"),
        "at": ("unused", "no value"),
    }
    assert kinds({"x": pa.array([], pa.int64())}) == {"x": ("unused", "no value")}


# --- what the schema file says --------------------------------------------------------------------

TOLD: dict[str, tuple[Any, tuple[str, ...]]] = {
    "number": ([1, 2], ("number", "category")),
    "decimal": ([0.5, 2], ("number", "category")),
    "truth": ([True, False], ("category",)),
    "time": (pa.array([0, 1], pa.timestamp("s")), ("time",)),
    "text": (["a", "b"], ("category", "multicategory", "text")),
    "list": ([["a"], ["b"]], ("multicategory",)),
    "binary": ([b"a", b"b"], ()),
}


def test_the_words_are_those_of_the_features() -> None:
    assert (*get_args(Kind), "unused") == COLUMN_KINDS


@pytest.mark.parametrize("word", COLUMN_KINDS)
@pytest.mark.parametrize("column", TOLD)
def test_a_kind_is_as_told_or_refused(column: str, word: str) -> None:
    values, possible = TOLD[column]
    if word in ("unused", *possible):
        assert kinds({"x": values}, kinds={"x": word}) == {"x": (word, "as told")}
    else:
        with pytest.raises(
            SchemaError, match=rf"error\[V06\] t\.x holds .* and cannot be of the kind {word}\."
        ):
            kinds({"x": values}, kinds={"x": word})


def test_what_is_told_goes_before_what_tells_nothing() -> None:
    assert kinds({"x": [7, 7]}, kinds={"x": "number"}) == {"x": ("number", "as told")}
    assert kinds({"x": pa.array([None, None], pa.int64())}, kinds={"x": "category"}) == {
        "x": ("category", "as told")
    }
    assert kinds({"x": [None, None]}, kinds={"x": "category"}) == {"x": ("unused", "no value")}


def test_a_key_is_a_feature_where_it_is_told() -> None:
    columns = {"id": ["FR", "DE"], "x": [1, 2]}
    assert kinds(columns, primary_key=("id",)) == {"x": ("number", "2 whole numbers")}
    assert kinds(columns, primary_key=("id",), kinds={"id": "category"})["id"] == ("category", "as told")


def test_a_link_is_no_feature_of_a_composite_key_either() -> None:
    columns = {"a": [1, 2], "b": [1, 2], "c": [1, 2]}
    links = (ForeignKey(("a", "b"), "t", ("a", "b")),)
    assert list(kinds(columns, foreign_keys=links)) == ["c"]


def test_the_likely_separator() -> None:
    table = one_table({"x": ["a;b", "b;c,d", "c,d;e"]}, kinds={"x": "multicategory"})["t"]
    found = kinds_of(table, visible_cells(table, ["x"], NEVER))
    assert found["x"].separator == ";"


def test_inspection_looks_at_what_is_known_when_validation_begins() -> None:
    raw = {"t": one_table({"x": [1, 2] * 4 + [3000]}, days=list(range(9)))["t"].data}
    assert inspected(raw)["x"].kind == "number"
    assert inspected(raw, val_timestamp="1970-01-08")["x"].kind == "category"


def inspected(raw: dict[str, pa.Table], **facts: str) -> Any:
    schema = Schema({"t": TableSchema(time=TimeColumn("at"), settled=FACTS)}, **facts)
    return inspected_kinds(Database.build(raw, schema))[0]["t"]


# --- real data ------------------------------------------------------------------------------------

REAL = {
    "rel-f1": {
        "results": {
            "number": ["grid", "position", "positionOrder", "points", "laps", "milliseconds", "fastestLap", "rank"],
            "category": ["number", "statusId"],
            "time": ["date"],
        },
        "drivers": {
            "category": ["code", "nationality"], "time": ["dob"], "text": ["driverRef", "forename", "surname"],
        },
        "races": {"number": ["year", "round"], "category": ["name"], "time": ["date"], "unused": ["time"]},
    },
    "rel-travel": {
        "users": {"time": ["CreationDate"], "text": ["Location"], "number": ["Age"]},
        "posts": {"category": ["PostTypeId"], "text": ["Title"], "time": ["CreationDate"]},
        "votes": {"category": ["VoteTypeId"], "number": ["BountyAmount"], "time": ["CreationDate"]},
        "badges": {"category": ["Name", "Class", "TagBased"], "time": ["Date"]},
    },
    "rel-flights": {
        "flights": {
            "number": ["sched_dep_local", "sched_arr_local", "distance"],
            "category": ["flight_number", "arrived_late"], "time": ["sched_dep"],
        },
        "planes": {
            "number": ["built_year", "seats"], "text": ["tailnum"],
            "category": ["type", "manufacturer", "model", "engines", "engine"],
        },
    },
}  # fmt: skip


@pytest.mark.parametrize("name", REAL)
def test_real_columns(name: str) -> None:
    found, _ = inspected_kinds(Database.load(shared_data(name)))
    for table, expected in REAL[name].items():
        by_kind: dict[str, list[str]] = {}
        for column, kind in found[table].items():
            by_kind.setdefault(kind.kind, []).append(column)
        assert by_kind == expected


# --- columns that only name their rows --------------------------------------------------------------

NAMES = [f"n{number}" for number in range(60)]


@pytest.mark.parametrize(
    ("values", "is_name"),
    [
        (NAMES, True),
        (NAMES[:50], True),
        (NAMES[:49], False),  # a list of choices
        ([*NAMES, *NAMES[:29]], True),  # of 60 values 31 stand in one row
        ([*NAMES, *NAMES[:30]], False),
        (["none"] * 500 + NAMES, True),  # a category, but for most values one row
        ([f"{name} x" if number % 2 else name for number, name in enumerate(NAMES)], True),
        ([f"{name} x" for name in NAMES], False),  # words may say something
        ([f"<{name}><x>" for name in NAMES], False),
        ([f"{name}|a" for name in NAMES], False),
        ([None, *NAMES], True),
        (list(range(60)), False),
        ([[name] for name in NAMES], False),
    ],
)
def test_what_only_names_its_rows(values: Any, is_name: bool) -> None:
    table = one_table({"x": values})["t"]
    found = kinds_of(table, visible_cells(table, ["x"], NEVER))["x"]
    assert found.is_name is is_name
    assert found.why.endswith(", names of rows") is is_name


def test_a_kind_that_was_told_is_no_name() -> None:
    table = one_table({"x": NAMES}, kinds={"x": "text"})["t"]
    assert not kinds_of(table, visible_cells(table, ["x"], NEVER))["x"].is_name


def test_names_are_left_out_where_they_are_not_wanted() -> None:
    database = one_table({"x": NAMES, "y": list(range(60))})
    assert list(FeatureTable.fit(database, NEVER).statistics.tables["t"].columns) == ["x", "y"]
    statistics = FeatureTable.fit(database, NEVER, use_row_names=False).statistics.tables["t"]
    assert list(statistics.columns) == ["y"]
    assert "x" in statistics.unused
