"""Models with a history: what it is worth where nothing else tells, and that it tells nothing before its time.

Two tasks. `planted`: people with a trait that stays, of whom only their past labels tell; a label table of its own.
`churn`: the small shop, where the task's SQL makes the labels anew from any database.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from typer.testing import CliRunner

from quartet.cli.main import app
from quartet.config import Recipe
from quartet.contexts import protocol_seeds, select
from quartet.database import FACTS, Database, ForeignKey, TableSchema, TimeColumn
from quartet.database.schema import Schema
from quartet.errors import QuartetError
from quartet.evaluation.metrics import roc_auc
from quartet.evaluation.rules import entity_mean
from quartet.runs import Predictor, Run, fit
from quartet.runs.evaluate import evaluate_run
from quartet.tasks import Task
from quartet.training import Trainer, prepare, recipe_task
from tests.shop import DAY, day
from tests.tasks.small import CHURN, small_shop
from tests.tasks.test_history import WINDOW, counted, known
from tests.training.test_trainer import AMOUNT, SIZE, TINY, same_weights

pytestmark = pytest.mark.usefixtures("one_thread")  # sums in the same order: bits are compared here

TREES = Recipe.load("small", model="lightgbm")
LEARNING = TINY.changed(learning_rate=3e-3)
RECIPES = {"quartet": LEARNING, "lightgbm": TREES}
MODELS = list(RECIPES)


def fitted(model: str, task: Task, recipe: Recipe, folder: Path) -> Run:
    if model == "lightgbm":
        pytest.importorskip("lightgbm")
    return fit(task, recipe, folder / "runs", cache=folder / "cache")


def times_of(scores: pa.Table) -> list[int]:
    return scores["time"].cast(pa.int64()).to_pylist()


# --- only the past labels tell --------------------------------------------------------------------


def planted_tables() -> tuple[dict[str, pa.Table], pa.Table]:
    """People with a hidden trait, visits by lot, and labels: each ten days the trait, one in twenty turned over."""
    rng = np.random.default_rng(3)
    trait, days = rng.integers(0, 2, 120), np.arange(0, 110, 10)
    who, asked = np.tile(np.arange(120), len(days)), np.repeat(days, 120)
    turned = rng.random(len(who)) < 0.05
    visits = {
        "id": np.arange(960),
        "who": rng.integers(0, 120, 960),
        "at": pa.array(day(0) + DAY * rng.integers(0, 110, 960), pa.timestamp("ns")),
        "length": rng.normal(0, 1, 960),
    }
    times = pa.array(day(0) + DAY * asked, pa.timestamp("ns"))
    labels = pa.table({"who": who, "at": times, "trait": trait[who] ^ turned})
    return {"people": pa.table({"id": np.arange(120)}), "visits": pa.table(visits)}, labels


TRAIT = {
    "name": "trait", "task_type": "binary_classification", "entity_table": "people", "entity_col": "who",
    "time_col": "at", "target_col": "trait", "timedelta": "10 days", "val_timestamp": "2024-03-01",
    "test_timestamp": "2024-03-21",
}  # fmt: skip


@pytest.fixture(scope="module")
def planted() -> Task:
    tables, labels = planted_tables()
    said = {
        "people": TableSchema(("id",), settled=FACTS),
        "visits": TableSchema(("id",), (ForeignKey(("who",), "people"),), TimeColumn("at"), settled=FACTS),
    }
    return Task.from_labels(Database.build(tables, Schema(said, name="planted")), labels, **TRAIT)


@pytest.fixture(scope="module", params=MODELS)
def learned(request: pytest.FixtureRequest, planted: Task, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of each model that sees the past labels; rolling."""
    recipe = RECIPES[request.param].changed(history=True, protocol="rolling")
    return fitted(request.param, planted, recipe, tmp_path_factory.mktemp(request.param))


def auc(run: Run, task: Task, protocol: str = "rolling") -> float:
    row = evaluate_run(run, task, protocol=protocol).rows[0]  # type: ignore[arg-type]
    return float(row.measures["roc_auc"].value or 0)


def test_past_labels_are_seen(learned: Run, planted: Task) -> None:
    """The labels of an entity tell its trait, which is right in nineteen cases of twenty."""
    assert auc(learned, planted) > 0.85
    assert auc(learned, planted, "frozen") > 0.85


@pytest.mark.parametrize("model", MODELS)
def test_without_a_history_nothing_tells(model: str, planted: Task, tmp_path: Path) -> None:
    run = fitted(model, planted, RECIPES[model].changed(protocol="rolling"), tmp_path)
    assert auc(run, planted) < 0.6


# --- a label table of its own ---------------------------------------------------------------------

AT = day(90)  # within test: labels of days up to 80 are known


def predicted(run: Run, task: Task, labels: pa.Table | None, at: int | Sequence[int] = AT) -> pa.Table:
    people = list(range(120)) if isinstance(at, int) else list(range(len(at)))
    return Predictor.load(run.folder).predict(task.full_database, people, at, labels=labels)


def test_labels_must_be_given_where_the_database_does_not_tell_them(learned: Run, planted: Task) -> None:
    with pytest.raises(QuartetError) as refused:
        predicted(learned, planted, None)
    assert str(refused.value) == (
        'error[L01] the labels of task "trait" are in a table of their own, and the database does not tell them. '
        "Fix: give the label rows that are known by now: `--labels FILE`, in Python `labels=`"
    )
    assert refused.value.exit_code == 3


def test_live_predictions_are_those_of_the_run(learned: Run, planted: Task) -> None:
    """Rolling, to the last bit, with the label table of the task: also those of test, each once it is known."""
    kept = pq.read_table(learned.folder / "predictions" / "test.parquet")
    live = Predictor.load(learned.folder).predict(
        planted.source, kept["id"].to_pylist(), times_of(kept), labels=planted.labels
    )
    assert live.equals(kept)


def scrambled(labels: pa.Table, moment: int) -> pa.Table:
    """The label rows in another order, with those that are not known at a moment turned over, gone or doubled."""
    rng = random.Random(0)
    known_rows, rows = [], labels.to_pylist()
    for row in rows:
        is_open = row["at"].value + 10 * DAY > moment
        changed = [{**row, "trait": 1 - row["trait"]}] if rng.random() < 0.7 else []
        new = {
            **row,
            "at": row["at"] + np.timedelta64(1 + rng.randrange(DAY), "ns"),
            "trait": rng.randrange(2),
        }
        known_rows += [*changed, new] if is_open else [row]
    return pa.Table.from_pylist(rng.sample(known_rows, len(known_rows)), labels.schema)


@pytest.mark.parametrize("moment", [day(40), AT - 1, AT])
def test_labels_that_are_not_known_move_no_prediction(learned: Run, planted: Task, moment: int) -> None:
    """P6 to the end: scrambled or left out, they change no bit of what is said about the moment."""
    labels = planted.labels
    said = predicted(learned, planted, labels, moment)
    assert predicted(learned, planted, scrambled(labels, moment), moment).equals(said)
    times = labels["at"].cast(pa.int64()).to_numpy()
    closed = labels.filter(pa.array(times + 10 * DAY <= moment))
    assert 0 < closed.num_rows < labels.num_rows
    assert predicted(learned, planted, closed, moment).equals(said)


def test_labels_that_are_known_move_predictions(learned: Run, planted: Task) -> None:
    """So the test above compares something: the rows known last are worth more than none."""
    said = predicted(learned, planted, planted.labels)
    assert not predicted(learned, planted, scrambled(planted.labels, AT - 1)).equals(said)
    none = predicted(learned, planted, planted.labels.slice(0, 0))
    assert not none.equals(said)
    assert np.isfinite(none["score"].to_numpy()).all()


def test_labels_about_nobody_are_reported_when_they_are_given(learned: Run, planted: Task) -> None:
    tables = planted_tables()[1].slice(0, 3)
    other = pa.table(
        {"who": [500], "at": tables["at"].slice(0, 1), "trait": pa.array([1], tables["trait"].type)}
    )
    found: list[str] = []
    predictor = Predictor.load(learned.folder)
    labels = pa.concat_tables([tables, other])
    predictor.predict(
        planted.source, [1], AT, report=lambda finding: found.append(str(finding)), labels=labels
    )
    assert found == [
        "warning[T09] known_labels.known_at: all 4 rows share one time; order is by key",
        'warning[S07] known_labels.entity: 1 of 4 values have no row in "people" (500). '
        "Using: drop links (on_dangling: error to stop)",
    ]


def test_labels_with_keys_of_another_type_are_refused(learned: Run, planted: Task) -> None:
    labels = planted.labels.set_column(1, "who", planted.labels["who"].cast(pa.string()))
    with pytest.raises(QuartetError, match=r"^error\[S08\] known_labels.entity is text, people.id is int64"):
        predicted(learned, planted, labels)


def test_a_wrong_label_table_is_refused(learned: Run, planted: Task) -> None:
    with pytest.raises(
        QuartetError, match=r'^error\[L12\] the known labels of task "trait" has no column "trait"'
    ):
        predicted(learned, planted, planted.labels.rename_columns(["at", "who", "traits"]))


# --- a forecast: the database tells ---------------------------------------------------------------

ROLLING = TINY.changed(history=True, protocol="rolling", epochs=1)


@pytest.fixture(scope="module")
def churn() -> Task:
    return Task.from_sql(small_shop(), **CHURN, num_eval_timestamps=2)


@pytest.fixture(scope="module", params=MODELS)
def run(request: pytest.FixtureRequest, churn: Task, tmp_path_factory: pytest.TempPathFactory) -> Run:
    recipe = {"quartet": ROLLING, "lightgbm": TREES.changed(history=True, protocol="rolling")}[request.param]
    return fitted(request.param, churn, recipe, tmp_path_factory.mktemp(request.param))


def asked(run: Run, database: Database, at: int) -> pa.Table:
    return Predictor.load(run.folder).predict(database, [f"C{k:02d}" for k in range(40)], at)


def grown(database: Database, days: int) -> Database:
    """The shop some days later: the first ten customers have ordered each day."""
    last = database.span[1]  # type: ignore[index]
    orders = database["orders"].data
    count = 10 * days
    new = pa.table(
        {
            "order": 100_000 + np.arange(count),
            "customer": [f"C{k % 10:02d}" for k in range(count)],
            "bought": pa.array(last + DAY * (1 + np.arange(count) // 10), pa.timestamp("ns")),
            "amount": np.full(count, 5.0),
        }
    ).cast(orders.schema)
    tables = {"customers": database["customers"].data, "orders": pa.concat_tables([orders, new])}
    return Database.build(tables, database.schema)


def test_the_protocol_decides_nothing_in_training(churn: Task, tmp_path: Path) -> None:
    """Seeds of train and validation see the same, so that the same model comes out, bit for bit."""
    frozen, rolling = ROLLING.changed(protocol="frozen"), ROLLING
    one, other = (prepare(churn, recipe, tmp_path) for recipe in (frozen, rolling))
    sizes = [material.task.database["known_labels"].num_rows for material in (one, other)]
    assert 0 < sizes[0] < sizes[1]
    for split in ("train", "val"):
        assert select(one.contexts[split], np.arange(5)).local_node.size > 5
        for name, value in vars(one.contexts[split]).items():
            assert np.array_equal(value, getattr(other.contexts[split], name)), name
    trainers = [Trainer(one, frozen), Trainer(other, rolling)]
    assert all(trainer.run() for trainer in trainers)
    assert same_weights(trainers[0].model, trainers[1].model)
    plain = prepare(churn, ROLLING.changed(history=False), tmp_path)
    assert "known_labels" not in plain.task.database.tables
    assert plain.contexts["train"].local_node.size != other.contexts["train"].local_node.size


def test_live_predictions_of_test_are_those_of_the_run(run: Run, churn: Task) -> None:
    """To the last bit: the history that is made for a question is the one that the run was evaluated with."""
    kept = pq.read_table(run.folder / "predictions" / "test.parquet")
    predictor = Predictor.load(run.folder)
    live = predictor.predict(churn.source, kept["customer"].to_pylist(), times_of(kept))
    assert live.equals(kept)
    question = predictor.question(churn.source, kept["customer"].to_pylist(), times_of(kept))
    assert known(question.database) == known(recipe_task(churn, run.recipe).database)
    alone = [predictor.predict(churn.source, [key], at)["score"][0].as_py()
             for key, at in zip(kept["customer"].to_pylist()[::25], times_of(kept)[::25], strict=True)]  # fmt: skip
    assert alone == pytest.approx(kept["score"].to_pylist()[::25], abs=1e-6)


@pytest.mark.parametrize("number", [0, 1])
def test_what_comes_after_the_asked_time_changes_no_bit(run: Run, churn: Task, number: int) -> None:
    """Neither rows nor labels: the database ends at the time, or has grown by a month."""
    at = int(np.unique(churn.seeds("test").time)[number])
    said = asked(run, churn.source, at)
    assert asked(run, churn.source.upto(at), at).equals(said)
    assert asked(run, grown(churn.source, 30), at).equals(said)


def test_a_grown_database_has_newly_known_labels(run: Run, churn: Task) -> None:
    """Windows go on from the test cut-off, past the end of the data with which the model was trained."""
    predictor = Predictor.load(run.folder)
    (_, last), test = churn.source.span, churn.splits.test  # type: ignore[misc]
    later = grown(churn.source, 30)
    question = predictor.question(later)
    end = last + 30 * DAY
    assert int(question.seeds.time[0]) == end
    before = {at - WINDOW for _, at, _ in known(churn.with_past_labels("frozen").database)}
    after = range(test, end - WINDOW + 1, WINDOW)
    assert after[-1] > last
    assert known(question.database) == counted(later, [*before, *after])
    old = predictor.question(churn.source, ["C03"], test)
    assert max(at for _, at, _ in known(old.database)) == test


def test_questions_before_any_label_is_known_are_answered(run: Run, churn: Task) -> None:
    said = asked(run, churn.source, churn.source.span[0] + DAY)  # type: ignore[index]
    assert np.isfinite(said["score"].to_numpy()).all()


@pytest.mark.parametrize("protocol", ["frozen", "rolling"])
def test_evaluation_knows_the_history_of_its_protocol(run: Run, churn: Task, protocol: str) -> None:
    """Asked anew under another protocol than that of training, and with rules that know as much."""
    found = evaluate_run(run, churn, protocol=protocol).rows  # type: ignore[arg-type]
    seeds = protocol_seeds(churn, "test", protocol)  # type: ignore[arg-type]
    customers = [f"C{node - churn.source.offsets['customers']:02d}" for node in seeds.node]
    said = Predictor.load(run.folder).predict(churn.source, customers, seeds.time.tolist())
    labels = np.asarray(churn.vault.open("compare with the evaluation"))
    assert found[0].measures["roc_auc"].value == pytest.approx(
        roc_auc(labels, np.asarray(said["score"])), abs=1e-12
    )
    rule = entity_mean(churn.with_past_labels(protocol))  # type: ignore[arg-type]
    (mean,) = (row for row in found if row.name == "entity mean")
    assert mean.measures["roc_auc"].value == pytest.approx(roc_auc(labels, rule.predict(seeds)), abs=1e-12)


def test_a_run_from_before_there_was_a_history_still_loads(churn: Task, tmp_path: Path) -> None:
    """Neither its recipe nor its task tells of one."""
    from quartet.runs.checkpoint import _digest

    run = fitted("lightgbm", churn, TREES, tmp_path)
    said = asked(run, churn.source, churn.splits.test)
    recipe = {name: value for name, value in run.read("recipe.json").items() if name != "history"}
    run.write("recipe.json", recipe)
    model = run.model_folder / "model.json"
    content = json.loads(model.read_text())
    del content["recipe"]["history"], content["task"]["spec"]
    model.write_text(json.dumps(content))
    sums = json.loads((run.model_folder / "checksums.json").read_text())
    (run.model_folder / "checksums.json").write_text(json.dumps(sums | {"model.json": _digest(model)}))
    again = Run.open(run.folder)
    assert again.recipe == TREES
    assert again.recipe.past_labels is False
    assert asked(again, churn.source, churn.splits.test).equals(said)
    assert evaluate_run(again, churn).num_rows == len(churn.seeds("test"))


@pytest.mark.parametrize("value", [1, "yes", None])
def test_a_history_is_wanted_or_not(value: object) -> None:
    with pytest.raises(QuartetError) as refused:
        Recipe().changed(history=value)
    assert str(refused.value) == f"error[C02] history is {value!r}. Fix: say true or false"


# --- numbers, classes and columns -----------------------------------------------------------------


@pytest.mark.parametrize(("sql", "task_type"), [(AMOUNT, "regression"), (SIZE, "multiclass_classification")])
def test_numbers_and_classes_have_a_history(sql: str, task_type: str, tmp_path: Path) -> None:
    words = CHURN | {"sql": sql, "task_type": task_type, "num_eval_timestamps": 2}
    task = Task.from_sql(small_shop(), **words)
    run = fit(task, ROLLING, tmp_path / "runs", cache=tmp_path / "cache")
    kept = pq.read_table(run.folder / "predictions" / "test.parquet")
    live = Predictor.load(run.folder).predict(
        task.full_database, kept["customer"].to_pylist(), times_of(kept)
    )
    assert live.equals(kept)
    other = Trainer(prepare(task, ROLLING.changed(protocol="frozen"), tmp_path / "cache"), ROLLING)
    assert other.run()
    other.use_best()
    assert same_weights(other.model, Predictor.load(run.folder).checkpoint.model)


def test_a_column_to_fill_in_has_a_history(tmp_path: Path) -> None:
    """The amounts of orders: a question about an order is answered alike, whatever its own amount is."""
    from quartet.tasks.spec import spec_from_dict

    words = {"name": "amount", "kind": "autocomplete", "task_type": "regression", "entity_table": "orders"}
    spec = spec_from_dict(words | {"target_col": "amount"}, "test")
    shop = small_shop()
    task = Task.of(spec, shop, None, {}, "error")
    run = fit(task, ROLLING, tmp_path / "runs", cache=tmp_path / "cache")
    kept = pq.read_table(run.folder / "predictions" / "test.parquet")
    predictor = Predictor.load(run.folder)
    assert predictor.predict(task.full_database, kept["order"].to_pylist(), times_of(kept)).equals(kept)
    at = times_of(kept)[0]
    now = kept.filter(pa.array([time == at for time in times_of(kept)]))
    amounts = shop["orders"].data["amount"].to_numpy().copy()
    amounts[shop["orders"].known_at >= at] = 1e6
    orders = shop["orders"].data.set_column(3, "amount", pa.array(amounts))
    other = Database.build({"customers": shop["customers"].data, "orders": orders}, shop.schema)
    said = predictor.predict(task.full_database, now["order"].to_pylist(), at)
    assert predictor.predict(other, now["order"].to_pylist(), at).equals(said)


# --- the verbs ------------------------------------------------------------------------------------


def invoke(*words: object) -> str:
    """What a verb prints on standard output, in this process; its errors are raised."""
    done = CliRunner().invoke(app, [*map(str, words)], catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The planted database as files, with its task and its labels beside it."""
    folder = tmp_path_factory.mktemp("home")
    tables, labels = planted_tables()
    (folder / "town").mkdir()
    for name, table in tables.items():
        pq.write_table(table, folder / "town" / f"{name}.parquet")
    visits = {"pkey": "id", "time_col": "at", "fkeys": {"who": "people"}}
    schema = {"people": {"pkey": "id", "time_col": None, "fkeys": {}}, "visits": visits}
    (folder / "town" / "quartet.yaml").write_text(yaml.safe_dump({"name": "town", "tables": schema}))
    pq.write_table(labels, folder / "labels.parquet")
    pa.csv.write_csv(labels, folder / "labels.csv")
    (folder / "trait.yaml").write_text(
        yaml.safe_dump({**TRAIT, "kind": "external", "labels": "labels.parquet"})
    )
    return folder


def test_train_evaluate_and_predict_by_their_verbs(folder: Path, planted: Task) -> None:
    pytest.importorskip("lightgbm")
    words = ("--model", "lightgbm", "--threads", 1, "--runs", folder / "runs")
    shown = invoke("train", folder / "town", folder / "trait.yaml", *words, "--history")
    num_known = len(known(planted.with_past_labels("frozen").database))
    assert num_known == 120 * 8  # of days 0 to 70
    (line,) = (line for line in shown.splitlines() if line.startswith("history"))
    assert " ".join(line.split()) == "history 960 known labels as rows"
    run = Run.open(folder / "runs" / "latest")
    assert run.recipe.past_labels is True
    found = json.loads(invoke("evaluate", run.folder, "--protocol", "rolling", "--json"))
    assert found["rows"][0]["measures"]["roc_auc"]["value"] > 0.85
    predictor = ("predict", run.folder, folder / "town", "--threads", 1, "--at", "2024-03-31", "--out")
    for name in ("labels.parquet", "labels.csv"):
        invoke(*predictor, folder / "scores.parquet", "--labels", folder / name)
        assert pq.read_table(folder / "scores.parquet").equals(predicted(run, planted, planted.labels))
    with pytest.raises(
        QuartetError, match=r"^error\[L01\] the labels of task \"trait\" are in a table of their own"
    ):
        invoke(*predictor, folder / "scores.parquet")


def test_without_the_word_there_is_no_history(folder: Path) -> None:
    pytest.importorskip("lightgbm")
    words = ("--model", "lightgbm", "--threads", 1, "--runs", folder / "plain")
    shown = invoke("train", folder / "town", folder / "trait.yaml", *words)
    assert not [line for line in shown.splitlines() if line.startswith("history")]
    run = Run.open(folder / "plain" / "latest")
    assert run.recipe.past_labels is False
    words = ("predict", run.folder, folder / "town", "--threads", 1, "--at", "2024-03-31")
    invoke(*words, "--out", folder / "plain.parquet")
    assert pq.read_table(folder / "plain.parquet").num_rows == 120


def test_who_fills_in_a_column_hears_when_it_counts_as_known(folder: Path) -> None:
    pytest.importorskip("lightgbm")
    task = {"name": "length", "kind": "autocomplete", "task_type": "regression", "entity_table": "visits"}
    cuts = {"val_timestamp": "2024-03-01", "test_timestamp": "2024-03-21"}
    (folder / "length.yaml").write_text(yaml.safe_dump(task | cuts | {"target_col": "length"}))
    words = ["train", folder / "town", folder / "length.yaml", "--model", "lightgbm", "--threads", 1]
    done, plain = (
        CliRunner().invoke(
            app, [*map(str, words), "--runs", str(folder / "lengths"), *more], catch_exceptions=False
        )
        for more in (["--history"], [])
    )
    assert [done.exit_code, plain.exit_code] == [0, 0]
    note = 'note[L13] labels of "length" count as known right after the time of their rows. Fix: if they are filled'
    assert note in done.stderr
    assert "L13" not in plain.stderr


def test_contexts_with_a_history_are_sampled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With it there are more rows to see; both are kept in one cache, and neither is taken for the other."""
    monkeypatch.setenv("COLUMNS", "200")
    words = (
        "sample",
        folder / "town",
        folder / "trait.yaml",
        "--cache",
        folder / "cache",
        "--set",
        "local_budget=40",
    )
    plain, history, again = (CliRunner().invoke(app, [*map(str, words), *more], catch_exceptions=False)
                             for more in ([], ["--history"], ["--history"]))  # fmt: skip
    assert [done.exit_code for done in (plain, history, again)] == [0, 0, 0]
    assert plain.stdout != history.stdout
    assert len(list((folder / "cache").rglob("*-train*"))) == 2


def test_a_network_says_how_many_labels_it_knows(
    planted: Task, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from quartet.cli.views.training import TrainingView

    recipe = TINY.changed(history=True, epochs=1)
    material = prepare(planted, recipe, tmp_path / "cache")
    with TrainingView(Run.create(tmp_path, planted, recipe, "planted"), "small") as view:
        view.begin(Trainer(material, recipe))
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("history"))
    assert " ".join(line.split()) == "history 960 known labels as rows"
    assert torch.get_num_threads() == 1
