"""What was noticed or repaired in the data, counted and shown. Nothing is dropped in silence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class Level(Enum):
    NOTE = "note"
    WARNING = "warning"


@dataclass(frozen=True)
class Finding:
    """One line of the report on a database or a task.

    `count` is the number of rows, links or labels concerned, so that what went in equals
    what is used plus what is reported.
    """

    level: Level
    code: str
    where: str
    message: str
    count: int = 0
    fix: str = ""

    def __str__(self) -> str:
        return f"{self.level.value}[{self.code}] {self.message}" + (f". Fix: {self.fix}" if self.fix else "")


class Findings(tuple[Finding, ...]):
    """Findings that print one to a line."""

    __slots__ = ()

    def __str__(self) -> str:
        return "\n".join(map(str, self)) or "No problems found."

    __repr__ = __str__


def note(code: str, where: str, message: str, count: int = 0, fix: str = "") -> Finding:
    return Finding(Level.NOTE, code, where, message, count, fix)


def warning(code: str, where: str, message: str, count: int = 0, fix: str = "") -> Finding:
    return Finding(Level.WARNING, code, where, message, count, fix)


def counted(findings: Iterable[Finding], code: str, where: str | None = None) -> int:
    """How many rows, links or labels were reported under a code (of one place, if named)."""
    return sum(f.count for f in findings if f.code == code and where in (None, f.where))
