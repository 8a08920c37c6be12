"""Tuning: two stages, the same trials after a cut, an end by budget, selection by validation, a recipe as TOML."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from quartet import tune as tuning_module
from quartet.cli.models import models
from quartet.cli.tune import tuning
from quartet.config import ARCHITECTURES, Recipe
from quartet.errors import IntegrityError, QuartetError, ResourceError, UsageError
from quartet.paper import Trial, open_study
from quartet.paper.tune import Plan, Unseen, cells
from quartet.tasks import Task
from quartet.training import Material, Trainer, prepare
from tests.tasks.small import CHURN, small_shop, write_small_shop
from tests.training.test_trainer import AMOUNT

pytestmark = pytest.mark.usefixtures("one_thread")  # sums in the same order: bits are compared here

TINY: dict[str, Any] = {
    "width": 16, "heads": 2, "encoder_width": 8, "num_latents": 2, "local_layers": 1, "local_budget": 10,
    "temporal_budget": 5, "collab_budget": 5, "batch_size": 64, "epochs": 2, "seeds_per_epoch": 64,
}  # fmt: skip
# Of the first stage three cells, all of them tried, or nine, of which four are; of the second three, one of them known.
GRID = Plan.of(trials=99, weight_decay=5e-5, **TINY)
TPE = Plan.of(trials=5, **TINY)


@pytest.fixture(scope="module")
def task() -> Task:
    return Task.from_sql(small_shop(), **CHURN)


@pytest.fixture(scope="module")
def material(task: Task) -> Material:
    return prepare(task, GRID.recipe)


def same(trials: list[Trial]) -> list[Trial]:
    """Trials without what the clock said."""
    return [replace(trial, seconds=0) for trial in trials]


def tuned(file: Path, material: Material, plan: Plan, **words: Any) -> tuple[str, list[Trial], Trial | None]:
    """How a study ended, its trials and the best."""
    with open_study(file, material.task, plan) as study:
        ending = study.run(material, **words)
        return ending, study.trials, study.best


@pytest.fixture(scope="module")
def whole(material: Material, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Uninterrupted studies, by their number of trials."""
    folder = tmp_path_factory.mktemp("studies")
    for plan in (GRID, TPE):
        assert tuned(folder / f"{plan.trials}.db", material, plan)[0] == "done"
    return {plan.trials: folder / f"{plan.trials}.db" for plan in (GRID, TPE)}


def trials_of(file: Path, task: Task, plan: Plan) -> list[Trial]:
    with open_study(file, task, plan) as study:
        return study.trials


# --- what is tried --------------------------------------------------------------------------------


def test_small_has_sizes_by_factors() -> None:
    plan = Plan.of("small")
    assert plan.local == {
        "local_layers": (1, 2, 4), "dropout": (0.1, 0.3, 0.5), "weight_decay": (5e-5, 5e-4, 5e-3),
    }  # fmt: skip
    assert plan.capacity == {"num_latents": (8, 4, 16), "num_archetypes": (64, 32, 128)}
    assert plan.recipe == Recipe.load("small")


@pytest.mark.parametrize("preset", ["paper", "paper-val"])
def test_paper_has_its_own_grids_and_nothing_that_test_selected(preset: str) -> None:
    small, large = (Plan.of(preset, name) for name in ("rel-f1/driver-top3", "rel-hm/user-churn"))
    assert small.local == {
        "local_layers": (1, 4, 8), "dropout": (0.3, 0.4, 0.5), "weight_decay": (5e-5, 5e-4, 5e-3),
    }  # fmt: skip
    assert small.capacity == {"num_latents": (16, 32, 64), "num_archetypes": (128, 256, 512)}
    assert (small.recipe.model.num_latents, small.recipe.model.num_archetypes) == (16, 128)
    assert large.local == {
        "local_layers": (4,), "dropout": (0.1, 0.3, 0.5), "weight_decay": (1e-5, 5e-5, 5e-4),
    }  # fmt: skip
    assert large.capacity == small.capacity
    rgp = Plan.of(preset, "rel-f1/driver-top3", "rgp")
    assert rgp.capacity == {"num_latents": (8, 16, 32), "latent_layers": (2, 4, 6)}


@pytest.mark.parametrize("preset", ["small", "paper"])
@pytest.mark.parametrize("model", [name for name in ARCHITECTURES if name != "lightgbm"])
def test_every_model_has_as_many_cells(preset: str, model: str) -> None:
    plan = Plan.of(preset, model=model, trials=1000)
    assert plan.recipe.model.architecture == model
    assert (len(cells(plan.local)), len(cells(plan.capacity))) == (27, 9)
    assert plan.allowed == (27, 8)
    assert Plan.of(preset, model=model).allowed == (16, 4)


@pytest.mark.parametrize("model", [name for name in ARCHITECTURES if name != "lightgbm"])
def test_every_model_has_as_many_cells_on_the_larger_tasks_of_the_paper(model: str) -> None:
    plan = Plan.of("paper", "rel-hm/user-churn", model)
    assert (len(cells(plan.local)), len(cells(plan.capacity))) == (9, 9)
    assert plan.allowed == (9, 8)


def test_a_field_that_is_said_is_not_searched() -> None:
    plan = Plan.of("small", local_layers=3, num_archetypes=7)
    assert list(plan.local) == ["dropout", "weight_decay"]
    assert plan.capacity == {"num_latents": (8, 4, 16)}
    assert (plan.recipe.model.local_layers, plan.recipe.model.num_archetypes) == (3, 7)


@pytest.mark.parametrize(
    ("trials", "allowed"), [(1, (1, 0)), (2, (1, 1)), (5, (4, 1)), (10, (9, 1)), (11, (9, 2)), (99, (9, 2))]
)
def test_stages_share_the_trials(trials: int, allowed: tuple[int, int]) -> None:
    assert Plan.of(trials=trials, **TINY).allowed == allowed


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            {"model": "lightgbm"},
            'error[C02] the model "lightgbm" has no grids to search. Fix: tune quartet, relgt, rgp, hgt, sage',
        ),
        (
            {"model": "lightgbm", "preset": "paper", "task": "rel-hm/user-churn"},
            'error[C02] the model "lightgbm" has no grids to search. Fix: tune quartet, relgt, rgp, hgt, sage',
        ),
        ({"trials": 0}, "error[C02] trials is 0. Fix: give a whole number above 0"),
        (
            {"model": "hgt", "width": 48},
            "error[C03] width 48 cannot be cut into 8 heads and a quarter for positions. Fix: give a multiple of 32",
        ),
        ({"widht": 3}, 'error[C01] unknown field "widht" of a recipe (did you mean "width"?)'),
    ],
)
def test_a_wrong_plan_is_refused(words: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
        Plan.of(**words)


# --- both stages ----------------------------------------------------------------------------------


def test_a_grid_that_fits_is_searched_whole(whole: dict[int, Path], task: Task) -> None:
    """Each cell once; capacity with the best local parameters, without the cell that the first stage trained."""
    with open_study(whole[99], task, GRID) as study:
        local = [trial for trial in study.trials if trial.stage == "local"]
        capacity = study.trials[len(local) :]
        assert [trial.number for trial in study.trials] == list(range(5))
        assert sorted(map(repr, (trial.values for trial in local))) == sorted(map(repr, cells(GRID.local)))
        assert sorted(trial.values["num_archetypes"] for trial in capacity) == [32, 128]
        done = [trial for trial in local if trial.outcome == "done"]
        frozen = max(done, key=lambda trial: trial.validation or 0).values
        assert study.frozen == frozen
        recipe = study.recipe("capacity", {"num_archetypes": 32})
        assert recipe == GRID.recipe.changed(num_archetypes=32, **frozen)
    assert task.vault.openings == []


@pytest.mark.parametrize("plan", [GRID, TPE], ids=["grid", "tpe"])
def test_the_best_is_the_best_on_validation(
    plan: Plan, whole: dict[int, Path], task: Task, material: Material
) -> None:
    """Its recipe, trained anew, has the figure by which it was chosen."""
    with open_study(whole[plan.trials], task, plan) as study:
        best = study.best
        assert best is not None
        assert best.validation == max(t.validation or 0 for t in study.trials if t.outcome == "done")
        assert len({trial.validation for trial in study.trials}) > 1
        kept = [trial.value for trial in (*study.local.finished, *study.capacity.finished)]
        assert kept == [trial.validation for trial in study.trials]
        trainer = Trainer(material, study.recipe(best.stage, best.values))
    assert trainer.run()
    assert trainer.progress.best == best.validation
    assert task.vault.openings == []


def test_tpe_tries_no_cell_twice(whole: dict[int, Path], task: Task) -> None:
    trials = trials_of(whole[5], task, TPE)
    assert [trial.stage for trial in trials] == ["local"] * 4 + ["capacity"]
    assert len({repr(trial.values) for trial in trials}) == 5
    assert trials[-1].values["num_archetypes"] in (32, 128)


def test_what_falls_behind_is_given_up(
    material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: dict[int, Path]
) -> None:
    """After its first epoch, if it is below the median of those before; the first goes to its end anyway."""
    with open_study(whole[99], material.task, GRID) as study:
        assert {trial.outcome for trial in study.trials} == {"done"}  # five of them are not judged
        begun = [trial.intermediate_values[0] for trial in study.local.finished]
    expected, done = [], begun[:1]
    for value in begun[1:]:
        expected.append("done" if value >= median(done) else "pruned")
        done += [value] if expected[-1] == "done" else []
    assert "pruned" in expected
    monkeypatch.setattr(tuning_module, "UNPRUNED", 1)
    _, trials, best = tuned(tmp_path / "study.db", material, GRID)
    assert [trial.outcome for trial in trials[:3]] == ["done", *expected]
    assert all(trial.epochs == (1 if trial.outcome == "pruned" else 2) for trial in trials)
    assert best is not None
    assert best.outcome == "done"


def test_of_numbers_the_lowest_error_is_best(tmp_path: Path) -> None:
    task = Task.from_sql(small_shop(), **(CHURN | {"sql": AMOUNT, "task_type": "regression"}))
    plan = GRID
    with open_study(tmp_path / "study.db", task, plan) as study:
        assert study.run(prepare(task, plan.recipe, tmp_path)) == "done"
        errors = {trial.number: trial.validation or 0 for trial in study.trials}
        assert study.metric == "mae"
        assert len(set(errors.values())) > 1
        assert study.best is not None
        assert study.best.number == min(errors, key=lambda number: errors[number])
        local = [trial for trial in study.trials if trial.stage == "local"]
        assert study.frozen == min(local, key=lambda trial: trial.validation or 0).values
        assert study.local.study.direction.name == "MINIMIZE"


def test_a_cell_that_cannot_be_trained_leaves_the_others(material: Material, tmp_path: Path) -> None:
    plan = Plan(GRID.recipe.changed(batch_size=32), {"learning_rate": (1e-3, 1e30)}, {}, 2)
    ending, trials, best = tuned(tmp_path / "study.db", material, plan)
    assert ending == "done"
    found = {trial.values["learning_rate"]: trial for trial in trials}
    assert found[1e30].outcome == "failed"
    assert found[1e30].problem.startswith("the loss became ")
    assert best == found[1e-3]
    assert best.outcome == "done"


# --- going on -------------------------------------------------------------------------------------


class Cut(Unseen):
    """Asks to stop after so many steps."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def step(self, num_seeds: int) -> None:
        assert num_seeds == 64
        self.left -= 1

    def __call__(self) -> bool:
        return self.left <= 0


@pytest.mark.parametrize(
    ("plan", "cuts"), [(GRID, (1, 3, 5)), (TPE, (3, 4))], ids=["grid, both stages", "tpe"]
)
def test_a_study_that_was_cut_goes_on_as_if_it_had_not_been(
    plan: Plan, cuts: tuple[int, ...], material: Material, whole: dict[int, Path], tmp_path: Path
) -> None:
    """Cuts in the first trial, after some, and in the second stage; what was cut is run again."""
    file = tmp_path / "study.db"
    spent = 0.0
    for steps in cuts:
        cut = Cut(steps)
        with open_study(file, material.task, plan) as study:
            assert study.run(material, view=cut, must_stop=cut) == "stopped"
            assert study.seconds > spent
            spent = study.seconds
    ending, trials, best = tuned(file, material, plan)
    assert ending == "done"
    expected = trials_of(whole[plan.trials], material.task, plan)
    assert same(trials) == same(expected)
    with open_study(whole[plan.trials], material.task, plan) as study:
        assert best is not None
        assert study.best is not None
        assert best.number == study.best.number
    assert tuned(file, material, plan)[1] == trials  # and once more: nothing is left to do


class Dead(Exception):
    pass


class Dying(Unseen):
    """Ends all work within the third trial of two steps each, as a kill would: nothing is put in order."""

    def __init__(self) -> None:
        self.seeds = 0

    def step(self, num_seeds: int) -> None:
        self.seeds += num_seeds
        if self.seeds == 5 * 64:
            raise Dead


def under_way(file: Path) -> list[str]:
    """The states of trials that are not over."""
    opened = sqlite3.connect(file)
    found = opened.execute("SELECT state FROM trials WHERE state IN ('RUNNING', 'WAITING')").fetchall()
    opened.close()
    return [state for (state,) in found]


def test_a_killed_study_goes_on(material: Material, whole: dict[int, Path], tmp_path: Path) -> None:
    """Whether it was killed within a trial, or between choosing a cell and beginning with it."""
    file = tmp_path / "study.db"
    with pytest.raises(Dead), open_study(file, material.task, TPE) as study:
        study.run(material, view=Dying())
    assert under_way(file) == ["RUNNING"]
    with open_study(file, material.task, TPE) as study:
        assert under_way(file) == []
        study.local.study.enqueue_trial({"dropout": 0.1, "weight_decay": 5e-3})
    assert under_way(file) == ["WAITING"]
    assert same(tuned(file, material, TPE)[1]) == same(trials_of(whole[5], material.task, TPE))
    assert under_way(file) == []


def test_the_budget_ends_it_and_a_longer_one_goes_on(
    material: Material, whole: dict[int, Path], tmp_path: Path
) -> None:
    file = tmp_path / "study.db"
    with open_study(file, material.task, TPE) as study:
        assert study.run(material, budget=1e-9) == "budget"
        assert study.seconds == 0
        begin = time.perf_counter()
        assert study.run(material, budget=0.05) == "budget"  # ends within the first trial
        assert 0.05 <= study.seconds <= time.perf_counter() - begin
        assert study.trials == []
        assert study.best is None
        spent = study.seconds
        assert study.run(material, budget=spent) == "budget"  # what was spent before counts
        assert study.seconds == spent
    assert same(tuned(file, material, TPE, budget=3600)[1]) == same(trials_of(whole[5], material.task, TPE))


class Stages(Unseen):
    """Remembers which stages began."""

    def __init__(self) -> None:
        self.begun: list[object] = []

    def begin(self, *told: object) -> None:
        self.begun.append(told[1])


@pytest.mark.parametrize(("share", "stage"), [(0.79, "local"), (0.81, "capacity")])
def test_the_first_stage_leaves_time_for_the_second(
    share: float, stage: str, material: Material, tmp_path: Path
) -> None:
    """Four trials of five: four fifths of the time."""
    with open_study(tmp_path / "study.db", material.task, TPE) as study:
        first = Cut(2)
        study.run(material, view=first, must_stop=first)
        view = Stages()
        study.run(material, study.seconds / share, view, lambda: bool(view.begun))
        assert view.begun == [stage]


# --- what a study refuses -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"trials": 6}, "trials was 5, now 6"),
        ({"epochs": 3, "rng_seed": 1}, "recipe with another epochs, rng_seed"),
        ({"weight_decay": 5e-5}, "recipe with another weight_decay"),
        ({"weight_decay": 1e-5}, "grids with another weight_decay"),  # which the recipe has anyway
    ],
)
def test_a_study_goes_on_only_as_it_began(
    words: dict[str, Any], message: str, whole: dict[int, Path], task: Task
) -> None:
    plan, file = Plan.of(**({"trials": 5} | TINY | words)), whole[5]
    says = f'error[C05] "{file}" began otherwise: {message}. Fix: name another file with --study'
    with pytest.raises(UsageError, match=f"^{re.escape(says)}$"), open_study(file, task, plan):
        pass


def test_a_study_goes_on_only_with_its_data(whole: dict[int, Path]) -> None:
    other = Task.from_sql(small_shop(rng_seed=1), **CHURN)
    with (
        pytest.raises(UsageError, match=r"C05\] .* began otherwise: data with another fingerprint\. Fix"),
        open_study(whole[5], other, TPE),
    ):
        pass


def refused(file: Path, task: Task, kind: type[QuartetError], message: str) -> None:
    before = file.read_bytes()
    with pytest.raises(kind, match=f"^{re.escape(message)}$"), open_study(file, task, TPE):
        pass
    assert file.read_bytes() == before


def test_another_file_is_not_written_into(task: Task, tmp_path: Path) -> None:
    text, database = tmp_path / "notes.txt", tmp_path / "shop.db"
    text.write_text("What I wanted to remember, at some length.\n" * 50)
    opened = sqlite3.connect(database)
    opened.execute("CREATE TABLE orders (id INTEGER)")
    opened.commit()
    opened.close()
    for file in (text, database):
        says = f'error[C10] "{file}" is no study of `quartet tune`. Fix: name another file with --study'
        refused(file, task, UsageError, says)


def test_a_damaged_study_is_refused(task: Task, whole: dict[int, Path], tmp_path: Path) -> None:
    file = tmp_path / "study.db"
    shutil.copy(whole[5], file)
    content = bytearray(file.read_bytes())
    content[4096 * 2 : 4096 * 6] = os.urandom(4096 * 4)
    file.write_bytes(content)
    says = f'error[C06] the study "{file}" is damaged. Fix: name another file with --study'
    refused(file, task, IntegrityError, says)


def test_two_do_not_tune_with_one_file(task: Task, tmp_path: Path) -> None:
    file = tmp_path / "study.db"
    fix = "Fix: wait for it, or name another file with --study"
    with open_study(file, task, TPE):
        refused(file, task, UsageError, f'error[C08] another process is tuning with "{file}". {fix}')


def test_without_optuna_it_says_what_to_install(
    task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    message = (
        "error[R01] `quartet tune` needs the package optuna, which is not installed. "
        'Fix: pip install "quartet-rdl[tune]"'
    )
    with (
        pytest.raises(ResourceError, match=f"^{re.escape(message)}$"),
        open_study(tmp_path / "study.db", task, TPE),
    ):
        pass
    assert not (tmp_path / "study.db").exists()


# --- recipes as files -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "recipe",
    [
        Recipe(),
        Recipe.load("small", "rel-f1/driver-dnf"),
        Recipe.load("small", model="relgt", local_sampler="walk", time_limit=60.0),
        Recipe.load("paper", max_recent=None, branches=("feature", "collab"), weight_decay=5e-5),
        Recipe.load("small", branches=(), local=False, precision="bf16"),
    ],
)
def test_a_recipe_comes_back_from_its_file(recipe: Recipe, tmp_path: Path) -> None:
    file = tmp_path / "best.toml"
    file.write_text(recipe.to_toml())
    assert Recipe.load(str(file)) == recipe
    assert Recipe.load(str(file), model=recipe.model.architecture, epochs=7) == recipe.changed(epochs=7)


def test_a_file_of_few_fields_is_a_preset(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('width = 32\n[tasks."shop/churn"]\nepochs = 4\nmax_recent = "none"\n')
    assert Recipe.load(str(file)) == Recipe(Recipe().model.changed(width=32))
    assert Recipe.load(str(file), "shop/churn", "relgt") == Recipe.load(
        "paper", model="relgt", width=32, epochs=4, max_recent=None
    )


@pytest.mark.parametrize(
    ("text", "model", "message"),
    [
        (
            None,
            None,
            'error[C01] there is no recipe "{file}". Fix: name a .toml file, or one of small, paper, paper-val',
        ),
        (
            "width = \n",
            None,
            'error[C02] "{file}" is not TOML: Invalid value (at line 1, column 9). Fix: correct it there',
        ),
        ("widht = 3\n", None, 'error[C01] unknown field "widht" of a recipe (did you mean "width"?)'),
        (
            'architecture = "relgt"\n',
            "hgt",
            'error[C02] the recipe "{file}" is for relgt, not for hgt. Fix: say --model relgt',
        ),
        ('architecture = "relgd"\n', None, 'error[C01] there is no model "relgd" (did you mean "relgt"?)'),
    ],
)
def test_a_wrong_file_is_refused(text: str | None, model: str | None, message: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(UsageError, match=f"^{re.escape(message.format(file=file))}$"):
        Recipe.load(str(file), model=model)


# --- the verb -------------------------------------------------------------------------------------

app = typer.Typer()
app.add_typer(models)
app.add_typer(tuning)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_shop(tmp_path_factory.mktemp("home") / "shop")


@pytest.fixture
def invoke(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    """The verb on the small shop: its exit code, output and error output."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(shop.parent / "cache"))
    monkeypatch.chdir(tmp_path)
    fixed = TINY | {"weight_decay": 0.0, "num_archetypes": 4, "epochs": 1}
    del fixed["num_latents"]
    words = [word for name, value in fixed.items() for word in ("--set", f"{name}={value}")]

    def run(*more: str) -> tuple[int, str, str]:
        call = ["tune", str(shop), "churn", "--threads", "1", *words, *more]
        done = CliRunner().invoke(app, call, catch_exceptions=False)
        return done.exit_code, done.stdout, done.stderr

    return run


def test_people_see_trials_and_find_the_best_recipe(
    invoke: Callable[..., tuple[int, str, str]], shop: Path
) -> None:
    code, out, said = invoke("--trials", "5")
    assert code == 0
    lines = out.splitlines()
    assert [line[:23] for line in lines[:5]] == [
        f"trial   {number}/5  {stage:<8}  "
        for number, stage in enumerate(["local"] * 3 + ["capacity"] * 2, start=1)
    ]
    assert re.fullmatch(
        r"trial   1/5  local     dropout 0\.\d  validation roc_auc 0\.\d{4}  1 epochs, \d+\.\d s \*", lines[0]
    )
    assert lines[5].strip() == "Trials"
    assert lines[6].split() == ["trial", "stage", "dropout", "num_latents", "roc_auc", "epochs", "seconds"]
    assert len(lines) == 7 + 5 + 1
    best = re.fullmatch(
        r"Best: trial (\d), validation roc_auc (0\.\d{4})\. Its recipe is in studies/churn-quartet\.toml",
        lines[-1],
    )
    assert best
    found = {line.split()[0]: line.split() for line in lines[7:12]}
    assert best[2] == max(row[4] for row in found.values()) == found[best[1]][4]
    recipe = Recipe.load("studies/churn-quartet.toml")
    assert str(recipe.model.dropout) == found[best[1]][2]
    assert str(recipe.model.num_latents) == found[best[1]][3]
    assert (recipe.model.num_archetypes, recipe.epochs) == (4, 1)
    assert f"Train it: quartet train {shop} churn --preset studies/churn-quartet.toml\n" in said


def test_programs_read_one_object_a_trial(invoke: Callable[..., tuple[int, str, str]]) -> None:
    code, out, _ = invoke("--trials", "3", "--model", "relgt", "--study", "mine.db", "--json")
    assert code == 0
    *trials, end = map(json.loads, out.splitlines())
    assert [(line["event"], line["number"], line["stage"]) for line in trials] == [
        ("trial", 0, "local"), ("trial", 1, "local"), ("trial", 2, "capacity"),
    ]  # fmt: skip
    assert trials[0].keys() == {
        "event", "metric", "number", "stage", "values", "outcome", "validation", "epochs", "seconds", "problem",
    }  # fmt: skip
    assert trials[2]["values"].keys() == {"learning_rate"}
    best = max(trials, key=lambda line: line["validation"])
    assert end == {
        "event": "end", "best": best["number"], "validation": best["validation"], "recipe": "mine.toml",
    }  # fmt: skip
    assert Recipe.load("mine.toml").model.architecture == "relgt"
    again = invoke("--trials", "3", "--model", "relgt", "--study", "mine.db", "--json")
    assert again[:2] == (0, out)


def test_the_verb_says_when_time_is_over(invoke: Callable[..., tuple[int, str, str]]) -> None:
    code, out, said = invoke("--budget", "1 ns", "--study", "mine.db")
    assert code == 0
    assert out.splitlines()[-1] == "No trial went to its end yet."
    assert "The budget of 1 ns is over. A longer --budget goes on with mine.db\n" in said
    assert not Path("mine.toml").exists()


def interrupt_when_ready(ready: Callable[[], bool]) -> threading.Thread:
    """Sends Ctrl-C to this process once it listens and something has come."""
    before = signal.getsignal(signal.SIGINT)

    def wait() -> None:
        while signal.getsignal(signal.SIGINT) is before or not ready():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def test_ctrl_c_stops_and_the_same_command_goes_on(
    invoke: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    def has_begun() -> bool:
        if not (tmp_path / "mine.db").exists():
            return False
        opened = sqlite3.connect(f"file:{tmp_path / 'mine.db'}?mode=ro", uri=True)
        try:
            return bool(opened.execute("SELECT count(*) FROM trials").fetchone()[0])
        except sqlite3.OperationalError:  # its tables are not there yet
            return False
        finally:
            opened.close()

    words = ("--trials", "3", "--study", "mine.db", "--set", "epochs=40")
    thread = interrupt_when_ready(has_begun)
    code, _, said = invoke(*words)
    thread.join()
    assert code == 130
    assert "was cut, and will be run again\n" in said
    assert said.endswith("Stopped. The same command goes on.\n")


def test_it_ends_with_the_reason_if_no_trial_can_be_trained(
    invoke: Callable[..., tuple[int, str, str]],
) -> None:
    with pytest.raises(
        QuartetError, match=r"error\[C12\] none of \d trials went to its end; of the last: the loss"
    ):
        invoke("--trials", "3", "--set", "learning_rate=1.0e+30", "--set", "batch_size=32")


def test_a_wrong_call_is_refused_at_once(invoke: Callable[..., tuple[int, str, str]]) -> None:
    says = 'error[C02] the best recipe would be written over the study "mine.toml". Fix: name it .db'
    with pytest.raises(UsageError, match=f"^{re.escape(says)}$"):
        invoke("--study", "mine.toml")
    with pytest.raises(QuartetError, match=r'^error\[T15\] --budget: "soon" is not a length of time'):
        invoke("--budget", "soon")
    assert list(Path().iterdir()) == []
