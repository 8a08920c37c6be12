"""How sure models say they are of their predictions, and how often that held."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quartet.errors import UsageError
from quartet.evaluation import COVERAGE, Measure, Sure, in_sets, main_metric, measures, resamples, surest
from quartet.runs.checkpoint import Checkpoint
from quartet.tasks import TaskType
from quartet.times import show_instant

Floats = NDArray[np.float64]
Hints = Mapping[str, Floats]
_SHARES = (0.1, 0.2, 0.3)  # that are left out for comparison
_MOST_WINDOWS = 12
_NUM_RESAMPLES = 1000


@dataclass(frozen=True, eq=False)
class Said:
    """What is said of each seed: the (S, 2) ends of an interval or the (S, classes) of a set, and how sure it is."""

    coverage: float
    sureness: Floats
    ends: Floats | None = None
    held: NDArray[np.bool_] | None = None
    probability: Floats | None = None  # (S, classes), calibrated

    def holds(self, target: NDArray[Any]) -> NDArray[np.bool_]:
        """Returns which labels lie in their intervals or sets; a class that nobody knew never does."""
        if self.ends is not None:
            return np.asarray((self.ends[:, 0] <= target) & (target <= self.ends[:, 1]))
        assert self.held is not None
        is_known = (target >= 0) & (target < self.held.shape[1])
        return np.asarray(is_known & self.held[np.arange(len(target)), np.where(is_known, target, 0)])

    @property
    def width(self) -> Floats:
        """Returns how wide each interval is, or how many classes each set has."""
        if self.ends is not None:
            return np.asarray(self.ends[:, 1] - self.ends[:, 0])
        assert self.held is not None
        return np.asarray(self.held.sum(1), np.float64)


def say(
    members: Sequence[Checkpoint],
    sures: Sequence[Sure],
    scores: Sequence[Floats],
    hints: Sequence[Hints],
    time: NDArray[np.int64],
    coverage: float,
) -> Said:
    """Returns what models say together: the mean of their intervals, or the set by their mean limits."""
    if sures[0].kind == "regression":
        told = zip(sures, scores, hints, strict=True)
        ends = np.mean([sure.interval(own, time, coverage, hint) for sure, own, hint in told], axis=0)
        width = ends[:, 1] - ends[:, 0]
        return Said(coverage, -width, ends=ends)
    probability = np.mean([m.probabilities(own) for m, own in zip(members, scores, strict=True)], axis=0)
    num_groups = 2 if sures[0].kind == "binary_classification" else 1
    limits = np.mean([sure.limits(time, num_groups, coverage) for sure in sures], axis=0)
    return Said(coverage, probability.max(1), held=in_sets(probability, limits), probability=probability)


def sures_of(members: Sequence[Checkpoint], is_asked: bool) -> list[Sure]:
    """Returns what each model keeps of validation; none where one has nothing, an error if it is asked for."""
    if members[0].task.spec.facts.holds_lists:
        if is_asked:
            what = f'"{members[0].task.name}" predicts lists: these have no intervals or sets, and none is left out'
            raise UsageError("C02", what, "leave out --coverage and --abstain")
        return []
    told = [m for m in members if m.task.type == "regression" or m.calibration is not None]
    sures = [member.sure for member in told if member.sure is not None]
    if len(sures) == len(members):
        return sures
    if is_asked:
        text = f'a model of "{members[0].task.name}" is of an earlier version: it keeps nothing to tell how sure it is'
        raise UsageError("C10", text, "train again, or leave out --coverage and --abstain")
    return []


def check_shares(coverage: float | None, abstain: float) -> float:
    """Returns the coverage that is wanted; an error for what is no share."""
    for name, share in (("coverage", coverage), ("abstain", abstain)):
        is_number = isinstance(share, (int, float, np.number)) and not isinstance(share, bool)
        if not is_number and not (share is None and name == "coverage"):
            raise UsageError("C02", f"{name} is {share!r}", "give a share, such as 0.9")
    if coverage is not None and not 0 < coverage < 1:
        raise UsageError("C02", f"coverage is {coverage!r}", "give a share above 0 and below 1, such as 0.9")
    if not 0 <= abstain < 1:
        raise UsageError("C02", f"abstain is {abstain!r}", "give a share from 0 on and below 1, such as 0.1")
    return COVERAGE if coverage is None else coverage


@dataclass(frozen=True)
class Window:
    """Test rows of some times that follow each other: how many, how often what was said held, how wide it was."""

    since: str
    num_rows: int
    coverage: float
    width: float | None


@dataclass(frozen=True)
class Rest:
    """What is left without the share of least sure rows, and how good it is by some metrics."""

    share: float
    num_rows: int
    values: Mapping[str, float | None]


@dataclass(frozen=True)
class Judged:
    """How often what was said held, overall and by time; and how good predictions are without the least sure."""

    nominal: float
    coverage: Measure
    width: float | None  # on average; of sets, the number of classes
    num_unbounded: int  # rows for which too little was known to say anything
    windows: tuple[Window, ...]
    rests: tuple[Rest, ...]  # the first with all rows
    calibration_error: float | None = None  # once calibrated
    abstain: float = 0.0

    @staticmethod
    def from_dict(content: Mapping[str, Any]) -> Judged:
        parts = {"windows": Window, "rests": Rest}
        made = {name: tuple(kind(**told) for told in content[name]) for name, kind in parts.items()}
        return Judged(**{**content, "coverage": Measure(**content["coverage"]), **made})

    def lines(self, what: str) -> Iterator[str]:
        """Yields it in words; `what` is "intervals" or "sets"."""
        wide = (
            ""
            if self.width is None
            else f", {'mean width' if what == 'intervals' else 'classes a set'} {self.width:.4g}"
        )
        lost = (
            f"; {self.num_unbounded:,} rows had no bounds: too few labels were known"
            if self.num_unbounded
            else ""
        )
        yield f"{_percent(self.nominal)} {what} held {self.coverage} of the rows{wide}{lost}"
        yield "by time: " + ", ".join(f"{each.coverage:.0%} from {each.since}" for each in self.windows)
        if self.calibration_error is not None:
            yield f"calibration_error of calibrated probabilities: {self.calibration_error:.4f}"
        yield from filter(None, [self.rest_line(self.abstain)] if self.abstain else [])

    def told(self, nominal: float, share: float) -> Iterator[str]:
        """Yields in a few words what is known of intervals or sets of such a coverage, and of so many left out."""
        if abs(nominal - self.nominal) < 1e-9:
            yield f"what was to hold in {_percent(nominal)} of cases held in {self.coverage.value:.1%}"
        if share:
            yield (
                self.rest_line(share)
                or f"`quartet evaluate --abstain {share:g}` tells how good the others are"
            )

    def rest_line(self, share: float) -> str:
        """Returns how good predictions were without so many of the least sure; "" where that was not counted."""
        found = next((rest for rest in self.rests if abs(rest.share - share) < 1e-9), None)
        if found is None:
            return ""
        every = self.rests[0]
        pairs = (f"{n} {_shown(v)} instead of {_shown(every.values[n])}" for n, v in found.values.items())
        rows = f"{found.num_rows:,} of {every.num_rows:,} rows"
        return f"without the least sure {_percent(share)}, {rows}: {', '.join(pairs)}"


def judge(
    kind: TaskType,
    said: Said,
    target: NDArray[Any],
    score: Floats,
    time: NDArray[np.int64],
    entity: NDArray[np.int64],
    abstain: float = 0.0,
) -> Judged:
    """Returns how often what was said of rows held. Intervals of the coverage are drawn over entities."""
    held, width = said.holds(target).astype(np.float64), said.width
    bounded = np.isfinite(width)
    drawn = [np.average(held, weights=weight) for weight in resamples(len(held), entity, _NUM_RESAMPLES, 0)]
    low, high = map(float, np.percentile(drawn, (2.5, 97.5))) if drawn else (None, None)
    windows = []
    distinct, place = np.unique(time, return_inverse=True)
    group = (
        place
        if len(distinct) <= _MOST_WINDOWS
        else np.searchsorted(np.sort(place), place) * _MOST_WINDOWS // len(place)
    )
    for number in np.unique(group):
        own = group == number
        mean = float(width[own & bounded].mean()) if (own & bounded).any() else None
        windows.append(
            Window(show_instant(int(time[own].min())), int(own.sum()), float(held[own].mean()), mean)
        )
    rests = []
    for share in dict.fromkeys((0.0, *_SHARES, abstain)):
        rest = surest(said.sureness, share)
        found = measures(kind, target[rest], score[rest], num_resamples=0) if rest.any() else {}
        values = {main_metric(kind): found[main_metric(kind)].value} if found else {}
        if said.probability is not None and kind == "binary_classification" and found:
            values["accuracy"] = float((said.probability[rest].argmax(1) == target[rest]).mean())
        rests.append(Rest(share, int(rest.sum()), values))
    error = None
    if said.probability is not None:
        calibrated = said.probability[:, 1] if kind == "binary_classification" else said.probability
        error = measures(kind, target, calibrated, num_resamples=0)["calibration_error"].value
    whole = Measure("coverage", float(held.mean()), low, high, True)
    mean = float(width[bounded].mean()) if bounded.any() else None
    return Judged(
        said.coverage, whole, mean, int((~bounded).sum()), tuple(windows), tuple(rests), error, abstain
    )


def _shown(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.4f}"


def _percent(share: float) -> str:
    """Returns a share as it was asked for: 0.999 is 99.9%, not all."""
    return f"{100 * share:.6g}%"
