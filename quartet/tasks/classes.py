"""Classes: the values that labels of train have, as numbers; lists of them; those that come later, and rare ones.

A value that train does not have is never dropped: it has a number after those of the classes, for which no model has a
score. Metrics count it as wrong, and a finding counts it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from quartet.errors import TaskError, examples
from quartet.findings import Finding, note, warning
from quartet.tasks.spec import TaskSpec

OTHER = "(other)"


def class_counts(labels: pa.ChunkedArray, spec: TaskSpec, where: str) -> dict[Any, int]:
    """Returns the classes of training labels in order, with how many labels each has; rare ones pooled at the end."""
    values = label_values(labels, spec, where).drop_null()
    counts = Counter({each["values"]: each["counts"] for each in pc.value_counts(values).to_pylist()})
    pool = spec.pool_classes
    rare = {value for value, count in counts.items() if pool and (count < pool or value == OTHER)}
    kept = {value: counts[value] for value in sorted(set(counts) - rare)}
    return kept | ({OTHER: sum(counts[value] for value in rare)} if rare else {})


def pooled_finding(spec: TaskSpec, counts: dict[Any, int], labels: pa.ChunkedArray) -> list[Finding]:
    """Returns a note that says how many classes were pooled, where they were."""
    if not spec.pool_classes:
        return []
    num = len(pc.unique(label_values(labels, spec, spec.name).drop_null())) - len(counts)
    if OTHER not in counts:
        return [note("L31", spec.name, f"no class has fewer than {spec.pool_classes:,} training labels")]
    text = (
        f"{num + 1:,} classes with fewer than {spec.pool_classes:,} training labels are pooled as {OTHER}: "
    )
    text += (
        f"{counts[OTHER]:,} of {sum(counts.values()):,} labels; classes that come later count as {OTHER}, too"
    )
    return [note("L31", spec.name, text, counts[OTHER])]


def class_codes(
    values: pa.ChunkedArray, classes: Sequence[Any], spec: TaskSpec, where: str
) -> NDArray[np.int64]:
    """Returns the number of each value's class; values that are none of these have numbers after theirs."""
    is_pooled = bool(spec.pool_classes) and OTHER in classes
    named = [name for name in classes if not (is_pooled and name == OTHER)]
    try:
        known = pa.array(named).cast(values.type)
    except pa.ArrowException:
        text = f"{where}: labels are {values.type}, those of train are {pa.array(named).type}"
        raise TaskError("L07", text, "give all labels one type") from None
    codes = np.array(pc.fill_null(pc.index_in(values, known), -1).to_numpy(), dtype=np.int64)
    is_unseen = codes < 0
    if is_pooled:
        codes[is_unseen] = len(classes) - 1
    elif is_unseen.any():
        unseen = values.filter(pa.array(is_unseen))
        codes[is_unseen] = len(classes) + pc.index_in(unseen, pc.unique(unseen).sort()).to_numpy()
    return codes


def class_target(
    labels: pa.ChunkedArray, classes: Sequence[Any], spec: TaskSpec, where: str
) -> NDArray[np.int64] | NDArray[np.int8]:
    """Returns the class of each label, or of label lists a (S, classes) matrix of 0 and 1."""
    codes = class_codes(label_values(labels, spec, where), classes, spec, where)
    if not spec.facts.holds_lists:
        return codes
    lengths = pc.list_value_length(label_lists(labels, where)).to_numpy()
    target = np.zeros((len(labels), max(len(classes), int(codes.max(initial=-1)) + 1)), np.int8)
    target[np.repeat(np.arange(len(labels)), lengths), codes] = 1
    return target


def unseen_finding(
    labels: pa.ChunkedArray,
    target: NDArray[Any],
    classes: Sequence[Any],
    spec: TaskSpec,
    where: str,
    is_sealed: bool,
) -> list[Finding]:
    """Returns a warning that counts the rows of classes that train does not have; of test it names none of them."""
    num = len(classes)
    is_unseen = target[:, num:].any(1) if target.ndim > 1 else target >= num
    if not is_unseen.any():
        return []
    values = label_values(labels, spec, where)
    unseen = pc.unique(values.filter(pa.array(class_codes(values, classes, spec, where) >= num)))
    shown = "" if is_sealed else f" {examples(unseen.to_pylist())}"
    text = f"{where}: {int(is_unseen.sum()):,} of {len(target):,} rows have one of {len(unseen):,} classes that train "
    text += f"does not have{shown}: no model can predict these; the rows stay and count as wrong"
    fix = "move the cut-offs, or pool rare and new classes: pool_classes: 20 in the task file"
    return [warning("L30", where, text, int(is_unseen.sum()), fix)]


def label_values(labels: pa.ChunkedArray, spec: TaskSpec, where: str) -> pa.ChunkedArray:
    """Returns all values of a label column: its cells, or those of its lists, one after the other."""
    if not spec.facts.holds_lists:
        return labels
    values = label_lists(labels, where).flatten()
    if pa.types.is_floating(values.type):
        values = pc.if_else(pc.is_nan(values), None, values)
    if values.null_count:
        text = f"{where}: {values.null_count:,} values in label lists are empty"
        raise TaskError("L07", text, "leave them out of the lists: LIST(x) FILTER (WHERE x IS NOT NULL)")
    return pa.chunked_array([values])


def label_lists(labels: pa.ChunkedArray, where: str) -> pa.ListArray:
    """Returns label cells as lists; text cells must hold JSON lists, as a CSV file has them.

    Classes that are neither text nor numbers nor truth values, such as dates, are told as text.
    """
    array, types = labels.combine_chunks(), pa.types
    if types.is_string(array.type):
        array = _parsed(array, where)
    if not types.is_list(array.type) and not types.is_large_list(array.type):
        raise _no_lists(array, where)
    kind = array.type.value_type
    tests = (types.is_string, types.is_integer, types.is_floating, types.is_boolean, types.is_null)
    if any(test(kind) for test in tests):
        return array
    try:
        return array.cast(pa.list_(pa.string()))
    except pa.ArrowException:
        fix = "let SQL return text or numbers in lists: LIST(DISTINCT CAST(x AS VARCHAR))"
        raise TaskError("L07", f"{where}: label lists hold {kind}, no classes", fix) from None


def _parsed(array: pa.Array, where: str) -> pa.Array:
    try:
        cells = [None if text is None else json.loads(text) for text in array.to_pylist()]
        if not all(cell is None or isinstance(cell, list) for cell in cells):
            raise ValueError("not lists")
        lists = pa.array(cells)
        return lists if pa.types.is_list(lists.type) else lists.cast(pa.list_(pa.string()))
    except (ValueError, pa.ArrowException):
        raise _no_lists(array, where) from None


def _no_lists(array: pa.Array, where: str) -> TaskError:
    some = examples(pc.unique(array.slice(0, 1000)).to_pylist())
    text = f"{where}: cells of a multilabel task are lists of classes, got {array.type} {some}"
    return TaskError("L07", text, 'let SQL return LIST(DISTINCT x), or write JSON lists: ["a", "b"]')
