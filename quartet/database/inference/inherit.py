"""Times that rows take from the rows they point to: an order's line is known when the order is.

A table without a time counts as always known. Where its rows belong to rows that have a time, that would
show them before they existed; `time_from` gives them the time of what they point to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from quartet.database.keys import KeyColumn, KeyMap
from quartet.database.schema import ForeignKey, Schema, TableSchema, TimeColumn
from quartet.errors import TimeError, did_you_mean
from quartet.times import NEVER, to_arrow, to_utc


def inherit_times(tables: Mapping[str, pa.Table], schema: Schema) -> tuple[dict[str, pa.Table], Schema]:
    """The tables with a time column made for each `time_from`, and the schema that names it."""
    data, known = dict(tables), dict(schema.tables)
    waiting = [name for name, table in known.items() if table.time and table.time.link]
    while waiting:
        ready = [name for name in waiting if _link(name, known[name]).table not in waiting]
        if not ready:
            raise TimeError("T01", f"time_from goes in a circle: {', '.join(sorted(waiting))}", "break it")
        for name in ready:
            data[name], known[name] = _inherited(name, data, known)
            waiting.remove(name)
    return data, replace(schema, tables=known)


def _time(table: TableSchema) -> TimeColumn:
    assert table.time is not None
    return table.time


def _link(name: str, table: TableSchema) -> ForeignKey:
    wanted = _time(table).link
    for foreign_key in table.foreign_keys:
        if foreign_key.columns == wanted:
            return foreign_key
    label = ", ".join(wanted)
    meant = did_you_mean(label, [fk.label for fk in table.foreign_keys])
    raise TimeError(
        "T01", f'table "{name}" has no link "{label}" to take its time from{meant}', "name a link"
    )


def _inherited(
    name: str, data: Mapping[str, pa.Table], known: Mapping[str, TableSchema]
) -> tuple[pa.Table, TableSchema]:
    foreign_key = _link(name, known[name])
    parent = known[foreign_key.table]
    if parent.time is None:
        raise TimeError(
            "T01",
            f'table "{name}" takes its time from "{foreign_key.table}", which has no time itself',
            f"give {foreign_key.table} a time_col",
        )
    times = _known_at(foreign_key.table, data[foreign_key.table], parent)
    rows = _parent_rows(name, data, foreign_key, parent)
    ns = np.where(rows >= 0, times[rows] if len(times) else NEVER, NEVER)
    column = f"{foreign_key.table}.{parent.time.column}"
    time = replace(_time(known[name]), column=column)
    return data[name].append_column(column, to_arrow(ns)), replace(known[name], time=time)


def _known_at(name: str, table: pa.Table, schema: TableSchema) -> NDArray[np.int64]:
    spec = _time(schema)
    columns = [spec.column, *([schema.available_at] if schema.available_at else [])]
    parsed = [to_utc(table[c], f"{name}.{c}", spec.unit, spec.format, spec.timezone).ns for c in columns]
    return np.asarray(np.maximum.reduce(parsed))


def _parent_rows(
    name: str, data: Mapping[str, pa.Table], foreign_key: ForeignKey, parent: TableSchema
) -> NDArray[np.int64]:
    def keys(table: str, columns: tuple[str, ...]) -> list[KeyColumn]:
        return [KeyColumn.of(data[table][column], f"{table}.{column}") for column in columns]

    target = foreign_key.references or parent.primary_key
    return KeyMap(keys(foreign_key.table, target)).rows(keys(name, foreign_key.columns))
