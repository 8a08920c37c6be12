"""Tuning: two stages, the same trials after a cut, an end by budget, selection by validation, a recipe as TOML."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from quartet.cli.tune import tune
from quartet.config import Recipe
from quartet.errors import QuartetError, UsageError
from quartet.paper import Result, Search
from quartet.paper import runner as runner_module
from quartet.paper.results import read_results
from quartet.paper.runner import Job, train_job
from quartet.paper.tuning import Grids, cells
from quartet.registry import MODELS
from quartet.tasks import write_relbench
from tests.paper.results import faked
from tests.tasks.small import CHURN, small_shop, write_small_shop

pytestmark = pytest.mark.usefixtures("one_thread")  # sums in the same order: figures are compared here

TINY: dict[str, Any] = {
    "width": 16, "heads": 2, "encoder_width": 8, "num_latents": 2, "local_layers": 1, "local_budget": 10,
    "temporal_budget": 5, "collab_budget": 5, "batch_size": 64, "epochs": 2, "seeds_per_epoch": 64,
}  # fmt: skip
NETWORKS = [name for name in MODELS if name not in ("lightgbm", "tower", "auto")]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_shop(tmp_path_factory.mktemp("home") / "shop")


def search_of(shop: Path, folder: Path, **words: Any) -> Search:
    """Of nine local cells and three capacities, or of fewer."""
    return Search.of(str(shop), "churn", folder, **(TINY | words))


# --- what is tried --------------------------------------------------------------------------------


def test_small_has_sizes_by_factors() -> None:
    grids = Grids.of("small")
    assert grids.local == {
        "local_layers": (1, 2, 4), "dropout": (0.1, 0.3, 0.5), "weight_decay": (5e-5, 5e-4, 5e-3),
    }  # fmt: skip
    assert grids.capacity == {"num_latents": (8, 4, 16), "num_archetypes": (64, 32, 128)}


@pytest.mark.parametrize("preset", ["paper", "paper-val"])
def test_paper_has_its_own_grids(preset: str) -> None:
    small, large = (Grids.of(preset, name) for name in ("rel-f1/driver-top3", "rel-hm/user-churn"))
    assert small.local == {
        "local_layers": (1, 4, 8), "dropout": (0.3, 0.4, 0.5), "weight_decay": (5e-5, 5e-4, 5e-3),
    }  # fmt: skip
    assert small.capacity == {"num_latents": (16, 32, 64), "num_archetypes": (128, 256, 512)}
    assert large.local == {
        "local_layers": (4,), "dropout": (0.1, 0.3, 0.5), "weight_decay": (1e-5, 5e-5, 5e-4),
    }  # fmt: skip
    assert large.capacity == small.capacity
    rgp = Grids.of(preset, "rel-f1/driver-top3", "rgp")
    assert rgp.capacity == {"num_latents": (8, 16, 32), "latent_layers": (2, 4, 6)}


@pytest.mark.parametrize("model", NETWORKS)
def test_every_model_has_as_many_cells(model: str) -> None:
    for preset in ("small", "paper"):
        grids = Grids.of(preset, model=model)
        assert grids.model == model
        assert (len(cells(grids.local)), len(cells(grids.capacity))) == (27, 9)
        is_quartet = (
            model == "quartet"
        )  # whose first stage is RelGT's, so that no capacity of its own is known
        assert grids.allowed(1000) == (27, 8 + is_quartet)
        assert grids.allowed(20) == ((15, 5) if is_quartet else (16, 4))
    assert Grids.of("paper", "rel-hm/user-churn", model).allowed(20) == (9, 8 + is_quartet)


def test_a_field_that_is_fixed_is_not_searched() -> None:
    grids = Grids.of("small", local_layers=3, num_archetypes=7)
    assert list(grids.local) == ["dropout", "weight_decay"]
    assert grids.capacity == {"num_latents": (8, 4, 16)}


@pytest.mark.parametrize(
    ("trials", "allowed", "quartets"),
    [
        (1, (1, 0), (0, 1)),
        (2, (1, 1), (1, 1)),
        (5, (4, 1), (4, 1)),
        (10, (9, 1), (8, 2)),
        (11, (9, 2), (9, 2)),
        (99, (9, 2), (9, 3)),
    ],
)
def test_stages_share_the_trials(trials: int, allowed: tuple[int, int], quartets: tuple[int, int]) -> None:
    assert Grids.of(model="relgt", **TINY, learning_rate=1e-3).allowed(trials) == allowed
    assert Grids.of(**TINY).allowed(trials) == quartets


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ({"model": "lightgbm"}, "C02"),
        ({"model": "tower"}, "C02"),
        ({"model": "hgt", "width": 48}, "C03"),  # half the heads fit, twice as many do not
        ({"widht": 3}, "C01"),
    ],
)
def test_a_wrong_search_is_refused(words: dict[str, Any], code: str) -> None:
    with pytest.raises(UsageError, match=rf"^error\[{code}\]"):
        Grids.of(**words)


# --- both stages ----------------------------------------------------------------------------------


def test_grids_are_searched_whole(shop: Path, tmp_path: Path) -> None:
    """Each cell once: local parameters on RelGT with CRW, capacity with the best of them."""
    search = search_of(shop, tmp_path, trials=99)
    trials = list(search.run(1, train=faked))
    assert search.trials == trials
    assert [trial.number for trial in trials] == list(range(12))
    assert [trial.stage for trial in trials] == ["local"] * 9 + ["capacity"] * 3
    assert {trial.recipe["architecture"] for trial in trials[9:]} == {"quartet"}
    assert {
        (trial.recipe["architecture"], trial.recipe["local_sampler"], trial.recipe["branches"])
        for trial in trials[:9]
    } == {("relgt", "walk", ())}
    local = [trial.values for trial in trials[:9]]
    assert sorted(map(repr, local)) == sorted(map(repr, cells(search.grids.local)))
    assert sorted(trial.values["num_archetypes"] for trial in trials[9:]) == [32, 64, 128]
    frozen = max(trials[:9], key=lambda trial: trial.validation or 0)
    assert all(frozen.values.items() <= trial.recipe.items() for trial in trials[9:])
    assert all(trial.recipe["num_archetypes"] == 64 for trial in trials[:9])
    assert search.best == max(trials[9:], key=lambda trial: trial.validation or 0)
    assert all(result.test is None for result in read_results(search.study.results_file))
    assert search.task.vault.openings == []


def test_other_models_are_tuned_by_themselves(shop: Path, tmp_path: Path) -> None:
    """The second stage leaves out the capacity that the first has trained with, and either may hold the best."""
    search = search_of(shop, tmp_path, trials=99, model="relgt", learning_rate=1e-3)
    trials = list(search.run(1, train=faked))
    assert [trial.stage for trial in trials] == ["local"] * 9 + ["capacity"] * 2
    assert {trial.recipe["local_sampler"] for trial in trials} == {"bfs"}
    assert sorted(trial.values["num_archetypes"] for trial in trials[9:]) == [32, 128]
    assert search.best == max(trials, key=lambda trial: trial.validation or 0)


def test_at_the_papers_presets_relgt_has_its_own_centroids(shop: Path, tmp_path: Path) -> None:
    search = Search.of(str(shop), "churn", tmp_path, preset="paper-val", trials=99)
    assert {job.recipe["num_archetypes"] for job in search.jobs("local")} == {4096}
    assert Grids.of("paper", model="relgt").capacity["num_archetypes"][0] == 4096


def test_fewer_trials_are_the_first_of_more(shop: Path, tmp_path: Path) -> None:
    few = list(search_of(shop, tmp_path, trials=5).run(1, train=faked))
    assert [trial.stage for trial in few] == ["local"] * 4 + ["capacity"]
    more = list(search_of(shop, tmp_path, trials=99).run(1, train=faked))
    assert len({repr(trial.recipe) for trial in few[:4] + more}) == 4 + len(more)  # none is trained twice


def test_another_random_seed_searches_in_another_order(shop: Path, tmp_path: Path) -> None:
    orders = [
        [job.arm for job in search_of(shop, tmp_path, trials=99, rng_seed=seed).jobs("local")]
        for seed in (0, 0, 1)
    ]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(orders[2])


def test_a_real_search_finds_what_training_reaches(shop: Path, tmp_path: Path) -> None:
    """The best recipe, trained anew from its file, has the figure by which it was chosen; no test label was opened."""
    search = search_of(shop, tmp_path, trials=3, dropout=0.3)
    trials = list(search.run(1, train=train_job))
    assert [trial.problem for trial in trials] == [""] * 3
    assert len({trial.validation for trial in trials}) > 1
    assert search.best is not None
    file = tmp_path / "best.toml"
    file.write_text(search.to_toml(search.best), encoding="utf-8")
    first, second = file.read_text().splitlines()[1:3]
    assert first.startswith("weight_decay = ")
    assert second.startswith("num_archetypes = ")
    recipe = Recipe.load(str(file))
    job = next(
        job for job in [*search.jobs("local"), *search.jobs("capacity")] if job.recipe == recipe.to_dict()
    )
    assert train_job(job).validation == search.best.validation


def test_of_numbers_the_lowest_error_is_best(shop: Path, tmp_path: Path) -> None:
    words = {key: value for key, value in CHURN.items() if key != "sql"}
    spec = tmp_path / "amount.yaml"
    sql = str(CHURN["sql"]).replace(
        "CAST(COUNT(*) FILTER (WHERE o.bought > t.timestamp) = 0 AS BIGINT)", "COUNT(*)"
    )
    fields = words | {"name": "amount", "task_type": "regression", "sql": sql, "kind": "forecast"}
    spec.write_text(json.dumps(fields), encoding="utf-8")  # JSON is YAML
    search = Search.of(str(shop), str(spec), tmp_path, trials=99, **TINY)
    trials = list(search.run(1, train=faked))
    assert search.metric == "mae"
    assert search.best == min(trials[9:], key=lambda trial: trial.validation or 0)


def test_a_cell_that_cannot_be_trained_leaves_the_others(shop: Path, tmp_path: Path) -> None:
    def fragile(job: Job) -> Result:
        if job.recipe["dropout"] != 0.3:
            raise UsageError("C12", "the loss became nan")
        return faked(job)

    search = search_of(shop, tmp_path, trials=99, weight_decay=0.0)
    trials = list(search.run(1, train=fragile))
    assert [bool(trial.problem) for trial in trials].count(True) == 2
    assert search.trials == trials
    assert search.best is not None
    assert search.best.values.get("dropout", 0.3) == 0.3
    assert len(search_of(shop, tmp_path, trials=99, weight_decay=0.0).trials) == 4  # failures are tried again


# --- going on -------------------------------------------------------------------------------------


def same(trials: list[Any]) -> list[Any]:
    return [replace(trial, seconds=0) for trial in trials]


@pytest.mark.parametrize("cut", [1, 4, 9, 10])
def test_a_search_that_was_cut_goes_on_as_if_it_had_not_been(cut: int, shop: Path, tmp_path: Path) -> None:
    """In the first stage, between the two, and in the second; what was under way is run again."""
    left = cut

    def dying(job: Job) -> Result:
        nonlocal left
        if not left:
            raise SystemExit  # as a kill would: nothing is put in order
        left -= 1
        return faked(job)

    search = search_of(shop, tmp_path / "cut", trials=99)
    with pytest.raises(SystemExit):
        list(search.run(1, train=dying))
    again = search_of(shop, tmp_path / "cut", trials=99)
    assert len(again.trials) == cut
    assert len(list(again.run(1, train=faked))) == 12 - cut
    whole = search_of(shop, tmp_path / "whole", trials=99)
    list(whole.run(1, train=faked))
    assert same(again.trials) == same(whole.trials)


def test_the_budget_ends_it_and_the_next_call_goes_on(shop: Path, tmp_path: Path) -> None:
    search = search_of(shop, tmp_path, trials=99)
    assert list(search.run(1, budget=1e-9, train=faked)) == []
    # A training takes 100 seconds, it says: the first stage has 90, where only one begins whose time is not known.
    stages = [trial.stage for trial in search.run(1, budget=120.0, train=faked)]
    assert stages == ["local", "capacity", "capacity", "capacity"]  # it leaves time for the second
    assert len(list(search.run(1, train=faked))) >= 8
    assert len(search.trials) == 12


def test_other_data_or_another_recipe_are_another_search(shop: Path, tmp_path: Path) -> None:
    list(search_of(shop, tmp_path, trials=3).run(1, train=faked))
    assert len(search_of(shop, tmp_path, trials=3).trials) == 3
    assert search_of(shop, tmp_path, trials=3, epochs=3).trials == []
    write_relbench(small_shop(rng_seed=1), tmp_path / "other")
    shutil.copytree(shop / "tasks", tmp_path / "other" / "tasks")
    assert search_of(tmp_path / "other", tmp_path, trials=3).trials == []


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
    assert Recipe.load(str(file), "shop/churn", "relgt") == Recipe().changed(
        architecture="relgt", local_sampler="bfs", branches=(), width=32, epochs=4, max_recent=None
    )


def test_a_file_may_say_more_of_a_model(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('dropout = 0.1\n[tasks."a/b"]\ndropout = 0.2\nepochs = 4\n[models.relgt]\ndropout = 0.3\n'
                    '[models.relgt.tasks."a/b"]\nlocal_layers = 8\n')  # fmt: skip
    one, two, other = (Recipe.load(str(file), task, "relgt") for task in ("", "a/b", "a/c"))
    assert one == other
    assert (one.model.dropout, one.model.local_layers, one.epochs) == (0.3, 1, 100)
    assert (two.model.dropout, two.model.local_layers, two.epochs) == (0.3, 8, 4)
    assert (Recipe.load(str(file), "a/b").model.dropout, Recipe.load(str(file)).model.dropout) == (0.2, 0.1)


@pytest.mark.parametrize(
    ("text", "model", "code"),
    [
        (None, None, "C01"),
        ("width = \n", None, "C02"),
        ("widht = 3\n", None, "C01"),
        ('architecture = "relgt"\n', "hgt", "C02"),
        ('architecture = "relgd"\n', None, "C01"),
    ],
)
def test_a_wrong_file_is_refused(text: str | None, model: str | None, code: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(UsageError, match=rf"^error\[{code}\]"):
        Recipe.load(str(file), model=model)


# --- the verb -------------------------------------------------------------------------------------

Invoke = Callable[..., tuple[int, str, str]]


@pytest.fixture
def invoke(shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Calls the verb on the small shop, with trainings that are made up: exit code, output and error output."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(runner_module, "_train_in_child", lambda job, _: faked(job))
    fixed = TINY | {"weight_decay": 0.0, "num_archetypes": 4}
    del fixed["num_latents"]
    words = [word for name, value in fixed.items() for word in ("--set", f"{name}={value}")]
    app = typer.Typer()
    app.command()(tune)

    def run(*more: str) -> tuple[int, str, str]:
        call = [str(shop), "churn", "--jobs", "1", *words, *more]
        done = CliRunner().invoke(app, call, catch_exceptions=False)
        return done.exit_code, done.stdout, done.stderr

    return run


def test_people_see_trials_and_find_the_best_recipe(invoke: Invoke) -> None:
    code, out, said = invoke("--trials", "5")
    assert code == 0
    lines = out.splitlines()
    assert [line.split()[2] for line in lines[:5]] == ["local"] * 3 + ["capacity"] * 2
    rows = [line.split() for line in lines if re.match(r"\d", line)]
    (best,) = (row for row in rows if "●" in row)
    assert best[4] == max(row[4] for row in rows if row[1] == "capacity")
    recipe = Recipe.load("studies/churn-quartet.toml")
    assert (str(recipe.model.dropout), str(recipe.model.num_latents)) == (best[2], best[3])
    assert (recipe.model.num_archetypes, recipe.epochs) == (4, 2)
    assert "churn --preset studies/churn-quartet.toml\n" in said


def test_the_protocol_is_said_as_everywhere(invoke: Invoke) -> None:
    assert invoke("--trials", "1", "--protocol", "clamped")[0] == 0
    assert Recipe.load("studies/churn-quartet.toml").protocol == "clamped"


def test_programs_read_one_object_a_trial(invoke: Invoke) -> None:
    words = ("--trials", "3", "--model", "relgt", "--out", "mine.toml", "--json")
    code, out, _ = invoke(*words)
    assert code == 0
    *trials, end = map(json.loads, out.splitlines())
    assert [(line["event"], line["number"], line["stage"]) for line in trials] == [
        ("trial", 0, "local"), ("trial", 1, "local"), ("trial", 2, "capacity"),
    ]  # fmt: skip
    assert trials[0].keys() >= {"metric", "values", "validation", "epochs", "seconds", "problem", "recipe"}
    assert trials[2]["values"].keys() == {"learning_rate"}
    best = max(trials, key=lambda line: line["validation"])
    assert end == {
        "event": "end", "best": best["number"], "validation": best["validation"], "recipe": "mine.toml",
    }  # fmt: skip
    assert Recipe.load("mine.toml").model.architecture == "relgt"
    assert invoke(*words)[:2] == (0, out)


def test_the_verb_says_when_time_is_over(invoke: Invoke) -> None:
    code, _, said = invoke("--budget", "1 ns")
    assert code == 0
    assert "The budget of 1 ns is over. The same command goes on.\n" in said
    assert not Path("studies/churn-quartet.toml").exists()


@pytest.mark.parametrize("at", [3, 5])
def test_ctrl_c_stops_and_the_same_command_goes_on(
    at: int, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the end of the first stage, which has trained no QUARTET yet, and in the second."""
    calls = 0

    def interrupted(job: Job, _: object) -> Result:
        nonlocal calls
        calls += 1
        if calls == at:
            raise KeyboardInterrupt
        return faked(job)

    monkeypatch.setattr(runner_module, "_train_in_child", interrupted)
    code, _, said = invoke("--trials", "5")
    assert code == 130
    assert "Stopped. The same command goes on.\n" in said
    assert Path("studies/churn-quartet.toml").is_file() == (at == 5)  # the best so far
    code, out, _ = invoke("--trials", "5")
    assert code == 0
    assert calls == 6
    assert Recipe.load("studies/churn-quartet.toml").epochs == 2
    assert len([line for line in out.splitlines() if line.startswith("trial ") and "/" in line]) == 5


def test_it_ends_with_the_reason_if_no_trial_can_be_trained(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> Result:
        raise RuntimeError("error[C12] the loss became nan")

    monkeypatch.setattr(runner_module, "_train_in_child", failing)
    with pytest.raises(QuartetError, match=r"error\[C12\] none of 2 trials .* the loss became nan"):
        invoke("--trials", "3")


def test_a_wrong_call_is_refused_at_once(invoke: Invoke) -> None:
    with pytest.raises(UsageError, match=r"^error\[C02\].* name a \.toml file"):
        invoke("--out", "mine.db")
    with pytest.raises(QuartetError, match=r"^error\[T15\] --budget: "):
        invoke("--budget", "soon")
    assert list(Path().iterdir()) == []
