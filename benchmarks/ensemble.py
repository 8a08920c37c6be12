"""What several models bring together: the second table of docs/past-labels.md.

    python -m benchmarks.ensemble [--data FOLDER] [--tasks DATASET/TASK ...] [--runs runs/past-labels]

Takes the runs that `python -m benchmarks.past_labels` has kept, and trains nothing. A cell has the mean of the values
of single runs and, after the arrow, the value of the mean of their scores. Which to use is for validation to decide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

import numpy as np

from benchmarks.past_labels import PROTOCOLS, arm_name, folder_of, task_of
from benchmarks.results import options, print_line, shown_metric, source_of
from quartet.config import Protocol
from quartet.listener import SILENT
from quartet.machine import use_threads
from quartet.runs import Ensemble, Evaluation
from quartet.tasks import Split, Task

ARMS = list(product(("quartet", "lightgbm"), (False, True)))
VIEWS: tuple[tuple[Split, Protocol], ...] = (
    ("val", "frozen"),
    *(("test", protocol) for protocol in PROTOCOLS),
)


def main() -> None:
    asked = options(__doc__, Path("runs/past-labels")).parse_args()
    use_threads(asked.threads)
    print_line(
        "task", "rows", "metric", *(arm_name(*arm) for arm in ARMS), "with past labels", "all", is_head=True
    )
    for name in asked.tasks:
        source = source_of(name, asked.data)
        runs = {
            arm: sorted(folder_of(asked.runs, name, *arm, 0).parent.glob("seed-*/latest")) for arm in ARMS
        }
        if source is not None and all(runs.values()):
            print_task(name, task_of(name, source), runs)


def print_task(name: str, task: Task, runs: Mapping[tuple[str, bool], Sequence[Path]]) -> None:
    """Prints a line for validation and for test under each protocol."""
    with_past_labels = [run for (_, has_past_labels), some in runs.items() if has_past_labels for run in some]
    groups = [*runs.values(), with_past_labels, [run for some in runs.values() for run in some]]
    ensembles = [Ensemble(*group) for group in groups]
    for split, protocol in VIEWS:
        evaluations = [
            ensemble.evaluate(task, split=split, protocol=protocol, rules=False, listener=SILENT)
            for ensemble in ensembles
        ]
        metric, digits = shown_metric(evaluations[0].to_dict() | {"type": task.spec.type})
        shown = "validation" if split == "val" else f"test, {protocol}"
        print_line(name, shown, metric, *(cell(one, metric, digits) for one in evaluations))


def cell(evaluation: Evaluation, metric: str, digits: int) -> str:
    together, *single = (row.measures[metric].value or float("nan") for row in evaluation.rows)
    return f"{np.mean(single or [together]):.{digits}f} → {together:.{digits}f}"


if __name__ == "__main__":
    main()
