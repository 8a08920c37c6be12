"""Lengths of time: read in every spelling, refused where they have no fixed length, shown so that they read back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from quartet.times import DAY, NEVER, SECOND, parse_length, show_length
from tests.times.reading import quick, refusal

HOUR, MINUTE = 3600 * SECOND, 60 * SECOND


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30 days", 30 * DAY),
        ("7d", 7 * DAY),
        ("7 D", 7 * DAY),
        ("12 hours", 12 * HOUR),
        ("1 week", 7 * DAY),
        ("90 min", 90 * MINUTE),
        ("10m", 10 * MINUTE),
        ("5 m", 5 * MINUTE),
        ("1h30m", 90 * MINUTE),
        ("365 days 06:00:00", 365 * DAY + 6 * HOUR),
        ("0 days 00:00:00.000000001", 1),
        ("1 day, 2 hours", DAY + 2 * HOUR),
        ("1d12h", DAY + 12 * HOUR),
        ("01:30:00", HOUR + 30 * MINUTE),
        ("00:00:00.5", SECOND // 2),
        ("250 ms", 250 * 10**6),
        ("5us", 5000),
        ("5 ns", 5),
        ("45 s", 45 * SECOND),
        ("P30D", 30 * DAY),
        ("PT12H", 12 * HOUR),
        ("P1W", 7 * DAY),
        ("P1DT2H3M4S", DAY + 2 * HOUR + 3 * MINUTE + 4 * SECOND),
        ("pt1m", MINUTE),
    ],
)
def test_lengths(text: str, expected: int) -> None:
    assert parse_length(text, "horizon") == expected


FIX = "Fix: write it as 30 days, 7d, 12 hours, 1 week, 10m, 365 days 06:00:00, P30D or PT12H"


@pytest.mark.parametrize(
    "text",
    ["", "30", "days", "1.5 days", "7 dayz", "P", "PT", "P30", "1 day ago", "1 day 06:60:00", "٣d"],
)
def test_t15_for_what_is_no_length(text: str) -> None:
    assert refusal(parse_length, text, "horizon") == (
        f'error[T15] horizon: "{text}" is not a length of time. {FIX}'
    )


@pytest.mark.parametrize("text", ["1 month", "2 years", "1y", "3mo", "P1M", "P1Y", "P1Y2D", "1 quarter"])
def test_t15_for_lengths_that_vary(text: str) -> None:
    assert refusal(parse_length, text, "horizon") == (
        f'error[T15] horizon: "{text}" has no fixed length, as months and years vary. '
        "Fix: say it in days, such as 30 days or 365 days"
    )


@pytest.mark.parametrize("text", ["0 days", "-7 days", "-P7D", "P0D", "00:00:00"])
def test_t15_for_lengths_not_above_zero(text: str) -> None:
    assert refusal(parse_length, text, "horizon") == (
        f'error[T15] horizon: "{text}" is not above zero. {FIX}'
    )


@pytest.mark.parametrize(
    "text", ["106752 days", "106751 days 23:47:16.854775807", "999999999999999999 weeks"]
)
def test_t15_for_lengths_too_long_to_store(text: str) -> None:
    shown = text if len(text) <= 24 else text[:21] + "..."
    assert refusal(parse_length, text, "horizon") == (
        f'error[T15] horizon: "{shown}" is longer than this version stores, 106,751 days. {FIX}'
    )
    assert parse_length("106751 days", "horizon") == 106_751 * DAY


@pytest.mark.parametrize(
    ("ns", "shown"),
    [
        (30 * DAY, "30 days"),
        (DAY, "1 day"),
        (12 * HOUR, "12 hours"),
        (HOUR, "1 hour"),
        (DAY + 6 * HOUR, "1 day 06:00:00"),
        (90 * MINUTE, "01:30:00"),
        (2 * DAY + 1, "2 days 00:00:00.000000001"),
        (SECOND // 2, "00:00:00.5"),
        (0, "0 days"),
        (-DAY, "-1 day"),
        (np.int64(36 * HOUR), "1 day 12:00:00"),
    ],
)
def test_showing_lengths(ns: int, shown: str) -> None:
    assert show_length(ns) == shown


@quick
@given(length=st.integers(1, NEVER - 1))
@example(length=1)
@example(length=DAY - 1)
@example(length=NEVER - 1)
def test_a_length_shown_reads_back(length: int) -> None:
    assert parse_length(show_length(length), "x") == length
