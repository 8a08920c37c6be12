"""Text in a strptime format, rearranged into ISO 8601, whatever the language of the machine.

Neither strptime at hand reads what is meant: Arrow's takes 30 February for 1 March and a leap second for the next
minute; DuckDB's knows no nanoseconds and no `Z`, and reads 2024111 by '%Y%m%d'.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

from quartet.errors import UsageError

_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_FULL_MONTHS = "january|february|march|april|may|june|july|august|september|october|november|december"
_DIRECTIVES = {  # letter: the part of a time that it gives, what it matches
    "Y": ("year", r"\d{4}"),
    "y": ("year", r"\d{2}"),
    "m": ("month", r"\d{1,2}"),
    "b": ("month", f"(?i:{'|'.join(_MONTHS)})"),
    "B": ("month", f"(?i:{_FULL_MONTHS})"),
    "d": ("day", r"\d{1,2}"),
    "H": ("hour", r"\d{1,2}"),
    "I": ("hour", r"\d{1,2}"),
    "M": ("minute", r"\d{1,2}"),
    "S": ("second", r"\d{1,2}"),
    "f": ("fraction", r"\d{1,9}"),
    "z": ("offset", r"Z|[+-]\d\d:?\d\d"),
    "p": ("half", "(?i:am|pm)"),
    "a": ("weekday", "[A-Za-z]+"),
    "A": ("weekday", "[A-Za-z]+"),
}
_ISO_PARTS = {  # in their order: the mark before each, and its value where a format leaves it out
    "year": ("", ""),
    "month": ("-", "01"),
    "day": ("-", "01"),
    "hour": ("T", "00"),
    "minute": (":", "00"),
    "second": (":", "00"),
    "fraction": (".", "0"),
    "offset": ("", ""),
}


def pattern_of(format: str, where: str) -> str:
    """Returns the regular expression of a strptime format, with a group for each directive, named by its letter."""
    letters = re.findall(r"%(.?)", format.replace("%%", ""), re.DOTALL)
    parts = [_DIRECTIVES[letter][0] for letter in letters if letter in _DIRECTIVES]
    clock = [part for part in _ISO_PARTS if part in parts and part != "offset"]
    left_out = [part for part in [*_ISO_PARTS][: len(clock) or 1] if part not in clock]
    problem = ""
    if unknown := [letter for letter in letters if letter not in _DIRECTIVES]:
        problem = f"has the unknown directive %{unknown[0]}"
    elif repeated := [part for part in parts if parts.count(part) > 1]:
        problem = f"gives the {repeated[0]} twice"
    elif left_out:
        problem = f"gives no {left_out[0]}"
    elif ("I" in letters) != ("p" in letters):
        problem = "has only one of %I and %p"
    if problem:
        known = " ".join(f"%{letter}" for letter in _DIRECTIVES)
        fix = f"use each part once, none left out above the smallest, of {known} %%"
        raise UsageError("C01", f"{where}: time_format '{format}' {problem}", fix)
    pattern = ""
    for letter, space, literal in re.findall(r"%(.)|(\s+)|([^%\s]+)", format):
        if letter and letter != "%":
            pattern += f"(?P<{letter}>{_DIRECTIVES[letter][1]})"
        else:
            pattern += r"\s+" if space else re.escape(letter or literal)
    # '%Y%m%d' must not choose whether 2024111 is 11 January or 1 November.
    is_run_together = re.search("%[YymdHIMSf]%[YymdHIMSf]", format)
    return f"^{pattern.replace('{1,2}', '{2}') if is_run_together else pattern}$"


def smallest_part(format: str) -> str:
    """Returns the smallest part of a time that a format gives: `year` of '%Y', `day` of '%d/%m/%Y'."""
    given = {_DIRECTIVES[letter][0] for letter in re.findall("%(.)", format) if letter in _DIRECTIVES}
    return [part for part in _ISO_PARTS if part in given and part != "offset"][-1]


def rearranged(text: pa.Array, format: str, where: str) -> pa.Array:
    """Returns the texts in ISO 8601 form, null where they are not of the format."""
    groups = pc.extract_regex(text, pattern=pattern_of(format, where))
    cells = dict(zip((group.name for group in groups.type), groups.flatten(), strict=True))
    parts = {_DIRECTIVES[letter][0]: _iso_part(letter, cells) for letter in cells}
    return _joined(*(x for part, (mark, value) in _ISO_PARTS.items() for x in (mark, parts.get(part, value))))


def _iso_part(letter: str, cells: dict[str, pa.Array]) -> pa.Array:
    """Returns what a directive has matched, written as ISO 8601 writes it."""
    part = cells[letter]
    if letter == "y":  # as POSIX reads two digits: 69 to 99 are 19.., 00 to 68 are 20..
        return _joined(pc.if_else(pc.less(part, "69"), "20", "19").cast(pa.large_string()), part)
    if letter in "bB":
        short = pc.utf8_slice_codeunits(pc.utf8_lower(part), 0, 3)
        part = pc.add(_place(short, _MONTHS), 1).cast(pa.large_string())
    if letter == "I":  # 0 to 23 for `12 am` to `11 pm`; null for an hour that such a clock does not show
        clock = [f"{hour or 12:02}{half}" for half in ("am", "pm") for hour in range(12)]
        written = _joined(pc.utf8_lpad(part, width=2, padding="0"), pc.utf8_lower(cells["p"]))
        part = _place(written, clock).cast(pa.large_string())
    return part if letter in "fz" else pc.utf8_lpad(part, width=2, padding="0")


def _place(text: pa.Array, known: list[str]) -> pa.Array:
    return pc.index_in(text, pa.array(known, pa.large_string()), skip_nulls=True)


def _joined(*pieces: pa.Array | str) -> pa.Array:
    """Returns the pieces in a row; null where one of them is."""
    cells = [pa.scalar(piece, pa.large_string()) if isinstance(piece, str) else piece for piece in pieces]
    return pc.binary_join_element_wise(*cells, pa.scalar("", pa.large_string()))
