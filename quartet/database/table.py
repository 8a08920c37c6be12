"""Table: columns with keys, links and a time, validated at birth."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from quartet.causal import visible
from quartet.database.columns import canonical, is_plain, is_text, valid_text
from quartet.database.inference.names import noun_of, singular, split, word_set
from quartet.database.keys import KeyColumn, KeyMap
from quartet.database.schema import TableSchema, TimeColumn, quoted
from quartet.errors import SchemaError, TimeError, did_you_mean, examples
from quartet.findings import Finding, note, warning
from quartet.machine import set_aside, set_columns_aside
from quartet.times import (
    NEVER,
    PERIODS,
    STATIC,
    ParsedTimes,
    is_iso,
    smallest_part,
    to_arrow,
    to_utc,
)

_NAME_WORDS = word_set(
    "name title label surname fullname username nickname login handle headline subject caption"
)
_NO_NAME_WORDS = word_set(
    "id uuid guid key hash token url uri link path file date time description comment note text body "
    "address phone zip postcode json"
)
_NEARLY = 0.9  # of the rows must have a name, and as many of the names must be different
_SELDOM = 0.1  # the fraction of distinct values below which even a column called `name` names nobody
_LONGEST_NAME = 60  # letters, on average
_HEAD = 2000
_MOST_TIMES = 1000  # for which the column of names is kept
_DONE = {
    "drop": "dropped",
    "never_visible": "kept, and never visible",
    "always_known": "kept, and always known",
}


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of one type. `known_at` is when each row became known (`STATIC` if always).

    The time column inside `data` is already UTC nanoseconds; `written` has it as the source writes it, where that
    differs, because links between tables are between written values. `num_rows_read` counts the rows of the
    source, so that rows read = rows here + rows reported as dropped.
    """

    name: str
    data: pa.Table
    schema: TableSchema
    known_at: NDArray[np.int64]
    num_rows_read: int
    written: Mapping[str, pa.ChunkedArray] = field(default_factory=dict)

    @property
    def num_rows(self) -> int:
        return int(self.data.num_rows)

    @property
    def is_timed(self) -> bool:
        return self.schema.time is not None

    @property
    def primary_key(self) -> tuple[str, ...]:
        return self.schema.primary_key

    @cached_property
    def key_map(self) -> KeyMap:
        """The map from values of the primary key to row numbers."""
        return KeyMap(self.key_columns(self.primary_key))

    def key_columns(self, columns: tuple[str, ...]) -> list[KeyColumn]:
        return [KeyColumn.of(self.data[name], f"{self.name}.{name}") for name in columns]

    def written_columns(self, columns: tuple[str, ...]) -> list[KeyColumn]:
        """Returns key columns as the source writes them."""
        return [
            KeyColumn.of(self.written.get(name, self.data[name]), f"{self.name}.{name}") for name in columns
        ]

    @cached_property
    def name_column(self) -> str | None:
        """The column by which people know the rows, to be shown beside the key; None if there is none.

        It is a short text with (nearly) one value for each row: `name`, `title` or `<table>_name` before any
        other column whose name says so, and these before a column whose name says nothing. Where none is, `name` and
        the like may repeat, as people's names do.
        """
        return self._name_column(self.data.slice(0, _HEAD), self.data)

    def name_column_at(self, time: int) -> str | None:
        """Returns the column by which people knew the rows at a time, from all rows that were visible then."""
        known: dict[int, str | None] = self.__dict__.setdefault("_names_at", {})
        if time not in known:
            if len(known) >= _MOST_TIMES:
                known.clear()
            known[time] = self._name_column(self.data.filter(pa.array(visible(self.known_at, time))))
        return known[time]

    def names_of(self, rows: NDArray[np.int64], times: NDArray[np.int64]) -> pa.ChunkedArray | None:
        """Returns the names of rows beside their keys, as those known at the first of some times tell; None without."""
        column = self.name_column_at(int(times.min())) if len(times) else None
        return None if column in (None, *self.primary_key[:1]) else self.data[column].take(pa.array(rows))

    def _name_column(self, *samples: pa.Table) -> str | None:
        """Returns the first column that tells the rows apart in each of some samples of the table."""
        linked = {column for fk in self.schema.foreign_keys for column in fk.columns}
        ranked = []
        for place, column in enumerate(self.data.column_names):
            words = split(column)
            if is_text(self.data[column].type) and words and column not in {*self.primary_key, *linked}:
                is_own = {singular(word) for word in words[:-1]} <= {*noun_of(self.name), "full", "display"}
                is_name = words[-1] in _NAME_WORDS
                rank = 0 if is_name and is_own else 1 if is_name else 2
                if rank < 2 or not _NO_NAME_WORDS & set(words):
                    ranked.append((rank, place, column))
        repeating = [(column, _SELDOM) for rank, _, column in sorted(ranked) if rank == 0]
        tried = [*((column, _NEARLY) for _, _, column in sorted(ranked)), *repeating]
        return next(
            (column for column, least in tried if all(_tells_apart(rows[column], least) for rows in samples)),
            None,
        )

    @cached_property
    def period(self) -> str | None:
        """The year, month or day at whose beginning all rows are dated, if their times tell no more than that."""
        time = self.schema.time
        if time is None or time.link or time.end_of or self.schema.available_at or self.schema.made_from:
            return None
        written = self.written.get(time.column, self.data[time.column])
        if not pa.types.is_timestamp(written.type):
            if time.format:
                return next((part for part in PERIODS if part == smallest_part(time.format)), None)
            written = self.data[time.column]
        if not _begins_days(written.slice(0, _HEAD)):
            return None  # a glance settles most tables
        dates = pc.unique(written.drop_null()).to_numpy(zero_copy_only=False)
        periods = (
            name for name, unit in PERIODS.items() if (dates == dates.astype(f"datetime64[{unit}]")).all()
        )
        return next(periods, None) if len(dates) > 1 else None

    def take(self, rows: NDArray[np.bool_]) -> Table:
        """Returns the table with only the rows of a mask."""
        kept = pa.array(rows)
        written = {name: column.filter(kept) for name, column in self.written.items()}
        return replace(self, data=self.data.filter(kept), known_at=self.known_at[rows], written=written)

    def without(self, columns: set[str]) -> Table:
        """Returns the table without some of its columns, and without the links over them."""
        for name in columns & {*self.primary_key, *((self.schema.time.column,) if self.schema.time else ())}:
            raise SchemaError(
                "L02", f"{self.name}.{name} is a key or the time of its table and cannot be hidden"
            )
        links = tuple(fk for fk in self.schema.foreign_keys if not columns & set(fk.columns))
        return replace(
            self,
            data=self.data.drop_columns(sorted(columns)),
            schema=replace(self.schema, foreign_keys=links),
        )


def _begins_days(times: pa.ChunkedArray) -> bool:
    """Returns whether times are all at the beginning of a day, as those of a year or a month are, too."""
    dates = times.drop_null().to_numpy(zero_copy_only=False)
    return bool((dates == dates.astype("datetime64[D]")).all())


def _tells_apart(column: pa.ChunkedArray, least: float) -> bool:
    """Whether nearly every row has a short text, and at least this fraction of them are distinct."""
    filled = column.filter(pc.fill_null(pc.match_substring_regex(column, r"[^\W\d_]"), False))
    distinct = pc.count_distinct(filled).as_py()
    if not len(filled) or len(filled) < _NEARLY * len(column) or distinct < least * len(filled):
        return False
    return bool(pc.mean(pc.utf8_length(filled)).as_py() <= _LONGEST_NAME)


def build_table(name: str, raw: pa.Table, schema: TableSchema) -> tuple[Table, list[Finding]]:
    """Returns a validated table, and what was noticed or repaired on the way."""
    _check_columns(name, raw.column_names, schema)
    data, findings = canonical(raw, name), []
    for column in raw.column_names:
        _, count = valid_text(raw[column])
        if count:
            text = f"{name}.{column}: {count:,} values are not valid UTF-8; the broken bytes are replaced"
            findings.append(warning("V08", f"{name}.{column}", text, count))
    odd = [f.name for f in data.schema if not is_plain(f.type)]
    if odd:
        text = f'table "{name}": {len(odd)} nested or binary columns are not used {examples(odd)}'
        findings.append(note("V09", name, text, len(odd)))
    told = {
        *schema.kinds,
        *schema.primary_key,
        *(column for fk in schema.foreign_keys for column in fk.columns),
    }
    told |= {schema.time.column if schema.time else "", schema.available_at or ""}
    dates = [c for c in data.column_names if c not in told and _holds_dates(data[c])]
    if dates:
        text = f'table "{name}": dates in text are used as text or categories {examples(dates)}'
        fix = f"set kinds: {{{quoted(dates[0], ',')}: time}} for {name} in the schema file"
        findings.append(note("V13", name, text, len(dates), fix))
    known_at = np.full(data.num_rows, STATIC, dtype=np.int64)
    table = Table(name, data, schema, known_at, num_rows_read=int(raw.num_rows))
    if schema.time is not None:
        table, repaired = _timed(table, raw, schema.time)
        findings += repaired
    if table.primary_key and table.num_rows:
        _check_primary_key(table)
    table = replace(table, data=set_columns_aside(table.data), known_at=set_aside(table.known_at))
    return table, findings + _row_findings(table)


def _holds_dates(column: pa.ChunkedArray) -> bool:
    """Whether a text column holds ISO 8601 times and nothing else; its first cells settle most columns."""
    filled = column
    for cells in (column.slice(0, 20), column) if is_text(column.type) else ():
        filled = cells.filter(pc.fill_null(pc.not_equal(cells, ""), False))
        if not pc.all(is_iso(filled), min_count=0).as_py():
            return False
    return is_text(column.type) and len(filled) > 0


def _check_columns(table: str, names: list[str], schema: TableSchema) -> None:
    # DuckDB and most databases do not tell `Id` from `id`, so neither name would be safe.
    for lower, count in Counter(name.lower() for name in names).items():
        if count > 1:
            same = "/".join(f'"{name}"' for name in names if name.lower() == lower)
            raise SchemaError("S15", f'table "{table}" has two columns named {same}', "rename one")
    times = [c for c in (schema.time.column if schema.time else None, schema.available_at) if c]
    keys = [*schema.primary_key, *(column for fk in schema.foreign_keys for column in fk.columns)]
    for column in (*keys, *times, *schema.kinds):
        if column not in names:
            role = "time column" if column in times else "key column" if column in keys else "column"
            error, code = (TimeError, "T01") if column in times else (SchemaError, "S09")
            listed = ", which is listed under kinds" if role == "column" else ""
            raise error(
                code,
                f'table "{table}" has no {role} "{column}"{listed}' + did_you_mean(column, names),
                "correct the name in the schema file",
            )
    if schema.available_at is not None and schema.time is None:
        raise TimeError(
            "T01",
            f'table "{table}" has available_at "{schema.available_at}" but no time column',
            "give its time_col too",
        )


class RowTimes(NamedTuple):
    """A column that dates the rows of a table: its instants, when a row is known by it, and which cells are bad."""

    column: str
    parsed: ParsedTimes
    known_at: NDArray[np.int64]
    is_bad: NDArray[np.bool_]


def times_of(name: str, raw: pa.Table, spec: TimeColumn, available_at: str | None) -> Iterator[RowTimes]:
    """Yields the columns that date the rows of a table.

    Cells that are no times are an error, or empty where `on_bad_time` says so; most of a column never are.
    """
    for column in filter(None, (spec.column, available_at)):
        cells, end_of = raw[column], spec.end_of if column == spec.column else None
        if pa.types.is_dictionary(cells.type):
            cells = cells.cast(cells.type.value_type)
        most, is_bad = (len(cells) - cells.null_count) / 2, np.zeros(len(cells), dtype=bool)
        parsed = None
        while parsed is None:
            reading = (cells, f"{name}.{column}", spec.unit, spec.format, spec.timezone)
            try:
                parsed = to_utc(*reading)
                known_at = to_utc(*reading, end_of).ns if end_of else parsed.ns
            except TimeError as error:
                if error.rows is None:
                    raise
                are_few = (is_bad | error.rows).sum() < most
                if spec.on_bad == "error" or not are_few:
                    advice = (
                        f"; or on_bad_time: drop for {name} in the schema file leaves such rows out, counted"
                    )
                    fix = error.fix + (advice if are_few else "")
                    raise TimeError(error.code, error.what, fix) from None
                parsed, is_bad = None, is_bad | error.rows
                cells = pc.if_else(pa.array(error.rows), pa.scalar(None, cells.type), cells)
        if spec.on_missing == "always_known":
            known_at = np.where(parsed.missing & ~is_bad, STATIC, known_at)
        yield RowTimes(column, parsed, known_at, is_bad)


def _timed(table: Table, raw: pa.Table, spec: TimeColumn) -> tuple[Table, list[Finding]]:
    """Returns the table with its times in UTC and when each row became known, and what was repaired."""
    data, known_at, written = table.data, table.known_at, {}
    missing, bad, findings = *np.zeros((2, data.num_rows), dtype=bool), []
    for column, parsed, known, is_bad in times_of(table.name, raw, spec, table.schema.available_at):
        where = f"{table.name}.{column}"
        known_at = np.maximum(known_at, known)
        if spec.timezone or not pa.types.is_timestamp(data[column].type):
            written[column] = data[column]
        data = data.set_column(data.column_names.index(column), column, to_arrow(parsed.ns))
        num_bad = int((is_bad & ~missing & ~bad).sum())  # a row is reported once, whatever it lacks
        bad |= is_bad & ~missing
        count = int((parsed.missing & ~missing & ~bad).sum())
        missing |= parsed.missing & ~bad
        if num_bad:
            text = f"{where}: {num_bad:,} cells are no times {_first_cells(raw[column], is_bad)}"
            findings.append(warning("T02", where, f"{text}; their rows are {_DONE[spec.on_bad]}", num_bad))
        text = f"{where} is empty in {count:,} rows"
        if count and spec.on_missing == "error":
            raise TimeError(
                "T03",
                f"{text}. A row without a time cannot be placed before or after a prediction",
                "on_missing_time: drop | never_visible",
            )
        if count:
            findings.append(warning("T03", where, f"{text}; {_DONE[spec.on_missing]}", count))
    table = replace(table, data=data, known_at=known_at, written=written)
    dropped = missing & (spec.on_missing == "drop") | bad & (spec.on_bad == "drop")
    return table.take(~dropped) if dropped.any() else table, findings


def _first_cells(column: pa.ChunkedArray, rows: NDArray[np.bool_]) -> str:
    return examples(str(cell) for cell in column.filter(pa.array(rows)).slice(0, 3).to_pylist())


def _row_findings(table: Table) -> list[Finding]:
    findings = []
    if table.num_rows == 0:
        text = f'table "{table.name}" has 0 rows; kept as an empty type'
        findings.append(warning("S02", table.name, text))
    if not table.primary_key:
        report = note if "pkey" in table.schema.settled else warning
        text = (
            f'table "{table.name}" has no primary key; rows get content keys and cannot be prediction targets'
        )
        findings.append(report("S05", table.name, text))
    if table.schema.time is None:
        return findings
    where, dated = (
        f"{table.name}.{table.schema.time.column}",
        table.known_at[(table.known_at != NEVER) & (table.known_at != STATIC)],
    )
    ahead = int((dated > time.time_ns()).sum())
    if ahead:
        text = f"{where}: {ahead:,} rows lie in the future of this machine"
        findings.append(warning("T08", where, text, ahead))
    if len(dated) > 1 and dated.min() == dated.max():
        text = f"{where}: all {len(dated):,} rows share one time; order is by key"
        findings.append(warning("T09", where, text, len(dated)))
    return findings


def _check_primary_key(table: Table) -> None:
    for name in table.primary_key:
        empty = pc.is_null(table.data[name], nan_is_null=True)
        count = pc.sum(empty).as_py()
        if count:
            rows = np.flatnonzero(empty.to_numpy())[:3] + 1
            raise SchemaError(
                "S04",
                f'table "{table.name}": primary key "{name}" is empty in {count:,} rows '
                f"(rows {', '.join(map(str, rows))})",
                "fill it in or choose another key",
            )
    count, first = table.key_map.repeated()
    if count:
        label = ", ".join(table.primary_key)
        raise SchemaError(
            "S03",
            f'table "{table.name}": primary key "{label}" has {count:,} repeated values {examples(first)}',
            "deduplicate or choose another key",
        )
