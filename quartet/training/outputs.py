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
from quartet.tasks import Task, TaskType

Scores = NDArray[np.float64]
_IGNORED = -100


@dataclass(frozen=True)
class BinaryOutput:
    """One output: the logit of the positive class."""

    kind: ClassVar[TaskType] = "binary_classification"
    positive_rate: float  # in training

    num_outputs: ClassVar[int] = 1

    @staticmethod
    def fit(labels: NDArray[Any], num_classes: int) -> BinaryOutput:  # noqa: ARG004 (as the others)
        """Returns the output with what training labels tell."""
        return BinaryOutput(float(labels.mean()))

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

    kind: ClassVar[TaskType] = "regression"
    median: float
    spread: float  # between the quartiles
    low: float
    high: float

    num_outputs: ClassVar[int] = 1

    @staticmethod
    def fit(labels: NDArray[Any], num_classes: int) -> RegressionOutput:  # noqa: ARG004
        low, first, median, third, high = np.percentile(labels, [0, 25, 50, 75, 100])
        spread = third - first or labels.std() or 1.0  # targets that are mostly one value have no quartiles
        return RegressionOutput(float(median), float(spread), float(low), float(high))

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

    kind: ClassVar[TaskType] = "multiclass_classification"
    class_rates: tuple[float, ...]  # in training

    @staticmethod
    def fit(labels: NDArray[Any], num_classes: int) -> MulticlassOutput:
        counts = np.bincount(labels, minlength=num_classes)
        return MulticlassOutput(tuple((counts / counts.sum()).tolist()))

    @property
    def num_outputs(self) -> int:
        return len(self.class_rates)

    def start(self) -> list[float]:
        return np.log(np.maximum(self.class_rates, 1e-6)).tolist()

    def loss(self, logits: Tensor, target: Tensor) -> Tensor:
        """Returns the loss of each seed; one of a class that training does not have has none to learn from."""
        seen = torch.where(target < self.num_outputs, target.long(), _IGNORED)
        return F.cross_entropy(logits, seen, reduction="none", ignore_index=_IGNORED)

    def scores(self, logits: Scores) -> Scores:
        """Returns (S, classes) probabilities."""
        power = np.exp(logits - logits.max(1, keepdims=True))
        return power / power.sum(1, keepdims=True)


@dataclass(frozen=True)
class MultilabelOutput:
    """One output for each label that training has: the logit of its being there, whatever the others are."""

    kind: ClassVar[TaskType] = "multilabel_classification"
    label_rates: tuple[float, ...]  # in training

    @staticmethod
    def fit(labels: NDArray[Any], num_classes: int) -> MultilabelOutput:
        rates = (labels[:, :num_classes].sum(0, dtype=np.float64) + 0.5) / (len(labels) + 1)
        return MultilabelOutput(tuple(rates.tolist()))

    @property
    def num_outputs(self) -> int:
        return len(self.label_rates)

    def start(self) -> list[float]:
        rates = np.array(self.label_rates)
        return np.log(rates / (1 - rates)).tolist()

    def loss(self, logits: Tensor, target: Tensor) -> Tensor:
        """Returns the mean loss over the labels of each seed, from (b, labels) logits."""
        wanted = target[:, : self.num_outputs].to(logits.dtype)
        return F.binary_cross_entropy_with_logits(logits, wanted, reduction="none").mean(1)

    def scores(self, logits: Scores) -> Scores:
        """Returns (S, labels) probabilities, each by itself."""
        return 1 / (1 + np.exp(-np.clip(logits, -700, 700)))


@dataclass(frozen=True)
class RankingOutput:
    """A vector of a source, which is near to those of the items it will have to do with: see `recommend/`."""

    kind: ClassVar[str] = "recommendation"
    num_outputs: int = 32

    @staticmethod
    def fit(labels: NDArray[Any], num_classes: int) -> RankingOutput:  # noqa: ARG004 (there is nothing to learn)
        return RankingOutput()

    def start(self) -> list[float]:
        return [0.0] * self.num_outputs

    def loss(self, logits: Tensor, target: Tensor) -> Tensor:
        raise NotImplementedError("the loss of a list is that of its pairs")

    def scores(self, logits: Scores) -> Scores:
        return logits


Output = BinaryOutput | RegressionOutput | MulticlassOutput | MultilabelOutput | RankingOutput
_KINDS: dict[str, type[Output]] = {
    output.kind: output
    for output in (BinaryOutput, RegressionOutput, MulticlassOutput, MultilabelOutput, RankingOutput)
}


def fit_output(task: Task) -> Output:
    """Returns the output that a task wants, with what its training labels tell."""
    target = task.seeds("train").target
    labels = (
        target if isinstance(target, np.ndarray) else np.empty(0)
    )  # lists of items tell no output anything
    if task.spec.type not in _KINDS:
        raise TaskError(
            "L12", f'task "{task.name}" is a {task.spec.type}', "train on a classification or regression task"
        )
    return _KINDS[task.spec.type].fit(labels, len(task.classes or ()))


def output_to_dict(output: Output) -> dict[str, Any]:
    return {"kind": output.kind, **asdict(output)}


def output_from_dict(values: dict[str, Any]) -> Output:
    fields = with_tuples(values)
    return _KINDS[fields.pop("kind")](**fields)
