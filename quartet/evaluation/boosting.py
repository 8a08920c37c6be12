"""How LightGBM is called here: one set of settings for the rule on counts and for the model `lightgbm`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quartet.machine import import_lightgbm
from quartet.tasks import TaskType

MOST_TREES = 2000
PATIENCE = 50  # rounds without a better validation score
_SEVERAL, _VERY_MANY = 10, 100  # classes: a round has a tree for each, so trees are small, then learn faster
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
# Where codes of past labels are columns, among many classes: a class is told by its own code, however few rows have it.
CLASS_CODES = {"min_data_per_group": 10, "cat_smooth": 2.0, "cat_l2": 1.0}
_FEW, _MANY = 20_000, 50_000  # rows of training: with few of them trees are smaller, with many coarser
_WIDE = 200  # columns, of which each tree looks at fewer
# Objective, and what stops the training. Accuracy moves in steps, so the loss stands in for it.
_OBJECTIVES: dict[TaskType, tuple[str, str]] = {
    "binary_classification": ("binary", "auc"),
    "regression": ("regression_l1", "l1"),
    "multiclass_classification": ("multiclass", "multi_logloss"),
    "multilabel_classification": ("binary", "binary_logloss"),  # of each label: see `grow_labels`
}


def column_settings(
    task_type: TaskType, num_rows: int, num_columns: int, is_extra: bool, threads: int
) -> dict[str, Any]:
    """Returns the settings of trees on relational columns, of which there are many, and many alike.

    Of a regression the few rows with large labels count most: leaves may be small, and bins are fine.
    """
    if task_type == "regression":
        size = {"feature_fraction": 0.3, "min_data_in_leaf": 20}
    elif num_rows < _FEW:
        size = {"num_leaves": 15, "min_data_in_leaf": 50, "feature_fraction": 0.3} if not is_extra else {}
    else:
        part = 0.15 if num_columns >= _WIDE else 0.3
        size = {"feature_fraction": part} if num_rows >= _MANY or not is_extra else {}
        size |= {"max_bin": 63} if num_rows >= _MANY else {}
    return SETTINGS | size | {"extra_trees": is_extra, "num_threads": threads}


def task_settings(task_type: TaskType, num_classes: int, num_rows: int = 0) -> dict[str, Any]:
    """Returns the settings that depend on the task.

    Of several classes small trees on coarse bins are better, and several times faster: a class has few rows, and each
    round a tree for every one of them.
    """
    objective, metric = _OBJECTIVES[task_type]
    classes: dict[str, Any] = {"num_class": num_classes} if objective == "multiclass" else {}
    if num_classes > _SEVERAL:
        classes |= {"max_bin": 63, "force_row_wise": False, "force_col_wise": True}
        classes |= {"num_leaves": 7 if num_rows < _FEW else 15} if objective == "multiclass" else {}
        rate = SETTINGS["learning_rate"]
        assert isinstance(rate, float)
        classes |= {"learning_rate": rate * min(4.0, max(1.0, num_classes / _VERY_MANY))}
    return {"objective": objective, "metric": metric, **classes}


def patience(num_classes: int) -> int:
    """Returns after how many rounds without a better validation score trees are done: fewer where rounds are long."""
    return PATIENCE if num_classes <= _SEVERAL else PATIENCE // 2


@dataclass(frozen=True, eq=False)
class LabelBooster:
    """Trees of several labels that were grown side by side, on the same bins: one tree for each label in a round."""

    booster: Any
    base: NDArray[np.float64]  # the logit of each label's rate, to which trees add
    rounds: NDArray[np.int64]  # the best number of rounds of each label

    def logits(self, matrix: NDArray[Any]) -> NDArray[np.float64]:
        """Returns the (S, labels) logits of rows, of each label by its best rounds."""
        logits = np.empty((len(matrix), len(self.base)))
        for count in np.unique(self.rounds):
            raw = self.booster.predict(matrix, num_iteration=int(count), raw_score=True, num_threads=1)
            which = self.rounds == count
            logits[:, which] = np.asarray(raw).reshape(len(matrix), -1)[:, which]
        return logits + self.base


def grow_labels(
    settings: Mapping[str, Any],
    train: tuple[NDArray[Any], NDArray[Any]],
    stop: tuple[NDArray[Any], NDArray[Any]] | None,
    codes: Sequence[int],
    rounds: int = MOST_TREES,
    must_stop: Callable[[], bool] = lambda: False,
    starts: tuple[Any, Any] = (None, None),
) -> LabelBooster:
    """Returns trees for (S, labels) targets of 0 and 1; each label ends with its own best round on the rows that stop.

    All end when no label has become better for a while. `starts` are (S, labels) logits at which the trees of either
    rows begin; else they begin with the rate of each label.
    """
    lightgbm = import_lightgbm()  # which takes a second

    most = patience(train[1].shape[1])
    target = train[1].astype(np.float64)
    rate = (target.sum(0) + 0.5) / (len(target) + 1)
    base, num_labels = np.log(rate / (1 - rate)), target.shape[1]
    if starts[0] is not None:
        base = np.zeros(num_labels)
    first, first_stop = (0.0 if start is None else start for start in starts)
    losses: list[NDArray[np.float64]] = []

    def gradient(raw: NDArray[np.float64], data: Any) -> tuple[Any, Any]:  # noqa: ARG001 (as LightGBM calls it)
        chance = 1 / (1 + np.exp(-(raw.reshape(target.shape, order="F") + base + first)))
        return chance - target, np.maximum(chance * (1 - chance), 1e-12)

    def loss(raw: NDArray[np.float64], data: Any) -> tuple[str, float, bool]:  # noqa: ARG001
        assert stop is not None
        logit = raw.reshape(stop[1].shape, order="F") + base + first_stop
        losses.append((np.logaddexp(0, logit) - stop[1] * logit).mean(0))
        return "loss", float(losses[-1].mean()), False

    def watch(state: Any) -> None:
        since = len(losses) - 1 - np.argmin(losses, axis=0)
        if since.min() >= most or must_stop():
            raise lightgbm.callback.EarlyStopException(state.iteration, state.evaluation_result_list)

    own = {**settings, "objective": gradient, "num_class": num_labels, "metric": "none"}
    data = lightgbm.Dataset(train[0], target[:, 0], categorical_feature=list(codes), params=dict(settings))
    if stop is None:
        booster = lightgbm.train(own, data, rounds)
        return LabelBooster(booster, base, np.full(num_labels, rounds))
    valid = [data.create_valid(stop[0], stop[1][:, 0])]
    booster = lightgbm.train(own, data, rounds, valid_sets=valid, feval=loss, callbacks=[watch])
    return LabelBooster(booster, base, 1 + np.argmin(losses, axis=0))
