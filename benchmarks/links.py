"""Measures how well links are filled in: rows of a table that a row may name, beside rules and trees.

    python -m benchmarks.links [--data FOLDER] [--tasks f1-driver erp-customer ...] [--models lightgbm auto]
                               [--time-limit 1m] [--seeds 0] [--split test]

f1-driver        who drove, by the car, the race and the result; without the number on the car
flights-plane    which plane flies, by the flight
travel-author    who wrote a comment, by the post
erp-customer     whose sales document it is (`benchmarks/erp.py`)
erp-product      which product an item is of
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.erp import SCHEMA, erp
from quartet.database import Database
from quartet.listener import Listener
from quartet.runs import fit
from quartet.tasks import Task
from quartet.times import parse_length

TASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "f1-driver": (
        "rel-f1",
        {
            "entity_table": "results", "target_col": "driverId", "dst_entity_table": "drivers",
            "remove_columns": [["results", "number"]], "known_after": "1 day",
        },
    ),
    "flights-plane": (
        "rel-flights",
        {
            "entity_table": "flights", "target_col": "plane_id", "dst_entity_table": "planes",
            "remove_columns": [["flights", "arrived_late"]], "known_after": "1 hour",
        },
    ),
    "travel-author": (
        "rel-travel",
        {
            "entity_table": "comments", "target_col": "UserId", "dst_entity_table": "users",
            "known_after": "1 minute",
        },
    ),
    "erp-customer": (
        "erp",
        {
            "entity_table": "documents", "target_col": "customer", "dst_entity_table": "customers",
            "known_after": "1 day",
        },
    ),
    "erp-product": (
        "erp",
        {"entity_table": "items", "target_col": "product", "dst_entity_table": "products", "known_after": "1 day"},
    ),
}  # fmt: skip


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--data", type=Path, default=Path("../shared/data"))
    options.add_argument("--tasks", nargs="*", default=list(TASKS))
    options.add_argument("--models", nargs="*", default=["lightgbm", "auto"])
    options.add_argument("--time-limit", default="1m")
    options.add_argument("--seeds", nargs="*", type=int, default=[0])
    options.add_argument("--split", default="test")
    chosen = options.parse_args()
    limit = parse_length(chosen.time_limit, "--time-limit") / 1e9
    for name in chosen.tasks:
        task = link_task(name, chosen.data)
        shown = Table(title=f"{name}: {task.spec.entity_table}.{task.spec.target_col}")
        figures = ("map", "recall", "accuracy")
        for column in ("", *figures):
            shown.add_column(column, justify="right" if column else "left")
        for model in chosen.models:
            for rng_seed in chosen.seeds:
                with tempfile.TemporaryDirectory() as runs:
                    trained = fit(
                        task, model, runs=runs, listener=Listener(), rng_seed=rng_seed, time_limit=limit
                    )
                    found = trained.evaluate(task, split=chosen.split, listener=Listener())
                is_first = model == chosen.models[0] and rng_seed == chosen.seeds[0]
                for row in (
                    found.rows if is_first else [r for r in found.rows if r.is_member or r is found.rows[0]]
                ):
                    who = f"{row.name}, random seed {rng_seed}" if row is found.rows[0] else row.name
                    shown.add_row(who, *(str(row.measures[figure]) for figure in figures))
                recall = found.pools["all candidates"]
                shown.add_row(
                    f"  {trained.members[0][0].model.summary}; candidates {recall:.3f}", style="dim"
                )
        Console(width=150).print(shown)


def link_task(name: str, data: Path) -> Task:
    """Returns one of the tasks; the ERP database is made."""
    source, words = TASKS[name]
    database = Database.load(erp(), SCHEMA) if source == "erp" else Database.load(data / source)
    given = {"name": name, "kind": "autocomplete", "task_type": "recommendation", "eval_k": 10}
    return Task.load(database, {**given, **words})


if __name__ == "__main__":
    main()
