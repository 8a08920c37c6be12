"""Columns of a database that has grown have the bits of those made anew, whatever came where."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from quartet.database import Database
from quartet.features import FeatureTable, RelationalColumns
from quartet.features.timeline import Timeline
from quartet.tasks import Seeds
from quartet.times import DAY
from tests.features.drawn import RULES, with_features
from tests.shop import day, raw_shop
from tests.strategies import Raw, examples, interesting_times, random_db

EVENTS = st.lists(st.tuples(st.integers(0, 3), st.integers(-2, 5)), max_size=12)


@examples(150)
@given(EVENTS, EVENTS, st.booleans())
def test_a_timeline_with_more_events_is_that_of_all(
    first: list[tuple[int, int]], more: list[tuple[int, int]], is_other: bool
) -> None:
    """Also where the events there were are not the first of them."""
    of = lambda events: np.array(events, np.int64).reshape(-1, 2).T  # noqa: E731
    before = Timeline.of(*of(first))
    whole = of([*more, *first] if is_other else [*first, *more])
    grown, anew = Timeline.of(*whole, before), Timeline.of(*whole)
    for name, cells in vars(anew).items():
        np.testing.assert_array_equal(vars(grown)[name], cells)
        assert vars(grown)[name].dtype == cells.dtype
    assert before.order.tolist() == Timeline.of(*of(first)).order.tolist()


@examples(60)
@given(st.data(), random_db(), st.integers(0, 2**32), st.sampled_from(RULES))
def test_grown_columns_are_those_made_anew(data: st.DataObject, raw: Raw, rng_seed: int, rule: str) -> None:
    """Rows come to any tables in three parts; questions at the same moment between them leave something behind."""
    tables, schema = with_features(raw, random.Random(rng_seed))
    ends = {
        name: sorted(data.draw(st.sampled_from([0, len(table) // 2, len(table)])) for _ in range(2))
        for name, table in tables.items()
    }

    def part(step: int) -> dict[str, pa.Table]:
        cuts = {name: [0, *own, len(tables[name])] for name, own in ends.items()}
        return {
            name: table.slice(cuts[name][step], cuts[name][step + 1] - cuts[name][step])
            for name, table in tables.items()
        }

    whole = Database.build(tables, schema)
    time = data.draw(st.sampled_from(interesting_times(whole)))
    statistics = FeatureTable.fit(whole, time).statistics
    database = Database.build(part(0), schema)
    features = FeatureTable.encode(database, statistics)
    columns: dict[str, RelationalColumns | None] = dict.fromkeys(tables)
    for step in range(3):
        if step:
            more = {name: rows for name, rows in part(step).items() if rows.num_rows}
            before, database = (database, features), database.appended(more)
            features = FeatureTable.encode(database, statistics, before)
        anew = Database.build(
            {name: pa.concat_tables([part(n)[name] for n in range(step + 1)]) for name in tables}, schema
        )
        fresh = FeatureTable.encode(anew, statistics)
        for name in tables:
            columns[name] = grown = RelationalColumns.of(database, name, features, rule, DAY, columns[name])
            twin = RelationalColumns.of(anew, name, fresh, rule, DAY)
            nodes = anew.offsets[name] + np.arange(anew[name].num_rows)
            seeds = Seeds(nodes, np.full(len(nodes), time), None)
            assert grown.names == twin.names
            assert grown.matrix(seeds).tobytes() == twin.matrix(seeds).tobytes()


def test_a_table_made_from_values_changes_by_rows_of_others() -> None:
    """A home is known from its first visit on: one in the past changes that, and no cell of it."""

    def visits(*told: tuple[int, str, int]) -> pa.Table:
        number, home, seen = zip(*told, strict=True)
        return pa.table(
            {"visit": number, "home": home, "seen": np.array(seen, "datetime64[D]").astype("M8[us]")}
        )

    told = {"pkey": "visit", "time_col": "seen", "fkeys": {}}
    schema = {"tables": {"visits": told}, "entities": {"homes": "home"}}
    first, late = visits((0, "a", 100), (1, "b", 101)), visits((2, "a", 40))
    before = Database.load({"visits": first}, schema)
    old = FeatureTable.fit(before, 90 * DAY)
    columns = RelationalColumns.of(before, "visits", old)
    grown = before.appended({"visits": late})
    features = FeatureTable.encode(grown, old.statistics, (before, old))
    seeds = Seeds(grown.offsets["visits"] + np.arange(3), np.full(3, 200 * DAY), None)
    found, anew = (
        RelationalColumns.of(grown, "visits", features, before=b).matrix(seeds) for b in (columns, None)
    )
    assert found.tobytes() == anew.tobytes()


def test_several_threads_may_ask_at_once() -> None:
    """At ever new moments, of which few are kept: what one forgets, another may just be looking for."""
    database = Database.build(*raw_shop())
    columns = RelationalColumns.of(database, "customers", FeatureTable.fit(database, day(30)))
    node = np.arange(3) + database.offsets["customers"]

    def ask(number: int) -> bytes:
        return columns.matrix(Seeds(node, np.full(3, day(20 + number % 7)), None)).tobytes()

    alone = [ask(number) for number in range(7)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ask, range(140))) == alone * 20
