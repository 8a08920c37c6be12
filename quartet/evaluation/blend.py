"""How much of two models to take: few weights, chosen on validation, and rather equal than sharp."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quartet.evaluation.metrics import higher_is_better, main_metric, metric_of, resamples
from quartet.tasks import TaskType

_WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0)
_NUM_RESAMPLES = 50
_NOISE = 0.5  # deviations of a difference that do not count


def blend_weight(
    task_type: TaskType,
    target: NDArray[Any],
    entity: NDArray[Any],
    scores_at: Callable[[float], NDArray[np.float64]],
) -> float:
    """Returns the weight of the second of two models: of those as good as the best, the one nearest to a half.

    `scores_at` gives the scores of the two at a weight. Two weights are equally good where resamples of the entities
    do not tell them apart.
    """
    metric, sign = metric_of(task_type), 1 if higher_is_better(main_metric(task_type)) else -1
    scores = [scores_at(weight) for weight in _WEIGHTS]
    value = np.array([sign * (metric(target, score, None) or 0.0) for score in scores])
    drawn = [
        [sign * (metric(target, score, weight) or 0.0) for score in scores]
        for weight in resamples(len(target), entity, _NUM_RESAMPLES, 0)
    ]
    best = int(value.argmax())
    noise = np.zeros(len(scores))
    if drawn:
        noise = np.std(np.array(drawn) - np.array(drawn)[:, [best]], axis=0)
    fair = [
        weight for weight, v, n in zip(_WEIGHTS, value, noise, strict=True) if value[best] - v <= _NOISE * n
    ]
    return min(fair, key=lambda weight: abs(weight - 0.5))
