"""What is refused instead of read: T02, T04, T06 and T07, with the rows, the values and what to do."""

from __future__ import annotations

from datetime import date, datetime

import pyarrow as pa
import pytest

from quartet.errors import UsageError
from quartet.times import NEVER, SECOND, STATIC, parse_instant
from tests.times.reading import FIRST, LAST, UNITS, read, refusal, utc

FORMAT_FIX = "Fix: say time_format, such as '%d/%m/%Y'"


def test_t02_says_how_many_which_and_where() -> None:
    cells = ["2024-01-01", None, "13/31/2024", "2024-02-30", "soon", "x", "2024-01-01 10:00:00.1234567890"]
    assert refusal(read, cells) == (
        'error[T02] orders.ts: 5 values are not dates ("13/31/2024" row 3, "2024-02-30" row 4, '
        f'"soon" row 5). {FORMAT_FIX}'
    )


@pytest.mark.parametrize(
    "text",
    [
        "2023-02-29", "1900-02-29", "2024-1-1", "24-01-01", "2024-01", "2024-13-01",
        "2024-01-01T24:00:00", "2024-01-01T10:60", "2024-01-01T1000", "2024-01-01t10:00",
        "2024-01-01T10:00:00z", "2024-01-01Z", "2024-01-01+02:00", "2024-01-01T10:00:00.",
        "2024-01-01T10:00:00,5", "2024-01-01T10:00+24:00", "2024-01-01T10:00+02:60",
        "2024-01-01T10:00+2", "2024-01-01  10:00", "2024-01-01\n10:00", "12024-01-01",
        "-2024-01-01", "NULL", "nan", "1.7e9", "1700000000.0", "٢٠٢٤-٠١-٠١",
    ],
)  # fmt: skip
def test_t02_for_what_only_looks_like_a_time(text: str) -> None:
    assert "error[T02] orders.ts: 1 value is not a date" in refusal(read, [text, "2024-01-01"])
    assert refusal(parse_instant, text, "--at").startswith("error[T02] --at: ")


def test_t02_quotes_cells_without_obeying_them() -> None:
    assert refusal(read, ["\x1b[31mred\nline\u202e", "y" * 500]) == (
        r'error[T02] orders.ts: 2 values are not dates ("\x1b[31mred\nline\u202e" row 1, '
        f'"yyyyyyyyyyyyyyyyyyyyy..." row 2). {FORMAT_FIX}'
    )


def test_t02_under_a_format() -> None:
    cells = ["30/02/2024", "29/02/2024", "2024-01-01", "1/1/24"]
    assert refusal(read, cells, format="%d/%m/%Y") == (
        "error[T02] orders.ts: 3 values are not dates of the form '%d/%m/%Y' "
        '("30/02/2024" row 1, "2024-01-01" row 3, "1/1/24" row 4). Fix: correct time_format or the values'
    )
    for text, format in [
        ("23:59:60 31-12-2016", "%H:%M:%S %d-%m-%Y"),
        ("1/1/2024 13 PM", "%d/%m/%Y %I %p"),
        ("1/1/2024 0 AM", "%d/%m/%Y %I %p"),
        ("2024111", "%Y%m%d"),
        ("1 Foo 2024", "%d %b %Y"),
        ("1 February 2024", "%d %b %Y"),
        ("2024-01-01 trailing", "%Y-%m-%d"),
    ]:
        assert "1 value is not a date of the form" in refusal(read, [text], format=format)


def test_t02_for_numbers_that_are_no_count() -> None:
    assert refusal(read, [1.0, 1.5, float("inf"), None], unit="s") == (
        "error[T02] orders.ts: 2 values are not whole numbers (1.5 row 2, inf row 3). "
        "Fix: store them as integers of a finer time_unit"
    )
    assert refusal(read, [5.0, 1.7e9], pa.float32(), unit="s") == (
        "error[T02] orders.ts: 1 value is too large for float to hold exactly (1700000000.0 row 2). "
        "Fix: store them as int64"
    )
    assert read([2.0**24, -(2.0**24)], pa.float32(), unit="s") == [2**24 * SECOND, -(2**24) * SECOND]


@pytest.mark.parametrize("kind", [pa.bool_(), pa.time64("us"), pa.duration("s"), pa.binary()], ids=str)
def test_t02_for_columns_that_hold_no_times(kind: pa.DataType) -> None:
    assert refusal(read, [None], kind) == (
        f"error[T02] orders.ts is {kind}, which holds no times. "
        "Fix: choose a column of dates, text or whole numbers"
    )


def test_t04_mixed_text() -> None:
    cells = ["2024-01-01", None, "2024-01-01T00:00Z", "2024-01-02"]
    assert refusal(read, cells) == (
        'error[T04] orders.ts mixes zone-aware and zone-free values ("2024-01-01" row 1, '
        '"2024-01-01T00:00Z" row 3). Fix: timezone: "Europe/Paris", if that is the zone of the '
        "zone-free values"
    )


CLOCK_FIX = "Fix: store the column in UTC, or write such times with their offset (2024-10-27 02:30:00+02:00)"


def test_t04_local_times_that_happened_twice_or_never() -> None:
    twice = ["2024-10-27 01:59", "2024-10-27 02:00", None, "2024-10-27 02:59:59.999999999"]
    assert refusal(read, twice, timezone="Europe/Paris") == (
        "error[T04] orders.ts: 2 local times of Europe/Paris happened twice, as the clocks went back "
        f'("2024-10-27 02:00" row 2, "2024-10-27 02:59:59.9..." row 4). {CLOCK_FIX}'
    )
    never = [datetime(2024, 3, 31, 1, 59), datetime(2024, 3, 31, 2)]
    assert refusal(read, never, pa.timestamp("ms"), timezone="Europe/Paris") == (
        "error[T04] orders.ts: 1 local time of Europe/Paris never happened, as the clocks went forward "
        f"(2024-03-31 02:00:00 row 2). {CLOCK_FIX}"
    )
    midnight = refusal(read, [date(2018, 11, 4)], pa.date32(), timezone="America/Sao_Paulo")
    assert "never happened, as the clocks went forward (2018-11-04 row 1)" in midnight


OUTSIDE_FIX = "Fix: correct it, or leave it empty if it stands for no date"


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["2024-01-01", None, "2500-01-01"]),
        pa.array([date(2024, 1, 1), None, date(2500, 1, 1)], pa.date32()),
        pa.array([date(2024, 1, 1), None, date(2500, 1, 1)], pa.date64()),
        *(
            pa.array([0, None, 16_725_225_600 * k]).cast(pa.timestamp(u))
            for u, k in [("s", 1), ("ms", 10**3), ("us", 10**6)]
        ),
    ],
    ids=lambda column: str(column.type),
)
def test_t06_names_the_row_and_the_value(column: pa.Array) -> None:
    shown = '"2500-01-01"' if column.type == pa.string() else "2500-01-01"
    assert refusal(read, column) == (
        f"error[T06] orders.ts row 3: {shown} is outside the range this version stores, 1678 to 2261. "
        + OUTSIDE_FIX
    )


def test_t06_at_the_very_edges() -> None:
    assert read([FIRST, LAST], pa.timestamp("ns")) == [FIRST, LAST]
    for outside in (FIRST - 1, LAST + 1, STATIC + 1, STATIC, NEVER):
        told = refusal(read, [0, outside], pa.timestamp("ns"))
        assert told.startswith("error[T06] orders.ts row 2: ")
    inside = [utc(2261, 12, 31, 22, 30), utc(1678, 1, 1, 1, 30)]
    assert read(["2262-01-01T00:30+02:00", "1677-12-31T23:30-02:00"]) == inside
    for text in ("2261-12-31T23:30-02:00", "1678-01-01T00:30+02:00", "2262-01-01", "1677-12-31T23:59:59"):
        assert refusal(read, [text]).startswith("error[T06] ")
    assert read(["2262-01-01 00:30"], timezone="Europe/Paris") == [utc(2261, 12, 31, 23, 30)]


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
@pytest.mark.parametrize("turns", [1, -1, 400, "most", "least"])
def test_t06_instead_of_wrapping_around(turns: int | str, unit: str) -> None:
    # Whole turns of int64 come back to 1970, where no check after the multiplication would see them.
    count = {"most": 2**63 - 1, "least": -(2**63)}.get(turns) or turns * 2**64 // UNITS[unit]
    counts = pa.array([count], pa.int64())
    stamps = counts.cast(pa.timestamp(unit))
    for told in (
        refusal(read, stamps),
        refusal(read, stamps, timezone="Europe/Paris"),
        refusal(read, counts, unit=unit),
        refusal(read, [str(count)], unit=unit),
        refusal(read, [float(count)], unit=unit),
    ):
        assert told.startswith("error[T06] orders.ts row 1: ")


def test_t06_for_numbers_beyond_int64() -> None:
    for number in (1e300, -1e300, "9" * 19, "-" + "9" * 19, "9" * 400):
        assert refusal(read, [number], unit="ns").startswith("error[T06] orders.ts row 1: ")
    assert refusal(read, [2**64 - 1], pa.uint64(), unit="ns").startswith("error[T06] orders.ts row 1: ")
    assert refusal(read, [2**31 - 1], pa.int32(), format="%Y%m%d").startswith("error[T02] ")
    far = pa.array([2**31 - 1], pa.int32()).view(pa.date32())
    assert refusal(read, far).startswith("error[T06] orders.ts row 1: 5881580-07-11 ")


def test_t06_under_a_wrong_unit_names_the_right_one() -> None:
    assert refusal(read, [1_700_000_000_000] * 2, unit="s") == (
        "error[T06] orders.ts row 1: 1700000000000 is outside the range this version stores, 1678 to 2261 "
        "(2 such rows). Fix: looks like milliseconds; say time_unit: ms"
    )
    one_outlier = [1_700_000_000, 1_700_000_000, 10**12]
    assert refusal(read, one_outlier, unit="s").endswith(OUTSIDE_FIX)


@pytest.mark.parametrize(
    ("count", "advice"),
    [
        (1_700_000_000, "looks like seconds; say time_unit: s"),
        (1_700_000_000_000, "looks like milliseconds; say time_unit: ms"),
        (1_700_000_000_000_000, "looks like microseconds; say time_unit: us"),
        (1_700_000_000_000_000_000, "looks like nanoseconds; say time_unit: ns"),
        (20240131, "looks like year, month and day; say time_format: '%Y%m%d'"),
        (20240131102030, "looks like year to second; say time_format: '%Y%m%d%H%M%S'"),
        (2024, "looks like years; say time_format: '%Y'"),
        (7, "say time_unit: s, ms, us or ns"),
    ],
)
def test_t07_says_what_the_numbers_look_like(count: int, advice: str) -> None:
    what = "error[T07] orders.ts holds numbers without a unit"
    assert refusal(read, [None, count, 0, count]) == (
        f"{what} ({count} row 2, 0 row 3, {count} row 4). Fix: {advice}"
    )
    for cells in ([str(count), "NaT"], [float(count)]):
        assert refusal(read, cells).endswith(f"Fix: {advice}")
    assert refusal(read, [-count]).startswith(f"{what} (-{count} row 1)")


def test_digits_among_dates_are_t02() -> None:
    assert '1 value is not a date ("1700000000" row 2)' in refusal(read, ["2024-01-01", "1700000000"])
    assert read(["2024-01-01"], unit="s") == [utc(2024, 1, 1)]


@pytest.mark.parametrize("cells", [pa.array([0]), pa.array([], pa.timestamp("s")), pa.array(["2024-01-01"])])
def test_words_are_checked_whatever_the_column(cells: pa.Array) -> None:
    def told(**words: str) -> str:
        return refusal(read, cells, error=UsageError, **words)

    assert told(unit="nss") == 'error[C01] orders.ts: unknown time_unit "nss" (did you mean "ns"?)'
    assert 'did you mean "Europe/Paris"?' in told(timezone="Europe/Pari")
    for zone in ("localtime", "../zoneinfo/UTC", ""):
        assert told(timezone=zone).startswith(f'error[C01] orders.ts: unknown timezone "{zone}"')


@pytest.mark.parametrize(
    ("format", "problem"),
    [
        ("%Q", "has the unknown directive %Q"),
        ("%Y-%m-%d %", "has the unknown directive %"),
        ("%Y-%m-%d %Z", "has the unknown directive %Z"),
        ("%d/%d/%Y", "gives the day twice"),
        ("%Y %b %m", "gives the month twice"),
        ("%d/%m", "gives no year"),
        ("%Y-%d", "gives no month"),
        ("%Y-%m-%d %M", "gives no hour"),
        ("plain", "gives no year"),
        ("", "gives no year"),
        ("%Y-%m-%d %I:%M", "has only one of %I and %p"),
        ("%Y-%m-%d %H:%M %p", "has only one of %I and %p"),
    ],
)
def test_formats_that_cannot_be_used(format: str, problem: str) -> None:
    told = refusal(read, ["x"], format=format, error=UsageError)
    assert told.startswith(f"error[C01] orders.ts: time_format '{format}' {problem}. Fix: use each part once")
