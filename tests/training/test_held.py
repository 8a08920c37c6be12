"""Seeds long after the newest row: a model is asked as of where the data end, and nothing later decides when."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quartet.causal import TimeRule
from quartet.config import Recipe
from quartet.database import Database
from quartet.features import FeatureTable
from quartet.runs import fit
from quartet.tasks import Seeds, TaskSpec
from quartet.times import STATIC
from quartet.training import View
from tests.features.drawn import CHANGES, RULES, Change
from tests.features.small import one_table
from tests.shop import DAY
from tests.strategies import Raw, examples, interesting_times, is_future, random_db
from tests.trained import TREES, churn

HELD = Recipe.load("small", model="lightgbm")
YEAR = 365 * DAY


def newest_by_hand(database: Database, time: int, rule: TimeRule) -> int:
    times = [int(known) for table in database.tables.values() if table.is_timed for known in table.known_at]
    return max((known for known in times if not is_future(known, time, rule)), default=STATIC)


@pytest.mark.parametrize("rule", RULES)
@examples(60)
@given(random_db(), st.integers(0, 2**32))
def test_the_newest_row_is_that_of_all_visible_ones(rule: TimeRule, raw: Raw, rng_seed: int) -> None:
    """At few moments, which are looked for one by one, and at many; asked twice, and in any order."""
    database, rng = Database.build(*raw), random.Random(rng_seed)
    times = interesting_times(database) * 2
    rng.shuffle(times)
    for asked in (times, times[:3], times[:3]):
        expected = [newest_by_hand(database, time, rule) for time in asked]
        assert database.newest(np.array(asked, np.int64), rule).tolist() == expected


def asked_times(raw: Raw, horizon: int, cutoff: int, times: list[int], rule: TimeRule) -> list[int]:
    database = Database.build(*raw)
    spec = TaskSpec(
        "held", "forecast", "binary_classification", next(iter(database.tables)), "label", horizon=horizon
    )
    view = View(database, FeatureTable.fit(database, cutoff), spec, HELD.changed(time_rule=rule))
    moments = np.array(times, np.int64)
    found = view.asked(Seeds(np.zeros(len(times), np.int64), moments, None)).time
    again = view.asked(Seeds(np.zeros(len(times), np.int64), found, None)).time
    assert found.tolist() == again.tolist()  # who has been held is where he is
    assert (found <= moments).all()
    return [int(time) for time in found]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("change", CHANGES)
@examples(20)
@given(random_db(), st.data(), st.integers(0, 2**32))
def test_no_other_future_decides_when_a_seed_is_asked(
    change: Change, rule: TimeRule, raw: Raw, data: st.DataObject, rng_seed: int
) -> None:
    database, rng = Database.build(*raw), random.Random(rng_seed)
    time = data.draw(st.sampled_from(interesting_times(database)))
    asked, horizon = [time, time - rng.randrange(1, 9) * DAY], rng.choice([1, 60 * DAY])
    cutoff = time - (rule == "<")
    found = asked_times(raw, horizon, cutoff, asked, rule)
    other = asked_times(change(raw, time, rule, rng), horizon, cutoff, asked, rule)
    assert found == other


def test_a_seed_years_later_is_asked_where_the_data_end(tmp_path: Path) -> None:
    """And one in a silence as long as there has been is not moved, whatever the recipe says of late ones."""
    task = churn()
    model = fit(task, recipe=TREES, runs=tmp_path)
    checkpoint = model.members[0][0]
    statistics, database = checkpoint.statistics, task.database
    silence = max(statistics.longest_silence or 0, task.spec.horizon)
    last = int(database.newest(np.array([2**62]))[0])
    node = task.seeds("val").node[:5]

    def view(late: str) -> View:
        recipe = checkpoint.recipe.changed(late_seeds=late)
        return View(database, FeatureTable.encode(database, statistics), task.spec, recipe)

    def scores(late: str, time: int) -> list[float]:
        seeds = Seeds(node, np.full(len(node), time), None)
        return [float(score) for score in checkpoint.model.logits(view(late), seeds)[:, 0]]

    end = last + silence
    assert scores("held", end) == scores("own", end)
    assert scores("held", end + 3 * YEAR) == scores("own", end)
    assert scores("held", end + 3 * YEAR) != scores("own", end + 3 * YEAR)
    assert scores("held", last) == scores("own", last)


def test_an_evaluation_tells_of_seeds_that_are_held(tmp_path: Path) -> None:
    """Frozen, test seeds that come long after the cut-off are; in use, none."""
    task = churn(num_eval_timestamps=6)
    model = fit(task, recipe=TREES.changed(protocol="frozen"), runs=tmp_path)
    for protocol in ("frozen", "rolling"):
        told = [line for line in model.evaluate(protocol=protocol).warnings if "asked as of then" in line]
        statistics = model.members[0][0].statistics
        longest = max(statistics.longest_silence or 0, task.spec.horizon)
        then = task.under(protocol)
        seeds = then.seeds("test")
        late = int((seeds.time - longest > then.database.newest(seeds.time)).sum())
        assert bool(told) == bool(late) == (protocol == "frozen")
        assert not late or told[0].startswith(f"{late:,} of {len(seeds):,} seeds come more than")


def test_rows_at_both_ends_of_time_are_no_silence_of_negative_length() -> None:
    database = one_table({"x": [1, 2, 3]}, [-106_000, -105_000, 106_000])
    statistics = FeatureTable.fit(database, 106_000 * DAY).statistics
    assert statistics.longest_silence == 2**62
    spec = TaskSpec("held", "forecast", "binary_classification", "t", "label")
    view = View(database, FeatureTable.encode(database, statistics), spec, HELD)
    times = np.array([-106_100 * DAY, -106_000 * DAY, 0, 106_000 * DAY, 106_700 * DAY])
    assert (view.asked(Seeds(np.zeros(5, np.int64), times, None)).time <= times).all()


def test_statistics_from_before_know_of_no_silence() -> None:
    task = churn()
    features = FeatureTable.fit(task.database, task.splits.val)
    old = replace(features, statistics=replace(features.statistics, longest_silence=None))
    late = Seeds(task.seeds("val").node[:1], np.array([2**61]), None)
    view = View(task.database, old, task.spec, HELD)
    assert view.asked(late) is late
    content = {name: x for name, x in features.statistics.to_dict().items() if name != "longest_silence"}
    assert type(features.statistics).from_dict(content, features.statistics.arrays).longest_silence is None
    again = type(features.statistics).from_dict(features.statistics.to_dict(), features.statistics.arrays)
    assert again.longest_silence == features.statistics.longest_silence is not None
