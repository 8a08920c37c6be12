"""What people see in the terminal: a database, its schema and findings; a task and its lint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text
from rich.tree import Tree

from quartet.database import COLUMN_KINDS, Database, Origin, Relation, Table
from quartet.drawing.terminal import cell, new_grid
from quartet.features import ColumnKind, inspected_kinds
from quartet.findings import Finding, Level, warning
from quartet.tasks import SPLITS, Seeds, Split, Task, balance, task_names
from quartet.times import NEVER, show_instant, show_length

if TYPE_CHECKING:  # the graph brings a compiler, which `quartet inspect` does not wait for
    from quartet.graph import TemporalGraph


def _how(origin: Origin) -> Text:
    if origin.is_inferred:
        return cell(f"inferred, {origin.confidence:.0%}: {origin.why}", "yellow")
    return cell(origin.source, "green" if origin.source == "confirmed" else "dim")


def database_view(database: Database) -> RenderableType:
    """Tables, links, drawing, findings and tasks of a database."""
    kinds, left_out = inspected_kinds(database)
    parts: list[RenderableType] = [_headline(database), _tables(database), Text()]
    if any(kinds.values()):
        parts += [_columns(kinds), Text()]
    if database.relations:
        parts += [_links(database), Text(), _drawing(database), Text()]
    if database.possible:
        parts += [_possible(database), Text()]
    parts += [findings_view([*database.findings, *left_out])]
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
            _how(table.schema.key_origin) if key else Text(),
            cell(time.column + _span(table) if time else "always known"),
            _how(time.origin) if time else Text(),
        )
    return grid


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


def findings_view(findings: list[Finding]) -> RenderableType:
    """The findings, warnings first, or a line that says there are none."""
    if not findings:
        return Text("No problems found.", style="green")
    ordered = sorted(findings, key=lambda f: f.level is Level.NOTE)
    styles = {Level.NOTE: "dim", Level.WARNING: "yellow"}
    return Group(
        Text("Findings", style="bold"), *(cell(f"  {finding}", styles[finding.level]) for finding in ordered)
    )


def task_view(task: Task, graph: TemporalGraph, problems: list[Finding]) -> RenderableType:
    """A task: what it asks, its splits, and what lint says."""
    spec = task.spec
    horizon = f", looking {show_length(spec.horizon)} ahead" if spec.horizon else ""
    proposed = " (proposed from the data's span)" if task.splits.is_proposed else ""
    head = cell(task.name, "bold").append(
        f"  {spec.kind}, {spec.type.replace('_', ' ')}{horizon}", style="none"
    )
    lines = [
        head,
        cell(spec.description or "", "dim"),
        cell(
            f"Entity: {spec.entity_table}. Validation from {show_instant(task.splits.val)}, "
            f"test from {show_instant(task.splits.test)}{proposed}."
        ),
        Text(),
    ]
    found = [finding for split in SPLITS for finding in task.findings(split)]
    found += [finding for split in SPLITS for finding in _no_history_findings(task, graph, split)]
    return Group(*lines, _splits(task, graph), Text(), findings_view(found + problems))


def _splits(task: Task, graph: TemporalGraph) -> Grid:
    grid = new_grid(
        "Splits", "split", "rows", "times", "prediction times", "label windows end", "labels", "no history",
        "no history, frozen", right=("rows", "times", "no history", "no history, frozen"),
    )  # fmt: skip
    for split in SPLITS:
        seeds = task.seeds(split)
        labels = task.vault.balance() if split == "test" else balance(seeds.target)  # type: ignore[arg-type]
        grid.add_row(
            split,
            f"{len(seeds):,}",
            f"{len(np.unique(seeds.time)):,}",
            *_windows(task, seeds),
            labels,
            _share(no_history(graph, seeds)),
            _share(no_history(graph, seeds, task.splits.test)),
        )
    return grid


def _windows(task: Task, seeds: Seeds) -> tuple[str, str]:
    if not len(seeds):
        return "–", "–"
    first, last = int(seeds.time.min()), int(seeds.time.max())
    return f"{show_instant(first)} to {show_instant(last)}", show_instant(last + task.spec.horizon)


def no_history(graph: TemporalGraph, seeds: Seeds, upto: int | None = None) -> np.ndarray:
    """Which seeds have no visible neighbour at their time (or at `upto`, if that is earlier)."""
    time = seeds.time if upto is None else np.minimum(seeds.time, upto)
    return np.asarray(graph.degrees(seeds.node, time) == 0)


def _no_history_findings(task: Task, graph: TemporalGraph, split: Split) -> list[Finding]:
    alone = no_history(graph, task.seeds(split))
    if not len(alone) or alone.mean() <= 0.5:
        return []
    text = (
        f"{alone.mean():.0%} of the {len(alone):,} {split} seeds have no history: nothing links to them yet"
    )
    return [
        warning(
            "T11", split, text, int(alone.sum()), "ask at later times, or check the links and time columns"
        )
    ]


def _share(which: np.ndarray) -> str:
    return f"{int(which.sum()):,} ({which.mean():.1%})" if len(which) else "–"
