"""What a seed looks like at its time, in columns: the cells of its row, and those of the rows around it.

`RelationalColumns` looks up to two links far, and from a parent two links down:

    results by driverId: 90 days                               how many children are visible, and since when
    results by driverId -> points: mean of the last 12         what they hold, on average
    results by driverId, raceId -> races -> round: latest      what their other parents hold
    orders by customer, items by order -> price: mean          what their children hold
    teamId -> teams, founded (number)                          what its parent holds
    teamId -> teams, leagueId -> leagues, level (number)       what a parent's parent holds
    teamId -> teams, results by teamId -> points: mean         what a parent's children hold, by then
    teamId -> teams, results by teamId, laps by resultId: all  and their children

Where nothing is visible a column is NaN. About `MOST_AVERAGES` averages are made in all: at the end of each path the
same number of cells is averaged, numbers first, then the most frequent values of each category. Texts and sets of
categories are not looked at. `SeedColumns` looks at no value of another row: it only counts links.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from quartet.causal import TimeRule, visible
from quartet.database import Database, Relation
from quartet.features.arrays import TableFeatures
from quartet.features.paths import RECENT, Events, Path, events_below
from quartet.features.table import FeatureTable
from quartet.features.timeline import Columns, Ints, Timeline, days_since
from quartet.tasks import Seeds
from quartet.times import DAY, NEVER

MOST_AVERAGES = 1000
CODE = " (code)"  # how the name of a column ends whose numbers have no order
_MOST_UPS = 2
_ANY = "any"


@dataclass(frozen=True, eq=False)
class RelationalColumns:
    """What trees see of a seed: its place in the calendar, and what is visible from its entity."""

    first_node: int
    entity: _Surroundings
    rule: TimeRule
    num_averaged: int  # cells of each path

    @staticmethod
    def of(
        database: Database, table: str, features: FeatureTable, rule: TimeRule = "<="
    ) -> RelationalColumns:
        entity = _Surroundings.of(database, features, table, rule)
        averages_of_a_cell = 3 + len(RECENT)
        num_averaged = max(1, MOST_AVERAGES // (averages_of_a_cell * max(1, entity.num_paths)))
        return RelationalColumns(database.offsets[table], entity, rule, num_averaged)

    def of_seeds(self, seeds: Seeds) -> Columns:
        rows = seeds.node - self.first_node
        calendar = _time_columns(self.entity.known_at[rows], seeds.time)
        return calendar | self.entity.columns(rows, seeds.time, self.rule, self.num_averaged)


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
                events = Events.children(database, relation)
                timelines[label] = Timeline.of(events.about, events.known_at)
                nodes.append(events.about)
                times.append(events.known_at)
            if relation.table == table:  # never, where a row names none
                parents[label] = np.append(database[relation.parent].known_at, NEVER)[relation.rows]
        timelines[_ANY] = Timeline.of(np.concatenate(nodes), np.concatenate(times))
        return SeedColumns(
            database.offsets[table], database[table].known_at, features.tables[table], timelines, parents
        )

    def of_seeds(self, seeds: Seeds) -> Columns:
        """Returns all columns, the category codes first."""
        rows = seeds.node - self.first_node
        columns = _own_columns(self.features, rows) | _time_columns(self.known_at[rows], seeds.time)
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


def _time_columns(known_at: Ints, times: Ints) -> Columns:
    """Returns where a seed stands in the calendar, and how old its row is."""
    days = times // DAY
    return {
        "day": days,
        "month": times.astype("datetime64[ns]").astype("datetime64[M]").astype(np.int64) % 12,
        "weekday": (days + 3) % 7,  # the epoch began on a Thursday
        "hour": times % DAY * 24 / DAY,
        "age in days": days_since(known_at, times),
    }


@dataclass(frozen=True, eq=False)
class _Surroundings:
    """What can be seen from the rows of a table: themselves, paths that begin with their children, their parents."""

    label: str
    table: str
    known_at: Ints
    features: FeatureTable
    dates: Mapping[str, NDArray[np.float64]]  # columns that hold dates, as days, NaN where there is none
    paths: tuple[Path, ...]
    parents: tuple[tuple[Relation, _Surroundings], ...]

    @staticmethod
    def of(
        database: Database, features: FeatureTable, table: str, rule: TimeRule, ups: int = 0, label: str = ""
    ) -> _Surroundings:
        """Returns what can be seen from a table that is itself so many links above the entity.

        The entity's own row is known at its time even under the rule that shows no other row of that time.
        """
        paths, parents = [], []
        if ups < _MOST_UPS:
            counts_parent = bool(ups) or rule == "<="
            below = events_below(database, table, label, not ups, counts_parent)
            paths = [Path.of(events) for events in below]
            for relation in (relation for relation in database.relations if relation.table == table):
                above = f"{label}{relation.foreign_key.distinct_label} -> {relation.parent}, "
                parent = _Surroundings.of(database, features, relation.parent, rule, ups + 1, above)
                parents.append((relation, parent))
        known_at, data = database[table].known_at, database[table].data
        dates = {name: _days(data[name]) for name in features.statistics.tables[table].of("time")}
        return _Surroundings(label, table, known_at, features, dates, tuple(paths), tuple(parents))

    @property
    def num_paths(self) -> int:
        return len(self.paths) + sum(parent.num_paths for _, parent in self.parents)

    def columns(self, rows: Ints, times: Ints, rule: TimeRule, num_averaged: int) -> Columns:
        """Returns what is visible from each row at its time, the row itself included; of parents, NaN if none is."""
        own = _own_columns(self.features.tables[self.table], rows)
        own |= {f"days since {name}": times / DAY - days[rows] for name, days in self.dates.items()}
        columns = {self.label + name: cells for name, cells in own.items()}
        for path in self.paths:
            columns |= path.columns(self.features, rows, times, rule, num_averaged)
        for relation, parent in self.parents:
            named = relation.rows[rows]
            seen = named >= 0
            seen[seen] = visible(parent.known_at[named[seen]], times[seen], rule)
            above = parent.columns(named[seen], times[seen], rule, num_averaged)
            above[f"{parent.label}days since"] = days_since(parent.known_at[named[seen]], times[seen])
            for name, cells in above.items():
                columns[name] = np.full(len(rows), np.nan, np.float32)
                columns[name][seen] = cells
        return columns


def _days(column: pa.ChunkedArray) -> NDArray[np.float64]:
    """Returns the days of dates since 1970, in UTC, NaN where there is none: not their calendar, which has an end."""
    days = column.to_numpy().astype("datetime64[D]")
    return np.where(np.isnat(days), np.nan, days.astype(np.int64))
