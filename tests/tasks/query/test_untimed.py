"""A window of rows without a time is refused with the line of the schema file that settles it, word for word."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
import yaml

import quartet
from quartet.database import Database
from quartet.errors import QueryError

QUERY = "PREDICT COUNT(batting.*, 0, 12, months) > 0 FOR EACH players.player_id"


def seasons(
    schema: dict[str, Any] | None = None, names: tuple[str, ...] = ("batting", "pitching")
) -> Database:
    """Rows of players, dated by nothing but a year."""
    years = [1990 + i % 30 for i in range(90)]
    tables = {name: pa.table({"player_id": [i % 9 for i in range(90)], "yearID": years}) for name in names}
    return quartet.open({"players": pa.table({"player_id": range(9)}), **tables}, schema)


@pytest.mark.parametrize(
    ("names", "line"), [(("batting",), "tables: {batting: "), (("batting", "pitching"), "times: {yearID: ")]
)
def test_the_line_that_is_advised_settles_it(names: tuple[str, ...], line: str) -> None:
    with pytest.raises(QueryError) as error:
        seasons(names=names).query(QUERY)
    assert error.value.code == "Q07"
    advised = error.value.fix[error.value.fix.index(line) :]
    assert seasons(yaml.safe_load(advised), names).query(QUERY).spec.horizon


def test_inspect_advises_one_line_for_many_tables() -> None:
    (finding,) = {f.fix for f in seasons().findings if f.code == "D05"}
    assert "write times: {yearID: " in finding
