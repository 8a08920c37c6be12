"""What the outputs of a model mean: the loss they are trained with, where they start, the scores they become."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from quartet.config import with_tuples
from quartet.errors import TaskError
from quartet.tasks import Task

Scores = NDArray[np.float64]


@dataclass(frozen=True)
class BinaryOutput:
    """One output: the logit of the positive class."""

    kind: ClassVar[str] = "binary_classification"
    share: float  # of positives in training

    num_outputs: ClassVar[int] = 1

    def start(self) -> list[float]:
        """Where the readout's bias starts: at the base rate."""
        return [float(np.log(self.share / (1 - self.share)))]

    def loss(self, answers: Tensor, target: Tensor) -> Tensor:
        """The loss of each seed, from (b, 1) answers."""
        return F.binary_cross_entropy_with_logits(answers[:, 0], target.to(answers.dtype), reduction="none")

    def scores(self, answers: Scores) -> Scores:
        """(S,) probabilities from (S, 1) answers."""
        return 1 / (1 + np.exp(-answers[:, 0]))


@dataclass(frozen=True)
class RegressionOutput:
    """One output: the value, standardised by the median and the quartiles of the training targets.

    Scores are kept within their 2nd and 98th percentiles, as RelBench's own example does.
    """

    kind: ClassVar[str] = "regression"
    median: float
    spread: float  # between the quartiles
    low: float
    high: float

    num_outputs: ClassVar[int] = 1

    def start(self) -> list[float]:
        return [0.0]

    def loss(self, answers: Tensor, target: Tensor) -> Tensor:
        """L1."""
        standard = (target.to(torch.float64) - self.median) / self.spread
        return (answers[:, 0] - standard.to(answers.dtype)).abs()

    def scores(self, answers: Scores) -> Scores:
        return np.clip(answers[:, 0] * self.spread + self.median, self.low, self.high)


@dataclass(frozen=True)
class MulticlassOutput:
    """One output for each class that training has."""

    kind: ClassVar[str] = "multiclass_classification"
    shares: tuple[float, ...]

    @property
    def num_outputs(self) -> int:
        return len(self.shares)

    def start(self) -> list[float]:
        return np.log(np.maximum(self.shares, 1e-6)).tolist()

    def loss(self, answers: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(answers, target.long(), reduction="none")

    def scores(self, answers: Scores) -> Scores:
        """(S, classes) probabilities."""
        power = np.exp(answers - answers.max(1, keepdims=True))
        return power / power.sum(1, keepdims=True)


Target = BinaryOutput | RegressionOutput | MulticlassOutput
_KINDS: dict[str, type[Target]] = {
    target.kind: target for target in (BinaryOutput, RegressionOutput, MulticlassOutput)
}


def fit_output(task: Task) -> Target:
    """The target of a task, with what its training labels say."""
    labels = np.asarray(task.seeds("train").target)
    if task.spec.type == "binary_classification":
        return BinaryOutput(float(labels.mean()))
    if task.spec.type == "regression":
        low, first, median, third, high = np.percentile(labels, [2, 25, 50, 75, 98])
        spread = third - first or labels.std() or 1.0  # targets that are mostly one value have no quartiles
        return RegressionOutput(float(median), float(spread), float(low), float(high))
    if task.spec.type == "multiclass_classification":
        counts = np.bincount(labels, minlength=len(task.classes or ()))
        return MulticlassOutput(tuple((counts / counts.sum()).tolist()))
    raise TaskError(
        "L12", f'task "{task.name}" is a {task.spec.type}', "train on a classification or regression task"
    )


def output_to_dict(target: Target) -> dict[str, Any]:
    return {"kind": target.kind, **asdict(target)}


def output_from_dict(said: dict[str, Any]) -> Target:
    words = with_tuples(said)
    return _KINDS[words.pop("kind")](**words)
