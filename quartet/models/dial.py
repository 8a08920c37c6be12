"""The dial: which parts of `auto` are worth what they cost, found by short trials on validation.

A third of the budget goes into trials: trees, a tower, and networks with fewer branches, shorter contexts or a smaller
width, each on some of the training seeds. Networks that do worst drop out round by round (successive halving), and the
others train on from where they stand. A choice is the blend of its parts. Choices are equal where paired resamples of
validation do not tell them from the best; of equal ones a network that trains cheapest is taken, because a short
trial shows a network at its worst. What does not keep to the limits is never taken.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quartet.config import Recipe
from quartet.evaluation import compared, compared_by, higher_is_better
from quartet.listener import Listener
from quartet.machine import ALONE
from quartet.models.portfolio import Fitting
from quartet.models.trials import NetworkTrial, Part, part_of, spread
from quartet.training import TrainingData, weight_bytes

_FOR_TRIALS = 1 / 3  # of the budget
_FOR_TREES, _FOR_TOWER = 0.3, 0.2  # of the trials
_SHORTEST = 2.0  # seconds of a network in its first round; without that, none is tried
_MOST_TRAINED, _MOST_JUDGED = 4096, 2000  # seeds of a trial
_FEWEST = 0.5  # seconds of a network in any round
_NOISE = 1.0  # deviations of a difference that do not count
_TREES, _TOWER, _COLUMNS = "trees", "tower", "columns"

Logits = NDArray[np.float64]


@dataclass(frozen=True)
class Limits:
    """What a choice may cost: bytes of a training step beside the data, and seconds of one prediction."""

    memory: int | None = None
    latency: float | None = None


@dataclass(frozen=True)
class Trial:
    """A choice that was tried: how good it was, how far it is from the best, and what it costs."""

    name: str
    changes: Mapping[str, Any]  # of the recipe of `auto`
    value: float | None  # the main metric on some validation seeds; None: out after the first rounds
    difference: float  # to the best, below 0
    noise: float  # the deviation of that difference
    train_ms: float  # a seed, of its costliest part
    score_ms: float  # a seed among many
    latency_ms: float  # one seed by itself
    num_bytes: int  # of a training step
    seconds: float  # that the trial took
    verdict: str


@dataclass(frozen=True)
class Dial:
    """All that was tried, and what was chosen, with the seconds that it took."""

    metric: str
    trials: tuple[Trial, ...]
    chosen: str
    changes: Mapping[str, Any]
    seconds: float
    why: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def settings(recipe: Recipe) -> dict[str, dict[str, Any]]:
    """Returns the networks that are tried, by what they are to people; the first is the default."""
    model, sampling = recipe.model, recipe.sampling
    half = {
        name: max(1, getattr(sampling, name) // 2)
        for name in ("local_budget", "temporal_budget", "collab_budget")
    }
    step = 4 * model.heads
    narrow = {
        "width": max(step, model.width // 2 // step * step),
        "encoder_width": max(8, model.encoder_width // 2),
    }
    found: dict[str, dict[str, Any]] = {
        "local and all branches": {},
        "local alone": {"branches": ()},
        "half the context": half,
        "local, own row and counts": {"branches": ("feature", "topology")},
        "local, lately and peers": {"branches": ("temporal", "collab")},
        "half the width": narrow,
    }
    kept: dict[str, dict[str, Any]] = {}
    for name, changes in found.items():  # without those that this recipe makes the same
        if all(recipe.changed(**changes) != recipe.changed(**other) for other in kept.values()):
            kept[name] = changes
    return kept


def turn(data: TrainingData, budget: float, limits: Limits, listener: Listener) -> Dial:
    """Returns the parts that are worth their cost, from trials that take a third of a budget of seconds."""
    begin = time.perf_counter()
    quiet = Listener()
    quiet.should_stop = listener.should_stop  # type: ignore[method-assign]
    recipe = data.recipe.changed(refit="never", bag=1, time_limit=None)
    data.columns("train"), data.columns("val")  # which every choice needs, and keeps
    end = time.perf_counter() + _FOR_TRIALS * max(0.0, budget - (time.perf_counter() - begin))
    total = end - time.perf_counter()
    own = data.changed(recipe, data.affordable_columns)
    judged = spread(len(data.seeds["val"]), _MOST_JUDGED)
    fitting = Fitting(own, ALONE, quiet, None)
    parts: dict[str, Part] = {}
    every = own.column_names
    if not fitting.add("lightgbm", _TREES, every, time_limit=max(1.0, _FOR_TREES * total)):
        return _default(data, begin, "stopped before anything was tried")
    parts[_TREES] = part_of(fitting, own, judged, own.columns("train").nbytes * 2)
    columns = fitting.gained(every)
    if not fitting.add("tower", _TOWER, columns, time_limit=max(1.0, _FOR_TOWER * total)):
        return _default(data, begin, "stopped before anything was tried")
    tower = fitting.members[-1].model
    parts[_TOWER] = part_of(fitting, own, judged, 4 * weight_bytes(tower))
    tried = _networks(own, fitting, columns, tower.chosen_readout, judged, end, parts, quiet)
    return _chosen(data, parts, *tried, judged, limits, begin)


# --- networks on trial --------------------------------------------------------------------------------


def _networks(
    data: TrainingData,
    fitting: Fitting,
    columns: tuple[str, ...],
    start: Any,
    judged: NDArray[np.int64],
    end: float,
    parts: dict[str, Part],
    listener: Listener,
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Tries networks until the time is up, adding to `parts`; returns what each changes, and who came through."""
    wanted = settings(data.recipe)
    rng = np.random.default_rng(data.recipe.rng_seed)
    taught = np.sort(rng.permutation(len(data.seeds["train"]))[:_MOST_TRAINED])
    left = end - time.perf_counter()
    count = min(len(wanted), int(left / (2 * _SHORTEST)))  # in two rounds, or three
    if count < 2:
        return {}, []
    trials: dict[str, NetworkTrial] = {}
    for name, changes in list(wanted.items())[:count]:
        if end - time.perf_counter() < _SHORTEST or listener.should_stop():
            break
        trials[name] = NetworkTrial(
            data, fitting.recipe_of("quartet", **changes), columns, start, taught, judged
        )
    alive = list(trials)
    while alive:
        rounds = 1 + sum(1 for _ in _halvings(len(alive)))
        share = (end - time.perf_counter()) / rounds / len(alive)
        for name in alive:
            trials[name].train(max(_FEWEST, share), listener)
            parts[name] = trials[name].part()
        if rounds == 1 or time.perf_counter() >= end or listener.should_stop():
            break
        value, _ = _values(data, parts, alive, judged)
        best = sorted(range(len(alive)), key=lambda place: -value[place])[: next(_halvings(len(alive)))]
        alive = [alive[place] for place in sorted(best)]
    return {name: wanted[name] for name in trials}, alive


def _halvings(count: int) -> Iterator[int]:
    """Yields how many of some are left after each round, until there are two."""
    while count > 2:
        count = max(2, count // 2)
        yield count


# --- what is measured ---------------------------------------------------------------------------------


def _values(
    data: TrainingData, parts: Mapping[str, Part], names: list[str], judged: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns how good each choice is, higher is better, and the noise of its difference to the best."""
    seeds, scores = data.seeds["val"], data.output.scores
    blends = [scores(_blend(parts, name)) for name in names]
    groups = (seeds.node[judged], seeds.time[judged])
    return compared(data.task.spec.type, data.labels("val")[judged], groups, blends)


def _blend(parts: Mapping[str, Part], name: str) -> Logits:
    """Returns the mean logits of the parts of a choice: half trees, half what networks say."""
    trees, tower = parts[_TREES].logits, parts[_TOWER].logits
    if name == _TREES:
        return trees
    networks = tower if name == _COLUMNS else (tower + parts[name].logits) / 2
    return np.asarray((trees + networks) / 2)


def _costs(parts: Mapping[str, Part], name: str) -> tuple[float, float, float, int, float]:
    """Returns what a choice costs: training of its costliest part, scoring, one alone, bytes, and its own trial."""
    own = [parts[_TREES], parts[_TREES]]  # on near columns and on all
    own += [] if name == _TREES else [parts[_TOWER]]
    own += [parts[name]] if name not in (_TREES, _COLUMNS) else []
    return (
        max(part.train_ms for part in own), sum(part.score_ms for part in own), sum(part.latency_ms for part in own),
        max(part.num_bytes for part in own), own[-1].seconds,
    )  # fmt: skip


def _chosen(
    data: TrainingData,
    parts: Mapping[str, Part],
    networks: Mapping[str, Mapping[str, Any]],
    finalists: list[str],
    judged: NDArray[np.int64],
    limits: Limits,
    begin: float,
) -> Dial:
    """Returns the dial, turned by what was measured."""
    names = [_TREES, _COLUMNS, *networks]
    costs = {name: _costs(parts, name) for name in names}
    fits = {name: keeps(limits, cost[3], cost[2]) for name, cost in costs.items()}
    value, noise = _values(data, parts, names, judged)
    sign = 1 if higher_is_better(compared_by(data.task.spec.type)) else -1
    able = [p for p, name in enumerate(names) if fits[name] and (name not in networks or name in finalists)]
    why = "" if able else "nothing keeps to the limits; trees cost least"
    able = able or [0]
    best = max(able, key=lambda place: value[place])
    if value[best] < value.max():  # then noise is that of differences to another
        _, noise[able] = _values(data, parts, [names[place] for place in able], judged)
    equal = [place for place in able if value[best] - value[place] <= _NOISE * noise[place]]
    among = [place for place in equal if names[place] in networks]
    chosen = names[min(among, key=lambda place: costs[names[place]][0]) if among else max(equal)]
    if not networks and not why:
        why = "there was no time to try networks"
        if limits == Limits():
            chosen, why = next(iter(settings(data.recipe))), f"{why}: the default is taken"
    elif not why:
        why = (
            "as good as the best, and cheapest to train"
            if len(equal) > 1
            else "better than the others, beyond noise"
        )
        if not among:
            why = "no network is as good, or keeps to the limits"
    verdicts = {name: "as good" if place in equal else "worse" for place, name in enumerate(names)}
    verdicts |= {name: "out early" for name in networks if name not in finalists}
    verdicts |= {name: "over a limit" for name in names if not fits[name]} | {chosen: "chosen"}
    trials = tuple(
        Trial(
            name, _changes(name, networks), float(sign * value[p]), float(min(0.0, value[p] - value[best])),
            float(noise[p]), *costs[name][:4], costs[name][4], verdicts[name],
        )
        for p, name in enumerate(names)
    )  # fmt: skip
    changes = dict(_changes(chosen, networks))
    if limits.latency is not None:
        changes["bag"] = 1  # every further member is asked, too
    return Dial(compared_by(data.task.spec.type), trials, chosen, changes, time.perf_counter() - begin, why)


def keeps(limits: Limits, num_bytes: int, latency_ms: float) -> bool:
    """Returns whether something keeps to limits."""
    is_small = limits.memory is None or num_bytes <= limits.memory
    return is_small and (limits.latency is None or latency_ms <= 1e3 * limits.latency)


def _changes(name: str, networks: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    if name in (_TREES, _COLUMNS):
        return {"kinds": name}
    return networks.get(name, {})


def _default(data: TrainingData, begin: float, why: str) -> Dial:
    return Dial(data.metric, (), next(iter(settings(data.recipe))), {}, time.perf_counter() - begin, why)
