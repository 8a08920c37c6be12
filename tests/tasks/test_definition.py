"""A definition is tried, not trusted: labels are made again without rows that must not matter (trust: A1 to A5)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from quartet.database import Database, TimeColumn
from quartet.errors import TaskError, TimeError, UsageError
from quartet.findings import counted
from quartet.tasks import SPLITS, Task, TaskRecord
from quartet.tasks.labels import forecast_labels
from tests.tasks.small import CHURN, DAY, START, small_shop, write_small_shop

COUNT = """
    SELECT t.timestamp, c.customer, CAST(COUNT(o."order") = 0 AS BIGINT) AS churned
    FROM timestamps t CROSS JOIN customers c
    LEFT JOIN orders o ON o.customer = c.customer AND o.bought > {after} AND o.bought <= {upto}
    GROUP BY ALL
"""
T = "t.timestamp"


def counting(after: str, upto: str, **fields: Any) -> Task:
    sql = COUNT.replace("{after}", after).replace("{upto}", upto)
    return Task.from_sql(small_shop(), **(CHURN | {"sql": sql} | fields))


def test_labels_of_the_window_alone_are_clean() -> None:
    task = counting(T, f"{T} + INTERVAL '{{timedelta}}'")
    assert not {finding.code for finding in task.check()} & {"T14", "L21"}


@pytest.mark.parametrize(
    ("after", "upto"),
    [
        (T, f"{T} + INTERVAL '20 days'"),
        (f"{T} + INTERVAL '12 days'", f"{T} + INTERVAL '30 days'"),
        (T, f"{T} + INTERVAL '11 days'"),
        (T, "TIMESTAMP '2100-01-01'"),
    ],
)
def test_labels_that_look_past_their_window_are_refused(after: str, upto: str) -> None:
    with pytest.raises(
        TaskError, match=r"L20\].*after their window of 10 days: without these, .* differ.*became"
    ):
        counting(after, upto).check()


def test_labels_to_learn_from_are_made_without_what_comes_after_the_test_cut_off() -> None:
    """Even of SQL that reads all rows, which no check has seen yet."""
    task = counting(T, "TIMESTAMP '2100-01-01'")
    known = task.full_database.upto(task.splits.test)
    for split in ("train", "val"):
        made = forecast_labels(task.spec, task.full_database, task.splits, split)
        assert made.equals(forecast_labels(task.spec, known, task.splits, split))


def test_labels_that_are_made_past_their_window_alone_are_refused() -> None:
    """Without the rows after the window there is not one entity left to compare."""
    sql = """
        SELECT t.timestamp, o.customer, CAST(COUNT(*) > 1 AS BIGINT) AS churned FROM timestamps t
        JOIN orders o ON o.bought > t.timestamp + INTERVAL '20 days' AND o.bought <= t.timestamp + INTERVAL '40 days'
        GROUP BY ALL
    """
    with pytest.raises(TaskError, match=r"L20\].*are gone at the checked times"):
        Task.from_sql(small_shop(), **(CHURN | {"sql": sql})).check()


def test_labels_that_look_at_the_past_are_told() -> None:
    found = counting(f"{T} - INTERVAL '1 day'", f"{T} + INTERVAL '{{timedelta}}'").check()
    (finding,) = (finding for finding in found if finding.code == "L21")
    assert "labels depend on rows of orders that are known at the prediction time" in finding.message
    assert "0 became 1" in finding.message
    assert finding.count


def test_labels_that_are_known_already_are_told() -> None:
    """Nothing after t decides them; how long ago the last order was tells all, and is no leak."""
    found = counting(f"{T} - INTERVAL '10 days'", T).check()
    (finding,) = (finding for finding in found if finding.code == "L21")
    assert "depends on rows after the prediction time" in finding.message
    assert "L04" not in {finding.code for finding in found}


def test_rows_that_are_late_make_no_label_unless_it_waits_for_them() -> None:
    """Orders become known three days after they are bought: those of the last days are not in a label of 10 days."""
    shop = small_shop()
    late = shop["orders"].data.append_column(
        "entered", pa.array(shop["orders"].known_at + 3 * DAY, pa.int64()).cast(pa.timestamp("ns"))
    )
    orders = replace(shop.schema.tables["orders"], time=TimeColumn("bought"), available_at="entered")
    schema = replace(shop.schema, tables={**shop.schema.tables, "orders": orders})
    database = Database.build({"customers": shop["customers"].data, "orders": late}, schema)
    with pytest.raises(TaskError, match=r"L20\].*say `known_after`"):
        Task.from_sql(database, **CHURN).check()
    waiting = Task.from_sql(database, **CHURN, known_after="3 days")
    assert "T14" in {finding.code for finding in waiting.check()}  # they decide who is asked about, too late
    # and no label of train or validation is made from a row that was entered after the test cut-off
    cut = forecast_labels(waiting.spec, database.upto(waiting.splits.test), waiting.splits, "val")
    assert waiting.label_rows("val").equals(cut)


def test_times_that_were_not_asked_are_refused() -> None:
    sql = "SELECT o.bought AS timestamp, o.customer, 1 AS churned FROM orders o, timestamps t GROUP BY ALL"
    with pytest.raises(TaskError, match=r"L22\].*rows at times that are no prediction times \(2023-01-0"):
        Task.from_sql(small_shop(), **(CHURN | {"sql": sql})).seeds("train")


def test_the_same_seed_twice_is_refused() -> None:
    sql = CHURN["sql"] + " UNION ALL " + CHURN["sql"]
    with pytest.raises(TaskError, match=r"L10\].*seeds occur twice"):
        Task.from_sql(small_shop(), **(CHURN | {"sql": sql})).seeds("train")


def stored_shop(folder: Path) -> Path:
    """The small shop as a folder with its label files."""
    write_small_shop(folder)
    task = Task.load(Database.load(folder), "churn")
    for split in SPLITS:
        pq.write_table(task.label_rows(split), folder / "tasks" / "churn" / f"{split}.parquet")
    return folder


@pytest.mark.parametrize(
    ("into", "of"), [("train", "test"), ("train", "val"), ("val", "test"), ("test", "train")]
)
def test_a_stored_split_holds_no_rows_of_another(into: str, of: str, tmp_path: Path) -> None:
    labels = stored_shop(tmp_path / "shop") / "tasks" / "churn"
    assert len(Task.load(Database.load(tmp_path / "shop"), "churn").seeds("train"))
    both = pa.concat_tables([pq.read_table(labels / f"{split}.parquet") for split in (into, of)])
    pq.write_table(both, labels / f"{into}.parquet")
    with pytest.raises(TimeError, match=rf"T16\].*{into}.parquet\".*do not belong to {into}"):
        Task.load(Database.load(tmp_path / "shop"), "churn").seeds(into)  # type: ignore[arg-type]


@pytest.mark.parametrize("days", [0, 4, 25])
def test_a_label_is_used_once_it_is_known(days: int) -> None:
    """Splits, and with them training, selection and calibration, wait for labels as long as history does."""
    task = Task.from_sql(small_shop(), **CHURN, **({"known_after": f"{days} days"} if days else {}))
    train, val = task.seeds("train").time, task.seeds("val").time
    assert task.spec.known_at(train.max()) == task.splits.val
    assert task.spec.known_at(val.max()) <= task.splits.test
    assert (np.diff(np.unique(train)) == 10 * DAY).all()
    assert task.spec.known_at(task.seeds("test").time.max()) <= task.full_database.span[1]  # type: ignore[index]


@pytest.mark.parametrize("given", ["val_timestamp", "test_timestamp"])
def test_one_cut_off_alone_is_refused(given: str) -> None:
    with pytest.raises(TaskError, match=rf"C01\].* has a {given} and no .*Fix: give both, or none"):
        Task.from_sql(small_shop(), **(CHURN | {given: "2023-09-01"}))


def test_labels_that_are_known_too_late_leave_no_room() -> None:
    with pytest.raises(TimeError, match=r"T13\]"):
        Task.from_sql(small_shop(), **CHURN, known_after="200 days")


# --- one definition -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"sql": CHURN["sql"].replace("= 0", "= 1")}, "sql"),
        ({"timedelta": "11 days"}, "horizon"),
        ({"known_after": "1 day"}, "known_after"),
        ({"test_timestamp": "2023-09-20", "val_timestamp": "2023-08-01"}, "cut-offs"),
        ({"remove_columns": [["orders", "amount"]]}, "remove_columns"),
    ],
)
def test_another_definition_under_the_same_name_is_refused(changes: dict[str, Any], named: str) -> None:
    shop = small_shop()
    record = TaskRecord.of(Task.from_sql(shop, **CHURN))
    other = Task.from_sql(shop, **(CHURN | changes))
    with pytest.raises(UsageError, match=rf'C05\] task "churn" has another {named}'):
        record.check_same(TaskRecord.of(other), "runs/x")
    assert other.digest != Task.from_sql(shop, **CHURN).digest
    record.check_same(TaskRecord.of(Task.from_sql(shop, **CHURN, description="in other words")), "runs/x")


def test_label_files_belong_to_the_definition(tmp_path: Path) -> None:
    labels = stored_shop(tmp_path / "shop") / "tasks" / "churn" / "val.parquet"
    record = TaskRecord.of(Task.load(Database.load(tmp_path / "shop"), "churn"))
    rows = pq.read_table(labels)
    flipped = pa.array(1 - rows["churned"].to_numpy())
    pq.write_table(rows.set_column(rows.column_names.index("churned"), "churned", flipped), labels)
    with pytest.raises(UsageError, match="has another val labels than that of runs/x"):
        record.check_same(TaskRecord.of(Task.load(Database.load(tmp_path / "shop"), "churn")), "runs/x")


def test_kinds_belong_to_the_data() -> None:
    shop = small_shop()
    customers = replace(shop.schema.tables["customers"], kinds={"age": "category"})
    schema = replace(shop.schema, tables={**shop.schema.tables, "customers": customers})
    other = Database.build({name: table.data for name, table in shop.tables.items()}, schema)
    assert other.fingerprint != shop.fingerprint


def test_a_database_that_has_grown_is_read_as_it_was_then() -> None:
    shop = small_shop()
    task = Task.from_sql(shop, **CHURN)
    record = TaskRecord.of(task)
    later, orders, customers = shop.span[1] + DAY, shop["orders"].data, shop["customers"].data  # type: ignore[index]
    new = pa.table([[10**6], ["C99"], pa.array([later], pa.timestamp("ns")), [1.0]], schema=orders.schema)
    old = pa.table([[10**6], ["C99"], pa.array([START], pa.timestamp("ns")), [1.0]], schema=orders.schema)
    guest = customers.slice(0, 1).set_column(0, "customer", pa.array(["C99"]))

    def grown(more: pa.Table) -> Task:
        tables = {
            "customers": pa.concat_tables([customers, guest]),
            "orders": pa.concat_tables([orders, more]),
        }
        return Task.from_sql(Database.build(tables, shop.schema), **CHURN)

    then = record.as_then(grown(new))
    record.check_same(TaskRecord.of(then), "runs/x")
    assert then.label_rows("test").equals(task.label_rows("test"))
    changed = record.as_then(grown(old))  # a row of the past: not grown, but changed
    with pytest.raises(UsageError, match="data of runs/x have changed"):
        record.check_same(TaskRecord.of(changed), "runs/x")


def test_few_rows_are_told_where_there_could_be_more() -> None:
    found = Task.from_sql(small_shop(), **CHURN).check()
    (finding,) = (finding for finding in found if finding.code == "L24")
    assert finding.fix == "the data have room for more: say num_eval_timestamps: 3"
    assert counted(found, "L24") == len(Task.from_sql(small_shop(), **CHURN).seeds("test"))
