"""A model on disk: one folder of safetensors and JSON that predicts without the training code.

    model.json           recipe, task, schema of the data, what the outputs mean, statistics of the features
    weights.safetensors  the network
    features.safetensors what the statistics hold in arrays
    checksums.json       SHA-256 of each of the others

No pickle: reading a model runs no code of its maker. The folder is written aside and put in place whole.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file as load_arrays
from safetensors.numpy import save_file as save_arrays
from safetensors.torch import load_file, save_file

from quartet.config import with_tuples
from quartet.errors import IntegrityError, UsageError
from quartet.features import FeatureStatistics, TableLayout
from quartet.files import new_folder
from quartet.nn.model import ModelSchema, Quartet
from quartet.nn.targets import Target, target_from_dict, target_to_dict
from quartet.recipe import Recipe

VERSION = 1
MODEL, WEIGHTS, FEATURES, CHECKSUMS = (
    "model.json", "weights.safetensors", "features.safetensors", "checksums.json",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """All that a prediction needs: the network, how its data are to be read, and what it answers."""

    model: Quartet
    recipe: Recipe
    target: Target
    statistics: FeatureStatistics
    task: dict[str, Any]  # name, entity table, horizon, classes …
    facts: dict[str, Any]  # data fingerprint, validation figure, calibration: for people and later steps


def save_checkpoint(checkpoint: Checkpoint, folder: Path) -> None:
    """Writes a model; a reader sees the old one or the whole new one."""
    said = {
        "version": VERSION,
        "recipe": checkpoint.recipe.to_dict(),
        "schema": asdict(checkpoint.model.schema),
        "target": target_to_dict(checkpoint.target),
        "task": checkpoint.task,
        "facts": checkpoint.facts,
        "statistics": checkpoint.statistics.to_dict(),
    }
    with new_folder(folder) as fresh:
        (fresh / MODEL).write_text(json.dumps(said, indent=1), encoding="utf-8")
        weights = {name: tensor.contiguous() for name, tensor in checkpoint.model.state_dict().items()}
        save_file(weights, fresh / WEIGHTS)
        save_arrays(dict(checkpoint.statistics.arrays), fresh / FEATURES)
        sums = {name: _digest(fresh / name) for name in (MODEL, WEIGHTS, FEATURES)}
        (fresh / CHECKSUMS).write_text(json.dumps(sums, indent=1), encoding="utf-8")


def load_checkpoint(folder: Path) -> Checkpoint:
    """Reads a model; what is damaged, foreign or newer than this version is refused."""
    _check(folder)
    said = json.loads((folder / MODEL).read_text(encoding="utf-8"))
    if said["version"] > VERSION:
        raise IntegrityError(
            "C10", f"{folder} was written by a newer version of quartet (format {said['version']})", "upgrade"
        )
    recipe = Recipe().changed(**said["recipe"])
    schema = said["schema"]
    tables = tuple(TableLayout(**with_tuples(table)) for table in schema["tables"])
    model = Quartet(recipe.model, ModelSchema(tables, schema["num_hops"], schema["num_outputs"]))
    model.load_state_dict(load_file(folder / WEIGHTS))
    statistics = FeatureStatistics.from_dict(said["statistics"], load_arrays(folder / FEATURES))
    return Checkpoint(
        model.eval(), recipe, target_from_dict(said["target"]), statistics, said["task"], said["facts"]
    )


def _check(folder: Path) -> None:
    if folder.is_file():
        raise UsageError("C10", f'"{folder}" is a file; a model is a folder', "give the run or model folder")
    if not (folder / CHECKSUMS).is_file():
        raise UsageError("C10", f'"{folder}" holds no model', "give the folder that `quartet train` named")
    for name, expected in json.loads((folder / CHECKSUMS).read_text(encoding="utf-8")).items():
        if not (folder / name).is_file() or _digest(folder / name) != expected:
            raise IntegrityError(
                "C06", f"{folder / name} is damaged or absent", "train again, or copy it again"
            )


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
