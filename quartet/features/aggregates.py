"""RelationalColumns: what a seed looks like at its time, in columns: the cells of its row, and of the rows around it.

They look up to two links far, and from a parent two links down. Windows are counted in units of the task's horizon:

    results by driverId: last 120 days                         how many children are visible, and since when
    results by driverId -> points: mean of the last 12         what they hold, together
    results by driverId, raceId -> races -> round: latest      what their other parents hold
    orders by customer, items by order -> price: sum of 8 days what their children hold
    orders by customer without deliveries by order: of the last 12    how many of them have no child of a kind yet
    teamId -> teams, founded (number)                          what its parent holds
    teamId -> teams, leagueId -> leagues, level (number)       what a parent's parent holds
    teamId -> teams, results by teamId -> points: mean         what a parent's children hold, by then
    known_labels by entity -> label: 2 before the latest       earlier labels, one by one, and how old they are
    customer -> customers, orders by customer, known_labels by entity -> label: the latest (code)    of many classes
    known_labels by entity -> label has DAP: share of the last 12    of lists of classes, each class
    flights of the same number -> distance: mean               what earlier rows of the entity's own table held
    results by driverId -> points: mean of the last 12, place among drivers    who has less, and how far off the most is
    world: results -> points: mean of 30 days                  what all rows of a table held lately

Where nothing is visible a column is NaN. About `MOST_SUMMARIES` summaries are made in all: at the end of each path the
same number of cells is looked at, and some more in brief, by the latest and the mean of the last twelve. None that
models read tells the date: a tree cannot know what comes after the last it has seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, fields
from functools import cached_property, partial
from itertools import combinations
from typing import Any

import numpy as np

from quartet.causal import TimeRule, visible
from quartet.database import Database
from quartet.features.arrays import FIRST_CODE
from quartet.features.blocks import (
    GAP,
    HERE,
    PLACE,
    WORLD,
    Block,
    Calendar,
    ClassBlock,
    Group,
    LagBlock,
    Matrix,
    OwnBlock,
    PathBlock,
    PlaceBlock,
    Way,
    WorldBlock,
)
from quartet.features.lists import NUM_LISTS, ListBlock
from quartet.features.paths import GROWING, LAST, Events, Path, events_below
from quartet.features.statistics import FeatureStatistics, Rhythm
from quartet.features.summed import MOST_VALUES, Summed, TableCells, table_cells
from quartet.features.table import FeatureTable
from quartet.features.timeline import Columns, Ints
from quartet.features.waiting import WaitingBlock
from quartet.machine import give_back, mapped
from quartet.tasks import KNOWN_LABELS, LABEL, Seeds
from quartet.times import DAY, STATIC, show_length

MOST_SUMMARIES = 1000
_MOST_BRIEF, _BRIEF_PART = 12, 0.5  # cells of a path that are told in brief, of as many more summaries
MEAN_PAST_LABEL = f"{KNOWN_LABELS} by entity -> {LABEL}: mean of the last {LAST}"
_MOST_UPS = 2
_MOST_COMPARED = 10_000_000  # rows at all times of training
_FEWEST_ALIKE = 4  # rows of a group, on average; a category that makes groups has more values
_CELLS_OF_A_THREAD = 2**19  # fewer take less time than beginning one and waiting for Python's lock
_UNITS_OF_A_SPAN, _UNITS_BEFORE = 2000, 100  # where a task has no horizon


@dataclass(frozen=True, eq=False)
class RelationalColumns:
    """What trees and the tower see of a seed: its place in the calendar, and what is visible from its entity."""

    first_node: int
    rule: TimeRule
    blocks: tuple[Block, ...]
    num_entities: int
    unit: int  # of the windows, in nanoseconds

    @staticmethod
    def of(
        database: Database,
        table: str,
        features: FeatureTable,
        rule: TimeRule = "<=",
        horizon: int = 0,
        before: RelationalColumns | None = None,
    ) -> RelationalColumns:
        """Returns the columns of a table's rows; `horizon`, in nanoseconds, is the unit of their windows.

        `before` are those of a database from which this one has grown, by the same statistics, rule and horizon: what
        new rows do not change is taken from there, and the rest is gone on with.
        """
        unit = horizon or unit_of(database, features.statistics)
        old = before.blocks if before else ()
        cells = table_cells(
            database, features, {o.cells.table.name: o.cells for o in old if hasattr(o, "cells")}
        )
        paths = {block.path.label: block.path for block in old if hasattr(block, "path")}
        path_of = partial(Path.of, unit=unit, before=paths)
        around = list(_around(database, cells, table, rule, path_of))
        world = list(_world(database, cells, path_of))
        most = _most_cells([block for block in around if isinstance(block, PathBlock)])
        blocks: list[Block] = [Calendar(database[table].known_at)]
        blocks += [block.looking_at(*most) if isinstance(block, PathBlock) else block for block in around]
        blocks += world
        if len(old) == len(blocks):  # with what they keep of the latest moments
            blocks = [b if _is_same(a, b) else a for a, b in zip(blocks, old, strict=True)]
        give_back()
        return RelationalColumns(database.offsets[table], rule, tuple(blocks), database[table].num_rows, unit)

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(name for block in self.blocks for name in block.names)

    @cached_property
    def near(self) -> frozenset[str]:
        """Returns the columns of the seed's row and of rows one link below it: what one would make by hand."""
        near = [
            block
            for block in self.blocks
            if isinstance(block, (Calendar, LagBlock, ListBlock))
            or (isinstance(block, OwnBlock) and not block.way.links)
            or (isinstance(block, PathBlock) and not block.way.links and block.path.is_near)
        ]
        return frozenset(name for block in near for name in block.names)

    @cached_property
    def plain(self) -> frozenset[str]:
        """Returns what nearly everybody would begin with: near cells, counts, means and sums of one and four units."""
        one, four = (show_length(number * self.unit) for number in (1, 4))
        ends = tuple(f": {what} {window}" for what in ("last", "mean of", "sum of") for window in (one, four))
        return frozenset(name for name in self.near if ":" not in name or name.endswith(ends))

    def readable(self, seeds: Seeds) -> tuple[str, ...]:
        """Returns the columns that models learn from, of training seeds: none that tell the date by growing with it.

        Where times are many there are no places among all entities, which would take too long.
        """
        is_cheap = len(np.unique(seeds.time)) * self.num_entities <= _MOST_COMPARED
        paths = [block for block in self.blocks if isinstance(block, PathBlock)]
        upto = int(seeds.time.max(initial=STATIC))
        growing = {name for block in paths for name in block.path.growing(upto)} - {NUM_LISTS}
        return tuple(name for name in self.names if name not in growing and (is_cheap or not is_place(name)))

    def matrix(
        self,
        seeds: Seeds,
        wanted: AbstractSet[str] | None = None,
        threads: int = 1,
        made: tuple[Matrix, set[int]] | None = None,
    ) -> Matrix:
        """Returns the (S, names) columns of seeds; those of blocks of which none is wanted are left NaN.

        With `made`, what was made of the same seeds before and which blocks of it, the others are filled in. A thread
        takes a whole block, then the next that nobody has taken, where there is enough to do.
        """
        rows, place = seeds.node - self.first_node, 0
        out, filled = made or (self.no_columns(seeds), set())
        left: list[tuple[int, Block, Matrix]] = []
        for number, block in enumerate(self.blocks):
            names = block.names
            if number not in filled and (wanted is None or not wanted.isdisjoint(names)):
                left.append((number, block, out[:, place : place + len(names)]))
            place += len(names)
        enough = sum(own.size for _, _, own in left) // _CELLS_OF_A_THREAD
        waiting = iter(left)

        def fill(_: int) -> None:
            for number, block, own in waiting:
                block.fill(rows, seeds.time, self.rule, own)
                filled.add(number)

        threads = max(1, min(threads, enough, len(left)))
        list(mapped(fill, range(threads), threads))
        return out

    def no_columns(self, seeds: Seeds) -> Matrix:
        """Returns the (S, names) columns of seeds of which none is made yet."""
        return np.full((len(seeds), len(self.names)), np.nan, np.float32)

    def of_seeds(self, seeds: Seeds) -> Columns:
        return dict(zip(self.names, self.matrix(seeds).T, strict=True))


def is_about_others(name: str) -> bool:
    """Returns whether a column tells of rows that no link leads to: of a whole table, or of other entities."""
    return name.startswith(WORLD) or is_place(name)


def is_place(name: str) -> bool:
    """Returns whether a column compares an entity with all others, which takes long where times are many."""
    return PLACE in name or GAP in name


def _is_same(block: Any, other: Any) -> bool:
    """Returns whether two blocks show the same: whether they are made of the very same arrays."""
    mine, others = vars(block), vars(other)
    return type(block) is type(other) and all(
        mine[part.name] is others[part.name]
        or (isinstance(mine[part.name], (str, int)) and mine[part.name] == others[part.name])
        for part in fields(block)
    )


def unit_of(database: Database, statistics: FeatureStatistics, parts: int = _UNITS_OF_A_SPAN) -> int:
    """Returns the unit of a task without a horizon, which asks about single events: a small part of the data's span.

    It is that of training, however the database has changed since.
    """
    if statistics.rhythm is None:  # models from before have longer ones
        return max(DAY, Rhythm.of(database, statistics.cutoff).unit(_UNITS_BEFORE) // DAY * DAY)
    return statistics.rhythm.unit(parts)


def _around(
    database: Database,
    cells: Mapping[str, TableCells],
    table: str,
    rule: TimeRule,
    path_of: Callable[..., Path],
    way: Way = HERE,
) -> Iterator[Block]:
    """Yields what can be seen from a table at the end of a way: its rows, paths from their children, their parents.

    The entity's own row is known at its time even under the rule that shows no other row of that time.
    """
    ups = len(way.links)
    yield OwnBlock(way, cells[table])
    if ups >= _MOST_UPS:
        return
    counts_parent = bool(ups) or rule == "<="
    for events in events_below(database, table, way.label, not ups, counts_parent):
        path = path_of(events, is_near=events.is_near)
        yield PathBlock(way, path, cells[events.table])
        yield from _classes(way, path, cells[events.table])
        if events.is_near:
            yield from _waiting(database, way, path)
        if events.is_near and not ups:
            yield PlaceBlock(path, cells[events.table], database[table].known_at, table)
            if events.table == KNOWN_LABELS:
                yield LagBlock(path, cells[events.table])
                if LABEL in cells[events.table].features.statistics.tables[KNOWN_LABELS].of("multicategory"):
                    yield ListBlock(path, cells[events.table], LABEL)
    if not ups and database[table].is_timed:
        yield from _alike(database, cells, table, path_of)
    for relation in (relation for relation in database.relations if relation.table == table):
        above = way.above(relation, database[relation.parent].known_at)
        yield from _around(database, cells, relation.parent, rule, path_of, above)


def _alike(
    database: Database, cells: Mapping[str, TableCells], table: str, path_of: Callable[..., Path]
) -> Iterator[Block]:
    """Yields what earlier rows of the entity table held that have the same value, or name the same two rows.

    Entities that come once, such as a flight or an order, have a history through them alone.
    """
    own, known_at = cells[table].features, database[table].known_at
    groups: dict[
        str, tuple[Ints, Ints]
    ] = {}  # the value of each row, -1 for none, and when what it names is known
    for place, (name, column) in enumerate(own.statistics.tables[table].of("category").items()):
        if len(column.vocabulary) > _FEWEST_ALIKE:
            codes = own.tables[table].categories[:, place].astype(np.int64)
            groups[name] = codes - FIRST_CODE, np.full(len(codes), STATIC)
    for one, other in combinations((r for r in database.relations if r.table == table), 2):
        name = f"{one.foreign_key.distinct_label} and {other.foreign_key.distinct_label}"
        has_both = (one.rows >= 0) & (other.rows >= 0)
        pair = np.where(has_both, one.rows * (other.rows.max(initial=0) + 1) + other.rows, -1)
        above = [database[r.parent].known_at[np.maximum(r.rows, 0)] for r in (one, other) if has_both.any()]
        groups[name] = pair, np.max([np.full(len(pair), STATIC), *above], axis=0)
    for name, (value, above_known) in groups.items():
        members = np.flatnonzero(value >= 0)
        _, first, number = np.unique(value[members], return_index=True, return_inverse=True)
        known = np.maximum(known_at, above_known)[members]
        then = number[visible(known, own.statistics.cutoff)]  # later rows decide nothing
        if not len(then) or len(then) < _FEWEST_ALIKE * len(np.unique(then)):
            continue
        group = np.full(len(value), -1)
        group[members] = number
        anew = (np.empty(0, np.int64),)  # no other array is the same
        told = number, members, known
        alike = Events(f"{table} of the same {name}", table, anew, partial(_as_told, told))
        way = Way("", ((Group(group), above_known[members][first]),))
        for events in (alike, *(alike.below(database, r) for r in database.relations if r.parent == table)):
            path = path_of(events)
            yield PathBlock(way, path, cells[events.table])
            yield from _classes(way, path, cells[events.table])


def _waiting(database: Database, way: Way, path: Path) -> Iterator[Block]:
    """Yields for each table whose rows come in time and name those of a path: how many are not named yet."""
    for below in (relation for relation in database.relations if relation.parent == path.table):
        others = database[below.table]
        if others.is_timed and below.table != KNOWN_LABELS:
            yield WaitingBlock(way, path, below, others.known_at, database[path.table].num_rows)


def _as_told(rows: tuple[Ints, Ints, Ints]) -> tuple[Ints, Ints, Ints]:
    return rows


def _classes(way: Way, path: Path, cells: TableCells) -> Iterator[Block]:
    """Yields the classes of labels at the end of a path, where there are more of them than summaries tell of."""
    column = cells.features.statistics.tables[path.table].of("category").get(LABEL)
    if path.table == KNOWN_LABELS and column is not None and len(column.vocabulary) > MOST_VALUES + 1:
        yield ClassBlock(way, path, cells, LABEL)


def _world(
    database: Database, cells: Mapping[str, TableCells], path_of: Callable[..., Path]
) -> Iterator[Block]:
    """Yields the world columns of each table whose rows come in time."""
    for name, table in database.tables.items():

        def find(known_at: Ints = table.known_at) -> tuple[Ints, Ints, Ints]:
            dated = np.flatnonzero(known_at != STATIC)
            return np.zeros(len(dated), np.int64), dated, known_at[dated]

        if table.is_timed:
            events = Events(f"{WORLD}{name}", name, (table.known_at,), find)
            yield WorldBlock(path_of(events, is_near=True), cells[name])


def _most_cells(blocks: list[PathBlock]) -> tuple[int, int]:
    """Returns how many cells of each path can be looked at so that there are not too many summaries, and in brief."""

    def num_summaries(most: int, brief: int) -> int:
        return sum(len(block.path.names(Summed(block.cells, most, brief))) for block in blocks)

    most, brief = 1, 0
    largest = max((len(b.cells.numbers) + len(b.cells.flags) for b in blocks), default=1)
    not_read = len(GROWING) * sum(b.path.is_count for b in blocks)  # mostly; see `Path.growing`
    while most < largest and num_summaries(most + 1, 0) - not_read <= MOST_SUMMARIES:
        most += 1
    limit = num_summaries(most, 0) + _BRIEF_PART * MOST_SUMMARIES
    while brief < min(_MOST_BRIEF, largest - most) and num_summaries(most, brief + 1) <= limit:
        brief += 1
    return most, brief
