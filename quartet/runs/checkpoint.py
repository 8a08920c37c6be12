"""A model on disk: one folder of safetensors, text and JSON that predicts without the training code.

    model.json             recipe, task, keys and links of the data, what the outputs mean
    features.json          statistics of the features; those in arrays are in
    features.safetensors
    weights.safetensors …  what the model itself writes: weights, or trees
    checksums.json         SHA-256 of each of the others

No pickle: reading a model runs no code of its maker. The folder is written aside and put in place whole.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from quartet.config import Recipe
from quartet.errors import IntegrityError, UsageError
from quartet.evaluation import Calibration
from quartet.features import FeatureStatistics
from quartet.machine import new_folder
from quartet.registry import model_row
from quartet.tasks import TaskRecord
from quartet.training import Model, Output, output_from_dict, output_to_dict

_VERSION = 2
_MODEL, _STATISTICS, _ARRAYS, _CHECKSUMS = (
    "model.json", "features.json", "features.safetensors", "checksums.json",
)  # fmt: skip


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
    calibration: Calibration | None = None

    @cached_property
    def features_key(self) -> str:
        """Returns a digest of the statistics: models with equal ones read the same features."""
        arrays = {name: hashlib.sha256(a.tobytes()).hexdigest() for name, a in self.statistics.arrays.items()}
        return hashlib.sha256(json.dumps([self.statistics.to_dict(), arrays]).encode()).hexdigest()

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
        }
        with new_folder(folder) as fresh:
            (fresh / _MODEL).write_text(json.dumps(about, indent=1), encoding="utf-8")
            (fresh / _STATISTICS).write_text(json.dumps(self.statistics.to_dict()), encoding="utf-8")
            save_file(dict(self.statistics.arrays), fresh / _ARRAYS)
            self.model.save(fresh)
            sums = {path.name: _digest(path) for path in sorted(fresh.iterdir())}
            (fresh / _CHECKSUMS).write_text(json.dumps(sums, indent=1), encoding="utf-8")

    @staticmethod
    def load(folder: Path) -> Checkpoint:
        """Reads a model; what is damaged, foreign or of another version is refused."""
        try:
            return Checkpoint._load(folder)
        except (ValueError, KeyError, TypeError, AttributeError, RuntimeError, SafetensorError) as error:
            reason = f"{type(error).__name__}: {error}".splitlines()[0][:200]
            raise IntegrityError(
                "C06",
                f"{folder} is damaged or no model of quartet ({reason})",
                "train again, or copy it again",
            ) from error

    @staticmethod
    def _load(folder: Path) -> Checkpoint:
        _check_files(folder)
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
        calibration = about["calibration"]
        return Checkpoint(
            model_row(recipe.model.architecture).model_class.load(folder, recipe, output),
            recipe,
            output,
            FeatureStatistics.from_dict(statistics, load_file(folder / _ARRAYS)),
            TaskRecord.from_dict(about["task"]),
            about["best_epoch"],
            about["validation"],
            Calibration(**calibration) if calibration else None,
        )


def _check_files(folder: Path) -> None:
    if folder.is_file():
        raise UsageError("C10", f'"{folder}" is a file; a model is a folder', "give the run or model folder")
    if not (folder / _CHECKSUMS).is_file():
        raise UsageError("C10", f'"{folder}" holds no model', "give the folder that `quartet train` named")
    sums: dict[str, str] = json.loads((folder / _CHECKSUMS).read_text(encoding="utf-8"))
    read = {path.name for path in folder.iterdir() if path.suffix in (".json", ".safetensors", ".txt")}
    for name in sorted({*sums, *read, _MODEL} - {_CHECKSUMS}):
        if not (folder / name).is_file() or _digest(folder / name) != sums.get(name):
            raise IntegrityError(
                "C06", f"{folder / name} is damaged or absent", "train again, or copy it again"
            )


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
