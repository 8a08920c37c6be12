"""Tables that may lack their time are warned of, and keys are what other tables name."""

from __future__ import annotations

import pyarrow as pa
import pytest

import quartet
from quartet.errors import TimeError

DAYS = [f"2024-01-{day:02}" for day in range(1, 21)]


def test_a_time_that_was_refused_by_its_name_is_a_warning_with_its_line() -> None:
    packages = {"packages": pa.table({"package_id": list(range(20)), "first_upload": DAYS[::-1]})}
    (finding,) = [f for f in quartet.open(packages).findings if f.code == "D05"]
    assert "write tables: {packages: {time_col: first_upload}} in the schema file" in str(finding)
    for settled in ("first_upload", None):
        schema = {"tables": {"packages": {"time_col": settled}}}
        assert "D05" not in {f.code for f in quartet.open(packages, schema).findings}


def test_births_and_last_days_are_not_proposed() -> None:
    people = {"people": pa.table({"person_id": list(range(20)), "birth_date": DAYS, "final_day": DAYS})}
    assert "D05" not in {f.code for f in quartet.open(people).findings}


def test_the_key_is_what_tables_name_and_not_a_row_number() -> None:
    names = [f"p{i:02}x" for i in range(20)]
    people = pa.table({"ID": list(range(20)), "playerID": names})
    games = pa.table({"playerID": names * 2, "runs": list(range(40))})
    database = quartet.open({"People": people, "Batting": games, "Fielding": games})
    assert database.tables["People"].primary_key == ("playerID",)
    assert {(r.table, r.parent) for r in database.relations} == {
        ("Batting", "People"),
        ("Fielding", "People"),
    }


def test_a_long_id_is_a_key() -> None:
    ids = [f"api.{'part.' * 20}{i}" for i in range(20)]
    assert quartet.open({"features": pa.table({"feature_id": ids})}).tables["features"].primary_key == (
        "feature_id",
    )


def test_a_bad_time_is_dropped_and_counted_on_request() -> None:
    visits = {"visits": pa.table({"visit_id": list(range(20)), "visited_at": [*DAYS[:19], "soon"]})}
    schema = {"tables": {"visits": {"pkey": "visit_id", "time_col": "visited_at"}}}
    with pytest.raises(TimeError, match="on_bad_time: drop for visits"):
        quartet.open(visits, schema)
    schema["tables"]["visits"]["on_bad_time"] = "drop"
    database = quartet.open(visits, schema)
    assert database.tables["visits"].num_rows == 19
    assert 1 in {finding.count for finding in database.findings}
