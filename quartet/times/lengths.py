"""Lengths of time: read from `30 days`, `12 hours` or `P30D`, and shown so that they read back."""

from __future__ import annotations

import re

from quartet.errors import TimeError
from quartet.times.instant import DAY, NEVER, SECOND, quoted

_VARIES = 0  # the length of a month or a year
_UNIT_WORDS = {
    "w wk week weeks": 7 * DAY,
    "d day days": DAY,
    "h hr hrs hour hours": 3600 * SECOND,
    "m min mins minute minutes": 60 * SECOND,
    "s sec secs second seconds": SECOND,
    "ms millisecond milliseconds": 10**6,
    "us microsecond microseconds": 10**3,
    "ns nanosecond nanoseconds": 1,
    "mo month months quarter quarters y yr yrs year years": _VARIES,
}
_UNITS = {word: length for words, length in _UNIT_WORDS.items() for word in words.split()}
_N = r"(\d{1,18})"
_ISO = re.compile(rf"p(?:{_N}y)?(?:{_N}m)?(?:{_N}w)?(?:{_N}d)?(?:t(?:{_N}h)?(?:{_N}m)?(?:{_N}s)?)?", re.ASCII)
_WRITTEN = re.compile(
    r"((?:\d{1,18}\s*[a-z]+[\s,]*)*)(?:(\d{1,2}):([0-5]\d):([0-5]\d)(?:\.(\d{1,9}))?)?", re.ASCII
)


def parse_length(text: str, where: str) -> int:
    """The nanoseconds of a length of time such as `30 days`, `12 hours` or `P30D`; above zero."""
    said = f"{where}: {quoted(text)}"
    fix = "write it as 30 days, 7d, 12 hours, 1 week, 90 min, 365 days 06:00:00, P30D or PT12H"
    amounts = _amounts(text.strip().lower().removeprefix("-").lstrip())
    if not amounts or any(unit not in _UNITS for _, unit in amounts):
        raise TimeError("T15", f"{said} is not a length of time", fix)
    if any(_UNITS[unit] == _VARIES for _, unit in amounts):
        fix = "say it in days, such as 30 days or 365 days"
        raise TimeError("T15", f"{said} has no fixed length, as months and years vary", fix)
    span = sum(amount * _UNITS[unit] for amount, unit in amounts)
    if span == 0 or text.strip().startswith("-"):
        raise TimeError("T15", f"{said} is not above zero", fix)
    if span >= NEVER:
        raise TimeError("T15", f"{said} is longer than this version stores, {NEVER // DAY:,} days", fix)
    return span


def _amounts(text: str) -> list[tuple[int, str]]:
    """Pairs of an amount and its unit; none if the text is no length of time."""
    if match := _ISO.fullmatch(text):
        units = ["years", "months", "weeks", "days", "hours", "minutes", "seconds"]
        return [(int(n), unit) for n, unit in zip(match.groups(), units, strict=True) if n]
    if not (match := _WRITTEN.fullmatch(text)):
        return []
    words, *clock, fraction = match.groups()
    pairs = [*re.findall(r"(\d+)\s*([a-z]+)", words), *zip(clock, ["h", "min", "s"], strict=True)]
    pairs += [(fraction.ljust(9, "0"), "ns")] if fraction else []
    return [(int(n), unit) for n, unit in pairs if n]


def show_length(ns: int) -> str:
    """`30 days`, `12 hours`, `1 day 06:00:00`: text that `parse_length` reads back."""
    if ns < 0:
        return f"-{show_length(-ns)}"
    days, rest = divmod(int(ns), DAY)
    hours, below = divmod(rest, _UNITS["hours"])
    if days == 0 and hours and not below:
        return _plural(hours, "hour")
    clock = _clock(rest) if rest else ""
    return f"{_plural(days, 'day')} {clock}".strip() if days or not clock else clock


def _clock(ns: int) -> str:
    seconds, fraction = divmod(ns, SECOND)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return text + (f".{fraction:09}".rstrip("0") if fraction else "")


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
