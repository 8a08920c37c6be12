"""Classes and lists of them from the command line: unseen ones, the best of them, thresholds, and no future."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
import torch
import yaml

import quartet
from quartet import load
from quartet.config import Recipe
from quartet.database import Database
from quartet.errors import TaskError
from quartet.evaluation import best_thresholds, fit_rules
from quartet.evaluation.boosting import SETTINGS, grow_labels
from quartet.features import FeatureTable
from quartet.models.tree_target import ClassStart, ListStart, target_from
from quartet.models.tree_text import joined_labels
from quartet.models.trees import Trees
from quartet.runs import fit
from quartet.tasks import SPLITS, Task
from quartet.training import TrainingData
from quartet.training.outputs import MulticlassOutput, MultilabelOutput
from tests.tasks.small import DAY, START
from tests.trained import QUICK, TINY, TREES, Heard, asked_again, invoke, network_of

KINDS = ("cable", "lamp", "plug", "tool")


def write_orders(folder: Path, rng_seed: int = 0) -> Path:
    """Orders of 30 customers over 300 days: a kind that follows the customer, and one more kind at the end."""
    rng = np.random.default_rng(rng_seed)
    day = np.sort(rng.integers(0, 300, 1200))
    who = rng.integers(0, 30, 1200)
    kind = np.where(rng.random(1200) < 0.8, who % 3, rng.integers(0, 4, 1200))
    names = np.array([*KINDS, "brand new"])[np.where((day > 200) & (rng.random(1200) < 0.1), 4, kind)]
    folder.mkdir(parents=True)
    times = pa.array(START + day * DAY + rng.integers(0, DAY, 1200)).cast(pa.timestamp("ns"))
    order = np.argsort(times.to_numpy(), kind="stable")
    pq.write_table(
        pa.table({"customer": np.arange(30), "group": np.arange(30) % 3}), folder / "customers.parquet"
    )
    columns = {"order": np.arange(1200), "customer": who, "at": times.take(pa.array(order)), "kind": names}
    pq.write_table(pa.table(columns), folder / "orders.parquet")
    words = {
        "customers": {"pkey": "customer", "time_col": None, "fkeys": {}},
        "orders": {"pkey": "order", "time_col": "at", "fkeys": {"customer": "customers"}},
    }
    (folder / "quartet.yaml").write_text(yaml.safe_dump({"name": "orders", "tables": words}))
    cuts = {"val_timestamp": "2023-07-20", "test_timestamp": "2023-09-10"}
    kinds = {"name": "kind", "kind": "autocomplete", "entity_table": "orders", "target_col": "kind"}
    (folder / "kind.yaml").write_text(
        yaml.safe_dump(kinds | cuts | {"task_type": "multiclass_classification"})
    )
    query = "PREDICT LIST_DISTINCT(orders.kind, 0, 10, days) CLASSIFY FOR EACH customers.customer"
    (folder / "kinds.yaml").write_text(yaml.safe_dump({"name": "kinds", "query": query} | cuts))
    return folder


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_orders(tmp_path_factory.mktemp("orders") / "db")


def test_many_classes_from_the_command_line(orders: Path, tmp_path: Path) -> None:
    """A class that training lacks is counted and judged as wrong; the best classes are rows."""
    task = orders / "kind.yaml"
    shown = invoke("task", orders, task)
    assert "4 classes" in shown
    assert shown.count("L30") == 2
    invoke("train", orders, task, "--model", "lightgbm", "--runs", tmp_path)
    told = json.loads(invoke("evaluate", tmp_path / "latest", "--json"))
    assert list(told["rows"][0]["measures"]) == [
        "accuracy",
        "macro_f1",
        "mrr",
        "log_loss",
        "calibration_error",
    ]
    assert len(told["confusion"]) == 5  # the last line is of those that training lacks
    num_new = sum(told["confusion"][-1])
    assert num_new > 0
    assert sum(map(sum, told["confusion"])) == told["num_rows"]
    best = told["rows"][0]["measures"]["accuracy"]["value"]
    assert best == pytest.approx(sum(told["confusion"][k][k] for k in range(4)) / told["num_rows"])
    assert any("L30" in text for text in told["warnings"])
    asked = ("predict", tmp_path / "latest", orders, "--entities", "1150,1100,1199")
    found = json.loads(invoke(*asked, "--top", "2", "--json"))["predictions"]
    assert [row["rank"] for row in found[:4]] == [1, 2, 1, 2]
    assert set(found[0]) == {"order", "time", "rank", "predicted", "score"}
    invoke(*asked, "--out", tmp_path / "all.parquet")
    wide = pq.read_table(tmp_path / "all.parquet").to_pylist()
    for place, row in enumerate(wide):
        scores = {name: row[f"score_{name}"] for name in KINDS}
        ranked = sorted(KINDS, key=lambda name: (-scores[name], KINDS.index(name)))[:2]
        assert [each["predicted"] for each in found[2 * place : 2 * place + 2]] == ranked
        assert row["predicted"] == ranked[0]
        assert found[2 * place]["score"] == pytest.approx(scores[ranked[0]])


def test_classes_that_training_lacks_count_as_wrong_once_they_are_known(orders: Path, tmp_path: Path) -> None:
    """In what was said of cells, in how sure a model is, and in an evaluation alike; explanations leave them out."""
    task = Task.load(quartet.open(orders), orders / "kind.yaml").under("rolling")
    model = fit(task, recipe=TREES.changed(protocol="rolling"), runs=tmp_path, listener=Heard())
    database, asked = task.full_database, [*range(1000, 1199)]  # the label of the last is not known yet
    live = model.on(database, listener=Heard())
    said = live.predict(asked)
    model.keep(said)
    came = database["orders"].data["kind"].to_pylist()[1000:1199]
    judged = model.evaluate_said(database, listener=Heard())
    right = np.mean(
        [one == other for one, other in zip(said.table["predicted"].to_pylist(), came, strict=True)]
    )
    assert "brand new" in came
    assert judged.num_judged == 199
    assert judged.rows[0][1]["accuracy"].value == pytest.approx(right)
    sets = [text[1:-1].split(",") for text in said.table["set"].to_pylist()]
    assert judged.held == pytest.approx(np.mean([one in own for one, own in zip(came, sets, strict=True)]))
    [sure] = live.known_sures(database.span[1], Heard())  # type: ignore[index]
    times = database["orders"].known_at
    is_new = np.array(database["orders"].data["kind"].to_pylist()) == "brand new"
    since = task.splits.test
    assert np.isinf(sure.misfit[sure.num_kept :]).sum() == (is_new & (times >= since)).sum()
    told = live.explain(asked[-60:], rows=False)
    outcomes = {case.outcome for one in told for case in one.lookalikes}
    assert outcomes
    assert outcomes <= set(KINDS)


def test_lists_with_classes_that_training_lacks_are_judged(orders: Path, tmp_path: Path) -> None:
    model = fit(
        Task.load(quartet.open(orders), orders / "kinds.yaml"), recipe=TREES, runs=tmp_path, listener=Heard()
    )
    said = model.on(quartet.open(orders), listener=Heard()).predict(at="2023-10-01", everyone=True)
    model.keep(said)
    judged = model.evaluate_said(quartet.open(orders), listener=Heard())
    assert judged.num_judged == 30
    assert judged.rows[0][1]["macro_ap"].value > 0.3  # type: ignore[operator]


def test_validation_of_new_classes_alone_selects_no_model(orders: Path, tmp_path: Path) -> None:
    task = Task.load(quartet.open(orders), orders / "kind.yaml")
    rows = pa.concat_tables([task.label_rows(split) for split in SPLITS])
    is_late = pc.greater_equal(rows["at"].cast(pa.timestamp("ns")).cast(pa.int64()), task.splits.val)
    rows = rows.set_column(2, "kind", pc.if_else(is_late, "newer", rows["kind"]))
    other = Task.from_labels(
        task.full_database, rows, name="newer", task_type="multiclass_classification", entity_table="orders",
        entity_col="order", time_col="at", target_col="kind", known_after="1 day",
        val_timestamp="2023-07-20", test_timestamp="2023-09-10",
    )  # fmt: skip
    for model in ("lightgbm", "auto"):
        with pytest.raises(TaskError, match=r"L06.*none of \d+ rows has a class that training has"):
            fit(other, model, runs=tmp_path, listener=Heard())
    with pytest.raises(TaskError, match="L06"):
        fit_rules(other, FeatureTable.fit(other.database, other.splits.val))


def test_lists_of_classes_from_the_command_line(orders: Path, tmp_path: Path) -> None:
    task = orders / "kinds.yaml"
    assert "multilabel classification" in invoke("task", orders, task)
    invoke("train", orders, task, "--model", "lightgbm", "--runs", tmp_path)
    told = json.loads(invoke("evaluate", tmp_path / "latest", "--json"))
    assert next(iter(told["rows"][0]["measures"])) == "macro_ap"
    assert [one["name"] for one in told["labels"]] == [*KINDS, "(not in training: 1)"]
    model = load(tmp_path / "latest").members[0][0]
    assert [one["threshold"] for one in told["labels"][:-1]] == pytest.approx(model.thresholds)
    assert "average precision" in invoke("evaluate", tmp_path / "latest")
    invoke("predict", tmp_path / "latest", orders, "--out", tmp_path / "all.csv")
    written = csv.read_csv(tmp_path / "all.csv").to_pylist()
    assert len(written) == 30
    for row in written:
        above = [
            n for n, limit in zip(KINDS, model.thresholds or (), strict=True) if row[f"score_{n}"] >= limit
        ]
        assert json.loads(row["predicted"]) == above
    invoke("predict", tmp_path / "latest", orders, "--top", "1", "--out", tmp_path / "best.csv")
    assert csv.read_csv(tmp_path / "best.csv").num_rows == 30


@pytest.mark.parametrize("recipe", ["quartet", "lightgbm"])
def test_models_of_lists_answer_again(orders: Path, recipe: str, tmp_path: Path) -> None:
    """Kept, loaded and asked again, a model of label lists gives the same bits; and none adds up to 1."""
    task = Task.load(Database.load(str(orders)), str(orders / "kinds.yaml"))
    settings: dict[str, Any] = {"model": recipe, "protocol": "rolling"}
    if recipe == "quartet":
        settings = {"recipe": TINY.changed(protocol="rolling")}
    model = fit(task, runs=tmp_path, cache=tmp_path, listener=Heard(), **settings)
    kept = model.run.predictions("test")
    assert asked_again(load(model.folder), task.full_database, kept).to_pydict() == kept.to_pydict()
    scores = model.run.kept_scores("test", task)
    assert scores.shape == (len(task.seeds("test")), 4)
    assert scores.min() > 0
    assert scores.max() < 1
    explained = model.on(task.full_database, listener=Heard()).explain([3], rows=False)
    assert explained[0].predicted in KINDS


def test_other_futures_change_no_answer(orders: Path, tmp_path: Path) -> None:
    """Later rows, labels and classes are taken away, or replaced: what is asked before them has the same bits."""
    database = Database.load(str(orders))
    moment = "2023-09-01"
    for name, has_past in (("kind", False), ("kinds", False), ("kinds", True)):
        task = Task.load(database, str(orders / f"{name}.yaml"))
        model = fit(task, "lightgbm", runs=tmp_path, cache=tmp_path, listener=Heard(), past_labels=has_past)
        whole = database["orders"]
        is_before = whole.data["at"].to_numpy() <= np.datetime64(moment)
        rest = whole.data.filter(pa.array(is_before))
        later = whole.data.filter(pa.array(~is_before))
        later = later.set_column(3, "kind", pa.array([f"never seen {n % 7}" for n in range(later.num_rows)]))
        asked = [5] if name == "kinds" else [int(rest["order"][-1].as_py())]
        told = []
        for data in (whole.data, rest, pa.concat_tables([rest, later])):
            folder = tmp_path / f"{name}-{has_past}-{len(told)}"
            write_orders(folder)
            pq.write_table(data, folder / "orders.parquet")
            told.append(
                model.on(Database.load(str(folder)), listener=Heard()).predict(asked, moment).to_arrow()
            )
        assert told[0].equals(told[1])
        assert told[0].equals(told[2])


def test_labels_of_test_change_no_model(orders: Path, tmp_path: Path) -> None:
    """Neither classes nor thresholds nor trees follow from labels of test."""
    task = Task.load(Database.load(str(orders)), str(orders / "kinds.yaml"))
    rows = {split: task.label_rows(split) for split in ("train", "val", "test")}
    other = rows["test"].set_column(2, task.spec.target_col, pa.array([["z"]] * rows["test"].num_rows))
    words = {
        "name": "given", "task_type": task.spec.type, "entity_table": "customers", "entity_col": "customer",
        "time_col": task.spec.time_col, "target_col": task.spec.target_col, "timedelta": "10 days",
        "val_timestamp": "2023-07-20", "test_timestamp": "2023-09-10",
    }  # fmt: skip
    found = []
    for test in (rows["test"], other):
        labels = pa.concat_tables([rows["train"], rows["val"], test])
        given = Task.from_labels(task.full_database, labels, **words)
        model = fit(given, "lightgbm", runs=tmp_path, cache=tmp_path, listener=Heard())
        found.append((network_of(model).text, model.members[0][0].thresholds, given.classes))
    assert found[0] == found[1]


# --- parts ----------------------------------------------------------------------------------------


def test_trees_of_labels_are_one_text() -> None:
    """Joined, with each label's own rounds and base, they answer as the booster does."""
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(600, 5)).astype(np.float32)
    target = (matrix[:, :3] + rng.normal(size=(600, 3)) > np.array([0, 1, 3.5])).astype(np.int8)
    settings = SETTINGS | {"min_data_in_leaf": 20, "seed": 0}
    grown = grow_labels(settings, (matrix[:400], target[:400]), (matrix[400:], target[400:]), (), 40)
    text = joined_labels(grown.booster.model_to_string(), grown.base, grown.rounds, 5)
    trees = Trees(tuple("abcde"), 3, text)
    assert trees.raw(matrix) == pytest.approx(grown.logits(matrix), abs=1e-9)
    assert len(set(grown.rounds.tolist())) > 1
    assert trees.num_rounds == grown.rounds.max()
    contributions = trees.contributions(matrix)
    assert contributions.shape == (600, 3, 5)


def test_thresholds_are_where_f1_is_highest() -> None:
    """Against every possible threshold, one by one."""
    rng = np.random.default_rng(0)
    target, score = rng.integers(0, 2, (80, 4)), rng.integers(0, 20, (80, 4)) / 20
    target[:, 3] = 0
    found = best_thresholds(target, score)

    def f1(place: int, limit: float) -> float:
        said = score[:, place] >= limit
        return float(2 * (said & (target[:, place] == 1)).sum() / (said.sum() + target[:, place].sum()))

    for place in range(3):
        assert f1(place, found[place]) == max(f1(place, limit) for limit in np.unique(score[:, place]))
    assert found[3] == 0.5  # nothing to choose by


def test_a_network_learns_nothing_from_a_class_that_training_lacks() -> None:
    output = MulticlassOutput((0.5, 0.5))
    logits = torch.randn(3, 2, requires_grad=True)
    loss = output.loss(logits, torch.tensor([1, 2, 5]))
    assert loss[1:].tolist() == [0, 0]
    loss.sum().backward()
    assert logits.grad is not None
    assert not logits.grad[1:].any()
    lists = MultilabelOutput((0.5, 0.5))
    assert lists.loss(logits, torch.ones(3, 4)).shape == (3,)


def test_quick_settings_train_lists(orders: Path, tmp_path: Path) -> None:
    """`auto` goes its whole way with label lists, and says what each member is worth."""
    task = Task.load(Database.load(str(orders)), str(orders / "kinds.yaml"))
    short = {k: v for k, v in QUICK.items() if k != "epochs"}
    model = fit(task, "auto", runs=tmp_path, cache=tmp_path, listener=Heard(), time_limit=4, **short)
    assert model.recipe.past_labels
    evaluation = model.evaluate(task, listener=Heard())
    assert evaluation.rows[0].name == "auto"
    assert replace(evaluation, rows=()).labels


def write_favourites(folder: Path) -> Path:
    """Orders of 120 customers, each of two kinds of six by lot, which nothing but its own past tells."""
    rng = np.random.default_rng(0)
    num, day = 3600, np.sort(rng.integers(0, 400, 3600))
    who, favourites = rng.integers(0, 120, num), rng.integers(0, 6, (120, 2))
    kind = np.where(rng.random(num) < 0.9, favourites[who, rng.integers(0, 2, num)], rng.integers(0, 6, num))
    folder.mkdir(parents=True)
    times = pa.array(START + day * DAY).cast(pa.timestamp("ns"))
    pq.write_table(pa.table({"customer": np.arange(120)}), folder / "customers.parquet")
    columns = {"order": np.arange(num), "customer": who, "at": times, "kind": [f"k{k}" for k in kind]}
    pq.write_table(pa.table(columns), folder / "orders.parquet")
    words = {
        "customers": {"pkey": "customer", "time_col": None, "fkeys": {}},
        "orders": {"pkey": "order", "time_col": "at", "fkeys": {"customer": "customers"}},
    }
    (folder / "quartet.yaml").write_text(yaml.safe_dump({"name": "favourites", "tables": words}))
    query = "PREDICT LIST_DISTINCT(orders.kind, 0, 20, days) CLASSIFY FOR EACH customers.customer"
    cuts = {"val_timestamp": "2023-10-20", "test_timestamp": "2023-12-10"}
    (folder / "kinds.yaml").write_text(yaml.safe_dump({"name": "kinds", "query": query} | cuts))
    return folder


def test_past_lists_from_the_command_line(tmp_path: Path) -> None:
    """A planted signal that past lists tell: far above the constant, and as good as the mean of past lists."""
    source = write_favourites(tmp_path / "db")
    words = ("--model", "lightgbm", "--runs", tmp_path, "--past-labels", "--time-limit", "20s")
    assert "past labels" in invoke("train", source, source / "kinds.yaml", *words)
    told = json.loads(invoke("evaluate", tmp_path / "latest", "--json"))
    found = {row["name"]: row["measures"]["macro_ap"]["value"] for row in told["rows"]}
    assert found["lightgbm"] > found["constant"] + 0.3
    assert found["lightgbm"] > found["entity mean"] - 0.02
    asked = ("predict", tmp_path / "latest", source, "--entities", "5,17", "--top", "2", "--json")
    assert len(json.loads(invoke(*asked))["predictions"]) == 4
    shown = invoke("explain", tmp_path / "latest", source, "--entity", "5")
    assert "past label" in shown


def test_trees_begin_with_what_the_last_lists_had(tmp_path: Path) -> None:
    """By the plain formula; kept and asked again they give the same bits; parts add up; damage is refused."""
    source = write_favourites(tmp_path / "db")
    database = Database.load(str(source))
    task = Task.load(database, str(source / "kinds.yaml"))
    recipe = Recipe.load("small", model="lightgbm", past_labels=True, protocol="rolling")
    data = TrainingData.prepare(task, recipe)
    start = ListStart.of(data)
    assert start is not None
    matrix, names = data.columns("train"), data.column_names
    logits = start.start(matrix, names)
    rates = (data.labels("train").sum(0) + 0.5) / (len(matrix) + 1)
    for row in (0, 500, len(matrix) - 1):
        num = min(12.0, float(matrix[row, names.index("known_labels by entity: all")]))
        for place, name in enumerate(task.classes or ()):
            column = f"known_labels by entity -> label has {name}: share of the last 12"
            share = float(matrix[row, names.index(column)]) if num else 0.0
            chance = (num * share + start.weight * rates[place]) / (num + start.weight)
            assert logits[row, place] == pytest.approx(np.log(chance / (1 - chance)))
    assert ListStart.of(replace(data, chosen_columns=names[:5])) is None  # which tell of no list
    model = fit(task, runs=tmp_path, cache=tmp_path, listener=Heard(), recipe=recipe)
    trees = network_of(model)
    assert trees.target == start
    kept = model.run.predictions("test")
    assert asked_again(load(model.folder), database, kept).to_pydict() == kept.to_pydict()
    raw, parts = trees.raw(matrix), trees.contributions(matrix).sum(2)
    rest = raw - parts  # the same for all rows: what is left is the base
    assert rest == pytest.approx(np.tile(rest[0], (len(rest), 1)), abs=1e-9)
    facts = json.loads((model.folder / "model" / "trees.json").read_text())
    for wrong in (
        {"weight": -1.0},
        {"rates": [0.5]},
        {"columns": ["none of these"] * 6},
        {"rates": [1.0] * 6},
    ):
        with pytest.raises(ValueError, match="lists that there are not"):
            target_from(facts["target"] | wrong, 6, tuple(facts["columns"]))


def test_trees_begin_with_the_class_of_past_labels(tmp_path: Path) -> None:
    """Each customer has a class of its own, most of them rare: what came before is told, kept, and explained."""
    rng = np.random.default_rng(0)
    num = 900
    who = rng.integers(0, 40, num)
    at = pa.array(START + np.arange(num) * DAY // 3).cast(pa.timestamp("ns"))
    kinds = np.where(rng.random(num) < 0.9, who % 20, rng.integers(0, 20, num))
    tables = {
        "customers": pa.table({"customer": np.arange(40)}),
        "orders": pa.table(
            {"order": np.arange(num), "customer": who, "at": at, "kind": [f"k{k:02d}" for k in kinds]}
        ),
    }
    schema = {
        "customers": {"pkey": "customer", "time_col": None},
        "orders": {"pkey": "order", "time_col": "at", "fkeys": {"customer": "customers"}},
    }
    database = Database.load(tables, {"tables": schema})
    task = database.query("PREDICT orders.kind FOR EACH orders.order", known_after="1 hour")
    data = TrainingData.prepare(
        task, Recipe.load("small", model="lightgbm", past_labels=True, protocol="rolling")
    )
    start = ClassStart.of(data)
    assert start is not None
    assert start.column.startswith(
        "customer -> customers, orders by customer, known_labels by entity -> label: "
    )
    first = start.start(data.columns("train"), data.column_names)
    assert np.exp(first).sum(1) == pytest.approx(1)
    told = start.told(data.columns("train"), data.column_names)
    assert (first.argmax(1) == told)[told >= 0].all()
    assert start.share == pytest.approx((told == data.labels("train"))[told >= 0].mean())
    model = fit(task, "lightgbm", runs=tmp_path, cache=tmp_path, listener=Heard(), past_labels=True)
    found = {row.name: row.measures["accuracy"].value for row in model.evaluate(task, listener=Heard()).rows}
    assert found["lightgbm"] >= found["last 12 of the same customers"] - 0.05  # type: ignore[operator]
    assert found["lightgbm"] > 0.8  # type: ignore[operator]
    kept = model.run.predictions("test")
    assert asked_again(load(model.folder), database, kept).equals(kept)
    live = model.on(database, listener=Heard())
    assert live.explain([890], rows=False)[0].columns[0].words.endswith("of its orders of its customers")
