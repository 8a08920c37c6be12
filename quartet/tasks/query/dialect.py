"""Pieces of DuckDB's SQL: names, times, aggregates, comparisons and constants."""

from __future__ import annotations

import re

from quartet.tasks.query.resolve import Kind
from quartet.tasks.query.tree import Comparison, Constant, Window
from quartet.times import parse_instant, show_instant

NOW = "t.timestamp"  # the prediction time
_HORIZON, _IN_TWO = "{timedelta}", "{' || 'timedelta}"  # what task SQL has filled in, and what a text has not


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def at(shift: int, unit: str) -> str:
    """Returns the time t, shifted."""
    if not shift:
        return NOW
    return f"{NOW} {'+' if shift > 0 else '-'} INTERVAL '{abs(shift)} {unit}'"


def same(far: str, far_columns: tuple[str, ...], near: str, near_columns: tuple[str, ...]) -> list[str]:
    pairs = zip(far_columns, near_columns, strict=True)
    return [f"{far}.{quoted(a)} = {near}.{quoted(b)}" for a, b in pairs]


def inside(window: Window | None, known: str) -> list[str]:
    if window is None:
        return [f"{known} <= {NOW}"]
    start = [] if window.start is None else [f"{known} > {at(window.start, window.unit)}"]
    return [*start, f"{known} <= {at(window.end, window.unit)}"]


def aggregate(function: str, value: str, known: str | None) -> str:
    if function == "COUNT":
        return f"COUNT({value})"
    if function == "COUNT_DISTINCT":
        return f"COUNT(DISTINCT {value})"
    if function == "LIST_DISTINCT":
        return f"LIST(DISTINCT {value} ORDER BY {value})"
    if function in ("FIRST", "LAST"):  # of rows at one time the smallest, or the largest, value
        order = f"x.{quoted(known)}, {value}" if known else value
        return f"{function}({value} ORDER BY {order})"
    if function in ("SUM", "AVG"):
        return f"CAST({function}(CAST({value} AS DOUBLE)) AS DOUBLE)"
    return f"{function}({value})"


def comparison(comparison: Comparison, value: str, kind: Kind) -> str:
    operator, constants = comparison.operator, [literal(c, kind) for c in comparison.constants]
    if operator == "NULL":
        return f"{value} IS {'NOT ' if comparison.is_negated else ''}NULL"
    negation = "NOT " if comparison.is_negated else ""
    if operator == "IN":
        return f"{value} {negation}IN ({', '.join(constants)})"
    if operator == "LIKE":
        return f"{value} {negation}LIKE {constants[0]}"
    if operator in ("CONTAINS", "STARTS", "ENDS"):
        function = {"CONTAINS": "contains", "STARTS": "starts_with", "ENDS": "ends_with"}[operator]
        return f"{function}({value}, {constants[0]})"
    return f"{value} {'<>' if operator == '!=' else operator} {constants[0]}"


def literal(constant: Constant, kind: Kind) -> str:
    if kind == "truth":
        return "TRUE" if constant else "FALSE"
    if kind == "time":
        return f"TIMESTAMP_NS '{show_instant(parse_instant(str(constant), 'the query'))}'"
    if isinstance(constant, str):
        lines = [line.replace("'", "''").replace(_HORIZON, _IN_TWO) for line in constant.split("\n")]
        return " || chr(10) || ".join(f"'{line}'" for line in lines)
    return repr(constant)


def indented(sql: str) -> str:
    """Returns SQL with its lines moved in; a name in quotes that goes over two lines stays as it is."""
    return "  " + re.sub(r"""("[^"]*"|'[^']*')|\n""", lambda found: found[1] or "\n  ", sql)
