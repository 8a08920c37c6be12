"""The syntax tree of a predictive query. Every node knows its place in the text, for messages that point at it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal
from unicodedata import combining, east_asian_width

from quartet.errors import QueryError

AGGREGATIONS = ("SUM", "AVG", "MIN", "MAX", "COUNT", "COUNT_DISTINCT", "FIRST", "LAST", "LIST_DISTINCT")
Unit = Literal["seconds", "minutes", "hours", "days", "weeks", "months"]
Constant = int | float | bool | str
_WIDEST = 100  # letters of a line that is shown


@dataclass(frozen=True)
class Span:
    """A part of the text of a query."""

    text: str
    start: int
    end: int

    def __str__(self) -> str:
        return self.text[self.start : self.end]

    def to(self, other: Span) -> Span:
        return Span(self.text, self.start, other.end)

    @property
    def place(self) -> tuple[str, str]:
        """The line of the text, and a line with carets below the part, as wide as a terminal shows it."""
        begin = self.text.rfind("\n", 0, self.start) + 1
        end = self.text.find("\n", self.start)
        line = self.text[begin : len(self.text) if end < 0 else end]
        at, width = self.start - begin, max(1, min(self.end - self.start, len(line) - self.start + begin))
        cut = max(0, min(at - _WIDEST // 3, len(line) - _WIDEST))
        shown = ("…" if cut else "") + line[cut : cut + _WIDEST] + ("…" if len(line) > cut + _WIDEST else "")
        width = min(width, max(1, cut + _WIDEST - at))
        indent = 2 + bool(cut) + _width(line[cut:at])
        return "  " + shown.replace("\t", " "), " " * indent + "^" * max(1, _width(line[at : at + width]))

    def error(self, code: str, what: str, fix: str = "") -> QueryError:
        """Returns the error that something is wrong here."""
        return QueryError(code, what, fix, self.place)


@dataclass(frozen=True)
class Name:
    text: str
    span: Span


@dataclass(frozen=True)
class Reference:
    """`table.column` or `table.*`, and the links of `VIA` by which the table is reached."""

    table: Name
    column: Name | None  # None for *
    via: tuple[tuple[Name, Name], ...]
    span: Span


@dataclass(frozen=True)
class Window:
    """The times in (t + start, t + end] in a unit; no start is the beginning of the data."""

    start: int | None
    end: int
    unit: Unit
    span: Span


@dataclass(frozen=True)
class Aggregation:
    function: str  # one of AGGREGATIONS
    of: Reference
    where: Condition | None
    window: Window | None
    span: Span


@dataclass(frozen=True)
class Comparison:
    """A term and constants: `= 1`, `IN (1, 2)`, `LIKE 'a%'`, or none for `IS NULL`."""

    term: Term
    operator: str  # = != < <= > >= IN LIKE CONTAINS STARTS ENDS NULL
    constants: tuple[Constant, ...]
    is_negated: bool
    span: Span


@dataclass(frozen=True)
class Logical:
    """AND or OR of several conditions, NOT of one."""

    operator: Literal["AND", "OR", "NOT"]
    parts: tuple[Condition, ...]
    span: Span


Term = Aggregation | Reference
Condition = Comparison | Logical | Aggregation | Reference  # a term alone is the value itself


@dataclass(frozen=True)
class Form:
    """What follows a target: FORECAST n TIMEFRAMES, RANK TOP k, or CLASSIFY."""

    kind: Literal["FORECAST", "RANK", "CLASSIFY"]
    number: int
    span: Span


@dataclass(frozen=True)
class Query:
    text: str
    target: Condition
    form: Form | None
    entity: Reference
    selected: Comparison | None  # those for whom an answer is wanted
    where: Condition | None
    assuming: Condition | None

    @property
    def selected_text(self) -> str:
        return str(self.selected.span) if self.selected else ""


def _width(text: str) -> int:
    """Returns how many columns of a terminal a text takes: letters of East Asia two, accents on a letter none."""
    wide = sum(east_asian_width(letter) in "WF" for letter in text)
    return len(text) + wide - sum(combining(letter) > 0 for letter in text)


def written(name: str) -> str:
    """Returns a name as a query writes it: in quotes where it is not a plain word."""
    return name if re.fullmatch(r"[^\W\d]\w*", name) else '"' + name.replace('"', '""') + '"'


def terms(condition: Condition | None) -> Iterator[Term]:
    """Yields the aggregations and columns of a condition; what is inside an aggregation is its own affair."""
    if isinstance(condition, (Aggregation, Reference)):
        yield condition
    elif isinstance(condition, Comparison):
        yield condition.term
    elif isinstance(condition, Logical):
        for part in condition.parts:
            yield from terms(part)
