"""Lengths of time: read from `30 days`, `10m` or `P30D`, and shown so that they read back."""

from __future__ import annotations

import re

from quartet.errors import TimeError
from quartet.times.instants import DAY, NEVER, SECOND, quoted

_HOUR, _MINUTE = 3600 * SECOND, 60 * SECOND
_VARIES = 0  # the length of a month or a year
_UNIT_WORDS = {
    "w wk week weeks": 7 * DAY,
    "d day days": DAY,
    "h hr hrs hour hours": _HOUR,
    "m min mins minute minutes": _MINUTE,
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
    """Returns the nanoseconds of a length of time such as `30 days`, `10m` or `P30D`; above zero."""
    amounts = _amounts(text.strip().lower().removeprefix("-").lstrip())
    length = sum(amount * _UNITS.get(unit, 0) for amount, unit in amounts)
    fix = "write it as 30 days, 7d, 12 hours, 1 week, 10m, 365 days 06:00:00, P30D or PT12H"
    if not amounts or any(unit not in _UNITS for _, unit in amounts):
        problem = "is not a length of time"
    elif any(_UNITS[unit] == _VARIES for _, unit in amounts):
        problem, fix = (
            "has no fixed length, as months and years vary",
            "say it in days, such as 30 days or 365 days",
        )
    elif length == 0 or text.strip().startswith("-"):
        problem = "is not above zero"
    elif length >= NEVER:
        problem = f"is longer than this version stores, {NEVER // DAY:,} days"
    else:
        return length
    raise TimeError("T15", f"{where}: {quoted(text)} {problem}", fix)


def _amounts(text: str) -> list[tuple[int, str]]:
    """Returns pairs of an amount and its unit; none if the text is no length of time."""
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
    """Returns `30 days`, `12 hours` or `1 day 06:00:00`: text that `parse_length` reads back."""
    if ns < 0:
        return f"-{show_length(-ns)}"
    days, rest = divmod(int(ns), DAY)
    hours, minutes, seconds = rest // _HOUR, rest % _HOUR // _MINUTE, rest % _MINUTE // SECOND
    fraction = f".{rest % SECOND:09}".rstrip("0") if rest % SECOND else ""
    if not days and rest and rest % _HOUR == 0:
        return f"{hours} hour{'s' if hours != 1 else ''}"
    whole = f"{days} day{'s' if days != 1 else ''}" if days or not rest else ""
    return f"{whole} {hours:02}:{minutes:02}:{seconds:02}{fraction}".strip() if rest else whole
