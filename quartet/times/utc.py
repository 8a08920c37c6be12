"""Reads times as int64 nanoseconds since 1970-01-01 UTC, from whatever a source writes.

    cells                                   how they are read
    timestamp s, ms, us, ns; dates          as UTC, or as local times of `timezone`
    timestamps with a zone                  by their own zone, whatever `timezone` says
    ISO 8601 text, with or without offset   likewise: an offset wins over `timezone`
    other text                              by `format`; if all digits, as numbers
    whole numbers                           by `unit`, counted from 1970-01-01 UTC; or by `format`

What cannot be read, or can be read in two ways, is an error that names its rows, counted from 1. Nothing depends on
the zone or the language of the machine. Every text is brought into ISO 8601 and held against one grammar.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any
from zoneinfo import available_timezones

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quartet.errors import TimeError, UsageError, did_you_mean, examples
from quartet.times.formats import pattern_of, rearranged, smallest_part
from quartet.times.instants import (
    DAY,
    END,
    END_LOCAL,
    FIRST,
    FIRST_LOCAL,
    NEVER,
    PERIODS,
    SECOND,
    UNITS,
    Int64s,
    Mask,
    quoted,
    trimmed,
)
from quartet.times.zones import local_offsets

_OUTSIDE = " is outside the range this version stores, 1678 to 2261"


@dataclass(frozen=True)
class ParsedTimes:
    """One instant per row; `ns` is `NEVER` where the source says nothing."""

    ns: Int64s
    missing: Mask


@dataclass(frozen=True)
class _Column:
    """The cells as they came, and what the schema says of them."""

    cells: pa.Array
    where: str
    unit: str | None
    format: str | None
    timezone: str | None
    period: str | None = None

    def shown(self, row: int) -> str:
        cell = self.cells[row]
        if _is_text(cell.type):
            return quoted(cell.as_py())
        if pa.types.is_temporal(cell.type):
            return trimmed(str(np.array(cell.value, f"datetime64[{_unit_of(cell.type)}]")))
        return str(cell.as_py())

    def examples(self, rows: Mask) -> str:
        first = np.flatnonzero(rows)[:3].tolist()
        return examples(f"{self.shown(row)} row {row + 1}" for row in first)

    def refuse(self, code: str, rows: Mask, one: str, several: str, fix: str) -> None:
        """Raises an error with the count and the first of the marked rows, if there are any."""
        if rows.any():
            count = int(rows.sum())
            words = several if count > 1 else one
            what = f"{self.where}: {count:,} {words} {self.examples(rows)}"
            raise TimeError(code, what, fix, rows)

    def refuse_outside(self, rows: Mask, fix: str = "") -> None:
        """Raises T06 if any row is marked: its time does not fit, and must not wrap around."""
        if rows.any():
            row, count = int(rows.argmax()), int(rows.sum())
            more = f" ({count:,} such rows)" if count > 1 else ""
            fix = fix or "correct it, or leave it empty if it stands for no date"
            what = f"{self.where} row {row + 1}: {self.shown(row)}{_OUTSIDE}{more}"
            raise TimeError("T06", what, fix, rows)


def to_utc(
    column: pa.ChunkedArray | pa.Array,
    where: str,
    unit: str | None = None,
    format: str | None = None,
    timezone: str | None = None,
    end_of: str | None = None,
) -> ParsedTimes:
    """Returns the instants of a column, exact to the nanosecond, by the rules at the top of this file.

    `where` names the column in messages. What is said of another kind of column is checked and has
    no effect: `unit` is for numbers, `format` for text, `timezone` for times without a zone. With `end_of`, each
    instant is the end of its year, month or day by the clocks of the zone; `period` is the smallest part of the
    format, and for dates the day.
    """
    if unit is not None and unit not in UNITS:
        raise UsageError("C01", f'{where}: unknown time_unit "{unit}"{did_you_mean(unit, UNITS)}')
    if format is not None:
        pattern_of(format, where)
    # "localtime" is the zone of the machine: another machine would read other times.
    if timezone is not None and timezone not in (zones := available_timezones() - {"localtime"}):
        raise UsageError("C01", f'{where}: unknown timezone "{timezone}"{did_you_mean(timezone, zones)}')
    cells = _plain(column)
    kind = cells.type
    if end_of == "period":
        end_of = "day" if pa.types.is_date(kind) else smallest_part(format) if format else None
        if end_of not in PERIODS:
            raise UsageError(
                "C01",
                f"{where}: known_at is the end of a period, but neither the type ({kind}) nor a time_format says which",
                "say known_at: end of year, end of month or end of day",
            )
    source = _Column(cells, where, unit, format, timezone, end_of)
    if _is_text(kind):
        return _from_text(source, source.cells)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return _from_numbers(source)
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return _from_stamps(source)
    fix = "choose a column of dates, text or whole numbers"
    raise TimeError("T02", f"{where} is {kind}, which holds no times", fix)


def _plain(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Returns the cells as one array without a dictionary, text and untyped nulls as large_string."""
    if isinstance(column, pa.ChunkedArray):
        return pa.concat_arrays([_plain(chunk) for chunk in column.chunks or [pa.array([], column.type)]])
    if pa.types.is_dictionary(column.type):
        return _plain(column.dictionary).take(column.indices)
    return column.cast(pa.large_string()) if _is_text(column.type) else column


def _is_text(kind: pa.DataType) -> bool:
    return kind in (pa.string(), pa.large_string(), pa.string_view(), pa.null())


def _filled(cells: pa.Array, value: Any) -> Any:
    """Returns the cells as numpy has them, a value where null."""
    return pc.fill_null(cells, value).to_numpy(zero_copy_only=False)


def _parsed(ns: Int64s, missing: Mask, source: _Column, fix: str = "") -> ParsedTimes:
    source.refuse_outside(~missing & ((ns < FIRST) | (ns >= END)), fix)
    return ParsedTimes(np.where(missing, NEVER, ns), missing)


# --- timestamps, dates and local times ------------------------------------------------------------


def _from_stamps(source: _Column) -> ParsedTimes:
    cells, unit = source.cells, _unit_of(source.cells.type)
    missing = _filled(cells.is_null(), False)
    counts = _filled(cells.view(pa.int32() if unit == "D" else pa.int64()), 0)
    ns = _scaled(counts, DAY if unit == "D" else UNITS[unit], source)
    is_local = np.full(len(cells), getattr(cells.type, "tz", None) is None)
    return _parsed(_localised(ns, is_local & ~missing, source), missing, source)


def _unit_of(kind: pa.DataType) -> str:
    if pa.types.is_date(kind):
        return "D" if pa.types.is_date32(kind) else "ms"
    return str(kind.unit)


def _scaled(counts: Any, per_unit: int, source: _Column, fix: str = "") -> Int64s:
    """Returns counts of a unit as nanoseconds; what the multiplication would wrap is refused first."""
    first, last = (FIRST - DAY) // per_unit, (END + DAY) // per_unit
    source.refuse_outside((counts < first) | (counts > last), fix)
    scaled: Int64s = counts.astype(np.int64) * per_unit
    return scaled


def _localised(ns: Int64s, local: Mask, source: _Column) -> Int64s:
    """Returns UTC of the times marked as local, or of the ends of their periods.

    A local time that a clock change repeats or skips is refused.
    """
    if source.period is not None:
        source.refuse_outside(ns >= END)  # the end of such a period would wrap around
        unit = f"datetime64[{PERIODS[source.period]}]"
        ns = (ns.astype("datetime64[ns]").astype(unit) + 1).astype("datetime64[ns]").astype(np.int64)
    if source.timezone is None or not local.any():
        return ns
    offsets, jumps = local_offsets(source.timezone, ns[local] // SECOND)
    fix = "store the column in UTC, or write such times with their offset (2024-10-27 02:30:00+02:00)"
    for is_odd, what in [
        (jumps < 0, f"of {source.timezone} happened twice, as the clocks went back"),
        (jumps > 0, f"of {source.timezone} never happened, as the clocks went forward"),
    ]:
        rows = np.zeros_like(local)
        rows[local] = is_odd
        source.refuse("T04", rows, f"local time {what}", f"local times {what}", fix)
    utc = ns.copy()
    utc[local] -= offsets * SECOND
    return utc


# --- numbers --------------------------------------------------------------------------------------


def _from_numbers(source: _Column) -> ParsedTimes:
    is_float = pa.types.is_floating(source.cells.type)
    numbers = _whole_numbers(source) if is_float else _filled(source.cells, 0)
    missing = _filled(source.cells.is_null(nan_is_null=True), False)
    if source.unit is None and source.format is not None:
        return _from_text(source, pa.array(numbers, mask=missing).cast(pa.large_string()))
    return _counted_from_1970(numbers, missing, source)


def _counted_from_1970(numbers: Any, missing: Mask, source: _Column) -> ParsedTimes:
    if missing.all():
        return ParsedTimes(np.full(len(missing), NEVER), missing)
    advice = _unit_advice(numbers[~missing], source.unit)
    if source.unit is None:
        what = f"{source.where} holds numbers without a unit {source.examples(~missing)}"
        raise TimeError("T07", what, advice or "say time_unit: s, ms, us or ns")
    ns = _localised(_scaled(numbers, UNITS[source.unit], source, advice), np.zeros_like(missing), source)
    return _parsed(ns, missing, source, advice)


def _whole_numbers(source: _Column) -> Int64s:
    """Returns floats as integers, exactly; what int64 cannot hold becomes its maximum, which no unit allows."""
    kind = source.cells.type
    floats = _filled(source.cells.cast(pa.float64()), float("nan"))
    floats = np.where(np.isnan(floats), 0, floats)
    is_decimal = ~np.isfinite(floats) | (np.floor(floats) != floats)
    fix = "store them as integers of a finer time_unit"
    source.refuse("T02", is_decimal, "value is not a whole number", "values are not whole numbers", fix)
    if kind != pa.float64():  # a double blurs a time by less than a microsecond, a float by minutes
        is_blurred = np.abs(floats) > 2.0 ** (np.finfo(kind.to_pandas_dtype()).nmant + 1)
        large = f"too large for {kind} to hold exactly"
        source.refuse("T02", is_blurred, f"value is {large}", f"values are {large}", "store them as int64")
    fits = np.abs(floats) < 2.0**63
    return np.where(fits, np.where(fits, floats, 0).astype(np.int64), NEVER)


# Typical values (counts since 1970: from 1973 on), what they look like, and what to say then.
_LOOKS = [
    (1678, 2261, "years", "time_format: '%Y'"),
    (1678_01_01, 2261_12_31, "year, month and day", "time_format: '%Y%m%d'"),
    (1678_01_01_00_00_00, 2261_12_31_23_59_59, "year to second", "time_format: '%Y%m%d%H%M%S'"),
    (10**8, END // UNITS["s"], "seconds", "time_unit: s"),
    (10**11, END // UNITS["ms"], "milliseconds", "time_unit: ms"),
    (10**14, END // UNITS["us"], "microseconds", "time_unit: us"),
    (10**17, END, "nanoseconds", "time_unit: ns"),
]


def _unit_advice(numbers: Any, unit: str | None) -> str:
    """Returns `looks like milliseconds; say time_unit: ms`, by the median; empty if that says nothing new."""
    middle = len(numbers) // 2
    typical = abs(int(np.partition(numbers, middle)[middle]))
    for low, high, name, setting in _LOOKS:
        if low <= typical <= high and setting != f"time_unit: {unit}":
            return f"looks like {name}; say {setting}"
    return ""


# --- text -----------------------------------------------------------------------------------------

_MISSING = pa.array(["", "NaT", "null", "None", "\\N"], pa.large_string())
_LEAP_YEAR = r"(?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
_DATE = (
    r"(?:\d{4}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1\d|2[0-8])"
    r"|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"
    rf"|{_LEAP_YEAR}-02-29)"
)
_CLOCK = r"(?:[01]\d|2[0-3])(?::[0-5]\d(?::[0-5]\d(?:\.\d{1,9})?)?)?"
_OFFSET = r"(?:Z|[+-](?:[01]\d|2[0-3])(?::?[0-5]\d)?)"
_ISO = rf"^{_DATE}(?:[T ]{_CLOCK}{_OFFSET}?)?$"


def _from_text(source: _Column, text: pa.Array) -> ParsedTimes:
    text = pc.utf8_trim_whitespace(text)
    text = pc.if_else(pc.is_in(text, _MISSING), None, text)
    missing = _filled(text.is_null(), False)
    if source.format is None and (missing | _matches(text, r"^-?\d+$")).all():
        return _counted_from_1970(_read_digits(text), missing, source)
    iso = text if source.format is None else rearranged(text, source.format, source.where)
    fix, form = "say time_format, such as '%d/%m/%Y'", ""
    if source.format is not None:
        fix, form = "correct time_format or the values", f" of the form '{source.format}'"
    is_unreadable = ~missing & ~_matches(iso, _ISO)
    source.refuse("T02", is_unreadable, f"value is not a date{form}", f"values are not dates{form}", fix)
    is_outside = pc.or_(pc.less(iso, FIRST_LOCAL), pc.greater_equal(iso, END_LOCAL))
    source.refuse_outside(_filled(is_outside, False))
    return _parsed(_read_iso(iso, missing, source), missing, source)


def is_iso(text: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Returns whether each text is a time of ISO 8601, null for null."""
    return pc.match_substring_regex(text, _ISO)


def _matches(text: pa.Array, pattern: str) -> Mask:
    matches: Mask = _filled(pc.match_substring_regex(text, pattern), False)
    return matches


def _read_digits(text: pa.Array) -> Int64s:
    """Returns digits as integers; what int64 cannot hold becomes its maximum, which no unit allows."""
    digits = pc.utf8_ltrim(text, characters="-")
    digits = pc.if_else(pc.greater(pc.utf8_length(digits), 19), "9" * 19, digits)
    counts: Int64s = np.minimum(_filled(digits.cast(pa.uint64()), 0), NEVER).astype(np.int64)
    return np.where(_filled(pc.starts_with(text, "-"), False), -counts, counts)


def _read_iso(iso: pa.Array, missing: Mask, source: _Column) -> Int64s:
    aware = _matches(iso, r"[T ].*[Z+-]")
    local = ~missing & ~aware
    if source.timezone is None and aware.any() and local.any():
        both = np.zeros_like(aware)
        both[[aware.argmax(), local.argmax()]] = True
        what = f"{source.where} mixes zone-aware and zone-free values {source.examples(both)}"
        raise TimeError("T04", what, 'timezone: "Europe/Paris", if that is the zone of the zone-free values')

    def read(rows: Mask, kind: pa.DataType) -> Int64s:
        stamps = pc.if_else(pa.array(rows), iso, None).cast(kind)
        ns: Int64s = _filled(stamps.view(pa.int64()), 0).astype(np.int64, copy=False)
        return ns

    utc = read(aware, pa.timestamp("ns", "UTC"))
    return _localised(np.where(aware, utc, read(local, pa.timestamp("ns"))), local, source)


# --- single times ---------------------------------------------------------------------------------


def parse_instant(time: str | datetime | date | np.datetime64, where: str) -> int:
    """Returns the instant of a single time, by the rules of `to_utc`; without a zone it is UTC."""
    written = str(time)
    try:
        if isinstance(time, np.datetime64) and np.datetime_data(time.dtype)[0] in ("Y", "M"):
            time = time.astype("datetime64[D]")
        if isinstance(time, datetime) and time.tzinfo is not None:
            time = time.astimezone(UTC)
        # Text keeps the nanoseconds that a subclass of datetime may carry.
        written = time.isoformat() if isinstance(time, date) else str(time)
        parsed = to_utc(pa.array([written], pa.large_string()), where)
        code = "T02" if parsed.missing[0] else ""
    except (OverflowError, TimeError) as error:
        code = error.code if isinstance(error, TimeError) else "T06"
    if not code:
        return int(parsed.ns[0])
    what = {"T06": _OUTSIDE, "T07": " is a number, not a date"}.get(code, " is not a date")
    fix = "" if code == "T06" else "write it as 2024-01-31 or 2024-01-31 10:00:00"
    raise TimeError(code, f"{where}: {quoted(written)}{what}", fix)
