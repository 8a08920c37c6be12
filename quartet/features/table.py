"""FeatureTable: the cells of a whole database as numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from quartet.database import Database, Table
from quartet.errors import SchemaError, did_you_mean, examples
from quartet.features.arrays import CALENDAR, TableFeatures, TableLayout
from quartet.features.cells import MOST_LETTERS, Cells, Family, cells_of, family_of
from quartet.features.columns import MOST_DEVIATIONS, Column, Encoded
from quartet.features.fit import FeatureStatistics, TableStatistics
from quartet.features.kinds import FAMILY_NAMES, feature_columns
from quartet.features.text import Embedder
from quartet.findings import Finding, note, warning

_TYPES: dict[Family, pa.DataType] = {
    "number": pa.float64(),
    "truth": pa.bool_(),
    "time": pa.timestamp("ns"),
    "text": pa.string(),
    "number list": pa.list_(pa.int64()),
    "text list": pa.list_(pa.string()),
}


@dataclass(frozen=True, eq=False)
class FeatureTable:
    """The features of every row of a database, tables in its order, and what was left out or repaired."""

    tables: Mapping[str, TableFeatures]
    statistics: FeatureStatistics
    findings: tuple[Finding, ...] = ()

    @staticmethod
    def fit(
        database: Database, upto: int, embedder: Embedder | None = None, names: bool = True
    ) -> FeatureTable:
        """Learns from the rows known at a time, and encodes all rows with that."""
        statistics = FeatureStatistics.fit(database, upto, embedder, names)
        return FeatureTable.encode(database, statistics)

    @staticmethod
    def encode(database: Database, statistics: FeatureStatistics) -> FeatureTable:
        """Encodes all rows of a database, which may have grown, with what was learned before."""
        _check_tables(database, statistics)
        found = list(statistics.findings)
        tables = {
            name: _encode_table(table, statistics.tables[name], found)
            for name, table in database.tables.items()
        }
        return FeatureTable(tables, statistics, tuple(found))

    @property
    def layouts(self) -> tuple[TableLayout, ...]:
        return tuple(table.layout for table in self.tables.values())


def _check_tables(database: Database, statistics: FeatureStatistics) -> None:
    for name in statistics.tables:
        if name not in database.tables:
            raise SchemaError(
                "V04",
                f'table "{name}" was used in training and is absent' + did_you_mean(name, database.tables),
                "give the table, or train anew without it",
            )
    for name in database.tables:
        if name not in statistics.tables:
            raise SchemaError(
                "V05",
                f'table "{name}" was not there in training, and the model cannot read its rows',
                "leave the table out, or train anew with it",
            )


def _encode_table(table: Table, statistics: TableStatistics, found: list[Finding]) -> TableFeatures:
    found += _new_columns(table, statistics)
    encoded: dict[str, Any] = {}
    for name, column in statistics.columns.items():
        cells = _column_cells(table, name, column)
        done = column.encode(cells)
        encoded[name] = done.values
        found += _repairs(f"{table.name}.{name}", cells, done)
    return _features(statistics.layout, encoded, table.num_rows)


def _features(layout: TableLayout, encoded: Mapping[str, Any], num_rows: int) -> TableFeatures:
    def beside(names: Sequence[str], columns: Sequence[Any], dtype: type, *shape: int) -> Any:
        together: Any = np.empty((num_rows, len(names), *shape), dtype=dtype)
        for place, column in enumerate(columns):
            together[:, place] = column
        return together

    def of(names: Sequence[str]) -> list[Any]:
        return [encoded[name] for name in names]

    texts = of(layout.texts)
    return TableFeatures(
        layout,
        numbers=beside(layout.numbers, of(layout.numbers), np.float32),
        categories=beside(layout.categories, of(layout.categories), np.int32),
        multicategories=tuple(of(layout.multicategories)),
        calendar=beside(layout.times, of(layout.times), np.int16, len(CALENDAR)),
        texts=beside(layout.texts, [places for places, _ in texts], np.int32),
        vectors=tuple(vectors for _, vectors in texts),
    )


def _column_cells(table: Table, name: str, column: Column) -> Cells:
    if name not in table.data.column_names:
        raise SchemaError(
            "V04",
            f'table "{table.name}": column "{name}" was used in training and is absent'
            + did_you_mean(name, table.data.column_names),
            "give the column, or train anew without it",
        )
    data = table.data[name]
    family = family_of(data.type)
    if family == "nothing":  # a file without a single value does not say of which type they would be
        return cells_of(pa.chunked_array([pa.nulls(len(data), _TYPES[column.family])]))
    if family != column.family:
        raise SchemaError(
            "V06",
            f"{table.name}.{name} held {FAMILY_NAMES[column.family]} in training and holds "
            f"{FAMILY_NAMES[family]} now",
            "cast the column, or train anew",
        )
    return cells_of(data)


def _new_columns(table: Table, statistics: TableStatistics) -> list[Finding]:
    known = {*statistics.columns, *statistics.unused}
    names = [name for name in feature_columns(table) if name not in known]
    if not names:
        return []
    was, is_ = ("1 column was", "is") if len(names) == 1 else (f"{len(names):,} columns were", "are")
    text = f'table "{table.name}": {was} not there in training and {is_} not used {examples(names)}'
    return [note("V05", table.name, text, len(names))]


def _repairs(where: str, cells: Cells, done: Encoded) -> list[Finding]:
    """What was done to the cells of a column, counted."""
    of_rows = f"of {len(cells):,} rows"
    limit = f"{MOST_DEVIATIONS:.0f} standard deviations from the mean"
    said = [
        ("V02", cells.num_infinite, f"{of_rows} are infinite and count as absent"),
        (
            "V03",
            done.num_unseen,
            f"values are not in the vocabulary and count as unseen {examples(done.unseen)}",
        ),
        ("V07", cells.num_cut, f"{of_rows} hold more than {MOST_LETTERS:,} letters and are cut there"),
        ("V11", done.num_clipped, f"{of_rows} lie more than {limit} and are set to that"),
    ]
    return [warning(code, where, f"{where}: {count:,} {text}", count) for code, count, text in said if count]
