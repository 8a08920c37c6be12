"""Quartet: predictions over relational databases, without leaks.

    import quartet as q

    db = q.open("shop.sqlite")                      # a folder, a file, a URL, "rel-f1", a dict of data frames, "demo"
    task = db.task("churn.yaml")
    task.check()                                    # leaks and thin labels, as findings

    model = q.fit(task)                             # kept in runs/latest
    print(model.evaluate())                         # beside rules that need no model, with intervals

    live = model.on(db)                             # graph and features once
    live.predict(["c17", "c42"], at="2024-06-01")   # a table: key, name, time, score, calibrated, set
    live.explain(["c17"], at="2024-06-01")          # why: parts, cells, rows, known cases (docs/explain.md)
    model = q.load("runs/latest")

Errors of this package are `quartet.errors.QuartetError`, with a code, what is wrong, and what to do.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from quartet import errors

if TYPE_CHECKING:
    from pathlib import Path

    from quartet.config import Recipe
    from quartet.database import Database
    from quartet.listener import Listener
    from quartet.runs import Ensemble, TrainedModel, fit, load
    from quartet.tasks import Task

__all__ = [
    "Database",
    "Ensemble",
    "Listener",
    "Recipe",
    "Task",
    "TrainedModel",
    "__version__",
    "errors",
    "fit",
    "load",
    "open",
]

# Fetched when they are first used: `quartet --help` waits for no compiler and no network.
_HOMES = {
    "Database": "quartet.database",
    "Ensemble": "quartet.runs",
    "Listener": "quartet.listener",
    "Recipe": "quartet.config",
    "Task": "quartet.tasks",
    "TrainedModel": "quartet.runs",
    "fit": "quartet.runs",
    "load": "quartet.runs",
}


def open(source: Any, schema: str | Path | dict[str, Any] | None = None, views: bool = False) -> Database:
    """Opens a database: reads its tables, and infers the keys, links and times that it does not declare.

    Arguments:
        source: a folder of .parquet or .csv files, a SQLite or DuckDB file, a URL such as
            `postgresql://user@host/db?schema=shop` or `mysql://user@host/db`, a RelBench folder or name such as
            `rel-f1`, a dict of data frames or Arrow tables by name, or `demo`.
        schema: corrections of what was inferred: a YAML file or a dict of the same form (docs/schema.md).
        views: whether the views of an SQL database are read, too.
    """
    from quartet.database import Database

    return Database.load(source, schema, views)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("quartet-rdl")
    if name not in _HOMES:
        raise AttributeError(f"module 'quartet' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
