"""The model lightgbm: which trees are kept, what they do not notice, what ends them early, and what is refused."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from quartet.database import Database
from quartet.errors import ResourceError
from quartet.evaluation import main_metric, measures
from quartet.models.trees import Trees
from quartet.runs import TrainedModel, fit, load
from quartet.tasks import Split, Task
from quartet.training import TrainingData
from tests.tasks.small import DAY, START, small_shop
from tests.trained import KINDS, TREES, Heard, asked_again, network_of, plain

pytest.importorskip("lightgbm")


@pytest.fixture(scope="module")
def tasks() -> dict[str, Task]:
    database = small_shop(city=[("Bonn", "Köln", "Lyon")[k % 3] for k in range(40)])
    return {kind: Task.from_sql(database, **fields) for kind, fields in KINDS.items()}


@pytest.fixture(scope="module")
def models(tasks: dict[str, Task], tmp_path_factory: pytest.TempPathFactory) -> dict[str, TrainedModel]:
    runs = tmp_path_factory.mktemp("runs")
    return {kind: fit(task, recipe=TREES, runs=runs, listener=Heard()) for kind, task in tasks.items()}


def kept_scores(model: TrainedModel, split: Split) -> np.ndarray[Any, Any]:
    table = model.run.predictions(split)
    names = [name for name in table.column_names if name.startswith("score")]
    scores = np.column_stack([np.asarray(table[name]) for name in names])
    return scores if len(names) > 1 else scores[:, 0]


# --- what is kept -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_there_is_one_epoch_with_the_figures_of_the_kept_scores(
    kind: str, models: dict[str, TrainedModel], tasks: dict[str, Task]
) -> None:
    model, task = models[kind], tasks[kind]
    (epoch,) = model.run.epochs()
    labels = np.asarray(task.seeds("val").target)
    expected = measures(task.spec.type, labels, kept_scores(model, "val"), num_resamples=0)
    assert epoch.validation == model.validation == expected[main_metric(task.spec.type)].value
    assert epoch.is_best
    assert 0 < epoch.loss < 2
    assert {path.name for path in model.run.model_folder.iterdir()} == {
        "model.json", "trees.txt", "columns.json", "features.json", "features.safetensors", "checksums.json",
    }  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_live_predictions_are_the_kept_ones(
    kind: str, models: dict[str, TrainedModel], tasks: dict[str, Task]
) -> None:
    kept = models[kind].run.predictions("val")
    assert asked_again(load(models[kind].folder), tasks[kind].full_database, kept).equals(kept)


def test_a_loaded_model_has_the_trees_that_were_kept(
    models: dict[str, TrainedModel], tasks: dict[str, Task]
) -> None:
    kind = "multiclass_classification"
    trees: Trees = network_of(load(models[kind].folder))
    assert trees.num_outputs == 3
    assert trees.num_trees % 3 == 0
    assert trees.num_trees == trees._booster.num_trees() > 0
    leaves = trees._booster.trees_to_dataframe().groupby("tree_index").size()  # splits and leaves
    assert trees.num_parameters == leaves.sum()
    view = TrainingData.prepare(tasks[kind], TREES).view
    assert trees.names == tuple(view.columns.of_seeds(tasks[kind].seeds("val")))


def test_the_same_trees_come_out_twice(tasks: dict[str, Task]) -> None:
    def text(rng_seed: int) -> str:
        fitted = Trees.fit(TrainingData.prepare(tasks["regression"], TREES.changed(rng_seed=rng_seed)))
        assert fitted is not None
        return str(fitted.model.text)

    assert text(0) == text(0) != text(1)


@pytest.mark.parametrize("kind", KINDS)
def test_the_model_learns(kind: str, models: dict[str, TrainedModel]) -> None:
    """Beside the constant, on test; and the rules that stand beside a network stand beside it."""
    rows = models[kind].evaluate(listener=Heard()).rows
    assert [row.name for row in rows[:2]] == ["lightgbm", "constant"]
    assert len(rows) > 2
    metric = {"regression": "mae"}.get(kind, "log_loss")
    model, constant = (row.measures[metric].value for row in rows[:2])
    assert model is not None
    assert constant is not None
    assert model < constant


# --- the future -------------------------------------------------------------------------------------


def grown(database: Database, after: int) -> Database:
    """The shop with other orders after a time, and a customer more."""
    customers, orders = database["customers"].data, database["orders"].data
    past = orders.filter(pa.array(database["orders"].known_at <= after))
    new = pa.table(
        {
            "order": np.arange(10**6, 10**6 + 50),
            "customer": ["C00", "C07", "C99", "C39", "C20"] * 10,
            "bought": pa.array(after + 1 + np.arange(50) * DAY, pa.timestamp("ns")),
            "amount": np.linspace(1e3, 1e6, 50),
        }
    )
    more = pa.Table.from_pylist([{"customer": "C99", "age": 33, "city": "Bonn"}]).cast(customers.schema)
    tables = {
        "customers": pa.concat_tables([more, customers]),
        "orders": pa.concat_tables([new.cast(orders.schema), past]),
    }
    return Database.build(tables, database.schema)


@pytest.mark.parametrize("kind", KINDS)
def test_predictions_do_not_notice_the_future(
    kind: str, models: dict[str, TrainedModel], tasks: dict[str, Task]
) -> None:
    time = START + 200 * DAY
    database = tasks[kind].full_database
    other = grown(database, time)
    assert other.num_rows != database.num_rows
    names = [f"C{k:02d}" for k in range(40)]
    lives = [models[kind].on(one, listener=Heard()) for one in (database, other)]
    before, after = (plain(live.predict(names, time)) for live in lives)
    assert after.equals(before)
    later = [plain(live.predict(names, time + 40 * DAY)) for live in lives]
    assert not later[0].equals(later[1])
    assert len(lives[1].predict(["C99"], time)) == 1


def test_many_seeds_are_asked_some_at_a_time_with_the_same_bits(
    models: dict[str, TrainedModel], tasks: dict[str, Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    live, heard = models["regression"].on(tasks["regression"].full_database, listener=Heard()), Heard()
    together = plain(live.predict(at="2023-09-01"))
    monkeypatch.setattr("quartet.models.trees._AT_ONCE", 15)
    assert plain(live.predict(at="2023-09-01", listener=heard)).equals(together)
    assert heard.work == {"scores": [(15, 40), (15, 40), (10, 40)]}


# --- what ends a training early, and what is refused ------------------------------------------------


def test_a_time_limit_keeps_what_there_is(tasks: dict[str, Task], tmp_path: Path) -> None:
    recipe = TREES.changed(time_limit=1e-9)
    model = fit(tasks["binary_classification"], recipe=recipe, runs=tmp_path, listener=Heard())
    assert network_of(model).num_trees == 1


def test_without_the_package_it_is_said_before_the_work(
    tasks: dict[str, Task], models: dict[str, TrainedModel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    expected = r'R01.* the model "lightgbm" needs the package lightgbm.*pip install'
    with pytest.raises(ResourceError, match=expected):
        fit(tasks["regression"], recipe=TREES, runs=tmp_path / "runs", listener=Heard())
    assert not (tmp_path / "runs").exists()
    with pytest.raises(ResourceError, match=expected):
        load(models["regression"].folder)
