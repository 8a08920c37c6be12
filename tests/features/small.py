"""One small table, its features, and the cells of its columns after encoding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from quartet.database import FACTS, Database, TableSchema, TimeColumn
from quartet.database.schema import Schema
from quartet.features import FeatureTable, TableFeatures
from quartet.times import NEVER

DAY = 86_400 * 10**9


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
