"""Lint: leaks that no sampler can see, because they are in the definition of the task or in its data."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from quartet.findings import Finding, note, warning
from quartet.tasks.labels import labels_at, tables_upto
from quartet.tasks.task import Task, check_labels

CHECKED_TIMES = 8
CHECKED_ROWS = 50_000
SUSPICIOUS_AUC = 0.98
_MOST_CATEGORIES = 50


def lint(task: Task) -> list[Finding]:
    """Everything suspicious about a task; labels of train and validation are read, test ones never."""
    return [
        *check_labels(task),
        *_isolated(task),
        *_future_population(task),
        *_target_copies(task),
        *(finding for finding in task.database.findings if finding.code == "D01"),
    ]


def _isolated(task: Task) -> list[Finding]:
    name = task.spec.entity_table
    if any(name in (r.table, r.parent) for r in task.database.relations):
        return []
    return [warning("S14", name, f"{name} has no links: predictions will use its own columns only")]


def _future_population(task: Task) -> list[Finding]:
    """Compares who is asked about at t when the database ends at t and when it does not.

    Labels may depend on what comes after t; the population may not, or the model is told who will be
    active. RelBench's rel-f1 driver tasks have this defect (its issue 402).
    """
    if task.spec.kind != "forecast":
        return []
    times = np.unique(np.concatenate([task.seeds("train").time, task.seeds("val").time]))
    chosen = times[np.linspace(0, len(times) - 1, min(CHECKED_TIMES, len(times))).astype(int)]
    asked, changed = 0, 0
    for time in chosen:
        whole, past = (_population(task, int(time), upto) for upto in (None, int(time)))
        asked += len(whole)
        changed += len(whole ^ past)
    if not changed:
        return []
    text = (
        f"the task selects {task.spec.entity_table} using rows after the prediction time "
        f"({changed:,} of {asked:,} seeds differ at {len(chosen)} checked times)"
    )
    fix = "join the population on rows up to t, and count labels on rows after t"
    return [warning("T14", task.name, text, changed, fix)]


def _population(task: Task, time: int, upto: int | None) -> set[object]:
    tables = tables_upto(task.full_database, upto)
    labels = labels_at(task.spec, task.full_database, tables, np.array([time]))
    return set(labels[task.spec.entity_col].to_pylist())


def _target_copies(task: Task) -> list[Finding]:
    """Columns of the entity's own row that alone tell the target."""
    entity = task.database[task.spec.entity_table]
    seeds = task.seeds("train")
    if not isinstance(seeds.target, np.ndarray) or len(seeds) == 0:
        return []
    step = max(1, len(seeds) // CHECKED_ROWS)
    rows = seeds.node[::step] - task.database.offsets[entity.name]
    target = seeds.target[::step].astype(np.float64)
    keys = {*entity.primary_key, *(c for fk in entity.schema.foreign_keys for c in fk.columns)}
    found = []
    if task.spec.kind == "autocomplete":
        text = f'column "{task.spec.target_col}" is the target and was removed from features'
        found.append(note("L03", entity.name, text))
    for name in entity.data.column_names:
        if name not in keys:
            column = entity.data[name].take(pa.array(rows))
            found += _copy_findings(task, f"{entity.name}.{name}", column, target)
    return found


def _copy_findings(
    task: Task, where: str, column: pa.ChunkedArray, target: NDArray[np.float64]
) -> list[Finding]:
    values = _as_numbers(column, target)
    if values is None:
        return []
    filled = ~np.isnan(values)
    is_number = not pa.types.is_string(column.type)
    if is_number and filled.all() and (_equal(values, target) or _equal(-values, target)):
        text = f'column "{where}" equals the target in 100 % of rows: looks like a leak'
        return [
            warning("L04", where, text, len(values), f"add [{where.replace('.', ', ')}] to remove_columns")
        ]
    strength = _strength(np.where(filled, values, -np.inf), target, task.spec.type)
    if strength <= SUSPICIOUS_AUC:
        return []
    measure = "AUC" if task.spec.type == "binary_classification" else "rank correlation"
    text = f'column "{where}" alone predicts the target with {measure} {strength:.3f}: looks like a leak'
    return [warning("L04", where, text, len(values), "hide it with remove_columns if it is known only later")]


def _equal(values: NDArray[np.float64], target: NDArray[np.float64]) -> bool:
    """Whether one is the other up to a constant shift, and not constant itself."""
    return bool(np.ptp(target) > 0 and np.ptp(values - target) == 0)


def _as_numbers(column: pa.ChunkedArray, target: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """The column as numbers that can be ranked: itself, or the mean target of each category."""
    kind = column.type
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
        numbers = column.cast(pa.float64(), safe=False)
        return np.asarray(pc.fill_null(numbers, np.nan).to_numpy(), dtype=np.float64)
    if pa.types.is_timestamp(kind):
        return _as_numbers(column.cast(pa.int64()), target)
    if not pa.types.is_string(kind):
        return None
    codes = column.combine_chunks().dictionary_encode(null_encoding="encode")
    size = len(codes.dictionary)
    if size > _MOST_CATEGORIES or len(column) < 20 * size:
        return None
    places = codes.indices.to_numpy()
    means = np.bincount(places, target, size) / np.maximum(np.bincount(places, minlength=size), 1)
    return np.asarray(means[places], dtype=np.float64)


def _strength(values: NDArray[np.float64], target: NDArray[np.float64], task_type: str) -> float:
    """How well the order of the values tells the target: AUC, or the absolute rank correlation."""
    if np.ptp(target) == 0 or (values == values[0]).all():
        return 0.0
    ranks = _mid_ranks(values)
    if task_type == "binary_classification":
        positive = target == 1
        wins = ranks[positive].sum() - positive.sum() * (positive.sum() + 1) / 2
        auc = float(wins / (positive.sum() * (~positive).sum()))
        return max(auc, 1 - auc)
    return float(abs(np.corrcoef(ranks, _mid_ranks(target))[0, 1]))


def _mid_ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ranks from 1, ties at their mean."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray(((ends - counts + 1 + ends) / 2)[places], dtype=np.float64)
