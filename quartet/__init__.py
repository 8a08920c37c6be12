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
    from quartet.config import ModelConfig, SamplerConfig
    from quartet.database.database import Database
    from quartet.database.schema import Schema
    from quartet.ensemble import Ensemble
    from quartet.errors import QuartetError
    from quartet.export import write_relbench
    from quartet.features import FeatureTable
    from quartet.graph import TemporalGraph, open_graph, save_graph
    from quartet.nn.model import Quartet
    from quartet.nn.parts import ModelSchema
    from quartet.predict import Predictor
    from quartet.recipe import Recipe
    from quartet.run import fit
    from quartet.samplers import sample
    from quartet.tasks import Seeds, Task, lint
    from quartet.tokens import Tokenizer

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
    "SamplerConfig",
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
    "Database": "quartet.database.database",
    "Ensemble": "quartet.ensemble",
    "FeatureTable": "quartet.features",
    "ModelConfig": "quartet.config",
    "ModelSchema": "quartet.nn.parts",
    "Predictor": "quartet.predict",
    "Quartet": "quartet.nn.model",
    "QuartetError": "quartet.errors",
    "Recipe": "quartet.recipe",
    "SamplerConfig": "quartet.config",
    "Schema": "quartet.database.schema",
    "Seeds": "quartet.tasks",
    "Task": "quartet.tasks",
    "TemporalGraph": "quartet.graph",
    "Tokenizer": "quartet.tokens",
    "fit": "quartet.run",
    "lint": "quartet.tasks",
    "open_graph": "quartet.graph",
    "sample": "quartet.samplers",
    "save_graph": "quartet.graph",
    "write_relbench": "quartet.export",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'quartet' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
