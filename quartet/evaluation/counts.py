"""The rule "LightGBM on counts": trees on an entity's own columns and on counts of the rows that link to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from quartet.evaluation.boosting import MOST_TREES, PATIENCE, SETTINGS, lightgbm_for, task_settings
from quartet.evaluation.metrics import check_selectable
from quartet.features import FeatureTable, SeedColumns
from quartet.tasks import Seeds, Task


@dataclass(frozen=True, eq=False)
class CountTrees:
    """LightGBM on `SeedColumns`, stopped by validation; equal settings give equal scores."""

    columns: SeedColumns
    booster: Any
    name: ClassVar[str] = "LightGBM on counts"

    @staticmethod
    def fit(task: Task, features: FeatureTable, rng_seed: int = 0) -> CountTrees:
        lightgbm = lightgbm_for(f'the rule "{CountTrees.name}"')
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
        return CountTrees(columns, booster)

    def predict(self, seeds: Seeds) -> NDArray[np.float64]:
        return np.asarray(self.booster.predict(self.columns.matrix(seeds), num_threads=1))

    def knowing(self, labels: Seeds) -> CountTrees:  # noqa: ARG002 (it reads no labels)
        return self
