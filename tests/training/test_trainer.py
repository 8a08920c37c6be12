"""Training: a run learns, is kept whole, goes on bit for bit where it was cut, and fails with an explanation."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from quartet.config import Recipe
from quartet.database import FACTS, Database, ForeignKey, TableSchema
from quartet.database.schema import Schema
from quartet.errors import DataError, IntegrityError, QuartetError, UsageError
from quartet.evaluation.metrics import roc_auc
from quartet.models.quartet import Quartet
from quartet.runs import Predictor, Run, fit, load_checkpoint, train_run
from quartet.runs.evaluate import evaluate_run
from quartet.tasks import Task
from quartet.training import Epoch, Material, Trainer, prepare
from tests.tasks.small import CHURN, small_shop

pytestmark = pytest.mark.usefixtures("one_thread")  # sums in the same order: bits are compared here

TINY = Recipe.load(
    "small", width=16, heads=2, encoder_width=8, num_latents=2, num_archetypes=4, local_budget=20,
    temporal_budget=10, collab_budget=5, batch_size=64, epochs=3, seeds_per_epoch=300,
)  # fmt: skip


@pytest.fixture(scope="module")
def task() -> Task:
    return Task.from_sql(small_shop(), **CHURN)


@pytest.fixture(scope="module")
def material(task: Task, tmp_path_factory: pytest.TempPathFactory) -> Material:
    return prepare(task, TINY, tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def run(task: Task, material: Material, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run that went to its end."""
    run = Run.create(tmp_path_factory.mktemp("runs"), task, TINY, "small")
    assert train_run(run, material, TINY, cache=tmp_path_factory.mktemp("cache")) is not None
    return run


def same_weights(one: Quartet, other: Quartet) -> bool:
    """Whether two models are equal, bit for bit."""
    mine, theirs = one.state_dict(), other.state_dict()
    return mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)


def without_times(history: list[Epoch]) -> list[Epoch]:
    return [replace(line, seconds=0, validation_seconds=0) for line in history]


def test_a_run_is_kept_whole(run: Run) -> None:
    names = {path.name for path in run.folder.iterdir()}
    assert names == {
        "recipe.json", "task.json", "environment.json", "metrics.jsonl", "curves.svg", "model", "predictions",
    }  # fmt: skip
    lines = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["number"] for line in lines] == [0, 1, 2]
    assert lines[-1]["loss"] < lines[0]["loss"]
    assert run.recipe == TINY
    assert run.is_done
    assert (run.folder.parent / "latest").resolve() == run.folder.resolve()


def test_the_best_epoch_is_kept(run: Run) -> None:
    lines = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    facts = load_checkpoint(run.model_folder).facts
    values = [line["validation"] for line in lines]
    assert facts["validation"] == max(values)
    assert facts["best_epoch"] == int(np.argmax(values))  # of equal ones the first


def test_predictions_of_test_have_no_labels(run: Run, task: Task) -> None:
    for split in ("val", "test"):
        scores = pq.read_table(run.folder / "predictions" / f"{split}.parquet")
        assert scores.column_names == ["customer", "time", "score", "calibrated"]
        assert scores.num_rows == len(task.seeds(split))
    assert task.vault.openings == []


def test_live_predictions_are_those_of_the_run(run: Run, task: Task) -> None:
    """The same bits, sampled anew without a cache, from the model as it was saved."""
    kept = pq.read_table(run.folder / "predictions" / "val.parquet")
    predictor = Predictor.load(run.folder)
    live = predictor.predict(
        task.full_database,
        kept["customer"].to_pylist(),
        [int(t) for t in kept["time"].cast("int64").to_pylist()],
    )
    assert live.equals(kept)


def test_a_model_is_the_same_after_it_was_saved(run: Run) -> None:
    one, other = load_checkpoint(run.model_folder), load_checkpoint(run.model_folder)
    assert same_weights(one.model, other.model)
    assert one.recipe == TINY
    assert one.task["entity_table"] == "customers"


@pytest.mark.parametrize("cut", [1, 4, 5, 7, 13])
def test_an_interrupted_run_goes_on_as_if_it_had_not_been(
    cut: int, task: Task, material: Material, run: Run, tmp_path: Path
) -> None:
    """300 seeds are five batches: cuts within an epoch, at its end, and in the last one."""
    whole = Trainer(material, TINY)
    assert whole.run()
    other = Run.create(tmp_path, task, TINY, "small")
    steps = iter(range(100))
    assert train_run(other, material, TINY, must_stop=lambda: next(steps) == cut) is None
    assert not other.is_done
    done = train_run(Run.open(other.folder), material, TINY)
    assert done is not None
    assert without_times(done.progress.history) == without_times(whole.progress.history)
    whole.use_best()
    assert same_weights(done.model, whole.model)
    assert same_weights(load_checkpoint(other.model_folder).model, load_checkpoint(run.model_folder).model)


def test_seeds_of_an_epoch_are_other_ones_each_time(material: Material) -> None:
    trainer = Trainer(material, TINY)
    first, second = (np.concatenate(trainer.epoch_places(epoch)) for epoch in (0, 1))
    assert len(first) == len(np.unique(first)) == 300
    assert set(first) != set(second)
    assert np.concatenate(trainer.epoch_places(0)).tolist() == first.tolist()
    other = Trainer(material, TINY.changed(rng_seed=1))
    assert np.concatenate(other.epoch_places(0)).tolist() != first.tolist()


def test_time_runs_out(material: Material) -> None:
    trainer = Trainer(material, TINY.changed(time_limit=1e-6, epochs=50))
    assert trainer.run()
    assert len(trainer.progress.history) == 1
    assert trainer.progress.step == 1


def test_a_loss_that_is_no_number_ends_with_an_explanation(material: Material) -> None:
    trainer = Trainer(material, TINY)
    with torch.no_grad():
        trainer.model.readout.weight.fill_(float("inf"))
    with pytest.raises(DataError, match=r"C12.*step 1 \(epoch 1\).*lower learning_rate"):
        trainer.run()
    assert trainer.progress.step == 0


def test_weights_that_the_last_step_spoiled_end_with_the_same_explanation(material: Material) -> None:
    trainer = Trainer(material, TINY)
    with torch.no_grad():
        trainer.model.readout.weight.fill_(float("nan"))
    with pytest.raises(DataError, match=r"C12.*answers on validation are not finite.*lower learning_rate"):
        trainer.validate()


def test_a_run_goes_on_only_with_its_own_task(run: Run, task: Task) -> None:
    run.check_task(task)
    other = Task.from_sql(small_shop(rng_seed=1), **CHURN)
    with pytest.raises(UsageError, match=r"C05.*data of .* has changed"):
        run.check_task(other)


def test_a_damaged_model_is_refused(run: Run, tmp_path: Path) -> None:
    import shutil

    copy = tmp_path / "model"
    shutil.copytree(run.model_folder, copy)
    weights = copy / "weights.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(IntegrityError, match=r"C06.*weights\.safetensors is damaged"):
        load_checkpoint(copy)


@pytest.mark.parametrize("name", ["nothing", "file.pt"])
def test_what_is_no_model_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "file.pt").write_bytes(b"\x80\x04")
    with pytest.raises(UsageError, match=r"C10"):
        Predictor.load(tmp_path / name)


# --- prediction -----------------------------------------------------------------------------------


def test_entities_and_times(run: Run, task: Task) -> None:
    predictor = Predictor.load(run.folder)
    database = task.full_database
    everyone = predictor.predict(database, at="2023-06-01")
    assert everyone.num_rows == 40
    two = predictor.predict(database, ["C03", "C07"], at="2023-06-01")
    assert two["customer"].to_pylist() == ["C03", "C07"]
    scores = dict(zip(everyone["customer"].to_pylist(), everyone["score"].to_pylist(), strict=True))
    assert two["score"].to_pylist() == pytest.approx([scores["C03"], scores["C07"]], abs=1e-6)
    later = predictor.predict(database, ["C03", "C03"], ["2023-06-01", "2023-08-01"])
    assert later["score"][0] != later["score"][1]
    assert predictor.predict(database, ["C03"])["time"][0].as_py().year == 2023  # the data's last time


@pytest.mark.parametrize(
    ("entities", "at", "message"),
    [
        (["C03", "C99"], "2023-06-01", r'L11.*1 of 2 entities are not in "customers".*C99'),
        (["C03"], "noon", r"T02"),
        (["C03", "C04", "C05"], ["2023-06-01", "2023-06-02"], r"C02.*3 entities and 2 times"),
        (None, ["2023-06-01", "2023-06-02"], r"C02.*several times.*no entities"),
    ],
)
def test_a_wrong_question_is_refused(
    run: Run, task: Task, entities: list[str] | None, at: str | list[str], message: str
) -> None:
    with pytest.raises(QuartetError, match=message):
        Predictor.load(run.folder).predict(task.full_database, entities, at)


def test_a_grown_database_is_scored_and_the_past_stays_as_it_was(run: Run, task: Task) -> None:
    """New rows, new entities and new categories come; what was asked about an earlier time is answered alike."""
    predictor = Predictor.load(run.folder)
    before = predictor.predict(task.full_database.upto(int(np.datetime64("2023-07-01", "ns").astype(np.int64))),
                               ["C03", "C07"], "2023-06-01")  # fmt: skip
    after = predictor.predict(task.full_database, ["C03", "C07"], "2023-06-01")
    assert after.equals(before)


def rates(material: Material, **changes: object) -> list[float]:
    """The learning rate of each step, as a share of the recipe's."""
    trainer = Trainer(material, TINY.changed(epochs=8, **changes))
    found = []
    trainer.run(on_step=lambda _: found.append(trainer.optimizer.param_groups[0]["lr"]))
    return [rate / TINY.learning_rate for rate in found]


def test_a_cosine_rises_shortly_and_ends_near_zero(material: Material) -> None:
    shares = rates(material, schedule="cosine", seeds_per_epoch=320)  # five batches an epoch
    assert len(shares) == 40
    assert shares[:2] == pytest.approx([0.25, 0.75])
    assert shares[2:] == sorted(shares[2:], reverse=True)
    assert shares[2] > 0.98
    assert shares[20] == pytest.approx(0.5, abs=0.03)
    assert 0 < shares[-1] < 0.002
    assert rates(material, schedule="constant", seeds_per_epoch=64) == [1.0] * 8


def test_a_cosine_follows_the_time_limit(material: Material) -> None:
    """Half of the time is over: the rate is that of the middle, however many steps were planned."""
    trainer = Trainer(material, TINY.changed(schedule="cosine", epochs=1000, time_limit=1e6))
    trainer.progress.seconds = 5e5
    trainer._step(trainer.epoch_places(0)[0])
    assert trainer.optimizer.param_groups[0]["lr"] == pytest.approx(TINY.learning_rate / 2, rel=1e-3)


def test_the_latest_seeds_are_those_that_are_trained_on(material: Material) -> None:
    times = material.contexts["train"].seed_time
    trainer = Trainer(material, TINY.changed(train_fraction=0.3, seeds_per_epoch=None))
    used = np.concatenate(trainer.epoch_places(0))
    left_out = np.setdiff1d(np.arange(len(times)), used)
    assert len(np.unique(used)) == len(used) == trainer.seeds_an_epoch
    assert times[left_out].max() < times[used].min()
    assert 0.3 * len(times) <= len(used) < 0.3 * len(times) + (times == times[used].min()).sum() + 1


def test_epochs_are_compared_on_some_validation_seeds(material: Material) -> None:
    every, some = (Trainer(material, TINY.changed(validation_seeds=count)) for count in (None, 20))
    assert every.watched.tolist() == list(range(len(material.labels["val"])))
    assert len(some.watched) == len(set(some.watched.tolist())) == 20
    labels = material.labels["val"][some.watched]
    score = material.output.scores(some.answers(material.contexts["val"]))[some.watched]
    assert some.validate() == pytest.approx(roc_auc(labels, score), abs=1e-6)
    assert (
        Trainer(material, TINY.changed(validation_seeds=20, rng_seed=5)).watched.tolist()
        == some.watched.tolist()
    )


AMOUNT = CHURN["sql"].replace(  # type: ignore[attr-defined]
    "CAST(COUNT(*) FILTER (WHERE o.bought > t.timestamp) = 0 AS BIGINT)",
    "COALESCE(SUM(o.amount) FILTER (WHERE o.bought > t.timestamp), 0)",
)
SIZE = CHURN["sql"].replace(  # type: ignore[attr-defined]
    "CAST(COUNT(*) FILTER (WHERE o.bought > t.timestamp) = 0 AS BIGINT)",
    "(CASE COUNT(*) FILTER (WHERE o.bought > t.timestamp) WHEN 0 THEN 'none' WHEN 1 THEN 'one' ELSE 'more' END)",
)


@pytest.mark.parametrize(
    ("sql", "task_type", "columns", "metric"),
    [
        (AMOUNT, "regression", ["customer", "time", "score"], "mae"),
        (
            SIZE,
            "multiclass_classification",
            ["customer", "time", "predicted", "score_more", "score_none", "score_one"],
            "accuracy",
        ),
    ],
)
def test_numbers_and_classes_go_the_whole_way(
    sql: str, task_type: str, columns: list[str], metric: str, tmp_path: Path
) -> None:
    """From a task to its evaluation: amounts in their own unit, and probabilities of classes."""
    task = Task.from_sql(small_shop(), **(CHURN | {"sql": sql, "task_type": task_type}))
    run = fit(task, TINY, tmp_path / "runs", cache=tmp_path / "cache")
    kept = pq.read_table(run.folder / "predictions" / "test.parquet")
    assert kept.column_names == columns
    live = Predictor.load(run.folder).predict(
        task.full_database,
        kept["customer"].to_pylist(),
        [int(t) for t in kept["time"].cast("int64").to_pylist()],
    )
    assert live.equals(kept)
    if task_type == "regression":
        labels = np.asarray(task.seeds("train").target)
        assert labels.min() <= np.median(kept["score"]) <= labels.max()
        assert np.median(kept["score"]) > 1  # euros, not standard deviations
    else:
        scores = np.stack([np.asarray(kept[name]) for name in columns[3:]], 1)
        assert scores.sum(1) == pytest.approx(1)
        names = ["more", "none", "one"]
        assert kept["predicted"].to_pylist() == [names[place] for place in scores.argmax(1)]
    found = evaluate_run(run, task)
    assert [row.name for row in found.rows][:2] == ["quartet", "constant"]
    assert all(row.measures[metric].value is not None for row in found.rows)


def test_without_names_a_model_does_not_know_them(tmp_path: Path) -> None:
    """Other names, the same predictions; with names they differ."""
    given, changed = ([f"{word}{number}" for number in range(60)] for word in ("n", "other"))
    for names in (True, False):
        task = Task.from_sql(named_shop(given), **CHURN)
        run = fit(task, TINY.changed(names=names, epochs=1), tmp_path / "runs", cache=tmp_path / "cache")
        predictor = Predictor.load(run.folder)
        scores = [
            predictor.predict(named_shop(words), at="2023-10-01")["score"] for words in (given, changed)
        ]
        assert (scores[0] == scores[1]) is not names


def named_shop(names: list[str]) -> Database:
    """The small shop with a table of clerks, each of whom has a name, and who take orders by turns."""
    shop = small_shop()
    orders = shop["orders"].data
    clerks = pa.table({"clerk": np.arange(len(names)), "name": names, "age": np.arange(len(names)) % 7})
    served = orders.append_column("clerk", pa.array(np.arange(len(orders)) % len(names)))
    said = dict(shop.schema.tables)
    links = (*said["orders"].foreign_keys, ForeignKey(("clerk",), "clerks"))
    said["orders"] = replace(said["orders"], foreign_keys=links)
    said["clerks"] = TableSchema(("clerk",), settled=FACTS)
    tables = {"customers": shop["customers"].data, "orders": served, "clerks": clerks}
    return Database.build(tables, Schema(said, name="named"))
