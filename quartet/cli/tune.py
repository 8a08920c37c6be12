"""The verb `tune`: what is asked of it, and how people and programs follow it."""

from __future__ import annotations

import shlex
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quartet.cli.models import SchemaFile, Source, TaskName, report, say, stop_on_signal
from quartet.config import Architecture
from quartet.errors import DataError, UsageError, printable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from quartet.paper import Cell, StageName, Study, Trial
    from quartet.training import Epoch, Trainer

tuning = typer.Typer()

SECONDS_BETWEEN_LINES = 30.0


@tuning.command()
def tune(
    source: Source,
    task: TaskName,
    schema: SchemaFile = None,
    model: Annotated[
        Architecture | None,
        typer.Option(help="Which model (default: quartet, or the one that a recipe's file names)."),
    ] = None,
    preset: Annotated[
        str, typer.Option(help="Where to start: small, paper, paper-val, or a recipe's .toml file.")
    ] = "small",
    trials: Annotated[int, typer.Option(min=1, help="How many recipes to train in both stages.")] = 20,
    budget: Annotated[
        str, typer.Option(help="The time for all trials, e.g. `1h` or `90 min`; a longer one goes on.")
    ] = "1h",
    study: Annotated[
        Path | None,
        typer.Option(help="The study's file, new or to go on with (default: studies/TASK-MODEL.db)."),
    ] = None,
    change: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="FIELD=VALUE", help="Fix a field of the recipe, which is then not searched."
        ),
    ] = None,
    threads: Annotated[int | None, typer.Option(help="Cores to use (default: those that are free).")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object a trial.")] = False,
) -> None:
    """Search for a task's best recipe on validation: first the local parameters, then capacity.

    - `quartet tune demo plane-idle --trials 20 --budget 1h` writes the best recipe beside the study, as TOML.

    - Ctrl-C stops; the same command goes on. A longer `--budget` goes on after the time was over.

    - Then `quartet train demo plane-idle --preset studies/plane-idle-quartet.toml` trains it.
    """
    from quartet.config import changes_from_text
    from quartet.database import Database
    from quartet.drawing.terminal import terminal_bar
    from quartet.machine import use_threads
    from quartet.paper import Plan, open_study
    from quartet.tasks import Task, check_labels
    from quartet.times import SECOND, parse_length
    from quartet.training import prepare

    seconds = parse_length(budget, "--budget") / SECOND
    if study and study.suffix == ".toml":
        raise UsageError("C02", f'the best recipe would be written over the study "{study}"', "name it .db")
    use_threads(threads)
    database = Database.load(source, schema)
    loaded = Task.load(database, task)
    for finding in check_labels(loaded):
        say(str(finding))
    dataset = f"{database.schema.name}/{loaded.name}"
    plan = Plan.of(preset, dataset, model, trials, **changes_from_text(change or []))
    file = study or Path("studies") / f"{loaded.name}-{plan.recipe.model.architecture}.db"
    num_seeds = len(loaded.seeds("train")) + len(loaded.seeds("val"))
    with open_study(file, loaded, plan) as opened:
        with terminal_bar("contexts", num_seeds) as progress:
            material = prepare(loaded, plan.recipe, report=report, progress=progress)
        with stop_on_signal() as must_stop, _view(opened, json) as view:
            ending = opened.run(material, seconds, view, must_stop)
        best = _keep_best(opened, file, dataset)
        view.close(best)
        if ending == "done" and best is None:
            raise _no_trial(opened.trials)
    if ending == "budget":
        say(f"The budget of {budget} is over. A longer --budget goes on with {file}")
    if best:
        where = [source, task, *(["--schema", str(schema)] if schema else []), "--preset", str(best)]
        say(f"Train it: quartet train {shlex.join(where)}")
    if ending == "stopped":
        say("Stopped. The same command goes on.")
        raise typer.Exit(130)


def _no_trial(trials: list[Trial]) -> DataError:
    return DataError(
        "C12",
        f"none of {len(trials)} trials went to its end; of the last: {trials[-1].problem}",
        "lower learning_rate, or batch_size where memory is short",
    )


def _keep_best(study: Study, file: Path, dataset: str) -> Path | None:
    """Writes the best recipe beside the study; says where, or None while no trial went to its end."""
    from quartet.machine import new_file

    best = study.best
    if best is None:
        return None
    path = file.with_suffix(".toml")
    found = f"{study.metric} {best.validation:.4f} on validation, best of {len(study.trials)} trials"
    with new_file(path) as fresh:
        head = f"# {printable(dataset)}: {found}. The fields above the line were searched.\n"
        searched = [*study.plan.local, *study.plan.capacity]
        fresh.write_text(
            head + _searched_first(study.recipe(best.stage, best.values).to_toml(), searched),
            encoding="utf-8",
        )
    return path


def _searched_first(toml: str, names: list[str]) -> str:
    """The lines of some fields, in their order, then those of all others."""
    lines = {line.partition(" = ")[0]: line for line in toml.splitlines()}
    others = [line for name, line in lines.items() if name not in names]
    return "\n".join([*(lines[name] for name in names), "", "# ---", *others]) + "\n"


def _view(study: Study, is_json: bool) -> JsonTrials | TrialLines:
    return JsonTrials(study) if is_json else TrialLines(study)


class JsonTrials:
    """A study as programs follow it: one JSON object a trial, those of earlier calls first, then the best."""

    def __init__(self, study: Study) -> None:
        self.study = study

    def __enter__(self) -> JsonTrials:
        for trial in self.study.trials:
            self._line(event="trial", metric=self.study.metric, **asdict(trial))
        return self

    def __exit__(self, *_: object) -> None: ...

    def begin(self, number: int, stage: StageName, values: Cell, trainer: Trainer) -> None: ...

    def step(self, num_seeds: int) -> None: ...

    def epoch(self, epoch: Epoch) -> None: ...

    def end(self, trial: Trial | None) -> None:
        if trial:
            self._line(event="trial", metric=self.study.metric, **asdict(trial))

    def close(self, recipe: Path | None) -> None:
        best = self.study.best
        number, validation = (best.number, best.validation) if best else (None, None)
        self._line(event="end", best=number, validation=validation, recipe=str(recipe) if recipe else None)

    def _line(self, **content: Any) -> None:
        import json

        print(json.dumps(content), flush=True)


class TrialLines:
    """A study as people follow it: a line for each trial, and all of them, with the best in bold, at the end.

    Below the lines, in a terminal, is a bar of the trial under way; elsewhere a long one has a line now and then.
    """

    def __init__(self, study: Study) -> None:
        from rich.progress import TextColumn

        from quartet.drawing.terminal import new_bar

        self.study, self.count = study, sum(study.plan.allowed)
        self.bar = new_bar(TextColumn("{task.fields[note]}"))
        self.work = self.bar.add_task("", note="")

    def __enter__(self) -> TrialLines:
        if known := len(self.study.trials):
            say(f"Going on after {known} of {self.count} trials")
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def begin(self, number: int, stage: StageName, values: Cell, trainer: Trainer) -> None:
        self.label = f"trial {number + 1:>3}/{self.count}"
        self.trainer, self.line_at = trainer, time.perf_counter()
        total = trainer.seeds_an_epoch * trainer.recipe.epochs
        self.bar.reset(self.work, description=self.label, total=total, note=f"{stage}: {shown(values)}")

    def step(self, num_seeds: int) -> None:
        self.bar.advance(self.work, num_seeds)
        if self.bar.disable and time.perf_counter() - self.line_at >= SECONDS_BETWEEN_LINES:
            self.line_at, progress = time.perf_counter(), self.trainer.progress
            say(f"{self.label}  epoch {progress.epoch + 1}/{self.trainer.recipe.epochs}")

    def epoch(self, epoch: Epoch) -> None: ...

    def end(self, trial: Trial | None) -> None:
        if trial is None:
            say(f"{self.label}  was cut, and will be run again")
        else:
            best = self.study.best
            is_best = best is not None and best.number == trial.number
            print(
                f"{self.label}  {trial_line(trial, self.study.metric)}{' *' if is_best else ''}", flush=True
            )

    def close(self, recipe: Path | None) -> None:
        from quartet.drawing.terminal import console

        console().print(trials_view(self.study))
        best = self.study.best
        if best is None:
            print("No trial went to its end yet.")
        else:
            print(
                f"Best: trial {best.number + 1}, validation {self.study.metric} {best.validation:.4f}. "
                f"Its recipe is in {recipe}"
            )


def shown(values: Cell) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def trial_line(trial: Trial, metric: str) -> str:
    found = "none" if trial.validation is None else f"{trial.validation:.4f}"
    end = "" if trial.outcome == "done" else f", {trial.outcome}"
    return (
        f"{trial.stage:<8}  {shown(trial.values)}  validation {metric} {found}  "
        f"{trial.epochs} epochs{end}, {trial.seconds:.1f} s"
    )


def trials_view(study: Study) -> RenderableType:
    """All trials, each with the values that it tried; the best in bold."""
    from rich.text import Text

    from quartet.drawing.terminal import new_grid

    names = [*study.plan.local, *study.plan.capacity]
    right = ("trial", *names, study.metric, "epochs", "seconds")
    grid = new_grid("Trials", "trial", "stage", *names, study.metric, "epochs", "seconds", "", right=right)
    best = study.best
    for trial in study.trials:
        recipe = study.recipe(trial.stage, trial.values).to_dict()
        validation = "" if trial.validation is None else f"{trial.validation:.4f}"
        values = [str(recipe[name]) for name in names]
        cells = [
            str(trial.number + 1),
            trial.stage,
            *values,
            validation,
            str(trial.epochs),
            f"{trial.seconds:.1f}",
        ]
        is_best = best is not None and best.number == trial.number
        note = "" if trial.outcome == "done" else trial.problem or trial.outcome
        grid.add_row(*(Text(printable(cell), style="bold" if is_best else "") for cell in [*cells, note]))
    return grid
