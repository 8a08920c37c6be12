"""Ensemble: several trained models of one task that are asked together. Its score is the mean of theirs.

Runs that differ in their random seed alone err in different places, and models of different kinds even more so: their
mean is mostly better than each of them, and differs less from one training to the next (docs/training.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from quartet.contexts import Progress
from quartet.database import Database
from quartet.errors import UsageError
from quartet.findings import Finding
from quartet.runs.predict import Predictor, Question, score_columns

_SAME = ("name", "type", "entity_table", "target", "horizon", "classes")  # of the tasks of all members


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Trained models of one task, ready to be asked; a single one is an ensemble too."""

    members: tuple[Predictor, ...]

    def __post_init__(self) -> None:
        if not self.members:
            raise UsageError("C02", "an ensemble of no models", "give the folders of some runs")
        tasks = [member.checkpoint.task for member in self.members]
        for name in _SAME:
            different = {str(task[name]) for task in tasks}
            if len(different) > 1:
                raise UsageError(
                    "C05",
                    f"the models are of different tasks: {name} is {' and '.join(sorted(different))}",
                    "ask models of one task together",
                )

    @staticmethod
    def load(*folders: str | Path) -> Ensemble:
        """The models of run folders or of model folders."""
        return Ensemble(tuple(Predictor.load(folder) for folder in folders))

    def predict(
        self,
        database: Database,
        entities: Sequence[Any] | None = None,
        at: str | int | Sequence[str | int] | None = None,
        progress: Progress = lambda _: None,
        report: Callable[[Finding], None] = lambda _: None,
        labels: pa.Table | None = None,
    ) -> pa.Table:
        """Scores for entities at times, in the form and by the rules of `Predictor.predict`."""
        return self.score(self.questions(database, entities, at, report, labels), progress)

    def questions(
        self,
        database: Database,
        entities: Sequence[Any] | None = None,
        at: str | int | Sequence[str | int] | None = None,
        report: Callable[[Finding], None] = lambda _: None,
        labels: pa.Table | None = None,
    ) -> list[Question]:
        """The same seeds as each member sees them; what was found in the database is told once."""
        first, *others = self.members
        return [
            first.question(database, entities, at, report, labels),
            *(member.question(database, entities, at, labels=labels) for member in others),
        ]

    def score(self, questions: Sequence[Question], progress: Progress = lambda _: None) -> pa.Table:
        """The mean of the members' scores, of calibrated ones where all have them; `progress` counts seeds of each."""
        tables = [m.score(question, progress) for m, question in zip(self.members, questions, strict=True)]
        classes = self.members[0].checkpoint.task["classes"]
        about = {name: tables[0][name] for name in tables[0].column_names[:2]}  # key and time
        if classes:
            scores = np.stack([_mean(tables, f"score_{name}") for name in classes], 1)
        else:
            scores = _mean(tables, "score")
        are_calibrated = all("calibrated" in table.column_names for table in tables)
        calibrated = _mean(tables, "calibrated") if are_calibrated else None
        return pa.table(about | score_columns(scores, classes, calibrated))


def _mean(tables: Sequence[pa.Table], name: str) -> NDArray[np.float64]:
    found: NDArray[np.float64] = np.mean([table[name].to_numpy() for table in tables], axis=0)
    return found
