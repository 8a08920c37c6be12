"""How good `auto` and its parts are on every task: the table of docs/results.md.

    python -m benchmarks.accuracy [--data FOLDER] [--tasks DATASET/TASK ...] [--seeds 0 1 2] [--time-limit 5m]
                                  [--threads 1] [--out runs/accuracy] [--alone] [--table]

Trains each task with several random seeds, all choices on validation, and then opens the test labels once for each
run, under both protocols where they differ. One JSON line a run and protocol goes into `results.jsonl`; what is there
is not trained again, so the command can be stopped and started again. `--table` only prints what is there. `--alone`
trains Quartet without a tower instead, for a column of its own.

Columns: the best rule; a plain LightGBM on counts, means and sums over one and four horizons of the rows one link
away; one LightGBM on all relational columns; the bag of all trees, the bar; Quartet alone; the tower alone; one Quartet
with a tower; `auto`. After `auto` stands its lead over the bag, with paired 95 % intervals by entity and by time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.past_labels import task_of
from benchmarks.results import SHARED, TASKS, print_line, source_of
from quartet.config import Protocol
from quartet.evaluation import fit_rules, higher_is_better, main_metric, task_settings
from quartet.evaluation.metrics import metric_of, resamples
from quartet.features import CODE, FeatureTable
from quartet.listener import SILENT
from quartet.runs import fit
from quartet.tasks import SPLITS, Seeds, Task
from quartet.training import TrainingData, View

ALONE = "quartet alone"
COLUMNS = (
    "best rule",
    "plain LightGBM",
    "LightGBM",
    "bag of trees",
    ALONE,
    "tower",
    "quartet + tower",
    "auto",
)
NUM_RESAMPLES = 300
PLAIN = {"learning_rate": 0.05, "num_leaves": 31, "num_threads": 1, "deterministic": True, "verbose": -1}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, default=SHARED)
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--time-limit", default="5m")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("runs/accuracy"))
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--table", action="store_true")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    for seed in asked.seeds if not asked.table else ():
        for name in asked.tasks:
            done = read_lines(asked.out, "alone" if asked.alone else "results")
            source = source_of(name, asked.data)
            if source and not any((line["task"], line["seed"]) == (name, seed) for line in done):
                print(f"{name}, random seed {seed}", flush=True)
                (measure_alone if asked.alone else measure)(name, task_of(name, source), seed, asked)
    alone = {(x["task"], x["seed"], x["protocol"]): x["value"] for x in read_lines(asked.out, "alone")}
    lines = read_lines(asked.out, "results")
    for line in lines:
        line["values"][ALONE] = alone.get((line["task"], line["seed"], line["protocol"]))
    print_table(lines)


def read_lines(out: Path, kind: str) -> list[dict[str, Any]]:
    paths = sorted(out.glob(f"{kind}*.jsonl"))
    return [json.loads(line) for path in paths for line in path.read_text(encoding="utf-8").splitlines()]


def write_line(out: Path, kind: str, line: dict[str, Any]) -> None:
    with (out / f"{kind}.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def asked_as(task: Task) -> tuple[tuple[str, Protocol, str], ...]:
    """Returns how the test can be asked: what it is called, the protocol, and when late seeds are asked.

    A frozen database ends long before most seeds, which the default holds back, and published figures do not.
    """
    has_two = task.seeds("test").time.max() > task.splits.test and not task.num_new_entities
    frozen: Any = (("frozen", "frozen", "own"), ("frozen, held", "frozen", "held"))
    return (("rolling" if has_two else "both", "rolling", "held"), *(frozen if has_two else ()))


def measure_alone(name: str, task: Task, seed: int, asked: argparse.Namespace) -> None:
    """Trains Quartet without a tower, and writes a line for each way in which its test can be asked."""
    trained = fit(
        task, "quartet", runs=asked.out / "alone" / name.replace("/", "-") / f"seed-{seed}", listener=SILENT, tower=0,
        threads=asked.threads, rng_seed=seed, time_limit=asked.time_limit, protocol="rolling", past_labels=True,
    )  # fmt: skip
    checkpoint, _ = trained.members[0]
    recipe, target = checkpoint.recipe, np.asarray(task.vault.open("accuracy"))
    for told, protocol, late_seeds in asked_as(task):
        then = task.under(protocol, recipe.past_labels)
        features = FeatureTable.encode(then.database, checkpoint.statistics)
        view = View(then.database, features, task.spec, recipe.changed(late_seeds=late_seeds))
        scores = checkpoint.scores(checkpoint.model.logits(view, then.asked_seeds("test")))
        value = metric_of(task.spec.type)(target, scores, None)
        write_line(asked.out, "alone", {"task": name, "seed": seed, "protocol": told, "value": value})
        print({told: round(value or 0.0, 4)}, flush=True)


def measure(name: str, task: Task, seed: int, asked: argparse.Namespace) -> None:
    """Trains `auto` on a task and writes a line for each way in which its test can be asked."""
    begin = time.perf_counter()
    trained = fit(
        task, "auto", runs=asked.out / name.replace("/", "-") / f"seed-{seed}", listener=SILENT, threads=asked.threads,
        rng_seed=seed, time_limit=asked.time_limit, protocol="rolling",
    )  # fmt: skip
    seconds, (checkpoint, run) = time.perf_counter() - begin, trained.members[0]
    recipe, model, kind = checkpoint.recipe, checkpoint.model, task.spec.type
    data = TrainingData.prepare(task, recipe)
    plain = PlainTrees(data)
    target = np.asarray(task.vault.open("accuracy"))
    metric, sign = metric_of(kind), 1 if higher_is_better(main_metric(kind)) else -1

    def better(score: Any, weight: Any) -> float:
        return sign * (metric(target, score, weight) or 0.0)

    for told_protocol, protocol, late_seeds in asked_as(task):
        then, own_recipe = task.under(protocol, recipe.past_labels), recipe.changed(late_seeds=late_seeds)
        seeds = then.asked_seeds("test")
        view = View(
            then.database, FeatureTable.encode(then.database, checkpoint.statistics), task.spec, own_recipe
        )
        if protocol == recipe.protocol and run is not None:
            each = run.kept_members("test")
            auto = run.kept_scores("test", task)
        else:
            logits = [member.model.logits(view, seeds) for member in model.members]
            each, auto = [checkpoint.scores(x) for x in logits], checkpoint.scores(model.blend(logits))
        kinds, names = ([getattr(m, what) for m in model.members] for what in ("architecture", "name"))
        scores = {
            "plain LightGBM": plain.scores(view, seeds),
            "LightGBM": each[names.index("trees") if "trees" in names else 0],  # the first are on near rows
            "bag of trees": bag_of_trees(model, each),
            "auto": auto,
        }
        networks = {"tower": "tower", "quartet + tower": "quartet"}  # where there was time for them
        scores |= {arm: each[kinds.index(kind)] for arm, kind in networks.items() if kind in kinds}
        rules = fit_rules(then, view.features)
        if protocol == "rolling":
            rules = [rule.knowing(Seeds(seeds.node, seeds.time, target)) for rule in rules]
        values = {rule.name: metric(target, rule.predict(seeds), None) for rule in rules}
        values["best rule"] = max(values.values(), key=lambda value: sign * (value or 0.0))
        values |= {arm: metric(target, score, None) for arm, score in scores.items()}
        pairs = {
            "auto - bag": ("auto", "bag of trees"),
            "quartet - LightGBM": ("quartet + tower", "LightGBM"),
        }
        pairs["auto - plain"] = ("auto", "plain LightGBM")
        leads: dict[str, Any] = {
            what: {
                by: lead(better, *(scores[arm] for arm in arms), groups)
                for by, groups in (("entity", seeds.node), ("time", seeds.time))
            }
            for what, arms in pairs.items()
            if set(arms) <= scores.keys()
        }
        train = np.asarray(task.seeds("train").target, dtype=np.float64)
        line = {
            "task": name, "seed": seed, "protocol": told_protocol, "metric": main_metric(kind),
            "values": values, "leads": leads, "seconds": round(seconds), "threads": asked.threads,
            "train_std": float(train.std()), "validation": trained.validation,
            "members": [[m.name, m.validation, round(m.seconds, 1)] for m in model.members], "weights": model.weights,
        }  # fmt: skip
        write_line(asked.out, "results", line)
        told = {arm: round(values[arm], 4) for arm in COLUMNS if arm in values}
        print(told, f"{seconds:.0f} s", flush=True)


def bag_of_trees(model: Any, each: Sequence[Any]) -> Any:
    """Returns the blend of all trees alone, by the weights that they have among each other."""
    weights = np.array(
        [w * (m.architecture == "lightgbm") for m, w in zip(model.members, model.weights, strict=True)]
    )
    if not weights.any():
        weights = np.array([float(m.architecture == "lightgbm") for m in model.members])
    return np.tensordot(weights / weights.sum(), np.stack(each), 1)


def lead(
    better: Callable[[Any, Any], float], one: Any, other: Any, groups: Any
) -> tuple[float, float, float] | None:
    """Returns how much better one is than the other, with a paired interval over groups of rows."""
    drawn = [better(one, w) - better(other, w) for w in resamples(len(one), groups, NUM_RESAMPLES, 0)]
    if len(np.unique(groups)) < 2 or not drawn:
        return None
    low, high = np.percentile(drawn, [2.5, 97.5])
    return float(better(one, None) - better(other, None)), float(low), float(high)


class PlainTrees:
    """What one would write by hand: counts, means and sums over one and four horizons, and the row's own cells."""

    def __init__(self, data: TrainingData) -> None:
        import lightgbm

        self.output, columns = data.output, data.view.columns
        self.names = tuple(name for name in columns.names if name in columns.plain)
        codes = [place for place, name in enumerate(self.names) if name.endswith(CODE)]
        kind, output = data.task.spec.type, data.output
        told = [(data.view.matrix(data.seeds[split], self.names), data.labels(split)) for split in SPLITS[:2]]
        made = [lightgbm.Dataset(matrix, labels, categorical_feature=codes) for matrix, labels in told]
        self.booster = lightgbm.train(
            PLAIN | task_settings(kind, output.num_outputs), made[0], 1000, [made[1]],
            callbacks=[lightgbm.early_stopping(50, verbose=False)],
        )  # fmt: skip

    def scores(self, view: View, seeds: Any) -> Any:
        return self.booster.predict(view.matrix(seeds, self.names))


def print_table(lines: Sequence[dict[str, Any]]) -> None:
    """Prints a Markdown table: means over random seeds, and how far `auto` is ahead of the bag."""
    print_line(
        "task",
        "protocol",
        "metric",
        *COLUMNS,
        "auto − bag, by entity",
        "by time",
        "seeds",
        "seconds",
        is_head=True,
    )
    for name, protocol in dict.fromkeys((line["task"], line["protocol"]) for line in lines):
        own = [line for line in lines if (line["task"], line["protocol"]) == (name, protocol)]
        digits = 3 if own[0]["metric"] != "mae" else 2
        found = {arm: [v for x in own if (v := x["values"].get(arm)) is not None] for arm in COLUMNS}
        values = {arm: statistics.mean(each) for arm, each in found.items() if each}
        best = (max if higher_is_better(own[0]["metric"]) else min)(values.values())
        told = {arm: f"{value:.{digits}f}" for arm, value in values.items()}
        shown = [f"**{told[arm]}**" if values.get(arm) == best else told.get(arm, "–") for arm in COLUMNS]
        leads = [shown_lead([line["leads"]["auto - bag"][by] for line in own]) for by in ("entity", "time")]
        seconds = f"{statistics.mean(line['seconds'] for line in own):.0f}"
        print_line(name, protocol, own[0]["metric"], *shown, *leads, str(len(own)), seconds)


def shown_lead(leads: Sequence[Sequence[float] | None]) -> str:
    """Returns the mean lead over random seeds, and the mean ends of its intervals."""
    if any(lead is None for lead in leads):
        return "–"
    value, low, high = np.mean(leads, axis=0)
    return f"{value:+.4f} [{low:+.4f}, {high:+.4f}]"


if __name__ == "__main__":
    main()
