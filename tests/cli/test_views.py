"""`quartet task` and `quartet sample`: what they show, and that no test label is among it."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pyarrow as pa
import pytest

from quartet.cli.views.task import task_view
from quartet.drawing import rendered
from quartet.graph import TemporalGraph
from quartet.tasks import Task
from tests.tasks.small import CHURN, DAY, START, small_shop
from tests.trained import churn, invoke, run, write_shop


def shown(task: Task) -> str:
    return rendered(task_view(task, TemporalGraph.build(task.database)))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home")
    write_shop(home / "shop")
    return home


def test_a_task_is_shown_with_its_splits_and_without_test_labels() -> None:
    task = churn()
    text = shown(task)
    for split in ("train", "val", "test"):
        assert f"{len(task.seeds(split)):,}" in text
    assert "(proposed from the data's span)" in text
    assert "looking 10 days ahead" in text
    assert "frozen" in text
    assert task.vault.openings == []


def test_the_verb_shows_the_same(home: Path) -> None:
    text = invoke("task", home / "shop", home / "churn.yaml")
    assert "looking 10 days ahead" in text
    assert "829" in text
    assert run("task", home / "shop", "chrun").returncode == 2


def test_seeds_before_the_first_row_are_reported() -> None:
    """T11: whoever asks about the time before the data begin has no history to learn from."""
    asked = [(f"C{k:02d}", START + DAY * day, k % 2) for day in (-5, 130) for k in range(40)]
    who, when, target = zip(*asked, strict=True)
    labels = pa.table({"customer": who, "timestamp": pa.array(when, pa.timestamp("ns")), "churned": target})
    fields = {name: value for name, value in CHURN.items() if name not in ("sql", "timedelta")}
    cuts = {"val_timestamp": "2023-05-01", "test_timestamp": "2023-07-01"}
    text = " ".join(shown(small_shop().task(fields, labels=labels, **cuts)).split())
    assert "warning[T11] 100% of the 40 train seeds have no history" in text


def test_a_frozen_database_means_nothing_to_who_fills_in_a_column() -> None:
    fields = {"name": "amount", "kind": "autocomplete", "task_type": "regression", "entity_table": "orders"}
    text = shown(small_shop().task(fields, target_col="amount"))
    assert "no history" in text
    assert "frozen" not in text


def test_sample_tells_the_cost_then_takes_from_the_cache(home: Path) -> None:
    words = (
        "sample",
        home / "shop",
        home / "churn.yaml",
        "--cache",
        home / "cache",
        "--set",
        "local_budget=20",
    )
    first = run(*words, "--draw", home / "context.svg", "--seed", 3)
    assert first.returncode == 0, first.stderr
    lines = {line.split()[0]: line.split() for line in first.stdout.splitlines() if line.strip()}
    assert [lines[split][1] for split in ("train", "val", "test")] == ["829", "38", "38"]
    assert first.stderr.count("about") == 3
    ET.parse(home / "context.svg")
    again = run(*words)
    assert "about" not in again.stderr
    figures = [line.split()[:-1] for line in first.stdout.splitlines()[2:]]
    assert [line.split()[:-1] for line in again.stdout.splitlines()[2:]] == figures
    assert run(*words, "--draw", home / "x.svg", "--seed", 829).stderr.count("error[C02]") == 1
    assert run(*words, "--set", "epochs=3").returncode == 2
