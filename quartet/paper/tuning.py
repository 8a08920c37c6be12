"""Tuning: the search for a task's best recipe on validation, in the paper's two stages (appendix A.3.2).

It is a study whose arms are the cells of a grid: first of the local parameters; then, with the best of them, of
capacity. As in the paper, those of QUARTET are found on RelGT with CRW, which is its local module and little else. Its
results lie in the same `results.jsonl`, so a search that was cut goes on by training what is missing.
Test labels are not opened, and a result of tuning has no test figure.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from quartet.config import Recipe, published_settings, with_tuples
from quartet.errors import UsageError, printable
from quartet.evaluation import higher_is_better, main_metric
from quartet.paper.arms import PAPER_PRESETS, Arm
from quartet.paper.runner import Failure, Job, Study, Train, dataset_name, run_study
from quartet.paper.tables import CHOSEN, NOTHING, Sheet
from quartet.tasks import Task

Cell = dict[str, Any]  # a value for each field of a grid
Grid = dict[str, tuple[Any, ...]]
Stage = Literal["local", "capacity"]

_REGULAR = ("dropout", "weight_decay")
# Every model has 27 cells and then 9. Where it has no local layers, or one capacity, the learning rate steps in.
_FIELDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "quartet": (("local_layers", *_REGULAR), ("num_latents", "num_archetypes")),
    "relgt": (("local_layers", *_REGULAR), ("num_archetypes", "learning_rate")),
    "rgp": (("learning_rate", *_REGULAR), ("num_latents", "latent_layers")),
    "hgt": (("learning_rate", *_REGULAR), ("conv_layers", "heads")),
    "sage": (("learning_rate", *_REGULAR), ("conv_layers", "width")),
}
_VALUES: Grid = {
    "local_layers": (1, 2, 4),
    "latent_layers": (1, 2, 4),
    "conv_layers": (2, 1, 3),
    "dropout": (0.1, 0.3, 0.5),
    "weight_decay": (5e-5, 5e-4, 5e-3),
}
_PAPER: Grid = {
    "local_layers": (1, 4, 8),
    "dropout": (0.3, 0.4, 0.5),
    "num_latents": (16, 32, 64),
    "num_archetypes": (128, 256, 512),
}
_PAPER_LARGE: Grid = {"local_layers": (4,), "dropout": (0.1, 0.3, 0.5), "weight_decay": (1e-5, 5e-5, 5e-4)}
_PAPER_OWN: dict[str, Grid] = {
    "rgp": {"num_latents": (8, 16, 32), "latent_layers": (2, 4, 6)},
    "relgt": {"num_archetypes": (4096, 1024, 512)},  # the published number of centroids comes first
}


@dataclass(frozen=True)
class Grids:
    """The values that a search tries: of the local parameters, and of capacity.

    Local parameters are tried with the first capacity, which the second stage then need not train; but QUARTET's are
    tried on RelGT, and all of its capacities are left.
    """

    model: str
    local: Grid
    capacity: Grid

    @staticmethod
    def of(preset: str = "small", task: str = "", model: str | None = None, **changes: Any) -> Grids:
        """Returns the grids of a preset and a model. A field that is changed is fixed: it is not searched."""
        own = Recipe.load(preset, task, model)
        model = own.model.architecture
        if model not in _FIELDS:
            raise UsageError(
                "C02", f'the model "{model}" has no grids to search', f"tune {', '.join(_FIELDS)}"
            )
        values = _VALUES | (_paper_values(own) if preset in PAPER_PRESETS else {})
        recipe = own.changed(**changes)
        local, capacity = (
            {name: values.get(name) or _scaled(own, name) for name in names if name not in changes}
            for names in _FIELDS[model]
        )
        for name, tried in (local | capacity).items():
            for value in tried:
                recipe.changed(**{name: value})  # a value that cannot be is refused now, not after hours
        return Grids(model, local, capacity)

    @property
    def begins_with_relgt(self) -> bool:
        return self.model == "quartet"

    def allowed(self, trials: int) -> tuple[int, int]:
        """Returns how many trials each stage gets: all its cells, or a part by how many it has."""
        num_known = 0 if self.begins_with_relgt else 1
        first, second = len(cells(self.local)), len(cells(self.capacity)) - num_known
        if trials >= first + second:
            return first, second
        needs_second = trials > num_known  # a search that trains no QUARTET finds none
        fewer = min(second, max(1, trials * second // (first + second))) if needs_second else 0
        return min(first, trials - fewer), fewer


def _paper_values(recipe: Recipe) -> Grid:
    """Returns the paper's grids (appendix A.3.1); its larger tasks are those that it trains for ten epochs."""
    grid = _PAPER | _PAPER_OWN.get(recipe.model.architecture, {})
    if recipe.epochs > 10:
        return grid
    # The local layers are fixed there, and so is what steps in for them: every model has nine cells.
    is_instead = "learning_rate" in _FIELDS[recipe.model.architecture][0]
    return grid | _PAPER_LARGE | ({"learning_rate": (recipe.learning_rate,)} if is_instead else {})


def _scaled(recipe: Recipe, name: str) -> tuple[Any, ...]:
    """Returns a field's value, the half and the double of it; what counts something stays whole."""
    value = recipe.to_dict()[name]
    scaled = (value * factor for factor in (1.0, 0.5, 2.0))
    return tuple(dict.fromkeys(max(1, round(v)) if isinstance(value, int) else v for v in scaled))


def cells(grid: Grid) -> list[Cell]:
    """Returns all combinations of a grid's values, the first values first; of an empty grid the one without any."""
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


@dataclass(frozen=True)
class Trial:
    """The outcome of one cell: `validation` is the best epoch's, None if it could not be trained."""

    number: int
    stage: Stage
    values: Cell
    validation: float | None
    epochs: int
    seconds: float
    problem: str
    recipe: dict[str, Any] = field(repr=False)


@dataclass
class Search:
    """A search on disk. `run` trains what is missing; `trials` and `best` tell what is known."""

    study: Study  # of one task
    grids: Grids
    max_trials: int
    failed: dict[str, Failure] = field(default_factory=dict)  # in this process, by key

    @staticmethod
    def of(
        source: str,
        task: str,
        folder: Path = Path("studies"),
        schema: Path | None = None,
        preset: str = "small",
        model: str | None = None,
        trials: int = 20,
        **changes: Any,
    ) -> Search:
        """Returns the search of a task, new or begun earlier in the same folder."""
        if trials < 1:
            raise UsageError("C02", f"trials is {trials}", "give a whole number above 0")
        rng_seed = Recipe.load(preset, "", model, **changes).rng_seed
        study = Study("tune", source, (task,), folder, schema, preset, changes, (rng_seed,), opens_test=False)
        (loaded,) = study.loaded.values()
        name = f"{loaded.full_database.schema.name}/{loaded.name}"
        return Search(study, Grids.of(preset, name, model, **changes), trials)

    @property
    def task(self) -> Task:
        (task,) = self.study.loaded.values()
        return task

    @property
    def metric(self) -> str:
        return main_metric(self.task.spec.type)

    @property
    def allowed(self) -> tuple[int, int]:
        return self.grids.allowed(self.max_trials)

    def run(
        self,
        processes: int,
        budget: float = math.inf,
        train: Train | None = None,
        on: str | None = None,
    ) -> Iterator[Trial]:
        """Trains cell after cell and yields each trial. The first stage ends with its part of the time, too."""
        begin, (first, second) = time.perf_counter(), self.allowed
        parts: dict[Stage, float] = {"local": first / (first + second), "capacity": 1.0}
        for stage, part in parts.items():
            jobs, left = self.jobs(stage), budget * part - (time.perf_counter() - begin)
            for outcome in run_study(self.study, jobs, processes, left, train, on):
                if isinstance(outcome, Failure):
                    self.failed[outcome.key] = outcome
                yield next(trial for trial, key in self._known(stage) if key == outcome.key)

    def jobs(self, stage: Stage) -> list[Job]:
        """Returns the trainings of a stage, in a random order that the recipe's `rng_seed` fixes.

        The second stage has the best local parameters so far, and leaves out the capacity that the first trained with.
        """
        if stage == "local":
            fixed = self._relgt if self.grids.begins_with_relgt else {}
            fixed = fixed or {name: values[0] for name, values in self.grids.capacity.items()}
            every, first, count = cells(self.grids.local), 0, self.allowed[0]
        else:
            best = self._best([trial for trial, _ in self._known("local")])
            if best is None and self.allowed[0]:
                return []
            fixed, every, count = best.values if best else {}, cells(self.grids.capacity), self.allowed[1]
            first = 0 if self.grids.begins_with_relgt else 1
        order = np.random.default_rng([*self.study.rng_seeds, len(every)]).permutation(len(every))
        chosen = [every[place] for place in order if place >= first][:count]
        return self.study.jobs(
            Arm(f"{stage}: {shown(cell)}", self.grids.model, fixed | cell) for cell in chosen
        )

    @property
    def _relgt(self) -> Cell:
        """What makes RelGT with CRW of QUARTET's recipe; at the paper's presets it has its own number of centroids."""
        made = {"branches": (), "local_sampler": "walk"}
        if self.study.preset in PAPER_PRESETS:
            made["num_archetypes"] = published_settings("relgt")["num_archetypes"]
        users = self.study.changes
        return {"architecture": "relgt"} | {name: made[name] for name in made if name not in users}

    @property
    def trials(self) -> list[Trial]:
        """All that are done, in the order of the search."""
        return [trial for stage in ("local", "capacity") for trial, _ in self._known(stage)]

    @property
    def best(self) -> Trial | None:
        """The best on validation, the first of equals. Where QUARTET begins with RelGT, that is none."""
        is_other = self.grids.begins_with_relgt
        return self._best([trial for trial in self.trials if not (is_other and trial.stage == "local")])

    def _known(self, stage: Stage) -> Iterator[tuple[Trial, str]]:
        """Yields the trials of a stage that are done, each with the key of its training."""
        jobs, before = self.jobs(stage), 0 if stage == "local" else self.allowed[0]
        results = {result.key: result for result in self.study.results(jobs)}
        for number, job in enumerate(jobs, before):
            values = {name: job.recipe[name] for name in getattr(self.grids, stage)}
            if result := results.get(job.key):
                figures = (result.validation, len(result.curve), result.seconds, "")
                yield Trial(number, stage, values, *figures, job.recipe), job.key
            elif job.key in self.failed:
                yield (
                    Trial(number, stage, values, None, 0, 0.0, self.failed[job.key].reason, job.recipe),
                    job.key,
                )

    def _best(self, trials: Sequence[Trial]) -> Trial | None:
        figures = {trial.number: trial.validation for trial in trials if trial.validation is not None}
        choose = max if higher_is_better(self.metric) else min
        number = choose(figures, key=lambda one: figures[one]) if figures else None
        return next((trial for trial in trials if trial.number == number), None)

    def to_toml(self, trial: Trial) -> str:
        """Returns a trial's recipe as a file that `Recipe.load` takes: the fields that were searched come first."""
        recipe = Recipe().changed(**with_tuples(trial.recipe))
        lines = {line.partition(" = ")[0]: line for line in recipe.to_toml().splitlines()}
        searched = [lines.pop(name) for name in (*self.grids.local, *self.grids.capacity)]
        head = (
            f"# {printable(dataset_name(self.task))}/{printable(self.task.name)}: {self.metric} "
            f"{trial.validation:.4f} on validation, best of {len(self.trials)} trials. "
            "The fields above the line were searched."
        )
        return "\n".join([head, *searched, "", "# ---", *lines.values()]) + "\n"

    def sheet(self) -> Sheet:
        """Returns the table of all trials, the best of them marked."""
        names, best = [*self.grids.local, *self.grids.capacity], self.best
        rows = []
        for trial in self.trials:
            mark = f" {CHOSEN}" if best and trial.number == best.number else ""
            figure = NOTHING if trial.validation is None else f"{trial.validation:.4f}{mark}"
            values = (str(trial.recipe[name]) for name in names)
            costs = (str(trial.epochs), f"{trial.seconds:.1f}", trial.problem)
            rows.append((str(trial.number + 1), trial.stage, *values, figure, *costs))
        columns = ("trial", "stage", *names, self.metric, "epochs", "seconds", "")
        return Sheet("Trials", columns, rows)


def shown(cell: Cell) -> str:
    return ", ".join(f"{name} {value}" for name, value in cell.items())
