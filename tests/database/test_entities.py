"""Tables made from distinct values: proposed, accepted by a line, known from their first row on, stable in time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import quartet
from quartet.database import Database, proposed_entities, schema_yaml
from quartet.errors import SchemaError

LINE = {"entities": {"households": "household_id"}}
DAYS = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 28)), min_size=2, max_size=20)


def sales(rows: list[tuple[int, int]]) -> dict[str, Any]:
    """A table of purchases (household, day of January)."""
    return {
        "purchases": pa.table(
            {
                "purchase_id": list(range(len(rows))),
                "household_id": [household for household, _ in rows],
                "created_at": pa.array([f"2024-01-{day:02}" for _, day in rows]),
            }
        )
    }


ROWS = [(7, 3), (7, 1), (9, 2), (7, 9), (9, 2), (8, 20)]


def known(database: Database) -> dict[int, int]:
    table = database.tables["households"]
    return dict(zip(table.data["household_id"].to_pylist(), table.known_at.tolist(), strict=True))


def test_it_is_proposed_and_a_line_accepts_it() -> None:
    (entity,) = proposed_entities(quartet.open(sales(ROWS)))
    assert (entity.name, entity.num_values, entity.line) == (
        "households",
        3,
        "entities: {households: household_id}",
    )
    database = quartet.open(sales(ROWS), LINE)
    assert database.tables["households"].data["household_id"].to_pylist() == [7, 9, 8]
    assert ("purchases", "households") in {(r.table, r.parent) for r in database.relations}
    assert proposed_entities(database) == []


def some_described(described: list[int]) -> Database:
    """Purchases of the households 7, 8 and 9, and a table of what is known of some households."""
    facts = pa.table({"household_id": described, "size": [1] * len(described)})
    return quartet.open({**sales(ROWS), "demographics": facts})


def test_it_is_proposed_beside_a_table_that_has_few_of_its_values_as_its_key() -> None:
    (entity,) = proposed_entities(some_described([9, 40]))
    assert (entity.line, entity.num_values) == ("entities: {households: household_id}", 4)
    database = some_described([9, 40]).with_entities({entity.name: entity.columns})
    links = {(r.table, r.parent) for r in database.relations}
    assert {("purchases", "households"), ("demographics", "households")} <= links


def test_it_is_not_proposed_beside_a_table_that_has_most_of_its_values_as_its_key() -> None:
    assert proposed_entities(some_described([7, 9, 40])) == []
    assert proposed_entities(some_described([7, 8, 9])) == []


def test_a_written_schema_makes_it_again(tmp_path: Path) -> None:
    database, path = quartet.open(sales(ROWS), LINE), tmp_path / "schema.yaml"
    path.write_text(schema_yaml(database))
    again = quartet.open(sales(ROWS), path)
    assert known(again) == known(database)
    assert again.relations[0].foreign_key.columns == database.relations[0].foreign_key.columns


def test_an_unknown_column_is_refused() -> None:
    with pytest.raises(SchemaError, match=r"S09.*household_id"):
        quartet.open(sales(ROWS), {"entities": {"households": "houshold_id"}})


@settings(max_examples=40, deadline=None)
@given(DAYS, DAYS)
def test_later_rows_change_nothing_before(rows: list[tuple[int, int]], later: list[tuple[int, int]]) -> None:
    """Values known by a day, their order and times are the same whatever happens after it."""
    line = {**LINE, "tables": {"purchases": {"pkey": "purchase_id", "time_col": "created_at"}}}
    cut = max(day for _, day in rows)
    grown = rows + [(household, day) for household, day in later if day > cut]
    before, after = known(quartet.open(sales(rows), line)), known(quartet.open(sales(grown), line))
    assert list(after.items())[: len(before)] == list(before.items())
    assert set(before) == {household for household, _ in rows}
