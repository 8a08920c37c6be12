"""Times: int64 nanoseconds since 1970-01-01 UTC, and lengths of time in nanoseconds."""

from quartet.times.instants import DAY, NEVER, SECOND, STATIC, show_instant, to_arrow
from quartet.times.lengths import parse_length, show_length
from quartet.times.utc import parse_instant, to_utc

__all__ = [
    "DAY",
    "NEVER",
    "SECOND",
    "STATIC",
    "parse_instant",
    "parse_length",
    "show_instant",
    "show_length",
    "to_arrow",
    "to_utc",
]
