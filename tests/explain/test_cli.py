"""The verb `quartet explain`: an answer on one screen, files, the global view, and errors in words."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.csv as csv
import pytest

from tests.trained import invoke, run, write_shop

AT = "2023-09-01"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shop, and a model of it in runs/latest."""
    folder = tmp_path_factory.mktemp("explain")
    source = write_shop(folder / "shop")
    invoke("-q", "train", source, folder / "churn.yaml", "--model", "lightgbm", "--runs", folder / "runs")
    return folder


def test_the_answer_comes_first(folder: Path) -> None:
    shown = invoke(
        "explain", folder / "runs/latest", folder / "shop", "--entity", "C03", "--at", AT, "--top", 3
    )
    lines = shown.splitlines()
    assert lines[0].startswith("Person Ad (C03) at 2023-09-01: ")
    assert lines[1].strip() == "churn: probability of churned in the 10 days after 2023-09-01"
    assert len(lines) <= 40
    for words in ("aggregates, read by trees", "usually", "known cases most like it", "churned: "):
        assert words in shown


def test_by_default_the_highest_score_is_explained(folder: Path) -> None:
    shown = invoke("explain", folder / "runs/latest", folder / "shop", "--at", AT, "--no-rows")
    best = invoke("predict", folder / "runs/latest", folder / "shop", "--at", AT, "--top", 1)
    key = shown.splitlines()[0].partition("(")[2].partition(")")[0]
    assert key in best


def test_all_go_into_files(folder: Path) -> None:
    for name in ("why.csv", "why.json"):
        invoke("explain", folder / "runs/latest", folder / "shop", "--at", AT, "--out", folder / name)
    table = csv.read_csv(folder / "why.csv")
    told = json.loads((folder / "why.json").read_text(encoding="utf-8"))["explanations"]
    assert table.num_rows == len(told) > 10
    assert table["reason_1"].to_pylist() == [each["reasons"][0] for each in told]
    few = ("--out", folder / "few.csv", "--top", 5)
    invoke("explain", folder / "runs/latest", folder / "shop", "--at", AT, *few)
    scores = sorted(table["score"].to_pylist(), reverse=True)
    assert csv.read_csv(folder / "few.csv")["score"].to_pylist() == pytest.approx(scores[:5])


def test_the_global_view(folder: Path) -> None:
    shown = invoke("explain", folder / "runs/latest", folder / "shop", "--global")
    assert shown.startswith("what the model uses")
    assert "orders by customer" not in shown  # the only link there: "orders" will do
    for words in ("parts", "columns", "tables", "links", "→ mean score"):
        assert words in shown


def test_errors_say_what_to_do(folder: Path) -> None:
    model, source = folder / "runs/latest", folder / "shop"
    for words, text in (
        (("--entity", "C99"), 'not in "customers"'),
        (("--out", "why.xlsx"), ".json, .csv or .parquet"),
        (("--global", "--entity", "C03"), "leave one of them out"),
    ):
        done = run("explain", model, source, *words)
        assert done.returncode != 0
        assert text in done.stderr
