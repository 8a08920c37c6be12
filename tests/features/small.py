"""One small table, its features, and the cells of its columns after encoding; and a tour of riders and races.

teams (static)      riders             rides                                  laps
A   size 10         r1  A  day 0       1  day 1  r1  q1  place 1  sprint      ride 1  day 1  10 s
B   size 20         r2  A  day 0       2  day 1  r2  q1  place 2  sprint      ride 1  day 1  20 s
                    r3  B  day 5       3  day 3  r1  q2  place 3  tour        ride 3  day 4  60 s
races                                  4  day 3  r1  q3  place 5  sprint      ride 3  day 8  99 s
q1  day 1  100 km                      5  day 6  r1  q3  place -  tour
q2  day 3  200 km                      6  day 6  r3  q3  place 9  sprint
q3  day 6  300 km                                                             ride 4 is older than its race
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from quartet.database import FACTS, Database, ForeignKey, TableSchema, TimeColumn
from quartet.database.schema import Schema
from quartet.features import FeatureTable, TableFeatures
from quartet.times import DAY, NEVER
from tests.shop import day
from tests.strategies import Raw


def one_table(columns: Mapping[str, Any], days: list[int] | None = None, **facts: Any) -> Database:
    """A database with a table `t`; with `days`, its rows become known on these days after 1970."""
    data = pa.table(dict(columns))
    if days is not None:
        data = data.append_column("at", pa.array(np.array(days) * DAY, pa.timestamp("ns")))
        facts["time"] = TimeColumn("at")
    return Database.build({"t": data}, Schema({"t": TableSchema(settled=FACTS, **facts)}))


def fitted(columns: Mapping[str, Any], upto: int = NEVER, **facts: Any) -> FeatureTable:
    return FeatureTable.fit(one_table(columns, **facts), upto)


def features_of(columns: Mapping[str, Any], upto: int = NEVER, **facts: Any) -> TableFeatures:
    return fitted(columns, upto, **facts).tables["t"]


def grown(before: Mapping[str, Any], after: Mapping[str, Any], **facts: Any) -> FeatureTable:
    """The features of one table by what was learned of another."""
    statistics = FeatureTable.fit(one_table(before, **facts), NEVER).statistics
    return FeatureTable.encode(one_table(after, **facts), statistics)


def bags(features: TableFeatures, place: int = 0) -> list[list[int]]:
    """The codes of each row of a multi-category column."""
    column = features.multicategories[place]
    return [part.tolist() for part in np.split(column.code, column.start[1:-1])]


def same_bits(one: TableFeatures, other: TableFeatures) -> bool:
    """Whether two tables have the same layout and, row by row, the same bits; the places of texts may differ."""
    return one.layout == other.layout and row_bits(one) == row_bits(other)


def row_bits(features: TableFeatures) -> list[bytes]:
    """Everything that an encoder can see of each row, as bytes."""
    columns = [features.numbers, features.categories, features.calendar]
    columns += [v[features.texts[:, place]] for place, v in enumerate(features.vectors)]
    rows = [b"".join(column[row].tobytes() for column in columns) for row in range(features.num_rows)]
    for bag in features.multicategories:
        ends = bag.start
        rows = [bits + b"|" + bag.code[ends[row] : ends[row + 1]].tobytes() for row, bits in enumerate(rows)]
    return rows


# --- a tour ---------------------------------------------------------------------------------------


def _days(*numbers: int) -> pa.Array:
    return pa.array([day(number) for number in numbers], pa.timestamp("ns"))


def table_schema(
    key: str | None, time: str | None = None, kinds: dict[str, str] | None = None, **links: str
) -> TableSchema:
    return TableSchema(
        (key,) if key else (),
        tuple(ForeignKey((column,), table) for column, table in links.items()),
        TimeColumn(time) if time else None,
        settled=FACTS,
        kinds=kinds or {},
    )


def raw_tour() -> Raw:
    tables = {
        "teams": pa.table({"team": ["A", "B"], "size": [10.0, 20.0]}),
        "riders": pa.table({"rider": ["r1", "r2", "r3"], "team": ["A", "A", "B"], "joined": _days(0, 0, 5)}),
        "races": pa.table({"race": ["q1", "q2", "q3"], "on": _days(1, 3, 6), "km": [100.0, 200.0, 300.0]}),
        "rides": pa.table(
            {
                "ride": [1, 2, 3, 4, 5, 6],
                "on": _days(1, 1, 3, 3, 6, 6),
                "rider": ["r1", "r2", "r1", "r1", "r1", "r3"],
                "race": ["q1", "q1", "q2", "q3", "q3", "q3"],
                "place": [1.0, 2.0, 3.0, 5.0, None, 9.0],
                "type": ["sprint", "sprint", "tour", "sprint", "tour", "sprint"],
            }
        ),
        "laps": pa.table(
            {"ride": [1, 1, 3, 3], "on": _days(1, 1, 4, 8), "seconds": [10.0, 20.0, 60.0, 99.0]}
        ),
    }
    schema = {
        "teams": table_schema("team", kinds={"size": "number"}),
        "riders": table_schema("rider", "joined", team="teams"),
        "races": table_schema("race", "on", kinds={"km": "number"}),
        "rides": table_schema(
            "ride", "on", {"place": "number", "type": "category"}, rider="riders", race="races"
        ),
        "laps": table_schema(None, "on", {"seconds": "number"}, ride="rides"),
    }
    return tables, Schema(schema, name="tour")
