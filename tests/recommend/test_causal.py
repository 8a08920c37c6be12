"""Another future changes no event, candidate, negative, popularity, vector or list, by one bit."""

from __future__ import annotations

import random
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch

from quartet.database import FACTS, Database, ForeignKey, TableSchema, TimeColumn
from quartet.database.schema import Schema
from quartet.errors import TaskError
from quartet.features import FeatureTable
from quartet.recommend import PairColumns, Reader, Recommender, Towers, pair_rows
from quartet.recommend import towers as towers_drawer
from quartet.recommend.events import Events, Groups
from quartet.recommend.past import Past
from quartet.recommend.towers import item_rows
from quartet.tasks import Links, Seeds, Task
from quartet.tasks.past_labels import with_past_labels
from quartet.training import RankingOutput, View, graph_of
from tests.recommend.small import DAY, NUM_BOOKS, NUM_READERS, START, Raw, next_books, raw_library, view_of
from tests.strategies import scrambled_future, shuffled, without_future

TIME = START + 180 * DAY
FUTURES = {"taken away": without_future, "scrambled": scrambled_future}


@pytest.fixture(scope="module")
def task() -> Task:
    return next_books()


@pytest.fixture(scope="module")
def towers(task: Task) -> Towers:
    """Towers with random weights: what they may look at does not depend on what they have learned."""
    from quartet.training import TrainingData

    recipe = view_of(task.database, task, "quartet").recipe.changed(protocol="rolling", tower=0)
    data = TrainingData.prepare(task, recipe)
    reader = Reader.of(data.view, labels=data.seeds["train"])
    rows = pair_rows(reader, data.seeds["train"], 0)
    columns = item_rows(reader, data.seeds["train"], rows)[0].numpy()
    names = next(reader.blocks(data.seeds["val"])).columns.names()
    made = Towers.new(data, reader, names, rows, columns)
    torch.manual_seed(1)
    torch.nn.init.normal_(made.own.weight)
    assert isinstance(data.output, RankingOutput)
    return made.eval()


def keys(database: Database, table: str) -> list[str]:
    return database[table].data[0].to_pylist()  # type: ignore[no-any-return]


def seen(
    raw: Raw, task: Task, model: str = "lightgbm", towers: Towers | None = None, time: int = TIME
) -> dict[str, Any]:
    """All that is known of each reader and book at a time, by their keys."""
    database = Database.build(*raw)
    view = view_of(database, task, model)
    reader = Reader.of(view, ("loans.reader & loans.book",))
    readers, books = keys(database, "readers"), keys(database, "books")
    known = sorted(
        books[int(n)] for n in np.flatnonzero(reader.past.visible_items(time)[reader.past.items.of_row])
    )
    node = np.array(sorted(range(len(readers)), key=readers.__getitem__)) + database.offsets["readers"]
    wanted = np.array([books.index(known[n % len(known)]) for n in range(2 * len(node))])
    target = Links(np.arange(0, 2 * len(node) + 1, 2), wanted + database.offsets["books"])
    seeds = Seeds(node, np.full(len(node), time), target)

    def book(place: int) -> str:
        return books[int(reader.past.items.rows[place])]

    (block,) = reader.blocks(seeds)
    found: dict[str, Any] = {"known": known}
    for name, pool in block.moment.candidates(block.sources).items():
        pairs = zip(pool.source.tolist(), pool.item.tolist(), pool.score.tolist(), strict=True)
        found[f"pool {name}"] = [(source, book(item), score) for source, item, score in pairs]
    for name, values in block.columns.of_items.items():
        found[f"column {name}"] = sorted((book(p), float(values[p])) for p in block.moment.items)
    for drawn in (None, 3):
        rows = pair_rows(reader, seeds, drawn)
        order = sorted(range(len(rows.seed)), key=lambda n: (rows.seed[n], book(rows.item[n])))
        found[f"pairs {drawn}"] = [
            (int(rows.seed[n]), book(rows.item[n]), bool(rows.label[n])) for n in order
        ]
        found[f"matrix {drawn}"] = rows.matrix[order].tobytes()
    found |= lists_seen(
        Recommender(("loans.reader & loans.book",), weights={"own past by recency": 1.0}), view, seeds
    )
    if towers is not None:
        items = towers.of_items(block, towers.own_numbers(reader))
        found["item vectors"] = sorted((book(p), items[p].tobytes()) for p in block.moment.items)
        model_ = Recommender(("loans.reader & loans.book",), towers=towers, weights={"towers": 1.0})
        found |= {f"towers {name}": told for name, told in lists_seen(model_, view, seeds).items()}
    return found


def lists_seen(model: Recommender, view: View, seeds: Seeds) -> dict[str, Any]:
    books, first = keys(view.database, "books"), view.database.offsets["books"]
    lists = model.lists(view, replace(seeds, target=None), 5, with_members=True)
    return {
        f"lists {name}": [[books[n - first] if n >= 0 else "" for n in row] for row in own.items.tolist()]
        + [own.scores.tobytes()]  # type: ignore[list-item]
        for name, own in lists.items()
    }


def test_paths_count_before_their_first_event(task: Task, towers: Towers) -> None:
    """Nobody has borrowed a book by then: to a model that knows the path it is empty, not absent."""
    tables, schema = raw_library()
    time, loans = START + 5 * DAY, tables["loans"]
    later = pc.greater(loans["lent"].cast(pa.int64()), time)
    raw = {**tables, "loans": loans.filter(later)}, schema
    for model, some in (("lightgbm", None), ("quartet", towers)):
        found = seen(raw, task, model, some, time)
        assert found["lists most popular lately"][0][0]
        for future in FUTURES.values():
            other = future(raw, time, "<=", random.Random(0))  # type: ignore[operator]
            assert_same(found, seen(other, task, model, some, time))


@pytest.mark.parametrize("future", FUTURES)
@pytest.mark.parametrize("rng_seed", range(4))
def test_another_future_changes_nothing(task: Task, future: str, rng_seed: int) -> None:
    raw, rng = raw_library(), random.Random(rng_seed)
    other = FUTURES[future](raw, TIME, "<=", rng)
    assert_same(seen(raw, task), seen(other, task))  # type: ignore[arg-type]


def test_another_order_of_rows_changes_nothing(task: Task) -> None:
    raw = raw_library()
    assert_same(seen(raw, task), seen(shuffled(raw, random.Random(0)), task))  # type: ignore[arg-type]


@pytest.mark.parametrize("future", FUTURES)
def test_another_future_changes_no_vector(task: Task, towers: Towers, future: str) -> None:
    raw = raw_library()
    other = FUTURES[future](raw, TIME, "<=", random.Random(7))
    assert_same(seen(raw, task, "quartet", towers), seen(other, task, "quartet", towers))  # type: ignore[arg-type]


@pytest.mark.parametrize("future", FUTURES)
def test_another_future_changes_no_past_list(task: Task, future: str) -> None:
    """Lists of past windows are pools and columns; those whose window is open at the time are in neither."""
    paths = ("loans.reader & loans.book", "known_labels.entity & known_labels.label")
    found = []
    for raw in (raw_library(), FUTURES[future](raw_library(), TIME, "<=", random.Random(3))):  # type: ignore[operator]
        whole = Database.build(*raw)
        last = whole.span[1] if whole.span else TIME
        database = with_past_labels(whole, task.spec, task.splits, last)
        known = task.under("rolling", past_labels=True)
        reader = Reader.of(view_of(database, known), paths)
        books = keys(database, "books")
        node = np.argsort(keys(database, "readers")) + database.offsets["readers"]
        (block,) = reader.blocks(Seeds(node, np.full(len(node), TIME), None))
        pool = block.moment.candidates(block.sources)[f"past by {paths[1]}"]
        pairs = zip(
            pool.source.tolist(), reader.past.items.rows[pool.item].tolist(), pool.score.tolist(), strict=True
        )
        found.append(sorted((source, books[row], when) for source, row, when in pairs))
        assert f"{paths[1]}: times" in block.columns.names()
    assert found[0] == found[1]
    assert found[0]
    assert max(when for _, _, when in found[0]) <= TIME


def test_nearest_are_the_same_in_parts_as_at_once(
    task: Task, towers: Towers, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = view_of(task.full_database, task, "quartet")
    reader = Reader.of(view, ("loans.reader & loans.book",))
    node = np.arange(NUM_READERS) + view.database.offsets["readers"]
    (block,) = reader.blocks(Seeds(node, np.full(NUM_READERS, TIME), None))
    rng = np.random.default_rng(0)
    source = rng.normal(size=(NUM_READERS, 32)).astype(np.float32)
    items = rng.normal(size=(len(reader.past.items), 33)).astype(np.float32)
    monkeypatch.setattr(towers_drawer, "_NEAREST", 5)
    whole = towers.nearest(source, items, block)
    monkeypatch.setattr(towers_drawer, "_AT_ONCE", 3)
    parts = towers.nearest(source, items, block)
    exact = source @ items[block.moment.items, :32].T / np.sqrt(32) + items[block.moment.items, 32]
    best = block.moment.items[np.argsort(-exact, 1)[:, :5]]
    for pool in (whole, parts):
        assert (pool.source == np.repeat(np.arange(NUM_READERS), 5)).all()
        assert (pool.item == best.ravel()).all()


@pytest.mark.parametrize("num_threads", [1, 2])
def test_items_that_come_later_change_no_bit_of_vectors(
    towers: Towers, num_threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of few items and of many, wherever the later ones stand in the order of keys."""
    before, rng = torch.get_num_threads(), np.random.default_rng(0)
    columns = rng.normal(size=(3000, towers.num_item_columns)).astype(np.float32)
    known_at, own = rng.permutation(3000), rng.integers(0, len(towers.keys), 3000)

    def vectors(upto: int) -> Any:
        some = np.flatnonzero(known_at < upto)
        monkeypatch.setattr(towers_drawer, "item_matrix", lambda _: columns[some])
        block: Any = SimpleNamespace(
            moment=SimpleNamespace(past=SimpleNamespace(items=SimpleNamespace(known_at=known_at[some])))
        )
        found = np.full((3000, towers_drawer.WIDTH + 1), np.nan, np.float32)
        found[some] = towers.of_items(block, own[some])
        return found

    try:
        torch.set_num_threads(num_threads)
        whole = vectors(3000)
        for upto in (1, 2, 3, 5, 6, 10, 100, 1024, 1025, 2000):
            few = vectors(upto)
            assert np.isfinite(few).all(1).sum() == upto
            assert np.array_equal(few[known_at < upto], whole[known_at < upto])
    finally:
        torch.set_num_threads(before)


def test_a_pair_has_the_same_score_beside_few_and_many_others(towers: Towers) -> None:
    """Those of rows asked about at a later time, among others."""
    rng = np.random.default_rng(0)
    source, items = (np.zeros((9, 32 + more), np.float32) for more in (0, 1))  # else they drown the last bits
    of, item = rng.integers(0, 9, (2, 2000))
    matrix = rng.normal(size=(2000, len(towers.names))).astype(np.float32)
    whole = towers.scores(source, items, of, item, matrix)
    for size in (0, 1, 2, 3, 7, 1024, 1025):
        few = towers.scores(source, items, of[:size], item[:size], matrix[:size])
        assert np.array_equal(few, whole[:size])


def test_past_lists_are_found_and_events_stay_first(task: Task) -> None:
    known = task.under("rolling", past_labels=True)
    reader = Reader.of(view_of(known.database, known), labels=known.seeds("train"))
    names = [path.name for path in reader.past.paths]
    assert names == ["loans.reader & loans.book", "known_labels.entity & known_labels.label"]


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    for name, told in one.items():
        assert repr(told) == repr(other[name]), name


def test_candidates_exist_and_events_are_known(task: Task) -> None:
    """No book that is added later is a candidate, and no later loan counts."""
    view = view_of(task.full_database, task)
    reader = Reader.of(view, ("loans.reader & loans.book",))
    node = np.arange(5) + view.database.offsets["readers"]
    (block,) = reader.blocks(Seeds(node, np.full(5, START + 40 * DAY), None))
    for pool in block.moment.candidates(block.sources).values():
        assert (reader.past.items.known_at[pool.item] <= START + 40 * DAY).all()
    loans = view.database["loans"].data
    row = {key: number for number, key in enumerate(keys(view.database, "books"))}
    added = view.database["books"].known_at[[row[book] for book in loans["book"].to_pylist()]]
    is_known = np.maximum(view.database["loans"].known_at, added) <= START + 40 * DAY
    assert int(block.moment.popularity(1e4).sum()) == int(is_known.sum())
    assert is_known.sum() < (view.database["loans"].known_at <= START + 40 * DAY).sum()
    assert isinstance(block.columns, PairColumns)


def test_nothing_is_learned_of_items_that_do_not_exist_yet(task: Task) -> None:
    view = view_of(task.full_database, task)
    reader, first = Reader.of(view, ("loans.reader & loans.book",)), view.database.offsets
    newest = int(np.argmax(view.database["books"].known_at))
    target = Links(np.array([0, 2]), np.array([0, newest]) + first["books"])
    rows = pair_rows(reader, Seeds(np.array([first["readers"]]), np.array([START + 40 * DAY]), target), 0)
    assert (reader.past.items.known_at[rows.item] <= START + 40 * DAY).all()
    assert rows.label.sum() == 1


def test_what_comes_after_the_labels_does_not_choose_their_path(task: Task) -> None:
    """One path is the labels themselves and then much else; the other is like them only after their windows."""
    database = task.full_database
    past = Past.of(database, graph_of(database), task.spec, "<=")
    labels = task.seeds("train")
    labels = labels.select(labels.time == labels.time.max())
    assert isinstance(labels.target, Links)
    source = np.repeat(past.sources.of_nodes(labels.node), np.diff(labels.target.offsets))
    item, soon = past.items.of_nodes(labels.target.nodes), np.full(len(source), labels.time[0] + DAY)
    later, every = soon + task.spec.horizon, np.arange(NUM_READERS).repeat(NUM_BOOKS)
    books = np.tile(np.arange(NUM_BOOKS), NUM_READERS)
    alone = Groups.alone(NUM_READERS)
    more = every, books, np.full(len(every), later[0])
    same = Events("same", *map(np.append, (source, item, soon), more), alone)
    paths = (Events("late", source, item, later, alone), same)
    assert replace(past, paths=paths).like_labels(labels, task.spec).paths[0].name == "same"


def test_rows_after_training_make_no_path_and_no_column(task: Task) -> None:
    """Nobody reviews a book, and no book names its writer, before the labels of training are known."""
    tables, schema = raw_library()
    labels = task.seeds("train")
    late = task.spec.known_at(int(labels.time.max())) + DAY
    both = ForeignKey(("reader",), "readers"), ForeignKey(("book",), "books")
    told = Schema(
        {"reviews": TableSchema((), both, TimeColumn("at"), settled=FACTS), **schema.tables}, name="library"
    )
    reviews = pa.table({"at": pa.array([late], pa.timestamp("ns")), "reader": ["R01"], "book": ["B01"]})
    books = tables["books"]
    empty = books.set_column(books.column_names.index("writer"), "writer", pa.nulls(NUM_BOOKS, pa.string()))

    def reader_of(database: Database) -> Reader:
        features = FeatureTable.fit(database, task.splits.val, use_row_names=False)
        return Reader.of(
            View(database, features, task.spec, view_of(task.database, task).recipe), labels=labels
        )

    found = []
    for some, own in ((reviews, books), (reviews.slice(0, 0), books), (reviews, empty)):
        reader = reader_of(Database.build({**tables, "reviews": some, "books": own}, told))
        columns = next(reader.blocks(labels)).columns.names()
        found.append(([path.name for path in reader.past.paths], columns))
    assert found[0] == found[1] == found[2]
    assert found[0][0] == ["loans.reader & loans.book"]
    alone = {name: table for name, table in tables.items() if name != "loans"}
    rest = Schema({name: said for name, said in told.tables.items() if name != "loans"}, name="library")
    for some in (reviews, reviews.slice(0, 0)):
        with pytest.raises(TaskError, match=r"S14.*no path"):
            reader_of(Database.build({**alone, "reviews": some}, rest))


def test_paths_are_found_without_being_told(task: Task) -> None:
    reader = Reader.of(view_of(task.full_database, task), labels=task.seeds("train"))
    assert [path.name for path in reader.past.paths] == ["loans.reader & loans.book"]
    assert [label for label, _, _ in reader.past.parents] == ["books.writer"]
