"""Candidates and pair columns over random databases: another future, or another order of rows, changes no bit."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from quartet.causal import TimeRule
from quartet.database import Database
from quartet.errors import TaskError
from quartet.recommend import PairColumns
from quartet.recommend.candidates import Moment
from quartet.recommend.events import Sources
from quartet.recommend.past import Past
from tests.contexts.named import World
from tests.strategies import (
    SECOND,
    Raw,
    examples,
    interesting_times,
    is_future,
    random_db,
    scrambled_future,
    shuffled,
    without_future,
)

_MOST_PAIRS = 60


def told(
    raw: Raw, tables: tuple[str, str], names: tuple[str, ...], time: int, rule: TimeRule
) -> dict[str, Any]:
    """All candidates of the sources that are known at a time, and the columns of some pairs, by names of rows."""
    database = Database.build(*raw)
    world, (source, item) = World(database), tables
    spec: Any = SimpleNamespace(entity_table=source, item_table=item, kind="forecast")
    past = Past.of(database, world.graph, spec, rule, names)
    known = [not is_future(int(at), time, rule) for at in past.sources.known_at]
    sources = Sources(np.flatnonzero(known), np.full(sum(known), time))
    moment = Moment(past, time, 3600 * SECOND)
    first, second = (
        [world.names[node] for node in places.nodes(np.arange(len(places)))]
        for places in (past.sources, past.items)
    )
    found: dict[str, Any] = {}
    for name, pool in moment.candidates(sources).items():
        rows = zip(sources.place[pool.source].tolist(), pool.item.tolist(), pool.score.tolist(), strict=True)
        found[name] = [(first[one], second[other], score) for one, other, score in rows]
    of, at = (each.ravel()[:_MOST_PAIRS] for each in np.meshgrid(np.arange(len(sources)), moment.items))
    columns = PairColumns(moment, None)
    found["pairs"] = [(first[sources.place[one]], second[other]) for one, other in zip(of, at, strict=True)]
    matrix = columns.matrix(sources, of, at)
    found |= {name: column.tobytes() for name, column in zip(columns.names(), matrix.T, strict=True)}
    return found


@examples(40)
@given(random_db(), st.data(), st.sampled_from(["<=", "<"]), st.integers(0, 2**32))
def test_no_future_and_no_order_changes_a_bit(
    raw: Raw, data: st.DataObject, rule: TimeRule, seed: int
) -> None:
    database = Database.build(*raw)
    keyed = [name for name, table in database.tables.items() if table.primary_key]
    assume(keyed)
    tables = data.draw(st.sampled_from(keyed)), data.draw(st.sampled_from(keyed))
    spec: Any = SimpleNamespace(entity_table=tables[0], item_table=tables[1], kind="forecast")
    try:
        paths = Past.of(database, World(database).graph, spec, rule).paths
    except TaskError:
        assume(False)
    names = tuple(path.name for path in paths[:4])
    time = data.draw(st.sampled_from(interesting_times(database)))
    expected, rng = told(raw, tables, names, time, rule), random.Random(seed)
    for change in (without_future, scrambled_future):
        assert told(change(raw, time, rule, rng), tables, names, time, rule) == expected
    assert told(shuffled(raw, rng), tables, names, time, rule) == expected
