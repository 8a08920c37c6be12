"""Times: int64 nanoseconds since 1970-01-01 UTC, and lengths of time in nanoseconds."""

from quartet.times.formats import smallest_part
from quartet.times.instants import DAY, FIRST, NEVER, PERIODS, SECOND, STATIC, show_instant, to_arrow
from quartet.times.lengths import parse_length, show_length
from quartet.times.utc import ParsedTimes, is_iso, parse_instant, to_utc

__all__ = [
    "DAY",
    "FIRST",
    "NEVER",
    "PERIODS",
    "SECOND",
    "STATIC",
    "ParsedTimes",
    "is_iso",
    "parse_instant",
    "parse_length",
    "show_instant",
    "show_length",
    "smallest_part",
    "to_arrow",
    "to_utc",
]
