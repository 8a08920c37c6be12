"""Ensembles: the mean of their members' scores, bit for bit, and of one task alone."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from quartet.cli.main import app
from quartet.config import Recipe
from quartet.database import Database
from quartet.errors import UsageError
from quartet.evaluation.metrics import roc_auc
from quartet.runs import Ensemble, Predictor, Run, evaluate_runs, fit
from quartet.runs.evaluate import evaluate_run
from quartet.tasks import Task
from tests.tasks.small import CHURN, small_shop, write_small_shop
from tests.training.test_trainer import SIZE, TINY

pytestmark = pytest.mark.usefixtures("one_thread")  # sums in the same order: bits are compared here

SHORT = TINY.changed(epochs=1)
AT = "2023-10-01"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ensemble")


@pytest.fixture(scope="module")
def churn(folder: Path) -> Task:
    return Task.load(Database.load(str(write_small_shop(folder / "shop"))), "churn")


@pytest.fixture(scope="module")
def runs(churn: Task, folder: Path) -> list[Run]:
    """Two networks, one of which sees past labels, and trees: each from another random seed."""
    pytest.importorskip("lightgbm")
    recipes = [
        SHORT,
        SHORT.changed(rng_seed=1, history=True),
        Recipe.load("small", model="lightgbm", rng_seed=2),
    ]
    return [
        fit(churn, recipe, folder / "runs" / str(number), cache=folder / "cache")
        for number, recipe in enumerate(recipes)
    ]


def folders(runs: list[Run]) -> list[Path]:
    return [run.folder for run in runs]


# --- predictions ------------------------------------------------------------------------------------


def test_scores_are_the_means_of_the_members_scores(churn: Task, runs: list[Run]) -> None:
    found = Ensemble.load(*folders(runs)).predict(churn.source, at=AT)
    each = [Predictor.load(run.folder).predict(churn.source, at=AT) for run in runs]
    assert found.column_names == ["customer", "time", "score", "calibrated"] == each[0].column_names
    for name in ("customer", "time"):
        assert found[name] == each[0][name]
    for name in ("score", "calibrated"):
        mean = np.mean([table[name].to_numpy() for table in each], axis=0)
        assert np.array_equal(found[name].to_numpy(), mean)
        assert not np.array_equal(mean, each[0][name].to_numpy())


def test_one_model_is_its_own_ensemble(churn: Task, runs: list[Run]) -> None:
    alone = Predictor.load(runs[0].folder).predict(churn.source, [3, 7], AT)
    assert Ensemble.load(runs[0].folder).predict(churn.source, [3, 7], AT) == alone


def test_progress_counts_the_seeds_of_each_member(churn: Task, runs: list[Run]) -> None:
    told: list[int] = []
    Ensemble.load(*folders(runs)).predict(churn.source, [3, 7], AT, told.append)
    assert sum(told) == 2 * len(runs)


def test_scores_are_calibrated_only_if_all_are(churn: Task, runs: list[Run]) -> None:
    ensemble = Ensemble.load(*folders(runs))
    ensemble.members[1].checkpoint.facts["calibration"] = None
    assert ensemble.predict(churn.source, at=AT).column_names == ["customer", "time", "score"]


def test_classes_are_chosen_by_the_mean(tmp_path: Path) -> None:
    task = Task.from_sql(small_shop(), **CHURN | {"sql": SIZE, "task_type": "multiclass_classification"})
    runs = [fit(task, SHORT.changed(rng_seed=s), tmp_path / str(s), cache=tmp_path / "cache") for s in (0, 1)]
    found = Ensemble.load(*folders(runs)).predict(task.full_database, at=AT)
    each = [Predictor.load(run.folder).predict(task.full_database, at=AT) for run in runs]
    assert found.column_names == each[0].column_names
    names = [name for name in found.column_names if name.startswith("score_")]
    scores = np.stack([np.mean([t[name].to_numpy() for t in each], axis=0) for name in names], 1)
    assert np.array_equal(np.stack([found[name].to_numpy() for name in names], 1), scores)
    assert [f"score_{one}" for one in found["predicted"].to_pylist()] == [names[k] for k in scores.argmax(1)]


def test_models_of_two_tasks_are_refused(runs: list[Run], tmp_path: Path) -> None:
    other = fit(
        Task.from_sql(small_shop(), **CHURN | {"name": "other"}),
        SHORT,
        tmp_path / "runs",
        cache=tmp_path / "cache",
    )
    with pytest.raises(UsageError) as caught:
        Ensemble.load(runs[0].folder, other.folder)
    assert str(caught.value) == (
        "error[C05] the models are of different tasks: name is churn and other."
        " Fix: ask models of one task together"
    )


# --- evaluation -------------------------------------------------------------------------------------


@pytest.mark.parametrize("split", ["val", "test"])
def test_the_mean_is_measured_beside_each_member(split: str, churn: Task, runs: list[Run]) -> None:
    found = evaluate_runs(runs, churn, split)  # type: ignore[arg-type]
    names = [row.name for row in found.rows]
    assert names[:5] == [
        "mean of 3 runs",
        "1: quartet, random seed 0",
        "2: quartet, history, random seed 1",
        "3: lightgbm, random seed 2",
        "constant",
    ]
    for place, run in enumerate(runs):
        alone = evaluate_run(run, churn, split)  # type: ignore[arg-type]
        assert found.rows[1 + place].measures == alone.rows[0].measures
    # The rules see what the member with a history sees.
    assert found.rows[4:] == evaluate_run(runs[1], churn, split).rows[1:]  # type: ignore[arg-type]


def test_the_mean_of_what_was_kept_is_what_is_measured(churn: Task, runs: list[Run]) -> None:
    kept = [pq.read_table(run.folder / "predictions" / "val.parquet")["score"].to_numpy() for run in runs]
    found = evaluate_runs(runs, churn, "val", with_rules=False)
    labels = np.asarray(churn.seeds("val").target)
    assert len(found.rows) == 4
    assert found.rows[0].measures["roc_auc"].value == roc_auc(labels, np.mean(kept, axis=0))


# --- the command line -------------------------------------------------------------------------------


def invoke(*words: object) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


def test_several_runs_are_evaluated_together(runs: list[Run]) -> None:
    before = [sorted(path.name for path in run.folder.iterdir()) for run in runs]
    found = json.loads(invoke("evaluate", *folders(runs), "--split", "val", "--json"))
    assert found["rows"][0]["name"] == "mean of 3 runs"
    assert "mean of 3 runs" in invoke("evaluate", *folders(runs), "--split", "val")
    assert [sorted(path.name for path in run.folder.iterdir()) for run in runs] == before


def test_several_models_predict_together(churn: Task, runs: list[Run], folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "scores.csv"
    first, *others = folders(runs)
    words = [word for other in others for word in ("--with", other)]
    invoke("predict", first, folder / "shop", "--at", AT, *words, "--out", out)
    found = csv.read_csv(out)
    expected = Ensemble.load(*folders(runs)).predict(churn.source, at=AT)
    assert np.array_equal(found["score"].to_numpy(), expected["score"].to_numpy())
