"""Relation: one foreign key with its values as row numbers, and what is odd about the links of a database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quartet.database.keys import NO_SUCH_KEY, NULL_KEY, KeyMap
from quartet.database.schema import ForeignKey
from quartet.database.table import Table
from quartet.errors import SchemaError, did_you_mean, examples
from quartet.findings import Finding, note, warning
from quartet.times import STATIC

_LATE_FILLED = 0.001  # of the links; fewer may be errors of a clock


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
    table: Table, tables: Mapping[str, Table], on_dangling: str = "drop"
) -> tuple[list[Relation], list[Finding]]:
    """Returns the relations of a table by all its foreign keys, and what was noticed about them."""
    relations, findings = [], []
    for foreign_key in table.schema.foreign_keys:
        label = f"{table.name}.{foreign_key.label}"
        parent, key_map = _target(label, foreign_key, tables)
        columns = table.key_columns(foreign_key.columns)
        for column, known in zip(columns, key_map.columns, strict=True):
            if column.kind != known.kind and column.values.null_count < table.num_rows and parent.num_rows:
                raise SchemaError(
                    "S08", f"{column.where} is {column.kind}, {known.where} is {known.kind}", "cast one"
                )
        if tuple(column.kind for column in columns) == key_map.kinds:
            rows = key_map.rows(columns)
        else:  # an empty column or table may arrive with any type; then nothing matches
            filled = np.logical_and.reduce([column.values.is_valid().to_numpy() for column in columns])
            rows = np.where(filled, NO_SUCH_KEY, NULL_KEY)
        dangling = np.flatnonzero(rows == NO_SUCH_KEY)
        if len(dangling):
            findings.append(_dangling(table, foreign_key, label, dangling, on_dangling))
            rows[dangling] = NULL_KEY
        relation = Relation(table.name, foreign_key, rows)
        relations.append(relation)
        findings += _link_findings(relation, table, parent)
    return relations, findings


def _target(label: str, foreign_key: ForeignKey, tables: Mapping[str, Table]) -> tuple[Table, KeyMap]:
    """Returns the table that a foreign key points to, and the map of the key by which it does."""
    fix = "correct the name in the schema file"
    if foreign_key.table not in tables:
        meant = did_you_mean(foreign_key.table, tables)
        raise SchemaError("S09", f'{label} points to an unknown table "{foreign_key.table}"{meant}', fix)
    parent = tables[foreign_key.table]
    for column in foreign_key.references:
        if column not in parent.data.column_names:
            meant = did_you_mean(column, parent.data.column_names)
            raise SchemaError(
                "S09", f'{label} points to an unknown column "{parent.name}.{column}"{meant}', fix
            )
    target, count = foreign_key.references or parent.primary_key, len(foreign_key.columns)
    if not target:
        raise SchemaError(
            "S09",
            f'{label} points to table "{parent.name}", which has no primary key',
            f'give {parent.name} a pkey, or name the column: "{parent.name}.column"',
        )
    if count != len(target):
        names = ", ".join(f'"{name}"' for name in foreign_key.columns)
        raise SchemaError(
            "S06",
            f"{label}: foreign key ({names}) has {count} column{'s' if count > 1 else ''}, "
            f'key of "{parent.name}" has {len(target)}',
            "name as many columns as the key has",
        )
    if target == parent.primary_key:
        return parent, parent.key_map
    key_map = KeyMap(parent.key_columns(target))
    repeated, first = key_map.repeated()
    if repeated:
        raise SchemaError(
            "S03",
            f"{label} points to {parent.name}.{', '.join(target)}, which has {repeated:,} repeated values "
            f"{examples(first)}",
            "point to a unique column",
        )
    return parent, key_map


def _dangling(
    table: Table, foreign_key: ForeignKey, label: str, rows: NDArray[np.int64], on_dangling: str
) -> Finding:
    values = ["/".join(str(table.data[c][int(row)].as_py()) for c in foreign_key.columns) for row in rows[:2]]
    text = (
        f"{label}: {len(rows):,} of {table.num_rows:,} values have no row in "
        f'"{foreign_key.table}" {examples(values)}'
    )
    if on_dangling == "error":
        raise SchemaError("S07", text, "repair the rows, or set on_dangling: drop")
    return warning("S07", label, f"{text}. Using: drop links (on_dangling: error to stop)", len(rows))


def _link_findings(relation: Relation, table: Table, parent: Table) -> list[Finding]:
    findings, label = [], relation.label
    if relation.table == relation.parent:
        loops = int((relation.rows == np.arange(len(relation.rows))).sum())
        if loops:
            text = f"{label}: {loops:,} rows point at themselves; these loops are dropped"
            findings.append(note("S10", label, text, loops))
    linked = relation.rows >= 0
    holder = table.known_at[linked]
    late = int(((parent.known_at[relation.rows[linked]] > holder) & (holder != STATIC)).sum())
    if late > _LATE_FILLED * len(holder):
        text = (
            f"{label}: {late:,} of {len(holder):,} rows point to a row of "
            f'"{parent.name}" that is newer than they are; a link filled in later tells the future'
        )
        fix = "if the link was set later, drop the column or date the row by available_at"
        findings.append(warning("D01", label, text, late, fix))
    return findings


def structure_findings(tables: Mapping[str, Table], relations: Sequence[Relation]) -> list[Finding]:
    """Returns what is odd about a database as a whole: no links, no times, rows that should have a time, cycles."""
    findings, timeless = [], set()
    if not relations:
        text = "tables are not linked; a relational model needs at least one foreign key"
        findings.append(warning("S13", "", text, fix="declare links under fkeys in the schema file"))
    if not any(table.is_timed for table in tables.values()):
        text = "no table has a time column: temporal branch off; results are not time-safe"
        findings.append(warning("T10", "", text, fix="name a time_col in the schema file"))
    for relation in relations:
        name, parent = relation.table, relation.parent
        if tables[name].is_timed or not tables[parent].is_timed or name in timeless or not relation.num_links:
            continue
        timeless.add(name)
        text = (
            f'table "{name}" has no time, but its rows point to "{parent}", whose rows have one: '
            "they count as always known, and would show what happens later"
        )
        fix = f"set time_from: {relation.foreign_key.label} for {name} in the schema file"
        findings.append(warning("D02", name, text, relation.num_links, fix))
    return findings + [note("S11", "", f"cycle {' -> '.join(cycle)}") for cycle in _cycles(relations)]


def _cycles(relations: Sequence[Relation]) -> list[tuple[str, ...]]:
    """Returns the shortest cycle of links through each table that lies on one, each cycle once."""
    parents: dict[str, dict[str, None]] = {}
    for relation in relations:
        if relation.table != relation.parent:
            parents.setdefault(relation.table, {})[relation.parent] = None
    cycles: dict[frozenset[str], tuple[str, ...]] = {}
    for start in parents:
        paths: list[tuple[str, ...]] = [(start,)]
        seen: set[str] = set()
        while paths and start not in seen:
            path = paths.pop(0)
            for parent in parents.get(path[-1], {}):
                if parent == start:
                    cycles.setdefault(frozenset(path), (*path, start))
                elif parent not in seen:
                    paths.append((*path, parent))
                seen.add(parent)
    return list(cycles.values())
