"""Calibration: the likeliest curve, in the same order, and harmless where there is nothing to learn."""

from __future__ import annotations

import numpy as np
import pytest

from quartet.evaluation import Calibration, Temperature, measures


def test_finds_the_curve_that_made_the_labels() -> None:
    rng = np.random.default_rng(0)
    logit = rng.normal(0, 3, 200_000)
    target = (rng.random(len(logit)) < 1 / (1 + np.exp(-(0.5 * logit - 1)))).astype(np.int64)
    fitted = Calibration.fit(logit, target)
    assert fitted.slope == pytest.approx(0.5, abs=0.02)
    assert fitted.shift == pytest.approx(-1, abs=0.03)
    assert fitted(logit).mean() == pytest.approx(target.mean(), abs=1e-4)


def test_keeps_the_order_and_stays_a_probability() -> None:
    logit = np.array([-800.0, -3.0, 0.0, 2.0, 800.0])
    scores = Calibration(0.3, 1.0)(logit)
    assert (np.diff(scores) > 0).all()
    assert ((scores >= 0) & (scores <= 1)).all()


@pytest.mark.parametrize("target", [[0, 0, 0, 0], [1, 1, 1, 1], [1, 1, 0, 0]])
def test_one_class_or_an_order_turned_round_changes_nothing(target: list[int]) -> None:
    logit = np.array([-2.0, -1.0, 1.0, 2.0])
    assert Calibration.fit(logit, np.array(target)) == Calibration(1.0, 0.0)


def test_separated_labels_do_not_end_in_infinity() -> None:
    logit = np.array([-2.0, -1.0, 1.0, 2.0])
    fitted = Calibration.fit(logit, np.array([0, 0, 1, 1]))
    assert 0 < fitted.slope < 100
    assert (fitted(logit) > 0.05).all()


def drawn(temperature: float, count: int = 50_000) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of four classes, and labels drawn by them at a temperature."""
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 2, (count, 4))
    power = np.exp(logits / temperature)
    chance = power / power.sum(1, keepdims=True)
    target = (chance.cumsum(1) < rng.random((count, 1))).sum(1)
    given = np.exp(logits)
    return given / given.sum(1, keepdims=True), target


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_finds_the_temperature_that_made_the_labels(temperature: float) -> None:
    score, target = drawn(temperature)
    fitted = Temperature.fit(score, target)
    assert fitted.temperature == pytest.approx(temperature, rel=0.03)
    after = fitted.probabilities(score)
    assert after.sum(1) == pytest.approx(1)
    assert (after.argmax(1) == score.argmax(1)).all()
    errors = [measures("multiclass_classification", target, x, num_resamples=0) for x in (score, after)]
    before, now = (found["calibration_error"].value for found in errors)
    assert now is not None
    assert before is not None
    assert now < 0.01
    assert now <= before + 0.001


def test_temperature_is_harmless_where_there_is_nothing_to_learn() -> None:
    score, target = drawn(1.0, 200)
    assert 0.01 < Temperature.fit(score, score.argmax(1)).temperature < 1  # no mistake at all
    assert Temperature.fit(np.full((9, 3), 1 / 3), np.zeros(9, np.int64)) == Temperature(1.0)
    assert Temperature.fit(score, score.argmin(1)) == Temperature(1.0)  # the order turned round
    assert Temperature.fit(score[:0], target[:0]) == Temperature(1.0)
    known = Temperature.fit(score, target)
    unseen = Temperature.fit(np.concatenate([score, score[:5]]), np.append(target, [-1, 4, 7, -1, 4]))
    assert unseen == known


def test_the_error_of_the_top_class_counts_how_often_it_came() -> None:
    score = np.array([[0.7, 0.2, 0.1]] * 10)
    target = np.array([0] * 4 + [1] * 6)
    found = measures("multiclass_classification", target, score, num_resamples=0)
    assert found["calibration_error"].value == pytest.approx(0.3)


def test_two_classes_have_probabilities_that_add_up() -> None:
    score = np.array([0.0, 0.2, 0.5, 1.0])
    both = Calibration(2.0, 0.5).probabilities(score)
    assert both.sum(1) == pytest.approx(1)
    assert both[1:3, 1] == pytest.approx(Calibration(2.0, 0.5)(np.log(score[1:3] / (1 - score[1:3]))))
    assert both[[0, 3], 1] == pytest.approx([0, 1])
