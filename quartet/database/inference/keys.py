"""The primary key of a table whose key is not declared: one column, unique, that looks like a key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from quartet.database.inference.evidence import ACCEPT, LIST, Column, Possible, codes_held, share_held
from quartet.database.inference.names import Noun, match

_Columns = Mapping[str, Sequence[Column]]

_FIRST = 0.15
_SAME_NAME = 0.35
_SAME_CODES = 0.3
_LONGEST_KEY, _LONGEST_NAMED_KEY = 64, 255  # letters; the longer one if the name says that it is an id
_TABLES_THAT_NAME_IT = 2  # at least, before a column is rather the key than a bare `id` that no table names
_STRONG = ("same", "tail")


def guess_key(table: str, columns: _Columns, nouns: Mapping[str, Noun]) -> list[Possible]:
    """Returns the columns that may be the table's primary key, the best first; used if it reaches `ACCEPT`.

    Only columns that are unique over all rows are returned, and once one is good enough to be
    used, no other: a table has one primary key.
    """
    guesses: list[Possible] = []
    hopefuls = []
    for column in columns[table]:
        hope, why = _name_clue(column, columns, nouns)
        clue = (hope, why)
        if hope:  # add what it would gain if it were unique and all references held
            hope += _FIRST if column.position == 0 else 0.0
            by_codes = _SAME_CODES if _may_be_code(column) else 0.0
            hope += _SAME_NAME if _namesakes(column, columns) else by_codes
        hopefuls.append((hope, clue, column))
    for hope, clue, column in sorted(hopefuls, key=lambda hopeful: -hopeful[0]):
        if hope < LIST or (guesses and guesses[0].confidence >= max(hope, ACCEPT)):
            break
        if _may_be_key(column):
            guesses.append(_judged(column, *clue, columns, nouns))
            guesses.sort(key=lambda guess: -guess.confidence)
    if guesses and guesses[0].confidence >= ACCEPT:
        return guesses[:1]
    return [guess for guess in guesses if guess.confidence >= LIST]


def _may_be_key(column: Column) -> bool:
    if column.kind not in ("integer", "text", "binary"):
        return False
    if column.kind == "text":
        sample, is_named = column.sample(50), column.words.mark == "id"
        longest = (
            _LONGEST_NAMED_KEY if is_named and not any(" " in value for value in sample) else _LONGEST_KEY
        )
        if any(len(value) > longest for value in sample) or not any(sample):
            return False
    return column.is_unique


def _judged(
    column: Column, confidence: float, why: str, columns: _Columns, nouns: Mapping[str, Noun]
) -> Possible:
    reasons = ["unique", why]
    if column.position == 0:
        confidence += _FIRST
        reasons.append("first column")
    if confidence < 0.9:
        gain, why = _references(column, columns)
        confidence += gain
        reasons.append(why)
    limit = 0.99 if column.words.mark == "id" else 0.97
    confidence = min(confidence, 0.6 if _named_after_other(column, nouns) else limit)
    why = ", ".join(filter(None, reasons))
    return Possible(column.table, "pkey", (column.name,), None, round(confidence, 2), why)


def _references(column: Column, columns: _Columns) -> tuple[float, str]:
    """Returns what the other tables add: columns of the same name, or codes, that are values of this one.

    A column that is unique in the other table as well does not count: either may be the key.
    """

    def listed(others: list[Column]) -> str:
        return ", ".join(other.label for other in others[:3]) + (", ..." if len(others) > 3 else "")

    same = [c for c in _namesakes(column, columns) if not c.is_unique and share_held(c, column) >= 0.5]
    if same:
        return _SAME_NAME, "same name and values as " + listed(same)
    if not _may_be_code(column):
        return 0.0, ""
    codes = [
        c
        for c in _others(column, columns)
        if c.kind == "text" and not c.words.is_attribute and codes_held(c, column) >= 0.95
    ]
    return (_SAME_CODES, "holds the values of " + listed(codes)) if codes else (0.0, "")


def _may_be_code(column: Column) -> bool:
    return column.position == 0 and column.kind == "text" and not column.words.is_attribute


def _others(column: Column, columns: _Columns) -> list[Column]:
    """Returns the columns of the other tables."""
    return [other for table in columns if table != column.table for other in columns[table]]


def _namesakes(column: Column, columns: _Columns) -> list[Column]:
    if column.words.is_generic:
        return []
    name = column.words.joined
    return [c for c in _others(column, columns) if c.words.joined == name and c.kind == column.kind]


def _name_clue(column: Column, columns: _Columns, nouns: Mapping[str, Noun]) -> tuple[float, str]:
    """Returns how much the name alone looks like that of the table's key, 0 if it cannot be one."""
    words, noun = column.words, nouns[column.table]
    if words.is_measure or column.kind in ("time", "other"):
        return 0.0, ""
    if (
        not words.thing
    ):  # a bare `id` is worth more if other tables have an id of this one, less if of another column
        if words.mark != "id":
            return (0.55, "named like a code") if words.mark == "code" else (0.3, "")
        others = [other.words for other in _others(column, columns)]
        is_named = any(other.mark == "id" and match(other.thing, noun) in _STRONG for other in others)
        if not is_named and any(
            _is_named_by_tables(other, columns, nouns) for other in columns[column.table]
        ):
            return 0.55, f'named "{column.name}", but other tables name another column'
        return 0.84 if is_named else 0.8, f'named "{column.name}"'
    own = match(words.thing, noun)
    if own:
        score = {"id": 0.82, "code": 0.75, "name": 0.55, "": 0.5}[words.mark]
        return score - (0.1 if own == "head" and words.mark != "id" else 0.0), "named like the table"
    if _named_after_other(column, nouns):
        return (0.45, "but named after another table") if words.mark in ("id", "code") else (0.2, "")
    if words.mark == "id":
        return 0.55, "named like a key"
    return (0.3 if column.kind != "integer" else 0.2) - (0.1 if column.num_rows < 10 else 0.0), ""


def _is_named_by_tables(column: Column, columns: _Columns, nouns: Mapping[str, Noun]) -> bool:
    """Whether a unique id (`playerID` in People) is what several tables name, so that a bare `id` is a row number."""
    if column.words.mark != "id" or not column.words.thing or _named_after_other(column, nouns):
        return False
    same = _namesakes(column, columns)
    if len({other.table for other in same}) < _TABLES_THAT_NAME_IT or not _may_be_key(column):
        return False
    held = {c.table for c in same if not c.is_unique and share_held(c, column) >= 0.5}
    return len(held) >= _TABLES_THAT_NAME_IT


def _named_after_other(column: Column, nouns: Mapping[str, Noun]) -> bool:
    """Whether the name speaks of a row of another table (`flight_id` in reports): a link, not a key."""
    thing = column.words.thing
    if match(thing, nouns[column.table]) in _STRONG:
        return False
    return any(match(thing, noun) in _STRONG for table, noun in nouns.items() if table != column.table)
