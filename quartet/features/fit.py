"""FeatureStatistics: what is learned of a database up to a cut-off, and is kept with the model.

Everything is plain values (`to_dict`), but for the arrays that embedders of text learn (`arrays`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from quartet.database import Database, Table
from quartet.features.arrays import Kind, TableLayout
from quartet.features.cells import visible_cells
from quartet.features.columns import (
    CategoryColumn,
    Column,
    DateColumn,
    MulticategoryColumn,
    NumberColumn,
    TextColumn,
    fit_column,
)
from quartet.features.kinds import feature_columns, kind_findings, kinds_of
from quartet.features.text import Arrays, Embedder, HashingEmbedder, embedder_named
from quartet.findings import Finding


@dataclass(frozen=True)
class TableStatistics:
    """The columns of a table that are features, and those that were there and are not."""

    name: str
    columns: Mapping[str, Column]
    unused: tuple[str, ...] = ()

    def of(self, kind: Kind) -> dict[str, Any]:
        """The columns of one kind."""
        return {name: column for name, column in self.columns.items() if column.kind == kind}

    @property
    def layout(self) -> TableLayout:
        def sizes(kind: Kind) -> tuple[int, ...]:
            return tuple(column.size for column in self.of(kind).values())

        return TableLayout(
            self.name,
            numbers=tuple(self.of("number")),
            categories=tuple(self.of("category")),
            category_sizes=sizes("category"),
            multicategories=tuple(self.of("multicategory")),
            multicategory_sizes=sizes("multicategory"),
            times=tuple(self.of("time")),
            texts=tuple(self.of("text")),
            text_sizes=sizes("text"),
        )


@dataclass(frozen=True)
class FeatureStatistics:
    """What was learned of each table from the rows known at `upto`, and which columns were left out."""

    upto: int
    tables: Mapping[str, TableStatistics]
    findings: tuple[Finding, ...] = ()

    @staticmethod
    def fit(
        database: Database, upto: int, embedder: Embedder | None = None, names: bool = True
    ) -> FeatureStatistics:
        """Learns from the rows that are known at a time; no other row can change anything of it.

        Without `names`, columns that only name their rows are no features.
        """
        found: list[Finding] = []
        tables = {
            name: _fit_table(table, upto, embedder or HashingEmbedder(), names, found)
            for name, table in database.tables.items()
        }
        return FeatureStatistics(upto, tables, tuple(found))

    def to_dict(self) -> dict[str, Any]:
        """All but the arrays, as values that JSON can hold."""
        return {"upto": self.upto, "tables": [_table_dict(table) for table in self.tables.values()]}

    @property
    def arrays(self) -> dict[str, Any]:
        """What embedders learned, by `table.column.array`, tables and columns by their number."""
        return {
            f"{number}.{place}.{name}": array
            for number, table in enumerate(self.tables.values())
            for place, column in enumerate(table.columns.values())
            if isinstance(column, TextColumn)
            for name, array in column.embedder.arrays.items()
        }

    @staticmethod
    def from_dict(
        content: Mapping[str, Any], arrays: Arrays, embedder: Embedder | None = None
    ) -> FeatureStatistics:
        """What `to_dict` and `arrays` said; an embedder of one's own has to be given again."""
        tables = {}
        for number, said in enumerate(content["tables"]):
            columns = {
                column["name"]: _column_from_dict(column, _below(arrays, f"{number}.{place}."), embedder)
                for place, column in enumerate(said["columns"])
            }
            tables[said["name"]] = TableStatistics(said["name"], columns, tuple(said["unused"]))
        return FeatureStatistics(content["upto"], tables)


def _fit_table(
    table: Table, upto: int, embedder: Embedder, names: bool, found: list[Finding]
) -> TableStatistics:
    cells = visible_cells(table, feature_columns(table), upto)
    kinds = kinds_of(table, cells)
    found += kind_findings(table.name, kinds, upto)
    used = {n: kind for n, kind in kinds.items() if kind.kind != "unused" and (names or not kind.is_name)}
    columns = {name: fit_column(kind, cells[name], embedder) for name, kind in used.items()}
    return TableStatistics(
        table.name, columns, tuple(name for name in table.data.column_names if name not in used)
    )


def _table_dict(table: TableStatistics) -> dict[str, Any]:
    columns = [
        {"name": name, "kind": column.kind, **_column_dict(column)} for name, column in table.columns.items()
    ]
    return {"name": table.name, "columns": columns, "unused": list(table.unused)}


def _column_dict(column: Column) -> dict[str, Any]:
    if isinstance(column, TextColumn):
        return {"embedder": column.embedder.name}
    said = asdict(column)
    return said | {"vocabulary": list(said["vocabulary"])} if "vocabulary" in said else said


def _column_from_dict(said: Mapping[str, Any], arrays: Arrays, embedder: Embedder | None) -> Column:
    facts = {word: value for word, value in said.items() if word not in ("name", "kind")}
    match said["kind"]:
        case "number":
            return NumberColumn(**facts)
        case "time":
            return DateColumn(**facts)
        case "text":
            return TextColumn(embedder_named(facts["embedder"], embedder).restored(arrays))
    vocabulary = tuple(facts.pop("vocabulary"))
    if said["kind"] == "category":
        return CategoryColumn(vocabulary, **facts)
    return MulticategoryColumn(vocabulary, **facts)


def _below(arrays: Arrays, prefix: str) -> Arrays:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
