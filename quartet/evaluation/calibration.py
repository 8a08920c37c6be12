"""Calibrated probabilities, fitted on validation: of yes or no a logistic curve (Platt), of classes a temperature."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Calibration:
    """p = 1 / (1 + exp(-(slope * logit + shift))). A monotone curve: the order of scores stays as it is."""

    slope: float
    shift: float

    @staticmethod
    def fit(logit: NDArray[np.float64], target: NDArray[np.int64], steps: int = 100) -> Calibration:
        """The curve of largest likelihood, by Newton's method.

        Targets are softened as Platt proposed, so that labels which the logits separate do not end in
        infinities; a slope that is not positive would turn the order round, and becomes the identity.
        """
        num_positive, num_negative = int(target.sum()), int((1 - target).sum())
        if not num_positive or not num_negative:
            return Calibration(1.0, 0.0)
        soft = np.where(target == 1, (num_positive + 1) / (num_positive + 2), 1 / (num_negative + 2))
        inputs = np.stack([logit, np.ones_like(logit)])  # (2, S)
        weight = np.zeros(2)
        for _ in range(steps):
            guess = _curve(weight @ inputs)
            slope = inputs @ (guess - soft)
            bend = (inputs * (guess * (1 - guess))) @ inputs.T + 1e-9 * np.eye(2)
            step = np.linalg.solve(bend, slope)
            while (
                _loss(inputs, weight - step, soft) > _loss(inputs, weight, soft) and np.abs(step).max() > 1e-9
            ):
                step /= 2  # too far: the curve is flatter there than it looked from here
            weight = weight - step
            if np.abs(step).max() < 1e-9:
                break
        if not np.isfinite(weight).all() or weight[0] <= 0:
            return Calibration(1.0, 0.0)
        return Calibration(float(weight[0]), float(weight[1]))

    def __call__(self, logit: NDArray[np.float64]) -> NDArray[np.float64]:
        return _curve(self.slope * logit + self.shift)

    def probabilities(self, score: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns the (S, 2) calibrated probabilities of no and yes, from scores of yes."""
        chance = self(_log(score) - _log(1 - score))
        return np.stack([1 - chance, chance], 1)


@dataclass(frozen=True)
class Temperature:
    """p = softmax(logits / temperature): above 1, a model was too sure. The order of classes stays as it is."""

    temperature: float

    @staticmethod
    def fit(score: NDArray[np.float64], target: NDArray[np.int64], steps: int = 100) -> Temperature:
        """The temperature of largest likelihood, from (S, classes) probabilities, by bisection of its slope.

        A little of each label is spread over all classes, so that classes which are told apart without a mistake do not
        end at 0. Classes that the model does not know tell nothing; neither do scores that know nothing of the labels.
        """
        known = (target >= 0) & (target < score.shape[1])
        logits, target = _log(score[known]), target[known]
        spread = 1 / (len(target) + 2)
        wanted = (1 - spread) * logits[np.arange(len(target)), target].sum() + spread * logits.mean(1).sum()
        low, high = 1e-3, 1e3  # of 1 / temperature, of which the likelihood is concave
        if (_expected(logits, low) - wanted) * (_expected(logits, high) - wanted) >= 0:
            return Temperature(1.0)
        for _ in range(steps):
            middle = float(np.sqrt(low * high))
            low, high = (middle, high) if _expected(logits, middle) < wanted else (low, middle)
        return Temperature(float(1 / np.sqrt(low * high)))

    def probabilities(self, score: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns the (S, classes) calibrated probabilities, from probabilities."""
        return _softmax(_log(score) / self.temperature)


def _expected(logits: NDArray[np.float64], sharpness: float) -> float:
    """Returns the sum of logits that probabilities of such a sharpness expect."""
    return float((_softmax(sharpness * logits) * logits).sum())


def _softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    power = np.exp(logits - logits.max(1, keepdims=True))
    return np.asarray(power / power.sum(1, keepdims=True))


def _log(score: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.log(np.maximum(score, np.finfo(np.float64).tiny))


def _loss(inputs: NDArray[np.float64], weight: NDArray[np.float64], soft: NDArray[np.float64]) -> float:
    """The cross-entropy of soft labels."""
    logit = weight @ inputs
    return float((np.logaddexp(0, logit) - soft * logit).sum())


def _curve(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1 / (1 + np.exp(-np.clip(values, -700, 700)))
