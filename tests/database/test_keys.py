"""Keys of any type against a dict from key to row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quartet.database import Database, ForeignKey, KeyColumn, TableSchema
from quartet.database.keys import NO_SUCH_KEY, NULL_KEY, KeyMap
from quartet.database.schema import Schema
from quartet.errors import SchemaError
from tests.strategies import examples

Key = tuple[Any, ...]

dense = st.integers(-40, 40)
sparse = st.integers(-(2**63), 2**63 - 1) | st.integers(2**53 - 3, 2**53 + 3) | st.just(2**63 - 1)
text = st.text(alphabet=":?01aé", max_size=4)
KINDS: list[tuple[st.SearchStrategy[Any], pa.DataType]] = [
    (dense, pa.int64()),
    (sparse, pa.int64()),
    (dense | sparse, pa.int64()),
    (dense.map(float), pa.float64()),
    (text, pa.string()),
    (text, pa.dictionary(pa.int32(), pa.string())),
    (st.integers(0, 255), pa.uint8()),
    (st.integers(0, 2**63 - 1), pa.uint64()),
    (st.booleans(), pa.bool_()),
    (st.binary(max_size=3), pa.binary()),
    (st.dates(date(1700, 1, 1), date(2200, 1, 1)), pa.date32()),
    (st.datetimes(datetime(1700, 1, 1), datetime(2200, 1, 1)), pa.timestamp("us")),
]


@st.composite
def cut(draw: st.DrawFn, cells: Sequence[Any], kind: pa.DataType) -> pa.ChunkedArray:
    """A column cut into chunks, some of them empty."""
    whole = pa.array(cells, kind)
    cuts = draw(st.lists(st.integers(0, len(cells)), max_size=3))
    pieces = [whole.slice(a, b - a) for a, b in pairwise(sorted([0, *cuts, len(cells)]))]
    return pa.chunked_array(pieces, kind)


def column(cells: Sequence[Any], kind: pa.DataType | None = None, where: str = "t.c") -> KeyColumn:
    return KeyColumn.of(pa.chunked_array([pa.array(cells, kind)]), where)


def key_map(*columns: Sequence[Any]) -> KeyMap:
    return KeyMap([column(cells) for cells in columns])


def by_dict(known: Sequence[Key], wanted: Sequence[Key]) -> list[int]:
    """What the rows must be: the place of each wanted key among the known ones."""
    rows = {key: row for row, key in enumerate(known)}
    return [NULL_KEY if None in key else rows.get(key, NO_SUCH_KEY) for key in wanted]


# --- against a dict -------------------------------------------------------------------------------


@examples(120)
@given(st.data(), st.lists(st.sampled_from(KINDS), min_size=1, max_size=3))
def test_rows_are_those_of_a_dict(
    data: st.DataObject, kinds: list[tuple[st.SearchStrategy[Any], pa.DataType]]
) -> None:
    """Any kind of key, of one to three columns; a third of the wanted keys has an empty part."""
    parts = [cells for cells, _ in kinds]
    known = data.draw(st.lists(st.tuples(*parts), max_size=30, unique=True))
    stranger = st.tuples(*(st.none() | part for part in parts))
    mixed = (
        st.tuples(*(st.sampled_from([key[i] for key in known]) | p for i, p in enumerate(parts)))
        if known
        else stranger
    )
    wanted = data.draw(
        st.lists((st.sampled_from(known) if known else stranger) | mixed | stranger, max_size=30)
    )

    def columns(keys: list[Key]) -> list[KeyColumn]:
        cells = [data.draw(cut([key[i] for key in keys], kind)) for i, (_, kind) in enumerate(kinds)]
        return [KeyColumn.of(found, "t.c") for found in cells]

    found = KeyMap(columns(known)).rows(columns(wanted))
    assert found.dtype == np.int64
    assert found.tolist() == by_dict(known, wanted)


@examples(80)
@given(
    st.lists(st.integers(-(2**63), -(2**63) + 99) | dense, unique=True), st.lists(st.none() | dense | sparse)
)
def test_the_dense_and_the_sparse_path_agree(known: list[int], wanted: list[int | None]) -> None:
    """One far key forces the other path, and moves no row."""
    far = 10**17
    near_rows = key_map(pa.array(known, pa.int64())).rows([column(wanted, pa.int64())])
    far_rows = key_map(pa.array([*known, far], pa.int64())).rows([column(wanted, pa.int64())])
    expected = by_dict([(key,) for key in known], [(key,) for key in wanted])
    assert near_rows.tolist() == expected
    assert far_rows.tolist() == [
        len(known) if key == far else row for key, row in zip(wanted, expected, strict=True)
    ]


@examples(50)
@given(st.lists(st.tuples(text, dense), max_size=40), st.integers(1, 2))
def test_repeated_keys_are_counted(keys: list[Key], width: int) -> None:
    keys = [key[:width] for key in keys]
    counts = Counter(keys)
    several = [key for key, count in counts.items() if count > 1]
    kinds = [pa.string(), pa.int64()]
    count, first = KeyMap([column([k[i] for k in keys], kinds[i]) for i in range(width)]).repeated()
    assert count == len(several)
    shown = {key[0] if width == 1 else f"({key[0]}, {key[1]})" for key in several}
    assert len(first) == min(3, len(several))
    assert set(first) <= shown


def test_composite_keys_with_marks_inside() -> None:
    """The code of a composite key is joined by ":" and writes "?" for an unknown part."""
    known = [("a:", "b"), ("a", ":b"), ("", "a::b"), ("?", ""), ("a", "?"), ("0", "1:0")]
    wanted = [
        *reversed(known),
        ("a", "b"),
        ("", "?"),
        ("x", "b"),
        ("x", "?"),
        (None, "?"),
        ("a", None),
        ("?", "?"),
    ]
    keys = KeyMap([column([key[i] for key in known]) for i in range(2)])
    rows = keys.rows([column([key[i] for key in wanted]) for i in range(2)])
    assert rows.tolist() == [5, 4, 3, 2, 1, 0, -2, -2, -2, -2, -1, -1, -2]


def test_whole_numbers_that_came_as_decimals_find_their_rows() -> None:
    wanted = column([3.0, None, -1.0, float("nan"), -0.0, 7.0], pa.float64())
    assert key_map([0, -1, 3]).rows([wanted]).tolist() == [2, -1, 1, -1, 0, -2]


def test_instants_are_equal_in_any_unit() -> None:
    days = pa.array([date(2024, 1, 1), date(2024, 1, 2)])
    wanted = column(days.cast(pa.timestamp("ms")).take([1, 0]))
    assert key_map(days).rows([wanted]).tolist() == [1, 0]


def test_show_writes_a_key_as_people_do() -> None:
    assert key_map(["C77"]).show(0) == "C77"
    assert key_map(["FR"], [7]).show(0) == "(FR, 7)"
    assert key_map([b"\x00\xff"]).show(0) == "00ff"
    assert key_map(pa.array([date(2024, 1, 31)])).show(0).startswith("2024-01-31")


# --- what cannot be a key -------------------------------------------------------------------------


def refusal(cells: Sequence[Any], kind: pa.DataType) -> str:
    with pytest.raises(SchemaError) as refused:
        column(cells, kind, where="customers.id")
    return str(refused.value)


def test_s18_digits_lost_in_a_decimal() -> None:
    assert refusal([1.0, None, 9007199254740993.0], pa.float64()) == (
        "error[S18] customers.id was read as decimal and lost digits near 9007199254740992. "
        "Fix: declare it int64 or text"
    )
    assert refusal([-(2.0**60)], pa.float64()) == (
        "error[S18] customers.id was read as decimal and lost digits near -1152921504606846976. "
        "Fix: declare it int64 or text"
    )
    largest = 2.0**53 - 1
    assert key_map([int(largest)]).rows([column([largest])]).tolist() == [0]


def test_s08_an_infinite_key_has_lost_no_digits() -> None:
    assert refusal([1.0, float("inf")], pa.float64()).startswith("error[S08] customers.id ")


def test_s08_fractions() -> None:
    assert refusal([1.0, 2.5, None, -0.25], pa.float64()) == (
        "error[S08] customers.id is a decimal column with 2 values that are not whole (2.5, -0.25) "
        "and cannot be a key. Fix: choose another column"
    )


def test_s08_nested() -> None:
    assert refusal([[1]], pa.list_(pa.int64())) == (
        "error[S08] customers.id is a list<item: int64>, which cannot be a key. Fix: choose another column"
    )


def test_s17_integers_beyond_int64() -> None:
    assert refusal([1, 2**63], pa.uint64()) == (
        "error[S17] customers.id holds keys of 2^63 and above. Fix: declare the column as text"
    )


def customers_and_orders(customers: dict[str, Any], links: list[Any], *references: str) -> Database:
    tables = {
        "customers": pa.table(customers),
        "orders": pa.table({"id": range(len(links)), "customer": links}),
    }
    foreign_key = ForeignKey(("customer",), "customers", references)
    schema = Schema({"customers": TableSchema(("id",)), "orders": TableSchema(("id",), (foreign_key,))})
    return Database.build(tables, schema)


def test_keys_beyond_int64_link_as_text() -> None:
    """S17 does not reach the user of a database: such a column is canonical text on both sides."""
    ids = pa.array([2**64 - 1, 5], pa.uint64())
    database = customers_and_orders({"id": ids}, pa.array([5, 2**64 - 1, None], pa.uint64()))
    assert database.relations[0].rows.tolist() == [1, 0, -1]


@pytest.mark.parametrize("kind", [pa.large_binary(), pa.binary_view()], ids=str)
def test_binary_keys_of_every_width_are_compared_as_bytes(kind: pa.DataType) -> None:
    known, wanted = [b"\xff\x00", b"a"], [b"a", b"\xff\x00", None, b"61"]
    rows = KeyMap([column(known, pa.binary())]).rows([column(wanted, kind)])
    assert rows.tolist() == [1, 0, NULL_KEY, NO_SUCH_KEY]


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_a_time_key_beyond_nanoseconds_is_exact(unit: str) -> None:
    """`valid_to` of 9999-12-31 is part of the primary key of many a history table."""
    open_end = pa.array([datetime(9999, 12, 31), datetime(2024, 1, 1)], pa.timestamp(unit))
    assert key_map(open_end).rows([column(open_end.take([1, 0]))]).tolist() == [1, 0]


def test_decimal_keys() -> None:
    ids = pa.array([Decimal(7), Decimal(2**53 + 1)], pa.decimal128(20, 0))
    database = customers_and_orders({"id": ids}, [2**53 + 1, 7, 8])
    assert database.relations[0].rows.tolist() == [1, 0, -1]


def test_a_unique_column_may_have_empty_cells() -> None:
    """A link to `customers.code`: SQL's UNIQUE allows many empty cells, and none of them is a key."""
    database = customers_and_orders({"id": [1, 2, 3], "code": ["a", None, None]}, ["a", None, "b"], "code")
    assert database.relations[0].rows.tolist() == [0, -1, -1]
