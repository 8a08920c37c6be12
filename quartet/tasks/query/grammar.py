"""The text of a predictive query as its tree. Words are those of PQL; `VIA` names the links of a path."""

from __future__ import annotations

import math
import re
from functools import cache
from typing import Any, get_args

from quartet.errors import did_you_mean
from quartet.tasks.query.tree import (
    AGGREGATIONS,
    Aggregation,
    Comparison,
    Condition,
    Constant,
    Form,
    Logical,
    Name,
    Query,
    Reference,
    Span,
    Unit,
    Window,
)

_GRAMMAR = r"""
start: "PREDICT"i _either form? "FOR"i "EACH"i? reference selected? where? assuming? ";"?
form: FORECAST INTEGER "TIMEFRAMES"i | RANK "TOP"i INTEGER | CLASSIFY
selected: _test
where: "WHERE"i _either
assuming: "ASSUMING"i _either
_either: or | _both
or: _both ("OR"i _both)+
_both: and | _one
and: _one ("AND"i _one)+
_one: not | comparison | _term | "(" _either ")"
not: "NOT"i _one
comparison: _term _test
_test: OPERATOR constant
     | IS NOT? NULL
     | NOT? IN "(" constant ("," constant)* ")"
     | NOT? LIKE constant
     | CONTAINS constant
     | STARTS "WITH"i constant
     | ENDS "WITH"i constant
_term: aggregation | reference
aggregation: FUNCTION "(" reference where? window? ")"
window: "," bound "," bound ("," name)?
bound: INTEGER | NUMBER | INFINITE
reference: name "." (name | STAR) via?
via: "VIA"i link | "VIA"i "(" link ("," link)* ")"
link: name "." name
name: NAME | QUOTED | TICKED
constant: STRING | QUOTED | INTEGER | NUMBER | TRUTH | NULL

FORECAST: "FORECAST"i
RANK: "RANK"i
CLASSIFY: "CLASSIFY"i
IS: "IS"i
NOT: "NOT"i
NULL: "NULL"i
IN: "IN"i
LIKE: "LIKE"i
CONTAINS: "CONTAINS"i
STARTS: "STARTS"i
ENDS: "ENDS"i
TRUTH: "TRUE"i | "FALSE"i
STAR: "*"
OPERATOR: "<=" | ">=" | "!=" | "<>" | "==" | "=" | "<" | ">"
INFINITE.3: /(?:[-+]\s*)?INF(INITY)?\b/i
NUMBER.2: /[-+]?(\d+\.\d*|\.\d+|\d+(?=[eE]))([eE][-+]?\d+)?/
INTEGER.1: /[-+]?\d+/
STRING: /'(?:[^']|'')*'/
QUOTED: /"(?:[^"]|"")*"/
TICKED: /`[^`]+`/
FUNCTION.2: /(?!(?:NOT|IN|AND|OR|WHERE|VIA|PREDICT|FOR|ASSUMING)\b)[^\W\d]\w*(?=\s*\()/i
NAME: /[^\W\d]\w*/
%ignore /\s+/
%ignore /--[^\n]*/
%ignore /\/\*(?s:.*?)\*\//
"""
_COMMENT = r"(?:\s+|--[^\n]*(?:\n|$)|/\*.*?\*/)*"
_QUERY = re.compile(rf"{_COMMENT}PREDICT\b(?!\.\w+$)", re.IGNORECASE | re.DOTALL)
_SHOWN = {
    "NAME": "a name", "QUOTED": "", "TICKED": "", "FUNCTION": "an aggregation such as COUNT(", "STRING": "'text'",
    "INTEGER": "a number", "NUMBER": "", "INFINITE": "", "TRUTH": "", "NULL": "NULL", "OPERATOR": "= != < <= > >=",
    "STAR": '"*"', "LPAR": '"("', "RPAR": '")"', "COMMA": '","', "DOT": '"."', "SEMICOLON": "", "$END": "the end",
}  # fmt: skip
_ALL_UNITS = get_args(Unit)
_DAYS = {"seconds": 1 / 86400, "minutes": 1 / 1440, "hours": 1 / 24, "days": 1, "weeks": 7, "months": 31}
_LONGEST = 300 * 365  # days
_MOST_DIGITS = 38  # of a whole number, as many as DuckDB reads
_DEEPEST = 100  # conditions inside one another


def is_query(text: str) -> bool:
    """Returns whether a text is a predictive query rather than the name of a task or of a file."""
    return _QUERY.match(text) is not None


def parse(text: str) -> Query:
    """Returns the tree of a query; what cannot be read is an error that says what was expected there."""
    from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

    broken = re.search(r"[\ud800-\udfff\0]", text)
    if broken:
        span = Span(text, broken.start(), broken.end())
        raise span.error("Q01", "this is no letter of any text", "write the query in UTF-8")
    try:
        tree = _parser().parse(text)
    except UnexpectedInput as error:
        token = error.token if isinstance(error, UnexpectedToken) else None
        names = error.accepts or error.expected if isinstance(error, UnexpectedToken) else set()
        names = error.allowed or set() if isinstance(error, UnexpectedCharacters) else names
        words = sorted({_SHOWN.get(str(name), str(name)) for name in names} - {""})
        at_end = token is not None and token.type == "$END"
        at = len(text.rstrip()) if at_end else min(error.pos_in_stream or 0, len(text))
        length = len(token) if token is not None and not at_end else 1
        got = (
            "the query ends" if at_end or at >= len(text) else f'"{text[at : at + length]}" cannot stand here'
        )
        expected = f"; expected {', '.join(words)}" if words else ""
        raise Span(text, at, at + length).error(
            "Q01", f"{got}{expected}", _syntax_fix(text, at, words)
        ) from None
    reader = _Reader(text)
    reader.check_depth(tree)
    return reader.query(tree)


def _syntax_fix(text: str, at: int, expected: list[str]) -> str:
    before, after = text[:at].rstrip().lower(), text[at:].lstrip().lower()
    if not before:
        return "begin with PREDICT: PREDICT target FOR EACH table.key WHERE condition"
    if before[-1].isdigit() and after.startswith(tuple(unit[:-1] for unit in _ALL_UNITS)):
        return "write a comma before the unit: 0, 30, days"
    if expected == ['"."']:
        return "name the column, too: table.column; table.* counts rows"
    if after.startswith("each"):
        return "write FOR EACH table.key"
    if before.endswith(("for", "each")) or not re.search(r"\bfor\b", text, re.IGNORECASE):
        return "say for whom: FOR EACH table.key"
    return "see docs/query.md for the form of a query"


@cache
def _parser() -> Any:
    from lark import Lark

    return Lark(_GRAMMAR, parser="lalr", propagate_positions=True, maybe_placeholders=False)


class _Reader:
    """Makes our own nodes of those of the parser."""

    def __init__(self, text: str) -> None:
        self.text = text

    def span(self, node: Any) -> Span:
        if hasattr(node, "meta"):
            return Span(self.text, node.meta.start_pos, node.meta.end_pos)
        return Span(self.text, node.start_pos, node.end_pos)

    def check_depth(self, tree: Any) -> None:
        """Refuses conditions inside conditions inside conditions, before anything follows them down."""
        level, depth = [tree], 0
        while level:
            level = [child for node in level for child in node.children if hasattr(child, "data")]
            depth += 1
            if depth > _DEEPEST and level:
                what = f"conditions stand inside one another, more than {_DEEPEST} deep"
                raise self.span(level[0]).error("Q08", what, "join them by AND and OR side by side")

    def whole(self, token: Any) -> int:
        if len(token.lstrip("+-0")) > _MOST_DIGITS:
            what = f"a number of {len(token):,} digits is too large"
            raise self.span(token).error("Q05", what, f"give one of at most {_MOST_DIGITS} digits")
        return int(token)

    def query(self, tree: Any) -> Query:
        parts = {child.data: child for child in tree.children[1:]}
        form, entity = parts.get("form"), self.reference(parts["reference"])
        selected = None
        if "selected" in parts:
            selected = self.test(entity, parts["selected"].children, self.span(parts["selected"]))
        where, assuming = (
            self.condition(parts[word].children[0]) if word in parts else None
            for word in ("where", "assuming")
        )
        target = self.condition(tree.children[0])
        return Query(self.text, target, self.form(form) if form else None, entity, selected, where, assuming)

    def form(self, tree: Any) -> Form:
        word, *number = tree.children
        count = self.whole(number[0]) if number else 0
        if number and count < 1:
            raise self.span(number[0]).error(
                "Q04", f"{word.upper()} {number[0]} is none", "give a number from 1 on"
            )
        kind = {"FORECAST": "FORECAST", "RANK": "RANK"}.get(word.upper(), "CLASSIFY")
        return Form(kind, count, self.span(tree))  # type: ignore[arg-type]

    def condition(self, tree: Any) -> Condition:
        if tree.data == "aggregation":
            return self.aggregation(tree)
        if tree.data == "reference":
            return self.reference(tree)
        if tree.data == "comparison":
            term, *rest = tree.children
            read = self.aggregation(term) if term.data == "aggregation" else self.reference(term)
            return self.test(read, rest, self.span(tree))
        parts = tuple(map(self.condition, [child for child in tree.children if hasattr(child, "data")]))
        return Logical(tree.data.upper(), parts, self.span(tree))

    def test(self, term: Aggregation | Reference, children: list[Any], span: Span) -> Comparison:
        words = [str(child).upper() for child in children if not hasattr(child, "data")]
        constants = tuple(self.constant(child.children[0]) for child in children if hasattr(child, "data"))
        is_negated, word = "NOT" in words, next(word for word in words if word not in ("NOT", "IS"))
        return Comparison(term, {"==": "=", "<>": "!="}.get(word, word), constants, is_negated, span)

    def constant(self, token: Any) -> Constant:
        if token.type == "NULL":
            raise self.span(token).error("Q05", "nothing equals NULL", "write IS NULL or IS NOT NULL")
        if token.type in ("STRING", "QUOTED"):
            return str(token[1:-1].replace(token[0] * 2, token[0]))
        if token.type == "TRUTH":
            return bool(token.upper() == "TRUE")
        if token.type == "NUMBER" and math.isinf(float(token)):
            raise self.span(token).error("Q05", f"{token} is too large", "give a smaller number")
        return self.whole(token) if token.type == "INTEGER" else float(token)

    def aggregation(self, tree: Any) -> Aggregation:
        function, of, *rest = tree.children
        if function.upper() not in AGGREGATIONS:
            meant = did_you_mean(function.upper(), AGGREGATIONS)
            fix = f"use one of {', '.join(AGGREGATIONS)}"
            raise self.span(function).error("Q01", f'there is no aggregation "{function}"{meant}', fix)
        parts = {child.data: child for child in rest}
        where = self.condition(parts["where"].children[0]) if "where" in parts else None
        window = self.window(parts["window"]) if "window" in parts else None
        return Aggregation(function.upper(), self.reference(of), where, window, self.span(tree))

    def window(self, tree: Any) -> Window:
        start, end, *unit = tree.children
        span = self.span(start).to(self.span(tree))
        word = self.name(unit[0]).text.lower() if unit else "days"
        whole = next((each for each in _ALL_UNITS if word in (each, each[:-1])), None)
        if whole is None:
            fix = f"write one of {', '.join(_ALL_UNITS)}; a year is 12 months or 365 days"
            raise self.span(unit[0]).error("Q04", f'"{unit[0].children[0]}" is no unit of time', fix)
        first, last = self.bound(start, may_be_infinite=True), self.bound(end, may_be_infinite=False)
        assert last is not None
        if first is not None and first >= last:
            what = f"the window from {first} to {last} is empty"
            raise span.error("Q04", what, "windows are (start, end]: let the end be after the start")
        if max(abs(first or 0), abs(last)) * _DAYS[whole] > _LONGEST:
            raise span.error("Q04", "the window is longer than three hundred years", "give a shorter one")
        return Window(first, last, whole, span)

    def bound(self, tree: Any, may_be_infinite: bool) -> int | None:
        token = tree.children[0]
        if token.type == "INFINITE" and may_be_infinite and token.startswith("-"):
            return None
        if token.type != "INTEGER" or abs(self.whole(token)) > 10**6:
            fix = "write whole numbers up to 1,000,000; -INF may stand at the start, for everything before"
            raise self.span(tree).error("Q04", f'"{token}" cannot bound a window', fix)
        return int(token)

    def reference(self, tree: Any) -> Reference:
        table, column, *via = tree.children
        star = None if not hasattr(column, "data") else self.name(column)
        links = via[0].children if via else ()
        read = tuple((self.name(link.children[0]), self.name(link.children[1])) for link in links)
        return Reference(self.name(table), star, read, self.span(table).to(self.span(column)))

    def name(self, tree: Any) -> Name:
        token = tree.children[0]
        text = str(token)
        if token.type in ("QUOTED", "TICKED"):
            text = text[1:-1].replace('""', '"') if token.type == "QUOTED" else text[1:-1]
        return Name(text, self.span(tree))
