"""Tasks: seeds, the vault, what a task may see, and labels made again from the database."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import yaml

from quartet.config import Protocol
from quartet.database import Database
from quartet.errors import QuartetError, TaskError, TimeError, UsageError
from quartet.findings import Findings
from quartet.tasks import SPLITS, Links, Seeds, Task, check_labels, lint, task_names
from quartet.tasks.spec import spec_from_dict
from quartet.times import NEVER
from tests.shared import shared_data
from tests.tasks.small import CHURN, DAY, START, small_shop

PUBLISHED = {
    "driver-dnf": (11_411, 566, 702),
    "driver-top3": (1_353, 588, 726),
    "driver-position": (7_453, 499, 760),
    "driver-circuit-compete": (2_649, 27, 27),
    "results-position": (9_009, 1_400, 4_798),
    "qualifying-position": (2_228, 1_854, 5_733),
}


@pytest.fixture(scope="module")
def shop() -> Database:
    return small_shop()


@pytest.fixture(scope="module")
def f1() -> Database:
    return Database.load(shared_data("rel-f1"))


def target_sets(seeds: Seeds) -> Any:
    if isinstance(seeds.target, Links):
        ends = seeds.target.offsets
        return [set(seeds.target.nodes[a:b].tolist()) for a, b in pairwise(ends)]
    return None if seeds.target is None else seeds.target.tolist()


@pytest.mark.parametrize("name", PUBLISHED)
def test_rel_f1_has_the_published_counts(f1: Database, name: str) -> None:
    task = Task.load(f1, name)
    assert tuple(len(task.seeds(split)) for split in SPLITS) == PUBLISHED[name]


@pytest.mark.parametrize("dataset", ["rel-f1", "rel-flights", "rel-travel"])
def test_labels_made_again_equal_the_stored_ones(dataset: str) -> None:
    database = Database.load(shared_data(dataset))
    for name in task_names(database):
        stored, made = Task.load(database, name), Task.load(database, name, regenerate=True)
        for split in SPLITS:
            one, other = stored._labelled(split)[0], made._labelled(split)[0]
            assert np.array_equal(one.node, other.node), (name, split)
            assert np.array_equal(one.time, other.time), (name, split)
            assert target_sets(one) == target_sets(other), (name, split)


def test_a_task_sees_its_own_database(f1: Database) -> None:
    task = Task.load(f1, "results-position")
    hidden = {"position", "statusId", "positionOrder", "points", "laps", "milliseconds", "fastestLap", "rank"}
    assert not hidden & set(task.database["results"].data.column_names)
    assert hidden <= set(f1["results"].data.column_names)
    assert set(task.database["qualifying"].data.column_names) >= {"position"}


def test_seeds_of_sql_equal_a_plain_count(shop: Database) -> None:
    """The labels of CHURN, counted again in Python for every customer and time."""
    task = Task.from_sql(shop, **CHURN)
    orders = shop["orders"]
    customer = orders.data["customer"].to_pylist()
    for split in SPLITS:
        seeds = task._labelled(split)[0]
        expected = []
        for time in np.unique(seeds.time):
            for row, key in enumerate(shop["customers"].data["customer"].to_pylist()):
                bought = [t for t, c in zip(orders.known_at, customer, strict=True) if c == key]
                if any(time - 30 * DAY < t <= time for t in bought):
                    churned = not any(time < t <= time + 10 * DAY for t in bought)
                    expected.append((row, int(time), int(churned)))
        got = list(
            zip(seeds.node.tolist(), seeds.time.tolist(), np.asarray(seeds.target).tolist(), strict=True)
        )
        assert got == expected


def test_splits_are_proposed_when_absent(shop: Database) -> None:
    task = Task.from_sql(shop, **CHURN)
    assert task.splits.is_proposed
    assert all(len(task.seeds(split)) for split in SPLITS)
    given = Task.from_sql(shop, **CHURN, val_timestamp="2023-07-01", test_timestamp="2023-09-01")
    assert not given.splits.is_proposed


def test_the_vault_keeps_test_targets(shop: Database) -> None:
    task = Task.from_sql(shop, **CHURN)
    assert task.seeds("train").target is not None
    assert task.seeds("val").target is not None
    assert task.seeds("test").target is None
    assert task.vault.openings == []
    assert "positive" in task.vault.balance()
    assert task.vault.openings == []
    target = task.vault.open("a test of the vault")
    assert len(target) == len(task.seeds("test"))
    assert task.vault.openings == ["a test of the vault"]


def labels_of(task: Task) -> pa.Table:
    """All labels of a task as one table, as a user would bring it."""
    return pa.concat_tables([task.label_rows(split) for split in SPLITS])


def external(shop: Database, labels: pa.Table, **changes: Any) -> Task:
    words = {k: v for k, v in CHURN.items() if k != "sql"}
    return Task.from_labels(shop, labels, **(words | changes))


def test_a_label_table_gives_the_same_seeds(shop: Database) -> None:
    made = Task.from_sql(shop, **CHURN, val_timestamp="2023-07-01", test_timestamp="2023-09-01")
    given = external(shop, labels_of(made), val_timestamp="2023-07-01", test_timestamp="2023-09-01")
    for split in SPLITS:
        one, other = made._labelled(split)[0], given._labelled(split)[0]
        assert np.array_equal(one.node, other.node)
        assert np.array_equal(np.asarray(one.target), np.asarray(other.target))


def test_a_task_file_with_labels_beside_it(shop: Database, tmp_path: Path) -> None:
    pq.write_table(labels_of(Task.from_sql(shop, **CHURN)), tmp_path / "labels.parquet")
    (tmp_path / "churn.yaml").write_text(
        "name: churn\nkind: external\ntask_type: binary_classification\nentity_table: customers\n"
        "entity_col: customer\ntarget_col: churned\ntime_col: timestamp\ntimedelta: 10 days\n"
        "labels: labels.parquet\n"
    )
    task = Task.load(shop, tmp_path / "churn.yaml")
    assert task.splits.is_proposed
    assert len(task.seeds("train")) > 100


def test_multiclass_targets_are_class_numbers(shop: Database) -> None:
    labels = labels_of(Task.from_sql(shop, **CHURN))
    words = np.where(np.asarray(labels["churned"]) == 1, "gone", "here")
    labels = labels.set_column(2, "churned", pa.array(words))
    task = external(shop, labels, task_type="multiclass_classification")
    assert task.classes == ["gone", "here"]
    assert set(np.asarray(task.seeds("train").target).tolist()) == {0, 1}


def test_autocomplete_targets_are_the_column(shop: Database) -> None:
    spec = spec_from_dict(
        {
            "name": "amount",
            "kind": "autocomplete",
            "task_type": "regression",
            "entity_table": "orders",
            "target_col": "amount",
        },
        "test",
    )
    task = Task.of(spec, shop, None, {}, "error")
    assert "amount" not in task.database["orders"].data.column_names
    seeds = task._labelled("train")[0]
    rows = seeds.node - shop.offsets["orders"]
    assert np.array_equal(np.asarray(seeds.target), shop["orders"].data["amount"].to_numpy()[rows])
    assert np.array_equal(seeds.time, shop["orders"].known_at[rows])
    assert sum(len(task.seeds(split)) for split in SPLITS) == shop["orders"].num_rows


def rows_of(*rows: tuple[object, object, object]) -> pa.Table:
    """Label rows (customer, day, label)."""
    days = [START + DAY * day if isinstance(day, int) else day for _, day, _ in rows]
    return pa.table(
        {
            "customer": [key for key, _, _ in rows],
            "timestamp": pa.array(days).cast(pa.timestamp("ns")),
            "churned": [label for _, _, label in rows],
        }
    )


CUTS = {"val_timestamp": "2023-05-01", "test_timestamp": "2023-07-01"}
BAD_LABELS = {
    "L11": (
        rows_of(("C01", 3, 1), ("C77", 3, 0)),
        'error[L11] task "churn", train: 1 of 2 rows name entities that are not in "customers" (C77). '
        "Fix: remove these rows, or add the entities",
    ),
    "L10": (
        rows_of(("C01", 3, 1), ("C02", 3, 1), ("C01", 3, 0)),
        'error[L10] task "churn", train: 1 seeds occur twice '
        "(C01 at 2023-01-04). Fix: keep one label for each (entity, time)",
    ),
    "L07": (
        rows_of(("C01", 3, 1), ("C02", 3, 2)),
        'error[L07] task "churn", train: labels of a binary task must be 0 or 1, got 2 values (1, 2). '
        "Fix: choose the positive class in the SQL, e.g. (label = 1)::INT, "
        "or say task_type: multiclass_classification",
    ),
    "S08": (
        rows_of((1, 3, 1)),
        'error[S08] task "churn", train, column customer is int64, customers.customer is text. Fix: cast one',
    ),
}


@pytest.mark.parametrize("code", BAD_LABELS)
def test_bad_labels(shop: Database, code: str) -> None:
    labels, message = BAD_LABELS[code]
    with pytest.raises(QuartetError) as caught:
        external(shop, labels, **CUTS).seeds("train")
    assert str(caught.value) == message
    assert caught.value.exit_code == 3


def test_labels_of_numbers_must_be_numbers(shop: Database) -> None:
    with pytest.raises(TaskError, match=r"error\[L07\] .*labels are string, not numbers \(high, low\)"):
        external(shop, rows_of(("C01", 3, "high"), ("C02", 3, "low")), task_type="regression", **CUTS).check()


def test_empty_labels_are_counted(shop: Database) -> None:
    task = external(shop, rows_of(("C01", 3, 1), ("C02", 3, None), ("C03", 3, 0)), **CUTS)
    assert len(task.seeds("train")) == 2
    (finding,) = task.findings("train")
    assert (finding.code, finding.count) == ("L08", 1)
    assert str(finding) == 'warning[L08] task "churn", train: 1 of 3 rows have no label and are left out'


def test_empty_prediction_time_is_an_error(shop: Database) -> None:
    labels = rows_of(("C01", 3, 1), ("C02", 4, 0))
    labels = labels.set_column(1, "timestamp", pa.array([None, START], pa.timestamp("ns")))
    with pytest.raises(TaskError, match=r"error\[T03\] .*the prediction time is empty in 1 rows"):
        external(shop, labels, **CUTS).seeds("train")


def test_one_class(shop: Database) -> None:
    task = external(shop, rows_of(*[(f"C{k:02d}", 3, 0) for k in range(40)]), **CUTS)
    with pytest.raises(TaskError) as caught:
        check_labels(task)
    assert str(caught.value) == (
        "error[L05] all 40 training labels are 0. A classifier cannot be trained. "
        "Fix: predict what differs between rows, or move val_timestamp"
    )


def test_few_labels_and_one_class_in_validation(shop: Database) -> None:
    rows = [(f"C{k:02d}", 3, k % 2) for k in range(40)] + [(f"C{k:02d}", 130, 1) for k in range(40)]
    found = check_labels(external(shop, rows_of(*rows), **CUTS))
    assert [finding.code for finding in found] == ["L09", "L06"]
    assert found[1].message == "all 40 val labels are 1: no model can be selected by them"


def test_seed_older_than_its_entity() -> None:
    """T05: a prediction about a customer who did not exist yet."""
    created = pa.array([START + DAY * (5 if k == 7 else 0) for k in range(40)], pa.timestamp("ns"))
    base = small_shop(created=created)
    from dataclasses import replace

    from quartet.database import TimeColumn
    from quartet.database.schema import Schema

    tables = dict(base.schema.tables)
    tables["customers"] = replace(tables["customers"], time=TimeColumn("created"))
    raw = {name: table.data for name, table in base.tables.items()}
    shop = Database.build(raw, Schema(tables))
    labels = rows_of(("C07", 4, 1), ("C08", 4, 0), ("C07", 5, 1))
    with pytest.raises(TimeError) as caught:
        external(shop, labels, **CUTS).seeds("train")
    assert str(caught.value) == (
        'error[T05] task "churn", train: 1 prediction rows ask about customers created after the asked time '
        "(C07 created 2023-01-06, asked 2023-01-05). Fix: correct the task, or leave them out: "
        '--drop-early, in Python on_early_seed="drop"'
    )
    task = external(shop, labels, on_early_seed="drop", **CUTS)
    assert len(task.seeds("train")) == 2  # at its own time an entity is known
    assert [(f.code, f.count) for f in task.findings("train")] == [("T05", 1)]


# --- the front door -------------------------------------------------------------------------------


def test_a_task_is_loaded_from_a_dict(shop: Database, tmp_path: Path) -> None:
    definition = {**CHURN, "kind": "forecast"}
    (tmp_path / "churn.yaml").write_text(yaml.safe_dump(definition))
    one, other = Task.load(shop, definition), Task.load(shop, str(tmp_path / "churn.yaml"))
    assert one.spec == other.spec
    assert one.seeds("train").node.tolist() == other.seeds("train").node.tolist()


@pytest.mark.parametrize("form", ["pandas", "csv", "parquet"])
def test_labels_are_a_data_frame_or_a_file(shop: Database, tmp_path: Path, form: str) -> None:
    table = labels_of(Task.from_sql(shop, **CHURN))
    labels: Any = tmp_path / f"labels.{form}"
    if form == "pandas":
        labels = table.to_pandas()
    elif form == "csv":
        pa.csv.write_csv(table, labels)
    else:
        pq.write_table(table, labels)
    one, other = external(shop, table), external(shop, labels)
    assert one.splits == other.splits
    for split in SPLITS:
        assert one.seeds(split).node.tolist() == other.seeds(split).node.tolist()
        assert one.seeds(split).time.tolist() == other.seeds(split).time.tolist()


def test_a_check_prints_its_findings(shop: Database) -> None:
    task = external(shop, rows_of(*[(f"C{k:02d}", 3, k % 2) for k in range(40)], ("C00", 4, None)), **CUTS)
    found = task.check()
    assert [finding.code for finding in found] == ["L08", "L09", "L06"]
    assert repr(found) == str(found) == "\n".join(map(str, [*task.findings("train"), *lint(task)]))
    assert task.vault.openings == []
    assert str(Findings()) == "No problems found."


def test_a_check_refuses_labels_of_one_class(shop: Database) -> None:
    with pytest.raises(TaskError, match=r"error\[L05\] all 40 training labels are 0"):
        external(shop, rows_of(*[(f"C{k:02d}", 3, 0) for k in range(40)]), **CUTS).check()


def test_a_task_shows_what_it_asks(shop: Database) -> None:
    task = Task.from_sql(shop, **CHURN, val_timestamp="2023-07-01", test_timestamp="2023-09-01")
    assert repr(task) == (
        'Task("churn": binary classification for customers, 10 days ahead; '
        "validation from 2023-07-01, test from 2023-09-01)"
    )
    assert "(proposed)" in repr(Task.from_sql(shop, **CHURN))


def test_a_protocol_says_where_the_database_ends(shop: Database) -> None:
    task = Task.from_sql(shop, **CHURN, num_eval_timestamps=2)
    end, own = task.splits.test, task.seeds("test")
    assert task.under("auto").protocol == "frozen"
    for protocol in get_args(Protocol):
        asked, database = task.under(protocol).asked_seeds("test"), task.under(protocol).database
        assert asked.node.tolist() == own.node.tolist()
        assert asked.target is None
        times = np.minimum(own.time, end) if protocol == "clamped" else own.time
        assert asked.time.tolist() == times.tolist()
        before, after = database["orders"].known_at, shop["orders"].known_at
        expected = after if protocol == "rolling" else np.where(after <= end, after, NEVER)
        assert before.tolist() == expected.tolist()
    assert own.time.max() > end


def test_rows_that_do_not_exist_at_the_cut_off_need_a_rolling_database(shop: Database) -> None:
    fill = Task.load(shop, {"kind": "autocomplete", "name": "fill", "task_type": "regression",
                            "entity_table": "orders", "target_col": "amount"})  # fmt: skip
    assert fill.under("auto").protocol == "rolling"
    with pytest.raises(
        TimeError, match=r"T17\].*test seeds of task \"fill\" ask about orders that do not exist at"
    ):
        fill.under("frozen")


WRONG: dict[str, Callable[[Database], object]] = {
    "a task that is a number": lambda shop: Task.load(shop, 3),  # type: ignore[arg-type]
    "a task that is a list": lambda shop: Task.load(shop, ["churn"]),  # type: ignore[arg-type]
    "a database that is a path": lambda _: Task.load("shop.sqlite", "churn"),  # type: ignore[arg-type]
    "a database that is nothing": lambda _: Task.from_sql(None, **CHURN),  # type: ignore[arg-type]
    "labels that are a number": lambda shop: external(shop, 3),
    "labels that are nothing": lambda shop: external(shop, None),
    "labels that are a list": lambda shop: external(shop, [1, 2]),
    "another split": lambda shop: Task.from_sql(shop, **CHURN).seeds("all"),  # type: ignore[arg-type]
    "another protocol": lambda shop: Task.from_sql(shop, **CHURN).under("thawed", past_labels=True),  # type: ignore[arg-type]
    "another way with early seeds": lambda shop: Task.from_sql(shop, "keep", **CHURN),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_types_are_refused(shop: Database, what: str) -> None:
    with pytest.raises(UsageError) as caught:
        WRONG[what](shop)
    assert caught.value.fix


def test_files_that_are_no_labels(shop: Database, tmp_path: Path) -> None:
    (tmp_path / "labels.parquet").write_text("not Parquet")
    (tmp_path / "labels.csv").write_text("")
    for name in ("labels.parquet", "labels.csv", "nowhere.csv"):
        with pytest.raises(TaskError, match=f"L01.*{name}"):
            external(shop, tmp_path / name)


def test_labels_without_rows_need_cut_offs(shop: Database) -> None:
    empty = rows_of(("C01", 3, 1)).slice(0, 0)
    with pytest.raises(TaskError, match=r"L01.*neither labels nor cut-offs"):
        external(shop, empty)
    assert len(external(shop, empty, **CUTS).seeds("train")) == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"entity_table": "custmers"}, 'error[S09] there is no table "custmers" (did you mean "customers"?)'),
        ({"entity_col": "who"}, 'error[L12] the SQL of task "churn" has no column "who"'),
        (
            {"kind": "guess"},
            "error[C01] the task: kind is 'guess'. Fix: say one of forecast, autocomplete, external",
        ),
        ({"sql": ""}, "error[L01] the task: a forecast task needs sql"),
        ({"timedelta": "1 month"}, "error[T15]"),
        ({"sqll": "x"}, 'error[C01] the task: unknown word "sqll" (did you mean "sql"?)'),
        ({"remove_columns": ["age"]}, "error[C01] the task: remove_columns is ['age']"),
        ({"num_eval_timestamps": "many"}, "error[C01] the task: num_eval_timestamps is 'many'"),
        ({"sql": "SELECT 1 / 0 AS"}, 'error[L12] task "churn": the SQL failed'),
    ],
)
def test_bad_definitions(shop: Database, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(QuartetError) as caught:
        Task.from_sql(shop, **(CHURN | changes)).seeds("train")
    assert str(caught.value).startswith(message)


def test_unknown_task_suggests_the_nearest(f1: Database) -> None:
    with pytest.raises(UsageError) as caught:
        Task.load(f1, "driver-dnff")
    assert str(caught.value) == (
        'error[L01] there is no task "driver-dnff" (did you mean "driver-dnf"?). '
        "Fix: give one of these, or the path of a task's YAML file"
    )


@pytest.mark.parametrize(
    ("target", "code"),
    [("order", "L02"), ("customer", "L02"), ("price", "L01")],
)
def test_bad_autocomplete_targets(shop: Database, target: str, code: str) -> None:
    words = {"name": "x", "kind": "autocomplete", "task_type": "regression", "entity_table": "orders"}
    task = Task.of(spec_from_dict(words | {"target_col": target}, "test"), shop, None, {}, "error")
    with pytest.raises(QuartetError) as caught:
        task.seeds("train")
    assert caught.value.code == code


def test_recommendation_targets_are_nodes(f1: Database) -> None:
    task = Task.load(f1, "driver-circuit-compete")
    seeds = task.seeds("train")
    assert isinstance(seeds.target, Links)
    circuits = range(f1.offsets["circuits"], f1.offsets["circuits"] + f1["circuits"].num_rows)
    assert seeds.target.nodes.min() >= circuits.start
    assert seeds.target.nodes.max() < circuits.stop
    half = seeds.select(np.arange(len(seeds)) % 2 == 0)
    assert target_sets(half) == target_sets(seeds)[::2]
