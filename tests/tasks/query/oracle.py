"""Random queries over any database, as text and as plain tuples, and their labels by brute force from the definition.

A query is drawn as nested tuples, which `text_of` writes down and `Oracle` evaluates row by row, three-valued, without
SQL, parser or path finder:

    ("agg", function, table, column or None, condition or None, window or None, path, says_via)
    ("col", table, column, path)
    ("cmp", term, operator, constants, is_negated)   ("and" | "or", parts)   ("not", part)

A path is a list of (link number, is_up) from the table at hand.
"""

from __future__ import annotations

import math
import random
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from quartet.database import Database
from quartet.times import NEVER, STATIC, show_instant

Tree = tuple[Any, ...]
Walk = list[tuple[int, bool]]
UNITS = {"seconds": 1, "minutes": 60, "hours": 3600, "days": 86400, "weeks": 7 * 86400}
SECOND = 10**9
NOTES = ["", "x", "x:?", "é", "it's"]
PATTERNS = ["x%", "%?", "_", "%", "é", ""]


# --- drawing --------------------------------------------------------------------------------------


@dataclass
class Drawing:
    """Draws queries about one database."""

    database: Database
    rng: random.Random

    def query(self) -> dict[str, Any] | None:
        """A query, or None where no table has a key that it needs."""
        keyed = [name for name, table in self.database.tables.items() if len(table.primary_key) == 1]
        self.rng.shuffle(keyed)
        for entity in keyed:
            target = self.target(entity)
            if target is not None:
                where = self.condition(entity, False, 2) if self.rng.random() < 0.7 else None
                return {"entity": entity, "target": target, "where": where}
        return None

    def target(self, entity: str) -> Tree | None:
        if self.rng.random() < 0.5:
            return self.aggregation(entity, True, for_condition=False)
        return self.condition(entity, True, 1)

    def condition(self, entity: str, is_target: bool, depth: int) -> Tree | None:
        draw = self.rng.random()
        if depth and draw < 0.4:
            parts = [
                self.condition(entity, is_target, depth - 1) for _ in range(self.rng.choice([1, 2, 2, 3]))
            ]
            parts = [part for part in parts if part is not None]
            if len(parts) == 1:
                return ("not", parts[0])
            return (self.rng.choice(["and", "or"]), parts) if parts else None
        term = self.aggregation(entity, is_target, True) if is_target or draw < 0.75 else self.column(entity)
        return None if term is None else self.comparison(term)

    def comparison(self, term: Tree) -> Tree:
        kind = self.kind(term)
        if self.rng.random() < 0.15:
            return ("cmp", term, "NULL", [], self.rng.random() < 0.5)
        if kind == "text" and self.rng.random() < 0.5:
            operator = self.rng.choice(["LIKE", "CONTAINS", "STARTS WITH", "ENDS WITH"])
            pool = PATTERNS if operator == "LIKE" else NOTES
            return (
                "cmp",
                term,
                operator,
                [self.rng.choice(pool)],
                operator == "LIKE" and self.rng.random() < 0.4,
            )
        if self.rng.random() < 0.3:
            return ("cmp", term, "IN", [self.constant(kind) for _ in range(3)], self.rng.random() < 0.5)
        return ("cmp", term, self.rng.choice(["=", "!=", "<", "<=", ">", ">="]), [self.constant(kind)], False)

    def constant(self, kind: str) -> Any:
        if kind == "text":
            return self.rng.choice(NOTES)
        if kind == "truth":
            return self.rng.random() < 0.5
        if kind == "time":
            return ("time", self.rng.choice(self.moments()))
        return self.rng.choice([0, 1, 2, 3, -1, 1.5, 0.75, 1e300, 10**15])

    def moments(self) -> list[int]:
        known = [int(t) for table in self.database.tables.values() for t in table.known_at[:5]]
        return [t // 1000 * 1000 for t in known if t not in (STATIC, NEVER)] or [1_700_000_000 * SECOND]

    def kind(self, term: Tree) -> str:
        if term[0] == "agg" and (term[1].startswith("COUNT") or term[3] is None):
            return "number"
        table, column = (term[2], term[3]) if term[0] == "agg" else (term[1], term[2])
        kind = kind_of(self.database, table, column)
        return (
            "number"
            if term[0] == "agg" and kind == "truth" and term[1] in ("SUM", "AVG", "MIN", "MAX")
            else kind
        )

    def columns(self, table: str) -> list[str]:
        return [
            f.name
            for f in self.database[table].data.schema
            if kind_of(self.database, table, f.name) != "other"
        ]

    def column(self, start: str) -> Tree | None:
        path: Walk = []
        for _ in range(self.rng.choice([0, 0, 1, 1, 2])):
            path = self.step(start, path, only_up=True) or path
        table = self.end(start, path)
        return ("col", table, self.rng.choice(self.columns(table)), path)

    def aggregation(self, entity: str, is_target: bool, for_condition: bool) -> Tree | None:
        path: Walk = []
        for _ in range(self.rng.choice([1, 1, 1, 2, 2, 3])):
            path = self.step(entity, path, only_up=False) or path
        if not path:
            return None
        table = self.end(entity, path)
        is_timed = self.database[table].is_timed
        if is_target and not is_timed:
            return None
        function = self.rng.choice(
            ["SUM", "AVG", "MIN", "MAX", "COUNT", "COUNT", "COUNT_DISTINCT", "FIRST", "LAST"]
        )
        kinds = {c: kind_of(self.database, table, c) for c in self.columns(table)}
        fit = {
            "SUM": "number truth",
            "AVG": "number truth",
            "MIN": "number truth time",
            "MAX": "number truth time",
        }
        allowed = fit.get(function, "number truth text time").split()
        if not for_condition and function in ("MIN", "MAX", "FIRST", "LAST"):
            allowed = [kind for kind in allowed if kind != "time"]
        columns = [c for c, kind in kinds.items() if kind in allowed and not self.is_huge(c, function)]
        if not columns:
            return None
        column = None if function == "COUNT" and self.rng.random() < 0.6 else self.rng.choice(columns)
        where = None
        if self.rng.random() < 0.4:
            term = self.column(table)
            where = self.comparison(term) if term else None
        return (
            "agg",
            function,
            table,
            column,
            where,
            self.window(is_target, is_timed),
            path,
            self.rng.random() < 0.6,
        )

    def is_huge(self, column: str, function: str) -> bool:
        """Sums of keys beyond 2^53 lose digits in any order of their rows: they are compared with nothing."""
        return function in ("SUM", "AVG") and column not in ("amount", "flag")

    def window(self, is_target: bool, is_timed: bool) -> tuple[int | None, int, str] | None:
        unit = self.rng.choice([*UNITS, "months"])
        if is_target:
            start = self.rng.choice([0, 0, 0, 1, 5])
            return start, start + self.rng.choice([1, 2, 30]), unit
        if not is_timed or self.rng.random() < 0.3:
            return None
        end = self.rng.choice([0, 0, 0, -1])
        return self.rng.choice([None, end - 1, end - 2, end - 30]), end, unit

    def step(self, start: str, path: Walk, only_up: bool) -> Walk | None:
        """One more link, to a table that the path has not seen; a link to the table itself is walked down, first."""
        here = self.end(start, path)
        seen = {start} | {self.end(start, path[: i + 1]) for i in range(len(path))}
        found: Walk = []
        for number, relation in enumerate(self.database.relations):
            is_loop = relation.table == relation.parent
            if relation.table == here and relation.parent not in seen:
                found.append((number, True))
            if (
                relation.parent == here
                and not only_up
                and (relation.table not in seen or (is_loop and not path))
            ):
                found.append((number, False))
        if not found or (path and self.end(start, path) == start):
            return None
        return [*path, self.rng.choice(found)]

    def end(self, start: str, path: Walk) -> str:
        for number, is_up in path:
            start = self.database.relations[number].parent if is_up else self.database.relations[number].table
        return start


def kind_of(database: Database, table: str, column: str) -> str:
    kind = database[table].data[column].type
    if pa.types.is_boolean(kind):
        return "truth"
    if pa.types.is_string(kind):
        return "text"
    if pa.types.is_timestamp(kind):
        return "time"
    return "number" if pa.types.is_integer(kind) or pa.types.is_floating(kind) else "other"


# --- writing --------------------------------------------------------------------------------------


def text_of(query: dict[str, Any], database: Database) -> str:
    """The query as a person would write it, all names in quotes."""
    key = database[query["entity"]].primary_key[0]
    where = f"\nWHERE {_text(query['where'], database)}" if query["where"] else ""
    return f"PREDICT {_text(query['target'], database)} -- so\nFOR EACH {_name(query['entity'])}.{_name(key)}{where}"


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(node: Tree, database: Database) -> str:
    if node[0] in ("and", "or"):
        return f" {node[0].upper()} ".join(f"({_text(part, database)})" for part in node[1])
    if node[0] == "not":
        return f"NOT ({_text(node[1], database)})"
    if node[0] == "cmp":
        _, term, operator, constants, is_negated = node
        written = [_constant(c) for c in constants]
        if operator == "NULL":
            return f"{_text(term, database)} IS {'NOT ' if is_negated else ''}NULL"
        if operator == "IN":
            return f"{_text(term, database)} {'NOT ' if is_negated else ''}IN ({', '.join(written)})"
        return f"{_text(term, database)} {'NOT ' if is_negated else ''}{operator} {written[0]}"
    if node[0] == "col":
        return f"{_name(node[1])}.{_name(node[2])}{_via(node[3], database)}"
    _, function, table, column, where, window, path, _ = node
    inner = f" WHERE {_text(where, database)}" if where else ""
    start = "-INF" if window and window[0] is None else window and window[0]
    rest = f", {start}, {window[1]}, {window[2]}" if window else ""
    of = f"{_name(table)}.{'*' if column is None else _name(column)}{_via(path, database)}"
    return f"{function}({of}{inner}{rest})"


def _via(path: Walk, database: Database) -> str:
    links = [database.relations[number] for number, _ in path]
    shown = [f"{_name(r.table)}.{_name(', '.join(r.foreign_key.columns))}" for r in links]
    return f" VIA ({', '.join(shown)})" if shown else ""


def _constant(constant: Any) -> str:
    if isinstance(constant, tuple):
        return f"'{show_instant(constant[1])}'"
    if isinstance(constant, str):
        return "'" + constant.replace("'", "''") + "'"
    return str(constant).upper() if isinstance(constant, bool) else repr(constant)


# --- the definition -------------------------------------------------------------------------------


class Oracle:
    """Labels by the definition. Unknown is None; a row is a pair (table, number)."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.cells = {name: _cells(table.data) for name, table in database.tables.items()}
        self.known = {name: table.known_at.tolist() for name, table in database.tables.items()}

    def labels(self, query: dict[str, Any], time: int) -> dict[Any, Any]:
        """Returns the label of each key that is asked about at a time, None where there is none."""
        found, entity = {}, query["entity"]
        key = self.database[entity].primary_key[0]
        for row in range(len(self.known[entity])):
            if self.is_known(entity, row, time):
                at = (entity, row)
                if query["where"] is None or self.value(query["where"], at, time, time, False) is True:
                    found[self.cells[entity][key][row]] = self.value(query["target"], at, time, time, True)
        return found

    def is_known(self, table: str, row: int, time: int) -> bool:
        return self.known[table][row] != NEVER and self.known[table][row] <= time

    def value(self, node: Tree, at: tuple[str, int], time: int, bound: int, is_target: bool) -> Any:
        if node[0] == "not":
            inner = self.value(node[1], at, time, bound, is_target)
            return None if inner is None else not inner
        if node[0] in ("and", "or"):
            parts = [self.value(part, at, time, bound, is_target) for part in node[1]]
            decides = node[0] == "or"
            return decides if decides in parts else None if None in parts else not decides
        if node[0] == "cmp":
            value = self.value(node[1], at, time, bound, is_target)
            return _compare(value, *node[2:])
        if node[0] == "col":
            rows = self.walk(at, node[3], bound, is_last_bounded=True)
            return self.cells[node[1]][node[2]][min(rows)[1]] if rows else None
        return self.aggregate(node, at, time, is_target)

    def aggregate(self, node: Tree, at: tuple[str, int], time: int, is_target: bool) -> Any:
        _, function, table, column, where, window, path, _ = node
        start, end = -math.inf, time
        if window:
            end = _shift(time, window[1], window[2])
            start = -math.inf if window[0] is None else _shift(time, window[0], window[2])
        bound = end if is_target else time
        rows = []
        for _, row in self.walk(at, path, bound, is_last_bounded=False):
            known = self.known[table][row]
            if known == NEVER or not start < known <= end:  # `STATIC` comes before all, and after -INF
                continue
            if where is None or self.value(where, (table, row), time, bound, is_target) is True:
                rows.append((known, row))
        if column is None:
            return len(rows)
        values = [(known, self.cells[table][column][row]) for known, row in rows]
        values = [(known, value) for known, value in values if value is not None]
        alone = [value for _, value in values]
        if function in ("COUNT", "COUNT_DISTINCT"):
            return len(alone) if function == "COUNT" else len(set(alone))
        if function == "SUM":
            return math.fsum(alone)
        if not alone:
            return None
        if function == "AVG":
            return math.fsum(alone) / len(alone)
        if function in ("MIN", "MAX"):
            best = min(alone) if function == "MIN" else max(alone)
            return int(best) if isinstance(best, bool) else best
        return (min(values) if function == "FIRST" else max(values))[1]

    def walk(
        self, at: tuple[str, int], path: Walk, bound: int | float, is_last_bounded: bool
    ) -> set[tuple[str, int]]:
        """Returns the rows at the end of a path whose rows on the way are known at a time."""
        here = {at}
        for place, (number, is_up) in enumerate(path):
            relation, there = self.database.relations[number], set[tuple[str, int]]()
            for _, row in here:
                if is_up:
                    there |= (
                        {(relation.parent, int(relation.rows[row]))} if relation.rows[row] >= 0 else set()
                    )
                else:
                    there |= {(relation.table, int(r)) for r in np.flatnonzero(relation.rows == row)}
            if place < len(path) - 1 or is_last_bounded:
                there = {(t, r) for t, r in there if self.is_known(t, r, int(bound))}
            here = there
        return here


def _cells(data: pa.Table) -> dict[str, list[Any]]:
    columns = {}
    for name, column in zip(data.column_names, data.columns, strict=True):
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("ns")).cast(pa.int64())
        values = column.to_pylist()
        columns[name] = [None if isinstance(v, float) and math.isnan(v) else v for v in values]
    return columns


def _shift(time: int, number: int, unit: str) -> int:
    if unit == "months":
        return int((pd.Timestamp(time) + pd.DateOffset(months=number)).value)
    return time + number * UNITS[unit] * SECOND


def _compare(value: Any, operator: str, constants: list[Any], is_negated: bool) -> bool | None:
    if operator == "NULL":
        return (value is None) != is_negated
    if value is None:
        return None
    constants = [c[1] if isinstance(c, tuple) else c for c in constants]
    first = constants[0]
    if operator == "IN":
        return (value in constants) != is_negated
    if operator == "LIKE":
        pattern = "".join({"%": ".*", "_": "."}.get(c, re.escape(c)) for c in first)
        return (re.fullmatch(pattern, value, re.DOTALL) is not None) != is_negated
    return bool(
        {
            "=": lambda: value == first, "!=": lambda: value != first, "<": lambda: value < first,
            "<=": lambda: value <= first, ">": lambda: value > first, ">=": lambda: value >= first,
            "CONTAINS": lambda: first in value, "STARTS WITH": lambda: value.startswith(first),
            "ENDS WITH": lambda: value.endswith(first),
        }[operator]()
    )  # fmt: skip
