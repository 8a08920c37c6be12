"""Models that see past labels: what these are worth where nothing else tells, and that none tells before its time.

Two tasks. `trait`: people with a trait that stays, of whom only their past labels tell; a label table of its own.
`churn`: the small shop, where the task's SQL makes the labels anew from any database.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import yaml

from quartet.config import Recipe
from quartet.contexts import select
from quartet.database import Database
from quartet.errors import QuartetError
from quartet.evaluation import fit_rules, measures
from quartet.features import FeatureTable
from quartet.runs import LiveModel, TrainedModel, fit, load
from quartet.tasks import Task
from quartet.training import Trainer, TrainingData
from tests.known_labels import WINDOW, counted, known
from tests.shop import DAY, day
from tests.tasks.small import small_shop
from tests.trained import (
    KINDS,
    SIZES,
    TINY,
    TREES,
    Heard,
    asked_again,
    churn,
    invoke,
    nanoseconds,
    network_of,
    same_weights,
)

pytestmark = pytest.mark.usefixtures("one_thread")  # sums in the same order: bits are compared here
LEARNING = Recipe.load("small", **SIZES, batch_size=64, seeds_per_epoch=300, epochs=3, learning_rate=5e-3)
RECIPES = {"quartet": LEARNING, "lightgbm": TREES}
MODELS = list(RECIPES)


def trained(task: Task, recipe: Recipe, folder: Path) -> TrainedModel:
    return fit(task, recipe=recipe, runs=folder / "runs", cache=folder / "cache", listener=Heard())


# --- only the past labels tell --------------------------------------------------------------------

PEOPLE: dict[str, Any] = {"people": {"pkey": "id", "time_col": None, "fkeys": {}}}
PEOPLE |= {"visits": {"pkey": "id", "time_col": "at", "fkeys": {"who": "people"}}}
TRAIT: dict[str, Any] = {
    "name": "trait", "task_type": "binary_classification", "entity_table": "people", "entity_col": "who",
    "time_col": "at", "target_col": "trait", "timedelta": "10 days", "val_timestamp": "2024-03-01",
    "test_timestamp": "2024-03-21",
}  # fmt: skip
NUM_PEOPLE = 100


def planted_tables() -> tuple[dict[str, pa.Table], pa.Table]:
    """People with a hidden trait, and labels: each ten days the trait, one in twenty turned over.

    All visit on the same days, so that no number of a person stays and tells who it is.
    """
    rng = np.random.default_rng(3)
    trait, days = rng.integers(0, 2, NUM_PEOPLE), np.arange(0, 110, 10)
    who, asked = np.tile(np.arange(NUM_PEOPLE), len(days)), np.repeat(days, NUM_PEOPLE)
    turned = rng.random(len(who)) < 0.05
    visited = np.repeat([1, 23, 47, 68, 84, 101], NUM_PEOPLE)
    visits = {
        "id": np.arange(len(visited)),
        "who": np.tile(np.arange(NUM_PEOPLE), 6),
        "at": pa.array(day(0) + DAY * visited, pa.timestamp("ns")),
        "length": np.repeat(rng.normal(0, 1, 6), NUM_PEOPLE),
    }
    times = pa.array(day(0) + DAY * asked, pa.timestamp("ns"))
    labels = pa.table({"who": who, "at": times, "trait": trait[who] ^ turned})
    return {"people": pa.table({"id": np.arange(NUM_PEOPLE)}), "visits": pa.table(visits)}, labels


@pytest.fixture(scope="module")
def planted() -> Task:
    tables, labels = planted_tables()
    return Database.load(tables, {"name": "planted", "tables": PEOPLE}).task(TRAIT, labels=labels)


@pytest.fixture(scope="module", params=MODELS)
def learned(
    request: pytest.FixtureRequest, planted: Task, tmp_path_factory: pytest.TempPathFactory
) -> TrainedModel:
    """Each model, seeing past labels; rolling."""
    recipe = RECIPES[request.param].changed(past_labels=True, protocol="rolling")
    return trained(planted, recipe, tmp_path_factory.mktemp(request.param))


def auc(model: TrainedModel, protocol: str = "rolling") -> float:
    row = model.evaluate(protocol=protocol, rules=False, listener=Heard()).rows[0]  # type: ignore[arg-type]
    return float(row.measures["roc_auc"].value or 0)


def test_past_labels_are_seen(learned: TrainedModel) -> None:
    """The labels of an entity tell its trait, which is right in nineteen cases of twenty."""
    assert auc(learned) > 0.85
    assert auc(learned, "frozen") > 0.85


@pytest.mark.parametrize("name", MODELS)
def test_without_past_labels_nothing_tells(name: str, planted: Task, tmp_path: Path) -> None:
    assert auc(trained(planted, RECIPES[name].changed(protocol="rolling"), tmp_path)) < 0.6


# --- a label table of its own ---------------------------------------------------------------------

AT = day(90)  # within test: labels of days up to 80 are known


def bound(model: TrainedModel, task: Task, labels: pa.Table | None) -> LiveModel:
    return model.on(task.full_database, labels=labels, listener=Heard())


def predicted(
    model: TrainedModel, task: Task, labels: pa.Table | None, at: int | Sequence[int] = AT
) -> pa.Table:
    people = list(range(NUM_PEOPLE)) if isinstance(at, int) else list(range(len(at)))
    return bound(model, task, labels).predict(people, at).table


def test_labels_must_be_given_where_the_database_does_not_tell_them(
    learned: TrainedModel, planted: Task
) -> None:
    with pytest.raises(
        QuartetError, match=r'L01.*labels of task "trait" are in a table of their own.*--labels'
    ):
        predicted(learned, planted, None)


def test_live_predictions_are_those_of_the_run(learned: TrainedModel, planted: Task) -> None:
    """Rolling, to the last bit, with the label table of the task: also those of test, each once it is known."""
    kept = learned.run.predictions("test")
    assert asked_again(load(learned.folder), planted.full_database, kept, planted.labels).equals(kept)


def scrambled(labels: pa.Table, moment: int) -> pa.Table:
    """The label rows in another order, with those that are not known at a moment turned over, gone or doubled."""
    rng = random.Random(0)
    rows: list[dict[str, Any]] = []
    for row in labels.to_pylist():
        if row["at"].value + 10 * DAY <= moment:
            rows.append(row)
            continue
        if rng.random() < 0.7:
            rows.append({**row, "trait": 1 - row["trait"]})
        later = row["at"] + np.timedelta64(1 + rng.randrange(DAY), "ns")
        rows.append({**row, "at": later, "trait": rng.randrange(2)})
    return pa.Table.from_pylist(rng.sample(rows, len(rows)), labels.schema)


@pytest.mark.parametrize("moment", [day(40), AT - 1, AT])
def test_labels_that_are_not_known_move_no_prediction(
    learned: TrainedModel, planted: Task, moment: int
) -> None:
    """P6 to the end: scrambled or left out, they change no bit of what is predicted at the moment."""
    labels = planted.labels
    assert labels is not None
    before = predicted(learned, planted, labels, moment)
    assert predicted(learned, planted, scrambled(labels, moment), moment).equals(before)
    times = labels["at"].cast(pa.int64()).to_numpy()
    closed = labels.filter(pa.array(times + 10 * DAY <= moment))
    assert 0 < closed.num_rows < labels.num_rows
    assert predicted(learned, planted, closed, moment).equals(before)


def test_labels_that_are_known_move_predictions(learned: TrainedModel, planted: Task) -> None:
    """So the test above compares something: the rows known last are worth more than none."""
    labels = planted.labels
    assert labels is not None
    before = predicted(learned, planted, labels)
    assert not predicted(learned, planted, scrambled(labels, AT - 1)).equals(before)
    none = predicted(learned, planted, labels.slice(0, 0))
    assert not none.equals(before)
    assert np.isfinite(none["score"].to_numpy()).all()


def test_labels_about_nobody_are_reported_when_they_are_given(learned: TrainedModel, planted: Task) -> None:
    some = planted_tables()[1].slice(0, 3)
    other = pa.table({"who": [500], "at": some["at"].slice(0, 1), "trait": pa.array([1], some["trait"].type)})
    heard = Heard()
    live = learned.on(planted.full_database, labels=pa.concat_tables([some, other]), listener=heard)
    live.predict([1], AT)
    (finding,) = (one for one in heard.findings if one.code == "S07")
    assert (finding.count, finding.where) == (1, "known_labels.entity")


def test_labels_with_keys_of_another_type_are_refused(learned: TrainedModel, planted: Task) -> None:
    assert planted.labels is not None
    place = planted.labels.column_names.index("who")
    labels = planted.labels.set_column(place, "who", planted.labels["who"].cast(pa.string()))
    with pytest.raises(QuartetError, match=r"S08.*known_labels\.entity is text, people\.id is int64"):
        predicted(learned, planted, labels)


def test_a_wrong_label_table_is_refused(learned: TrainedModel, planted: Task) -> None:
    assert planted.labels is not None
    names = [f"{name}s" if name == "trait" else name for name in planted.labels.column_names]
    with pytest.raises(QuartetError, match=r'L12.*no column "trait"'):
        predicted(learned, planted, planted.labels.rename_columns(names))
    with pytest.raises(QuartetError):
        learned.on(planted.full_database, labels=3.5, listener=Heard())


# --- a forecast: the database tells ---------------------------------------------------------------

ROLLING = TINY.changed(past_labels=True, protocol="rolling", epochs=1)


@pytest.fixture(scope="module")
def task() -> Task:
    return churn(num_eval_timestamps=2)


@pytest.fixture(scope="module", params=MODELS)
def model(
    request: pytest.FixtureRequest, task: Task, tmp_path_factory: pytest.TempPathFactory
) -> TrainedModel:
    recipe = {"quartet": ROLLING, "lightgbm": TREES.changed(past_labels=True, protocol="rolling")}
    return trained(task, recipe[request.param], tmp_path_factory.mktemp(request.param))


def asked(model: TrainedModel, database: Database, at: int) -> pa.Table:
    live = model.on(database, listener=Heard())
    return live.predict([f"C{k:02d}" for k in range(40)], at).table


def grown(database: Database, days: int) -> Database:
    """The shop some days later: the first ten customers have ordered each day."""
    assert database.span is not None
    orders, count = database["orders"].data, 10 * days
    new = pa.table(
        {
            "order": 100_000 + np.arange(count),
            "customer": [f"C{k % 10:02d}" for k in range(count)],
            "bought": pa.array(database.span[1] + DAY * (1 + np.arange(count) // 10), pa.timestamp("ns")),
            "amount": np.full(count, 5.0),
        }
    ).cast(orders.schema)
    tables = {"customers": database["customers"].data, "orders": pa.concat_tables([orders, new])}
    return Database.build(tables, database.schema)


def test_the_protocol_decides_nothing_in_training(task: Task, tmp_path: Path) -> None:
    """Seeds of train and validation see the same, so that the same model comes out, bit for bit."""
    frozen = ROLLING.changed(protocol="frozen")
    one, other = (TrainingData.prepare(task, recipe, tmp_path) for recipe in (frozen, ROLLING))
    sizes = [data.task.database["known_labels"].num_rows for data in (one, other)]
    assert 0 < sizes[0] < sizes[1]
    for split in ("train", "val"):
        contexts = [data.context(split) for data in (one, other)]
        assert select(contexts[0], np.arange(5)).local_node.size > 5
        for name, value in vars(contexts[0]).items():
            assert np.array_equal(value, getattr(contexts[1], name), equal_nan=True), name
    trainers = [Trainer(data) for data in (one, other)]
    assert all(trainer.run() for trainer in trainers)
    assert same_weights(trainers[0].network, trainers[1].network)
    plain = TrainingData.prepare(task, ROLLING.changed(past_labels=False), tmp_path)
    assert "known_labels" not in plain.task.database.tables
    assert plain.context("train").local_node.size != other.context("train").local_node.size


def test_live_predictions_of_test_are_those_of_the_run_on_a_forecast(model: TrainedModel, task: Task) -> None:
    """To the last bit: the labels that are made for a question are those that the run was evaluated with."""
    kept = model.run.predictions("test")
    assert asked_again(load(model.folder), task.full_database, kept).equals(kept)
    some = slice(None, None, 25)
    live = model.on(task.full_database, listener=Heard())
    pairs = zip(kept["customer"].to_pylist()[some], nanoseconds(kept)[some], strict=True)
    alone = [live.predict([key], at).table["score"][0].as_py() for key, at in pairs]
    assert alone == pytest.approx(kept["score"].to_pylist()[some], abs=1e-6)
    last = int(task.seeds("test").time.max())
    seen = [row for row in known(live.views[0].database) if row[1] <= last]
    assert seen == known(task.under(model.recipe.protocol, model.recipe.past_labels).database)


@pytest.mark.parametrize("number", [0, 1])
def test_what_comes_after_the_asked_time_changes_no_bit(model: TrainedModel, task: Task, number: int) -> None:
    """Neither rows nor labels: the database ends at the time, or has grown by a month."""
    at = int(np.unique(task.seeds("test").time)[number])
    before = asked(model, task.full_database, at)
    assert asked(model, task.full_database.upto(at), at).equals(before)
    assert asked(model, grown(task.full_database, 30), at).equals(before)


def test_a_grown_database_has_newly_known_labels(model: TrainedModel, task: Task) -> None:
    """Windows go on from the test cut-off, past the end of the data with which the model was trained."""
    database, test = task.full_database, task.splits.test
    assert database.span is not None
    later, end = grown(database, 30), database.span[1] + 30 * DAY
    live = model.on(later, listener=Heard())
    assert set(nanoseconds(live.predict().table)) == {end}
    before = {at - WINDOW for _, at, _ in known(task.under("frozen", past_labels=True).database)}
    after = range(test, end - WINDOW + 1, WINDOW)
    assert after[-1] > database.span[1]
    assert known(live.views[0].database) == counted(later, [*before, *after])
    scores = asked(model, later, end)
    assert not asked(model, task.full_database, end).equals(scores)


def test_questions_before_any_label_is_known_are_answered(model: TrainedModel, task: Task) -> None:
    assert task.full_database.span is not None
    scores = asked(model, task.full_database, task.full_database.span[0] + DAY)
    assert np.isfinite(scores["score"].to_numpy()).all()


@pytest.mark.parametrize("protocol", ["clamped", "rolling"])
def test_evaluation_knows_the_past_labels_of_its_protocol(
    model: TrainedModel, task: Task, protocol: Any
) -> None:
    """Asked anew under another protocol than that of training, and with rules that know as much."""
    rows = model.evaluate(protocol=protocol, listener=Heard()).rows
    seeds = task.under(protocol).asked_seeds("test")
    customers = [f"C{node - task.full_database.offsets['customers']:02d}" for node in seeds.node]
    live = model.on(task.full_database, listener=Heard()).predict(customers, seeds.time.tolist())
    labels = np.asarray(task.vault.open("compare with the evaluation"))

    def brier(scores: Any) -> Any:
        found = measures(task.spec.type, labels, np.asarray(scores), num_resamples=0)
        return pytest.approx(found["brier"].value, abs=1e-12)

    assert rows[0].measures["brier"].value == brier(live.table["score"])
    knowing = task.under(protocol, past_labels=True)
    (rule,) = (
        rule
        for rule in fit_rules(knowing, FeatureTable.fit(knowing.database, task.splits.val))
        if rule.name == "entity mean"
    )
    (mean,) = (row for row in rows if row.name == "entity mean")
    assert mean.measures["brier"].value == brier(rule.predict(seeds))


# --- numbers, classes and columns -----------------------------------------------------------------


@pytest.mark.parametrize("kind", ["regression", "multiclass_classification"])
def test_numbers_and_classes_have_past_labels(kind: str, tmp_path: Path) -> None:
    task = Task.from_sql(small_shop(), **KINDS[kind], num_eval_timestamps=2)
    model = trained(task, ROLLING, tmp_path)
    kept = model.run.predictions("test")
    assert asked_again(model, task.full_database, kept).equals(kept)
    other = trained(task, ROLLING.changed(protocol="frozen"), tmp_path)
    assert same_weights(network_of(other), network_of(model))


def test_a_column_to_fill_in_has_past_labels(tmp_path: Path) -> None:
    """The amounts of orders: a question about an order is answered alike, whatever its own amount is."""
    fields = {"name": "amount", "kind": "autocomplete", "task_type": "regression", "entity_table": "orders"}
    shop = small_shop()
    model = trained(shop.task(fields, target_col="amount"), ROLLING, tmp_path)
    kept = model.run.predictions("test")
    assert asked_again(model, shop, kept).equals(kept)
    at = nanoseconds(kept)[0]
    now = kept.filter(pa.array([time == at for time in nanoseconds(kept)]))["order"].to_pylist()
    amounts = shop["orders"].data["amount"].to_numpy().copy()
    amounts[shop["orders"].known_at >= at] = 1e6
    orders = shop["orders"].data.set_column(3, "amount", pa.array(amounts))
    other = Database.build({"customers": shop["customers"].data, "orders": orders}, shop.schema)
    one, two = (model.on(database, listener=Heard()).predict(now, at).table for database in (shop, other))
    assert one.equals(two)


# --- the verbs ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The planted database as files, with its task and its labels beside it."""
    folder = tmp_path_factory.mktemp("home")
    tables, labels = planted_tables()
    (folder / "town").mkdir()
    for name, table in tables.items():
        pq.write_table(table, folder / "town" / f"{name}.parquet")
    (folder / "town" / "quartet.yaml").write_text(yaml.safe_dump({"name": "planted", "tables": PEOPLE}))
    pq.write_table(labels, folder / "labels.parquet")
    pa.csv.write_csv(labels, folder / "labels.csv")
    trait = {**TRAIT, "kind": "external", "labels": "labels.parquet"}
    (folder / "trait.yaml").write_text(yaml.safe_dump(trait))
    return folder


def train(folder: Path, runs: str, *words: str, task: str = "trait.yaml") -> TrainedModel:
    where = ("train", folder / "town", folder / task, "--runs", folder / runs)
    invoke(*where, "--model", "lightgbm", "--threads", 1, *words)
    return load(folder / runs / "latest")


def test_train_evaluate_and_predict_by_their_verbs(folder: Path, planted: Task) -> None:
    model = train(folder, "runs", "--past-labels")
    assert model.recipe.past_labels is True
    values = json.loads(invoke("evaluate", model.folder, "--protocol", "rolling", "--json"))
    assert values["rows"][0]["measures"]["roc_auc"]["value"] > 0.85
    words = ("predict", model.folder, folder / "town", "--threads", 1, "--at", "2024-03-31", "--out")
    expected = predicted(model, planted, planted.labels)
    expected = expected.sort_by([("score", "descending"), ("id", "ascending")])
    for name in ("labels.parquet", "labels.csv"):
        invoke(*words, folder / "scores.parquet", "--labels", folder / name)
        assert pq.read_table(folder / "scores.parquet").equals(expected)
    with pytest.raises(QuartetError, match=r"L01.*in a table of their own"):
        invoke(*words, folder / "scores.parquet")


def test_without_the_word_there_are_no_past_labels(folder: Path) -> None:
    model = train(folder, "plain")
    assert model.recipe.past_labels is False
    words = ("predict", model.folder, folder / "town", "--threads", 1, "--at", "2024-03-31")
    invoke(*words, "--out", folder / "plain.parquet")
    assert pq.read_table(folder / "plain.parquet").num_rows == NUM_PEOPLE


def test_who_fills_in_a_column_hears_when_it_counts_as_known(tmp_path: Path) -> None:
    tables, _ = planted_tables()
    database = Database.load(tables, {"name": "planted", "tables": PEOPLE})
    cuts = {"val_timestamp": "2024-03-01", "test_timestamp": "2024-03-21"}
    fields = {"name": "length", "kind": "autocomplete", "task_type": "regression", "entity_table": "visits"}
    task = database.task({**fields, **cuts, "target_col": "length"})
    for past_labels in (True, False):
        heard = Heard()
        fit(task, "lightgbm", runs=tmp_path, listener=heard, past_labels=past_labels)
        assert ("L13" in {finding.code for finding in heard.findings}) is past_labels


def test_contexts_with_past_labels_are_sampled(folder: Path) -> None:
    """With them there are more rows to see; both are kept in one cache, and neither is taken for the other."""
    words = (
        "sample",
        folder / "town",
        folder / "trait.yaml",
        "--cache",
        folder / "cache",
        "--set",
        "local_budget=40",
    )
    plain, past_labels, _ = (invoke(*words, *more) for more in ([], ["--past-labels"], ["--past-labels"]))
    assert plain != past_labels
    assert len(list((folder / "cache").rglob("*-train*"))) == 2
