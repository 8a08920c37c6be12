"""What an explanation holds: plain values that print, go into JSON and become a table.

Every effect is in the unit of the score: a probability (of several classes, that of the predicted one), or a value. A
positive effect has raised the score.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import RenderableType

from quartet.drawing import rendered
from quartet.errors import UsageError
from quartet.explain.show import explanation_view, global_view_text
from quartet.features import plain_table
from quartet.machine import as_path, new_file
from quartet.tasks import KNOWN_LABELS
from quartet.times import show_instant, to_arrow


@dataclass(frozen=True)
class Effect:
    """A part of the model, and by how much it moved the score: exact Shapley values, which add up to score - base."""

    name: str  # local, topology, feature, collab, temporal, memory, columns, trees, network
    words: str
    effect: float


@dataclass(frozen=True)
class ColumnEffect:
    """A cell or an aggregate; those of all columns add up to the effects of the parts that read columns.

    Where several tell of one cell or link, this is the strongest, with the effect of all of them. The last one has no
    name: it stands for all that are not listed.
    """

    name: str  # as the model knows it
    words: str  # "orders in the last 90 days"
    value: str
    usual: str  # the median among known cases
    effect: float
    table: str  # what it tells of; empty for the calendar
    count: int = (
        1  # columns that tell of the same cell or link in other ways, this one and those, add up to `effect`
    )
    is_shared: bool = (
        False  # the same for all who are asked about at one time: the calendar, all rows of a table
    )

    @property
    def sentence(self) -> str:
        if not self.value:
            return self.words
        usual = f", usually {self.usual}" if self.usual and self.usual != self.value else ""
        return f"{self.words}: {self.value}{usual}"


@dataclass(frozen=True)
class RowEffect:
    """A row, or rows of one path and span: the score less what it would be had they not been there."""

    table: str
    key: str  # of a single row; empty where there are several, or the table has none
    name: str
    time: int | None  # of the last of them, in nanoseconds UTC; None if always known
    path: str  # the links from the entity in words: "items of its orders"
    span: str  # "in the last 30 days"; empty for a single row
    cells: tuple[tuple[str, str], ...]  # of a group, those that all its rows share
    count: int
    effect: float
    nodes: tuple[int, ...]  # places of the rows in the bound database

    @property
    def words(self) -> str:
        if self.count > 1:
            shared = ", ".join(f"{name} {value}" for name, value in self.cells[:2])
            rows = f"{self.count:,} {plain_table(self.table)} {self.span}".rstrip()
            return f"{rows} (all with {shared})" if shared else rows
        when = f" of {show_instant(self.time)}" if self.time is not None else ""
        if self.table == KNOWN_LABELS:
            return f"its past label{when.replace(' of ', ' known since ')}"
        if not self.name and not self.key:  # of a table without a key
            return f"{self.table}{when}"
        return f"{self.table} {self.name or self.key}{when}"

    @property
    def sentence(self) -> str:
        """What the row is, with its first cells, and the links that lead to it where they say more than its table."""
        cells = ", ".join(f"{name} {value}" for name, value in self.cells[:3])
        is_label = self.table == KNOWN_LABELS
        shown = f"{self.words} ({cells.removeprefix('label ')})" if cells and self.count == 1 else self.words
        way = "" if is_label or self.path == self.table else self.path.removeprefix(f"{self.table} ")
        return f"{shown}{' ' if way.startswith('of ') else ', '}{way}" if way else shown


@dataclass(frozen=True)
class LookAlike:
    """A known case: an entity at an earlier time whose label was known when this one was asked about."""

    key: str
    name: str
    time: int
    outcome: str
    likeness: float  # 1: the model sees no difference


@dataclass(frozen=True)
class Change:
    """The fewest removals found that take the score across the threshold, verified through the model."""

    rows: tuple[RowEffect, ...]
    score: float  # without them
    threshold: float
    words: str


@dataclass(frozen=True)
class Explanation:
    """Why one entity at one time has its score. What the model does not have is absent: an empty tuple or text."""

    key: str
    name: str
    time: int
    score: float
    base: float  # the score of a model that has seen the mean of known cases
    predicted: str  # of several classes, the one that `score` is the probability of
    parts: tuple[Effect, ...]
    columns: tuple[ColumnEffect, ...] = ()
    rows: tuple[RowEffect, ...] = ()
    lookalikes: tuple[LookAlike, ...] = ()
    archetype: str = ""
    changes: tuple[Change, ...] = ()
    task: str = ""  # what is predicted, in words
    is_chance: bool = True  # whether scores are probabilities

    def reasons(self, num: int = 3, *, own: bool = False) -> list[str]:
        """Returns the strongest reasons in plain words: columns, else rows, else parts.

        Those that took the score where it is come first, then those that held it back. With `own`, what is the same
        for all who are asked about at this time is no reason.
        """
        side = 1 if self.score >= self.base else -1
        told: Sequence[ColumnEffect | RowEffect | Effect]
        for told in (self.columns, self.rows, self.parts):
            moved = [each for each in told if each.effect and not _is_rest(each)]
            if own:
                moved = [each for each in moved if not (isinstance(each, ColumnEffect) and each.is_shared)]
            if moved:
                moved.sort(key=lambda each: (side * each.effect < 0, -abs(each.effect)))
                return [
                    each.sentence if isinstance(each, ColumnEffect) else each.words for each in moved[:num]
                ]
        return []

    def to_dict(self) -> dict[str, Any]:
        """Returns plain values that JSON can hold; times are texts."""
        values = asdict(self)
        for place in (
            values,
            *values["rows"],
            *values["lookalikes"],
            *(r for c in values["changes"] for r in c["rows"]),
        ):
            place["time"] = None if place["time"] is None else show_instant(place["time"])
            place.pop("nodes", None)
        return values | {"reasons": self.reasons()}

    def grid(self, most: int = 5) -> RenderableType:
        """Returns the explanation for the terminal, so many lines of each kind."""
        return explanation_view(self, most)

    def __str__(self) -> str:
        return rendered(self.grid())

    __repr__ = __str__


def _is_rest(effect: ColumnEffect | RowEffect | Effect) -> bool:
    return isinstance(effect, ColumnEffect) and not effect.name


@dataclass(frozen=True)
class Explanations:
    """Explanations of several entities, in the order in which they were asked for."""

    items: tuple[Explanation, ...]
    headline: str = ""

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Explanation]:
        return iter(self.items)

    def __getitem__(self, place: int) -> Explanation:
        return self.items[place]

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.items))

    __repr__ = __str__

    def to_dict(self) -> dict[str, Any]:
        return {"headline": self.headline, "explanations": [item.to_dict() for item in self.items]}

    def to_arrow(self, num_reasons: int = 3) -> pa.Table:
        """Returns a row for each entity: key, name, time, score, base, the effect of each part, and reasons."""
        parts = list(dict.fromkeys(part.name for item in self.items for part in item.parts))
        effects = [{part.name: part.effect for part in item.parts} for item in self.items]
        reasons = [item.reasons(num_reasons) for item in self.items]
        columns: dict[str, Any] = {
            "key": pa.array([item.key for item in self.items], pa.string()),
            "name": pa.array([item.name for item in self.items], pa.string()),
            "time": to_arrow(np.array([item.time for item in self.items], np.int64)),
            "score": pa.array([item.score for item in self.items], pa.float64()),
            "base": pa.array([item.base for item in self.items], pa.float64()),
        }
        if any(item.predicted for item in self.items):
            columns["predicted"] = pa.array([item.predicted for item in self.items], pa.string())
        columns |= {
            f"part_{part}": pa.array([own.get(part) for own in effects], pa.float64()) for part in parts
        }
        for place in range(num_reasons):
            told = [own[place] if place < len(own) else None for own in reasons]
            columns[f"reason_{place + 1}"] = pa.array(told, pa.string())
        return pa.table(columns)

    def write(self, target: str | Path) -> None:
        """Writes a .json file with everything, or a .csv or .parquet file with a row for each entity."""
        explanation_writer(target)(self)


def explanation_writer(target: str | Path) -> Any:
    """Returns what writes explanations to a file; an error where nothing does."""
    import pyarrow.csv as csv
    import pyarrow.parquet as pq

    path = as_path(target, "the file")
    tables = {".csv": csv.write_csv, ".parquet": pq.write_table}
    if path.suffix not in (*tables, ".json"):
        fix = "name a .json, .csv or .parquet file"
        raise UsageError("C02", f'explanations cannot be written as "{path.suffix}"', fix)

    def write(explanations: Any) -> None:
        with new_file(path) as fresh:
            if path.suffix == ".json":
                text = json.dumps(explanations.to_dict(), indent=1, ensure_ascii=False)
                Path(fresh).write_text(text, encoding="utf-8")
            else:
                tables[path.suffix](explanations.to_arrow(), fresh)

    return write


@dataclass(frozen=True)
class Use:
    """Something that a model reads, and the mean of its absolute effects."""

    name: str
    words: str
    effect: float


@dataclass(frozen=True)
class Curve:
    """The mean score over seeds as one column alone is given other values, all else as it is."""

    name: str
    words: str
    values: tuple[float, ...]  # as the model reads them
    labels: tuple[str, ...]  # as people read them
    scores: tuple[float, ...]


@dataclass(frozen=True)
class GlobalView:
    """What a model uses over some seeds of validation, strongest first."""

    num_seeds: int
    base: float
    parts: tuple[Use, ...]
    columns: tuple[Use, ...] = ()
    tables: tuple[Use, ...] = ()
    links: tuple[Use, ...] = ()
    spans: tuple[Use, ...] = ()
    curves: tuple[Curve, ...] = ()
    task: str = ""
    is_chance: bool = True  # whether scores are probabilities

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def to_arrow(self) -> pa.Table:
        """Returns a row for each thing that is used."""
        kinds = ("parts", "columns", "tables", "links", "spans")
        uses: Sequence[tuple[str, Use]] = [(kind, use) for kind in kinds for use in getattr(self, kind)]
        rows = [{"kind": kind, **asdict(use)} for kind, use in uses]
        names = {"kind": pa.string(), "name": pa.string(), "words": pa.string(), "effect": pa.float64()}
        return pa.Table.from_pylist(rows, pa.schema(list(names.items())))

    def write(self, target: str | Path) -> None:
        explanation_writer(target)(self)

    def grid(self, most: int = 8) -> RenderableType:
        """Returns the view for the terminal, so many lines of each kind."""
        return global_view_text(self, most)

    def __str__(self) -> str:
        return rendered(self.grid())

    __repr__ = __str__
