"""A link that is filled in, from the command line and in Python: trained, kept, judged, asked again."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quartet.listener import Listener
from quartet.recommend import PairColumns, Reader, clock, fitting, rows
from quartet.recommend.recommender import RULES
from quartet.runs import TrainedModel, fit, leakcheck, load
from quartet.runs.run import Run
from quartet.training import Fitted, Member
from tests.recommend.orders import NUM_SHOPS, QUERY, orders, who, write_orders
from tests.recommend.small import view_of
from tests.trained import QUICK, Heard, invoke, run

SMALL = {**QUICK, "epochs": 2, "tower": 0}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_orders(tmp_path_factory.mktemp("orders") / "orders")


@pytest.fixture(scope="module")
def trees(source: Path) -> Path:
    runs = source.parent / "runs"
    told = run("train", source, source.parent / "who.yaml", "--model", "lightgbm", "--runs", runs)
    assert "past labels" in told.stdout
    return (runs / "latest").resolve()


class Following(Listener):
    """Remembers how good each member is on validation, and the blend of all so far."""

    def __init__(self) -> None:
        self.members: dict[str, float] = {}
        self.so_far: list[float] = []

    def member(self, member: Member, fitted: Fitted) -> None:
        self.members[member.architecture] = member.validation
        self.so_far.append(fitted.best.validation)


@pytest.fixture(scope="module")
def heard() -> Following:
    return Following()


@pytest.fixture(scope="module")
def blend(tmp_path_factory: pytest.TempPathFactory, heard: Following) -> TrainedModel:
    folder = tmp_path_factory.mktemp("blend")
    return fit(who(), runs=folder, listener=heard, time_limit=20, **SMALL)


def test_the_whole_way_on_the_command_line(source: Path, trees: Path) -> None:
    told = json.loads(invoke("evaluate", trees, "--json"))
    figures = {row["name"]: row["measures"] for row in told["rows"]}
    main = json.loads((trees / "model" / "recommender.json").read_text())["paths"][1]
    rules = [f"latest of the same {main}", f"commonest of the same {main}"]
    assert list(figures) == ["lightgbm", "most popular lately", *rules, "random"]
    assert figures["lightgbm"]["accuracy"]["value"] > figures["most popular lately"]["accuracy"]["value"]
    assert figures["lightgbm"]["map"]["value"] > 2 * figures["random"]["map"]["value"]
    assert told["pools"]["all candidates"] > 0.9
    said = json.loads(invoke("predict", trees, source, "--entities", "1499,1498", "--top", "3", "--json"))
    assert [row["rank"] for row in said["predictions"]] == [1, 2, 3] * 2
    assert said["predictions"][0]["item name"].startswith("Customer ")
    assert "is the target and was removed" in invoke("task", source, source.parent / "who.yaml")


def test_a_blend_is_kept_and_answers_again_with_the_same_bits(blend: TrainedModel) -> None:
    task = who()
    assert set(blend.members[0][0].model.weights) == {*RULES, "trees", "towers"}  # type: ignore[attr-defined]
    kept, seeds = Run(blend.folder).predictions("test"), task.seeds("test")
    rows = seeds.node - task.full_database.offsets["orders"]
    numbers = task.full_database["orders"].data["number"].take(rows).to_pylist()
    live = load(blend.folder).on(task.full_database, listener=Listener())
    asked = live.predict(numbers, seeds.time.tolist())
    assert asked.table.drop_columns(["item name"]).equals(kept)
    found = load(blend.folder).evaluate(task, listener=Listener())
    assert {"- trees", "- towers"} < {row.name for row in found.rows}


def test_files_for_the_board_are_those_of_other_lists(source: Path, trees: Path) -> None:
    tested = json.loads(invoke("evaluate", trees, "--json"))["rows"][0]["measures"]["map"]["value"]
    board = source.parent / "board"
    told = json.loads(invoke("submit", trees, "--out", board, "--json"))
    assert told["columns"] == ["number", "placed", "customer"]
    (run_figures,) = told["runs"]
    assert (run_figures["val"], run_figures["test"]) == (pytest.approx(load(trees).validation), tested)
    header, *lines = (board / "orders__who.csv").read_text().splitlines()
    assert header == "number,placed,customer"
    assert len(lines) == told["num_rows"]["test"] == len(who().seeds("test"))
    assert all(line.count("C") == 5 for line in lines)  # as many customers as the task is judged by
    assert json.loads(invoke("submit", trees, "--out", board, "--check", "--json")) == told


def test_no_member_is_better_on_validation_than_the_blend(blend: TrainedModel, heard: Following) -> None:
    assert set(heard.members) == {*RULES, "trees", "towers"}
    assert blend.validation == heard.so_far[-1] >= max(heard.members.values())
    assert sum(blend.members[0][0].model.weights.values()) == pytest.approx(1.0)  # type: ignore[attr-defined]


def test_nothing_later_changes_a_list(trees: Path) -> None:
    report = leakcheck(who(), [load(trees).members[0][0]], num_times=2, num_seeds=5)
    assert report.num_differences == 0
    assert any(subject == "lists of lightgbm" for subject, _ in report.outcomes)


def test_towers_alone_fill_in_a_link(tmp_path: Path) -> None:
    model = fit(who(), "quartet", runs=tmp_path, listener=Listener(), time_limit=10, **SMALL)
    assert model.validation > 0
    assert model.recipe.past_labels


def test_towers_learn_from_as_many_seeds_as_contexts_have_time_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[tuple[int, int]] = []
    towers = fitting.Towers.fit
    monkeypatch.setattr(fitting, "FEWEST", 64)
    monkeypatch.setattr(fitting, "seconds_of_a_seed", lambda *_: 1e-3)

    def fit_towers(
        data: Any, context: Any, seeds: Any, reader: Any, names: Any, rows: Any, *more: Any
    ) -> Any:
        heard.append((len(context), len(np.unique(rows.seed))))
        return towers(data, context, seeds, reader, names, rows, *more)

    monkeypatch.setattr(fitting.Towers, "fit", staticmethod(fit_towers))
    for limit in (0.01, 1000.0):
        fit(who(), "quartet", runs=tmp_path, listener=Listener(), time_limit=limit, **{**SMALL, "epochs": 1})
    assert heard == [(64, 64), (len(who().seeds("train")),) * 2]


@pytest.mark.parametrize(("seconds", "num"), [(-1, 20), (0, 20), (30, 32), (math.inf, 100)])
def test_as_many_seeds_are_read_as_there_is_time_for(
    seconds: float, num: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest moments of training first, each with all of its seeds; on a clock on which a seed takes a second."""
    task = who().under("rolling", past_labels=True)
    reader, seeds = Reader.of(view_of(task.database, task), labels=task.seeds("train")), task.seeds("train")
    seeds = seeds.select(np.arange(len(seeds)) >= len(seeds) - 100)
    moments, now = reader.moments(seeds.time), [0.0]
    newest = moments >= np.sort(moments)[-num]
    columns = PairColumns.matrix

    def slow(self: PairColumns, sources: Any, of: Any, item: Any) -> Any:
        now[0] += len(sources)
        return columns(self, sources, of, item)

    monkeypatch.setattr(PairColumns, "matrix", slow)
    monkeypatch.setattr(clock.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(rows, "FEWEST", 20)
    read, pairs = rows.pairs_in_time(reader, seeds, 0, order=clock.newest_first, seconds=seconds)
    assert read.node.tolist() == seeds.node[newest].tolist()
    assert len(np.unique(pairs.seed)) == len(read) == newest.sum()
    whole = rows.pair_rows(reader, seeds, 0)
    own = np.flatnonzero(newest[whole.seed])
    assert np.array_equal(whole.matrix[own], pairs.matrix, equal_nan=True)
    assert np.array_equal(whole.item[own], pairs.item)


def test_short_of_time_less_is_learned_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trees learn from what there is time for, and beside them no towers begin."""
    monkeypatch.setattr(rows, "FEWEST", 64)
    heard = Heard()
    fit(who(), "auto", runs=tmp_path, listener=heard, time_limit=1e-3, **SMALL)
    [(fitted, _)] = heard.ended
    assert set(fitted.model.weights) == {*RULES, "trees"}
    assert re.search(f"from the latest [67][0-9] of {len(who().seeds('train')):,} rows", fitted.chosen)


def test_a_query_is_asked_and_answered(source: Path) -> None:
    said = invoke(
        "ask", source, QUERY.replace("FOR EACH orders.number", "RANK TOP 4 FOR orders.number = 1490"),
        "--model", "lightgbm", "--runs", source.parent / "asked", "--time-limit", "10s",
    )  # fmt: skip
    assert "lists of 4" in said
    assert "Customer " in said


def test_of_few_rows_a_list_is_as_long_as_there_are(tmp_path: Path) -> None:
    task = orders().task("PREDICT orders.shop RANK TOP 20 FOR EACH orders.number", known_after="1 day")
    model = fit(task, "lightgbm", runs=tmp_path, listener=Listener(), time_limit=10)
    live = model.on(task.full_database, listener=Listener())
    assert len(live.predict([1499], top=20)) == NUM_SHOPS
