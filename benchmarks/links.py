"""Measures how well links are filled in: rows of a table that a row may name, beside rules and trees.

    python -m benchmarks.links [--data FOLDER] [--tasks f1-driver erp-customer ...] [--models lightgbm auto]
                               [--time-limit 1m] [--seeds 0 1 2] [--split test] [--out runs/links] [--table]

`benchmarks/repeated.py` tells what becomes of the runs.

f1-driver        who drove, by the car, the race and the result; without the number on the car
flights-plane    which plane flies, by the flight
travel-author    who wrote a comment, by the post
erp-customer     whose sales document it is (`benchmarks/erp.py`)
erp-product      which product an item is of
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.erp import SCHEMA, erp
from benchmarks.repeated import options, repeat
from quartet.database import Database
from quartet.tasks import Task

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
    asked = options(__doc__, Path("runs/links"), list(TASKS)).parse_args()
    for name in asked.tasks:
        repeat(name, lambda name=name: link_task(name, asked.data), asked)


def link_task(name: str, data: Path) -> Task:
    """Returns one of the tasks; the ERP database is made."""
    source, words = TASKS[name]
    database = Database.load(erp(), SCHEMA) if source == "erp" else Database.load(data / source)
    given = {"name": name, "kind": "autocomplete", "task_type": "recommendation", "eval_k": 10}
    return Task.load(database, {**given, **words})


if __name__ == "__main__":
    main()
