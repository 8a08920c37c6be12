"""Table: columns of canonical types, keys that are unique, and when each row became known."""

from __future__ import annotations

from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from quartet.database import ForeignKey, Table, TableSchema, TimeColumn, canonical, is_plain
from quartet.database.table import build_table
from quartet.errors import QuartetError, SchemaError, TimeError
from quartet.findings import Finding, counted
from quartet.times import NEVER, STATIC, parse_instant


def at(text: str) -> int:
    return parse_instant(text, "test")


def build(columns: dict[str, Any], **facts: Any) -> tuple[Table, list[Finding]]:
    return build_table("t", pa.table(columns), TableSchema(**facts))


# --- canonical types ------------------------------------------------------------------------------

TEXT_STRUCT = pa.struct([("a", pa.string())])
VIEWS = pa.DictionaryArray.from_arrays(pa.array([1, None, 0, 1]), pa.array(["a", "b"], pa.string_view()))
ZONED = pa.timestamp("ms", "America/New_York")


@pytest.mark.parametrize(
    ("cells", "kind", "values"),
    [
        (pa.array([1], pa.int8()), pa.int64(), [1]),
        (pa.array([1], pa.uint32()), pa.int64(), [1]),
        (pa.array([1, 2], pa.uint64()), pa.string(), ["1", "2"]),
        (pa.array([2**64 - 1, None], pa.uint64()), pa.string(), [str(2**64 - 1), None]),
        (pa.array([0.5], pa.float32()), pa.float64(), [0.5]),
        (pa.array([np.float16(0.5)], pa.float16()), pa.float64(), [0.5]),
        (pa.array([Decimal("1.25")]), pa.float64(), [1.25]),
        (pa.array([Decimal(10)], pa.decimal128(30, 0)), pa.int64(), [10]),
        (pa.array(["ü"], pa.large_string()), pa.string(), ["ü"]),
        (pa.array(["ü"], pa.string_view()), pa.string(), ["ü"]),
        (pa.array([b"x", None], pa.binary_view()), pa.binary(), [b"x", None]),
        (pa.array([["ü"], None, []], pa.list_(pa.string_view())), pa.list_(pa.string()), [["ü"], None, []]),
        (
            pa.array([["ü"], None, []], pa.list_view(pa.string_view())),
            pa.list_(pa.string()),
            [["ü"], None, []],
        ),
        (pa.array([{"a": "ü"}, None], pa.struct([("a", pa.string_view())])), TEXT_STRUCT, [{"a": "ü"}, None]),
        (
            pa.array([bytes(15) + b"\x07", None], pa.uuid()),
            pa.string(),
            [f"{'0' * 8}-0000-0000-0000-{7:012}", None],
        ),
        (pa.array(["b", "a", "b"]).dictionary_encode(), pa.string(), ["b", "a", "b"]),
        (VIEWS, pa.string(), ["b", None, "a", "b"]),
        (pa.array([date(9999, 12, 31)]), pa.timestamp("us"), [datetime(9999, 12, 31)]),
        (pa.array([0], ZONED), pa.timestamp("us"), [datetime(1970, 1, 1)]),
        (pa.array([datetime(2024, 1, 1)], pa.timestamp("s")), pa.timestamp("us"), [datetime(2024, 1, 1)]),
        (pa.array([datetime(2024, 1, 1)], pa.timestamp("ns")), pa.timestamp("ns"), [datetime(2024, 1, 1)]),
        (pa.array([time(1, 2, 3)], pa.time32("s")), pa.string(), ["01:02:03"]),
        (pa.array([time(1, 2, 3)], pa.time64("ns")), pa.string(), ["01:02:03"]),
        (
            pa.array([time(10, 20, 30), time(10, 20, 30, 20)], pa.time64("ns")),
            pa.string(),
            ["10:20:30", "10:20:30.00002"],
        ),
        (pa.array([90], pa.duration("s")), pa.int64(), [90]),
        (pa.array([True, None]), pa.bool_(), [True, None]),
        (pa.array([None]), pa.null(), [None]),
        (pa.array([[1]]), pa.list_(pa.int64()), [[1]]),
    ],
    ids=lambda value: str(value) if isinstance(value, pa.DataType) else "",
)
def test_columns_become_canonical(cells: pa.Array, kind: pa.DataType, values: list[Any]) -> None:
    column = canonical(pa.table({"a": cells}))["a"]
    assert column.type == kind
    assert column.to_pylist() == values


@pytest.mark.parametrize(("count", "unit"), [(1, "ns"), (10**15, "s")])
def test_an_instant_that_microseconds_cannot_hold_stays_exact(count: int, unit: str) -> None:
    column = canonical(pa.table({"a": pa.array([count], pa.timestamp(unit, "UTC"))}))["a"]
    assert column.type == pa.timestamp(unit)
    assert column.cast(pa.int64()).to_pylist() == [count]


def test_canonical_keeps_chunks_without_rows() -> None:
    for kind, expected in {
        pa.uuid(): pa.string(),
        pa.opaque(pa.int32(), "name", "vendor"): pa.int64(),
    }.items():
        assert canonical(pa.table({"a": pa.chunked_array([], kind)}))["a"].type == expected


WORDS = [
    pa.string(),
    pa.large_string(),
    pa.int8(),
    pa.bool_(),
    pa.null(),
    pa.dictionary(pa.int8(), pa.string()),
]
LISTS = [pa.list_, pa.large_list, lambda part: pa.list_(part, 2)]


@pytest.mark.parametrize(
    "kind",
    [
        *(pa.int64(), pa.string(), pa.bool_(), pa.timestamp("s"), pa.null()),
        *(make(part) for make in LISTS for part in WORDS),
    ],
    ids=str,
)
def test_what_can_be_a_feature(kind: pa.DataType) -> None:
    assert is_plain(kind)
    _, findings = build({"id": [1, 2], "fine": pa.nulls(2, kind)}, primary_key=("id",))
    assert findings == []


ODD = [
    *(pa.list_(part) for part in (pa.float64(), pa.binary(), pa.list_(pa.int64()), pa.timestamp("s"))),
    *(pa.struct({"a": pa.int64()}), pa.map_(pa.string(), pa.int64())),
    *(pa.binary(), pa.large_binary(), pa.binary(4)),
]


@pytest.mark.parametrize("kind", [*ODD, pa.binary_view()])
def test_what_cannot_be_a_feature_is_listed(kind: pa.DataType) -> None:
    assert not is_plain(kind)
    _, findings = build({"id": [1, 2], "odd": pa.nulls(2, kind)}, primary_key=("id",))
    assert [str(f) for f in findings] == [
        'note[V09] table "t": 1 nested or binary columns are not used (odd)'
    ]


# --- when a row became known ----------------------------------------------------------------------


def test_a_table_without_a_time_was_always_known() -> None:
    table, _ = build({"id": [1, 2]}, primary_key=("id",))
    assert table.known_at.tolist() == [STATIC, STATIC]
    assert not table.is_timed


def test_the_time_column_becomes_utc_nanoseconds() -> None:
    table, _ = build({"ts": ["2024-01-01 02:00+01:00"], "x": [1]}, time=TimeColumn("ts"))
    assert table.known_at.tolist() == [at("2024-01-01 01:00")]
    assert table.data.column_names == ["ts", "x"]
    assert table.data["ts"].type == pa.timestamp("ns")
    assert table.data["ts"].cast(pa.int64()).to_pylist() == table.known_at.tolist()


def test_a_row_is_known_when_it_is_available() -> None:
    columns = {
        "ts": ["2024-01-01", "2024-01-05"],
        "loaded": ["2024-01-03", "2024-01-02"],  # the second was loaded before it happened
    }
    table, _ = build(columns, time=TimeColumn("ts"), available_at="loaded")
    assert table.known_at.tolist() == [at("2024-01-03"), at("2024-01-05")]


MISSING = {"id": [1, 2, 3], "ts": ["2024-01-01", None, "2024-01-03"], "late": [None, None, "2024-01-04"]}


@pytest.mark.parametrize(
    ("available_at", "rows", "columns"),
    [(None, [False, True, False], ["ts"]), ("late", [True, True, False], ["ts", "late"])],
)
def test_missing_times_are_kept_out_of_sight(
    available_at: str | None, rows: list[bool], columns: list[str]
) -> None:
    """A row that lacks both is reported once."""
    time = TimeColumn("ts", on_missing="never_visible")
    table, findings = build(MISSING, primary_key=("id",), time=time, available_at=available_at)
    assert (table.known_at == NEVER).tolist() == rows
    assert table.num_rows == 3
    assert [str(f) for f in findings if f.code == "T03"] == [
        f"warning[T03] t.{column} is empty in 1 rows; kept, and never visible" for column in columns
    ]


def test_rows_read_are_rows_kept_and_rows_reported() -> None:
    table, findings = build(MISSING, primary_key=("id",), time=TimeColumn("ts", on_missing="drop"))
    assert table.data["id"].to_pylist() == [1, 3]
    assert [str(f) for f in findings if f.code != "V13"] == ["warning[T03] t.ts is empty in 1 rows; dropped"]
    assert table.num_rows_read == table.num_rows + counted(findings, "T03", "t.ts")


def test_a_dropped_row_needs_no_key() -> None:
    columns = {"id": [1, None], "ts": ["2024-01-01", None]}
    table, _ = build(columns, primary_key=("id",), time=TimeColumn("ts", on_missing="drop"))
    assert table.num_rows == 1


# --- keys -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "cells"),
    [
        (("a",), {"a": [3, 1, 2]}),
        (("a",), {"a": ["x", "X", "x "]}),
        (("a",), {"a": [2**53, 2**53 + 1]}),
        (("a",), {"a": pa.array([2**63, 2**63 + 1], pa.uint64())}),
        (("a",), {"a": [b"\x00", b"\x01"]}),
        (("a", "b"), {"a": [1, 1, 2], "b": ["x", "y", "x"]}),
        (("a", "b"), {"a": ["x", "x:"], "b": [":y", "y"]}),
        (("a", "b"), {"a": [1, 11], "b": [11, 1]}),
    ],
)
def test_keys_that_are_unique(key: tuple[str, ...], cells: dict[str, Any]) -> None:
    table, _ = build(cells, primary_key=key)
    rows = table.key_map.rows(table.key_columns(key))
    assert rows.tolist() == list(range(table.num_rows))


@pytest.mark.parametrize(
    ("facts", "columns", "error", "message"),
    [
        (
            {"primary_key": ("a", "b")},
            {"a": [1, 1, 1, 2], "b": ["x", "x", "y", "y"]},
            SchemaError,
            'error[S03] table "t": primary key "a, b" has 1 repeated values ((1, x)). '
            "Fix: deduplicate or choose another key",
        ),
        (
            {"primary_key": ("a",)},
            {"a": [1.0, float("nan"), None]},
            SchemaError,
            'error[S04] table "t": primary key "a" is empty in 2 rows (rows 2, 3). '
            "Fix: fill it in or choose another key",
        ),
        (
            {"available_at": "a"},
            {"a": ["2024-01-01"]},
            TimeError,
            'error[T01] table "t" has available_at "a" but no time column. Fix: give its time_col too',
        ),
        (
            {"time": TimeColumn("a"), "available_at": "lodaed"},
            {"a": ["2024-01-01"], "loaded": ["2024-01-01"]},
            TimeError,
            'error[T01] table "t" has no time column "lodaed" (did you mean "loaded"?). '
            "Fix: correct the name in the schema file",
        ),
    ],
)
def test_tables_that_are_refused(
    facts: dict[str, Any], columns: dict[str, Any], error: type[QuartetError], message: str
) -> None:
    with pytest.raises(error) as caught:
        build(columns, **facts)
    assert str(caught.value) == message


# --- the column that names the rows ---------------------------------------------------------------

CITIES = ["Lyon", "Köln", "Oslo", "Bern", "Rome", "Nice", "Graz", "Brno", "Turku", "Gdańsk", "Porto", "Malmö"]


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"remark": CITIES, "title": CITIES, "name": CITIES}, "title"),
        ({"mayor_name": CITIES, "town_name": CITIES}, "town_name"),
        ({"mayor_name": CITIES, "x": CITIES}, "mayor_name"),
        ({"DisplayName": CITIES}, "DisplayName"),
        ({"name": ["A", "B"] * 6, "code": CITIES}, "code"),  # not one for each row
        ({"name": ["A", *CITIES[1:-1], "A"]}, "name"),  # nearly
        ({"full_name": CITIES[:4] * 3}, "full_name"),  # people share names
        ({"remark": CITIES[:4] * 3}, None),
        ({"name": [None] * 6 + CITIES[:6]}, None),  # half of the rows have none
        ({"name": [f"{city} " + "and so on " * 9 for city in CITIES]}, None),  # long
        ({"website_url": CITIES, "postcode": CITIES}, None),
        ({"number": [f"{i:03}" for i in range(12)]}, None),  # no letters
        ({"name": list(range(12))}, None),
        ({"parent": CITIES}, None),  # a link
    ],
)
def test_the_column_by_which_people_know_the_rows(columns: dict[str, Any], expected: str | None) -> None:
    link = ForeignKey(("parent",), "towns")
    facts = TableSchema(("id",), (link,) if "parent" in columns else ())
    table, _ = build_table("towns", pa.table({"id": list(range(12)), **columns}), facts)
    assert table.name_column == expected


def test_an_empty_table_has_no_names() -> None:
    assert build({"name": pa.array([], pa.string())})[0].name_column is None


def test_rows_that_come_later_do_not_decide_how_people_know_the_others() -> None:
    """Until 2021 mottos tell the rows apart; then one town after the other has the same."""
    days = [f"202{0 if i < 12 else 1}-01-{i % 12 + 1:02}" for i in range(60)]
    mottos = CITIES + ["ever onwards"] * 48
    towns = {"id": list(range(60)), "motto": mottos, "founded": days}
    table, _ = build(towns, primary_key=("id",), time=TimeColumn("founded"))
    rows, first, last = np.array([3, 1]), at("2020-06-01"), at("2022-01-01")
    assert table.name_column is None
    early = table.names_of(rows, np.array([last, first]))
    assert early is not None
    assert early.to_pylist() == [CITIES[3], CITIES[1]]
    assert table.names_of(rows, np.array([last, last])) is None
    assert table.names_of(rows[:0], np.array([], np.int64)) is None
