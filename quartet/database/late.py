"""Columns that were filled in after their row became known, as far as the times and gaps of a database tell.

A date that is later than its own row was written later, unless it was planned: what is planned goes beyond the end
of the data, what has happened does not. Rows of a table that is always known are dated by the first row that is linked
to them. And a column that is filled in later is still empty in the latest rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from quartet.database.columns import is_text
from quartet.database.database import Database
from quartet.database.table import Table
from quartet.errors import QuartetError
from quartet.findings import Finding, note, warning
from quartet.times import DAY, NEVER, STATIC, show_length, to_utc

_FEW = 10  # rows; fewer prove nothing
_SHARE = 0.05  # of the dates
_PLANNED = 0.5  # of the dates that should lie beyond the end of the data, if they were planned, do
_PARTS = (20, 100, 500)  # of the rows in order of time: what takes long to fill in, and what does not
_SMALLEST_PART = 10  # rows
_DROP = 0.7  # as many cells are filled in the last part, at most, as in the emptiest of the older ones
_SURPRISE = 12.0  # that so few are filled by chance has a probability below exp(-12)
_ISO_DATE = r"^\s*\d{4}-\d\d-\d\d([ T]|$)"
_HEAD = 50
_FOUND: WeakKeyDictionary[Database, tuple[LateColumn, ...]] = WeakKeyDictionary()


@dataclass(frozen=True)
class LateColumn:
    """A column that seems to be filled in later, with the evidence."""

    table: str
    column: str
    why: str
    count: int  # rows that show it
    is_sure: bool
    available_at: bool  # whether the column is a date by which the row could be dated
    is_link: bool  # whether it is part of a foreign key
    is_proven: bool = False  # whether its dates themselves show it, and cannot have been planned

    @property
    def finding(self) -> Finding:
        where = f"{self.table}.{self.column}"
        text = f"{where} {'is' if self.is_sure else 'may be'} filled in later than its row: {self.why}"
        hidden = f"remove_columns: [[{self.table}, {self.column}]] in the task"
        fix = f"{hidden}, or --hide {where} with a query, hides the column"
        if self.available_at:
            fix += f"; available_at: {self.column} in the schema shows the whole row only then"
        report = warning if self.is_sure else note
        return report("D03", where, text, self.count, fix)


def late_columns(database: Database) -> tuple[LateColumn, ...]:
    """Returns the columns of all tables that seem to be filled in later than their rows became known."""
    if database not in _FOUND:
        _FOUND[database] = tuple(_late_columns(database))
    return _FOUND[database]


def _late_columns(database: Database) -> list[LateColumn]:
    found = []
    end = database.span[1] if database.span else STATIC
    for table in database.tables.values():
        known = table.known_at if table.is_timed else _first_linked(database, table)
        dated = (known != STATIC) & (known != NEVER)
        if not dated.any():
            continue
        settled = {*table.primary_key, *filter(None, (table.schema.available_at,))}
        settled |= {table.schema.time.column} if table.schema.time else set()
        for name in table.data.column_names:
            is_link = any(name in fk.columns for fk in table.schema.foreign_keys)
            if name in settled or (table.schema.kinds.get(name) == "unused" and not is_link):
                continue
            late = _late_dates(table, name, known, dated, end)
            empty = _empty_lately(table.data[name], known, dated) if table.is_timed else None
            if late or empty:
                count, why, is_sure = late or (0, "", False)
                is_sure = is_sure or empty is not None
                reasons = [reason for reason in (why, empty[1] if empty else "") if reason]
                found.append(
                    LateColumn(
                        table.name, name, ", and ".join(reasons), count or (empty[0] if empty else 0),
                        is_sure, late is not None and table.is_timed, is_link, late is not None and is_sure,
                    )
                )  # fmt: skip
    return found


def _first_linked(database: Database, table: Table) -> NDArray[np.int64]:
    """Returns when the first row that is linked to each row of a table was known, `STATIC` where none has a time."""
    first = np.full(table.num_rows, NEVER)
    for relation in database.relations:
        linked = np.flatnonzero(relation.rows >= 0)
        for own, other, name in (
            (relation.rows[linked], linked, relation.table) if relation.parent == table.name else (None, None, ""),
            (linked, relation.rows[linked], relation.parent) if relation.table == table.name else (None, None, ""),
        ):  # fmt: skip
            if own is not None and database[name].is_timed:
                np.minimum.at(first, own, database[name].known_at[other])
    return np.where(first == NEVER, STATIC, first)


def dates_of(table: Table, name: str) -> NDArray[np.int64] | None:
    """Returns the dates that a column holds, in UTC nanoseconds, `NEVER` where there is none; None if it holds others.

    Dates may be times, text that begins with a date, or whole numbers that are all years.
    """
    column, timezone = table.data[name], table.schema.time.timezone if table.schema.time else None
    kind = column.type
    if is_text(kind):
        head = column.slice(0, 20 * _HEAD).drop_null().slice(0, _HEAD)
        if not len(head) or not pc.all(pc.match_substring_regex(head, _ISO_DATE)).as_py():
            return None
    elif pa.types.is_integer(kind):
        ends = pc.min_max(column)
        low, high = ends["min"].as_py(), ends["max"].as_py()
        if low is None or not 1678 <= low < high <= 2261 or pc.count_distinct(column).as_py() < 5:
            return None
        years = pc.fill_null(column, 1970).to_numpy().astype(np.int64) - 1970
        dates = years.astype("datetime64[Y]").astype("datetime64[ns]").astype(np.int64)
        return np.where(column.is_valid().to_numpy(), dates, NEVER)
    elif not pa.types.is_timestamp(kind):
        return None
    try:
        parsed = to_utc(column, f"{table.name}.{name}", timezone=timezone)
    except QuartetError:
        return None
    return np.where(parsed.missing, NEVER, parsed.ns)


def _late_dates(
    table: Table, name: str, known: NDArray[np.int64], dated: NDArray[np.bool_], end: int
) -> tuple[int, str, bool] | None:
    """Returns how many dates are later than their row, a sentence, and whether they cannot have been planned."""
    dates = dates_of(table, name)
    if dates is None:
        return None
    filled = dated & (dates != NEVER)
    if not filled.any():
        return None
    date, row = dates[filled], known[filled]
    if not (date % DAY).any():  # a day, compared with the day of the row
        row = row // DAY * DAY
    is_late = date > row
    count, share = int(is_late.sum()), float(is_late.mean())
    if count < _FEW or share < _SHARE:
        return None
    delay = int(np.median(date[is_late] - row[is_late]))
    num_beyond, num_recent = int((date > end).sum()), int((known[dated] > end - delay).sum())
    if num_beyond and num_beyond >= _PLANNED * num_recent:
        return None
    of = "the row's own time" if table.is_timed else "the first row that is linked to theirs"
    text = f"{share:.0%} of its {len(date):,} dates are later than {of}, by {_length(delay)} in the median"
    return count, text, num_recent >= _FEW


def _empty_lately(
    column: pa.ChunkedArray, known: NDArray[np.int64], dated: NDArray[np.bool_]
) -> tuple[int, str] | None:
    """Returns how many of the latest rows have no value and a sentence, if older rows have many more.

    The last part of the rows is compared with the emptiest of the older parts, so that a column that was always
    filled now and then, or only since some time, is none.
    """
    if not column.null_count:
        return None
    rows = np.flatnonzero(dated)
    filled = column.is_valid().to_numpy()[rows[np.argsort(known[rows], kind="stable")]]
    for num_parts in _PARTS:
        size = len(filled) // num_parts
        if size < _SMALLEST_PART:
            break
        shares = filled[len(filled) - size * num_parts :].reshape(num_parts, size).mean(axis=1)
        last, older = float(shares[-1]), float(shares[: num_parts * 3 // 4].min())
        if last <= _DROP * older and size * _divergence(last, older, len(filled)) > _SURPRISE:
            empty = int(size - round(last * size))
            text = (
                f"it is empty in {1 - last:.0%} of the latest {size:,} rows, in {1 - older:.0%} of older ones"
            )
            return empty, text
    return None


def _divergence(share: float, usual: float, num_rows: int) -> float:
    """Returns how surprising one row is in a part with this share, in nats, where another share is usual."""
    edge = 0.5 / num_rows  # a share of none or all is not known more exactly than this
    pairs = ((share, usual), (1 - share, 1 - usual))
    return float(sum(own * np.log(own / max(other, edge)) for own, other in pairs if own > 0))


def _length(delay: int) -> str:
    return show_length(delay // DAY * DAY) if delay >= DAY else show_length(delay)
