"""What scores are worth in plain counts: what the highest hold, how far values miss, which of two is better."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quartet.evaluation.metrics import (
    Measure,
    average_precision,
    higher_is_better,
    main_metric,
    metric_of,
    prepared,
    resamples,
    roc_auc,
)
from quartet.tasks import TaskType

_NUM_POINTS = 50
_ROUND = (10, 20, 50, 100, 200, 500, 1000)
_PERCENTILES = (50, 80, 90)
_NUM_RESAMPLES = 1000

_Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Hits:
    """How many of the `count` highest scored came true."""

    count: int
    came_true: float


@dataclass(frozen=True)
class Miss:
    """So many in a hundred predictions were off by `error` at most."""

    percent: int
    error: float


def hits(target: NDArray[Any], score: _Floats) -> tuple[Hits, ...]:
    """Returns the hits among ever more of the highest scored, from none to all, round numbers among them.

    Rows of equal score count as their mean: the order of the rows does not matter.
    """
    num_rows, order = len(target), np.argsort(-score, kind="stable")
    counts = np.unique([*np.linspace(0, num_rows, _NUM_POINTS + 1).round(), *_ROUND]).astype(np.int64)
    counts = counts[counts <= num_rows]
    first = np.flatnonzero(np.append(True, np.diff(score[order]) != 0))[:num_rows]
    found = np.cumsum(np.add.reduceat(target[order].astype(np.float64), first)) if num_rows else np.empty(0)
    came_true = np.interp(counts, [*first, num_rows], [0.0, *found])
    return tuple(Hits(int(count), float(true)) for count, true in zip(counts, came_true, strict=True))


def misses(target: NDArray[Any], score: _Floats) -> tuple[Miss, ...]:
    """Returns how far off half, four fifths and nine tenths of the predicted values were at most."""
    if not len(target):
        return ()
    errors = np.percentile(np.abs(target - score), _PERCENTILES, method="higher")
    return tuple(Miss(percent, float(error)) for percent, error in zip(_PERCENTILES, errors, strict=True))


def confusion(target: NDArray[Any], score: _Floats) -> tuple[tuple[int, ...], ...]:
    """Returns how many rows of each class (down) were predicted to be of which (across).

    Rows of classes that training did not have are in a last line, if there are any.
    """
    num = score.shape[1]
    own, lines = np.minimum(target, num), num + int(target.max(initial=0) >= num)
    counts = np.bincount(own * num + score.argmax(axis=1), minlength=lines * num).reshape(lines, num)
    return tuple(tuple(map(int, row)) for row in counts)


@dataclass(frozen=True)
class LabelFigures:
    """How well one label of many is found: by its scores, and by those above its threshold."""

    name: str
    count: int  # rows that have it
    average_precision: float | None
    roc_auc: float | None
    threshold: float
    precision: float | None
    recall: float | None


def label_figures(
    target: NDArray[Any], score: _Floats, names: Sequence[Any], thresholds: _Floats
) -> tuple[LabelFigures, ...]:
    """Returns the figures of each label that training has, and in one line of those that it lacks."""
    found = []
    for place, name in enumerate(names):
        came, said = target[:, place] == 1, score[:, place] >= thresholds[place]
        right, is_told = int((came & said).sum()), came.min(initial=1) < came.max(initial=0)
        found.append(
            LabelFigures(
                str(name),
                int(came.sum()),
                average_precision(target[:, place], score[:, place]) if is_told else None,
                roc_auc(target[:, place], score[:, place]) if is_told else None,
                float(thresholds[place]),
                right / int(said.sum()) if said.any() else None,
                right / int(came.sum()) if came.any() else None,
            )
        )
    if target.shape[1] > len(names):
        rows = int(target[:, len(names) :].any(1).sum())
        told = f"(not in training: {target.shape[1] - len(names):,})"
        found.append(LabelFigures(told, rows, None, None, 1.0, None, 0.0))
    return tuple(found)


def best_thresholds(target: NDArray[Any], score: _Floats) -> tuple[float, ...]:
    """Returns for each label the score from which on it counts as predicted: where its F1 on these rows is highest.

    It lies half way between the last score that counts and the next. A label that these rows do not have, or that all
    have, is predicted from 0.5 on.
    """
    found = []
    for place in range(score.shape[1]):
        order = np.argsort(-score[:, place], kind="stable")
        came, own = target[order, place].astype(np.float64), score[order, place]
        if not 0 < came.sum() < len(came):
            found.append(0.5)
            continue
        right, said = np.cumsum(came), np.arange(1, len(came) + 1)
        is_last = np.append(own[1:] < own[:-1], True)  # equal scores are all predicted, or none
        f1 = np.where(is_last, 2 * right / (said + came.sum()), 0.0)
        best = int(f1.argmax())
        after = own[best + 1] if best + 1 < len(own) else 0.0
        found.append(float((own[best] + after) / 2))
    return tuple(found)


def difference(
    task_type: TaskType,
    target: NDArray[Any],
    one: _Floats,
    other: _Floats,
    entity: NDArray[Any],
    rng_seed: int = 0,
) -> Measure:
    """Returns the main metric of some scores minus that of others, with its 95 % interval.

    Both are measured on the same resamples of entities: what is hard for both cancels out.
    """
    name, metric = main_metric(task_type), metric_of(task_type)
    one, other = (prepared(task_type, target, score) for score in (one, other))

    def gap(weight: _Floats | None) -> float | None:
        values = metric(target, one, weight), metric(target, other, weight)
        return None if values[0] is None or values[1] is None else values[0] - values[1]

    value = gap(None) if len(target) else None
    drawn = [gap(weight) for weight in resamples(len(target), entity, _NUM_RESAMPLES, rng_seed)]
    known = [each for each in drawn if each is not None]
    low, high = map(float, np.percentile(known, (2.5, 97.5))) if known and value is not None else (None, None)
    why = "" if value is not None else "the rows do not determine it"
    return Measure(f"difference of {name}", value, low, high, higher_is_better(name), why)
