"""Columns of a seed: its own cells, its place in the calendar, and counts of the rows that link to its entity.

For each relation that leads to the entity table, and for all together: how many linked rows are visible at the
seed's time, how many of them came in the last 30, 90 and 365 days, and how long ago the last one came. No value
of a linked row is looked at. A link counts from the moment at which both of its rows are known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quartet.causal import TimeRule, visible
from quartet.database import Database, Relation
from quartet.features.arrays import TableFeatures
from quartet.features.table import FeatureTable
from quartet.features.timeline import Timeline
from quartet.tasks import Seeds
from quartet.times import DAY, NEVER, STATIC

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]
Columns = dict[str, NDArray[Any]]

WINDOWS = (30, 90, 365)  # days
ANY = "any"


@dataclass(frozen=True, eq=False)
class LinkCounts:
    """The links of a table's rows in the order of time, by relation."""

    table: str
    timelines: Mapping[str, Timeline]  # relations that lead to the table, and ANY
    parents: Mapping[str, Ints]  # relations that start from it: when the row that each row names is known

    @staticmethod
    def of(database: Database, table: str) -> LinkCounts:
        links = {_label(r): _links(database, r) for r in database.relations if r.parent == table}
        nothing = np.empty(0, np.int64)
        every = [np.concatenate([nothing, *parts]) for parts in zip(*links.values(), strict=True)]
        links[ANY] = (every[0], every[1]) if every else (nothing, nothing)
        return LinkCounts(
            table,
            {label: Timeline.of(*link) for label, link in links.items()},
            {_label(r): _parent_known_at(database, r) for r in database.relations if r.table == table},
        )

    def columns(self, rows: Ints, times: Ints) -> Columns:
        """What is visible of each row's links at its time."""
        found: Columns = {}
        for label, timeline in self.timelines.items():
            found |= link_counts(label, timeline, rows, times)
        for label, known_at in self.parents.items():
            found[f"{label}: named"] = visible(known_at[rows], times)
        return found


def _label(relation: Relation) -> str:
    return f"{relation.label} -> {relation.parent}"  # one column may name rows of two tables


def _links(database: Database, relation: Relation) -> tuple[Ints, Ints]:
    """For each link the row that it leads to, and when it is known; a row that links to itself has none."""
    child, parent = database[relation.table], database[relation.parent]
    linked = relation.rows >= 0
    if relation.table == relation.parent:
        linked &= relation.rows != np.arange(len(relation.rows))
    rows = relation.rows[linked]
    return rows, np.maximum(child.known_at[linked], parent.known_at[rows])


def _parent_known_at(database: Database, relation: Relation) -> Ints:
    """When the row that each row names is known: never, where it names none."""
    return np.append(database[relation.parent].known_at, NEVER)[relation.rows]


def link_counts(label: str, timeline: Timeline, rows: Ints, times: Ints, rule: TimeRule = "<=") -> Columns:
    """How many events of each row are visible at its time, how many of them are recent, and how old the last is."""
    begin, end = timeline.until(rows, times, rule)
    found: Columns = {f"{label}: all": end - begin}
    for days in WINDOWS:
        found[f"{label}: {days} days"] = end - timeline.until(rows, times - days * DAY, rule)[1]
    found[f"{label}: days since"] = days_since(last_known(timeline, begin, end), times)
    return found


def last_known(timeline: Timeline, begin: Ints, end: Ints) -> Ints:
    """When the last event of each range was known, `STATIC` where there is none."""
    has_any = end > begin
    last = np.full(len(end), STATIC)
    last[has_any] = timeline.time[end[has_any] - 1]
    return last


def days_since(known: Ints, times: Ints) -> NDArray[np.float64]:
    """The days from one time to the other, NaN from what was always known."""
    days = np.full(len(times), np.nan)
    dated = known != STATIC
    days[dated] = (times[dated] - known[dated]) / DAY
    return days


def time_columns(known_at: Ints, times: Ints) -> Columns:
    """Where a seed stands in the calendar, and how old its row is."""
    days = times // DAY
    return {
        "day": days,
        "month": times.astype("datetime64[ns]").astype("datetime64[M]").astype(np.int64) % 12,
        "weekday": (days + 3) % 7,  # the epoch began on a Thursday
        "hour": times % DAY * 24 / DAY,
        "age in days": days_since(known_at, times),
    }


def own_columns(features: TableFeatures, rows: Ints) -> tuple[Columns, Columns]:
    """The numbers and the category codes of some rows."""
    layout = features.layout
    numbers = {f"{name} (number)": features.numbers[rows, at] for at, name in enumerate(layout.numbers)}
    codes = {f"{name} (code)": features.categories[rows, at] for at, name in enumerate(layout.categories)}
    return numbers, codes


@dataclass(frozen=True, eq=False)
class SeedColumns:
    """What the model sees of a seed."""

    first_node: int
    known_at: Ints
    features: TableFeatures
    counts: LinkCounts

    @staticmethod
    def of(database: Database, table: str, features: FeatureTable) -> SeedColumns:
        return SeedColumns(
            database.offsets[table],
            database[table].known_at,
            features.tables[table],
            LinkCounts.of(database, table),
        )

    def of_seeds(self, seeds: Seeds) -> Columns:
        """All columns, the category codes first."""
        rows = seeds.node - self.first_node
        numbers, codes = own_columns(self.features, rows)
        return {
            **codes,
            **numbers,
            **time_columns(self.known_at[rows], seeds.time),
            **self.counts.columns(rows, seeds.time),
        }

    def matrix(self, seeds: Seeds) -> Floats:
        return np.column_stack(list(self.of_seeds(seeds).values())).astype(np.float32)
