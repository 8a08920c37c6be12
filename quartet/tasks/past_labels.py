"""Past labels: the labels of a task that are already known, as one more table `known_labels` of its database.

Each row links to its `entity` and is known from `known_at` on, when the window of the `label` has closed; a list of
classes is one cell, and of recommended items each has a row of its own that links to it. It is like any other row:
samplers find it, features are fitted to it, and the causal predicate decides who sees it. No seed sees its own label,
nor one whose window is still open (docs/past-labels.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from quartet.causal import visible
from quartet.database import FACTS, Database, ForeignKey, TableSchema, TimeColumn
from quartet.errors import SchemaError, TaskError
from quartet.findings import Finding, note
from quartet.tasks.binding import repeated_labels
from quartet.tasks.classes import class_target, label_lists, label_values
from quartet.tasks.labels import LabelColumns, closed_labels, column_labels, has_label, label_times
from quartet.tasks.seeds import Links, Seeds
from quartet.tasks.spec import TaskSpec
from quartet.tasks.splits import Splits, past_label_times
from quartet.times import show_instant, to_arrow

KNOWN_LABELS = "known_labels"
LABEL = "label"  # its column
_ENTITY, _KNOWN_AT = "entity", "known_at"
_CASE_WINDOWS = 24


def with_past_labels(
    database: Database, spec: TaskSpec, splits: Splits, upto: int, labels: pa.Table | None = None
) -> Database:
    """Returns the database with the table of all labels that are known at a time.

    `labels` are the task's label rows, where neither SQL nor a column can tell them.
    """
    if KNOWN_LABELS in database.tables:
        raise SchemaError(
            "S15",
            f'the past labels of task "{spec.name}" become a table "{KNOWN_LABELS}", but the database has one of '
            "that name",
            "rename that table, or train without past labels",
        )
    schema = _schema(database, spec)
    if labels is None:
        labels = derived_labels(database, spec, splits, upto)
    return database.adding(KNOWN_LABELS, _label_table(database, spec, labels, upto), schema)


def past_label_findings(spec: TaskSpec) -> list[Finding]:
    """Returns a note where past labels count as known right after their rows."""
    if spec.lag:
        return []
    text = f'labels of "{spec.target_col}" count as known right after the time of their rows'
    fix = "if they are filled in later, say `known_after: 12 hours` in the task's YAML file"
    return [note("L13", spec.name, text, fix=fix)]


def derived_labels(
    database: Database, spec: TaskSpec, splits: Splits, upto: int, most_windows: int = 0
) -> pa.Table:
    """Returns the label rows that follow from a database at a time, by the task's SQL or its column.

    Of the windows of a forecast, so many of the latest; 0: all.
    """
    if spec.kind == "autocomplete":
        return column_labels(spec, database)
    if spec.kind != "forecast":
        raise TaskError(
            "L01",
            f'the labels of task "{spec.name}" are in a table of their own and do not follow from the database',
            "give the label rows that are known by now: `--labels FILE`, in Python `labels=`",
        )
    first = database.span[0] if database.span else upto  # without a dated row no window has closed
    times = past_label_times(splits, spec.horizon, spec.num_eval_times, first, upto, spec.known_after)
    return closed_labels(spec, database, times[-most_windows:])


def known_cases(
    database: Database,
    spec: TaskSpec,
    splits: Splits,
    classes: Sequence[Any] | None,
    upto: int,
    labels: pa.Table | None = None,
) -> Seeds:
    """Returns the seeds of the latest windows whose labels are known at a time, with these labels, in a fixed order.

    There are none where labels are lists, or in a table of their own that is not given, or entities have no key to find
    them by. Classes that training does not have are among them.
    """
    has_key = len(database[spec.entity_table].primary_key) == 1
    if not has_key or spec.facts.holds_lists or (labels is None and spec.kind == "external"):
        return Seeds(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))
    if labels is None:
        labels = derived_labels(database, spec, splits, upto, _CASE_WINDOWS)
    table = _label_table(database, spec, labels, upto)
    whole = database.adding(KNOWN_LABELS, table, _schema(database, spec))
    return past_label_seeds(whole, spec, classes, with_unseen=True)


def cases_at(
    database: Database,
    spec: TaskSpec,
    classes: Sequence[Any] | None,
    times: NDArray[np.int64],
    upto: int,
    labels: pa.Table | None = None,
) -> Seeds:
    """Returns the seeds of some times whose labels are known at a time, with these labels.

    Each label of a forecast is made from the rows known when its window closed. Other labels belong to rows, and are
    all that are known.
    """
    if labels is None and spec.kind == "forecast":
        closed = np.unique(times[visible(spec.known_at(times), upto)])
        labels = closed_labels(spec, database, closed)
    elif labels is None:
        labels = derived_labels(database, spec, Splits(0, 1), upto)  # of rows: no window is asked for
    table = _label_table(database, spec, labels, upto)
    whole = database.adding(KNOWN_LABELS, table, _schema(database, spec))
    return past_label_seeds(whole, spec, classes, with_unseen=True)


def past_label_seeds(
    database: Database, spec: TaskSpec, classes: Sequence[Any] | None, with_unseen: bool = False
) -> Seeds:
    """Returns the rows of `known_labels` as the seeds whose labels they were.

    Those of classes that training does not have are among them if that is asked for.
    """
    table = database[KNOWN_LABELS]
    rows, *of_item = (relation.rows for relation in database.relations if relation.table == KNOWN_LABELS)
    if spec.type == "recommendation":  # a row for each item
        has_both = (rows >= 0) & (of_item[0] >= 0)
        pairs = np.stack([rows[has_both], table.known_at[has_both] - spec.known_at(0)], 1)
        order = np.lexsort(pairs.T)
        items = of_item[0][has_both][order] + database.offsets[spec.item_table]
        pairs, first = np.unique(pairs[order][:, ::-1], axis=0, return_index=True)
        links = Links(np.append(first, len(items)), items)
        return Seeds(pairs[:, 1] + database.offsets[spec.entity_table], pairs[:, 0], links)
    target, has_target = table.data[LABEL], rows >= 0
    if not spec.facts.is_number:
        known = [0, 1] if classes is None else classes
        target = class_target(target, known, spec, f'the past labels of task "{spec.name}"')
        if not with_unseen:  # training may not have had a class that came up since
            has_target &= target < len(known) if target.ndim == 1 else True
            target = target[:, : len(known)] if target.ndim > 1 else target
    node, time = rows + database.offsets[spec.entity_table], table.known_at - spec.known_at(0)
    return Seeds(node, time, np.asarray(target)).select(has_target)


def _label_table(database: Database, spec: TaskSpec, labels: pa.Table, upto: int) -> pa.Table:
    """Returns label rows as rows of `known_labels`: each once, with a label, and known at a time."""
    where = f'the past labels of task "{spec.name}"'
    columns = LabelColumns.of(spec, database[spec.entity_table])
    labels = columns.select(labels, where)
    labels = labels.filter(has_label(labels[columns.target]))
    known_at = spec.known_at(label_times(labels[columns.time], where))
    label = labels[columns.target]
    if spec.facts.is_number:  # the last bits of a sum depend on the order of its rows
        label = label.cast(pa.float32(), safe=False)
    distinct = None
    if spec.type == "recommendation":
        return _item_rows(labels.select([columns.entity, columns.target]), known_at, upto)
    if spec.facts.holds_lists:  # Arrow groups no lists, but their numbers
        label_values(label, spec, where)
        label, distinct = _numbered(label_lists(label, where))
    table = pa.table([labels[columns.entity], to_arrow(known_at), label], names=[_ENTITY, _KNOWN_AT, LABEL])
    rows = table.filter(pa.array(visible(known_at, upto))).group_by([_ENTITY, _KNOWN_AT], use_threads=False)
    once = rows.aggregate([(LABEL, "first"), (LABEL, "count_distinct")])
    clash = once.filter(pc.greater(once[f"{LABEL}_count_distinct"], 1))
    if clash.num_rows:
        times = pc.cast(clash[_KNOWN_AT], pa.int64()).to_numpy()[:3] - spec.known_at(0)
        pairs = zip(clash[_ENTITY].to_pylist(), times, strict=False)
        shown = [f"{entity} at {show_instant(int(time))}" for entity, time in pairs]
        raise repeated_labels(where, clash.num_rows, shown)
    once = once.select([_ENTITY, _KNOWN_AT, f"{LABEL}_first"]).rename_columns([_ENTITY, _KNOWN_AT, LABEL])
    if distinct is not None:
        once = once.set_column(2, LABEL, distinct.take(once[LABEL]))
    return once.sort_by([(_KNOWN_AT, "ascending"), (_ENTITY, "ascending")])


def _item_rows(labels: pa.Table, known_at: NDArray[np.int64], upto: int) -> pa.Table:
    """Returns labels that name items as rows of `known_labels`, one for each item."""
    is_known = visible(known_at, upto)
    entity, items = labels[0].filter(pa.array(is_known)), labels[1].filter(pa.array(is_known))
    times, lists = known_at[is_known], items.combine_chunks()
    if pa.types.is_list(lists.type) or pa.types.is_large_list(lists.type):
        of = np.repeat(np.arange(len(lists)), pc.list_value_length(lists).to_numpy())
        entity, times, items = entity.take(pa.array(of)), times[of], pa.chunked_array([lists.flatten()])
    names = [_ENTITY, _KNOWN_AT, LABEL]
    once = (
        pa.table([entity, to_arrow(times), items], names=names)
        .group_by(names, use_threads=False)
        .aggregate([])
    )
    return once.sort_by([(_KNOWN_AT, "ascending"), (_ENTITY, "ascending"), (LABEL, "ascending")])


def _numbered(lists: pa.ListArray) -> tuple[pa.Array, pa.Array]:
    """Returns the number of each list among the distinct ones, and these: each class once, in order.

    Numbers with fractions are told as text.
    """
    numbers: dict[tuple[Any, ...], int] = {}
    number = [numbers.setdefault(tuple(sorted(set(cell))), len(numbers)) for cell in lists.to_pylist()]
    kind = lists.type.value_type
    distinct = pa.array([list(cell) for cell in numbers], pa.list_(kind))
    if pa.types.is_floating(kind):
        distinct = distinct.cast(pa.list_(pa.string()))
    return pa.array(number, pa.int64()), distinct


def _schema(database: Database, spec: TaskSpec) -> TableSchema:
    entity = database[spec.entity_table]
    kind = "number" if spec.facts.is_number else "multicategory" if spec.facts.holds_lists else "category"
    if len(entity.primary_key) != 1:
        raise TaskError(
            "L11", f'table "{entity.name}" has no single primary key, so past labels cannot link to its rows'
        )
    links = (ForeignKey((_ENTITY,), entity.name),)
    if spec.type == "recommendation":  # a row for each item
        return TableSchema(
            primary_key=(_ENTITY, _KNOWN_AT, LABEL),
            foreign_keys=(*links, ForeignKey((LABEL,), spec.item_table)),
            time=TimeColumn(_KNOWN_AT),
            settled=FACTS,
        )
    return TableSchema(
        primary_key=(_ENTITY, _KNOWN_AT),
        foreign_keys=links,
        time=TimeColumn(_KNOWN_AT),
        settled=FACTS,
        kinds={LABEL: kind},
    )
