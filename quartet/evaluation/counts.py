"""LightGBM on an entity's own columns and on counts of the rows that link to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from quartet.errors import ResourceError
from quartet.evaluation.metrics import check_selectable
from quartet.features import FeatureTable
from quartet.features.counts import SeedColumns
from quartet.tasks import Seeds, Task, TaskType

MOST_TREES = 2000
PATIENCE = 50  # trees without a better validation score
# Objective, and what stops the training. Accuracy moves in steps, so the loss stands in for it.
_OBJECTIVES: dict[TaskType, tuple[str, str]] = {
    "binary_classification": ("binary", "auc"),
    "regression": ("regression_l1", "l1"),
    "multiclass_classification": ("multiclass", "multi_logloss"),
}
SETTINGS = {
    "learning_rate": 0.05,
    "num_leaves": 31,
    "min_data_in_leaf": 100,
    "feature_fraction": 0.6,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "deterministic": True,
    "force_row_wise": True,
    "num_threads": 1,  # more of them wait for each other wherever the machine is busy
    "verbose": -1,
}


@dataclass(frozen=True, eq=False)
class CountsModel:
    """LightGBM on what `SeedColumns` shows, stopped by validation; equal settings give equal scores."""

    columns: SeedColumns
    booster: Any
    name: ClassVar[str] = "LightGBM on counts"

    @staticmethod
    def fit(task: Task, features: FeatureTable, rng_seed: int = 0) -> CountsModel:
        lightgbm = lightgbm_for(f'the baseline "{CountsModel.name}"')
        columns = SeedColumns.of(task.database, task.spec.entity_table, features)
        train, val = task.seeds("train"), task.seeds("val")
        check_selectable(task.spec.type, np.asarray(val.target))
        codes = range(len(columns.features.layout.categories))
        data = lightgbm.Dataset(columns.matrix(train), train.target, categorical_feature=list(codes))
        booster = lightgbm.train(
            SETTINGS | task_settings(task.spec.type, len(task.classes or ())) | {"seed": rng_seed},
            data,
            MOST_TREES,
            valid_sets=[data.create_valid(columns.matrix(val), val.target)],
            callbacks=[lightgbm.early_stopping(PATIENCE, verbose=False)],
        )
        return CountsModel(columns, booster)

    def predict(self, seeds: Seeds) -> NDArray[np.float64]:
        """A score for each seed (one for each class), at the time up to which it may look."""
        return np.asarray(self.booster.predict(self.columns.matrix(seeds), num_threads=1))


def task_settings(task_type: TaskType, num_classes: int) -> dict[str, Any]:
    """What LightGBM must know of a task."""
    objective, metric = _OBJECTIVES[task_type]
    classes = {"num_class": num_classes} if objective == "multiclass" else {}
    return {"objective": objective, "metric": metric, **classes}


def lightgbm_for(what: str) -> Any:
    """The package that something needs, or an error that says how to get it."""
    try:
        import lightgbm
    except ImportError:
        raise ResourceError(
            "R01",
            f"{what} needs the package lightgbm, which is not installed",
            'pip install "quartet-rdl[baselines]"',
        ) from None
    return lightgbm
