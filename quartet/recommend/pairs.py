"""Pair columns: what is known at a time of a source and an item together, and of the item by itself, as numbers.

by each path    how often, how long ago, and its place among the latest of the source
by the main     since when, how often in windows, its share of the source's events, how regularly, and when it is due
of the item     events in windows of 1/12 to 12 horizons and in all, how it ranks by them, its age, when it is due
of the source   how many events and items, and how long ago
from others     how much look-alikes had it, how often linked items were had, what shares its parents
beside it       how far the numbers of a row whose link is filled in are from those that the item had last
of its row      numbers of the item's own row and of rows one link away
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from quartet.causal import visible
from quartet.features import CODE, RelationalColumns, unit_of
from quartet.recommend.candidates import Moment, Pool
from quartet.recommend.events import Floats, Ints, Sources, places_in
from quartet.recommend.past import Past
from quartet.tasks import Seeds
from quartet.times import DAY, STATIC
from quartet.training import View

_WINDOWS = (1 / 12, 1 / 4, 1.0, 2.0, 4.0, 12.0, 1e4)  # in horizons; the last is all time
_PAIR_WINDOWS = (1 / 4, 1.0, 4.0)
_EDITIONS = 4  # of an item, by which its period is measured
_MOST_ROW_COLUMNS = 40
_MOST_NUMBERS, _LAST_ROWS = 8, 8  # cells of a row whose link is filled in, and rows that an item had last
_AT_ONCE = 256  # seeds whose pairs are in memory together
_UNITS = 100  # of all time, where a task has no horizon
_MOMENTS = 64  # of training, where each row has a time of its own
Matrix = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class PairColumns:
    """The columns of pairs at one moment; `rows` makes those of the items' own rows."""

    moment: Moment
    rows: RelationalColumns | None

    @cached_property
    def of_items(self) -> dict[str, Floats]:
        """Returns the columns of all items, whoever the source is."""
        moment, unit = self.moment, self.moment.unit
        columns: dict[str, Floats] = {}
        for windows in _WINDOWS:
            name = "in all" if windows > 1e3 else f"in {windows:.2g} horizons"
            columns[f"item events {name}"] = moment.popularity(windows).astype(np.float64)
        lately, longer = columns["item events in 1 horizons"], columns["item events in 4 horizons"]
        columns["item trend"] = lately / np.maximum(1.0, longer / 4)
        for some in ("1", "4"):
            shown = np.where(moment.is_visible, columns[f"item events in {some} horizons"], -1.0)
            rank = np.empty(len(shown))
            rank[np.lexsort((np.arange(len(shown)), -shown))] = np.arange(len(shown))
            columns[f"item rank in {some} horizons"] = np.minimum(rank, moment.is_visible.sum())
        columns["item age"] = _ages(moment.past.items.known_at, moment.time, unit)
        last, gap = _editions(moment)
        columns["item last"], columns["item gap"] = _ages(last, moment.time, unit), gap / unit
        columns["item due"] = _due(columns["item last"], columns["item gap"])
        return columns

    def names(self) -> tuple[str, ...]:
        empty = np.empty(0, np.int64)
        return tuple(self._columns(Sources(empty, empty), empty, empty))

    def matrix(self, sources: Sources, of: Ints, item: Ints) -> Matrix:
        """Returns the (P, columns) matrix of pairs: `of` is the place of the source among the given ones."""
        columns = self._columns(sources, of, item)
        return np.stack([np.asarray(column, np.float32) for column in columns.values()], 1)

    def _columns(self, sources: Sources, of: Ints, item: Ints) -> dict[str, Floats]:
        moment, unit, past = self.moment, self.moment.unit, self.moment.past
        key, time, columns = past.pair_key(of, item), sources.time[of], dict[str, Floats]()
        for path in past.paths:
            known = past.known(path, sources)
            pairs = known.pairs
            at = np.minimum(np.searchsorted(pairs.key, key), max(0, len(pairs.key) - 1))
            has = pairs.key[at] == key if len(pairs.key) else np.zeros(len(key), bool)

            def taken(values: Ints, at: Ints = at, has: NDArray[np.bool_] = has) -> Floats:
                if not len(values):
                    return np.full(len(has), np.nan)
                return np.where(has, values[at].astype(np.float64), np.nan)

            count = np.nan_to_num(taken(pairs.count))
            columns[f"{path.name}: times"] = count
            last = _ages(np.where(has, taken(pairs.last), STATIC), time, unit)
            columns[f"{path.name}: last"] = last
            order = np.lexsort((pairs.item, -pairs.last, pairs.source))
            place = np.empty(len(order), np.int64)
            place[order] = places_in(pairs.source[order])
            columns[f"{path.name}: place"] = taken(place)
            total = known.totals[of].astype(np.float64)
            columns[f"{path.name}: of the source"] = total
            share = count / np.clip(total, 1.0, path.most)
            if past.is_link:
                columns[f"{path.name}: share"] = share
            if path is not past.main:
                continue
            first = _ages(np.where(has, taken(pairs.first), STATIC), time, unit)
            gap = np.where(count > 1, (first - last) / np.maximum(1, count - 1), np.nan)
            columns |= {"first": first, "gap": gap, "due": _due(last, gap)}
            columns["share"] = share
            columns |= self._windows(sources, key)
            num_items = np.bincount(pairs.source, minlength=len(sources)).astype(np.float64)
            columns["items of the source"] = num_items[of]
            latest = np.full(len(sources), STATIC)
            np.maximum.at(latest, pairs.source, pairs.last)
            ends = _ages(latest, sources.time, unit)
            columns["last of the source"] = ends[of]
            columns["last beside the source's"] = last - ends[of]
        alike, linked = moment.look_alikes(sources), moment.linked(sources)
        columns["look-alikes"] = _found(past.pair_key(alike.source, alike.item), alike.score, key)
        when = _found(past.pair_key(linked.source, linked.item), linked.score, key)
        columns["linked"] = _ages(np.where(when == 0, STATIC, when), time, unit)
        if past.cells is not None:
            gaps = past.cells.gaps(sources, of, item, _LAST_ROWS, past.rule).T
            columns |= {f"{n} beside the item's": gap for n, gap in zip(past.cells.names, gaps, strict=True)}
        columns |= self._same_parents(sources, of, item)
        columns |= {name: values[item] for name, values in self.of_items.items()}
        columns |= self._row_columns(item)
        return columns

    def _windows(self, sources: Sources, key: Ints) -> dict[str, Floats]:
        """Returns how often a pair had events of the main path in windows."""
        past = self.moment.past
        of, item, time = past.known(past.main, sources).events
        own, columns = past.pair_key(of, item), {}
        for windows in _PAIR_WINDOWS:
            is_late = ~visible(time, sources.time[of] - int(windows * self.moment.unit))
            kept, count = np.unique(own[is_late], return_counts=True)
            columns[f"times in {windows:.2g} horizons"] = _found(kept, count.astype(np.float64), key)
        return columns

    def _same_parents(self, sources: Sources, of: Ints, item: Ints) -> dict[str, Floats]:
        """Returns how many events of the main path the source had with items of the same parent."""
        past = self.moment.past
        columns, (own_of, own_item, _) = {}, past.known(past.main, sources).events
        for label, rows, known_at in past.parents:
            is_known = (rows >= 0) & visible(known_at, self.moment.time, past.rule)
            shown, size = np.where(is_known, rows, -1), int(rows.max(initial=0)) + 1
            had = is_known[own_item]
            kept, count = np.unique(own_of[had] * size + shown[own_item][had], return_counts=True)
            found = _found(kept, count.astype(np.float64), of * size + shown[item])
            columns[f"same {label}"] = np.where(is_known[item], found, np.nan)
        return columns

    def _row_columns(self, item: Ints) -> dict[str, Floats]:
        if self.rows is None:
            return {}
        names = row_names(self.rows)
        distinct, at = np.unique(item, return_inverse=True)
        seeds = Seeds(self.moment.past.items.nodes(distinct), np.full(len(distinct), self.moment.time), None)
        matrix = self.rows.matrix(seeds, frozenset(names)).astype(np.float64)
        place = {name: number for number, name in enumerate(self.rows.names)}
        return {f"row: {name}": matrix[:, place[name]][at] for name in names}


def row_names(rows: RelationalColumns) -> tuple[str, ...]:
    """Returns the columns of an item's own row and its near rows that are numbers, the first of them."""
    names = [name for name in rows.names if name in rows.near and not name.endswith(CODE)]
    return tuple(names[:_MOST_ROW_COLUMNS])


def pair_pools(pools: Mapping[str, Pool], num_items: int) -> tuple[Ints, Ints]:
    """Returns the distinct pairs of all pools: the place of the source, and the item; by both."""
    keys = [pool.source * num_items + pool.item for pool in pools.values()]
    key = np.unique(np.concatenate(keys))
    return key // num_items, key % num_items


def _editions(moment: Moment) -> tuple[Ints, Floats]:
    """Returns when each item last had events, and the usual time between its last few distinct times."""
    path, size = moment.past.paths[0], len(moment.past.items)
    order = np.argsort(path.item[: path.num_known(moment.time, moment.past.rule)], kind="stable")
    item, time = path.item[order], path.time[order]
    is_new = np.append(True, (item[1:] != item[:-1]) | (time[1:] != time[:-1]))[: len(item)]
    item, time = item[is_new], time[is_new]
    num = np.bincount(item, minlength=size)
    end = np.cumsum(num)
    last, gap = np.full(size, STATIC), np.full(size, np.nan)
    has, often = num > 0, num > 1
    last[has] = time[end[has] - 1]
    steps = np.minimum(num[often], _EDITIONS) - 1
    gap[often] = (time[end[often] - 1] - time[end[often] - 1 - steps]) / steps
    return last, gap


def _ages(known: NDArray[np.int64] | Floats, time: int | Ints, unit: int) -> Floats:
    """Returns how long ago, in horizons; NaN where that is not told."""
    return np.where(known == STATIC, np.nan, (time - known) / unit)


def _due(last: Floats, gap: Floats) -> Floats:
    """Returns how far ahead the next event is if one follows the other as before, in horizons; late ones go round."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(gap > 0, gap - np.mod(last, gap), np.nan)


def _found(keys: Ints, values: Floats, wanted: Ints) -> Floats:
    """Returns the values of wanted keys, which are sorted where they are given; 0 where there is none."""
    if not len(keys):
        return np.zeros(len(wanted))
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[at] == wanted, values[at], 0.0)


@dataclass(frozen=True, eq=False)
class Block:
    """Some seeds of one moment: their places among all, and their sources."""

    at: Ints
    sources: Sources
    columns: PairColumns

    @property
    def moment(self) -> Moment:
        return self.columns.moment


@dataclass(frozen=True, eq=False)
class Reader:
    """The past of a database as a recommender reads it."""

    past: Past
    rows: RelationalColumns | None
    unit: int
    step: int = 0  # nanoseconds from one moment to the next; 0: every time has its own

    @staticmethod
    def of(view: View, names: tuple[str, ...] = (), labels: Seeds | None = None, step: int = 0) -> Reader:
        """Returns the reader of a view, by the named paths, or by those that are most like labels.

        Rows whose link is filled in have each a time of their own: they are read by moments, which labels tell, too.
        """
        spec, rule = view.spec, view.recipe.sampling.time_rule
        categories = {
            name: tuple(column for column, told in table.columns.items() if told.kind == "category")
            for name, table in view.features.statistics.tables.items()
        }
        own = view.features.tables[spec.entity_table]
        numbers = dict(zip(own.layout.numbers[:_MOST_NUMBERS], own.numbers.T, strict=False))
        past = Past.of(view.database, view.graph, spec, rule, names, categories, numbers)
        unit = spec.horizon or max(DAY, unit_of(view.database, view.features.statistics, _UNITS))
        rows = RelationalColumns.of(view.database, spec.item_table, view.features, rule, unit)
        if labels is not None:
            past = past.like_labels(labels, spec)
            step = max(1, int(np.ptp(labels.time)) // _MOMENTS) if past.is_link and len(labels) else 0
        return Reader(past, rows, unit, step)

    def moments(self, time: Ints) -> Ints:
        """Returns the moment to which each time belongs: its own, or one that is not later."""
        return time // self.step * self.step if self.step else time

    def blocks(self, seeds: Seeds, order: Callable[[Ints], Ints] = np.sort) -> Iterator[Block]:
        """Yields seeds of one moment, some at a time: memory does not grow with their number.

        Moments come in an order. Some of a moment are spread over all of it.
        """
        moments = self.moments(seeds.time)
        for time in order(np.unique(moments)).tolist():
            columns = PairColumns(Moment(self.past, time, self.unit), self.rows)
            every = np.flatnonzero(moments == time)
            num_parts = -(-len(every) // _AT_ONCE)
            for part in range(num_parts):
                at = every[part::num_parts]
                yield Block(at, Sources(self.past.sources.of_nodes(seeds.node[at]), seeds.time[at]), columns)
