"""Statistics of studies: what arms reach over random seeds, and how they differ, paired by random seed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Literal

from quartet.evaluation import higher_is_better
from quartet.paper.arms import STUDIES, Result, Study

Split = Literal["validation", "test"]
Verdict = Literal["better", "worse", "unclear"]

# Student's 97.5 % quantile of 1, 2, ... 30 degrees of freedom; beyond them the normal one.
_STUDENT = (
    "12.706 4.303 3.182 2.776 2.571 2.447 2.365 2.306 2.262 2.228 2.201 2.179 2.160 2.145 2.131 "
    "2.120 2.110 2.101 2.093 2.086 2.080 2.074 2.069 2.064 2.060 2.056 2.052 2.048 2.045 2.042"
)
_QUANTILES = tuple(float(word) for word in _STUDENT.split())
_NORMAL = 1.960


def student_quantile(degrees: int) -> float:
    """How many standard errors the 95 % interval of a mean reaches to each side."""
    return _QUANTILES[degrees - 1] if degrees <= len(_QUANTILES) else _NORMAL


@dataclass(frozen=True)
class Spread:
    """The mean and the standard deviation (n − 1) of n values; one value alone, or a figure without it, has none."""

    mean: float
    sd: float | None
    n: int

    @staticmethod
    def of(values: Sequence[float]) -> Spread | None:
        """The spread of some values; None of no values."""
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

    def times(self, factor: float) -> Spread:
        return Spread(self.mean * factor, None if self.sd is None else self.sd * abs(factor), self.n)


@dataclass(frozen=True)
class Comparison:
    """The runs of a study that may be compared: of one task, one metric, the same data, protocol and preset."""

    study: Study
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
        return sorted(self.runs, key=lambda arm: known.index(arm) if arm in known else len(known))

    @property
    def higher_is_better(self) -> bool:
        return higher_is_better(self.metric)

    @property
    def digits(self) -> int:
        """How many decimals its figures have: four, and fewer where they are large."""
        largest = max((abs(figure.mean) for figure in self.spreads("test").values()), default=0.0)
        return max(0, min(4, 5 - len(f"{largest:.0f}")))

    def values(self, arm: str, split: Split) -> dict[int, float]:
        """The figure of each random seed; a run whose metric is undefined has none."""
        figures = {rng_seed: getattr(run, split) for rng_seed, run in sorted(self.runs.get(arm, {}).items())}
        return {rng_seed: figure for rng_seed, figure in figures.items() if math.isfinite(figure)}

    def spread(self, arm: str, split: Split) -> Spread | None:
        return Spread.of(list(self.values(arm, split).values()))

    def spreads(self, split: Split) -> dict[str, Spread]:
        """The spread of each arm that has one."""
        told = {arm: self.spread(arm, split) for arm in self.arms}
        return {arm: spread for arm, spread in told.items() if spread}

    def difference(self, arm: str, reference: str) -> Spread | None:
        """Test of an arm minus test of another, over the random seeds that both have; None without one."""
        ours, theirs = self.values(arm, "test"), self.values(reference, "test")
        return Spread.of(
            [figure - theirs[rng_seed] for rng_seed, figure in ours.items() if rng_seed in theirs]
        )

    def change(self, arm: str, reference: str) -> Spread | None:
        """The difference in percent of the reference's mean over the shared random seeds, taken as exact."""
        difference = self.difference(arm, reference)
        ours, theirs = self.values(arm, "test"), self.values(reference, "test")
        base = Spread.of([figure for rng_seed, figure in theirs.items() if rng_seed in ours])
        if difference is None or base is None or not base.mean:
            return None
        return difference.times(100 / abs(base.mean))

    def verdict(self, difference: Spread) -> Verdict:
        """Better or worse only if the interval of a paired difference excludes 0."""
        if difference.interval is None:
            return "unclear"
        low, high = difference.interval
        if low <= 0 <= high:
            return "unclear"
        return "better" if (low > 0) == self.higher_is_better else "worse"

    def best(self, arms: Iterable[str], split: Split) -> str | None:
        """The arm with the best mean, the first of equals: on validation a choice, on test none."""
        spreads, wanted = self.spreads(split), set(arms)
        return best_of({a: spread for a, spread in spreads.items() if a in wanted}, self.higher_is_better)


def best_of(spreads: dict[str, Spread], is_higher_better: bool) -> str | None:
    """The name of the best mean, the first of equals; None of none."""
    if not spreads:
        return None
    choose = max if is_higher_better else min
    return choose(spreads, key=lambda name: spreads[name].mean)


def comparisons(study: Study, results: Iterable[Result]) -> list[Comparison]:
    """The results of a study by what may be compared, in the order of their first runs.

    Of two runs of an arm with one random seed the later counts.
    """
    found: dict[tuple[str, ...], Comparison] = {}
    for run in results:
        if run.study == study:
            key = (run.dataset, run.task, run.metric, run.protocol, run.preset, run.fingerprint)
            compared = found.setdefault(key, Comparison(study, *key))
            compared.runs.setdefault(run.arm, {})[run.rng_seed] = run
    return list(found.values())
