"""Runs that others could have touched: nothing of somebody else's is replaced, and nothing damaged is believed."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch

from quartet.database import FACTS, Database, Schema, TableSchema
from quartet.errors import IntegrityError, Stopped, UsageError
from quartet.models.tree_text import checked_text
from quartet.runs import TrainedModel, fit, load
from quartet.tasks import Task
from tests.tasks.small import small_shop, write_small_shop
from tests.trained import KINDS, TINY, TREES, Heard, asked_again, churn, network_of, same_weights


@pytest.fixture(scope="module")
def task() -> Task:
    return churn()


@pytest.fixture(scope="module")
def trees(task: Task, tmp_path_factory: pytest.TempPathFactory) -> TrainedModel:
    return fit(task, recipe=TREES, runs=tmp_path_factory.mktemp("runs"), listener=Heard())


@pytest.fixture
def copy(trees: TrainedModel, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trees.folder, tmp_path / "copy"))


def signed(model: Path) -> None:
    """Writes the right checksums of whatever a model folder holds."""
    files = [path for path in model.iterdir() if path.name != "checksums.json"]
    sums = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    (model / "checksums.json").write_text(json.dumps(sums))


# --- where runs are made ------------------------------------------------------------------------------


def test_a_run_is_its_users_own(trees: TrainedModel) -> None:
    assert trees.folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("name", ["../outside", "/tmp/outside", "a/b"])
def test_the_name_of_a_task_is_no_path(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"C02.*cannot be called"):
        fit(churn(name=name), recipe=TREES, runs=tmp_path / "runs", listener=Heard())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", [b"three years", b"\x80\0\xff", None])
def test_what_else_is_called_latest_stays(content: bytes | None, task: Task, tmp_path: Path) -> None:
    latest = tmp_path / "latest"
    latest.mkdir() if content is None else latest.write_bytes(content)
    with pytest.raises(UsageError, match=r"C09.*latest.*not a link to a run"):
        fit(task, recipe=TREES, runs=tmp_path, listener=Heard())
    assert [path.name for path in tmp_path.iterdir()] == ["latest"]


def test_a_run_is_found_from_every_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_small_shop(tmp_path / "shop")
    monkeypatch.chdir(tmp_path)
    model = fit(Database.load("shop").task("churn"), recipe=TREES, runs="runs", listener=Heard())
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert load(tmp_path / "runs" / "latest").task.name == model.record.name


# --- damaged and foreign folders ----------------------------------------------------------------------


def reversed_rows(run: Path) -> None:
    path = run / "predictions" / "test.parquet"
    table = pq.read_table(path)
    pq.write_table(table.take(np.arange(len(table))[::-1]), path)
    signed(run / "predictions")


def other_scores(run: Path) -> None:
    path = run / "predictions" / "test.parquet"
    table = pq.read_table(path)
    score = table["score"].take(np.arange(len(table))[::-1])
    pq.write_table(table.set_column(table.column_names.index("score"), "score", score), path)


def no_numbers(run: Path) -> None:
    path = run / "predictions" / "test.parquet"
    table = pq.read_table(path)
    score = pc.multiply(table["score"], float("nan"))
    pq.write_table(table.set_column(table.column_names.index("score"), "score", score), path)
    signed(run / "predictions")


def with_facts(run: Path, **changes: Any) -> None:
    """Other facts about the trees, or fewer."""
    path = run / "model" / "trees.json"
    facts = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({name: fact for name, fact in facts.items() if fact is not None}))
    signed(run / "model")


@pytest.mark.parametrize(
    "harm",
    [
        reversed_rows,
        other_scores,
        no_numbers,
        lambda run: (run / "predictions" / "test.parquet").write_bytes(b"PAR1"),
        lambda run: (run / "predictions" / "test.parquet").unlink(),
        lambda run: (run / "model" / "checksums.json").write_text("{}"),
        lambda run: (run / "model" / "checksums.json").write_text("[]"),
        lambda run: with_facts(run, columns=["no such column"]),
        lambda run: with_facts(run, is_refit=None),
        lambda run: (run / "model" / "trees.json").write_text("[]") and signed(run / "model"),
        lambda run: (run / "model" / "trees.txt").unlink() or signed(run / "model"),
    ],
)  # fmt: skip
def test_a_damaged_run_is_not_evaluated(harm: Callable[[Path], Any], copy: Path, task: Task) -> None:
    def used() -> None:
        load(copy).evaluate(task, rules=False, listener=Heard())
        load(copy).on(task.full_database, listener=Heard()).predict(at="2023-10-01")

    used()
    harm(copy)
    with pytest.raises(IntegrityError, match="C06"):
        used()


@pytest.mark.parametrize("name", ["recipe.json", "environment.json", "metrics.jsonl", "task.json"])
def test_a_damaged_run_does_not_go_on(name: str, task: Task, tmp_path: Path) -> None:
    with pytest.raises(Stopped) as stopped:
        fit(task, recipe=TREES, runs=tmp_path, listener=Heard(stop_at=0))
    (Path(str(stopped.value.folder)) / name).write_text("[1]")
    with pytest.raises(IntegrityError, match=f"C06.*{name}"):
        fit(task, resume=str(stopped.value.folder), listener=Heard())


@pytest.mark.parametrize(
    ("line", "other"),
    [
        (r"left_child=\S+", "left_child=0"),  # a way that leads back
        (r"split_feature=\S+", "split_feature=99999"),
        (r"threshold=\S+", "threshold=nan"),
        (r"leaf_value=\S+", "leaf_value=inf"),
        (r"decision_type=\S+", "decision_type=255"),
        (r"decision_type=\S+", "decision_type=1"),  # a set of categories that there is not
        (r"num_leaves=\S+\nnum_cat=\S+\n", "num_leaves=99999999\nnum_cat=7\ncat_boundaries=0 9\n"),
        (r"right_child=.*", "right_child="),
        (r"is_linear=0", "is_linear=1"),
        (r"(?s)Tree=0.*", ""),
    ],
)
def test_trees_that_lead_astray_are_refused_before_lightgbm_sees_them(
    line: str, other: str, copy: Path
) -> None:
    path = copy / "model" / "trees.txt"
    text = path.read_text()
    changed = re.sub(line, other, text, count=1)
    assert changed != text
    path.write_text(changed)
    signed(copy / "model")
    with pytest.raises(IntegrityError, match="C06"):
        load(copy)


def test_trees_are_written_from_what_was_read(trees: TrainedModel) -> None:
    model = network_of(trees)
    assert checked_text(model.text, len(model.names), 1) == model.text
    assert checked_text(f"#!\n{model.text}garbage", len(model.names), 1) == model.text


def test_answers_that_are_no_numbers_are_refused(task: Task, tmp_path: Path) -> None:
    model = fit(task, recipe=TINY, runs=tmp_path, cache=tmp_path, listener=Heard())
    with torch.no_grad():
        network_of(model).readout.weight.fill_(float("nan"))
    with pytest.raises(IntegrityError, match=r"C06.*no finite"):
        model.on(task.full_database, listener=Heard()).predict(at="2023-10-01")
    with pytest.raises(IntegrityError, match=r"C06.*no finite"):
        model.evaluate(protocol="rolling", rules=False, listener=Heard())


def test_a_source_on_the_network_is_not_opened_because_a_model_names_it(copy: Path) -> None:
    for path in (copy / "model" / "model.json", copy / "task.json"):
        about = json.loads(path.read_text())
        about.get("task", about)["source"] = "postgresql://somewhere.example/db"
        path.write_text(json.dumps(about))
    signed(copy / "model")
    with pytest.raises(UsageError, match=r"L01.*network"):
        load(copy).evaluate(listener=Heard())


def test_a_model_counts_once(trees: TrainedModel) -> None:
    for make in (
        lambda: load(trees.folder, trees.folder),
        lambda: load(trees.folder, trees.folder.parent / "latest"),
    ):
        with pytest.raises(UsageError, match=r"C02.*given twice"):
            make()


# --- going on -----------------------------------------------------------------------------------------


@pytest.fixture
def cut(task: Task, tmp_path: Path) -> Path:
    """A run that was stopped in its second epoch."""
    with pytest.raises(Stopped) as stopped:
        fit(task, recipe=TINY, runs=tmp_path / "runs", cache=tmp_path / "cache", listener=Heard(stop_at=6))
    return Path(str(stopped.value.folder))


@pytest.mark.parametrize("words", [{"preset": "small"}, {"model": "quartet"}, {"epochs": 2}, {"threads": 7}])
def test_what_would_be_ignored_is_refused(words: dict[str, Any], cut: Path, task: Task) -> None:
    with pytest.raises(UsageError, match=r"C02.*not with another"):
        fit(task, resume=cut, listener=Heard(), **words)


def test_a_setting_that_a_model_does_not_read_is_refused(task: Task, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r'C02.*"lightgbm" does not read width, epochs.*it reads rng_seed'):
        fit(task, "lightgbm", runs=tmp_path, listener=Heard(), width=32, epochs=3, rng_seed=1)
    assert not list(tmp_path.iterdir())


def test_contexts_are_sampled_by_the_threads_that_were_asked_for(
    task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quartet.contexts.sampling.usable_cores", lambda: 0)  # no pool has so few
    fit(task, recipe=TINY, runs=tmp_path, cache=tmp_path, threads=1, listener=Heard())


def test_a_damaged_state_is_refused(cut: Path, task: Task, tmp_path: Path) -> None:
    for name in ("state.json", "checksums.json"):
        whole = (cut / "state" / name).read_text()
        (cut / "state" / name).write_text(whole.replace('"', "'", 1))
        with pytest.raises(IntegrityError, match=r"C06"):
            fit(task, resume=cut, cache=tmp_path / "cache", listener=Heard())
        (cut / "state" / name).write_text(whole)


def test_a_kill_between_two_renames_loses_no_state(cut: Path, task: Task, tmp_path: Path) -> None:
    """The older state was moved away, and the newer one had not come yet."""
    (cut / ".state.old.abc").mkdir()
    (cut / "state").rename(cut / ".state.old.abc" / "0")
    heard = Heard()
    resumed = fit(task, resume=cut, cache=tmp_path / "cache", listener=heard)
    assert heard.calls.count("step") == 4
    whole = fit(task, recipe=TINY, runs=tmp_path / "runs", cache=tmp_path / "cache", listener=Heard())
    assert same_weights(network_of(resumed), network_of(whole))


def test_a_run_that_begins_anew_says_so(cut: Path, task: Task, tmp_path: Path) -> None:
    shutil.rmtree(cut / "state")
    heard = Heard()
    fit(task, resume=cut, cache=tmp_path / "cache", listener=heard)
    assert "C14" in {finding.code for finding in heard.findings}
    assert heard.calls.count("step") == 10


def test_a_run_goes_on_with_the_micro_batches_and_threads_of_its_beginning(
    cut: Path, task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quartet.training.trainer.free_bytes", lambda _: 0)  # now they would be smaller
    torch.set_num_threads(2)
    heard = Heard()
    fit(task, resume=cut, cache=tmp_path / "cache", listener=heard)
    assert heard.begun[0].trainer.micro_batch == 32
    assert torch.get_num_threads() == 1


# --- names --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["score", "score_none", "time", "name", "predicted", "calibrated"])
def test_a_key_may_be_called_like_a_column_of_ours(key: str, tmp_path: Path) -> None:
    """Classes are judged by their own scores, and every column is there."""
    shop, fields = small_shop(), KINDS["multiclass_classification"]
    data = {name: table.data for name, table in shop.tables.items()}
    data["customers"] = data["customers"].rename_columns([key, "age"])
    schema = Schema({**shop.schema.tables, "customers": TableSchema((key,), settled=FACTS)}, name="small")
    plain, other = (
        fit(Task.from_sql(database, **fields), recipe=TREES, runs=tmp_path, listener=Heard())
        for database in (shop, Database.build(data, schema))
    )
    kept = other.run.predictions("test")
    assert kept.column_names[0] == f"customers.{key}"
    assert kept.column_names[1:] == plain.run.predictions("test").column_names[1:]
    assert asked_again(other, other.task.full_database, kept).equals(kept)
    rows = [model.evaluate(rules=False, listener=Heard()).rows for model in (plain, other)]
    assert rows[0] == rows[1]
