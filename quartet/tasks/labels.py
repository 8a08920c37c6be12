"""Labels: where the rows of a task table come from, and how they become seeds.

Three origins, one form: stored label files, the task's SQL run again over the database, or a column
of the entity table (autocomplete). A label row is (time, entity, target).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from quartet.causal import num_visible, visible
from quartet.database import Database, KeyColumn, Table
from quartet.errors import TaskError, TimeError, did_you_mean, examples
from quartet.findings import Finding, warning
from quartet.tasks.sandbox import run_task_sql, task_query
from quartet.tasks.seeds import Links, Seeds, Target
from quartet.tasks.spec import TaskSpec
from quartet.tasks.splits import Split, Splits, forecast_times
from quartet.times import NEVER, STATIC, show_instant, to_arrow, to_utc


@dataclass(frozen=True)
class LabelColumns:
    """The names of the three columns of a label table."""

    time: str
    entity: str
    target: str

    @staticmethod
    def of(spec: TaskSpec, entity: Table) -> LabelColumns:
        if spec.kind != "autocomplete":
            return LabelColumns(spec.time_col, spec.entity_col, spec.target_col)
        if entity.schema.time is None:
            raise TaskError(
                "L01", f'task "{spec.name}" fills in a column of "{entity.name}", which has no time column'
            )
        # RelBench names the row number "primary_key" where a table has no key of its own.
        key = entity.primary_key[0] if entity.primary_key else "primary_key"
        return LabelColumns(entity.schema.time.column, key, spec.target_col)


def read_labels(path: Path) -> pa.Table:
    """The label table in a Parquet or CSV file."""
    if not path.is_file():
        raise TaskError("L01", f'there is no label file "{path}"', "check the word `labels` of the task")
    if path.suffix == ".csv":
        import pyarrow.csv as csv

        return csv.read_csv(path)
    return pq.read_table(path)


def check_columns(table: pa.Table, columns: LabelColumns, where: str) -> pa.Table:
    """The label table with just its three columns, or an error that says which one is missing."""
    for name in (columns.time, columns.entity, columns.target):
        if name not in table.column_names:
            raise TaskError(
                "L12",
                f'{where} has no column "{name}"; task SQL must return (entity, time, label)'
                + did_you_mean(name, table.column_names),
                "name the column so, or correct entity_col, time_col or target_col of the task",
            )
    return table.select([columns.time, columns.entity, columns.target])


def forecast_labels(spec: TaskSpec, source: Database, splits: Splits, split: Split) -> pa.Table:
    """The labels of a forecast split, made again from the database by the task's SQL.

    Train and validation labels are made from the database up to the test cut-off, as RelBench does.
    """
    span = source.span
    if span is None:
        raise TimeError("T10", f'task "{spec.name}" forecasts, but no table has a time column')
    times = forecast_times(split, splits, spec.horizon, spec.num_eval_times, span)
    tables = tables_upto(source, None if split == "test" else splits.test)
    labels = labels_at(spec, source, tables, times)
    return labels.filter(_known_entities(labels, spec, source[spec.entity_table], splits.test))


def tables_upto(database: Database, time: int | None) -> dict[str, pa.Table]:
    """The data of every table, up to a time if one is given."""
    if time is None:
        return {name: table.data for name, table in database.tables.items()}
    return {n: t.data.filter(pa.array(visible(t.known_at, time))) for n, t in database.tables.items()}


def labels_at(
    spec: TaskSpec, database: Database, tables: Mapping[str, pa.Table], times: NDArray[np.int64]
) -> pa.Table:
    """The label rows that the task's SQL gives over some tables for some times, in a fixed order."""
    found = run_task_sql(spec.sql, tables, times, spec.horizon, f'task "{spec.name}"')
    return _in_order(found, spec, database[spec.entity_table])


def closed_labels(spec: TaskSpec, database: Database, times: NDArray[np.int64]) -> pa.Table:
    """The label rows of some times, each made from what was known when its window closed, and from nothing else.

    Whatever the SQL looks at, no label can hold anything that came after the moment from which on it is shown.
    """
    past = Past.of(database)
    with task_query(spec.sql, spec.horizon, f'task "{spec.name}"') as query:
        found = [query(past.tables(STATIC), times[:0])]  # no rows, but the types of the columns
        found += [
            query(past.tables(known_at), np.array([time]))
            for time, known_at in zip(times, spec.known_at(times), strict=True)
        ]
    entity = database[spec.entity_table]
    return pa.concat_tables([_in_order(labels, spec, entity) for labels in found])


@dataclass(frozen=True)
class Past:
    """Tables with their rows in the order in which they became known: each past is a slice, and costs nothing."""

    known_at: Mapping[str, NDArray[np.int64]]
    data: Mapping[str, pa.Table]

    @staticmethod
    def of(database: Database) -> Past:
        order = {n: np.argsort(t.known_at, kind="stable") for n, t in database.tables.items()}
        return Past(
            {name: table.known_at[order[name]] for name, table in database.tables.items()},
            {name: table.data.take(pa.array(order[name])) for name, table in database.tables.items()},
        )

    def tables(self, time: int) -> dict[str, pa.Table]:
        """What was known at a time."""
        return {n: data.slice(0, int(num_visible(self.known_at[n], time))) for n, data in self.data.items()}


def _in_order(found: pa.Table, spec: TaskSpec, entity: Table) -> pa.Table:
    columns = LabelColumns.of(spec, entity)
    found = check_columns(found, columns, f'the SQL of task "{spec.name}"')
    found = found.filter(pc.is_valid(found[columns.entity]))
    return found.sort_by([(columns.time, "ascending"), (columns.entity, "ascending")])


def _known_entities(labels: pa.Table, spec: TaskSpec, entity: Table, test: int) -> pa.Array:
    """Which labels are about entities that exist at the test cut-off; RelBench leaves out the others."""
    column = KeyColumn.of(labels[spec.entity_col], f"{spec.name}.{spec.entity_col}")
    rows = entity.key_map.rows([column])
    return pa.array((rows >= 0) & visible(entity.known_at[rows], test))


def column_labels(spec: TaskSpec, source: Database) -> pa.Table:
    """The labels of an autocomplete task: the rows of the entity table, each at its own time."""
    entity = source[spec.entity_table]
    columns = LabelColumns.of(spec, entity)
    if spec.target_col not in entity.data.column_names:
        raise TaskError(
            "L01",
            f'table "{entity.name}" has no column "{spec.target_col}"'
            + did_you_mean(spec.target_col, entity.data.column_names),
        )
    keyed = {*entity.primary_key, *(c for fk in entity.schema.foreign_keys for c in fk.columns)}
    if spec.target_col in keyed:
        raise TaskError(
            "L02", f"the target {entity.name}.{spec.target_col} is a key", "choose a value column"
        )
    keys = entity.data[columns.entity] if entity.primary_key else pa.array(np.arange(entity.num_rows))
    labels = pa.table(
        [to_arrow(entity.known_at), keys, entity.data[spec.target_col]],
        names=[columns.time, columns.entity, columns.target],
    )
    # A row without a value is not a label that was lost: there is nothing to fill in and compare. Nor is there a time
    # at which to ask about a row that is never visible.
    labels = labels.filter(pc.and_(pc.is_valid(labels[columns.target]), pa.array(entity.known_at != NEVER)))
    return labels.sort_by([(columns.time, "ascending"), (columns.entity, "ascending")])


def to_seeds(
    labels: pa.Table,
    spec: TaskSpec,
    database: Database,
    classes: Sequence[Any] | None,
    on_early_seed: str,
    where: str,
) -> tuple[Seeds, list[Finding]]:
    """Label rows as seeds of the database, checked, and what had to be left out."""
    entity = database[spec.entity_table]
    columns = LabelColumns.of(spec, entity)
    findings: list[Finding] = []
    labels, findings = _drop_unlabelled(labels, columns, where)
    rows = _entity_rows(labels[columns.entity], entity, columns, where)
    times = label_times(labels[columns.time], columns, where)
    target = _target(labels[columns.target], spec, database, classes, where)
    seeds = Seeds(rows + database.offsets[entity.name], times, target)
    _check_repeats(seeds, entity, rows, where)
    early = ~visible(entity.known_at[rows], times)
    if early.any():
        findings.append(_early(entity, rows, times, early, on_early_seed, where))
        seeds = seeds.select(~early)
    return seeds, findings


def label_times(column: pa.ChunkedArray, columns: LabelColumns, where: str) -> NDArray[np.int64]:
    """The prediction times of label rows; an error where one is empty."""
    parsed = to_utc(column, f"{where}, column {columns.time}")
    if parsed.missing.any():
        raise TaskError(
            "T03",
            f"{where}: the prediction time is empty in {int(parsed.missing.sum()):,} rows",
            "fill it in",
        )
    return parsed.ns


def has_label(target: pa.ChunkedArray) -> pa.ChunkedArray:
    """Which cells of a target column hold a label."""
    if pa.types.is_floating(target.type):
        return pc.fill_null(pc.invert(pc.is_nan(target)), False)
    return pc.is_valid(target)


def _drop_unlabelled(labels: pa.Table, columns: LabelColumns, where: str) -> tuple[pa.Table, list[Finding]]:
    is_labelled = has_label(labels[columns.target])
    count = labels.num_rows - pc.sum(is_labelled).as_py() if labels.num_rows else 0
    if not count:
        return labels, []
    text = f"{where}: {count:,} of {labels.num_rows:,} rows have no label and are left out"
    return labels.filter(is_labelled), [warning("L08", where, text, count)]


def _entity_rows(
    keys: pa.ChunkedArray, entity: Table, columns: LabelColumns, where: str
) -> NDArray[np.int64]:
    if not entity.primary_key:
        if columns.entity != "primary_key":
            raise TaskError("L11", f'table "{entity.name}" has no primary key, so its rows cannot be named')
        return np.asarray(keys.to_numpy(), dtype=np.int64)
    if len(entity.primary_key) > 1:
        raise TaskError("L11", f'table "{entity.name}" has a composite key; a task needs a single one')
    if entity.num_rows == 0:
        raise TaskError("S02", f'the entity table "{entity.name}" has 0 rows')
    wanted = KeyColumn.of(keys, f"{where}, column {columns.entity}")
    if wanted.kind != entity.key_map.kinds[0] and len(keys):
        known = entity.key_map.columns[0]
        raise TaskError("S08", f"{wanted.where} is {wanted.kind}, {known.where} is {known.kind}", "cast one")
    rows = entity.key_map.rows([wanted])
    unknown = rows < 0
    if unknown.any():
        values = [wanted.values[int(place)].as_py() for place in np.flatnonzero(unknown)[:3]]
        raise TaskError(
            "L11",
            f"{where}: {int(unknown.sum()):,} of {len(rows):,} rows name entities that are not in "
            f'"{entity.name}" {examples(values)}',
            "remove these rows, or add the entities",
        )
    return rows


def _target(
    column: pa.ChunkedArray, spec: TaskSpec, database: Database, classes: Sequence[Any] | None, where: str
) -> Target:
    if spec.type == "recommendation":
        return _link_target(column, spec, database, where)
    if spec.type == "regression":
        return np.asarray(column.cast(pa.float64()).to_numpy(), dtype=np.float64)
    if spec.type == "binary_classification":
        return _binary_target(column, where)
    known = pa.array(classes) if classes is not None else pc.unique(column).sort()
    codes = pc.index_in(column, known.cast(column.type))
    unseen = column.filter(pc.is_null(codes))
    if len(unseen):
        raise TaskError(
            "L07",
            f"{where}: {len(unseen):,} labels are of classes that train does not have "
            f"{examples(v.as_py() for v in pc.unique(unseen))}",
            "merge the rare classes, or move the cut-offs",
        )
    return np.asarray(codes.to_numpy(), dtype=np.int64)


def _binary_target(column: pa.ChunkedArray, where: str) -> NDArray[np.int64]:
    values = pc.unique(column).to_pylist()
    if not all(value in (0, 1) for value in values):
        shown = examples(sorted(map(str, values)), limit=6)
        raise TaskError(
            "L07",
            f"{where}: labels of a binary task must be 0 or 1, got {len(values)} values {shown}",
            f"choose the positive class in the SQL, e.g. (label = {values[0]!r})::INT, "
            "or say task_type: multiclass_classification",
        )
    return np.asarray(column.cast(pa.int64()).to_numpy(), dtype=np.int64)


def _link_target(column: pa.ChunkedArray, spec: TaskSpec, database: Database, where: str) -> Links:
    """The recommended rows as global ids; each cell holds one key or a list of keys."""
    array = column.combine_chunks()
    if not pa.types.is_list(array.type) and not pa.types.is_large_list(array.type):
        array = pa.ListArray.from_arrays(np.arange(len(array) + 1, dtype=np.int32), array)
    lengths = pc.list_value_length(array).to_numpy()
    item = database[spec.item_table]
    columns = LabelColumns("", spec.target_col, "")
    rows = _entity_rows(pa.chunked_array([array.flatten()]), item, columns, where)
    return Links(np.concatenate([[0], np.cumsum(lengths)]), rows + database.offsets[item.name])


def _check_repeats(seeds: Seeds, entity: Table, rows: NDArray[np.int64], where: str) -> None:
    """One seed with two labels is a contradiction, not data."""
    if isinstance(seeds.target, Links) or seeds.target is None:
        return
    order = np.lexsort((seeds.target, seeds.time, seeds.node))
    node, time, target = seeds.node[order], seeds.time[order], seeds.target[order]
    clash = (node[1:] == node[:-1]) & (time[1:] == time[:-1]) & (target[1:] != target[:-1])
    if clash.any():
        first = [int(order[place]) for place in np.flatnonzero(clash)[:3]]
        shown = [f"{entity.key_map.show(int(rows[i]))} at {show_instant(int(seeds.time[i]))}" for i in first]
        raise TaskError(
            "L10",
            f"{where}: {int(clash.sum()):,} seeds stand there twice with different labels {examples(shown)}",
            "keep one label for each (entity, time)",
        )


def early_text(
    entity: Table, rows: NDArray[np.int64], times: NDArray[np.int64], early: NDArray[np.bool_]
) -> str:
    """How many seeds ask about rows that are newer than the asked time, with the first of them."""
    place = int(np.flatnonzero(early)[0])
    key = entity.key_map.show(int(rows[place])) if entity.primary_key else f"row {rows[place]}"
    return (
        f"{int(early.sum()):,} prediction rows ask about {entity.name} created after the asked time "
        f"({key} created {show_instant(int(entity.known_at[rows[place]]))}, "
        f"asked {show_instant(int(times[place]))})"
    )


def _early(
    entity: Table,
    rows: NDArray[np.int64],
    times: NDArray[np.int64],
    early: NDArray[np.bool_],
    on_early_seed: str,
    where: str,
) -> Finding:
    text, count = f"{where}: {early_text(entity, rows, times, early)}", int(early.sum())
    if on_early_seed == "error":
        raise TimeError("T05", text, 'correct the task, or load it with on_early_seed="drop"')
    return warning("T05", where, text + "; left out", count)
