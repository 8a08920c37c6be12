"""What was noticed or repaired in the data, counted and shown. Nothing is dropped in silence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum

_FEW = 3  # findings of one code that are shown one by one, and places that are named of more
_ONE_BY_ONE = ("D03", "L04")  # each may be a leak, with a fix of its own


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
    """Findings that print one to a line; many of one code print as one line. Go through them to see each."""

    __slots__ = ()

    def __str__(self) -> str:
        return "\n".join(map(str, grouped(self))) or "No problems found."

    __repr__ = __str__


def grouped(findings: Iterable[Finding]) -> list[Finding]:
    """Returns findings as people read them: where a code comes often, one line with the first and where the others are.

    It stands where the first stood, and counts what all of them count.
    """
    groups: dict[tuple[Level, str], list[Finding]] = {}
    ordered = list(findings)
    for finding in ordered:
        groups.setdefault((finding.level, finding.code), []).append(finding)
    shown = []
    for finding in ordered:
        group = groups[finding.level, finding.code]
        if len(group) <= _FEW or finding.code in _ONE_BY_ONE:
            shown.append(finding)
        elif finding is group[0]:
            places = list(dict.fromkeys(other.where for other in group[1:] if other.where))
            others = ", ".join(places[:_FEW]) + (", ..." if len(places) > _FEW else "")
            text = f"{finding.message}; and {len(group) - 1:,} more like it{f': {others}' if others else ''}"
            shown.append(replace(finding, message=text, count=sum(other.count for other in group)))
    return shown


def note(code: str, where: str, message: str, count: int = 0, fix: str = "") -> Finding:
    return Finding(Level.NOTE, code, where, message, count, fix)


def warning(code: str, where: str, message: str, count: int = 0, fix: str = "") -> Finding:
    return Finding(Level.WARNING, code, where, message, count, fix)


def counted(findings: Iterable[Finding], code: str, where: str | None = None) -> int:
    """How many rows, links or labels were reported under a code (of one place, if named)."""
    return sum(f.count for f in findings if f.code == code and where in (None, f.where))
