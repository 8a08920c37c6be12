"""All trivial rows of a task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from quartet.errors import ResourceError
from quartet.evaluation.counts import CountsModel
from quartet.evaluation.rules import Constant, PastLabels, entity_mean, last_labels
from quartet.features import FeatureTable
from quartet.findings import Finding, note
from quartet.tasks import Seeds, Task


class Baseline(Protocol):
    """Something that was fitted to a task and gives a score to each seed, at the time up to which it may look."""

    @property
    def name(self) -> str: ...

    def predict(self, seeds: Seeds) -> NDArray[np.float64]: ...


def fit_baselines(task: Task, features: FeatureTable) -> tuple[list[Baseline], list[Finding]]:
    """The fitted rows, the plainest first, and which of them had to be left out."""
    rows: list[Baseline] = [Constant.fit(task), entity_mean(task), last_labels(task)]
    try:
        return [*rows, CountsModel.fit(task, features)], []
    except ResourceError as error:
        return rows, [note(error.code, task.name, f"{error.what}; it is left out", 1, error.fix)]


def knowing(rows: Sequence[Baseline], labels: Seeds) -> list[Baseline]:
    """The rows where more labels are known: in the rolling protocol those of test, each once it is closed."""
    return [row.knowing(labels) if isinstance(row, PastLabels) else row for row in rows]
