"""A query may ask about things that have no table of their own: one is made from the distinct values of a column."""

from __future__ import annotations

import pyarrow as pa
import pytest

import quartet
from quartet.database import Database
from quartet.errors import QueryError
from quartet.tasks import read_query, selected_keys

TARGET = "PREDICT COUNT(purchases.*, 0, 7, days) > 0"


def market() -> Database:
    """Purchases of three households over two hundred days, and what is known of another one."""
    days = [f"2024-{month:02}-{day:02}" for month in range(1, 8) for day in range(1, 28)]
    purchases = {"household_id": [7 + i % 3 for i in range(len(days))], "created_at": days}
    return quartet.open(
        {
            "purchases": pa.table({"purchase_id": range(len(days)), **purchases}),
            "demographics": pa.table({"household_id": [40], "size": [2]}),
        }
    )


@pytest.mark.parametrize("name", ["households", "household", "Households"])
def test_a_query_makes_the_table_that_it_names(name: str) -> None:
    task = market().query(f"{TARGET} FOR EACH {name}.household_id WHERE COUNT(purchases.*, -30, 0) > 0")
    assert task.spec.entity_table == "households"
    assert set(task.label_rows("train")["household_id"].to_pylist()) == {7, 8, 9}
    assert any(finding.code == "S22" for finding in task.full_database.findings)


def test_the_keys_of_an_answer_are_found_in_it() -> None:
    text = f"{TARGET} FOR households.household_id IN (7, 9)"
    task = market().query(text)
    last = task.full_database.span
    assert last is not None
    assert selected_keys(read_query(text, task.full_database), last[1]) == ([7, 9], 0)


@pytest.mark.parametrize(
    ("entity", "code", "fix"),
    [
        ("purchases.household_id", "Q06", "write FOR EACH households.household_id"),
        ("houshold.household_id", "Q02", 'did you mean "households"'),
        ("customers.household_id", "Q02", "FOR EACH households.household_id"),
    ],
)
def test_an_error_names_the_table_that_could_be_made(entity: str, code: str, fix: str) -> None:
    with pytest.raises(QueryError) as error:
        market().query(f"{TARGET} FOR EACH {entity}")
    assert error.value.code == code
    assert fix in str(error.value)


def test_a_link_after_for_each_is_told_its_table() -> None:
    database = quartet.open(
        {
            "customers": pa.table({"customer_id": [1, 2, 3]}),
            "orders": pa.table(
                {
                    "order_id": range(6),
                    "customer_id": [1, 1, 2, 2, 3, 3],
                    "created_at": [f"2024-01-{d:02}" for d in range(1, 7)],
                }
            ),
        }
    )
    with pytest.raises(QueryError, match=r"Q06.*FOR EACH customers\.customer_id"):
        database.query("PREDICT COUNT(orders.*, 0, 7, days) > 0 FOR EACH orders.customer_id")
