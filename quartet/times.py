"""Times: int64 nanoseconds since 1970-01-01 UTC, from whatever a source writes.

    cells                                   how they are read
    timestamp s, ms, us, ns; dates          as UTC, or as local times of `timezone`
    timestamps with a zone                  by their own zone, whatever `timezone` says
    ISO 8601 text, with or without offset   likewise: an offset wins over `timezone`
    other text                              by `format`; if all digits, as numbers
    whole numbers                           by `unit`, counted from 1970-01-01 UTC; or by `format`

What cannot be read, or can be read in two ways, is an error that names its rows, counted from 1.
Nothing depends on the zone or the language of the machine. Two parts of Arrow are not used: its
strptime reads 30 February as 1 March and a leap second as the next minute, so every text is
brought into ISO 8601 and held against one grammar; and its time zones know no summer after 2037,
so local times go through the clock changes that `zoneinfo` knows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import NoReturn
from zoneinfo import ZoneInfo, available_timezones

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from quartet.errors import TimeError, UsageError, did_you_mean, examples

Int64s = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.integer]
Mask = npt.NDArray[np.bool_]

STATIC = int(np.iinfo(np.int64).min)  # always known
NEVER = int(np.iinfo(np.int64).max)  # never known

_SECOND = 10**9
_DAY = 86_400 * _SECOND
_UNITS = {"s": _SECOND, "ms": 10**6, "us": 10**3, "ns": 1}

# The whole years that int64 nanoseconds hold. A local time may lie up to a day outside them.
_FIRST = int(np.datetime64("1678-01-01", "ns").astype(np.int64))
_END = int(np.datetime64("2262-01-01", "ns").astype(np.int64))
_FIRST_LOCAL, _END_LOCAL = "1677-12-31", "2262-01-02"


@dataclass(frozen=True)
class ParsedTimes:
    """One instant per row; `ns` is `NEVER` where the source says nothing."""

    ns: Int64s
    missing: Mask


@dataclass(frozen=True)
class _Column:
    """The cells as they came, and what was said of them."""

    cells: pa.Array
    where: str
    unit: str | None
    format: str | None
    timezone: str | None

    def shown(self, row: int) -> str:
        cell = self.cells[row]
        if _is_text(cell.type):
            return _quoted(cell.as_py())
        if pa.types.is_temporal(cell.type):
            return _trimmed(str(np.array(cell.value, f"datetime64[{_unit_of(cell.type)}]")))
        return str(cell.as_py())

    def examples(self, rows: Mask) -> str:
        first = np.flatnonzero(rows)[:3].tolist()
        return examples(f"{self.shown(row)} row {row + 1}" for row in first)

    def refuse(self, code: str, rows: Mask, what: str, fix: str) -> None:
        """Raise a TimeError with the count and the first of the marked rows, if there are any.

        In `what`, the words before and after a bar are for one row and for several.
        """
        if rows.any():
            count = int(rows.sum())
            one, _, several = what.partition("|")
            words = several if several and count > 1 else one
            raise TimeError(code, f"{self.where}: {count:,} {words} {self.examples(rows)}", fix)

    def refuse_outside(self, rows: Mask, fix: str = "") -> None:
        """Raise T06 if any row is marked: its time does not fit, and must not wrap around."""
        if rows.any():
            row, count = int(rows.argmax()), int(rows.sum())
            more = f" ({count:,} such rows)" if count > 1 else ""
            fix = fix or "correct it, or leave it empty if it stands for no date"
            raise TimeError("T06", f"{self.where} row {row + 1}: {self.shown(row)}{_OUTSIDE}{more}", fix)


_OUTSIDE = " is outside the range this version stores, 1678 to 2261"


def to_utc(
    column: pa.ChunkedArray | pa.Array,
    where: str,
    unit: str | None = None,
    format: str | None = None,
    timezone: str | None = None,
) -> ParsedTimes:
    """The instants of a column, exact to the nanosecond, by the rules at the top of this file.

    `where` names the column in messages. What is said of another kind of column is checked and has
    no effect: `unit` is for numbers, `format` for text, `timezone` for times without a zone.
    """
    source = _Column(_plain(column), where, unit, format, timezone)
    _check_words(source)
    kind = source.cells.type
    if _is_text(kind):
        return _from_text(source, source.cells)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return _from_numbers(source)
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return _from_stamps(source)
    fix = "choose a column of dates, text or whole numbers"
    raise TimeError("T02", f"{where} is {kind}, which holds no times", fix)


def _check_words(source: _Column) -> None:
    unit, timezone = source.unit, source.timezone
    if unit is not None and unit not in _UNITS:
        raise UsageError("C01", f'{source.where}: unknown time_unit "{unit}"{did_you_mean(unit, _UNITS)}')
    if source.format is not None:
        _pattern(source.format, source.where)
    # "localtime" is the zone of the machine: another machine would read other times.
    if timezone is not None and timezone not in (zones := available_timezones() - {"localtime"}):
        meant = did_you_mean(timezone, zones)
        raise UsageError("C01", f'{source.where}: unknown timezone "{timezone}"{meant}')


def _plain(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """The cells as one array without a dictionary, text and untyped nulls as large_string."""
    if isinstance(column, pa.ChunkedArray):
        return pa.concat_arrays([_plain(chunk) for chunk in column.chunks or [pa.array([], column.type)]])
    if pa.types.is_dictionary(column.type):
        return _plain(column.dictionary).take(column.indices)
    return column.cast(pa.large_string()) if _is_text(column.type) else column


def _is_text(kind: pa.DataType) -> bool:
    return kind in (pa.string(), pa.large_string(), pa.string_view(), pa.null())


def _parsed(ns: Int64s, missing: Mask, source: _Column, fix: str = "") -> ParsedTimes:
    source.refuse_outside(~missing & ((ns < _FIRST) | (ns >= _END)), fix)
    return ParsedTimes(np.where(missing, NEVER, ns), missing)


def _mask(answers: pa.Array) -> Mask:
    """Booleans of Arrow as numpy's, null as false."""
    found: Mask = pc.fill_null(answers, False).to_numpy(zero_copy_only=False)
    return found


def _numbers(cells: pa.Array) -> Numbers:
    """The numbers of the cells, 0 where null."""
    stored: Numbers = pc.fill_null(cells, 0).to_numpy()
    return stored


# --- timestamps, dates and local times ------------------------------------------------------------


def _from_stamps(source: _Column) -> ParsedTimes:
    cells, unit = source.cells, _unit_of(source.cells.type)
    missing = _mask(cells.is_null())
    counts = _numbers(cells.view(pa.int32() if unit == "D" else pa.int64()))
    ns = _scaled(counts, _DAY if unit == "D" else _UNITS[unit], source)
    if getattr(cells.type, "tz", None) is None:
        ns = _localised(ns, ~missing, source)
    return _parsed(ns, missing, source)


def _unit_of(kind: pa.DataType) -> str:
    if pa.types.is_date(kind):
        return "D" if pa.types.is_date32(kind) else "ms"
    return str(kind.unit)


def _scaled(counts: Numbers, per_unit: int, source: _Column, fix: str = "") -> Int64s:
    """Counts of a unit as nanoseconds; what the multiplication would wrap is refused first."""
    first, last = (_FIRST - _DAY) // per_unit, (_END + _DAY) // per_unit
    source.refuse_outside((counts < first) | (counts > last), fix)
    return counts.astype(np.int64) * per_unit


def _localised(ns: Int64s, local: Mask, source: _Column) -> Int64s:
    """UTC of the times marked as local; one that a clock change repeats or skips is refused."""
    if source.timezone is None or not local.any():
        return ns
    seconds = ns[local] // _SECOND
    changes, offsets = _clock_changes(source.timezone, int(seconds.min()), int(seconds.max()))
    shown = np.sort([changes + offsets[:-1], changes + offsets[1:]], axis=0)  # by clocks around a change
    before, after = (np.searchsorted(edge, seconds, side="right") for edge in (shown[1], shown[0]))
    _refuse_clock_changes(local, offsets[after] - offsets[before], source)
    utc = ns.copy()
    utc[local] -= offsets[before] * _SECOND
    return utc


def _clock_changes(timezone: str, first: int, last: int) -> tuple[Int64s, Int64s]:
    """When clocks changed, in seconds UTC, and the offsets before the first and after each change."""
    zone, epoch = ZoneInfo(timezone), datetime(1970, 1, 1, tzinfo=UTC)

    def offset(second: int) -> int:
        shift = (epoch + timedelta(seconds=second)).astimezone(zone).utcoffset()
        return 0 if shift is None else shift // timedelta(seconds=1)

    def changes(low: int, high: int, before: int, after: int) -> list[int]:
        if before == after or high - low == 1:
            return [] if before == after else [high]
        middle = (low + high) // 2
        between = offset(middle)
        return changes(low, middle, before, between) + changes(middle, high, between, after)

    # A look at each day misses nothing: the closest two changes of any zone are four days apart.
    days = range(first - 2 * 86_400, last + 3 * 86_400, 86_400)
    sampled = [*zip(days, map(offset, days), strict=True)]
    found = [t for (low, a), (high, b) in pairwise(sampled) for t in changes(low, high, a, b)]
    return np.array(found, np.int64), np.array([sampled[0][1], *map(offset, found)], np.int64)


def _refuse_clock_changes(local: Mask, shift: Int64s, source: _Column) -> None:
    fix = "store the column in UTC, or write such times with their offset (2024-10-27 02:30:00+02:00)"
    for is_odd, what in [
        (shift < 0, "happened twice, as the clocks went back"),
        (shift > 0, "never happened, as the clocks went forward"),
    ]:
        rows = np.zeros_like(local)
        rows[local] = is_odd
        noun = f"of {source.timezone} {what}"
        source.refuse("T04", rows, f"local time {noun}|local times {noun}", fix)


# --- numbers --------------------------------------------------------------------------------------


def _from_numbers(source: _Column) -> ParsedTimes:
    is_float = pa.types.is_floating(source.cells.type)
    numbers = _whole_numbers(source) if is_float else _numbers(source.cells)
    missing = _mask(source.cells.is_null(nan_is_null=True))
    if source.unit is None and source.format is not None:
        return _from_text(source, pa.array(numbers, mask=missing).cast(pa.large_string()))
    return _counted_from_1970(numbers, missing, source)


def _counted_from_1970(numbers: Numbers, missing: Mask, source: _Column) -> ParsedTimes:
    if missing.all():
        return ParsedTimes(np.full(len(missing), NEVER), missing)
    advice = _unit_advice(numbers[~missing], source.unit)
    if source.unit is None:
        what = f"{source.where} holds numbers without a unit {source.examples(~missing)}"
        raise TimeError("T07", what, advice or "say time_unit: s, ms, us or ns")
    return _parsed(_scaled(numbers, _UNITS[source.unit], source, advice), missing, source, advice)


def _whole_numbers(source: _Column) -> Int64s:
    """Floats as integers, exactly; what int64 cannot hold becomes its maximum, which no unit allows."""
    kind = source.cells.type
    floats = pc.fill_null(source.cells.cast(pa.float64()), float("nan")).to_numpy()
    floats = np.where(np.isnan(floats), 0, floats)
    is_decimal = ~np.isfinite(floats) | (np.floor(floats) != floats)
    fix = "store them as integers of a finer time_unit"
    source.refuse("T02", is_decimal, "value is not a whole number|values are not whole numbers", fix)
    if kind != pa.float64():  # a double blurs a time by less than a microsecond, a float by minutes
        is_blurred = np.abs(floats) > 2.0 ** (np.finfo(kind.to_pandas_dtype()).nmant + 1)
        large = f"too large for {kind} to hold exactly"
        source.refuse("T02", is_blurred, f"value is {large}|values are {large}", "store them as int64")
    fits = np.abs(floats) < 2.0**63
    return np.where(fits, np.where(fits, floats, 0).astype(np.int64), NEVER)


# Typical values (counts since 1970: from 1973 on), what they look like, and what to say then.
_LOOKS = [
    (1678, 2261, "years", "time_format: '%Y'"),
    (1678_01_01, 2261_12_31, "year, month and day", "time_format: '%Y%m%d'"),
    (1678_01_01_00_00_00, 2261_12_31_23_59_59, "year to second", "time_format: '%Y%m%d%H%M%S'"),
    (10**8, _END // _UNITS["s"], "seconds", "time_unit: s"),
    (10**11, _END // _UNITS["ms"], "milliseconds", "time_unit: ms"),
    (10**14, _END // _UNITS["us"], "microseconds", "time_unit: us"),
    (10**17, _END, "nanoseconds", "time_unit: ns"),
]


def _unit_advice(numbers: Numbers, unit: str | None) -> str:
    """`looks like milliseconds; say time_unit: ms`, by the median; empty if that says nothing new."""
    middle = len(numbers) // 2
    typical = abs(int(np.partition(numbers, middle)[middle]))
    for low, high, name, saying in _LOOKS:
        if low <= typical <= high and saying != f"time_unit: {unit}":
            return f"looks like {name}; say {saying}"
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
_HAS_OFFSET = r"[T ].*[Z+-]"
_DIGITS = r"^-?\d+$"


def _from_text(source: _Column, text: pa.Array) -> ParsedTimes:
    text = pc.utf8_trim_whitespace(text)
    text = pc.if_else(pc.is_in(text, _MISSING), None, text)
    missing = _mask(text.is_null())
    if source.format is None and (missing | _matches(text, _DIGITS)).all():
        return _counted_from_1970(_read_digits(text), missing, source)
    iso = text if source.format is None else _rearranged(text, source.format, source.where)
    _refuse_unreadable(~missing & ~_matches(iso, _ISO), source)
    source.refuse_outside(_mask(pc.or_(pc.less(iso, _FIRST_LOCAL), pc.greater_equal(iso, _END_LOCAL))))
    return _parsed(_read_iso(iso, missing, source), missing, source)


def _matches(text: pa.Array, pattern: str) -> Mask:
    return _mask(pc.match_substring_regex(text, pattern))


def _read_digits(text: pa.Array) -> Int64s:
    """Digits as integers; what int64 cannot hold becomes its maximum, which no unit allows."""
    digits = pc.utf8_ltrim(text, characters="-")
    digits = pc.if_else(pc.greater(pc.utf8_length(digits), 19), "9" * 19, digits)
    counts = np.minimum(_numbers(digits.cast(pa.uint64())), NEVER).astype(np.int64)
    return np.where(_mask(pc.starts_with(text, "-")), -counts, counts)


def _read_iso(iso: pa.Array, missing: Mask, source: _Column) -> Int64s:
    aware = _matches(iso, _HAS_OFFSET)
    local = ~missing & ~aware
    if source.timezone is None and aware.any() and local.any():
        _refuse_mixed(aware, local, source)
    local_ns = _localised(_cast(iso, local, pa.timestamp("ns")), local, source)
    return np.where(aware, _cast(iso, aware, pa.timestamp("ns", "UTC")), local_ns)


def _cast(iso: pa.Array, rows: Mask, kind: pa.DataType) -> Int64s:
    stamps = pc.if_else(pa.array(rows), iso, None).cast(kind)
    return _numbers(stamps.view(pa.int64())).astype(np.int64, copy=False)


def _refuse_unreadable(rows: Mask, source: _Column) -> None:
    fix, form = "say time_format, such as '%d/%m/%Y'", ""
    if source.format is not None:
        fix, form = "correct time_format or the values", f" of the form '{source.format}'"
    source.refuse("T02", rows, f"value is not a date{form}|values are not dates{form}", fix)


def _refuse_mixed(aware: Mask, local: Mask, source: _Column) -> NoReturn:
    both = np.zeros_like(aware)
    both[[aware.argmax(), local.argmax()]] = True
    raise TimeError(
        "T04",
        f"{source.where} mixes zone-aware and zone-free values {source.examples(both)}",
        'timezone: "Europe/Paris", if that is the zone of the zone-free values',
    )


# --- text of another form -------------------------------------------------------------------------

_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_FULL_MONTHS = "january|february|march|april|may|june|july|august|september|october|november|december"
_DIRECTIVES = {  # letter: the part of a time that it gives, what it matches
    "Y": ("year", r"\d{4}"),
    "y": ("year", r"\d{2}"),
    "m": ("month", r"\d{1,2}"),
    "b": ("month", f"(?i:{'|'.join(_MONTHS)})"),
    "B": ("month", f"(?i:{_FULL_MONTHS})"),
    "d": ("day", r"\d{1,2}"),
    "H": ("hour", r"\d{1,2}"),
    "I": ("hour", r"\d{1,2}"),
    "M": ("minute", r"\d{1,2}"),
    "S": ("second", r"\d{1,2}"),
    "f": ("fraction", r"\d{1,9}"),
    "z": ("offset", r"Z|[+-]\d\d:?\d\d"),
    "p": ("half", "(?i:am|pm)"),
    "a": ("weekday", "[A-Za-z]+"),
    "A": ("weekday", "[A-Za-z]+"),
}
_ISO_PARTS = {  # in their order: the mark before each, and its value where a format leaves it out
    "year": ("", ""),
    "month": ("-", "01"),
    "day": ("-", "01"),
    "hour": ("T", "00"),
    "minute": (":", "00"),
    "second": (":", "00"),
    "fraction": (".", "0"),
    "offset": ("", ""),
}
_TOKEN = re.compile(r"%(.?)|(\s+)|([^%\s]+)", re.DOTALL)
_RUN_TOGETHER = re.compile("%[YymdHIMSf]%[YymdHIMSf]")


def _pattern(format: str, where: str) -> str:
    """The regular expression of a strptime format, with a group per directive, named by its letter."""
    _check_format(format, where)
    pattern = "".join(_matching(*token) for token in _TOKEN.findall(format))
    # '%Y%m%d' must not choose whether 2024111 is 11 January or 1 November.
    return f"^{pattern.replace('{1,2}', '{2}') if _RUN_TOGETHER.search(format) else pattern}$"


def _matching(letter: str, space: str, literal: str) -> str:
    if letter and letter != "%":
        return f"(?P<{letter}>{_DIRECTIVES[letter][1]})"
    return r"\s+" if space else re.escape(literal or letter)


def _check_format(format: str, where: str) -> None:
    letters = re.findall(r"%(.?)", format.replace("%%", ""), re.DOTALL)
    parts = [_DIRECTIVES[letter][0] for letter in letters if letter in _DIRECTIVES]
    clock = [part for part in _ISO_PARTS if part in parts and part != "offset"]
    left_out = [part for part in [*_ISO_PARTS][: len(clock) or 1] if part not in clock]
    problem = ""
    if unknown := [letter for letter in letters if letter not in _DIRECTIVES]:
        problem = f"has the unknown directive %{unknown[0]}"
    elif repeated := [part for part in parts if parts.count(part) > 1]:
        problem = f"gives the {repeated[0]} twice"
    elif left_out:
        problem = f"gives no {left_out[0]}"
    elif ("I" in letters) != ("p" in letters):
        problem = "has only one of %I and %p"
    if problem:
        known = " ".join(f"%{letter}" for letter in _DIRECTIVES)
        fix = f"use each part once, none left out above the smallest, of {known} %%"
        raise UsageError("C01", f"{where}: time_format '{format}' {problem}", fix)


def _rearranged(text: pa.Array, format: str, where: str) -> pa.Array:
    """The texts in ISO 8601 form, null where they are not of the format."""
    groups = pc.extract_regex(text, pattern=_pattern(format, where))
    found = dict(zip((group.name for group in groups.type), groups.flatten(), strict=True))
    if "p" in found:
        found["I"] = _hour_of_day(found["I"], found["p"])
    parts = {_DIRECTIVES[letter][0]: _iso_part(letter, cells) for letter, cells in found.items()}
    pieces = [piece for part, (mark, value) in _ISO_PARTS.items() for piece in (mark, parts.get(part, value))]
    return _joined(*pieces)


def _iso_part(letter: str, cells: pa.Array) -> pa.Array:
    """What a directive found, written as ISO 8601 writes it."""
    if letter == "y":  # as POSIX reads two digits: 69 to 99 are 19.., 00 to 68 are 20..
        century = pc.if_else(pc.less(cells, "69"), "20", "19")
        return _joined(century.cast(pa.large_string()), cells)
    if letter in "bB":
        short = pc.utf8_slice_codeunits(pc.utf8_lower(cells), 0, 3)
        cells = pc.add(_place(short, _MONTHS), 1).cast(pa.large_string())
    return cells if letter in "fz" else pc.utf8_lpad(cells, width=2, padding="0")


def _hour_of_day(hours: pa.Array, halves: pa.Array) -> pa.Array:
    """0 to 23 for `12 am` to `11 pm`; null for an hour that such a clock does not show."""
    clock = [f"{hour or 12:02}{half}" for half in ("am", "pm") for hour in range(12)]
    written = _joined(pc.utf8_lpad(hours, width=2, padding="0"), pc.utf8_lower(halves))
    return _place(written, clock).cast(pa.large_string())


def _place(text: pa.Array, known: list[str]) -> pa.Array:
    return pc.index_in(text, pa.array(known, pa.large_string()), skip_nulls=True)


def _joined(*pieces: pa.Array | str) -> pa.Array:
    """The pieces in a row; null where one of them is."""
    cells = [pa.scalar(piece, pa.large_string()) if isinstance(piece, str) else piece for piece in pieces]
    return pc.binary_join_element_wise(*cells, pa.scalar("", pa.large_string()))


# --- single times and spans -----------------------------------------------------------------------


def parse_instant(text: str | datetime | date | np.datetime64, where: str) -> int:
    """The instant of a single time, by the rules of `to_utc`; without a zone it is UTC."""
    try:
        written = _written(text)
        parsed = to_utc(pa.array([written], pa.large_string()), where)
    except OverflowError:
        raise _single_error("T06", str(text), where) from None
    except TimeError as error:
        raise _single_error(error.code, written, where) from None
    if parsed.missing[0]:
        raise _single_error("T02", written, where)
    return int(parsed.ns[0])


def _written(time: str | datetime | date | np.datetime64) -> str:
    """ISO 8601 of a time. Text keeps the nanoseconds that a subclass of datetime may carry."""
    if isinstance(time, np.datetime64) and np.datetime_data(time.dtype)[0] in ("Y", "M"):
        time = time.astype("datetime64[D]")
    if isinstance(time, datetime) and time.tzinfo is not None:
        time = time.astimezone(UTC)
    return time.isoformat() if isinstance(time, date) else str(time)


def _single_error(code: str, written: str, where: str) -> TimeError:
    written = _quoted(written)
    fix = "write it as 2024-01-31 or 2024-01-31 10:00:00"
    if code == "T06":
        return TimeError(code, f"{where}: {written}{_OUTSIDE}")
    if code == "T07":
        return TimeError(code, f"{where}: {written} is a number, not a date", fix)
    return TimeError(code, f"{where}: {written} is not a date", fix)


_VARIES = 0  # the length of a month or a year
_SPAN_WORDS = {
    "w wk week weeks": 7 * _DAY,
    "d day days": _DAY,
    "h hr hrs hour hours": 3600 * _SECOND,
    "min mins minute minutes": 60 * _SECOND,
    "s sec secs second seconds": _SECOND,
    "ms millisecond milliseconds": 10**6,
    "us microsecond microseconds": 10**3,
    "ns nanosecond nanoseconds": 1,
    "mo month months quarter quarters y yr yrs year years": _VARIES,
}
_SPAN_UNITS = {word: length for words, length in _SPAN_WORDS.items() for word in words.split()}
_N = r"(\d{1,18})"
_ISO_SPAN = re.compile(
    rf"p(?:{_N}y)?(?:{_N}m)?(?:{_N}w)?(?:{_N}d)?(?:t(?:{_N}h)?(?:{_N}m)?(?:{_N}s)?)?", re.ASCII
)
_SAID_SPAN = re.compile(
    r"((?:\d{1,18}\s*[a-z]+[\s,]*)*)(?:(\d{1,2}):([0-5]\d):([0-5]\d)(?:\.(\d{1,9}))?)?", re.ASCII
)


def parse_span(text: str, where: str) -> int:
    """The nanoseconds of a length of time such as `30 days`, `12 hours` or `P30D`; above zero."""
    said = f"{where}: {_quoted(text)}"
    fix = "write it as 30 days, 7d, 12 hours, 1 week, 90 min, 365 days 06:00:00, P30D or PT12H"
    amounts = _amounts(text.strip().lower().removeprefix("-").lstrip())
    if not amounts or any(unit not in _SPAN_UNITS for _, unit in amounts):
        raise TimeError("T15", f"{said} is not a length of time", fix)
    if any(_SPAN_UNITS[unit] == _VARIES for _, unit in amounts):
        fix = "say it in days, such as 30 days or 365 days"
        raise TimeError("T15", f"{said} has no fixed length, as months and years vary", fix)
    span = sum(amount * _SPAN_UNITS[unit] for amount, unit in amounts)
    if span == 0 or text.strip().startswith("-"):
        raise TimeError("T15", f"{said} is not above zero", fix)
    if span >= NEVER:
        raise TimeError("T15", f"{said} is longer than this version stores, {NEVER // _DAY:,} days", fix)
    return span


def _amounts(text: str) -> list[tuple[int, str]]:
    """Pairs of an amount and its unit; none if the text is no length of time."""
    if match := _ISO_SPAN.fullmatch(text):
        units = ["years", "months", "weeks", "days", "hours", "minutes", "seconds"]
        return [(int(n), unit) for n, unit in zip(match.groups(), units, strict=True) if n]
    if not (match := _SAID_SPAN.fullmatch(text)):
        return []
    words, *clock, fraction = match.groups()
    pairs = [*re.findall(r"(\d+)\s*([a-z]+)", words), *zip(clock, ["h", "min", "s"], strict=True)]
    pairs += [(fraction.ljust(9, "0"), "ns")] if fraction else []
    return [(int(n), unit) for n, unit in pairs if n]


# --- showing --------------------------------------------------------------------------------------


def show_instant(ns: int) -> str:
    """`2013-10-01` at midnight, else `2013-10-01 05:15:00`, with a fraction only if there is one."""
    if ns in (STATIC, NEVER):
        return "always" if ns == STATIC else "never"
    return _trimmed(str(np.datetime64(int(ns), "ns")))


def _trimmed(iso: str) -> str:
    day, _, clock = iso.partition("T")
    whole, _, fraction = clock.partition(".")
    fraction = fraction.rstrip("0")
    if whole in ("", "00:00:00") and not fraction:
        return day
    return f"{day} {whole}" + (f".{fraction}" if fraction else "")


def show_span(ns: int) -> str:
    """`30 days`, `12 hours`, `1 day 06:00:00`: text that `parse_span` reads back."""
    if ns < 0:
        return f"-{show_span(-ns)}"
    days, rest = divmod(int(ns), _DAY)
    hours, below = divmod(rest, _SPAN_UNITS["hours"])
    if days == 0 and hours and not below:
        return _plural(hours, "hour")
    clock = _clock(rest) if rest else ""
    return f"{_plural(days, 'day')} {clock}".strip() if days or not clock else clock


def _clock(ns: int) -> str:
    seconds, fraction = divmod(ns, _SECOND)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return text + (f".{fraction:09}".rstrip("0") if fraction else "")


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _quoted(text: str) -> str:
    """The text in quotes, shortened, with what a terminal might obey or hide written as escapes."""
    escaped = repr(text)[1:-1]
    return f'"{escaped}"' if len(escaped) <= 24 else f'"{escaped[:21]}..."'


def to_arrow(ns: Int64s) -> pa.Array:
    """The instants as timestamps in UTC without a zone, `NEVER` as null; `STATIC` is no instant."""
    if (ns == STATIC).any():
        raise ValueError("a row that was always known has no time to write")
    return pa.array(ns, pa.timestamp("ns"), mask=ns == NEVER)
