"""The data in pictures and words: tables, rows over time, splits, what was noticed, and what the leak check tried."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from markupsafe import Markup

from quartet.drawing import Lane, Span, schema_svg, timeline_svg
from quartet.findings import Finding, Level, grouped
from quartet.runs import LeakReport
from quartet.tasks import SPLITS, Task, balance
from quartet.times import NEVER, STATIC, show_instant, show_length

_PIECES, _MOST_LANES = 60, 8
_MOST_PICTURE = 150_000  # letters: a schema of more than about a hundred tables is no picture to look at
# What the leak check compares, for people.
_SUBJECTS = {
    "labels": "labels that were known by then",
    "features": "what had been learned about columns",
    "cells": "cells of rows known then",
    "columns": "counts, means and sums over linked rows",
    "contexts": "rows that were gathered",
}
_NAMES = {"train": "training", "val": "validation", "test": "test"}


def data_part(task: Task, findings: Iterable[Finding], leaks: LeakReport | None) -> dict[str, Any]:
    """Returns the section on the data. Nothing of the labels of test is told here."""
    database, spec, picture = task.full_database, task.spec, schema_svg(task.visible_database)
    splits = []
    for split in SPLITS:
        seeds = task.seeds(split)
        labels = "kept apart" if seeds.target is None else balance(seeds.target)
        first, last = (int(seeds.time.min()), int(seeds.time.max())) if len(seeds) else (0, 0)
        splits.append(
            {
                "name": _NAMES[split],
                "rows": len(seeds),
                "times": len(np.unique(seeds.time)),
                "first": show_instant(first) if len(seeds) else "–",
                "last": show_instant(last) if len(seeds) else "–",
                "ends": show_instant(last + spec.lag) if len(seeds) else "–",
                "labels": labels,
            }
        )
    return {
        "name": database.schema.name,
        "num_tables": len(database.tables),
        "num_rows": database.num_rows,
        "num_links": len(database.relations),
        "span": [show_instant(time) for time in database.span or ()],
        "schema": Markup(picture if len(picture) < _MOST_PICTURE else ""),
        "timeline": _timeline(task),
        "splits": splits,
        "horizon": show_length(spec.horizon) if spec.horizon else "",
        "hidden": [".".join(pair) for pair in spec.hidden_columns],
        "findings": [_told(finding) for finding in grouped(findings)],
        "leaks": None if leaks is None else leaks_part(leaks),
    }


def _told(finding: Finding) -> dict[str, Any]:
    return {
        "is_warning": finding.level is Level.WARNING,
        "code": finding.code,
        "text": finding.message,
        "fix": finding.fix,
        "count": finding.count,
    }


def sentence(text: str) -> str:
    """Returns text that begins with a capital, unless it begins with the name of a table or a column."""
    return f"{text[:1].upper()}{text[1:]}" if text.partition(" ")[0].isalpha() else text


def _timeline(task: Task) -> Markup:
    """Draws the rows of the largest tables over time above the splits, on one axis."""
    span, spans = task.full_database.span, []
    for split in SPLITS:
        seeds = task.seeds(split)
        if len(seeds):
            first, last = int(seeds.time.min()), int(seeds.time.max())
            about = f"{len(seeds):,} rows at {len(np.unique(seeds.time)):,} times"
            spans.append(Span(_NAMES[split], about, first, last, last + task.spec.lag))
    ends = [*(span or ()), *(time for each in spans for time in (each.first, each.ends))]
    low, high = (min(ends), max(ends)) if ends else (0, 1)
    timed = [table for table in task.full_database.tables.values() if table.is_timed]
    lanes = []
    for table in sorted(timed, key=lambda table: -table.num_rows)[:_MOST_LANES]:
        when = table.known_at[(table.known_at != STATIC) & (table.known_at != NEVER)]
        counts, _ = np.histogram(when.astype(np.float64), _PIECES, (float(low), float(high)))
        lanes.append(Lane(table.name, f"{table.num_rows:,} rows", tuple(map(int, counts))))
    return Markup(timeline_svg(low, high, lanes, spans, "Rows over time, and the splits"))


def leaks_part(leaks: LeakReport) -> dict[str, Any]:
    """Returns what was tried: how often each thing was compared when rows after a time were changed."""
    subjects = dict.fromkeys(subject for subject, _ in leaks.outcomes)
    experiments = list(dict.fromkeys(experiment for _, experiment in leaks.outcomes))
    rows = []
    for subject in sorted(subjects, key=lambda name: name != "labels"):
        tried = [leaks.outcome(subject, experiment) for experiment in experiments]
        words = _SUBJECTS.get(subject, "predictions" if subject.startswith("predictions of") else subject)
        rows.append((words, [each.compared for each in tried], sum(each.different for each in tried)))
    return {
        "experiments": experiments,
        "rows": rows,
        "times": [show_instant(time) for time in leaks.times],
        "num_seeds": leaks.num_seeds,
        "num_differences": leaks.num_differences,
        "num_compared": sum(outcome.compared for outcome in leaks.outcomes.values()),
        "first": leaks.first,
    }
