"""Recommendation from the command line and in Python: trained, kept, judged, asked again, submitted."""

from __future__ import annotations

import itertools
import json
import random
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow.csv as csv
import pytest

from quartet.database import Database
from quartet.errors import TaskError, UsageError
from quartet.explain import global_view
from quartet.findings import Finding
from quartet.listener import Listener
from quartet.recommend import reasons
from quartet.recommend.recommender import RULES
from quartet.report import write_report
from quartet.runs import Ensemble, LiveModel, TrainedModel, fit, leakcheck, load
from quartet.runs.run import Run
from quartet.tasks import Links, Seeds, Task
from quartet.training import Epoch, Fitted, Member
from tests.recommend.small import (
    DAY,
    LOANS_SQL,
    NEXT_BOOKS,
    NUM_BOOKS,
    NUM_READERS,
    START,
    library,
    next_books,
    write_library,
)
from tests.strategies import shuffled, without_future
from tests.trained import QUICK, Heard, invoke, network_of, run

SMALL = {**QUICK, "epochs": 2, "tower": 0}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_library(tmp_path_factory.mktemp("library") / "library")


@pytest.fixture(scope="module")
def trees(source: Path) -> Path:
    runs = source.parent / "runs"
    told = run("train", source, source.parent / "next-books.yaml", "--model", "lightgbm", "--runs", runs)
    assert "How good its lists are: quartet evaluate" in told.stderr
    assert "quartet report" not in told.stderr
    return (runs / "latest").resolve()


class Told(Listener):
    """A listener that remembers each member, and how good all were by then."""

    def __init__(self) -> None:
        self.members: list[Member] = []
        self.so_far: list[Epoch] = []

    def member(self, member: Member, fitted: Fitted) -> None:
        self.members.append(member)
        self.so_far.append(fitted.best)


@pytest.fixture(scope="module")
def told() -> Told:
    return Told()


@pytest.fixture(scope="module")
def blend(told: Told, tmp_path_factory: pytest.TempPathFactory) -> TrainedModel:
    folder = tmp_path_factory.mktemp("blend")
    return fit(next_books(), runs=folder, listener=told, time_limit=30, **SMALL)


def test_a_listener_hears_of_all_members_so_far(told: Told, blend: TrainedModel) -> None:
    """Of each member its own time is told, and beside its own figure that of the blend, the last of which is kept."""
    assert len(told.members) == 5
    assert told.so_far[0].validation == told.members[0].validation
    assert told.so_far[-1].validation == blend.validation
    spent = np.cumsum([member.seconds for member in told.members])
    assert all(spent <= [epoch.seconds for epoch in told.so_far])


def test_the_whole_way_on_the_command_line(source: Path, trees: Path) -> None:
    told = json.loads(invoke("evaluate", trees, "--json"))
    map_of = {row["name"]: row["measures"]["map"]["value"] for row in told["rows"]}
    assert list(map_of) == [
        "lightgbm", "most popular lately", "own past by recency", "own past by count", "random",
    ]  # fmt: skip
    assert map_of["lightgbm"] > map_of["most popular lately"] > map_of["random"] >= 0
    assert told["k"] == 5
    assert told["pools"]["all candidates"] == 1.0  # of few books all are candidates
    shown = invoke("evaluate", trees)
    assert "lists of 5" in shown
    assert "look-alikes" in shown
    out = source.parent / "lists.csv"
    invoke("predict", trees, source, "--top", "3", "--out", out)
    table = csv.read_csv(out)
    assert table.column_names == ["reader", "time", "rank", "book", "item name", "score"]
    assert set(table["rank"].to_pylist()) == {1, 2, 3}
    assert table["item name"][0].as_py().startswith("Book ")
    assert "book" in invoke("predict", trees, source, "--entities", "R00,R07")
    said = json.loads(invoke("predict", trees, source, "--top", "2", "--json"))
    assert [row["rank"] for row in said["predictions"][:2]] == [1, 2]


def test_scores_fall_along_a_list_and_lists_are_as_long_as_asked(trees: Path) -> None:
    model = load(trees)
    live = model.on(next_books().full_database, listener=Listener())
    default, longer = live.predict(["R03"]), live.predict(["R03"], top=8)
    assert (len(default), len(longer)) == (5, 8)
    assert longer.top(5).table.equals(default.table)
    assert (np.diff(longer.table["score"].to_numpy()) <= 0).all()
    with pytest.raises(UsageError, match=r"C02.*length of lists"):
        live.predict(["R03"], top=0)


def test_a_blend_is_kept_and_answers_again_with_the_same_bits(blend: TrainedModel) -> None:
    task = next_books()
    again = load(blend.folder)
    assert set(blend.members[0][0].model.weights) == {*RULES, "trees", "towers"}  # type: ignore[attr-defined]
    kept = Run(blend.folder).predictions("test")
    seeds = task.seeds("test")
    rows = seeds.node - task.database.offsets["readers"]
    readers = task.database["readers"].data["reader"].take(rows).to_pylist()
    asked = again.on(task.full_database, listener=Listener()).predict(readers, seeds.time.tolist())
    assert asked.table.drop_columns(["item name"]).equals(kept)
    found = again.evaluate(task, listener=Listener())
    assert found.rows[0].measures["map"].value > found.rows[-1].measures["map"].value  # type: ignore[operator]
    assert {"- trees", "- towers", "random"} < {row.name for row in found.rows}
    assert "nearest" in found.pools


def test_several_models_make_one_list(blend: TrainedModel, tmp_path: Path) -> None:
    both = Ensemble(fit(next_books(), "lightgbm", runs=tmp_path, listener=Listener()), blend)
    found = both.evaluate(next_books(), rules=False, listener=Listener())
    assert found.rows[0].name == "mean of 2 models"
    live = both.on(next_books().full_database, listener=Listener())
    assert len(live.predict(everyone=True)) == 5 * NUM_READERS
    heard = Heard()
    assert len(live.predict(["R03"], top=10**15, listener=heard)) == NUM_BOOKS
    assert [f.code for f in heard.findings] == ["L32"]
    raw = {name: table.data for name, table in next_books().full_database.tables.items()}
    other = Database.build(*shuffled((raw, next_books().full_database.schema), random.Random(0)))
    lists = (model.on(db, listener=Heard()).predict([f"R{n:02}" for n in range(NUM_READERS)]).table
             for model, db in ((both, next_books().full_database), (both, other)))  # fmt: skip
    one, two = (table.drop_columns(["item name"]) for table in lists)
    assert one.equals(two)


def test_a_report_tells_of_rules_pools_and_items(trees: Path, source: Path) -> None:
    page = load(trees).report(source.parent / "report.html").read_text()
    for said in ("own past by recency", "look-alikes", "Book ", "proposed by", "Order (MAP)"):
        assert said in page
    with pytest.raises(UsageError, match=r"L07.*are not compared"):
        write_report([load(trees), load(trees)], source.parent / "report.html")


def test_an_explanation_of_an_item_adds_up(blend: TrainedModel) -> None:
    """The parts of members to the score that the list has, and the columns of the trees to their part, all of them."""
    live = blend.on(next_books().full_database, listener=Listener())
    told = live.explain(["R03", "R07"], items=4)
    table = live.predict(["R03", "R07"], top=4).table
    assert [item.item for item in told] == table["book"].to_pylist()
    assert [item.reasons.rank for item in told] == [1, 2, 3, 4] * 2
    model = blend.members[0][0].model
    for item, score in zip(told, table["score"].to_pylist(), strict=True):
        assert item.reasons.score == pytest.approx(score, abs=1e-9)
        assert sum(effect for _, effect in item.reasons.parts) == pytest.approx(score, abs=1e-9)
        assert "all" in dict(item.reasons.pools)
        assert len(item.reasons.columns) == (12 if model.weights["trees"] else 0)  # type: ignore[attr-defined]


def test_columns_add_up_to_the_score_of_trees(trees: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reasons, "_MOST_COLUMNS", 10**6)
    live = load(trees).on(next_books().full_database, listener=Listener())
    for item in live.explain(["R03", "R11"], items=5):
        effects = [effect for _, _, effect in item.reasons.columns]
        assert sum(effects) == pytest.approx(item.reasons.score, abs=1e-5)
        assert dict(item.reasons.parts) == {"trees": item.reasons.score}


def test_items_are_explained_on_the_command_line(trees: Path, source: Path) -> None:
    shown = invoke("explain", trees, source, "--entity", "R03")
    assert "proposed by" in shown
    assert "pair column" in shown
    out = source.parent / "why.json"
    invoke("explain", trees, source, "--entity", "R03", "--out", out)
    assert [item["reasons"]["rank"] for item in json.loads(out.read_text())["items"]] == [1, 2, 3]
    invoke("explain", trees, source, "--out", source.parent / "why.csv")
    assert csv.read_csv(source.parent / "why.csv").num_rows == 3 * NUM_READERS
    with pytest.raises(UsageError, match=r"L07.*no view of all"):
        global_view(load(trees), next_books().full_database)


def test_lists_that_end_early_are_counted(trees: Path) -> None:
    heard = Heard()
    live = load(trees).on(next_books().full_database, listener=heard)
    assert len(live.predict(["R03"], top=100)) == NUM_BOOKS
    assert [(f.code, f.count) for f in heard.findings if f.code == "L32"] == [("L32", 1)]
    assert not [f for f in _heard(live, 5) if f.code == "L32"]


def test_lists_of_any_length_may_be_asked_for(trees: Path) -> None:
    """They take memory for the items that there are."""
    live = load(trees).on(next_books().full_database, listener=Listener())
    assert len(live.predict(["R03", "R05"], top=10**15)) == 2 * NUM_BOOKS
    with pytest.raises(UsageError, match=r"C02.*length of lists is True"):
        live.predict(["R03"], top=True)


def _heard(live: LiveModel, top: int) -> list[Finding]:
    heard = Heard()
    live.predict(["R03"], top=top, listener=heard)
    return heard.findings


def test_items_that_never_exist_in_time_cannot_be_learned(tmp_path: Path) -> None:
    later = "(b.added > t.timestamp OR t.timestamp >= TIMESTAMP '2023-08-01')"
    sql = LOANS_SQL.replace("b.added <= t.timestamp", later)
    task = Task.from_sql(library(), **(NEXT_BOOKS | {"sql": sql}))
    with pytest.raises(TaskError, match=r"L05.*among the candidates"):
        fit(task, "lightgbm", runs=tmp_path, listener=Listener())


def test_leakcheck_compares_lists(trees: Path) -> None:
    report = leakcheck(next_books(), [load(trees).members[0][0]], num_times=1, num_seeds=6)
    assert report.num_differences == 0
    assert any(subject == "lists of lightgbm" for subject, _ in report.outcomes)


def test_a_query_is_asked_and_answered(source: Path) -> None:
    said = invoke(
        "ask", source, "PREDICT LIST_DISTINCT(loans.book, 0, 30, days) RANK TOP 4 FOR EACH readers.reader",
        "--model", "lightgbm", "--runs", source.parent / "asked", "--time-limit", "10s",
    )  # fmt: skip
    assert "lists of 4" in said
    assert "item name" in said


def test_files_for_the_board(trees: Path, source: Path) -> None:
    invoke("evaluate", trees)
    board = source.parent / "board"
    told = json.loads(invoke("submit", trees, "--out", board, "--json"))
    evaluated = load(trees).evaluate(split="val", listener=Listener()).rows[0].measures["map"].value
    assert told["runs"][0]["val"] == pytest.approx(evaluated, abs=1e-12)
    first = (board / "library__next-books.csv").read_text().splitlines()[1]
    assert first.count("B") == 5


def test_an_item_that_a_label_names_twice_counts_once() -> None:
    once, twice = (
        Task.load(library(), {**NEXT_BOOKS, "sql": sql}).seeds("val").target
        for sql in (LOANS_SQL, LOANS_SQL.replace("LIST(DISTINCT ", "LIST("))
    )
    assert isinstance(once, Links)
    assert isinstance(twice, Links)
    assert (once.offsets == twice.offsets).all()
    for first, end in itertools.pairwise(once.offsets.tolist()):
        assert set(once.nodes[first:end]) == set(twice.nodes[first:end])


# --- what was said ----------------------------------------------------------------------------------------


def test_lists_that_were_said_are_judged_by_what_came(trees: Path, tmp_path: Path) -> None:
    shutil.copytree(trees, tmp_path / "run")
    model, database = load(tmp_path / "run"), library()
    time = START + 220 * DAY
    said = model.on(database, listener=Heard()).predict(at=time, everyone=True)
    num_said = len(set(said.table["reader"].to_pylist()))
    assert model.keep(said) == num_said
    assert model.keep(said) == 0
    judged = model.evaluate_said(database, listener=Heard())
    loans, books = (database[name].data.to_pylist() for name in ("loans", "books"))
    known = {row["book"] for row in books if row["added"].value <= time}
    came: dict[str, set[str]] = {}
    for row in loans:
        if time < row["lent"].value <= time + 30 * DAY and row["book"] in known:
            came.setdefault(row["reader"], set()).add(row["book"])
    lists: dict[str, list[str]] = {}
    for row in said.table.to_pylist():
        assert row["rank"] == len(lists.setdefault(row["reader"], [])) + 1
        lists[row["reader"]].append(row["book"])
    scores = []
    for reader, wanted in came.items():
        hits = np.array([book in wanted for book in lists[reader]])
        precision = np.cumsum(hits) / np.arange(1, len(hits) + 1)
        scores.append((precision * hits).sum() / min(len(wanted), 5))
    figures = judged.rows[0][1]
    assert figures["map"].value == pytest.approx(np.mean(scores))
    assert (judged.num_said, judged.num_judged, judged.num_open) == (num_said, len(came), 0)
    [at] = judged.times
    assert (at.rows, at.value) == (len(came), pytest.approx(np.mean(scores)))
    assert at.came == pytest.approx(np.mean([len(wanted) for wanted in came.values()]))
    assert str(judged) == str(load(tmp_path / "run").evaluate_said(database, listener=Heard()))


def test_lists_are_counted_and_not_their_places(trees: Path, source: Path, tmp_path: Path) -> None:
    shutil.copytree(trees, tmp_path / "run")
    asked = ("predict", tmp_path / "run", source, "--at", "2023-09-01", "--record")
    told = [run(*asked).stderr for _ in range(2)]
    kept = re.search(r"Kept (\d+) predictions", told[0])
    assert kept
    assert "were there before" not in told[0]
    assert f"; {kept[1]} were there before" in told[1]


def test_items_that_have_gone_since_keep_their_place(trees: Path, tmp_path: Path) -> None:
    """The list is judged as it was said: what is no longer there did not come."""
    shutil.copytree(trees, tmp_path / "run")
    model, database = load(tmp_path / "run"), library()
    said = model.on(database, listener=Heard()).predict(at=START + 220 * DAY, everyone=True)
    model.keep(said)
    whole = model.evaluate_said(database, listener=Heard()).rows[0][1]
    record = tmp_path / "run" / "said.sqlite"
    with closing(sqlite3.connect(record)) as connection:  # as if each list had begun with a book that is gone
        for entity, text in connection.execute("SELECT entity, scores FROM said").fetchall():
            told = json.dumps([["gone", 9.0], *json.loads(text)])
            connection.execute("UPDATE said SET scores = ? WHERE entity = ?", [told, entity])
        connection.commit()
    moved = model.evaluate_said(database, listener=Heard()).rows[0][1]
    assert moved["map"].value < whole["map"].value
    assert moved["map"].value > 0


def test_sources_have_the_vectors_that_towers_multiply_by_those_of_items(
    trees: Path, blend: TrainedModel, tmp_path: Path
) -> None:
    """They rest on rows known by then; trees alone have none."""
    when, database = START + 180 * DAY, next_books().full_database
    for model in (blend, fit(next_books(), "quartet", runs=tmp_path, listener=Heard(), **SMALL)):
        live = model.on(database, listener=Heard())
        found = live.embed(when, neighbours=3, segments=2)
        towers, seeds = network_of(model).towers, live.asked(None, when, everyone=True)
        node = seeds.rows + database.offsets["readers"]
        vectors = towers.embeddings(live.views[0], Seeds(node, seeds.times, None))
        assert found.table["reader"].to_pylist() == [f"R{n:02}" for n in range(NUM_READERS)]
        np.testing.assert_allclose(
            found.vectors, vectors / np.linalg.norm(vectors, axis=1, keepdims=True), rtol=1e-6
        )
        raw = {name: table.data for name, table in database.tables.items()}, database.schema
        before = Database.build(*without_future(raw, when, "<=", random.Random(0)))
        again = model.on(before, listener=Heard()).embed(when, neighbours=3, segments=2)
        assert again.table.equals(found.table)
        assert again.neighbours.equals(found.neighbours)
    with pytest.raises(UsageError, match=r"C02.*trees alone"):
        load(trees).on(database, listener=Heard()).embed(when)
