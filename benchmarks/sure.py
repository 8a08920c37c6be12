"""How often intervals and sets hold that should hold in 90 % of cases, and what leaving out the least sure brings.

    python -m benchmarks.sure [--data FOLDER] [--tasks DATASET/TASK ...] [--coverage 0.9] [--abstain 0.1]
                              [--time-limit 1m] [--threads 1] [--seed 0] [--runs runs/sure] [--table]

Trains `auto` on each task and evaluates it on test, rolling: overall, by test window and, for comparison, with what
validation alone tells (`frozen limits`: the same scores, but no label of test ever counts). A run that is done is not
repeated, so the command can be stopped and started again; `--table` only prints what is there.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from benchmarks.past_labels import task_of
from benchmarks.results import SHARED, print_line, source_of
from quartet.listener import SILENT
from quartet.runs import Judged, fit, load
from quartet.runs.sure import judge, say, sures_of

TASKS = (
    "demo/airport-delay", "rel-f1/driver-position", "rel-f1/results-position", "rel-f1/qualifying-position",
    "rel-flights/plane-departures", "rel-travel/post-upvote", "demo/plane-idle", "demo/airport-late",
    "rel-f1/driver-top3", "rel-f1/driver-dnf",
)  # fmt: skip
HEAD = (
    "task",
    "rows",
    "real coverage",
    "with validation alone",
    "width or classes",
    "by window",
    "all",
    "the rest",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, default=SHARED)
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    parser.add_argument("--coverage", type=float, default=0.9)
    parser.add_argument("--abstain", type=float, default=0.1)
    parser.add_argument("--time-limit", default="1m")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=Path, default=Path("runs/sure"))
    parser.add_argument("--table", action="store_true")
    asked = parser.parse_args()
    lines = [line for name in asked.tasks if (line := measure(name, asked))]
    print(f"nominal coverage {asked.coverage:.0%}; the rest is without the least sure {asked.abstain:.0%}\n")
    print_line(*HEAD, is_head=True)
    for line in lines:
        print_line(*line)


def measure(name: str, asked: argparse.Namespace) -> list[str] | None:
    """Returns the line of a task, trained now if it was not before; None where its data are absent."""
    source, folder = source_of(name, asked.data), asked.runs / name.replace("/", "-") / f"seed-{asked.seed}"
    is_done = (folder / "latest").exists()
    if source is None or (asked.table and not is_done):
        return None
    task = task_of(name, source)
    model = load(folder / "latest") if is_done else fit(
        task, "auto", runs=folder, listener=SILENT, threads=asked.threads, rng_seed=asked.seed,
        time_limit=asked.time_limit, protocol="rolling",
    )  # fmt: skip
    evaluation = model.evaluate(
        task, protocol="rolling", rules=False, coverage=asked.coverage, abstain=asked.abstain, listener=SILENT
    )
    sure = evaluation.sure
    assert sure is not None
    rest = next(each for each in sure.rests if abs(each.share - asked.abstain) < 1e-9)
    metrics = [
        [f"{n} {v:.4f}" for n, v in each.values.items() if v is not None] for each in (sure.rests[0], rest)
    ]
    windows = " ".join(f"{window.coverage:.0%}" for window in sure.windows)
    alone = with_validation_alone(model, task, asked.coverage)
    line = [
        name,
        f"{evaluation.num_rows:,}",
        str(sure.coverage),
        f"{alone.coverage.value:.4f}",
        f"{sure.width:.4g}",
    ]
    line += [windows, *(", ".join(each) for each in metrics)]
    print(" | ".join(line), flush=True)
    return line


def with_validation_alone(model, task, coverage: float) -> Judged:  # type: ignore[no-untyped-def]
    """Returns how often what is said holds if no label of test ever counts, with the scores that the run kept."""
    (checkpoint, run), seeds = model.members[0], task.seeds("test")
    scores, hints = run.kept_scores("test", task), checkpoint.hints(run.kept_members("test"))
    target = np.asarray(task.vault.open("sure"))
    said = say([checkpoint], sures_of([checkpoint], True), [scores], [hints], seeds.time, coverage)
    return judge(task.spec.type, said, target, scores, seeds.time, seeds.node)


if __name__ == "__main__":
    main()
