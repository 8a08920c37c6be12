"""Rules: predictions without a network, against which a model is judged.

A label (entity, t, y) of a task with horizon h tells what happens in (t, t + h] and is known at t + h. A seed
sees only labels known at its time; where the horizon is 0, only those of earlier times, never its own.

Everything is fitted to training labels. Labels of validation belong to the past of an entity too, once they are
known; those of test do not unless they are given to `knowing`, as the rolling protocol does. The rules of a task
with past labels know the labels that its models know.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from quartet.evaluation.boosting import MOST_TREES, PATIENCE, SETTINGS, task_settings
from quartet.evaluation.metrics import (
    check_selectable,
    higher_is_better,
    main_metric,
    metric_of,
    selection_value,
)
from quartet.features import FeatureTable, SeedColumns, Timeline
from quartet.tasks import Seeds, Task

_Floats = NDArray[np.float64]
_LAST = 12
_PSEUDO_LABELS = (2.0, 4.0, 8.0)


class Rule(Protocol):
    """A rule that was fitted to a task."""

    @property
    def name(self) -> str: ...

    def predict(self, seeds: Seeds) -> _Floats:
        """Returns a score for each seed (one for each class), at the time up to which it may look."""
        ...

    def knowing(self, labels: Seeds) -> Rule:
        """Returns the same rule where more labels are known, each once its window has closed."""
        ...


def fit_rules(task: Task, features: FeatureTable) -> list[Rule]:
    """Returns all rules of a task, the plainest first."""
    return [Constant.fit(task), entity_mean(task), last_labels(task), CountTrees.fit(task, features)]


@dataclass(frozen=True, eq=False)
class Constant:
    """The same score for every seed: the share of positives or of each class, or the median."""

    score: _Floats  # (1,), or (C,) where each of C classes has a score
    name: ClassVar[str] = "constant"

    @staticmethod
    def fit(task: Task) -> Constant:
        labels = _target_columns(task, task.seeds("train"))
        middle = np.median if task.spec.type == "regression" else np.mean
        return Constant(np.asarray(middle(labels, axis=0), dtype=np.float64))

    def predict(self, seeds: Seeds) -> _Floats:
        return _scores(np.tile(self.score, (len(seeds), 1)))

    def knowing(self, labels: Seeds) -> Constant:  # noqa: ARG002 (it is fitted to train alone)
        return self


@dataclass(frozen=True, eq=False)
class PastLabels:
    """The mean of the last labels of an entity (`most`, or all) and of `num_pseudo` labels that equal `prior`."""

    name: str
    task: Task
    known: Seeds
    most: int | None
    num_pseudo: float
    prior: _Floats  # (1,) or (C,)
    timeline: Timeline
    labels: _Floats  # (E, 1 or C), in the order of the timeline

    @staticmethod
    def of(
        name: str, task: Task, known: Seeds, most: int | None, num_pseudo: float, prior: _Floats
    ) -> PastLabels:
        timeline = Timeline.of(known.node, task.spec.known_at(known.time))
        labels = _target_columns(task, known)[timeline.order]
        return PastLabels(name, task, known, most, num_pseudo, prior, timeline, labels)

    def predict(self, seeds: Seeds) -> _Floats:
        begin, end = self.timeline.until(seeds.node, seeds.time)
        begin = begin if self.most is None else np.maximum(begin, end - self.most)
        weight = (end - begin + self.num_pseudo)[:, None]
        total = _range_sums(self.labels, begin, end) + self.num_pseudo * self.prior
        return _scores(np.where(weight, total / np.where(weight, weight, 1.0), self.prior))

    def knowing(self, labels: Seeds) -> PastLabels:
        if self.task.past_labels:  # it has all of them already
            return self
        known = self.known.joined_with(labels)
        return PastLabels.of(self.name, self.task, known, self.most, self.num_pseudo, self.prior)


def entity_mean(task: Task) -> PastLabels:
    """Returns the rule of the mean of all labels that an entity had before, the constant where it had none."""
    return PastLabels.of("entity mean", task, task.known_labels(), None, 0.0, Constant.fit(task).score)


def last_labels(task: Task) -> PastLabels:
    """Returns the rule of the smoothed mean of an entity's last 12 labels; validation decides how smooth it is."""
    prior = _target_columns(task, task.seeds("train")).mean(axis=0)
    rule = PastLabels.of(f"last {_LAST} labels", task, task.known_labels(), _LAST, 0.0, prior)
    kind, val = task.spec.type, task.seeds("val")
    sign = 1 if higher_is_better(main_metric(kind)) else -1
    rules = [replace(rule, num_pseudo=number) for number in _PSEUDO_LABELS]
    return max(
        rules, key=lambda rule: sign * selection_value(kind, np.asarray(val.target), rule.predict(val))
    )


@dataclass(frozen=True, eq=False)
class CountTrees:
    """LightGBM on an entity's own columns and on counts of the rows that link to it, stopped by validation."""

    columns: SeedColumns
    booster: Any
    name: ClassVar[str] = "LightGBM on counts"

    @staticmethod
    def fit(task: Task, features: FeatureTable, rng_seed: int = 0) -> CountTrees:
        import lightgbm  # which takes a second

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

    def predict(self, seeds: Seeds) -> _Floats:
        return np.asarray(self.booster.predict(self.columns.matrix(seeds), num_threads=1))

    def knowing(self, labels: Seeds) -> CountTrees:  # noqa: ARG002 (it reads no labels)
        return self


def _target_columns(task: Task, seeds: Seeds) -> _Floats:
    """Returns the targets as one column, or for a multiclass task as one column of 0 and 1 for each class."""
    metric_of(task.spec.type)  # an error where targets are no numbers
    target = np.asarray(seeds.target)
    if task.classes is None:
        return target[:, None].astype(np.float64)
    return np.asarray(np.eye(len(task.classes))[target])


def _range_sums(values: _Floats, begin: NDArray[np.int64], end: NDArray[np.int64]) -> _Floats:
    """Returns the sum of each `values[begin:end]`, made of these alone.

    Differences of running sums would carry a bit of what stands before them.
    """
    order = np.argsort(begin, kind="stable")  # else what lies between two ranges would be summed as well
    edges = np.column_stack([begin[order], end[order]]).ravel()
    padded = np.concatenate([values, np.zeros((1, values.shape[1]))])
    sums = np.empty((len(begin), values.shape[1]))
    sums[order] = np.add.reduceat(padded, edges)[::2]
    sums[begin == end] = 0.0
    return sums


def _scores(columns: _Floats) -> _Floats:
    """Returns scores as metrics take them: (S,), or (S, C) for C classes."""
    return columns[:, 0] if columns.shape[1] == 1 else columns
