"""Times that are inferred: when a row became known, and never anything later."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from quartet.database import TimeColumn
from quartet.database.schema import Schema
from tests.database.inferring import facts, ids, infer, infer_from, listed, some, stamps


def time_of(table: str = "things", **columns: Any) -> tuple[TimeColumn | None, dict[str, str]]:
    found = infer({table: pa.table(columns)}, Schema())
    return found.schema.tables[table].time, {p.columns[0]: p.why for p in found.possible}


@pytest.mark.parametrize(
    "name",
    ["created_at", "CreationDate", "date", "timestamp", "ts", "event_time", "occurred_on", "Order Date",
     "orderdate", "scored_at", "start_time", "thing_date"],
)  # fmt: skip
def test_a_single_timestamp_named_like_a_time_is_used(name: str) -> None:
    time, others = time_of(**{name: stamps(9)})
    assert time is not None
    assert time.column == name
    assert (time.unit, time.format, time.on_missing) == (None, None, "error")
    assert others == {}


@pytest.mark.parametrize(
    "name",
    ["birth_date", "dob", "expires_at", "expiry", "due_date", "valid_until", "end_time", "endDate", "ends_at",
     "updated_at", "last_modified", "LastUpdate", "lastupdate", "rowupdated", "deleted_at", "last_login_at",
     "closed_at", "scheduled_end", "to_date", "founded", "hire_date", "shipped_date"],
)  # fmt: skip
def test_a_name_that_says_something_else_is_only_possible(name: str) -> None:
    found = infer_from(users={"id": ids(9)}, things={"user_id": some(9, 5), name: stamps(9)})
    assert facts(found.schema)[2] == {}
    assert listed(found, "time_col") == {f"things.{name}": ""}


def test_created_beats_updated_and_start_beats_end() -> None:
    created, others = time_of(created_at=stamps(9), updated_at=stamps(9, 8))
    assert created
    assert created.column == "created_at"
    assert others.keys() == {"updated_at"}
    start, _ = time_of(start_date=stamps(9), end_date=stamps(9, 8))
    assert start
    assert start.column == "start_date"


def test_two_equally_good_times_are_both_left_to_the_user() -> None:
    time, others = time_of(occurred_at=stamps(9), created_at=stamps(9, 8), updated_at=stamps(9, 9))
    assert time is None
    doubt = '"occurred_at" and "created_at" are equally likely'
    assert others["occurred_at"] == f"timestamp, named like the time of a row; {doubt}"
    assert others["created_at"] == f"timestamp, named like the time of a row; {doubt}"
    assert doubt not in others["updated_at"]


def test_a_day_that_repeats_a_time_is_no_rival() -> None:
    times = stamps(9)
    time, others = time_of(date=[t.date() for t in times], timestamp=times)
    assert time
    assert time.column == "timestamp"
    assert others == {}


@pytest.mark.parametrize("later", ["shipped_at", "updated_at"])
def test_a_day_stays_the_time_if_the_finer_column_is_refused(later: str) -> None:
    times = stamps(9)
    time, others = time_of("orders", order_date=[t.date() for t in times], **{later: times})
    assert time
    assert time.column == "order_date"
    assert others.keys() == {later}


def test_the_only_time_that_may_be_it_is_not_called_the_only_time() -> None:
    time, _ = time_of(scored_at=stamps(9), updated_at=stamps(9, 8))
    assert time
    assert time.origin.why == "timestamp, the only time of its table that may be it"


def test_a_year_is_proposed_where_there_is_no_better_time() -> None:
    """Rows of a table that points to others happen in a year; a year of something else is none."""
    batting = {"player_id": some(9, 5), "yearID": [2001 + n % 3 for n in range(9)]}
    players = {"id": ids(9), "birth_year": [1980] * 9, "season": [2001] * 9}
    found = infer_from(players=players, batting=batting)
    assert facts(found.schema)[2] == {}
    (guess,) = [guess for guess in found.possible if guess.fact == "time_col"]
    assert (guess.table, guess.columns) == ("batting", ("yearID",))
    assert guess.why == "a year: time_format: '%Y', known_at: end of year"
    dated = infer_from(players=players, batting={**batting, "created_at": stamps(9)})
    assert listed(dated, "time_col") == {}


def test_a_later_step_is_the_time_of_a_table_about_that_step() -> None:
    time, _ = time_of("shipments", shipped_at=stamps(9), delivered_at=stamps(9, 8))
    assert time
    assert time.column == "shipped_at"


def test_an_unknown_date_is_used_only_in_a_table_that_points_to_others() -> None:
    alone, others = time_of(id=ids(9), remodel_date=stamps(9))
    assert alone is None
    assert others == {"remodel_date": "timestamp, the only time of its table"}
    tree, others = time_of(id=ids(9), parent_id=[None, *some(8, 4)], remodel_date=stamps(9))
    assert tree is None
    assert others == {"remodel_date": "timestamp, the only time of its table"}
    found = infer_from(
        users={"id": ids(9)}, tests={"id": ids(9), "user_id": some(9, 5), "draw_date": stamps(9)}
    )
    assert facts(found.schema)[2] == {"tests": "draw_date"}


def test_a_name_without_a_time_word_is_used_only_if_the_rows_are_in_its_order() -> None:
    for times, expected in [(stamps(9), {}), (sorted(stamps(9)), {"games": "kickoff"})]:
        found = infer_from(
            users={"id": ids(9)}, games={"id": ids(9), "user_id": some(9, 5), "kickoff": times}
        )
        assert facts(found.schema)[2] == expected


@pytest.mark.parametrize(("unit", "ticks"), [("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)])
def test_integers_that_look_like_epochs_get_their_unit(unit: str, ticks: int) -> None:
    time, _ = time_of(created_at=[(1_700_000_000 + i) * ticks for i in range(9)])
    assert time
    assert (time.column, time.unit) == ("created_at", unit)
    assert time.origin.why == f"number of {unit} since 1970, named like the time of a row"


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("date_id", [1_700_000_000 + i for i in range(9)]),
        ("order_number", [1_700_000_000 + i for i in range(9)]),
        ("amount", [1_700_000_000 + i for i in range(9)]),
        ("time", ids(9)),
        ("dep_time", [517, 533, 1159]),
        ("year", [2013, 2014, 2015]),
        ("timestamp", [0, *range(1_700_000_000, 1_700_000_008)]),
        ("time", ["00:15:00", "10:00:00"]),
        ("date", ["2024-02-30", "2024-03-01"]),
        ("date", ["2024-01-01", "yesterday"]),
        ("date", pa.array([None, None], pa.timestamp("s"))),
        ("date", pa.array([], pa.timestamp("s"))),
        ("time", pa.array([5, 6], pa.duration("s"))),
    ],
)
def test_what_is_not_a_time(name: str, values: Any) -> None:
    assert time_of(**{name: values}) == (None, {})


@pytest.mark.parametrize(
    ("values", "form"),
    [
        (["2024-01-31", "2024-02-01"], None),
        (["2024-01-31 10:00", "2024-02-01 11:30:01.5"], None),
        (["2024-01-31T10:00:00Z", "2024-02-01T10:00:00+02:00"], None),
        (["2024-01-31", "", "NaT"], None),
        (["31/01/2024", "01/02/2024"], "%d/%m/%Y"),
        (["01/31/2024 10:00", "02/01/2024 11:00"], "%m/%d/%Y %H:%M"),
        (["31.1.2024", "1.2.2024"], "%d.%m.%Y"),
        ([20240131, 20240201], "%Y%m%d"),
    ],
)
def test_written_times(values: list[str], form: str | None) -> None:
    time, others = time_of(date=values)
    assert time
    assert (time.column, time.unit, time.format) == ("date", None, form)
    assert others == {}


@pytest.mark.parametrize(
    ("values", "why"),
    [
        (
            ["01/02/2024", "03/04/2024"],
            "time in text, named like a time, the order of day and month is not certain",
        ),
        (
            ["2024-01-01T10:00:00Z", "2024-01-01T10:00:00"],
            "ISO time in text, named like a time, some values have a zone and some have none",
        ),
        (
            [*stamps(7), None, None, None],
            "timestamp, named like a time, empty in 3 of 10 rows",
        ),
    ],
)
def test_doubtful_times_are_only_possible(values: Any, why: str) -> None:
    time, others = time_of(date=values)
    assert time is None
    assert others == {"date": why}
