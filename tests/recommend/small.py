"""A small library for the tests of recommendation: 30 readers, 24 books, and who borrowed which when."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from quartet.config import Recipe
from quartet.database import FACTS, Database, ForeignKey, TableSchema, TimeColumn
from quartet.database.schema import Schema
from quartet.features import FeatureTable
from quartet.tasks import Task
from quartet.training import View
from tests.trained import SIZES

DAY = 86_400 * 10**9
START = int(np.datetime64("2023-01-01", "ns").astype(np.int64))
NUM_READERS, NUM_BOOKS, NUM_DAYS = 30, 24, 300
Raw = tuple[dict[str, pa.Table], Schema]

LOANS_SQL = """
    SELECT t.timestamp, l.reader, LIST(DISTINCT l.book) AS books
    FROM timestamps t
    JOIN loans l ON l.lent > t.timestamp AND l.lent <= t.timestamp + INTERVAL '{timedelta}'
    JOIN books b ON b.book = l.book AND b.added <= t.timestamp
    GROUP BY t.timestamp, l.reader
"""
NEXT_BOOKS = {
    "name": "next-books",
    "kind": "forecast",
    "task_type": "recommendation",
    "src_entity_table": "readers",
    "src_entity_col": "reader",
    "dst_entity_table": "books",
    "dst_entity_col": "books",
    "target_col": "books",
    "time_col": "timestamp",
    "timedelta": "30 days",
    "eval_k": 5,
    "sql": LOANS_SQL,
    "val_timestamp": "2023-08-01",
    "test_timestamp": "2023-09-15",
}


def raw_library(rng_seed: int = 0) -> Raw:
    """Each reader borrows some favourites again and again, and now and then any book, even one that is not there yet.

    The writer W2 becomes known after most of her books.
    """
    rng = np.random.default_rng(rng_seed)
    readers = [f"R{n:02d}" for n in range(NUM_READERS)]
    books = [f"B{n:02d}" for n in range(NUM_BOOKS)]
    added = np.sort(rng.integers(0, 200, NUM_BOOKS)) * (np.arange(NUM_BOOKS) > NUM_BOOKS // 2)
    favourites = [rng.choice(NUM_BOOKS // 2 + 6, 4, replace=False) for _ in readers]
    loans = []
    for day in range(NUM_DAYS):
        known = np.flatnonzero(added <= day)
        for reader in range(NUM_READERS):
            if rng.random() < 0.12:
                liked = [book for book in favourites[reader] if added[book] <= day]
                book = rng.choice(liked) if liked and rng.random() < 0.8 else rng.choice(known)
                book = book if rng.random() < 0.95 else rng.integers(NUM_BOOKS)  # ordered before it is there
                loans.append((readers[reader], books[int(book)], day))
    tables = {
        "writers": pa.table(
            {
                "writer": ["W0", "W1", "W2"],
                "known": pa.array([START, START, START + 250 * DAY], pa.timestamp("ns")),
            }
        ),
        "readers": pa.table({"reader": readers, "age": rng.integers(10, 80, NUM_READERS)}),
        "books": pa.table(
            {
                "book": books,
                "title": [f"Book {n} of all" for n in range(NUM_BOOKS)],
                "added": pa.array(START + DAY * added, pa.timestamp("ns")),
                "writer": [f"W{n % 3}" for n in range(NUM_BOOKS)],
                "pages": rng.integers(50, 900, NUM_BOOKS),
            }
        ),
        "loans": pa.table(
            {
                "loan": np.arange(len(loans)),
                "reader": [reader for reader, _, _ in loans],
                "book": [book for _, book, _ in loans],
                "lent": pa.array([START + DAY * day for _, _, day in loans], pa.timestamp("ns")),
            }
        ),
    }
    schema = {
        "writers": TableSchema(("writer",), (), TimeColumn("known"), settled=FACTS),
        "readers": TableSchema(("reader",), settled=FACTS),
        "books": TableSchema(
            ("book",), (ForeignKey(("writer",), "writers"),), TimeColumn("added"), settled=FACTS
        ),
        "loans": TableSchema(
            ("loan",),
            (ForeignKey(("reader",), "readers"), ForeignKey(("book",), "books")),
            TimeColumn("lent"),
            settled=FACTS,
        ),
    }
    return tables, Schema(schema, name="library")


def library(rng_seed: int = 0) -> Database:
    return Database.build(*raw_library(rng_seed))


def next_books(rng_seed: int = 0) -> Task:
    return Task.from_sql(library(rng_seed), **NEXT_BOOKS)


def write_library(folder: Path) -> Path:
    """The library as a folder of files with a schema file, and beside it the task next-books.yaml."""
    folder.mkdir(parents=True)
    tables, schema = raw_library()
    for name, table in tables.items():
        pq.write_table(table, folder / f"{name}.parquet")
    told = {
        name: {
            "pkey": said.primary_key[0],
            "time_col": said.time.column if said.time else None,
            "fkeys": {fk.columns[0]: fk.table for fk in said.foreign_keys},
        }
        for name, said in schema.tables.items()
    }
    (folder / "quartet.yaml").write_text(yaml.safe_dump({"name": "library", "tables": told}))
    (folder.parent / "next-books.yaml").write_text(yaml.safe_dump(NEXT_BOOKS))
    return folder


def view_of(database: Database, task: Task, model: str = "lightgbm") -> View:
    """A view whose features were fitted to the task's own database."""
    statistics = FeatureTable.fit(task.database, task.splits.val, use_row_names=False).statistics
    recipe = Recipe.load("small", model=model, **(SIZES if model == "quartet" else {}))
    return View(database, FeatureTable.encode(database, statistics), task.spec, recipe)
