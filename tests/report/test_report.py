"""A report tells what the run's files tell, of any kind of task, and opens no test label by itself."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quartet.errors import IntegrityError, UsageError
from quartet.evaluation import difference
from quartet.report.answer import best_rule, evaluation_parts, headlines, number, verdict
from quartet.report.data import sentence
from quartet.report.who import _percent
from quartet.runs import Ensemble, Evaluation, TrainedModel, fit, kept_evaluations, load
from quartet.times import show_instant
from tests.report.small import NAMES, Node, read_page, rows_of, shop_model, shop_task
from tests.tasks.small import CHURN, small_shop
from tests.trained import KINDS, TREES, Heard, churn, from_labels, run, write_shop

MOST_BYTES = 500_000
PAST = TREES.changed(past_labels=True, protocol="rolling")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("report")


@pytest.fixture(scope="module", params=KINDS)
def model(request: pytest.FixtureRequest, folder: Path) -> TrainedModel:
    return shop_model(folder, request.param)


def report(model: TrainedModel, folder: Path, **options: Any) -> Node:
    path = model.report(folder / "page.html", listener=Heard(), **options)
    text = path.read_text(encoding="utf-8")
    assert len(text.encode()) <= MOST_BYTES
    return read_page(text)[0]


def told(measure: dict[str, Any]) -> str:
    if measure["value"] is None:
        return f"n/a ({measure['undefined']})"
    interval = "" if measure["low"] is None else f" {number(measure['low'])} to {number(measure['high'])}"
    return number(measure["value"]) + interval


def test_figures_are_those_of_the_json(model: TrainedModel, folder: Path) -> None:
    page = report(model, folder, evaluate=True)
    kept = sorted(model.folder.glob("evaluation-test-*.json"), key=lambda path: "frozen" not in path.name)
    assert len(kept) == 2  # both protocols
    tables = page.all("table", class_="measures")
    assert len(tables) == len(kept)  # as they differ
    for table, path in zip(tables, kept, strict=True):
        values = json.loads(path.read_text())
        assert f"{values['num_rows']:,} rows" in table.all("caption")[0].text
        lines = rows_of(table)
        assert len(lines) == len(values["rows"])
        for line, row in zip(lines, values["rows"], strict=True):
            assert row["name"].removeprefix("- ") in line[0].text
            assert [cell.text for cell in line[1:]] == [told(measure) for measure in row["measures"].values()]
    first = json.loads(kept[0].read_text())
    text = page.all("section", id="answer")[0].text
    assert f"Judged on {first['num_rows']:,} test rows" in text
    for line in headlines(Evaluation.from_dict(first)):
        assert f"{line.figure} {line.words}" in text
    for row, counts in zip(
        first["confusion"], rows_of(page.all("table")[0]) if first["confusion"] else (), strict=True
    ):
        assert [int(cell.text) for cell in counts[1:]] == row


def test_predictions_are_those_of_the_model(model: TrainedModel, folder: Path) -> None:
    page = report(model, folder)
    scores = model.on(model.task.full_database, listener=Heard()).predict().top().table
    [table] = page.all("table", id="people")
    names = [head.attributes["data-name"] for head in table.all("th", scope="col")]
    shown = [name for name in names if name in scores.column_names]
    assert shown == [name for name in scores.column_names if name != "time"]
    for line, row in zip(rows_of(table), scores.to_pylist(), strict=True):
        for name, cell in zip(names, line, strict=True):
            if isinstance(row.get(name), float):
                assert float(cell.attributes["data-value"]) == row[name]
            elif name in row:
                assert cell.text == row[name]
    assert {name for name in NAMES if name in scores["name"].to_pylist()}


def test_equal_figures_are_told_once(model: TrainedModel) -> None:
    evaluation = model.evaluate(listener=Heard())
    same = replace(evaluation, protocol="clamped")
    other = replace(evaluation, protocol="rolling", rows=evaluation.rows[:1])
    parts = evaluation_parts([evaluation, same, other], model.record.classes)
    assert [part["protocols"] for part in parts] == [["frozen", "clamped"], ["rolling"]]


def known_times(page: Node) -> list[str]:
    """The times of the known cases whose outcomes are told."""
    told = [each.text for each in page.all("section", id="why")[0].all("p") if "Known cases" in each.text]
    return [time for text in told for time in re.findall(r" on (\d{4}-\d\d-\d\d)", text)]


def test_it_opens_no_vault_by_itself(tmp_path: Path) -> None:
    model, task = shop_model(tmp_path), shop_task(tmp_path)
    page = report(model, tmp_path, task=task)
    assert task.vault.openings == []
    assert "test is still untouched" in page.text
    assert "validation rows" in page.all("section", id="answer")[0].text
    assert known_times(page)
    assert max(known_times(page)) < show_instant(task.splits.test)
    assert not list(model.folder.glob("evaluation-test-*"))
    page = report(model, tmp_path, task=task, evaluate=True)
    assert len(task.vault.openings) == 2  # one for each protocol, by the evaluation
    assert all(reason.startswith("evaluate ") for reason in task.vault.openings)
    assert "test is still untouched" not in page.text
    assert max(known_times(page)) >= show_instant(task.splits.test)
    report(model, tmp_path, task=task, evaluate=True)
    assert len(task.vault.openings) == 2  # what has been judged is read


def test_runs_are_compared_on_the_same_rows(tmp_path: Path) -> None:
    models = [shop_model(tmp_path, recipe=TREES.changed(rng_seed=seed)) for seed in (0, 1)]
    task = shop_task(tmp_path)
    page = report(Ensemble(*models), tmp_path, task=task)
    assert task.vault.openings == []
    best, other = sorted(models, key=lambda model: -model.validation)
    [board] = page.all("section", id="board")
    lines = rows_of(board.all("table")[0])
    assert [line[0].text for line in lines] == [best.folder.name, other.folder.name]
    assert [line[3].text for line in lines] == ["not judged"] * 2
    seeds = task.seeds("val")
    scores = [one.run.kept_scores("val", task) for one in (other, best)]
    gap = difference(task.spec.type, np.asarray(seeds.target), *scores, seeds.node)
    assert lines[1][4].text == f"{number(gap.value)} {number(gap.low)} to {number(gap.high)}"
    page = report(Ensemble(*models), tmp_path, task=task, evaluate=True)
    lines = rows_of(page.all("section", id="board")[0].all("table")[0])
    assert task.vault.openings[-1] == f"compare {best.folder.name}, {other.folder.name}"
    for line, one in zip(lines, (best, other), strict=True):
        measure = kept_evaluations(one.run)[0].rows[0].measures["roc_auc"]
        assert line[3].text == f"{number(measure.value)} {number(measure.low)} to {number(measure.high)}"


def test_training_ends_with_the_command_that_writes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = write_shop(tmp_path / "the shop")
    monkeypatch.chdir(tmp_path)
    trained = run("train", shop, "churn.yaml", "--model", "lightgbm", "--runs", "my runs")
    assert trained.returncode == 0, trained.stderr
    program, *words = shlex.split(trained.stderr.splitlines()[-1].partition(": ")[2])
    assert (program, words[0]) == ("quartet", "report")
    done = run(*words, "--at", "2023-09-01")
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1].startswith("Wrote report.html (")
    page, _ = read_page((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "2023-09-01" in page.all("section", id="who")[0].text
    assert not list(tmp_path.glob("my runs/*/evaluation-test-*"))
    again = run("report", "my runs/latest", "-o", "other.html", "--evaluate", "--source", shop)
    assert again.returncode == 0, again.stderr
    assert list(tmp_path.glob("my runs/*/evaluation-test-*"))


def test_what_cannot_be_told_is_refused(tmp_path: Path) -> None:
    model = shop_model(tmp_path)
    done = run("report", model.folder, "-o", tmp_path / "page.html")
    assert done.returncode == 2
    assert "L01" in done.stderr  # a database of data frames cannot be opened again
    for wrong in ("page.pdf", "page"):
        with pytest.raises(UsageError, match=r"C02.*\.html"):
            model.report(tmp_path / wrong)
    others = shop_model(tmp_path, "regression")
    with pytest.raises(UsageError, match="C05"):
        Ensemble(model, others).report(tmp_path / "page.html")
    with pytest.raises(UsageError, match="C10"):
        load(model.folder / "model").report(tmp_path / "page.html", shop_task(tmp_path))


def test_what_is_in_the_way_is_said_before_the_work(tmp_path: Path) -> None:
    """A folder where the page should be, a run whose notes on the machine or on its evaluation are damaged."""
    model, task = shop_model(tmp_path), shop_task(tmp_path)
    (tmp_path / "taken.html").mkdir()
    heard = Heard()
    with pytest.raises(UsageError, match="is a folder"):
        model.report(tmp_path / "taken.html", task, listener=heard)
    assert not heard.work
    kept = (model.folder / "environment.json").read_text()
    (model.folder / "environment.json").write_text('{"threads": 2}')
    with pytest.raises(IntegrityError, match=r"environment.json is damaged"):
        model.report(tmp_path / "page.html", task, listener=heard)
    assert not heard.work
    (model.folder / "environment.json").write_text(kept)
    (model.folder / "evaluation-test-rolling.json").write_text(
        '{"rows": [], "split": "test", "protocol": "rolling", "num_rows": 3, "warnings": [], "task": "churn"}'
    )
    with pytest.raises(IntegrityError, match=r"evaluation-test-rolling.json is damaged"):
        model.report(tmp_path / "page.html", task, listener=heard)


def test_words_follow_the_figures(model: TrainedModel) -> None:
    evaluation = model.evaluate(listener=Heard())
    metric, own = next(iter(evaluation.rows[0].measures.items()))
    rule = best_rule(evaluation)
    assert rule is not None
    beside = rule[1][metric].value
    rules = [row.measures[metric].value for row in evaluation.rows[1:] if not row.name.startswith("- ")]
    assert beside == (max if own.higher_is_better else min)(value for value in rules if value is not None)
    worst = own.low if own.higher_is_better else own.high
    is_better = worst > beside if own.higher_is_better else worst < beside
    assert ("It is clearly better" in verdict(evaluation)) == is_better


def test_columns_given_labels_and_nobody_have_a_page_too(tmp_path: Path) -> None:
    """A column that is filled in; labels of a table of their own that the model reads; a time when nobody is asked."""
    amount = {"name": "amount", "kind": "autocomplete", "entity_table": "orders", "target_col": "amount"}
    column = small_shop().task({**amount, "task_type": "regression"})
    recipes = {"column": (column, TREES.changed(protocol="rolling")), "given": (from_labels(churn()), PAST)}
    for name, (task, recipe) in recipes.items():
        model = fit(task, recipe=recipe, runs=tmp_path, listener=Heard())
        page = report(model, tmp_path)
        assert len(rows_of(page.all("table", id="people")[0])) > 3
        assert ("leak check was not run" in page.text) == (name == "given")
        early = report(model, tmp_path, at="2022-01-01")
        assert (
            rows_of(early.all("table", id="people")[0]) == [] or name == "given"
        )  # customers are always known


def test_what_is_not_certain_is_not_called_so() -> None:
    told = [_percent(chance) for chance in (0.0, 0.001, 0.42, 0.994, 0.996, 1.0)]
    assert told == ["0%", "under 1%", "42%", "99%", "over 99%", "100%"]


def test_a_finding_begins_like_a_sentence_or_with_a_name() -> None:
    assert sentence("by the rows known") == "By the rows known"
    assert sentence("races.name: 81 values") == "races.name: 81 values"


def test_figures_of_a_column_have_the_same_decimals() -> None:
    assert [number(value, 15.123) for value in (15.123, 7.8685, -0.5)] == ["15.12", "7.87", "−0.50"]
    assert number(7.8685) == "7.8685"


def test_a_task_that_looks_ahead_is_told_beside_its_figures(tmp_path: Path) -> None:
    """Who is asked about follows from rows after t: the answer says so, and so do the limits."""
    ahead = churn(sql=CHURN["sql"].replace("HAVING MIN(o.bought) <= t.timestamp", ""))
    findings = [finding for finding in ahead.check() if finding.code == "T14"]
    assert findings
    model = fit(ahead, recipe=TREES, runs=tmp_path, listener=Heard())
    page = model.report(tmp_path / "page.html", ahead).read_text(encoding="utf-8")
    answer, limits = page.partition('id="data"')[0], page.partition("<h3>Limits</h3>")[2]
    for part in (answer, limits):
        assert "selects customers using rows after the prediction time" in part
    assert "Careful." in answer
