"""Columns of the rows around a row: by hand (the tour is drawn in `small.py`), and by a plain twin."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quartet.causal import TimeRule
from quartet.database import Database, Relation
from quartet.database.schema import Schema
from quartet.features import FeatureTable, RelationalColumns, aggregates, is_about_others, unit_of
from quartet.features.aggregates import MOST_SUMMARIES
from quartet.features.arrays import FIRST_CODE
from quartet.features.summed import MEAN, MOST_VALUES, SUM, table_cells
from quartet.features.sums import fill_summaries
from quartet.tasks import Seeds
from quartet.times import DAY, STATIC, show_length
from tests.features.drawn import RULES, drawn_seeds, named_rows, with_features
from tests.features.small import one_table, raw_tour, table_schema
from tests.shop import day
from tests.strategies import Raw, examples, is_future, random_db

BRIEF = 12  # cells of a path that are told in brief

# --- by hand --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tour:
    """The tour and its features, by which columns can be read in the units of the drawing."""

    database: Database
    features: FeatureTable

    def columns(self, table: str, row: int, number: float, rule: TimeRule = "<=") -> dict[str, float]:
        node, time = self.database.offsets[table] + row, day(0) + int(number * DAY)
        found = RelationalColumns.of(self.database, table, self.features, rule, 2 * DAY).of_seeds(
            Seeds(np.array([node]), np.array([time]), None)
        )
        return {name: float(column[0]) for name, column in found.items()}

    def raw(self, table: str, column: str, value: float) -> float:
        learned = self.features.statistics.tables[table].columns[column]
        return value * learned.std + learned.mean  # type: ignore[union-attr]


@pytest.fixture(scope="module")
def tour() -> Tour:
    database = Database.build(*raw_tour())
    return Tour(database, FeatureTable.fit(database, day(9)))


def test_the_columns_of_a_rider(tour: Tour) -> None:
    """r1 on day 7: rides 1, 3, 4 and 5, of which the last has no place; races and laps as far as they are known."""
    found = tour.columns("riders", 0, 7)
    counts = {name: value for name, value in found.items() if name.endswith(": all")}
    assert [found[f"rides by rider: last {n} days"] for n in (2, 4, 8, 24)] == [1, 1, 4, 4]
    assert found["rides by rider: trend"] == 1 - 0
    assert found["rides by rider: days since the first"] == 6.0
    assert counts == {
        "rides by rider: all": 4,
        "rides by rider, laps by ride: all": 3,
        "team -> teams, riders by team: all": 2,
        "team -> teams, riders by team, rides by rider: all": 5,
    }
    place = {
        what: found[f"rides by rider -> place: {what}"] for what in ("mean", "mean of 24 days", "latest")
    }
    assert tour.raw("rides", "place", place["mean"]) == pytest.approx(3.0)  # 1, 3, 5
    assert place["mean of 24 days"] == place["mean"]
    sums = {n: found[f"rides by rider -> place: sum of {n} days"] for n in (2, 8)}
    std = tour.features.statistics.tables["rides"].columns["place"].std  # type: ignore[union-attr]
    assert sums[8] * std == pytest.approx(9.0)  # 1, 3 and 5, in deviations, not in cells
    assert sums[2] == 0.0
    assert math.isnan(place["latest"])
    assert found["rides by rider -> type = sprint: mean"] == 0.5
    assert found["rides by rider -> type = sprint: latest"] == 0.0
    assert found["rides by rider: days since"] == 1.0
    assert tour.raw("races", "km", found["rides by rider, race -> races -> km: mean"]) == pytest.approx(225.0)
    assert tour.raw(
        "laps", "seconds", found["rides by rider, laps by ride -> seconds: mean"]
    ) == pytest.approx(30)
    assert tour.raw(
        "laps", "seconds", found["rides by rider, laps by ride -> seconds: latest"]
    ) == pytest.approx(60)
    assert tour.raw("teams", "size", found["team -> teams, size (number)"]) == pytest.approx(10.0)


def test_plain_columns_are_near_cells_and_counts_means_and_sums_of_one_and_four_units(tour: Tour) -> None:
    columns = RelationalColumns.of(tour.database, "riders", tour.features, "<=", 2 * DAY)
    rides = {name for name in columns.plain if name.startswith("rides by rider")}
    assert columns.plain < columns.near
    assert {"rides by rider: last 2 days", "rides by rider: last 8 days"} <= rides
    assert {
        f"rides by rider -> place: {what} of {n} days" for what in ("mean", "sum") for n in (2, 8)
    } <= rides
    assert all(name.endswith((" 2 days", " 8 days")) and "," not in name for name in rides)
    assert not any(name.startswith(("world", "team -> teams")) for name in columns.plain)


WAITING = "rides by rider without laps by ride: "


@pytest.mark.parametrize(
    ("number", "rule", "expected"),
    [
        (7, "<=", [1, 2, 2, 4.0]),  # ride 5 waits, and ride 4 since day 3
        (3.5, "<=", [2, 2, 2, 0.5]),  # rides 3 and 4, both of day 3
        (4, "<=", [1, 1, 1, 1.0]),  # the lap of ride 3 is known
        (4, "<", [2, 2, 2, 1.0]),  # not yet
        (2, "<=", [0, 0, 0, math.nan]),
        (0, "<=", [math.nan] * 4),
    ],
)
def test_rides_wait_for_their_laps(tour: Tour, number: float, rule: TimeRule, expected: list[float]) -> None:
    found = tour.columns("riders", 0, number, rule)
    told = [value for name, value in found.items() if name.startswith(WAITING)]
    assert told == pytest.approx(expected, nan_ok=True)


def test_of_rows_that_come_all_at_once_nothing_waits(tour: Tour, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rides of a day are looked at, three rides in all are too many."""
    monkeypatch.setattr("quartet.features.waiting._MOST", 2)
    found = tour.columns("riders", 0, 3.5)
    told = [value for name, value in found.items() if name.startswith(WAITING)]
    assert told == pytest.approx([2, math.nan, math.nan, math.nan], nan_ok=True)


def test_a_path_is_known_when_its_last_row_is(tour: Tour) -> None:
    """Ride 4 of day 3 counts at once, its race from day 6, the second lap of ride 3 from day 8."""
    km, lap = "rides by rider, race -> races -> km: latest", "rides by rider, laps by ride -> seconds: latest"
    found = [tour.columns("riders", 0, number) for number in (3, 5.9, 6, 8)]
    assert [row["rides by rider: all"] for row in found] == [3, 3, 4, 4]
    assert [tour.raw("races", "km", row[km]) for row in found] == pytest.approx([200, 200, 300, 300])
    assert [tour.raw("laps", "seconds", row[lap]) for row in found] == pytest.approx([15, 60, 60, 99])


def test_where_nothing_is_visible_there_is_no_number(tour: Tour) -> None:
    found = tour.columns("riders", 0, 0)
    assert found["rides by rider: all"] == 0
    told = {name: value for name, value in found.items() if name.startswith("rides") and "->" in name}
    assert all(math.isnan(value) for name, value in told.items() if ": sum" not in name)
    assert {value for name, value in told.items() if ": sum" in name} == {0.0}


def test_a_ride_sees_its_rider_then(tour: Tour) -> None:
    """Ride 5 on day 6: its rider has four rides and a team, its race three rides; and on day 3 ride 4 has no race."""
    found = tour.columns("rides", 4, 6)
    assert found["rider -> riders, rides by rider: all"] == 4
    assert found["rider -> riders, days since"] == 6.0
    assert tour.raw("teams", "size", found["rider -> riders, team -> teams, size (number)"]) == pytest.approx(
        10
    )
    assert found["race -> races, rides by race: all"] == 3
    mean = found["race -> races, rides by race -> place: mean"]
    assert tour.raw("rides", "place", mean) == pytest.approx(7.0)  # 5 and 9
    early = tour.columns("rides", 3, 3)
    assert all(math.isnan(value) for name, value in early.items() if name.startswith("race -> "))
    assert early["rider -> riders, rides by rider: all"] == 3
    lap = "rider -> riders, rides by rider, laps by ride"
    assert (found[f"{lap}: all"], early[f"{lap}: all"]) == (3, 2)
    assert tour.raw("laps", "seconds", found[f"{lap} -> seconds: mean"]) == pytest.approx(30)


def test_strictly_before_leaves_out_the_moment_itself(tour: Tour) -> None:
    assert [tour.columns("riders", 0, 3, rule)["rides by rider: all"] for rule in RULES] == [3, 1]
    place = [tour.columns("riders", 0, 3, rule)["rides by rider -> place: latest"] for rule in RULES]
    assert [tour.raw("rides", "place", value) for value in place] == pytest.approx(
        [4.0, 1.0]
    )  # 3 and 5, then 1


def test_only_the_most_frequent_values_are_looked_at() -> None:
    """Of two values one says all, of many four; numbers come first, and there is an end to them, for some in brief."""
    many = [str(number) for number in range(10)] * 2
    wide = {f"n{number}": np.arange(20.0) for number in range(300)}
    kinds = {"type": "category", "half": "category"} | dict.fromkeys(wide, "number")
    half = ["a", "b"] * 10

    def looked_at(**columns: Any) -> list[str]:
        tables = {"things": pa.table({"id": [1]}), "sales": pa.table({"thing": [1] * 20, **columns})}
        said = table_schema(None, None, {name: kinds[name] for name in columns}, thing="things")
        database = Database.build(tables, Schema({"things": table_schema("id"), "sales": said}))
        features = FeatureTable.fit(database, day(0))
        names = RelationalColumns.of(database, "things", features).names
        assert len(names) <= MOST_SUMMARIES + 20 + 2 * BRIEF
        kept = [name.removesuffix(": latest") for name in names if name.endswith(": latest")]
        return [name.removeprefix("sales by thing -> ") for name in kept]

    assert looked_at(type=many, half=half) == [*(f"type = {n}" for n in range(MOST_VALUES)), "half = a"]
    assert looked_at(half=half, n1=wide["n1"]) == ["n1", "half = a"]
    assert looked_at(**wide, half=half) == list(wide)[: (MOST_SUMMARIES - 7) // 12 + BRIEF]


def test_numbers_that_tell_the_date_are_no_columns() -> None:
    """A year and a running number are left out of what a row and its children show; what only leans on time stays."""
    rng = np.random.default_rng(0)
    number = np.arange(60)
    columns = {
        "id": number,
        "year": 2000 + number // 10,
        "running": -number,
        "price": rng.normal(size=60) + number / 60,
    }
    database = one_table(columns, [int(n) for n in number], primary_key=("id",))
    names = RelationalColumns.of(database, "t", FeatureTable.fit(database, 100 * DAY)).names
    assert {name for name in names if name.endswith("(number)")} == {"price (number)"}


def test_texts_and_sets_count_by_their_size() -> None:
    kinds = {"tags": "multicategory", "words": "text"}
    tables = {"t": pa.table({"id": [1, 2], "tags": ["a|b", "a"], "words": ["four", None]})}
    database = Database.build(tables, Schema({"t": table_schema("id", kinds=kinds)}))
    columns = RelationalColumns.of(database, "t", FeatureTable.fit(database, day(0)))
    found = columns.of_seeds(seeds_of(database, "t", [0, 1], [day(0)] * 2))
    assert found["parts of tags (number)"].tolist() == pytest.approx([math.log(3), math.log(2)])
    assert found["letters of words (number)"].tolist() == pytest.approx([math.log(5), math.nan], nan_ok=True)


def test_the_world_is_the_same_for_all_seeds_of_a_time(tour: Tour) -> None:
    """On day 7 with a unit of 2 days: one of two rides of day 6 has a place; four rides in the last 8 days before."""
    first, second = tour.columns("riders", 0, 7), tour.columns("riders", 2, 7)
    world = [name for name in first if name.startswith("world: ")]
    assert {name: first[name] for name in world} == pytest.approx({n: second[n] for n in world}, nan_ok=True)
    assert tour.raw("rides", "place", first["world: rides -> place: mean of 2 days"]) == pytest.approx(9.0)
    assert first["world: rides: rows of 4 days to 8 days"] == pytest.approx(2 / 6)
    assert not any(": all" in name or "the last" in name for name in world)


COUNT, MEAN_PLACE = "rides by rider: last 8 days", "rides by rider -> place: mean of the last 12"


def standing(tour: Tour, what: str, number: float, rule: TimeRule = "<=") -> dict[str, list[float]]:
    """Place and gap of all riders on a day."""
    found = [tour.columns("riders", row, number, rule) for row in range(3)]
    ways = {"place": "place among riders", "gap": "gap to the first of riders"}
    return {name: [columns[f"{what}, {way}"] for columns in found] for name, way in ways.items()}


def test_the_places_of_riders(tour: Tour) -> None:
    """On day 7 r1 has 4 rides of 8 days and the others one each; places in races are 3, 2 and 9 in the mean."""
    by_count, by_place = standing(tour, COUNT, 7), standing(tour, MEAN_PLACE, 7)
    assert by_count["place"] == pytest.approx([2.5 / 3, 1 / 3, 1 / 3])
    assert by_count["gap"] == [0, -3, -3]
    assert by_place["place"] == pytest.approx([1.5 / 3, 0.5 / 3, 2.5 / 3])
    std = tour.features.statistics.tables["rides"].columns["place"].std  # type: ignore[union-attr]
    assert [gap * std for gap in by_place["gap"]] == pytest.approx([3 - 9, 2 - 9, 0])


def test_places_are_those_of_the_day(tour: Tour) -> None:
    """On day 2 r3 has not joined: of the two that are there each has one ride, and r2 the larger place."""
    assert standing(tour, COUNT, 2)["place"][:2] == [0.5, 0.5]
    assert standing(tour, MEAN_PLACE, 2)["place"][:2] == [0.25, 0.75]
    assert np.isnan([*standing(tour, MEAN_PLACE, 0.5).values()]).all()


def test_riders_of_long_ago_are_not_compared_with(tour: Tour) -> None:
    """On day 26 r2 has not ridden for 24 days: it stands below r1 and r3, who are two among themselves."""
    found = standing(tour, MEAN_PLACE, 26)
    assert found["place"] == [0.25, 0.0, 0.75]
    assert found["gap"][1] < found["gap"][0] < found["gap"][2] == 0


def test_riders_who_have_not_joined_yet_are_not_compared_with() -> None:
    """r3 rides on day 6 and joins on day 7: what is strictly before 6.5 has its ride, but not the rider."""
    tables, schema = raw_tour()
    riders = tables["riders"]
    tables["riders"] = riders.set_column(riders.column_names.index("joined"), "joined", _times(0, 0, 7))
    database = Database.build(tables, schema)
    late = Tour(database, FeatureTable.fit(database, day(9)))
    assert late.columns("riders", 2, 6.5, "<")["rides by rider: all"] == 1
    for what, places in ((COUNT, [0.75, 0.25]), (MEAN_PLACE, [0.75, 0.25])):
        found = standing(late, what, 6.5, "<")
        assert found["place"][:2] == places  # of r1 and r2 among themselves
        assert found["gap"][0] == 0
    assert standing(late, COUNT, 7.5, "<")["place"] == pytest.approx([2.5 / 3, 1 / 3, 1 / 3])


@pytest.mark.parametrize(
    ("days", "hours"),
    [
        (50 * 365, 9 * 24),
        (4100, 48),
        (2000, 24),
        (1999, 23),
        (273, 3),
        (80, 57 / 60),
        (1, 1 / 60),
        (0, 1 / 60),
    ],
)
def test_the_unit_of_single_events_is_a_small_part_of_the_time_that_data_span(
    days: int, hours: float
) -> None:
    """In whole days, hours or minutes, of the rows at the cut-off: none that come since, early or late, have a say."""
    minute = DAY // 24 // 60
    database = one_table({"x": [1, 2]}, [10, 10 + days])
    known = database["t"].known_at
    fine = replace(database, tables={"t": replace(database["t"], known_at=known + np.array([0, minute]))})
    features = FeatureTable.fit(fine, (10 + days) * DAY + minute)
    assert unit_of(fine, features.statistics) == pytest.approx(hours * DAY / 24)
    grown = one_table({"x": [1, 2, 3, 4]}, [1, 10, 10 + days, 9000 + days])
    assert unit_of(grown, features.statistics) == pytest.approx(hours * DAY / 24)
    names = RelationalColumns.of(fine, "t", features).names
    assert RelationalColumns.of(grown, "t", FeatureTable.encode(grown, features.statistics)).names == names
    late = one_table({"x": [1, 2, 3]}, [10, 10 + days, 9000 + days])
    finer = late["t"].known_at + np.array([0, 0, minute])
    late = replace(late, tables={"t": replace(late["t"], known_at=finer)})
    rhythms = [FeatureTable.fit(each, (10 + days) * DAY).statistics.rhythm for each in (late, database)]
    assert rhythms[0] == rhythms[1]


@pytest.mark.parametrize(
    ("step", "unit"), [(DAY, DAY), (DAY // 24, DAY // 24), (7 * DAY // 24, 7 * DAY // 24 // 7)]
)
def test_no_window_is_finer_than_the_times_of_rows(step: int, unit: int) -> None:
    """Of dates, windows of hours would all be empty."""
    database = one_table({"x": range(60)}, [0] * 60)
    times = np.arange(60) * step
    database = replace(database, tables={"t": replace(database["t"], known_at=times)})
    assert unit_of(database, FeatureTable.fit(database, int(times[-1])).statistics) == unit


def test_places_among_all_are_left_out_where_times_and_entities_are_too_many(
    tour: Tour, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four times of three riders are 12 rows to compare, five are 15; how often a time is asked about is no matter."""
    columns = RelationalColumns.of(tour.database, "riders", tour.features, horizon=2 * DAY)
    four, five = (
        seeds_of(tour.database, "riders", [0] * 2 * count, [day(n) for n in range(count)] * 2)
        for count in (4, 5)
    )
    every = columns.readable(five)
    monkeypatch.setattr("quartet.features.aggregates._MOST_COMPARED", 14)
    assert columns.readable(four) == every
    left_out = set(every) - set(columns.readable(five))
    assert columns.readable(five) == tuple(name for name in every if name not in left_out)
    assert {name for name in columns.names if is_about_others(name) and not name.startswith("world: ")} == (
        left_out
    )
    assert f"{COUNT}, place among riders" in left_out
    assert f"{COUNT}, gap to the first of riders" in left_out

    def refused(*_: Any) -> None:
        raise AssertionError("compared all the same")

    whole = columns.matrix(five)
    monkeypatch.setattr("quartet.features.blocks._standing", refused)
    cheap = columns.matrix(five, frozenset(columns.readable(five)))
    for place, name in enumerate(columns.names):
        expected = np.full(len(five), np.nan) if name in left_out else whole[:, place]
        np.testing.assert_array_equal(cheap[:, place], expected)


def test_models_read_no_totals_that_grow_with_the_database(tour: Tour) -> None:
    """Rides, laps and riders come in time: all of them so far tell the date. What comes later decides nothing."""
    columns = RelationalColumns.of(tour.database, "riders", tour.features, horizon=2 * DAY)

    def left_out(at: float) -> set[str]:
        return set(columns.names) - set(columns.readable(seeds_of(tour.database, "riders", [0], [day(at)])))

    totals = (": all", ": days since the first")
    assert left_out(8) == {name for name in columns.names if name.endswith(totals)}
    assert "rides by rider: days since the first" in left_out(8)
    assert not left_out(-1)


def test_windows_of_a_long_horizon_reach_back_to_the_first_row(tour: Tour) -> None:
    """Fifty times ten years are more nanoseconds than int64 holds."""
    columns = RelationalColumns.of(tour.database, "riders", tour.features, horizon=3650 * DAY)
    found = columns.of_seeds(seeds_of(tour.database, "riders", [0], [day(8)]))
    counts = [found[f"rides by rider: {what}"] for what in ("all", "last 3650 days", "last 182500 days")]
    assert counts[0] == counts[1] == counts[2] > 0


def test_rows_without_a_time_are_counted() -> None:
    tables = {"things": pa.table({"id": [1]}), "sales": pa.table({"thing": [1] * 20, "n": np.arange(20.0)})}
    said = table_schema(None, None, {"n": "number"}, thing="things")
    database = Database.build(tables, Schema({"things": table_schema("id"), "sales": said}))
    columns = RelationalColumns.of(database, "things", FeatureTable.fit(database, day(0)))
    assert columns.readable(seeds_of(database, "things", [0], [day(1)])) == columns.names
    assert "sales by thing: all" in columns.names


def test_how_many_are_compared_at_once_changes_no_bit(tour: Tour, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = RelationalColumns.of(tour.database, "riders", tour.features, horizon=2 * DAY)
    times = [day(number) for number in (7, 2, 8, 2, 5, 7, 1)]
    seeds = seeds_of(tour.database, "riders", [0, 1, 2, 0, 1, 1, 0], times)
    together = columns.matrix(seeds)
    for at_once in (1, 6, 7):
        monkeypatch.setattr("quartet.features.blocks._AT_ONCE", at_once)
        assert columns.matrix(seeds).tobytes() == together.tobytes()


def test_earlier_labels_one_by_one() -> None:
    tables = {
        "things": pa.table({"id": [1, 2]}),
        "known_labels": pa.table({"entity": [1, 1, 2], "at": _times(2, 5, 3), "label": [4.0, 6.0, 1.0]}),
    }
    labels = table_schema(None, "at", {"label": "number"}, entity="things")
    database = Database.build(tables, Schema({"things": table_schema("id"), "known_labels": labels}))
    features = FeatureTable.fit(database, day(9))
    columns = RelationalColumns.of(database, "things", features, horizon=DAY)
    found = columns.of_seeds(seeds_of(database, "things", [0, 0, 1], [day(6), day(4), day(2)]))
    learned = features.statistics.tables["known_labels"].columns["label"]
    lags = [found[f"known_labels by entity -> label: {w}"] for w in ("the latest", "1 before the latest")]
    raw = np.array(lags) * learned.std + learned.mean  # type: ignore[union-attr]
    assert raw.tolist() == [
        pytest.approx([6, 4, math.nan], nan_ok=True),
        pytest.approx([4, math.nan, math.nan], nan_ok=True),
    ]
    ages = found["known_labels by entity -> days since: 1 before the latest"]
    assert ages.tolist() == pytest.approx([4, math.nan, math.nan], nan_ok=True)


def _times(*days: int) -> pa.Array:
    return pa.array([day(number) for number in days], pa.timestamp("ns"))


def test_dates_are_days_until_then() -> None:
    born = pa.array([day(0), None], pa.timestamp("ns"))
    tables = {"people": pa.table({"id": [1, 2], "born": born})}
    database = Database.build(tables, Schema({"people": table_schema("id", kinds={"born": "time"})}))
    columns = RelationalColumns.of(database, "people", FeatureTable.fit(database, day(1)))
    found = columns.of_seeds(Seeds(np.array([0, 1]), np.array([day(60) + DAY // 2] * 2), None))
    assert found["days since born"][0] == 60.5
    assert math.isnan(found["days since born"][1])


def test_sums_are_exact() -> None:
    """What stands before a range leaves nothing in its mean or sum, however large it is."""
    small = np.array([1e-5, np.nan, 3e-5], np.float32)
    before = np.concatenate([np.full(99_999, 29.999, np.float32), small])

    def summary(values: np.ndarray, begin: int, end: int) -> np.ndarray:
        out = np.empty((1, 2), np.float32)
        events, cuts = np.arange(len(values)), np.array([[0, begin, end]])
        kinds = [(MEAN, 1, 0), (SUM, 1, 0)]
        fill_summaries(events, values[:, None], np.zeros(1), np.zeros(1, np.int64), cuts, kinds, out)
        return out

    assert summary(before, 99_999, 100_002).tobytes() == summary(small, 0, 3).tobytes()
    assert summary(small, 0, 3)[0].tolist() == pytest.approx([2e-5, 4e-5], abs=1e-7)
    mean, total = summary(small, 1, 2)[0]
    assert (np.isnan(mean), total) == (True, 0.0)


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_change_no_bit(tour: Tour, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quartet.features.aggregates._CELLS_OF_A_THREAD", 1)
    columns = RelationalColumns.of(tour.database, "rides", tour.features, horizon=DAY)
    seeds = seeds_of(tour.database, "rides", list(range(6)) * 5, [day(8)] * 30)
    assert columns.matrix(seeds, threads=threads).tobytes() == columns.matrix(seeds).tobytes()


def test_days_since_a_date_are_counted_whatever_years_were_seen_before() -> None:
    """Statistics saw births since 2006 only: a later row was born in 1935, another in 2300."""
    born = pa.array(
        np.array(["2006-01-01", "2007-01-01", "1935-01-01", "2300-01-01", "NaT"], "datetime64[s]")
    )
    database = one_table({"id": range(5), "born": born}, [0, 1, 20, 20, 20], primary_key=("id",))
    features, time = FeatureTable.fit(database, 10 * DAY), 30 * DAY
    found = RelationalColumns.of(database, "t", features).of_seeds(
        seeds_of(database, "t", range(5), [time] * 5)
    )
    dates = np.array(["2006-01-01", "2007-01-01", "1935-01-01", "2300-01-01", "NaT"], "datetime64[D]")
    expected = [math.nan if np.isnat(date) else 30 - date.astype(int) for date in dates]
    assert found["days since born"].tolist() == pytest.approx(expected, nan_ok=True)


# --- a plain twin ---------------------------------------------------------------------------------

Found = list[tuple[int, int]]  # rows, and when the way to each is known


class Twin:
    """The same columns, row by row, from the definition."""

    def __init__(self, database: Database, features: FeatureTable, rule: TimeRule, unit: int) -> None:
        self.database, self.features, self.rule, self.unit = database, features, rule, unit
        self.numbers = {name: cells.numbers for name, cells in table_cells(database, features).items()}

    def known(self, table: str, row: int) -> int:
        return int(self.database[table].known_at[row])

    def children(self, relation: Relation, row: int, known: int) -> Found:
        return [
            (child, max(known, self.known(relation.table, child)))
            for child, parent in enumerate(relation.rows.tolist())
            if parent == row and not (relation.table == relation.parent and child == row)
        ]

    def paths(self, table: str, row: int, ups: int) -> Iterator[tuple[str, str, Found, bool, bool]]:
        """Label, table and rows of each path that begins with children, whether it only goes down, and is near."""
        relations = self.database.relations
        for first in (r for r in relations if r.parent == table and ups < 2):
            own = (
                self.known(table, row) if ups or self.rule == "<=" else STATIC
            )  # a seed's row is known at its time
            children = self.children(first, row, own)
            label = f"{first.table} by {first.foreign_key.distinct_label}"
            yield label, first.table, children, True, True
            for second in relations:
                name = second.foreign_key.distinct_label
                if second.parent == first.table:
                    below = [
                        found for child, known in children for found in self.children(second, child, known)
                    ]
                    yield f"{label}, {second.table} by {name}", second.table, below, True, False
                if second.table == first.table and second is not first and not ups:
                    above = [
                        (parent, max(known, self.known(second.parent, parent)))
                        for child, known in children
                        if (parent := int(second.rows[child])) >= 0
                    ]
                    yield f"{label}, {name} -> {second.parent}", second.parent, above, False, False

    def alike(self, table: str, row: int, time: int) -> Iterator[tuple[str, str, Found | None, bool, bool]]:
        """Yields paths to the rows of the entity's own table that share a value, or two parents, with it."""
        groups: dict[str, list[tuple[Any, int]]] = {}  # of each row: what it shares, and when that is known
        for place, (name, column) in enumerate(self.features.statistics.tables[table].of("category").items()):
            if len(column.vocabulary) > 4:
                codes = self.features.tables[table].categories[:, place].tolist()
                groups[name] = [(code if code >= FIRST_CODE else None, STATIC) for code in codes]
        own = [relation for relation in self.database.relations if relation.table == table]
        for one, other in combinations(own, 2):
            pairs = []
            for a, b in zip(one.rows.tolist(), other.rows.tolist(), strict=True):
                has_both = a >= 0 and b >= 0
                known = max(self.known(one.parent, a), self.known(other.parent, b)) if has_both else STATIC
                pairs.append(((a, b) if has_both else None, known))
            name = f"{one.foreign_key.distinct_label} and {other.foreign_key.distinct_label}"
            groups[name] = pairs
        for name, shared in groups.items():
            ways = [max(self.known(table, other), known) for other, (_, known) in enumerate(shared)]
            early = [
                value
                for (value, _), way in zip(shared, ways, strict=True)
                if value is not None and not is_future(way, self.features.statistics.cutoff, "<=")
            ]
            if not early or len(early) < 4 * len(set(early)):
                continue
            value, known = shared[row]
            is_there = value is not None and not is_future(known, time, self.rule)
            same = [(o, way) for o, way in enumerate(ways) if is_there and shared[o][0] == value]
            label = f"{table} of the same {name}"
            yield label, table, same if is_there else None, True, False
            for second in (r for r in self.database.relations if r.parent == table):
                below = [found for child, way in same for found in self.children(second, child, way)]
                text = f"{label}, {second.table} by {second.foreign_key.distinct_label}"
                yield text, second.table, below if is_there else None, True, False

    def waiting(self, label: str, table: str, found: Found, time: int) -> dict[str, float]:
        """Of the latest rows of a path, how many no visible row of each table names, and since when the first waits."""
        columns: dict[str, float] = {}
        seen = sorted(self.visible(found, time), key=lambda pair: pair[1])
        for below in (r for r in self.database.relations if r.parent == table and self.has_times(r.table)):
            name = f"{label} without {below.table} by {below.foreign_key.distinct_label}"
            waits = {
                row
                for row, _ in seen
                if all(is_future(known, time, self.rule) for _, known in self.children(below, row, STATIC))
            }
            for number, way in ((1, "the latest"), (12, "of the last 12"), (50, "of the last 50")):
                last = [(row, known) for row, known in seen if known >= seen[-number:][0][1]]
                since = [known for row, known in last if row in waits]
                columns[f"{name}: {way}"] = len(since) if seen else math.nan
                if number == 12:
                    days = (time - since[0]) / DAY if since and since[0] != STATIC else math.nan
                    columns[f"{name}: days since the first of the last 12"] = days
        return columns

    def visible(self, found: Found, time: int) -> Found:
        return [(row, known) for row, known in found if not is_future(known, time, self.rule)]

    def cells(self, table: str) -> Iterator[tuple[str, list[float], float | None]]:
        """Name and cells of what is summed up; of numbers also what a value has beyond its cell."""
        features, statistics = self.features.tables[table], self.features.statistics.tables[table]
        for name, (cells, offset) in self.numbers[table].items():
            yield name, cells.tolist(), offset
        for place, (name, column) in enumerate(statistics.of("category").items()):
            few = (
                column.vocabulary[:MOST_VALUES]
                if len(column.vocabulary) > MOST_VALUES
                else column.vocabulary[:-1]
            )
            for number, value in enumerate(few or column.vocabulary):
                codes = features.categories[:, place].tolist()
                yield f"{name} = {value}", [float(code == FIRST_CODE + number) for code in codes], None
        for place, (name, column) in enumerate(statistics.of("multicategory").items()):
            bag = features.multicategories[place]
            bags = [set(part.tolist()) for part in np.split(bag.code, bag.start[1:-1])]
            for number, value in enumerate(column.vocabulary[:MOST_VALUES]):
                yield f"{name} has {value}", [float(FIRST_CODE + number in held) for held in bags], None

    def of_path(
        self, label: str, table: str, found: Found, is_count: bool, is_near: bool, time: int
    ) -> dict[str, float]:
        seen = self.visible(found, time)
        times = [known for _, known in seen]
        last, first = max(times, default=STATIC), min(times, default=STATIC)
        recent = {n: self.since(seen, time - n * self.unit) for n in (1, 2, 4, 12, 50)}
        said = {n: show_length(n * self.unit) for n in recent}
        columns: dict[str, float] = {}
        if is_count:
            columns[f"{label}: all"] = len(seen)
            columns |= {f"{label}: last {said[n]}": len(rows) for n, rows in recent.items()}
            columns[f"{label}: trend"] = 2 * len(recent[1]) - len(recent[2])
            columns[f"{label}: days since"] = math.nan if last == STATIC else (time - last) / DAY
            columns[f"{label}: days since the first"] = math.nan if first == STATIC else (time - first) / DAY
        twelfth = sorted(times, reverse=True)[:12]
        chosen = {
            "mean": seen,
            f"mean of {said[4]}": recent[4],
            "mean of the last 12": [(row, known) for row, known in seen if known >= min(twelfth, default=0)],
            "latest": [(row, known) for row, known in seen if known == last],
        }
        for name, cells, offset in self.cells(table):
            is_close = is_near and offset is not None
            for most in (3, 50) if offset is not None else ():
                least = min(sorted(times, reverse=True)[:most], default=0)
                chosen[f"mean of the last {most}"] = [(row, known) for row, known in seen if known >= least]
            if offset is None:
                chosen = {what: rows for what, rows in chosen.items() if what[-3:] not in ("t 3", " 50")}
            means = chosen | ({f"mean of {said[n]}": recent[n] for n in (1, 12)} if is_close else {})
            sums = {f"sum of {said[4]}": recent[4]}
            sums |= {f"sum of {said[n]}": recent[n] for n in (1, 50)} if is_close else {}
            found_ = {what: mean(cells, rows) for what, rows in means.items()}
            found_ |= {what: total(cells, rows, offset or 0.0) for what, rows in sums.items()}
            if is_close:
                before = [pair for pair in recent[2] if pair not in recent[1]]
                found_["trend"] = mean(cells, recent[1]) - mean(cells, before)
            columns |= {f"{label} -> {name}: {what}": value for what, value in found_.items()}
        return columns

    def has_times(self, table: str) -> bool:
        return self.database[table].is_timed

    def since(self, found: Found, time: int) -> Found:
        return [(row, known) for row, known in found if is_future(known, time, self.rule)]

    def columns(self, table: str, row: int, time: int, ups: int = 0) -> dict[str, float]:
        found = self.own(table, row, time)
        for path in self.paths(table, row, ups):
            found |= self.of_path(*path, time)
            found |= self.waiting(*path[:3], time) if path[-1] else {}
        for label, shown, rows, *rest in (
            self.alike(table, row, time) if not ups and self.has_times(table) else ()
        ):
            columns = self.of_path(label, shown, rows or [], *rest, time)
            found |= columns if rows is not None else dict.fromkeys(columns, math.nan)
        for relation in (r for r in self.database.relations if r.table == table and ups < 2):
            parent, label = (
                int(relation.rows[row]),
                f"{relation.foreign_key.distinct_label} -> {relation.parent}, ",
            )
            known = self.known(relation.parent, parent) if parent >= 0 else None
            if is_future(known, time, self.rule):
                continue
            assert known is not None
            of_parent = self.columns(relation.parent, parent, time, ups + 1)
            of_parent["days since"] = math.nan if known == STATIC else (time - known) / DAY
            found |= {label + name: value for name, value in of_parent.items()}
        return found

    def own(self, table: str, row: int, time: int) -> dict[str, float]:
        features, statistics = self.features.tables[table], self.features.statistics.tables[table]
        found = {f"{name} (number)": float(cells[row]) for name, (cells, _) in self.numbers[table].items()}
        for place, name in enumerate(features.layout.texts):
            vector = features.vectors[place][features.texts[row, place]]
            found |= {f"{name} (text {number + 1})": float(vector[number]) for number in range(4)}
        codes = zip(features.layout.categories, features.categories[row], strict=True)
        found |= {f"{name} (code)": float(code) for name, code in codes}
        for name in statistics.of("time"):
            date = self.database[table].data[name][row].as_py()
            days = (
                math.nan if date is None else (np.datetime64(date, "D") - np.datetime64(0, "D")).astype(int)
            )
            found[f"days since {name}"] = time / DAY - days
        return found


def mean(cells: list[float], rows: Found) -> float:
    there = [cells[row] for row, _ in rows if not math.isnan(cells[row])]
    return math.fsum(there) / len(there) if there else math.nan


def total(cells: list[float], rows: Found, offset: float) -> float:
    there = [cells[row] + offset for row, _ in rows if not math.isnan(cells[row])]
    return math.fsum(there)


def seeds_of(database: Database, table: str, rows: Sequence[int], times: Sequence[int]) -> Seeds:
    return Seeds(np.array(rows) + database.offsets[table], np.array(times), None)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("most", [1, MOST_SUMMARIES])
@examples(30)
@given(random_db(), st.data(), st.integers(0, 2**32))
def test_the_twin_finds_the_same(
    rule: TimeRule, most: int, raw: Raw, data: st.DataObject, rng_seed: int
) -> None:
    """Of tables whose cells are all looked at, and of tables of which all but one are told in brief."""
    with patch.multiple(aggregates, MOST_SUMMARIES=most, _BRIEF_PART=MOST_SUMMARIES):
        the_twin_finds_the_same(rule, raw, data, rng_seed)


def the_twin_finds_the_same(rule: TimeRule, raw: Raw, data: st.DataObject, rng_seed: int) -> None:
    rng = random.Random(rng_seed)
    database = Database.build(*with_features(raw, rng))
    time, seeds = drawn_seeds(database, data, rule, rng)
    rows, features = named_rows(database), FeatureTable.fit(database, time)
    for name, moment in seeds[:3]:
        table, row = name[0], rows[name]
        unit = rng.choice([DAY // 2, DAY, 3 * DAY])
        columns = RelationalColumns.of(database, table, features, rule, unit)
        cells = columns.of_seeds(seeds_of(database, table, [row], [moment]))
        expected = Twin(database, features, rule, unit).columns(table, row, moment)
        calendar = {"month", "weekday", "hour", "age in days"}
        for column in cells.keys() - calendar:  # what is not visible has no number
            if not is_about_others(column):
                value = expected.get(column, math.nan)
                got = float(cells[column][0])
                assert got == pytest.approx(value, abs=1e-4, rel=1e-4, nan_ok=True), (
                    f"{column}: {got}, {value}"
                )


@pytest.mark.parametrize("rule", RULES)
@examples(30)
@given(random_db(), st.data(), st.integers(0, 2**32))
def test_places_are_those_among_all_that_were_active(
    rule: TimeRule, raw: Raw, data: st.DataObject, rng_seed: int
) -> None:
    """Of one seed alone, from what all entities of its table show at its time."""
    rng = random.Random(rng_seed)
    database = Database.build(*with_features(raw, rng))
    time, seeds = drawn_seeds(database, data, rule, rng)
    rows, features = named_rows(database), FeatureTable.fit(database, time)
    for name, moment in seeds[:3]:
        table, row = name[0], rows[name]
        columns = RelationalColumns.of(database, table, features, rule, DAY)
        count = database[table].num_rows
        everyone = columns.of_seeds(seeds_of(database, table, range(count), [moment] * count))
        found = columns.of_seeds(seeds_of(database, table, [row], [moment]))
        for column in found:
            what, _, among = column.partition(", place among ")
            if not among or what not in everyone:  # of wide tables fewer columns are told than compared
                continue
            label = what.partition(" -> ")[0].partition(":")[0]
            others = [
                float(everyone[what][other])
                for other in range(count)
                if everyone[f"{label}: last 12 days"][other] > 0
                and not is_future(int(database[table].known_at[other]), moment, rule)
                and not math.isnan(everyone[what][other])
            ]
            own = float(found[what][0])
            below = sum((other < own) + 0.5 * (other == own) for other in others)
            place, gap = (
                float(found[f"{what}{w}{table}"][0]) for w in (", place among ", ", gap to the first of ")
            )
            if math.isnan(own) or not others:
                assert math.isnan(place)
                assert math.isnan(gap)
            else:
                assert place == pytest.approx(below / len(others), abs=1e-6)
                assert gap == np.float32(own) - np.float32(max(others))


def test_seeds_asked_together_see_what_each_sees_alone(tour: Tour) -> None:
    """P4: one entity at several times, in any order."""
    columns = RelationalColumns.of(tour.database, "riders", tour.features)
    rows, times = [0, 2, 0, 1, 0], [day(7), day(6), day(1), day(9), day(3)]
    together = columns.of_seeds(seeds_of(tour.database, "riders", rows, times))
    for place, (row, time) in enumerate(zip(rows, times, strict=True)):
        alone = columns.of_seeds(seeds_of(tour.database, "riders", [row], [time]))
        assert {name: cells[place].tobytes() for name, cells in together.items()} == {
            name: cells[0].tobytes() for name, cells in alone.items()
        }
