"""A random query over a random database, compared with its definition and with other futures of the database."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import assume

from quartet.database import Database
from quartet.errors import QueryError
from quartet.tasks import TaskSpec, labels_at, read_query
from quartet.tasks.labels import _TimedTables
from tests.strategies import Raw, interesting_times, scrambled_future, without_future
from tests.tasks.query.oracle import Drawing, Oracle, text_of

_REFUSED = ("Q03", "Q05", "Q08")  # two ways over the same links; a target that is a time


def drawn(raw: Raw, rng: random.Random) -> tuple[Database, dict[str, Any], TaskSpec]:
    """Returns a database, a random query about it, and the task of its text; what is refused is drawn again."""
    database = Database.build(*raw)
    for _ in range(6):
        query = Drawing(database, rng).query()
        assume(query is not None)
        assert query is not None
        try:
            return database, query, read_query(text_of(query, database), database).spec
        except QueryError as error:
            if error.code not in _REFUSED:
                raise
    assume(False)
    raise AssertionError


def some_always_known(raw: Raw, rng: random.Random) -> Raw:
    """Returns the database with other words of its schema: rows without a time are known always, in some tables."""
    tables, schema = raw
    said = dict(schema.tables)
    for name, table in said.items():
        if table.time is not None and table.time.on_missing != "error" and rng.random() < 0.5:
            said[name] = replace(table, time=replace(table.time, on_missing="always_known"))
    return tables, replace(schema, tables=said)


def some_times(database: Database, rng: random.Random) -> list[int]:
    """Times that matter, of whole microseconds, as SQL adds intervals to them."""
    times = interesting_times(database)
    return sorted({(rng.choice(times) + rng.choice([0, 999])) // 1000 * 1000 for _ in range(3)})


def labels(spec: TaskSpec, database: Database, time: int) -> dict[Any, Any]:
    rows = labels_at(spec, database, np.array([time]), None)
    found = dict(zip(rows[spec.entity_col].to_pylist(), rows[spec.target_col].to_pylist(), strict=True))
    assert len(found) == rows.num_rows
    return found


def population(spec: TaskSpec, database: Database, time: int) -> set[Any]:
    rows = _TimedTables.of(database).query(replace(spec, sql=spec.population), np.array([time]), None)
    assert rows.column_names == [spec.time_col, spec.entity_col]
    found = set(rows[spec.entity_col].to_pylist())
    assert len(found) == rows.num_rows
    return found


def is_same(one: Any, other: Any) -> bool:
    if one is None or other is None or isinstance(one, str):
        return bool(one == other)
    return math.isclose(one, other, rel_tol=1e-9)


def against_the_definition(raw: Raw, seed: int) -> Counter[str]:
    """Compares the labels and the population of a query with the oracle's; returns how much was compared."""
    rng, counts = random.Random(seed), Counter[str](queries=1)
    database, query, spec = drawn(some_always_known(raw, rng), rng)
    oracle = Oracle(database)
    counts["with WHERE"] += query["where"] is not None
    counts[spec.type.replace("_", " ")] += 1
    for time in some_times(database, rng):
        expected, found = oracle.labels(query, time), labels(spec, database, time)
        assert set(found) == set(expected) == population(spec, database, time), spec.query
        wrong = {key: (found[key], y) for key, y in expected.items() if not is_same(found[key], y)}
        assert not wrong, spec.query
        counts["labels"] += len(expected)
        counts["labels that are neither 0 nor none"] += sum(bool(y) for y in expected.values())
        counts["not asked about"] += len(oracle.known[query["entity"]]) - len(expected)
    return counts


def against_other_futures(raw: Raw, seed: int) -> None:
    """Takes away and scrambles rows after t, which chooses nobody, and rows after the window, which label nobody."""
    rng = random.Random(seed)
    database, _, spec = drawn(raw, rng)
    for time in some_times(database, rng):
        for change in (without_future, scrambled_future):
            then = Database.build(*change(raw, time, "<=", rng))
            assert population(spec, then, time) == population(spec, database, time), spec.query
            later = Database.build(*change(raw, time + spec.horizon, "<=", rng))
            before, after = labels(spec, database, time), labels(spec, later, time)
            assert set(before) == set(after), spec.query
            wrong = {key: (y, after[key]) for key, y in before.items() if not is_same(y, after[key])}
            assert not wrong, spec.query
