"""SeedColumns: what the rule "LightGBM on counts" sees of a seed. No value of another row: it only counts links."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quartet.causal import visible
from quartet.database import Database
from quartet.features.arrays import TableFeatures
from quartet.features.paths import Events
from quartet.features.summed import CODE
from quartet.features.table import FeatureTable
from quartet.features.timeline import Columns, Ints, Timeline, days_since
from quartet.tasks import Seeds
from quartet.times import DAY, NEVER

_ANY = "any"


@dataclass(frozen=True, eq=False)
class SeedColumns:
    """What the rule "LightGBM on counts" sees of a seed: its own cells, its place in the calendar, counts of links.

    For each relation that leads to the entity table, and for all together: how many linked rows are visible at the
    seed's time, how many of them are recent, and how long ago the last one came.
    """

    first_node: int
    known_at: Ints
    features: TableFeatures
    timelines: Mapping[str, Timeline]  # relations that lead to the table, and all of them
    parents: Mapping[str, Ints]  # relations that start from it: when the row that each row names is known

    @staticmethod
    def of(database: Database, table: str, features: FeatureTable) -> SeedColumns:
        timelines, parents = {}, {}
        nodes, times = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for relation in database.relations:
            # One column may name rows of two tables, or one row by two of its columns.
            label = f"{relation.table}.{relation.foreign_key.distinct_label} -> {relation.parent}"
            if relation.parent == table:
                about, _, known_at = Events.children(database, relation).rows
                timelines[label] = Timeline.of(about, known_at)
                nodes.append(about)
                times.append(known_at)
            if relation.table == table:  # never, where a row names none
                parents[label] = np.append(database[relation.parent].known_at, NEVER)[relation.rows]
        timelines[_ANY] = Timeline.of(np.concatenate(nodes), np.concatenate(times))
        return SeedColumns(
            database.offsets[table], database[table].known_at, features.tables[table], timelines, parents
        )

    def of_seeds(self, seeds: Seeds) -> Columns:
        """Returns all columns, the category codes first."""
        rows = seeds.node - self.first_node
        columns = _own_columns(self.features, rows)
        columns |= time_columns(self.known_at[rows], seeds.time)
        for label, timeline in self.timelines.items():
            columns |= timeline.counts(label, rows, seeds.time)
        for label, known_at in self.parents.items():
            columns[f"{label}: named"] = visible(known_at[rows], seeds.time)
        return columns

    def matrix(self, seeds: Seeds) -> NDArray[np.float32]:
        return np.column_stack(list(self.of_seeds(seeds).values())).astype(np.float32)


def _own_columns(features: TableFeatures, rows: Ints) -> Columns:
    """Returns the category codes and the numbers of some rows."""
    layout = features.layout
    codes = {name + CODE: features.categories[rows, at] for at, name in enumerate(layout.categories)}
    return codes | {f"{name} (number)": features.numbers[rows, at] for at, name in enumerate(layout.numbers)}


def time_columns(known_at: Ints, times: Ints) -> Columns:
    """Returns where a seed stands in the calendar, and how old its row is."""
    days = times // DAY
    return {
        "month": times.astype("datetime64[ns]").astype("datetime64[M]").astype(np.int64) % 12,
        "weekday": (days + 3) % 7,  # the epoch began on a Thursday
        "hour": times % DAY * 24 / DAY,
        "age in days": days_since(known_at, times),
    }
