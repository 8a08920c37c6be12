"""Foreign keys that are not declared, from the names of columns and from the keys their values hold.

Keys numbered 1..n hold every small integer, so integers are linked only where the name says so;
codes in text may be linked by their values alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from quartet.database.inference.evidence import (
    ACCEPT,
    LIST,
    Column,
    Possible,
    chance_of_share,
    codes_held,
    share_held,
)
from quartet.database.inference.names import ROWS, Noun, match, plays_role_of, points_to_own_table

_MARGIN = 0.04  # two links of one column that are closer than this are equally good
_BY_CHANCE = 1e-6
_NOT_SURE = 0.6
_BY_MATCH = {"same": 0.95, "tail": 0.9, "head": 0.62, "short": 0.65}
_BY_ROLE = 0.74


@dataclass(frozen=True)
class Target:
    """A table that can be pointed to: what a row of it is, and its key."""

    noun: Noun
    key: Column

    @property
    def table(self) -> str:
        return self.key.table


@dataclass(frozen=True)
class _Clue:
    """What a name says about a link. `is_plain` if it says outright that the column is a key."""

    strength: float
    why: str
    is_plain: bool = True


def guess_links(
    column: Column, targets: Sequence[Target], noun: Noun, is_key: bool
) -> tuple[Possible | None, list[Possible]]:
    """Returns the link of a column that is sure enough to be used, if any, and the others worth a look.

    `noun` is that of the column's table; `is_key` says that the column is its table's primary key,
    which is a link as well only if it is named after the other table.
    """
    guesses = [guess for target in targets if (guess := _judged(column, target, noun, is_key))]
    guesses = sorted((g for g in guesses if g.confidence >= LIST), key=lambda g: -g.confidence)
    if not guesses or guesses[0].confidence < ACCEPT:
        return None, guesses
    rivals = [g for g in guesses[1:] if g.confidence > guesses[0].confidence - _MARGIN]
    if rivals:
        tables = " and ".join(guess.target or "" for guess in (guesses[0], *rivals))
        return None, [replace(g, why=f"{g.why}; {tables} are equally likely") for g in guesses]
    return guesses[0], guesses[1:]


def _judged(column: Column, target: Target, noun: Noun, is_key: bool) -> Possible | None:
    key = target.key
    if key is column or column.kind != key.kind or column.kind not in ("integer", "text", "binary"):
        return None
    clues = () if column.words.is_counted or column.words.is_plural else _clues(column, target, noun)
    clue = max(clues, key=lambda clue: clue.strength, default=None)
    by_name = _by_name(column, target, clue) if clue else None
    if is_key:
        return by_name if match(column.words.thing, target.noun) in ("same", "tail") else None
    if by_name and by_name.confidence >= 0.8:
        return by_name
    guesses = filter(None, (by_name, _by_codes(column, target)))
    return max(guesses, key=lambda guess: guess.confidence, default=None)


def _by_name(column: Column, target: Target, clue: _Clue) -> Possible:
    if not len(column.distinct):
        return _possible(column, target, clue.strength * 0.6, f"{clue.why}, but without values")
    share = share_held(column, target.key)
    confidence = clue.strength * (0.4 + 0.6 * share) if share else 0.0
    if _proves_little(column, target, clue):
        confidence = min(confidence, _NOT_SURE)
    return _possible(column, target, confidence, f"{clue.why}; {_shown(share, column, target)}")


def _proves_little(column: Column, target: Target, clue: _Clue) -> bool:
    """Whether the link stands on a name that may mean a number, and on values that anything holds."""
    if column.words.is_from_elsewhere or (target.table == column.table and column.is_unique):
        return True  # a second number of the same rows, such as that of another system
    if clue.is_plain:
        return False
    if column.kind == "integer":
        return chance_of_share(column, target.key) > _BY_CHANCE
    return column.words.is_measure


def _by_codes(column: Column, target: Target) -> Possible | None:
    """Returns a link by values alone: text only, and no word that describes (status, country)."""
    if column.kind != "text" or column.words.is_attribute or target.table == column.table:
        return None
    share = codes_held(column, target.key)
    if not share:
        return None
    confidence = (0.8 if len(column.distinct) < 10 else 0.9) * share
    confidence = min(confidence, _NOT_SURE) if share < 0.95 else confidence
    return _possible(column, target, confidence, _shown(share, column, target))


def _shown(share: float, column: Column, target: Target) -> str:
    percent = math.floor(share * 100 + 1e-9)
    return f"{percent} % of {len(column.distinct):,} values are keys of {target.table}"


def _possible(column: Column, target: Target, confidence: float, why: str) -> Possible:
    return Possible(column.table, "fkeys", (column.name,), target.table, round(min(confidence, 0.99), 2), why)


def _clues(column: Column, target: Target, noun: Noun) -> Iterable[_Clue]:
    """Yields everything that the name says about this target."""
    words, key = column.words, target.key.words
    has_mark = words.mark == "id"
    if target.table == column.table:
        if points_to_own_table(words, noun):
            is_plain = has_mark or words.all[-1] in ("parent", "to", "of", "by")
            yield _Clue(0.85, "named like a link to its own table", is_plain)
        elif has_mark and match(words.thing, noun) == "tail":
            yield _Clue(0.85, f"named after {target.table}")
        elif words.is_done_by and plays_role_of(words, noun):
            yield _Clue(_BY_ROLE, f"a part played by {target.table}")
        return
    if match(words.thing, noun) == "same":
        return  # `flight_number` in flights: of the row itself
    by_table = match(words.thing, target.noun)
    if words.joined == key.joined and words.thing and words.thing[-1] not in ROWS:
        bonus = 0.1 if by_table == "same" else 0.0
        yield _Clue(0.89 + bonus, f"has the name of the key of {target.table}", not words.is_generic)
    elif not key.is_generic and words.all[-len(key.all) :] == key.all:
        yield _Clue(0.85, f"ends with the name of the key of {target.table}", has_mark)
    if by_table and not (by_table == "short" and not words.mark):
        # A column named `customer`, without "id", may hold too many values for a flag or a grade.
        is_bare_noun = not words.mark and not words.is_generic and len(column.distinct) >= 10
        strength = _BY_MATCH[by_table] - (0.0 if has_mark else 0.1)
        is_plain = has_mark or (by_table == "same" and is_bare_noun)
        yield _Clue(strength, f"named after {target.table}", is_plain)
    if plays_role_of(words, target.noun):
        yield _Clue(_BY_ROLE, f"a part played by {target.table}", has_mark or words.is_done_by)
