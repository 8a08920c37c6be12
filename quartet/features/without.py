"""Relational columns of one seed as they would be had some rows not been there, for many sets of rows at once.

Each variant has to the bit the columns of a database without its rows: sums are of whole numbers, so what is taken away
is subtracted, and only the last few events are looked for anew. Columns about all rows of a table and places among
other entities are held as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quartet.causal import TimeRule
from quartet.database import Database
from quartet.features.aggregates import RelationalColumns
from quartet.features.blocks import ClassBlock, LagBlock, Matrix, OwnBlock, PathBlock, Way, commonest
from quartet.features.lists import LIST_WAYS, ListBlock
from quartet.features.paths import FEW, LAST, MANY, WINDOWS, Path, linked
from quartet.features.summed import ONE, SUM, TREND, Part, Summed
from quartet.features.timeline import Ints, days_since
from quartet.features.waiting import COUNTED, WaitingBlock
from quartet.tasks import Seeds
from quartet.times import STATIC

_LASTS = (LAST, 1, FEW, MANY)


class _Gone:
    """Which variants lack which rows of a table."""

    def __init__(self, database: Database, gone: Sequence[Ints]) -> None:
        node = np.concatenate([*gone, np.empty(0, np.int64)]).astype(np.int64)
        variant = np.repeat(np.arange(len(gone)), [len(some) for some in gone])
        order = np.lexsort((variant, node))
        self.node, self.variant, self.offsets = node[order], variant[order], database.offsets

    def of(self, table: str, rows: Ints) -> tuple[Ints, Ints]:
        """Returns the pairs (variant, place) of rows that a variant lacks."""
        wanted = rows + self.offsets[table]
        left, right = (np.searchsorted(self.node, wanted, side) for side in ("left", "right"))
        count = np.where(rows >= 0, right - left, 0)
        place = np.repeat(np.arange(len(rows)), count)
        within = np.arange(len(place)) - np.repeat(np.cumsum(count) - count, count)
        return self.variant[np.repeat(left, count) + within], place


def columns_without(
    columns: RelationalColumns,
    database: Database,
    node: int,
    time: int,
    gone: Sequence[Ints],
    wanted: AbstractSet[str] | None = None,
    before: Matrix | None = None,
) -> Matrix:
    """Returns the (variants, names) columns of a seed without the nodes of each variant; the seed's own row stays.

    `before` are the columns with all rows, where they have been made already.
    """
    if before is None:
        before = columns.matrix(Seeds(np.array([node]), np.array([time]), None), wanted)
    out = np.repeat(before, len(gone), 0)
    lost, place, row = _Gone(database, gone), 0, np.array([node - columns.first_node])
    for block in columns.blocks:
        target = out[:, place : place + len(block.names)]
        place += len(block.names)
        if wanted is not None and wanted.isdisjoint(block.names):
            continue
        if isinstance(block, (OwnBlock, PathBlock, ClassBlock, WaitingBlock)):
            end, is_cut = _followed(block.way, row, time, columns.rule, lost, len(gone))
            if isinstance(block, PathBlock) and end >= 0:
                _path_without(block.path, block.summed, end, time, columns.rule, lost, target)
            if isinstance(block, ClassBlock) and end >= 0:
                _classes_without(block, end, time, columns.rule, lost, target)
            if isinstance(block, WaitingBlock) and end >= 0:
                _waiting_without(block, end, time, columns.rule, lost, target)
            target[is_cut] = np.nan
        elif isinstance(block, LagBlock):
            _lags_without(block, int(row[0]), time, columns.rule, lost, target)
        elif isinstance(block, ListBlock):
            _lists_without(block, int(row[0]), time, columns.rule, lost, target)
    return out


def _followed(
    way: Way, row: Ints, time: int, rule: TimeRule, lost: _Gone, num_variants: int
) -> tuple[int, NDArray[np.bool_]]:
    """Returns where a way ends, and in which variants a row on it is gone."""
    is_cut, at = np.zeros(num_variants, bool), row
    for number, (link, _) in enumerate(way.links):
        at = Way(links=way.links[number : number + 1]).follow(at, np.array([time]), rule)
        if at[0] >= 0 and hasattr(link, "parent"):
            is_cut[lost.of(link.parent, at)[0]] = True
    return int(at[0]), is_cut


def _removed(
    path: Path, about: int, time: int, rule: TimeRule, lost: _Gone
) -> tuple[Ints, list[tuple[int, Ints]]]:
    """Returns the cuts of a row's events, and for each variant that lacks some of these their places, ascending."""
    cuts = path.timeline.cuts(np.array([about]), np.array([time]), path.lengths, _LASTS, rule)[0]
    begin, end = int(cuts[0]), int(cuts[-1])
    pairs = [lost.of(path.table, path.shown[begin:end])]
    between = path.between(begin, end)
    if between is not None:
        pairs.append(lost.of(*between))
    both = np.unique(np.concatenate([variant * (end - begin + 1) + place for variant, place in pairs]))
    variant, place = both // (end - begin + 1), both % (end - begin + 1)
    cut = np.flatnonzero(np.diff(variant)) + 1
    return cuts, [
        (int(v[0]), p) for v, p in zip(np.split(variant, cut), np.split(place, cut), strict=True) if len(v)
    ]


def _kept_tail(num: int, gone: Ints, most: int) -> Ints:
    """Returns the places of the last so many events that are not gone, ascending."""
    tail = np.arange(max(0, num - most - len(gone)), num)
    return tail[~np.isin(tail, gone)][-most:]


def _path_without(
    path: Path, summed: Summed, about: int, time: int, rule: TimeRule, lost: _Gone, out: Matrix
) -> None:
    cuts, removed = _removed(path, about, time, rule, lost)
    if not removed:
        return
    begin, num = int(cuts[0]), int(cuts[-1] - cuts[0])
    times, shown = path.timeline.time[begin : begin + num], path.shown[begin : begin + num]
    parts = [_Sums(summed, part, shown, list(path.kinds(part).values())) for part in summed.parts]
    num_counts = len(path.count_names)
    for variant, gone in removed:
        own = cuts - begin
        for number, most in enumerate(_LASTS):
            tail = _kept_tail(num, gone, most)
            first = tail[0] if len(tail) == most else 0
            own[1 + len(WINDOWS) + number] = np.searchsorted(
                times, times[first]
            )  # those of one time stay together
        if num_counts:
            # Such events as are left, as if no others had ever been.
            left = num - own - (len(gone) - np.searchsorted(gone, own))
            kept, head = _kept_tail(num, gone, 1), np.setdiff1d(np.arange(min(num, len(gone) + 1)), gone)
            days = [days_since(times[at[:1]], np.array([time])) for at in (kept, head)] if len(kept) else []
            recent = left[1 : 1 + len(WINDOWS)]
            since = [float(day[0]) for day in days] or [np.nan, np.nan]
            out[variant, :num_counts] = [left[0], *recent, 2 * recent[0] - recent[1], *since]
        place = num_counts
        for part in parts:
            values = part.without(own, gone)
            out[variant, place : place + values.size] = values.ravel()
            place += values.size


class _Sums:
    """Running sums of the cells of a row's events, from which some can be taken away."""

    def __init__(self, summed: Summed, part: Part, shown: Ints, kinds: list[tuple[int, int, int]]) -> None:
        cells, self.offset = summed.cells(part, shown)
        values, self.kinds = cells.astype(np.float64), kinds
        self.there = ~np.isnan(values)
        self.whole = np.rint(np.where(self.there, values, 0.0) * ONE).astype(np.int64)
        self.total, self.count = _running(self.whole), _running(self.there)

    def without(self, cuts: Ints, gone: Ints) -> NDArray[np.float64]:
        """Returns the (cells, kinds) summaries of the events between cuts but for some."""
        less = np.searchsorted(gone, cuts)
        total = self.total[cuts] - _running(self.whole[gone])[less]  # (cuts, cells)
        count = self.count[cuts] - _running(self.there[gone])[less]
        out = np.empty((len(self.offset), len(self.kinds)))
        with np.errstate(invalid="ignore", divide="ignore"):
            for place, (kind, since, before) in enumerate(self.kinds):
                there, value = count[-1] - count[since], (total[-1] - total[since]) / ONE
                if kind == SUM:
                    out[:, place] = value + there * self.offset
                    continue
                out[:, place] = value / there
                if kind == TREND:
                    earlier = (total[since] - total[before]) / ONE / (count[since] - count[before])
                    out[:, place] -= earlier
        return out


def _running(values: NDArray[Any]) -> Ints:
    return np.concatenate([np.zeros((1, values.shape[1]), np.int64), np.cumsum(values, 0, dtype=np.int64)])


def _lags_without(block: LagBlock, about: int, time: int, rule: TimeRule, lost: _Gone, out: Matrix) -> None:
    cuts, removed = _removed(block.path, about, time, rule, lost)
    begin, num, labels = int(cuts[0]), int(cuts[-1] - cuts[0]), list(block._labels.values())
    lags = len(block.names) // (len(labels) + 1)
    for variant, gone in removed:
        kept = begin + _kept_tail(num, gone, lags)[::-1]
        lines = np.full((lags, len(labels) + 1), np.nan)
        for place, cells in enumerate(labels):
            lines[: len(kept), place] = cells[block.path.shown[kept]]
        lines[: len(kept), -1] = days_since(block.path.timeline.time[kept], np.full(len(kept), time))
        out[variant] = lines.ravel()


def _classes_without(
    block: ClassBlock, about: int, time: int, rule: TimeRule, lost: _Gone, out: Matrix
) -> None:
    cuts, removed = _removed(block.path, about, time, rule, lost)
    begin, num = int(cuts[0]), int(cuts[-1] - cuts[0])
    for variant, gone in removed:
        kept = begin + _kept_tail(num, gone, num)
        times = block.path.timeline.time[kept]
        for place, most in enumerate((1, LAST)):
            first = times[-most] if len(kept) >= most else STATIC  # those of one time count together
            own = kept[times >= first]
            codes = block.codes[block.path.shown[own]]
            out[variant, place] = commonest(np.zeros(len(own), np.int64), codes, 1)[0]


def _lists_without(block: ListBlock, about: int, time: int, rule: TimeRule, lost: _Gone, out: Matrix) -> None:
    cuts, removed = _removed(block.path, about, time, rule, lost)
    begin, num, times = int(cuts[0]), int(cuts[-1] - cuts[0]), block.path.timeline.time
    for variant, gone in removed:
        kept = begin + _kept_tail(num, gone, num)
        lines = np.full((len(block.classes), len(LIST_WAYS)), np.nan)
        for number, held in enumerate(block.held[:, kept] if len(kept) else ()):
            recent = times[kept] >= times[kept[-min(LAST, len(kept))]]  # those of one time count together
            lines[number, :2] = held.mean(), held[recent].mean()
            if held.any():
                lines[number, 2] = (time - times[kept[held]][-1]) / block.path.unit
        out[variant] = lines.ravel()


def _waiting_without(
    block: WaitingBlock, about: int, time: int, rule: TimeRule, lost: _Gone, out: Matrix
) -> None:
    """Fills the columns of variants that lack some of the events, or some of the rows that name them."""
    cuts, removed = _removed(block.path, about, time, rule, lost)
    begin, num, asked = int(cuts[0]), int(cuts[-1] - cuts[0]), np.array([time])
    shown, times = (a[begin : begin + num] for a in (block.path.shown, block.path.timeline.time))
    below = linked(block.below)
    below = below[np.isin(block.below.rows[below], shown)]
    naming: dict[int, list[int]] = {}
    for variant, place in zip(*lost.of(block.below.table, below), strict=True):
        naming.setdefault(int(variant), []).append(int(place))
    gone_events = dict(removed)
    for variant in {*gone_events, *naming}:
        kept = _kept_tail(num, gone_events.get(variant, np.empty(0, np.int64)), num)
        first = [np.searchsorted(times[kept], times[kept[-min(n, len(kept))]]) for n in COUNTED if len(kept)]
        own = np.array([[0, *first, len(kept)] if len(kept) else [0] * (len(COUNTED) + 2)])
        answered_at = block.answered_by(np.delete(below, naming.get(variant, [])))
        block.told(own, shown[kept], times[kept], answered_at, asked, rule, out[variant : variant + 1])
