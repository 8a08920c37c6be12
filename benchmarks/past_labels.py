"""What labels that are already known bring: every task with and without them, the table of docs/past-labels.md.

    python -m benchmarks.past_labels [--data FOLDER] [--tasks DATASET/TASK ...] [--models quartet lightgbm] [--seeds 3]
                                     [--set FIELD=VALUE ...] [--runs runs/past-labels] [--table]

Trains each task with several random seeds, with and without `past_labels`, selects on validation, and then opens the
test labels once under each protocol: training is the same for both, and so is all where test has a single time. A run
that is done is not repeated, so the command can be stopped and started again; `--table` only prints what is there. The
first column is the rule that a model must pass: the smoothed mean of an entity's last 12 known labels, those of the
splits and, after the stroke, all that the database tells.

The label of flight-late is the lateness on arrival, in the row of the departure: it counts as known a day later.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.results import kept_in, number, options, print_line, shown_metric, source_of, spread
from quartet.config import Protocol, Recipe, changes_from_text
from quartet.database import Database
from quartet.listener import SILENT
from quartet.machine import use_threads
from quartet.runs import fit
from quartet.tasks import Task

PROTOCOLS: tuple[Protocol, ...] = ("frozen", "rolling")
RULE = "last 12 labels"
OWN = Path(__file__).parent / "tasks"  # tasks that say more than those stored with their database


def main() -> None:
    parser = options(__doc__, Path("runs/past-labels"))
    parser.add_argument("--models", nargs="+", default=["quartet", "lightgbm"])
    asked = parser.parse_args()
    use_threads(asked.threads)
    for name in asked.tasks if not asked.table else ():
        train_task(name, asked)
    print_table(asked)


def train_task(name: str, asked: argparse.Namespace) -> None:
    """Trains and evaluates the runs of a task that are not done yet."""
    source = source_of(name, asked.data)
    if source is None:
        return
    task = task_of(name, source)
    protocols = PROTOCOLS if task.seeds("test").time.max() > task.splits.test else PROTOCOLS[:1]
    for seed, model, past_labels in product(range(asked.seeds), asked.models, (False, True)):
        folder = folder_of(asked.runs, name, model, past_labels, seed)
        if all(kept_in(folder, protocol) for protocol in protocols):
            continue
        changes = {"rng_seed": seed, "past_labels": past_labels} | changes_from_text(asked.changes)
        recipe = Recipe.load(asked.preset, name, model, **changes)
        trained = fit(task, recipe=recipe, runs=folder, listener=SILENT)
        for protocol in protocols:
            trained.evaluate(protocol=protocol, listener=SILENT)
        print(f"{folder}: {[main_value(kept_in(folder, protocol)) for protocol in protocols]}", flush=True)


def task_of(name: str, source: str) -> Task:
    """Returns the task as it is stored, or as we define it where that says too little."""
    own = OWN / f"{name.replace('/', '-')}.yaml"
    task: Task = Database.load(source).task(own if own.is_file() else name.partition("/")[2])
    return task


def arm_name(model: str, past_labels: bool) -> str:
    return f"{model}{' + past labels' if past_labels else ''}"


def folder_of(runs: Path, name: str, model: str, past_labels: bool, seed: int) -> Path:
    arm = f"{model}{'-past-labels' if past_labels else ''}"
    return runs / name.replace("/", "-") / arm / f"seed-{seed}"


def value(evaluation: dict[str, Any], name: str) -> float:
    """Returns the shown metric of one row of an evaluation."""
    metric, _ = shown_metric(evaluation)
    row = next(row for row in evaluation["rows"] if row["name"] == name)
    return float(row["measures"][metric]["value"])


def main_value(evaluation: dict[str, Any] | None) -> float | None:
    return None if evaluation is None else value(evaluation, evaluation["rows"][0]["name"])


def print_table(asked: argparse.Namespace) -> None:
    """Prints a Markdown table: for each task and protocol the rule, and each model without and with past labels."""
    arms = list(product(asked.models, (False, True)))
    print_line("task", "protocol", "metric", RULE, *(arm_name(*arm) for arm in arms), is_head=True)
    for name in asked.tasks:
        rows = {protocol: list(table_cells(asked.runs, name, protocol, arms)) for protocol in PROTOCOLS}
        for protocol in PROTOCOLS if rows["rolling"] else PROTOCOLS[:1]:
            if rows[protocol]:
                print_line(name, protocol if rows["rolling"] else "both", *rows[protocol])


def table_cells(runs: Path, name: str, protocol: Protocol, arms: list[tuple[str, bool]]) -> Iterator[str]:
    evaluations: dict[tuple[str, bool], list[dict[str, Any]]] = {}
    for arm in arms:
        folders = sorted(folder_of(runs, name, *arm, 0).parent.glob("seed-*"))
        evaluations[arm] = [one for folder in folders if (one := kept_in(folder, protocol)) is not None]
    some = [one for arm in arms for one in evaluations[arm][:1]]
    if not some:
        return
    metric, digits = shown_metric(some[0])
    rules = []
    for has_past_labels in (False, True):
        of_kind = [one for arm in arms if arm[1] is has_past_labels for one in evaluations[arm]]
        rules.append(number(value(of_kind[0], RULE) if of_kind else None, digits))
    yield metric
    yield " / ".join(rules)
    for arm in arms:
        values = [value(one, one["rows"][0]["name"]) for one in evaluations[arm]]
        yield spread(values, digits) if values else ""


if __name__ == "__main__":
    main()
