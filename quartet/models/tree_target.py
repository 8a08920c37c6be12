"""TreeTarget: what trees of a regression are fitted to.

A median stays a median under any rising scale, so trees that are fitted to logarithms answer the same question, and
a few very large labels do not decide their splits. Trees that begin with the mean of an entity's past labels learn only
how the next label differs from it: where entities differ by more than their columns tell, that is much easier.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quartet.features import MEAN_PAST_LABEL, NumberColumn
from quartet.tasks import KNOWN_LABELS, LABEL
from quartet.training import RegressionOutput, TrainingData

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class TreeTarget:
    """Labels as trees learn them, and back: `u = sign(x) log(1 + |x|)` with `x = (label - low) / size`."""

    median: float  # of the model's output, which is standardised
    spread: float
    low: float
    size: float
    most: float  # the largest |u| of training
    begins: bool = False  # with the mean of past labels, in the same scale
    past_mean: float = 0.0  # of the column of past labels
    past_std: float = 1.0

    @staticmethod
    def of(data: TrainingData) -> TreeTarget | None:
        """Returns the target that the recipe wants; None for values as they are."""
        wanted, output = data.recipe.model.tree_target, data.output
        if wanted == "values" or not isinstance(output, RegressionOutput):
            return None
        above = data.labels("train") - output.low
        size = float(np.median(above) or above.mean() or 1.0)
        told = TreeTarget(output.median, output.spread, output.low, size, 0.0)
        told = TreeTarget(**asdict(told) | {"most": float(np.abs(told.learned(data.labels("train"))).max())})
        column = past_column(data)
        if wanted == "logarithms" or column is None:
            return told
        return TreeTarget(**asdict(told) | {"begins": True, "past_mean": column.mean, "past_std": column.std})

    def learned(self, labels: NDArray[Any]) -> Floats:
        """Returns labels as trees are fitted to them."""
        x = (np.asarray(labels, dtype=np.float64) - self.low) / self.size
        return np.asarray(np.sign(x) * np.log1p(np.abs(x)))

    def start(self, matrix: NDArray[np.float32], names: tuple[str, ...]) -> Floats | None:
        """Returns where trees begin for each row; without past labels, at the median."""
        if not self.begins:
            return None
        mean = matrix[:, names.index(MEAN_PAST_LABEL)].astype(np.float64) * self.past_std + self.past_mean
        return self.learned(np.where(np.isnan(mean), self.median, mean))

    def standardised(self, raw: Floats) -> Floats:
        """Returns what trees have answered, in the scale of the model's output."""
        u = np.clip(raw, -self.most, self.most)
        labels = np.sign(u) * np.expm1(np.abs(u)) * self.size + self.low
        return np.asarray((labels - self.median) / self.spread)

    def shares(
        self, added: Floats, base: Floats, matrix: NDArray[np.float32], names: tuple[str, ...]
    ) -> Floats:
        """Returns what columns add in the scale of the model's output, in proportion to what they add to the trees'.

        Where trees begin counts as added by the column of past labels.
        """
        start = self.start(matrix, names)
        if start is not None:
            added[:, 0, names.index(MEAN_PAST_LABEL)] += start
        moved = added.sum(2)
        whole = self.standardised(base + moved) - self.standardised(base)
        return added * np.divide(whole, moved, out=np.zeros_like(moved), where=moved != 0)[:, :, None]


def past_column(data: TrainingData) -> NumberColumn | None:
    """Returns what is known of the column of past labels, where there is one and it holds numbers."""
    tables = data.features.statistics.tables
    column = tables[KNOWN_LABELS].of("number").get(LABEL) if KNOWN_LABELS in tables else None
    return column if MEAN_PAST_LABEL in data.column_names else None
