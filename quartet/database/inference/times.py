"""The time column of a table whose time is not declared: when a row became known.

A wrong time is a leak, so a name that says something else (birth, due, end, updated) is never used,
and of two columns that are equally good neither is. Where no name tells, values may: the time at which rows are written
is never empty, is the earliest of its row, and rises with the numbers that rows get.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from quartet.database.inference.evidence import ACCEPT, LIST, Column, Possible
from quartet.database.inference.names import Noun, singular, split, word_set
from quartet.database.inference.readings import TIME_WORDS, Reading, is_year, reading_of, time_words
from quartet.database.schema import TimeColumn, inferred
from quartet.errors import QuartetError
from quartet.times import NEVER, to_utc

_MARGIN = 0.06  # two columns that are closer than this are equally good
_NOT_SURE = 0.6
_GOOD, _BEGINS, _BY_VALUES, _REFUSED, _A_YEAR = 0.93, 0.8, 0.8, 0.45, 0.5
_FEW = 10  # rows; fewer prove nothing
_RISES = 0.99  # of the rows come no earlier than the one before them, by key
_SELDOM = 0.001  # of the rows may have an earlier time; so few may be errors of a clock
_YEAR_FIX = "time_format: '%Y', known_at: end of year"

# Not when the row became known: of a person, of the future, or a later change of the row.
_OTHER_MEANING = word_set(
    "birth birthday dob born death died dod expire expires expired expiry expiration exp due until end ended "
    "ending out finish finished stop stopped to thru through valid deadline limit next future expected estimated "
    "update updated modify modified modification change changed edit edited delete deleted removed last "
    "latest final close closed retired refreshed synced"
)
_OTHER_PARTS = re.compile("birth|expir|updat|modif|delet|deadlin|until|^last|^chang|^clos")
# Long before the row, so that it does not have to be the later time.
_BEFORE = word_set("birth birthday dob born death died dod valid from")
# A later step in the life of a row, unless the table is about that very step (`shipped_at` in shipments).
_LATER_STEP = word_set(
    "ship shipped shipping deliver delivered delivery return returned required approve approved paid payment "
    "complete completed resolve resolved cancel cancelled canceled cancellation accept accepted answered "
    "verified confirmed processed handled checkout discharge disch dropoff arrival arrived arr"
)
# When the thing itself began, which may be long before anyone wrote it down.
_OF_THE_THING = word_set(
    "hire hired founded founding established built build introduced launched launch incorporated opening "
    "construction manufactured production invented first debut release released discontinued"
)
_RECORDED = word_set(
    "created creation create inserted insert insertion occurred happened event recorded observed reported "
    "logged measured added ingested captured order ordered purchase purchased transaction post posted"
)
_BEGINNING = word_set(
    "start started starting begin began from departure depart departed dep pickup checkin open opened signup "
    "signed registered registration joined join enrolled enrollment admit admitted "
    "admission issue issued in published submitted sent received booked booking visit visited sale sold invoice trade"
)
_ENDINGS = re.compile(r"(ment|ings?|ions?|ed|ery|al|y|e|s)$")


@dataclass(frozen=True)
class _Candidate:
    column: Column
    reading: Reading
    confidence: float
    why: str


def guess_time(
    columns: Sequence[Column], noun: Noun, is_linked: bool, key: Column | None = None
) -> tuple[TimeColumn | None, list[Possible]]:
    """Returns the time column that is sure enough to be used, if any, and the others worth a look.

    `is_linked` says that the table points to others: a row of such a table is mostly an event. `key` is its primary
    key if that is one column of whole numbers.
    """
    readings = [(column, reading) for column in columns if (reading := reading_of(column)) is not None]
    hopeful = [column for column, _ in readings if _meaning(column.name, noun)[0] != _REFUSED]
    only = "the only time of its table" + (" that may be it" if len(readings) > 1 else "")
    candidates = [_candidate(c, r, noun, is_linked, only if hopeful == [c] else "") for c, r in readings]
    candidates = [  # a column that only repeats the days of one as good, and leaves out the hour, is none
        c
        for c in candidates
        if not any(
            other is not c and other.confidence >= c.confidence and _are_days_of(c.column, other.column)
            for other in candidates
        )
    ]
    if not any(c.confidence >= ACCEPT for c in candidates):
        candidates = [_judged_by_values(c, candidates, noun, key) for c in candidates]
    candidates.sort(key=lambda candidate: -candidate.confidence)
    best = candidates[0] if candidates and candidates[0].confidence >= ACCEPT else None
    if best:
        bound = max(best.confidence - _MARGIN, ACCEPT - 0.005)
        equal = [c for c in candidates if c is best or c.confidence > bound]
        if len(equal) > 1:
            names = " and ".join(f'"{c.column.name}"' for c in equal)
            doubted = [replace(c, why=f"{c.why}; {names} are equally likely") for c in equal]
            candidates, best = doubted + candidates[len(equal) :], None
    possible = [
        Possible(c.column.table, "time_col", (c.column.name,), None, c.confidence, c.why, c.reading.settings)
        for c in candidates
        if c is not best and c.confidence >= LIST
    ]
    if best is None and not hopeful and is_linked:  # a year is better than no time at all, if the user agrees
        possible += [
            Possible(
                column.table, "time_col", (column.name,), None, _A_YEAR, f"a year: {_YEAR_FIX}", _YEAR_FIX
            )
            for column in columns
            if is_year(column) and _meaning(column.name, noun)[0] != _REFUSED
        ]
    if best is None:
        return None, possible
    origin, reading = inferred(best.confidence, best.why), best.reading
    return TimeColumn(best.column.name, unit=reading.unit, format=reading.format, origin=origin), possible


def _are_days_of(days: Column, times: Column) -> bool:
    if days.kind != "time" or times.kind != "time" or days.num_missing or times.num_missing:
        return False
    fine = times.cells.cast(pa.timestamp("us"), safe=False)
    coarse = days.cells.cast(pa.timestamp("us"), safe=False)
    same_day = pc.equal(pc.floor_temporal(fine, unit="day"), coarse)
    return bool(pc.all(same_day).as_py()) and not fine.equals(coarse)


def _candidate(column: Column, reading: Reading, noun: Noun, is_linked: bool, only: str) -> _Candidate:
    strength, why = _meaning(column.name, noun)
    if strength == 0:
        strength, why = _unknown_meaning(column, is_linked, only)
    missing = column.num_missing / column.num_rows
    strength *= reading.trust * (1 - missing)
    reasons = [reading.kind, why]
    if missing:
        reasons.append(f"empty in {column.num_missing:,} of {column.num_rows:,} rows")
    if reading.doubt:
        reasons.append(reading.doubt)
        strength = min(strength, _NOT_SURE)
    return _Candidate(column, reading, round(strength, 2), ", ".join(reasons))


def _judged_by_values(
    candidate: _Candidate, candidates: Sequence[_Candidate], noun: Noun, key: Column | None
) -> _Candidate:
    """Returns the candidate surer than before if its values are those of a time at which rows are written."""
    column, reading = candidate.column, candidate.reading
    if _meaning(column.name, noun)[0] or reading.doubt or column.num_missing or column.num_rows < _FEW:
        return candidate
    own = _instants(column, reading)
    key = None if key is None or key.num_missing else key
    if own is None or own.min() == own.max() or (own == NEVER).any():
        return candidate
    in_order = own if key is None else own[np.argsort(key.cells.to_numpy(), kind="stable")]
    if (np.diff(in_order) >= 0).mean() < (1.0 if key is None else _RISES):
        return candidate
    for other in candidates:
        is_before = any(
            word in _BEFORE | _OF_THE_THING for word in map(singular, time_words(other.column.name))
        )
        times = None if other is candidate or is_before else _instants(other.column, other.reading)
        if times is not None and (times < own).mean() > _SELDOM:
            return candidate
    why = ["never empty", "the earliest time of its row" if len(candidates) > 1 else "", "rising with "]
    why[2] += f"the key {key.name}" if key else "the order of the rows"
    reasons = ", ".join([reading.kind, *filter(None, why)])
    return replace(candidate, confidence=round(_BY_VALUES * reading.trust, 2), why=reasons)


def _instants(column: Column, reading: Reading) -> NDArray[np.int64] | None:
    """Returns the times of all rows, `NEVER` where there is none; None if they cannot be read."""
    try:
        return to_utc(column.raw, column.label, reading.unit, reading.format).ns
    except QuartetError:
        return None


def _unknown_meaning(column: Column, is_linked: bool, only: str) -> tuple[float, str]:
    """Returns what a name without a known meaning is worth: little, unless nothing else can be the time.

    `only` says so, in words.
    """
    if not only:
        return _NOT_SURE, "one of several times"
    words = time_words(column.name)
    if words[-1:] == ("at",):
        return 0.85, only
    if is_linked and words[-1:] and words[-1] in TIME_WORDS:
        return 0.75, f"{only}, which points to others"
    cells = column.cells
    is_sorted = (
        column.kind == "time" and len(cells) > 1 and pc.all(pc.less_equal(cells[:-1], cells[1:])).as_py()
    )
    if is_linked and is_sorted:
        return 0.72, f"{only}, which points to others and is in its order"
    return _NOT_SURE, only


def _meaning(name: str, noun: Noun) -> tuple[float, str]:
    """Returns what the name says the time is of, as a strength and in words; 0 if it does not say."""
    core = [singular(word) for word in time_words(name) if word not in TIME_WORDS]
    own = {_stem(word) for word in noun}
    if any(map(_OTHER_PARTS.search, split(name))) or any(word in _OTHER_MEANING for word in core):
        return _REFUSED, "but the name says something other than when the row was made"
    if any(word in _LATER_STEP and _stem(word) not in own for word in core):
        return _REFUSED, "but the name says a later step"
    if any(word in _OF_THE_THING for word in core):
        return _REFUSED, "but the name says when the thing began, not the row"
    if any(word in _RECORDED for word in core):
        return _GOOD, "named like the time of a row"
    if all(_stem(word) in own for word in core):
        return _GOOD, "named like the time of the table" if core else "named like a time"
    if any(word in _BEGINNING for word in core):
        return _BEGINS, "named like a beginning"
    return 0.0, ""


def _stem(word: str) -> str:
    """`ship` for shipped and shipment."""
    bare = _ENDINGS.sub("", singular(word))
    return bare[:-1] if len(bare) > 3 and bare[-1] == bare[-2] else bare
