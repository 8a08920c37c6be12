"""Quartet: predictions over relational databases, without leaks.

from quartet import Database, Task, TemporalGraph

database = Database.load("demo")
task = Task.load(database, "plane-idle")
graph = TemporalGraph.build(task.database)
seeds = task.seeds("train")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quartet.database.database import Database
    from quartet.database.schema import Schema
    from quartet.errors import QuartetError
    from quartet.export import write_relbench
    from quartet.graph import TemporalGraph, open_graph, save_graph
    from quartet.tasks import Seeds, Task, lint

__all__ = [
    "Database",
    "QuartetError",
    "Schema",
    "Seeds",
    "Task",
    "TemporalGraph",
    "lint",
    "open_graph",
    "save_graph",
    "write_relbench",
]

# Names are fetched when they are first used: `quartet --help` waits for no compiler and no data frames.
_HOMES = {
    "Database": "quartet.database.database",
    "QuartetError": "quartet.errors",
    "Schema": "quartet.database.schema",
    "Seeds": "quartet.tasks",
    "Task": "quartet.tasks",
    "TemporalGraph": "quartet.graph",
    "lint": "quartet.tasks",
    "open_graph": "quartet.graph",
    "save_graph": "quartet.graph",
    "write_relbench": "quartet.export",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'quartet' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
