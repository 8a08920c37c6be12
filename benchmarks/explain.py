"""Explanations as claims, measured: planted causes, planted branches, deletion curves on real tasks, sums, seconds.

    python -m benchmarks.explain [planted] [branches] [deletion] [--data FOLDER] [--time-limit 60s] [--seeds 40]
        [--rng-seed 0]

planted    customers complain after a bad order: on how many seeds it is among the first three rows, and its cell among
           the first three reasons; the same where labels are by lot
branches   five databases whose signal one branch alone can see: on how many seeds that part has the largest effect
deletion   demo airport-late, rel-f1 driver-top3 and rel-travel user-badge: how far the score moves without the top rows
           of an explanation, and without as many random ones; sums and seconds beside it

Models are trained here, with one thread; `--data` is where rel-f1 and rel-travel lie.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from quartet.database import Database
from quartet.explain import explain
from quartet.explain.reader import Reader
from quartet.explain.rows import Occlusion
from quartet.machine import use_threads
from quartet.runs import LiveModel, fit
from quartet.tasks import Task
from quartet.times import parse_length
from tests.explain.branches import BRANCHES, branch_task
from tests.explain.small import bad_orders, bound, fitted, planted_rows
from tests.trained import SIZES

STEPS = (1, 2, 4, 8, 16)
DRAWS = 5
TIMES = 4  # of test
TASKS = (("demo", "airport-late"), ("rel-f1", "driver-top3"), ("rel-travel", "user-badge"))
NETWORK: dict[str, Any] = {**SIZES, "epochs": 10, "batch_size": 64, "learning_rate": 3e-3}


def planted(console: Console, num_seeds: int, rng_seed: int) -> None:
    table = Table(
        "model", "validation", "row in first three", "cell in first three", "largest row effect", "by lot"
    )
    for name, settings in (
        ("lightgbm", {}), ("tower", NETWORK | {"tower": 4}), ("quartet", NETWORK | {"tower": 0}),
        ("sage", NETWORK | {"tower": 0}),
    ):  # fmt: skip
        shown, moved = [], []
        for is_cause in (True, False):
            task = bad_orders(rng_seed, is_cause=is_cause)
            member, rows = fitted(task, name, **settings), planted_rows(task, task.splits.test)
            who = [int(key) for key in list(rows)[:num_seeds]]
            told = explain(bound(task.full_database, member), who, task.splits.test)
            moved.append(np.mean([max((abs(row.effect) for row in each.rows), default=0.0) for each in told]))
            if is_cause:
                found = np.mean([any(row.key == rows[each.key] for row in each.rows[:3]) for each in told])
                cells = np.mean([any("state" in reason for reason in each.reasons(3)) for each in told])
                has_columns = bool(told[0].columns)
                shown = [
                    name,
                    f"{member.validation:.3f}",
                    f"{found:.1%}",
                    f"{cells:.1%}" if has_columns else "-",
                ]
        table.add_row(*shown, f"{moved[0]:.3f}", f"{moved[1]:.3f}")
    console.print("planted: customers complain after a bad order", table)


def branches(console: Console, num_seeds: int, rng_seed: int) -> None:
    table = Table("signal", "branches", "validation", "right part first", "mean effects")
    for name, claim in BRANCHES.items():
        task = branch_task(claim, rng_seed)
        member = fitted(task, "quartet", **claim.settings)
        live = bound(task.full_database, member, labels=task.labels)
        seeds = task.seeds("test")
        keys = (seeds.node - task.full_database.offsets[task.spec.entity_table])[:num_seeds].tolist()
        told = explain(live, keys, seeds.time[:num_seeds].tolist(), rows=False, lookalikes=0)
        first = [max(each.parts, key=lambda part: abs(part.effect)).name == name for each in told]
        means = {
            part.name: np.mean(
                [abs(own.effect) for each in told for own in each.parts if own.name == part.name]
            )
            for part in told[0].parts
        }
        shown = ", ".join(f"{part} {mean:.3f}" for part, mean in means.items())
        table.add_row(name, ", ".join(means), f"{member.validation:.3f}", f"{np.mean(first):.1%}", shown)
    console.print("branches: which part moved the score", table)


def deletion(console: Console, data: Path, limit: float, num_seeds: int) -> None:
    curves = Table("task", "model", "rows taken away", *map(str, STEPS))
    facts = Table("task", "seeds", "top moves more", "at each step", "largest error of sums", "seconds each")
    for source, name in TASKS:
        database = Database.load(source if source == "demo" else str(data / source))
        with tempfile.TemporaryDirectory() as runs:
            task = database.task(name)
            model = fit(task, runs=runs, cache=Path(runs) / "cache", time_limit=limit, threads=1)
            live = model.on(database)
            top, random, error, seconds = _curves(live, task, num_seeds)
        enough = ~np.isnan(top)
        share = [np.mean(top[enough[:, at], at] > random[enough[:, at], at]) for at in range(len(STEPS))]
        total = np.nansum(top, 1) > np.nansum(random, 1)
        for what, moved in (("those with the largest effect", top), ("as many random ones", random)):
            curves.add_row(
                name, model.members[0][0].model.summary, what, *(f"{m:.4f}" for m in np.nanmean(moved, 0))
            )
        facts.add_row(
            name, str(len(top)), f"{total.mean():.1%}", " ".join(f"{s:.0%}" for s in share), f"{error:.1e}",
            f"{seconds:.2f}",
        )  # fmt: skip
    console.print("deletion: mean absolute change of the score", curves, facts)


def _curves(live: LiveModel, task: Task, num_seeds: int) -> tuple[Any, Any, float, float]:
    """Returns how far scores move without the top rows and without random ones, for test seeds of some times."""
    seeds = task.seeds("test")
    moments = np.unique(seeds.time)
    moments = moments[np.unique(np.linspace(0, len(moments) - 1, TIMES).astype(np.int64))]
    asked = np.flatnonzero(np.isin(seeds.time, moments))
    asked = asked[np.unique(np.linspace(0, len(asked) - 1, num_seeds).astype(np.int64))]
    rows = seeds.node[asked] - task.full_database.offsets[task.spec.entity_table]
    times = seeds.time[asked]
    table = task.full_database[task.spec.entity_table]
    keys = [table.data[table.primary_key[0]][int(row)].as_py() for row in rows]
    for time in np.unique(times):  # known cases are read once
        explain(live, [keys[int(np.argmax(times == time))]], int(time), rows=False)
    begin = perf_counter()
    told = explain(live, keys, times.tolist())
    seconds = (perf_counter() - begin) / len(keys)
    error = max(abs(sum(part.effect for part in each.parts) - (each.score - each.base)) for each in told)
    reader, rng = Reader(live), np.random.default_rng(0)
    top, random = (np.full((len(rows), len(STEPS)), np.nan) for _ in range(2))
    for seed, each in enumerate(told):
        classes = live.members[0].task.classes
        chosen = 0 if classes is None else [str(value) for value in classes].index(each.predicted)
        taken = Occlusion(reader, int(rows[seed]), int(times[seed]), chosen, each.score)
        alone, _ = taken.effects()
        side = np.sign(sum(effect.effect for effect in alone)) or 1.0
        alone.sort(key=lambda effect: -side * effect.effect)
        nodes = np.array([effect.nodes[0] for effect in alone], np.int64)
        variants, where = [], []
        for step, count in enumerate(STEPS):
            if len(nodes) >= 2 * count:
                variants += [nodes[:count], *(rng.choice(nodes, count, replace=False) for _ in range(DRAWS))]
                where.append(step)
        if variants:
            moved = np.abs(each.score - taken.scores(variants)).reshape(len(where), 1 + DRAWS)
            top[seed, where], random[seed, where] = moved[:, 0], moved[:, 1:].mean(1)
    kept = ~np.isnan(top[:, 0])
    return top[kept], random[kept], error, seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="*", help="planted, branches, deletion (default: all)")
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--time-limit", default="60s")
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--rng-seed", type=int, default=0, help="of the planted databases")
    asked = parser.parse_args()
    use_threads(1)
    console = Console(width=150)
    what = asked.what or ["planted", "branches", "deletion"]
    if "planted" in what:
        planted(console, asked.seeds, asked.rng_seed)
    if "branches" in what:
        branches(console, asked.seeds, asked.rng_seed)
    if "deletion" in what:
        deletion(console, asked.data, parse_length(asked.time_limit, "the time limit") / 1e9, asked.seeds)


if __name__ == "__main__":
    main()
