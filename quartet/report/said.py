"""What the model said before, and what came: the record of a run, once it was judged."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from quartet.report.answer import METRICS
from quartet.runs import Run, kept_judgement_of_said


def said_part(run: Run) -> dict[str, Any] | None:
    """Returns what the page tells of predictions that were kept and judged; None where there are none."""
    told = kept_judgement_of_said(run)
    if told is None:
        return None
    first = told.rows[0][1]
    return {
        "first": told.first,
        "last": told.last,
        "lines": told.lines(),
        "metrics": [METRICS.get(name, (name, ""))[0] for name in first],
        "rows": [(name, [own[metric] for metric in first]) for name, own in told.rows],
        "metric": METRICS.get(next(iter(first)), (next(iter(first)), ""))[0],
        "times": [asdict(one) for one in told.times],
        "drift": [asdict(one) for one in told.drift],
    }
