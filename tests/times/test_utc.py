"""Times: one int64 per instant, whatever the source wrote, on whatever machine."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from datetime import timezone as fixed_zone
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from quartet.times import DAY, NEVER, SECOND, STATIC, parse_instant, show_instant, to_arrow
from tests.times.reading import FIRST, LAST, SPELT, UNITS, ZONES, core_digest, quick, read, refusal, utc

# --- one instant, many spellings ------------------------------------------------------------------


@pytest.mark.parametrize("ns", SPELT)
def test_text_of_every_spelling(ns: int) -> None:
    for text in SPELT[ns]:
        assert read([text]) == [ns], text


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("ns", [*SPELT, utc(1678, 1, 1), utc(2261, 12, 31)])
def test_every_unit_and_kind_gives_the_same_integer(ns: int, unit: str) -> None:
    count = ns // UNITS[unit]
    stamps = pa.array([count], pa.int64())
    assert read(stamps.cast(pa.timestamp(unit))) == [ns]
    assert read(stamps.cast(pa.timestamp(unit)), timezone="UTC") == [ns]
    assert read(stamps.cast(pa.timestamp(unit, "Asia/Kolkata"))) == [ns]
    assert read(stamps.cast(pa.timestamp(unit, "Asia/Kolkata")), timezone="Europe/Paris") == [ns]
    assert read(stamps, unit=unit) == [ns]
    assert read([float(count)], unit=unit) == [ns]
    assert read([str(count)], unit=unit) == [ns]
    assert read([str(np.datetime64(count, unit))]) == [ns]
    assert parse_instant(np.datetime64(count, unit), "x") == ns


@pytest.mark.parametrize("kind", [pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint32(), pa.uint64()])
def test_numbers_of_every_width(kind: pa.DataType) -> None:
    assert read([0, 100, None], kind, unit="s") == [0, 100 * SECOND, None]


def test_dates() -> None:
    days = [date(1969, 12, 31), date(2024, 2, 29), None, date(1678, 1, 1), date(2261, 12, 31)]
    expected = [-DAY, utc(2024, 2, 29), None, FIRST, LAST + 1 - DAY]
    assert read(days, pa.date32()) == expected
    assert read(days, pa.date64()) == expected
    assert read(pa.array([86_400_001], pa.int64()).view(pa.date64())) == [DAY + 10**6]


def test_nanoseconds_beyond_2_to_the_53_are_exact() -> None:
    t = 1_700_000_000_123_456_789
    near = [t - 1, t, t + 1]
    assert read(near, pa.timestamp("ns")) == near
    assert read(near, unit="ns") == near
    assert read([str(ns) for ns in near], unit="ns") == near
    assert read([f"2023-11-14T22:13:20.{123456788 + i}" for i in range(3)]) == near
    assert read([f"2023-11-15T00:13:20.{123456788 + i}+02:00" for i in range(3)]) == near
    written = ["20231114 221320." + str(123456788 + i) for i in range(3)]
    assert read(written, format="%Y%m%d %H%M%S.%f") == near
    assert read(near, pa.timestamp("ns"), timezone="Asia/Kolkata") == [ns - 19_800 * SECOND for ns in near]
    assert [parse_instant(show_instant(ns), "x") for ns in near] == near
    assert to_arrow(np.array(near)).view(pa.int64()).to_pylist() == near


def test_fractions_before_1970_count_from_below() -> None:
    texts = ["1969-12-31T23:59:59.999999999", "1969-12-31 23:59:59.5", "1969-12-31T23:59:58.75+00:00"]
    assert [read([text])[0] for text in texts] == [-1, -SECOND // 2, -1_250_000_000]
    assert read([-1], pa.timestamp("ms")) == [-(10**6)]
    assert read([-0.0, -3.0], unit="ms") == [0, -3 * 10**6]
    assert [show_instant(ns) for ns in (-1, -SECOND // 2)] == [
        "1969-12-31 23:59:59.999999999",
        "1969-12-31 23:59:59.5",
    ]


# --- encodings, chunks and what is missing --------------------------------------------------------

DAYS = ["2024-01-02", None, "2024-01-01", "2024-01-02"]
DAYS_NS = [utc(2024, 1, 2), None, utc(2024, 1, 1), utc(2024, 1, 2)]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
def test_text_in_every_encoding(kind: pa.DataType) -> None:
    plain = pa.array(DAYS).cast(kind)
    assert read(plain) == DAYS_NS
    assert read(plain.dictionary_encode()) == DAYS_NS
    assert read(plain.slice(1, 2)) == DAYS_NS[1:3]
    assert read(plain.slice(1).dictionary_encode()) == DAYS_NS[1:]


def test_dictionaries() -> None:
    """Chunks may have different ones, and a value that stands in no row is nobody's error."""
    chunks = [pa.array(part).dictionary_encode() for part in (DAYS[:2], DAYS[2:])]
    assert read(pa.chunked_array(chunks)) == DAYS_NS
    stamps = pa.array(DAYS_NS, pa.timestamp("ns"))
    assert read(pa.chunked_array([stamps.dictionary_encode()] * 2)) == DAYS_NS * 2
    dictionary = pa.DictionaryArray.from_arrays(pa.array([1, 1]), pa.array(["nonsense", "2024-01-01"]))
    assert read(dictionary) == [utc(2024, 1, 1)] * 2


KINDS = [
    pa.null(), pa.string(), pa.large_string(), pa.string_view(), pa.int64(), pa.uint64(),
    pa.float16(), pa.float32(), pa.float64(), pa.date32(), pa.date64(),
    *(pa.timestamp(unit) for unit in UNITS), pa.timestamp("us", "Europe/Paris"),
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("words", [{}, {"unit": "s"}, {"format": "%d/%m/%Y"}, {"timezone": "Europe/Paris"}])
def test_empty_and_all_null_columns(kind: pa.DataType, words: dict[str, str]) -> None:
    assert read([], kind, **words) == []
    assert read(pa.chunked_array([], kind), **words) == []
    assert read([None, None], kind, **words) == [None, None]


def test_what_counts_as_missing() -> None:
    gone = ["", " ", "NaT", "null", "None", "\\N", None]
    assert read([*gone, "2024-01-01"]) == [None] * 7 + [utc(2024, 1, 1)]
    assert read([*gone, "1/1/2024"], format="%d/%m/%Y") == [None] * 7 + [utc(2024, 1, 1)]
    assert read([*gone, "5"], unit="s") == [None] * 7 + [5 * SECOND]
    assert read(gone) == [None] * 7
    assert read([float("nan"), None, 5.0], unit="s") == [None, None, 5 * SECOND]
    for unit in UNITS:
        nat = np.array(["NaT", "2024-01-01"], f"datetime64[{unit}]")
        assert read(pa.array(nat)) == [None, utc(2024, 1, 1)]
    assert read(pa.array(pd.Series([pd.NaT, pd.Timestamp("2024-01-01", tz="UTC")]))) == [
        None,
        utc(2024, 1, 1),
    ]


# --- zones ----------------------------------------------------------------------------------------


def test_local_times() -> None:
    summer, winter = utc(2024, 7, 1, 10), utc(2024, 1, 1, 11)
    words = {"timezone": "Europe/Paris"}
    assert read([datetime(2024, 7, 1, 12), None], pa.timestamp("s"), **words) == [summer, None]
    assert read(["2024-07-01 12:00", "NaT", "2024-01-01T12"], **words) == [summer, None, winter]
    assert read(["01.07.2024 12h"], format="%d.%m.%Y %Hh", **words) == [summer]
    assert read([date(2024, 7, 1)], pa.date32(), **words) == [utc(2024, 6, 30, 22)]


def test_a_named_zone_settles_text_with_and_without_offset() -> None:
    mixed = ["2024-07-01 12:00", "2024-07-01 12:00Z", None, "2024-07-01T12:00-04:00"]
    expected = [utc(2024, 7, 1, 10), utc(2024, 7, 1, 12), None, utc(2024, 7, 1, 16)]
    assert read(mixed, timezone="Europe/Paris") == expected


def test_numbers_are_counted_in_utc_whatever_the_zone() -> None:
    assert read([1_700_000_000], unit="s", timezone="Asia/Tokyo") == [1_700_000_000 * SECOND]


def test_summer_time_after_2037() -> None:
    # Arrow's own zones stop changing clocks in 2037.
    assert read(["2050-07-01 12:00"], timezone="Europe/Paris") == [utc(2050, 7, 1, 10)]
    assert read(["2261-07-01 12:00"], timezone="America/New_York") == [utc(2261, 7, 1, 16)]


def test_the_edges_of_a_clock_change() -> None:
    edges = ["2024-03-31 01:59:59.999999999", "2024-03-31 03:00", "2024-10-27 01:59:59.999999999"]
    start, end = utc(2024, 3, 31, 1), utc(2024, 10, 27, 0)
    expected = [start - 1, start, end - 1, end + 7200 * SECOND]
    assert read([*edges, "2024-10-27 03:00"], timezone="Europe/Paris") == expected


def test_a_zone_that_skipped_a_whole_day() -> None:
    assert read(["2011-12-29", "2011-12-31"], timezone="Pacific/Apia") == [
        utc(2011, 12, 29, 10),
        utc(2011, 12, 30, 10),
    ]
    assert "1 local time of Pacific/Apia never happened" in refusal(
        read, ["2011-12-30 12:00"], timezone="Pacific/Apia"
    )


@quick
@given(
    local=st.datetimes(datetime(1679, 1, 1), datetime(2261, 1, 1)),
    zone=st.sampled_from(ZONES),
)
@example(local=datetime(2024, 10, 27, 2, 30), zone="Europe/Paris")
@example(local=datetime(2024, 3, 31, 2, 30), zone="Europe/Paris")
@example(local=datetime(2018, 11, 4), zone="America/Sao_Paulo")
@example(local=datetime(2024, 4, 7, 1, 45), zone="Australia/Lord_Howe")
@example(local=datetime(1911, 3, 10, 23, 55), zone="Europe/Paris")
def test_local_times_agree_with_zoneinfo(local: datetime, zone: str) -> None:
    readings = {local.replace(tzinfo=ZoneInfo(zone), fold=fold).astimezone(UTC) for fold in (0, 1)}
    back = {reading.astimezone(ZoneInfo(zone)).replace(tzinfo=None, fold=0) for reading in readings}
    if len(readings) == 1:
        (reading,) = readings
        expected = (reading - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1000
        assert read([local], pa.timestamp("us"), timezone=zone) == [expected]
        assert read([local.isoformat()], timezone=zone) == [expected]
        return
    told = refusal(read, [local], pa.timestamp("us"), timezone=zone)
    assert ("happened twice" if back == {local} else "never happened") in told


# --- text of other forms --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "format", "expected"),
    [
        ("31/12/2024", "%d/%m/%Y", utc(2024, 12, 31)),
        ("1/2/2024", "%d/%m/%Y", utc(2024, 2, 1)),
        ("1/2/2024", "%m/%d/%Y", utc(2024, 1, 2)),
        ("20240131", "%Y%m%d", utc(2024, 1, 31)),
        ("20240131102030", "%Y%m%d%H%M%S", utc(2024, 1, 31, 10, 20, 30)),
        ("2024", "%Y", utc(2024, 1, 1)),
        ("05-2024", "%m-%Y", utc(2024, 5, 1)),
        ("31.01.68", "%d.%m.%y", utc(2068, 1, 31)),
        ("31.01.69", "%d.%m.%y", utc(1969, 1, 31)),
        ("3 Feb 2024", "%d %b %Y", utc(2024, 2, 3)),
        ("3  FEBRUARY 2024", "%d %B %Y", utc(2024, 2, 3)),
        ("December 31, 2024", "%B %d, %Y", utc(2024, 12, 31)),
        ("1/2/24 12:05 AM", "%m/%d/%y %I:%M %p", utc(2024, 1, 2, 0, 5)),
        ("1/2/24 12:05 pm", "%m/%d/%y %I:%M %p", utc(2024, 1, 2, 12, 5)),
        ("1/2/24 1:05PM", "%m/%d/%y %I:%M%p", utc(2024, 1, 2, 13, 5)),
        ("Tue, 02 Jan 2024 10:00:00 +0200", "%a, %d %b %Y %H:%M:%S %z", utc(2024, 1, 2, 8)),
        ("2024-01-02 10:00 -05:30", "%Y-%m-%d %H:%M %z", utc(2024, 1, 2, 15, 30)),
        ("2024-01-02Z", "%Y-%m-%d%z", utc(2024, 1, 2)),
        ("2024-01-02 03:04:05,678901", "%Y-%m-%d %H:%M:%S,%f", utc(2024, 1, 2, 3, 4, 5, 678901)),
        ("100% (2024) [x].", "100%% (%Y) [x].", utc(2024, 1, 1)),
    ],
)
def test_formats(text: str, format: str, expected: int) -> None:
    assert read([None, text], format=format) == [None, expected]


def test_numbers_by_format() -> None:
    assert read([20240131, None], format="%Y%m%d") == [utc(2024, 1, 31), None]
    assert read([20240131.0, float("nan")], format="%Y%m%d") == [utc(2024, 1, 31), None]
    assert read([2024], pa.int16(), format="%Y") == [utc(2024, 1, 1)]
    assert read([20240131], format="%Y%m%d", unit="s") == [20240131 * SECOND]


def test_a_format_does_not_concern_timestamps() -> None:
    assert read([0], pa.timestamp("s"), format="%d/%m/%Y", unit="ms") == [0]


FORMATS = [
    "%d/%m/%Y %H:%M:%S.%f",
    "%Y%m%d%H%M%S",
    "%b %d %Y %I:%M:%S %p",
    "%A %d %B %Y, %H:%M",
    "%m/%d/%y",
    "%Y-%m",
]


@quick
@given(
    time=st.datetimes(datetime(1969, 1, 1), datetime(2068, 12, 31)),
    format=st.sampled_from(FORMATS),
)
def test_formats_agree_with_python(time: datetime, format: str) -> None:
    text = time.strftime(format)
    expected = datetime.strptime(text, format)
    parts = expected.timetuple()[:6]
    assert read([text], format=format) == [utc(*parts, expected.microsecond)]


# --- properties -----------------------------------------------------------------------------------

instants = st.integers(FIRST, LAST)


@quick
@given(ns=instants)
@example(ns=FIRST)
@example(ns=LAST)
@example(ns=-1)
def test_an_instant_shown_reads_back(ns: int) -> None:
    assert parse_instant(show_instant(ns), "x") == ns
    assert read([show_instant(ns)]) == [ns]
    assert read([ns], pa.timestamp("ns")) == [ns]


@quick
@given(seconds=st.integers(FIRST // SECOND, LAST // SECOND), zone=st.sampled_from(ZONES))
def test_units_and_zones_agree(seconds: int, zone: str) -> None:
    expected = [seconds * SECOND]
    for unit, per_unit in UNITS.items():
        counts = pa.array([seconds * (SECOND // per_unit)])
        assert read(counts.cast(pa.timestamp(unit))) == expected
        assert read(counts.cast(pa.timestamp(unit, zone))) == expected
        assert read(counts, unit=unit) == expected


@quick
@given(ns=instants, minutes=st.integers(-1439, 1439), form=st.sampled_from(["{}{:02}:{:02}", "{}{:02}{:02}"]))
@example(ns=LAST, minutes=1439, form="{}{:02}:{:02}")
@example(ns=FIRST, minutes=-1439, form="{}{:02}:{:02}")
def test_an_offset_moves_the_clock_and_not_the_instant(ns: int, minutes: int, form: str) -> None:
    clock = str(np.datetime64(ns, "ns") + np.timedelta64(minutes, "m"))
    offset = form.format("-" if minutes < 0 else "+", abs(minutes) // 60, abs(minutes) % 60)
    assert read([clock + offset]) == [ns]


@quick
@given(
    parts=st.tuples(
        *(st.integers(*ends) for ends in [(1678, 2261), (0, 13), (0, 32), (0, 25), (0, 61), (0, 61)])
    )
)
@example(parts=(1900, 2, 29, 0, 0, 0))
@example(parts=(2000, 2, 29, 0, 0, 0))
@example(parts=(2023, 4, 31, 0, 0, 0))
@example(parts=(2016, 12, 31, 23, 59, 60))
def test_text_is_read_exactly_if_the_calendar_has_it(parts: tuple[int, ...]) -> None:
    text = "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}".format(*parts)
    try:
        expected = utc(*parts)
    except ValueError:
        assert "1 value is not a date" in refusal(read, [text])
    else:
        assert read([text]) == [expected]


def test_every_day_of_the_calendar() -> None:
    first = date(1678, 1, 1)
    days = [first + timedelta(days=number) for number in range((date(2262, 1, 1) - first).days)]
    assert read([day.isoformat() for day in days]) == [FIRST + number * DAY for number in range(len(days))]


# --- single instants ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        ("2005-01-01", utc(2005, 1, 1)),
        (" 2005-01-01T02:00+02:00 ", utc(2005, 1, 1)),
        (date(2005, 1, 1), utc(2005, 1, 1)),
        (datetime(2005, 1, 1, 3, 4, 5, 678901), utc(2005, 1, 1, 3, 4, 5, 678901)),
        (datetime(2005, 1, 1, tzinfo=fixed_zone(timedelta(hours=2))), utc(2004, 12, 31, 22)),
        (datetime(1880, 1, 1, tzinfo=ZoneInfo("Europe/Paris")), utc(1879, 12, 31, 23, 50, 39)),
        (np.datetime64("2005-01-01"), utc(2005, 1, 1)),
        (np.datetime64("2005"), utc(2005, 1, 1)),
        (np.datetime64("2005-03"), utc(2005, 3, 1)),
        (np.datetime64("2005-01-01T05", "h"), utc(2005, 1, 1, 5)),
        (np.datetime64(-1, "ns"), -1),
        (pd.Timestamp("2005-01-01 00:00:00.000000001"), utc(2005, 1, 1) + 1),
        (pd.Timestamp("2005-01-01", tz="America/New_York") + pd.Timedelta(1, "ns"), utc(2005, 1, 1, 5) + 1),
    ],
)
def test_instants(time: object, expected: int) -> None:
    assert parse_instant(time, "x") == expected
    assert type(parse_instant(time, "x")) is int


@pytest.mark.parametrize(
    ("time", "what"),
    [
        ("tomorrow", '[T02] --at: "tomorrow" is not a date'),
        ("2016-12-31 23:59:60", '[T02] --at: "2016-12-31 23:59:60" is not a date'),
        ("", '[T02] --at: "" is not a date'),
        (pd.NaT, '[T02] --at: "NaT" is not a date'),
        (np.datetime64("NaT"), '[T02] --at: "NaT" is not a date'),
        ("1700000000", '[T07] --at: "1700000000" is a number, not a date'),
        (1_700_000_000, '[T07] --at: "1700000000" is a number, not a date'),
        ("2500-01-01", '[T06] --at: "2500-01-01" is outside the range'),
        (date(1, 1, 1), '[T06] --at: "0001-01-01" is outside the range'),
        (
            datetime(1, 1, 1, tzinfo=fixed_zone(timedelta(hours=2))),
            '[T06] --at: "0001-01-01 00:00:00+0..." is outside',
        ),
    ],
)
def test_instants_that_are_refused(time: object, what: str) -> None:
    assert refusal(parse_instant, time, "--at").startswith(f"error{what}")


@pytest.mark.parametrize(
    ("ns", "shown"),
    [
        (utc(2013, 10, 1), "2013-10-01"),
        (utc(2013, 10, 1, 5, 15), "2013-10-01 05:15:00"),
        (utc(2013, 10, 1, 5, 15) + 1, "2013-10-01 05:15:00.000000001"),
        (utc(2013, 10, 1) + 120_000_000, "2013-10-01 00:00:00.12"),
        (utc(2013, 10, 1) - 1, "2013-09-30 23:59:59.999999999"),
        (STATIC, "always"),
        (NEVER, "never"),
        (np.int64(STATIC), "always"),
        (np.int64(0), "1970-01-01"),
    ],
)
def test_showing_instants(ns: int, shown: str) -> None:
    assert show_instant(ns) == shown


# --- back to Arrow --------------------------------------------------------------------------------


def test_to_arrow() -> None:
    written = to_arrow(np.array([-1, NEVER, utc(2024, 1, 1)]))
    assert written.type == pa.timestamp("ns")
    assert written.view(pa.int64()).to_pylist() == [-1, None, utc(2024, 1, 1)]
    assert read(written) == [-1, None, utc(2024, 1, 1)]
    assert to_arrow(np.array([], np.int64)).type == pa.timestamp("ns")
    with pytest.raises(ValueError, match="a row that was always known has no time to write"):
        to_arrow(np.array([0, STATIC]))


# --- the machine's own zone (P9) ------------------------------------------------------------------


@pytest.mark.skipif(os.name == "nt", reason="Windows does not take its zone from TZ")
@pytest.mark.parametrize(
    ("zone", "offset"), [("America/New_York", "-1 day, 20:00:00"), ("Asia/Kolkata", "5:30:00")]
)
def test_the_zone_of_the_machine_changes_nothing(zone: str, offset: str) -> None:
    code = "print(datetime(2024, 7, 1).astimezone().utcoffset(), core_digest())"
    done = subprocess.run(
        [sys.executable, "-c", f"from tests.times.reading import core_digest, datetime; {code}"],
        env={**os.environ, "TZ": zone},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == f"{offset} {core_digest()}"
