"""How much of each model to take: few weights, chosen on validation, and rather usual ones than sharp ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quartet.evaluation.metrics import higher_is_better, main_metric, metric_of, prepared, resamples
from quartet.tasks import TaskType

_STEPS = 6  # weights are multiples of a sixth
_NUM_RESAMPLES = 30
_NOISE = 1.0  # deviations of a difference that do not count: the rule of one standard error

# Accuracy does not tell a member that knows nothing from one that is right: half of each has the same first class.
_BLENDED_BY: dict[TaskType, str] = {"multiclass_classification": "log_loss"}

Logits = NDArray[np.float64]


def blend_weights(
    task_type: TaskType,
    target: NDArray[Any],
    groups: Sequence[NDArray[Any]],
    logits: Sequence[Logits],
    scores: Callable[[Logits], NDArray[np.float64]],
    usual: Sequence[float] | None = None,
) -> tuple[float, ...]:
    """Returns the weights of some models: of those as good as the best, the ones nearest to the usual, or to equal.

    `scores` makes scores of logits. Two blends are equally good where resamples of groups of rows do not tell them
    apart: `groups` are the entities of the rows, and their times, because days and years differ as entities do.
    """
    grid = np.array([w for w in product(range(_STEPS + 1), repeat=len(logits)) if sum(w) == _STEPS]) / _STEPS
    value, noise = compared(
        task_type, target, groups, [scores(np.tensordot(weights, np.stack(logits), 1)) for weights in grid]
    )
    best, distance = int(value.argmax()), np.abs(grid - (usual or 1 / len(logits))).max(1).round(9)
    fair = np.flatnonzero(value[best] - value <= _NOISE * noise)
    nearest = min(fair, key=lambda place: (distance[place], -value[place]))
    return tuple(grid[nearest].tolist())


def compared(
    task_type: TaskType,
    target: NDArray[Any],
    groups: Sequence[NDArray[Any]],
    scores: Sequence[NDArray[np.float64]],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns how good each of some scores is, higher is better, and the noise of its difference to the best.

    The noise is the deviation of that difference over resamples in which both see the same rows, of entities or of
    times, whichever tells them apart less.
    """
    name = compared_by(task_type)
    metric, sign = metric_of(task_type, name), 1 if higher_is_better(name) else -1
    blends = [prepared(task_type, target, score) for score in scores]
    value = np.array([sign * (metric(target, blend, None) or 0.0) for blend in blends])
    best, noise = int(value.argmax()), np.zeros(len(blends))
    for group in groups:
        drawn = [
            [sign * (metric(target, blend, weight) or 0.0) for blend in blends]
            for weight in resamples(len(target), group, _NUM_RESAMPLES, 0)
        ]
        if drawn:
            noise = np.maximum(noise, np.std(np.array(drawn) - np.array(drawn)[:, [best]], axis=0))
    return value, noise


def compared_by(task_type: TaskType) -> str:
    """Returns the metric by which scores are compared where a blend is chosen: mostly the main one."""
    return _BLENDED_BY.get(task_type, main_metric(task_type))
