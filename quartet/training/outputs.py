"""Output: what the numbers that a model gives mean: their loss, where they start, and the scores they become."""

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
    positive_rate: float  # in training

    num_outputs: ClassVar[int] = 1

    def start(self) -> list[float]:
        """Returns where the readout's bias starts: at the base rate."""
        return [float(np.log(self.positive_rate / (1 - self.positive_rate)))]

    def loss(self, logits: Tensor, target: Tensor) -> Tensor:
        """Returns the loss of each seed, from (b, 1) logits."""
        return F.binary_cross_entropy_with_logits(logits[:, 0], target.to(logits.dtype), reduction="none")

    def scores(self, logits: Scores) -> Scores:
        """Returns (S,) probabilities from (S, 1) logits."""
        return 1 / (1 + np.exp(-logits[:, 0]))


@dataclass(frozen=True)
class RegressionOutput:
    """One output: the value, standardised by the median and the quartiles of the training targets.

    Scores are kept within the least and the largest of them. (RelBench's example cuts at their 2nd and 98th
    percentiles: where a few targets are very large, that alone may double the error, see docs/log.md.)
    """

    kind: ClassVar[str] = "regression"
    median: float
    spread: float  # between the quartiles
    low: float
    high: float

    num_outputs: ClassVar[int] = 1

    def start(self) -> list[float]:
        return [0.0]

    def loss(self, logits: Tensor, target: Tensor) -> Tensor:
        """Returns the absolute error of each seed."""
        standard = (target.to(torch.float64) - self.median) / self.spread
        return (logits[:, 0] - standard.to(logits.dtype)).abs()

    def scores(self, logits: Scores) -> Scores:
        return np.clip(logits[:, 0] * self.spread + self.median, self.low, self.high)


@dataclass(frozen=True)
class MulticlassOutput:
    """One output for each class that training has."""

    kind: ClassVar[str] = "multiclass_classification"
    class_rates: tuple[float, ...]  # in training

    @property
    def num_outputs(self) -> int:
        return len(self.class_rates)

    def start(self) -> list[float]:
        return np.log(np.maximum(self.class_rates, 1e-6)).tolist()

    def loss(self, logits: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(logits, target.long(), reduction="none")

    def scores(self, logits: Scores) -> Scores:
        """Returns (S, classes) probabilities."""
        power = np.exp(logits - logits.max(1, keepdims=True))
        return power / power.sum(1, keepdims=True)


@dataclass(frozen=True)
class RankingOutput:
    """A vector of a source, which is near to those of the items it will have to do with: see `recommend/`."""

    kind: ClassVar[str] = "recommendation"
    num_outputs: int = 32

    def start(self) -> list[float]:
        return [0.0] * self.num_outputs

    def loss(self, logits: Tensor, target: Tensor) -> Tensor:
        raise NotImplementedError("the loss of a list is that of its pairs")

    def scores(self, logits: Scores) -> Scores:
        return logits


Output = BinaryOutput | RegressionOutput | MulticlassOutput | RankingOutput
_KINDS: dict[str, type[Output]] = {
    output.kind: output for output in (BinaryOutput, RegressionOutput, MulticlassOutput, RankingOutput)
}


def fit_output(task: Task) -> Output:
    """Returns the output that a task wants, with what its training labels tell."""
    if task.spec.type == "recommendation":
        return RankingOutput()
    labels = np.asarray(task.seeds("train").target)
    if task.spec.type == "binary_classification":
        return BinaryOutput(float(labels.mean()))
    if task.spec.type == "regression":
        low, first, median, third, high = np.percentile(labels, [0, 25, 50, 75, 100])
        spread = third - first or labels.std() or 1.0  # targets that are mostly one value have no quartiles
        return RegressionOutput(float(median), float(spread), float(low), float(high))
    if task.spec.type == "multiclass_classification":
        counts = np.bincount(labels, minlength=len(task.classes or ()))
        return MulticlassOutput(tuple((counts / counts.sum()).tolist()))
    raise TaskError(
        "L12", f'task "{task.name}" is a {task.spec.type}', "train on a classification or regression task"
    )


def output_to_dict(output: Output) -> dict[str, Any]:
    return {"kind": output.kind, **asdict(output)}


def output_from_dict(values: dict[str, Any]) -> Output:
    fields = with_tuples(values)
    return _KINDS[fields.pop("kind")](**fields)
