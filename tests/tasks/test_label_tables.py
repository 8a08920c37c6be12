"""Label tables: read as tables are, brought to the same types, and no row lost without a word."""

from __future__ import annotations

import gzip
import math
from contextlib import suppress
from datetime import date, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from quartet.database import FACTS, Database, TableSchema
from quartet.database.schema import Schema
from quartet.errors import QuartetError, TaskError
from quartet.tasks import SPLITS, Task
from tests.tasks.small import CHURN, DAY, START, growing_shop, small_shop

CUTS = {"val_timestamp": "2023-05-01", "test_timestamp": "2023-07-01"}
WORDS = {
    "name": "small",
    "task_type": "regression",
    "entity_table": "people",
    "entity_col": "id",
    "target_col": "y",
    "time_col": "at",
    **CUTS,
}
DAYS = pa.array([START, START + DAY, START + 2 * DAY], pa.timestamp("ns"))


def people(ids: Any) -> Database:
    return Database.build(
        {"people": pa.table({"id": ids})}, Schema({"people": TableSchema(("id",), settled=FACTS)})
    )


def task_of(database: Database, ids: Any, labels: Any, **changes: Any) -> Task:
    return Task.from_labels(
        database, pa.table({"id": ids, "at": DAYS[: len(labels)], "y": labels}), **WORDS | changes
    )


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".tsv"])
def test_a_label_file_is_read_as_a_table_is(suffix: str, tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "people.csv").write_text("id,age\n007,1\n7,2\n12,3\n")
    text = "id,at,y\n007,2023-01-01,a\n7,2023-01-02,\n12,2023-01-03,b\n012,2023-09-09,a\n".replace(
        ",", "\t" if suffix == ".tsv" else ","
    )
    labels = tmp_path / f"labels{suffix}"
    labels.write_bytes(gzip.compress(text.encode()) if suffix == ".csv.gz" else text.encode())
    database = Database.load(folder, {"tables": {"people": {"pkey": "id", "time_col": None}}})
    task = Task.from_labels(database, labels, **WORDS | {"task_type": "multiclass_classification"})
    assert task.classes == ["a", "b"]
    assert task.seeds("train").node.tolist() == [0, 2]
    with pytest.raises(
        TaskError, match=r"error\[L11\] .* 1 of 1 rows name entities that are not in .* \(012\)"
    ):
        task.seeds("test")


# --- types ----------------------------------------------------------------------------------------

UUIDS = [bytes(15) + bytes([number]) for number in (1, 2, 3)]
KEYS = {
    "dictionary": (["a", "b", "c"], pa.array(["c", "a", "b"]).dictionary_encode()),
    "view": (["a", "b", "c"], pa.array(["c", "a", "b"], pa.string_view())),
    "decimal": ([1, 2, 3], pa.array([Decimal(3), Decimal(1), Decimal(2)], pa.decimal128(38, 0))),
    "uint64": (pa.array([1, 2, 2**64 - 1], pa.uint64()), pa.array([2**64 - 1, 1, 2], pa.uint64())),
    "uuid": (pa.array(UUIDS, pa.uuid()), pa.array([UUIDS[2], *UUIDS[:2]], pa.uuid())),
    "text for numbers": ([1, 2, 3], ["3", "1", "2"]),
    "numbers for text": (["1", "2", "3"], [3, 1, 2]),
}


@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_any_type_find_their_rows(kind: str) -> None:
    ids, asked = KEYS[kind]
    assert task_of(people(ids), asked, [1.0, 2.0, 3.0]).seeds("train").node.tolist() == [2, 0, 1]


LABELS = {
    "decimal": pa.array([Decimal("1.5"), Decimal(2), Decimal(3)]),
    "sum": pa.array([Decimal(1), Decimal(2), Decimal(3)], pa.decimal128(38, 0)),
    "dictionary": pa.array([1, 2, 3]).dictionary_encode(),
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_of_any_number_type(kind: str) -> None:
    target = task_of(people([1, 2, 3]), [1, 2, 3], LABELS[kind]).seeds("train").target
    assert np.asarray(target).tolist() == [float(value) for value in LABELS[kind].to_pylist()]


def test_nan_is_no_class() -> None:
    task = task_of(people([1, 2, 3]), [1, 2, 3], [1.0, math.nan, 2.0], task_type="multiclass_classification")
    assert task.classes == [1.0, 2.0]
    assert [(finding.code, finding.count) for finding in task.findings("train")] == [("L08", 1)]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([1.0, math.inf, -math.inf], 'error[L07] task "small", train: 2 of 3 labels are infinite. '),
        ([1.0, 1e300, -math.inf], 'error[L07] task "small", train: 2 of 3 labels are beyond 1e+37. '),
        (
            [[1], [2], [3]],
            'error[L12] the label table of task "small": column "y" is list<item: int64>. ',
        ),
        (
            DAYS,
            'error[L07] the label table of task "small": labels are timestamp[ns], neither numbers nor text',
        ),
        ([1, None, None], 'error[L08] task "small", train: 2 of 3 rows have no label. '),
    ],
)
def test_labels_that_are_none(labels: Any, message: str) -> None:
    with pytest.raises(QuartetError) as caught:
        task_of(people([1, 2, 3]), [1, 2, 3], labels).seeds("train")
    assert str(caught.value).startswith(message)


ANY_CELLS: list[tuple[list[Any], pa.DataType | None]] = [
    ([1, 2, 3], None),
    (["1", "2", ""], None),
    ([1.5, math.nan, math.inf], pa.float16()),
    ([None, None, None], None),
    ([True, False, None], None),
    ([b"a", b"b", None], pa.binary_view()),
    ([date(2023, 1, 1), None, date(2023, 9, 1)], None),
    ([time(1), time(2), None], None),
    ([timedelta(1), None, timedelta(2)], None),
    ([(1, 2, 3), None, (1, 2, 3)], pa.month_day_nano_interval()),
    ([Decimal(10) ** 30, None, Decimal(1)], pa.decimal128(38, 0)),
    ([["a"], None, []], pa.list_(pa.string_view())),
    ([{"a": 1}, None, {"a": 2}], None),
    ([*UUIDS], pa.uuid()),
]


@pytest.mark.parametrize("task_type", ["regression", "binary_classification", "multiclass_classification"])
def test_columns_of_any_type_are_labels_or_refused_in_words(task_type: str) -> None:
    columns = [pa.array(cells, kind) for cells, kind in ANY_CELLS]
    cases = [(ids, DAYS, labels) for ids in columns for labels in columns]
    cases += [(columns[0], times, columns[0]) for times in columns]
    for ids, times, labels in cases:
        table = pa.table({"id": ids, "at": times, "y": labels})
        for database in (people([1, 2, 3]), people(["1", "2", "3"])):
            with suppress(QuartetError):
                Task.from_labels(database, table, **WORDS | {"task_type": task_type}).seeds("train")


def test_text_that_is_no_number_is_no_key_of_numbers() -> None:
    with pytest.raises(TaskError, match=r"error\[S08\] .*column id is text, people\.id is int64"):
        task_of(people([1, 2, 3]), ["a", "b", "01"], [1, 2, 3]).seeds("train")


# --- times ----------------------------------------------------------------------------------------


def test_the_times_of_a_label_table_may_be_local() -> None:
    database = people([1, 2, 3])
    local = task_of(database, [1, 2, 3], [1, 2, 3], timezone="America/New_York")
    expected = np.array([START, START + DAY, START + 2 * DAY]) + 5 * DAY // 24
    assert local.seeds("train").time.tolist() == expected.tolist()
    known = local.under("rolling", past_labels=True).database["known_labels"].known_at
    assert known.tolist() == [local.spec.known_at(int(time)) for time in expected]
    zoned = pa.table({"id": [1], "at": DAYS[:1].cast(pa.timestamp("ns", "UTC")), "y": [1]})
    assert Task.from_labels(database, zoned, **WORDS, timezone="Asia/Tokyo").seeds("train").time.tolist() == [
        START
    ]


# --- made by SQL ----------------------------------------------------------------------------------


def churn_with(sql: str) -> Task:
    return Task.from_sql(small_shop(), **CHURN | {"sql": sql.format(CHURN["sql"])})


@pytest.mark.parametrize(
    "columns",
    [
        "timestamp, customer, sum(churned) OVER (PARTITION BY customer, timestamp) AS churned",
        "timestamp, customer, churned::DECIMAL(9, 2) AS churned",
        "timestamp AT TIME ZONE 'UTC' AS timestamp, customer, churned::BOOLEAN AS churned",
        "timestamp::TIMESTAMPTZ AS timestamp, customer::ENUM('C00', {names}) AS customer, churned",
    ],
)
def test_sql_may_return_any_number_key_and_zone(columns: str) -> None:
    names = ", ".join(f"'C{number:02d}'" for number in range(1, 40))
    task, plain = churn_with(f"SELECT {columns.replace('{names}', names)} FROM ({{}})"), churn_with("{}")
    for one, other in zip(*(vars(each.seeds("train")).values() for each in (task, plain)), strict=True):
        assert np.array_equal(one, other)


def test_labels_about_nobody_and_labels_of_nothing_are_counted() -> None:
    kept = churn_with("{}").seeds("train")
    task = churn_with(
        "SELECT * FROM ({}) UNION ALL SELECT timestamp, 'Nobody', 1 FROM timestamps "
        "UNION ALL SELECT timestamp, NULL, 1 FROM timestamps "
        "UNION ALL SELECT timestamp, 'Nothing', NULL FROM timestamps"
    )
    assert np.array_equal(task.seeds("train").node, kept.node)
    windows = len(np.unique(kept.time))
    rows = len(kept) + 3 * windows
    assert [(finding.code, finding.count) for finding in task.findings("train")] == [
        ("L08", windows),
        ("L11", 2 * windows),
    ]
    assert [str(finding) for finding in task.findings("train")] == [
        f'warning[L08] task "churn", train: {windows} of {rows} rows have no label and are left out',
        f'warning[L11] task "churn", train: {2 * windows} of {rows - windows} rows name entities that are not in '
        '"customers" (Nobody, None, Nobody) and are left out',
    ]


def test_rows_that_wait_for_their_labels_across_a_cut_off_are_counted() -> None:
    made = Task.from_sql(small_shop(), **CHURN)
    labels = pa.concat_tables([made.label_rows(split) for split in SPLITS])
    words = {word: value for word, value in CHURN.items() if word != "sql"} | CUTS
    task = Task.from_labels(small_shop(), labels, **words)
    (finding,) = (finding for finding in task.check() if finding.code == "L26")
    assert finding.count == labels.num_rows - sum(len(task.seeds(split)) for split in SPLITS) > 0
    with pytest.raises(
        TaskError, match=r"L05\] there are no training labels \([\d,]+ label rows belong to no split"
    ):
        Task.from_labels(small_shop(), labels, **words, known_after="900 days").check()


def test_entities_that_are_new_since_the_test_cut_off_are_left_out_and_counted() -> None:
    task = growing_shop()
    (finding,) = task.findings("test")
    assert finding.code == "T17"
    assert finding.count == task.label_rows("test").num_rows - len(task.seeds("test")) > 0
    assert task.num_new_entities == 0


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("timestamp, customer || '!' AS customer, churned", r"error\[L11\] .* name entities that are not in"),
        (
            "timestamp, customer, CASE WHEN customer < 'C05' THEN churned END AS churned",
            r"error\[L08\] .* no label",
        ),
        (
            "timestamp, len(customer) AS customer, churned",
            r"error\[S08\] .* is int64, customers.customer is text",
        ),
    ],
)
def test_most_labels_must_not_be_lost(columns: str, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        churn_with(f"SELECT {columns} FROM ({{}})").seeds("train")
