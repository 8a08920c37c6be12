"""Embeddings: vectors that know nothing of the future, whom each is like, segments in words, and where they go."""

from __future__ import annotations

import json
import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st

from quartet.database import Database
from quartet.errors import SchemaError, UsageError
from quartet.runs import TrainedModel, fit, vectors_of
from quartet.runs.alike import directions, groups, nearest
from quartet.runs.segments import segment_words
from quartet.tasks import Seeds
from quartet.times import parse_instant
from tests.postgres import new_database
from tests.strategies import scrambled_future, without_future
from tests.tasks.small import CHURN
from tests.trained import QUICK, SHOP_SCHEMA, TREES, Heard, network_of, opened, run, shop_tables, write_shop

__all__ = ["new_database"]
pytestmark = pytest.mark.usefixtures("one_thread")  # sums in the same order: bits are compared here

AT = "2023-09-01"
SCHEMA = SHOP_SCHEMA | {"customers": SHOP_SCHEMA["customers"] | {"time_col": "since"}}


@pytest.fixture(scope="module")
def shop() -> Database:
    """The shop, whose last three customers are known from a later day on than is asked about here first."""
    tables = shop_tables()
    since = pa.array(["2023-01-01"] * 37 + ["2023-09-15"] * 3).cast(pa.timestamp("s"))
    tables["customers"] = tables["customers"].append_column("since", since)
    return opened(tables, SCHEMA)


def task_of(shop: Database) -> Any:
    return shop.task(CHURN, on_early_seed="drop")


@pytest.fixture(scope="module")
def model(shop: Database, tmp_path_factory: pytest.TempPathFactory) -> TrainedModel:
    folder = tmp_path_factory.mktemp("runs")
    task = task_of(shop)
    return fit(
        task, "quartet", runs=folder, cache=folder / "cache", listener=Heard(), past_labels=True, **QUICK
    )


# --- likeness ---------------------------------------------------------------------------------------


@given(st.integers(0, 2**31), st.integers(1, 12), st.integers(0, 14), st.booleans())
def test_the_nearest_are_those_of_comparing_all(rng_seed: int, count: int, most: int, has_ties: bool) -> None:
    rng = np.random.default_rng(rng_seed)
    vectors = rng.integers(-1, 2, (count, 2)).astype(float) if has_ties else rng.normal(size=(count, 5))
    units = directions(vectors)
    places, cosines = nearest(units, most)
    assert places.shape == cosines.shape == (count, min(most, count - 1))
    likeness = units @ units.T
    for own in range(count):
        others = [other for other in range(count) if other != own]
        expected = sorted(others, key=lambda other: (-likeness[own, other], other))[:most]
        assert places[own].tolist() == expected
        assert cosines[own].tolist() == [likeness[own, other] for other in expected]


def test_an_index_finds_nearly_the_same() -> None:
    pytest.importorskip("usearch")
    units = directions(np.random.default_rng(0).normal(size=(2000, 16)))
    exact, _ = nearest(units, 10)
    found, cosines = nearest(units, 10, most_exact=0)
    assert not (found == np.arange(2000)[:, None]).any()
    assert (np.diff(cosines, axis=1) <= 1e-6).all()
    shared = [len(set(mine) & set(theirs)) / 10 for mine, theirs in zip(found, exact, strict=True)]
    assert np.mean(shared) > 0.9


def test_groups_that_lie_apart_are_found_the_largest_first() -> None:
    rng = np.random.default_rng(0)
    truth = np.repeat([0, 1, 2], [50, 30, 20])
    units = directions(np.eye(3)[truth] * 10 + rng.normal(size=(100, 3)) * 0.1)
    assert groups(units, 3).tolist() == truth.tolist()
    assert np.bincount(groups(units, 2)).tolist() == [50, 50]
    assert groups(np.ones((4, 2), np.float32), 3).tolist() == [0] * 4  # no more groups than there are vectors
    assert groups(units, 1).tolist() == [0] * 100
    assert len(groups(units[:0], 3)) == 0


# --- vectors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("tower", [0, 4])
def test_the_answer_is_made_of_the_vector_alone(tower: int, shop: Database, tmp_path: Path) -> None:
    """Of a linear readout the logits are linear in it; of a tower with equal heads as well."""
    settings: dict[str, Any] = QUICK | {"tower": tower}
    task = task_of(shop)
    model = fit(task, "quartet", runs=tmp_path, cache=tmp_path, listener=Heard(), **settings)
    live, network = model.on(shop, listener=Heard()), network_of(model)
    rows, times = np.arange(20), np.full(20, parse_instant(AT, "day"))
    if tower:
        with torch.no_grad():
            network.readout.weight.copy_(network.readout.weight[:1].expand_as(network.readout.weight))
    seeds = Seeds(rows + shop.offsets["customers"], times, None)
    vectors, logits = network.embeddings(live.views[0], seeds), network.logits(live.views[0], seeds)
    weight = network.readout.weight[0] if tower else network.readout.weight.T
    bias = network.readout.bias.mean(0) if tower else network.readout.bias
    expected = vectors @ weight.detach().double().numpy() + bias.detach().double().numpy()
    np.testing.assert_allclose(logits, expected, atol=1e-5)
    own = vectors_of(live, rows, times)
    np.testing.assert_allclose(np.linalg.norm(own, axis=1), 1, atol=1e-6)


@pytest.mark.parametrize("other", [without_future, scrambled_future])
def test_later_rows_change_no_bit(other: Any, model: TrainedModel, shop: Database) -> None:
    raw = {name: table.data for name, table in shop.tables.items()}, shop.schema
    for day in (AT, "2023-10-03"):
        expected = model.on(shop, listener=Heard()).embed(day, neighbours=3, segments=3)
        assert len(expected) == (37 if day == AT else 40)
        for rng_seed in range(2):
            changed = Database.build(*other(raw, parse_instant(day, "day"), "<=", random.Random(rng_seed)))
            again = model.on(changed, listener=Heard()).embed(day, neighbours=3, segments=3)
            assert again.table.equals(expected.table)
            assert again.neighbours.equals(expected.neighbours)
            assert again.segments.equals(expected.segments)


def test_those_whom_the_task_asks_about_can_be_had_alone(model: TrainedModel, shop: Database) -> None:
    live = model.on(shop, listener=Heard())
    asked = live.embed(AT, everyone=False, neighbours=0, segments=0)
    assert asked.table["customer"].to_pylist() == live.predict(at=AT).table["customer"].to_pylist()
    assert asked.neighbours.num_columns == asked.segments.num_columns == 0
    assert "segment" not in asked.table.column_names


def test_trees_alone_have_no_embedding(shop: Database, tmp_path: Path) -> None:
    trees = fit(task_of(shop), recipe=TREES, runs=tmp_path, cache=tmp_path, listener=Heard())
    with pytest.raises(UsageError, match=r"C02.*trees alone"):
        trees.on(shop, listener=Heard()).embed(AT)


def test_several_models_stand_side_by_side(model: TrainedModel, shop: Database, tmp_path: Path) -> None:
    other = fit(
        task_of(shop),
        "quartet",
        runs=tmp_path,
        cache=tmp_path,
        listener=Heard(),
        past_labels=True,
        **QUICK,
    )
    both = TrainedModel([*model.members, *other.members]).on(shop, listener=Heard())
    rows, times = np.arange(5), np.full(5, parse_instant(AT, "day"))
    both.bind(int(times[0]))
    alone = model.on(shop, listener=Heard())
    alone.bind(int(times[0]))
    joined, one = vectors_of(both, rows, times), vectors_of(alone, rows, times)
    np.testing.assert_allclose(joined[:, : one.shape[1]] * np.sqrt(2), one, atol=1e-6)
    assert joined.shape[1] == 2 * one.shape[1]


# --- segments ---------------------------------------------------------------------------------------


def test_a_segment_is_told_by_what_sets_it_apart(model: TrainedModel, shop: Database) -> None:
    """Customers of Bonn in one group, all others in another: the city is named, with how many have it."""
    live = model.on(shop, listener=Heard())
    live.bind(parse_instant(AT, "day"))
    view, count = live.views[0], 40
    seeds = Seeds(
        np.arange(count) + view.database.offsets["customers"], np.full(count, parse_instant(AT, "day")), None
    )
    cities = view.database["customers"].data["city"].to_pylist()
    group = np.array([int(city != "Bonn") for city in cities])
    words = segment_words(view, seeds, group)
    assert words[0][0] == "city: Bonn (100%, of the others 0%)"
    assert segment_words(view, seeds, np.zeros(count, np.int64)) == {0: []}  # nothing is apart from nobody


# --- where they go ----------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["sqlite", "duckdb", "postgresql"])
def test_embeddings_go_into_a_database_once_and_are_no_data_there(
    engine: str, model: TrainedModel, shop: Database, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = f"{engine}:///{tmp_path}/like.{engine}"
    if engine == "postgresql":
        url = request.getfixturevalue("new_database")()
    found = model.on(shop, listener=Heard()).embed(AT, neighbours=2, segments=3)
    for _ in range(2):
        assert len(found.write(f"{url}#like")) == 3
    with pytest.raises(SchemaError, match=r"S01.*left out.*like_segments"):
        Database.load(url)
    if engine == "duckdb":
        with closing(duckdb.connect(tmp_path / "like.duckdb")) as connection:
            rows = connection.execute('SELECT customer, horizon, embedding FROM "like"').fetchall()
            places = connection.execute("SELECT customer, rank, neighbour FROM like_neighbours").fetchall()
        assert [row[:2] for row in rows] == [(key, "10 days") for key in found.table["customer"].to_pylist()]
        np.testing.assert_array_equal(
            np.array([json.loads(row[2]) for row in rows], np.float32), found.vectors
        )
        assert places == list(
            zip(*(found.neighbours[c].to_pylist() for c in ("customer", "rank", "neighbour")), strict=True)
        )


def test_the_three_tables_come_together_or_not_at_all(
    model: TrainedModel, shop: Database, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(tmp_path / "like.db")) as connection:
        connection.execute("CREATE TABLE like_segments (theirs TEXT)")  # the last of the three
        with pytest.raises(UsageError, match="other columns"):
            model.on(shop, listener=Heard()).embed(AT, neighbours=2, segments=3).write(
                f"{tmp_path}/like.db#like"
            )
        there = connection.execute("SELECT name FROM sqlite_master").fetchall()
    assert there == [("like_segments",)]


def test_files_hold_what_is_shown(model: TrainedModel, shop: Database, tmp_path: Path) -> None:
    found = model.on(shop, listener=Heard()).embed(AT, neighbours=2, segments=3)
    found.write(tmp_path / "like.parquet")
    assert pq.read_table(tmp_path / "like.parquet").equals(found.table)
    assert pq.read_table(tmp_path / "like-neighbours.parquet").equals(found.neighbours)
    segments = pq.read_table(tmp_path / "like-segments.parquet")
    assert (
        segments["entities"].to_pylist()
        == pa.array(np.bincount(found.table["segment"].to_numpy())[1:]).to_pylist()
    )
    for bad in ("like.csv", "like"):
        with pytest.raises(UsageError, match="C02"):
            found.write(tmp_path / bad)
    with pytest.raises(UsageError, match="L11"):
        found.alike(["nobody"])


def test_the_verb_shows_segments_and_look_alikes(
    model: TrainedModel, shop: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_shop(tmp_path / "shop")
    pq.write_table(shop["customers"].data, tmp_path / "shop" / "customers.parquet")
    schema = {"name": "shop", "tables": SCHEMA}
    (tmp_path / "shop" / "quartet.yaml").write_text(yaml.safe_dump(schema))
    done = run(
        "embed",
        model.folder,
        "shop",
        "--at",
        AT,
        "--entities",
        "C03",
        "--neighbours",
        2,
        "-o",
        "like.parquet",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("C03") == 2
    assert "what they have in common" in done.stdout
    assert done.stderr.splitlines()[-1].startswith(
        "Wrote 37 vectors to like.parquet, like-neighbours.parquet"
    )
    assert run("embed", model.folder, "shop", "-o", "like.csv").returncode == 2
