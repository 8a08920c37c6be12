"""People without a past, and tasks about them from labels on days of 2024."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from quartet.database import FACTS, Database, TableSchema
from quartet.database.schema import Schema
from quartet.tasks import Seeds, Task
from tests.shop import day

NAMES = ("ann", "bob", "cleo", "dan")
VAL, TEST = 60, 80  # days
Label = tuple[str, int, Any]  # who, day, target

# The drawing of `test_rules.py`: labels of a task with a horizon of 10 days.
DRAWN: list[Label] = [("ann", 10 * place, y) for place, y in enumerate([1, 1, 0, 1, 0, 0, 1, 1])]
DRAWN += [("bob", 20, 1), ("bob", 60, 0), ("bob", 70, 0), ("cleo", 60, 1)]


def people() -> Database:
    return Database.build(
        {"people": pa.table({"name": NAMES})}, Schema({"people": TableSchema(("name",), settled=FACTS)})
    )


def label_task(
    labels: Iterable[Label], task_type: str = "binary_classification", horizon_days: int = 10
) -> Task:
    """A task from labels; validation begins on day 60, test on day 80."""
    who, days, targets = zip(*labels, strict=True)
    times = pa.array([day(number) for number in days], pa.timestamp("ns"))
    horizon = {"timedelta": f"{horizon_days} days"} if horizon_days else {}
    return Task.from_labels(
        people(),
        pa.table({"name": who, "at": times, "y": targets}),
        name="small",
        task_type=task_type,
        entity_table="people",
        entity_col="name",
        time_col="at",
        target_col="y",
        val_timestamp="2024-03-01",
        test_timestamp="2024-03-21",
        **horizon,
    )


def asked(*pairs: tuple[str, int]) -> Seeds:
    """Seeds (who, day)."""
    nodes = np.array([NAMES.index(name) for name, _ in pairs], dtype=np.int64)
    return Seeds(nodes, np.array([day(number) for _, number in pairs], dtype=np.int64), None)


def labelled(*labels: Label) -> Seeds:
    """The same with targets."""
    seeds = asked(*[(name, number) for name, number, _ in labels])
    return Seeds(seeds.node, seeds.time, np.array([target for *_, target in labels]))
