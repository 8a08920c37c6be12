"""Database: the same from every kind of source, with links as row numbers and a digest of its content."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml

from quartet.database import FACTS, Database, ForeignKey, Relation, TableSchema, TimeColumn
from quartet.database.schema import Schema
from quartet.errors import QuartetError, SchemaError, UsageError
from quartet.features import FeatureTable, SeedColumns
from quartet.findings import Level
from quartet.tasks import Seeds
from quartet.times import STATIC, parse_instant
from tests import market


def pandas_frames(_: Path) -> object:
    pandas = pytest.importorskip("pandas")
    return {name: pandas.DataFrame(columns) for name, columns in market.TABLES.items()}


FORMS: dict[str, Callable[[Path], object]] = {
    "arrow": lambda _: market.arrow_tables(),
    "pandas": pandas_frames,
    "parquet": lambda path: market.write_parquet(path / "market"),
    "csv": lambda path: market.write_csv(path / "market"),
    "relbench": lambda path: market.write_relbench_folder(path / "market"),
    "sqlite": lambda path: market.write_sqlite(path / "market.db"),
}


@pytest.fixture
def schema_file(tmp_path: Path) -> Path:
    path = tmp_path / "market.yaml"
    path.write_text(market.SCHEMA)
    return path


@pytest.fixture
def database(schema_file: Path) -> Database:
    return Database.load(market.arrow_tables(), schema_file)


def ns(text: str) -> int:
    return parse_instant(text, "test")


def links(database: Database) -> dict[str, tuple[str, list[int]]]:
    return {r.label: (r.parent, r.rows.tolist()) for r in database.relations}


def of(tables: dict[str, Any], **schemas: TableSchema) -> Database:
    """A database of Arrow tables whose schema leaves nothing open."""
    raw = {name: t if isinstance(t, pa.Table) else pa.table(t) for name, t in tables.items()}
    return Database.build(raw, Schema({name: schemas.get(name, TableSchema()) for name in raw}))


# --- all give the same database -------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_every_source_gives_the_same_database(form: str, tmp_path: Path, schema_file: Path) -> None:
    database = Database.load(FORMS[form](tmp_path), schema_file)
    assert (
        database.fingerprint
        == Database.load(market.arrow_tables(), yaml.safe_load(market.SCHEMA)).fingerprint
    )
    assert {name: table.data.to_pydict() for name, table in database.tables.items()} == market.TABLES
    assert {name: table.primary_key for name, table in database.tables.items()} == {
        "cities": ("country", "city"),
        "customers": ("id",),
        "items": (),
        "orders": ("id",),
        "products": ("id",),
    }
    assert links(database) == {
        "customers.referred_by": ("customers", [-1, 0, 0, 2]),
        "items.order": ("orders", [0, 0, 1, 2, 3, 4, 5, 6, 7, 7, -1]),
        "items.product": ("products", [0, 1, 0, 2, 0, 0, 1, 0, -1, 1, 2]),
        "orders.customer": ("customers", [0, 0, 1, 0, 0, 2, 0, 0]),
        "orders.country, city": ("cities", [0, 1, 2, 0, 3, -1, 0, 1]),
    }
    assert database["cities"].known_at.tolist() == [STATIC] * 4
    assert database["orders"].known_at[:3].tolist() == [
        ns("2024-03-05"),
        ns("2024-01-02 08:00"),
        ns("2024-01-01"),
    ]
    assert database["items"].known_at.tolist() == [ns("2024-01-01") + 3600 * 10**9 * h for h in range(1, 12)]


def test_what_was_found_on_the_way_is_counted(database: Database) -> None:
    assert [(f.level.value, f.code, f.where, f.count) for f in database.findings] == [
        ("note", "S05", "items", 0),
        ("warning", "S07", "items.order", 1),
        ("warning", "D01", "items.order", 9),
        ("warning", "S07", "items.product", 1),
    ]


def test_facts_of_the_whole(database: Database) -> None:
    assert repr(database) == (
        '<Database "market": 5 tables (cities, customers, items, orders, products), 30 rows, 5 links, '
        "2024-01-01 to 2024-03-05>"
    )
    assert list(database) == database._ipython_key_completions_() == sorted(market.TABLES)
    assert "orders" in database
    assert 0 not in database
    assert database.num_rows == 30
    assert database.offsets == {"cities": 0, "customers": 4, "items": 8, "orders": 19, "products": 27}
    assert database.span == (ns("2024-01-01"), ns("2024-03-05"))
    assert [r.num_links for r in database.relations] == [3, 10, 10, 8, 7]


def test_unknown_table_suggests_the_closest(database: Database) -> None:
    with pytest.raises(UsageError) as caught:
        database["order"]
    assert str(caught.value) == 'error[S09] there is no table "order" (did you mean "orders"?)'


# --- parts of a database --------------------------------------------------------------------------


def test_upto_keeps_what_was_known_and_finds_links_anew(database: Database) -> None:
    past = database.upto(ns("2024-01-02 09:00"))
    assert past["orders"].data["id"].to_pylist() == [11, 12, 17]
    assert past["customers"].num_rows == 4
    assert links(past)["items.order"] == ("orders", [-1, -1, 0, 1, -1, -1, -1, -1, 2, 2, -1])


@pytest.mark.parametrize(("rule", "ids"), [("<=", [11, 12, 17]), ("<", [11, 12])])
def test_upto_follows_the_time_rule(database: Database, rule: Any, ids: list[int]) -> None:
    assert database.upto(ns("2024-01-02 09:00"), rule)["orders"].data["id"].to_pylist() == ids


def test_without_takes_the_column_and_its_link(database: Database) -> None:
    hidden = database.without([("orders", "customer"), ("orders", "note")])
    assert hidden["orders"].data.column_names == ["id", "country", "city", "placed", "amount"]
    assert [r.label for r in hidden.relations if r.table == "orders"] == ["orders.country, city"]
    assert database["orders"].data.num_columns == 7
    assert database.without([]) is database


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (("orders", "amuont"), 'error[L01] table "orders" has no column "amuont" (did you mean "amount"?)'),
        (("orders", "id"), "error[L02] orders.id is a key or the time of its table and cannot be hidden"),
        (
            ("orders", "placed"),
            "error[L02] orders.placed is a key or the time of its table and cannot be hidden",
        ),
    ],
)
def test_without_refuses(database: Database, column: tuple[str, str], message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        database.without([column])
    assert str(caught.value) == message


# --- the fingerprint ------------------------------------------------------------------------------


def fingerprint(data: pa.Table, **facts: Any) -> str:
    return of({"t": data}, t=TableSchema(**facts)).fingerprint


CELLS = {
    "id": [1, 2, 3],
    "x": [0.5, None, 2.5],
    "text": ["a", None, "ü"],
    "flag": [True, None, False],
    "list": [[1], None, []],
    "ts": [market.at(1, 1), market.at(1, 2), None],
}


def test_fingerprint_is_of_the_content_and_not_of_how_it_lies_in_memory() -> None:
    table = pa.table(CELLS)
    chunks = pa.concat_tables([table.slice(0, 1), table.slice(1, 2)])
    longer = pa.concat_tables([table, table]).combine_chunks().slice(3, 3)
    remarked = table.replace_schema_metadata({"written by": "another program"})
    # the bytes below an empty cell are not content
    x = pa.Array.from_buffers(
        pa.float64(), 3, [pa.py_buffer(b"\x05"), pa.py_buffer(np.array([0.5, 7.7, 2.5]).tobytes())]
    )
    other_bytes = table.set_column(1, "x", x)
    assert other_bytes.equals(table)
    prints = {fingerprint(t) for t in (table, chunks, longer, remarked, other_bytes, pa.table(CELLS))}
    assert len(prints) == 1


@pytest.mark.parametrize("column", CELLS)
def test_fingerprint_changes_with_any_cell(column: str) -> None:
    table = pa.table(CELLS)
    seen = {fingerprint(table)}
    for row in range(3):
        cells: list[Any] = list(CELLS[column])
        cells[row] = None if cells[row] is not None else next(c for c in CELLS[column] if c is not None)
        seen.add(fingerprint(pa.table({**CELLS, column: pa.array(cells, table.schema.field(column).type)})))
    assert len(seen) == 4


def test_fingerprint_changes_with_names_order_and_facts() -> None:
    table = pa.table(CELLS).slice(0, 2)
    variants = [
        of({"t": table}),
        of({"u": table}),
        of({"t": table.rename_columns(["key", *list(CELLS)[1:]])}),
        of({"t": table.take([1, 0])}),
        of({"t": table.select(list(reversed(table.column_names)))}),
        of({"t": table.set_column(0, "id", pa.array(["1", "2"]))}),
        of({"t": table, "u": table}),
        of({"u": table, "t": table}),
        of({"t": table}, t=TableSchema(primary_key=("id",))),
        of({"t": table}, t=TableSchema(time=TimeColumn("ts"))),
        of({"t": table}, t=TableSchema(time=TimeColumn("ts"), available_at="ts")),
        of({"t": table}, t=TableSchema(("id",), (ForeignKey(("id",), "t"),))),
        of({"t": table}, t=TableSchema(("id",), (ForeignKey(("id",), "t", ("id",)),))),
    ]
    assert len({database.fingerprint for database in variants}) == len(variants)


def test_fingerprint_does_not_change_when_a_guess_is_confirmed() -> None:
    guessed = Database.load(market.arrow_tables())
    time = guessed["items"].schema.time
    assert time is not None
    assert time.origin.is_inferred
    told = Schema({"items": TableSchema(time=TimeColumn("added"))})
    assert Database.load(market.arrow_tables(), told).fingerprint == guessed.fingerprint


def test_fingerprint_tells_empty_columns_and_empty_tables() -> None:
    variants = [
        {"a": pa.array([], pa.int64())},
        {"a": pa.array([], pa.string())},
        {"a": pa.array([None], pa.int64())},
        {"a": pa.array([0], pa.int64())},
        {"a": pa.array([None, None], pa.int64())},
    ]
    assert len({fingerprint(pa.table(columns)) for columns in variants}) == len(variants)


# --- links ----------------------------------------------------------------------------------------


def relation(child: Any, parent: Any, references: tuple[str, ...] = ()) -> Relation:
    """The link `child.p -> parent` over single columns, the parent's key being `id`."""
    database = of(
        {"child": {"p": child}, "parent": {"id": parent}},
        child=TableSchema(foreign_keys=(ForeignKey(("p",), "parent", references),)),
        parent=TableSchema(("id",)),
    )
    return database.relations[0]


@pytest.mark.parametrize(
    ("child", "parent", "rows"),
    [
        (pa.array([2.0, None, float("nan"), 1.0]), pa.array([1, 2]), [1, -1, -1, 0]),
        (pa.array([3], pa.int8()), pa.array([3], pa.uint32()), [0]),
        (pa.array([2**63], pa.uint64()), pa.array([2**63 + 1, 2**63], pa.uint64()), [1]),
        (pa.array(["b", "a"]).dictionary_encode(), pa.array(["a", "b"], pa.large_string()), [1, 0]),
        (
            pa.array([market.at(1, 2)], pa.timestamp("s")),
            pa.array([market.at(1, 2)], pa.timestamp("ns")),
            [0],
        ),
        (pa.array([None, None]), pa.array(["a"]), [-1, -1]),
        (pa.array(["a"]), pa.array([], pa.int64()), [-1]),
        (pa.array([2**53 + 1, 2**53]), pa.array([2**53, 2**53 + 1]), [1, 0]),
    ],
    ids=[
        "decimals",
        "widths",
        "unsigned",
        "encodings",
        "time units",
        "all empty",
        "empty parent",
        "long integers",
    ],
)
def test_links_compare_values_and_not_types(child: pa.Array, parent: pa.Array, rows: list[int]) -> None:
    assert relation(child, parent).rows.tolist() == rows


@pytest.mark.parametrize("is_text", [False, True])
@pytest.mark.parametrize("zone", ["America/New_York", None])
def test_a_time_in_a_key_links_as_it_is_written(zone: str | None, is_text: bool) -> None:
    """Flights name the weather of an hour by the clock of the place; only the weather's time is read as UTC."""
    hours = [datetime(2024, 1, 1) + timedelta(hours=hour) for hour in range(100)]
    written = [hour.isoformat(" ") for hour in hours] if is_text else hours
    tables = {
        "weather": {"pkey": ["station", "hour"], "time_col": "hour", "timezone": zone},
        "flights": {"pkey": "id", "time_col": None, "fkeys": {"station, hour": "weather"}},
    }
    weather = pa.table({"station": ["A"] * 100, "hour": written})
    flights = pa.table({"id": range(100), "station": ["A"] * 100, "hour": written[::-1]})
    database = Database.load({"weather": weather, "flights": flights}, {"tables": tables})
    assert links(database) == {"flights.station, hour": ("weather", list(range(100))[::-1])}
    assert database["weather"].known_at[0] == ns("2024-01-01 05:00" if zone else "2024-01-01")
    past = database.upto(int(database["weather"].known_at[40]))
    assert links(past)["flights.station, hour"][1] == [*[-1] * 59, *range(41)[::-1]]


def test_two_unique_columns_of_one_table_are_two_links() -> None:
    """A visit names its shop by number or by code: what is counted by one is not counted by the other."""
    tables = {
        "shops": pa.table({"id": [0, 1], "number": [7, 8], "code": [8, 9]}),
        "visits": pa.table({"shop": [7, 8, 8, 9]}),
    }
    told = {"shops": {"pkey": "id"}, "visits": {"fkeys": {"shop": ["shops.number", "shops.code"]}}}
    database = Database.load(tables, {"tables": told})
    assert [relation.rows.tolist() for relation in database.relations] == [[0, 1, 1, -1], [-1, 0, 0, 1]]
    features = FeatureTable.fit(database, STATIC + 1)
    seeds = Seeds(np.arange(2), np.full(2, ns("2024-01-01")), None)
    columns = SeedColumns.of(database, "shops", features).of_seeds(seeds)
    counts = {name: cells.tolist() for name, cells in columns.items() if name.endswith(": all")}
    assert counts == {
        "visits.shop = number -> shops: all": [1, 2],
        "visits.shop = code -> shops: all": [2, 1],
        "any: all": [3, 3],
    }


def test_a_column_that_is_pointed_to_is_hidden_only_with_the_link() -> None:
    tables = {"shops": pa.table({"id": [0], "code": ["a"]}), "visits": pa.table({"shop": ["a"]})}
    told = {"shops": {"pkey": "id"}, "visits": {"fkeys": {"shop": "shops.code"}}}
    database = Database.load(tables, {"tables": told})
    with pytest.raises(SchemaError) as caught:
        database.without([("shops", "code")])
    assert str(caught.value) == (
        "error[L02] shops.code is the column to which visits.shop points and cannot be hidden. "
        "Fix: hide visits.shop too, and the link goes with it"
    )
    assert not database.without([("shops", "code"), ("visits", "shop")]).relations


def test_two_foreign_keys_over_one_column(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(
        "tables: {things: {fkeys: {owner: [people, firms]}}, people: {pkey: id}, firms: {pkey: id}}"
    )
    tables = {"things": {"owner": [1, 2]}, "people": {"id": [1, 3]}, "firms": {"id": [2, 3]}}
    database = Database.load({name: pa.table(columns) for name, columns in tables.items()}, file)
    assert [(r.label, r.parent, r.rows.tolist()) for r in database.relations] == [
        ("things.owner", "people", [0, -1]),
        ("things.owner", "firms", [-1, 0]),
    ]


@pytest.mark.parametrize(
    ("links", "cycles"),
    [
        ([("a", "b")], []),
        ([("a", "a")], []),
        ([("a", "b"), ("b", "a")], ["cycle a -> b -> a"]),
        ([("a", "b"), ("b", "c"), ("c", "a")], ["cycle a -> b -> c -> a"]),
        ([("a", "b"), ("b", "a"), ("b", "c"), ("c", "b")], ["cycle a -> b -> a", "cycle c -> b -> c"]),
    ],
)
def test_cycles_are_named_once(links: list[tuple[str, str]], cycles: list[str]) -> None:
    columns = {"id": [1], "to_a": [None], "to_b": [None], "to_c": [None]}
    tables = {name: pa.table(columns) for name in "abc"}
    schemas = {
        name: TableSchema(
            ("id",), tuple(ForeignKey((f"to_{parent}",), parent) for child, parent in links if child == name)
        )
        for name in "abc"
    }
    database = of(tables, **schemas)
    assert [f.message for f in database.findings if f.code == "S11"] == cycles
    assert all(f.level is Level.NOTE for f in database.findings if f.code == "S11")


def test_build_wants_every_table_settled_or_told() -> None:
    assert of({"t": {"id": [1]}}, t=TableSchema(("id",), settled=FACTS))["t"].primary_key == ("id",)
    with pytest.raises(QuartetError) as caught:
        Database.build({}, Schema(), location="nowhere")
    assert str(caught.value) == (
        'error[S01] no tables found in "nowhere". Fix: give a folder of .parquet/.csv or a database URL'
    )
