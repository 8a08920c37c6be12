"""The schema file that we write is the one that we read, for any name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quartet.database import FACTS, Database, ForeignKey, TableSchema, TimeColumn, schema_yaml
from quartet.database.schema import CONFIRMED, DECLARED, Schema, inferred
from quartet.errors import SchemaError
from tests import market


def written_and_read(database: Database, folder: Path) -> Database:
    """The database again, from the same data and the file that was written of it."""
    (folder / "again.yaml").write_text(schema_yaml(database), encoding="utf-8")
    raw = {name: table.data for name, table in database.tables.items()}
    return Database.load(raw, folder / "again.yaml")


def facts(database: Database) -> dict[str, Any]:
    """Everything that the schema says, but not where it comes from."""

    def link(fk: ForeignKey) -> tuple[Any, ...]:
        return fk.columns, fk.table, fk.references

    def time(column: TimeColumn | None) -> object:
        return column and replace(column, origin=DECLARED)

    return {
        name: (t.primary_key, sorted(map(link, t.foreign_keys)), time(t.time), t.available_at)
        for name, t in database.schema.tables.items()
    }


def test_the_market_comes_back(tmp_path: Path) -> None:
    (tmp_path / "market.yaml").write_text(market.SCHEMA)
    database = Database.load(market.arrow_tables(), tmp_path / "market.yaml")
    again = written_and_read(database, tmp_path)
    assert facts(again) == facts(database)
    assert (again.schema.name, again.schema.val_timestamp, again.schema.test_timestamp) == (
        "market",
        "2024-02-01",
        "2024-02-15",
    )
    assert again.fingerprint == database.fingerprint


def test_time_options_come_back(tmp_path: Path) -> None:
    tables = {
        "a": pa.table({"ts": ["31/01/2024 10:00", None], "late": ["01/02/2024 00:00", "02/02/2024 00:00"]}),
        "b": pa.table({"ts": [1_700_000_000_000]}),
    }
    schema = Schema(
        {
            "a": TableSchema(
                time=TimeColumn("ts", None, "%d/%m/%Y %H:%M", "Europe/Paris", "never_visible"),
                available_at="late",
            ),
            "b": TableSchema(time=TimeColumn("ts", "ms")),
        },
        on_dangling="error",
    )
    database = Database.load(tables, schema)
    text = schema_yaml(database)
    (tmp_path / "s.yaml").write_text(text)
    assert facts(Database.load(tables, tmp_path / "s.yaml")) == facts(database)
    assert text.endswith(
        "on_dangling: error\n"
        "tables:\n"
        "  a:\n"
        "    pkey: null\n"
        "    time_col: ts\n"
        "    time_format: '%d/%m/%Y %H:%M'\n"
        "    timezone: Europe/Paris\n"
        "    on_missing_time: never_visible\n"
        "    available_at: late\n"
        "    fkeys: {}\n"
        "  b:\n"
        "    pkey: null\n"
        "    time_col: ts\n"
        "    time_unit: ms\n"
        "    fkeys: {}\n"
    )


def test_kinds_come_back(tmp_path: Path) -> None:
    told = {"a: b": "category", "ts": "unused"}
    schema = Schema({"t": TableSchema(settled=FACTS, kinds=told)})
    database = Database.load({"t": pa.table({"a: b": [1, 2], "ts": [3, 4]})}, schema)
    assert schema_yaml(database).endswith(
        "    fkeys: {}\n    kinds:\n      'a: b': category\n      ts: unused\n"
    )
    assert written_and_read(database, tmp_path).schema.tables["t"].kinds == told


def test_kinds_of_a_column_that_is_not_there() -> None:
    schema = Schema({"t": TableSchema(kinds={"zon": "category"})})
    with pytest.raises(SchemaError) as caught:
        Database.load({"t": pa.table({"zone": [1, 2]})}, schema)
    assert str(caught.value) == (
        'error[S09] table "t" has no column "zon", which is listed under kinds (did you mean "zone"?). '
        "Fix: correct the name in the schema file"
    )


def test_guesses_are_marked_and_possibilities_listed(tmp_path: Path) -> None:
    tables = {
        "customers": pa.table({"id": list(range(10, 50))}),
        "orders": pa.table(
            {"id": [1, 2], "customer_id": [10, 49], "birthday": [market.at(1, 1), market.at(1, 2)]}
        ),
    }
    text = schema_yaml(Database.load(tables))
    assert '    pkey: id  # inferred, 95%: unique, named "id", first column\n' in text
    assert (
        "      customer_id: customers  # inferred, 95%: named after customers; "
        "100 % of 2 values are keys of customers\n" in text
    )
    assert (
        "    # possible time_col: birthday (45%: timestamp, but the name says something other than when the row "
        "was made)\n" in text
    )
    (tmp_path / "s.yaml").write_text(text)
    confirmed = Database.load(tables, tmp_path / "s.yaml")
    assert confirmed["orders"].schema.key_origin == CONFIRMED
    assert "inferred" not in schema_yaml(confirmed)


# fmt: off
NASTY = [
    "a,b", "a, b", " a ", "a.b", "a: b", "a #b", "'", '"', '"a"', "[a]", "{a}", "- a", "? a", "!a", "&a", "*a",
    "%a", "@a", "|", ">", "null", "~", "true", "no", "1", "1.5", "2024-01-01", "0x10", "=", "<<", "", "Ωμέγα",
    "名前", "🙂", "new\nline", "tab\t", "\x1b[31mred", "\x00", "\u2028", "\x85", "\ufeff", "x" * 255,
    '"; DROP TABLE orders; --', "\\", "\\n",
]
# fmt: on


def named(table: str, other: str, column: str, second: str) -> Database:
    """A database with every kind of fact about the given names."""
    schema = Schema(
        {
            table: TableSchema(
                (column, second),
                (
                    ForeignKey((column, second), table, (), inferred(0.7, f"like {column}\n{second}")),
                    ForeignKey((column,), other, (), inferred(0.7, column)),
                    ForeignKey((column,), other, (second,)),
                ),
                TimeColumn("ts", origin=inferred(0.8, f"named {column}")),
                available_at="ts",
                key_origin=inferred(0.9, column),
                settled=FACTS,
            ),
            other: TableSchema((column,), settled=FACTS),
        },
        name=column,
        description=f"{table}\n{second}",
    )
    columns = {column: ["x", "y"], second: ["x", "y"], "ts": [market.at(1, 1), market.at(1, 2)]}
    return Database.build({table: pa.table(columns), other: pa.table(columns)}, schema)


@pytest.mark.parametrize("name", NASTY, ids=ascii)
def test_any_name_comes_back(name: str, tmp_path: Path) -> None:
    database = named(f"t{name}", name, name, f"{name}2")
    again = written_and_read(database, tmp_path)
    assert facts(again) == facts(database)
    assert (again.schema.name, again.schema.description) == (name, f"t{name}\n{name}2")


names = st.text(st.characters(codec="utf-8"), max_size=12).filter(lambda name: name.lower() != "ts")
pairs = st.lists(names, min_size=2, max_size=2, unique_by=str.lower)


@settings(max_examples=40)
@given(pairs, pairs)
def test_any_pair_of_names_comes_back(
    tmp_path_factory: pytest.TempPathFactory, tables: list[str], columns: list[str]
) -> None:
    database = named(*tables, *columns)
    assert facts(written_and_read(database, tmp_path_factory.mktemp("pair"))) == facts(database)
