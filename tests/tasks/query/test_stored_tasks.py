"""Tasks of the shared datasets and of the demo, said as queries: labels equal to the stored ones, row for row."""

from __future__ import annotations

from functools import cache
from typing import Any

import pyarrow.compute as pc
import pytest

from quartet.database import Database
from quartet.demo import demo_folder
from quartet.tasks import SPLITS, Split, Task
from quartet.tasks.labels import has_label
from quartet.times import DAY, to_utc
from tests.shared import shared_data
from tests.tasks.query.cases import SAID, Said


@cache
def opened(source: str) -> Database:
    return Database.load(demo_folder() if source == "demo" else shared_data(source))


def rows(task: Task, split: Split, after: int) -> list[tuple[Any, ...]]:
    """The label rows of a split that have a label, in order."""
    columns, table = task.label_columns, task.label_rows(split)
    table = table.filter(has_label(table[columns.target]))
    table = table.filter(pc.is_valid(table[columns.entity]))
    times = to_utc(table[columns.time], "labels").ns
    labels = [sorted(y) if isinstance(y, list) else y for y in table[columns.target].to_pylist()]
    keys = [int(key) for key in table[columns.entity].to_pylist()]
    found = zip(times.tolist(), keys, labels, strict=True)
    return sorted(row for row in found if row[0] >= after)


@pytest.mark.parametrize("said", SAID, ids=lambda said: f"{said.source} {said.name}")
def test_a_query_gives_the_stored_labels(said: Said) -> None:
    database = opened(said.source)
    stored = Task.load(database, said.name)
    task = database.query(said.query, num_eval_timestamps=stored.spec.num_eval_times)
    assert (task.spec.type, task.spec.kind) == (stored.spec.type, stored.spec.kind)
    assert task.spec.horizon == stored.spec.horizon
    assert task.spec.item_table == stored.spec.item_table
    assert database.span
    after = database.span[0] + said.first_days * DAY if said.first_days else -(2**62)
    for split in SPLITS:
        ours, theirs = rows(task, split, after), rows(stored, split, after)
        assert [row[:2] for row in ours] == [row[:2] for row in theirs], split
        if task.spec.type == "regression":
            assert [row[2] for row in ours] == pytest.approx([row[2] for row in theirs], rel=1e-9)
        else:
            assert [row[2] for row in ours] == [row[2] for row in theirs]
        assert theirs
