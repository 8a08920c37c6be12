"""A model on disk: one folder of safetensors, text and JSON that predicts without the training code.

    model.json           recipe, task, keys and links of the data, what the outputs mean, statistics of the features
    weights.safetensors  the network; of the model lightgbm instead
    trees.txt            its trees, as LightGBM writes them
    features.safetensors what the statistics hold in arrays
    checksums.json       SHA-256 of each of the others

No pickle: reading a model runs no code of its maker. The folder is written aside and put in place whole.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from safetensors.numpy import load_file as load_arrays
from safetensors.numpy import save_file as save_arrays
from safetensors.torch import load_file, save_file

from quartet.config import Recipe, with_tuples
from quartet.database import Database, Table
from quartet.errors import IntegrityError, SchemaError, UsageError
from quartet.features import FeatureStatistics, TableLayout
from quartet.machine import new_folder
from quartet.models import Boosted, build_model
from quartet.tasks import Splits, TaskSpec, with_past_labels
from quartet.training import ModelSchema, PartModel, Target, output_from_dict, output_to_dict

VERSION = 1
MODEL, WEIGHTS, TREES, FEATURES, CHECKSUMS = (
    "model.json", "weights.safetensors", "trees.txt", "features.safetensors", "checksums.json",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """All that a prediction needs: the model, how its data are to be read, and what it answers."""

    model: PartModel | Boosted
    recipe: Recipe
    target: Target
    statistics: FeatureStatistics
    task: dict[str, Any]  # name, entity table, horizon, classes …
    facts: dict[str, Any]  # data fingerprint, validation figure, calibration: for people and later steps

    def view(self, database: Database) -> Database:
        """A database as the model's task may see it, with tables in the order in which the model counts them."""
        hidden = [
            (table, column)
            for table, column in self.task["hidden_columns"]
            if table in database.tables and column in database[table].data.column_names
        ]
        seen = database.without(hidden)
        known = [name for name in self.statistics.tables if name in seen.tables]
        return replace(seen, tables={name: seen[name] for name in dict.fromkeys([*known, *seen.tables])})

    def view_with_history(self, database: Database, upto: int, labels: pa.Table | None = None) -> Database:
        """What `view` shows, and the labels that are known at a time.

        `labels` are label rows of a task whose labels do not follow from the database.
        """
        words = with_tuples(self.task["spec"])
        spec = TaskSpec(**(words | {"remove_columns": tuple(map(tuple, words["remove_columns"]))}))
        splits = Splits(self.task["val_timestamp"], self.task["test_timestamp"])
        return self.view(with_past_labels(database, spec, splits, upto, labels))

    def check_structure(self, database: Database) -> None:
        """An error that names the key, time or link by which a database differs from that of training."""
        before, now = self.task.get("structure", structure(database)), structure(database)
        lost, new = (
            [fact for fact in one if fact not in other] for one, other in ((before, now), (now, before))
        )
        if lost or new:
            instead = f', and now "{new[0]}"' if lost and new else ""
            what = (
                f'"{lost[0]}" held in training and does not now'
                if lost
                else f'"{new[0]}" did not hold in training'
            )
            raise SchemaError(
                "V04" if lost else "V05", what + instead, "say in a schema file how it was, or train anew"
            )


def structure(database: Database) -> list[str]:
    """Keys, times and links of all tables, a sentence for each."""
    return sorted(fact for table in database.tables.values() for fact in _facts(table))


def _facts(table: Table) -> Iterator[str]:
    schema = table.schema
    if schema.primary_key:
        yield f"the key of {table.name} is {', '.join(schema.primary_key)}"
    if schema.time is not None:
        yield f"{table.name} is dated by {schema.time.column}"
    if schema.available_at is not None:
        yield f"{table.name} is available at {schema.available_at}"
    for link in schema.foreign_keys:
        target = link.table + "".join(f".{column}" for column in link.references)
        yield f"{table.name}.{link.label} links to {target}"


def save_checkpoint(checkpoint: Checkpoint, folder: Path) -> None:
    """Writes a model; a reader sees the old one or the whole new one."""
    said = {
        "version": VERSION,
        "recipe": checkpoint.recipe.to_dict(),
        **_reads(checkpoint.model),
        "target": output_to_dict(checkpoint.output),
        "task": checkpoint.task,
        "facts": checkpoint.facts,
        "statistics": checkpoint.statistics.to_dict(),
    }
    with new_folder(folder) as fresh:
        (fresh / MODEL).write_text(json.dumps(said, indent=1), encoding="utf-8")
        learned = _write_learned(checkpoint.model, fresh)
        save_arrays(dict(checkpoint.statistics.arrays), fresh / FEATURES)
        sums = {name: _digest(fresh / name) for name in (MODEL, learned, FEATURES)}
        (fresh / CHECKSUMS).write_text(json.dumps(sums, indent=1), encoding="utf-8")


def _reads(model: PartModel | Boosted) -> dict[str, Any]:
    """What a model must know of the data."""
    if isinstance(model, Boosted):
        return {"columns": model.names}
    return {"schema": asdict(model.schema)}


def _write_learned(model: PartModel | Boosted, folder: Path) -> str:
    """Writes what a model has learned; the name of the file."""
    if isinstance(model, Boosted):
        (folder / TREES).write_text(model.text, encoding="utf-8")
        return TREES
    save_file({name: tensor.contiguous() for name, tensor in model.state_dict().items()}, folder / WEIGHTS)
    return WEIGHTS


def load_checkpoint(folder: Path) -> Checkpoint:
    """Reads a model; what is damaged, foreign or newer than this version is refused."""
    _check(folder)
    said = json.loads((folder / MODEL).read_text(encoding="utf-8"))
    if said["version"] > VERSION:
        raise IntegrityError(
            "C10", f"{folder} was written by a newer version of quartet (format {said['version']})", "upgrade"
        )
    recipe = Recipe().changed(**said["recipe"])
    target = output_from_dict(said["target"])
    if recipe.model.architecture == "lightgbm":
        text = (folder / TREES).read_text(encoding="utf-8")
        model: PartModel | Boosted = Boosted(tuple(said["columns"]), target.num_outputs, text)
    else:
        model = _read_network(recipe, said["schema"], folder / WEIGHTS)
    statistics = FeatureStatistics.from_dict(said["statistics"], load_arrays(folder / FEATURES))
    return Checkpoint(model, recipe, target, statistics, said["task"], said["facts"])


def _read_network(recipe: Recipe, schema: dict[str, Any], weights: Path) -> PartModel:
    tables = tuple(TableLayout(**with_tuples(table)) for table in schema["tables"])
    links = tuple((child, parent) for child, parent in schema.get("links", ()))
    model = build_model(recipe.model, ModelSchema(tables, schema["num_hops"], schema["num_outputs"], links))
    model.load_state_dict(load_file(weights))
    return model.eval()


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
