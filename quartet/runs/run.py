"""A run on disk: everything that was asked, done and found, in one folder.

recipe.json  task.json  environment.json   what was asked, of what, where
metrics.jsonl                              one line for each epoch; of the model lightgbm one in all
state/                                     what `--resume` goes on from; gone when the run is done
model/                                     the best model on validation (see `checkpoint.py`)
predictions/val.parquet, test.parquet      its scores; test without labels
evaluation-*.json, calibration-*.svg       written by `quartet evaluate`, by split and protocol
curves.svg                                 loss and validation by epoch
"""

from __future__ import annotations

import json
import math
import os
import platform
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file

from quartet.config import Recipe
from quartet.contexts import task_context
from quartet.drawing import curves_svg
from quartet.errors import UsageError
from quartet.evaluation import Calibration, selection_value
from quartet.machine import ALONE, Processes, new_file, new_folder
from quartet.models import Boosted, Boosting, prepare_boosting
from quartet.runs.checkpoint import Checkpoint, save_checkpoint, structure
from quartet.runs.predict import Predictor
from quartet.tasks import Split, Task
from quartet.training import Epoch, Material, PartModel, Trainer, prepare

LATEST = "latest"


def evaluation_name(split: str, protocol: str) -> str:
    """The file of a run that has what was found on a split, under a protocol."""
    return f"evaluation-{split}-{protocol}.json"


@dataclass(frozen=True)
class Run:
    """A run folder."""

    folder: Path

    @staticmethod
    def create(base: Path, task: Task, recipe: Recipe, source: str, path: str = "") -> Run:
        """A new folder, named after the task and the moment; `latest` points to it.

        `source` and `path` are how database and task were named, so that they are found again.
        """
        name = f"{task.name}-{time.strftime('%Y%m%d-%H%M%S')}"
        folder, number = base / name, 1
        while folder.exists():
            folder, number = base / f"{name}-{number}", number + 1
        folder.mkdir(parents=True)
        run = Run(folder)
        run.write("recipe.json", recipe.to_dict())
        run.write("task.json", task_facts(task) | {"source": source, "path": path or task.name})
        run.write("environment.json", environment())
        run._point_to_it()
        return run

    @staticmethod
    def open(folder: Path) -> Run:
        if not (folder / "recipe.json").is_file():
            raise UsageError(
                "C10", f'"{folder}" is no run folder', "give the folder that `quartet train` named"
            )
        return Run(folder.resolve())

    def check_task(self, task: Task) -> None:
        """A run goes on only with the task and the data with which it began."""
        known = self.read("task.json")
        now = task_facts(task)
        for name, what in (("name", "task"), ("fingerprint", "data")):
            if known[name] != now[name]:
                raise UsageError(
                    "C05", f"the {what} of {self.folder} has changed since it began", "start a new run"
                )

    @property
    def recipe(self) -> Recipe:
        return Recipe().changed(**self.read("recipe.json"))

    @property
    def model_folder(self) -> Path:
        return self.folder / "model"

    def write(self, name: str, content: Any) -> None:
        with new_file(self.folder / name) as fresh:
            fresh.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    def read(self, name: str) -> Any:
        return json.loads((self.folder / name).read_text(encoding="utf-8"))

    def write_history(self, history: list[Epoch], metric: str) -> None:
        """The whole history, so that an interrupted run that went on has each epoch once."""
        with new_file(self.folder / "metrics.jsonl") as fresh:
            fresh.write_text("".join(json.dumps(asdict(line)) + "\n" for line in history), encoding="utf-8")
        with new_file(self.folder / "curves.svg") as fresh:
            fresh.write_text(curves_svg(history, metric), encoding="utf-8")

    def save_state(self, trainer: Trainer) -> None:
        said, tensors = trainer.state()
        with new_folder(self.folder / "state") as fresh:
            (fresh / "progress.json").write_text(json.dumps(said), encoding="utf-8")
            save_file(tensors, fresh / "tensors.safetensors")

    def restore_state(self, trainer: Trainer) -> None:
        state = self.folder / "state"
        if state.is_dir():
            said = json.loads((state / "progress.json").read_text(encoding="utf-8"))
            trainer.restore(said, load_file(state / "tensors.safetensors"))

    @property
    def is_done(self) -> bool:
        return self.model_folder.is_dir() and not (self.folder / "state").is_dir()

    def finish(self, trainer: Trainer, cache: Path | None = None) -> Checkpoint:
        """Keeps the best model and its scores of validation and test."""
        trainer.use_best()
        material, progress = trainer.material, trainer.progress
        recipe = trainer.recipe
        test = task_context(material.task, material.graph, recipe.sampling, "test", recipe.protocol, cache)
        answer: dict[Split, NDArray[np.float64]] = {
            "val": trainer.answers(material.contexts["val"]),
            "test": trainer.answers(test.context),
        }
        return self.keep(trainer.model, material, recipe, answer, progress.best_epoch, progress.best)

    def keep(
        self,
        model: PartModel | Boosted,
        material: Material | Boosting,
        recipe: Recipe,
        answer: Mapping[Split, NDArray[np.float64]],
        best_epoch: int,
        validation: float | None,
    ) -> Checkpoint:
        """Keeps a model, with its answers on validation and test as scores."""
        task = material.task
        facts = {
            "fingerprint": task.visible_database.fingerprint,
            "best_epoch": best_epoch,
            "validation": validation,
            "calibration": _calibration(task, answer["val"]),
        }
        checkpoint = Checkpoint(
            model, recipe, material.output, material.features.statistics, task_facts(task), facts
        )
        save_checkpoint(checkpoint, self.model_folder)
        for split, found in answer.items():
            self._write_predictions(checkpoint, task, split, found)
        shutil.rmtree(self.folder / "state", ignore_errors=True)
        return checkpoint

    def _write_predictions(
        self, checkpoint: Checkpoint, task: Task, split: Split, answer: NDArray[np.float64]
    ) -> None:
        table = task.database[task.spec.entity_table]
        scored = Predictor(checkpoint).scored(table, task.database, task.seeds(split), answer)
        (self.folder / "predictions").mkdir(exist_ok=True)
        with new_file(self.folder / "predictions" / f"{split}.parquet") as fresh:
            pq.write_table(scored, fresh)

    def _point_to_it(self) -> None:
        link = self.folder.parent / LATEST
        try:
            link.unlink(missing_ok=True)
            link.symlink_to(self.folder.name)
        except OSError:
            pass  # a file system without links: the run is named in the output anyway


def fit(
    task: Task,
    recipe: Recipe | None = None,
    runs: str | Path = "runs",
    on_epoch: Callable[[Epoch], None] = lambda _: None,
    cache: Path | None = None,
) -> Run:
    """A finished run: a model of the task, trained by the recipe (default: the preset `small`)."""
    recipe = recipe or Recipe.load("small", f"{task.full_database.schema.name}/{task.name}")
    if recipe.model.architecture == "lightgbm":
        boosting = prepare_boosting(task, recipe)
        run = Run.create(Path(runs), task, recipe, task.full_database.location)
        train_boosted(run, boosting, recipe, on_epoch)
        return run
    run = Run.create(Path(runs), task, recipe, task.full_database.location)
    train_run(run, prepare(task, recipe, cache), recipe, on_epoch, cache=cache)
    return run


def train_run(
    run: Run,
    material: Material,
    recipe: Recipe,
    on_epoch: Callable[[Epoch], None] = lambda _: None,
    on_step: Callable[[int], None] = lambda _: None,
    must_stop: Callable[[], bool] = lambda: False,
    cache: Path | None = None,
    on_begin: Callable[[Trainer], None] = lambda _: None,
    processes: Processes = ALONE,
) -> Trainer | None:
    """Trains from where the run stands to its end; None if it was stopped, with its state kept.

    Of several processes the first alone writes.
    """
    trainer = Trainer(material, recipe, processes)
    run.restore_state(trainer)
    processes.wait()  # until all have read the state, which goes away at the end
    on_begin(trainer)

    def keep(epoch: Epoch) -> None:
        if processes.is_first:
            run.write_history(trainer.progress.history, material.metric)
            run.save_state(trainer)
        on_epoch(epoch)

    is_done = trainer.run(keep, on_step, must_stop)
    if processes.is_first:
        run.finish(trainer, cache) if is_done else run.save_state(trainer)
    return trainer if is_done else None


def train_boosted(
    run: Run,
    boosting: Boosting,
    recipe: Recipe,
    on_epoch: Callable[[Epoch], None] = lambda _: None,
    must_stop: Callable[[], bool] = lambda: False,
) -> Boosted | None:
    """Fits trees and keeps them; None if it was stopped: there is no state, another try begins anew.

    Of the recipe they heed `rng_seed`, `history`, `names`, `protocol`, `time_rule` and `time_limit`.
    """
    begin, limit = time.perf_counter(), recipe.time_limit or math.inf
    model = Boosted.fit(
        boosting.task.spec.type,
        boosting.columns,
        boosting.labelled("train"),
        boosting.labelled("val"),
        boosting.output.num_outputs,
        recipe.rng_seed,
        lambda: must_stop() or time.perf_counter() - begin > limit,
    )
    if must_stop():
        return None
    fitted = time.perf_counter()
    answer: dict[Split, NDArray[np.float64]] = {"val": model.answers(boosting.columns, boosting.seeds["val"])}
    labels = np.asarray(boosting.seeds["val"].target)
    validation = selection_value(boosting.task.spec.type, labels, boosting.output.scores(answer["val"]))
    seconds = (fitted - begin, time.perf_counter() - fitted)
    epoch = Epoch(0, boosting.loss(model), validation, *seconds, is_best=True)
    answer["test"] = model.answers(boosting.columns, boosting.seeds["test"])
    run.write_history([epoch], boosting.metric)
    run.keep(model, boosting, recipe, answer, epoch.number, validation)
    on_epoch(epoch)
    return model


def task_facts(task: Task) -> dict[str, Any]:
    """What a model must remember of its task."""
    spec = task.spec
    return {
        "name": task.name,
        "type": spec.type,
        "entity_table": spec.entity_table,
        "target": spec.target_col,
        "horizon": spec.horizon,
        "classes": task.classes,
        "spec": asdict(spec),
        "hidden_columns": [list(pair) for pair in spec.hidden_columns],
        "structure": structure(task.visible_database),
        "val_timestamp": task.splits.val,
        "test_timestamp": task.splits.test,
        "fingerprint": task.visible_database.fingerprint,
    }


def environment() -> dict[str, Any]:
    names = ("quartet-rdl", "torch", "numpy", "numba", "pyarrow", "lightgbm")
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "packages": {name: _version(name) for name in names},
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _calibration(task: Task, answer: NDArray[np.float64]) -> dict[str, float] | None:
    if task.spec.type != "binary_classification":
        return None
    return asdict(Calibration.fit(answer[:, 0], np.asarray(task.seeds("val").target)))
