"""What came of what was said: predictions that a run has kept, judged by labels that are known by now."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from rich.console import Group, RenderableType

from quartet.causal import visible
from quartet.database import Table
from quartet.drawing import cell, new_grid, rendered
from quartet.errors import UsageError
from quartet.evaluation import (
    NO_ITEM,
    Lists,
    Measure,
    average_precisions,
    list_measures,
    main_metric,
    measures,
)
from quartet.features import column_words
from quartet.machine import intact
from quartet.runs.drift import SCORE
from quartet.runs.evaluate import kept_evaluations
from quartet.runs.live import LiveModel, entity_rows
from quartet.runs.ranking import list_length
from quartet.runs.run import Run
from quartet.runs.said import read_said
from quartet.runs.show import evaluation_grid
from quartet.tasks import Links, Seeds
from quartet.times import parse_instant, show_instant

JUDGED = "said.json"
_MOST_TIMES = 12  # that are shown one by one, the latest
_MOST_DRIFT = 8  # columns, those furthest from training

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class SaidAt:
    """What was said at one time, on average, and what came."""

    time: str
    rows: int
    said: float
    came: float
    value: float | None  # of the main metric


@dataclass(frozen=True)
class DriftLine:
    """How far a column of those who were asked about lies from training, and how far that of test did."""

    words: str
    index: float
    test: float
    has_drifted: bool


@dataclass(frozen=True)
class Judgement:
    """How good what a model really said was, with the drift of what it read. Prints as a table.

    `rows` has the measures of what was said and, beside them, those of test when the run was evaluated there. Of
    `num_said` predictions `num_judged` have a label by now, `num_open` will have one, and the rest get none.
    """

    task: str
    model: str
    first: str
    last: str
    num_said: int
    num_judged: int
    num_open: int
    rows: tuple[tuple[str, Mapping[str, Measure]], ...]
    times: tuple[SaidAt, ...] = ()
    held: float | None = None  # how often the interval or set that was said held
    drift: tuple[DriftLine, ...] = ()

    def __str__(self) -> str:
        return rendered(self.grid())

    __repr__ = __str__

    def lines(self) -> list[str]:
        """Returns in words how much of it could be judged, and how often intervals or sets held."""
        rest = self.num_said - self.num_judged - self.num_open
        told = f"{self.num_judged:,} of {self.num_said:,} predictions have a label by now"
        told += f", {self.num_open:,} will have one" if self.num_open else ""
        told += f", {rest:,} get none from the task" if rest else ""
        held = [f"the intervals or sets that were said held {self.held:.1%}"] if self.held is not None else []
        return [told, *held]

    def grid(self) -> RenderableType:
        title = f"{self.task}, what {self.model} said from {self.first} to {self.last}"
        parts: list[RenderableType] = [evaluation_grid(title, self.rows, (), self.lines())]
        if self.times:
            metric = next(iter(self.rows[0][1]))
            names = ("rows", "said on average", "came on average", metric)
            shown = new_grid("", "time", *names, right=names)
            for one in self.times:
                numbers = (
                    f"{one.said:.4g}",
                    f"{one.came:.4g}",
                    "–" if one.value is None else f"{one.value:.4f}",
                )
                shown.add_row(cell(one.time), cell(f"{one.rows:,}"), *map(cell, numbers))
            parts.append(shown)
        if self.drift:
            shown = new_grid(
                "drift of what it read (0: as in training)", "", "then", "on test", right=("then", "on test")
            )
            for line in self.drift:
                style = "yellow" if line.has_drifted else ""
                shown.add_row(
                    cell(line.words, style), cell(f"{line.index:.2f}", style), cell(f"{line.test:.2f}")
                )
            parts.append(shown)
        return Group(*parts)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(content: Mapping[str, Any]) -> Judgement:
        rows = tuple((name, {k: Measure(**m) for k, m in own.items()}) for name, own in content["rows"])
        times = tuple(SaidAt(**one) for one in content["times"])
        drift = tuple(DriftLine(**one) for one in content["drift"])
        return Judgement(**{**content, "rows": rows, "times": times, "drift": drift})


def kept_judgement_of_said(run: Run) -> Judgement | None:
    """Returns what came of what a run said, if that was judged."""
    if not (run.folder / JUDGED).is_file():
        return None
    told = run.read(JUDGED)
    with intact(run.folder / JUDGED, "judge it again: quartet evaluate RUN --said"):
        return Judgement.from_dict(told)


def judge_said(live: LiveModel, run: Run, labels: pa.Table | None = None) -> Judgement:
    """Returns how good what a run said was, by the labels that the database of a bound model tells by now.

    A label counts once it is known at the end of the data.
    """
    member = live.members[0]
    record, spec = member.task, member.task.spec
    said, database = read_said(run), live.database
    upto = database.span[1] if database.span else 0
    table = database[record.entity_table]
    rows = entity_rows(table, said["entity"].to_pylist(), or_none=True)  # some may have gone since
    times = np.array([parse_instant(text, "the record") for text in said["time"].to_pylist()], np.int64)
    cases = record.cases_at(database, times, upto, labels)
    is_cell = spec.kind == "autocomplete"  # a label belongs to its row, whenever that was asked about
    at = _places(cases, rows, None if is_cell else times)
    is_open = at < 0 if is_cell else ~visible(spec.known_at(times), upto)
    judged = at >= 0
    if not judged.any():
        what = f"of {len(rows):,} predictions none has a label by {show_instant(upto)}"
        raise UsageError("L01", what, "judge later, with a database that has grown: --source")
    own = said.filter(pa.array(judged))
    if isinstance(cases.target, Links):
        k, item = list_length(spec), database[spec.item_table]
        links, lists = _taken(cases.target, at[judged]), _lists_of(own, item, database.offsets[item.name], k)
        num_known = int(visible(item.known_at, upto).sum())
        figures = list_measures(links, lists, k, rows[judged], num_known)
        by_time, held = list(_lists_by_time(times[judged], links, lists, k)), None
    else:
        target, name = np.asarray(cases.target)[at[judged]], "score" if record.classes is None else "scores"
        told = own[name].to_pylist()
        scores = np.array(told if record.classes is None else [json.loads(text) for text in told], np.float64)
        figures = measures(spec.type, target, scores, entity=rows[judged])
        by_time = list(_by_time(spec.type, times[judged], target, scores))
        held = _held(own, target, record.classes, spec.facts.is_number)
    beside = [
        (f"on test ({kept.protocol})", {name: kept.rows[0].measures[name] for name in figures})
        for kept in kept_evaluations(run)
        if kept.split == "test" and set(figures) <= set(kept.rows[0].measures)
    ][:1]
    judgement = Judgement(
        record.name, run.folder.name, show_instant(int(times.min())), show_instant(int(times.max())), len(rows),
        int(judged.sum()), int(is_open.sum()), (("as said", figures), *beside),
        tuple(by_time), held,
        tuple(_drift(live, rows, times)),
    )  # fmt: skip
    run.write(JUDGED, judgement.to_dict())
    return judgement


def _places(cases: Seeds, rows: Ints, times: Ints | None) -> Ints:
    """Returns the case of each row at its time, or of each row alone where no times are given; -1 for none."""
    if times is None:
        known = {int(node): place for place, node in enumerate(cases.node)}
        return np.array([known.get(int(row), -1) for row in rows], np.int64)
    pairs = {(int(n), int(t)): place for place, (n, t) in enumerate(zip(cases.node, cases.time, strict=True))}
    return np.array([pairs.get((int(r), int(t)), -1) for r, t in zip(rows, times, strict=True)], np.int64)


def _taken(target: Links, places: Ints) -> Links:
    parts = [target.nodes[target.offsets[place] : target.offsets[place + 1]] for place in places]
    return Links(np.cumsum([0, *map(len, parts)]), np.concatenate(parts))


def _lists_of(said: pa.Table, item: Table, offset: int, k: int) -> Lists:
    """Returns the lists that were said; an item that has gone since keeps its place, and is none that came."""
    told = [json.loads(text) for text in said["scores"].to_pylist()]
    keys = sorted({key for own in told for key, _ in own})
    row = dict(zip(keys, entity_rows(item, keys, or_none=True).tolist(), strict=True))
    items = np.full((len(told), max([k, *map(len, told)])), NO_ITEM, np.int64)
    scores = np.full(items.shape, np.nan)
    for place, own in enumerate(told):
        items[place, : len(own)] = [row[key] + offset if row[key] >= 0 else NO_ITEM for key, _ in own]
        scores[place, : len(own)] = [score for _, score in own]
    return Lists(items, scores)


def _lists_by_time(times: Ints, target: Links, lists: Lists, k: int) -> Iterator[SaidAt]:
    """Yields how many items were said and came at each time, on average, and MAP."""
    said, came = (lists.items != NO_ITEM).sum(1), np.diff(target.offsets)
    for time in np.unique(times)[-_MOST_TIMES:]:
        own = times == time
        value = average_precisions(target[own], Lists(lists.items[own], lists.scores[own]), k)
        yield SaidAt(
            show_instant(int(time)), int(own.sum()), float(said[own].mean()), float(came[own].mean()),
            float(value.mean()) if len(value) else None,
        )  # fmt: skip


def _held(
    said: pa.Table, target: NDArray[Any], classes: Sequence[Any] | None, is_number: bool
) -> float | None:
    """Returns how often the interval or the set of classes that was said held; None where nothing was."""
    if is_number:
        low, high = (np.array(said[name].to_pylist(), np.float64) for name in ("low", "high"))
        known = np.isfinite(low) & np.isfinite(high)
        return float(((low <= target) & (target <= high))[known].mean()) if known.any() else None
    sets = said["set"].to_pylist()
    names = [str(name) for name in (classes or (0, 1))]
    told = [(text, int(own)) for text, own in zip(sets, target, strict=True) if text is not None]
    if not told:
        return None
    return float(np.mean([own < len(names) and names[own] in _members(text) for text, own in told]))


def _members(text: str) -> list[str]:
    """Returns the classes in a set as predictions write it: `{a,"b, c"}`."""
    found, rest, decoder = [], text[1:-1], json.JSONDecoder()
    while rest:
        if rest.startswith('"'):
            name, end = decoder.raw_decode(rest)
        else:
            end = rest.find(",") if "," in rest else len(rest)
            name = rest[:end]
        found.append(str(name))
        rest = rest[end + 1 :]
    return found


def _by_time(kind: Any, times: Ints, target: NDArray[Any], scores: Floats) -> Iterator[SaidAt]:
    metric = main_metric(kind)
    for time in np.unique(times)[-_MOST_TIMES:]:
        own, value = times == time, None
        if own.sum() > 1:
            value = measures(kind, target[own], scores[own], num_resamples=0)[metric].value
        of_first, came = scores[own], target[own]
        if target.ndim > 1:  # how many classes
            of_first, came = of_first.sum(1), came.sum(1)
        elif scores.ndim > 1:  # how sure it was, how often right
            of_first, came = of_first.max(1), of_first.argmax(1) == came
        yield SaidAt(
            show_instant(int(time)), int(own.sum()), float(of_first.mean()), float(np.mean(came)), value
        )


def _drift(live: LiveModel, rows: Ints, times: Ints) -> list[DriftLine]:
    """Returns the columns that the model watches, the furthest from training first."""
    live.bind(int(times.max()))
    member, view = live.members[0], live.views[0]
    watched = [column for column in (member.drift.columns if member.drift else ()) if column.name != SCORE]
    known = set(view.columns.names) if watched else set()
    watched = [column for column in watched if column.name in known]
    early = (rows < 0) | ~visible(live.database[view.entity_table].known_at[rows], times)
    if not watched or early.all():
        return []
    seeds = Seeds(rows[~early] + view.database.offsets[view.entity_table], times[~early], None)
    matrix = view.matrix(seeds, tuple(column.name for column in watched)).astype(np.float64)
    words = column_words(view.columns)
    lines = [
        DriftLine(words[c.name].words, c.index(matrix[:, i]), c.test, c.has_drifted(matrix[:, i]))
        for i, c in enumerate(watched)
    ]
    return sorted(lines, key=lambda line: (-line.index, line.words))[:_MOST_DRIFT]
