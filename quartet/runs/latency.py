"""Latency: how long a trained model takes for one prediction, and a blend that is made lighter until that is short."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from quartet.database import Database
from quartet.evaluation import COVERAGE, higher_is_better, selection_value
from quartet.findings import note
from quartet.listener import SILENT, Listener
from quartet.runs.checkpoint import Checkpoint
from quartet.runs.live import LiveModel
from quartet.training import Fitted, TrainingData

_ASKED = 9  # entities, one by one; the middle counts
_MOST_TRIED = 64  # blends

Clock = Callable[[], float]


@dataclass(frozen=True)
class Latency:
    """In how many seconds one prediction was to be made, in how many it is, and which members are gone for that."""

    limit: float
    measured: float
    dropped: tuple[str, ...]


def quick_enough(
    fitted: Fitted,
    checkpoint: Checkpoint,
    data: TrainingData,
    database: Database,
    limit: float,
    listener: Listener = SILENT,
    clock: Clock = time.perf_counter,
) -> tuple[Fitted, Latency]:
    """Returns a blend that answers one entity within a limit, and what was measured.

    Of those with fewer members it is the one that is best on validation; where none is quick enough, the quickest.
    """
    live = LiveModel([checkpoint], database, listener=SILENT)
    first = (measured(live, data, clock), fitted)
    tried = [first]
    slow: list[frozenset[int]] = []  # sets of members: those that hold one of them are no quicker
    for kept, lighter in _lighter(fitted, data) if first[0] > limit else ():
        if len(tried) > _MOST_TRIED or any(kept >= other for other in slow):
            continue
        live.members = (replace(checkpoint, model=lighter.model),)
        tried.append((measured(live, data, clock), lighter))
        if tried[-1][0] <= limit:
            break
        slow.append(kept)
    seconds, found = tried[-1] if tried[-1][0] <= limit else min(tried, key=lambda one: one[0])
    pairs = zip(fitted.model.members, fitted.model.weights, found.model.weights, strict=True)
    gone = tuple(
        f"{member.name}, random seed {member.rng_seed}" for member, old, new in pairs if old and not new
    )
    if gone or seconds > limit:
        told = f"one prediction takes {1e3 * first[0]:.0f} ms, {1e3 * limit:.0f} ms are wanted"
        told += f": without {' and '.join(gone)} it takes {1e3 * seconds:.0f} ms" if gone else ""
        told += "; nothing is quicker" if seconds > limit else ""
        listener.finding(note("C16", data.task.name, told, len(gone)))
    return found, Latency(limit, seconds, gone)


def measured(live: LiveModel, data: TrainingData, clock: Clock = time.perf_counter) -> float:
    """Returns the seconds in which a bound model answers one entity at a time at which it was asked before."""
    seeds, took = data.task.seeds("val"), []
    at = int(seeds.time.max())
    live.bind(at)
    table = data.task.database[data.task.spec.entity_table]
    places = np.unique(np.linspace(0, len(seeds) - 1, _ASKED).astype(np.int64))
    rows, times = seeds.node[places] - data.task.database.offsets[table.name], np.array([at])
    for number, row in enumerate([rows[0], *rows]):
        begin = clock()
        answers = live.all_answers(np.array([row]), times, SILENT)
        live.told(np.array([row]), times, answers, live.known_sures(at, SILENT), COVERAGE)
        if number:  # the first makes what all of a moment share
            took.append(clock() - begin)
    return float(np.median(took))


def _lighter(fitted: Fitted, data: TrainingData) -> Iterator[tuple[frozenset[int], Fitted]]:
    """Yields blends of fewer members, those that are best on validation first; the weights keep their proportions."""
    model, logits = fitted.model, fitted.validation or []
    asked = [place for place, weight in enumerate(model.weights) if weight]
    labels, kind = data.labels("val"), data.task.spec.type
    sign = 1 if higher_is_better(data.metric) else -1
    found: list[tuple[float, int, frozenset[int], Any, float]] = []
    for count in range(len(asked) - 1, 0, -1):
        for kept in combinations(asked, count):
            own = np.array([weight if place in kept else 0.0 for place, weight in enumerate(model.weights)])
            blend = replace(model, weights=tuple((own / own.sum()).tolist()))
            value = selection_value(kind, labels, data.output.scores(blend.blend(logits)))
            found.append((-sign * value, len(found), frozenset(kept), blend, value))
    for _, _, members, blend, value in sorted(found, key=lambda one: one[:2]):
        best = replace(fitted.best, validation=value)
        yield members, replace(fitted, model=blend, best=best, epochs=[best], chosen=blend.summary)
