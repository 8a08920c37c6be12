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
from quartet.features import FeatureTable, unit_of
from quartet.runs import fit
from quartet.tasks import KNOWN_LABELS, Seeds, TaskSpec
from quartet.times import STATIC
from quartet.training import TrainingData, View, wait_limit
from tests.features.drawn import CHANGES, RULES, Change, NamedSeed, drawn_seeds, named_rows
from tests.features.small import one_table
from tests.shop import DAY
from tests.strategies import Raw, examples, interesting_times, is_future, random_db
from tests.trained import TREES, churn

HELD = Recipe.load("small", model="lightgbm")
YEAR = 365 * DAY


def newest_by_hand(database: Database, time: int, rule: TimeRule, but_of: str) -> int:
    tables = [table for name, table in database.tables.items() if table.is_timed and name != but_of]
    times = [int(known) for table in tables for known in table.known_at]
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
        for but_of in ("", next(iter(database.tables))):
            expected = [newest_by_hand(database, time, rule, but_of) for time in asked]
            assert database.newest(np.array(asked, np.int64), rule, but_of).tolist() == expected


def asked_times(
    raw: Raw, horizon: int, longest: int, cutoff: int, seeds: list[NamedSeed], rule: TimeRule
) -> list[int]:
    database, found = Database.build(*raw), []
    rows, features = named_rows(database), FeatureTable.fit(database, cutoff).waiting(longest)
    for name, time in seeds:
        spec = TaskSpec("held", "forecast", "binary_classification", name[0], "label", horizon=horizon)
        view = View(database, features, spec, HELD.changed(time_rule=rule))
        node = np.array([rows[name] + database.offsets[name[0]]])
        asked = view.asked(Seeds(node, np.array([time]), None))
        again = view.asked(asked)
        assert asked.time == again.time  # who has been held is where he is
        assert database[name[0]].known_at[rows[name]] <= asked.time <= time
        found.append(int(asked.time[0]))
    return found


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("change", CHANGES)
@examples(20)
@given(random_db(), st.data(), st.integers(0, 2**32))
def test_no_other_future_decides_when_a_seed_is_asked(
    change: Change, rule: TimeRule, raw: Raw, data: st.DataObject, rng_seed: int
) -> None:
    database, rng = Database.build(*raw), random.Random(rng_seed)
    time, seeds = drawn_seeds(database, data, rule, rng)
    horizon, longest = rng.choice([0, 1, 60 * DAY]), rng.choice([0, 5, DAY])
    told = (horizon, longest, time - (rule == "<"), seeds, rule)
    assert asked_times(raw, *told) == asked_times(change(raw, time, rule, rng), *told)


def test_a_seed_years_later_is_asked_where_the_data_end(tmp_path: Path) -> None:
    """And one in a silence as long as there has been is not moved, whatever the recipe says of late ones."""
    task = churn()
    model = fit(task, recipe=TREES, runs=tmp_path)
    checkpoint = model.members[0][0]
    statistics, database = checkpoint.statistics, task.database
    silence = wait_limit(task.spec, statistics.longest_wait)
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
        longest = wait_limit(task.spec, model.members[0][0].statistics.longest_wait)
        then = task.under(protocol)
        seeds = then.seeds("test")
        late = int((seeds.time - longest > then.database.newest(seeds.time, "<=", KNOWN_LABELS)).sum())
        assert bool(told) == bool(late) == (protocol == "frozen")
        assert not late or told[0].startswith(f"{late:,} of {len(seeds):,} seeds come more than")


@pytest.mark.parametrize("longest", [0, DAY, 2**62])
@pytest.mark.parametrize("rule", RULES)
def test_times_at_both_ends_are_asked_no_later(rule: TimeRule, longest: int) -> None:
    database = one_table({"x": [1, 2, 3]}, [-106_000, -105_000, 106_000])
    spec = TaskSpec("held", "forecast", "binary_classification", "t", "label")
    features = FeatureTable.fit(database, 106_000 * DAY).waiting(longest)
    times = np.array([-106_000 * DAY, 0, 106_000 * DAY, 106_700 * DAY])
    view = View(database, features, spec, HELD.changed(time_rule=rule))
    found = view.asked(Seeds(np.zeros(4, np.int64), times, None)).time
    assert ((found >= -106_000 * DAY) & (found <= times)).all()


@pytest.mark.parametrize("rule", RULES)
def test_a_row_after_a_long_silence_is_asked_at_its_own_time(rule: TimeRule) -> None:
    """It is known then under either rule; for an older one the data have ended."""
    database = one_table({"x": range(7)}, [0, 1, 2, 3, 4, 5, 25])
    spec = TaskSpec("held", "autocomplete", "binary_classification", "t", "label")
    view = View(
        database, FeatureTable.fit(database, 5 * DAY).waiting(DAY), spec, HELD.changed(time_rule=rule)
    )
    asked = view.asked(Seeds(np.array([6, 0]), np.array([25 * DAY, 25 * DAY]), None)).time
    assert asked.tolist() == [25 * DAY, 25 * DAY if rule == "<=" else 6 * DAY]


def test_no_seed_of_training_is_held(tmp_path: Path) -> None:
    """However long it came after the newest row: what is longer is known from these alone."""
    task = churn(num_eval_timestamps=6)
    data = TrainingData.prepare(task, HELD.changed(protocol="rolling"), tmp_path)
    assert data.seeds["train"].time.tolist() == task.seeds("train").time.tolist()
    newest = task.database.newest(data.seeds["train"].time)  # without past labels
    assert data.features.statistics.longest_wait == (data.seeds["train"].time - newest).max()


def test_models_from_before_hold_no_seed_and_have_the_windows_of_then() -> None:
    task = churn()
    features = FeatureTable.fit(task.database, task.splits.val)
    content = features.statistics.to_dict()
    again = type(features.statistics).from_dict(content, features.statistics.arrays)
    assert again.rhythm == features.statistics.rhythm is not None
    old = {name: value for name, value in content.items() if name not in ("rhythm", "longest_wait")}
    statistics = type(features.statistics).from_dict(old, features.statistics.arrays)
    late = Seeds(task.seeds("val").node[:1], np.array([2**61]), None)
    assert View(task.database, replace(features, statistics=statistics), task.spec, HELD).asked(late) is late
    assert unit_of(task.database, statistics) == max(DAY, features.statistics.rhythm.span // 100 // DAY * DAY)  # type: ignore[union-attr]
