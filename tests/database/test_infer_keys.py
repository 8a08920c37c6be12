"""Names taken apart, and keys that are inferred from them and from values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from quartet.database import singular, split
from quartet.database.inference.names import match, noun_of, take_apart
from quartet.database.schema import Schema
from tests.database.inferring import (
    AIRPORTS,
    facts,
    floats,
    ids,
    infer,
    infer_from,
    listed,
    some,
    stamps,
    texts,
)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("order_item_id", ("order", "item", "id")),
        ("OwnerUserId", ("owner", "user", "id")),
        ("HTTPServerID", ("http", "server", "id")),
        ("team1-score", ("team", "1", "score")),
        ('Straße "Nr" 7', ("strasse", "nr", "7")),
        ("顧客_id", ("顧客", "id")),
        ("", ()),
    ],
)
def test_names_are_split_into_words(name: str, words: tuple[str, ...]) -> None:
    assert split(name) == words


SINGULARS = (
    "categories category, addresses address, status status, statuses status, movies movie, boxes box, batches batch, "
    "purchases purchase, people person, news news, address address, users user"
)


@pytest.mark.parametrize(("plural", "expected"), [pair.split() for pair in SINGULARS.split(", ")])
def test_singular(plural: str, expected: str) -> None:
    assert singular(plural) == expected


@pytest.mark.parametrize(
    ("column", "table", "expected"),
    [
        ("user_id", "users", "same"),
        ("userid", "users", "same"),
        ("USERID", "Users", "same"),
        ("id_user", "users", "same"),
        ("user_id_home", "users", "same"),
        ("order_item_id", "tbl_OrderItems", "same"),
        ("dept_no", "departments", "same"),
        ("OwnerUserId", "users", "tail"),
        ("billing_customer_id", "customers", "tail"),
        ("item_id", "order_items", "head"),
        ("qualifyId", "qualifying", "short"),
        ("PostTypeId", "posts", ""),
        ("user_count", "users", ""),
        ("id", "users", ""),
    ],
)
def test_how_a_column_names_a_table(column: str, table: str, expected: str) -> None:
    assert match(take_apart(column, [noun_of(table)]).thing, noun_of(table)) == expected


@pytest.mark.parametrize(
    ("table", "column", "values"),
    [
        ("users", "id", ids(12)),
        ("users", "user_id", ids(12)),
        ("users", "userId", [f"u{i}" for i in range(12)]),
        ("users", "UUID", pa.array([bytes([i] * 16) for i in range(12)], pa.binary(16))),
        ("users", "user_key", [float(i) for i in range(12)]),
        ("users", "user_code", texts("u", 12)),
        ("categories", "category_name", texts("c", 12)),
        ("addresses", "address_no", ids(12)),
        ("users", "user_id", pa.array(texts("u", 12)).dictionary_encode()),
        ("users", "user_id", pa.array([f"u{i}" for i in range(12)], pa.large_string())),
        ("dim_user", "user_sk", pa.array(ids(12), pa.uint16())),
        ('my "users"', 'my "user" id', ids(12)),
        ("顧客", "顧客_id", ids(12)),
    ],
)
def test_a_unique_first_column_named_like_a_key_is_the_key(table: str, column: str, values: Any) -> None:
    found = infer({table: pa.table({column: values, "note": ["x"] * 12})}, Schema())
    assert found.schema.tables[table].primary_key == (column,)


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("price", floats(12)),
        ("price", ids(12)),
        ("latitude", floats(12)),
        ("quantity", ids(12)),
        ("line_no", ids(12)),
        ("year", ids(12)),
        ("is_user", ids(12)),
        ("user_id", floats(12)),
        ("user_id", [1, 1, *range(2, 12)]),
        ("user_id", [None, *range(1, 12)]),
        ("user_id", [float("nan"), *map(float, range(1, 12))]),
        ("user_id", stamps(12)),
        ("created_at", stamps(12)),
        ("id", [True, False] * 6),
        ("Unnamed: 0", ids(12)),
        ("__index_level_0__", ids(12)),
        ("", ids(12)),
        ("title", ["word " * 20 + str(i) for i in range(12)]),
        ("something", ids(12)),
        ("company", texts("c", 12)),
        ("group_code", texts("g", 12)),
    ],
)
def test_what_is_never_a_key(column: str, values: Any) -> None:
    found = infer({"users": pa.table({column: values, "note": ["x"] * 12})}, Schema())
    assert found.schema.tables["users"].primary_key == ()


def test_a_row_number_of_pandas_does_not_take_the_first_place() -> None:
    found = infer({"users": pa.table({"Unnamed: 0": ids(9), "code": texts("c", 9)})}, Schema())
    assert found.schema.tables["users"].primary_key == ("code",)


def test_a_unique_link_to_another_table_is_a_link_and_only_possibly_the_key() -> None:
    found = infer_from(
        flights={"flight_id": ids(20), "dest": ["x"] * 20},
        reports={"flight_id": ids(20)[::-1], "delay": floats(20)},
        bags={"flight_id": some(60, 20)},
    )
    links = {"reports.flight_id": "flights", "bags.flight_id": "flights"}
    assert facts(found.schema) == ({"flights": "flight_id"}, links, {})
    assert listed(found, "pkey") == {"reports.flight_id": ""}


def test_a_code_for_the_last_word_of_a_table_is_only_possibly_its_key() -> None:
    found = infer_from(diagnoses_icd={"note": ["x"] * 12, "icd_code": texts("c", 12)})
    assert facts(found.schema)[0] == {}
    assert listed(found, "pkey") == {"diagnoses_icd.icd_code": ""}


def test_a_year_is_no_key_even_where_another_table_has_the_same_years() -> None:
    found = infer_from(
        seasons={"year": list(range(1950, 2000)), "note": ["x"] * 50},
        races={"id": ids(99), "year": some(99, 1999, 1950)},
    )
    assert facts(found.schema) == ({"races": "id"}, {}, {})
    assert found.possible == []


def test_a_place_in_a_list_is_no_key_even_of_a_table_of_lines() -> None:
    found = infer_from(order_lines={"line_no": ids(12), "note": ["x"] * 12})
    assert facts(found.schema) == ({}, {}, {})
    assert found.possible == []


@pytest.mark.parametrize(("rows", "keys"), [(12, {"sectors": "sector_mark"}), (5, {})])
def test_a_first_column_with_the_name_and_values_of_others_is_the_key_unless_rows_are_few(
    rows: int, keys: dict[str, str]
) -> None:
    found = infer_from(
        sectors={"sector_mark": ids(rows), "note": ["x"] * rows}, hits={"sector_mark": some(30, rows)}
    )
    assert facts(found.schema)[0] == keys


def test_a_namesake_with_other_values_makes_no_key() -> None:
    found = infer_from(
        planes={"tailnum": texts("N", 20), "note": ["x"] * 20}, flights={"tailnum": texts("M", 20) * 2}
    )
    assert facts(found.schema) == ({}, {}, {})
    assert listed(found, "pkey") == {"planes.tailnum": ""}


def test_a_row_number_in_every_table_is_not_the_key_that_others_hold() -> None:
    """The way of MIMIC: `ROW_ID` is unique everywhere and means nothing, `HADM_ID` joins the tables."""
    found = infer_from(
        ADMISSIONS={"ROW_ID": ids(20), "HADM_ID": ids(20), "ADMITTIME": stamps(20), "DISCHTIME": stamps(20)},
        EVENTS={"ROW_ID": ids(60), "HADM_ID": some(60, 20), "ITEMID": some(60, 12)},
        D_ITEMS={"ROW_ID": ids(12), "ITEMID": ids(12)},
    )
    assert facts(found.schema) == (
        {"ADMISSIONS": "HADM_ID", "EVENTS": "ROW_ID", "D_ITEMS": "ITEMID"},
        {"EVENTS.HADM_ID": "ADMISSIONS", "EVENTS.ITEMID": "D_ITEMS"},
        {"ADMISSIONS": "ADMITTIME"},
    )
    assert [p.columns for p in found.possible] == [("DISCHTIME",)]


def test_codes_that_no_other_table_holds_make_no_key() -> None:
    found = infer_from(airports=AIRPORTS, legs={"takeoff": ["XXX", "YYY", "ZZZ"]})
    assert facts(found.schema) == ({}, {}, {})


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ({"product_id": some(30, 12), "product_code": [f"P{i:03d}" for i in some(30, 12)]}, "id"),
        ({"product_code": [f"P{i:03d}" for i in some(30, 12)]}, "product_code"),
    ],
)
def test_of_two_good_keys_the_one_that_others_hold_is_chosen(line: dict[str, Any], key: str) -> None:
    products = {"id": ids(12), "product_code": [f"P{i:03d}" for i in ids(12)]}
    found = infer_from(products=products, lines={"id": ids(30), **line})
    assert facts(found.schema)[0] == {"products": key, "lines": "id"}


def test_uniqueness_is_judged_by_all_rows() -> None:
    values = np.arange(50_000)
    values[-1] = 0
    found = infer({"users": pa.table({"id": values})}, Schema())
    assert found.schema.tables["users"].primary_key == ()


def test_no_key_of_an_empty_table() -> None:
    found = infer({"users": pa.table({"id": pa.array([], pa.int64())})}, Schema())
    assert facts(found.schema) == ({}, {}, {})
