"""What the dial brings: `--budget` beside the default with twice the time, on validation and test.

    python -m benchmarks.dial [--data FOLDER] [--tasks DATASET/TASK ...] [--budget 60s] [--limit 120s] [--cpu]
                              [--arms default dial] [--threads 1] [--seeds 1] [--runs runs/dial] [--table]
                              [--lines FILE]

A run that is done is not repeated, so the command can be stopped and started again; `--table` prints what is there.
The last column is the difference of the two on test, in deviations over resampled entities or times: from -1 on the
dial is as good. Trials and trainings are limited by the clock; with `--cpu` by that of this process, to which other
work on the machine makes no difference. Neither arm gets anything that the other, or an earlier process, has made.
`--lines` adds each line to a file of JSON lines, too.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from benchmarks.past_labels import task_of
from benchmarks.results import SHARED, TASKS, print_line, source_of
from quartet.evaluation import compared, main_metric
from quartet.listener import SILENT
from quartet.runs import Run, TrainedModel, fit, load
from quartet.tasks import Task

ARMS = ("default", "dial")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, default=SHARED)
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    parser.add_argument("--budget", default="60s")
    parser.add_argument("--limit", default="120s")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=ARMS)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--runs", type=Path, default=Path("runs/dial"))
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--lines", type=Path)
    asked = parser.parse_args()
    if asked.cpu:
        time.perf_counter = time.process_time
    os.environ["QUARTET_CACHE"] = "off"
    heads = ("default, val", "dial, val", "default, test", "dial, test", "chosen", "deviations")
    print_line("task", "metric", *heads, is_head=True)
    for name in asked.tasks:
        source = source_of(name, asked.data)
        for seed in range(asked.seeds if source else 0):
            print_seed(name, str(source), seed, asked)


def print_seed(name: str, source: str, seed: int, asked: argparse.Namespace) -> None:
    """Prints the line of a task and a random seed, trained now if it was not before."""
    home = asked.runs / name.replace("/", "-") / f"seed-{seed}"
    done = {arm: home / arm / "latest" for arm in ARMS}
    limits: dict[str, dict[str, Any]] = {
        "default": {"time_limit": asked.limit}, "dial": {"budget": asked.budget},
    }  # fmt: skip
    for arm in () if asked.table else asked.arms:
        if not is_done(done[arm]):
            fit(
                task_of(name, source), "auto", runs=home / arm, listener=SILENT, threads=asked.threads, rng_seed=seed,
                protocol="rolling", **limits[arm],
            )  # fmt: skip
    if not all(is_done(folder) for folder in done.values()):
        return
    task = task_of(name, source)
    models = {arm: load(folder) for arm, folder in done.items()}
    told = json.loads((models["dial"].folder / "dial.json").read_text(encoding="utf-8"))
    figures = [f"{model.validation:.4f}" for model in models.values()]
    figures += [on_test(model, task) for model in models.values()]
    cells = (name, main_metric(task.spec.type), *figures, told["chosen"], f"{apart(task, models):+.1f}")
    print_line(*cells)
    if asked.lines:
        line = {
            "task": name,
            "rng_seed": seed,
            "cells": cells[1:],
            "why": told["why"],
            "tried": told["seconds"],
        }
        with asked.lines.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def is_done(folder: Path) -> bool:
    return folder.exists() and Run.open(folder).is_done


def on_test(model: TrainedModel, task: Task) -> str:
    found = model.evaluate(task, protocol="rolling", rules=False, listener=SILENT)
    return str(next(iter(found.rows[0].measures.values())))


def apart(task: Task, models: dict[str, TrainedModel]) -> float:
    """Returns by how many deviations the dial is better on test than the default."""
    rolling = task.under("rolling")
    seeds, target = rolling.seeds("test"), np.asarray(task.vault.open("benchmark of the dial"))
    scores = [
        pq.read_table(model.folder / "predictions" / "test.parquet")["score"].to_numpy()
        for model in models.values()
    ]
    value, noise = compared(task.spec.type, target, (seeds.node, seeds.time), scores)
    return float((value[1] - value[0]) / max(noise.max(), 1e-12))


if __name__ == "__main__":
    main()
