"""Statistics of studies: what arms reach over random seeds, and how they differ, paired by random seed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from statistics import fmean, stdev
from typing import Literal

from quartet.evaluation import higher_is_better
from quartet.paper.arms import STUDIES, StudyName, selections
from quartet.paper.results import Result

Measured = Literal["validation", "test"]
Verdict = Literal["better", "worse", "unclear"]


@cache
def student_quantile(degrees: int) -> float:
    """Returns how many standard errors the 95 % interval of a mean reaches to each side."""
    low, high = 0.0, math.pi / 2
    for _ in range(64):
        middle = (low + high) / 2
        low, high = (middle, high) if _student_within(middle, degrees) < 0.95 else (low, middle)
    return math.sqrt(degrees) * math.tan(low)


def _student_within(angle: float, degrees: int) -> float:
    """Returns the exact probability of |t| < √degrees · tan(angle) (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    is_odd, cosine = degrees % 2, math.cos(angle)
    term = total = (cosine if degrees > 1 else 0.0) if is_odd else 1.0
    for place in range(2 + is_odd, degrees - 1, 2):
        term *= (place - 1) / place * cosine**2
        total += term
    within = math.sin(angle) * total
    return (angle + within) * 2 / math.pi if is_odd else within


@dataclass(frozen=True)
class Spread:
    """The mean and the standard deviation (n − 1) of n values; a value alone has no deviation."""

    mean: float
    sd: float | None
    n: int

    @staticmethod
    def of(values: Sequence[float]) -> Spread | None:
        """Returns the spread of some values; None of no values."""
        if not values:
            return None
        return Spread(fmean(values), stdev(values) if len(values) > 1 else None, len(values))

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % Student interval of the mean; None without a standard deviation."""
        if self.sd is None:
            return None
        half = student_quantile(self.n - 1) * self.sd / math.sqrt(self.n)
        return self.mean - half, self.mean + half


@dataclass(frozen=True)
class Comparison:
    """The runs of a study that may be compared: of one task, one metric, the same data, protocol and preset."""

    study: StudyName
    dataset: str
    task: str
    metric: str
    protocol: str
    preset: str
    fingerprint: str
    runs: dict[str, dict[int, Result]] = field(default_factory=dict)  # by arm, then by random seed

    @property
    def arms(self) -> list[str]:
        """The arms that have runs, in the order of the study."""
        known = [arm.name for arm in STUDIES[self.study]]

        def place(arm: str) -> int:  # of a setting that is fixed, the name does not tell
            places = (n for n, name in enumerate(known) if name == arm or name.startswith(f"{arm},"))
            return next(places, len(known))

        return sorted(self.runs, key=place)

    @property
    def name(self) -> str:
        return f"{self.dataset}/{self.task}"

    @property
    def arrow(self) -> str:
        """Shows whether more or less of the metric is better."""
        return "↑" if higher_is_better(self.metric) else "↓"

    @property
    def digits(self) -> int:
        """How many decimals its figures have: four, and fewer where they are large."""
        largest = max((abs(figure.mean) for figure in self.spreads("test").values()), default=0.0)
        return max(0, min(4, 5 - len(f"{largest:.0f}")))

    def values(self, arm: str, split: Measured) -> dict[int, float]:
        """Returns the figure of each random seed; a run whose metric is undefined has none."""
        figures = {rng_seed: getattr(run, split) for rng_seed, run in sorted(self.runs.get(arm, {}).items())}
        return {rng_seed: figure for rng_seed, figure in figures.items() if math.isfinite(figure)}

    def spread(self, arm: str, split: Measured) -> Spread | None:
        return Spread.of(list(self.values(arm, split).values()))

    def spreads(self, split: Measured) -> dict[str, Spread]:
        """Returns the spread of each arm that has one."""
        every = ((arm, self.spread(arm, split)) for arm in self.arms)
        return {arm: spread for arm, spread in every if spread}

    def difference(self, arm: str, reference: str, split: Measured = "test") -> Spread | None:
        """Returns an arm's figure minus another's, over the random seeds that both have; None without one."""
        return Spread.of([ours - theirs for ours, theirs in self._pairs(arm, reference, split)])

    def change(self, arm: str, reference: str) -> Spread | None:
        """Returns the difference in percent of the reference's mean over the shared random seeds, taken as exact."""
        pairs = self._pairs(arm, reference)
        base = abs(fmean(theirs for _, theirs in pairs)) if pairs else 0.0
        return Spread.of([100 * (ours - theirs) / base for ours, theirs in pairs]) if base else None

    def _pairs(self, arm: str, reference: str, split: Measured = "test") -> list[tuple[float, float]]:
        ours, theirs = self.values(arm, split), self.values(reference, split)
        return [(figure, theirs[rng_seed]) for rng_seed, figure in ours.items() if rng_seed in theirs]

    def verdict(self, difference: Spread) -> Verdict:
        """Returns better or worse only if the interval of a paired difference excludes 0."""
        low, high = difference.interval or (0.0, 0.0)
        if low <= 0 <= high:
            return "unclear"
        return "better" if (low > 0) == higher_is_better(self.metric) else "worse"

    def best(self, spreads: Mapping[str, Spread]) -> str | None:
        """Returns the arm with the best mean, the first of equals: on validation a choice, on test none."""
        choose = max if higher_is_better(self.metric) else min
        return choose(spreads, key=lambda name: spreads[name].mean) if spreads else None

    @property
    def selected(self) -> list[str]:
        """The arms that validation selects, where the study leaves it a choice."""
        return self._best_of(selections(self.study, self.arms))

    @property
    def shown(self) -> list[str]:
        """The arms that a table has room for: of the settings that samplers are tuned over, the best of each depth."""
        if self.study != "sampler":
            return self.arms
        groups: dict[tuple[str, ...], list[str]] = {}
        for arm in self.arms:
            groups.setdefault(tuple(arm.split(", ")[:2]), []).append(arm)
        best = self._best_of(list(groups.values()))
        return [arm for arm in self.arms if arm in best]

    def _best_of(self, groups: Sequence[Sequence[str]]) -> list[str]:
        """Returns the best arm of each group on validation.

        Samplers are tuned with the first random seed alone, so that those who get more are chosen before they do.
        """
        first = min((rng_seed for runs in self.runs.values() for rng_seed in runs), default=0)
        spreads = self.spreads("validation")
        if self.study == "sampler":
            begun = ((arm, self.values(arm, "validation")) for arm in spreads)
            spreads = {arm: Spread(values[first], None, 1) for arm, values in begun if first in values}
        known = [{arm: spreads[arm] for arm in group if arm in spreads} for group in groups]
        return [arm for group in known if (arm := self.best(group))]


def comparisons(study: StudyName, results: Iterable[Result]) -> list[Comparison]:
    """Returns the results of a study by what may be compared, in the order of their first runs.

    Of two runs of an arm with one random seed the later counts.
    """
    by_key: dict[tuple[str, ...], Comparison] = {}
    for run in results:
        if run.study == study:
            key = (run.dataset, run.task, run.metric, run.protocol, run.preset, run.fingerprint)
            compared = by_key.setdefault(key, Comparison(study, *key))
            compared.runs.setdefault(run.arm, {})[run.rng_seed] = run
    return list(by_key.values())
