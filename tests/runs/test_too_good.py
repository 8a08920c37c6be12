"""A model that is too good to be true says so, and names the columns that carry it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import quartet
from quartet.evaluation import Measure
from quartet.runs.evaluate import EvaluationRow, too_good
from tests.tasks.orders import CLEAN, PLANTED, orders, returns


@pytest.mark.parametrize("column", ["returned_at", None])
def test_a_run_that_rests_on_a_column_filled_in_later(column: str | None, tmp_path: Path) -> None:
    """Trees split by the days since an order came back; without that column nothing is said."""
    planted = {column: PLANTED[column]} if column else {}
    task = returns(orders(**CLEAN, **planted))
    model = quartet.fit(task, model="lightgbm", runs=tmp_path)
    evaluation = model.evaluate(task, split="val")
    if column is None:
        assert evaluation.warnings == ()
    else:
        (text,) = evaluation.warnings
        assert text.startswith("warning[L25] roc_auc ")
        assert '"days since returned_at"' in text
        assert "L25" in str(evaluation)


def row(name: str, metric: str, value: float, spread: float = 0.0) -> EvaluationRow:
    higher = metric != "mae"
    return EvaluationRow(name, {metric: Measure(metric, value, value - spread, value + spread, higher)})


@pytest.mark.parametrize(
    ("kind", "metric", "model", "rule", "spread", "is_told"),
    [
        ("binary_classification", "roc_auc", 0.965, 0.724, 0.01, True),
        ("binary_classification", "roc_auc", 0.965, 0.724, 0.2, False),  # too few rows to say so
        ("binary_classification", "roc_auc", 0.94, 0.60, 0.0, False),
        ("binary_classification", "roc_auc", 0.97, 0.95, 0.0, False),
        ("multiclass_classification", "accuracy", 0.99, 0.5, 0.0, True),
        ("regression", "mae", 0.1, 1.0, 0.0, True),
        ("regression", "mae", 0.5, 1.0, 0.0, False),
    ],
)
def test_the_margin(kind: str, metric: str, model: float, rule: float, spread: float, is_told: bool) -> None:
    task = returns(orders(**CLEAN))
    task = replace(task, spec=replace(task.spec, type=kind))  # type: ignore[arg-type]
    rows = [row("rule", metric, rule), row("constant", metric, 0.5 if metric != "mae" else 2.0)]
    text = too_good(task, row("model", metric, model, spread), rows, None)
    assert text.startswith("warning[L25]") == is_told
    assert too_good(task, row("model", metric, model, spread), [], None) == ""
