"""The columns of a seed without some rows are those of a database in which these rows are never known, to the bit."""

from __future__ import annotations

import random
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from quartet.causal import TimeRule
from quartet.database import Database
from quartet.features import FeatureTable, RelationalColumns, aggregates, columns_without, is_about_others
from quartet.tasks import Seeds
from quartet.times import NEVER
from tests.features.drawn import RULES, drawn_seeds, named_rows, with_features
from tests.strategies import Raw, examples, random_db


def never_known(database: Database, nodes: np.ndarray) -> Database:
    """The twin: rows stay where they are, and nobody ever sees them."""
    tables = {}
    for name, table in database.tables.items():
        known_at = table.known_at.copy()
        own = nodes - database.offsets[name]
        known_at[own[(own >= 0) & (own < len(known_at))]] = NEVER
        tables[name] = replace(table, known_at=known_at)
    return replace(database, tables=tables)


@pytest.mark.parametrize("rule", RULES)
@examples(60)
@given(random_db(), st.data(), st.integers(0, 2**32))
def test_columns_without_rows_are_those_of_a_database_without_them(
    rule: TimeRule, raw: Raw, data: st.DataObject, rng_seed: int
) -> None:
    rng = random.Random(rng_seed)
    database = Database.build(*with_features(raw, rng))
    time, seeds = drawn_seeds(database, data, rule, rng)
    assume(seeds)
    (name, at), table = seeds[0], seeds[0][0][0]
    features = FeatureTable.fit(database, time if rule == "<=" else time - 1)
    few = patch.object(aggregates, "MOST_SUMMARIES", rng.choice([40, 1000]))  # of 40, cells are told in brief
    with few:
        columns = RelationalColumns.of(database, table, features, rule)
    node = named_rows(database)[name] + database.offsets[table]
    others = [other for other in range(database.num_rows) if other != node]
    gone = [np.array(rng.sample(others, rng.randrange(min(len(others), 4) + 1)), np.int64) for _ in range(8)]
    gone.append(np.array(others, np.int64))
    found = columns_without(columns, database, node, at, gone)
    own = [place for place, column in enumerate(columns.names) if not is_about_others(column)]
    for variant, nodes in enumerate(gone):
        with few:
            twin = RelationalColumns.of(never_known(database, nodes), table, features, rule)
        if twin.names != columns.names:
            assume(len(nodes) > 4)  # which columns there are is decided by the rows at the cut-off
            continue
        expected = twin.matrix(Seeds(np.array([node]), np.array([at]), None))[0]
        assert np.array_equal(found[variant, own], expected[own], equal_nan=True), nodes
