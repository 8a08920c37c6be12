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
    from quartet.config import ModelConfig, Recipe, SamplingConfig
    from quartet.contexts import sample
    from quartet.database import Database, Schema
    from quartet.errors import QuartetError
    from quartet.features import FeatureTable
    from quartet.graph import TemporalGraph
    from quartet.graph.storage import open_graph, save_graph
    from quartet.models.quartet import Quartet
    from quartet.runs import Ensemble, Predictor
    from quartet.runs.run import fit
    from quartet.tasks import Seeds, Task, lint, write_relbench
    from quartet.tokens import Tokenizer
    from quartet.training import ModelSchema

__all__ = [
    "Database",
    "Ensemble",
    "FeatureTable",
    "ModelConfig",
    "ModelSchema",
    "Predictor",
    "Quartet",
    "QuartetError",
    "Recipe",
    "SamplingConfig",
    "Schema",
    "Seeds",
    "Task",
    "TemporalGraph",
    "Tokenizer",
    "fit",
    "lint",
    "open_graph",
    "sample",
    "save_graph",
    "write_relbench",
]

# Names are fetched when they are first used: `quartet --help` waits for no compiler and no data frames.
_HOMES = {
    "Database": "quartet.database",
    "Ensemble": "quartet.runs",
    "FeatureTable": "quartet.features",
    "ModelConfig": "quartet.config",
    "ModelSchema": "quartet.training",
    "Predictor": "quartet.runs",
    "Quartet": "quartet.models.quartet",
    "QuartetError": "quartet.errors",
    "Recipe": "quartet.config",
    "SamplingConfig": "quartet.config",
    "Schema": "quartet.database",
    "Seeds": "quartet.tasks",
    "Task": "quartet.tasks",
    "TemporalGraph": "quartet.graph",
    "Tokenizer": "quartet.tokens",
    "fit": "quartet.runs.run",
    "lint": "quartet.tasks",
    "open_graph": "quartet.graph.storage",
    "sample": "quartet.contexts",
    "save_graph": "quartet.graph.storage",
    "write_relbench": "quartet.tasks",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'quartet' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
