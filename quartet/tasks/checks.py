"""Checks of a task: labels that cannot carry a model, and leaks in its definition or data that no sampler can see."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from quartet.errors import TaskError
from quartet.findings import Finding, note, warning
from quartet.tasks.labels import key_columns, labels_at

if TYPE_CHECKING:
    from quartet.tasks.task import Task

_CHECKED_TIMES = 8
_CHECKED_ROWS = 50_000
_SUSPICIOUS = 0.98  # AUC or rank correlation
_MOST_CATEGORIES = 50


def check_labels(task: Task) -> list[Finding]:
    """Checks whether the labels of train and validation can carry a model; an error says that they cannot."""
    if task.spec.type != "binary_classification":
        return []
    findings = []
    for split in ("train", "val"):
        target = np.asarray(task.seeds(split).target)
        if len(target) and target.min() == target.max():
            text = f"all {len(target):,} {'training' if split == 'train' else split} labels are {target[0]}"
            if split == "train":
                raise TaskError("L05", f"{text}. A classifier cannot be trained")
            text = f"{text}: no model can be selected by them"
            findings.append(warning("L06", task.name, text, len(target)))
        elif len(target) < 50 or target.sum() < 10:
            text = (
                f"{split} has {len(target):,} labels, {int(target.sum()):,} positive: any score will be vague"
            )
            findings.append(warning("L09", task.name, text, len(target)))
    return findings


def lint(task: Task) -> list[Finding]:
    """Returns everything suspicious about a task; labels of train and validation are read, test ones never."""
    findings = check_labels(task)
    name = task.spec.entity_table
    if not any(name in (relation.table, relation.parent) for relation in task.database.relations):
        text = f"{name} has no links: predictions will use its own columns only"
        findings.append(warning("S14", name, text))
    findings += _future_population(task)
    findings += _target_copies(task)
    findings += [finding for finding in task.database.findings if finding.code == "D01"]
    return findings


def _future_population(task: Task) -> list[Finding]:
    """Compares who is asked about at t when the database ends at t and when it does not.

    Labels may depend on what comes after t; the population may not, or the model is told who will be
    active. RelBench's rel-f1 driver tasks have this defect (its issue 402).
    """
    if task.spec.kind != "forecast":
        return []
    times = np.unique(np.concatenate([task.seeds("train").time, task.seeds("val").time]))
    chosen = times[np.linspace(0, len(times) - 1, min(_CHECKED_TIMES, len(times))).astype(int)]

    def population(time: int, upto: int | None) -> set[object]:
        labels = labels_at(task.spec, task.full_database, np.array([time]), upto)
        return set(labels[task.spec.entity_col].to_pylist())

    asked, changed = 0, 0
    for time in map(int, chosen):
        whole = population(time, None)
        asked, changed = asked + len(whole), changed + len(whole ^ population(time, time))
    if not changed:
        return []
    text = (
        f"the task selects {task.spec.entity_table} using rows after the prediction time "
        f"({changed:,} of {asked:,} seeds differ at {len(chosen)} checked times)"
    )
    fix = "join the population on rows up to t, and count labels on rows after t"
    return [warning("T14", task.name, text, changed, fix)]


def _target_copies(task: Task) -> list[Finding]:
    """Finds columns of the entity's own row that alone tell the target."""
    entity, seeds = task.database[task.spec.entity_table], task.seeds("train")
    if not isinstance(seeds.target, np.ndarray) or len(seeds) == 0:
        return []
    step = max(1, len(seeds) // _CHECKED_ROWS)
    rows = pa.array(seeds.node[::step] - task.database.offsets[entity.name])
    target = seeds.target[::step].astype(np.float64)
    findings = []
    if task.spec.kind == "autocomplete":
        text = f'column "{task.spec.target_col}" is the target and was removed from features'
        findings.append(note("L03", entity.name, text))
    for name in entity.data.column_names:
        if name not in key_columns(entity):
            findings += _copy_findings(task, f"{entity.name}.{name}", entity.data[name].take(rows), target)
    return findings


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
        fix = f"add [{where.replace('.', ', ')}] to remove_columns"
        return [warning("L04", where, text, len(values), fix)]
    is_binary = task.spec.type == "binary_classification"
    strength = _strength(np.where(filled, values, -np.inf), target, is_binary)
    if strength <= _SUSPICIOUS:
        return []
    measure = "AUC" if is_binary else "rank correlation"
    text = f'column "{where}" alone predicts the target with {measure} {strength:.3f}: looks like a leak'
    return [warning("L04", where, text, len(values), "hide it with remove_columns if it is known only later")]


def _equal(values: NDArray[np.float64], target: NDArray[np.float64]) -> bool:
    """Returns whether one is the other up to a constant shift, and not constant itself."""
    return bool(np.ptp(target) > 0 and np.ptp(values - target) == 0)


def _as_numbers(column: pa.ChunkedArray, target: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Returns the column as numbers that can be ranked: itself, or the mean target of each category."""
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


def _strength(values: NDArray[np.float64], target: NDArray[np.float64], is_binary: bool) -> float:
    """Returns how well the order of the values tells the target: AUC, or the absolute rank correlation."""
    if np.ptp(target) == 0 or (values == values[0]).all():
        return 0.0
    ranks = _mid_ranks(values)
    if is_binary:
        positive = target == 1
        wins = ranks[positive].sum() - positive.sum() * (positive.sum() + 1) / 2
        auc = float(wins / (positive.sum() * (~positive).sum()))
        return max(auc, 1 - auc)
    return float(abs(np.corrcoef(ranks, _mid_ranks(target))[0, 1]))


def _mid_ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns ranks from 1, ties at their mean."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray(((ends - counts + 1 + ends) / 2)[places], dtype=np.float64)
