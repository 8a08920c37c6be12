"""Times: int64 nanoseconds since 1970-01-01 UTC, and lengths of time in nanoseconds."""

from quartet.times.instant import DAY, NEVER, STATIC, show_instant, to_arrow
from quartet.times.spans import parse_span, show_span
from quartet.times.utc import ParsedTimes, parse_instant, to_utc

__all__ = [
    "DAY",
    "NEVER",
    "STATIC",
    "ParsedTimes",
    "parse_instant",
    "parse_span",
    "show_instant",
    "show_span",
    "to_arrow",
    "to_utc",
]
