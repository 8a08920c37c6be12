"""Paths of links between tables: how the rows of one table belong to those of another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from quartet.database import Database
from quartet.tasks.query.tree import Reference, written

_LONGEST = 4  # links
_SHOWN = 6  # paths in a message


@dataclass(frozen=True)
class Step:
    """One link walked from a near table to a far one: up to the row that is named, or down to the rows that name it."""

    near: str
    near_columns: tuple[str, ...]
    far: str
    far_columns: tuple[str, ...]
    is_up: bool

    @property
    def link(self) -> str:
        table, columns = (self.near, self.near_columns) if self.is_up else (self.far, self.far_columns)
        return f"{table}.{', '.join(columns)}"


Path = tuple[Step, ...]


def steps_from(database: Database, table: str) -> Iterator[Step]:
    """Yields the links that lead away from a table, up and down."""
    for relation in database.relations:
        link = relation.foreign_key
        named = link.references or database[link.table].primary_key
        if relation.table == table:
            yield Step(table, link.columns, link.table, named, is_up=True)
        if link.table == table:
            yield Step(table, named, relation.table, link.columns, is_up=False)


def find_path(database: Database, start: str, to: Reference, end: str, only_up: bool) -> Path:
    """Returns the one shortest path between two tables, over the links of `VIA` where these are given.

    Several of the same length are an error that lists them. From a table to itself it is a link of the table to
    itself, walked to the rows that name it.
    """
    wanted = [
        (table.text.lower(), column.text.lower(), table.span.to(column.span)) for table, column in to.via
    ]
    links = [(link.lower(), span) for link, span in ((f"{t}.{c}", span) for t, c, span in wanted)]
    known = {step.link.lower() for name in database.tables for step in steps_from(database, name)}
    for link, span in links:
        if link not in known:
            there = ", ".join(sorted(_links_of(database, link.partition(".")[0]))) or "none"
            raise span.error(
                "Q03", f"{span} is no link (links of that table: {there})", "name a link after VIA"
            )
    open_paths: list[Path] = [()]
    for _ in range(_LONGEST):
        open_paths = [
            (*path, step)
            for path in open_paths
            for step in steps_from(database, path[-1].far if path else start)
            if (step.is_up or not only_up) and _is_new(path, step, start, end)
        ]
        found = [path for path in open_paths if path[-1].far == end]
        found = [p for p in found if {link for link, _ in links} <= {step.link.lower() for step in p}]
        if len(found) > 1:
            lines = "; ".join(f"VIA {_via(path)}" for path in found[:_SHOWN])
            more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
            what = f'there are {len(found)} paths from "{start}" to "{end}": {lines}{more}'
            raise to.span.error("Q03", what, f"say which: {to.span} VIA {_via(found[0])}")
        if found:
            return found[0]
        open_paths = [path for path in open_paths if path[-1].far != end]
    way = "no row of it is named by one" if only_up else f"no path of {_LONGEST} links or fewer joins them"
    via = " over these links" if to.via else ""
    what = f'"{end}" cannot be reached from "{start}"{via}: {way}'
    near = ", ".join(sorted({f'"{step.far}"' for step in steps_from(database, start)})) or "none"
    fix = f'use a table that is linked to "{start}" ({near}), or declare the link under fkeys in the schema file'
    if only_up and not to.via and _reaches(database, start, to, end):
        fix = f"there are many rows of it for each: aggregate them, e.g. LAST({to.span}, -INF, 0)"
    raise to.span.error("Q03", what, fix)


def _is_new(path: Path, step: Step, start: str, end: str) -> bool:
    """Returns whether a step leads to a table that is not on the path; a table's link to itself is walked down."""
    if step.far == start:
        return start == end and not path and not step.is_up
    return all(step.far != other.far for other in path)


def _reaches(database: Database, start: str, to: Reference, end: str) -> bool:
    reached = {start}
    for _ in range(_LONGEST):
        reached |= {step.far for table in reached for step in steps_from(database, table)}
    return end in reached and to.column is not None


def _links_of(database: Database, table: str) -> set[str]:
    return {r.label for r in database.relations if r.table.lower() == table}


def _via(path: Path) -> str:
    links = []
    for step in path:
        table, columns = (step.near, step.near_columns) if step.is_up else (step.far, step.far_columns)
        links.append(f"{written(table)}.{written(', '.join(columns))}")
    return links[0] if len(links) == 1 else f"({', '.join(links)})"
