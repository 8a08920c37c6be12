"""The rules without a model: a constant, and means of the labels that an entity had before.

A label (entity, t, y) of a task with horizon h tells what happens in (t, t + h]: it is known at t + h. A seed
sees only labels known at its time; where the horizon is 0, only those of earlier times, never its own.

Everything is fitted on training labels. As the history of an entity, labels of validation count too, once they
are known; those of test are in no history unless they are given to `knowing`, as the rolling protocol does. Of a task
with `history` the rules know the labels that the models know.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from quartet.evaluation.metrics import main_metric, selection_score
from quartet.features import Timeline
from quartet.tasks import Seeds, Task, joined

Floats = NDArray[np.float64]
LAST = 12
PSEUDO_LABELS = (2.0, 4.0, 8.0)


@dataclass(frozen=True, eq=False)
class Constant:
    """The same score for every seed: the share of positives or of each class, or the median."""

    score: Floats  # (1,), or (C,) where each of C classes has a score
    name: ClassVar[str] = "constant"

    @staticmethod
    def fit(task: Task) -> Constant:
        labels = target_columns(task, task.seeds("train"))
        middle = np.median if task.spec.type == "regression" else np.mean
        return Constant(np.asarray(middle(labels, axis=0), dtype=np.float64))

    def predict(self, seeds: Seeds) -> Floats:
        return _scores(np.tile(self.score, (len(seeds), 1)))


@dataclass(frozen=True, eq=False)
class History:
    """Labels by (entity, when they are known)."""

    timeline: Timeline
    labels: Floats  # (E, 1 or C), in the order of the timeline

    @staticmethod
    def of(task: Task, seeds: Seeds) -> History:
        timeline = Timeline.of(seeds.node, task.spec.known_at(seeds.time))
        return History(timeline, target_columns(task, seeds)[timeline.order])

    def sums(self, seeds: Seeds, most: int | None) -> tuple[Floats, NDArray[np.int64]]:
        """For each seed the sum of the last labels of its entity that it sees (`most`, or all), and how many."""
        begin, end = self.timeline.until(seeds.node, seeds.time)
        begin = begin if most is None else np.maximum(begin, end - most)
        return _range_sums(self.labels, begin, end), end - begin


@dataclass(frozen=True, eq=False)
class PastLabels:
    """The mean of an entity's past labels and of `num_pseudo` labels that equal `prior`."""

    name: str
    most: int | None
    num_pseudo: float
    prior: Floats  # (1,) or (C,)
    task: Task
    known: Seeds
    history: History

    @staticmethod
    def of(name: str, task: Task, most: int | None, num_pseudo: float, prior: Floats) -> PastLabels:
        known = task.known_labels()
        return PastLabels(name, most, num_pseudo, prior, task, known, History.of(task, known))

    def knowing(self, labels: Seeds) -> PastLabels:
        """The same rule where more labels belong to the history of their entities."""
        if self.task.past_labels is not None:  # it has all of them already
            return self
        known = joined(self.known, labels)
        return replace(self, known=known, history=History.of(self.task, known))

    def predict(self, seeds: Seeds) -> Floats:
        """A score for each seed, at the time up to which it may look; the prior where there is no label."""
        total, count = self.history.sums(seeds, self.most)
        weight = (count + self.num_pseudo)[:, None]
        means = (total + self.num_pseudo * self.prior) / np.where(weight, weight, 1.0)
        return _scores(np.where(weight, means, self.prior))


def entity_mean(task: Task) -> PastLabels:
    """The mean of all labels that an entity had before, the constant where it had none."""
    return PastLabels.of("entity mean", task, None, 0.0, Constant.fit(task).score)


def last_labels(task: Task) -> PastLabels:
    """The smoothed mean of the last 12 labels of an entity; how much it is smoothed, validation decides."""
    prior = target_columns(task, task.seeds("train")).mean(axis=0)
    rule = PastLabels.of(f"last {LAST} labels", task, LAST, 0.0, prior)
    val = task.seeds("val")
    rules = [replace(rule, num_pseudo=number) for number in PSEUDO_LABELS]
    return max(
        rules, key=lambda rule: selection_score(task.spec.type, np.asarray(val.target), rule.predict(val))
    )


def target_columns(task: Task, seeds: Seeds) -> Floats:
    """The targets as columns: one, or for a multiclass task one for each class, 1 where it is the seed's."""
    main_metric(task.spec.type)  # an error where targets are no numbers
    target = np.asarray(seeds.target)
    if task.classes is None:
        return target[:, None].astype(np.float64)
    return np.asarray(np.eye(len(task.classes))[target])


def _range_sums(values: Floats, begin: NDArray[np.int64], end: NDArray[np.int64]) -> Floats:
    """The sum of each `values[begin:end]`, made of these alone: differences of running sums would carry a bit
    of what stands before them."""
    order = np.argsort(begin, kind="stable")  # else what lies between two ranges would be summed as well
    edges = np.column_stack([begin[order], end[order]]).ravel()
    padded = np.concatenate([values, np.zeros((1, values.shape[1]))])
    sums = np.empty((len(begin), values.shape[1]))
    sums[order] = np.add.reduceat(padded, edges)[::2]
    sums[begin == end] = 0.0
    return sums


def _scores(columns: Floats) -> Floats:
    """Scores as metrics take them: (S,), or (S, C) for C classes."""
    return columns[:, 0] if columns.shape[1] == 1 else columns
