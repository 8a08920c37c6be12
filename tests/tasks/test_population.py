"""Whom a task asks about at a time: by its population, by its SQL, by its last window, by its empty cells."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quartet.causal import TimeRule
from quartet.database import FACTS, Database, TableSchema, TimeColumn
from quartet.database.schema import Schema
from quartet.errors import TaskError
from quartet.tasks import EVERYONE, Population, Task, population_at, read_query
from quartet.times import parse_instant, show_instant
from tests.strategies import Raw, examples, scrambled_future, without_future
from tests.tasks.small import CHURN, DAY, START, growing_shop, small_shop
from tests.trained import from_labels

AT = parse_instant("2023-09-01", "AT")
# Who will order in the next 30 days: the population of rel-f1's driver tasks is of this kind.
FUTURE_SQL = """
    SELECT t.timestamp, o.customer, CAST(COUNT(*) > 1 AS BIGINT) AS churned
    FROM timestamps t JOIN orders o ON o.bought > t.timestamp AND o.bought <= t.timestamp + INTERVAL '{timedelta}'
    GROUP BY ALL
"""
LATELY = """
    SELECT DISTINCT t.timestamp, o.customer FROM timestamps t
    JOIN orders o ON o.bought <= t.timestamp AND o.bought > t.timestamp - INTERVAL '5 days'
"""


def churn(database: Database, **changes: Any) -> Task:
    return Task.from_sql(database, **(CHURN | changes))


def keys(found: Population, database: Database) -> set[str]:
    table = database["customers"]
    return set(table.data[table.primary_key[0]].take(pa.array(found.rows)).to_pylist())


def buyers(database: Database, first: int, last: int) -> set[str]:
    """Who ordered in (first, last]."""
    orders = database["orders"]
    within = (orders.known_at > first) & (orders.known_at <= last)
    return set(orders.data["customer"].filter(pa.array(within)).to_pylist())


def test_sql_asks_about_its_own_population() -> None:
    task = churn(small_shop())
    found = population_at(task.spec, task.full_database, AT)
    expected = buyers(task.full_database, AT - 30 * DAY, AT)
    assert keys(found, task.full_database) == expected
    assert 0 < len(expected) < 40
    assert found.is_asked
    assert not found.findings
    assert (np.diff(found.rows) > 0).all()


@pytest.mark.parametrize("sql", [CHURN["sql"], FUTURE_SQL])
def test_a_population_is_asked_about_whatever_the_labels_are(sql: str) -> None:
    task = churn(small_shop(), population=LATELY, sql=sql)
    found = population_at(task.spec, task.full_database, AT)
    assert keys(found, task.full_database) == buyers(task.full_database, AT - 5 * DAY, AT)
    assert not found.findings
    before = population_at(task.spec, task.full_database, START - DAY)
    assert (len(before.rows), before.findings) == (0, ())  # nobody, and that is the answer


def test_rows_of_the_moment_itself_are_not_known_by_the_strict_rule() -> None:
    task = churn(small_shop(), population=LATELY)
    strict = population_at(task.spec, task.full_database, AT, "<")
    assert keys(strict, task.full_database) == buyers(task.full_database, AT - 5 * DAY, AT - 1)
    assert len(strict.rows) < len(population_at(task.spec, task.full_database, AT).rows)


def test_sql_that_looks_ahead_asks_about_those_of_its_last_window() -> None:
    task = churn(small_shop(), sql=FUTURE_SQL)
    found = population_at(task.spec, task.full_database, AT)
    assert keys(found, task.full_database) == buyers(task.full_database, AT - 10 * DAY, AT)
    (finding,) = found.findings
    assert (finding.code, finding.count) == ("T19", len(found.rows))
    assert "2023-08-22" in finding.message
    assert "2023-08-22" in found.words


def test_windows_without_anybody_are_passed_over() -> None:
    task = churn(small_shop(), sql=FUTURE_SQL)
    end = START + 299 * DAY
    found = population_at(task.spec, task.full_database, end + 35 * DAY)
    assert keys(found, task.full_database) == buyers(task.full_database, end - 5 * DAY, end)


@pytest.mark.parametrize(
    "sql", [FUTURE_SQL, "SELECT t.timestamp, nobody AS customer, 1 AS churned FROM timestamps t"]
)
def test_where_sql_names_nobody_all_are_asked_about(sql: str) -> None:
    """Before the first row there is no earlier window either; and SQL that fails is no reason to give no answer."""
    task = churn(small_shop(), sql=sql)
    found = population_at(task.spec, task.full_database, START - DAY)
    assert len(found.rows) == 40
    assert found.words == EVERYONE
    assert [finding.code for finding in found.findings] == ["T19"]


@pytest.mark.parametrize(
    "population", ["SELECT 1 AS one", "SELECT customer FROM orders", "DROP TABLE orders"]
)
def test_a_population_that_cannot_be_asked_for_is_an_error(population: str) -> None:
    task = churn(small_shop(), population=population)
    with pytest.raises(TaskError, match="L12"):
        population_at(task.spec, task.full_database, AT)


def test_entities_without_a_row_are_left_out_and_counted() -> None:
    growing = growing_shop()
    spec = churn(small_shop(), population="SELECT t.timestamp, c.customer FROM timestamps t, orders c").spec
    found = population_at(spec, growing.full_database, AT - 60 * DAY)
    known = growing.full_database["customers"].known_at <= AT - 60 * DAY
    assert len(found.rows) <= known.sum()
    (finding,) = found.findings
    assert finding.code == "T19"
    assert finding.count == len(buyers(growing.full_database, START - 1, AT - 60 * DAY)) - len(found.rows)


def test_a_label_table_tells_of_nobody_else() -> None:
    task = from_labels(churn(small_shop()))
    found = population_at(task.spec, task.full_database, AT)
    assert (len(found.rows), found.words, found.findings) == (40, EVERYONE, ())


# --- columns to be filled in ------------------------------------------------------------------------


def tickets(days: list[int | None], **fields: Any) -> Task:
    """A ticket a day from 2023-01-01 on; it took so many days, or is still open."""
    opened = pa.array([START + DAY * day for day in range(len(days))], pa.timestamp("ns"))
    table = pa.table({"ticket": np.arange(len(days)), "opened": opened, "took": pa.array(days, pa.float64())})
    schema = Schema({"tickets": TableSchema(("ticket",), (), TimeColumn("opened"), settled=FACTS)})
    words = {"name": "took", "kind": "autocomplete", "task_type": "regression", "entity_table": "tickets"}
    return Database.build({"tickets": table}, schema).task({**words, "target_col": "took", **fields})


@pytest.mark.parametrize(
    ("day", "known_after", "expected"),
    [
        (9, None, [3, 8, 9]),  # those without a value, and the one of the moment itself
        (6, None, [3, 6]),
        (6, "2 days", [3, 5, 6]),  # a value is known two days later
        (100, None, [3, 8]),
    ],
)
def test_rows_whose_value_is_not_known_are_asked_about(
    day: int, known_after: str | None, expected: list[int]
) -> None:
    days = [1, 2, 1, None, 3, 1, 2, 1, None, 4] + [2] * 30
    task = tickets(days, **({"known_after": known_after} if known_after else {}))
    found = population_at(task.spec, task.full_database, START + DAY * day)
    assert found.rows.tolist() == expected
    assert found.is_asked


def test_where_all_values_are_known_all_rows_are_asked_about() -> None:
    task = tickets([1] * 40)
    found = population_at(task.spec, task.full_database, START + 50 * DAY)
    assert len(found.rows) == 40
    assert [finding.code for finding in found.findings] == ["T19"]


def test_a_database_without_the_column_has_only_open_rows() -> None:
    task = tickets([1, None] * 20)
    found = population_at(task.spec, task.visible_database, START + 9 * DAY)
    assert found.rows.tolist() == list(range(10))


# --- causal -----------------------------------------------------------------------------------------


def raw_of(database: Database) -> Raw:
    return {name: table.data for name, table in database.tables.items()}, database.schema


TASKS = [
    churn(small_shop()),
    churn(small_shop(), sql=FUTURE_SQL),
    churn(small_shop(), population=LATELY),
    growing_shop(),
]


@pytest.mark.parametrize("task", TASKS, ids=["sql", "looking ahead", "population", "growing"])
@examples(25)
@given(day=st.integers(-5, 320), rule=st.sampled_from(["<=", "<"]), rng_seed=st.integers(0, 2**32))
def test_later_rows_never_change_who_is_asked_about(
    task: Task, day: int, rule: TimeRule, rng_seed: int
) -> None:
    raw, time, rng = raw_of(task.full_database), START + DAY * day, random.Random(rng_seed)
    found = keys(population_at(task.spec, task.full_database, time, rule), task.full_database)
    for other in (without_future, scrambled_future):
        database = Database.build(*other(raw, time, rule, rng))
        assert keys(population_at(task.spec, database, time, rule), database) == found


def test_a_query_asked_long_after_the_last_row_that_it_predicts_warns() -> None:
    """The calendar of a database may go on when its orders have ended."""
    shop = small_shop()
    text = "PREDICT COUNT(orders.*, 0, 10, days) = 0 FOR EACH customers.customer"
    spec, last = read_query(text, shop).spec, int(shop["orders"].known_at.max())
    for late, warns in ((0, False), (10, False), (11, True)):
        findings = population_at(spec, shop, last + late * DAY).findings
        assert ["T20"] * warns == [finding.code for finding in findings]
    assert f"ask at {show_instant(last)}" in findings[0].fix
