"""What is odd about a database as a whole: no links, no times, cycles, rows that should have a time."""

from __future__ import annotations

from collections.abc import Mapping

from quartet.database.relations import Relation
from quartet.database.table import Table
from quartet.findings import Finding, note, warning


def structure_findings(tables: Mapping[str, Table], relations: list[Relation]) -> list[Finding]:
    found = []
    if not relations:
        text = "tables are not linked; a relational model needs at least one foreign key"
        found.append(warning("S13", "", text, fix="declare links under fkeys in the schema file"))
    if not any(table.is_timed for table in tables.values()):
        text = "no table has a time column: temporal branch off; results are not time-safe"
        found.append(warning("T10", "", text, fix="name a time_col in the schema file"))
    found += [_timeless_holder(relation) for relation in _timeless_holders(tables, relations)]
    for cycle in _cycles(relations):
        found.append(note("S11", "", f"cycle {' -> '.join(cycle)}"))
    return found


def _timeless_holders(tables: Mapping[str, Table], relations: list[Relation]) -> list[Relation]:
    """For each table without a time whose rows point to rows that have one, the first such link."""
    found: dict[str, Relation] = {}
    for relation in relations:
        if not tables[relation.table].is_timed and tables[relation.parent].is_timed and relation.num_links:
            found.setdefault(relation.table, relation)
    return list(found.values())


def _timeless_holder(relation: Relation) -> Finding:
    text = (
        f'table "{relation.table}" has no time, but its rows point to "{relation.parent}", whose rows have one: '
        "they count as always known, and would show what happens later"
    )
    fix = f"say time_from: {relation.foreign_key.label} for {relation.table} in the schema file"
    return warning("D02", relation.table, text, relation.num_links, fix)


def _cycles(relations: list[Relation]) -> list[tuple[str, ...]]:
    """The shortest cycle of links through each table that lies on one, each cycle once."""
    parents: dict[str, list[str]] = {}
    for relation in relations:
        if relation.table != relation.parent and relation.parent not in parents.setdefault(
            relation.table, []
        ):
            parents[relation.table].append(relation.parent)
    cycles: dict[frozenset[str], tuple[str, ...]] = {}
    for start in parents:
        path = _path_back(start, parents)
        if path:
            cycles.setdefault(frozenset(path), path)
    return list(cycles.values())


def _path_back(start: str, parents: Mapping[str, list[str]]) -> tuple[str, ...]:
    paths: list[tuple[str, ...]] = [(start,)]
    seen = {start}
    while paths:
        path = paths.pop(0)
        for parent in parents.get(path[-1], []):
            if parent == start:
                return (*path, start)
            if parent not in seen:
                seen.add(parent)
                paths.append((*path, parent))
    return ()
