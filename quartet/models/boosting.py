"""What the model lightgbm is fitted to: columns of what can be seen around each seed, and labels.

Its trees are in `baselines/boosted.py`; a run of them is one fit, which `run.py` keeps like that of a network.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch

from quartet.config import Recipe
from quartet.contexts import protocol_seeds
from quartet.evaluation import check_selectable, main_metric
from quartet.features import FeatureTable, RelationalColumns
from quartet.models.trees import Boosted, load_lightgbm
from quartet.tasks import SPLITS, Seeds, Split, Task
from quartet.training import RegressionOutput, Target, fit_output, recipe_task


@dataclass(frozen=True, eq=False)
class Boosting:
    """What the model lightgbm is fitted to and validated with. Test labels are not among it."""

    task: Task
    features: FeatureTable
    target: Target
    columns: RelationalColumns
    seeds: Mapping[Split, Seeds]

    @property
    def metric(self) -> str:
        return main_metric(self.task.spec.type)

    def labelled(self, split: Split) -> Seeds:
        """Seeds with their labels in the scale of the model's answers."""
        seeds, target = self.seeds[split], self.target
        if not isinstance(target, RegressionOutput):
            return seeds
        return replace(seeds, target=(np.asarray(seeds.target) - target.median) / target.spread)

    def loss(self, model: Boosted) -> float:
        """The mean loss of training seeds; of many, of some that are spread among them."""
        train = self.seeds["train"]
        some = np.unique(np.linspace(0, len(train) - 1, 10_000).astype(np.int64))
        answer = model.answers(self.columns, Seeds(train.node[some], train.time[some], None))
        labels = torch.tensor(np.asarray(train.target)[some])
        return float(self.target.loss(torch.tensor(answer), labels).mean())


def prepare_boosting(task: Task, recipe: Recipe) -> Boosting:
    """Features fitted at the train cut-off, columns and seeds of a task; an error where no model can be fitted."""
    load_lightgbm()
    task = recipe_task(task, recipe)
    target = fit_output(task)
    check_selectable(task.spec.type, np.asarray(task.seeds("val").target))
    features = FeatureTable.fit(task.database, task.splits.val, names=recipe.names)
    rule = recipe.sampling.time_rule
    columns = RelationalColumns.of(task.database, task.spec.entity_table, features, rule)
    seeds = {split: protocol_seeds(task, split, recipe.protocol) for split in SPLITS}
    return Boosting(task, features, target, columns, seeds)
