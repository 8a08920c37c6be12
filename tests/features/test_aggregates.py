"""Columns of the rows around a row: by hand, by a plain twin, and by what must go unnoticed (P1 to P3).

teams (static)      riders             rides                                  laps
A   size 10         r1  A  day 0       1  day 1  r1  q1  place 1  sprint      ride 1  day 1  10 s
B   size 20         r2  A  day 0       2  day 1  r2  q1  place 2  sprint      ride 1  day 1  20 s
                    r3  B  day 5       3  day 3  r1  q2  place 3  tour        ride 3  day 4  60 s
races                                  4  day 3  r1  q3  place 5  sprint      ride 3  day 8  99 s
q1  day 1  100 km                      5  day 6  r1  q3  place -  tour
q2  day 3  200 km                      6  day 6  r3  q3  place 9  sprint
q3  day 6  300 km                                                             ride 4 is older than its race
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quartet.causal import TimeRule
from quartet.database import FACTS, Database, ForeignKey, Relation, TableSchema, TimeColumn
from quartet.database.schema import Schema
from quartet.features import FeatureTable, RelationalColumns
from quartet.features import aggregates as relational
from quartet.features.aggregates import MOST_AVERAGES, MOST_VALUES, RunningSums, Sight
from quartet.features.arrays import FIRST_CODE, NO_DATE
from quartet.tasks import Seeds
from quartet.times import STATIC
from tests.contexts.named import NamedSeed, World
from tests.contexts.test_causality import RULES, Change, asked
from tests.features.test_causality import with_features
from tests.shop import DAY, day
from tests.strategies import Raw, examples, is_future, random_db, scrambled_future, shuffled, without_future

# --- by hand --------------------------------------------------------------------------------------


def _days(*numbers: int) -> pa.Array:
    return pa.array([day(number) for number in numbers], pa.timestamp("ns"))


def _said(
    key: str | None, time: str | None = None, kinds: dict[str, str] | None = None, **links: str
) -> TableSchema:
    return TableSchema(
        (key,) if key else (),
        tuple(ForeignKey((column,), table) for column, table in links.items()),
        TimeColumn(time) if time else None,
        settled=FACTS,
        kinds=kinds or {},
    )


def raw_tour() -> Raw:
    tables = {
        "teams": pa.table({"team": ["A", "B"], "size": [10.0, 20.0]}),
        "riders": pa.table({"rider": ["r1", "r2", "r3"], "team": ["A", "A", "B"], "joined": _days(0, 0, 5)}),
        "races": pa.table({"race": ["q1", "q2", "q3"], "on": _days(1, 3, 6), "km": [100.0, 200.0, 300.0]}),
        "rides": pa.table(
            {
                "ride": [1, 2, 3, 4, 5, 6],
                "on": _days(1, 1, 3, 3, 6, 6),
                "rider": ["r1", "r2", "r1", "r1", "r1", "r3"],
                "race": ["q1", "q1", "q2", "q3", "q3", "q3"],
                "place": [1.0, 2.0, 3.0, 5.0, None, 9.0],
                "type": ["sprint", "sprint", "tour", "sprint", "tour", "sprint"],
            }
        ),
        "laps": pa.table(
            {"ride": [1, 1, 3, 3], "on": _days(1, 1, 4, 8), "seconds": [10.0, 20.0, 60.0, 99.0]}
        ),
    }
    schema = {
        "teams": _said("team", kinds={"size": "number"}),
        "riders": _said("rider", "joined", team="teams"),
        "races": _said("race", "on", kinds={"km": "number"}),
        "rides": _said("ride", "on", {"place": "number", "type": "category"}, rider="riders", race="races"),
        "laps": _said(None, "on", {"seconds": "number"}, ride="rides"),
    }
    return tables, Schema(schema, name="tour")


@dataclass(frozen=True)
class Tour:
    """The tour and its features, by which columns can be read in the units of the drawing."""

    database: Database
    features: FeatureTable

    def columns(self, table: str, row: int, number: float, rule: TimeRule = "<=") -> dict[str, float]:
        node, time = self.database.offsets[table] + row, day(0) + int(number * DAY)
        found = RelationalColumns.of(self.database, table, self.features, rule).of_seeds(
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
    assert counts == {
        "rides by rider: all": 4,
        "rides by rider, laps by ride: all": 3,
        "team -> teams, riders by team: all": 2,
        "team -> teams, riders by team, rides by rider: all": 5,
    }
    place = {
        what: found[f"rides by rider -> place: {what}"] for what in ("mean", "mean of 90 days", "latest")
    }
    assert tour.raw("rides", "place", place["mean"]) == pytest.approx(3.0)  # 1, 3, 5
    assert place["mean of 90 days"] == place["mean"]
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
    assert all(
        math.isnan(value) for name, value in found.items() if name.startswith("rides") and "->" in name
    )


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


def test_only_the_most_frequent_values_are_averaged() -> None:
    """Of two values one says all, of many four; numbers come first, and all paths have the same share."""
    many = [str(number) for number in range(10)] * 2
    wide = {f"n{number}": np.arange(20.0) for number in range(300)}
    kinds = {"type": "category", "half": "category"} | dict.fromkeys(wide, "number")
    half = ["a", "b"] * 10

    def averaged(**columns: Any) -> list[str]:
        tables = {"things": pa.table({"id": [1]}), "sales": pa.table({"thing": [1] * 20, **columns})}
        said = _said(None, None, {name: kinds[name] for name in columns}, thing="things")
        database = Database.build(tables, Schema({"things": _said("id"), "sales": said}))
        features = FeatureTable.fit(database, day(0))
        columns = RelationalColumns.of(database, "things", features)
        found = columns.of_seeds(seeds_of(database, "things", [0], [day(0)]))
        names = [name.removesuffix(": latest") for name in found if name.endswith(": latest")]
        return [name.removeprefix("sales by thing -> ") for name in names]

    assert averaged(type=many, half=half) == [*(f"type = {n}" for n in range(MOST_VALUES)), "half = a"]
    assert averaged(half=half, n1=wide["n1"]) == ["n1", "half = a"]
    assert averaged(**wide, half=half) == list(wide)[: MOST_AVERAGES // 5]
    assert Sight.over(25, "<=").num_averaged == 8
    assert Sight.over(10**6, "<=").num_averaged == 1


def test_dates_are_days_until_then() -> None:
    born = pa.array([day(0), None], pa.timestamp("ns"))
    tables = {"people": pa.table({"id": [1, 2], "born": born})}
    database = Database.build(tables, Schema({"people": _said("id", kinds={"born": "time"})}))
    columns = RelationalColumns.of(database, "people", FeatureTable.fit(database, day(1)))
    found = columns.of_seeds(Seeds(np.array([0, 1]), np.array([day(60) + DAY // 2] * 2), None))
    assert found["days since born"][0] == 60.5
    assert math.isnan(found["days since born"][1])


def test_sums_are_exact() -> None:
    """What stands before a range leaves nothing in its mean, however large it is."""
    small = np.array([1e-5, np.nan, 3e-5], np.float32)
    alone = RunningSums.of(small).mean(np.array([0]), np.array([3]))
    before = np.concatenate([np.full(99_999, 29.999, np.float32), small])
    assert RunningSums.of(before).mean(np.array([99_999]), np.array([100_002])).tobytes() == alone.tobytes()
    assert alone[0] == pytest.approx(2e-5, abs=1e-7)


# --- a plain twin ---------------------------------------------------------------------------------

Found = list[tuple[int, int]]  # rows, and when the way to each is known


class Twin:
    """The same columns, row by row, from the definition."""

    def __init__(self, database: Database, features: FeatureTable, rule: TimeRule, num_averaged: int) -> None:
        self.database, self.features, self.rule, self.num_averaged = database, features, rule, num_averaged

    def known(self, table: str, row: int) -> int:
        return int(self.database[table].known_at[row])

    def children(self, relation: Relation, row: int, known: int) -> Found:
        return [
            (child, max(known, self.known(relation.table, child)))
            for child, parent in enumerate(relation.rows.tolist())
            if parent == row and not (relation.table == relation.parent and child == row)
        ]

    def paths(self, table: str, row: int, ups: int) -> Iterator[tuple[str, str, Found, bool]]:
        """Label, table and rows of each path that begins with children, and whether it only goes down."""
        relations = self.database.relations
        for first in (r for r in relations if r.parent == table and ups < 2):
            children = self.children(first, row, self.known(table, row))
            label = f"{first.table} by {first.foreign_key.label}"
            yield label, first.table, children, True
            for second in relations:
                name = second.foreign_key.label
                if second.parent == first.table:
                    below = [
                        found for child, known in children for found in self.children(second, child, known)
                    ]
                    yield f"{label}, {second.table} by {name}", second.table, below, True
                if second.table == first.table and second is not first and not ups:
                    above = [
                        (parent, max(known, self.known(second.parent, parent)))
                        for child, known in children
                        if (parent := int(second.rows[child])) >= 0
                    ]
                    yield f"{label}, {name} -> {second.parent}", second.parent, above, False

    def visible(self, found: Found, time: int) -> Found:
        return [(row, known) for row, known in found if not is_future(known, time, self.rule)]

    def cells(self, table: str) -> Iterator[tuple[str, list[float]]]:
        features, statistics = self.features.tables[table], self.features.statistics.tables[table]
        for place, name in enumerate(features.layout.numbers):
            yield name, features.numbers[:, place].tolist()
        for place, (name, column) in enumerate(statistics.of("category").items()):
            few = (
                column.vocabulary[:MOST_VALUES]
                if len(column.vocabulary) > MOST_VALUES
                else column.vocabulary[:-1]
            )
            for number, value in enumerate(few or column.vocabulary):
                codes = features.categories[:, place].tolist()
                yield f"{name} = {value}", [float(code == FIRST_CODE + number) for code in codes]

    def of_path(self, label: str, table: str, found: Found, is_count: bool, time: int) -> dict[str, float]:
        seen = self.visible(found, time)
        last = max([known for _, known in seen], default=STATIC)
        recent = {days: self.since(seen, time - days * DAY) for days in (30, 90, 365)}
        columns: dict[str, float] = {}
        if is_count:
            columns[f"{label}: all"] = len(seen)
            columns |= {f"{label}: {days} days": len(rows) for days, rows in recent.items()}
            columns[f"{label}: days since"] = math.nan if last == STATIC else (time - last) / DAY
        chosen = {"mean": seen, "latest": [(row, known) for row, known in seen if known == last]}
        chosen |= {f"mean of {days} days": recent[days] for days in relational.RECENT}
        twelfth = sorted((known for _, known in seen), reverse=True)[:12]
        chosen["mean of the last 12"] = [
            (row, known) for row, known in seen if known >= min(twelfth, default=0)
        ]
        for name, cells in list(self.cells(table))[: self.num_averaged]:
            columns |= {f"{label} -> {name}: {what}": mean(cells, rows) for what, rows in chosen.items()}
        return columns

    def since(self, found: Found, time: int) -> Found:
        return [(row, known) for row, known in found if is_future(known, time, self.rule)]

    def columns(self, table: str, row: int, time: int, ups: int = 0) -> dict[str, float]:
        found = self.own(table, row, time)
        for path in self.paths(table, row, ups):
            found |= self.of_path(*path, time)
        for relation in (r for r in self.database.relations if r.table == table and ups < 2):
            parent, label = int(relation.rows[row]), f"{relation.foreign_key.label} -> {relation.parent}, "
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
        found = {
            f"{n} (number)": float(v)
            for n, v in zip(features.layout.numbers, features.numbers[row], strict=True)
        }
        codes = zip(features.layout.categories, features.categories[row], strict=True)
        found |= {f"{name} (code)": float(code) for name, code in codes}
        for place, (name, column) in enumerate(statistics.of("time").items()):
            year, month, date = features.calendar[row, place, :3].tolist()
            start = (
                np.datetime64(f"{column.first_year + year:04d}-{month + 1:02d}") if year != NO_DATE else None
            )
            days = math.nan if start is None else int(start.astype("datetime64[D]").astype(int)) + date
            found[f"days since {name}"] = time / DAY - days
        return found


def mean(cells: list[float], rows: Found) -> float:
    there = [cells[row] for row, _ in rows if not math.isnan(cells[row])]
    return math.fsum(there) / len(there) if there else math.nan


def seeds_of(database: Database, table: str, rows: Sequence[int], times: Sequence[int]) -> Seeds:
    return Seeds(np.array(rows) + database.offsets[table], np.array(times), None)


@pytest.mark.parametrize("rule", RULES)
@examples(40)
@given(random_db(), st.data(), st.integers(0, 2**32))
def test_the_twin_finds_the_same(rule: TimeRule, raw: Raw, data: st.DataObject, rng_seed: int) -> None:
    rng = random.Random(rng_seed)
    raw = with_features(raw, rng)
    world, time, seeds = asked(raw, data, rule, rng)
    database = Database.build(*raw)
    features = FeatureTable.fit(database, time)
    for name, moment in seeds[:3]:
        table, row = name[0], world.nodes[name] - database.offsets[name[0]]
        columns = RelationalColumns.of(database, table, features, rule)
        found = columns.of_seeds(seeds_of(database, table, [row], [moment]))
        expected = Twin(database, features, rule, columns.sight.num_averaged).columns(table, row, moment)
        calendar = {"day", "month", "weekday", "hour", "age in days"}
        assert expected.keys() <= found.keys()
        for column, cells in found.items():
            if column not in calendar:  # what is not visible has no number
                value = expected.get(column, math.nan)
                assert float(cells[0]) == pytest.approx(value, abs=1e-5, rel=1e-5, nan_ok=True), column


# --- P1 to P4 -------------------------------------------------------------------------------------


def seen(database: Database, seeds: Sequence[NamedSeed], upto: int, rule: TimeRule) -> list[dict[str, bytes]]:
    """All columns of each seed, to the last bit."""
    nodes, features = World(database).nodes, FeatureTable.fit(database, upto)
    found = []
    for name, time in seeds:
        columns = RelationalColumns.of(database, name[0], features, rule)
        cells = columns.of_seeds(Seeds(np.array([nodes[name]]), np.array([time]), None))
        found.append({label: column.tobytes() for label, column in cells.items()})
    return found


def reordered(raw: Raw, time: int, rule: TimeRule, rng: random.Random) -> Raw:
    return shuffled(scrambled_future(raw, time, rule, rng), rng)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("change", [without_future, scrambled_future, reordered])
@examples(25)
@given(random_db(), st.data(), st.integers(0, 2**32))
def test_the_future_and_the_order_of_rows_go_unnoticed(
    rule: TimeRule, change: Change, raw: Raw, data: st.DataObject, rng_seed: int
) -> None:
    """P1 to P3"""
    rng = random.Random(rng_seed)
    raw = with_features(raw, rng)
    _, time, seeds = asked(raw, data, rule, rng)
    upto = time if rule == "<=" else time - 1
    other = Database.build(*change(raw, time, rule, rng))
    assert seen(other, seeds, upto, rule) == seen(Database.build(*raw), seeds, upto, rule)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("number", range(10))
@pytest.mark.parametrize("shift", [-1, 0, 1])
def test_the_tour_keeps_its_secrets(rule: TimeRule, number: int, shift: int) -> None:
    raw, time, rng = raw_tour(), day(number) + shift, random.Random(number)
    database = Database.build(*raw)
    seeds = World(database).some_seeds(time, rule, 20, rng)
    upto = time if rule == "<=" else time - 1
    for change in (without_future, scrambled_future, reordered):
        assert seen(Database.build(*change(raw, time, rule, rng)), seeds, upto, rule) == seen(
            database, seeds, upto, rule
        )


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
