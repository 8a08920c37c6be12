"""Reading times in tests: what `to_utc` makes of a column, how it refuses one, and spellings of one instant."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings

from quartet.errors import QuartetError, TimeError
from quartet.times import NEVER, SECOND, parse_instant, parse_length, show_instant, to_utc

FIRST, LAST = -9_214_560_000 * SECOND, 9_214_646_400 * SECOND - 1  # 1678-01-01, the end of 2261
UNITS = {"s": SECOND, "ms": 10**6, "us": 10**3, "ns": 1}

quick = settings(max_examples=100, deadline=None)


def read(cells: object, kind: pa.DataType | None = None, **words: str) -> list[int | None]:
    """What `to_utc` makes of a column, None where missing."""
    column = cells if isinstance(cells, pa.Array | pa.ChunkedArray) else pa.array(cells, kind)
    parsed = to_utc(column, "orders.ts", **words)
    assert parsed.ns.dtype == np.int64
    assert parsed.missing.dtype == np.bool_
    assert (parsed.ns[parsed.missing] == NEVER).all()
    return [
        None if gone else ns for ns, gone in zip(parsed.ns.tolist(), parsed.missing.tolist(), strict=True)
    ]


def refusal(
    call: Callable[..., object], *given: object, error: type[QuartetError] = TimeError, **words: str
) -> str:
    with pytest.raises(QuartetError) as caught:
        call(*given, **words)
    assert type(caught.value) is error
    return str(caught.value)


def utc(*parts: int) -> int:
    """Nanoseconds of a time in UTC, by integer arithmetic on Python's datetime."""
    return (
        (datetime(*parts, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1000
    )


SPELT = {  # the same second as text: after and before 1970
    utc(2013, 10, 1, 5, 15): [
        "2013-10-01T05:15:00", "2013-10-01 05:15:00", "2013-10-01 05:15", "2013-10-01T05:15:00.000000000",
        "2013-10-01T05:15:00Z", "2013-10-01 05:15Z", "2013-10-01T07:15:00+02:00", "2013-10-01T07:15:00.0+0200",
        "2013-10-01T07:15+02", "2013-10-01T10:45:00+05:30", "2013-09-30T19:15:00-10:00", "  2013-10-01 05:15:00\t",
    ],
    utc(1931, 5, 6, 7): [
        "1931-05-06T07:00:00", "1931-05-06 07", "1931-05-06T07Z", "1931-05-06 09+02", "1931-05-05T23:30:00.000-0730",
    ],
    utc(2024, 2, 29): ["2024-02-29", "2024-02-29T00", "2024-02-29T05:45:00+05:45"],
    utc(2000, 2, 29): ["2000-02-29"],
    0: ["1970-01-01", "1970-01-01T00:00:00Z", "1969-12-31T23:00-01"],
}  # fmt: skip
ZONES = ["Europe/Paris", "America/New_York", "America/Sao_Paulo", "Asia/Kolkata", "Australia/Lord_Howe",
         "Africa/Casablanca", "Pacific/Apia", "UTC"]  # fmt: skip


def core_digest() -> str:
    """A digest of everything that could depend on the zone of the machine."""
    results: list[object] = [read([text]) for texts in SPELT.values() for text in texts]
    for unit, per_unit in UNITS.items():
        counts = pa.array([ns // per_unit for ns in SPELT])
        results += [read(counts.cast(pa.timestamp(unit))), read(counts, unit=unit)]
        results += [read(counts.cast(pa.timestamp(unit, zone))) for zone in ZONES]
    results += [read([0], pa.timestamp(unit), timezone=zone) for unit in UNITS for zone in ZONES]
    results += [read(["2024-07-01 12:00"], timezone=zone) for zone in ZONES]
    results += [read([date(2024, 7, 1)], pa.date32()), read(["1/7/2024 3PM"], format="%d/%m/%Y %I%p")]
    results += [parse_instant(datetime(2024, 7, 1, 12), "x"), parse_instant(date(2024, 3, 31), "x")]
    results += [parse_instant(np.datetime64("2024-03-10T02:30"), "x"), parse_length("1 day", "x")]
    results += [show_instant(ns) for ns in SPELT]
    return hashlib.sha256(repr(results).encode()).hexdigest()
