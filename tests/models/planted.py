"""Small databases, each with one planted signal that decides a label and stands in one place alone.

    archetypes    the seed's own columns                           feature branch
    degrees       how many links are visible, and how dense        topology branch
    waves         the newest rows of a table without any link      temporal branch
    look_alikes   a column of customers four rows away             collaborative branch
    baskets       a column two rows away                           local module
    noise         nowhere: labels by lot

Everything else is the same for all seeds, or drawn by lot. The first half of the seeds is to train on, the
second, other rows (of `waves`, other times), is held out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from quartet.config import SamplingConfig
from quartet.database import FACTS, Database, ForeignKey, TableSchema, TimeColumn
from quartet.database.schema import Schema
from quartet.features import FeatureTable
from quartet.graph import TemporalGraph
from quartet.tasks import Seeds
from quartet.times import DAY

NUM_SEEDS = 400  # half of them to train on
NUM_TIMES = 500  # of the waves, which are harder to learn
NOW = 100  # the day of all seeds that are not told apart by time

# Local contexts end two rows away from the seed, look-alikes are four rows away, and no row is drawn by lot.
NEAR = SamplingConfig(
    local_sampler="bfs", local_budget=16, temporal_budget=16, collab_budget=8, collab_hops=4, fallback="null"
)

Ints = NDArray[np.int64]
Cells = NDArray[np.float64] | Ints | list[str]
Tables = Mapping[str, Mapping[str, Cells]]


@dataclass(frozen=True)
class Planted:
    """A database with seeds whose label is decided by the planted signal."""

    database: Database
    graph: TemporalGraph
    train: Seeds
    held_out: Seeds
    sampler: SamplingConfig

    @cached_property
    def features(self) -> FeatureTable:
        return FeatureTable.fit(self.database, int(self.train.time.max()))


def archetypes(rng_seed: int = 0) -> Planted:
    """Four clusters of people in two columns, opposite ones of one label: neither column tells anything alone."""
    rng = np.random.default_rng(rng_seed)
    place = rng.integers(0, 2, (NUM_SEEDS, 2))
    x, y = (place + rng.normal(0, 0.1, place.shape)).T
    people = {"id": np.arange(len(x)), "x": x, "y": y}
    return _planted({"people": people}, np.arange(len(x)), place.sum(1) % 2)


def degrees(rng_seed: int = 0) -> Planted:
    """Twelve visible links, eight of one table and four of the other, in three days or in ninety.

    Which table has more XOR how dense they are is the label. In the end, after the seeds' time, every customer
    has twelve orders and twelve visits: only what is visible at the time differs.
    """
    rng = np.random.default_rng(rng_seed)
    is_buyer, is_burst = rng.integers(0, 2, (2, NUM_SEEDS))
    tables = {"customers": {"id": np.arange(NUM_SEEDS)}}
    for name, is_many in (("orders", is_buyer), ("visits", 1 - is_buyer)):
        owner = np.repeat(np.arange(NUM_SEEDS), 12)
        is_visible = np.tile(np.arange(12), NUM_SEEDS) < np.where(is_many, 8, 4)[owner]
        past = NOW - rng.uniform(0, np.where(is_burst, 3, 90)[owner])
        day = np.where(is_visible, past, NOW + rng.uniform(1, 30, len(owner)))
        tables[name] = {"id": np.arange(len(owner)), "customers": owner, "day": day}
    return _planted(tables, np.arange(NUM_SEEDS), is_buyer ^ is_burst)


def waves(rng_seed: int = 0) -> Planted:
    """Seeds of many times, ten days apart, each after eight daily readings of a stretch of a wave.

    Whether the wave is rising is the label: no reading tells it alone, nor does their mean. Readings are linked to
    nothing, and customers have one order each, at any time before.
    """
    rng = np.random.default_rng(rng_seed)
    is_rising = rng.integers(0, 2, NUM_TIMES)
    end = NOW + 10 * np.arange(NUM_TIMES)
    middle = rng.uniform(-1, 1, NUM_TIMES) + np.where(is_rising, 0, np.pi)
    phase = middle[:, None] + 0.2 * (np.arange(8) - 3.5)
    level = np.sin(phase) + rng.normal(0, 0.05, phase.shape)
    tables = {
        "customers": {"id": np.arange(NUM_TIMES)},
        "orders": {
            "id": np.arange(NUM_TIMES),
            "customers": np.arange(NUM_TIMES),
            "day": end - rng.uniform(0, 100, len(end)),
        },
        "readings": {
            "id": np.arange(level.size),
            "level": level.ravel(),
            "day": (end[:, None] - np.arange(8)[::-1] - 0.5).ravel(),
        },
    }
    return _planted(tables, np.arange(NUM_TIMES), is_rising, NEAR.changed(lookback_days=9), end)


def look_alikes(rng_seed: int = 0) -> Planted:
    """Groups of four customers who bought the same six products: a seed, and three who have a score.

    Whether scores of the group are about 1 or about -1 is the label.
    """
    rng = np.random.default_rng(rng_seed)
    is_good = rng.integers(0, 2, NUM_SEEDS)
    score = rng.normal(np.where(is_good, 1.0, -1.0)[:, None], 0.5, (NUM_SEEDS, 4))
    score[:, 0] = np.nan
    buyer = np.repeat(np.arange(score.size), 6)
    tables = {
        "customers": {"id": np.arange(score.size), "score": score.ravel()},
        "products": {"id": np.arange(6 * NUM_SEEDS)},
        "orders": {
            "id": np.arange(len(buyer)),
            "customers": buyer,
            "products": buyer // 4 * 6 + np.arange(len(buyer)) % 6,
            "day": rng.uniform(0, NOW, len(buyer)),
        },
    }
    return _planted(tables, 4 * np.arange(NUM_SEEDS), is_good)


def baskets(rng_seed: int = 0) -> Planted:
    """Customers with five orders: four of liked products and one of a disliked one, or the reverse.

    Which of the two is the label; the sign of a product's rating tells whether it is liked. Look-alikes are
    customers, who have no column.
    """
    rng = np.random.default_rng(rng_seed)
    rating = rng.uniform(0.5, 1.5, 60) * np.repeat([-1, 1], 30)
    is_happy = rng.integers(0, 2, NUM_SEEDS)
    is_liked = (np.arange(5) > 0) ^ (is_happy == 0)[:, None]
    product = rng.integers(0, 30, is_liked.shape) + 30 * is_liked
    tables = {
        "customers": {"id": np.arange(NUM_SEEDS)},
        "products": {"id": np.arange(60), "rating": rating},
        "orders": {
            "id": np.arange(product.size),
            "customers": np.repeat(np.arange(NUM_SEEDS), 5),
            "products": product.ravel(),
            "day": rng.uniform(0, NOW, product.size),
        },
    }
    return _planted(tables, np.arange(NUM_SEEDS), is_happy)


def noise(rng_seed: int = 0) -> Planted:
    """Customers, each a seed at four times, the first two to train on, with random columns and labels."""
    rng = np.random.default_rng(rng_seed)
    tables = {
        "customers": _random_columns(32, rng),
        "products": _random_columns(20, rng),
        "orders": {
            **_random_columns(400, rng),
            "customers": rng.integers(0, 32, 400),
            "products": rng.integers(0, 20, 400),
            "day": rng.uniform(0, NOW, 400),
        },
    }
    day = np.repeat([40, 60, 80, NOW], 32)
    sampler = SamplingConfig(local_budget=24, temporal_budget=16, collab_budget=8)
    return _planted(tables, np.tile(np.arange(32), 4), rng.integers(0, 2, len(day)), sampler, day)


def _random_columns(rows: int, rng: np.random.Generator) -> dict[str, Cells]:
    return {
        "id": np.arange(rows),
        "size": rng.normal(size=rows),
        "colour": rng.choice(["red", "green", "blue"], rows).tolist(),
    }


def _planted(
    tables: Tables,
    row: Ints,
    label: Ints,
    sampler: SamplingConfig = NEAR,
    day: Ints | None = None,
) -> Planted:
    """The first half of the seeds, rows of the first table, to train on and the second held out."""
    database = database_of(tables)
    seeds = Seeds(row, (np.full(len(row), NOW) if day is None else day) * DAY, label)
    is_train = np.arange(len(row)) < len(row) // 2
    graph = TemporalGraph.build(database)
    return Planted(database, graph, seeds.select(is_train), seeds.select(~is_train), sampler)


def database_of(tables: Tables) -> Database:
    """A database from arrays: `id` is the key, `day` the time, and a column named like a table a link to it."""
    data, said = {}, {}
    for name, columns in tables.items():
        stored = {column: _seconds(cells) if column == "day" else cells for column, cells in columns.items()}
        data[name] = pa.table(stored)
        links = tuple(ForeignKey((column,), column) for column in columns if column in tables)
        time = TimeColumn("day", unit="s") if "day" in columns else None
        said[name] = TableSchema(("id",), links, time, settled=FACTS)
    return Database.build(data, Schema(said))


def _seconds(day: NDArray[np.float64] | Ints) -> Ints:
    return np.floor(day * 86_400).astype(np.int64)
