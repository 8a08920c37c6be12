"""What the model reaches on benchmark tasks, beside trivial rules: the table of docs/results.md.

    python benchmarks/results.py [--data FOLDER] [--tasks DATASET/TASK ...] [--seeds 3] [--preset small]
                                 [--set FIELD=VALUE ...] [--runs runs/results] [--table]

Trains each task with several random seeds, selects on validation, and opens the test labels once for each run, at
its end. A run that is done is not repeated, so the command can be stopped and started again; `--table` only
prints what is there. The tasks of `rel-*` datasets are read from `--data`; absent ones are left out and named.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from quartet.cli.views.training import epoch_line
from quartet.config import Recipe, changes_from_text
from quartet.database import Database
from quartet.evaluation import main_metric
from quartet.machine import use_threads
from quartet.runs import Run, evaluation_name, keep_evaluation, train_run
from quartet.runs.evaluate import evaluate_run
from quartet.tasks import Task
from quartet.training import Epoch, prepare

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
    """What can be asked of a benchmark that trains tasks with several random seeds."""
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
    """All runs of a task that are not done yet."""
    missing = [seed for seed in range(asked.seeds) if not kept(asked.runs, name, seed)]
    source = source_of(name, asked.data)
    if source is None or not missing:
        return
    task = Task.load(Database.load(source), name.partition("/")[2])
    changes = {"protocol": protocol_of(name)} | changes_from_text(asked.changes)
    recipes = {seed: Recipe.load(asked.preset, name, rng_seed=seed, **changes) for seed in missing}
    material = prepare(task, recipes[missing[0]])
    for seed, recipe in recipes.items():

        def told(epoch: Epoch, seed: int = seed, recipe: Recipe = recipe) -> None:
            print(f"{name} {seed}: {epoch_line(epoch, material.metric, recipe.epochs)}", flush=True)

        run = Run.create(folder_of(asked.runs, name, seed), task, recipe, source)
        train_run(run, material, recipe, told)
        keep_evaluation(run, evaluate_run(run, task))


def source_of(name: str, data: Path) -> str | None:
    """Where the database of a task is, or None where it is not."""
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
    """What a finished run found, or None."""
    return kept_in(folder_of(runs, name, seed), protocol_of(name))


def kept_in(folder: Path, protocol: str) -> dict[str, Any] | None:
    """What the finished run in a folder found on test under a protocol, or None."""
    for path in folder.glob(f"*-*/{evaluation_name('test', protocol)}"):
        lines = (path.parent / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        facts = json.loads((path.parent / "task.json").read_text(encoding="utf-8"))
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found | {"history": [json.loads(line) for line in lines], "type": facts["type"]}
    return None


def print_table(runs: Path, names: list[str]) -> None:
    """A Markdown table: for each task the trivial rows, and the model's mean and spread over random seeds."""
    rows = []
    for name in names:
        folders = folder_of(runs, name, 0).parent.glob("seed-*")
        found = [kept(runs, name, int(folder.name.removeprefix("seed-"))) for folder in sorted(folders)]
        done = [one for one in found if one is not None]
        if done:
            rows.append(table_row(name, done))
    trivial = dict.fromkeys(other for row in rows for other in row["trivial"])
    heads = ["task", "metric", *trivial, "quartet", "on validation", "runs", "minutes a run"]
    print("| " + " | ".join(heads) + " |\n|" + "---|" * len(heads))
    for row in rows:
        beside = [number(row["trivial"].get(other), row["digits"]) for other in trivial]
        print("| " + " | ".join([row["task"], row["metric"], *beside, *row["reached"]]) + " |")


def table_row(name: str, found: list[dict[str, Any]]) -> dict[str, Any]:
    metric, digits = shown_metric(found[0])
    values = {
        row["name"]: [
            one["measures"][metric]["value"] for f in found for one in f["rows"] if one["name"] == row["name"]
        ]
        for row in found[0]["rows"]
    }
    best = [[line["validation"] for line in f["history"] if line["is_best"]][-1] for f in found]
    seconds = [sum(line["seconds"] + line["validation_seconds"] for line in f["history"]) for f in found]
    minutes = f"{statistics.mean(seconds) / 60:.0f}"
    return {
        "task": name,
        "metric": metric,
        "digits": digits,
        "trivial": {other: v[0] for other, v in values.items() if other != "quartet"},
        "reached": [spread(values["quartet"], digits), spread(best, digits), str(len(found)), minutes],
    }


def shown_metric(found: dict[str, Any]) -> tuple[str, int]:
    """By which metric a task is shown, and with how many digits."""
    metric = SHOWN.get(found["type"], main_metric(found["type"]))
    return metric, 2 if metric == "mae" else 3


def spread(values: list[float], digits: int) -> str:
    """Mean and standard deviation over runs."""
    around = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{digits}f}{around}"


def number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


if __name__ == "__main__":
    main()
