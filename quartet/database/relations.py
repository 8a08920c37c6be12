"""Relation: one foreign key with its values as row numbers, and what is odd about the links of a database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quartet.database.keys import NO_SUCH_KEY, NULL_KEY, KeyColumn, KeyMap, rows_named
from quartet.database.schema import ForeignKey
from quartet.database.table import Table
from quartet.errors import SchemaError, did_you_mean, examples
from quartet.findings import Finding, note, warning
from quartet.machine import set_aside
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
        parent, target = _target(label, foreign_key, tables)
        columns, key_map = _compared(table, foreign_key.columns, parent, target)
        repeated, first = key_map.repeated() if target != parent.primary_key else (0, [])
        if repeated:
            raise SchemaError(
                "S03",
                f"{label} points to {parent.name}.{', '.join(target)}, which has {repeated:,} repeated values "
                f"{examples(first)}",
                "point to a unique column",
            )
        rows = rows_named(columns, key_map)
        dangling = np.flatnonzero(rows == NO_SUCH_KEY)
        if len(dangling):
            findings.append(_dangling(table, foreign_key, label, dangling, on_dangling))
            rows[dangling] = NULL_KEY
        relation = Relation(table.name, foreign_key, set_aside(rows))
        relations.append(relation)
        findings += _link_findings(relation, table, parent)
    return relations, findings


def _compared(
    table: Table, columns: tuple[str, ...], parent: Table, target: tuple[str, ...]
) -> tuple[list[KeyColumn], KeyMap]:
    """Returns the columns of a link and the map of the key that they name, as both tables write them.

    Where they are written in different ways (a time as text and as a timestamp), both are taken in UTC.
    """
    if {*columns} & table.written.keys() or {*target} & parent.written.keys():
        written, known = table.written_columns(columns), KeyMap(parent.written_columns(target))
        if tuple(column.kind for column in written) == known.kinds:
            return written, known
    key_map = parent.key_map if target == parent.primary_key else KeyMap(parent.key_columns(target))
    return table.key_columns(columns), key_map


def _target(
    label: str, foreign_key: ForeignKey, tables: Mapping[str, Table]
) -> tuple[Table, tuple[str, ...]]:
    """Returns the table that a foreign key points to, and the columns by which it does."""
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
    return parent, target


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
        is_dated = tables[parent].is_timed and not tables[parent].schema.made_from
        if tables[name].is_timed or not is_dated or name in timeless or not relation.num_links:
            continue
        timeless.add(name)
        text = (
            f'table "{name}" has no time, but its rows point to "{parent}", whose rows have one: '
            "they count as always known, and would show what happens later"
        )
        fix = f"set time_from: {relation.foreign_key.label} for {name} in the schema file"
        findings.append(warning("D02", name, text, relation.num_links, fix))
    findings += _period_findings(tables)
    return findings + [note("S11", "", f"cycle {' -> '.join(cycle)}") for cycle in _cycles(relations)]


def _period_findings(tables: Mapping[str, Table]) -> list[Finding]:
    """Returns a question for each table that is dated by years or months, and one note on those dated by days."""
    findings, days = [], []
    for name, table in tables.items():
        if table.period in ("year", "month") and table.schema.time:
            where = f"{name}.{table.schema.time.column}"
            text = f"{where} tells no more than the {table.period}: rows count as known when it begins"
            fix = f"if they are known when it is over, set known_at: end of {table.period} for {name}"
            findings.append(warning("T18", where, text, table.num_rows, f"{fix} in the schema file"))
        elif table.period:
            days.append(name)
    if days:
        text = f"times tell no more than the day: rows count as known when it begins {examples(days)}"
        fix = "if they are known when it is over, set known_at: end of day in the schema file"
        findings.append(note("T18", "", text, len(days), fix))
    return findings


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
