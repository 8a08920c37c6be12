"""Label rows become seeds: keys become nodes, times UTC, targets numbers. What cannot be used is named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from quartet.causal import visible
from quartet.database import Database, KeyColumn, Table
from quartet.errors import TaskError, TimeError, examples
from quartet.findings import Finding, warning
from quartet.tasks.labels import LabelColumns, has_label, label_times
from quartet.tasks.seeds import Links, Seeds, Target
from quartet.tasks.spec import TaskSpec
from quartet.times import show_instant

OnEarlySeed = Literal["error", "drop"]


def to_seeds(
    labels: pa.Table,
    spec: TaskSpec,
    database: Database,
    classes: Sequence[Any] | None,
    on_early_seed: OnEarlySeed,
    where: str,
) -> tuple[Seeds, list[Finding]]:
    """Returns label rows as checked seeds of the database, and what had to be left out."""
    entity, findings = database[spec.entity_table], []
    columns = LabelColumns.of(spec, entity)
    is_labelled = has_label(labels[columns.target])
    num_empty = labels.num_rows - (pc.sum(is_labelled).as_py() or 0)
    if num_empty:
        text = f"{where}: {num_empty:,} of {labels.num_rows:,} rows have no label and are left out"
        findings.append(warning("L08", where, text, num_empty))
        labels = labels.filter(is_labelled)
    rows = _rows(labels[columns.entity], entity, columns.entity, where)
    times = label_times(labels[columns.time], f"{where}, column {columns.time}")
    target = _target(labels[columns.target], spec, database, classes, where)
    seeds = Seeds(rows + database.offsets[entity.name], times, target)
    _check_repeats(seeds, entity, rows, where)
    early = ~visible(entity.known_at[rows], times)
    if early.any():
        text = f"{where}: {early_text(entity, rows, times, early)}"
        if on_early_seed == "error":
            raise TimeError("T05", text, 'correct the task, or load it with on_early_seed="drop"')
        findings.append(warning("T05", where, f"{text}; left out", int(early.sum())))
        seeds = seeds.select(~early)
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


def _rows(keys: pa.ChunkedArray, table: Table, column: str, where: str) -> NDArray[np.int64]:
    """Returns the rows of a table that keys name."""
    if not table.primary_key:
        if column != "primary_key":
            raise TaskError("L11", f'table "{table.name}" has no primary key, so its rows cannot be named')
        return np.asarray(keys.to_numpy(), dtype=np.int64)
    if len(table.primary_key) > 1:
        raise TaskError("L11", f'table "{table.name}" has a composite key; a task needs a single one')
    if table.num_rows == 0:
        raise TaskError("S02", f'the entity table "{table.name}" has 0 rows')
    wanted = KeyColumn.of(keys, f"{where}, column {column}")
    if wanted.kind != table.key_map.kinds[0] and len(keys):
        known = table.key_map.columns[0]
        raise TaskError("S08", f"{wanted.where} is {wanted.kind}, {known.where} is {known.kind}", "cast one")
    rows = table.key_map.rows([wanted])
    unknown = np.flatnonzero(rows < 0)
    if len(unknown):
        shown = examples(wanted.values[int(place)].as_py() for place in unknown[:3])
        raise TaskError(
            "L11",
            f'{where}: {len(unknown):,} of {len(rows):,} rows name entities that are not in "{table.name}" {shown}',
            "remove these rows, or add the entities",
        )
    return rows


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
    known = pa.array(classes) if classes is not None else pc.unique(column).sort()
    codes = pc.index_in(column, known.cast(column.type))
    unseen = column.filter(pc.is_null(codes))
    if len(unseen):
        shown = examples(value.as_py() for value in pc.unique(unseen))
        raise TaskError(
            "L07",
            f"{where}: {len(unseen):,} labels are of classes that train does not have {shown}",
            "merge the rare classes, or move the cut-offs",
        )
    return np.asarray(codes.to_numpy(), dtype=np.int64)


def _numbers(column: pa.ChunkedArray, kind: pa.DataType, where: str) -> NDArray[Any]:
    try:
        return np.asarray(column.cast(kind).to_numpy(), dtype=kind.to_pandas_dtype())
    except pa.ArrowException:
        values = examples(pc.unique(column.slice(0, 1000)).to_pylist())
        raise TaskError(
            "L07", f"{where}: labels are {column.type}, not numbers {values}", "say another task_type"
        ) from None


def _link_target(column: pa.ChunkedArray, spec: TaskSpec, database: Database, where: str) -> Links:
    """Returns the recommended rows as global ids; each cell holds one key or a list of keys."""
    array = column.combine_chunks()
    if not pa.types.is_list(array.type) and not pa.types.is_large_list(array.type):
        array = pa.ListArray.from_arrays(np.arange(len(array) + 1, dtype=np.int32), array)
    lengths = pc.list_value_length(array).to_numpy()
    item = database[spec.item_table]
    rows = _rows(pa.chunked_array([array.flatten()]), item, spec.target_col, where)
    return Links(np.concatenate([[0], np.cumsum(lengths)]), rows + database.offsets[item.name])


def _check_repeats(seeds: Seeds, entity: Table, rows: NDArray[np.int64], where: str) -> None:
    """Refuses a seed with two labels: it is a contradiction, not data."""
    if isinstance(seeds.target, Links) or seeds.target is None:
        return
    order = np.lexsort((seeds.target, seeds.time, seeds.node))
    node, time, target = seeds.node[order], seeds.time[order], seeds.target[order]
    clash = (node[1:] == node[:-1]) & (time[1:] == time[:-1]) & (target[1:] != target[:-1])
    if clash.any():
        first = order[np.flatnonzero(clash)[:3]]
        shown = [f"{entity.key_map.show(int(rows[i]))} at {show_instant(int(seeds.time[i]))}" for i in first]
        raise repeated_labels(where, int(clash.sum()), shown)


def repeated_labels(where: str, count: int, shown: Sequence[str]) -> TaskError:
    """Returns the error that seeds have two different labels."""
    return TaskError(
        "L10",
        f"{where}: {count:,} seeds occur twice with different labels {examples(shown)}",
        "keep one label for each (entity, time)",
    )
