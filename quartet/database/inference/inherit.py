"""Times that rows take from the rows they point to: an order's line is known when the order is.

A table without a time counts as always known. Where its rows belong to rows that have a time, that would
show them before they existed; `time_from` gives them the time of what they point to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from quartet.database.keys import KeyColumn, KeyMap
from quartet.database.schema import ForeignKey, Schema, TableSchema
from quartet.errors import TimeError, did_you_mean
from quartet.times import NEVER, to_arrow, to_utc


def inherit_times(tables: Mapping[str, pa.Table], schema: Schema) -> tuple[dict[str, pa.Table], Schema]:
    """Returns the tables with a time column made for each `time_from`, and the schema that names it."""
    data, known = dict(tables), dict(schema.tables)
    waiting = {name: _link(name, table) for name, table in known.items() if table.time and table.time.link}
    while waiting:
        ready = {name: link for name, link in waiting.items() if link.table not in waiting}
        if not ready:
            raise TimeError("T01", f"time_from goes in a circle: {', '.join(sorted(waiting))}", "break it")
        for name, link in ready.items():
            data[name], known[name] = _inherited(name, link, data, known)
            del waiting[name]
    return data, replace(schema, tables=known)


def _link(name: str, table: TableSchema) -> ForeignKey:
    wanted = table.time.link if table.time else ()
    for foreign_key in table.foreign_keys:
        if foreign_key.columns == wanted:
            return foreign_key
    label = ", ".join(wanted)
    meant = did_you_mean(label, [fk.label for fk in table.foreign_keys])
    text = f'table "{name}" has no link "{label}" to take its time from{meant}'
    raise TimeError("T01", text, "name a link")


def _inherited(
    name: str, link: ForeignKey, data: Mapping[str, pa.Table], known: Mapping[str, TableSchema]
) -> tuple[pa.Table, TableSchema]:
    def keys(table: str, columns: tuple[str, ...]) -> list[KeyColumn]:
        return [KeyColumn.of(data[table][column], f"{table}.{column}") for column in columns]

    own, parent = known[name].time, known[link.table]
    spec = parent.time
    if own is None or spec is None:
        raise TimeError(
            "T01",
            f'table "{name}" takes its time from "{link.table}", which has no time itself',
            f"give {link.table} a time_col",
        )
    times = [
        to_utc(data[link.table][column], f"{link.table}.{column}", spec.unit, spec.format, spec.timezone).ns
        for column in (spec.column, parent.available_at)
        if column
    ]
    rows = KeyMap(keys(link.table, link.references or parent.primary_key)).rows(keys(name, link.columns))
    known_at = np.append(
        np.maximum.reduce(times), NEVER
    )  # row -1: a row that points to none is never visible
    column = f"{link.table}.{spec.column}"
    dated = data[name].append_column(column, to_arrow(known_at[np.where(rows >= 0, rows, -1)]))
    return dated, replace(known[name], time=replace(own, column=column))
