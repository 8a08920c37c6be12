"""Metrics of predictions, each with a 95 % interval. Only numpy.

A metric is a plain function of targets, scores and weights. The weight of a row is how often it counts, so that
a resample is a vector of weights and no copy of the rows. A metric that the rows do not determine is None: never
NaN, and never a number that only looks like one. `measures` gives all metrics of a task with their intervals.

Scores are the probability of class 1 (binary), one probability for each class (multiclass, multilabel), or the
predicted value (regression). Targets of classes that training did not have have numbers (or columns) after those of the
scores: they count as given the probability 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quartet.errors import TaskError, UsageError, did_you_mean
from quartet.tasks import TYPES, Links, TaskType

_Array = NDArray[Any]
_Floats = NDArray[np.float64]
_Metric = Callable[[_Array, Any, _Floats | None], float | None]
_NUM_BINS = 10
_NUM_RESAMPLES = 1000
_EPSILON = float(np.finfo(np.float64).eps)
INTERVAL = (2.5, 97.5)  # percentiles
_NEED_TWO_CLASSES = ("roc_auc", "average_precision")
_NEED_PROBABILITIES = ("brier", "calibration_error", "log_loss", "label_log_loss")
_TOP = 5


@dataclass(frozen=True)
class Measure:
    """A metric with the ends of its 95 % interval, or None and the reason why there is none."""

    name: str
    value: float | None
    low: float | None
    high: float | None
    higher_is_better: bool
    undefined: str = ""

    def __str__(self) -> str:
        if self.value is None:
            return f"n/a ({self.undefined})"
        return f"{self.value:.4f}" + ("" if self.low is None else f" [{self.low:.4f}, {self.high:.4f}]")


# --- binary classification ------------------------------------------------------------------------


def roc_auc(target: _Array, score: _Array, weight: _Floats | None = None) -> float | None:
    """The chance that a positive row has a higher score than a negative one; a tie counts half."""
    _, count, positive = _by_score(target, score, weight)
    negative = count - positive
    pairs = positive.sum() * negative.sum()
    beaten = np.cumsum(negative) - negative / 2
    return float((positive * beaten).sum() / pairs) if pairs else None


def average_precision(target: _Array, score: _Array, weight: _Floats | None = None) -> float | None:
    """The precision at each distinct score, averaged over the positive rows (scikit-learn's definition)."""
    _, count, positive = _by_score(target, score, weight)
    negative = count - positive
    if not positive.sum() or not negative.sum():
        return None
    best_first = positive[::-1]
    hits, shown = np.cumsum(best_first), np.cumsum(best_first + negative[::-1])
    precision = np.divide(hits, shown, out=np.zeros_like(hits), where=shown > 0)
    return float((best_first * precision).sum() / hits[-1])


def brier(target: _Array, score: _Array, weight: _Floats | None = None) -> float:
    """The mean squared difference of probability and outcome."""
    return _mean((score - target) ** 2, weight)


def calibration_error(target: _Array, score: _Array, weight: _Floats | None = None) -> float:
    """The expected calibration error: the mean, over rows, of |share of positives − mean score| in the row's bin.

    Resamples repeat rows, which makes this error larger: its interval is moved down by as much (see `measures`).
    """
    count, sum_of_scores, num_positive = calibration_bins(target, score, weight)
    return float(np.abs(num_positive - sum_of_scores).sum() / count.sum())


def calibration_bins(
    target: _Array, score: _Array, weight: _Floats | None = None
) -> tuple[_Floats, _Floats, _Floats]:
    """Returns the number of rows, the sum of scores and the number of positives in ten bins of equal count, by score.

    Rows of equal score stay together, in the bin where their middle falls, so that the order of the rows does not
    matter; a bin that this leaves empty has zeros.
    """
    value, count, positive = _by_score(target, score, weight)
    middle = np.cumsum(count) - count / 2
    bins = np.minimum(_NUM_BINS * middle / count.sum(), _NUM_BINS - 1).astype(np.int64)
    rows, scores, positives = (
        np.asarray(np.bincount(bins, x, _NUM_BINS), np.float64) for x in (count, count * value, positive)
    )
    return rows, scores, positives


def log_loss(target: _Array, score: _Array, weight: _Floats | None = None) -> float:
    """The mean of −log of the probability given to what came; probabilities are at least 2.2e-16."""
    if isinstance(score, Judged) or score.ndim > 1:
        given = judged(target, score).given
    else:
        given = np.where(target == 1, score, 1 - score)
    return _mean(-np.log(np.clip(given, _EPSILON, 1 - _EPSILON)), weight)


def _by_score(target: _Array, score: _Array, weight: _Floats | None) -> tuple[_Array, _Floats, _Floats]:
    """Returns the distinct scores, ascending, and the weight of all rows and of the positive ones of each."""
    order = np.argsort(score, kind="stable")
    score, target = score[order], target[order]
    weight = np.ones(len(score)) if weight is None else weight[order]
    first = np.flatnonzero(np.append(True, score[1:] != score[:-1]))
    positive = np.add.reduceat(weight * target, first)
    return score[first], np.add.reduceat(weight, first), positive


# --- regression -----------------------------------------------------------------------------------


def mae(target: _Array, score: _Array, weight: _Floats | None = None) -> float:
    """The mean absolute error."""
    return _mean(np.abs(target - score), weight)


def rmse(target: _Array, score: _Array, weight: _Floats | None = None) -> float:
    """The root of the mean squared error."""
    return float(np.sqrt(_mean((target - score) ** 2, weight)))


def r2(target: _Array, score: _Array, weight: _Floats | None = None) -> float | None:
    """The share of the targets' variance that the scores explain; None where the targets do not differ."""
    variance = _mean((target - _mean(target, weight)) ** 2, weight)
    return 1 - _mean((target - score) ** 2, weight) / variance if variance else None


# --- multiclass classification --------------------------------------------------------------------


@dataclass(frozen=True)
class Judged:
    """What the scores of classes say of each row's own class, found once however often rows are drawn."""

    guess: NDArray[np.int64]  # the class with the highest score; of equal ones the first
    place: _Floats  # of the row's own class among all, from 1; infinite for one that has no score
    given: _Floats  # the probability of the row's own class
    highest: _Floats  # that of the class with the highest score


def judged(target: _Array, score: _Array | Judged) -> Judged:
    """Returns what (S, classes) scores say of the classes of the rows."""
    if isinstance(score, Judged):
        return score
    has_score = target < score.shape[1]
    own = np.where(has_score, target, 0)
    given = score[np.arange(len(target)), own]
    is_before = np.arange(score.shape[1]) < own[:, None]
    place = 1 + ((score > given[:, None]) | ((score == given[:, None]) & is_before)).sum(1)
    given, place = np.where(has_score, given, 0.0), np.where(has_score, place, np.inf)
    return Judged(score.argmax(axis=1), place, given, score.max(axis=1))


def accuracy(target: _Array, score: _Array | Judged, weight: _Floats | None = None) -> float:
    """The share of rows whose class has the highest score; of equal scores the first class counts."""
    return _mean(judged(target, score).guess == target, weight)


def top_accuracy(target: _Array, score: _Array | Judged, weight: _Floats | None = None) -> float:
    """The share of rows whose class is among the five with the highest scores."""
    return _mean(judged(target, score).place <= _TOP, weight)


def mrr(target: _Array, score: _Array | Judged, weight: _Floats | None = None) -> float:
    """The mean of 1 over the place of each row's class among all by score; 0 for a class that has no score."""
    return _mean(1 / judged(target, score).place, weight)


def macro_f1(target: _Array, score: _Array | Judged, weight: _Floats | None = None) -> float:
    """The mean F1 of the classes that occur among targets or predictions, each counting the same."""
    guess = judged(target, score).guess
    num = 1 + max(int(target.max(initial=0)), int(guess.max(initial=0)))
    weight = np.ones(len(target)) if weight is None else weight
    either = np.bincount(target, weight, num) + np.bincount(guess, weight, num)
    both = np.bincount(target, weight * (guess == target), num)
    occurs = either > 0
    return float((2 * both[occurs] / either[occurs]).mean())


def top_calibration_error(target: _Array, score: _Array | Judged, weight: _Floats | None = None) -> float:
    """The calibration error of the class with the highest score: how often it came, beside the score it was given."""
    found = judged(target, score)
    return calibration_error((found.guess == target).astype(np.int64), found.highest, weight)


# --- multilabel classification --------------------------------------------------------------------


@dataclass(frozen=True)
class LabelRows:
    """The rows of each label by its score, and all of them together, sorted once however often rows are drawn."""

    labels: tuple[
        tuple[_Array, _Array, _Floats], ...
    ]  # places of rows, and their targets and scores, ascending
    every: tuple[_Array, _Array, _Floats]
    log_loss: _Floats  # of each row


def label_rows(target: _Array, score: _Array | LabelRows) -> LabelRows:
    """Returns (S, labels) targets and scores by label; a label that has no score has the probability 0 everywhere."""
    if isinstance(score, LabelRows):
        return score
    width = max(target.shape[1], score.shape[1])
    target, score = (np.pad(part, ((0, 0), (0, width - part.shape[1]))) for part in (target, score))
    given = np.clip(np.where(target == 1, score, 1 - score), _EPSILON, 1)

    def ordered(places: _Array, target: _Array, score: _Array) -> tuple[_Array, _Array, _Floats]:
        order = np.argsort(score, kind="stable")
        return places[order], target[order], score[order]

    rows = np.arange(len(target))
    labels = tuple(ordered(rows, target[:, place], score[:, place]) for place in range(width))
    every = ordered(np.repeat(rows, width), target.ravel(), score.ravel())
    return LabelRows(labels, every, -np.log(given).mean(1))


def _over_labels(metric: Callable[..., float | None], is_macro: bool) -> _Metric:
    """Returns a metric of yes or no as one of labels: the mean of those that it is defined for, or of all as one."""

    def of_labels(target: _Array, score: Any, weight: _Floats | None = None) -> float | None:
        rows = label_rows(target, score)
        found = []
        for places, own, scores in rows.labels if is_macro else (rows.every,):
            if own.min() < own.max():
                found.append(metric(own, scores, None if weight is None else weight[places]))
        known = [value for value in found if value is not None]
        return float(np.mean(known)) if known else None

    return of_labels


def label_log_loss(target: _Array, score: Any, weight: _Floats | None = None) -> float:
    """The mean, over rows and labels, of −log of the probability given to what came."""
    return _mean(label_rows(target, score).log_loss, weight)


def _mean(values: _Array, weight: _Floats | None) -> float:
    return float(np.average(values, weights=weight))


# --- all metrics of a task ------------------------------------------------------------------------

# By task type, the main metric first. RelBench scores AUROC and (N)MAE, and has none for multiclass tasks.
_METRICS: dict[TaskType, dict[str, _Metric]] = {
    "binary_classification": {
        "roc_auc": roc_auc,
        "average_precision": average_precision,
        "log_loss": log_loss,
        "brier": brier,
        "calibration_error": calibration_error,
    },
    "regression": {"mae": mae, "rmse": rmse, "r2": r2},
    "multiclass_classification": {
        "accuracy": accuracy,
        "macro_f1": macro_f1,
        "mrr": mrr,
        f"top_{_TOP}": top_accuracy,
        "log_loss": log_loss,
        "calibration_error": top_calibration_error,
    },
    "multilabel_classification": {
        "macro_ap": _over_labels(average_precision, is_macro=True),
        "micro_ap": _over_labels(average_precision, is_macro=False),
        "macro_auc": _over_labels(roc_auc, is_macro=True),
        "micro_auc": _over_labels(roc_auc, is_macro=False),
        "label_log_loss": label_log_loss,
    },
}
_HIGHER_IS_BETTER = {
    *("roc_auc", "average_precision", "r2", "accuracy", "macro_f1", "mrr", f"top_{_TOP}", "map"),
    *("macro_ap", "micro_ap", "macro_auc", "micro_auc"),
}
# What is found once of scores before rows are drawn many times.
_PREPARE: dict[TaskType, Callable[[_Array, Any], Any]] = {
    "multiclass_classification": judged,
    "multilabel_classification": label_rows,
}


def prepared(task_type: TaskType, target: _Array, score: _Array) -> Any:
    """Returns scores in the form in which the metrics of a task need least time, for the same rows again and again."""
    return _PREPARE[task_type](target, score) if task_type in _PREPARE else score


def main_metric(task_type: TaskType) -> str:
    """Returns the metric by which models for such a task are chosen and compared; of lists see `lists.py`."""
    if task_type == "recommendation":
        return "map"
    return next(iter(_metrics_of(task_type)))


def metric_of(task_type: TaskType, name: str = "") -> _Metric:
    """Returns a metric of such a task, the main one unless it is named: a function of targets, scores and weights."""
    return _metrics_of(task_type)[name or main_metric(task_type)]


def higher_is_better(metric: str) -> bool:
    return metric in _HIGHER_IS_BETTER


def measures(
    task_type: TaskType,
    target: _Array,
    score: _Array,
    *,
    entity: _Array | None = None,
    train_target: _Array | None = None,
    num_resamples: int = _NUM_RESAMPLES,
    rng_seed: int = 0,
) -> dict[str, Measure]:
    """Returns all metrics of a task's predictions, the main one first; `nmae` too where `train_target` is given.

    `nmae` is the mean absolute error over the standard deviation (n − 1) of the training targets, as in RelBench 3.
    The interval is that of the percentile bootstrap. Rows of one entity depend on each other, so with `entity`
    (an id for each row) whole entities are drawn, otherwise rows. Resamples in which a metric is undefined are
    left out of its interval; there is none where fewer than two rows or entities could be drawn. That of the
    calibration error, which resamples exaggerate, is moved such that its middle is the estimate.
    """
    target, score = _checked(task_type, target, score)
    if score.ndim == 1:  # then the stable sorts of the metrics find their work done in every resample
        order = np.argsort(score, kind="stable")
        target, score, entity = target[order], score[order], None if entity is None else entity[order]
    metrics = {
        name: metric
        for name, metric in _metrics_of(task_type).items()
        if name != f"top_{_TOP}" or score.shape[1] > _TOP  # of fewer classes all are among these
    }
    reasons = {name: _why_undefined(name, target, score) for name in metrics}
    score = prepared(task_type, target, score)
    drawn: dict[str, list[float]] = {name: [] for name in metrics}
    for weight in resamples(len(target), entity, num_resamples, rng_seed):
        for name, metric in metrics.items():
            value = None if reasons[name] else metric(target, score, weight)
            if value is not None:
                drawn[name].append(value)
    found = {}
    for name, metric in metrics.items():
        value = None if reasons[name] else metric(target, score, None)
        low, high = map(float, np.percentile(drawn[name], INTERVAL)) if drawn[name] else (None, None)
        if name == "calibration_error" and value is not None and low is not None and high is not None:
            excess = float(np.median(drawn[name])) - value
            low, high = max(0.0, min(low - excess, value)), max(high - excess, value)
        found[name] = Measure(name, value, low, high, higher_is_better(name), reasons[name])
    return found if train_target is None else {**found, "nmae": _nmae(found["mae"], train_target)}


def _nmae(mae: Measure, train_target: _Array) -> Measure:
    scale = float(np.std(train_target, ddof=1)) if len(train_target) > 1 else 0.0
    if not scale:
        reason = f"no two of the {len(train_target):,} training targets differ"
        return Measure("nmae", None, None, None, False, reason)
    value, low, high = (None if x is None else x / scale for x in (mae.value, mae.low, mae.high))
    return replace(mae, name="nmae", value=value, low=low, high=high)


def selection_value(task_type: TaskType, target: _Array, score: _Array) -> float:
    """Returns the main metric of validation rows; an error where it has no value."""
    check_selectable(task_type, target)
    main = measures(task_type, target, score, num_resamples=0)[main_metric(task_type)]
    assert main.value is not None
    return main.value


def check_selectable(
    task_type: TaskType, target: Any, num_rows: int | None = None, num_classes: int | None = None
) -> None:
    """Refuses validation rows by whose main metric no model can be selected, or those of them that are looked at.

    Of classes, training has the first so many, where that is given: rows of others alone tell no models apart.
    """
    if task_type == "recommendation":
        if not isinstance(target, Links) or not len(target.nodes):
            text = "no model can be selected by the map of validation: n/a (no rows with items)"
            raise TaskError("L06", text, "move the cut-offs until validation can tell models apart")
        return
    name, target = main_metric(task_type), np.asarray(target)
    some = target[selection_rows(len(target), num_rows)]
    reason = _why_undefined(name, some, np.empty(0))
    if not reason and num_classes is not None and some.ndim == 1 and (some >= num_classes).all():
        reason = f"none of {len(some):,} rows has a class that training has"
    if reason:
        fix = "move the cut-offs until validation can tell models apart"
        if num_rows is not None and num_rows < len(target):
            fix = f"compare epochs on more than {num_rows:,} validation_seeds, or {fix}"
        raise TaskError(
            "L06",
            f"no model can be selected by the {name} of validation: n/a ({reason})",
            fix,
        )


def selection_rows(num_rows: int, num_wanted: int | None) -> NDArray[np.int64]:
    """Returns the validation rows that epochs are compared on: all, or so many of them, always the same."""
    return np.sort(np.random.default_rng(0).permutation(num_rows)[:num_wanted])


def _why_undefined(metric: str, target: _Array, score: _Array) -> str:
    """Returns why a metric has no value on these rows; an empty text if it has one."""
    if not len(target):
        return "no rows"
    if target.ndim > 1 and (target.min(0) == target.max(0)).all() and metric != "label_log_loss":
        return f"no label is in some of {len(target):,} rows and not in all"
    if metric in _NEED_TWO_CLASSES and target.min() == target.max():
        return f"only class {int(target[0])} in {len(target):,} rows"
    if metric == "r2" and target.min() == target.max():
        return f"only target {target[0]:g} in {len(target):,} rows"
    if metric in _NEED_PROBABILITIES and (score.min() < 0 or score.max() > 1):
        return f"scores from {score.min():.4g} to {score.max():.4g} are no probabilities"
    is_of_classes = metric in ("log_loss", "calibration_error") and score.ndim > 1
    if is_of_classes and not np.allclose(score.sum(axis=1), 1, atol=1e-5):
        return "the scores of a row do not add up to 1"
    return ""


def _metrics_of(task_type: TaskType) -> dict[str, _Metric]:
    if task_type not in _METRICS:
        raise UsageError(
            "C01",
            f'there are no metrics for tasks of type "{task_type}"' + did_you_mean(task_type, _METRICS),
        )
    return _METRICS[task_type]


def _checked(task_type: TaskType, target: _Array, score: _Array) -> tuple[_Array, _Floats]:
    """Returns targets and scores as arrays that fit together; anything else is a mistake of the caller."""
    target, score = np.asarray(target), np.asarray(score, dtype=np.float64)
    if len(target) != len(score):
        raise ValueError(f"{len(score)} scores for {len(target)} targets")
    if score.ndim != (2 if TYPES[task_type].has_classes else 1):
        raise ValueError(f"scores of shape {score.shape} for a task of type {task_type}")
    if not np.isfinite(score).all():
        raise ValueError(f"{int((~np.isfinite(score)).sum())} scores are not finite")
    return target, score


def resamples(num_rows: int, entity: _Array | None, count: int, rng_seed: int) -> Iterator[_Floats]:
    """Yields for each resample how often each row counts: as often as its entity (or it) was drawn."""
    unit = np.arange(num_rows) if entity is None else np.unique(entity, return_inverse=True)[1]
    num_units = int(unit.max()) + 1 if num_rows else 0
    rng = np.random.default_rng(rng_seed)
    for _ in range(count if num_units > 1 else 0):
        times_drawn = np.bincount(rng.integers(0, num_units, num_units), minlength=num_units)
        yield times_drawn[unit].astype(np.float64)
