"""Nothing that is not knowable at a time can be noticed at that time, by one bit.

What is compared is a `View`: per table its rows in the order of the stream up to the time, each with
its time and its visible neighbours in order. Rows are named by what they are (their key, or their
content), never by their number, since numbers move when other rows come and go.
"""

from __future__ import annotations

import random
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quartet.causal import TimeRule, num_visible
from quartet.database import Database, ForeignKey, TableSchema, TimeColumn
from quartet.database.schema import Schema
from quartet.errors import SchemaError
from quartet.graph import TemporalGraph
from tests.graph.names import Name, names_of
from tests.shop import DAY, day, raw_shop
from tests.strategies import (
    FIRST_TIME,
    SECOND,
    Raw,
    examples,
    interesting_times,
    random_db,
    scrambled_future,
    shuffled,
    without_future,
)

View = dict[str, list[tuple[Name, int, list[Name]]]]

rules = st.sampled_from(["<=", "<"])
rng_seeds = st.integers(0, 2**32)


def view(database: Database, time: int, rule: TimeRule = "<=") -> View:
    """All that can be seen at a time."""
    graph, names = TemporalGraph.build(database), names_of(database)
    seen: View = {}
    for table in graph.names:
        stream = graph.stream_of(table)
        stream = stream[: num_visible(graph.node_time[stream], time, rule)]
        seen[table] = [
            (names[n], int(graph.node_time[n]), [names[m] for m in graph.neighbors(n, time, rule)])
            for n in stream
        ]
    return seen


# --- P1 to P3 -------------------------------------------------------------------------------------


@examples(100)
@given(random_db(), st.data(), rules, rng_seeds)
def test_neither_the_future_nor_the_order_of_rows_is_noticed(
    raw: Raw, data: st.DataObject, rule: TimeRule, rng_seed: int
) -> None:
    """P1, by two pairs of scissors, P2 and P3; the last at any time, the end of all times included."""
    database, rng = Database.build(*raw), random.Random(rng_seed)
    time = data.draw(st.sampled_from(interesting_times(database)))
    seen = view(database, time, rule)
    assert view(database.upto(time, rule), time, rule) == seen
    for change in (without_future, scrambled_future):
        assert view(Database.build(*change(raw, time, rule, rng)), time, rule) == seen
    other = Database.build(*shuffled(raw, rng))
    assert view(other, time, rule) == seen
    end = FIRST_TIME + 10**6 * DAY // 100
    assert view(other, end, rule) == view(database, end, rule)


@pytest.mark.parametrize("number", range(10))
@pytest.mark.parametrize("rule", ["<=", "<"])
def test_the_shop_keeps_its_secrets(number: int, rule: TimeRule) -> None:
    raw, time = raw_shop(), day(number)
    rng = random.Random(number)
    seen = view(Database.build(*raw), time, rule)
    for change in (without_future, scrambled_future):
        assert view(Database.build(*change(raw, time, rule, rng)), time, rule) == seen
    assert view(Database.build(*shuffled(raw, rng)), time, rule) == seen


def test_the_views_of_the_shop_are_not_blind() -> None:
    """A day later there is more to see, so the tests above compare something."""
    database = Database.build(*raw_shop())
    sizes = [
        sum(len(found) for rows in view(database, day(n)).values() for *_, found in rows) for n in range(10)
    ]
    assert sizes == [0, 6, 22, 34, 38, 46, 60, 66, 76, 86]  # twice 3, 8, 6, 2, 4, 7, 3, 5 and 5 new links


# --- P11 ------------------------------------------------------------------------------------------


@examples(150)
@given(random_db(), st.data(), rules)
def test_what_was_seen_stays_in_its_place(raw: Raw, data: st.DataObject, rule: TimeRule) -> None:
    """P11, and more: what is visible at a time is where every later list begins."""
    database = Database.build(*raw)
    graph = TemporalGraph.build(database)
    times = st.sampled_from(interesting_times(database))
    early, late = sorted([data.draw(times), data.draw(times)])
    nodes = np.arange(graph.num_nodes)
    narrow, wide = (graph.degrees(nodes, np.full(len(nodes), t), rule) for t in (early, late))
    assert (narrow <= wide).all()
    for node in nodes[::7]:
        before, after = graph.neighbors(node, early, rule), graph.neighbors(node, late, rule)
        assert after[: len(before)].tolist() == before.tolist()
        strictly = graph.neighbors(node, early, "<")
        assert graph.neighbors(node, early, "<=")[: len(strictly)].tolist() == strictly.tolist()


# --- P19 ------------------------------------------------------------------------------------------


def tied(keys: list[int], child: str = "sales") -> Database:
    """A hub whose children all have one time."""
    sales = pa.table({"id": keys, "hub": [0] * len(keys), "at": [5] * len(keys)})
    said = TableSchema(("id",), (ForeignKey(("hub",), "hubs"),), TimeColumn("at", unit="s"))
    return Database.build(
        {child: sales, "hubs": pa.table({"id": [0]})}, Schema({child: said, "hubs": TableSchema(("id",))})
    )


def newest(database: Database, count: int) -> list[int]:
    """The keys of the last rows in the hub's list."""
    graph = TemporalGraph.build(database)
    child = graph.names[0]
    found = graph.neighbors(graph.nodes("hubs")[0], 5 * SECOND)
    assert found.tolist() == graph.stream_of(child).tolist()
    return [database[child].data["id"][int(n)].as_py() for n in found[-count:]]


@examples(100)
@given(st.integers(0, 300), rng_seeds)
def test_ties_do_not_depend_on_the_order_of_rows(num_rows: int, rng_seed: int) -> None:
    """P19: sorted by key, by key backwards, or in any order."""
    rng = random.Random(rng_seed)
    keys = rng.sample(range(-1000, 1000), num_rows)
    chosen = newest(tied(keys), 50)
    assert newest(tied(sorted(keys)), 50) == chosen
    assert newest(tied(sorted(keys, reverse=True)), 50) == chosen


@examples(100)
@given(rng_seeds)
def test_ties_favour_no_key(rng_seed: int) -> None:
    """P19: the fifty "newest" of 1,000 tied rows come from all ten tenths of the keys alike.

    45.08 is what a chi-square of nine degrees exceeds once in a million.
    """
    table, start = f"sales{rng_seed}", rng_seed - 2**31
    keys = list(range(start, start + 1000))
    counts = np.bincount([(key - start) // 100 for key in newest(tied(keys, table), 50)], minlength=10)
    assert ((counts - 5.0) ** 2 / 5.0).sum() < 45.08


def test_ties_favour_no_key_over_many_tables() -> None:
    """The same over 400 tables at once, where a slight bias would add up."""
    counts = np.zeros(10)
    for number in range(400):
        last = newest(tied(list(range(100)), f"sales{number}"), 10)
        counts += np.bincount(np.array(last) // 10, minlength=10)
    assert ((counts - 400.0) ** 2 / 400.0).sum() < 45.08


# --- P9 -------------------------------------------------------------------------------------------

TIME_TYPES = [
    pa.timestamp("s"),
    pa.timestamp("ms"),
    pa.timestamp("us"),
    pa.timestamp("ns", "Asia/Kolkata"),
    pa.timestamp("s", "America/New_York"),
    pa.string(),
    pa.date32(),
]


@pytest.mark.parametrize("kind", TIME_TYPES, ids=str)
def test_one_instant_gives_one_graph_however_it_is_written(kind: pa.DataType) -> None:
    """P9: the shop, whose days are whole, in every type that can hold a day."""
    tables, schema = raw_shop()
    plain = TemporalGraph.build(Database.build(tables, schema))
    for name, said in schema.tables.items():
        if said.time is not None:
            place = tables[name].column_names.index(said.time.column)
            column = tables[name][place].cast(kind)
            tables[name] = tables[name].set_column(place, said.time.column, column)
    other = TemporalGraph.build(Database.build(tables, schema))
    for one, two in zip(plain.arrays, other.arrays, strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("kind", [pa.timestamp("ms"), pa.timestamp("us"), pa.timestamp("ns")], ids=str)
def test_content_keys_do_not_depend_on_the_unit_of_a_time(kind: pa.DataType) -> None:
    """P9 in a table without a primary key: the same log from Parquet and from a database server."""

    def keys(kind: pa.DataType) -> list[int]:
        seen = pa.array(range(20), pa.timestamp("s")).cast(kind)
        log = pa.table({"seen": seen, "at": [5] * 20})
        said = TableSchema(time=TimeColumn("at", unit="s"))
        return TemporalGraph.build(Database.build({"log": log}, Schema({"log": said}))).stable_key.tolist()

    assert keys(kind) == keys(pa.timestamp("s"))


# --- what once moved ------------------------------------------------------------------------------


def scans(kind: pa.DataType, rows: list[int]) -> list[list[str]]:
    """Who passed the gate, in order: two scans of one moment, which differ only in the badge."""
    badges = pa.array([b"\x00\xff", b"\x01\xff"], kind)
    tables = {
        "scans": pa.table({"badge": badges, "gate": [1, 1], "at": [5, 5]}).take(rows),
        "people": pa.table({"badge": badges, "name": ["Ada", "Bo"]}),
        "gates": pa.table({"id": [1]}),
    }
    links = (ForeignKey(("badge",), "people"), ForeignKey(("gate",), "gates"))
    schema = {
        "scans": TableSchema((), links, TimeColumn("at", unit="s")),
        "people": TableSchema(("badge",)),
        "gates": TableSchema(("id",)),
    }
    graph = TemporalGraph.build(Database.build(tables, Schema(schema)))
    people = dict(zip(graph.nodes("people"), ["Ada", "Bo"], strict=True))
    passed = graph.neighbors(graph.nodes("gates")[0], 5 * SECOND)
    return [[people[n] for n in graph.neighbors(scan, 5 * SECOND) if n in people] for scan in passed]


@pytest.mark.parametrize("kind", [pa.binary(2), pa.binary()], ids=str)
def test_content_keys_hold_every_foreign_key(kind: pa.DataType) -> None:
    """P3 in a table without a primary key, where only a binary key (a UUID) tells two rows apart."""
    assert scans(kind, [0, 1]) == scans(kind, [1, 0])


ODD = {  # a type, cells of it that would fit a plainer one, and a last that would not
    "unsigned": pa.array([1, 2, 3, 4, 2**63], pa.uint64()),
    "times": pa.array([1000, 2000, 3000, 4000, 5001], pa.timestamp("ns")),
    "durations": pa.array([1000, 2000, 3000, 4000, 5001], pa.duration("ns")),
    "times of day": pa.array([10**6, 2 * 10**6, 3 * 10**6, 4 * 10**6, 5], pa.time64("us")),
}


@pytest.mark.parametrize("has_key", [True, False], ids=["key", "content"])
@pytest.mark.parametrize("kind", ODD)
def test_an_odd_cell_in_the_future_does_not_move_the_past(kind: str, has_key: bool) -> None:
    """P2: how a column is stored may depend on its type, not on a cell of a row that is not known yet."""

    def order(num_rows: int) -> list[int]:
        table = pa.table({"odd": ODD[kind], "at": [5, 5, 5, 5, 6], "n": range(5)}).slice(0, num_rows)
        said = TableSchema(("odd",) if has_key else (), (), TimeColumn("at", unit="s"))
        database = Database.build({"a": table}, Schema({"a": said}))
        return [n for n in TemporalGraph.build(database).stream_of("a").tolist() if n < 4]

    assert order(5) == order(4)


def test_a_whole_decimal_beyond_int64_is_refused() -> None:
    """As text it would change how the others are kept, so that a later row would move the earlier ones."""
    odd = pa.array([Decimal(n) for n in (1, 2, 2**63)], pa.decimal128(38, 0))
    with pytest.raises(SchemaError) as caught:
        Database.build({"a": pa.table({"odd": odd})}, Schema({"a": TableSchema(("odd",))}))
    assert str(caught.value) == (
        "error[S17] a.odd is decimal128(38, 0) and holds whole numbers of 2^63 and above. Fix: store it as text"
    )


def test_time_is_exact_to_the_nanosecond() -> None:
    """Neighbouring nanoseconds of 2024 are one float64; they must stay two times."""
    tables, schema = raw_shop()
    said = replace(schema.tables["orders"], time=TimeColumn("placed", unit="ns"))
    placed = pa.array([day(9) + n for n in range(12)], pa.int64())
    tables["orders"] = tables["orders"].set_column(1, "placed", placed)
    database = Database.build(tables, replace(schema, tables={**schema.tables, "orders": said}))
    graph = TemporalGraph.build(database)
    tea, first_order = graph.nodes("products")[0], graph.nodes("orders")[0]
    of_tea = [0, 1, 2, 3, 5, 6, 8, 9, 11]
    for n in range(12):
        assert graph.neighbors(tea, day(9) + n).tolist() == [first_order + i for i in of_tea if i <= n]
        assert graph.neighbors(tea, day(9) + n, "<").tolist() == [first_order + i for i in of_tea if i < n]
