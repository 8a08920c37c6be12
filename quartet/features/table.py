"""FeatureTable: the cells of a whole database as numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from quartet.database import Database, Table
from quartet.errors import SchemaError, did_you_mean, examples
from quartet.features.arrays import CALENDAR, Bags, TableFeatures, TableLayout
from quartet.features.cells import FAMILIES, MOST_LETTERS, Cells, cells_of, family_of
from quartet.features.columns import MOST_DEVIATIONS, Column, Encoded, TextColumn
from quartet.features.kinds import feature_columns
from quartet.features.statistics import FeatureStatistics, TableStatistics
from quartet.findings import Finding, note, warning
from quartet.machine import give_back, is_large, mapped, set_aside, usable_cores

_FEW_ROWS = 10_000  # beginning a thread takes longer


@dataclass(frozen=True, eq=False)
class FeatureTable:
    """The features of every row of a database, tables in its order, and what was left out or repaired."""

    tables: Mapping[str, TableFeatures]
    statistics: FeatureStatistics
    findings: tuple[Finding, ...] = ()

    @staticmethod
    def fit(
        database: Database, cutoff: int, use_row_names: bool = True, text_model: str = "hash"
    ) -> FeatureTable:
        """Learns from the rows known at a time, and encodes all rows with that.

        `text_model` says how texts become vectors: by hashed words, or by a sentence model ("sentence").
        """
        return FeatureTable.encode(
            database, FeatureStatistics.fit(database, cutoff, use_row_names, text_model)
        )

    @staticmethod
    def encode(
        database: Database,
        statistics: FeatureStatistics,
        before: tuple[Database, FeatureTable] | None = None,
    ) -> FeatureTable:
        """Encodes all rows of a database, which may have grown, with what was learned before.

        `before` is a database from which this one has grown, with its features by the same statistics: the rows that
        were there are not encoded again, and the findings tell of the others alone.
        """
        for name in statistics.tables:
            if name not in database.tables:
                raise SchemaError(
                    "V04",
                    f'table "{name}" was used in training and is absent'
                    + did_you_mean(name, database.tables),
                    "give the table, or train anew without it",
                )
        for name in database.tables:
            if name not in statistics.tables:
                raise SchemaError(
                    "V05",
                    f'table "{name}" was not there in training, and the model cannot read its rows',
                    "leave the table out, or train anew with it",
                )
        findings = list(statistics.findings)
        tables = {}
        for name, table in database.tables.items():
            own, old = statistics.tables[name], before[0].tables.get(name) if before else None
            if before is not None and old is not None and _has_grown_from(table, old):
                tables[name] = _grown(table, own, old.num_rows, before[1].tables[name], findings)
            else:
                tables[name] = _encode_table(table, own, findings)
        give_back()
        return FeatureTable(tables, statistics, tuple(findings))

    def waiting(self, longest: int) -> FeatureTable:
        """Returns the features with how long after the newest row that it may see any training seed comes, at most."""
        return replace(self, statistics=replace(self.statistics, longest_wait=longest))

    @property
    def layouts(self) -> tuple[TableLayout, ...]:
        return tuple(table.layout for table in self.tables.values())


def _encode_table(table: Table, statistics: TableStatistics, findings: list[Finding]) -> TableFeatures:
    known = {*statistics.columns, *statistics.unused}
    new = [name for name in feature_columns(table) if name not in known]
    if new:
        were, are = ("1 column was", "is") if len(new) == 1 else (f"{len(new):,} columns were", "are")
        text = f'table "{table.name}": {were} not there in training and {are} not used {examples(new)}'
        findings.append(note("V05", table.name, text, len(new)))
    encoded: dict[str, Any] = {}

    def encode(name: str) -> tuple[Any, list[Finding]]:
        cells = _column_cells(table, name, statistics.columns[name])
        result = statistics.columns[name].encode(cells)
        return result.values, _repairs(f"{table.name}.{name}", cells, result)

    is_alone = table.num_rows < _FEW_ROWS or is_large(8 * table.num_rows)  # threads hold several in memory
    threads = 1 if is_alone else usable_cores()
    for name, (values, repairs) in zip(
        statistics.columns, mapped(encode, statistics.columns, threads), strict=True
    ):
        encoded[name] = values
        findings += repairs

    def beside(columns: Sequence[Any], dtype: type, *shape: int) -> Any:
        together: Any = np.empty((table.num_rows, len(columns), *shape), dtype=dtype)
        for place, column in enumerate(columns):
            together[:, place] = column
        return set_aside(together)

    def of(names: Sequence[str]) -> list[Any]:
        return [encoded[name] for name in names]

    layout = statistics.layout
    return TableFeatures(
        layout,
        numbers=beside(of(layout.numbers), np.float32),
        categories=beside(of(layout.categories), np.int32),
        multicategories=tuple(of(layout.multicategories)),
        calendar=beside(of(layout.times), np.int16, len(CALENDAR)),
        texts=beside([places for places, _ in of(layout.texts)], np.int32),
        vectors=tuple(vectors for _, vectors in of(layout.texts)),
    )


def _has_grown_from(table: Table, old: Table) -> bool:
    """Returns whether the first rows of a table are those of another one."""
    is_first = table.num_rows >= old.num_rows and table.data.schema.equals(old.data.schema)
    return is_first and (table.data is old.data or table.data.slice(0, old.num_rows).equals(old.data))


def _grown(
    table: Table, statistics: TableStatistics, first: int, before: TableFeatures, findings: list[Finding]
) -> TableFeatures:
    """Returns the features of a table whose rows before the `first` new one have theirs already."""
    if table.num_rows == first:
        return before
    new = replace(table, data=table.data.slice(first), known_at=table.known_at[first:], written={})
    part = _encode_table(new, statistics, findings)
    texts, vectors = part.texts, []
    places = np.concatenate([before.texts, texts])
    for place, name in enumerate(before.layout.texts):
        column = statistics.columns[name]
        assert isinstance(column, TextColumn)
        cells = _column_cells(table, name, column)
        places[:, place], known = column.encode(cells, before.vectors[place]).values
        vectors.append(known)
    return TableFeatures(
        before.layout,
        numbers=np.concatenate([before.numbers, part.numbers]),
        categories=np.concatenate([before.categories, part.categories]),
        multicategories=tuple(
            Bags(np.concatenate([a.start, a.start[-1] + b.start[1:]]), np.concatenate([a.code, b.code]))
            for a, b in zip(before.multicategories, part.multicategories, strict=True)
        ),
        calendar=np.concatenate([before.calendar, part.calendar]),
        texts=places,
        vectors=tuple(vectors),
    )


def _column_cells(table: Table, name: str, column: Column) -> Cells:
    """Returns the cells of a column that was used in training; it must be there and of the same family."""
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
        return cells_of(pa.chunked_array([pa.nulls(len(data), FAMILIES[column.family].type)]))
    if family != column.family:
        before, now = FAMILIES[column.family].words, FAMILIES[family].words
        what = f"{table.name}.{name} held {before} in training and holds {now} now"
        raise SchemaError("V06", what, "cast the column, or train anew")
    return cells_of(data)


def _repairs(where: str, cells: Cells, encoded: Encoded) -> list[Finding]:
    """Returns a warning for each thing that was done to the cells of a column, with the number of cells."""
    rows = f"of {len(cells):,} rows"
    limit = f"{MOST_DEVIATIONS:.0f} standard deviations from the mean"
    unseen = f"values are not in the vocabulary and count as unseen {examples(encoded.unseen)}"
    repairs = [
        ("V02", cells.num_infinite, f"{rows} are infinite and count as absent"),
        ("V03", encoded.num_unseen, unseen),
        ("V07", cells.num_cut, f"{rows} hold more than {MOST_LETTERS:,} letters and are cut there"),
        ("V11", encoded.num_clipped, f"{rows} lie more than {limit} and are set to that"),
    ]
    return [
        warning(code, where, f"{where}: {count:,} {what}", count) for code, count, what in repairs if count
    ]
