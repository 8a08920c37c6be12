"""Metrics of predictions, each with the interval in which a repetition would likely find it. Only numpy.

A metric is a plain function of targets, scores and weights. The weight of a row is how often it counts, so that
a resample is a vector of weights and no copy of the rows. A metric that the rows do not determine is None: never
NaN, and never a number that only looks like one. `measures` gives all metrics of a task with their intervals.

Scores are the probability of class 1 (binary), one probability for each class (multiclass), or the predicted
value (regression).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quartet.errors import TaskError, UsageError, did_you_mean
from quartet.tasks import TaskType

Array = NDArray[Any]
Floats = NDArray[np.float64]
NUM_BINS = 10
NUM_RESAMPLES = 1000
_EPSILON = float(np.finfo(np.float64).eps)
_INTERVAL = (2.5, 97.5)  # percentiles
_NEED_TWO_CLASSES = ("roc_auc", "average_precision")
_NEED_PROBABILITIES = ("brier", "calibration_error", "log_loss")


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

    def divided_by(self, scale: float, name: str) -> Measure:
        """The same measure in units of `scale`."""
        value, low, high = (None if x is None else x / scale for x in (self.value, self.low, self.high))
        return replace(self, name=name, value=value, low=low, high=high)


# --- binary classification ------------------------------------------------------------------------


def roc_auc(target: Array, score: Array, weight: Floats | None = None) -> float | None:
    """The chance that a positive row has a higher score than a negative one; a tie counts half."""
    _, negative, positive = _by_score(target, score, weight)
    pairs = positive.sum() * negative.sum()
    beaten = np.cumsum(negative) - negative / 2
    return float((positive * beaten).sum() / pairs) if pairs else None


def average_precision(target: Array, score: Array, weight: Floats | None = None) -> float | None:
    """The precision at each distinct score, averaged over the positive rows (scikit-learn's definition)."""
    _, negative, positive = _by_score(target, score, weight)
    if not positive.sum() or not negative.sum():
        return None
    best_first = positive[::-1]
    hits, shown = np.cumsum(best_first), np.cumsum(best_first + negative[::-1])
    precision = np.divide(hits, shown, out=np.zeros_like(hits), where=shown > 0)
    return float((best_first * precision).sum() / hits[-1])


def brier(target: Array, score: Array, weight: Floats | None = None) -> float:
    """The mean squared difference of probability and outcome."""
    return _mean((score - target) ** 2, weight)


def calibration_error(target: Array, score: Array, weight: Floats | None = None) -> float:
    """The expected calibration error: the mean, over rows, of |share of positives − mean score| in the row's bin.

    In a resample rows stand repeatedly, which makes this error larger: its interval lies a little too high.
    """
    count, said, came = calibration_bins(target, score, weight)
    return float(np.abs(came - said).sum() / count.sum())


def calibration_bins(
    target: Array, score: Array, weight: Floats | None = None
) -> tuple[Floats, Floats, Floats]:
    """Of ten bins of equal count, by score: how many rows, the sum of their scores, and how many are positive.

    Rows of equal score stay together, in the bin where their middle falls, so that the order of the rows decides
    nothing; a bin that this leaves empty has zeros.
    """
    value, negative, positive = _by_score(target, score, weight)
    count = negative + positive
    middle = np.cumsum(count) - count / 2
    bins = np.minimum(NUM_BINS * middle / count.sum(), NUM_BINS - 1).astype(np.int64)

    def sums(part: Floats) -> Floats:
        return np.asarray(np.bincount(bins, part, NUM_BINS), np.float64)

    return sums(count), sums(count * value), sums(positive)


def log_loss(target: Array, score: Array, weight: Floats | None = None) -> float:
    """The mean of −log of the probability given to what came; probabilities are at least 2.2e-16."""
    by_class = np.column_stack([1 - score, score]) if score.ndim == 1 else score
    given = by_class[np.arange(len(target)), target]
    return _mean(-np.log(np.clip(given, _EPSILON, 1 - _EPSILON)), weight)


def _by_score(target: Array, score: Array, weight: Floats | None) -> tuple[Array, Floats, Floats]:
    """The distinct scores, ascending, and the weight of the negative and of the positive rows of each."""
    order = np.argsort(score, kind="stable")
    score, target = score[order], target[order]
    weight = np.ones(len(score)) if weight is None else weight[order]
    first = np.flatnonzero(np.append(True, score[1:] != score[:-1]))
    positive = np.add.reduceat(weight * target, first)
    return score[first], np.add.reduceat(weight, first) - positive, positive


# --- regression -----------------------------------------------------------------------------------


def mae(target: Array, score: Array, weight: Floats | None = None) -> float:
    """The mean absolute error."""
    return _mean(np.abs(target - score), weight)


def nmae(target: Array, score: Array, train_target: Array) -> float | None:
    """The mean absolute error over the standard deviation (n − 1) of the training targets, as in RelBench 3."""
    scale = train_scale(train_target)
    return mae(target, score) / scale if scale else None


def train_scale(train_target: Array) -> float | None:
    """What `nmae` divides by; None where the training targets do not differ."""
    return float(np.std(train_target, ddof=1)) or None if len(train_target) > 1 else None


def rmse(target: Array, score: Array, weight: Floats | None = None) -> float:
    """The root of the mean squared error."""
    return float(np.sqrt(_mean((target - score) ** 2, weight)))


def r2(target: Array, score: Array, weight: Floats | None = None) -> float | None:
    """The share of the targets' variance that the scores explain; None where the targets do not differ."""
    variance = _mean((target - _mean(target, weight)) ** 2, weight)
    return 1 - _mean((target - score) ** 2, weight) / variance if variance else None


# --- multiclass classification --------------------------------------------------------------------


def accuracy(target: Array, score: Array, weight: Floats | None = None) -> float:
    """The share of rows whose class has the highest score; of equal scores the first class counts."""
    return _mean(score.argmax(axis=1) == target, weight)


def macro_f1(target: Array, score: Array, weight: Floats | None = None) -> float:
    """The mean F1 of the classes that occur among targets or predictions, each counting the same."""
    guess, num = score.argmax(axis=1), score.shape[1]
    weight = np.ones(len(target)) if weight is None else weight
    either = np.bincount(target, weight, num) + np.bincount(guess, weight, num)
    both = np.bincount(target, weight * (guess == target), num)
    occurs = either > 0
    return float((2 * both[occurs] / either[occurs]).mean())


def _mean(values: Array, weight: Floats | None) -> float:
    return float(np.average(values, weights=weight))


# --- all metrics of a task ------------------------------------------------------------------------

Metric = Callable[[Array, Array, Floats | None], float | None]

# By task type, the main metric first. RelBench scores AUROC and (N)MAE, and has none for multiclass tasks.
_METRICS: dict[TaskType, dict[str, Metric]] = {
    "binary_classification": {
        "roc_auc": roc_auc,
        "average_precision": average_precision,
        "log_loss": log_loss,
        "brier": brier,
        "calibration_error": calibration_error,
    },
    "regression": {"mae": mae, "rmse": rmse, "r2": r2},
    "multiclass_classification": {"accuracy": accuracy, "macro_f1": macro_f1, "log_loss": log_loss},
}
_HIGHER_IS_BETTER = {"roc_auc", "average_precision", "r2", "accuracy", "macro_f1"}


def main_metric(task_type: TaskType) -> str:
    """The metric by which models for such a task are chosen and compared."""
    return next(iter(_metrics_of(task_type)))


def higher_is_better(metric: str) -> bool:
    return metric in _HIGHER_IS_BETTER


def measures(
    task_type: TaskType,
    target: Array,
    score: Array,
    *,
    entity: Array | None = None,
    train_target: Array | None = None,
    num_resamples: int = NUM_RESAMPLES,
    rng_seed: int = 0,
) -> dict[str, Measure]:
    """All metrics of a task's predictions, the main one first; `nmae` too where `train_target` is given.

    The interval is that of the percentile bootstrap. Rows of one entity depend on each other, so with `entity`
    (an id for each row) whole entities are drawn, otherwise rows. Resamples in which a metric is undefined are
    left out of its interval; there is none where fewer than two rows or entities could be drawn.
    """
    target, score = _checked(task_type, target, score)
    if score.ndim == 1:  # then the stable sorts of the metrics find their work done in every resample
        order = np.argsort(score, kind="stable")
        target, score, entity = target[order], score[order], None if entity is None else entity[order]
    reasons = {name: why_undefined(name, target, score) for name in _metrics_of(task_type)}
    defined = {name: metric for name, metric in _metrics_of(task_type).items() if not reasons[name]}
    drawn = _draw(defined, target, score, _resamples(len(target), entity, num_resamples, rng_seed))
    found = {}
    for name, reason in reasons.items():
        value = None if reason else defined[name](target, score, None)
        found[name] = Measure(name, value, *_ends(drawn.get(name, [])), higher_is_better(name), reason)
    return found if train_target is None else _with_nmae(found, train_target)


def selection_score(task_type: TaskType, target: Array, score: Array) -> float:
    """The main metric of validation rows, turned so that more is better; an error where it has no value."""
    value = selection_value(task_type, target, score)
    return value if higher_is_better(main_metric(task_type)) else -value


def selection_value(task_type: TaskType, target: Array, score: Array) -> float:
    """The main metric of validation rows; an error where it has no value."""
    check_selectable(task_type, target)
    main = measures(task_type, target, score, num_resamples=0)[main_metric(task_type)]
    assert main.value is not None
    return main.value


def check_selectable(task_type: TaskType, target: Array) -> None:
    """An error if no model can be selected by the main metric of these validation rows."""
    name = main_metric(task_type)
    reason = why_undefined(name, target, np.empty(0))
    if reason:
        raise TaskError(
            "L06",
            f"no model can be selected by the {name} of validation: n/a ({reason})",
            "move the cut-offs until validation can tell models apart",
        )


def why_undefined(metric: str, target: Array, score: Array) -> str:
    """What keeps a metric from having a value on these rows; nothing if it has one."""
    if not len(target):
        return "no rows"
    if metric in _NEED_TWO_CLASSES and target.min() == target.max():
        return f"only class {int(target[0])} in {len(target):,} rows"
    if metric == "r2" and target.min() == target.max():
        return f"only target {target[0]:g} in {len(target):,} rows"
    if metric in _NEED_PROBABILITIES and (score.min() < 0 or score.max() > 1):
        return f"scores from {score.min():.4g} to {score.max():.4g} are no probabilities"
    if metric in _NEED_PROBABILITIES and score.ndim > 1 and not np.allclose(score.sum(axis=1), 1, atol=1e-5):
        return "the scores of a row do not add up to 1"
    return ""


def _metrics_of(task_type: TaskType) -> dict[str, Metric]:
    if task_type not in _METRICS:
        raise UsageError(
            "C01",
            f'there are no metrics for tasks of type "{task_type}"' + did_you_mean(task_type, _METRICS),
        )
    return _METRICS[task_type]


def _checked(task_type: TaskType, target: Array, score: Array) -> tuple[Array, Floats]:
    """Targets and scores as arrays that fit together; anything else is a mistake of the caller."""
    target, score = np.asarray(target), np.asarray(score, dtype=np.float64)
    if len(target) != len(score):
        raise ValueError(f"{len(score)} scores for {len(target)} targets")
    if score.ndim != (2 if task_type == "multiclass_classification" else 1):
        raise ValueError(f"scores of shape {score.shape} for a task of type {task_type}")
    if not np.isfinite(score).all():
        raise ValueError(f"{int((~np.isfinite(score)).sum())} scores are not finite")
    return target, score


def _resamples(num_rows: int, entity: Array | None, count: int, rng_seed: int) -> Iterator[Floats]:
    """How often each row counts, for each resample: as often as its entity (or it) was drawn."""
    unit = np.arange(num_rows) if entity is None else np.unique(entity, return_inverse=True)[1]
    num_units = int(unit.max()) + 1 if num_rows else 0
    rng = np.random.default_rng(rng_seed)
    for _ in range(count if num_units > 1 else 0):
        times_drawn = np.bincount(rng.integers(0, num_units, num_units), minlength=num_units)
        yield times_drawn[unit].astype(np.float64)


def _draw(
    metrics: Mapping[str, Metric], target: Array, score: Array, weights: Iterator[Floats]
) -> dict[str, list[float]]:
    """The values of each metric in the resamples in which it has one."""
    drawn: dict[str, list[float]] = {name: [] for name in metrics}
    for weight in weights:
        for name, metric in metrics.items():
            value = metric(target, score, weight)
            if value is not None:
                drawn[name].append(value)
    return drawn


def _ends(drawn: list[float]) -> tuple[float | None, float | None]:
    if not drawn:
        return None, None
    low, high = np.percentile(drawn, _INTERVAL)
    return float(low), float(high)


def _with_nmae(found: dict[str, Measure], train_target: Array) -> dict[str, Measure]:
    scale = train_scale(train_target)
    if scale:
        return {**found, "nmae": found["mae"].divided_by(scale, "nmae")}
    reason = f"no two of the {len(train_target):,} training targets differ"
    return {**found, "nmae": Measure("nmae", None, None, None, False, reason)}
