"""How much of each model is taken."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from quartet.evaluation import blend_weights

RNG = np.random.default_rng(0)
TARGET = RNG.integers(0, 2, 600)
ENTITY = np.arange(600) // 3
Array = np.ndarray[Any, Any]


def scores(noise: float, rng_seed: int = 0) -> Array:
    return TARGET + noise * np.random.default_rng(int(10 * noise) + 100 * rng_seed).normal(size=600)


def nothing() -> Array:
    """Scores that know nothing, and are loud."""
    return 5 * np.random.default_rng(3).normal(size=600)


def weights(*models: Array, target: Array = TARGET, kind: Any = "binary_classification") -> tuple[float, ...]:
    found = blend_weights(kind, target, [ENTITY], models, lambda logits: logits)
    assert len(found) == len(models)
    assert sum(found) == pytest.approx(1.0)
    assert all(weight * 6 == pytest.approx(round(weight * 6)) for weight in found)
    return found


def test_equal_models_weigh_equal() -> None:
    assert weights(scores(1.0), scores(1.0)) == (0.5, 0.5)
    assert weights(scores(1.0), scores(1.1)) == (0.5, 0.5)


def test_three_equal_models_weigh_a_third() -> None:
    assert weights(*(scores(1.0, rng_seed) for rng_seed in range(3))) == pytest.approx((1 / 3,) * 3)


@pytest.mark.parametrize("usual", [(2 / 3, 1 / 3), (1 / 6, 5 / 6)])
def test_models_that_are_not_told_apart_have_their_usual_weights(usual: tuple[float, ...]) -> None:
    def found(*models: Array) -> tuple[float, ...]:
        return blend_weights("binary_classification", TARGET, [ENTITY], models, lambda logits: logits, usual)

    assert found(scores(1.0), scores(1.0)) == pytest.approx(usual)
    assert found(scores(0.5), nothing()) == (1.0, 0.0)
    assert found(nothing(), scores(0.5)) == (0.0, 1.0)


def test_one_model_is_all_there_is() -> None:
    assert weights(nothing()) == (1.0,)


@pytest.mark.parametrize("place", [0, 1])
def test_one_that_knows_nothing_weighs_nothing(place: int) -> None:
    models = [scores(0.5), scores(0.5)]
    models[place] = nothing()
    assert weights(*models)[place] == 0.0


@pytest.mark.parametrize("place", [0, 1, 2])
def test_among_three_it_weighs_nothing_and_the_others_the_same(place: int) -> None:
    models = [scores(0.8, rng_seed) for rng_seed in range(3)]
    models[place] = nothing()
    assert weights(*models) == tuple(0.0 if number == place else 0.5 for number in range(3))


def test_what_resampled_entities_do_not_tell_apart_is_equally_good() -> None:
    """A model a little worse: on many entities that is known, on few it may be chance."""
    found = []
    for count in (40, 40_000):
        rng = np.random.default_rng(5)
        target = rng.integers(0, 2, count)
        good = target + rng.normal(size=count)
        worse = good + 0.5 * rng.normal(size=count)
        found.append(
            blend_weights("binary_classification", target, [np.arange(count)], [good, worse], lambda x: x)
        )
    assert found[0] == (0.5, 0.5)
    assert found[1] == pytest.approx((5 / 6, 1 / 6))  # so little of it does no harm that could be told


def test_times_count_as_entities_do() -> None:
    """One of two models is worse on a single day of five, about everybody: that may be chance."""
    rng = np.random.default_rng(6)
    people, days = np.tile(np.arange(2000), 5), np.repeat(np.arange(5), 2000)
    target = rng.integers(0, 2, len(people))
    good = target + rng.normal(size=len(people))
    worse = good + 2 * rng.normal(size=len(people)) * (days == 0)

    def found(*groups: Array) -> tuple[float, ...]:
        return blend_weights("binary_classification", target, groups, [good, worse], lambda x: x)

    assert found(people) == (1.0, 0.0)
    assert found(people, days) == found(days, people) == (0.5, 0.5)
    assert found(people, np.zeros(len(people))) == found(people)  # a single day tells nothing of days


@pytest.mark.parametrize("count", [2, 3])
def test_errors_are_better_if_smaller(count: int) -> None:
    target = RNG.normal(size=600)
    bad = [target + 3 * RNG.normal(size=600) for _ in range(count - 1)]
    good = target + 0.1 * RNG.normal(size=600)
    assert weights(*bad, good, target=target, kind="regression") == (*[0.0] * (count - 1), 1.0)


def test_logits_are_blended_before_they_become_scores() -> None:
    """Of classes: two models that are sure of the right half and silent about the other know all together."""
    target = np.arange(600) % 2
    is_first = np.arange(600) < 300
    sure = np.stack([4.0 * (target == 0), 4.0 * (target == 1)], 1)
    models = [sure * is_first[:, None], sure * ~is_first[:, None]]

    def softmax(logits: Array) -> Array:
        assert logits.shape == (600, 2)
        raised = np.exp(logits)
        return np.asarray(raised / raised.sum(1, keepdims=True))

    assert blend_weights("multiclass_classification", target, [ENTITY], models, softmax) == (0.5, 0.5)


def test_a_member_that_knows_no_class_weighs_nothing() -> None:
    """Half of it has the same first classes, and so the same accuracy; its probabilities are what is lost."""
    rng = np.random.default_rng(5)
    target = rng.integers(0, 8, 600)
    knows = 2 * np.eye(8)[target] + rng.normal(size=(600, 8))
    found = blend_weights("multiclass_classification", target, [ENTITY], [knows, np.zeros((600, 8))], softmax)
    assert found == (1.0, 0.0)


def softmax(logits: Array) -> Array:
    power = np.exp(logits)
    return power / power.sum(1, keepdims=True)
