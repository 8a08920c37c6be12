"""The model lightgbm from training to submission: what is kept, what comes out again, and what is refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from quartet.cli.main import app
from quartet.config import Recipe
from quartet.database import Database
from quartet.errors import IntegrityError, ResourceError, TaskError
from quartet.evaluation import main_metric, measures
from quartet.models import Boosted, prepare_boosting
from quartet.paper import write_submission
from quartet.runs import Predictor, Run, fit, keep_evaluation, load_checkpoint, train_boosted
from quartet.runs.evaluate import evaluate_run
from quartet.tasks import Split, Task
from tests.tasks.small import CHURN, DAY, START, small_shop, write_small_shop

RECIPE = Recipe.load("small", model="lightgbm")
COUNT_SQL = CHURN["sql"].replace("= 0 AS BIGINT) AS churned", "AS BIGINT) AS churned")
CLASS_SQL = COUNT_SQL.replace("CAST(COUNT", "CAST(LEAST(2, COUNT").replace(" AS BIGINT", ") AS BIGINT")
TASKS: dict[str, dict[str, Any]] = {
    "binary_classification": CHURN,
    "regression": CHURN | {"sql": COUNT_SQL, "task_type": "regression"},
    "multiclass_classification": CHURN | {"sql": CLASS_SQL, "task_type": "multiclass_classification"},
}
KINDS = list(TASKS)


@pytest.fixture(scope="module")
def tasks() -> dict[str, Task]:
    database = small_shop(city=[("Bonn", "Köln", "Lyon")[k % 3] for k in range(40)])
    return {kind: Task.from_sql(database, **said) for kind, said in TASKS.items()}


@pytest.fixture(scope="module")
def runs(tasks: dict[str, Task], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    base = tmp_path_factory.mktemp("runs")
    return {kind: fit(task, RECIPE, base / kind) for kind, task in tasks.items()}


def kept_scores(run: Run, split: Split) -> np.ndarray[Any, Any]:
    table = pq.read_table(run.folder / "predictions" / f"{split}.parquet")
    return np.column_stack(
        [np.asarray(table[name]) for name in table.column_names if name.startswith("score")]
    )


# --- what is kept ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_is_a_folder_as_that_of_a_network(
    kind: str, runs: dict[str, Run], tasks: dict[str, Task]
) -> None:
    folder, task = runs[kind].folder, tasks[kind]
    assert {path.name for path in folder.iterdir()} == {
        "recipe.json", "task.json", "environment.json", "metrics.jsonl", "curves.svg", "model", "predictions",
    }  # fmt: skip
    assert {path.name for path in (folder / "model").iterdir()} == {
        "model.json", "trees.txt", "features.safetensors", "checksums.json",
    }  # fmt: skip
    assert runs[kind].is_done
    assert runs[kind].recipe == RECIPE
    assert runs[kind].read("environment.json")["packages"]["lightgbm"]
    (line,) = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    score = kept_scores(runs[kind], "val")
    metric = main_metric(task.spec.type)
    labels = np.asarray(task.seeds("val").target)
    found = measures(task.spec.type, labels, score if score.shape[1] > 1 else score[:, 0], num_resamples=0)
    assert line["validation"] == found[metric].value
    assert line["is_best"]
    assert 0 < line["loss"] < 2


@pytest.mark.parametrize("kind", KINDS)
def test_live_predictions_are_the_kept_ones(kind: str, runs: dict[str, Run], tasks: dict[str, Task]) -> None:
    task, predictor = tasks[kind], Predictor.load(runs[kind].folder)
    kept = pq.read_table(runs[kind].folder / "predictions" / "val.parquet")
    times = np.asarray(kept["time"].cast(pa.int64())).tolist()
    live = predictor.predict(task.full_database, kept["customer"].to_pylist(), times)
    assert live.equals(kept)
    expected = {"score", "calibrated"} if kind == "binary_classification" else {"score"}
    if kind == "multiclass_classification":
        expected = {"predicted", "score_0", "score_1", "score_2"}
    assert set(live.column_names) == {"customer", "time"} | expected


def test_a_loaded_model_has_the_trees_that_were_kept(runs: dict[str, Run], tasks: dict[str, Task]) -> None:
    model = load_checkpoint(runs["multiclass_classification"].model_folder).model
    assert isinstance(model, Boosted)
    assert model.num_outputs == 3
    assert model.num_trees % 3 == 0
    assert model.num_trees == model._booster.num_trees() > 0
    leaves = model._booster.trees_to_dataframe().groupby("tree_index").size()  # splits and leaves
    assert model.num_parameters == leaves.sum()
    names = prepare_boosting(tasks["multiclass_classification"], RECIPE).columns.of_seeds(
        tasks["multiclass_classification"].seeds("val")
    )
    assert model.names == tuple(names)


def test_the_same_trees_come_out_twice(tasks: dict[str, Task]) -> None:
    boosting = prepare_boosting(tasks["regression"], RECIPE)

    def text(rng_seed: int) -> str:
        train, val = boosting.labelled("train"), boosting.labelled("val")
        return Boosted.fit("regression", boosting.columns, train, val, rng_seed=rng_seed).text

    assert text(0) == text(0) != text(1)


@pytest.mark.parametrize("kind", KINDS)
def test_the_model_learns(kind: str, runs: dict[str, Run], tasks: dict[str, Task]) -> None:
    """Beside the constant, on test; and the rows that stand beside a network stand beside it."""
    found = evaluate_run(runs[kind], tasks[kind])
    assert [row.name for row in found.rows] == [
        "lightgbm", "constant", "entity mean", "last 12 labels", "LightGBM on counts"
    ]  # fmt: skip
    metric = {"regression": "mae"}.get(kind, "log_loss")
    model, constant = (row.measures[metric].value for row in found.rows[:2])
    assert model is not None
    assert constant is not None
    assert model < constant


def test_under_the_other_protocol_it_is_asked_anew_and_says_the_same(
    runs: dict[str, Run], tasks: dict[str, Task]
) -> None:
    """All seeds of test are asked about at the cut-off, where both protocols see the same."""
    assert set(tasks["regression"].seeds("test").time) == {tasks["regression"].splits.test}
    rows = [
        evaluate_run(runs["regression"], tasks["regression"], protocol=protocol).rows[0].measures["mae"].value
        for protocol in ("frozen", "rolling")
    ]
    assert rows[0] == rows[1]


# --- the future -----------------------------------------------------------------------------------


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
    one = {"customer": "C99", "age": 33, "city": "Bonn"}
    more = pa.Table.from_pylist([one]).cast(customers.schema)
    tables = {
        "customers": pa.concat_tables([more, customers]),
        "orders": pa.concat_tables([new.cast(orders.schema), past]),
    }
    return Database.build(tables, database.schema)


@pytest.mark.parametrize("kind", KINDS)
def test_predictions_do_not_notice_the_future(
    kind: str, runs: dict[str, Run], tasks: dict[str, Task]
) -> None:
    task, predictor = tasks[kind], Predictor.load(runs[kind].folder)
    time = START + 200 * DAY
    other = grown(task.full_database, time)
    assert other.num_rows != task.full_database.num_rows
    names = [f"C{k:02d}" for k in range(40)]
    before, after = (predictor.predict(database, names, time) for database in (task.full_database, other))
    assert after.equals(before)
    later = [predictor.predict(database, names, time + 40 * DAY) for database in (task.full_database, other)]
    assert not later[0].equals(later[1])
    assert predictor.predict(other, ["C99"], time).num_rows == 1


# --- what ends a training early -------------------------------------------------------------------


def test_a_time_limit_keeps_what_there_is(tasks: dict[str, Task], tmp_path: Path) -> None:
    run = fit(tasks["binary_classification"], RECIPE.changed(time_limit=1e-9), tmp_path)
    model = load_checkpoint(run.model_folder).model
    assert isinstance(model, Boosted)
    assert model.num_trees == 1


def test_a_stopped_training_keeps_nothing_and_can_begin_anew(tasks: dict[str, Task], tmp_path: Path) -> None:
    task = tasks["regression"]
    boosting = prepare_boosting(task, RECIPE)
    run = Run.create(tmp_path, task, RECIPE, "small")
    assert train_boosted(run, boosting, RECIPE, must_stop=lambda: True) is None
    assert not run.is_done
    assert train_boosted(run, boosting, RECIPE) is not None
    assert run.is_done


# --- what is refused ------------------------------------------------------------------------------


def test_without_the_package_it_is_said_before_the_work(
    tasks: dict[str, Task], runs: dict[str, Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    expected = (
        'error[R01] the model "lightgbm" needs the package lightgbm, which is not installed. '
        'Fix: pip install "quartet-rdl[baselines]"'
    )
    with pytest.raises(ResourceError) as raised:
        fit(tasks["regression"], RECIPE, tmp_path / "runs")
    assert str(raised.value) == expected
    assert not (tmp_path / "runs").exists()
    with pytest.raises(ResourceError) as raised:
        Predictor.load(runs["regression"].folder).predict(tasks["regression"].source)
    assert str(raised.value) == expected


def test_one_class_in_validation_is_refused_before_training(tmp_path: Path) -> None:
    moment = str(np.datetime64(START + 200 * DAY, "ns").astype("datetime64[s]"))
    sql = CHURN["sql"].replace("= 0 AS BIGINT)", f"= 0 AND t.timestamp < TIMESTAMP '{moment}' AS BIGINT)")
    task = Task.from_sql(small_shop(), **(CHURN | {"sql": sql}))
    with pytest.raises(
        TaskError, match=r"^error\[L06\] no model can be selected by the roc_auc of validation"
    ):
        fit(task, RECIPE, tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_damaged_trees_are_refused(tasks: dict[str, Task], tmp_path: Path) -> None:
    run = fit(tasks["regression"], RECIPE, tmp_path)
    trees = run.model_folder / "trees.txt"
    trees.write_text(trees.read_text().replace("num_leaves", "num_leafs", 1))
    with pytest.raises(IntegrityError) as raised:
        load_checkpoint(run.model_folder)
    assert str(raised.value) == f"error[C06] {trees} is damaged or absent. Fix: train again, or copy it again"


# --- as people meet it ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_shop(tmp_path_factory.mktemp("data") / "small")


def invoke(*words: object) -> str:
    done = CliRunner().invoke(app, [*map(str, words)], catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


def test_train_evaluate_and_predict_by_their_verbs(source: Path, tmp_path: Path) -> None:
    base = tmp_path / "runs"
    words = ("train", source, "churn", "--model", "lightgbm", "--runs", base, "--threads", 1)
    shown = invoke(*words)
    (run,) = (path for path in base.iterdir() if not path.is_symlink())
    (line,) = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    trees = load_checkpoint(run / "model").model
    assert isinstance(trees, Boosted)
    said = f"Best: {trees.num_trees:,} trees, validation roc_auc {line['validation']:.4f}. Everything is in {run}"
    assert shown.splitlines()[-1] == said
    assert "LightGBM, at most 2,000 trees, until 50 more do not help on validation" in shown
    assert "churn: binary classification of customers, by roc_auc" in shown
    assert json.loads(invoke("evaluate", run, "--json"))["rows"][0]["name"] == "lightgbm"
    out = tmp_path / "scores.csv"
    invoke("predict", run, source, "--at", "2023-09-01", "--out", out)
    assert len(out.read_text().splitlines()) == 41


def test_json_is_one_object_a_line_and_nothing_else(source: Path, tmp_path: Path) -> None:
    words = ("train", source, "churn", "--model", "lightgbm", "--runs", tmp_path, "--threads", 1, "--json")
    begin, epoch, end = map(json.loads, invoke(*words).splitlines())
    assert begin["event"] == "begin"
    assert begin["recipe"]["architecture"] == "lightgbm"
    assert (epoch["event"], epoch["metric"], epoch["number"]) == ("epoch", "roc_auc", 0)
    trees = load_checkpoint(Path(begin["run"]) / "model").model
    assert isinstance(trees, Boosted)
    assert end == {
        "event": "end",
        "run": begin["run"],
        "trees": trees.num_trees,
        "metric": "roc_auc",
        "validation": epoch["validation"],
    }


def test_runs_can_be_submitted(source: Path, tmp_path: Path) -> None:
    task = Task.load(Database.load(source), "churn")
    found = [fit(task, RECIPE.changed(rng_seed=seed, time_rule="<"), tmp_path / "runs") for seed in (0, 1)]
    for run in found:
        keep_evaluation(run, evaluate_run(run, task))
    findings: list[str] = []
    submission = write_submission(
        found, task, tmp_path / "board", lambda finding: findings.append(finding.code)
    )
    assert [run.rng_seed for run in submission.runs] == [0, 1]
    assert submission.time_rule == "<"
    assert "B10" not in findings
    for run, figures in zip(found, submission.runs, strict=True):
        rows = run.read("evaluation-test-frozen.json")["rows"]
        assert figures.test == rows[0]["measures"]["roc_auc"]["value"]
