"""Links that are inferred from names and from the keys that values hold."""

from __future__ import annotations

import pyarrow as pa
import pytest

from quartet.database import TableSchema
from quartet.database.inference.evidence import ACCEPT, LIST
from quartet.database.schema import Schema
from tests.database.inferring import AIRPORTS, Inference, facts, ids, infer, infer_from, listed, some, texts

LINKED_BY_NAME = {
    "users": "user_id OwnerUserId id_user user1_id created_by sender_id reporter_id",
    "posts": "parent_id reply_to RelatedPostId",
    "stations": "origin_station_id dest_id",
}


@pytest.mark.parametrize(
    ("column", "target"), [(name, table) for table, names in LINKED_BY_NAME.items() for name in names.split()]
)
def test_integers_are_linked_by_name(column: str, target: str) -> None:
    found = infer_from(
        users={"id": ids(30)}, stations={"id": ids(30)}, posts={"id": ids(30), column: some(30, 14)}
    )
    assert facts(found.schema)[1] == {f"posts.{column}": target}


NOT_LINKED = (
    "quantity year position age user_count num_users users is_user PostTypeId type_id post_number "
    "user_level post_id"
)


@pytest.mark.parametrize("column", NOT_LINKED.split())
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
