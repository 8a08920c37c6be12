"""Dicts of frames: what pandas, polars and Arrow hold, as it is."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from quartet.database import Database, TableSchema, TimeColumn, canonical
from quartet.database.readers.frames import read_frames
from quartet.database.schema import Schema
from quartet.errors import QuartetError, SchemaError, TimeError, UsageError
from quartet.times import parse_instant

pd = pytest.importorskip("pandas")


def read(frame: Any) -> pa.Table:
    """The frame as a table of canonical types."""
    return canonical(read_frames({"t": frame}).tables["t"])


def refusal(error: type[QuartetError], frame: Any) -> str:
    with pytest.raises(error) as caught:
        read(frame)
    return str(caught.value)


PARIS = pd.Timestamp("2024-01-01 01:00", tz="Europe/Paris")


@pytest.mark.parametrize(
    ("make", "kind", "values"),
    [
        (lambda: pd.Series([1, 2]), pa.int64(), [1, 2]),
        (lambda: pd.Series([1, 2], dtype="int8"), pa.int64(), [1, 2]),
        (lambda: pd.Series([1, None]), pa.float64(), [1.0, None]),
        (lambda: pd.Series([1, None], dtype="Int64"), pa.int64(), [1, None]),
        (lambda: pd.Series([2**63, 1], dtype="uint64"), pa.string(), [str(2**63), "1"]),
        (lambda: pd.Series([0.5, float("nan"), float("inf")]), pa.float64(), [0.5, None, float("inf")]),
        (lambda: pd.Series([0.5], dtype="float32"), pa.float64(), [0.5]),
        (lambda: pd.Series(["a", None]), pa.string(), ["a", None]),
        (lambda: pd.Series(["a", None, float("nan")], dtype=object), pa.string(), ["a", None, None]),
        (lambda: pd.Series([True, None], dtype=object), pa.bool_(), [True, None]),
        (lambda: pd.Series([1, 2.5, None], dtype=object), pa.float64(), [1.0, 2.5, None]),
        (lambda: pd.Series(["b", "a", None], dtype="category"), pa.string(), ["b", "a", None]),
        (lambda: pd.Series([3, 1], dtype="category"), pa.int64(), [3, 1]),
        (lambda: pd.Series([date(2024, 1, 31)]), pa.timestamp("us"), [datetime(2024, 1, 31)]),
        (lambda: pd.Series([timedelta(seconds=1)]).astype("timedelta64[ms]"), pa.int64(), [1000]),
        (lambda: pd.Series([PARIS]), pa.timestamp("us"), [datetime(2024, 1, 1)]),
        (lambda: pd.Series([pd.NaT], dtype="datetime64[s]"), pa.timestamp("us"), [None]),
        (lambda: pd.Series([[1], None]), pa.list_(pa.int64()), [[1], None]),
        (lambda: pd.Series([uuid.UUID(int=1)]), pa.string(), [str(uuid.UUID(int=1))]),
    ],
)
def test_pandas_columns(make: Callable[[], Any], kind: pa.DataType, values: list[Any]) -> None:
    table = read(pd.DataFrame({"a": make()}))
    assert table.schema.field("a").type == kind
    assert table["a"].to_pylist() == values


def test_the_index_is_ignored() -> None:
    frame = pd.DataFrame({"a": [1, 2]}, index=pd.Index([7, 7], name="id"))
    assert read(frame).to_pydict() == {"a": [1, 2]}


def test_names_become_text() -> None:
    source = read_frames({1: pd.DataFrame({0: [1], ("x", "y"): [2]})})
    assert {name: table.column_names for name, table in source.tables.items()} == {"1": ["0", "('x', 'y')"]}
    assert source.location == "memory"


def test_keys_that_pandas_made_decimals_still_link() -> None:
    frames = {
        "customers": pd.DataFrame({"customer_id": [1, 2, 3]}),
        "orders": pd.DataFrame({"order_id": [1, 2, 3, 4], "customer_id": [3, None, 1, 2]}),
    }
    assert frames["orders"]["customer_id"].dtype == np.float64
    database = Database.load(frames)
    assert [(r.label, r.rows.tolist()) for r in database.relations] == [("orders.customer_id", [2, -1, 0, 1])]


def test_times_with_a_zone_are_the_same_instants() -> None:
    zoned = pd.Series([PARIS, PARIS + pd.Timedelta(hours=1)])
    frame = pd.DataFrame({"aware": zoned, "utc": zoned.dt.tz_convert("UTC").dt.tz_localize(None)})
    schemas = [Schema({"t": TableSchema(time=TimeColumn(name))}) for name in frame.columns]
    known = [Database.load({"t": frame}, schema)["t"].known_at.tolist() for schema in schemas]
    assert known[0] == known[1] == [parse_instant(t, "") for t in ("2024-01-01", "2024-01-01 01:00")]


def test_repeated_column_names_are_refused_by_name() -> None:
    frame = pd.DataFrame([[1, 2]], columns=["a", "a"])
    assert read(frame).column_names == ["a", "a"]
    with pytest.raises(SchemaError) as caught:
        Database.load({"t": frame})
    assert str(caught.value) == 'error[S15] table "t" has two columns named "a"/"a". Fix: rename one'


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ([1, "a"], "Could not convert 'a' with type str: tried to convert to int64"),
        ([1, True], "Expected integer, got bool"),
        ([2**70], "Python int too large to convert to C long"),
        (
            [1j],
            "Could not convert 1j with type complex: did not recognize Python value type when inferring "
            "an Arrow data type",
        ),
        (["\ud800"], "'utf-8' codec can't encode character '\\ud800' in position 0: surrogates not allowed"),
    ],
)
def test_mixed_objects(cells: list[Any], reason: str) -> None:
    assert refusal(SchemaError, pd.DataFrame({"a": pd.Series(cells, dtype=object)})) == (
        f"error[V09] t.a does not fit in one type ({reason}). Fix: give the column one type, e.g. text"
    )


def test_times_with_and_without_a_zone_in_one_column() -> None:
    cells = [datetime(2024, 1, 1, tzinfo=UTC), None, datetime(2024, 1, 1)]
    assert refusal(TimeError, pd.DataFrame({"a": pd.Series(cells, dtype=object)})) == (
        "error[T04] t.a mixes zone-aware and zone-free values. Fix: give all of them a zone, or none"
    )


def test_an_empty_frame_is_an_empty_table() -> None:
    assert read(pd.DataFrame({"a": pd.Series([], dtype="int64")})).num_rows == 0
    assert read(pd.DataFrame()).num_columns == 0


# --- Arrow and polars -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda columns: pa.table(columns),
        lambda columns: pa.record_batch(columns),
        lambda columns: pa.RecordBatchReader.from_batches(
            pa.table(columns).schema, pa.table(columns).to_batches(max_chunksize=1)
        ),
        pd.DataFrame,
    ],
    ids=["table", "batch", "stream", "pandas"],
)
def test_kinds_of_frames(make: Callable[[Any], Any]) -> None:
    columns = {"a": [1, 2], "b": ["x", "y"]}
    assert read(make(columns)).to_pydict() == columns


def test_polars() -> None:
    polars = pytest.importorskip("polars")
    category = polars.Series(["u", "v"], dtype=polars.Categorical)
    frame = polars.DataFrame({"a": [1, None], "b": ["x", "y"], "c": [date(2024, 1, 1), None], "d": category})
    assert read(frame).to_pydict() == {
        "a": [1, None],
        "b": ["x", "y"],
        "c": [datetime(2024, 1, 1), None],
        "d": ["u", "v"],
    }


@pytest.mark.parametrize(
    ("frame", "kind"), [([1, 2], "list"), ({"a": [1]}, "dict"), (pd.Series([1]), "Series"), ("x.csv", "str")]
)
def test_what_is_no_frame(frame: Any, kind: str) -> None:
    assert refusal(UsageError, frame) == (
        f'error[S01] table "t" is of type {kind}. Fix: give a pandas or polars DataFrame or an Arrow table'
    )


def test_no_frames_at_all() -> None:
    with pytest.raises(SchemaError) as caught:
        Database.load({})
    assert str(caught.value) == (
        'error[S01] no tables found in "memory". Fix: give a folder of .parquet/.csv or a database URL'
    )
