"""What people see of a task: what it asks, its splits, and what looks like a leak."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from quartet.cli.views.database import findings_view
from quartet.drawing import cell, new_grid
from quartet.findings import Finding, warning
from quartet.graph import TemporalGraph
from quartet.tasks import SPLITS, Split, Task, balance
from quartet.times import NEVER, show_instant, show_length

_MOST_CLASSES = 15


def task_view(task: Task, graph: TemporalGraph) -> RenderableType:
    """Returns a task as people read it; the graph tells which seeds have a history."""
    spec = task.spec
    horizon = f", looking {show_length(spec.horizon)} ahead" if spec.horizon else ""
    proposed = " (proposed from the data's span)" if task.splits.is_proposed else ""
    head = cell(task.name, "bold").append(
        f"  {spec.kind}, {spec.type.replace('_', ' ')}{horizon}", style="none"
    )
    cut_offs = f"Validation from {show_instant(task.splits.val)}, test from {show_instant(task.splits.test)}"
    lines = [
        head,
        cell(spec.description or "", "dim"),
        cell(f"Entity: {spec.entity_table}. {cut_offs}{proposed}."),
    ]
    findings = [finding for split in SPLITS for finding in _no_history_findings(task, graph, split)]
    classes: list[RenderableType] = []
    if task.class_counts is not None:
        classes = [Text(), _classes(task.class_counts)]
    return Group(
        *lines, Text(), _splits(task, graph), *classes, Text(), findings_view([*findings, *task.check()])
    )


def _splits(task: Task, graph: TemporalGraph) -> Grid:
    alone = ["no history", *(["no history, frozen"] if not task.num_new_entities else [])]
    columns = ["split", "rows", "times", "prediction times", "label windows end", "labels", *alone]
    grid = new_grid("Splits", *columns, right=("rows", "times", *alone))
    for split in SPLITS:
        seeds, times = task.seeds(split), ("–", "–")
        if len(seeds):
            first, last = int(seeds.time.min()), int(seeds.time.max())
            times = f"{show_instant(first)} to {show_instant(last)}", show_instant(last + task.spec.lag)
        labels = task.vault.balance() if split == "test" else balance(seeds.target)  # type: ignore[arg-type]
        shares = [_no_history(task, graph, split, end) for end in (NEVER, task.splits.test)[: len(alone)]]
        grid.add_row(
            split,
            f"{len(seeds):,}",
            f"{len(np.unique(seeds.time)):,}",
            *times,
            labels,
            *(f"{int(which.sum()):,} ({which.mean():.1%})" if len(which) else "–" for which in shares),
        )
    return grid


def _classes(counts: dict[Any, int]) -> Grid:
    """Returns the classes of training with their counts, the commonest first; of many, the rest together."""
    most = counts if len(counts) <= _MOST_CLASSES + 1 else dict(Counter(counts).most_common(_MOST_CLASSES))
    names = ("labels in train", "share")
    grid = new_grid(f"{len(counts):,} classes", "class", *names, right=names)

    total = sum(counts.values())
    rows = sorted(most.items(), key=lambda each: -each[1])
    rest = total - sum(most.values())
    rows += [(f"{len(counts) - len(most):,} others", rest)] if rest else []
    for name, count in rows:
        grid.add_row(cell(str(name)), f"{count:,}", f"{count / max(1, total):.1%}")
    return grid


def _no_history(task: Task, graph: TemporalGraph, split: Split, end: int) -> NDArray[np.bool_]:
    """Returns which seeds have no visible neighbour in a database that ends at a time."""
    seeds = task.seeds(split)
    return np.asarray(graph.degrees(seeds.node, np.minimum(seeds.time, end)) == 0)


def _no_history_findings(task: Task, graph: TemporalGraph, split: Split) -> list[Finding]:
    alone = _no_history(task, graph, split, NEVER)
    if not len(alone) or alone.mean() <= 0.5:
        return []
    text = (
        f"{alone.mean():.0%} of the {len(alone):,} {split} seeds have no history: nothing links to them yet"
    )
    fix = "ask at later times, or check the links and time columns"
    return [warning("T11", split, text, int(alone.sum()), fix)]
