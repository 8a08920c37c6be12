"""Relational columns in plain words, and their values as people know them: in units, categories and dates."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from quartet.database import Relation
from quartet.features.aggregates import RelationalColumns
from quartet.features.arrays import FIRST_CODE
from quartet.features.blocks import (
    Calendar,
    ClassBlock,
    LagBlock,
    OwnBlock,
    PathBlock,
    PlaceBlock,
    Way,
    WorldBlock,
)
from quartet.features.lists import ListBlock
from quartet.features.paths import LAST, WINDOWS, Path
from quartet.features.summed import SUM, TREND, Summed, TableCells
from quartet.features.waiting import COUNTED, WaitingBlock
from quartet.tasks import KNOWN_LABELS, LABEL
from quartet.times import DAY, SECOND, parse_length

_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_EVER, ALL_ROWS = "ever", "all rows"
_CALENDAR = ("month", "weekday", "hour of the day")
_ID = re.compile(r"_id$|(?<=[a-z])I[dD]$")  # "dest_id" is said as "dest"
PAST_LABELS, _LATEST_LABEL = "past labels", "its latest past label"
YES_NO = ("no", "yes")


@dataclass(frozen=True)
class ColumnWords:
    """What a column tells in words, of which table, by which links and over which span of time.

    A value is shown as `scale * value + shift`, or as one of `names`.
    """

    words: str
    table: str = ""
    link: str = ""
    span: str = ""
    scale: float = 1.0
    shift: float = 0.0
    cell: str = ""  # the cell that is summed up
    is_share: bool = False
    names: tuple[str, ...] = ()

    @property
    def is_shared(self) -> bool:
        """Whether it is the same for all who are asked about at one time."""
        return self.link == ALL_ROWS or (not self.link and self.words in _CALENDAR)

    @property
    def about(self) -> tuple[str, str]:
        """Returns what columns that tell of the same have in common."""
        return (self.link, self.cell) if self.link else (self.words, "")

    def show(self, value: float) -> str:
        """Returns a value as people read it; "none" where there is none."""
        if math.isnan(value):
            return "none"
        if self.names:
            return self.names[min(max(int(value), 0), len(self.names) - 1)]
        number = self.scale * value + self.shift
        if self.is_share:
            return f"{number:.0%}"
        is_whole = abs(number - round(number)) < 1e-4 or abs(number) >= 999.5
        return f"{round(number):,}" if is_whole else f"{number:.3g}"


def plain_table(table: str) -> str:
    """Returns the name of a table; that of the past labels in words."""
    return PAST_LABELS if table == KNOWN_LABELS else table


def link_words(relation: Relation, relations: Iterable[Relation], to_parent: bool = False) -> str:
    """Returns the rows that a link leads to in words: "orders", or "flights by dest" where several links lead there."""
    if relation.table == KNOWN_LABELS and not to_parent:
        return PAST_LABELS
    ends = (relation.table, relation.parent)
    labels = {r.foreign_key.distinct_label for r in relations if (r.table, r.parent) == ends}
    own, table = relation.foreign_key.distinct_label, relation.parent if to_parent else relation.table
    if labels <= {own}:
        return table
    short = [_ID.sub("", label) or label for label in labels]
    return f"{table} by {own if short.count(_ID.sub('', own)) != 1 else _ID.sub('', own)}"


def column_words(columns: RelationalColumns) -> dict[str, ColumnWords]:
    """Returns all columns in words, by their names."""
    found: list[Relation] = []
    for block in columns.blocks:
        if isinstance(block, PathBlock):
            found += [link for link in (block.path.first, block.path.second) if link is not None]
        if isinstance(block, WaitingBlock):
            found.append(block.below)
        if isinstance(block, (PathBlock, OwnBlock)):
            found += [link for link, _ in block.way.links if isinstance(link, Relation)]

    def noun(relation: Relation, to_parent: bool = False) -> str:
        return link_words(relation, found, to_parent)

    told: dict[str, ColumnWords] = {}
    for block in columns.blocks:
        words: list[ColumnWords]
        if isinstance(block, Calendar):
            words = [
                ColumnWords(_CALENDAR[0], names=_MONTHS), ColumnWords(_CALENDAR[1], names=_WEEKDAYS),
                ColumnWords(_CALENDAR[2]), ColumnWords("days since it became known"),
            ]  # fmt: skip
        elif isinstance(block, OwnBlock):
            words = list(_own(block, noun))
        elif isinstance(block, LagBlock):
            words = list(_lags(block))
        elif isinstance(block, ListBlock):
            words = list(_list_words(block))
        elif isinstance(block, ClassBlock):
            words = list(_class_words(block, _subject(block.path, block.way, noun)))
        elif isinstance(block, WaitingBlock):
            words = list(_waiting_words(block, _subject(block.path, block.way, noun), noun(block.below)))
        elif isinstance(block, PathBlock):
            words = list(_path(block.path, block.summed, _subject(block.path, block.way, noun)))
        else:
            assert isinstance(block, (PlaceBlock, WorldBlock))
            subject = (
                f"all {plain_table(block.path.table)}"
                if isinstance(block, WorldBlock)
                else _subject(block.path, Way(), noun)
            )
            inside = list(_path(block.path, block.summed, subject))
            if isinstance(block, PlaceBlock):
                kept = [inside[place] for place in block._kept]
                words = [
                    one
                    for each in kept
                    for one in (
                        replace(
                            each,
                            words=f"{each.words}, share of {block.table} it exceeds",
                            scale=1,
                            shift=0,
                            is_share=True,
                        ),
                        replace(
                            each, words=f"{each.words}, distance to the highest of {block.table}", shift=0
                        ),
                    )
                ]
            else:
                rates = [
                    ColumnWords(
                        f"{subject} in the last {_short(short)}, as a part of those in the last {_short(long)}",
                        block.path.table, ALL_ROWS, f"last {short}", is_share=True,
                    )
                    for short, long in pairwise(block.path.windows[1:4])
                ]  # fmt: skip
                words = [*rates, *(replace(inside[place], link=ALL_ROWS) for place in block._kept)]
        told |= dict(zip(block.names, words, strict=True))
    return told


def _subject(path: Path, way: Way, noun: Callable[..., str]) -> str:
    subject = path.label
    if path.first is not None:
        subject = noun(path.first)
        if path.second is not None:
            subject = f"{noun(path.second, to_parent=not path.is_count)} of its {subject}"
    return subject + _of_parents(way, noun)


def _of_parents(way: Way, noun: Callable[..., str]) -> str:
    parents = [noun(link, to_parent=True) for link, _ in way.links if isinstance(link, Relation)]
    return "".join(f" of its {parent}" for parent in reversed(parents))


def _own(block: OwnBlock, noun: Callable[..., str]) -> Iterator[ColumnWords]:
    table, of_parent = block.cells.table.name, _of_parents(block.way, noun)
    facts = ColumnWords("", table, block.way.label.rstrip(", ") or "its own row", "")
    statistics = block.cells.features.statistics.tables[table]
    for name, column in statistics.of("category").items():
        names = ("none", "a new value", *map(str, column.vocabulary))
        assert len(names) == FIRST_CODE + len(column.vocabulary)
        yield replace(facts, words=name + of_parent, cell=name, names=names)
    for name in block.cells.numbers:
        yield _in_units(replace(facts, words=name + of_parent, cell=name), block.cells, name)
    num_texts = len(block.cells.own) - len(statistics.of("category")) - len(block.cells.numbers)
    texts = [
        name.rpartition(" (text ")[0] for name in list(block.cells.own)[len(block.cells.own) - num_texts :]
    ]
    yield from (replace(facts, words=f"wording of {name}{of_parent}", cell=name) for name in texts)
    yield from (
        replace(facts, words=f"days since {name}{of_parent}", cell=name) for name in block.cells.dates
    )
    if block.way.links:
        yield replace(facts, words=f"days since{of_parent} became known", cell="age")


def _in_units(words: ColumnWords, cells: TableCells, name: str, kind: int = 0) -> ColumnWords:
    """Returns words whose values are shown in the column's own unit; sizes of texts and sets stay logarithms."""
    column = cells.features.statistics.tables[cells.table.name].of("number").get(name)
    if column is None:
        return words
    return replace(words, scale=column.std, shift=0.0 if kind in (SUM, TREND) else column.mean)


def _path(path: Path, summed: Summed, subject: str) -> Iterator[ColumnWords]:
    facts = ColumnWords("", path.table, path.label, _EVER)
    them = f"the {subject}" if " of its " in subject else f"its {subject}"
    them = subject if subject.startswith("all ") else them
    if path.is_count:
        yield replace(facts, words=f"{subject} so far")
        for window in path.windows:
            yield replace(facts, words=f"{subject} in the last {_short(window)}", span=f"last {window}")
        one = _short(path.windows[0])
        yield replace(
            facts, words=f"{subject} in the last {one} less those in the {one} before", span=f"last {one}"
        )
        yield replace(facts, words=f"days since the last of {them}", span="latest")
        yield replace(facts, words=f"days since the first of {them}")
    for part in summed.parts:
        for name in part.names:
            for what, (kind, _, _) in path.kinds(part).items():
                span = next((f"last {w}" for w in path.windows if what.endswith(f"of {w}")), _EVER)
                lately = f" in the last {_short(span.removeprefix('last '))}" if span != _EVER else ""
                of = f"of {subject}{lately}"
                if what == "latest":
                    span, of = "latest", f"of the latest of {them}"
                elif " the last " in what:
                    span = what.removeprefix("mean of the ")
                    of = f"of the {span} {subject}"
                elif kind == TREND:
                    span = f"last {path.windows[0]}"
                    one = _short(path.windows[0])
                    of = f"of {subject}, the last {one} against the {one} before"
                about = replace(facts, span=span, cell=name)
                if part.is_number:
                    how = {SUM: "sum of ", TREND: "change of the mean "}.get(
                        kind, "" if what == "latest" else "mean "
                    )
                    text = f"{how}{name} {of}"
                    is_label = path.table == KNOWN_LABELS and name == LABEL
                    if is_label and how:  # their one cell is the label
                        text = f"{how.removesuffix('of ')}{of}"
                    elif is_label and subject == PAST_LABELS:
                        text = _LATEST_LABEL
                    yield _in_units(replace(about, words=text), summed.table, name, kind)
                else:
                    is_label = path.table == KNOWN_LABELS
                    if what == "latest":
                        text = f"the latest of {them} has {name}"
                        text = f"{_LATEST_LABEL} {_told(name)}" if subject == PAST_LABELS else text
                        yield replace(about, words=text, names=YES_NO)
                        continue
                    how = "number" if kind == SUM else "share"
                    text = f"{how} {of} {f'that {_told(name, True)}' if is_label else f'with {name}'}"
                    yield replace(about, words=text, is_share=kind != SUM)
    assert len(path.windows) == len(WINDOWS)


def _lags(block: LagBlock) -> Iterator[ColumnWords]:
    facts = ColumnWords("", block.path.table, block.path.label, "latest")
    for name in block.names:
        what, _, way = name.removeprefix(f"{block.path.label} -> ").rpartition(": ")
        which = _LATEST_LABEL if way == "the latest" else f"its label {way}"
        if what == "days since":
            yield replace(facts, words=f"days since {which} became known")
        elif what in block.cells.numbers:
            words = which if what == LABEL else f"{what} of {which}"
            yield _in_units(replace(facts, words=words, cell=what), block.cells, what)
        else:
            yield replace(facts, words=f"{which} {_told(what)}", cell=what, names=YES_NO)


def _told(flag: str, were: bool = False) -> str:
    """Returns what a flag of a label says of it, after the label: "is DAP", of a list "has DAP"."""
    value, is_list = flag.removeprefix(f"{LABEL} = "), flag.startswith(f"{LABEL} has ")
    if is_list:
        return f"{'had' if were else 'has'} {flag.removeprefix(f'{LABEL} has ')}"
    return f"{'were' if were else 'is'} {value}"


def _list_words(block: ListBlock) -> Iterator[ColumnWords]:
    facts = ColumnWords("", block.path.table, block.path.label, _EVER)
    for name in block.classes:
        about = replace(facts, cell=f"{block.label} has {name}")
        yield replace(about, words=f"share of {PAST_LABELS} that had {name}", is_share=True)
        text = f"share of the last {LAST} {PAST_LABELS} that had {name}"
        yield replace(about, words=text, span=f"last {LAST}", is_share=True)
        text = f"days since a past label that had {name} became known"
        yield replace(about, words=text, span="latest", scale=block.path.unit / DAY)


def _class_words(block: ClassBlock, subject: str) -> Iterator[ColumnWords]:
    column = block.cells.features.statistics.tables[block.path.table].of("category")[block.label]
    names = ("none", "a new value", *map(str, column.vocabulary))
    facts = ColumnWords("", block.path.table, block.path.label, "latest", cell=block.label, names=names)
    yield replace(facts, words=f"the latest of {subject}")
    yield replace(facts, words=f"the commonest of the last {LAST} {subject}", span=f"last {LAST}")


def _waiting_words(block: WaitingBlock, subject: str, others: str) -> Iterator[ColumnWords]:
    facts = ColumnWords("", block.path.table, block.path.label, "latest", cell=f"without {others}")
    for number in COUNTED:
        span = "latest" if number == 1 else f"last {number}"
        yield replace(facts, words=f"number of the {span} {subject} without {others} yet", span=span)
    text = f"days since the first of the last {LAST} {subject} without {others} yet"
    yield replace(facts, words=text, span=f"last {LAST}")


def _short(window: str) -> str:
    """Returns a window as it is said after "the last": day, 2 days, 36 hours, 48 minutes."""
    length = parse_length(window, "window")
    for name, unit in (("day", DAY), ("hour", 3600 * SECOND), ("minute", 60 * SECOND)):
        if length % unit == 0:
            return name if length == unit else f"{length // unit} {name}s"
    return window
