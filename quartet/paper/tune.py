"""Tuning in the paper's two stages (appendix A.3.2): first the local parameters, then, with the best of them, capacity.

A study is one SQLite file of Optuna's with both stages. Which cell of a grid comes next is a function of the cells
that are done, so a study that was cut goes on as if it had not been. Trials are compared on validation alone: test
labels are not opened.
"""

from __future__ import annotations

import fcntl
import itertools
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from quartet.config import Recipe
from quartet.errors import IntegrityError, QuartetError, ResourceError, UsageError
from quartet.evaluation import higher_is_better, main_metric
from quartet.tasks import Task
from quartet.training import Epoch, Material, Trainer

if TYPE_CHECKING:
    import optuna

Cell = dict[str, Any]  # a value for each field of a grid
Grid = dict[str, tuple[Any, ...]]
StageName = Literal["local", "capacity"]
Outcome = Literal["done", "pruned", "failed"]
Ending = Literal["done", "budget", "stopped"]

UNPRUNED = 5  # trials of a stage that go to their end, whatever they show
PROPOSALS = 20  # of cells that are done already, before the next one in the grid's order is taken
_BAD_CELL = ("C11", "C12")  # too large for the memory, or the loss is no number: other cells may do well

_PAPERS = ("paper", "paper-val")
_FACTORS = (1.0, 0.5, 2.0)
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
_PAPER_RGP: Grid = {"num_latents": (8, 16, 32), "latent_layers": (2, 4, 6)}


@dataclass(frozen=True)
class Plan:
    """What is tried: a recipe with the first capacity, and the values of some of its fields in each stage."""

    recipe: Recipe
    local: Grid
    capacity: Grid
    trials: int

    @staticmethod
    def of(
        preset: str = "small", task: str = "", model: str | None = None, trials: int = 20, **changes: Any
    ) -> Plan:
        """The grids of a preset and a model. A field that is changed stays as it is said: it is not searched."""
        if trials < 1:
            raise UsageError("C02", f"trials is {trials}", "give a whole number above 0")
        own = Recipe.load(preset, task, model)
        values = _VALUES | (_paper_values(own) if preset in _PAPERS else {})
        recipe = own.changed(**changes)
        local, capacity = (
            {name: values.get(name) or _scaled(own, name) for name in names if name not in changes}
            for names in _searched(recipe)
        )
        first = {name: tried[0] for name, tried in capacity.items()}
        plan = Plan(recipe.changed(**first), local, capacity, trials)
        for name, value in ((name, value) for name, tried in (local | capacity).items() for value in tried):
            plan.recipe.changed(**{name: value})  # a value that cannot be is refused now, not after hours
        return plan

    @property
    def allowed(self) -> tuple[int, int]:
        """How many trials each stage gets: all its cells, or else a share by how many it has."""
        first, second = len(cells(self.local)), len(cells(self.capacity)) - 1
        if self.trials >= first + second:
            return first, second
        fewer = min(second, max(1, self.trials * second // (first + second))) if self.trials > 1 else 0
        return min(first, self.trials - fewer), fewer

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as JSON gives them back."""
        grids = {name: list(values) for name, values in (self.local | self.capacity).items()}
        words = {n: list(v) if isinstance(v, tuple) else v for n, v in self.recipe.to_dict().items()}
        return {"recipe": words, "grids": grids, "trials": self.trials}


def _searched(recipe: Recipe) -> tuple[tuple[str, ...], tuple[str, ...]]:
    model = recipe.model.architecture
    if model not in _FIELDS:
        raise UsageError("C02", f'the model "{model}" has no grids to search', f"tune {', '.join(_FIELDS)}")
    return _FIELDS[model]


def _paper_values(recipe: Recipe) -> Grid:
    """The paper's grids (appendix A.3.1); its larger tasks are those that it trains for ten epochs."""
    grid = _PAPER | (_PAPER_RGP if recipe.model.architecture == "rgp" else {})
    if recipe.epochs > 10:
        return grid
    # The local layers are fixed there, and so is what steps in for them: every model has nine cells.
    is_instead = "learning_rate" in _searched(recipe)[0]
    return grid | _PAPER_LARGE | ({"learning_rate": (recipe.learning_rate,)} if is_instead else {})


def _scaled(recipe: Recipe, name: str) -> tuple[Any, ...]:
    """A field's value, the half and the double of it; what counts something stays whole."""
    value = recipe.to_dict()[name]
    scaled = (value * factor for factor in _FACTORS)
    return tuple(dict.fromkeys(max(1, round(v)) if isinstance(value, int) else v for v in scaled))


def cells(grid: Grid) -> list[Cell]:
    """All combinations of a grid's values, the first values first; of an empty grid the one without any."""
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


@dataclass(frozen=True)
class Trial:
    """What came of one cell: `validation` is the best epoch's, of the task's main metric."""

    number: int
    stage: StageName
    values: Cell
    outcome: Outcome
    validation: float | None
    epochs: int
    seconds: float
    problem: str = ""


class View(Protocol):
    """Who follows a study."""

    def begin(self, number: int, stage: StageName, values: Cell, trainer: Trainer) -> None: ...
    def step(self, num_seeds: int) -> None: ...
    def epoch(self, epoch: Epoch) -> None: ...
    def end(self, trial: Trial | None) -> None:
        """After a trial, or with None after one that was cut."""


class Unseen:
    """A view for nobody."""

    def begin(self, number: int, stage: StageName, values: Cell, trainer: Trainer) -> None: ...
    def step(self, num_seeds: int) -> None: ...
    def epoch(self, epoch: Epoch) -> None: ...
    def end(self, trial: Trial | None) -> None: ...


class Study:
    """A study on disk. `run` goes on until its trials are done, its time is over, or something asks it to stop."""

    def __init__(self, file: Path, storage: optuna.storages.RDBStorage, task: Task, plan: Plan) -> None:
        self.file, self.plan = file, plan
        self.metric = main_metric(task.spec.type)
        stages = (("local", plan.local), ("capacity", plan.capacity))
        self.local, self.capacity = (_Stage(storage, name, grid, self) for name, grid in stages)
        data = {"fingerprint": task.visible_database.fingerprint}
        self._check_asked({"task": task.name, "data": data, **plan.to_dict()})

    def _check_asked(self, asked: dict[str, Any]) -> None:
        """A study goes on only with what it began with; its budget alone may grow."""
        known = self.local.study.user_attrs.get("asked")
        if known is None:
            self.local.study.set_user_attr("asked", asked)
            return
        for what, now in asked.items():
            if known[what] != now:
                said = f'"{self.file}" began otherwise: {what} {_differing(known[what], now)}'
                raise UsageError("C05", said, "name another file with --study")

    # --- what is known ------------------------------------------------------------------------------

    @property
    def trials(self) -> list[Trial]:
        """All that are done, in their order."""
        found = [(stage, trial) for stage in (self.local, self.capacity) for trial in stage.finished]
        return [stage.told(number, trial) for number, (stage, trial) in enumerate(found)]

    @property
    def best(self) -> Trial | None:
        """The best on validation of those that went to their end; of equal ones the first."""
        done = [(trial, trial.validation) for trial in self.trials if trial.outcome == "done"]
        scored = [(value, trial) for trial, value in done if value is not None]
        choose = max if self.is_higher_better else min
        return choose(scored, key=lambda pair: pair[0])[1] if scored else None

    @property
    def is_higher_better(self) -> bool:
        return higher_is_better(self.metric)

    @property
    def seconds(self) -> float:
        """Spent so far, on trials that were cut too."""
        return self.local.seconds + self.capacity.seconds

    @property
    def frozen(self) -> Cell | None:
        """The best local parameters, once the second stage has begun."""
        found: Cell | None = self.capacity.study.user_attrs.get("frozen")
        return found

    def recipe(self, stage: StageName, values: Cell) -> Recipe:
        frozen = (self.frozen or {}) if stage == "capacity" else {}
        return self.plan.recipe.changed(**(frozen | values))

    # --- what is done -------------------------------------------------------------------------------

    def run(
        self,
        material: Material,
        budget: float | None = None,
        view: View | None = None,
        must_stop: Callable[[], bool] = lambda: False,
    ) -> Ending:
        """Trains cell after cell; says why it ended. A trial that is cut will be run again.

        `budget` is of seconds for the whole study, what was spent before included.
        """
        begin, before = time.perf_counter(), self.seconds

        def is_over() -> bool:
            return budget is not None and before + time.perf_counter() - begin >= budget

        while not self.is_done:
            if must_stop():
                return "stopped"
            if is_over():
                return "budget"
            self._try(self._stage(budget), material, view or Unseen(), lambda: must_stop() or is_over())
        return "done"

    @property
    def is_done(self) -> bool:
        """Whether all trials are done. Without any that went to its end in the first stage there is no second."""
        first, second = self.plan.allowed
        if self.frozen is None:
            return len(self.local.finished) >= first and (second == 0 or self.best is None)
        return len(self.capacity.finished) >= second

    def _stage(self, budget: float | None) -> _Stage:
        """The stage whose turn it is. The first ends with its trials, or with its share of the time."""
        first, second = self.plan.allowed
        if self.frozen is None:
            best, is_full = self.best, len(self.local.finished) >= first
            is_late = budget is not None and self.seconds >= budget * first / (first + second)
            if best is None or not (is_full or (is_late and second)):
                return self.local
            self._freeze(best)
        return self.capacity

    def _freeze(self, best: Trial) -> None:
        """Begins the second stage. Its first cell is known: that capacity the first stage has trained with."""
        first = {name: values[0] for name, values in self.plan.capacity.items()}
        self.capacity.study.set_user_attr("known", [[first, best.validation]])
        self.capacity.study.set_user_attr("frozen", best.values)

    def _try(self, stage: _Stage, material: Material, view: View, must_stop: Callable[[], bool]) -> None:
        """Trains one cell and keeps what came of it."""
        begin, is_behind = time.perf_counter(), False
        trial = stage.begin()
        trainer = Trainer(material, self.recipe(stage.name, trial.params))
        view.begin(len(self.trials), stage.name, trial.params, trainer)

        def on_epoch(epoch: Epoch) -> None:
            nonlocal is_behind
            trial.report(epoch.validation, epoch.number)
            trial.set_user_attr("seconds", time.perf_counter() - begin)
            is_behind = trial.should_prune()
            view.epoch(epoch)

        problem, is_done = "", False
        try:
            is_done = trainer.run(on_epoch, view.step, lambda: is_behind or must_stop())
        except QuartetError as error:
            if error.code not in _BAD_CELL:
                raise
            problem = error.what
        trial.set_user_attr("seconds", time.perf_counter() - begin)
        trial.set_user_attr("problem", problem)
        is_kept = stage.end(trial, trainer.progress.best if is_done else None, bool(is_behind or problem))
        view.end(self.trials[-1] if is_kept else None)


class _Stage:
    """One search: an Optuna study over the cells of a grid."""

    def __init__(self, storage: optuna.storages.RDBStorage, name: str, grid: Grid, study: Study) -> None:
        package = _optuna()
        self.name: StageName = "local" if name == "local" else "capacity"
        self.grid, self.rng_seed = grid, study.plan.recipe.rng_seed
        self.allowed = study.plan.allowed[0 if name == "local" else 1]
        self.direction = "maximize" if study.is_higher_better else "minimize"
        self.space = {n: package.distributions.CategoricalDistribution(values) for n, values in grid.items()}
        self.study: optuna.Study = package.create_study(
            study_name=name,
            storage=storage,
            direction=self.direction,
            load_if_exists=True,
            sampler=package.samplers.RandomSampler(),  # never asked: each trial is told its cell
            pruner=package.pruners.MedianPruner(UNPRUNED, n_warmup_steps=study.plan.recipe.epochs // 4),
        )
        self._end_leftovers()

    def _end_leftovers(self) -> None:
        """Ends what a killed process left under way."""
        states = _optuna().trial.TrialState
        for _ in self.study.get_trials(states=(states.WAITING,)):
            self.study.tell(self.study.ask(), state=states.FAIL)
        for trial in self.study.get_trials(states=(states.RUNNING,)):
            self.study.tell(trial.number, state=states.FAIL)

    @property
    def finished(self) -> list[optuna.trial.FrozenTrial]:
        """Those that count: cut ones do not."""
        states = _optuna().trial.TrialState
        return self.study.get_trials(states=(states.COMPLETE, states.PRUNED))

    @property
    def known(self) -> list[tuple[Cell, float]]:
        """Cells whose value was found in another stage."""
        return [(cell, value) for cell, value in self.study.user_attrs.get("known", [])]

    @property
    def seconds(self) -> float:
        every = self.study.get_trials(deepcopy=False)
        return float(sum(trial.user_attrs.get("seconds", 0.0) for trial in every))

    def begin(self) -> optuna.Trial:
        self.study.enqueue_trial(self.next_cell())
        return self.study.ask(self.space)

    def end(self, trial: optuna.Trial, value: float | None, is_given_up: bool) -> bool:
        """Keeps a trial's value, or that it was given up; says whether it counts, or was cut."""
        states = _optuna().trial.TrialState
        if value is not None:
            self.study.tell(trial, value)
        else:
            self.study.tell(trial, state=states.PRUNED if is_given_up else states.FAIL)
        return value is not None or is_given_up

    def next_cell(self) -> Cell:
        """A cell that is not done: of a grid that fits into the trials in a fixed order, else as TPE proposes."""
        done = [cell for cell, _ in self.known] + [trial.params for trial in self.finished]
        every = cells(self.grid)
        order = np.random.default_rng([self.rng_seed, len(every)]).permutation(len(every))
        left: list[Cell] = [every[place] for place in order if every[place] not in done]
        if len(left) + len(self.finished) <= self.allowed:
            return left[0]
        proposed = (cell for cell in self._proposals() if cell in left)
        return next(proposed, left[0])

    def _proposals(self) -> Iterator[Cell]:
        """What TPE would try next. It sees what is done, and is seeded by how much that is."""
        package = _optuna()
        sampler = package.samplers.TPESampler(seed=(self.rng_seed * 10_007 + len(self.finished)) % 2**32)
        asked = package.create_study(direction=self.direction, sampler=sampler)
        for cell, value in self.known:
            asked.add_trial(package.trial.create_trial(params=cell, distributions=self.space, value=value))
        asked.add_trials(self.finished)
        for _ in range(PROPOSALS):
            yield asked.ask(self.space).params

    def told(self, number: int, trial: optuna.trial.FrozenTrial) -> Trial:
        values = trial.intermediate_values.values()
        best = (max if self.direction == "maximize" else min)(values, default=None)
        problem: str = trial.user_attrs.get("problem", "")
        is_done = trial.state == _optuna().trial.TrialState.COMPLETE
        outcome: Outcome = "done" if is_done else "failed" if problem else "pruned"
        seconds = trial.user_attrs.get("seconds", 0.0)
        return Trial(number, self.name, trial.params, outcome, best, len(values), seconds, problem)


@contextmanager
def open_study(file: Path, task: Task, plan: Plan) -> Iterator[Study]:
    """The study of a file, new or begun earlier with the same plan; nobody else has it meanwhile."""
    optuna = _optuna()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    file.parent.mkdir(parents=True, exist_ok=True)
    with _locked(file):
        _check_file(file)
        storage = optuna.storages.RDBStorage(f"sqlite:///{file}")
        try:
            yield Study(file, storage, task, plan)
        finally:
            storage.remove_session()
            storage.engine.dispose()


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    with file.open("ab") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                "C08",
                f'another process is tuning with "{file}"',
                "wait for it, or name another file with --study",
            ) from None
        yield


def _check_file(file: Path) -> None:
    """Refuses a file that is something else, before a table is written into it."""
    if not file.stat().st_size:
        return
    try:
        with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)) as opened:
            is_study = opened.execute(
                "SELECT 1 FROM sqlite_master WHERE name = 'study_user_attributes'"
            ).fetchone()
            is_whole = opened.execute("PRAGMA quick_check").fetchone() == ("ok",)
    except sqlite3.DatabaseError as error:
        is_study, is_whole = "not a database" not in str(error), False
    fix = "name another file with --study"
    if not is_study:
        raise UsageError("C10", f'"{file}" is no study of `quartet tune`', fix)
    if not is_whole:
        raise IntegrityError("C06", f'the study "{file}" is damaged', fix)


def _differing(known: Any, now: Any) -> str:
    """What differs between two plain values; of fields their names."""
    if isinstance(known, dict) and isinstance(now, dict):
        names = (name for name in known | now if known.get(name) != now.get(name))
        return f"with another {', '.join(sorted(names))}"
    return f"was {known}, now {now}"


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise ResourceError(
            "R01",
            "`quartet tune` needs the package optuna, which is not installed",
            'pip install "quartet-rdl[tune]"',
        ) from None
    return optuna
