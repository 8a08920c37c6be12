"""The models, one row each: their name, where their class is, what their recipes start from, and a line of help.

Adding a model is its own file and one row here. The class is imported when it is first needed: this page knows the
names without waiting for torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from quartet.errors import UsageError, did_you_mean


@dataclass(frozen=True)
class ModelRow:
    """A model that can be trained. `home` is "module:class"; `defaults` hold whatever the preset."""

    name: str
    home: str
    help: str
    defaults: Mapping[str, Any] = field(default_factory=dict)
    reads: tuple[str, ...] = ()  # of a recipe these settings alone; by default all
    recommends: str = ""  # "module:class" that learns recommendation tasks; by default it cannot

    def check_settings(self, names: Iterable[str]) -> None:
        """Raises an error where a setting was given that the model does not read."""
        ignored = [name for name in names if self.reads and name not in self.reads]
        if ignored:
            raise UsageError(
                "C02",
                f'the model "{self.name}" does not read {", ".join(ignored)}',
                f"leave it out; it reads {', '.join(self.reads)}",
            )

    @property
    def model_class(self) -> Any:
        """Returns the class, which follows the protocol `quartet.training.Model`."""
        module, name = self.home.split(":")
        return getattr(import_module(module), name)

    def class_for(self, task_type: str) -> Any:
        """Returns the class that learns tasks of a type; an error where the model cannot."""
        if task_type != "recommendation":
            return self.model_class
        if not self.recommends:
            able = " or ".join(f"--model {row.name}" for row in MODELS.values() if row.recommends)
            raise UsageError("C01", f'the model "{self.name}" ranks no items', f"say {able}")
        module, name = self.recommends.split(":")
        return getattr(import_module(module), name)


# Message passing reads random walks: on validation they are better than BFS2, which is nearer to RelBench's uniform
# neighbours (docs/study/settings.md). Of names, trees read only categories, and validation is no worse with them
# (docs/log.md).
_RECOMMENDER = "quartet.recommend.recommender:Recommender"
_ROWS = (
    ModelRow(
        "quartet", "quartet.models.quartet:Quartet", "the graph transformer of the paper", recommends=_RECOMMENDER
    ),
    ModelRow(
        "auto", "quartet.models.portfolio:Portfolio", "trees, a tower, Quartet, and their blend (the default)",
        {"tower": 8, "time_limit": 300.0, "use_row_names": False, "refit": "auto"},
        recommends=_RECOMMENDER,
    ),
    ModelRow(
        "tower", "quartet.models.tower:TowerAlone", "a perceptron on the columns that trees read",
        {"local": False, "branches": (), "tower": 8},
    ),
    ModelRow(
        "relgt", "quartet.models.relgt:RelGT", "a transformer over local tokens with one memory of centroids",
        {"local_sampler": "bfs", "branches": ()},
    ),
    ModelRow(
        "rgp", "quartet.models.rgp:RGP", "a perceiver over the newest links and the local context",
        {"local_sampler": "bfs", "branches": ("temporal",), "temporal_unit": "links"},
    ),
    ModelRow(
        "hgt", "quartet.models.hgt:HGT", "message passing with attention by type",
        {"local_sampler": "walk", "branches": ()},
    ),
    ModelRow(
        "sage", "quartet.models.sage:GraphSAGE", "message passing with means, RelBench's own model",
        {"local_sampler": "walk", "branches": ()},
    ),
    ModelRow(
        "lightgbm", "quartet.models.trees:Trees", "boosted trees on counts, means and recencies of the rows around",
        {"branches": (), "use_row_names": True, "refit": "auto"},
        ("rng_seed", "past_labels", "use_row_names", "protocol", "time_rule", "time_limit", "extra_trees",
         "tree_target", "refit"),
        _RECOMMENDER,
    ),
)  # fmt: skip
MODELS = {row.name: row for row in _ROWS}


def model_row(name: str) -> ModelRow:
    """Returns the row of a model; an unknown name is an error with a suggestion."""
    if name not in MODELS:
        raise UsageError("C01", f'there is no model "{name}"' + did_you_mean(name, MODELS))
    return MODELS[name]
