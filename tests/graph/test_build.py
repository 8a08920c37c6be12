"""The graph is what its definition says: against the drawing of the shop, and against the twin."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quartet.database import FACTS, Database, ForeignKey, Table, TableSchema, TimeColumn
from quartet.database.schema import Schema
from quartet.errors import ResourceError
from quartet.findings import counted
from quartet.graph import TemporalGraph
from quartet.times import NEVER, STATIC
from tests.reference.graph import Twin, build_twin
from tests.shop import day, labels, raw_shop, shop
from tests.strategies import Raw, examples, interesting_times, random_db, rechunked, seeds_of

RULES = ("<=", "<")
DTYPES = {
    "offsets": np.int64,
    "times": np.int64,
    "node_rank": np.int32,
    "stable_key": np.uint64,
    "stream": np.int32,
    "indptr": np.int64,
    "entries": np.int64,
    "parents": np.int32,
    "parents_start": np.int64,
    "num_foreign_keys": np.int64,
}


def assert_same(graph: TemporalGraph, twin: Twin) -> None:
    """The graph holds what the twin holds, entry by entry."""
    times = [node.time for node in twin.nodes]
    assert graph.names == tuple(twin.names)
    assert graph.num_nodes == len(twin.nodes)
    assert graph.times.tolist() == sorted({STATIC, *times})
    assert graph.node_time.tolist() == times
    assert graph.stable_key.tolist() == [node.key for node in twin.nodes]
    assert graph.offsets.tolist() == starts(len(twin.nodes_of(name)) for name in twin.names)
    assert graph.indptr.tolist() == starts(len(found) for found in twin.neighbors)
    ranks, neighbors = graph.entries >> 32, graph.entries & (2**32 - 1)
    edges = zip(graph.times[ranks].tolist(), neighbors.tolist(), strict=True)
    assert list(edges) == [edge for found in twin.neighbors for edge in found]
    for name in twin.names:
        assert graph.stream_of(name).tolist() == twin.stream(name)


def starts(lengths: object) -> list[int]:
    return np.cumsum([0, *lengths]).tolist()  # type: ignore[misc]


def slots_of(graph: TemporalGraph, table: str) -> list[list[int]]:
    """The parents of a table's rows, one slot for each foreign key."""
    place = graph.names.index(table)
    block = graph.parents[graph.parents_start[place] : graph.parents_start[place + 1]]
    return block.reshape(len(graph.nodes(table)), graph.num_foreign_keys[place]).tolist()


# --- the shop -------------------------------------------------------------------------------------

HAND_MADE: dict[str, list[tuple[int, set[str]]]] = {
    "tea": [(2, {"#1", "#2"}), (3, {"#3", "#4"}), (5, {"#6", "#7"}), (7, {"#9"}), (8, {"#10"}), (9, {"#12"})],
    "101": [
        (1, {"FR", "visit 1", "visit 2"}),
        (2, {"102", "#1", "#2"}),
        (3, {"#4"}),
        (5, {"#7"}),
        (6, {"#8"}),
        (9, {"#12"}),
    ],
    "103": [(2, {"FR"}), (3, {"#3"}), (4, {"#5"}), (5, {"#6"})],
    "104": [(6, {"102", "#7", "#8", "visit 4"})],  # order 7 is of day 5, its recipient of day 6
    "105": [(6, {"IN"}), (8, {"106", "#10"}), (9, {"#11"})],
    "106": [(8, {"105", "#10", "visit 5"}), (9, {"#11"})],
    "pot": [(7, {"#5"})],  # order 5 is of day 4
    "#5": [(4, {"102", "103"}), (7, {"pot"})],
    "#9": [(7, {"tea", "102"})],
    "FR": [(1, {"101"}), (2, {"103"})],
    "visit 2": [(1, {"101"})],
    "visit 6": [],
}


@pytest.mark.parametrize("name", HAND_MADE)
def test_the_shop_grows_as_drawn(name: str) -> None:
    database = shop()
    graph, names = TemporalGraph.build(database), labels(database)
    seen = [names[n] for n in graph.neighbors(names.index(name), day(99))]
    for number in range(11):
        growth = [found for since, found in HAND_MADE[name] if since <= number]
        num_visible = sum(map(len, growth))
        assert [names[n] for n in graph.neighbors(names.index(name), day(number))] == seen[:num_visible]
        assert set(seen[:num_visible]) == set().union(*growth)
        assert graph.degrees(np.array([names.index(name)]), np.array([day(number) - 1]), "<=") == sum(
            len(found) for since, found in HAND_MADE[name] if since < number
        )


def test_ties_of_the_shop_stand_in_the_order_of_their_hashes_for_ever() -> None:
    """Pinned: a sampler's result would change with this order, on every machine and in every version."""
    database = shop()
    graph, names = TemporalGraph.build(database), labels(database)
    in_order = {table: " ".join(names[n] for n in graph.stream_of(table)) for table in graph.names}
    assert in_order["countries"] == "IN DE FR"
    assert in_order["orders"] == "#2 #1 #3 #4 #5 #7 #6 #8 #9 #10 #12 #11"
    tea = " ".join(names[n] for n in graph.neighbors(names.index("tea"), day(9)))
    assert tea == "#2 #1 #3 #4 #7 #6 #9 #10 #12"
    late = " ".join(names[n] for n in graph.neighbors(names.index("104"), day(6)))
    assert late == "102 #8 visit 4 #7"


def test_the_shop_names_its_parents_once() -> None:
    database = shop()
    graph, names = TemporalGraph.build(database), [*labels(database), "-"]
    customers = [[names[n] for n in slots] for slots in slots_of(graph, "customers")]
    assert customers == [
        ["FR", "-"],
        ["DE", "101"],
        ["FR", "-"],  # the loop
        ["-", "102"],  # the dangling key
        ["IN", "-"],  # the link to 106 stands at 106, whose key is the smaller one
        ["-", "105"],
    ]
    orders = [[names[n] for n in slots] for slots in slots_of(graph, "orders")]
    assert orders[0] == ["tea", "101", "-"]  # the parallel link
    assert orders[8] == ["tea", "-", "102"]  # the dangling key


def test_the_shop_is_counted() -> None:
    """49 filled foreign keys are 43 links, one loop, three parallel links and two that dangle."""
    database = shop()
    graph = TemporalGraph.build(database)
    assert (graph.num_nodes, graph.num_entries) == (30, 2 * 43)
    assert (graph.num_loops, graph.num_parallel) == (1, 3)
    assert counted(database.findings, "S07") == 2
    assert counted(database.findings, "S10") == 1


def test_the_shop_is_its_twin() -> None:
    database = shop()
    graph, twin = TemporalGraph.build(database), build_twin(*raw_shop())
    assert_same(graph, twin)
    for node in range(graph.num_nodes):
        for time in interesting_times(database):
            for rule in RULES:
                assert graph.neighbors(node, time, rule).tolist() == twin.visible(node, time, rule)


# --- random databases -----------------------------------------------------------------------------


@examples(120)
@given(random_db())
def test_the_graph_is_its_twin_and_loses_nothing_in_silence(raw: Raw) -> None:
    """P20: what was read is what is used plus what is reported, for rows and for links."""
    database, twin = Database.build(*raw), build_twin(*raw)
    graph = TemporalGraph.build(database)
    assert_same(graph, twin)
    for name in twin.names:
        assert slots_of(graph, name) == [twin.parents[n] for n in twin.nodes_of(name)]
    kinds = [twin.names.index(node.table) for node in twin.nodes]
    assert graph.types(np.arange(graph.num_nodes)).tolist() == kinds
    assert_dtypes(graph)
    tables = database.tables.values()
    is_dropping = {t.name for t in tables if t.schema.time and t.schema.time.on_missing == "drop"}
    columns = [f"{name}.{column}" for name in is_dropping for column in ("at", "loaded")]
    dropped = sum(counted(database.findings, "T03", column) for column in columns)
    assert sum(table.num_rows_read for table in tables) == twin.num_read == graph.num_nodes + dropped
    dangling = counted(database.findings, "S07")
    assert dangling == twin.num_dangling
    assert counted(database.findings, "S10") == graph.num_loops == twin.num_loops
    assert graph.num_parallel == twin.num_parallel
    num_links = int((graph.parents >= 0).sum())
    assert twin.num_values == num_links + graph.num_loops + graph.num_parallel + dangling
    assert graph.num_entries == 2 * num_links


def assert_dtypes(graph: TemporalGraph) -> None:
    """Arrays are exact and cannot be written."""
    arrays = graph.arrays._asdict()
    assert {name: array.dtype for name, array in arrays.items()} == DTYPES
    assert not any(array.flags.writeable for array in arrays.values())
    assert graph.num_bytes == sum(array.nbytes for array in arrays.values())
    with pytest.raises(ValueError, match="read-only"):
        graph.offsets[0] = 1


@examples(120)
@given(random_db(), st.data())
def test_what_is_visible_is_what_a_look_at_every_edge_finds(raw: Raw, data: st.DataObject) -> None:
    database, twin = Database.build(*raw), build_twin(*raw)
    graph, times = TemporalGraph.build(database), interesting_times(database)
    chosen = data.draw(st.lists(st.sampled_from(times), min_size=1, max_size=12, unique=True))
    nodes = np.arange(graph.num_nodes)
    for time in chosen:
        for rule in RULES:
            seen = [len(twin.visible(n, time, rule)) for n in range(graph.num_nodes)]
            assert graph.degrees(nodes, np.full(len(nodes), time), rule).tolist() == seen
    for table, row, time in data.draw(seeds_of(database)):
        node = graph.nodes(table)[row]
        for rule in RULES:
            assert graph.neighbors(node, time, rule).tolist() == twin.visible(node, time, rule)


@examples(60)
@given(random_db(), st.data())
def test_each_node_may_have_its_own_time(raw: Raw, data: st.DataObject) -> None:
    """P4 for degrees: one row asked about at several times in one call."""
    database, twin = Database.build(*raw), build_twin(*raw)
    graph = TemporalGraph.build(database)
    seeds = data.draw(seeds_of(database, max_size=40))
    nodes = [graph.nodes(table)[row] for table, row, _ in seeds]
    found = graph.degrees(np.array(nodes, dtype=np.int64), np.array([t for *_, t in seeds], dtype=np.int64))
    assert found.tolist() == [len(twin.visible(n, t)) for n, (*_, t) in zip(nodes, seeds, strict=True)]


@examples(60)
@given(random_db(), st.integers(0, 2**32))
def test_the_fingerprint_is_of_the_cells_not_of_their_chunks(raw: Raw, rng_seed: int) -> None:
    database = Database.build(*raw)
    assert TemporalGraph.build(database).fingerprint == database.fingerprint
    assert Database.build(*rechunked(raw, random.Random(rng_seed))).fingerprint == database.fingerprint


def test_the_fingerprint_changes_with_any_cell_any_order_any_link() -> None:
    tables, schema = raw_shop()
    orders, said = tables["orders"], schema.tables["orders"]
    placed = orders["placed"].cast(pa.int64()).to_pylist()
    later = pa.array([*placed[:-1], placed[-1] + 1], pa.timestamp("ns"))
    others = [
        Database.build(tables | {"orders": orders.set_column(1, "placed", later)}, schema),
        Database.build(tables | {"orders": orders.take([1, 0, *range(2, 12)])}, schema),
        Database.build(tables | {"orders": orders.slice(1)}, schema),
        Database.build(tables, with_orders(schema, replace(said, foreign_keys=said.foreign_keys[1:]))),
        Database.build(tables, with_orders(schema, replace(said, primary_key=()))),
        Database.build(tables, with_orders(schema, replace(said, time=None))),
    ]
    assert len({shop().fingerprint, *(other.fingerprint for other in others)}) == 7


def with_orders(schema: Schema, said: TableSchema) -> Schema:
    return replace(schema, tables={**schema.tables, "orders": said})


def test_the_fingerprint_ignores_what_lies_under_an_empty_cell() -> None:
    def fingerprint(hidden: int) -> str:
        buffers = [pa.py_buffer(b"\x01"), pa.py_buffer(np.array([1, hidden]).tobytes())]
        cells = pa.Array.from_buffers(pa.int64(), 2, buffers)
        assert cells.to_pylist() == [1, None]
        return of({"a": {"id": [1, 2], "x": cells}}, a=TableSchema(("id",))).fingerprint

    assert fingerprint(hidden=0) == fingerprint(hidden=7)


# --- corners --------------------------------------------------------------------------------------


def of(tables: dict[str, dict[str, Sequence[object] | pa.Array]], **schemas: TableSchema) -> Database:
    return Database.build({name: pa.table(columns) for name, columns in tables.items()}, Schema(schemas))


def to(table: str, *columns: str) -> ForeignKey:
    return ForeignKey(columns, table)


def test_a_database_without_rows_is_a_graph_without_nodes() -> None:
    empty = pa.array([], pa.int64())
    database = of(
        {"a": {"id": empty, "b": empty}, "b": {"id": empty}},
        a=TableSchema(("id",), (to("b", "b"),)),
        b=TableSchema(("id",)),
    )
    graph = TemporalGraph.build(database)
    assert (graph.num_nodes, graph.num_entries, graph.times.tolist()) == (0, 0, [STATIC])
    assert graph.degrees(np.empty(0, np.int64), np.empty(0, np.int64)).tolist() == []


def test_static_rows_are_seen_at_any_time_by_either_rule() -> None:
    database = of(
        {"a": {"id": [1], "b": [7]}, "b": {"id": [7]}},
        a=TableSchema(("id",), (to("b", "b"),)),
        b=TableSchema(("id",)),
    )
    graph = TemporalGraph.build(database)
    for rule in RULES:
        assert graph.neighbors(0, STATIC + 1, rule).tolist() == [1]


def pair(on_missing: str) -> Database:
    """Two rows that point at each other, the second without a time."""
    return of(
        {"a": {"id": [1, 2], "at": [5, None], "other": [2, 1]}},
        a=TableSchema(("id",), (to("a", "other"),), TimeColumn("at", unit="s", on_missing=on_missing)),  # type: ignore[arg-type]
    )


def test_a_row_without_a_time_is_never_seen() -> None:
    graph = TemporalGraph.build(pair("never_visible"))
    assert graph.node_time.tolist() == [5 * 10**9, NEVER]
    assert graph.neighbors(0, NEVER - 1).tolist() == []
    assert graph.stream_of("a").tolist() == [0, 1]


def test_never_is_never_even_at_the_end_of_time() -> None:
    """The largest integer is what one writes for "everything that is known"."""
    database = pair("never_visible")
    assert TemporalGraph.build(database).neighbors(0, NEVER).tolist() == []
    assert database.upto(NEVER).num_rows == 1


def test_a_dropped_row_leaves_a_key_that_dangles() -> None:
    database = pair("drop")
    assert TemporalGraph.build(database).num_entries == 0
    assert counted(database.findings, "T03", "a.at") == 1
    assert counted(database.findings, "S07", "a.other") == 1


@pytest.mark.parametrize("kind", [pa.string(), pa.int64(), pa.null()], ids=str)
def test_keys_into_an_empty_table_are_reported_whatever_its_type(kind: pa.DataType) -> None:
    """P20: an empty table often arrives with a type that was only guessed."""
    database = of(
        {"a": {"id": [1, 2, 3], "b": ["x", "y", None]}, "b": {"id": pa.array([], kind)}},
        a=TableSchema(("id",), (to("b", "b"),)),
        b=TableSchema(("id",)),
    )
    assert database.relations[0].rows.tolist() == [-1, -1, -1]
    assert counted(database.findings, "S07", "a.b") == 2


def test_a_missing_available_at_is_reported_by_its_own_name() -> None:
    said = TableSchema(("id",), (), TimeColumn("at", unit="s", on_missing="drop"), "loaded", settled=FACTS)
    database = of({"a": {"id": [1, 2], "at": [5, 6], "loaded": [None, 6]}}, a=said)
    (finding,) = [found for found in database.findings if found.code == "T03"]
    assert str(finding) == "warning[T03] a.loaded is empty in 1 rows; dropped"


def test_too_many_rows_are_refused() -> None:
    """S17"""
    data = pa.table({"x": pa.nulls(2**31)})
    table = Table("a", data, TableSchema(), np.empty(0, np.int64), num_rows_read=2**31)
    database = Database({"a": table}, (), Schema({"a": TableSchema()}))
    with pytest.raises(ResourceError) as refused:
        TemporalGraph.build(database)
    assert str(refused.value) == "error[S17] 2,147,483,648 rows exceed the 2,147,483,647 of this version"
