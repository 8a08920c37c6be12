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

from quartet.causal import visible
from quartet.evaluation.boosting import (
    MOST_TREES,
    SETTINGS,
    LabelBooster,
    grow_labels,
    patience,
    task_settings,
)
from quartet.evaluation.metrics import (
    check_selectable,
    higher_is_better,
    main_metric,
    metric_of,
    selection_value,
)
from quartet.features import FeatureTable, SeedColumns, Timeline
from quartet.machine import import_lightgbm
from quartet.tasks import Seeds, Task

_Floats = NDArray[np.float64]
_LAST = 12
_PSEUDO_LABELS = (2.0, 4.0, 8.0)
_FEW_PSEUDO = 0.1


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
    """Returns all rules of a task, the plainest first. A row that is filled in has no labels of its own before."""
    past = (
        [linked_labels(task)] if task.spec.kind == "autocomplete" else [entity_mean(task), last_labels(task)]
    )
    rules = [Constant.fit(task), *past, CountTrees.fit(task, features)]
    return [rule for rule in rules if rule is not None]


@dataclass(frozen=True, eq=False)
class Constant:
    """The same score for every seed: the share of positives or of each class, or the median."""

    score: _Floats  # (1,), or (C,) where each of C classes has a score
    has_classes: bool = False
    name: ClassVar[str] = "constant"

    @staticmethod
    def fit(task: Task) -> Constant:
        labels = _target_columns(task, task.seeds("train"))
        middle = np.median if task.spec.facts.is_number else np.mean
        return Constant(np.asarray(middle(labels, axis=0), dtype=np.float64), task.classes is not None)

    def predict(self, seeds: Seeds) -> _Floats:
        return _scores(np.tile(self.score, (len(seeds), 1)), self.has_classes)

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
    whose: NDArray[np.int64] | None = None  # for each row of the entity table; None: its own

    @staticmethod
    def of(
        name: str,
        task: Task,
        known: Seeds,
        most: int | None,
        num_pseudo: float,
        prior: _Floats,
        whose: NDArray[np.int64] | None = None,
    ) -> PastLabels:
        known = _learnable(task, known)
        timeline = Timeline.of(_owners(task, known, whose), task.spec.known_at(known.time))
        labels = _target_columns(task, known)[timeline.order]
        return PastLabels(name, task, known, most, num_pseudo, prior, timeline, labels, whose)

    def predict(self, seeds: Seeds) -> _Floats:
        begin, end = self.timeline.until(_owners(self.task, seeds, self.whose), seeds.time)
        begin = begin if self.most is None else np.maximum(begin, end - self.most)
        weight = (end - begin + self.num_pseudo)[:, None]
        total = _range_sums(self.labels, begin, end) + self.num_pseudo * self.prior
        mean = np.where(weight, total / np.where(weight, weight, 1.0), self.prior)
        return _scores(mean, self.task.classes is not None)

    def knowing(self, labels: Seeds) -> PastLabels:
        if self.task.past_labels:  # it has all of them already
            return self
        known = self.known.joined_with(labels)
        return PastLabels.of(self.name, self.task, known, self.most, self.num_pseudo, self.prior, self.whose)


def entity_mean(task: Task) -> PastLabels:
    """Returns the rule of the mean of all labels that an entity had before, the constant where it had none."""
    return PastLabels.of("entity mean", task, task.known_labels(), None, 0.0, Constant.fit(task).score)


def last_labels(task: Task) -> PastLabels:
    """Returns the rule of the smoothed mean of an entity's last 12 labels; validation decides how smooth it is."""
    prior = _target_columns(task, task.seeds("train")).mean(axis=0)
    rule = PastLabels.of(f"last {_LAST} labels", task, task.known_labels(), _LAST, 0.0, prior)
    return _best_on_validation(task, [replace(rule, num_pseudo=number) for number in _PSEUDO_LABELS])


def linked_labels(task: Task) -> PastLabels | None:
    """Returns the rule of the last 12 labels of rows that name the same row: of one customer, or of one product.

    A row that is filled in has no labels of its own. Validation decides which row, one or two links away, and how
    smooth the mean is; there is no such rule of rows that name none.
    """
    database, prior = task.database, _target_columns(task, task.seeds("train")).mean(axis=0)
    rules, known = [], task.known_labels()
    for near in (relation for relation in database.relations if relation.table == task.spec.entity_table):
        ways = {near.parent: near.rows}
        for far in (relation for relation in database.relations if relation.table == near.parent):
            ways[far.parent] = np.where(near.rows >= 0, far.rows[near.rows], -1)
        for name, rows in ways.items():
            alone = -1 - np.arange(
                len(rows)
            )  # who names none, or one to come, has nothing in common with others
            known_at = database[task.spec.entity_table].known_at
            is_named = (rows >= 0) & visible(database[name].known_at[rows], known_at)
            rule = PastLabels.of(
                f"last {_LAST} of the same {name}",
                task,
                known,
                _LAST,
                0.0,
                prior,
                np.where(is_named, rows, alone),
            )
            rules += [replace(rule, num_pseudo=number) for number in (_FEW_PSEUDO, *_PSEUDO_LABELS)]
    return _best_on_validation(task, rules) if rules else None


def _best_on_validation(task: Task, rules: list[PastLabels]) -> PastLabels:
    kind, val = task.spec.type, task.seeds("val")
    sign = 1 if higher_is_better(main_metric(kind)) else -1
    return max(
        rules, key=lambda rule: sign * selection_value(kind, np.asarray(val.target), rule.predict(val))
    )


def _owners(task: Task, seeds: Seeds, whose: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """Returns to whom the labels of seeds belong: to their nodes, or to rows that they name."""
    if whose is None:
        return seeds.node
    return whose[seeds.node - task.database.offsets[task.spec.entity_table]]


@dataclass(frozen=True, eq=False)
class CountTrees:
    """LightGBM on an entity's own columns and on counts of the rows that link to it, stopped by validation."""

    columns: SeedColumns
    booster: Any
    name: ClassVar[str] = "LightGBM on counts"

    @staticmethod
    def fit(task: Task, features: FeatureTable, rng_seed: int = 0) -> CountTrees:
        lightgbm = import_lightgbm()  # which takes a second

        columns = SeedColumns.of(task.database, task.spec.entity_table, features)
        train, val = task.seeds("train"), task.seeds("val")
        num_classes = len(task.classes or ())
        check_selectable(task.spec.type, np.asarray(val.target), num_classes=num_classes or None)
        codes = range(len(columns.features.layout.categories))
        settings = SETTINGS | task_settings(task.spec.type, num_classes, len(train)) | {"seed": rng_seed}
        train, val = _learnable(task, train), _learnable(task, val)
        rows = [(columns.matrix(seeds), np.asarray(seeds.target)) for seeds in (train, val)]
        if rows[0][1].ndim > 1:
            return CountTrees(columns, grow_labels(settings, rows[0], rows[1], codes))
        data = lightgbm.Dataset(*rows[0], categorical_feature=list(codes))
        booster = lightgbm.train(
            settings,
            data,
            MOST_TREES,
            valid_sets=[data.create_valid(*rows[1])],
            callbacks=[lightgbm.early_stopping(patience(num_classes), verbose=False)],
        )
        return CountTrees(columns, booster)

    def predict(self, seeds: Seeds) -> _Floats:
        matrix = self.columns.matrix(seeds)
        if isinstance(self.booster, LabelBooster):
            logit = self.booster.logits(matrix)
            return np.asarray(1 / (1 + np.exp(-logit)))
        return np.asarray(self.booster.predict(matrix, num_threads=1))

    def knowing(self, labels: Seeds) -> CountTrees:  # noqa: ARG002 (it reads no labels)
        return self


def _target_columns(task: Task, seeds: Seeds) -> _Floats:
    """Returns the targets as one column, or of classes as one column of 0 and 1 for each."""
    metric_of(task.spec.type)  # an error where targets are no numbers
    target = np.asarray(seeds.target)
    if task.classes is None:
        return target[:, None].astype(np.float64)
    return target.astype(np.float64) if target.ndim > 1 else np.asarray(np.eye(len(task.classes))[target])


def _learnable(task: Task, seeds: Seeds) -> Seeds:
    """Returns seeds without what nothing can be learned from: classes that training does not have."""
    target, num = np.asarray(seeds.target), len(task.classes or ())
    if task.classes is None:
        return seeds
    return replace(seeds, target=target[:, :num]) if target.ndim > 1 else seeds.select(target < num)


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


def _scores(columns: _Floats, has_classes: bool) -> _Floats:
    """Returns scores as metrics take them: (S,), or (S, C) for C classes."""
    return columns if has_classes else columns[:, 0]
