"""Nothing that is not known at a time changes what is learned, or a bit of what a row or a seed shows (P1 to P3)."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quartet.causal import TimeRule, visible
from quartet.database import Database
from quartet.features import FeatureStatistics, FeatureTable, RelationalColumns, SeedColumns
from quartet.tasks import Seeds
from tests.features.drawn import (
    CHANGES,
    RULES,
    Change,
    NamedSeed,
    drawn_seeds,
    named_rows,
    some_seeds,
    with_features,
    with_lists,
)
from tests.features.small import raw_tour, row_bits
from tests.shop import day, raw_shop
from tests.strategies import Raw, examples, interesting_times, random_db

# --- features -------------------------------------------------------------------------------------


def learned(statistics: FeatureStatistics) -> tuple[object, dict[str, bytes]]:
    return statistics.to_dict(), {name: array.tobytes() for name, array in statistics.arrays.items()}


def visible_rows(database: Database, table: FeatureTable, time: int) -> dict[str, list[bytes]]:
    """The bits of all rows that are known at a time, in an order that is not that of the rows."""
    rows = {}
    for name, features in table.tables.items():
        bits = row_bits(features)
        rows[name] = sorted(bits[row] for row in np.flatnonzero(visible(database[name].known_at, time)))
    return rows


@given(st.data(), random_db(), st.sampled_from(CHANGES), st.integers(0, 2**32))
@examples(100)
def test_no_other_future_and_no_other_order_changes_a_feature(
    data: st.DataObject, raw: Raw, change: Change, seed: int
) -> None:
    rng = random.Random(seed)
    raw = with_features(raw, rng)
    database = Database.build(*with_lists(raw))
    time = data.draw(st.sampled_from(interesting_times(database)))
    other = Database.build(*with_lists(change(raw, time, "<=", rng)))
    before, after = FeatureTable.fit(database, time), FeatureTable.fit(other, time)
    assert learned(after.statistics) == learned(before.statistics)
    assert after.layouts == before.layouts
    assert visible_rows(other, after, time) == visible_rows(database, before, time)
    assert after.statistics.findings == before.statistics.findings


@given(st.data(), random_db(), st.integers(0, 2**32))
@examples(30)
def test_a_grown_database_leaves_the_rows_there_were(data: st.DataObject, raw: Raw, seed: int) -> None:
    database = Database.build(*with_lists(with_features(raw, random.Random(seed))))
    time = data.draw(st.sampled_from(interesting_times(database)))
    past = database.upto(time)
    statistics = FeatureStatistics.fit(past, time)
    assert visible_rows(past, FeatureTable.encode(past, statistics), time) == visible_rows(
        database, FeatureTable.encode(database, statistics), time
    )


# --- columns of seeds -----------------------------------------------------------------------------


def shown(raw: Raw, seeds: Sequence[NamedSeed], time: int, rule: TimeRule) -> dict[str, bytes]:
    """All columns of all seeds, table by table, to the last bit."""
    database = Database.build(*raw)
    rows, features = named_rows(database), FeatureTable.fit(database, time if rule == "<=" else time - 1)
    columns = {}
    for table in {name[0]: None for name, _ in seeds}:
        nodes, times = zip(*((rows[name], t) for name, t in seeds if name[0] == table), strict=True)
        some = Seeds(np.array(nodes) + database.offsets[table], np.array(times), None)
        columns[table] = RelationalColumns.of(database, table, features, rule).of_seeds(some)
        if rule == "<=":
            counts = SeedColumns.of(database, table, features).of_seeds(some)
            columns[table] |= {f"counts {name}": cells for name, cells in counts.items()}
    return {f"{t} {name}": cells.tobytes() for t, all_ in columns.items() for name, cells in all_.items()}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("change", CHANGES)
@examples(25)
@given(random_db(), st.data(), st.integers(0, 2**32))
def test_no_other_future_and_no_other_order_changes_a_column(
    rule: TimeRule, change: Change, raw: Raw, data: st.DataObject, rng_seed: int
) -> None:
    rng = random.Random(rng_seed)
    raw = with_features(raw, rng)
    time, seeds = drawn_seeds(Database.build(*raw), data, rule, rng)
    assert shown(change(raw, time, rule, rng), seeds, time, rule) == shown(raw, seeds, time, rule)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("number", range(10))
@pytest.mark.parametrize("raw", [raw_tour, raw_shop])
def test_the_drawn_databases_keep_their_secrets(raw: object, number: int, rule: TimeRule) -> None:
    before, rng = raw(), random.Random(number)  # type: ignore[operator]
    for time in (day(number) - 1, day(number), day(number) + 1):
        seeds = some_seeds(Database.build(*before), time, rule, 40, rng)
        expected = shown(before, seeds, time, rule)
        for change in CHANGES:
            assert shown(change(before, time, rule, rng), seeds, time, rule) == expected
