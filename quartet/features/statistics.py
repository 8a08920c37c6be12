"""FeatureStatistics: what is learned of a database up to a cut-off, and is kept with the model.

Everything is plain values (`to_dict`), but for the arrays that embedders of text learn (`arrays`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from quartet.causal import visible
from quartet.database import Database
from quartet.features.arrays import Kind, TableLayout
from quartet.features.cells import visible_cells
from quartet.features.columns import COLUMN_CLASSES, Column, TextColumn, fit_column
from quartet.features.kinds import feature_columns, kind_findings, kinds_of
from quartet.features.text import Arrays, new_embedder
from quartet.findings import Finding
from quartet.times import DAY, SECOND, STATIC

_LONGEST = 2**62  # nanoseconds
_MINUTE, _HOUR = 60 * SECOND, 3600 * SECOND


@dataclass(frozen=True)
class Rhythm:
    """When rows came, of those that are known at a cut-off, in nanoseconds."""

    span: int  # from the first of them to the cut-off
    resolution: int  # what all their times are whole multiples of: a day, an hour or, at least, a minute

    @staticmethod
    def of(database: Database, cutoff: int) -> Rhythm:
        known = [table.known_at for table in database.tables.values() if table.is_timed]
        times = np.concatenate([*known, np.empty(0, np.int64)])
        times = times[visible(times, cutoff) & (times != STATIC)]
        whole = (each for each in (DAY, _HOUR) if not (times % each).any())
        return Rhythm(min(cutoff - int(times.min(initial=cutoff)), _LONGEST), next(whole, _MINUTE))

    def unit(self, parts: int) -> int:
        """Returns a part of the span in whole days, hours or minutes: nothing finer than the times of rows."""
        unit = self.span // parts
        whole = next((each for each in (DAY, _HOUR) if unit >= each), _MINUTE)
        return max(self.resolution, unit // whole * whole)


@dataclass(frozen=True)
class TableStatistics:
    """The columns of a table that are features, and those that were there and are not."""

    name: str
    columns: Mapping[str, Column]
    unused: tuple[str, ...] = ()

    def of(self, kind: Kind) -> dict[str, Any]:
        """Returns the columns of one kind."""
        return {name: column for name, column in self.columns.items() if column.kind == kind}

    @property
    def layout(self) -> TableLayout:
        categories, sets, texts = self.of("category"), self.of("multicategory"), self.of("text")
        return TableLayout(
            self.name,
            numbers=tuple(self.of("number")),
            categories=tuple(categories),
            category_sizes=tuple(column.size for column in categories.values()),
            multicategories=tuple(sets),
            multicategory_sizes=tuple(column.size for column in sets.values()),
            times=tuple(self.of("time")),
            texts=tuple(texts),
            text_sizes=tuple(column.size for column in texts.values()),
        )


@dataclass(frozen=True)
class FeatureStatistics:
    """What was learned of each table from the rows known at the cut-off, and which columns were left out."""

    cutoff: int
    tables: Mapping[str, TableStatistics]
    findings: tuple[Finding, ...] = ()
    rhythm: Rhythm | None = None  # None of models from before
    longest_wait: int | None = None  # see `FeatureTable.waiting`

    @staticmethod
    def fit(
        database: Database, cutoff: int, use_row_names: bool = True, text_model: str = "hash"
    ) -> FeatureStatistics:
        """Learns from the rows that are known at a time; no other row can change anything of it.

        Without `use_row_names`, columns that only name their rows are no features.
        """
        embedder, tables, findings = new_embedder(text_model), {}, list[Finding]()
        for name, table in database.tables.items():
            cells = visible_cells(table, feature_columns(table), cutoff)
            kinds = kinds_of(table, cells)
            findings += kind_findings(name, kinds, cutoff)
            columns = {
                column: fit_column(kind, cells[column], embedder)
                for column, kind in kinds.items()
                if kind.kind != "unused" and (use_row_names or not kind.is_name)
            }
            unused = tuple(column for column in table.data.column_names if column not in columns)
            tables[name] = TableStatistics(name, columns, unused)
        return FeatureStatistics(cutoff, tables, tuple(findings), Rhythm.of(database, cutoff))

    def to_dict(self) -> dict[str, Any]:
        """Returns all but the arrays, as values that JSON can hold."""

        def fields(column: Column) -> dict[str, Any]:
            if isinstance(column, TextColumn):
                return {"text_model": column.embedder.name}
            return {field: list(v) if isinstance(v, tuple) else v for field, v in asdict(column).items()}

        tables = [
            {
                "name": table.name,
                "columns": [{"name": n, "kind": c.kind, **fields(c)} for n, c in table.columns.items()],
                "unused": list(table.unused),
            }
            for table in self.tables.values()
        ]
        rhythm = {"rhythm": self.rhythm and asdict(self.rhythm), "longest_wait": self.longest_wait}
        return {"cutoff": self.cutoff, "tables": tables, **rhythm}

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
    def from_dict(content: Mapping[str, Any], arrays: Arrays) -> FeatureStatistics:
        """Returns the statistics of which `to_dict` and `arrays` are these."""

        def column(fields: Mapping[str, Any], prefix: str) -> Column:
            facts = {name: value for name, value in fields.items() if name not in ("name", "kind")}
            if fields["kind"] == "text":
                own = {n.removeprefix(prefix): array for n, array in arrays.items() if n.startswith(prefix)}
                return TextColumn(new_embedder(facts["text_model"], own))
            if "vocabulary" in facts:
                facts["vocabulary"] = tuple(facts["vocabulary"])
            restored: Column = COLUMN_CLASSES[fields["kind"]](**facts)
            return restored

        tables = {}
        for number, table in enumerate(content["tables"]):
            columns = {c["name"]: column(c, f"{number}.{place}.") for place, c in enumerate(table["columns"])}
            tables[table["name"]] = TableStatistics(table["name"], columns, tuple(table["unused"]))
        rhythm, longest_wait = content.get("rhythm"), content.get("longest_wait")
        return FeatureStatistics(
            content["cutoff"], tables, rhythm=rhythm and Rhythm(**rhythm), longest_wait=longest_wait
        )
