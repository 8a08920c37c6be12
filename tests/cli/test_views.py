"""What the terminal shows of a task."""

from __future__ import annotations

import io

from rich.console import Console

from quartet.cli.views.database import task_view
from quartet.graph import TemporalGraph
from quartet.tasks import Task
from tests.tasks.small import CHURN, small_shop
from tests.tasks.test_task import external, rows_of


def shown(task: Task) -> str:
    out = io.StringIO()
    Console(file=out, width=200).print(task_view(task, TemporalGraph.build(task.database), []))
    return out.getvalue()


def test_a_task_is_shown_with_its_splits_and_without_test_labels() -> None:
    task = Task.from_sql(small_shop(), **CHURN)
    text = shown(task)
    for split in ("train", "val", "test"):
        assert f"{len(task.seeds(split)):,}" in text
    assert "(proposed from the data's span)" in text
    assert "looking 10 days ahead" in text
    assert task.vault.openings == []


def test_seeds_before_the_first_row_are_reported() -> None:
    """T11: whoever asks about the time before the data begin has no history to learn from."""
    rows = [(f"C{k:02d}", -5, k % 2) for k in range(40)] + [(f"C{k:02d}", 130, k % 2) for k in range(40)]
    task = external(small_shop(), rows_of(*rows), val_timestamp="2023-05-01", test_timestamp="2023-07-01")
    text = " ".join(shown(task).split())
    assert (
        "warning[T11] 100% of the 40 train seeds have no history: nothing links to them yet. "
        "Fix: ask at later times, or check the links and time columns" in text
    )
