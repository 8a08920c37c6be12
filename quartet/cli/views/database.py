"""What people see of a database: its schema, its columns and its findings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text
from rich.tree import Tree

from quartet.database import (
    COLUMN_KINDS,
    Database,
    Origin,
    ProposedEntity,
    Relation,
    Table,
    TimeColumn,
    late_columns,
    proposed_entities,
)
from quartet.drawing import as_shown, cell, new_grid
from quartet.features import ColumnKind, inspected_kinds
from quartet.findings import Finding, Level
from quartet.tasks import task_names
from quartet.times import NEVER, show_instant

if TYPE_CHECKING:  # the graph brings a compiler, which `quartet inspect` does not wait for
    pass


def _how(origin: Origin) -> Text:
    if origin.is_inferred:
        return cell(f"inferred, {origin.confidence:.0%}: {origin.why}", "yellow")
    return cell(origin.source, "green" if origin.source == "confirmed" else "dim")


def database_view(database: Database) -> RenderableType:
    """Tables, links, drawing, findings and tasks of a database."""
    kinds, left_out = inspected_kinds(database)
    late = [column.finding for column in late_columns(database)]
    parts: list[RenderableType] = [_headline(database), _tables(database), Text()]
    if any(kinds.values()):
        parts += [_columns(kinds), Text()]
    if database.relations:
        parts += [_links(database), Text(), _drawing(database), Text()]
    if database.possible:
        parts += [_possible(database), Text()]
    proposed = proposed_entities(database)
    if proposed:
        parts += [_entities(proposed), Text()]
    parts += [findings_view([*database.findings, *left_out, *late])]
    names = task_names(database)
    if names:
        parts.append(cell(f"Tasks: {', '.join(names)}"))
    return Group(*parts)


def _headline(database: Database) -> Text:
    span = database.span
    times = f", {show_instant(span[0])} to {show_instant(span[1])} UTC" if span else ", no times"
    name = database.schema.name or database.location
    head = cell(name, "bold")
    return head.append(
        f"  {len(database.tables)} tables, {database.num_rows:,} rows, {len(database.relations)} links{times}\n",
        style="none",
    )


def _tables(database: Database) -> Grid:
    grid = new_grid("Tables", "table", "rows", "key", "", "time", " ", right=("rows",))
    for table in database.tables.values():
        key, time = ", ".join(table.primary_key), table.schema.time
        grid.add_row(
            cell(table.name, "cyan"),
            f"{table.num_rows:,}",
            cell(key or "none"),
            _made(table) if table.schema.made_from else _how(table.schema.key_origin) if key else Text(),
            cell(time.column + _end(time) + _span(table) if time else "always known"),
            _how(time.origin) if time else Text(),
        )
    return grid


def _made(table: Table) -> Text:
    places = ", ".join(f"{name}.{column}" for name, column in table.schema.made_from)
    return cell(f"distinct values of {places}", "green")


def _end(time: TimeColumn) -> str:
    return f", known at the end of its {time.end_of}" if time.end_of else ""


def _span(table: Table) -> str:
    dated = table.known_at[table.known_at != NEVER]
    if not len(dated):
        return ""
    return f" ({show_instant(int(dated.min()))[:10]} to {show_instant(int(dated.max()))[:10]})"


def _columns(kinds: Mapping[str, Mapping[str, ColumnKind]]) -> Grid:
    """The features of each table by kind, each with what its kind was inferred from."""
    grid = new_grid("Columns", "table", "kind", "columns")
    for table, columns in kinds.items():
        name = table
        for kind in COLUMN_KINDS:
            shown = [f"{n} ({c.why})" if c.why else n for n, c in columns.items() if c.kind == kind]
            if shown:
                grid.add_row(cell(name, "cyan"), kind, cell(", ".join(shown)))
                name = ""
    return grid


def _links(database: Database) -> Grid:
    grid = new_grid(
        "Links", "from", "to", "linked", "share", "largest hub", "", right=("linked", "share", "largest hub")
    )
    for relation in database.relations:
        linked, rows = relation.num_links, len(relation.rows)
        target = relation.parent + "".join(f".{c}" for c in relation.foreign_key.references)
        grid.add_row(
            cell(relation.label),
            cell(target, "cyan"),
            f"{linked:,}",
            f"{linked / rows:.1%}" if rows else "–",
            f"{_largest_hub(relation):,}",
            _how(relation.foreign_key.origin),
        )
    return grid


def _largest_hub(relation: Relation) -> int:
    linked = relation.rows[relation.rows >= 0]
    return int(np.bincount(linked).max()) if len(linked) else 0


def _drawing(database: Database) -> Tree:
    """Every table that is referred to, with the tables that refer to it."""
    tree = Tree(Text("Schema (a table, and what points to it)", style="bold"))
    for name in database.tables:
        inward = [r for r in database.relations if r.parent == name]
        if inward:
            branch = tree.add(cell(name, "cyan"))
            for relation in inward:
                mark = " ?" if relation.foreign_key.origin.is_inferred else ""
                branch.add(cell(f"◀─ {relation.table}  by {relation.foreign_key.label}{mark}"))
    return tree


def _possible(database: Database) -> Grid:
    grid = new_grid("Possible, but too uncertain to be used", "table", "what", "columns", "to", "sure", "why")
    for guess in database.possible:
        grid.add_row(
            cell(guess.table),
            cell(guess.fact),
            cell(", ".join(guess.columns)),
            cell(guess.target or ""),
            f"{guess.confidence:.0%}",
            cell(guess.why),
        )
    return grid


def _entities(proposed: list[ProposedEntity]) -> Grid:
    title = "Tables that could be made from distinct values (used where a task names one)"
    grid = new_grid(title, "table", "values", "named in", "line of the schema file", right=("values",))
    for entity in proposed:
        places = ", ".join(f"{table}.{column}" for table, column in entity.places)
        grid.add_row(cell(entity.name, "cyan"), f"{entity.num_values:,}", cell(places), cell(entity.line))
    return grid


def findings_view(findings: list[Finding]) -> RenderableType:
    """The findings, warnings first and many of one code as one, or a line that says there are none."""
    if not findings:
        return Text("No problems found.", style="green")
    ordered = sorted(as_shown(findings), key=lambda f: f.level is Level.NOTE)
    styles = {Level.NOTE: "dim", Level.WARNING: "yellow"}
    return Group(
        Text("Findings", style="bold"), *(cell(f"  {finding}", styles[finding.level]) for finding in ordered)
    )
