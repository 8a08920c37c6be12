"""What people see of a leakcheck: what was tried, how often it differed, and where first."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from quartet.cli.views.database import findings_view
from quartet.drawing import cell, new_grid
from quartet.runs import LeakReport
from quartet.times import show_instant


def leaks_view(report: LeakReport) -> RenderableType:
    experiments = list(dict.fromkeys(experiment for _, experiment in report.outcomes))
    grid = new_grid(
        "With the rows after t ...", "compared at t", *experiments, "differences",
        right=(*experiments, "differences"),
    )  # fmt: skip
    subjects = dict.fromkeys(subject for subject, _ in report.outcomes)
    for subject in sorted(subjects, key=lambda name: name != "labels"):
        tried = [report.outcome(subject, experiment) for experiment in experiments]
        num_different = sum(outcome.different for outcome in tried)
        grid.add_row(
            cell(subject), *(f"{outcome.compared:,}" for outcome in tried),
            cell(f"{num_different:,}", "red" if num_different else "green"),
        )  # fmt: skip
    moments = ", ".join(map(show_instant, report.times))
    told = cell(f"{report.num_seeds:,} seeds at {moments}: {report.num_differences:,} differences.", "bold")
    first = [cell(f"First: {report.first}", "red")] if report.first else []
    return Group(grid, told, *first, Text(), findings_view([*report.findings]))
