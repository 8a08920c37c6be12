"""What the labels that are already known bring: every task with and without history, the table of docs/history.md.

    python -m benchmarks.history [--data FOLDER] [--tasks DATASET/TASK ...] [--models quartet lightgbm] [--seeds 3]
                                 [--set FIELD=VALUE ...] [--runs runs/history] [--table]

Trains each task with several random seeds, with and without `history`, selects on validation, and then opens the test
labels once under each protocol: training is the same for both, and so is all where test has a single time. A run that
is done is not repeated, so the command can be stopped and started again; `--table` only prints what is there. The
first column is the rule that a model must pass: the smoothed mean of an entity's last 12 known labels, those of the
splits and, after the stroke, all that the database tells.

The label of flight-late is the lateness on arrival, in the row of the departure: it counts as known a day later.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.results import kept_in, number, options, shown_metric, source_of, spread
from quartet.config import Protocol, Recipe, changes_from_text
from quartet.database import Database
from quartet.machine import use_threads
from quartet.runs import fit, keep_evaluation
from quartet.runs.evaluate import evaluate_run
from quartet.tasks import Task

PROTOCOLS: tuple[Protocol, ...] = ("frozen", "rolling")
RULE = "last 12 labels"
OWN = Path(__file__).parent / "tasks"  # tasks that say more than those stored with their database


def main() -> None:
    parser = options(__doc__, Path("runs/history"))
    parser.add_argument("--models", nargs="+", default=["quartet", "lightgbm"])
    asked = parser.parse_args()
    use_threads(asked.threads)
    for name in asked.tasks if not asked.table else ():
        train_task(name, asked)
    print_table(asked)


def train_task(name: str, asked: argparse.Namespace) -> None:
    """All runs of a task that are not done yet."""
    source = source_of(name, asked.data)
    if source is None:
        return
    task = task_of(name, source)
    protocols = PROTOCOLS if task.seeds("test").time.max() > task.splits.test else PROTOCOLS[:1]
    for seed in range(asked.seeds):
        for model in asked.models:
            for history in (False, True):
                folder = folder_of(asked.runs, name, model, history, seed)
                if all(kept_in(folder, protocol) for protocol in protocols):
                    continue
                changes = {"rng_seed": seed, "history": history} | changes_from_text(asked.changes)
                run = fit(task, Recipe.load(asked.preset, name, model, **changes), folder)
                for protocol in protocols:
                    keep_evaluation(run, evaluate_run(run, task, protocol=protocol))
                print(
                    f"{folder}: {[main_value(kept_in(folder, protocol)) for protocol in protocols]}",
                    flush=True,
                )


def task_of(name: str, source: str) -> Task:
    """The task as it is stored, or as we say it where that says too little."""
    own = OWN / f"{name.replace('/', '-')}.yaml"
    return Task.load(Database.load(source), own if own.is_file() else name.partition("/")[2])


def arm_name(model: str, history: bool) -> str:
    return f"{model}{' + history' if history else ''}"


def folder_of(runs: Path, name: str, model: str, history: bool, seed: int) -> Path:
    return runs / name.replace("/", "-") / f"{model}{'-history' if history else ''}" / f"seed-{seed}"


def value(found: dict[str, Any], name: str) -> float:
    """The shown metric of one row of an evaluation."""
    metric, _ = shown_metric(found)
    row = next(row for row in found["rows"] if row["name"] == name)
    return float(row["measures"][metric]["value"])


def main_value(found: dict[str, Any] | None) -> float | None:
    return None if found is None else value(found, found["rows"][0]["name"])


def print_table(asked: argparse.Namespace) -> None:
    """A Markdown table: for each task and protocol the rule, and each model without and with history."""
    arms = [(model, history) for model in asked.models for history in (False, True)]
    names = [arm_name(*arm) for arm in arms]
    heads = ["task", "protocol", "metric", RULE, *names]
    print("| " + " | ".join(heads) + " |\n|" + "---|" * len(heads))
    for name in asked.tasks:
        rows = {protocol: list(table_cells(asked.runs, name, protocol, arms)) for protocol in PROTOCOLS}
        for protocol in PROTOCOLS if rows["rolling"] else PROTOCOLS[:1]:
            shown = protocol if rows["rolling"] else "both"
            if rows[protocol]:
                print("| " + " | ".join([name, shown, *rows[protocol]]) + " |")


def table_cells(runs: Path, name: str, protocol: Protocol, arms: list[tuple[str, bool]]) -> Iterator[str]:
    found = {arm: of_arm(runs, name, protocol, *arm) for arm in arms}
    some = [one for arm in arms for one in found[arm][:1]]
    if not some:
        return
    metric, digits = shown_metric(some[0])
    rules = [next((one for arm in arms if arm[1] is h for one in found[arm]), None) for h in (False, True)]
    yield metric
    yield " / ".join(number(None if one is None else value(one, RULE), digits) for one in rules)
    for arm in arms:
        values = [value(one, one["rows"][0]["name"]) for one in found[arm]]
        yield spread(values, digits) if values else ""


def of_arm(runs: Path, name: str, protocol: Protocol, model: str, history: bool) -> list[dict[str, Any]]:
    folders = folder_of(runs, name, model, history, 0).parent.glob("seed-*")
    found = [kept_in(folder, protocol) for folder in sorted(folders)]
    return [one for one in found if one is not None]


if __name__ == "__main__":
    main()
