"""Label rows become seeds: keys become nodes, times UTC, targets numbers. What cannot be used is named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from quartet.causal import visible
from quartet.database import Database, Table
from quartet.errors import TaskError, TimeError, examples
from quartet.findings import Finding, note, warning
from quartet.tasks.classes import class_target, unseen_finding
from quartet.tasks.labels import LabelColumns, has_label, label_times, rows_of_keys
from quartet.tasks.seeds import Links, Seeds, Target
from quartet.tasks.spec import TaskSpec
from quartet.times import show_instant

OnEarlySeed = Literal["error", "drop"]
_MOST = 0.5  # of the label rows, which must not be lost
_LARGEST = 1e37  # label that a model reads


def to_seeds(
    labels: pa.Table,
    spec: TaskSpec,
    database: Database,
    classes: Sequence[Any] | None,
    on_early_seed: OnEarlySeed,
    where: str,
    exists_by: int | None = None,
    is_sealed: bool = False,
) -> tuple[Seeds, list[Finding]]:
    """Returns label rows as checked seeds of the database, and what had to be left out.

    Entities that do not exist at a cut-off (`exists_by`) are not asked about, where it is given. Of labels that are
    sealed, those of test, no finding tells more than a count.
    """
    entity, findings = database[spec.entity_table], []
    columns = LabelColumns.of(spec, entity)
    is_labelled = has_label(labels[columns.target])
    num_empty = labels.num_rows - (pc.sum(is_labelled).as_py() or 0)
    if num_empty:
        text = f"{where}: {num_empty:,} of {labels.num_rows:,} rows have no label"
        if num_empty > _MOST * labels.num_rows and not spec.population:
            raise TaskError("L08", text, "correct how labels are made; if this is meant, take these rows out")
        fix = ""
        if spec.population:
            fix = "if these need no answer, leave them out by what is known of them at t, after WHERE"
        if spec.type == "recommendation":
            text = f"{where}: {num_empty:,} of {labels.num_rows:,} rows have no item in their window"
        findings.append(warning("L08", where, f"{text} and are left out", num_empty, fix))
        labels = labels.filter(is_labelled)
    rows = rows_of_keys(labels[columns.entity], entity, f"{where}, column {columns.entity}")
    unknown = rows < 0
    if unknown.any():
        text = _unknown_text(unknown, labels[columns.entity], entity, where)
        if spec.kind != "forecast" or unknown.mean() > _MOST:
            raise TaskError("L11", text, "remove these rows, or add the entities")
        findings.append(warning("L11", where, f"{text} and are left out", int(unknown.sum())))
        labels, rows = labels.filter(pa.array(~unknown)), rows[~unknown]
    is_new = (
        ~visible(entity.known_at[rows], exists_by) if exists_by is not None else np.zeros(len(rows), bool)
    )
    if is_new.any():
        text = f"{where}: {int(is_new.sum()):,} of {len(rows):,} rows ask about {entity.name} that do not exist at the "
        text += f"test cut-off, {show_instant(int(exists_by or 0))}, and are left out, as RelBench does"
        report, fix = warning if is_new.mean() > _MOST else note, "to ask about them, give a table of labels"
        findings.append(report("T17", where, text, int(is_new.sum()), fix))
        labels, rows = labels.filter(pa.array(~is_new)), rows[~is_new]
    times = label_times(labels[columns.time], f"{where}, column {columns.time}")
    target = _target(labels[columns.target], spec, database, classes, where)
    seeds = Seeds(rows + database.offsets[entity.name], times, target)
    _check_repeats(seeds, entity, rows, where)
    early = ~visible(entity.known_at[rows], times)
    if early.any():
        text = f"{where}: {early_text(entity, rows, times, early)}"
        if on_early_seed == "error":
            fix = 'correct the task, or leave them out: --drop-early, in Python on_early_seed="drop"'
            raise TimeError("T05", text, fix)
        findings.append(warning("T05", where, f"{text}; left out", int(early.sum())))
        seeds, labels = seeds.select(~early), labels.filter(pa.array(~early))
    if classes is not None:
        told = labels[columns.target], np.asarray(seeds.target), classes, spec, where, is_sealed
        findings += unseen_finding(*told)
    return seeds, findings


def early_text(
    entity: Table, rows: NDArray[np.int64], times: NDArray[np.int64], early: NDArray[np.bool_]
) -> str:
    """Returns a sentence that counts the seeds about rows newer than the asked time, with the first of them."""
    place = int(np.flatnonzero(early)[0])
    key = entity.key_map.show(int(rows[place])) if entity.primary_key else f"row {rows[place]}"
    return (
        f"{int(early.sum()):,} prediction rows ask about {entity.name} created after the asked time "
        f"({key} created {show_instant(int(entity.known_at[rows[place]]))}, "
        f"asked {show_instant(int(times[place]))})"
    )


def _unknown_text(unknown: NDArray[np.bool_], keys: pa.ChunkedArray, table: Table, where: str) -> str:
    shown = examples(keys[int(place)].as_py() for place in np.flatnonzero(unknown)[:3])
    count = int(unknown.sum())
    return f'{where}: {count:,} of {len(keys):,} rows name entities that are not in "{table.name}" {shown}'


def _target(
    column: pa.ChunkedArray, spec: TaskSpec, database: Database, classes: Sequence[Any] | None, where: str
) -> Target:
    if spec.type == "recommendation":
        return _link_target(column, spec, database, where)
    if spec.type == "regression":
        return _numbers(column, pa.float64(), where)
    if spec.type == "binary_classification":
        values = pc.unique(column).to_pylist()
        if not all(value in (0, 1) for value in values):
            shown = examples(sorted(map(str, values)), limit=6)
            raise TaskError(
                "L07",
                f"{where}: labels of a binary task must be 0 or 1, got {len(values)} values {shown}",
                f"choose the positive class in the SQL, e.g. (label = {values[0]!r})::INT, "
                "or say task_type: multiclass_classification",
            )
        return _numbers(column, pa.int64(), where)
    assert classes is not None
    return class_target(column, classes, spec, where)


def _numbers(column: pa.ChunkedArray, kind: pa.DataType, where: str) -> NDArray[Any]:
    try:
        numbers = np.asarray(column.cast(kind).to_numpy(), dtype=kind.to_pandas_dtype())
    except pa.ArrowException:
        values = examples(pc.unique(column.slice(0, 1000)).to_pylist())
        raise TaskError(
            "L07", f"{where}: labels are {column.type}, not numbers {values}", "say another task_type"
        ) from None
    large = numbers[np.abs(numbers) > _LARGEST]
    if len(large):
        what = "infinite" if np.isinf(large).all() else f"beyond {_LARGEST:g}"
        fix = "leave these rows out, or give them a number"
        raise TaskError("L07", f"{where}: {len(large):,} of {len(numbers):,} labels are {what}", fix)
    return numbers


def _link_target(column: pa.ChunkedArray, spec: TaskSpec, database: Database, where: str) -> Links:
    """Returns the recommended rows as global ids, each once; a cell holds one key or a list of keys."""
    array = column.combine_chunks()
    if not pa.types.is_list(array.type) and not pa.types.is_large_list(array.type):
        array = pa.ListArray.from_arrays(np.arange(len(array) + 1, dtype=np.int32), array)
    lengths = pc.list_value_length(array).to_numpy()
    item = database[spec.item_table]
    keys = pa.chunked_array([array.flatten()])
    rows = rows_of_keys(keys, item, f"{where}, column {spec.target_col}")
    if (rows < 0).any():
        text = _unknown_text(rows < 0, keys, item, where)
        raise TaskError("L11", text, "remove these rows, or add the entities")
    seed = np.repeat(np.arange(len(lengths)), lengths)
    first = np.sort(
        np.unique(seed * max(1, item.num_rows) + rows, return_index=True)[1]
    )  # in the order given
    offsets = np.searchsorted(seed[first], np.arange(len(lengths) + 1))
    return Links(offsets, rows[first] + database.offsets[item.name])


def _check_repeats(seeds: Seeds, entity: Table, rows: NDArray[np.int64], where: str) -> None:
    """Refuses a seed with two labels: different ones contradict each other, the same ones would count twice."""
    order = np.lexsort((seeds.time, seeds.node))
    node, time = seeds.node[order], seeds.time[order]
    clash = (node[1:] == node[:-1]) & (time[1:] == time[:-1])
    if clash.any():
        first = order[np.flatnonzero(clash)[:3]]
        shown = [f"{entity.key_map.show(int(rows[i]))} at {show_instant(int(seeds.time[i]))}" for i in first]
        raise repeated_labels(where, int(clash.sum()), shown)


def repeated_labels(where: str, count: int, shown: Sequence[str]) -> TaskError:
    """Returns the error that seeds have two labels."""
    return TaskError(
        "L10",
        f"{where}: {count:,} seeds occur twice {examples(shown)}",
        "keep one label for each (entity, time)",
    )
