"""`fit`: a run is kept whole, goes on bit for bit where it was cut, tells its listener, and refuses the rest."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quartet.config import Recipe
from quartet.errors import IntegrityError, QuartetError, Stopped, TaskError, UsageError
from quartet.findings import Level
from quartet.registry import MODELS
from quartet.runs import Checkpoint, Run, TrainedModel, fit, load
from quartet.tasks import Task
from quartet.training import Fitted
from tests.tasks.small import CHURN, DAY, START, small_shop
from tests.trained import (
    KINDS,
    QUICK,
    TINY,
    Heard,
    asked_again,
    churn,
    from_labels,
    named_shop,
    network_of,
    same_weights,
    without_seconds,
)

pytestmark = pytest.mark.usefixtures("one_thread")  # sums in the same order: bits are compared here

KEPT = {
    "recipe.json", "task.json", "environment.json", "metrics.jsonl", "curves.svg", "model", "predictions",
}  # fmt: skip


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def task() -> Task:
    return churn()


@pytest.fixture(scope="module")
def heard() -> Heard:
    return Heard()


@pytest.fixture(scope="module")
def model(task: Task, cache: Path, heard: Heard, tmp_path_factory: pytest.TempPathFactory) -> TrainedModel:
    """A network that went to the end of its recipe."""
    return fit(task, recipe=TINY, runs=tmp_path_factory.mktemp("runs"), cache=cache, listener=heard)


# --- what is kept -----------------------------------------------------------------------------------


def test_a_run_is_kept_whole(model: TrainedModel, task: Task) -> None:
    run = model.run
    assert {path.name for path in run.folder.iterdir()} == KEPT
    assert [epoch.number for epoch in run.epochs()] == [0, 1]
    assert run.recipe == model.recipe == TINY.changed(protocol="frozen")  # which `auto` has chosen
    assert run.is_done
    assert (run.folder.parent / "latest").resolve() == run.folder.resolve()
    assert model.task is task
    packages = run.read("environment.json")["packages"]
    assert packages["torch"]
    assert packages["quartet-rdl"]


def test_the_best_epoch_is_kept(model: TrainedModel) -> None:
    values = [epoch.validation for epoch in model.run.epochs()]
    checkpoint = Checkpoint.load(model.run.model_folder)
    assert model.validation == checkpoint.validation == max(values)
    assert checkpoint.best_epoch == int(np.argmax(values))  # of equal ones the first


def test_predictions_of_test_have_no_labels(model: TrainedModel, task: Task) -> None:
    for split in ("val", "test"):
        scores = model.run.predictions(split)
        assert scores.column_names == ["customer", "time", "score", "calibrated"]
        assert scores.num_rows == len(task.seeds(split))
    assert task.vault.openings == []


def test_live_predictions_are_those_of_the_run(model: TrainedModel, task: Task) -> None:
    """The same bits, sampled anew without a cache, from the model as it was saved."""
    kept = model.run.predictions("val")
    assert asked_again(load(model.folder), task.full_database, kept).equals(kept)


# --- every model --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_every_model_fits_saves_loads_and_predicts_the_same_bits(
    name: str, task: Task, cache: Path, tmp_path: Path
) -> None:
    """One protocol: nothing here asks which model it is."""
    settings = {} if name == "lightgbm" else QUICK
    heard = Heard()
    model = fit(task, name, runs=tmp_path, cache=cache, listener=heard, **settings)
    assert {path.name for path in model.folder.iterdir()} == KEPT
    ((fitted, folder),) = heard.ended
    assert isinstance(fitted, Fitted)
    assert folder == model.folder
    assert fitted.model.num_parameters > 0
    assert fitted.model.summary in repr(model)
    assert fitted.best in heard.epochs or fitted.model.members
    again = load(folder)
    assert again.recipe == model.recipe
    kept = model.run.predictions("test")
    assert asked_again(model, task.full_database, kept).equals(kept)
    assert asked_again(again, task.full_database, kept).equals(kept)


def test_auto_shows_what_its_members_are_worth(task: Task, cache: Path, tmp_path: Path) -> None:
    """Their scores are kept with the run, and made anew under another protocol; the blend is made of them."""
    model = fit(task, "auto", runs=tmp_path, cache=cache, listener=Heard(), **QUICK)
    whole = model.members[0][0].model
    names = ["auto", *(f"- {member.name}, random seed {member.rng_seed}" for member in whole.members)]
    for protocol in ("frozen", "rolling"):
        shown = model.evaluate(protocol=protocol, rules=False, listener=Heard())
        assert [row.name for row in shown.rows] == names
    assert len(model.run.kept_members("test")) == len(whole.members)


def begun_with(task: Task, runs: Path, **words: Any) -> Recipe:
    """The recipe of a run that is stopped as soon as it has begun."""
    with pytest.raises(Stopped) as stopped:
        fit(task, runs=runs, cache=runs, listener=Heard(stop_at=0), **words)
    return Run.open(str(stopped.value.folder)).recipe


def test_without_a_model_or_a_preset_auto_is_fitted_with_past_labels(task: Task, tmp_path: Path) -> None:
    """A preset is one of Quartet unless another model is named; what is said holds."""
    small = Recipe.load("small", protocol="frozen")
    auto = Recipe.load("small", model="auto", protocol="frozen")
    assert task.tells_past_labels
    assert begun_with(task, tmp_path) == auto.changed(past_labels=True)
    assert begun_with(task, tmp_path, model="auto") == auto.changed(past_labels=True)
    assert begun_with(task, tmp_path, past_labels=False) == auto
    assert begun_with(task, tmp_path, preset="small") == small
    assert begun_with(task, tmp_path, preset="small", model="auto").model.architecture == "auto"
    assert begun_with(task, tmp_path, model="quartet") == small
    assert begun_with(task, tmp_path, recipe=small) == small
    assert begun_with(task, tmp_path, **QUICK) == auto.changed(past_labels=True, **QUICK)


def test_labels_that_nobody_can_make_are_not_asked_for(task: Task, tmp_path: Path) -> None:
    """Of a table of labels nobody knows those of tomorrow."""
    given = from_labels(task)
    assert not given.tells_past_labels
    recipe = begun_with(given, tmp_path)
    assert (recipe.model.architecture, recipe.past_labels) == ("auto", False)


@pytest.mark.parametrize("kind", ["regression", "multiclass_classification"])
def test_numbers_and_classes_go_the_whole_way(kind: str, tmp_path: Path) -> None:
    """From a task to its evaluation: amounts in their own unit, and probabilities of classes."""
    task = Task.from_sql(small_shop(), **KINDS[kind])
    model = fit(task, recipe=TINY, runs=tmp_path, cache=tmp_path, listener=Heard())
    kept = model.run.predictions("test")
    assert asked_again(load(model.folder), task.full_database, kept).equals(kept)
    if kind == "regression":
        assert kept.column_names == ["customer", "time", "score"]
        labels = np.asarray(task.seeds("train").target)
        assert labels.min() <= np.median(kept["score"]) <= labels.max()
        assert np.median(kept["score"]) > 1  # euros, not standard deviations
    else:
        classes = ["more", "none", "one"]
        names = [f"score_{name}" for name in classes]
        assert kept.column_names == ["customer", "time", "predicted", "calibrated", *names]
        scores = np.stack([np.asarray(kept[name]) for name in names], 1)
        assert scores.sum(1) == pytest.approx(1)
        assert kept["predicted"].to_pylist() == [classes[place] for place in scores.argmax(1)]
    rows = model.evaluate(listener=Heard()).rows
    assert [row.name for row in rows][:2] == ["quartet", "constant"]
    assert all(measure.value is not None for measure in rows[0].measures.values())


def test_without_names_a_model_does_not_know_them(tmp_path: Path) -> None:
    """Other names, the same predictions; with names they differ."""
    given, changed = ([f"{word}{number}" for number in range(60)] for word in ("n", "other"))
    shops = named_shop(given), named_shop(changed)
    task = Task.from_sql(shops[0], **CHURN)
    for is_used in (True, False):
        settings = QUICK | {"use_row_names": is_used}
        model = fit(task, "quartet", runs=tmp_path, cache=tmp_path, listener=Heard(), **settings)
        one, other = (model.on(shop).predict(at="2023-10-01").table["score"] for shop in shops)
        assert (one == other) is not is_used


# --- the listener -------------------------------------------------------------------------------------


def test_a_listener_is_told_everything_in_order(heard: Heard, model: TrainedModel, task: Task) -> None:
    found, told = heard.calls[: len(heard.findings)], heard.calls[len(heard.findings) :]
    assert set(found) == {"finding"}
    assert told == ["begin", *["step"] * 5, "epoch", *["step"] * 5, "epoch", "end"]
    assert ("L09", Level.WARNING) in [(finding.code, finding.level) for finding in heard.findings]
    assert heard.findings == list(task.check())
    (training,) = heard.begun
    assert training.data.task.name == "churn"
    assert {"model", "cost"} <= {name for name, _ in training.lines()}
    assert heard.steps == [32, 32, 32, 32, 22] * 2
    assert [epoch.number for epoch in heard.epochs] == [0, 1]
    assert heard.epochs == model.run.epochs()
    ((fitted, folder),) = heard.ended
    assert folder == model.folder
    assert fitted.epochs == heard.epochs
    assert fitted.best.validation == model.validation
    for split in ("train", "val", "test"):
        ((done, total),) = {
            (sum(done for done, _ in told), told[0][1]) for what, told in heard.work.items() if split in what
        }
        assert done == total == len(task.seeds(split))


@pytest.mark.parametrize("cut", [0, 3, 5])
def test_a_run_that_is_stopped_goes_on_as_if_it_had_not_been(
    cut: int, task: Task, cache: Path, model: TrainedModel, tmp_path: Path
) -> None:
    with pytest.raises(Stopped) as stopped:
        fit(task, recipe=TINY, runs=tmp_path, cache=cache, listener=Heard(stop_at=cut))
    folder = Path(str(stopped.value.folder))
    assert str(folder) in str(stopped.value)
    assert stopped.value.exit_code == 130
    assert not Run.open(folder).is_done
    resumed = fit(task, resume=folder, cache=cache, listener=Heard())
    assert resumed.folder == folder.resolve()
    assert resumed.run.is_done
    assert without_seconds(resumed.run.epochs()) == without_seconds(model.run.epochs())
    assert same_weights(network_of(resumed), network_of(model))
    assert same_weights(network_of(load(folder)), network_of(load(model.folder)))
    for split in ("val", "test"):
        assert resumed.run.predictions(split).equals(model.run.predictions(split))


@pytest.fixture(scope="module")
def further(task: Task, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> TrainedModel:
    """The network of `model`, which went on with train and validation together."""
    recipe, runs = TINY.changed(refit="always"), tmp_path_factory.mktemp("further")
    return fit(task, recipe=recipe, runs=runs, cache=cache, listener=Heard())


def test_a_network_that_has_seen_validation_keeps_its_scores_from_before(
    model: TrainedModel, further: TrainedModel, task: Task
) -> None:
    """And the calibration; scores of test are those of the network that has."""
    assert (network_of(model).is_refit, network_of(further).is_refit) == (False, True)
    assert (network_of(load(model.folder)).is_refit, network_of(load(further.folder)).is_refit) == (
        False,
        True,
    )
    kept = further.run.predictions("val")
    assert kept.equals(model.run.predictions("val"))  # scores and calibrated ones
    assert further.members[0][0].calibration == model.members[0][0].calibration
    assert further.validation == model.validation
    assert not further.run.predictions("test").equals(model.run.predictions("test"))
    assert not asked_again(further, task.full_database, kept)["score"].equals(kept["score"])
    test = further.run.predictions("test")
    assert asked_again(load(further.folder), task.full_database, test).equals(test)
    with pytest.raises(UsageError, match=r"C10.*has seen the labels of validation"):
        load(further.run.model_folder).evaluate(task, split="val", rules=False, listener=Heard())


@pytest.mark.parametrize("cut", [3, 10])
def test_it_is_stopped_and_goes_on_as_well(
    cut: int, task: Task, cache: Path, further: TrainedModel, tmp_path: Path
) -> None:
    """Within training, and after its ten steps."""
    with pytest.raises(Stopped) as stopped:
        fit(task, recipe=further.recipe, runs=tmp_path, cache=cache, listener=Heard(stop_at=cut))
    resumed = fit(task, resume=str(stopped.value.folder), cache=cache, listener=Heard())
    assert same_weights(network_of(resumed), network_of(further))
    for split in ("val", "test"):
        assert resumed.run.predictions(split).equals(further.run.predictions(split))


def test_stopped_trees_keep_nothing_and_begin_anew(task: Task, tmp_path: Path) -> None:
    with pytest.raises(Stopped) as stopped:
        fit(task, "lightgbm", runs=tmp_path, listener=Heard(stop_at=0))
    run = Run.open(str(stopped.value.folder))
    assert not run.is_done
    again = fit(task, resume=run.folder, listener=Heard())
    assert again.run.is_done
    whole = fit(task, "lightgbm", runs=tmp_path, listener=Heard())
    assert again.run.predictions("test").equals(whole.run.predictions("test"))


def test_settings_and_a_time_limit(task: Task, cache: Path, tmp_path: Path) -> None:
    """Fields of the recipe are arguments; time that runs out leaves the model of one step."""
    heard = Heard()
    settings = QUICK | {"epochs": 50, "time_limit": 1e-6}
    model = fit(task, "quartet", runs=tmp_path, cache=cache, listener=heard, **settings)
    assert (model.recipe.time_limit, model.recipe.epochs) == (1e-6, 50)
    assert heard.calls.count("step") == len(heard.epochs) == 1
    assert model.run.is_done


def test_a_recipe_with_changes_and_a_preset_of_a_file(task: Task, cache: Path, tmp_path: Path) -> None:
    recipe = Recipe.load("small", **QUICK)
    changed = fit(task, "sage", recipe=recipe, runs=tmp_path, cache=cache, listener=Heard(), rng_seed=3)
    assert changed.recipe == recipe.changed(architecture="sage", rng_seed=3, protocol="frozen")
    (tmp_path / "mine.toml").write_text(recipe.to_toml())
    named = fit(task, preset=str(tmp_path / "mine.toml"), runs=tmp_path, cache=cache, listener=Heard())
    assert named.recipe == recipe.changed(protocol="frozen")


# --- what is refused ------------------------------------------------------------------------------------


def test_a_run_goes_on_only_with_its_own_task_and_recipe(
    model: TrainedModel, task: Task, cache: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=r"C02.* is done"):
        fit(task, resume=model.folder, listener=Heard())
    with pytest.raises(Stopped) as stopped:
        fit(task, recipe=TINY, runs=tmp_path, cache=cache, listener=Heard(stop_at=1))
    folder = str(stopped.value.folder)
    with pytest.raises(UsageError, match=r"C02.*not with another epochs, width"):
        fit(task, resume=folder, listener=Heard(), epochs=9, width=32)
    with pytest.raises(UsageError, match=r"C05.*data of .* have changed"):
        fit(Task.from_sql(small_shop(rng_seed=1), **CHURN), resume=folder, cache=cache, listener=Heard())
    with pytest.raises(UsageError, match=r"C05.* is of task \"churn\", not \"other\""):
        fit(churn(name="other"), resume=folder, cache=cache, listener=Heard())
    with pytest.raises(UsageError, match=r"C10.*no run folder"):
        fit(task, resume=tmp_path / "nothing", listener=Heard())


@pytest.mark.parametrize("name", ["quartet", "lightgbm"])
def test_one_class_in_validation_is_refused_before_training(name: str, tmp_path: Path) -> None:
    moment = str(np.datetime64(START + 200 * DAY, "ns").astype("datetime64[s]"))
    sql = str(CHURN["sql"]).replace(
        "= 0 AS BIGINT)", f"= 0 AND t.timestamp < TIMESTAMP '{moment}' AS BIGINT)"
    )
    with pytest.raises(TaskError, match=r"L06"):
        fit(churn(sql=sql), name, runs=tmp_path / "runs", cache=tmp_path, listener=Heard())
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("file", ["weights.safetensors", "model.json", "features.safetensors"])
def test_a_damaged_model_is_refused(file: str, model: TrainedModel, tmp_path: Path) -> None:
    copy = tmp_path / "model"
    shutil.copytree(model.run.model_folder, copy)
    content = bytearray((copy / file).read_bytes())
    content[-1] ^= 1
    (copy / file).write_bytes(content)
    with pytest.raises(IntegrityError, match=rf"C06.*{file} is damaged"):
        load(copy)
    (copy / file).unlink()
    with pytest.raises(IntegrityError, match=rf"C06.*{file}"):
        load(copy)


@pytest.mark.parametrize(("version", "words"), [(1, "an older.*train it again"), (99, "a newer.*upgrade")])
def test_a_model_of_another_version_is_refused(
    version: int, words: str, model: TrainedModel, tmp_path: Path
) -> None:
    copy = tmp_path / "model"
    shutil.copytree(model.run.model_folder, copy)
    about = json.loads((copy / "model.json").read_text()) | {"version": version}
    (copy / "model.json").write_text(json.dumps(about))
    digest = hashlib.sha256((copy / "model.json").read_bytes()).hexdigest()
    sums = json.loads((copy / "checksums.json").read_text()) | {"model.json": digest}
    (copy / "checksums.json").write_text(json.dumps(sums))
    with pytest.raises(IntegrityError, match=rf"C10.*{words}"):
        load(copy)


@pytest.mark.parametrize("name", ["nothing", "file.pt", "empty"])
def test_what_is_no_model_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "file.pt").write_bytes(b"\x80\x04")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"C10"):
        load(tmp_path / name)


def test_a_model_folder_alone_predicts_but_has_no_run(
    model: TrainedModel, task: Task, tmp_path: Path
) -> None:
    """It was copied to where it is needed, without the run around it."""
    shutil.copytree(model.run.model_folder, tmp_path / "copy")
    alone = load(tmp_path / "copy")
    kept = model.run.predictions("val")
    assert asked_again(alone, task.full_database, kept).equals(kept)
    with pytest.raises(UsageError, match=r"C10.*without its run"):
        alone.folder  # noqa: B018


def test_a_model_that_was_loaded_without_its_run_is_evaluated_live(
    model: TrainedModel, task: Task, tmp_path: Path
) -> None:
    shutil.copytree(model.run.model_folder, tmp_path / "copy")
    one = load(tmp_path / "copy").evaluate(task, split="val", rules=False, listener=Heard())
    other = model.evaluate(task, split="val", rules=False, listener=Heard())
    assert one == replace(other)


def test_a_setting_that_does_not_exist_is_refused_before_anything(task: Task, tmp_path: Path) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"epoch": 3}, r'C01.*unknown field "epoch"'),
        ({"model": "quartett"}, r'C01.*no model "quartett" \(did you mean "quartet"\?\)'),
        ({"preset": "papers"}, r'C01.*no preset "papers"'),
        ({"device": "gpu"}, r'C02.*no device "gpu"'),
    ]
    for words, message in wrong:
        with pytest.raises(QuartetError, match=message):
            fit(task, runs=tmp_path / "runs", listener=Heard(), **words)
    assert not (tmp_path / "runs").exists()
