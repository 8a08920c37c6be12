"""Calibration: the likeliest curve, in the same order, and harmless where there is nothing to learn."""

from __future__ import annotations

import numpy as np
import pytest

from quartet.evaluation import Calibration


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
