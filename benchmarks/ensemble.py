"""What it brings to ask several runs together: the second table of docs/history.md.

    python -m benchmarks.ensemble [--data FOLDER] [--tasks DATASET/TASK ...] [--runs runs/history]

Takes the runs that `python -m benchmarks.history` has kept, and trains nothing. A cell has the mean of the values of
single runs and, after the arrow, the value of the mean of their scores. Which to use is for validation to say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.history import PROTOCOLS, arm_name, folder_of, task_of
from benchmarks.results import options, shown_metric, source_of
from quartet.config import Protocol
from quartet.machine import use_threads
from quartet.runs import Evaluation, Run, evaluate_runs
from quartet.tasks import Split, Task

ARMS = [(model, history) for model in ("quartet", "lightgbm") for history in (False, True)]
VIEWS: tuple[tuple[Split, Protocol], ...] = (
    ("val", "frozen"),
    *(("test", protocol) for protocol in PROTOCOLS),
)


def main() -> None:
    asked = options(__doc__, Path("runs/history")).parse_args()
    use_threads(asked.threads)
    heads = ["task", "rows", "metric", *(arm_name(*arm) for arm in ARMS), "with history", "all"]
    print("| " + " | ".join(heads) + " |\n|" + "---|" * len(heads))
    for name in asked.tasks:
        source = source_of(name, asked.data)
        runs = {arm: kept_runs(asked.runs, name, *arm) for arm in ARMS}
        if source is not None and all(runs.values()):
            print_task(name, task_of(name, source), runs)


def kept_runs(folder: Path, name: str, model: str, history: bool) -> list[Run]:
    """The runs of a task that are there, one for each random seed."""
    arm = folder_of(folder, name, model, history, 0).parent
    return [Run.open(path) for path in sorted(arm.glob("seed-*/latest"))]


def print_task(name: str, task: Task, runs: Mapping[tuple[str, bool], Sequence[Run]]) -> None:
    """A line for validation and for test under each protocol."""
    groups = [
        *runs.values(),
        [run for (_, history), some in runs.items() if history for run in some],
        [run for some in runs.values() for run in some],
    ]
    for split, protocol in VIEWS:
        found = [evaluate_runs(group, task, split, protocol, with_rules=False) for group in groups]
        metric, digits = shown_metric(found[0].to_dict() | {"type": task.spec.type})
        shown = "validation" if split == "val" else f"test, {protocol}"
        cells = [cell(one, len(group), metric, digits) for one, group in zip(found, groups, strict=True)]
        print("| " + " | ".join([name, shown, metric, *cells]) + " |", flush=True)


def cell(found: Evaluation, num_runs: int, metric: str, digits: int) -> str:
    together, *single = (row.measures[metric].value or float("nan") for row in found.rows[: num_runs + 1])
    return f"{np.mean(single):.{digits}f} → {together:.{digits}f}"


if __name__ == "__main__":
    main()
