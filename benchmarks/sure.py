"""How often intervals and sets hold that should hold in 90 % of cases, and what leaving out the least sure brings.

    python -m benchmarks.sure [--data FOLDER] [--tasks DATASET/TASK ...] [--coverage 0.9] [--abstain 0.1]
                              [--time-limit 1m] [--threads 1] [--seeds 0 1 2] [--out runs/sure] [--table]

Trains `auto` on each task and evaluates it on test, rolling: overall, by test window and, for comparison, with what
validation alone tells (`frozen limits`: the same scores, but no label of test ever counts). Tables show the mean of
the random seeds; `benchmarks/repeated.py` tells what becomes of the runs.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.past_labels import task_of
from benchmarks.repeated import keep, lines_of, options, spread
from benchmarks.results import print_line, source_of
from quartet.listener import SILENT
from quartet.runs import Judged, fit
from quartet.runs.sure import judge, say, sures_of

TASKS = (
    "demo/airport-delay", "rel-f1/driver-position", "rel-f1/results-position", "rel-f1/qualifying-position",
    "rel-flights/plane-departures", "rel-travel/post-upvote", "demo/plane-idle", "demo/airport-late",
    "rel-f1/driver-top3", "rel-f1/driver-dnf",
)  # fmt: skip
HEAD = (
    "task",
    "rows",
    "random seeds",
    "real coverage",
    "with validation alone",
    "width or classes",
    "by window",
    "all",
    "the rest",
)


def main() -> None:
    parser = options(__doc__, Path("runs/sure"), TASKS)
    parser.add_argument("--coverage", type=float, default=0.9)
    parser.add_argument("--abstain", type=float, default=0.1)
    asked = parser.parse_args()
    what = {"coverage": asked.coverage, "abstain": asked.abstain, "limit": asked.time_limit}
    for seed in asked.seeds if not asked.table else ():
        for name in asked.tasks:
            about = {"task": name, "seed": seed} | what
            if not any(about.items() <= line.items() for line in lines_of(asked.out)):
                measure(name, about, asked)
    print(f"nominal coverage {asked.coverage:.0%}; the rest is without the least sure {asked.abstain:.0%}\n")
    print_line(*HEAD, is_head=True)
    for name in asked.tasks:
        runs = [line for line in lines_of(asked.out) if {"task": name, **what}.items() <= line.items()]
        if runs := [line for line in runs if line["seed"] in asked.seeds]:
            print_line(*shown(name, runs))


def measure(name: str, about: dict[str, Any], asked: argparse.Namespace) -> None:
    """Trains and judges a task with one random seed, and writes what came out; nothing where its data are absent."""
    source = source_of(name, asked.data)
    if source is None:
        return
    task = task_of(name, source)
    with tempfile.TemporaryDirectory() as runs:
        model = fit(
            task, "auto", runs=runs, listener=SILENT, threads=asked.threads, rng_seed=about["seed"],
            time_limit=asked.time_limit, protocol="rolling",
        )  # fmt: skip
        evaluation = model.evaluate(
            task,
            protocol="rolling",
            rules=False,
            coverage=asked.coverage,
            abstain=asked.abstain,
            listener=SILENT,
        )
        alone = with_validation_alone(model, task, asked.coverage)
    sure = evaluation.sure
    assert sure is not None
    rest = next(each for each in sure.rests if abs(each.share - asked.abstain) < 1e-9)
    keep(
        asked.out,
        about
        | {
            "rows": evaluation.num_rows, "real": sure.coverage.value, "interval": str(sure.coverage),
            "alone": alone.coverage.value, "width": sure.width, "all": dict(sure.rests[0].values),
            "rest": dict(rest.values), "windows": [window.coverage for window in sure.windows],
        },
    )  # fmt: skip


def shown(name: str, runs: Sequence[dict[str, Any]]) -> list[str]:
    """Returns the line of a task: means of its runs; windows are those of all of them."""
    windows = " ".join(
        f"{statistics.mean(each):.0%}" for each in zip(*(run["windows"] for run in runs), strict=True)
    )
    metrics = [
        ", ".join(
            f"{metric} {spread([run[what][metric] for run in runs])}"
            for metric in runs[0][what]
            if runs[0][what][metric]
        )
        for what in ("all", "rest")
    ]
    figures = [spread([run[what] for run in runs]) for what in ("real", "alone")]
    width = f"{statistics.mean(run['width'] for run in runs):.4g}"
    seeds = " ".join(str(run["seed"]) for run in runs)
    return [name, f"{runs[0]['rows']:,}", seeds, *figures, width, windows, *metrics]


def with_validation_alone(model, task, coverage: float) -> Judged:  # type: ignore[no-untyped-def]
    """Returns how often what is said holds if no label of test ever counts, with the scores that the run kept."""
    (checkpoint, run), seeds = model.members[0], task.seeds("test")
    scores, hints = run.kept_scores("test", task), checkpoint.hints(run.kept_members("test"))
    target = np.asarray(task.vault.open("sure"))
    said = say([checkpoint], sures_of([checkpoint], True), [scores], [hints], seeds.time, coverage)
    return judge(task.spec.type, said, target, scores, seeds.time, seeds.node)


if __name__ == "__main__":
    main()
