"""Evaluation: the vault is opened once, rules stand beside the model, and every form tells the same."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from quartet.runs import TrainedModel, fit, load, score_on_test
from quartet.tasks import Split, Task
from tests.tasks.small import CHURN, small_shop
from tests.trained import TINY, TREES, Heard, churn, nanoseconds

pytestmark = pytest.mark.usefixtures("one_thread")  # sums in the same order: bits are compared here


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def model(folder: Path) -> TrainedModel:
    return fit(churn(), recipe=TINY, runs=folder, cache=folder / "cache", listener=Heard())


def test_the_vault_is_opened_once_for_each_evaluation_of_test(model: TrainedModel) -> None:
    task = churn()
    model.evaluate(task, split="val", rules=False, listener=Heard())
    assert task.vault.openings == []
    evaluation = model.evaluate(task, listener=Heard())
    assert len(task.vault.openings) == 1
    assert model.folder.name in str(task.vault.openings[0])
    metric, value = score_on_test(model.run, task)
    assert len(task.vault.openings) == 2
    assert evaluation.rows[0].measures[metric].value == value


def test_past_labels_open_no_vault(folder: Path) -> None:
    task = churn()
    recipe = TREES.changed(past_labels=True, protocol="rolling")
    model = fit(task, recipe=recipe, runs=folder, listener=Heard())
    assert task.vault.openings == []
    model.evaluate(listener=Heard())
    assert len(task.vault.openings) == 1


def test_a_table_a_frame_and_a_dict_tell_the_same(model: TrainedModel) -> None:
    evaluation = model.evaluate(listener=Heard())
    names = [row.name for row in evaluation.rows]
    assert names == ["quartet", "constant", "entity mean", "last 12 labels", "LightGBM on counts"]
    frame = evaluation.to_pandas()
    assert list(frame["model"]) == names
    text = str(evaluation)
    for row, line in zip(evaluation.rows, frame.to_dict("records"), strict=True):
        measure = row.measures["roc_auc"]
        assert (measure.value, measure.low, measure.high) == (
            line["roc_auc"],
            line["roc_auc_low"],
            line["roc_auc_high"],
        )
        assert row.name in text
        assert f"{measure.value:.4f}" in text
    values = json.loads(json.dumps(evaluation.to_dict()))
    assert [row["name"] for row in values["rows"]] == names
    assert values == model.run.read("evaluation-test-frozen.json")


def test_bins_add_up_to_the_calibration_error(model: TrainedModel) -> None:
    evaluation = model.evaluate(listener=Heard())
    gaps = [bin.count * abs(bin.predicted - bin.came_true) for bin in evaluation.bins]
    assert sum(bin.count for bin in evaluation.bins) == evaluation.num_rows
    error = evaluation.rows[0].measures["calibration_error"].value
    assert sum(gaps) / evaluation.num_rows == pytest.approx(error, abs=1e-12)
    assert (model.folder / "calibration-test-frozen.svg").read_text().startswith("<svg")


@pytest.mark.parametrize("recipe", [TINY, TREES], ids=["quartet", "lightgbm"])
def test_under_the_other_protocol_the_model_is_asked_anew(recipe: object, folder: Path) -> None:
    """Test has one time, the cut-off, where a frozen database ends: both protocols see the same.

    Validation ends before: of it the scores are kept, and nobody is asked again.
    """
    model = fit(churn(), recipe=recipe, runs=folder, cache=folder / "cache", listener=Heard())  # type: ignore[arg-type]
    splits: tuple[Split, ...] = ("val", "test")
    for split in splits:
        heard = Heard()
        frozen, rolling = (
            model.evaluate(split=split, protocol=protocol, rules=False, listener=heard)
            for protocol in ("frozen", "rolling")
        )
        assert [frozen.protocol, rolling.protocol] == ["frozen", "rolling"]
        assert frozen.rows == rolling.rows
        assert frozen.bins == rolling.bins
        asked = sum(done for done, _ in heard.work.get("scores", ()))
        assert asked == (frozen.num_rows if split == "test" else 0)  # once


def test_rolling_seeds_see_more_than_frozen_ones(folder: Path) -> None:
    task = churn(num_eval_timestamps=2)
    model = fit(task, recipe=TREES, runs=folder, listener=Heard())
    whole, end = task.full_database, task.splits.test
    for protocol, database in (("frozen", whole.upto(end)), ("rolling", whole), ("clamped", whole)):
        live = model.on(database, listener=Heard())
        found = model.evaluate(protocol=protocol, rules=False, listener=Heard())
        seeds = task.under(protocol).asked_seeds("test")
        customers = [f"C{node - task.full_database.offsets['customers']:02d}" for node in seeds.node]
        scores = live.predict(customers, seeds.time.tolist()).table["score"].to_numpy()
        labels = np.asarray(task.vault.open("compare with the evaluation"))
        assert found.rows[0].measures["brier"].value == pytest.approx(
            np.mean((scores - labels) ** 2), abs=1e-12
        )
    kept = model.run.predictions("test")
    assert set(nanoseconds(kept)) == set(task.seeds("test").time.tolist())


def test_a_loaded_model_is_evaluated_on_the_task_that_it_is_given(model: TrainedModel) -> None:
    """A database in memory cannot be found again."""
    again = load(model.folder)
    given = again.evaluate(churn(), rules=False, listener=Heard())
    assert given == model.evaluate(rules=False, listener=Heard())


def test_another_task_is_refused(model: TrainedModel) -> None:
    from quartet.errors import UsageError

    with pytest.raises(UsageError, match=r"C05.*data"):
        model.evaluate(Task.from_sql(small_shop(rng_seed=1), **CHURN), listener=Heard())
