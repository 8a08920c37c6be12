"""The dial: which networks of `auto` are worth what they cost, found by short trials on validation.

Trees and a tower are fitted as without it, and stay. A quarter of the time that is left then goes into trials: networks
with fewer branches or shorter contexts, each on some of the training seeds. Those that do worst drop out round by round
(successive halving), and the others train on from where they stand. A choice is the blend of its parts. Choices are
equal where paired resamples of validation do not tell them from the best; of equal ones a network that trains cheapest
is taken, because a short trial shows a network at its worst. A network that has taken a few steps shows nothing: where
there is no time for more, none is tried, and the default goes on. What does not keep to the limits is never taken.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quartet.config import Recipe
from quartet.evaluation import compared, compared_by, higher_is_better
from quartet.listener import Listener
from quartet.models.portfolio import Fitting
from quartet.models.trials import NetworkTrial, Part, part_of, spread
from quartet.training import TrainingData, duration

_FOR_TRIALS = 0.25  # of the time that trees and tower have left
_SHORTEST = 5.0  # seconds of all trials; below, not even a step is timed, which takes seconds itself
_FEWEST_STEPS = 8  # of a network in its first round; without time for these, none is tried
_MOST_TRAINED, _MOST_JUDGED = 4096, 2000  # seeds of a trial
_JUDGED_FOR_COSTS = 64
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
    value: float | None  # the main metric on some validation seeds; None: it has not learned
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
    """All that was tried, and what was chosen, with the seconds that the trials took."""

    metric: str
    trials: tuple[Trial, ...]
    chosen: str
    changes: Mapping[str, Any]
    seconds: float
    why: str
    limits: Limits = field(default_factory=Limits)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def settings(recipe: Recipe) -> dict[str, dict[str, Any]]:
    """Returns the networks that are tried, by what they are to people; the first is the default."""
    half = {
        name: max(1, getattr(recipe.sampling, name) // 2)
        for name in ("local_budget", "temporal_budget", "collab_budget")
    }
    found: dict[str, dict[str, Any]] = {
        "local and all branches": {},
        "local alone": {"branches": ()},
        "half the context": half,
        "local, own row and counts": {"branches": ("feature", "topology")},
        "local, lately and peers": {"branches": ("temporal", "collab")},
    }
    kept: dict[str, dict[str, Any]] = {}
    for name, changes in found.items():  # without those that this recipe makes the same
        if all(recipe.changed(**changes) != recipe.changed(**other) for other in kept.values()):
            kept[name] = changes
    return kept


def turn(fitting: Fitting, columns: tuple[str, ...], limits: Limits, left: float) -> Dial:
    """Returns which network is worth its cost beside the trees and the tower of a portfolio on its way.

    `left` are the seconds that networks have, trials included.
    """
    begin, data = _now(), fitting.data
    kinds = fitting.kinds
    if not columns or kinds == _TREES:
        why = "no other kinds are wanted" if kinds == _TREES else "they took all the time there was"
        return _untried(data, begin, limits, _TREES, {"kinds": _TREES}, why)
    if kinds == _COLUMNS and limits == Limits():
        why = "no networks that read rows are wanted" if fitting.has_network else "too little time for more"
        return _untried(data, begin, limits, _COLUMNS, {"kinds": _COLUMNS}, why)
    wanted = settings(data.recipe) if kinds == "all" else {}
    judged = spread(len(data.seeds["val"]), _MOST_JUDGED)
    rng = np.random.default_rng(data.recipe.rng_seed)
    taught = np.sort(rng.permutation(len(data.seeds["train"]))[:_MOST_TRAINED])
    quiet = Listener()
    quiet.should_stop = fitting.listener.should_stop  # type: ignore[method-assign]

    def trial(name: str, most: int, most_judged: int) -> NetworkTrial:
        recipe = fitting.recipe_of("quartet", **wanted[name])
        return NetworkTrial(data, recipe, columns, fitting.start, taught[:most], judged[:most_judged])

    if limits == Limits() and _FOR_TRIALS * left < _SHORTEST:
        why = f"networks have {duration(max(0.0, left))}: too little for trials"
        return _untried(data, begin, limits, next(iter(wanted)), {}, why)
    costs: dict[str, Part] = {}  # of networks, where there are limits
    step, has_limits = 0.0, limits != Limits()
    for name in wanted if has_limits else list(wanted)[:1]:
        one = trial(name, data.recipe.batch_size, _JUDGED_FOR_COSTS)
        one.train(1e-9, quiet)
        if has_limits or _FOR_TRIALS * left >= _FEWEST_STEPS * one.step_seconds:
            one.train(1e-9, quiet)  # the first step is slower
        step = max(step, one.step_seconds)
        if has_limits:
            costs[name] = one.part()
    room = _FOR_TRIALS * max(0.0, left - (_now() - begin))
    own: dict[str, Part] = {}
    if has_limits or room >= 2 * _FEWEST_STEPS * step:
        own = {kind: part_of(fitting, kind, judged) for kind in (_TREES, _TOWER)}
    over = [name for name in costs if not keeps(limits, *_costs(own | costs, name)[3:1:-1])]
    able = [name for name in wanted if name not in over]
    count = max((n for n in range(len(able) + 1) if room >= _rounds(n) * n * _FEWEST_STEPS * step), default=0)
    if able and count < 2:
        why = f"a step takes {duration(step)}, and trials had {duration(room)}: too little to tell networks apart"
        if over:
            is_only = len(able) == 1
            why = (
                "the only one that keeps to the limits"
                if is_only
                else f"the first that keeps to the limits; {why}"
            )
        dial = _untried(data, begin, limits, able[0], wanted[able[0]], why)
        told = {name: _costs(own | costs, name) for name in costs if own}
        verdicts = (
            dict.fromkeys(wanted, "not tried") | dict.fromkeys(over, "over a limit") | {able[0]: "chosen"}
        )
        return replace(dial, trials=tuple(_unlearned(n, wanted[n], c, verdicts[n]) for n, c in told.items()))
    end = _now() + room
    trials = {name: trial(name, _MOST_TRAINED, _MOST_JUDGED) for name in able[:count]}
    alive, parts = list(trials), dict(own)
    while alive:
        share = (end - _now()) / _rounds(len(alive)) / len(alive)
        for name in alive:
            trials[name].train(max(_FEWEST, share), quiet)
            parts[name] = trials[name].part()
        if len(alive) == 2 or _now() >= end or quiet.should_stop():
            break
        value, _ = _values(data, parts, alive, judged)
        best = sorted(range(len(alive)), key=lambda place: -value[place])[: next(_halvings(len(alive)))]
        alive = [alive[place] for place in sorted(best)]
    dial = _chosen(data, parts, {name: wanted[name] for name in trials}, alive, judged, limits, begin)
    rest = [_unlearned(n, wanted[n], _costs(own | costs, n), "over a limit") for n in over]
    return replace(dial, trials=(*dial.trials, *rest))


def _unlearned(
    name: str, changes: Mapping[str, Any], costs: tuple[float, float, float, int, float], verdict: str
) -> Trial:
    return Trial(name, changes, None, 0.0, 0.0, *costs, verdict)


def _now() -> float:
    return time.perf_counter()


def _halvings(count: int) -> Iterator[int]:
    """Yields how many of some are left after each round, until there are two."""
    while count > 2:
        count = max(2, count // 2)
        yield count


def _rounds(count: int) -> int:
    return 1 + sum(1 for _ in _halvings(count))


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
    own = [parts[_TREES]]
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
    if not why:
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
    seconds = _now() - begin
    changes = _changes(chosen, networks)
    return Dial(compared_by(data.task.spec.type), trials, chosen, changes, seconds, why, limits)


def keeps(limits: Limits, num_bytes: int, latency_ms: float) -> bool:
    """Returns whether something keeps to limits."""
    is_small = limits.memory is None or num_bytes <= limits.memory
    return is_small and (limits.latency is None or latency_ms <= 1e3 * limits.latency)


def _changes(name: str, networks: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    if name in (_TREES, _COLUMNS):
        return {"kinds": name}
    return networks.get(name, {})


def _untried(
    data: TrainingData, begin: float, limits: Limits, chosen: str, changes: Mapping[str, Any], why: str
) -> Dial:
    return Dial(data.metric, (), chosen, changes, _now() - begin, why, limits)
