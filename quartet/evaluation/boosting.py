"""How LightGBM is called here: one set of settings for the rule on counts and for the model `lightgbm`."""

from __future__ import annotations

from typing import Any

from quartet.errors import ResourceError
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
    "deterministic": True,
    "force_row_wise": True,
    "num_threads": 1,  # more of them wait for each other wherever the machine is busy
    "verbose": -1,
}
# Objective, and what stops the training. Accuracy moves in steps, so the loss stands in for it.
_OBJECTIVES: dict[TaskType, tuple[str, str]] = {
    "binary_classification": ("binary", "auc"),
    "regression": ("regression_l1", "l1"),
    "multiclass_classification": ("multiclass", "multi_logloss"),
}


def lightgbm_for(what: str) -> Any:
    """Returns the package that something needs, or raises an error that says how to install it."""
    try:
        import lightgbm
    except ImportError:
        raise ResourceError(
            "R01",
            f"{what} needs the package lightgbm, which is not installed",
            'pip install "quartet-rdl[baselines]"',
        ) from None
    return lightgbm


def task_settings(task_type: TaskType, num_classes: int) -> dict[str, Any]:
    """Returns the settings that depend on the task."""
    objective, metric = _OBJECTIVES[task_type]
    classes = {"num_class": num_classes} if objective == "multiclass" else {}
    return {"objective": objective, "metric": metric, **classes}
