"""A model on disk: one folder of safetensors, text and JSON that predicts without the training code.

    model.json             recipe, task, keys and links of the data, what the outputs mean
    features.json          statistics of the features; those in arrays are in
    features.safetensors
    drift.json             how some columns were distributed in training
    sure.safetensors       how far predictions of validation were off, and when that was known
    weights.safetensors …  what the model itself writes: weights, or trees
    checksums.json         SHA-256 of each of the others

No pickle: reading a model runs no code of its maker. The folder is written aside and put in place whole.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from quartet.config import Recipe
from quartet.errors import IntegrityError, UsageError
from quartet.evaluation import Calibration, Sure, Temperature, disagreement
from quartet.features import FeatureStatistics, statistics_digest
from quartet.machine import check_checksums, checksums_digest, intact, new_folder, write_checksums
from quartet.registry import model_row
from quartet.runs.drift import Drift
from quartet.tasks import TaskRecord
from quartet.training import Model, Output, output_from_dict, output_to_dict

_VERSION = 2
_MODEL, _STATISTICS, _ARRAYS, _DRIFT = "model.json", "features.json", "features.safetensors", "drift.json"
_SURE, DISAGREEMENT = "sure.safetensors", "disagreement"
_AGAIN = "train again, or copy it again"


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """All that a prediction needs: the model, how its data are to be read, and what its outputs mean."""

    model: Model
    recipe: Recipe
    output: Output
    statistics: FeatureStatistics
    task: TaskRecord
    best_epoch: int
    validation: float  # the task's main metric, by which the model was selected
    calibration: Calibration | Temperature | None = None
    drift: Drift | None = None
    sure: Sure | None = None
    thresholds: tuple[float, ...] | None = (
        None  # of each label of many: the score from which on it is predicted
    )
    digest: str = ""  # of all files it was read from

    @cached_property
    def features_key(self) -> str:
        """Returns a digest of the statistics: models with equal ones read the same features."""
        return statistics_digest(self.statistics)

    @cached_property
    def key(self) -> str:
        """Returns the task's name and a short digest: what the model is called where it has no run."""
        told = [
            self.recipe.to_dict(),
            self.task.fingerprint,
            self.best_epoch,
            self.validation,
            self.features_key,
        ]
        return f"{self.task.name}-{hashlib.sha256(json.dumps(told, default=str).encode()).hexdigest()[:8]}"

    def scores(self, logits: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns the scores of (S, outputs) logits; an error where the model has none."""
        scores = self.output.scores(logits)
        if not np.isfinite(logits).all() or not np.isfinite(scores).all():
            raise IntegrityError(
                "C06", f'the model of "{self.task.name}" gives answers that are no finite numbers', _AGAIN
            )
        return scores

    def probabilities(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns the (S, classes) probabilities of scores, calibrated where the model can; numbers as they are."""
        if self.task.type == "regression":
            return scores
        if self.calibration is not None:
            return self.calibration.probabilities(scores)
        return np.stack([1 - scores, scores], 1) if scores.ndim == 1 else scores

    def hints(
        self, scores: Sequence[NDArray[np.float64]], weights: Sequence[float] | None = None
    ) -> dict[str, NDArray[np.float64]]:
        """Returns what besides a number tells how sure it is: how far the members of a portfolio lie apart."""
        if self.task.type != "regression" or len(self.model.members) < 2:
            return {}
        return {DISAGREEMENT: disagreement(scores, self.model.weights if weights is None else weights)}

    def save(self, folder: Path) -> None:
        """Writes the model; a reader sees the old one or the whole new one."""
        about = {
            "version": _VERSION,
            "recipe": self.recipe.to_dict(),
            "output": output_to_dict(self.output),
            "task": self.task.to_dict(),
            "best_epoch": self.best_epoch,
            "validation": self.validation,
            "calibration": asdict(self.calibration) if self.calibration else None,
            "sure": self.sure.by if self.sure else None,
            "thresholds": self.thresholds,
        }
        with new_folder(folder) as fresh:
            (fresh / _MODEL).write_text(json.dumps(about, indent=1), encoding="utf-8")
            (fresh / _STATISTICS).write_text(json.dumps(self.statistics.to_dict()), encoding="utf-8")
            save_file(dict(self.statistics.arrays), fresh / _ARRAYS)
            if self.drift is not None:
                (fresh / _DRIFT).write_text(json.dumps(self.drift.to_dict()), encoding="utf-8")
            if self.sure is not None:
                save_file(self.sure.to_arrays(), fresh / _SURE)
            self.model.save(fresh)
            write_checksums(fresh)

    @staticmethod
    def load(folder: Path) -> Checkpoint:
        """Reads a model; what is damaged, foreign or of another version is refused."""
        if folder.is_file():
            raise UsageError(
                "C10", f'"{folder}" is a file; a model is a folder', "give the run or model folder"
            )
        if not (folder / _MODEL).is_file() and not (folder / "checksums.json").is_file():
            raise UsageError(
                "C10", f'"{folder}" holds no model', "give the folder that `quartet train` named"
            )
        with intact(folder, _AGAIN):
            return Checkpoint._load(folder)

    @staticmethod
    def _load(folder: Path) -> Checkpoint:
        check_checksums(folder, _AGAIN)
        about = json.loads((folder / _MODEL).read_text(encoding="utf-8"))
        if about["version"] != _VERSION:
            is_newer = about["version"] > _VERSION
            raise IntegrityError(
                "C10",
                f"{folder} was written by {'a newer' if is_newer else 'an older'} version of quartet "
                f"(format {about['version']}, this one reads {_VERSION})",
                "upgrade" if is_newer else "train it again",
            )
        recipe, output = Recipe().changed(**about["recipe"]), output_from_dict(about["output"])
        statistics = json.loads((folder / _STATISTICS).read_text(encoding="utf-8"))
        calibration, drift = about["calibration"], folder / _DRIFT
        if not np.isfinite([*(calibration or {}).values()]).all():
            raise ValueError("a calibration without finite numbers")
        thresholds = about.get("thresholds")
        if thresholds is not None and (
            len(thresholds) != output.num_outputs or not np.isfinite(thresholds).all()
        ):
            raise ValueError("thresholds that are not those of the labels")
        return Checkpoint(
            model_row(recipe.model.architecture).class_for(output.kind).load(folder, recipe, output),
            recipe,
            output,
            FeatureStatistics.from_dict(statistics, load_file(folder / _ARRAYS)),
            TaskRecord.from_dict(about["task"]),
            about["best_epoch"],
            about["validation"],
            (Temperature if "temperature" in calibration else Calibration)(**calibration)
            if calibration
            else None,
            Drift.from_dict(json.loads(drift.read_text(encoding="utf-8"))) if drift.is_file() else None,
            Sure.from_arrays(
                about["task"]["spec"]["type"],
                about["sure"],
                load_file(folder / _SURE),
                recipe.sampling.time_rule,
            )
            if about.get("sure")
            else None,
            None if thresholds is None else tuple(map(float, thresholds)),
            digest=checksums_digest(folder),
        )


def mean_thresholds(members: Sequence[Checkpoint]) -> NDArray[np.float64]:
    """Returns the threshold of each label for the mean of some models' scores."""
    return np.asarray(np.mean([member.thresholds or () for member in members], axis=0))
