"""Calibrated probabilities: a logistic curve through the logits, fitted on validation (Platt's scaling)."""

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


def _loss(inputs: NDArray[np.float64], weight: NDArray[np.float64], soft: NDArray[np.float64]) -> float:
    """The cross-entropy of soft labels."""
    logit = weight @ inputs
    return float((np.logaddexp(0, logit) - soft * logit).sum())


def _curve(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1 / (1 + np.exp(-np.clip(values, -700, 700)))
