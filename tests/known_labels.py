"""The table of known labels as a list, and the labels of CHURN counted again in Python."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from quartet.database import Database
from tests.tasks.small import DAY

WINDOW = 10 * DAY  # of CHURN
Known = tuple[Any, int, Any]  # whose, known when, the label


def known(database: Database) -> list[Known]:
    """The rows of `known_labels`, in order."""
    data = database["known_labels"].data
    columns = (data["entity"].to_pylist(), data["known_at"].cast(pa.int64()).to_pylist(), data["label"])
    return sorted((who, at, label.as_py()) for who, at, label in zip(*columns, strict=True))


def counted(shop: Database, times: Iterable[int]) -> list[Known]:
    """The labels of CHURN, counted again in Python for every customer and time."""
    bought: dict[str, list[int]] = {key: [] for key in shop["customers"].data["customer"].to_pylist()}
    orders = shop["orders"]
    for key, time in zip(orders.data["customer"].to_pylist(), orders.known_at.tolist(), strict=True):
        bought[key].append(time)
    return sorted(
        (key, time + WINDOW, int(not any(time < t <= time + WINDOW for t in theirs)))
        for time in times
        for key, theirs in bought.items()
        if any(time - 30 * DAY < t <= time for t in theirs)
    )
