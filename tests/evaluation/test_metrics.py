"""Metrics: against scikit-learn and RelBench, under weights, where they are undefined, and their intervals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as oracle

from quartet.database import Database
from quartet.errors import TaskError, UsageError
from quartet.evaluation import Measure, check_selectable, main_metric, measures, metrics, selection_value
from quartet.tasks import Task
from tests.shared import shared_data
from tests.strategies import examples

EXACT = {"rel": 1e-12, "abs": 1e-12}
Rows = tuple[np.ndarray, np.ndarray]


def binary_rows(rng: np.random.Generator) -> Rows:
    """2 to 60 rows with both classes; often with equal scores, sometimes with certain ones."""
    num = int(rng.integers(2, 60))
    target = rng.integers(0, 2, num)
    target[:2] = 0, 1
    grid = int(rng.choice([1, 3, 10, 10**6]))
    return target, np.round(rng.random(num) * grid) / grid


def number_rows(rng: np.random.Generator) -> Rows:
    num = int(rng.integers(2, 60))
    target = rng.normal(3, 10, num)
    return target, target + rng.normal(1, 5, num)


def class_rows(rng: np.random.Generator) -> Rows:
    """2 to 60 rows of up to five classes, some of which may occur on one side alone."""
    num, classes = int(rng.integers(2, 60)), int(rng.integers(2, 6))
    score = rng.integers(1, 5, (num, classes)).astype(float)
    return rng.integers(0, classes, num), score / score.sum(axis=1, keepdims=True)


def label_lists(rng: np.random.Generator) -> Rows:
    """2 to 60 rows of up to four labels, each of which some rows have and some have not."""
    num, labels = int(rng.integers(2, 60)), int(rng.integers(1, 5))
    target = rng.integers(0, 2, (num, labels))
    target[0], target[1] = 0, 1
    return target, rng.integers(0, 11, (num, labels)) / 10


def plain_mrr(target: np.ndarray, score: np.ndarray) -> float:
    """By sorting: of equal scores the first class comes first."""
    orders = [sorted(range(score.shape[1]), key=lambda c, row=row: (-row[c], c)) for row in score]
    return float(np.mean([1 / (1 + order.index(y)) for order, y in zip(orders, target, strict=True)]))


def over_labels(metric: Any, average: str) -> Any:
    return lambda y, s: metric(y, s, average=average) if y.shape[1] > 1 else metric(y[:, 0], s[:, 0])


def oracle_log_loss(target: np.ndarray, score: np.ndarray) -> float:
    return float(oracle.log_loss(target, score, labels=range(2 if score.ndim == 1 else score.shape[1])))


ORACLES: dict[str, tuple[Any, Any, Any]] = {
    "roc_auc": (binary_rows, metrics.roc_auc, oracle.roc_auc_score),
    "average_precision": (binary_rows, metrics.average_precision, oracle.average_precision_score),
    "brier": (binary_rows, metrics.brier, oracle.brier_score_loss),
    "log_loss": (binary_rows, metrics.log_loss, oracle_log_loss),
    "mae": (number_rows, metrics.mae, oracle.mean_absolute_error),
    "rmse": (number_rows, metrics.rmse, oracle.root_mean_squared_error),
    "r2": (number_rows, metrics.r2, oracle.r2_score),
    "accuracy": (class_rows, metrics.accuracy, lambda y, s: oracle.accuracy_score(y, s.argmax(1))),
    "macro_f1": (class_rows, metrics.macro_f1, lambda y, s: oracle.f1_score(y, s.argmax(1), average="macro")),
    "multiclass log_loss": (class_rows, metrics.log_loss, oracle_log_loss),
    "mrr": (class_rows, metrics.mrr, plain_mrr),
    **{
        f"{average}_{short}": (
            label_lists,
            metrics._METRICS["multilabel_classification"][f"{average}_{short}"],
            over_labels(metric, average),
        )
        for short, metric in (("ap", oracle.average_precision_score), ("auc", oracle.roc_auc_score))
        for average in ("macro", "micro")
    },
    "label_log_loss": (
        label_lists,
        metrics.label_log_loss,
        lambda y, s: oracle.log_loss(y.ravel(), s.ravel(), labels=[0, 1]),
    ),
}
rng_seeds = st.integers(0, 2**32)


@pytest.mark.parametrize("name", ORACLES)
@examples(40)
@given(rng_seeds)
def test_a_metric_equals_that_of_scikit_learn(name: str, rng_seed: int) -> None:
    rows, ours, theirs = ORACLES[name]
    target, score = rows(np.random.default_rng(rng_seed))
    assert ours(target, score) == pytest.approx(theirs(target, score), **EXACT)


def test_the_interval_of_the_calibration_error_holds_its_estimate() -> None:
    """Of scores that are calibrated to the row: every resample is worse."""
    score = np.repeat(np.linspace(0.05, 0.95, 10), 20)
    target = np.tile(np.arange(20), 10) < np.repeat(np.arange(1, 20, 2), 20)
    found = metrics.measures("binary_classification", target.astype(np.int64), score)["calibration_error"]
    assert found.value == pytest.approx(0.0, abs=1e-12)
    assert found.low is not None
    assert found.high is not None
    assert 0 <= found.low <= found.value < found.high


@pytest.mark.parametrize("name", [*ORACLES, "calibration_error"])
@examples(40)
@given(rng_seeds)
def test_a_weight_is_how_often_a_row_counts(name: str, rng_seed: int) -> None:
    rng = np.random.default_rng(rng_seed)
    rows, ours, _ = ORACLES.get(name, (binary_rows, metrics.calibration_error, None))
    target, score = rows(rng)
    weight = rng.integers(0, 4, len(target))
    weight[0] += 1
    repeated = ours(np.repeat(target, weight, axis=0), np.repeat(score, weight, axis=0))
    weighted = ours(target, score, weight.astype(float))
    assert weighted == (None if repeated is None else pytest.approx(repeated, **EXACT))


# --- calibration ----------------------------------------------------------------------------------


@examples(50)
@given(rng_seeds)
def test_bins_of_distinct_scores_are_of_equal_count(rng_seed: int) -> None:
    rng = np.random.default_rng(rng_seed)
    num = 10 * int(rng.integers(1, 9))
    target, score = rng.integers(0, 2, num), rng.permutation(num) / num
    bins = np.array_split(np.argsort(score), 10)
    expected = sum(len(b) / num * abs(target[b].mean() - score[b].mean()) for b in bins)
    assert metrics.calibration_error(target, score) == pytest.approx(expected, **EXACT)


@given(rng_seeds)
def test_the_order_of_rows_decides_nothing_about_calibration(rng_seed: int) -> None:
    rng = np.random.default_rng(rng_seed)
    target, score = binary_rows(rng)
    order = rng.permutation(len(target))
    assert metrics.calibration_error(target[order], score[order]) == metrics.calibration_error(target, score)


def test_equal_scores_stay_in_the_bin_of_their_middle() -> None:
    """Twenty rows, two a bin: one of 0.1 in the first, ten of 0.5 about the sixth row, nine of 0.9 at the end.

    |1 − 0.1| in the first bin, |2 − 5| in the fourth, |9 − 8.1| in the eighth, over 20 rows.
    """
    target = np.array([1] + [1, 1] + [0] * 8 + [1] * 9)
    score = np.array([0.1] + [0.5] * 10 + [0.9] * 9)
    assert metrics.calibration_error(target, score) == pytest.approx((0.9 + 3.0 + 0.9) / 20, **EXACT)
    rows, said, came = metrics.calibration_bins(target, score)
    assert rows.tolist() == [1, 0, 0, 10, 0, 0, 0, 9, 0, 0]
    assert said.tolist() == pytest.approx([0.1, 0, 0, 5.0, 0, 0, 0, 8.1, 0, 0], **EXACT)
    assert came.tolist() == [1, 0, 0, 2, 0, 0, 0, 9, 0, 0]


def test_bins_of_large_numbers_have_their_rows() -> None:
    """Of numbers they tell what was predicted and what came; 1 less a large number would be that number."""
    target = 1e25 * np.arange(20.0)
    rows, said, came = metrics.calibration_bins(target, target)
    assert rows.tolist() == [2.0] * 10
    assert said.tolist() == came.tolist() == pytest.approx(1e25 * (4 * np.arange(10.0) + 1), rel=1e-12)


# --- RelBench -------------------------------------------------------------------------------------


def test_the_error_is_measured_in_deviations_of_the_training_targets() -> None:
    """Those of 0 and 2 deviate by √2, with one degree of freedom taken off."""
    target, score, train = np.array([1.0, 2.0]), np.array([2.0, 5.0]), np.array([0.0, 2.0])
    found = measures("regression", target, score, train_target=train)
    assert list(found) == ["mae", "rmse", "r2", "nmae"]
    assert found["nmae"] == Measure("nmae", *(x / np.sqrt(2) for x in (2.0, 1.0, 3.0)), False)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "metric"), [("driver-dnf", "roc_auc"), ("driver-position", "nmae"), ("results-position", "nmae")]
)
def test_a_metric_equals_that_of_relbench(name: str, metric: str) -> None:
    relbench = pytest.importorskip("relbench")
    folder = shared_data("rel-f1")
    task = Task.load(Database.load(folder), name)
    seeds, target = task.seeds("test"), task.vault.open("compare two programs")
    score = np.random.default_rng(0).random(len(seeds)).round(2)
    train = task.seeds("train").target if metric == "nmae" else None
    found = measures(task.spec.type, target, score, train_target=train, num_resamples=0)
    theirs = relbench.load_dataset(str(folder)).load_task(name).evaluate(score)
    assert theirs == {metric: pytest.approx(found[metric].value, **EXACT)}


# --- undefined ------------------------------------------------------------------------------------

NO_NUMBER = (None, None, None)


def undefined(found: dict[str, Measure]) -> dict[str, str]:
    for measure in found.values():
        ends = (measure.value, measure.low, measure.high)
        assert (ends == NO_NUMBER) == bool(measure.undefined)
        assert not any(end is not None and np.isnan(end) for end in ends)
    return {name: str(measure) for name, measure in found.items() if measure.undefined}


@pytest.mark.parametrize("klass", [0, 1])
def test_one_class_has_no_auc(klass: int) -> None:
    target, score = np.full(300, klass), np.linspace(0, 1, 300)
    said = f"n/a (only class {klass} in 300 rows)"
    found = measures("binary_classification", target, score, num_resamples=20)
    assert undefined(found) == {"roc_auc": said, "average_precision": said}
    assert metrics.roc_auc(target, score) is metrics.average_precision(target, score) is None


def test_equal_targets_have_no_r2() -> None:
    found = measures("regression", np.full(1200, 4.5), np.arange(1200.0), num_resamples=20)
    assert undefined(found) == {"r2": "n/a (only target 4.5 in 1,200 rows)"}
    assert metrics.r2(np.full(3, 4.5), np.arange(3.0)) is None


def test_scores_that_are_no_probabilities_can_be_ranked_alone() -> None:
    found = measures(
        "binary_classification", np.array([0, 1, 1]), np.array([-1.5, 0.5, 2.0]), num_resamples=20
    )
    said = "n/a (scores from -1.5 to 2 are no probabilities)"
    assert undefined(found) == {"log_loss": said, "brier": said, "calibration_error": said}
    assert found["roc_auc"].value == 1.0


def test_scores_of_classes_must_add_up() -> None:
    found = measures("multiclass_classification", np.array([0, 1]), np.full((2, 3), 0.5), num_resamples=20)
    reason = "n/a (the scores of a row do not add up to 1)"
    assert undefined(found) == {"log_loss": reason, "calibration_error": reason}


@examples(40)
@given(rng_seeds)
def test_classes_without_a_score_count_as_wrong(rng_seed: int) -> None:
    """They count as they would if there were columns for them in which every probability is 0."""
    rng = np.random.default_rng(rng_seed)
    target, score = class_rows(rng)
    new = rng.random(len(target)) < 0.3
    target = np.where(new, score.shape[1] + rng.integers(0, 3, len(target)), target)
    padded = np.pad(score, ((0, 0), (0, 3)))
    for metric in (metrics.accuracy, metrics.macro_f1, metrics.log_loss):
        assert metric(target, score) == pytest.approx(metric(target, padded), **EXACT)
    assert metrics.mrr(target, score) == pytest.approx(
        np.where(new, 0, [plain_mrr(target[[i]], padded[[i]]) for i in range(len(new))]).mean(), **EXACT
    )
    found = measures("multiclass_classification", target, score, num_resamples=5)
    assert found["accuracy"].value == pytest.approx((score.argmax(1) == target).mean(), **EXACT)
    assert found["log_loss"].value >= -np.log(np.finfo(float).eps) * new.mean() - 1e-9  # type: ignore[operator]


@examples(40)
@given(rng_seeds)
def test_labels_without_a_score_have_the_probability_0(rng_seed: int) -> None:
    rng = np.random.default_rng(rng_seed)
    target, score = label_lists(rng)
    more = np.column_stack([target, rng.integers(0, 2, len(target))])
    padded = np.pad(score, ((0, 0), (0, 1)))
    one, other = (
        measures("multilabel_classification", more, each, num_resamples=5) for each in (score, padded)
    )
    assert one == other


def test_five_of_five_classes_are_no_figure() -> None:
    score = np.eye(6)
    assert "top_5" in measures("multiclass_classification", np.arange(6), score, num_resamples=0)
    assert "top_5" not in measures("multiclass_classification", np.arange(5), score[:5, :5], num_resamples=0)
    last = np.array([[0.5, 0.1, 0.1, 0.1, 0.1, 0.1]])
    assert metrics.top_accuracy(np.array([4]), last) == 1.0
    assert metrics.top_accuracy(np.array([5]), last) == 0.0  # of equal scores the first come first
    assert metrics.top_accuracy(np.array([6]), last) == 0.0


@pytest.mark.parametrize("train", [[], [2.0], [2.0, 2.0, 2.0]])
def test_equal_training_targets_have_no_nmae(train: list[float]) -> None:
    target = np.array([1.0, 2.0])
    found = measures("regression", target, target + 1, train_target=np.array(train), num_resamples=20)
    assert undefined(found) == {"nmae": f"n/a (no two of the {len(train)} training targets differ)"}


@pytest.mark.parametrize("task_type", ["binary_classification", "regression", "multiclass_classification"])
def test_no_rows_have_no_metric(task_type: Any) -> None:
    score = np.empty((0, 3) if task_type == "multiclass_classification" else 0)
    found = measures(task_type, np.empty(0, int), score)
    assert undefined(found) == dict.fromkeys(found, "n/a (no rows)")


def test_one_row_or_entity_has_no_interval() -> None:
    one = measures("regression", np.array([1.0]), np.array([3.0]))["mae"]
    assert (one.value, one.low, one.high, str(one)) == (2.0, None, None, "2.0000")
    same = measures("regression", np.arange(3.0), np.zeros(3), entity=np.array([7, 7, 7]))["mae"]
    assert (same.value, same.low, same.high) == (1.0, None, None)


def test_nothing_is_selected_by_one_class() -> None:
    said = (
        r"error\[L06\] no model can be selected by the roc_auc of validation: n/a \(only class 0 in 300 rows\)"
        r"\. Fix: move the cut-offs until validation can tell models apart"
    )
    with pytest.raises(TaskError, match=f"^{said}$"):
        selection_value("binary_classification", np.zeros(300, int), np.zeros(300))
    with pytest.raises(TaskError, match=f"^{said}$"):
        check_selectable("binary_classification", np.zeros(300, int))
    check_selectable("regression", np.zeros(300))


def test_nothing_is_selected_by_classes_that_training_lacks() -> None:
    kind, said = "multiclass_classification", r"L06.*none of 4 rows has a class that training has"
    check_selectable(kind, np.array([3, 3, 2, 5]), num_classes=3)
    with pytest.raises(TaskError, match=said):
        check_selectable(kind, np.array([3, 3, 4, 5]), num_classes=3)


def test_models_are_selected_by_the_main_metric() -> None:
    target = np.array([1, 0, 1, 1])
    assert selection_value("binary_classification", target, np.array([0.9, 0.1, 0.8, 0.05])) == 2 / 3
    assert selection_value("regression", target, target + 2.0) == 2.0
    assert selection_value("multiclass_classification", target, np.eye(2)[[1, 0, 0, 1]]) == 0.75


def test_there_are_no_metrics_of_single_recommendations() -> None:
    """Lists have metrics of their own, in `lists.py`; here their main one has but its name."""
    assert main_metric("recommendation") == "map"
    said = (
        r'error\[C01\] there are no metrics for tasks of type "recommendation" \(there are: '
        r'"binary_classification", "multiclass_classification", "multilabel_classification", "regression"\)'
    )
    with pytest.raises(UsageError, match=f"^{said}$"):
        metrics.metric_of("recommendation")


@pytest.mark.parametrize(
    ("target", "score", "said"),
    [
        (np.zeros(3), np.zeros(2), "2 scores for 3 targets"),
        (np.zeros(2), np.array([0.0, np.nan]), "1 scores are not finite"),
        (np.zeros(2), np.zeros((2, 2)), r"scores of shape \(2, 2\) for a task of type regression"),
    ],
)
def test_what_does_not_fit_together_is_refused(target: np.ndarray, score: np.ndarray, said: str) -> None:
    with pytest.raises(ValueError, match=f"^{said}$"):
        measures("regression", target, score)


# --- names and intervals --------------------------------------------------------------------------


def test_the_main_metric_comes_first() -> None:
    names = {
        "binary_classification": ["roc_auc", "average_precision", "log_loss", "brier", "calibration_error"],
        "regression": ["mae", "rmse", "r2"],
        "multiclass_classification": ["accuracy", "macro_f1", "mrr", "log_loss", "calibration_error"],
        "multilabel_classification": ["macro_ap", "micro_ap", "macro_auc", "micro_auc", "label_log_loss"],
    }
    better = {"roc_auc", "average_precision", "r2", "accuracy", "macro_f1", "mrr"}
    better |= {"macro_ap", "micro_ap", "macro_auc", "micro_auc"}
    kinds = {"bin": binary_rows, "reg": number_rows, "multic": class_rows, "multil": label_lists}
    for task_type, expected in names.items():
        rows = next(rows for start, rows in kinds.items() if task_type.startswith(start))
        found = measures(task_type, *rows(np.random.default_rng(1)), num_resamples=0)  # type: ignore[arg-type]
        assert list(found) == expected
        assert main_metric(task_type) == expected[0]  # type: ignore[arg-type]
        assert {name for name, measure in found.items() if measure.higher_is_better} == better & set(expected)


def test_an_interval_is_that_of_resampled_rows() -> None:
    """The same draws, with rows that are really repeated; the rows are in the order of their scores."""
    rng = np.random.default_rng(3)
    score, target = np.sort(rng.random(40)), rng.integers(0, 2, 40)
    found = measures("binary_classification", target, score, num_resamples=200, rng_seed=5)
    rng = np.random.default_rng(5)
    drawn = [rng.integers(0, 40, 40) for _ in range(200)]
    for name in ("roc_auc", "average_precision", "brier", "log_loss"):
        low, high = np.percentile([ORACLES[name][2](target[d], score[d]) for d in drawn], [2.5, 97.5])
        assert (found[name].low, found[name].high) == (
            pytest.approx(low, **EXACT),
            pytest.approx(high, **EXACT),
        )
    assert found["roc_auc"].low < found["roc_auc"].value < found["roc_auc"].high  # type: ignore[operator]


def test_resamples_without_a_value_are_left_out() -> None:
    """One positive row of five: a third of the resamples lacks it."""
    found = measures("binary_classification", np.array([0, 0, 1, 0, 0]), np.arange(5) / 5)["roc_auc"]
    assert (found.value, found.low, found.high) == (0.5, 0.0, 1.0)


def test_the_rows_of_an_entity_are_drawn_together() -> None:
    """Five copies of each row, as rows of one entity, say no more than the row itself."""
    rng = np.random.default_rng(0)
    target, score = rng.normal(size=30), np.sort(rng.normal(size=30))
    once = measures("regression", target, score, num_resamples=100)
    entity = np.repeat(np.arange(30), 5)
    copies = measures("regression", target[entity], score[entity], entity=entity, num_resamples=100)
    blind = measures("regression", target[entity], score[entity], num_resamples=100)
    for name, measure in once.items():
        assert copies[name].low == pytest.approx(measure.low, **EXACT)
        assert copies[name].high == pytest.approx(measure.high, **EXACT)
        assert blind[name].high - blind[name].low < 0.7 * (measure.high - measure.low)  # type: ignore[operator]


def test_intervals_hold_what_they_promise_for_dependent_rows() -> None:
    """40 entities of 10 rows with an error of their own: the mean error lies in 95 % of the intervals."""
    rng, hits, blind = np.random.default_rng(0), 0, 0
    for _ in range(100):
        error = np.repeat(rng.exponential(size=40), 10)  # its mean is 1
        entity = np.repeat(np.arange(40), 10)
        for ids in (entity, None):
            found = measures("regression", error, np.zeros(400), entity=ids, num_resamples=100)["mae"]
            is_hit = found.low <= 1 <= found.high  # type: ignore[operator]
            hits, blind = (hits + is_hit, blind) if ids is not None else (hits, blind + is_hit)
    assert hits / 100 >= 0.88
    assert blind / 100 <= 0.6


def test_intervals_are_the_same_every_time_and_in_any_order() -> None:
    target, score = binary_rows(np.random.default_rng(8))
    entity = np.arange(len(target)) % 7
    order = np.random.default_rng(9).permutation(len(target))
    first = measures("binary_classification", target, score, entity=entity, num_resamples=50)
    again = measures("binary_classification", target, score, entity=entity, num_resamples=50)
    moved = measures(
        "binary_classification", target[order], score[order], entity=entity[order], num_resamples=50
    )
    other = measures("binary_classification", target, score, entity=entity, num_resamples=50, rng_seed=1)
    assert first == again
    assert (moved["roc_auc"].low, moved["roc_auc"].high) == (first["roc_auc"].low, first["roc_auc"].high)
    assert other["roc_auc"].low != first["roc_auc"].low


def test_many_rows_have_a_narrow_interval() -> None:
    rng = np.random.default_rng(0)
    target = (rng.random(20_000) < 0.1).astype(np.int64)
    score = np.clip(rng.random(20_000) / 2 + target / 5, 0, 1)
    found = measures("binary_classification", target, score, num_resamples=50)
    assert found["roc_auc"].high - found["roc_auc"].low < 0.03  # type: ignore[operator]


def test_a_measure_shows_its_interval() -> None:
    assert str(Measure("roc_auc", 0.70112, 0.65, 0.74996, True)) == "0.7011 [0.6500, 0.7500]"
