"""Any stored task with several random seeds, and what the benchmarks of several random seeds share.

    python -m benchmarks.repeated --tasks rel-f1/results-position rel-f1/qualifying-position [--set FIELD=VALUE ...]
                                  [--data FOLDER] [--models lightgbm auto] [--seeds 0 1 2] [--time-limit 1m]
                                  [--threads 1] [--split test] [--out runs/repeated] [--table]

Each run becomes one JSON line of `--out`: its figures beside those of its members and the rules. A run that is there is
not repeated, so the command can be stopped and started again; `--table` only prints what is there. Tables show the mean
of the random seeds and, in brackets, the lowest and the highest.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.past_labels import task_of
from benchmarks.results import SHARED, print_line, source_of
from quartet.config import changes_from_text
from quartet.listener import SILENT
from quartet.runs import fit
from quartet.tasks import Task


def main() -> None:
    parser = options(__doc__, Path("runs/repeated"))
    parser.add_argument("--set", nargs="+", default=[], dest="changes")
    asked = parser.parse_args()
    for name in asked.tasks:
        source = source_of(name, asked.data)
        if source is not None:
            arm = ", ".join([name, *asked.changes])
            settings = changes_from_text(asked.changes)
            repeat(arm, lambda name=name, source=source: task_of(name, source), asked, **settings)


def options(description: str | None, out: Path, tasks: Sequence[str] = ()) -> argparse.ArgumentParser:
    """Returns the options of a benchmark that trains tasks with several random seeds."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, default=SHARED)
    parser.add_argument("--tasks", nargs="+", default=tasks)
    parser.add_argument("--models", nargs="+", default=["lightgbm", "auto"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--time-limit", default="1m")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--split", default="test")
    parser.add_argument("--out", type=Path, default=out)
    parser.add_argument("--table", action="store_true")
    return parser


def repeat(name: str, make: Callable[[], Task], asked: argparse.Namespace, **settings: Any) -> None:
    """Trains each model with each random seed, where that is not done yet, and prints what there is of the task.

    The task is made where something is left to do.
    """
    task: Task | None = None
    for seed in asked.seeds if not asked.table else ():
        for model in asked.models:
            about = {
                "task": name,
                "model": model,
                "seed": seed,
                "limit": asked.time_limit,
                "split": asked.split,
            }
            if any(about.items() <= line.items() for line in lines_of(asked.out)):
                continue
            task, begin = task or make(), time.perf_counter()
            with tempfile.TemporaryDirectory() as runs:
                trained = fit(
                    task, model, runs=runs, listener=SILENT, threads=asked.threads, rng_seed=seed,
                    time_limit=asked.time_limit, **settings,
                )  # fmt: skip
                seconds = time.perf_counter() - begin
                found = trained.evaluate(task, split=asked.split, listener=SILENT)
            figures = {
                row.name: {metric: measure.value for metric, measure in row.measures.items()}
                for row in found.rows
            }
            told = {"rows": found.num_rows, "validation": trained.validation, "seconds": round(seconds, 1)}
            told |= {
                "summary": trained.members[0][0].model.summary,
                "figures": figures,
                "pools": dict(found.pools),
            }
            keep(asked.out, about | told)
    print_repeated(
        name, [line for line in lines_of(asked.out) if line["task"] == name and line["seed"] in asked.seeds]
    )


def keep(out: Path, line: dict[str, Any]) -> None:
    """Writes what is known of a run, at once."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / "results.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def lines_of(out: Path) -> list[dict[str, Any]]:
    path = out / "results.jsonl"
    return (
        [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.is_file() else []
    )


def print_repeated(name: str, lines: Sequence[dict[str, Any]], most: int = 3) -> None:
    """Prints a Markdown table: the rules, then each model with its members."""
    metrics = [
        *dict.fromkeys(metric for line in lines for row in line["figures"].values() for metric in row)
    ][:most]
    print(f"\n{name}")
    print_line("", *metrics, "validation", "random seeds", "s", is_head=True)
    values: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for line in lines:
        for row, figures in line["figures"].items():
            kind = "" if row == line["model"] else "member" if row.startswith("- ") else "rule"
            owner = line["model"] if kind != "rule" else ""
            values.setdefault((owner, row.split(", random seed")[0]), []).append(
                {**line, "row": figures, "kind": kind}
            )
    for (owner, row), runs in sorted(values.items(), key=lambda one: one[1][0]["kind"] != "rule"):
        is_rule, is_whole = runs[0]["kind"] == "rule", not runs[0]["kind"]
        runs = runs[:1] if is_rule else runs
        cells = [
            spread([run["row"][metric] for run in runs if run["row"].get(metric) is not None])
            for metric in metrics
        ]
        own = [
            spread([run[what] for run in runs], digits) if is_whole else ""
            for what, digits in (("validation", 4), ("seconds", 0))
        ]
        seeds = "" if is_rule else " ".join(str(run["seed"]) for run in runs)
        shown = row if not owner or is_whole else f"{owner} {row}"
        print_line(shown, *cells, own[0], seeds, own[1])


def spread(values: Sequence[float], digits: int = 4) -> str:
    """Returns the mean of some values and, of several, the lowest and the highest."""
    if not values:
        return ""
    ends = f" ({min(values):.{digits}f} to {max(values):.{digits}f})" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{digits}f}{ends}"


if __name__ == "__main__":
    main()
