"""The schema file: what it says, what it leaves open, and that what we write is what we read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from quartet.database import FACTS, Database, ForeignKey, TableSchema, TimeColumn
from quartet.database.schema import CONFIRMED, DECLARED, Schema
from quartet.errors import UsageError
from tests import market


def read(text: str, folder: Path) -> Schema:
    file = folder / "schema.yaml"
    file.write_text(text, encoding="utf-8")
    return Schema.read(file)


ALIAS_BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{depth}: &a{depth} [{', '.join([f'*a{depth - 1}'] * 10)}]\n" for depth in range(1, 10)
)


# --- what the file says ---------------------------------------------------------------------------


def test_every_word_is_read(tmp_path: Path) -> None:
    schema = read(
        """
        name: shop
        description: what was sold
        manifest_version: 1
        val_timestamp: 2024-01-01
        test_timestamp: '2024-03-01'
        on_dangling: error
        tables:
          orders:
            pkey: [shop, number]
            time_col: ts
            available_at: loaded
            time_unit: ms
            time_format: '%d/%m/%Y'
            timezone: Europe/Paris
            on_missing_time: drop
            fkeys:
              customer: customers
              shop_code: shops.code
              country, city: cities
              "a, b": places.x, y
              '"net, total"': '"v1.sums"."x, y", "z"'
              owner: [people, firms.name]
            kinds: {zone: category, 3: unused}
          log:
        """,
        tmp_path,
    )
    assert schema == Schema(
        name="shop",
        description="what was sold",
        val_timestamp="2024-01-01",
        test_timestamp="2024-03-01",
        on_dangling="error",
        tables={
            "orders": TableSchema(
                primary_key=("shop", "number"),
                foreign_keys=(
                    ForeignKey(("customer",), "customers", (), CONFIRMED),
                    ForeignKey(("shop_code",), "shops", ("code",), CONFIRMED),
                    ForeignKey(("country", "city"), "cities", (), CONFIRMED),
                    ForeignKey(("a", "b"), "places", ("x", "y"), CONFIRMED),
                    ForeignKey(("net, total",), "v1.sums", ("x, y", "z"), CONFIRMED),
                    ForeignKey(("owner",), "people", (), CONFIRMED),
                    ForeignKey(("owner",), "firms", ("name",), CONFIRMED),
                ),
                time=TimeColumn("ts", "ms", "%d/%m/%Y", "Europe/Paris", "drop", CONFIRMED),
                available_at="loaded",
                key_origin=CONFIRMED,
                settled=FACTS,
                kinds={"zone": "category", "3": "unused"},
            ),
            "log": TableSchema(key_origin=CONFIRMED),
        },
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "tables: {orders: {pkeys: id}}",
            'error[C01] {file}, table orders: unknown field "pkeys" (did you mean "pkey"?)',
        ),
        (
            "tables: {orders: {time_from: []}}",
            "error[C01] {file}, table orders: time_from is []. Fix: name a link, or leave it out",
        ),
        ("tabels: {}", 'error[C01] {file}: unknown field "tabels" (did you mean "tables"?)'),
        (
            "on_dangling: ignore",
            'error[C01] {file}: on_dangling is \'ignore\'. Fix: use "drop" or "error"',
        ),
        (
            "tables: {orders: {time_col: ts, on_missing_time: skip}}",
            "error[C01] {file}, table orders: on_missing_time is 'skip'. "
            "Fix: use error, drop, never_visible or always_known",
        ),
        (
            "tables: {orders: {timezone: Europe/Paris}}",
            "error[C01] {file}, table orders: timezone is given without a time_col. Fix: name the time_col too",
        ),
        (
            "tables: {orders: {time_col: null, time_unit: s}}",
            "error[C01] {file}, table orders: time_unit is given without a time_col. Fix: name the time_col too",
        ),
        (
            "tables: {orders: {kinds: {zone: categroy}}}",
            'error[C01] {file}, table orders: kinds: zone is "categroy" (did you mean "category"?). '
            "Fix: use number, category, multicategory, time, text or unused",
        ),
        (
            "tables: {orders: {kinds: category}}",
            'error[C04] {file}, table orders: kinds is a str. Fix: write a mapping, one "name: value" a line',
        ),
        ("[orders]", 'error[C04] "{file}" holds no mapping. Fix: start it with "tables:"'),
        ("", 'error[C04] "{file}" holds no mapping. Fix: start it with "tables:"'),
        (
            "tables: [orders]",
            'error[C04] {file}: tables is a list. Fix: write a mapping, one "name: value" a line',
        ),
        (
            "tables: {orders: id}",
            'error[C04] {file}, table orders is a str. Fix: write a mapping, one "name: value" a line',
        ),
        (
            "tables: {orders: {fkeys: [customer]}}",
            'error[C04] {file}, table orders: fkeys is a list. Fix: write a mapping, one "name: value" a line',
        ),
        (
            "tables: !!python/object/apply:os.system ['touch pwned']",
            'error[C04] "{file}" is not plain YAML: ',
        ),
        ("tables: {", 'error[C04] "{file}" is not plain YAML: '),
        (
            "tables: {}\ntables: {}",
            'error[C04] "{file}" is not plain YAML: the key "tables" is given twice '
            'in "<unicode string>", line 2, column 1',
        ),
        ("tables: &a {b: *a}", 'error[C04] "{file}" is not plain YAML: an alias holds itself'),
        (ALIAS_BOMB, 'error[C04] "{file}" is not plain YAML: there are more than 100,000 values'),
        ("name: 2020-13-45", 'error[C04] "{file}" is not plain YAML: month must be in 1..12'),
        ("name: !!bool x", 'error[C04] "{file}" is not plain YAML: '),
        ("[" * 3000, 'error[C04] "{file}" is not plain YAML: '),
    ],
)
def test_a_file_that_cannot_be_meant(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read(text, tmp_path)
    assert str(caught.value).startswith(message.replace("{file}", str(tmp_path / "schema.yaml")))
    assert caught.value.exit_code == 2
    assert not (tmp_path / "pwned").exists()
    assert not Path("pwned").exists()


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    def refusal(path: Path) -> str:
        with pytest.raises(UsageError) as caught:
            Schema.read(path)
        return str(caught.value)

    absent = tmp_path / "no.yaml"
    assert refusal(absent) == f'error[C09] there is no file "{absent}". Fix: check the path'
    assert refusal(tmp_path).startswith(f'error[C09] "{tmp_path}" cannot be read (')
    (tmp_path / "latin.yaml").write_bytes("name: Köln".encode("latin-1"))
    assert refusal(tmp_path / "latin.yaml").startswith('error[C04] "')


def test_unknown_words_of_a_manifest_that_came_with_the_data_are_left_to_others() -> None:
    content = {"licence": "CC0", "tables": {"t": {"pkey": "id", "rows": 3, "timezone": "Mars"}}}
    schema = Schema.from_dict(content, "there", DECLARED)
    assert schema.tables["t"] == TableSchema(("id",), settled=frozenset({"pkey"}))


# --- absent is open, null is settled --------------------------------------------------------------

OPEN = {"customers": pa.table({"id": [1, 2]}), "orders": pa.table({"id": [1], "customer_id": [2]})}
DATED = {**OPEN, "orders": OPEN["orders"].append_column("created_at", [[market.at(1, 1)]])}


@pytest.mark.parametrize(
    ("said", "key", "links", "time"),
    [
        ("{}", ("id",), ["customer_id"], "created_at"),
        ("{pkey: null}", (), ["customer_id"], "created_at"),
        ("{fkeys: {}}", ("id",), [], "created_at"),
        ("{fkeys: null}", ("id",), [], "created_at"),
        ("{time_col: null}", ("id",), ["customer_id"], None),
        ("{pkey: customer_id, time_col: null, fkeys: {id: customers}}", ("customer_id",), ["id"], None),
    ],
)
def test_absent_is_open_and_null_is_settled(
    said: str, key: tuple[str, ...], links: list[str], time: str | None, tmp_path: Path
) -> None:
    database = Database.load(DATED, read(f"tables: {{orders: {said}}}", tmp_path))
    orders = database["orders"]
    assert orders.primary_key == key
    assert [fk.label for fk in orders.schema.foreign_keys] == links
    assert (orders.schema.time.column if orders.schema.time else None) == time


def declared(**words: Any) -> Schema:
    return Schema({"t": TableSchema(**words)})


@pytest.mark.parametrize(
    ("known", "said", "expected"),
    [
        (declared(primary_key=("a",)), "{}", declared(primary_key=("a",))),
        (declared(available_at="late"), "{available_at: null}", declared()),
        (declared(available_at="late"), "{}", declared(available_at="late")),
        (declared(time=TimeColumn("a")), "{time_col: null}", declared()),
        (
            declared(kinds={"a": "text", "b": "number"}),
            "{kinds: {b: category, c: unused}}",
            declared(kinds={"a": "text", "b": "category", "c": "unused"}),
        ),
    ],
)
def test_corrections_put_in_place_only_what_they_say(
    known: Schema, said: str, expected: Schema, tmp_path: Path
) -> None:
    corrected = known.corrected_by(read(f"tables: {{t: {said}}}", tmp_path)).tables["t"]
    assert replace(corrected, settled=frozenset(), key_origin=DECLARED) == expected.tables["t"]


def test_corrections_without_a_word_on_dangling_links_keep_the_declared_one() -> None:
    strict = Schema(on_dangling="error")
    assert strict.corrected_by(Schema()).on_dangling == "error"
    assert strict.corrected_by(Schema(on_dangling="drop")).on_dangling == "drop"


def test_corrections_made_in_python_need_no_list_of_what_is_settled() -> None:
    told = TableSchema(
        ("customer_id",), (ForeignKey(("id",), "customers"),), TimeColumn("created_at", origin=CONFIRMED)
    )
    orders = Database.load(DATED, Schema({"orders": told}))["orders"].schema
    assert (orders.primary_key, orders.time) == (("customer_id",), told.time)
    assert orders.foreign_keys[0].columns == ("id",)


def test_a_name_with_a_comma_or_a_dot_needs_no_quotes_where_nothing_else_can_be_meant(tmp_path: Path) -> None:
    tables = {
        "v1.people": pa.table({"last, first": [1, 2]}),
        "pets": pa.table({"owner, or not": [2], "owner": [1]}),
    }
    said = "tables: {v1.people: {pkey: 'last, first'}, pets: {fkeys: {'owner, or not': v1.people}}}"
    database = Database.load(tables, read(said, tmp_path))
    assert [(r.label, r.parent, r.rows.tolist()) for r in database.relations] == [
        ("pets.owner, or not", "v1.people", [1])
    ]


def test_parts_come_before_a_whole_name(tmp_path: Path) -> None:
    tables = {
        "places": pa.table({"a": [1, 1], "b": [1, 2]}),
        "places.a": pa.table({"id": [7]}),
        "pets": pa.table({"a": [1], "b": [2], "a, b": [7]}),
    }
    said = "tables: {places: {pkey: [a, b]}, places.a: {pkey: id}, pets: {fkeys: {'a, b': places}}}"
    assert Database.load(tables, read(said, tmp_path)).relations[0].rows.tolist() == [1]
    said = (
        """tables: {places: {pkey: [a, b]}, places.a: {pkey: id}, pets: {fkeys: {'"a, b"': '"places.a"'}}}"""
    )
    assert Database.load(tables, read(said, tmp_path)).relations[0].rows.tolist() == [0]
