"""The loops behind relational columns: where a node's events are cut, which of them wait, and sums between two cuts.

Sums are of whole numbers. These are exact, so a difference of two of them holds nothing of the events outside, and
neither the future nor the order of rows can change a bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quartet.features.summed import ONE, SUM, TREND
from quartet.machine import compiled, part

_SCRATCH = 2**26  # bytes of running sums that one thread keeps


@part
def _first_at_least(key: Any, wanted: Any, low: Any, high: Any) -> Any:
    """Returns the first place in key[low:high] whose value is at least `wanted`; `high` if there is none."""
    while low < high:
        middle = (low + high) >> 1
        if key[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def event_cuts(key: Any, num_times: Any, node: Any, ranks: Any, place: Any, last: Any) -> Any:
    """Returns for each seed where its events begin, where each window begins, where the last so many begin, the end.

    `key` is node * num_times + rank of time, ascending; `ranks[place[s]]` are how many times are visible now and
    before each window.
    """
    num_windows, num_last = ranks.shape[1] - 1, len(last)
    cuts = np.zeros((len(node), num_windows + num_last + 2), np.int64)
    for seed in range(len(node)):
        if node[seed] < 0:
            continue
        first, rank = node[seed] * num_times, ranks[place[seed]]
        begin = _first_at_least(key, first, 0, len(key))
        end = _first_at_least(key, first + rank[0], begin, len(key))
        cuts[seed, 0], cuts[seed, -1] = begin, end
        for window in range(num_windows):
            cuts[seed, 1 + window] = _first_at_least(key, first + rank[1 + window], begin, end)
        for number in range(num_last):
            since = max(begin, end - last[number])
            if begin < end:  # those of the same time stay together
                since = _first_at_least(key, key[since], begin, end)
            cuts[seed, 1 + num_windows + number] = since
    return cuts


@compiled
def count_waiting(answered_at: Any, shown: Any, cuts: Any, latest: Any, most: Any) -> Any:
    """Returns for each seed how many events since each cut wait, and the first since the second; -1 where none is.

    `cuts` are those of a timeline: where events begin, where the last so many begin, and where they end.
    """
    num_cuts = cuts.shape[1] - 2
    found = np.full((len(cuts), num_cuts + 1), -1, np.int64)
    for seed in range(len(cuts)):
        end = cuts[seed, -1]
        if end == cuts[seed, 0]:
            continue
        for number in range(num_cuts):
            begin = cuts[seed, 1 + number]
            if end - begin > most:
                continue
            count = 0
            for event in range(begin, end):
                if answered_at[shown[event]] > latest[seed]:
                    count += 1
                    if number == 1 and found[seed, -1] < 0:
                        found[seed, -1] = event
            found[seed, number] = count
    return found


@compiled
def _summarise(
    shown: Any, cells: Any, offset: Any, node: Any, order: Any, cuts: Any, kinds: Any, out: Any
) -> None:
    """Fills out[s, c * J + j] with summary j of cell c over the events [cuts[s, kinds[j, 1]], cuts[s, -1]).

    `kinds[j]` is MEAN, SUM or TREND, where the events begin and, for a trend, where those before them do. Seeds come in
    the order of their nodes: the running sums of a node's events are made once for all of its seeds.
    """
    num_cells, num_kinds = cells.shape[1], len(kinds)
    longest = 0
    for at in range(len(order)):
        longest = max(longest, cuts[order[at], -1] - cuts[order[at], 0])
    total = np.zeros((longest + 1, num_cells), np.int64)
    count = np.zeros((longest + 1, num_cells), np.int64)
    at = 0
    while at < len(order):
        about, begin, top, stop = node[order[at]], cuts[order[at], 0], 0, at
        while stop < len(order) and node[order[stop]] == about:
            top = max(top, cuts[order[stop], -1])
            stop += 1
        for event in range(begin, top):
            step, row = event - begin, shown[event]
            for cell in range(num_cells):
                value = cells[row, cell]
                is_there = value == value
                count[step + 1, cell] = count[step, cell] + is_there
                whole = np.int64(np.rint(np.float64(value) * ONE)) if is_there else np.int64(0)
                total[step + 1, cell] = total[step, cell] + whole
        for number in range(at, stop):
            seed = order[number]
            end = cuts[seed, -1] - begin
            for cell in range(num_cells):
                for place in range(num_kinds):
                    since = cuts[seed, kinds[place, 1]] - begin
                    there = count[end, cell] - count[since, cell]
                    value = (total[end, cell] - total[since, cell]) / ONE
                    if kinds[place, 0] == SUM:
                        value += there * offset[cell]
                    else:
                        value = value / there if there else np.nan
                    if kinds[place, 0] == TREND:
                        before = cuts[seed, kinds[place, 2]] - begin
                        there = count[since, cell] - count[before, cell]
                        value -= (total[since, cell] - total[before, cell]) / ONE / there if there else np.nan
                    out[seed, cell * num_kinds + place] = value
        at = stop


def narrowed(
    shown: NDArray[np.int64], node: NDArray[np.int64], cuts: NDArray[np.int64], kinds: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the shown rows that some kinds of summaries look at, those of one node after the other, and cuts of them.

    Running sums are whole numbers: where they begin changes no bit. Where most events are looked at, all are returned.
    """
    used = np.unique(np.append(kinds[:, 1], kinds[kinds[:, 0] == TREND, 2]))
    nodes, number = np.unique(node, return_inverse=True)
    first, top = np.full(len(nodes), len(shown)), np.zeros(len(nodes), np.int64)
    np.minimum.at(first, number, cuts[:, [*used, -1]].min(1))
    np.maximum.at(top, number, cuts[:, -1])
    length = top - first
    if 2 * int(length.sum()) >= len(shown):
        return shown, cuts
    place = np.cumsum(length) - length
    moved = cuts + (place - first)[number][:, None]
    moved[:, 0] = place[number]  # no other kind looks further back
    return shown[np.repeat(first - place, length) + np.arange(length.sum())], moved


def fill_summaries(
    shown: NDArray[np.int64],
    cells: NDArray[np.float32],
    offset: NDArray[np.float64],
    node: NDArray[np.int64],
    cuts: NDArray[np.int64],
    kinds: Sequence[tuple[int, int, int]],
    out: NDArray[np.float32],
) -> None:
    """Fills `out` with means and sums of all cells, some cells at a time.

    A sum of cells is that of the values behind them: `offset` is what each of those has beyond its cell.
    """
    if not len(node) or not cells.shape[1]:
        return
    order = np.argsort(node, kind="stable")
    longest = int((cuts[:, -1] - cuts[:, 0]).max()) + 1
    at_once = max(1, min(cells.shape[1], _SCRATCH // (16 * longest)))
    wanted = np.array(kinds, np.int64)
    for first in range(0, cells.shape[1], at_once):
        some = slice(first, first + at_once)
        block = np.ascontiguousarray(cells[:, some])
        # One row after the other, whatever `out` is a part of: the loop is compiled for this alone.
        target = np.empty((len(node), block.shape[1] * len(kinds)), np.float32)
        _summarise(shown, block, offset[some], node, order, cuts, wanted, target)
        out[:, first * len(kinds) : (first + block.shape[1]) * len(kinds)] = target
