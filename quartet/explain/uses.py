"""`global_view`: what a model uses over the seeds of validation: parts, columns, tables, links, spans of time."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from quartet.database import Database
from quartet.explain.parts import shapley
from quartet.explain.reader import PARTS, Floats, Ints, Reading
from quartet.explain.result import Curve, GlobalView, Use
from quartet.explain.rows import Occlusion, path_words
from quartet.explain.why import Explainer, explainer_of
from quartet.features import YES_NO, plain_table
from quartet.listener import Listener
from quartet.runs import TrainedModel
from quartet.times import show_instant

_ROW_SEEDS = 24  # for which tables, links and spans are taken away
_CURVES, _POINTS = 4, 7
_AT_ONCE = 512
_MOST_COLUMNS = 30


def global_view(
    model: TrainedModel,
    database: Database | None = None,
    *,
    num_seeds: int = 200,
    device: str = "auto",
    listener: Listener | None = None,
) -> GlobalView:
    """Returns what a model uses: mean absolute effects over seeds of validation, spread evenly among all of them.

    Parts and columns are those of `explain`. A table, a link or a span of time counts by what the score would be
    without all its rows nearby, over fewer seeds. A curve has the mean score where one column alone has other values.
    """
    task = model.task
    live = model.on(task.full_database if database is None else database, device=device, listener=listener)
    asked = task.asked_seeds("val")
    some = np.unique(np.linspace(0, len(asked) - 1, num_seeds).astype(np.int64))
    rows = asked.node[some] - task.full_database.offsets[task.spec.entity_table]
    times = asked.time[some]
    live.bind(int(times.max()))
    explainer = explainer_of(live)
    reader, cases = explainer.reader, explainer.at(int(asked.time.min()))
    reading = reader.read(rows, times)
    chosen = reader.scores(reader.logits(reading.parts)).argmax(1)
    parts, score, base = shapley(reader, reading, cases.means, chosen)
    names, effects = cases.shares.effects(reading, cases.means, chosen, parts)
    about: dict[tuple[str, str], list[int]] = {}
    for place, name in enumerate(names):
        about.setdefault(explainer.words[name].about, []).append(place)
    columns = []
    for places in about.values():
        strongest = places[int(np.abs(effects[:, places]).mean(0).argmax())]
        use = float(np.abs(effects[:, places].sum(1)).mean())
        columns.append(Use(names[strongest], explainer.words[names[strongest]].words, use))
    columns.sort(key=lambda use: -use.effect)
    few = np.unique(np.linspace(0, len(rows) - 1, _ROW_SEEDS).astype(np.int64))
    seeds = [
        Occlusion(reader, int(rows[at]), int(times[at]), int(chosen[at]), float(score[at])) for at in few
    ]
    tables, links, spans = _occluded(seeds)
    return GlobalView(
        num_seeds=len(rows),
        base=float(base.mean()),
        parts=_uses((name, PARTS[name], np.abs(effect).mean()) for name, effect in parts.items()),
        columns=tuple(columns[:_MOST_COLUMNS]),
        tables=tables,
        links=links,
        spans=spans,
        curves=_curves(explainer, reading, chosen, [use.name for use in columns if use.effect]),
        task=f"{task.name}: {task.spec.target_col}, validation from {show_instant(task.splits.val)} on",
        is_chance=not task.spec.facts.is_number,
    )


def _uses(uses: Iterable[tuple[str, str, float]]) -> tuple[Use, ...]:
    told = [Use(name, words, float(effect)) for name, words, effect in uses]
    return tuple(sorted(told, key=lambda use: -use.effect))


def _occluded(seeds: list[Occlusion]) -> tuple[tuple[Use, ...], tuple[Use, ...], tuple[Use, ...]]:
    """Returns the mean absolute effects of all rows nearby of each table, of each link, and of each span."""
    kinds: list[dict[str, float]] = [{}, {}, {}]
    for seed in seeds:
        _, groups = seed.plain_groups()
        keyed: dict[tuple[int, str], list[Ints]] = {}
        for path, span, table, nodes in groups:
            for kind, name in enumerate((table, path, span or "always known")):
                keyed.setdefault((kind, name), []).append(nodes)
        moved = seed.score - seed.scores([np.unique(np.concatenate(parts)) for parts in keyed.values()])
        for (kind, name), effect in zip(keyed, moved, strict=True):
            kinds[kind][name] = kinds[kind].get(name, 0.0) + abs(float(effect)) / len(seeds)
    tables, links, spans = kinds
    return (
        _uses((name, plain_table(name), use) for name, use in tables.items()),
        _uses((name, path_words(seeds[0].view, name), use) for name, use in links.items()),
        _uses((name, name, use) for name, use in spans.items()),
    )


def _curves(explainer: Explainer, reading: Reading, chosen: Ints, names: list[str]) -> tuple[Curve, ...]:
    """Returns the partial dependence of the score on the strongest columns that have numbers."""
    reader, curves = explainer.reader, []
    for name in names:
        words = explainer.words[name]
        values = _values(reader.names, reading, name)
        filled = values[~np.isnan(values)]
        if words.names not in ((), YES_NO) or len(np.unique(filled)) < 2:
            continue
        points = np.unique(np.quantile(filled, np.linspace(0.02, 0.98, _POINTS), method="nearest"))
        scores = []
        for point in points:
            columns = tuple(matrix.copy() for matrix in reading.columns)
            for own, matrix in zip(reader.names, columns, strict=True):
                if name in own:
                    matrix[:, own.index(name)] = point
            scores.append(float(reader.score(reader.with_columns(reading, columns), chosen).mean()))
        labels = tuple(words.show(float(point)) for point in points)
        curves.append(Curve(name, words.words, tuple(map(float, points)), labels, tuple(scores)))
        if len(curves) == _CURVES:
            break
    return tuple(curves)


def _values(names: list[tuple[str, ...]], reading: Reading, name: str) -> Floats:
    member = next(number for number, own in enumerate(names) if name in own)
    return reading.columns[member][:, names[member].index(name)].astype(np.float64)
