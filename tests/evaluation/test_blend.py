"""How much of two models is taken."""

from __future__ import annotations

import numpy as np
import pytest

from quartet.evaluation import blend_weight

RNG = np.random.default_rng(0)
TARGET = RNG.integers(0, 2, 600)
ENTITY = np.arange(600) // 3


def scores(noise: float) -> np.ndarray:
    return TARGET + noise * np.random.default_rng(int(10 * noise)).normal(size=600)


def weight(one: np.ndarray, other: np.ndarray) -> float:
    return blend_weight("binary_classification", TARGET, ENTITY, lambda w: (1 - w) * one + w * other)


def test_equal_models_weigh_equal() -> None:
    assert weight(scores(1.0), scores(1.0)) == 0.5
    assert weight(scores(1.0), scores(1.1)) == 0.5


@pytest.mark.parametrize("is_first", [True, False])
def test_one_that_knows_nothing_weighs_nothing(is_first: bool) -> None:
    known, noise = scores(0.5), 5 * np.random.default_rng(3).normal(size=600)
    assert weight(*(known, noise) if is_first else (noise, known)) == (0.0 if is_first else 1.0)


def test_errors_are_better_if_smaller() -> None:
    target = RNG.normal(size=600)
    good, bad = target + 0.1 * RNG.normal(size=600), target + 3 * RNG.normal(size=600)
    found = blend_weight("regression", target, ENTITY, lambda w: (1 - w) * bad + w * good)
    assert found == 1.0
