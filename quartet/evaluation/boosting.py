"""How LightGBM is called here: one set of settings for the rule on counts and for the model `lightgbm`."""

from __future__ import annotations

from typing import Any

from quartet.tasks import TaskType

MOST_TREES = 2000
PATIENCE = 50  # trees without a better validation score
SETTINGS = {
    "learning_rate": 0.05,
    "num_leaves": 31,
    "min_data_in_leaf": 100,
    "feature_fraction": 0.6,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "deterministic": True,  # whatever the number of threads
    "force_row_wise": True,
    "num_threads": 1,
    "verbose": -1,
}
_FEW, _MANY = 20_000, 50_000  # rows of training: with few of them trees are smaller, with many coarser
# Objective, and what stops the training. Accuracy moves in steps, so the loss stands in for it.
_OBJECTIVES: dict[TaskType, tuple[str, str]] = {
    "binary_classification": ("binary", "auc"),
    "regression": ("regression_l1", "l1"),
    "multiclass_classification": ("multiclass", "multi_logloss"),
}


def column_settings(task_type: TaskType, num_rows: int, is_extra: bool, threads: int) -> dict[str, Any]:
    """Returns the settings of trees on relational columns, of which there are many, and many alike.

    Of a regression the few rows with large labels count most: leaves may be small, and bins are fine.
    """
    if task_type == "regression":
        size = {"feature_fraction": 0.3, "min_data_in_leaf": 20}
    elif num_rows < _FEW:
        size = {"num_leaves": 15, "min_data_in_leaf": 50, "feature_fraction": 0.3} if not is_extra else {}
    else:
        size = {"feature_fraction": 0.3} if num_rows >= _MANY or not is_extra else {}
        size |= {"max_bin": 63} if num_rows >= _MANY else {}
    return SETTINGS | size | {"extra_trees": is_extra, "num_threads": threads}


def task_settings(task_type: TaskType, num_classes: int) -> dict[str, Any]:
    """Returns the settings that depend on the task."""
    objective, metric = _OBJECTIVES[task_type]
    classes = {"num_class": num_classes} if objective == "multiclass" else {}
    return {"objective": objective, "metric": metric, **classes}
