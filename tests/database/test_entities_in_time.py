"""Tables made from distinct values hold still: no future changes them, in any database, and a run makes them again."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import quartet
from quartet.causal import TimeRule
from quartet.database import Database
from quartet.errors import SchemaError, UsageError
from quartet.tasks import Task, TaskRecord, write_relbench
from quartet.times import NEVER, STATIC, parse_instant
from tests.strategies import (
    Raw,
    examples,
    interesting_times,
    random_db,
    scrambled_future,
    shuffled,
    without_future,
)

COLUMN = "note"  # of every random table, with empty and missing cells


def made(raw: Raw) -> Database:
    tables, schema = raw
    return Database.build(tables, replace(schema, entities={"notes": (COLUMN,)}))


def known(database: Database) -> list[tuple[str, int]]:
    table = database["notes"]
    return list(zip(table.data[COLUMN].to_pylist(), table.known_at.tolist(), strict=True))


@examples(100)
@given(random_db())
def test_a_value_is_known_when_the_first_row_that_names_it_is(raw: Raw) -> None:
    database, first = made(raw), dict[str, int]()
    for name in raw[0]:
        table = database[name]
        for value, time in zip(table.data[COLUMN].to_pylist(), table.known_at.tolist(), strict=True):
            if value:
                first[value] = min(first.get(value, NEVER), time)
    assert known(database) == sorted(first.items(), key=lambda item: (item[1], item[0].encode()))


@examples(100)
@given(random_db(), st.sampled_from(["<=", "<"]), st.integers(0, 2**32), st.data())
def test_no_future_changes_which_values_there_are(
    raw: Raw, rule: TimeRule, number: int, data: st.DataObject
) -> None:
    database, rng = made(raw), random.Random(number)
    time = data.draw(st.sampled_from(interesting_times(database)))
    before = known(database.upto(time, rule))
    for other in (without_future, scrambled_future):
        assert known(made(other(raw, time, rule, rng)).upto(time, rule)) == before
    assert known(made(shuffled(raw, rng))) == known(database)


def day(number: int) -> int:
    return parse_instant(f"2024-01-{number:02}", "test")


TABLES = {
    "visits": pa.table({"visit_id": range(4), "person_id": ["a", "b", "b", "c"],
                        "visited_at": ["2024-01-05", "2024-01-02", "2024-01-01", "2024-01-09"]}),
    "calls": pa.table({"call_id": range(3), "person_id": ["b", "d", ""],
                       "called_at": ["2024-01-03", "2024-01-04", "2024-01-04"]}),
    "members": pa.table({"member_no": range(2), "person_id": ["c", None]}),
}  # fmt: skip
SCHEMA = {
    "entities": {"persons": "person_id"},
    "tables": {
        "visits": {"pkey": "visit_id", "time_col": "visited_at"},
        "calls": {"pkey": "call_id", "time_col": "called_at"},
        "members": {"pkey": "member_no", "time_col": None},
    },
}


def times(database: Database) -> dict[str, int]:
    table = database["persons"]
    return dict(zip(table.data["person_id"].to_pylist(), table.known_at.tolist(), strict=True))


def test_what_an_undated_row_names_was_always_known(tmp_path: Path) -> None:
    database = quartet.open(TABLES, SCHEMA)
    assert times(database) == {"c": STATIC, "b": day(1), "d": day(4), "a": day(5)}
    assert database.span == (day(1), day(9))
    write_relbench(database, tmp_path / "folder")
    again = quartet.open(tmp_path / "folder")
    assert np.array_equal(again["persons"].known_at, database["persons"].known_at)
    links = {(r.table, r.parent, r.num_links) for r in again.relations}
    assert links == {("visits", "persons", 4), ("calls", "persons", 2), ("members", "persons", 1)}


def test_a_hidden_column_makes_no_row_known() -> None:
    """Rows keep their places, because seeds are numbers of rows; what only the hidden column names never exists."""
    shown = quartet.open(TABLES, SCHEMA).without([("calls", "person_id")])
    assert times(shown) == {"c": STATIC, "b": day(1), "d": NEVER, "a": day(5)}
    assert {r.label for r in shown.relations} == {"visits.person_id", "members.person_id"}


def test_columns_of_two_types_make_no_table() -> None:
    tables = {**TABLES, "codes": pa.table({"person_id": [1, 2]})}
    with pytest.raises(SchemaError, match="S08"):
        quartet.open(tables, SCHEMA)


def test_a_task_may_name_a_proposed_table_by_its_column() -> None:
    weeks = [f"2024-{month:02}-{d:02}" for month in range(1, 7) for d in range(1, 28, 3)]
    visits = pa.table({"visit_id": range(len(weeks)), "person_id": [i % 7 for i in range(len(weeks))],
                       "visited_at": weeks})  # fmt: skip
    sql = "SELECT t.timestamp, p.person_id, 1 AS y FROM timestamps t, people p"
    words = {"name": "back", "task_type": "regression", "entity_col": "person_id", "target_col": "y",
             "time_col": "timestamp", "timedelta": "10 days", "sql": sql}  # fmt: skip
    task = quartet.open({"visits": visits}).task(entity_table="person_id", **words)
    assert isinstance(task, Task)
    assert (task.spec.entity_table, task.full_database["people"].num_rows) == ("people", 7)
    (finding,) = [f for f in task.full_database.findings if f.code == "S22"]
    assert (finding.count, "entities: {people: person_id}" in finding.fix) == (7, True)
    more = pa.table({"visit_id": [900], "person_id": [77], "visited_at": ["2024-07-01"]})
    grown = TaskRecord.of(task).with_entities(quartet.open({"visits": pa.concat_tables([visits, more])}))
    assert grown["people"].data["person_id"].to_pylist()[-1] == 77
    with pytest.raises(UsageError, match=r"S09.*people"):
        quartet.open({"visits": visits}).with_entity("person_idd")
