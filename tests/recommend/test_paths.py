"""Paths from a table to itself: who follows whom is not who is followed by whom, whatever the columns are called."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from quartet.database import FACTS, Database, ForeignKey, TableSchema, TimeColumn
from quartet.database.schema import Schema
from quartet.features import FeatureTable
from quartet.recommend import Reader
from quartet.tasks import Task
from quartet.training import View
from tests.recommend.small import DAY, START, next_books, view_of

NUM_PEOPLE, NUM_DAYS = 20, 200


def follows(by: str, whom: str) -> tuple[Task, Reader]:
    """Each follows two others now and then. Of each, the next ones are asked for."""
    rng = np.random.default_rng(0)
    liked = rng.integers(0, NUM_PEOPLE, (NUM_PEOPLE, 2))
    day, who = (each.ravel() for each in np.meshgrid(np.arange(NUM_DAYS), np.arange(NUM_PEOPLE)))
    is_said = rng.random(len(day)) < 0.15
    day, who = day[is_said], who[is_said]
    names = np.array([f"P{number:02d}" for number in range(NUM_PEOPLE)])
    tables = {
        "people": pa.table({"id": names}),
        "follows": pa.table(
            {
                "at": pa.array(START + DAY * day, pa.timestamp("ns")),
                by: names[who],
                whom: names[liked[who, rng.integers(0, 2, len(who))]],
            }
        ),
    }
    both = ForeignKey((by,), "people"), ForeignKey((whom,), "people")
    schema = {
        "people": TableSchema(("id",), settled=FACTS),
        "follows": TableSchema((), both, TimeColumn("at"), settled=FACTS),
    }
    database = Database.build(tables, Schema(schema, name="people"))
    query = (
        f"PREDICT LIST_DISTINCT(follows.{whom} VIA follows.{by}, 0, 20, days) RANK TOP 3 FOR EACH people.id"
    )
    task = database.task(query)
    features = FeatureTable.fit(task.database, task.splits.val, use_row_names=False)
    view = View(task.database, features, task.spec, view_of(next_books().database, next_books()).recipe)
    return task, Reader.of(view, labels=task.seeds("train"))


@pytest.mark.parametrize(("by", "whom"), [("a", "b"), ("b", "a")])
def test_the_path_of_the_labels_leads_their_way(by: str, whom: str) -> None:
    task, reader = follows(by, whom)
    assert reader.past.paths[0].name == f"follows.{by} & follows.{whom}"
    assert {path.name for path in reader.past.paths} == {"follows.a & follows.b", "follows.b & follows.a"}
    rows = task.database["follows"]
    relations = {relation.label: relation.rows for relation in task.database.relations}
    pairs = [tuple(reader.past.items.of_row[relations[f"follows.{name}"]].tolist()) for name in (by, whom)]
    told = sorted(zip(*pairs, rows.known_at.tolist(), strict=True))
    path = reader.past.paths[0]
    assert sorted(zip(path.source.tolist(), path.item.tolist(), path.time.tolist(), strict=True)) == told
    linked = reader.past.links  # each pair once in both ways
    back = [(item, source, at) for source, item, at in told]
    assert sorted(
        zip(linked.source.tolist(), linked.item.tolist(), linked.time.tolist(), strict=True)
    ) == sorted(told + back)
