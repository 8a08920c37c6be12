"""How good Quartet alone is on benchmark tasks, beside rules; `accuracy.py` measures the default, `auto`.

    python benchmarks/results.py [--data FOLDER] [--tasks DATASET/TASK ...] [--seeds 3] [--preset small]
                                 [--set FIELD=VALUE ...] [--runs runs/results] [--table]

Trains each task with several random seeds, selects on validation, and opens the test labels once for each run, at
its end. A run that is done is not repeated, so the command can be stopped and started again; `--table` only
prints what is there. The tasks of `rel-*` datasets are read from `--data`; absent ones are left out and named.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import asdict
from pathlib import Path
from typing import Any

from quartet.config import Recipe, changes_from_text
from quartet.database import Database
from quartet.evaluation import main_metric
from quartet.machine import use_threads
from quartet.runs import Run, evaluation_file, fit

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
TASKS = (
    "rel-f1/driver-top3", "rel-f1/driver-dnf", "rel-f1/driver-position",
    "demo/plane-idle", "demo/airport-late", "demo/airport-delay",
    "rel-travel/user-engagement", "rel-travel/user-badge", "rel-travel/post-upvote",
    "rel-flights/plane-idle", "rel-flights/plane-departures", "rel-flights/flight-late",
)  # fmt: skip
PROTOCOLS = {
    "demo": "rolling"
}  # two of its tasks look a day ahead; the others are measured as the paper does
SHOWN = {"regression": "mae"}  # the others are shown by their main metric


def main() -> None:
    asked = options(__doc__, Path("runs/results")).parse_args()
    use_threads(asked.threads)
    for name in asked.tasks if not asked.table else ():
        train_task(name, asked)
    print_table(asked.runs, asked.tasks)


def options(description: str | None, runs: Path) -> argparse.ArgumentParser:
    """Returns the options of a benchmark that trains tasks with several random seeds."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, default=SHARED)
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--preset", default="small")
    parser.add_argument("--set", nargs="+", default=[], dest="changes")
    parser.add_argument("--runs", type=Path, default=runs)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--table", action="store_true")
    return parser


def train_task(name: str, asked: argparse.Namespace) -> None:
    """Trains and evaluates the runs of a task that are not done yet."""
    missing = [seed for seed in range(asked.seeds) if not kept(asked.runs, name, seed)]
    source = source_of(name, asked.data)
    if source is None or not missing:
        return
    task = Database.load(source).task(name.partition("/")[2])
    changes = {"protocol": protocol_of(name)} | changes_from_text(asked.changes)
    for seed in missing:
        print(f"{name}, random seed {seed}", flush=True)
        recipe = Recipe.load(asked.preset, name, rng_seed=seed, **changes)
        fit(task, recipe=recipe, runs=folder_of(asked.runs, name, seed)).evaluate()


def source_of(name: str, data: Path) -> str | None:
    """Returns where the database of a task is, or None where it is not there."""
    dataset = name.partition("/")[0]
    if dataset == "demo" or (data / dataset).is_dir():
        return dataset if dataset == "demo" else str(data / dataset)
    print(f"{name}: left out, there is no {data / dataset}")
    return None


def protocol_of(name: str) -> str:
    return PROTOCOLS.get(name.partition("/")[0], "frozen")


def folder_of(runs: Path, name: str, seed: int) -> Path:
    return runs / name.replace("/", "-") / f"seed-{seed}"


def kept(runs: Path, name: str, seed: int) -> dict[str, Any] | None:
    """Returns the evaluation of a finished run, or None."""
    return kept_in(folder_of(runs, name, seed), protocol_of(name))


def kept_in(folder: Path, protocol: str) -> dict[str, Any] | None:
    """Returns the evaluation on test of the finished run in a folder, or None."""
    name = evaluation_file("test", protocol)
    for path in folder.glob(f"*-*/{name}"):
        run = Run.open(path.parent)
        epochs = [asdict(epoch) for epoch in run.epochs()]
        return run.read(name) | {"epochs": epochs, "type": run.task.type}
    return None


def print_table(runs: Path, names: list[str]) -> None:
    """Prints a Markdown table: for each task the rules, and the model's mean and spread over random seeds."""
    rows = []
    for name in names:
        folders = sorted(folder_of(runs, name, 0).parent.glob("seed-*"))
        evaluations = [kept(runs, name, int(folder.name.removeprefix("seed-"))) for folder in folders]
        if done := [one for one in evaluations if one is not None]:
            rows.append(table_row(name, done))
    rules = dict.fromkeys(rule for row in rows for rule in row["rules"])
    print_line("task", "metric", *rules, "quartet", "on validation", "runs", "minutes a run", is_head=True)
    for row in rows:
        beside = [number(row["rules"].get(rule), row["digits"]) for rule in rules]
        print_line(row["task"], row["metric"], *beside, *row["reached"])


def print_line(*cells: str, is_head: bool = False) -> None:
    print(f"| {' | '.join(cells)} |" + ("\n|" + "---|" * len(cells) if is_head else ""), flush=True)


def table_row(name: str, done: list[dict[str, Any]]) -> dict[str, Any]:
    metric, digits = shown_metric(done[0])
    values: dict[str, list[float]] = {}
    for evaluation in done:
        for row in evaluation["rows"]:
            values.setdefault(row["name"], []).append(row["measures"][metric]["value"])
    best = [[line["validation"] for line in one["epochs"] if line["is_best"]][-1] for one in done]
    seconds = [sum(line["seconds"] + line["validation_seconds"] for line in one["epochs"]) for one in done]
    minutes = f"{statistics.mean(seconds) / 60:.0f}"
    return {
        "task": name,
        "metric": metric,
        "digits": digits,
        "rules": {rule: figures[0] for rule, figures in values.items() if rule != "quartet"},
        "reached": [spread(values["quartet"], digits), spread(best, digits), str(len(done)), minutes],
    }


def shown_metric(evaluation: dict[str, Any]) -> tuple[str, int]:
    """Returns the metric by which a task is shown, and with how many digits."""
    metric = SHOWN.get(evaluation["type"], main_metric(evaluation["type"]))
    return metric, 2 if metric == "mae" else 3


def spread(values: list[float], digits: int) -> str:
    """Returns mean and standard deviation over runs."""
    around = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{digits}f}{around}"


def number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


if __name__ == "__main__":
    main()
