"""The tree of errors. Every message says what, where, got, expected, and what to do.

    QuartetError                  exit code
      UsageError                  2   the call is wrong: unknown source, unknown name, bad option
      DataError                   3   the data cannot be used as they are
        SchemaError                   tables, columns, keys and links (codes S..)
        TimeError                     times and cut-offs              (codes T..)
        TaskError                     tasks and labels                (codes L..)
          QueryError                  predictive queries              (codes Q..)
      ResourceError               4   not enough of the machine, or a component is absent
      IntegrityError              5   a file of ours is damaged or foreign
      InternalError              70   a mistake of ours                  (code X01)
      Stopped                   130   a training was asked to stop, and can go on

A message reads `error[S03] what, where, how many, first examples. Fix: what to do`.
What was repaired rather than refused is a `Finding` (see `findings.py`), never an error.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


class QuartetError(Exception):
    """An error with a code that can be looked up and a repair that can be followed."""

    exit_code = 1

    def __init__(self, code: str, what: str, fix: str = "", place: tuple[str, ...] = ()) -> None:
        self.code = code
        self.what = what
        self.fix = fix
        self.place = place  # lines that show where, with a caret below
        self.sentence = f"error[{code}] {what}" + (f". Fix: {fix}" if fix else "")
        super().__init__("\n".join((self.sentence, *place)))


class UsageError(QuartetError):
    exit_code = 2


class DataError(QuartetError):
    exit_code = 3


class SchemaError(DataError):
    pass


class TimeError(DataError):
    """An error of times; `rows` marks the cells that cannot be read, where it is about single cells."""

    def __init__(self, code: str, what: str, fix: str = "", rows: Any = None) -> None:
        super().__init__(code, what, fix)
        self.rows = rows


class TaskError(DataError):
    pass


class QueryError(TaskError):
    """A predictive query that cannot be read; its last lines show the place, with a caret below."""


class ResourceError(QuartetError):
    exit_code = 4


class IntegrityError(QuartetError):
    exit_code = 5


class InternalError(QuartetError):
    exit_code = 70


class Stopped(QuartetError):
    """A training was asked to stop; its state is kept, and `resume` goes on from there."""

    exit_code = 130

    def __init__(self, folder: object) -> None:
        self.folder = folder
        super().__init__(
            "C13", f"training was stopped; its state is in {folder}", f'go on with resume="{folder}"'
        )


def did_you_mean(got: object, known: Iterable[str]) -> str:
    """` (did you mean "x"?)` for the closest known name, or the list of the known ones."""
    names = sorted(known)
    by_lower = {name.lower(): name for name in names}
    close = difflib.get_close_matches(str(got).lower(), by_lower, n=1, cutoff=0.6)
    if close:
        return f' (did you mean "{by_lower[close[0]]}"?)'
    if not names:
        return ""
    shown = ", ".join(f'"{name}"' for name in names[:8])
    return f" (there are: {shown}{', ...' if len(names) > 8 else ''})"


def examples(values: Iterable[object], limit: int = 3) -> str:
    """`(a, b, c)`: the first few values, each shortened so that no cell floods a message."""
    shown: list[str] = []
    for value in values:
        if len(shown) == limit:
            break
        text = str(value)
        shown.append(text if len(text) <= 40 else text[:37] + "...")
    return f"({', '.join(shown)})"


def printable(text: object) -> str:
    """Returns the text with a mark for every control character: data cannot give orders to a terminal."""
    return "".join(letter if letter.isprintable() else "�" for letter in str(text))
