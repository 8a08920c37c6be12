"""What queries mean, by hand: windows, nothing, unknown values, paths, and when rows become known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import quartet
from quartet.database import Database, TimeColumn
from quartet.tasks import read_query
from quartet.tasks.labels import column_labels
from tests.tasks.query.compare import labels, population
from tests.tasks.query.small import TABLES, at, days, shop


def told(query: str, day: float, database: Database | None = None) -> dict[Any, Any]:
    database = database or shop()
    return labels(read_query(query, database).spec, database, at(day))


def asked(condition: str, day: float, database: Database | None = None) -> set[Any]:
    database = database or shop()
    query = f"PREDICT COUNT(orders.* VIA orders.customer, 0, 9) > 0 FOR EACH customers.id WHERE {condition}"
    return population(read_query(query, database).spec, database, at(day))


OF = "VIA orders.customer"


@pytest.mark.parametrize(
    ("target", "day", "expected"),
    [
        (f"COUNT(orders.* {OF}, 0, 10)", 1, {"C1": 1}),  # (1, 11]: neither the row at 1 nor that of C2 at 11
        (f"COUNT(orders.* {OF}, 0, 10)", 10, {"C1": 1, "C2": 1}),
        (f"COUNT(orders.* {OF}, 10, 20, days)", 2, {"C1": 1}),  # (12, 22]: the row at 12 is out
        (f"COUNT(orders.amount {OF}, 0, 30)", 10, {"C1": 1, "C2": 1}),  # NaN and NULL are nothing
        (f"SUM(orders.amount {OF}, 0, 5)", 10, {"C1": 0, "C2": 0}),
        (f"AVG(orders.amount {OF}, 0, 5)", 10, {"C1": None, "C2": None}),
        (f"SUM(orders.is_gift {OF}, 0, 2, weeks)", 10, {"C1": 2, "C2": 0}),
        (f"COUNT_DISTINCT(orders.status {OF}, 0, 2, months)", 0, {"C1": 2}),
        (f"FIRST(orders.status {OF}, 0, 30)", 10, {"C1": "new", "C2": "sent"}),
        (f"LAST(orders.is_gift {OF}, 0, 480, hours)", 10, {"C1": 1, "C2": 0}),
        (f"MAX(orders.amount {OF} WHERE orders.status = 'sent', 0, 30)", 10, {"C1": 6, "C2": 5}),
        (f"COUNT(orders.* {OF} WHERE orders.status != 'new', 0, 30)", 10, {"C1": 1, "C2": 1}),  # NULL is not true
        (f"COUNT(orders.* {OF} WHERE NOT orders.status = 'new', 0, 30)", 10, {"C1": 1, "C2": 1}),
        (f"MIN(orders.amount {OF}, 0, 30) > 5.5", 10, {"C1": 1, "C2": 0}),
        (f"MIN(orders.amount {OF}, 0, 5) > 5.5", 10, {"C1": None, "C2": None}),  # unknown: no label
        (f"MIN(orders.amount {OF}, 0, 5) > 5.5 OR COUNT(orders.* {OF}, 0, 5) > 0", 10, {"C1": 1, "C2": 1}),
        (f"COUNT(items.* {OF}, 0, 30)", 0, {"C1": 5}),
        (f"COUNT(items.* {OF} WHERE products.price > 10, 0, 30)", 0, {"C1": 2}),
        (f"LIST_DISTINCT(orders.is_gift {OF}, 0, 2, weeks) CLASSIFY", 10, {"C1": [True], "C2": [False]}),
    ],
)  # fmt: skip
def test_labels(target: str, day: float, expected: dict[str, Any]) -> None:
    assert told(f"PREDICT {target} FOR EACH customers.id", day) == expected


@pytest.mark.parametrize(
    ("condition", "day", "expected"),
    [
        ("customers.age > 18", 25, {"C1", "C3"}),
        ("customers.age IS NULL", 25, {"C2"}),
        ("NOT customers.age > 40", 25, {"C1"}),  # unknown stays unknown
        ("cities.name LIKE 'K%' OR customers.age NOT IN (30)", 25, {"C2", "C3"}),
        (
            "cities.name STARTS WITH 'Bo' AND cities.name ENDS WITH 'n' AND cities.name CONTAINS 'on'",
            25,
            {"C1"},
        ),
        ("customers.joined < '2024-01-05'", 25, {"C1"}),
        (f"COUNT(orders.* {OF}) > 0", 11, {"C1", "C2"}),
        (f"COUNT(orders.* {OF}) = 0", 10, {"C2"}),
        (f"COUNT(orders.* {OF}, -5, 0) > 0", 16, {"C1"}),  # (11, 16]
        (f"COUNT(orders.* {OF}, -INF, -10) > 0", 20, {"C1"}),  # by day 10
        (f"LAST(orders.status {OF}) = 'sent'", 25, {"C1", "C2"}),
        (f"SUM(orders.amount {OF}, -1, 0) = 0", 10, {"C1", "C2"}),
    ],
)
def test_populations(condition: str, day: float, expected: set[str]) -> None:
    assert asked(condition, day) == expected


def test_who_is_not_known_yet_is_not_asked_about() -> None:
    assert set(told(f"PREDICT COUNT(orders.* {OF}, 0, 9) FOR EACH customers.id", 9.999)) == {"C1"}
    assert set(told(f"PREDICT COUNT(orders.* {OF}, 0, 9) FOR EACH customers.id", 10)) == {"C1", "C2"}


def test_rows_that_were_always_known_are_asked_about_and_lie_in_no_bounded_window() -> None:
    tables = {name: TABLES[name] for name in ("customers", "orders")}
    tables["orders"] = tables["orders"].set_column(3, "placed", days(None, 5, 11, 12, 22, 22, 23, 40))
    tables["customers"] = tables["customers"].set_column(1, "joined", days(None, 10, 20))
    schema = {
        "tables": {
            "customers": {"pkey": "id", "time_col": "joined", "on_missing_time": "always_known"},
            "orders": {"pkey": "id", "time_col": "placed", "on_missing_time": "always_known",
                       "fkeys": {"customer": "customers"}},
        }
    }  # fmt: skip
    database = quartet.open(tables, schema)
    assert told("PREDICT COUNT(orders.*, 0, 9) FOR EACH customers.id", 0, database) == {"C1": 1}
    where = "PREDICT COUNT(orders.*, 0, 9) FOR EACH customers.id WHERE "
    assert told(where + "COUNT(orders.*, -INF, 0) > 0", 1, database) == {"C1": 1}
    assert told(where + "COUNT(orders.*) > 0", 1, database) == {"C1": 1}
    assert told(where + "COUNT(orders.*, -999, 0) > 0", 1, database) == {}
    column = read_query("PREDICT orders.is_gift FOR EACH orders.id", database).spec
    assert column_labels(column, database)["id"].to_pylist() == [
        1,
        3,
        4,
        5,
        6,
        7,
    ]  # order 0 has no time to ask at


def test_rows_that_become_available_later_count_later() -> None:
    late = shop(available_at="loaded")  # order 1 on day 9, order 5 on day 30
    count = f"PREDICT COUNT(orders.* {OF}, 0, 5) FOR EACH customers.id"
    assert told(count, 2) == {"C1": 1}
    assert told(count, 2, late) == {"C1": 0}
    assert told(count, 8, late) == {"C1": 2}
    assert asked(f"COUNT(orders.* {OF}, -5, 0) > 0", 9, late) == {"C1"}
    assert asked(f"COUNT(orders.* {OF}) > 1", 8, late) == set()


def test_rows_of_a_period_count_when_it_is_over() -> None:
    late = shop(end_of="day")
    count = f"PREDICT COUNT(items.* {OF}, 0, 1) FOR EACH customers.id"
    assert told(count, 0) == {"C1": 2}
    assert told(count, 0, late) == {"C1": 0}
    assert told(count, 1, late) == {"C1": 2}


def test_a_row_on_the_way_must_be_known_when_the_window_ends() -> None:
    late = shop(available_at="loaded")  # the item of order 5 on day 22, its order on day 30
    count = f"PREDICT COUNT(items.*, 0, 5, days) FOR EACH customers.id WHERE COUNT(items.* {OF}) > 0"
    query = count.replace("items.*, 0", f"items.* {OF}, 0")
    assert told(query, 20)["C1"] == 1
    assert told(query, 20, late)["C1"] == 0


def test_times_taken_from_a_link_are_columns_of_the_tables() -> None:
    tables = {name: TABLES[name] for name in ("customers", "orders", "products")}
    tables |= {"items": TABLES["items"].drop_columns(["on"])}
    schema = {
        "tables": {
            "customers": {"pkey": "id", "time_col": "joined"},
            "orders": {"pkey": "id", "time_col": "placed", "fkeys": {"customer": "customers"}},
            "items": {
                "pkey": None,
                "time_from": "order",
                "fkeys": {"order": "orders", "product": "products"},
            },
            "products": {"pkey": "id", "time_col": None},
        }
    }
    database = Database.load(tables, schema)
    assert told("PREDICT COUNT(items.*, 0, 5) FOR EACH customers.id", 0, database) == {"C1": 3}
    assert told("PREDICT COUNT(items.*, 0, 5) FOR EACH customers.id", 1, database) == {"C1": 1}


def test_every_row_on_a_long_way_must_be_known() -> None:
    query = (
        "PREDICT COUNT(items.* VIA (customers.city, orders.customer, items.order), 0, 5) FOR EACH cities.id"
    )
    late = shop(
        available_at="loaded"
    )  # order 5 on day 30: its item of day 22 and its customer are known before
    assert told(query, 20) == {1: 1, 2: 0}
    assert told(query, 20, late) == {1: 0, 2: 0}
    placed = days(1, 5, 11, 12, 22, None, 23, 40)
    tables = TABLES | {"orders": TABLES["orders"].set_column(3, "placed", placed)}
    schema = shop().schema
    orders = replace(schema.tables["orders"], time=TimeColumn("placed", on_missing="never_visible"))
    never = Database.build(tables, replace(schema, tables={**schema.tables, "orders": orders}))
    assert told(query, 20, never) == {1: 0, 2: 0}


def test_a_row_reached_over_several_counts_once_as_soon_as_one_of_them_is_known() -> None:
    tables = {name: TABLES[name] for name in ("customers", "orders", "items", "products")}
    again = pa.table({"order": [0, 1], "product": [1, 1], "on": days(50, None)})
    tables["items"] = pa.concat_tables([again, tables["items"], again])
    said = {
        "customers": {"pkey": "id", "time_col": "joined"},
        "orders": {"pkey": "id", "time_col": "placed", "fkeys": {"customer": "customers"}},
        "items": {"pkey": None, "time_col": "on", "fkeys": {"order": "orders", "product": "products"}},
        "products": {"pkey": "id", "time_col": None},
    }
    said["items"]["on_missing_time"] = "never_visible"
    database = Database.load(tables, {"tables": said})
    count = "PREDICT COUNT(orders.*, 0, {}) FOR EACH products.id WHERE COUNT(orders.*) < {}"
    assert told(count.format(9, 1), 0, database) == {1: 2, 2: 1}
    assert told(count.format(2, 3), 4, database) == {1: 1, 2: 0}


def test_items_are_ranked_that_exist() -> None:
    database = shop()
    query = f"PREDICT LIST_DISTINCT(items.product {OF}, 0, 30) RANK TOP 2 FOR EACH customers.id"
    spec = read_query(query, database).spec
    assert (spec.type, spec.item_table, spec.eval_k, spec.target_col) == (
        "recommendation",
        "products",
        2,
        "product",
    )
    assert labels(spec, database, at(0)) == {"C1": [1, 2]}
    tables = {name: TABLES[name] for name in ("customers", "orders", "items")}
    tables["products"] = TABLES["products"].append_column("made", days(0, 3))
    said = {
        "customers": {"pkey": "id", "time_col": "joined"},
        "orders": {"pkey": "id", "time_col": "placed", "fkeys": {"customer": "customers"}},
        "items": {"pkey": None, "time_col": "on", "fkeys": {"order": "orders", "product": "products"}},
        "products": {"pkey": "id", "time_col": "made"},
    }
    newer = Database.load(tables, {"tables": said})
    spec = read_query(query, newer).spec
    assert labels(spec, newer, at(0)) == {"C1": [1]}  # product 2 is made later
    assert labels(spec, newer, at(3)) == {"C1": [1, 2]}


def test_rows_of_the_table_itself_are_those_that_name_it() -> None:
    tables = {"people": TABLES["customers"].append_column("by", [["C2", None, "C1"]])}
    schema = {"tables": {"people": {"pkey": "id", "time_col": "joined", "fkeys": {"by": "people"}}}}
    database = Database.load(tables, schema)
    assert told("PREDICT COUNT(people.*, 0, 30) FOR EACH people.id", 10, database) == {"C1": 1, "C2": 0}


def test_names_are_found_in_any_case_and_in_quotes() -> None:
    query = 'predict count("ORDERS".* via Orders.Customer, 0, 10) /* so */ for each `customers`.ID -- here'
    assert told(query, 1) == {"C1": 1}


@pytest.mark.parametrize("available_at", [{}, {"available_at": "loaded"}])
def test_rows_without_a_time_that_are_always_known_are_before_every_window(
    available_at: dict[str, str],
) -> None:
    tables = {name: TABLES[name] for name in ("customers", "orders")}
    for place, column in ((3, "placed"), (4, "loaded")):
        times = days(None, 5, 11, 12, 22, 22, 23, 40)
        tables["orders"] = tables["orders"].set_column(place, column, times)
    tables["customers"] = tables["customers"].set_column(1, "joined", days(0, None, 20))
    always = {"pkey": "id", "on_missing_time": "always_known"}
    orders = {"time_col": "placed", "fkeys": {"customer": "customers"}} | always | available_at
    said = {"customers": always | {"time_col": "joined"}, "orders": orders}
    database = Database.load(tables, {"tables": said})
    assert told("PREDICT COUNT(orders.*, 0, 5) FOR EACH customers.id", 4, database) == {"C1": 1, "C2": 0}
    for window, expected in ((", -INF, 0", {"C1"}), ("", {"C1"}), (", -9000, 0", set())):
        assert asked(f"COUNT(orders.*{window}) > 0", 2, database) == expected, window
    task = database.query("PREDICT orders.amount FOR EACH orders.id")
    assert column_labels(task.spec, database).num_rows == 5  # of 8; one is undated, two have no amount


def test_an_entity_that_an_undated_row_names_is_asked_about() -> None:
    tables = {
        "visits": pa.table({"household_id": [7, 7, 8, 9], "on": days(1, 12, 30, 40)}),
        "flats": pa.table({"household_id": [9, 10]}),
    }
    said = {"visits": {"time_col": "on", "pkey": None}, "flats": {"time_col": None, "pkey": None}}
    database = Database.load(tables, {"entities": {"households": "household_id"}, "tables": said})
    query = "PREDICT COUNT(visits.*, 0, 30) FOR EACH households.household_id"
    assert told(query, 11, database) == {7: 1, 9: 1, 10: 0}


def test_constants_are_plain_text_and_names_may_go_over_two_lines() -> None:
    cities = ["{timedelta}", "9 days", "it's\n--", '"']
    people = pa.table({"a\nb": [1, 2, 3, 4], "city\n": cities})
    visits = pa.table({'x\n "y': [1, 2, 3, 4], "on\n": days(1, 2, 3, 4)})
    said = {"p\nq": {"pkey": "a\nb", "time_col": None}, "visits": {"pkey": None, "time_col": "on\n"}}
    said["visits"]["fkeys"] = {'"x\n ""y"': "p\nq"}
    database = Database.load({"p\nq": people, "visits": visits}, {"tables": said})
    for key, city in enumerate(cities, 1):
        where = f"""\"p\nq\".\"city\n\" IN ('{city.replace("'", "''")}') AND COUNT(visits.*, -9, 0) >= 0"""
        query = f'PREDICT COUNT(visits.*, 0, 9) FOR EACH "p\nq"."a\nb" WHERE {where}'
        assert told(query, 0, database) == {key: 1}
