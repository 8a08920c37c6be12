"""`explain`: why entities have their scores; `global_view`: what a model uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from quartet.explain.cases import Cases
from quartet.explain.parts import shapley
from quartet.explain.reader import PARTS, Floats, Ints, Reader, Reading
from quartet.explain.result import Change, ColumnEffect, Effect, Explanation, Explanations, RowEffect
from quartet.explain.rows import Occlusion
from quartet.features import ColumnWords, column_words
from quartet.listener import Listener
from quartet.runs import LiveModel, question
from quartet.times import NEVER

_MOST_COLUMNS, _MOST_SHOWN = 12, 12
_KEPT = 4  # times whose known cases are kept
_AT_ONCE = 512


class Explainer:
    """A bound model, and the known cases at the times it was asked about."""

    def __init__(self, live: LiveModel) -> None:
        self.reader = Reader(live)
        self.cases: dict[int, Cases] = {}
        self.words: dict[str, ColumnWords] = {}

    def at(self, time: int) -> Cases:
        if time not in self.cases:
            while len(self.cases) >= _KEPT:
                self.cases.pop(next(iter(self.cases)))
            self.cases[time] = Cases(self.reader, time)
        for view, names in zip(self.reader.live.views, self.reader.names, strict=True):
            if names and not set(names) <= self.words.keys():
                self.words |= column_words(view.columns)
        return self.cases[time]


def explainer_of(live: LiveModel) -> Explainer:
    if live.explainer is None:
        live.explainer = Explainer(live)
    explainer: Explainer = live.explainer
    return explainer


def explain(
    live: LiveModel,
    entities: Sequence[Any] | None = None,
    at: Any = None,
    *,
    rows: bool = True,
    lookalikes: int = 5,
    everyone: bool = False,
    sealed: int = NEVER,
    listener: Listener | None = None,
) -> Explanations:
    """Returns why entities at times have their scores; who and when is said as in `live.predict`.

    Without `rows` hundreds of entities take seconds: parts, columns and look-alikes are found for all of them at once,
    while rows are taken away one by one. What happened to known cases from `sealed` on (in nanoseconds) is not told.
    """
    asked, listener = live.asked(entities, at, everyone=everyone), listener or live.listener
    listener.noticed(asked.findings)
    told: list[Explanation | None] = [None] * len(asked.rows)
    for time in np.unique(asked.times).tolist():
        places, words = (
            np.flatnonzero(asked.times == time),
            question(live.members[0].task.spec, np.array([time])),
        )
        for first in range(0, len(places), _AT_ONCE):
            some = places[first : first + _AT_ONCE]
            own = _explained(live, asked.rows[some], time, rows, lookalikes, sealed, listener)
            for place, each in zip(some, own, strict=True):
                told[place] = replace(each, task=words)
    return Explanations(tuple(each for each in told if each is not None), asked.headline)


def _explained(
    live: LiveModel, rows: Ints, time: int, with_rows: bool, lookalikes: int, sealed: int, listener: Listener
) -> list[Explanation]:
    explainer = explainer_of(live)
    cases, reader = explainer.at(time), explainer.reader
    times = np.full(len(rows), time)
    reading = reader.read(rows, times)
    scores = reader.scores(reader.logits(reading.parts))
    chosen = scores.argmax(1)
    parts, score, base = shapley(reader, reading, cases.means, chosen)
    columns = _columns(explainer, cases, reading, chosen, parts)
    alike = cases.look_alikes(reading, times, rows, lookalikes, sealed)
    archetypes = cases.archetypes(reading, explainer.words, sealed)
    record = live.members[0].task
    told = []
    for place, row in enumerate(rows.tolist()):
        key, name = reader.key_and_name(record.entity_table, row, time)
        shown: list[RowEffect] = []
        changes: tuple[Change, ...] = ()
        if with_rows:
            occlusion = Occlusion(reader, row, time, int(chosen[place]), float(score[place]))
            shown, alone = occlusion.strongest(_MOST_SHOWN)
            changes = occlusion.changes(shown, alone)
            listener.progress("explanations", 1, len(rows))
        told.append(
            Explanation(
                key=key,
                name=name,
                time=time,
                score=float(score[place]),
                base=float(base[place]),
                predicted="" if record.classes is None else str(record.classes[int(chosen[place])]),
                parts=tuple(Effect(part, PARTS[part], float(own[place])) for part, own in parts.items()),
                columns=columns[place],
                rows=tuple(shown),
                lookalikes=alike[place],
                archetype=archetypes[place],
                changes=changes,
                is_chance=not record.spec.facts.is_number,
            )
        )
    return told


def _columns(
    explainer: Explainer, cases: Cases, reading: Reading, chosen: Ints, parts: dict[str, Floats]
) -> list[tuple[ColumnEffect, ...]]:
    """Returns the columns of each seed that moved its score most; what all others did together is the last."""
    reader = explainer.reader
    names, effects = cases.shares.effects(reading, cases.means, chosen, parts)
    if not names:
        return [()] * len(reading)
    usual: dict[str, Floats] = {}
    values: dict[str, Floats] = {}
    for member, own in enumerate(reader.names):
        usual |= cases.usual(member)
        values |= dict(zip(own, reading.columns[member].astype(np.float64).T, strict=True))
    about = [explainer.words[name].about for name in names]
    told = []
    for place, own in enumerate(effects):
        kinds: dict[tuple[str, str], list[int]] = {}
        for at in np.argsort(-np.abs(own), kind="stable").tolist():
            if own[at]:
                kinds.setdefault(about[at], []).append(at)
        shown = []
        for kind in sorted(kinds.values(), key=lambda kind: -abs(own[kind].sum()))[:_MOST_COLUMNS]:
            total = float(own[kind].sum())
            name = names[kind[int(np.argmax(own[kind] * total))]]  # the strongest of the sign of all
            one = _told(name, explainer.words[name], values[name][place], usual[name], total)
            shown.append(replace(one, count=len(kind)))
        num_others = sum(map(len, kinds.values())) - sum(one.count for one in shown)
        if num_others:
            rest = float(own.sum() - sum(one.effect for one in shown))
            words = f"{num_others:,} other cells and aggregates"
            shown.append(ColumnEffect("", words, "", "", rest, "", num_others))
        told.append(tuple(shown))
    return told


def _told(name: str, words: ColumnWords, value: float, usual: Floats, effect: float) -> ColumnEffect:
    filled = usual[~np.isnan(usual)]
    middle = float("nan")
    if len(filled) * 2 > len(usual):
        values, counts = np.unique(filled, return_counts=True)
        middle = float(values[counts.argmax()]) if words.names else float(np.median(filled))
    shown, middle_shown = words.show(value), words.show(middle)
    return ColumnEffect(
        name, words.words, shown, middle_shown, float(effect), words.table, is_shared=words.is_shared
    )
