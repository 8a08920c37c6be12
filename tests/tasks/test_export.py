"""The export to RelBench's format: loadable by relbench, the same rows and links, whole or absent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given

from quartet.database import Database, ForeignKey, TableSchema, TimeColumn
from quartet.database.schema import Schema
from quartet.errors import QuartetError, SchemaError, TimeError, UsageError
from quartet.tasks import export, write_relbench
from quartet.times import NEVER, parse_instant
from tests import market
from tests.strategies import Raw, examples, random_db

FILES = ["cities", "customers", "items", "orders", "products"]


@pytest.fixture
def market_database(tmp_path: Path) -> Database:
    (tmp_path / "market.yaml").write_text(market.SCHEMA)
    return Database.load(market.arrow_tables(), tmp_path / "market.yaml")


def exported(database: Database, folder: Path) -> dict[str, dict[str, list[Any]]]:
    """The tables in `db/` after an export."""
    write_relbench(database, folder)
    return {file.stem: pq.read_table(file).to_pydict() for file in sorted((folder / "db").iterdir())}


def keys(folder: Path, table: str) -> list[tuple[Any, ...]]:
    """The original keys of a table's rows."""
    columns = pq.read_table(folder / "keys" / f"{table}.parquet").to_pydict()
    return list(zip(*columns.values(), strict=True))


def build(tables: dict[str, Any], schemas: dict[str, TableSchema], **about: Any) -> Database:
    raw = {name: pa.table(columns) for name, columns in tables.items()}
    return Database.build(raw, Schema({name: schemas.get(name, TableSchema()) for name in raw}, **about))


# --- the market: text and composite keys, dangling links, times in no order -------------------------


def test_keys_are_row_numbers_and_timed_tables_are_sorted(market_database: Database, tmp_path: Path) -> None:
    tables = exported(market_database, tmp_path / "out")
    assert tables["cities"] == {"country_city": [0, 1, 2, 3], "people": market.TABLES["cities"]["people"]}
    assert keys(tmp_path / "out", "cities") == [
        ("DE", "Köln"),
        ("DE", "Bonn"),
        ("FR", "Bonn"),
        ("NA", "Windhoek"),
    ]
    orders = tables["orders"]
    assert list(orders) == ["id", "customer", "country_city", "placed", "amount", "note"]
    assert orders["id"] == list(range(8))
    assert orders["placed"] == sorted(market.TABLES["orders"]["placed"])
    assert keys(tmp_path / "out", "orders") == [(12,), (11,), (17,), (14,), (13,), (15,), (16,), (10,)]
    assert orders["customer"] == [1, 0, 0, 0, 0, 2, 0, 0]
    assert orders["country_city"] == [2, 1, 1, 3, 0, None, 0, 0]
    assert tables["items"]["order"] == [7, 7, 1, 0, 4, 3, 5, 6, 2, 2, None]  # 99 is nowhere
    assert tables["items"]["product"] == [0, 1, 0, 2, 0, 0, 1, 0, None, 1, 2]
    assert not (tmp_path / "out" / "keys" / "items.parquet").exists()


def test_the_manifest_is_relbenchs(market_database: Database, tmp_path: Path) -> None:
    write_relbench(market_database, tmp_path / "out")
    manifest = yaml.safe_load((tmp_path / "out" / "manifest.yaml").read_text())
    assert manifest == {
        "name": "market",
        "manifest_version": 1,
        "val_timestamp": "2024-02-01",
        "test_timestamp": "2024-02-15",
        "tables": {
            "cities": {"pkey": "country_city", "time_col": None, "fkeys": {}},
            "customers": {"pkey": "id", "time_col": None, "fkeys": {"referred_by": "customers"}},
            "items": {"pkey": None, "time_col": "added", "fkeys": {"order": "orders", "product": "products"}},
            "orders": {
                "pkey": "id",
                "time_col": "placed",
                "fkeys": {"customer": "customers", "country_city": "cities"},
            },
            "products": {"pkey": "id", "time_col": None, "fkeys": {}},
        },
    }


def by_keys(database: Database, key_of: dict[str, list[Any]]) -> dict[str, set[tuple[Any, Any]]]:
    """The links of each table pair as pairs of original keys."""
    found: dict[str, set[tuple[Any, Any]]] = {}
    for r in database.relations:
        pairs = {(key_of[r.table][row], key_of[r.parent][to]) for row, to in enumerate(r.rows) if to >= 0}
        found.setdefault(f"{r.table} -> {r.parent}", set()).update(pairs)
    return found


def original_keys(database: Database) -> dict[str, list[Any]]:
    """A key for each row: the primary key, or the whole row where there is none."""
    return {
        name: list(zip(*(table.data[c].to_pylist() for c in table.primary_key or ["quantity", "added"]), strict=True))
        for name, table in database.tables.items()
    }  # fmt: skip


def test_reading_back_gives_the_same_graph_by_keys(market_database: Database, tmp_path: Path) -> None:
    write_relbench(market_database, tmp_path / "out")
    again = Database.load(tmp_path / "out")
    key_of = original_keys(again) | {name: keys(tmp_path / "out", name) for name in FILES if name != "items"}
    assert by_keys(again, key_of) == by_keys(market_database, original_keys(market_database))
    for name in FILES:
        known = dict(zip(original_keys(market_database)[name], market_database[name].known_at, strict=True))
        assert dict(zip(key_of[name], again[name].known_at, strict=True)) == known
    assert not [finding for finding in again.findings if finding.code == "S07"]


def test_relbench_loads_it(market_database: Database, tmp_path: Path) -> None:
    relbench = pytest.importorskip("relbench")
    write_relbench(market_database, tmp_path / "out")
    dataset = relbench.load_dataset(str(tmp_path / "out"))
    theirs = dataset.get_db(upto_test_timestamp=False).table_dict
    assert {name: len(table.df) for name, table in theirs.items()} == {
        name: table.num_rows for name, table in market_database.tables.items()
    }
    orders = theirs["orders"]
    assert orders.df["id"].tolist() == list(range(8))
    assert (orders.pkey_col, orders.time_col) == ("id", "placed")
    assert orders.fkey_col_to_pkey_table == {"customer": "customers", "country_city": "cities"}
    assert orders.df["placed"].is_monotonic_increasing
    customers = keys(tmp_path / "out", "customers")
    pairs = zip(keys(tmp_path / "out", "orders"), orders.df["customer"], strict=True)
    assert {order: customers[int(row)] for (order,), row in pairs} == {
        order: (customer,)
        for order, customer in zip(*(market.TABLES["orders"][c] for c in ("id", "customer")), strict=True)
    }
    assert len(dataset.get_db().table_dict["orders"].df) == 6  # those before the test time


# --- corners --------------------------------------------------------------------------------------


def test_a_key_that_is_also_a_link(tmp_path: Path) -> None:
    database = build(
        {"people": {"id": ["b", "a"]}, "staff": {"id": ["a", "b"], "ts": [market.at(1, 2), market.at(1, 1)]}},
        {
            "people": TableSchema(("id",)),
            "staff": TableSchema(("id",), (ForeignKey(("id",), "people"),), TimeColumn("ts")),
        },
        val_timestamp="2024-01-01",
        test_timestamp="2024-01-02",
    )
    tables = exported(database, tmp_path / "out")
    assert list(tables["staff"]) == ["id_row", "id", "ts"]
    assert tables["staff"]["id_row"] == [0, 1]
    assert tables["staff"]["id"] == [0, 1]  # "b" comes first now, and is row 0 of people
    assert keys(tmp_path / "out", "staff") == [("b",), ("a",)]
    assert Database.load(tmp_path / "out")["staff"].primary_key == ("id_row",)


def test_new_names_do_not_cover_columns(tmp_path: Path) -> None:
    database = build(
        {
            "place": {"a": [1, 1], "b": [1, 2], "A_B": ["x", "y"]},
            "pet": {"a": [1], "b": [2], "a_b": ["kept"], "c": [7], "c_2": ["kept"], "ts": [market.at(1, 1)]},
            "house": {"id": [7]},
        },
        {
            "place": TableSchema(("a", "b")),
            "pet": TableSchema(
                foreign_keys=(
                    ForeignKey(("a", "b"), "place"),
                    ForeignKey(("c",), "house"),
                    ForeignKey(("c",), "house", ("id",)),
                ),
                time=TimeColumn("ts"),
            ),
            "house": TableSchema(("id",)),
        },
        val_timestamp="2024-01-01",
        test_timestamp="2024-01-02",
    )
    tables = exported(database, tmp_path / "out")
    assert tables["place"] == {"a_b_2": [0, 1], "A_B": ["x", "y"]}
    assert tables["pet"] == {
        "a_b_2": [1],
        "c": [0],
        "c_3": [0],
        "a_b": ["kept"],
        "c_2": ["kept"],
        "ts": [market.at(1, 1)],
    }
    assert len(Database.load(tmp_path / "out").relations) == 3


def test_a_table_without_a_key_gets_one_where_a_link_leads_to_it(tmp_path: Path) -> None:
    database = build(
        {
            "shops": {"code": ["x", "y"]},
            "sales": {"shop": ["y", "x"], "ts": [market.at(1, 2), market.at(1, 1)]},
        },
        {
            "sales": TableSchema(
                foreign_keys=(ForeignKey(("shop",), "shops", ("code",)),), time=TimeColumn("ts")
            )
        },
        val_timestamp="2024-01-01",
        test_timestamp="2024-01-02",
    )
    tables = exported(database, tmp_path / "out")
    assert tables["shops"] == {"shops_row": [0, 1], "code": ["x", "y"]}
    assert tables["sales"]["shop"] == [0, 1]
    assert Database.load(tmp_path / "out").relations[0].rows.tolist() == [0, 1]


def test_rows_that_are_never_visible_stay_so(tmp_path: Path) -> None:
    database = build(
        {"log": {"id": [1, 2, 3], "ts": [None, market.at(1, 2), market.at(1, 1)]}},
        {"log": TableSchema(("id",), time=TimeColumn("ts", on_missing="never_visible"))},
        val_timestamp="2024-01-01",
        test_timestamp="2024-01-02",
    )
    tables = exported(database, tmp_path / "out")
    assert tables["log"]["ts"] == [market.at(1, 1), market.at(1, 2), None]
    assert keys(tmp_path / "out", "log") == [(3,), (2,), (1,)]
    again = Database.load(tmp_path / "out")["log"].known_at.tolist()
    assert again == [parse_instant("2024-01-01", ""), parse_instant("2024-01-02", ""), NEVER]


def test_the_time_of_a_row_is_when_it_became_known(tmp_path: Path) -> None:
    database = build(
        {"log": {"ts": [market.at(1, 1), market.at(1, 2)], "loaded": [market.at(1, 5), market.at(1, 2)]}},
        {"log": TableSchema(time=TimeColumn("ts"), available_at="loaded")},
        val_timestamp="2024-01-01",
        test_timestamp="2024-01-02",
    )
    assert exported(database, tmp_path / "out")["log"] == {
        "ts": [market.at(1, 2), market.at(1, 5)],
        "loaded": [market.at(1, 2), market.at(1, 5)],
    }


def test_cut_offs_are_proposed_from_the_span(tmp_path: Path) -> None:
    days = [market.at(1, day) for day in range(1, 32)]
    database = build({"log": {"ts": days}}, {"log": TableSchema(time=TimeColumn("ts"))})
    write_relbench(database, tmp_path / "out")
    manifest = yaml.safe_load((tmp_path / "out" / "manifest.yaml").read_text())
    assert (manifest["name"], manifest["val_timestamp"], manifest["test_timestamp"]) == (
        "database",
        "2024-01-25",
        "2024-01-28",
    )


# --- refusals, and all or nothing -----------------------------------------------------------------


def refusal(error: type[QuartetError], database: Database, folder: Path) -> str:
    with pytest.raises(error) as caught:
        write_relbench(database, folder)
    return str(caught.value)


def test_a_folder_with_something_in_it_is_not_overwritten(market_database: Database, tmp_path: Path) -> None:
    folder, file = tmp_path / "full", tmp_path / "full" / "thesis.txt"
    folder.mkdir()
    file.write_text("years of work")
    for target in (folder, file):
        assert refusal(UsageError, market_database, target) == (
            f'error[C09] "{target}" is not an empty folder. Fix: give a new folder'
        )
    assert [path.name for path in folder.iterdir()] == ["thesis.txt"]
    (tmp_path / "empty").mkdir()
    write_relbench(market_database, tmp_path / "empty")
    assert (tmp_path / "empty" / "manifest.yaml").is_file()


def test_no_time_at_all(tmp_path: Path) -> None:
    database = build({"t": {"id": [1]}}, {"t": TableSchema(("id",))})
    assert refusal(TimeError, database, tmp_path / "out") == (
        "error[T10] no table has a time column, and RelBench needs val and test times. "
        "Fix: name a time_col, or give val_timestamp and test_timestamp, in the schema file"
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["../../escaped", "a/b", "a\\b", "a\0b", "x" * 250])
def test_a_table_name_that_cannot_be_a_file(name: str, tmp_path: Path) -> None:
    about = {"val_timestamp": "2024-01-01", "test_timestamp": "2024-01-02"}
    database = build({name: {"id": [1]}}, {}, **about)
    assert refusal(SchemaError, database, tmp_path / "deep" / "out") == (
        f'error[S16] table "{name}" would be a file of that name, which cannot be. Fix: rename the table'
    )
    assert list(tmp_path.rglob("*")) == []


@pytest.mark.parametrize("name", ['say "hi"', "名前 🙂", "'; DROP TABLE t; --", "..", "x" * 247])
def test_any_other_table_name_comes_back(name: str, tmp_path: Path) -> None:
    about = {"val_timestamp": "2024-01-01", "test_timestamp": "2024-01-02"}
    database = build({name: {"the id": ["a"]}}, {name: TableSchema(("the id",))}, **about)
    write_relbench(database, tmp_path / "out")
    assert list(Database.load(tmp_path / "out").tables) == [name]


def test_a_write_that_fails_leaves_nothing(
    market_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = pq.write_table

    def fails_late(table: pa.Table, path: Path, **options: Any) -> None:
        if path.parts[-2:] == ("db", "products.parquet"):
            raise OSError("the disk is full")
        write(table, path, **options)

    monkeypatch.setattr(export.pq, "write_table", fails_late)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(OSError, match="the disk is full"):
        write_relbench(market_database, tmp_path / "out")
    assert sorted(tmp_path.iterdir()) == before


# --- any database ---------------------------------------------------------------------------------


@examples(40)
@given(random_db())
def test_any_database_comes_back_with_its_rows_times_and_links(
    tmp_path_factory: pytest.TempPathFactory, raw: Raw
) -> None:
    tables, schema = raw
    schema = replace(schema, val_timestamp="2023-11-01", test_timestamp="2023-12-01")
    database = Database.build(tables, schema)
    folder = tmp_path_factory.mktemp("any") / "out"
    write_relbench(database, folder)
    again = Database.load(folder)
    order = {name: np.argsort(table.known_at, kind="stable") for name, table in database.tables.items()}
    for name, table in database.tables.items():
        assert again[name].known_at.tolist() == table.known_at[order[name]].tolist()
    assert len(again.relations) == len(database.relations)
    for theirs, ours in zip(again.relations, database.relations, strict=True):
        place = np.append(np.argsort(order[ours.parent], kind="stable"), -1)
        assert theirs.rows.tolist() == place[ours.rows[order[ours.table]]].tolist()
