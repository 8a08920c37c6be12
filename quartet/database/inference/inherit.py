"""Times that rows take from the rows they point to: an order's line is known when the order is.

A table without a time counts as always known. Where its rows belong to rows that have a time, that would
show them before they existed; `time_from` gives them the time of what they point to. Where nothing is said and only
one link can be meant, it is inferred.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from quartet.database.columns import canonical
from quartet.database.keys import KeyColumn, KeyMap, rows_named
from quartet.database.schema import ForeignKey, MissingTime, Schema, TableSchema, TimeColumn, inferred
from quartet.database.table import times_of
from quartet.errors import QuartetError, TimeError, did_you_mean
from quartet.times import NEVER, STATIC, to_arrow

_NEARLY_ALL = 0.9  # of the rows must belong to a row with a time
_SELDOM = 0.001  # of the links may contradict a guess; so few may be errors of a clock
_Ints = NDArray[np.int64]


def inherit_times(tables: Mapping[str, pa.Table], schema: Schema) -> tuple[dict[str, pa.Table], Schema]:
    """Returns the tables with a time column made for each `time_from`, and the schema that names it.

    Tables whose time is open and that have none get their `time_from` here, one after the other: what belongs to
    a line belongs to its order.
    """
    dating = _Dating(dict(tables), dict(schema.tables), {})
    known = dating.known
    waiting = {name: _link(name, table) for name, table in known.items() if table.time and table.time.link}
    while waiting:
        ready = {name: link for name, link in waiting.items() if link.table not in waiting}
        if not ready:
            raise TimeError("T01", f"time_from goes in a circle: {', '.join(sorted(waiting))}", "break it")
        for name, link in ready.items():
            dating.inherit(name, link)
            del waiting[name]
    open_tables = [
        name for name, table in known.items() if not table.time and "time_col" not in table.settled
    ]

    def points_to_open(name: str) -> bool:
        return any(link.table in open_tables for link in known[name].foreign_keys)

    while guess := next(filter(None, map(dating.guess, sorted(open_tables, key=points_to_open))), None):
        name, link, known[name] = guess
        dating.inherit(name, link)
        open_tables.remove(name)
    return dating.data, replace(schema, tables=known)


def _link(name: str, table: TableSchema) -> ForeignKey:
    wanted = table.time.link if table.time else ()
    for foreign_key in table.foreign_keys:
        if foreign_key.columns == wanted:
            return foreign_key
    label = ", ".join(wanted)
    meant = did_you_mean(label, [fk.label for fk in table.foreign_keys])
    text = f'table "{name}" has no link "{label}" to take its time from{meant}'
    raise TimeError("T01", text, "name a link")


@dataclass(frozen=True)
class _Dating:
    """Tables of which more and more have a time."""

    data: dict[str, pa.Table]
    known: dict[str, TableSchema]
    dates: dict[str, _Ints]

    def inherit(self, name: str, link: ForeignKey) -> None:
        """Gives a table the times of the rows that it points to."""
        own, spec = self.known[name].time, self.known[link.table].time if link.table in self.known else None
        if own is None or spec is None:
            raise TimeError(
                "T01",
                f'table "{name}" takes its time from "{link.table}", which has no time itself',
                f"give {link.table} a time_col",
            )
        column, linked = f"{link.table}.{spec.column}", self._linked_times(name, link)
        if (linked == STATIC).any():
            raise TimeError(
                "T01",
                f'table "{name}" takes its time from "{link.table}": {(linked == STATIC).sum():,} of its rows point '
                "to a row without a time, which is always known",
                f"give {name} a time_col, or say on_missing_time: drop or never_visible for {link.table}",
            )
        # With its zone: what is said of the table's own times does not hold for this one.
        times = to_arrow(linked).cast(pa.timestamp("ns", "UTC"))
        self.data[name] = self.data[name].append_column(column, times)
        self.known[name] = replace(self.known[name], time=replace(own, column=column))

    def guess(self, name: str) -> tuple[str, ForeignKey, TableSchema] | None:
        """Returns the link by which the rows of a table belong to rows with a time, if only one can be meant.

        Of several it is the one that leads to the newest row each time. Rows with a time of their own must not point
        to a row before it is known: then it is there without the row to which it seems to belong.
        """
        table = self.known[name]
        try:
            times = {
                link: self._linked_times(name, link)
                for link in table.foreign_keys
                if link.table != name and self._is_dated(link.table)
            }
            newest = np.full(self.data[name].num_rows, STATIC)
            for linked in times.values():
                newest = np.maximum(newest, np.where(linked == NEVER, STATIC, linked))
            for link, linked in times.items():
                is_dated = linked != NEVER
                if is_dated.mean() < _NEARLY_ALL or (linked != newest)[is_dated].any():
                    continue
                if (linked == STATIC).any():  # these have no time to give
                    continue
                if not any(self._is_contradicted(name, linked, child) for child in self.known):
                    why = f"its rows belong to those of {link.table}, by {link.label}"
                    missing: MissingTime = "error" if is_dated.all() else "never_visible"
                    time = TimeColumn("", on_missing=missing, origin=inferred(0.8, why), link=link.columns)
                    return name, link, replace(table, time=time)
        except QuartetError:  # what is wrong with a link or a time is said where they are made
            pass
        return None

    def _is_dated(self, name: str) -> bool:
        return name in self.known and self.known[name].time is not None and self.data[name].num_rows > 0

    def _is_contradicted(self, name: str, times: _Ints, child: str) -> bool:
        """Whether rows of a dated table point to rows that, by these times, are not known yet."""
        for link in self.known[child].foreign_keys:
            if link.table == name and child != name and self._is_dated(child):
                rows = self._rows(child, link)
                late = times[rows[rows >= 0]] > self._known_at(child)[rows >= 0]
                if late.sum() > _SELDOM * len(late):
                    return True
        return False

    def _linked_times(self, name: str, link: ForeignKey) -> _Ints:
        """Returns when the row that each row points to is known; never, if it points to none."""
        rows = self._rows(name, link)
        times: _Ints = np.append(self._known_at(link.table), NEVER)[np.where(rows >= 0, rows, -1)]
        return times

    def _known_at(self, name: str) -> _Ints:
        if name not in self.dates:
            table = self.known[name]
            spec = table.time or TimeColumn("")
            times = [times.known_at for times in times_of(name, self.data[name], spec, table.available_at)]
            self.dates[name] = np.maximum.reduce(times)
        return self.dates[name]

    def _rows(self, name: str, link: ForeignKey) -> _Ints:
        """Returns the row that each row points to, below 0 for none, by keys as `relate` compares them."""

        def keys(table: str, columns: tuple[str, ...]) -> list[KeyColumn]:
            cells = canonical(self.data[table].select(list(columns)), table)
            return [KeyColumn.of(cells[column], f"{table}.{column}") for column in columns]

        target = link.references or self.known[link.table].primary_key
        if len(target) != len(link.columns):
            raise TimeError(
                "T01",
                f'table "{name}" takes its time by "{link.label}", which does not fit the key of "{link.table}"',
                f"give {link.table} a pkey of {len(link.columns)} columns",
            )
        return rows_named(keys(name, link.columns), KeyMap(keys(link.table, target)))
