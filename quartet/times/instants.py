"""Instants: their constants, how one is shown, and how they are written to Arrow."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

STATIC = int(np.iinfo(np.int64).min)  # always known
NEVER = int(np.iinfo(np.int64).max)  # never known

SECOND = 10**9
DAY = 86_400 * SECOND
UNITS = {"s": SECOND, "ms": 10**6, "us": 10**3, "ns": 1}
PERIODS = {"year": "Y", "month": "M", "day": "D"}  # as NumPy calls them

# The whole years that int64 nanoseconds hold. A local time may lie up to a day outside them.
FIRST = int(np.datetime64("1678-01-01", "ns").astype(np.int64))
END = int(np.datetime64("2262-01-01", "ns").astype(np.int64))
FIRST_LOCAL, END_LOCAL = "1677-12-31", "2262-01-02"


def show_instant(ns: int) -> str:
    """Returns `2013-10-01` at midnight, else `2013-10-01 05:15:00`, with a fraction only if there is one."""
    if ns in (STATIC, NEVER):
        return "always" if ns == STATIC else "never"
    return trimmed(str(np.datetime64(int(ns), "ns")))


def trimmed(iso: str) -> str:
    """Returns an ISO 8601 time without a midnight and without the trailing zeros of its fraction."""
    day, _, clock = iso.partition("T")
    whole, _, fraction = clock.partition(".")
    fraction = fraction.rstrip("0")
    if whole in ("", "00:00:00") and not fraction:
        return day
    return f"{day} {whole}" + (f".{fraction}" if fraction else "")


def quoted(text: str) -> str:
    """Returns the text in quotes, shortened, with escapes for what a terminal might obey or hide."""
    escaped = repr(text)[1:-1]
    return f'"{escaped}"' if len(escaped) <= 24 else f'"{escaped[:21]}..."'


def to_arrow(ns: Int64s) -> pa.Array:
    """Returns the instants as timestamps in UTC without a zone, `NEVER` as null; `STATIC` is refused."""
    if (ns == STATIC).any():
        raise ValueError("a row that was always known has no time to write")
    return pa.array(ns, pa.timestamp("ns"), mask=ns == NEVER)
