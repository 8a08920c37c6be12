"""A run on disk: everything that was asked, done and found, in one folder.

recipe.json  task.json  environment.json   what was asked, of what, where
metrics.jsonl                              one line for each epoch; of trees one in all
state/                                     what `--resume` goes on from; gone when the run is done
model/                                     the best model on validation (see `checkpoint.py`)
predictions/val.parquet, test.parquet      its scores; test without labels
evaluation-*.json, calibration-*.svg       written by `quartet evaluate`, by split and protocol
curves.svg                                 loss and validation by epoch
dial.json                                  what `--budget` tried and chose
said.sqlite, said.json                     what was said (`predict --record`), and what came of it
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from quartet.config import Recipe
from quartet.database import Table
from quartet.drawing import curves_svg
from quartet.errors import UsageError
from quartet.evaluation import Calibration, Sure, Temperature, best_thresholds
from quartet.listener import SILENT, Listener
from quartet.machine import check_checksums, intact, new_file, write_checksums
from quartet.runs.checkpoint import Checkpoint
from quartet.runs.drift import Drift
from quartet.runs.predictions import asked_columns, prediction_table
from quartet.runs.ranking import list_length, list_table, ranked
from quartet.tasks import Seeds, Split, Task, TaskRecord
from quartet.training import Epoch, Fitted, TrainingData, View

_LATEST = "latest"
_PACKAGES = ("quartet-rdl", "torch", "numpy", "numba", "pyarrow", "lightgbm")


@dataclass(frozen=True)
class Run:
    """A run folder."""

    folder: Path

    @staticmethod
    def check(base: Path, task: Task) -> None:
        """Refuses a name that is no folder's, and a `latest` that is somebody else's: before any work is done."""
        link = base / _LATEST
        if task.name != Path(task.name).name:
            raise UsageError(
                "C02",
                f'a run folder cannot be called "{task.name}"',
                "rename the task: letters, digits, - _ .",
            )
        if link.exists() and not link.is_symlink() and not (latest_followed(link) / "recipe.json").is_file():
            raise UsageError(
                "C09", f'"{link}" is not a link to a run', "move it away, or name another --runs"
            )

    @staticmethod
    def create(base: Path, task: Task, recipe: Recipe) -> Run:
        """Returns a new folder that its user alone can read, named after the task and the moment.

        `latest` points to it. A file or folder of somebody else's that is called so is never replaced.
        """
        Run.check(base, task)
        name, link = f"{task.name}-{time.strftime('%Y%m%d-%H%M%S')}", base / _LATEST
        folder, number = base / name, 1
        base.mkdir(parents=True, exist_ok=True)
        while folder.exists():
            folder, number = base / f"{name}-{number}", number + 1
        folder.mkdir(mode=0o700)
        run = Run(folder)
        run.write("recipe.json", recipe.to_dict())
        run.write("task.json", TaskRecord.of(task).to_dict())
        run.write("environment.json", _environment())
        link.unlink(missing_ok=True)
        try:
            link.symlink_to(folder.name)
        except OSError:  # Windows asks for a privilege: a text with the name does as well
            link.write_text(folder.name, encoding="utf-8")
        return run

    @staticmethod
    def open(folder: str | Path) -> Run:
        path = latest_followed(folder)
        if not (path / "recipe.json").is_file():
            raise UsageError(
                "C10", f'"{folder}" is no run folder', "give the folder that `quartet train` named"
            )
        return Run(path)

    @property
    def recipe(self) -> Recipe:
        with self._intact("recipe.json"):
            return Recipe().changed(**self.read("recipe.json"))

    @property
    def task(self) -> TaskRecord:
        with self._intact("task.json"):
            return TaskRecord.from_dict(self.read("task.json"))

    @property
    def environment(self) -> dict[str, Any]:
        """Returns on what machine it began, and with which packages."""
        with self._intact("environment.json"):
            told = self.read("environment.json")
            return {name: told[name] for name in ("python", "platform", "cores", "threads", "packages")}

    @property
    def threads(self) -> int:
        """Returns with how many threads it began: in sums their number decides the last bits."""
        with self._intact("environment.json"):
            return int(self.read("environment.json")["threads"])

    @property
    def model_folder(self) -> Path:
        return self.folder / "model"

    @property
    def state_folder(self) -> Path:
        return self.folder / "state"

    @property
    def is_done(self) -> bool:
        return self.model_folder.is_dir() and not self.state_folder.is_dir()

    def write(self, name: str, content: Any) -> None:
        self.write_text(name, json.dumps(content, indent=1) + "\n")

    def write_text(self, name: str, text: str) -> None:
        with new_file(self.folder / name) as fresh:
            fresh.write_text(text, encoding="utf-8")

    def read(self, name: str) -> Any:
        with self._intact(name):
            return json.loads((self.folder / name).read_text(encoding="utf-8"))

    def _intact(self, name: str) -> AbstractContextManager[None]:
        return intact(self.folder / name, "train again, or copy the run again")

    def epochs(self) -> list[Epoch]:
        """Returns the epochs that are done."""
        path = self.folder / "metrics.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        with self._intact(path.name):
            return [Epoch(**json.loads(line)) for line in lines]

    def add_epoch(self, epoch: Epoch, metric: str) -> None:
        """Writes one more epoch; a run that was interrupted and goes on has each of them once."""
        epochs = [before for before in self.epochs() if before.number < epoch.number] + [epoch]
        self.write_text("metrics.jsonl", "".join(json.dumps(asdict(line)) + "\n" for line in epochs))
        self.write_text("curves.svg", curves_svg(epochs, metric))

    def predictions(self, split: Split) -> pa.Table:
        folder = self.folder / "predictions"
        with self._intact(f"predictions/{split}.parquet"):
            check_checksums(folder, "train again, or copy the run again", f"{split}.parquet")
            return pq.read_table(folder / f"{split}.parquet", page_checksum_verification=True)

    def keep(self, fitted: Fitted, data: TrainingData, is_done: bool = True) -> Checkpoint:
        """Keeps a fitted model, with its scores of validation and test, and those of its members."""
        task, model = data.task, fitted.model
        if task.spec.type == "recommendation":
            return self._keep_lists(fitted, data)
        splits: tuple[Split, ...] = ("val", "test")
        each = {"test": member_logits(model, data.view, data.seeds["test"])}
        each["val"] = fitted.validation or member_logits(model, data.view, data.seeds["val"])
        logits = {split: model.blend(each[split]) for split in splits}
        calibration: Calibration | Temperature | None = None
        thresholds: tuple[float, ...] | None = None
        if task.spec.facts.holds_lists:
            thresholds = best_thresholds(data.labels("val"), data.output.scores(logits["val"]))
        if task.spec.type == "binary_classification":
            calibration = Calibration.fit(logits["val"][:, 0], data.labels("val"))
        elif task.spec.type == "multiclass_classification":
            calibration = Temperature.fit(data.output.scores(logits["val"]), data.labels("val"))
        checkpoint = Checkpoint(
            model, data.recipe, data.output, data.features.statistics, self.task,
            fitted.best.number, fitted.best.validation, calibration, Drift.of(data, model, logits) if is_done else None,
            thresholds=thresholds,
        )  # fmt: skip
        if not task.spec.facts.holds_lists:
            checkpoint = replace(checkpoint, sure=_sure(checkpoint, data, logits["val"], each["val"]))
        checkpoint.save(self.model_folder)
        (self.folder / "predictions").mkdir(exist_ok=True)
        for split, numbers in logits.items():
            scores = prediction_table(*_asked(task, split), [checkpoint], [numbers], with_names=False)
            with new_file(self.folder / "predictions" / f"{split}.parquet") as fresh:
                pq.write_table(scores, fresh, write_page_checksum=True)
            if model.members:
                own = {str(n): pa.array(list(checkpoint.scores(x))) for n, x in enumerate(each[split])}
                with new_file(self.folder / "predictions" / f"{split}-members.parquet") as fresh:
                    pq.write_table(pa.table(own), fresh, write_page_checksum=True)
        write_checksums(self.folder / "predictions")
        if is_done:
            self._forget_state()
        return checkpoint

    def _keep_lists(self, fitted: Fitted, data: TrainingData) -> Checkpoint:
        """Keeps a fitted recommender, with its lists of validation and test."""
        checkpoint = Checkpoint(
            fitted.model, data.recipe, data.output, data.features.statistics, self.task,
            fitted.best.number, fitted.best.validation,
        )  # fmt: skip
        checkpoint.save(self.model_folder)
        (self.folder / "predictions").mkdir(exist_ok=True)
        for split in ("val", "test"):
            lists = ranked([checkpoint], [data.view], data.seeds[split], list_length(data.task.spec))
            _, rows, times = _asked(data.task, split)
            table = list_table(data.task.database, data.task.spec, rows, times, lists, with_names=False)
            with new_file(self.folder / "predictions" / f"{split}.parquet") as fresh:
                pq.write_table(table, fresh, write_page_checksum=True)
        write_checksums(self.folder / "predictions")
        self._forget_state()
        return checkpoint

    def _forget_state(self) -> None:
        if self.state_folder.is_dir():  # at once: a half of it would be no state
            gone = self.state_folder.rename(self.folder / ".state.done")
            shutil.rmtree(gone, ignore_errors=True)

    def kept_members(self, split: Split) -> list[np.ndarray]:
        """Returns the scores of each member of the kept model; none of a model that has no members."""
        path = self.folder / "predictions" / f"{split}-members.parquet"
        if not path.is_file():
            return []
        with self._intact(f"predictions/{path.name}"):
            check_checksums(path.parent, "train again, or copy the run again", path.name)
            kept = pq.read_table(path, page_checksum_verification=True)
            return [np.array(kept[name].to_pylist()) for name in kept.column_names]

    def kept_scores(self, split: Split, task: Task) -> np.ndarray:
        """Returns the scores that were kept when the run ended: (S,), or (S, classes).

        They must be those of the task's own entities and times, in their order.
        """
        kept = self.predictions(split)
        with self._intact(f"predictions/{split}.parquet"):
            asked = pa.table(asked_columns(*_asked(task, split)))
            if not kept.select(asked.column_names).cast(asked.schema).equals(asked):
                raise ValueError(
                    f"its keys and times are not those of the task's {split} rows, in their order"
                )
            names = ["score"] if task.classes is None else [f"score_{name}" for name in task.classes]
            scores = np.stack([kept[name].to_numpy() for name in names], 1)
            if not np.isfinite(scores).all():
                raise ValueError("scores that are no finite numbers")
        return scores[:, 0] if task.classes is None else scores


def member_logits(model: Any, view: View, seeds: Seeds, listener: Listener = SILENT) -> list[np.ndarray]:
    """Returns the logits of each member of a model, or of the model where it has none."""
    asked = [member.model for member in model.members] or [model]
    return [one.logits(view, seeds, listener) for one in asked]


def _sure(checkpoint: Checkpoint, data: TrainingData, logits: np.ndarray, each: Sequence[np.ndarray]) -> Sure:
    """Returns what validation tells of how sure a model is, by its logits from before it saw these labels."""
    seeds, spec, scores = data.task.seeds("val"), data.task.spec, checkpoint.scores(logits)
    floor = (
        0.0 if getattr(data.output, "low", -1.0) >= 0 else -np.inf
    )  # amounts and counts are never negative
    hints = checkpoint.hints([checkpoint.scores(own) for own in each])
    known_at = spec.known_at(seeds.time)
    told = checkpoint.probabilities(scores)
    asked, rule = (told, known_at, seeds.time, seeds.node), data.recipe.sampling.time_rule
    return Sure.fit(spec.type, data.labels("val"), *asked, hints, floor, rule)


def _asked(task: Task, split: Split) -> tuple[Table, np.ndarray, np.ndarray]:
    """Returns the entity table of a task, and the rows in it and the times that a split asks about."""
    table, seeds = task.database[task.spec.entity_table], task.seeds(split)
    return table, seeds.node - task.database.offsets[table.name], seeds.time


def latest_followed(folder: str | Path) -> Path:
    """Returns a folder by its real name; `latest` is a link or, where there are none, a text with a name."""
    path = Path(folder)
    if path.name == _LATEST and path.is_file():
        name = path.read_bytes()[:255].decode("utf-8", "replace").strip()
        path = path.parent / name if name.isprintable() else path
    return path.resolve()


def _environment() -> dict[str, Any]:
    packages: dict[str, str | None] = {}
    for name in _PACKAGES:
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            packages[name] = None
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "packages": packages,
    }
