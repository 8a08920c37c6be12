"""What people see of a run: what it was asked and will cost, how it goes, and how the result compares."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType

import numpy as np
import pyarrow as pa
import torch
from rich.console import Group, RenderableType
from rich.progress import TextColumn
from rich.text import Text

from quartet.cli.views.database import no_history
from quartet.config import Recipe
from quartet.drawing.terminal import console, new_bar, new_grid
from quartet.errors import printable
from quartet.evaluation import MOST_TREES, PATIENCE, Measure, main_metric
from quartet.machine import autocast
from quartet.models import Boosted, Boosting
from quartet.runs import Evaluation, Row, Run
from quartet.tasks import SPLITS, TABLE, Task, balance
from quartet.times import show_instant
from quartet.training import Cost, Epoch, Trainer, measured_cost

SECONDS_BETWEEN_LINES = 30.0


class TrainingView:
    """A run as people follow it: what it will take, then a line for each epoch.

    Below them, in a terminal, is a bar of the epoch under way; elsewhere a long epoch has a line now and then.
    """

    def __init__(self, run: Run, preset: str) -> None:
        self.run, self.preset = run, preset
        self.bar = new_bar(TextColumn("{task.fields[note]}"))

    def __enter__(self) -> TrainingView:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None) -> None:
        self.bar.stop()

    def begin(self, trainer: Trainer) -> None:
        """Shows what the run is about and measures what it will cost; the trainer stays as it is."""
        cost = measured_cost(trainer)
        console().print(material_view(trainer, cost, self.preset))
        self.pace = Pace(trainer, cost)
        self.line_at = time.perf_counter()
        self.work = self.bar.add_task("", total=trainer.seeds_an_epoch, note="")
        self._tell()
        self.bar.start()

    def step(self, num_seeds: int) -> None:
        self.pace.step(num_seeds)
        self._tell()

    def epoch(self, epoch: Epoch) -> None:
        print(
            epoch_line(epoch, self.pace.trainer.material.metric, self.pace.trainer.recipe.epochs), flush=True
        )
        self.pace.epoch(epoch)
        self.line_at = time.perf_counter()
        self._tell()

    def end(self) -> None:
        progress, metric = self.pace.trainer.progress, self.pace.trainer.material.metric
        best = f"Best: epoch {progress.best_epoch + 1}, validation {metric} {progress.best:.4f}."
        print(f"{best} Everything is in {self.run.folder}")

    def begin_boosting(self, boosting: Boosting, recipe: Recipe) -> None:
        """Shows what the model lightgbm will be fitted to."""
        self.metric = boosting.metric
        console().print(boosting_view(boosting, recipe))

    def boosted(self, epoch: Epoch) -> None:
        self.best = epoch.validation
        print(f"fitted in {duration(epoch.seconds)}, training loss {epoch.loss:.4f}", flush=True)

    def end_boosting(self, model: Boosted) -> None:
        best = f"Best: {model.num_trees:,} trees, validation {self.metric} {self.best:.4f}."
        print(f"{best} Everything is in {self.run.folder}")

    def _tell(self) -> None:
        """Brings the bar up to date, or writes a line if the last one is long ago."""
        pace = self.pace
        self.bar.update(self.work, description=pace.label, completed=pace.trainer.seeds_begun, note=pace.note)
        if not self.bar.disable or time.perf_counter() - self.line_at < SECONDS_BETWEEN_LINES:
            return
        self.line_at = time.perf_counter()
        self.bar.console.print(f"{pace.label}  {pace.trainer.seeds_begun:,} seeds, {pace.note}")


class Pace:
    """How fast a run goes, from its own steps once there are some, and what is left of it."""

    def __init__(self, trainer: Trainer, cost: Cost) -> None:
        self.trainer, self.cost = trainer, cost
        self.seeds, self.begin = 0, trainer.progress.seconds

    def step(self, num_seeds: int) -> None:
        self.seeds += num_seeds
        self.cost = Cost((self.trainer.progress.seconds - self.begin) / self.seeds, self.cost.validation)

    def epoch(self, epoch: Epoch) -> None:
        self.cost = Cost(self.cost.seed, epoch.validation_seconds)

    @property
    def label(self) -> str:
        epochs = self.trainer.recipe.epochs
        return f"epoch {min(self.trainer.progress.epoch + 1, epochs):>3}/{epochs}"

    @property
    def note(self) -> str:
        left = self.cost.left(self.trainer)
        doing = (
            "validating"
            if self.trainer.seeds_begun >= self.trainer.seeds_an_epoch
            else f"{1 / self.cost.seed:,.0f} seeds/s"
        )
        return f"{doing}, {duration(left)} left" if left else "keeping the best"


def duration(seconds: float) -> str:
    """`2.5 s`, `40 s`, `12 min`, `3.5 h`: about how long something takes."""
    if seconds < 99.5:
        return f"{seconds:.0f} s" if seconds >= 9.95 else f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 99.5 * 60 else f"{seconds / 3600:.1f} h"


def material_view(trainer: Trainer, cost: Cost, preset: str) -> RenderableType:
    """The first lines of a run: what was inferred and what it will cost."""
    material, recipe = trainer.material, trainer.recipe
    train = material.contexts["train"]
    alone = no_history(material.graph, material.task.seeds("train"))
    width = f"width {recipe.model.width}, {preset}"
    rows = [
        *_task_rows(material.task, recipe),
        ("no history", f"{int(alone.sum()):,} training seeds ({alone.mean():.1%})"),
        ("context", f"{np.diff(train.local_start).mean():.0f} distinct rows a seed"),
        ("model", f"{trainer.model.num_parameters / 1e6:.2f} M parameters, {width}"),
        ("epochs", _epochs(trainer)),
        ("device", _device(trainer)),
        ("cost", _cost(trainer, cost)),
    ]
    return _grid(rows)


def boosting_view(boosting: Boosting, recipe: Recipe) -> RenderableType:
    """The first lines of a run of the model lightgbm."""
    limit = f", stopped after {duration(recipe.time_limit)}" if recipe.time_limit else ""
    trees = f"LightGBM, at most {MOST_TREES:,} trees, until {PATIENCE} more do not help on validation{limit}"
    return _grid([*_task_rows(boosting.task, recipe), ("model", trees)])


def _task_rows(task: Task, recipe: Recipe) -> list[tuple[str, str]]:
    """What a run is about, whatever its model."""
    spec, kind = task.spec, task.spec.type.replace("_", " ")
    ends = [show_instant(end) for end in (task.splits.val, task.splits.test)]
    train, val, test = (len(task.seeds(split)) for split in SPLITS)
    return [
        ("task", f"{task.name}: {kind} of {spec.entity_table}, by {main_metric(spec.type)}"),
        ("splits", f"train to {ends[0]}, validation to {ends[1]}, then test ({recipe.protocol})"),
        ("seeds", f"{train:,} train, {val:,} validation, {test:,} test"),
        ("labels", f"{balance(np.asarray(task.seeds('train').target))} in training"),
        *(
            [("history", f"{task.database[TABLE].num_rows:,} known labels as rows")]
            if task.past_labels
            else []
        ),
    ]


def _grid(rows: Sequence[tuple[str, str]]) -> RenderableType:
    grid = new_grid("", "", " ")
    for name, text in rows:
        grid.add_row(Text(name, style="dim"), Text(printable(text)))
    return Group(grid, Text())


def _epochs(trainer: Trainer) -> str:
    recipe, done = trainer.recipe, trainer.progress.epoch
    going_on = f"; {done} of them done before" if trainer.progress.step else ""
    return f"{recipe.epochs} of {trainer.seeds_an_epoch:,} seeds, in batches of {recipe.batch_size}{going_on}"


def _device(trainer: Trainer) -> str:
    """Where the run computes, with how many threads, and in which floating point type."""
    device = next(trainer.model.parameters()).device.type
    with autocast(device, trainer.recipe.precision):
        precision = "bf16" if torch.is_autocast_enabled(device) else "fp32"
    threads = torch.get_num_threads()
    return f"{device}, {threads} thread{'' if threads == 1 else 's'}, {precision}"


def _cost(trainer: Trainer, cost: Cost) -> str:
    recipe = trainer.recipe
    an_epoch, left = cost.seed * trainer.seeds_an_epoch + cost.validation, cost.left(trainer)
    limit = f", training stopped after {duration(recipe.time_limit)}" if recipe.time_limit else ""
    return f"about {duration(an_epoch)} an epoch, {duration(left)} in all{limit}"


def epoch_line(epoch: Epoch, metric: str, num_epochs: int) -> str:
    return (
        f"epoch {epoch.number + 1:>3}/{num_epochs}  loss {epoch.loss:.4f}  validation {metric} {epoch.validation:.4f}"
        f"{' *' if epoch.is_best else '  '}  {epoch.seconds:.1f} s + {epoch.validation_seconds:.1f} s"
    )


def evaluation_view(evaluation: Evaluation) -> RenderableType:
    """The model and the trivial rows, each measure with its interval; the best of each in bold."""
    first = evaluation.rows[0].measures
    title = f"{evaluation.task}, {evaluation.split} ({evaluation.protocol}), {evaluation.num_rows:,} rows"
    grid = new_grid(title, "", *(_arrow(measure) for measure in first.values()))
    for row in evaluation.rows:
        cells = [
            Text(str(row.measures[name]), style="bold" if _is_best(row, name, evaluation) else "")
            for name in first
        ]
        grid.add_row(Text(row.name, style="cyan"), *cells)
    return grid


def _arrow(measure: Measure) -> str:
    return f"{measure.name} {'↑' if measure.higher_is_better else '↓'}"


def _is_best(row: Row, name: str, evaluation: Evaluation) -> bool:
    values = [other.measures[name].value for other in evaluation.rows]
    known = [value for value in values if value is not None]
    if not known:
        return False
    best = max(known) if row.measures[name].higher_is_better else min(known)
    return row.measures[name].value == best


def scores_view(scores: pa.Table, most: int = 10) -> RenderableType:
    """The highest scores; of several classes, where there is no one score, the first rows."""
    has_score = "score" in scores.column_names
    ordered = scores.sort_by([("score", "descending")]) if has_score else scores
    title = f"{scores.num_rows:,} predictions"
    if scores.num_rows > most:
        title += f", the {'highest' if has_score else 'first'} {most}"
    grid = new_grid(title, *scores.column_names, right=tuple(scores.column_names))
    for row in ordered.slice(0, most).to_pylist():
        grid.add_row(*(_cell(value) for value in row.values()))
    return grid


def _cell(value: object) -> Text:
    text = f"{value:.4f}" if isinstance(value, float) else str(value)
    return Text(printable(text))
