"""Ensembles: the mean of their members' scores, bit for bit, and of one task alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.csv as csv
import pytest

from quartet.config import Recipe
from quartet.database import Database
from quartet.errors import UsageError
from quartet.evaluation import measures
from quartet.runs import Ensemble, TrainedModel, fit, load
from quartet.tasks import Task
from tests.tasks.small import write_small_shop
from tests.trained import KINDS, TINY, TREES, Heard, churn, invoke

pytestmark = pytest.mark.usefixtures("one_thread")  # sums in the same order: bits are compared here
SHORT = TINY.changed(epochs=1)
AT = "2023-10-01"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ensemble")


@pytest.fixture(scope="module")
def task(folder: Path) -> Task:
    return Task.load(Database.load(str(write_small_shop(folder / "shop"))), "churn")


def trained(task: Task, recipe: Recipe, folder: Path) -> TrainedModel:
    return fit(task, recipe=recipe, runs=folder / "runs", cache=folder / "cache", listener=Heard())


@pytest.fixture(scope="module")
def models(task: Task, folder: Path) -> list[TrainedModel]:
    """Two networks, one of which sees past labels, and trees: each from another random seed."""
    recipes = [SHORT, SHORT.changed(rng_seed=1, past_labels=True), TREES.changed(rng_seed=2)]
    return [trained(task, recipe, folder) for recipe in recipes]


@pytest.fixture(scope="module")
def folders(models: list[TrainedModel]) -> list[Path]:
    return [model.folder for model in models]


# --- predictions ------------------------------------------------------------------------------------


def test_scores_are_the_means_of_the_members_scores(
    task: Task, models: list[TrainedModel], folders: list[Path]
) -> None:
    database = task.full_database
    each = [model.on(database, listener=Heard()).predict(at=AT).table for model in models]
    for ensemble in (Ensemble(*models), load(*folders), Ensemble(folders[0], *models[1:])):
        table = ensemble.on(database, listener=Heard()).predict(at=AT).table
        assert (
            table.column_names == ["customer", "time", "score", "calibrated", "set"] == each[0].column_names
        )
        for name in ("customer", "time"):
            assert table[name] == each[0][name]
        for name in ("score", "calibrated"):
            mean = np.mean([one[name].to_numpy() for one in each], axis=0)
            assert np.array_equal(table[name].to_numpy(), mean)
            assert not np.array_equal(mean, each[0][name].to_numpy())


def test_one_model_is_its_own_ensemble(task: Task, models: list[TrainedModel]) -> None:
    one, other = (
        each.on(task.full_database, listener=Heard()).predict([3, 7], AT)
        for each in (models[0], Ensemble(models[0]))
    )
    assert one.table.equals(other.table)


def test_progress_counts_the_seeds_of_each_member(task: Task, models: list[TrainedModel]) -> None:
    heard = Heard()
    Ensemble(*models).on(task.full_database, listener=heard).predict([3, 7], AT)
    assert sum(done for done, _ in heard.work["scores"]) == 2 * len(models)


def test_scores_are_calibrated_only_if_all_are(task: Task, models: list[TrainedModel]) -> None:
    members = [member for model in models for member in model.members]
    members[1] = (replace(members[1][0], calibration=None), members[1][1])
    table = TrainedModel(members).on(task.full_database, listener=Heard()).predict(at=AT).table
    assert table.column_names == ["customer", "time", "score"]


def test_classes_are_chosen_by_the_mean(tmp_path: Path) -> None:
    task = churn(**KINDS["multiclass_classification"])
    models = [trained(task, SHORT.changed(rng_seed=seed), tmp_path) for seed in (0, 1)]
    both = Ensemble(*models).on(task.full_database, listener=Heard()).predict(at=AT).table
    each = [model.on(task.full_database, listener=Heard()).predict(at=AT).table for model in models]
    assert both.column_names == each[0].column_names
    names = [name for name in both.column_names if name.startswith("score_")]
    scores = np.stack([np.mean([one[name].to_numpy() for one in each], axis=0) for name in names], 1)
    assert np.array_equal(np.stack([both[name].to_numpy() for name in names], 1), scores)
    assert [f"score_{one}" for one in both["predicted"].to_pylist()] == [names[k] for k in scores.argmax(1)]


def test_models_of_two_tasks_are_refused(models: list[TrainedModel], tmp_path: Path) -> None:
    other = trained(churn(name="other"), TREES, tmp_path)
    with pytest.raises(UsageError, match=r"C05.*different tasks: .*name.*churn, other.*of one task"):
        Ensemble(models[0], other)
    with pytest.raises(UsageError, match=r"C02.*no models"):
        Ensemble()


# --- evaluation -------------------------------------------------------------------------------------


def test_the_mean_is_measured_beside_each_member(task: Task, models: list[TrainedModel]) -> None:
    rows = Ensemble(*models).evaluate(task, listener=Heard()).rows
    assert [row.name for row in rows[:5]] == [
        "mean of 3 models",
        "1: quartet, random seed 0",
        "2: quartet, past labels, random seed 1",
        "3: lightgbm, random seed 2",
        "constant",
    ]
    alone = [model.evaluate(task, rules=model is models[1], listener=Heard()).rows for model in models]
    for row, own in zip(rows[1:4], alone, strict=True):
        assert row.measures == own[0].measures
    assert rows[4:] == alone[1][1:]  # the rules see what the member with past labels sees


def test_the_mean_of_what_was_kept_is_what_is_measured(task: Task, models: list[TrainedModel]) -> None:
    kept = [model.run.predictions("val")["score"].to_numpy() for model in models]
    rows = Ensemble(*models).evaluate(task, split="val", rules=False, listener=Heard()).rows
    labels = np.asarray(task.seeds("val").target)
    expected = measures(task.spec.type, labels, np.mean(kept, axis=0), num_resamples=0)
    assert len(rows) == 4
    assert rows[0].measures["roc_auc"].value == expected["roc_auc"].value


def test_of_different_protocols_the_first_decides(
    task: Task, models: list[TrainedModel], folder: Path
) -> None:
    """The other member is asked anew; under one protocol its scores are those of the other."""
    rolling = trained(task, TREES.changed(rng_seed=2, protocol="rolling"), folder)
    both = Ensemble(models[2], rolling).evaluate(task, rules=False, listener=Heard())
    assert both.protocol == "frozen"
    assert both.rows[1].measures == both.rows[2].measures == both.rows[0].measures


# --- the command line -------------------------------------------------------------------------------


def test_several_runs_are_evaluated_together(folders: list[Path]) -> None:
    before = [sorted(path.name for path in folder.iterdir()) for folder in folders]
    values = json.loads(invoke("evaluate", *folders, "--split", "val", "--json"))
    assert values["rows"][0]["name"] == "mean of 3 models"
    assert [sorted(path.name for path in folder.iterdir()) for folder in folders] == before


def test_several_models_predict_together(
    task: Task, folders: list[Path], folder: Path, tmp_path: Path
) -> None:
    first, *others = folders
    words = [word for other in others for word in ("--with", other)]
    out = tmp_path / "scores.csv"
    invoke("predict", first, folder / "shop", "--at", AT, *words, "--out", out, "--threads", 1)
    expected = load(*folders).on(task.full_database, listener=Heard()).predict(at=AT).top().table
    assert np.array_equal(csv.read_csv(out)["score"].to_numpy(), expected["score"].to_numpy())
