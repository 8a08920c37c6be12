"""Predictions for now: who is asked about, what stands beside the scores, where they go, and when to doubt them."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from quartet.database import Database
from quartet.errors import UsageError
from quartet.runs import Predictions, TrainedModel, fit
from quartet.runs.drift import DriftColumn
from quartet.runs.predictions import _sure_columns, headline
from quartet.runs.sure import Said
from quartet.tasks.spec import spec_from_dict
from quartet.times import parse_instant
from tests.postgres import new_database
from tests.strategies import scrambled_future, without_future
from tests.tasks.small import CHURN
from tests.trained import KINDS, TREES, Heard, opened, shop_tables

__all__ = ["new_database"]

pytestmark = pytest.mark.usefixtures("one_thread")  # sums in the same order: bits are compared here

AT = "2023-09-01"


def test_rows_have_the_times_of_python_whoever_else_is_installed() -> None:
    """Without pandas, Arrow has no plain value for nanoseconds."""
    time = pa.array([1_700_000_000_123_456_789, None], pa.timestamp("ns"))
    told = Predictions(pa.table({"time": time, "score": [0.5, 1.0]}), "", "").rows()
    assert [type(row["time"]) for row in told] == [datetime, type(None)]
    assert told[0] == {"time": datetime(2023, 11, 14, 22, 13, 20, 123456), "score": 0.5}


@pytest.fixture(scope="module")
def shop() -> Database:
    return opened(shop_tables())


@pytest.fixture(scope="module")
def trained(
    shop: Database, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], tuple[TrainedModel, Database]]:
    """Trees of a kind of task, trained once."""

    @cache
    def of_kind(kind: str) -> tuple[TrainedModel, Database]:
        folder = tmp_path_factory.mktemp("runs")
        task = shop.task(KINDS[kind])
        return fit(task, recipe=TREES, runs=folder, cache=folder / "cache", listener=Heard()), shop

    return of_kind


@pytest.fixture(scope="module")
def model(shop: Database, tmp_path_factory: pytest.TempPathFactory) -> TrainedModel:
    folder = tmp_path_factory.mktemp("runs")
    return fit(shop.task(CHURN), recipe=TREES, runs=folder, cache=folder / "cache", listener=Heard())


def test_an_entity_without_a_name_has_a_dash_for_it() -> None:
    table = pa.table({"id": [1], "name": pa.array([None], pa.string()), "time": [0], "score": [0.5]})
    assert str(Predictions(table, "what", "how good")).splitlines()[-2].split() == ["1", "–", "0", "0.5000"]


@pytest.mark.parametrize("other", [without_future, scrambled_future])
def test_later_rows_change_neither_who_is_asked_about_nor_the_scores(
    other: object, model: TrainedModel, shop: Database
) -> None:
    raw = {name: table.data for name, table in shop.tables.items()}, shop.schema
    for day in (AT, "2023-10-03"):
        expected = model.on(shop, listener=Heard()).predict(at=day).top().table
        assert 0 < expected.num_rows < 40
        for rng_seed in range(3):
            changed = Database.build(*other(raw, parse_instant(day, "day"), "<=", random.Random(rng_seed)))  # type: ignore[operator]
            assert model.on(changed, listener=Heard()).predict(at=day).top().table.equals(expected)


def test_the_highest_come_first_and_equal_ones_in_the_order_of_keys() -> None:
    table = pa.table({"id": [3, 1, 2, 0], "time": [0, 0, 0, 0], "score": [0.5, 0.5, 0.9, 0.1]})
    predictions = Predictions(table, "what", "how good")
    assert predictions.top().table["id"].to_pylist() == [2, 1, 3, 0]
    assert predictions.top(2).to_pandas()["id"].tolist() == [2, 1]
    assert predictions.table["id"].to_pylist() == [3, 1, 2, 0]
    lines = str(predictions).splitlines()
    assert (lines[0].strip(), lines[-1].strip()) == ("what", "how good")
    with pytest.raises(UsageError, match="C02"):
        predictions.top(-1)


def test_predictions_go_into_a_database_once(model: TrainedModel, shop: Database, tmp_path: Path) -> None:
    scores = model.on(shop, listener=Heard()).predict(at=AT)
    for _ in range(2):
        scores.write(f"{tmp_path}/scores.sqlite#scores")
    with closing(sqlite3.connect(tmp_path / "scores.sqlite")) as connection:
        rows = connection.execute("SELECT customer, score FROM scores").fetchall()
    assert rows == list(zip(*(scores.table[name].to_pylist() for name in ("customer", "score")), strict=True))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("engine", ["sqlite", "duckdb", "postgresql"])
def test_what_is_said_of_every_kind_of_task_goes_into_every_database(
    engine: str, kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    model, shop = request.getfixturevalue("trained")(kind)
    scores = model.on(shop, listener=Heard()).predict(at=AT)
    url = f"{engine}:///{tmp_path}/scores.{engine}"
    if engine == "postgresql":
        url = request.getfixturevalue("new_database")()
    for _ in range(2):
        scores.write(f"{url}#scores")
    one = model.on(shop, listener=Heard()).predict(["C03"], at=AT)
    one.write(f"{url}#scores")  # its own row alone is replaced
    if engine == "postgresql":
        import psycopg

        connection: Any = psycopg.connect(url)
    else:
        connection = (sqlite3 if engine == "sqlite" else duckdb).connect(tmp_path / f"scores.{engine}")
    with closing(connection):
        asked = [name for name in scores.table.column_names if name != "time"]
        names = ", ".join(f'"{name}"' for name in asked)
        told = connection.execute(f"SELECT {names} FROM scores ORDER BY customer").fetchall()
        facts = connection.execute("SELECT DISTINCT model, horizon FROM scores").fetchall()
    assert facts == [(model.folder.name, "10 days")]
    expected = list(zip(*(scores.table[n].to_pylist() for n in asked), strict=True))
    alone = {key: row for key, *row in zip(*(one.table[n].to_pylist() for n in asked), strict=True)}
    assert [row for row in told if row[0] != "C03"] == [row for row in sorted(expected) if row[0] != "C03"]
    assert [row for row in told if row[0] == "C03"] == [("C03", *alone["C03"])]


@pytest.mark.parametrize("engine", ["sqlite", "duckdb", "postgresql"])
def test_columns_that_differ_in_case_alone_go_into_every_database(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Most databases heed no case in names: a number tells columns apart, which no other column has."""
    names = ["score_Ab", "score_aB", "score_ab_2", "score_AB"]
    numbered = ["score_Ab", "score_aB_3", "score_ab_2", "score_AB_4"]
    told = {"Time": ["u"], "time": pa.array([0], pa.timestamp("ns", "UTC"))}
    table = pa.table(told | {name: [float(place)] for place, name in enumerate(names)})
    url, connect = (
        f"{engine}:///{tmp_path}/scores.{engine}",
        sqlite3.connect if engine == "sqlite" else duckdb.connect,
    )
    if engine == "postgresql":
        import psycopg

        url, connect = request.getfixturevalue("new_database")(), psycopg.connect
        numbered = names
    for _ in range(2):  # the second time the row is replaced
        Predictions(table, model="m", horizon="7 days").write(f"{url}#scores")
    asked = ", ".join(f'"{name}"' for name in numbered)
    with closing(connect(url if engine == "postgresql" else tmp_path / f"scores.{engine}")) as connection:
        [row] = connection.execute(f"SELECT {asked} FROM scores").fetchall()
    assert row == (0.0, 1.0, 2.0, 3.0)


def test_lists_go_into_a_database_and_of_a_named_source_its_own_places_are_replaced(tmp_path: Path) -> None:
    time = pa.array([0] * 4, pa.timestamp("ns", "UTC"))
    told = {"user": ["a", "a", "b", "b"], "time": time, "rank": [1, 2, 1, 2], "item": [7, 8, 8, 9]}
    whole = Predictions(pa.table(told | {"score": [0.9, 0.8, 0.7, 0.6]}), model="m", horizon="7 days")
    again = replace(whole, table=whole.table.slice(2, 1), are_named=True)
    for predictions in (whole, whole, again):
        predictions.write(f"{tmp_path}/lists.duckdb#lists")
    with closing(duckdb.connect(tmp_path / "lists.duckdb")) as connection:
        rows = connection.execute('SELECT "user", rank, item FROM lists ORDER BY 1, 2').fetchall()
    assert rows == [("a", 1, 7), ("a", 2, 8), ("b", 1, 8)]


@pytest.mark.parametrize(
    ("at", "warns"), [("2023-10-27", False), ("2023-11-20", False), ("2024-03-01", True)]
)
def test_a_time_far_beyond_training_is_warned_of(
    at: str, warns: bool, model: TrainedModel, shop: Database
) -> None:
    heard = Heard()
    model.on(shop, listener=heard).predict(["C03"], at=at)
    assert any(finding.code == "T20" for finding in heard.findings) == warns


def test_a_column_has_drifted_where_it_is_further_from_training_than_test_was() -> None:
    rng = np.random.default_rng(0)
    train, same, moved = rng.normal(size=2000), rng.normal(size=300), rng.normal(2, 1, 300)
    steady, restless = DriftColumn.of("x", train, same), DriftColumn.of("x", train, moved)
    assert not steady.has_drifted(rng.normal(size=300))
    assert steady.has_drifted(moved)
    assert steady.has_drifted(np.full(300, np.nan))
    assert not restless.has_drifted(rng.normal(2, 1, 300))


def test_a_headline_counts_as_people_do() -> None:
    spec = spec_from_dict({"kind": "forecast", **CHURN}, "the task")
    times = np.array([parse_instant("2024-01-01", "the time")])
    for (asked, known, words), end in {
        (1, 0, ""): "for 1 row of customers",
        (2, 0, ""): "for 2 customers",
        (1, 40, "those of Bonn"): "for 1 of 40 customers: those of Bonn",
    }.items():
        assert headline(spec, times, asked, known, words).endswith(end)


def test_what_is_told_of_the_first_class_stands_beside_no_other() -> None:
    told = {"id": [1], "time": [0], "predicted": ["b"], "calibrated": [0.7], "set": ["{b}"]}
    scores = {"score_a": [0.1], "score_b": [0.6], "score_c": [0.3]}
    best = Predictions(pa.table(told | scores), classes=("a", "b", "c")).best_classes(2).table
    assert best.column_names == ["id", "time", "rank", "predicted", "score"]
    assert best["predicted"].to_pylist() == ["b", "c"]


@pytest.mark.parametrize("most", [0, True, 2.0])
def test_a_number_of_classes_is_a_whole_one(most: Any) -> None:
    table = pa.table({"user": ["u"], "predicted": ["a"], "score_a": [0.7], "score_b": [0.3]})
    with pytest.raises(UsageError, match=r"C02.*number of classes"):
        Predictions(table, classes=("a", "b")).best_classes(most)


def test_the_classes_of_a_set_can_be_told_apart() -> None:
    classes = ("paid, late", "", "a}b", 'say "x"', "ünï", " b", 7)
    every = Said(0.9, np.zeros(1), held=np.ones((1, len(classes)), bool))
    told = _sure_columns(every, classes)["set"].to_pylist()
    assert told == ['{"paid, late","","a}b","say \\"x\\"",ünï," b",7}']


def test_both_ends_are_empty_where_too_little_is_known() -> None:
    ends = np.array([[0.0, np.inf], [-np.inf, np.inf], [0.0, 2.0]])
    told = _sure_columns(Said(0.9, np.zeros(3), ends=ends), ())
    assert told["low"].to_pylist() == [None, None, 0.0]
    assert told["high"].to_pylist() == [None, None, 2.0]
