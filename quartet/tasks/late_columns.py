"""Columns that tell more than they should: filled in after their row became known, or the target in other words.

What times and gaps tell is found without a task (`quartet.database.late_columns`). With one, each column of the
entity's row, of the rows that it names and of the latest row that names it is asked how well it tells the target
alone; a date is asked by its distance to t and to its own row. Columns that are known at t seldom tell far more than
how many rows there are and how old they are; those that are filled in later do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from quartet.causal import num_visible, visible
from quartet.database import Relation, Table, dates_of, late_columns
from quartet.findings import Finding, note, warning
from quartet.tasks.labels import key_columns
from quartet.tasks.seeds import Links
from quartet.times import DAY, NEVER, STATIC

if TYPE_CHECKING:
    from quartet.tasks.task import Task

_CHECKED_ROWS = 50_000
_CERTAIN = 0.98  # AUC or rank correlation of a cell: nothing that is honest tells so much
_STRONG = 0.9
_CLOSER = 0.5  # of what counts and ages leave to be told, a strong column tells so much
_ENOUGH = 100  # labels, and a tenth of that of each class
_MOST_CATEGORIES = 50
_MOST_CLASSES = 5  # of label lists, each of which is looked at by itself
_Floats = NDArray[np.float64]


class _Seen(NamedTuple):
    """A row for each seed: its own, one that it names, or the latest that names it; -1 for none."""

    table: Table
    rows: NDArray[np.int64]
    is_own: bool


class Told(NamedTuple):
    """How well a column alone tells the target, by AUC or rank correlation; a copy of the target tells all."""

    strength: float
    words: str
    table: str
    column: str
    is_copy: bool = False


def column_findings(task: Task) -> list[Finding]:
    """Returns the columns that seem to be filled in later, and those that alone tell the target of training."""
    late = sorted(late_columns(task.database), key=lambda column: column.table != task.spec.entity_table)
    findings = [column.finding for column in late]
    if task.spec.kind == "autocomplete":
        text = f'column "{task.spec.target_col}" is the target and was removed from features'
        findings.append(note("L03", task.spec.entity_table, text))
    target = _numbers_of(task)
    if target is None:
        return findings
    told, base = tell_alone(task)
    is_binary = task.spec.type == "binary_classification"
    is_enough = len(target) >= _ENOUGH and (not is_binary or 10 <= target.sum() <= len(target) - 10)
    scale = _SCALES.get(task.spec.type, "rank correlation")
    least = max(base, min(_CERTAIN, max(_STRONG, base + _CLOSER * (1 - base)) if is_enough else 1.0))
    for one in told:
        text = f"{one.words} alone predicts the target with {scale} "
        text += f"{one.strength:.3f} (counts and ages: {base:.3f}): looks like a leak"
        if one.is_copy:
            text = f"{one.words} equals the target in 100 % of rows: looks like a leak"
        elif one.strength <= least:
            continue
        fix = f"hide it with remove_columns: [[{one.table}, {one.column}]] if it is known only later"
        findings.append(warning("L04", f"{one.table}.{one.column}", text, len(target), fix))
    return findings


def _numbers_of(task: Task) -> NDArray[np.float64] | None:
    """Returns the targets of training, of a link the row that it names; None where they are lists of rows."""
    target = task.seeds("train").target
    if isinstance(target, Links):
        return target.nodes.astype(np.float64) if task.fills_in_links else None
    return None if target is None else target.astype(np.float64)


def tell_alone(task: Task) -> tuple[list[Told], float]:
    """Returns how well each column near the entity alone tells the target of training, best first; and counts and ages.

    Where a cell of the row itself is to be filled in, its neighbours may tell much of it: those count if they tell all.
    """
    entity, seeds, numbers = task.database[task.spec.entity_table], task.seeds("train"), _numbers_of(task)
    if numbers is None or len(seeds) == 0:
        return [], 0.0
    some = slice(None, None, max(1, len(seeds) // _CHECKED_ROWS))
    rows, times = seeds.node[some] - task.database.offsets[entity.name], seeds.time[some]
    measure, targets = _measure(task), [numbers[some].astype(np.float64)]
    if targets[0].ndim > 1:
        most = np.argsort(-targets[0].sum(0), kind="stable")[:_MOST_CLASSES]
        targets = [targets[0][:, place] for place in most]
    base, told = 0.5 if measure is _auc else 0.0, list[Told]()
    for seen, counts in _linked_rows(task, rows, times):
        base = max([base, *(strength(values, target, measure) for values in counts for target in targets)])
        for name in (name for name in seen.table.data.column_names if name not in key_columns(seen.table)):
            is_given = seen.is_own and task.spec.kind == "autocomplete"
            told += [
                one
                for target in targets
                for one in _told_by(seen, name, times, target, measure)
                if not is_given or one.strength > _CERTAIN or one.words.startswith("the time")
            ]
    best: dict[tuple[str, str], Told] = {}
    for one in sorted(told, reverse=True):
        best.setdefault((one.table, one.column), one)
    return list(best.values()), base


def _linked_rows(
    task: Task, rows: NDArray[np.int64], times: NDArray[np.int64]
) -> Iterator[tuple[_Seen, list[_Floats]]]:
    """Yields the rows that are looked at for each seed, with what counts and ages tell of the seeds."""
    database, entity = task.database, task.database[task.spec.entity_table]
    yield _Seen(entity, rows, True), [_days(times, entity.known_at[rows])]
    for relation in database.relations:
        if relation.table == entity.name:
            parent, named = database[relation.parent], relation.rows[rows]
            named = np.where((named >= 0) & visible(parent.known_at[named], times), named, -1)
            yield _Seen(parent, named, False), []
        if relation.parent == entity.name:
            child = database[relation.table]
            latest, count = _latest(relation, child, rows, times)
            ages = np.where(latest >= 0, _days(times, child.known_at[latest]), np.inf)
            yield _Seen(child, latest, False), [count.astype(np.float64), ages]


def _latest(
    relation: Relation, child: Table, rows: NDArray[np.int64], times: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns for each pair (row, time) the latest visible row that names it, -1 if none does, and how many do."""
    linked = np.flatnonzero(relation.rows >= 0)
    distinct, rank = np.unique(child.known_at[linked], return_inverse=True)
    key = relation.rows[linked] * len(distinct) + rank
    order = np.argsort(key, kind="stable")
    first = rows * len(distinct)
    begin, end = np.searchsorted(key[order], [first, first + num_visible(distinct, times)])
    latest = np.full(len(rows), -1)
    latest[end > begin] = linked[order[end[end > begin] - 1]]
    return latest, end - begin


def _told_by(
    seen: _Seen, name: str, times: NDArray[np.int64], target: _Floats, measure: _Measure
) -> Iterator[Told]:
    """Yields how well a column tells the target: by its cells, or by the distances of its dates."""
    table, has_row = seen.table, seen.rows >= 0
    where, dates = f"{table.name}.{name}", dates_of(table, name)
    if dates is None:
        column = table.data[name].take(pa.array(seen.rows, mask=~has_row))
        values = _as_codes(column) if measure is class_share else as_numbers(column, target)
        if values is not None:
            is_copy = seen.is_own and not pa.types.is_string(column.type) and _is_copy(values, target)
            is_copy &= measure is not class_share  # numbers of classes are names
            found = strength(np.where(np.isnan(values), -np.inf, values), target, measure)
            yield Told(1.0 if is_copy else found, f'column "{where}"', table.name, name, is_copy)
        return
    date = np.where(has_row, dates[seen.rows], NEVER)
    for words, since in (("t", times), ("its row", np.where(has_row, table.known_at[seen.rows], STATIC))):
        days = np.where((date == NEVER) | (since == STATIC), -np.inf, -_days(since, date))
        yield Told(strength(days, target, measure), f'the time from {words} to "{where}"', table.name, name)


def _days(times: NDArray[np.int64], known: NDArray[np.int64]) -> _Floats:
    """Returns the days from one time to the other; infinitely many from what was always known."""
    return np.where(known == STATIC, np.inf, (times / DAY) - (known / DAY))


def _is_copy(values: _Floats, target: _Floats) -> bool:
    """Returns whether numbers are the target up to sign and a constant shift, and not constant themselves."""
    if np.isnan(values).any() or np.ptp(target) == 0:
        return False
    return bool(np.ptp(values - target) == 0 or np.ptp(values + target) == 0)


def as_numbers(column: pa.ChunkedArray, target: _Floats) -> _Floats | None:
    """Returns the column as numbers that can be ranked: itself, or the mean target of each category."""
    kind = column.type
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
        numbers = column.cast(pa.float64(), safe=False)
        return np.asarray(pc.fill_null(numbers, np.nan).to_numpy(), dtype=np.float64)
    if pa.types.is_timestamp(kind):
        return as_numbers(column.cast(pa.int64()), target)
    if not pa.types.is_string(kind):
        return None
    codes = column.combine_chunks().dictionary_encode(null_encoding="encode")
    size = len(codes.dictionary)
    if size > _MOST_CATEGORIES or len(column) < 20 * size:
        return None
    places = codes.indices.to_numpy()
    means = np.bincount(places, target, size) / np.maximum(np.bincount(places, minlength=size), 1)
    return np.asarray(means[places], dtype=np.float64)


def _as_codes(column: pa.ChunkedArray) -> _Floats | None:
    """Returns the number of each value in a column whose cells can be compared; an empty cell is a value, too."""
    if pa.types.is_nested(column.type):
        return None
    codes = column.combine_chunks().dictionary_encode(null_encoding="encode")
    return np.asarray(codes.indices.to_numpy(), dtype=np.float64)


def strength(values: _Floats, target: _Floats, measure: _Measure) -> float:
    """Returns how well values tell the target, by a measure; nothing where one of them does not differ."""
    if np.ptp(target) == 0 or (values == values[0]).all():
        return 0.0
    return measure(values, target)


def _auc(values: _Floats, target: _Floats) -> float:
    ranks, positive = _mid_ranks(values), target == 1
    wins = ranks[positive].sum() - positive.sum() * (positive.sum() + 1) / 2
    auc = float(wins / (positive.sum() * (~positive).sum()))
    return max(auc, 1 - auc)


def _rank_correlation(values: _Floats, target: _Floats) -> float:
    return float(abs(np.corrcoef(_mid_ranks(values), _mid_ranks(target))[0, 1]))


def class_share(values: _Floats, target: _Floats) -> float:
    """Returns how much of what the commonest class leaves to be told is told by that of other rows of equal value.

    A row is told by the other rows of its value: a value that occurs once tells nothing.
    """
    _, value = np.unique(values, return_inverse=True)
    _, kind = np.unique(target, return_inverse=True)
    size = int(kind.max()) + 1
    pairs, count = np.unique(value * size + kind, return_counts=True)
    most = np.zeros(int(value.max()) + 1, np.int64)
    np.maximum.at(most, pairs // size, count)
    rows = np.bincount(value)
    right = np.where(rows > 1, rows * (most - 1) / np.maximum(rows - 1, 1), 0).sum() / len(target)
    usual = np.bincount(kind).max() / len(target)
    return float(max(0.0, (right - usual) / (1 - usual)))


_Measure = Callable[[_Floats, _Floats], float]
_MEASURES: dict[str, _Measure] = {
    "binary_classification": _auc,
    "multilabel_classification": _auc,
    "multiclass_classification": class_share,
    "recommendation": class_share,
}
_SCALES = {
    "binary_classification": "AUC",
    "multilabel_classification": "AUC",
    "multiclass_classification": "a skill of",
    "recommendation": "a skill of",
}


def _measure(task: Task) -> _Measure:
    return _MEASURES.get(task.spec.type, _rank_correlation)


def _mid_ranks(values: _Floats) -> _Floats:
    """Returns ranks from 1, ties at their mean."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray(((ends - counts + 1 + ends) / 2)[places], dtype=np.float64)
