"""The rows around a seed are those that are visible from it, whatever comes later and in whatever order rows stand."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quartet.causal import TimeRule, visible
from quartet.config import Recipe
from quartet.contexts import sample
from quartet.database import Database
from quartet.explain.rows import nearby
from quartet.features import FeatureTable
from quartet.graph import TemporalGraph
from quartet.tasks import Seeds, TaskSpec
from quartet.training import View
from tests.features.drawn import CHANGES, RULES, Change, NamedSeed, drawn_seeds, named_rows, with_features
from tests.strategies import Raw, examples, random_db


def found(raw: Raw, seeds: list[NamedSeed], rule: TimeRule, with_context: bool) -> list[Any]:
    """What is nearby of each seed, rows by their names."""
    database = Database.build(*raw)
    rows = named_rows(database)
    names = {row + database.offsets[name[0]]: name for name, row in rows.items()}
    told = []
    for name, time in seeds:
        spec = TaskSpec("nearby", "external", "binary_classification", name[0], "label")
        recipe = Recipe.load("small", time_rule=rule, local_budget=20, temporal_budget=10, collab_budget=5)
        view = View(database, FeatureTable.fit(database, time - 1), spec, recipe)
        node = rows[name] + database.offsets[name[0]]
        context = None
        if with_context:
            seed = Seeds(np.array([node]), np.array([time]), None)
            context = sample(TemporalGraph.build(database), seed, recipe.sampling)
        near = nearby(view, node, time, context)
        known = np.concatenate([table.known_at for table in database.tables.values()])
        assert visible(known[np.array(list(near.path), np.int64)], time, rule).all()
        told.append(
            (
                [(names[other], path) for other, path in near.path.items()],
                {path: [names[int(other)] for other in nodes] for path, nodes in near.whole.items()},
            )
        )
    return told


@pytest.mark.parametrize("with_context", [False, True])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("change", CHANGES)
@examples(15)
@given(random_db(), st.data(), st.integers(0, 2**32))
def test_no_other_future_and_no_other_order_changes_what_is_nearby(
    with_context: bool, rule: TimeRule, change: Change, raw: Raw, data: st.DataObject, rng_seed: int
) -> None:
    rng = random.Random(rng_seed)
    raw = with_features(raw, rng)
    time, seeds = drawn_seeds(Database.build(*raw), data, rule, rng)
    expected = found(raw, seeds[:3], rule, with_context)
    assert found(change(raw, time, rule, rng), seeds[:3], rule, with_context) == expected
