"""What was said: kept once as it was said first, and judged by what came, whenever that is asked."""

from __future__ import annotations

import json
import random
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from quartet.database import Database
from quartet.errors import IntegrityError, UsageError
from quartet.evaluation import measures
from quartet.runs import Ensemble, Predictions, TrainedModel, fit
from quartet.runs.judgement import _members
from quartet.runs.said import read_said
from tests.strategies import without_future
from tests.tasks.small import CHURN
from tests.trained import KINDS, TREES, Heard, opened, run, shop_tables, write_shop

LISTS = {
    "name": "sizes",
    "task_type": "multilabel_classification",
    "target_col": "sizes",
    "sql": CHURN["sql"].replace(
        "CAST(COUNT(*) FILTER (WHERE o.bought > t.timestamp) = 0 AS BIGINT) AS churned",
        "CASE WHEN MAX(o.amount) FILTER (WHERE o.bought > t.timestamp) > 50 "
        "THEN ['some', 'large'] ELSE ['some'] END AS sizes",
    ),
}
DAYS = ("2023-09-01", "2023-09-15", "2023-10-03")


@pytest.fixture(scope="module")
def shop() -> Database:
    return opened(shop_tables())


@pytest.fixture
def model(shop: Database, tmp_path: Path) -> TrainedModel:
    return fit(shop.task(CHURN), recipe=TREES, runs=tmp_path, cache=tmp_path / "cache", listener=Heard())


def say(model: TrainedModel, shop: Database, *days: str) -> dict[str, Predictions]:
    live = model.on(shop, listener=Heard())
    said = {day: live.predict(at=day) for day in days}
    for predictions in said.values():
        assert model.keep(predictions) == len(predictions)
    return said


def orders_after(customer: str, time: Any) -> int:
    """How many orders a customer has in the ten days after a time, by the rows as they stand."""
    orders = shop_tables()["orders"]
    own = orders.filter(pc.equal(orders["customer"], customer))["bought"].to_pylist()
    return sum(time < bought.replace(tzinfo=time.tzinfo) <= time + timedelta(days=10) for bought in own)


def test_what_was_said_is_judged_by_what_came(model: TrainedModel, shop: Database) -> None:
    said = pa.concat_tables([one.table for one in say(model, shop, *DAYS).values()])
    judged = model.evaluate_said(shop, listener=Heard())
    pairs = zip(said["customer"].to_pylist(), said["time"].to_pylist(), strict=True)
    came = np.array([orders_after(customer, time) == 0 for customer, time in pairs], np.int64)
    expected = measures("binary_classification", came, said["score"].to_numpy(), num_resamples=0)
    figures = judged.rows[0][1]
    assert {name: one.value for name, one in figures.items()} == pytest.approx(
        {name: one.value for name, one in expected.items()}
    )
    assert (judged.num_said, judged.num_judged, judged.num_open) == (len(said), len(said), 0)
    sets = said["set"].to_pylist()
    assert judged.held == pytest.approx(np.mean([str(y) in text for y, text in zip(came, sets, strict=True)]))
    assert [one.time for one in judged.times] == list(DAYS)
    assert judged.times[0].came == pytest.approx(came[: judged.times[0].rows].mean())
    assert "on test" not in str(judged.rows[0][0])
    assert json.loads((model.folder / "said.json").read_text())["num_judged"] == len(said)


def test_rows_that_come_after_a_window_do_not_change_how_it_is_judged(
    model: TrainedModel, shop: Database
) -> None:
    say(model, shop, DAYS[0])
    whole = model.evaluate_said(shop, listener=Heard())
    raw = {name: table.data for name, table in shop.tables.items()}, shop.schema
    closed = int(np.datetime64("2023-09-11", "ns").astype(np.int64))
    before = Database.build(*without_future(raw, closed + 10**9 * 86_400, "<=", random.Random(0)))
    again = model.evaluate_said(before, listener=Heard())
    assert again == whole


def test_a_window_that_is_open_waits(model: TrainedModel, shop: Database) -> None:
    live = model.on(shop, listener=Heard())
    model.keep(live.predict())  # at the last time of the data
    with pytest.raises(UsageError, match=r"L01.*none has a label"):
        model.evaluate_said(shop, listener=Heard())
    say(model, shop, DAYS[0])
    judged = model.evaluate_said(shop, listener=Heard())
    assert judged.num_open == judged.num_said - judged.num_judged > 0


def test_an_entity_that_has_gone_since_is_not_judged(model: TrainedModel, shop: Database) -> None:
    said = say(model, shop, DAYS[0])[DAYS[0]]
    gone = said.table["customer"][0].as_py()
    tables = {name: t.data.filter(pc.not_equal(t.data["customer"], gone)) for name, t in shop.tables.items()}
    judged = model.evaluate_said(opened(tables), listener=Heard())
    assert (judged.num_said, judged.num_judged) == (len(said), len(said) - 1)


def test_what_was_said_first_stays(model: TrainedModel, shop: Database) -> None:
    first = say(model, shop, DAYS[0])[DAYS[0]]
    place = first.table.column_names.index("score")
    other = first.table.set_column(place, "score", pc.subtract(1.0, first.table["score"]))
    assert model.keep(replace(first, table=other)) == 0
    told = read_said(model.run)
    assert dict(zip(told["entity"].to_pylist(), told["score"].to_pylist(), strict=True)) == dict(
        zip(first.table["customer"].to_pylist(), first.table["score"].to_pylist(), strict=True)
    )
    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(lambda _: model.keep(first), range(8))) == 0
    fresh = model.on(shop, listener=Heard()).predict(at=DAYS[1])
    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(lambda _: model.keep(fresh), range(4))) == len(fresh)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "binary_classification"])
def test_numbers_and_classes_are_judged_too(kind: str, shop: Database, tmp_path: Path) -> None:
    model = fit(
        shop.task(KINDS[kind]), recipe=TREES, runs=tmp_path, cache=tmp_path / "cache", listener=Heard()
    )
    said = say(model, shop, DAYS[2])[DAYS[2]].table
    judged = model.evaluate_said(shop, listener=Heard())
    figures = judged.rows[0][1]
    customers, times = said["customer"].to_pylist(), said["time"].to_pylist()
    if kind == "regression":
        low, high = (np.array(said[name].to_pylist(), float) for name in ("low", "high"))
        came = np.array([amount_after(c, t) for c, t in zip(customers, times, strict=True)])
        assert figures["mae"].value == pytest.approx(np.abs(came - said["score"].to_numpy()).mean(), rel=1e-6)
        assert judged.held == pytest.approx(((low <= came) & (came <= high)).mean())
    else:
        names = {0: "none", 1: "one"}
        came = [names.get(orders_after(c, t), "more") for c, t in zip(customers, times, strict=True)]
        right = np.mean([a == b for a, b in zip(came, said["predicted"].to_pylist(), strict=True)])
        assert figures["accuracy"].value == pytest.approx(right)
        held = [
            name in text[1:-1].split(",") for name, text in zip(came, said["set"].to_pylist(), strict=True)
        ]
        assert judged.held == pytest.approx(np.mean(held))


def test_lists_of_classes_are_judged_too(shop: Database, tmp_path: Path) -> None:
    """Which products each customer orders next, by the rows as they stand."""
    task = shop.task(CHURN | LISTS)
    model = fit(task, recipe=TREES, runs=tmp_path, cache=tmp_path / "cache", listener=Heard())
    said = say(model, shop, DAYS[2])[DAYS[2]]
    judged = model.evaluate_said(shop, listener=Heard())
    came = []
    for customer, time in zip(
        said.table["customer"].to_pylist(), said.table["time"].to_pylist(), strict=True
    ):
        own = _orders().filter(pc.equal(_orders()["customer"], customer)).to_pylist()
        sizes = [
            row
            for row in own
            if time < row["bought"].replace(tzinfo=time.tzinfo) <= time + timedelta(days=10)
        ]
        came.append({"some"} | ({"large"} if any((row["amount"] or 0) > 50 for row in sizes) else set()))
    target = np.array([[name in own for name in said.classes] for own in came], np.int64)
    scores = np.stack([said.table[f"score_{name}"].to_numpy() for name in said.classes], 1)
    expected = measures("multilabel_classification", target, scores, num_resamples=0)
    assert {name: one.value for name, one in judged.rows[0][1].items()} == pytest.approx(
        {name: one.value for name, one in expected.items()}
    )
    assert judged.times[0].came == pytest.approx(target.sum(1).mean())


@cache
def _orders() -> pa.Table:
    return shop_tables()["orders"]


def amount_after(customer: str, time: Any) -> float:
    rows = _orders().filter(pc.equal(_orders()["customer"], customer))
    pairs = zip(rows["bought"].to_pylist(), rows["amount"].to_pylist(), strict=True)
    end = time + timedelta(days=10)
    return float(
        sum(amount or 0 for bought, amount in pairs if time < bought.replace(tzinfo=time.tzinfo) <= end)
    )


def test_classes_of_a_set_are_read_as_they_were_written() -> None:
    assert _members('{"paid, late","","a}b","say \\"x\\"",ünï," b",7}') == [
        "paid, late", "", "a}b", 'say "x"', "ünï", " b", "7",
    ]  # fmt: skip
    assert _members("{}") == []
    assert _members("{a}") == ["a"]


def test_what_cannot_be_kept_or_judged_is_said(model: TrainedModel, shop: Database, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"C10.*kept nothing"):
        model.evaluate_said(shop, listener=Heard())
    other = fit(
        shop.task(CHURN), recipe=TREES, runs=tmp_path / "b", cache=tmp_path / "cache", listener=Heard()
    )
    theirs = other.on(shop, listener=Heard()).predict(at=DAYS[0])
    with pytest.raises(UsageError, match=r"C02.*cannot be kept"):
        model.keep(replace(theirs, model="another"))
    with pytest.raises(UsageError, match=r"C02.*several models"):
        Ensemble(model, other).keep(theirs)
    with pytest.raises(UsageError, match="C02"):
        model.keep("scores")  # type: ignore[arg-type]
    (model.folder / "said.sqlite").write_bytes(b"no database at all" * 100)
    with pytest.raises(IntegrityError, match=r"C06.*damaged"):
        model.evaluate_said(shop, listener=Heard())


def test_the_verbs_keep_and_judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_shop(tmp_path / "shop")
    assert run("train", "shop", "churn.yaml", "--model", "lightgbm", "--threads", 1).returncode == 0
    words = ("predict", "runs/latest", "shop", "--at", DAYS[0], "--record", "--threads", 1)
    assert "Kept 39 predictions" in run(*words).stderr
    assert "Kept 0 predictions" in run(*words).stderr
    run("evaluate", "runs/latest")
    done = run("evaluate", "runs/latest", "--said", "--source", "shop")
    assert done.returncode == 0, done.stderr
    for text in ("as said", "on test", "39 of 39 predictions have a label by now", "drift of what it read"):
        assert text in done.stdout
    with closing(sqlite3.connect(tmp_path / "runs" / "latest" / "said.sqlite")) as connection:
        rows = connection.execute("SELECT DISTINCT time, horizon FROM said").fetchall()
    assert rows == [(DAYS[0], "10 days")]
