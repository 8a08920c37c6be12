"""Lint finds planted leaks, and keeps quiet where there is none (trust: P7, P8)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quartet.database import Database
from quartet.tasks import Task, lint
from tests.shared import shared_data
from tests.strategies import examples
from tests.tasks.small import CHURN, small_shop

FUTURE_SQL = """
    SELECT t.timestamp, o.customer AS customer, CAST(COUNT(*) > 2 AS BIGINT) AS churned
    FROM timestamps t
    JOIN orders o ON o.bought > t.timestamp AND o.bought <= t.timestamp + INTERVAL '{timedelta}'
    GROUP BY t.timestamp, o.customer
"""


def codes(task: Task) -> set[str]:
    """What lint says, apart from that a small shop has few labels and could have more."""
    return {finding.code for finding in lint(task)} - {"L09", "L24"}


@examples(3)
@given(st.integers(0, 10**6))
def test_an_honest_task_is_clean(rng_seed: int) -> None:
    assert codes(Task.from_sql(small_shop(rng_seed), **CHURN)) == set()


@examples(3)
@given(st.integers(0, 10**6))
def test_a_population_from_the_future_is_found(rng_seed: int) -> None:
    task = Task.from_sql(small_shop(rng_seed), **(CHURN | {"sql": FUTURE_SQL}))
    found = [finding for finding in lint(task) if finding.code == "T14"]
    assert len(found) == 1
    assert "the task selects customers using rows after the prediction time" in found[0].message


def test_a_population_with_an_open_end_is_found() -> None:
    """The pattern of RelBench's issue 402: `date > t - 30 days`, without `date <= t`."""
    sql = """
        SELECT t.timestamp, o.customer AS customer,
               CAST(COUNT(*) FILTER (WHERE o.bought > t.timestamp
                    AND o.bought <= t.timestamp + INTERVAL '{timedelta}') > 0 AS BIGINT) AS churned
        FROM timestamps t JOIN orders o ON o.bought > t.timestamp - INTERVAL '30 days'
        GROUP BY t.timestamp, o.customer
    """
    assert codes(Task.from_sql(small_shop(), **(CHURN | {"sql": sql}))) == {"T14"}


@pytest.mark.parametrize("name", ["driver-dnf", "driver-top3", "driver-position"])
def test_rel_f1_driver_tasks_have_a_future_population(name: str) -> None:
    assert "T14" in codes(Task.load(Database.load(shared_data("rel-f1")), name))


@pytest.mark.parametrize("name", ["plane-idle", "plane-departures"])
def test_rel_flights_has_none(name: str) -> None:
    assert codes(Task.load(Database.load(shared_data("rel-flights")), name)) == set()


def label_of_last_time(task: Task, database: Database) -> np.ndarray:
    """For each customer the mean label in train: a column that was computed after the fact."""
    seeds = task.seeds("train")
    rows = seeds.node - database.offsets["customers"]
    return np.bincount(rows, np.asarray(seeds.target), 40) / np.maximum(np.bincount(rows, minlength=40), 1)


def autocomplete(database: Database, target: str, task_type: str = "binary_classification") -> Task:
    from quartet.tasks.spec import spec_from_dict

    words = {"name": "fill", "kind": "autocomplete", "task_type": task_type, "entity_table": "orders"}
    return Task.of(spec_from_dict(words | {"target_col": target}, "test"), database, None, {}, "error")


def with_order_columns(**columns: object) -> Database:
    base = small_shop()
    raw = {name: table.data for name, table in base.tables.items()}
    for name, values in columns.items():
        raw["orders"] = raw["orders"].append_column(name, pa.array(values))
    return Database.build(raw, base.schema)


def planted(kind: str) -> tuple[Database, str]:
    """A database with a binary column `late` to fill in, and a column that gives it away."""
    rng = np.random.default_rng(1)
    size = small_shop()["orders"].num_rows
    late = (rng.random(size) < 0.3).astype(np.int64)
    columns = {
        "copy": late,
        "negation": -late,
        "float copy": late.astype(float),
        "boolean": late == 1,
        "noisy": late + 0.01 * rng.standard_normal(size),
        "status": np.where(late == 1, "delayed", np.where(rng.random(size) < 0.5, "ok", "early")),
    }
    return with_order_columns(late=late, leak=columns[kind]), "orders.leak"


@pytest.mark.parametrize("kind", ["copy", "negation", "float copy", "boolean", "noisy", "status"])
def test_columns_that_give_the_target_away_are_found(kind: str) -> None:
    database, where = planted(kind)
    found = [f for f in lint(autocomplete(database, "late")) if f.code == "L04"]
    assert [f.where for f in found] == [where]
    said = (
        "equals the target in 100 % of rows" if "copy" in kind or kind in ("negation", "boolean") else "alone"
    )
    assert said in found[0].message


def test_a_copy_is_found_for_regression_too() -> None:
    amount = small_shop()["orders"].data["amount"].to_numpy()
    database = with_order_columns(total=amount * 1.2 + 3, noise=np.arange(len(amount)))
    found = [f.where for f in lint(autocomplete(database, "amount", "regression")) if f.code == "L04"]
    assert found == ["orders.total"]


def test_the_target_is_said_to_be_removed() -> None:
    """And that rows which are filled in do not exist before they are asked about."""
    notes = {f.code: f.message for f in lint(autocomplete(with_order_columns(), "amount", "regression"))}
    assert notes.keys() == {"L03", "T17"}
    assert notes["L03"] == 'column "amount" is the target and was removed from features'
    assert "judged under the rolling protocol" in notes["T17"]


def test_late_filled_links_are_found() -> None:
    """The pattern of rel-stack's AcceptedAnswerId: a row points to a row that did not exist yet."""
    base = small_shop()
    orders = base["orders"]
    later = np.minimum(np.arange(orders.num_rows) + 40, orders.num_rows - 1)
    from dataclasses import replace

    from quartet.database import ForeignKey

    raw = {name: table.data for name, table in base.tables.items()}
    raw["orders"] = raw["orders"].append_column("replaced_by", pa.array(later))
    tables = dict(base.schema.tables)
    links = (*tables["orders"].foreign_keys, ForeignKey(("replaced_by",), "orders"))
    tables["orders"] = replace(tables["orders"], foreign_keys=links)
    database = Database.build(raw, replace(base.schema, tables=tables))
    assert codes(Task.from_sql(database, **CHURN)) == {"D01"}


def test_an_isolated_entity_table_is_found() -> None:
    base = small_shop()
    raw = {name: table.data for name, table in base.tables.items()}
    from dataclasses import replace

    tables = {n: replace(t, foreign_keys=()) for n, t in base.schema.tables.items()}
    database = Database.build(raw, replace(base.schema, tables=tables))
    found = [str(f) for f in lint(Task.from_sql(database, **CHURN)) if f.code not in ("L09", "L24")]
    assert found == ["warning[S14] customers has no links: predictions will use its own columns only"]
