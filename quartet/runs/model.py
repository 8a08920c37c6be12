"""The front door of models: `fit` trains one, `load` reads one, and `TrainedModel` evaluates and predicts.

Several models of one task are a model too: an `Ensemble`, whose score is the mean of its members' scores. Runs that
differ in their random seed alone err in different places, and models of different kinds even more so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from types import NoneType
from typing import Any, get_args

import pyarrow as pa

from quartet.config import Protocol, Recipe
from quartet.database import Database
from quartet.errors import SchemaError, Stopped, UsageError, examples
from quartet.findings import note
from quartet.listener import Listener
from quartet.machine import (
    Place,
    Processes,
    all_processes,
    as_path,
    choose_device,
    found_again,
    intact,
    parse_size,
    use_threads,
)
from quartet.models import Dial, Fitting, Limits, turn
from quartet.registry import MODELS, model_row
from quartet.runs.checkpoint import Checkpoint
from quartet.runs.evaluate import Evaluation, evaluate, kept_judgement, quality
from quartet.runs.judgement import Judgement, judge_said
from quartet.runs.latency import quick_enough
from quartet.runs.live import LiveModel
from quartet.runs.predictions import Predictions
from quartet.runs.run import Run, latest_followed
from quartet.runs.said import keep_said
from quartet.runs.show import ProgressView, TrainingView
from quartet.tasks import Split, Task, TaskRecord, past_label_findings, read_labels
from quartet.times import SECOND, parse_length
from quartet.training import Epoch, Fitted, Member, TrainingData

_TASK_FIX = "open the database and call its method task(...)"
_LISTENER_FIX = "derive it from quartet.Listener"
_PATH = (str, Path)
_DIAL = "dial.json"
_BUDGET = 300.0  # seconds, where a recipe has no time limit
_SAME = ("name", "type", "entity_table", "target_col", "horizon", "known_after", "sql")  # for all members


class TrainedModel:
    """A trained model: a run, or several whose scores are averaged. Made by `quartet.fit` or `quartet.load`."""

    def __init__(self, members: Sequence[tuple[Checkpoint, Run | None]], task: Task | None = None) -> None:
        self.members, self._task = tuple(members), task
        if not self.members:
            raise UsageError("C02", "an ensemble of no models", "give the folders of some runs")
        folders = [run.folder.resolve() for _, run in self.members if run]
        twice = sorted({str(folder) for folder in folders if folders.count(folder) > 1})
        if twice or len({id(checkpoint) for checkpoint, _ in self.members}) < len(self.members):
            raise UsageError("C02", f"a model is given twice {examples(twice)}", "give each model once")
        records = [checkpoint.task for checkpoint, _ in self.members]
        told = {name: {getattr(record.spec, name) for record in records} for name in _SAME}
        for name, different in (*told.items(), ("classes", {record.classes for record in records})):
            if len(different) > 1:
                raise UsageError(
                    "C05",
                    f"the models are of different tasks: not the same {name} {examples(sorted(map(str, different)))}",
                    "combine models of one task",
                )

    def __repr__(self) -> str:
        about = ", ".join(
            f"{c.recipe.model.architecture}, {c.model.summary}, validation {c.validation:.4f}"
            for c, _ in self.members
        )
        where = ", ".join(str(run.folder) for _, run in self.members if run)
        return f"<{type(self).__name__} of {self.record.name}: {about}{' in ' + where if where else ''}>"

    @property
    def record(self) -> TaskRecord:
        """Returns what the model remembers of its task."""
        return self.members[0][0].task

    @property
    def recipe(self) -> Recipe:
        return self.members[0][0].recipe

    @property
    def validation(self) -> float:
        """Returns the main metric on validation of the first member's best epoch."""
        return self.members[0][0].validation

    @property
    def run(self) -> Run:
        """Returns the run of the first member."""
        run = self.members[0][1]
        if run is None:
            raise UsageError("C10", "the model was loaded without its run", "load the run folder")
        return run

    @property
    def folder(self) -> Path:
        return self.run.folder

    @property
    def task(self) -> Task:
        """Returns the task the model was trained on, opened again where the model was loaded."""
        if self._task is None:
            self._task = self.record.reopen(self.record.open())
        return self._task

    def evaluate(
        self,
        task: Task | None = None,
        *,
        split: Split = "test",
        protocol: Protocol | None = None,
        rules: bool = True,
        coverage: float | None = None,
        abstain: float = 0.0,
        device: str = "auto",
        listener: Listener | None = None,
    ) -> Evaluation:
        """Returns how good the model is on a split, with intervals, beside rules that need no model.

        On test it also tells how often intervals and sets held that should hold so often (`coverage`, 0.9), and how
        good predictions are without such a share of the least sure (`abstain`): docs/sure.md.
        `task` is needed only where the database cannot be found again, such as one that was made of data frames.
        """
        task = self.task if task is None else task
        _check_type("task", task, Task, _TASK_FIX)
        _check_type("listener", listener, (Listener, NoneType), _LISTENER_FIX)
        for name, value, allowed in (
            ("split", split, ("val", "test")),
            ("protocol", protocol, get_args(Protocol)),
        ):
            if value not in (*allowed, None):
                raise UsageError("C02", f"{name} is {value!r}", f"say one of {', '.join(allowed)}")
        listener = listener or ProgressView()
        task = self.record.as_then(task, listener)
        for checkpoint, run in self.members:
            checkpoint.task.check_same(TaskRecord.of(task), run.folder if run else "the model")
        for checkpoint, _ in self.members:
            checkpoint.model.to(choose_device(device))
        evaluation = evaluate(self.members, task, split, protocol, rules, listener, coverage, abstain)
        if len(self.members) == 1 and self.members[0][1] is not None:
            evaluation.keep(self.run)  # what several have found together belongs to none of them
        return evaluation

    def on(
        self,
        database: Database,
        *,
        labels: Any = None,
        device: str = "auto",
        listener: Listener | None = None,
    ) -> LiveModel:
        """Returns the model bound to a database, which may have grown since training, ready to predict.

        `labels` are the label rows that are known by now, for a model with past labels of a task that has a label table
        of its own.
        """
        _check_type("listener", listener, (Listener, NoneType), _LISTENER_FIX)
        known: pa.Table | None = None if labels is None else read_labels(labels)
        checkpoints = [checkpoint for checkpoint, _ in self.members]
        name = " + ".join(run.folder.name if run else checkpoint.key for checkpoint, run in self.members)
        return LiveModel(
            checkpoints,
            database,
            known,
            choose_device(device),
            listener or ProgressView(),
            quality(self.members),
            name,
            kept_judgement(self.members),
        )

    def keep(self, predictions: Predictions) -> int:
        """Adds predictions of this model to the record in its run folder; returns how many were not there before.

        What was said of an entity and a time first stays. `evaluate_said` judges the record.
        """
        _check_type(
            "predictions", predictions, Predictions, "give what model.on(database).predict() returned"
        )
        return keep_said(self.one_run, self.record, predictions)

    def evaluate_said(
        self,
        database: Database | None = None,
        *,
        labels: Any = None,
        device: str = "auto",
        listener: Listener | None = None,
    ) -> Judgement:
        """Returns how good what the model really said was, by labels that have become known since.

        `database` is one that has grown, by default that of training, opened again. The result is kept in the run
        folder, for its report.
        """
        run = self.one_run
        grown = self.record.open() if database is None else database
        known: pa.Table | None = None if labels is None else read_labels(labels)
        return judge_said(self.on(grown, labels=known, device=device, listener=listener), run, known)

    @property
    def one_run(self) -> Run:
        """Returns the run in which predictions are kept; an error where there are several."""
        if len(self.members) > 1:
            what = "what several models say together belongs to none of their runs"
            raise UsageError("C02", what, "keep and judge what one of them says, or write it with --to")
        return self.run

    def report(
        self,
        target: str | Path = "report.html",
        task: Task | None = None,
        *,
        at: Any = None,
        evaluate: bool = False,
        device: str = "auto",
        listener: Listener | None = None,
    ) -> Path:
        """Writes a page for people about the model: the answer, the data, why, which entities, and a card.

        Of an ensemble the members are compared, and the best on validation is told of. Labels of test are looked at
        by an evaluation alone: `evaluate` makes one where there is none. `at` is the time of the predictions in it, by
        default the last of the data; `task` is needed where the database cannot be found again.
        """
        _check_type("task", task, (Task, NoneType), _TASK_FIX)
        _check_type("listener", listener, (Listener, NoneType), _LISTENER_FIX)
        alone = [TrainedModel([member], self._task) for member in self.members]
        write = import_module("quartet.report").write_report  # the way up, at the moment of use
        path: Path = write(alone, target, task, at=at, evaluate=evaluate, device=device, listener=listener)
        return path


class Ensemble(TrainedModel):
    """Several trained models of one task; its score is the mean of theirs."""

    def __init__(self, *models: TrainedModel | str | Path) -> None:
        for model in models:
            _check_type(
                "a model", model, (TrainedModel, *_PATH), "give what `fit` or `load` returned, or a folder"
            )
        opened = [model if isinstance(model, TrainedModel) else load(model) for model in models]
        super().__init__(
            [member for model in opened for member in model.members], opened[0]._task if opened else None
        )


def load(*folders: str | Path) -> TrainedModel:
    """Returns the model of a run folder or of a model folder; of several folders, their ensemble."""
    members = []
    for folder in folders:
        _check_type(
            "the folder of a model", folder, _PATH, "give the folder that `fit` or `quartet train` named"
        )
        path = latest_followed(as_path(folder, "the folder of a model"))
        is_run = (path / "recipe.json").is_file()
        checkpoint = Checkpoint.load(path / "model" if (path / "model").is_dir() else path)
        members.append((checkpoint, Run.open(path) if is_run else None))
    model = TrainedModel(members)
    return model if len(members) == 1 else Ensemble(model)


def fit(
    task: Task,
    model: str | None = None,
    *,
    preset: str | None = None,
    recipe: Recipe | None = None,
    runs: str | Path = "runs",
    resume: str | Path | None = None,
    device: str = "auto",
    threads: int | None = None,
    cache: str | Path | None = None,
    on: str | None = None,
    listener: Listener | None = None,
    budget: str | float | None = None,
    max_memory: str | int | None = None,
    max_latency: str | float | None = None,
    **settings: Any,
) -> TrainedModel:
    """Trains a model of a task and keeps the best on validation, with its scores, in a run folder.

    Arguments:
        task: what to predict; `quartet.open(source).task(...)` gives one.
        model: `auto` (the default: trees, networks and a blend of them), or another name of
            `quartet.registry.MODELS`, such as `lightgbm` or `quartet`; with a preset, `quartet`.
        preset: the recipe to start from: `small` (the default), `paper`, `paper-val`, or a .toml file.
        recipe: a whole recipe instead of a preset.
        runs: where run folders are made; `runs/latest` points to the newest.
        resume: an interrupted run to go on with, by the recipe with which it began.
        device: `auto`, `cpu`, `cuda` or `mps`.
        threads: cores to compute with, by default those that are free, or what OMP_NUM_THREADS says; a run that
            is resumed goes on with as many as it began with.
        cache: where contexts are kept, by default in the user's cache.
        on: who samples contexts, by default this process: `local`, `local:4`, `ray` or `ray://HOST:PORT`
            (docs/scale.md).
        listener: follows the work; by default it is shown in the terminal or the notebook.
        budget: seconds or a length such as `10m`, instead of `time_limit`: where there is time for it, short trials
            choose the network of `auto` that is worth its cost (docs/training.md).
        max_memory: bytes or a size such as `2GB` that a training step of a chosen part may take, beside the data.
        max_latency: seconds or a length such as `20ms` in which one prediction by itself is to be made; members that
            would take the model beyond it are left out.
        settings: fields of the recipe, such as `past_labels=True`, `epochs=5`, `time_limit=600`. `quartet recipe`
            lists them.

    A run that the listener stops raises `Stopped`, with its state kept for `resume`.
    """
    _check_type("task", task, Task, _TASK_FIX)
    _check_type("model", model, (str, NoneType), f"say one of {', '.join(MODELS)}")
    _check_type("recipe", recipe, (Recipe, NoneType), "make one with Recipe.load(preset)")
    _check_type("listener", listener, (Listener, NoneType), _LISTENER_FIX)
    _check_type("threads", threads, (int, NoneType), "give a whole number above 0")
    for name, folder in (("preset", preset), ("runs", runs), ("resume", resume), ("cache", cache)):
        if folder is not None or name == "runs":
            as_path(folder, name)
    Place.parse(on)
    listener = listener or TrainingView()
    dial = _dial_limits(budget, max_memory, max_latency)
    named = {"model": model, "preset": preset, "recipe": recipe, "budget": dial}
    begun_with = settings | {name: value for name, value in named.items() if value is not None}
    run = _unfinished(Path(resume), begun_with, threads) if resume else None
    if run is not None:
        recipe, threads, task = run.recipe, run.threads, run.task.as_then(task, listener)
    elif recipe is None:
        name = f"{task.full_database.schema.name}/{task.name}"
        model = model or (None if preset else "auto")
        if (model == "auto" or task.fills_in_links) and "past_labels" not in settings:
            settings = settings | {"past_labels": task.tells_past_labels}
        recipe = Recipe.load(preset or "small", name, model, **settings)
    elif settings or model:
        recipe = recipe.changed(**(settings | ({"architecture": model} if model else {})))
    model_row(recipe.model.architecture).check_settings(settings)
    if dial is not None:
        _check_dial(task, recipe, settings, budget)
    recipe = recipe.changed(protocol=task.under(recipe.protocol).protocol)
    with all_processes(choose_device(device)) as processes, processes.first_speaks():
        checked = task.check() if run is None else ()
        listener.noticed([*checked, *(past_label_findings(task.spec) if recipe.past_labels else ())])
        for finding in checked:
            if finding.code == "S21":
                raise SchemaError(finding.code, finding.message, finding.fix)
        if run is not None and not found_again(run.state_folder):
            what = "no state was saved before it was interrupted, and training begins anew"
            listener.finding(note("C14", str(run.folder), f"{run.folder}: {what}"))
        use_threads(threads, processes.num_sharing_memory)
        return _fit(
            task, recipe, run, Path(runs), Path(cache) if cache else None, listener, processes, on, dial
        )


def _fit(
    task: Task,
    recipe: Recipe,
    run: Run | None,
    runs: Path,
    cache: Path | None,
    listener: Listener,
    processes: Processes,
    on: str | None,
    dial: tuple[float | None, Limits] | None = None,
) -> TrainedModel:
    model_class = model_row(recipe.model.architecture).class_for(task.spec.type)
    if run is None:
        Run.check(runs, task)
    limits = dial[1] if dial is not None else _limits_of(run)
    if dial is not None:
        recipe = recipe.changed(time_limit=dial[0] or recipe.time_limit or _BUDGET)
    if limits is not None and limits.latency is not None:
        recipe = recipe.changed(bag=1)  # every further member is asked, too
    data = TrainingData.prepare(task, recipe, cache, listener, on)
    opened = processes.from_first(lambda: run or Run.create(runs, task, recipe))
    opened.task.check_same(TaskRecord.of(task), opened.folder)
    recorder = _Recorder(listener, opened, data, processes)
    if limits is None:
        fitted = model_class.fit(data, processes, recorder, opened.state_folder)
    else:
        fitted, data = _fit_by_dial(data, limits, opened, processes, recorder)
    if fitted is None:
        raise Stopped(opened.folder)
    if processes.is_first:
        has_latency = limits is not None and limits.latency is not None
        checkpoint = opened.keep(fitted, data, is_done=not has_latency)
        if limits is not None and limits.latency is not None:
            told = fitted, checkpoint, data, task.full_database, limits.latency, listener
            fitted, latency = quick_enough(*told)
            opened.write(_DIAL, opened.read(_DIAL) | {"latency": asdict(latency)})
            checkpoint = opened.keep(fitted, data)
        listener.end(fitted, opened.folder)
    processes.wait()
    if not processes.is_first:
        checkpoint = Checkpoint.load(opened.model_folder)
    return TrainedModel([(checkpoint, opened)], task)


def _fit_by_dial(
    data: TrainingData, limits: Limits, run: Run, processes: Processes, recorder: _Recorder
) -> tuple[Fitted | None, TrainingData]:
    """Fits trees and a tower, then the network that trials choose; a run that goes on keeps to what was chosen."""
    fitting = Fitting(data, processes, recorder, run.state_folder)
    if processes.is_first and not (run.folder / _DIAL).is_file():
        run.write(_DIAL, {"limits": asdict(limits)})
    columns = fitting.fit_on_columns()
    if columns is None:
        return None, data
    if "chosen" not in processes.from_first(lambda: run.read(_DIAL)):
        left = fitting.left
        turned: Dial = processes.from_first(lambda: turn(fitting, columns, limits, left))
        recipe = data.recipe.changed(**turned.changes)
        data = fitting.data = data.changed(recipe, data.readable_columns)
        if processes.is_first:
            run.write("recipe.json", recipe.to_dict())
            run.write(_DIAL, turned.to_dict())
        recorder.listener.turned(turned)
    return fitting.fit_networks(columns), data


def _limits_of(run: Run | None) -> Limits | None:
    """Returns the limits of a run that goes on, if it began with a budget."""
    if run is None or not (run.folder / _DIAL).is_file():
        return None
    told = run.read(_DIAL)
    with intact(run.folder / _DIAL, "train again"):
        return Limits(**told["limits"])


def _dial_limits(
    budget: str | float | None, max_memory: str | int | None, max_latency: str | float | None
) -> tuple[float | None, Limits] | None:
    """Returns the seconds of a budget and the limits of what is chosen; None where none of them is given."""
    if budget is None and max_memory is None and max_latency is None:
        return None

    def seconds(value: str | float | None, name: str) -> float | None:
        if isinstance(value, str):
            return parse_length(value, name) / SECOND
        if value is not None and (
            isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0
        ):
            raise UsageError(
                "C02", f"{name} is {value!r}", "give a number of seconds above 0, or a length such as 10m"
            )
        return None if value is None else float(value)

    memory = None if max_memory is None else parse_size(max_memory, "max_memory")
    return seconds(budget, "budget"), Limits(memory, seconds(max_latency, "max_latency"))


def _check_dial(task: Task, recipe: Recipe, settings: dict[str, Any], budget: object) -> None:
    """Refuses a budget where there is nothing to choose."""
    if recipe.model.architecture != "auto":
        what = f'a budget chooses the parts of "auto", and the model is "{recipe.model.architecture}"'
        raise UsageError("C02", what, "leave the model out, or give it a time_limit")
    if task.spec.type == "recommendation":
        raise UsageError(
            "C02", "a budget does not choose the parts of a recommender yet", "give it a time_limit"
        )
    if budget is not None and "time_limit" in settings:
        raise UsageError(
            "C02", "a budget and a time limit are given", "say one of them: a budget is a limit, too"
        )


class _Recorder(Listener):
    """Writes each epoch into the run's folder, and tells a listener everything."""

    def __init__(self, listener: Listener, run: Run, data: TrainingData, processes: Processes) -> None:
        self.listener, self.run, self.data, self.processes = listener, run, data, processes
        self.finding, self.noticed = listener.finding, listener.noticed  # type: ignore[method-assign]
        self.progress = listener.progress  # type: ignore[method-assign]
        self.begin, self.step = listener.begin, listener.step  # type: ignore[method-assign]
        self.should_stop = listener.should_stop  # type: ignore[method-assign]

    def epoch(self, epoch: Epoch) -> None:
        if self.processes.is_first:
            self.run.add_epoch(epoch, self.data.metric)
        self.listener.epoch(epoch)

    def member(self, member: Member, fitted: Fitted) -> None:
        if self.processes.is_first and len(fitted.model.members) == 1:  # a first answer is kept at once
            self.run.keep(fitted, self.data, is_done=False)
        self.listener.member(member, fitted)


def _unfinished(folder: Path, settings: dict[str, Any], threads: int | None) -> Run:
    """Returns the run to go on with: one that is not done, as it began."""
    run = Run.open(folder)
    if threads not in (None, run.threads):
        settings = settings | {"number of threads": threads}
    if settings:
        raise UsageError(
            "C02",
            f"a run goes on by the recipe with which it began, not with another {', '.join(settings)}",
            "leave it out, or start a new run",
        )
    if run.is_done:
        raise UsageError("C02", f"{run.folder} is done", f'quartet evaluate "{run.folder}"')
    return run


def _check_type(name: str, value: object, wanted: type | tuple[type, ...], fix: str) -> None:
    if not isinstance(value, wanted):
        raise UsageError("C02", f"{name} is {value!r}, of type {type(value).__name__}", fix)
