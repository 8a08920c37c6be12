"""Label rows (time, entity, target): from a file or a table, from the task's SQL, or from a column."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from quartet.causal import TimeRule, num_visible
from quartet.database import (
    NO_SUCH_KEY,
    Database,
    ForeignKey,
    KeyColumn,
    KeyMap,
    Table,
    canonical,
    exact_rows,
    read_table,
)
from quartet.errors import SchemaError, TaskError, TimeError, UsageError, did_you_mean, examples
from quartet.machine import set_aside
from quartet.tasks.kept import KeptAnswers, RowDigests
from quartet.tasks.sandbox import TaskTables
from quartet.tasks.spec import TaskSpec
from quartet.tasks.splits import Split, Splits, forecast_times, no_times
from quartet.times import NEVER, STATIC, show_instant, show_length, to_arrow, to_utc

_MOST_TIMES = 1_000_000  # at which labels are made
_MOST_LINKED = 1000  # rows of another table that are classes of a link to it
_LONG_AGO = STATIC + 1  # which DuckDB reads as -infinity: before every window that has a start
_LABEL_TYPES = (
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_boolean,
    pa.types.is_string,
    pa.types.is_null,
)


@dataclass(frozen=True)
class LabelColumns:
    """The names of the three columns of a label table, the zone of its times, and whether a label is a list."""

    time: str
    entity: str
    target: str
    timezone: str | None = None
    holds_lists: bool = False

    @staticmethod
    def of(spec: TaskSpec, entity: Table) -> LabelColumns:
        if spec.kind != "autocomplete":
            is_list = spec.facts.holds_lists
            return LabelColumns(spec.time_col, spec.entity_col, spec.target_col, spec.timezone, is_list)
        if entity.schema.time is None:
            raise TaskError(
                "L01", f'task "{spec.name}" fills in a column of "{entity.name}", which has no time column'
            )
        # RelBench names the row number "primary_key" where a table has no key of its own.
        key = entity.primary_key[0] if entity.primary_key else "primary_key"
        holds_lists = spec.facts.holds_lists
        return LabelColumns(entity.schema.time.column, key, spec.target_col, holds_lists=holds_lists)

    def select(self, table: pa.Table, where: str) -> pa.Table:
        """Returns the table with just these three columns, as canonical as those of a database, and its times in UTC.

        NaN is no label. Columns that are missing, repeated or of unfit types are errors.
        """
        for name in self.names:
            if name not in table.column_names:
                raise TaskError(
                    "L12",
                    f'{where} has no column "{name}"; task SQL must return (entity, time, label)'
                    + did_you_mean(name, table.column_names),
                    "rename the column, or correct entity_col, time_col or target_col of the task",
                )
            if table.column_names.count(name) > 1:
                text = f'{where} has {table.column_names.count(name)} columns "{name}"'
                raise TaskError("L12", text, "return each column once")
            kind = table.schema.field(name).type
            is_list = self.holds_lists and name == self.target
            if (pa.types.is_nested(kind) and not is_list) or pa.types.is_interval(kind):
                raise TaskError("L12", f'{where}: column "{name}" is {kind}', "return a plain value")
        times = to_utc(table[self.time], f"{where}, column {self.time}", timezone=self.timezone)
        in_utc = pa.array(times.ns, pa.timestamp("ns", "UTC"), mask=times.missing)
        plain = canonical(table.select([self.entity, self.target]), where)
        target = plain[self.target]
        if not self.holds_lists and not any(test(target.type) for test in _LABEL_TYPES):
            fix = "return numbers or text"
            raise TaskError("L07", f"{where}: labels are {target.type}, neither numbers nor text", fix)
        if pa.types.is_floating(target.type):
            target = pc.if_else(pc.is_nan(target), None, target)
        return pa.table([in_utc, plain[self.entity], target], names=self.names)

    @property
    def names(self) -> list[str]:
        return [self.time, self.entity, self.target]


def read_labels(source: object) -> pa.Table:
    """Returns the label table in a Parquet or CSV file, in a data frame, or in an Arrow table.

    It is read as a table of a database would be, so that its keys are those of the tables.
    """
    is_file = isinstance(source, (str, Path))
    if not is_file and not hasattr(source, "__arrow_c_stream__"):  # as tables and data frames have
        raise UsageError(
            "C02",
            f"labels are given as {type(source).__name__}",
            "give a data frame, an Arrow table, or the path of a Parquet or CSV file",
        )
    if is_file and not Path(str(source)).is_file():
        raise TaskError("L01", f'there is no label file "{source}"', "check the path of the labels")
    try:
        return read_table(source, "labels")
    except (SchemaError, OSError) as error:
        reason = error.what if isinstance(error, SchemaError) else error
        raise TaskError("L01", f"the labels cannot be used: {reason}", "give a table") from None


def label_times(column: pa.ChunkedArray, where: str) -> NDArray[np.int64]:
    """Returns the prediction times of label rows; an empty one is an error."""
    parsed = to_utc(column, where)
    if parsed.missing.any():
        count = int(parsed.missing.sum())
        raise TaskError("T03", f"{where}: the prediction time is empty in {count:,} rows", "fill it in")
    return parsed.ns


def has_label(target: pa.ChunkedArray) -> pa.ChunkedArray:
    """Returns which cells of a target column hold a label."""
    if pa.types.is_floating(target.type):
        return pc.fill_null(pc.invert(pc.is_nan(target)), False)
    return pc.is_valid(target)


def rows_of_keys(keys: pa.ChunkedArray, table: Table, where: str) -> NDArray[np.int64]:
    """Returns the row of a table that each key names, and a number below 0 where it names none.

    A number and the same number as text name one row: a CSV file does not tell which of them it means.
    """
    if len(table.primary_key) > 1:
        raise TaskError("L11", f'table "{table.name}" has a composite key; a task needs a single one')
    if table.num_rows == 0:
        raise TaskError("S02", f'the entity table "{table.name}" has 0 rows')
    numbers = KeyColumn(
        f"the row number of {table.name}", "int64", pa.chunked_array([np.arange(table.num_rows)])
    )
    known = table.key_map if table.primary_key else KeyMap([numbers])
    wanted = KeyColumn.of(keys, where)
    if wanted.kind == known.kinds[0]:
        return known.rows([wanted])
    texts = [
        replace(each, kind="text", values=each.values.cast(pa.string()))
        for each in (known.columns[0], wanted)
    ]
    rows = KeyMap(texts[:1]).rows(texts[1:])
    if len(rows) and (rows == NO_SUCH_KEY).all():
        told, kind = known.columns[0].where, known.kinds[0]
        raise TaskError("S08", f"{where} is {wanted.kind}, {told} is {kind}", "cast one")
    return rows


# --- made from the database -----------------------------------------------------------------------


def forecast_labels(spec: TaskSpec, database: Database, splits: Splits, split: Split) -> pa.Table:
    """Returns the labels of a split of a forecast, made by the task's SQL.

    Labels of train and validation are made from the database up to the test cut-off, as RelBench does. Labels about
    nobody, or about entities that do not exist at that cut-off, stay, to be counted.
    """
    if database.span is None:
        raise no_times(f'task "{spec.name}" forecasts, but no table has a time column', database.possible)
    num_windows = (database.span[1] - database.span[0]) // spec.horizon
    if num_windows > _MOST_TIMES:
        text = f'task "{spec.name}": the data span {num_windows:,} windows of {show_length(spec.horizon)}'
        raise TimeError("T13", text, f"give a longer timedelta, for at most {_MOST_TIMES:,} windows")
    times = forecast_times(split, splits, spec.horizon, spec.num_eval_times, database.span, spec.known_after)
    upto = None if split == "test" else splits.test
    (labels,) = _TimedTables.of(database).answers(
        spec, [(times, upto)], lambda rows, own: (_in_order(rows, spec, database, own), True)
    )
    return labels


def labels_at(
    spec: TaskSpec, database: Database, times: NDArray[np.int64], upto: int | None, gap: Gap | None = None
) -> pa.Table:
    """Returns the rows of the task's SQL for some times over the database up to a time, in a fixed order.

    With a `gap`, rows of one table that became known in it are taken away.
    """
    return _in_order(_TimedTables.of(database).query(spec, times, upto, gap), spec, database, times)


def closed_labels(spec: TaskSpec, database: Database, times: NDArray[np.int64]) -> pa.Table:
    """Returns the label rows of some times, each made from the rows known when its window closed, and from no others.

    Whatever the SQL looks at, no label holds anything that came after the moment from which on it is shown. Windows
    that were made before from the same rows, in this process or an earlier one, are not made again.
    """

    def finished(rows: pa.Table, own: NDArray[np.int64]) -> tuple[pa.Table, bool]:
        labels = _in_order(rows, spec, database, times)
        told = label_times(labels[spec.time_col], f'task "{spec.name}"')
        return labels.filter(pc.is_valid(labels[spec.entity_col])), bool(np.isin(told, own).all())

    asked: list[tuple[NDArray[np.int64], int | None]] = [
        (times[:0], STATIC)
    ]  # no rows, but the types of the columns
    asked += [
        (np.array([time]), int(closed_at))
        for time, closed_at in zip(times, spec.known_at(times), strict=True)
    ]
    return pa.concat_tables(_TimedTables.of(database).answers(spec, asked, finished))


def asked_entities(
    spec: TaskSpec, database: Database, times: NDArray[np.int64], upto: int, rule: TimeRule = "<="
) -> pa.Table:
    """Returns the (time, entity) rows of whom the task asks about at some times, by the rows known at `upto` alone.

    They are those of the task's `population`, or else of its label SQL, whose labels are of no use where their windows
    are not over.
    """
    asking = replace(spec, sql=spec.population or spec.sql)
    columns = LabelColumns.of(spec, database[spec.entity_table])

    def finished(rows: pa.Table, own: NDArray[np.int64]) -> tuple[pa.Table, bool]:
        kept = [
            place for place, name in enumerate(rows.column_names) if name in (columns.time, columns.entity)
        ]
        rows = rows.select(kept).append_column(columns.target, pa.nulls(rows.num_rows))
        return _in_order(rows, spec, database, own).select([columns.time, columns.entity]), True

    (entities,) = _TimedTables.of(database).answers(asking, [(times, upto)], finished, rule)
    return entities


@dataclass(frozen=True)
class Gap:
    """The rows of a table that became known after one time and up to another."""

    table: str
    after: int
    upto: int


def known_column(table: Table) -> str | None:
    """Returns the column that tells task SQL when the rows of a table became known; None if they always were.

    It is the time column or, where rows are known at another time than that (`available_at`, the end of a period,
    always although it is empty), a column `known_at` that SQL finds beside the others.
    """
    time = table.schema.time
    if time is None:
        return None
    if not table.schema.available_at and not time.end_of and time.on_missing != "always_known":
        return time.column
    taken, name = {column.lower() for column in table.data.column_names}, "known_at"
    while name in taken:
        name += "_"
    return name


def _ascends(values: NDArray[np.int64]) -> bool:
    return bool((values[1:] >= values[:-1]).all())


class _TimedTables:
    """The tables of a database as task SQL reads them: rows in the order of time, so that the past is a slice."""

    _of: ClassVar[WeakKeyDictionary[Database, _TimedTables]] = WeakKeyDictionary()

    @staticmethod
    def of(database: Database) -> _TimedTables:
        if database not in _TimedTables._of:
            _TimedTables._of[database] = _TimedTables(database.tables)
        return _TimedTables._of[database]

    def __init__(self, tables: Mapping[str, Table]) -> None:
        is_sorted = {name: _ascends(table.known_at) for name, table in tables.items()}
        self.known_at = {
            name: table.known_at if is_sorted[name] else set_aside(np.sort(table.known_at))
            for name, table in tables.items()
        }

        def in_order(name: str) -> pa.Table:
            data = tables[name].data
            column = known_column(tables[name])
            if column and column not in data.column_names:
                known_at = tables[name].known_at
                data = data.append_column(column, to_arrow(np.where(known_at == STATIC, _LONG_AGO, known_at)))
            if is_sorted[name]:
                return data
            return data.take(pa.array(np.argsort(tables[name].known_at, kind="stable")))

        def hashes(name: str) -> tuple[bytes, NDArray[np.uint64]] | None:
            table = tables[name]
            columns = [*table.data.columns, pa.chunked_array([table.known_at])]
            rows = exact_rows(columns, table.num_rows)
            fields = [(field.name, str(field.type)) for field in table.data.schema]
            about = repr((fields, known_column(table))).encode()
            return None if rows is None else (about, rows[np.argsort(table.known_at, kind="stable")])

        self.sandbox, self.digests = TaskTables(tables, in_order), RowDigests(hashes)
        self.kept: dict[tuple[Any, ...], KeptAnswers] = {}

    def answers(
        self,
        spec: TaskSpec,
        asked: Sequence[tuple[NDArray[np.int64], int | None]],
        finished: Callable[[pa.Table, NDArray[np.int64]], tuple[pa.Table, bool]],
        rule: TimeRule = "<=",
    ) -> list[pa.Table]:
        """Returns the finished rows of the task's SQL for times over the database up to a time, each made once ever.

        `finished` tells what becomes of rows as SQL gives them, and whether that depends on them alone.
        """
        facts = (spec.sql, spec.horizon, spec.time_col, spec.entity_col, spec.target_col, spec.type, rule)
        of = (*facts, finished.__qualname__)
        if of not in self.kept:
            self.kept[of] = KeptAnswers(spec.sql, {"facts": facts[1:], "finished": finished.__qualname__})
        kept, names = self.kept[of], self.sandbox.names_in(spec.sql)
        keys = [
            kept.key(times, {name: self._ranges(name, upto, None, rule) for name in names}, self.digests)
            for times, upto in asked
        ]
        tables = []
        for key, (times, upto) in zip(keys, asked, strict=True):
            table = kept.get(key)
            if table is None:
                table, is_pure = finished(self.query(spec, times, upto, rule=rule), times)
                kept.put(key if is_pure else None, table)
            tables.append(table)
        kept.write(keys)
        return tables

    def query(
        self,
        spec: TaskSpec,
        times: NDArray[np.int64],
        upto: int | None,
        gap: Gap | None = None,
        rule: TimeRule = "<=",
    ) -> pa.Table:
        """Returns the rows of the task's SQL as they come (see `labels_at`)."""
        where = f'task "{spec.name}"'
        return self.sandbox.query(
            spec.sql, times, spec.horizon, where, lambda name: self._ranges(name, upto, gap, rule)
        )

    def _ranges(self, name: str, upto: int | None, gap: Gap | None, rule: TimeRule) -> list[tuple[int, int]]:
        """Returns which rows of a table, in the order of time, are known by then and not taken away."""
        known_at = self.known_at[name]
        end = len(known_at) if upto is None else int(num_visible(known_at, upto, rule))
        if gap is None or gap.table != name:
            return [(0, end)]
        first, last = (int(num_visible(known_at, time)) for time in (gap.after, gap.upto))
        return [(0, min(first, end)), (min(last, end), end)]


def column_labels(spec: TaskSpec, database: Database) -> pa.Table:
    """Returns the labels of an autocomplete task: the rows of the entity table, each at its own time."""
    entity = database[spec.entity_table]
    columns = LabelColumns.of(spec, entity)
    if spec.target_col not in entity.data.column_names:
        raise TaskError(
            "L01",
            f'table "{entity.name}" has no column "{spec.target_col}"'
            + did_you_mean(spec.target_col, entity.data.column_names),
        )
    link = link_of(entity, spec.target_col)
    what = f"the target {entity.name}.{spec.target_col}"
    if spec.type == "recommendation":
        if link is None or link.table != spec.item_table:
            leads = f'a link to "{link.table}"' if link else "no link"
            text = f'{what} is {leads}, and rows of "{spec.item_table}" are to be recommended'
            raise TaskError("L02", text, "name a link as target_col, and its table as dst_entity_table")
    elif link is not None and spec.type == "multiclass_classification":
        count = pc.count_distinct(entity.data[spec.target_col]).as_py()
        if count > _MOST_LINKED:
            text = f"{what} names {count:,} rows of {link.table}: too many for classes"
            fix = f"say task_type: recommendation and dst_entity_table: {link.table}, and the likeliest are listed"
            raise TaskError("L02", text, fix)
    elif spec.target_col in (*key_columns(entity), columns.time):
        fix = "choose a value column"
        if link is not None:
            fix = f"say task_type: multiclass_classification, where a class is a row of {link.table}"
        text = f"{what} is a key or the time of its table"
        raise TaskError("L02", text, fix)
    keys = entity.data[columns.entity] if entity.primary_key else pa.array(np.arange(entity.num_rows))
    target = entity.data[spec.target_col]
    is_dated = ~np.isin(entity.known_at, (STATIC, NEVER))
    times = to_arrow(np.where(is_dated, entity.known_at, NEVER))
    labels = pa.table([times, keys, target], names=columns.names)
    # A row without a value is no label that was lost, and one that is always or never known has no time to ask at.
    labels = labels.filter(pc.and_(has_label(target), pa.array(is_dated)))
    labels = columns.select(labels, f'task "{spec.name}"')
    return labels.sort_by([(columns.time, "ascending"), (columns.entity, "ascending")])


def link_of(table: Table, column: str) -> ForeignKey | None:
    """Returns the link that a column makes by itself; None if it makes none, or is of the key of its table."""
    links = (link for link in table.schema.foreign_keys if link.columns == (column,))
    return None if column in table.primary_key else next(links, None)


def key_columns(table: Table) -> set[str]:
    """Returns the columns of a table that are keys or links."""
    return {*table.primary_key, *(column for fk in table.schema.foreign_keys for column in fk.columns)}


def _in_order(labels: pa.Table, spec: TaskSpec, database: Database, times: NDArray[np.int64]) -> pa.Table:
    columns = LabelColumns.of(spec, database[spec.entity_table])
    labels = replace(columns, timezone=None).select(labels, f'the SQL of task "{spec.name}"')
    where = f'task "{spec.name}", column {columns.time}'
    told = label_times(labels[columns.time], where)
    strange = np.setdiff1d(told, times)
    if len(strange):
        raise TaskError(
            "L22",
            f"{where}: the SQL returns {np.isin(told, strange).sum():,} of {len(told):,} rows at times that are no "
            f"prediction times {examples(map(show_instant, map(int, strange[:3])))}",
            "return the asked time: SELECT t.timestamp AS ... FROM timestamps t JOIN ...",
        )
    return labels.sort_by([(columns.time, "ascending"), (columns.entity, "ascending")])
