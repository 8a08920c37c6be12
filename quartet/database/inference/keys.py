"""The primary key of a table whose key is not declared: one column, unique, that looks like a key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from quartet.database.inference.evidence import ACCEPT, LIST, Column, Possible, codes_held, share_held
from quartet.database.inference.names import Match, Noun, match

Columns = Mapping[str, Sequence[Column]]

_FIRST = 0.15
_SAME_NAME = 0.35
_SAME_CODES = 0.3
_LONGEST_KEY = 64
_STRONG: tuple[Match, ...] = ("same", "tail")


def guess_key(table: str, columns: Columns, nouns: Mapping[str, Noun]) -> list[Possible]:
    """The columns that may be the table's primary key, the best first; used if it reaches `ACCEPT`.

    Only columns that are unique over all rows are returned, and once one is good enough to be
    used, no other: a table has one primary key.
    """
    found: list[Possible] = []
    hopefuls = [(_most_hoped_for(c, columns, nouns), c) for c in columns[table]]
    for hope, column in sorted(hopefuls, key=lambda pair: -pair[0]):
        if hope < LIST or (found and found[0].confidence >= max(hope, ACCEPT)):
            break
        if _may_be_key(column):
            found.append(_judged(column, columns, nouns))
            found.sort(key=lambda guess: -guess.confidence)
    if found and found[0].confidence >= ACCEPT:
        return found[:1]
    return [guess for guess in found if guess.confidence >= LIST]


def _may_be_key(column: Column) -> bool:
    if column.kind not in ("integer", "text", "binary"):
        return False
    if column.kind == "text":
        sample = column.sample(50)
        if any(len(value) > _LONGEST_KEY for value in sample) or not any(sample):
            return False
    return column.is_unique


def _most_hoped_for(column: Column, columns: Columns, nouns: Mapping[str, Noun]) -> float:
    """The confidence that the column would have if it were unique and all references held."""
    base, _ = _name_clue(column, columns, nouns)
    if base == 0:
        return 0.0
    first = _FIRST if column.position == 0 else 0.0
    if _namesakes(column, columns):
        return base + first + _SAME_NAME
    return base + first + (_SAME_CODES if _may_be_code(column) else 0.0)


def _judged(column: Column, columns: Columns, nouns: Mapping[str, Noun]) -> Possible:
    confidence, why = _name_clue(column, columns, nouns)
    reasons = ["unique", *([why] if why else [])]
    if column.position == 0:
        confidence += _FIRST
        reasons.append("first column")
    if confidence < 0.9:
        gain, why = _references(column, columns)
        confidence += gain
        reasons += [why] if why else []
    limit = 0.99 if column.words.mark == "id" else 0.97
    confidence = min(confidence, 0.6 if _named_after_other(column, nouns) else limit)
    return Possible(column.table, "pkey", (column.name,), None, round(confidence, 2), ", ".join(reasons))


def _references(column: Column, columns: Columns) -> tuple[float, str]:
    """What the other tables add: columns of the same name, or codes, that are values of this one.

    A column that is unique in the other table as well does not count: either may be the key.
    """
    same = [c for c in _namesakes(column, columns) if not c.is_unique and share_held(c, column) >= 0.5]
    if same:
        return _SAME_NAME, "same name and values as " + _listed(same)
    if not _may_be_code(column):
        return 0.0, ""
    others = [c for table in columns if table != column.table for c in columns[table]]
    codes = [
        c for c in others if c.kind == "text" and not c.words.is_attribute and codes_held(c, column) >= 0.95
    ]
    return (_SAME_CODES, "holds the values of " + _listed(codes)) if codes else (0.0, "")


def _listed(columns: list[Column]) -> str:
    shown = ", ".join(column.label for column in columns[:3])
    return shown + (", ..." if len(columns) > 3 else "")


def _may_be_code(column: Column) -> bool:
    return column.position == 0 and column.kind == "text" and not column.words.is_attribute


def _namesakes(column: Column, columns: Columns) -> list[Column]:
    if column.words.is_generic:
        return []
    return [
        other
        for table in columns
        if table != column.table
        for other in columns[table]
        if other.words.joined == column.words.joined and other.kind == column.kind
    ]


def _name_clue(column: Column, columns: Columns, nouns: Mapping[str, Noun]) -> tuple[float, str]:
    """How much the name alone looks like that of the table's key, 0 if it cannot be one."""
    words = column.words
    if words.is_measure or column.kind in ("time", "other"):
        return 0.0, ""
    if not words.thing:
        return _clue_without_thing(column, columns, nouns)
    own = match(words.thing, nouns[column.table])
    if own:
        score = {"id": 0.82, "code": 0.75, "name": 0.55, "": 0.5}[words.mark]
        return score - (0.1 if own == "head" and words.mark != "id" else 0.0), "named like the table"
    if _named_after_other(column, nouns):
        return (0.45, "but named after another table") if words.mark in ("id", "code") else (0.2, "")
    if words.mark == "id":
        return 0.55, "named like a key"
    return (0.3 if column.kind != "integer" else 0.2) - (0.1 if column.num_rows < 10 else 0.0), ""


def _clue_without_thing(column: Column, columns: Columns, nouns: Mapping[str, Noun]) -> tuple[float, str]:
    """What a bare `id`, `code` or `name` is worth; `id` more if other tables have an id of this one."""
    if column.words.mark != "id":
        return (0.55, "named like a code") if column.words.mark == "code" else (0.3, "")
    noun = nouns[column.table]
    others = [c.words for table in columns if table != column.table for c in columns[table]]
    is_named = any(words.mark == "id" and match(words.thing, noun) in _STRONG for words in others)
    return 0.84 if is_named else 0.8, f'named "{column.name}"'


def _named_after_other(column: Column, nouns: Mapping[str, Noun]) -> bool:
    """Whether the name speaks of a row of another table (`flight_id` in reports): a link, not a key."""
    thing = column.words.thing
    if match(thing, nouns[column.table]) in _STRONG:
        return False
    return any(match(thing, noun) in _STRONG for table, noun in nouns.items() if table != column.table)
