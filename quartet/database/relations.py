"""Relation: one foreign key with its values as row numbers, and what is odd about its links."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quartet.database.keys import NO_SUCH_KEY, NULL_KEY, KeyColumn, KeyMap
from quartet.database.schema import ForeignKey
from quartet.database.table import Table
from quartet.errors import SchemaError, did_you_mean, examples
from quartet.findings import Finding, note, warning
from quartet.times import STATIC

LATE_FILLED_SHARE = 0.001


@dataclass(frozen=True, eq=False)
class Relation:
    """One foreign key with its values as row numbers of the parent table, -1 where there is none."""

    table: str
    foreign_key: ForeignKey
    rows: NDArray[np.int64]

    @property
    def parent(self) -> str:
        return self.foreign_key.table

    @property
    def label(self) -> str:
        return f"{self.table}.{self.foreign_key.label}"

    @property
    def num_links(self) -> int:
        return int((self.rows >= 0).sum())


def relate(
    table: Table, foreign_key: ForeignKey, tables: Mapping[str, Table], on_dangling: str
) -> tuple[Relation, list[Finding]]:
    """The links of one foreign key, and what was noticed about them."""
    label = f"{table.name}.{foreign_key.label}"
    parent = _parent(label, foreign_key, tables)
    target = foreign_key.references or parent.primary_key
    key_map = _target_map(label, foreign_key, parent, target)
    columns = table.key_columns(foreign_key.columns)
    for column, known in zip(columns, key_map.columns, strict=True):
        if column.kind != known.kind and len(column.values) > column.values.null_count and parent.num_rows:
            raise SchemaError(
                "S08", f"{column.where} is {column.kind}, {known.where} is {known.kind}", "cast one"
            )
    found: list[Finding] = []
    rows = key_map.rows(columns) if _comparable(columns, key_map) else _without_match(columns)
    dangling = rows == NO_SUCH_KEY
    if dangling.any():
        found.append(_dangling(table, label, parent, dangling, foreign_key, on_dangling))
        rows[dangling] = NULL_KEY
    relation = Relation(table.name, foreign_key, rows)
    return relation, found + _link_findings(relation, table, parent)


def _comparable(columns: list[KeyColumn], key_map: KeyMap) -> bool:
    """An empty column or table may arrive with any type; then there is nothing to compare."""
    return all(column.kind == kind for column, kind in zip(columns, key_map.kinds, strict=True))


def _without_match(columns: list[KeyColumn]) -> NDArray[np.int64]:
    """Rows of keys that match nothing: `NULL_KEY` where a part is empty, else `NO_SUCH_KEY`."""
    filled = np.logical_and.reduce([column.values.is_valid().to_numpy() for column in columns])
    return np.where(filled, NO_SUCH_KEY, NULL_KEY)


def _parent(label: str, foreign_key: ForeignKey, tables: Mapping[str, Table]) -> Table:
    if foreign_key.table not in tables:
        raise SchemaError(
            "S09",
            f'{label} points to an unknown table "{foreign_key.table}"'
            + did_you_mean(foreign_key.table, tables),
            "correct the name in the schema file",
        )
    parent = tables[foreign_key.table]
    for column in foreign_key.references:
        if column not in parent.data.column_names:
            raise SchemaError(
                "S09",
                f'{label} points to an unknown column "{parent.name}.{column}"'
                + did_you_mean(column, parent.data.column_names),
                "correct the name in the schema file",
            )
    if not (foreign_key.references or parent.primary_key):
        raise SchemaError(
            "S09",
            f'{label} points to table "{parent.name}", which has no primary key',
            f'give {parent.name} a pkey, or name the column: "{parent.name}.column"',
        )
    return parent


def _target_map(label: str, foreign_key: ForeignKey, parent: Table, target: tuple[str, ...]) -> KeyMap:
    count = len(foreign_key.columns)
    if count != len(target):
        names = ", ".join(f'"{name}"' for name in foreign_key.columns)
        raise SchemaError(
            "S06",
            f"{label}: foreign key ({names}) has {count} column{'s' if count > 1 else ''}, "
            f'key of "{parent.name}" has {len(target)}',
            "name as many columns as the key has",
        )
    if target == parent.primary_key:
        return parent.key_map
    key_map = parent.key_map_of(target)
    count, first = key_map.repeated()
    if count:
        raise SchemaError(
            "S03",
            f"{label} points to {parent.name}.{', '.join(target)}, which has {count:,} repeated values "
            f"{examples(first)}",
            "point to a unique column",
        )
    return key_map


def _dangling(
    table: Table,
    label: str,
    parent: Table,
    dangling: NDArray[np.bool_],
    foreign_key: ForeignKey,
    on_dangling: str,
) -> Finding:
    count = int(dangling.sum())
    where = np.flatnonzero(dangling)[:2]
    values = ["/".join(str(table.data[c][int(row)].as_py()) for c in foreign_key.columns) for row in where]
    text = (
        f'{label}: {count:,} of {table.num_rows:,} values have no row in "{parent.name}" {examples(values)}'
    )
    if on_dangling == "error":
        raise SchemaError("S07", text, "repair the rows, or say on_dangling: drop")
    return warning("S07", label, text + ". Using: drop links (on_dangling: error to stop)", count)


def _link_findings(relation: Relation, table: Table, parent: Table) -> list[Finding]:
    found = []
    if relation.table == relation.parent:
        loops = int((relation.rows == np.arange(len(relation.rows))).sum())
        if loops:
            text = f"{relation.label}: {loops:,} rows point at themselves; these loops are dropped"
            found.append(note("S10", relation.label, text, loops))
    late, linked = late_filled(relation, table, parent)
    if late > LATE_FILLED_SHARE * linked:
        text = (
            f"{relation.label}: {late:,} of {linked:,} rows point to a row of "
            f'"{parent.name}" that is newer than they are; a link filled in later tells the future'
        )
        fix = "if the link was set later, drop the column or date the row by available_at"
        found.append(warning("D01", relation.label, text, late, fix))
    return found


def late_filled(relation: Relation, table: Table, parent: Table) -> tuple[int, int]:
    """How many links of a relation lead to a parent newer than their holder, of how many."""
    linked = relation.rows >= 0
    holder = table.known_at[linked]
    newer = parent.known_at[relation.rows[linked]] > holder
    return int((newer & (holder != STATIC)).sum()), int(linked.sum())
