"""What people see of a predictive query: how it was read, why, and the labels that it gives."""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc
from rich.console import Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from quartet.cli.views.database import findings_view
from quartet.drawing import cell, new_grid
from quartet.evaluation import main_metric
from quartet.tasks import SPLITS, Reading, Task, balance, label_times
from quartet.times import show_instant, show_length


def query_view(reading: Reading, task: Task, windows: int | None = None) -> RenderableType:
    """Returns the reading of a query in words, and its labels in each split; `windows` were asked for, if given."""
    rows = Grid.grid(padding=(0, 2))
    for what, why in _facts(reading, task, windows):
        rows.add_row(cell(what, "dim"), cell(why))
    findings = findings_view([*task.check()])
    return Group(cell(task.name, "bold"), rows, Text(), _labels(task), Text(), findings)


def _facts(reading: Reading, task: Task, windows: int | None) -> list[tuple[str, str]]:
    spec, told = task.spec, dict(reading.facts)
    paths = [fact for fact in reading.facts if fact[0] == "path"]
    ahead = (
        f"in the {show_length(spec.horizon)} after t" if spec.horizon else "of the row itself, at its time"
    )
    by = f"; measured by {main_metric(spec.type)}"
    facts = [
        ("who", told["asked"]),
        ("what", f"{reading.query.target.span}, called {spec.target_col}"),
        ("when", f"{ahead}, from rows known at t" + (f" ({told['horizon']})" if "horizon" in told else "")),
        ("type", told["type"] + by),
        *([("items", told["items"])] if "items" in told else []),
        *paths,
        *[fact for fact in reading.facts if fact[0] == "hidden"],
    ]
    val, test = show_instant(task.splits.val), show_instant(task.splits.test)
    why = "proposed: the last windows that the data have room for"
    if spec.kind != "forecast":
        why = "proposed: a tenth of the time of its rows for each"
    if not task.splits.is_proposed:
        why = "given with the query" if spec.val_timestamp else "given with the database"
    facts.append(("splits", f"validation from {val}, test from {test} ({why})"))
    if spec.kind == "forecast":
        why = (
            "as many as a test of 1,000 rows needs, at least 3, where a tenth of the data has room"
            if windows is None
            else "as given"
        )
        facts.append(("windows", f"{spec.num_eval_times} in validation and in test ({why})"))
    if reading.selected:
        facts.append(("answers", f"for {reading.query.entity.span} {reading.query.selected_text} alone"))
    return facts


def _labels(task: Task) -> Grid:
    """Returns the rows of each split: those who are asked about, and those who have a label."""
    columns = ["split", "prediction times", "asked about", "left out", "labels"]
    grid = new_grid("Labels", *columns, right=("asked about", "left out"))
    for split in SPLITS:
        asked, seeds = task.label_rows(split), task.seeds(split)
        times = np.unique(label_times(pc.drop_null(asked[task.label_columns.time]), task.name))
        when = "–"
        if len(times):
            span = f"{show_instant(int(times[0]))} to {show_instant(int(times[-1]))}"
            when = f"{len(times):,}: {span}" if len(times) > 1 else show_instant(int(times[0]))
        labels = task.vault.balance() if split == "test" else balance(seeds.target)  # type: ignore[arg-type]
        grid.add_row(split, when, f"{asked.num_rows:,}", f"{asked.num_rows - len(seeds):,}", labels)
    return grid
