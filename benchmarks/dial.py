"""What the dial brings: `--budget` beside the default with the same time limit, on validation and test.

    python -m benchmarks.dial [--data FOLDER] [--tasks DATASET/TASK ...] [--budget 60s] [--limit 60s]
                              [--threads 1] [--seeds 1] [--runs runs/dial] [--table]

A run that is done is not repeated, so the command can be stopped and started again; `--table` prints what is there.
Trials and trainings are limited by the clock: on a busy machine both see less.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks.past_labels import task_of
from benchmarks.results import SHARED, print_line, source_of
from quartet.evaluation import main_metric
from quartet.listener import SILENT
from quartet.runs import TrainedModel, fit, load
from quartet.tasks import Task

TASKS = ("demo/airport-late", "demo/plane-idle", "rel-f1/driver-dnf")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, default=SHARED)
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    parser.add_argument("--budget", default="60s")
    parser.add_argument("--limit", default="60s")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--runs", type=Path, default=Path("runs/dial"))
    parser.add_argument("--table", action="store_true")
    asked = parser.parse_args()
    print_line(
        "task", "metric", "default, val", "dial, val", "default, test", "dial, test", "chosen", is_head=True
    )
    for name in asked.tasks:
        source = source_of(name, asked.data)
        for seed in range(asked.seeds if source else 0):
            print_seed(name, str(source), seed, asked)


def print_seed(name: str, source: str, seed: int, asked: argparse.Namespace) -> None:
    """Prints the line of a task and a random seed, trained now if it was not before."""
    home = asked.runs / name.replace("/", "-") / f"seed-{seed}"
    arms: dict[str, dict[str, Any]] = {
        "default": {"time_limit": asked.limit},
        "dial": {"budget": asked.budget},
    }
    if asked.table and not all((home / arm / "latest").exists() for arm in arms):
        return
    task = task_of(name, source)
    models = {}
    for arm, limits in arms.items():
        done = home / arm / "latest"
        models[arm] = load(done) if done.exists() else fit(
            task, "auto", runs=home / arm, listener=SILENT, threads=asked.threads, rng_seed=seed,
            protocol="rolling", **limits,
        )  # fmt: skip
    told = json.loads((models["dial"].folder / "dial.json").read_text(encoding="utf-8"))
    figures = [f"{model.validation:.4f}" for model in models.values()]
    figures += [on_test(model, task) for model in models.values()]
    print_line(name, main_metric(task.spec.type), *figures, told["chosen"])


def on_test(model: TrainedModel, task: Task) -> str:
    found = model.evaluate(task, protocol="rolling", rules=False, listener=SILENT)
    return str(next(iter(found.rows[0].measures.values())))


if __name__ == "__main__":
    main()
