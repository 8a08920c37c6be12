"""How sure a prediction is: intervals of a number and sets of classes that hold so often (split conformal).

The misfit of a row is how far its label was from what was predicted: the error over its usual size there, or 1 minus
the probability of the class that came. An interval or set holds all labels whose misfit is within a limit, within which
so many of the misfits are that are known at the time of the prediction, the latest counting most. Those of validation
are kept with the model; those of labels that become known later join them. A label that is not known yet counts for
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quartet.causal import TimeRule, num_visible, visible
from quartet.tasks import TaskType

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
COVERAGE = 0.9  # unless another is asked for
_FOLDS = 5
_BINS, _FEWEST_IN_BIN, _PSEUDO_ERRORS = 5, 40, 20.0
_LIVES = (np.inf, 2.0, 1.0, 0.5, 0.25, 0.125)  # parts of validation after which a misfit weighs half as much
_SHORTEST_LIFE = 50  # rows
_MOST_ROWS = 20_000
_GROWN = 1.02  # limits are found anew once so many times as many misfits are known
_VALUE, _NOBODY = "value", "nothing"  # what the usual size of an error is read from; other names are hints


@dataclass(frozen=True, eq=False)
class Sure:
    """The misfits that are known, each with the time from which it is, and how to read them."""

    kind: TaskType
    misfit: Floats  # (V,)
    time: Ints  # (V,) of the prediction
    known_at: Ints  # (V,) of its label
    group: Ints  # (V,) the class that came, of yes or no, so that both are held as often; else 0
    num_kept: int  # of them, those of validation
    by: str = _NOBODY
    edges: Floats = field(default_factory=lambda: np.empty(0))
    sizes: Floats = field(default_factory=lambda: np.ones(1))  # the usual size of an error in each bin
    floor: float = -np.inf  # below which no interval goes
    rule: TimeRule = "<="  # by which a label is known at a time
    _found: dict[tuple[int, float], tuple[Ints, Floats]] = field(
        init=False, default_factory=dict, repr=False
    )  # limits at moments, by groups and coverage

    def __post_init__(self) -> None:
        lengths = {len(each) for each in (self.misfit, self.time, self.known_at, self.group)}
        is_sized = len(self.sizes) == len(self.edges) + 1 and min(self.sizes) > 0
        if len(lengths) > 1 or not is_sized or not np.isfinite([*self.edges, *self.sizes]).all():
            raise ValueError("what is kept to tell how sure the model is does not fit together")

    @staticmethod
    def fit(
        kind: TaskType,
        target: NDArray[Any],
        score: Floats,
        known_at: Ints,
        time: Ints,
        entity: Ints,
        hints: Mapping[str, Floats] | None = None,
        floor: float = -np.inf,
        rule: TimeRule = "<=",
    ) -> Sure:
        """Returns what the labels of validation tell: scores are predicted values, or (V, classes) probabilities.

        The usual size of an error depends on the predicted value, on a hint, or on nothing: on what makes intervals
        narrowest that hold as often, in folds by time (by entity where times are few).
        """
        times, place = np.unique(time, return_inverse=True)
        if len(times) < _FOLDS:
            place = np.unique(entity, return_inverse=True)[1]
        none = np.empty(0, np.int64)
        known = Sure(kind, np.empty(0), none, none, none, 0, floor=floor, rule=rule)
        misfit = known.misfits(target, score)
        if kind == "regression":
            widths = {}
            for by, read in {_NOBODY: np.zeros(len(score)), _VALUE: score, **(hints or {})}.items():
                own = replace(known, by=by, **_sizes(read, misfit, by == _NOBODY))
                folded = np.empty(len(score))
                for fold in range(_FOLDS):
                    out = place % _FOLDS == fold
                    fitted = ~out if (~out).any() else out
                    sizes = _sizes(read[fitted], misfit[fitted], by == _NOBODY)
                    folded[out] = misfit[out] / replace(own, **sizes)._size_at(read[out])
                width = limit(folded, np.ones(len(folded)), COVERAGE) * own._size_at(read).mean()
                widths[by] = (width, own, folded)
            _, known, misfit = min(widths.values(), key=lambda found: found[0])
        some = np.unique(np.linspace(0, len(misfit) - 1, min(len(misfit), _MOST_ROWS)).astype(np.int64))
        fresh = known._joined(misfit[some], time[some], np.asarray(known_at)[some], np.asarray(target)[some])
        return replace(fresh, num_kept=len(some))

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Returns all numbers; what the usual size of an error is read from (`by`) is kept beside them."""
        numbers = np.array([self.num_kept, self.floor])
        names = ("misfit", "time", "known_at", "group", "edges", "sizes")
        return {"numbers": numbers} | {name: np.ascontiguousarray(getattr(self, name)) for name in names}

    @staticmethod
    def from_arrays(
        kind: TaskType, by: str, arrays: Mapping[str, NDArray[Any]], rule: TimeRule = "<="
    ) -> Sure:
        told = dict(arrays)
        num_kept, floor = told.pop("numbers")
        return Sure(kind, by=by, num_kept=int(num_kept), floor=float(floor), rule=rule, **told)

    def misfits(
        self, target: NDArray[Any], score: Floats, hints: Mapping[str, Floats] | None = None
    ) -> Floats:
        """Returns how far labels are from what was predicted; of a class that the model does not know, infinitely.

        Labels are rounded as those are that SQL makes again: the last bits of a sum depend on the order of its rows.
        """
        if self.kind == "regression":
            label = np.asarray(np.asarray(target, np.float32), np.float64)
            return np.asarray(np.abs(label - score) / self._size(score, hints))
        rows, own = np.arange(len(target)), np.asarray(target, np.int64)
        is_known = (own >= 0) & (own < score.shape[1])
        return np.where(is_known, 1 - score[rows, np.where(is_known, own, 0)], np.inf)

    def knowing(
        self,
        target: NDArray[Any],
        score: Floats,
        time: Ints,
        known_at: Ints,
        hints: Mapping[str, Floats] | None = None,
    ) -> Sure:
        """Returns the same where more labels become known, each for those who are asked about from then on."""
        return self._joined(self.misfits(target, score, hints), time, known_at, np.asarray(target))

    def _joined(self, misfit: Floats, time: Ints, known_at: Ints, target: NDArray[Any]) -> Sure:
        is_split = self.kind == "binary_classification"
        group = target.astype(np.int64) if is_split else np.zeros(len(target), np.int64)
        more: dict[str, Any] = {"misfit": misfit, "time": time, "known_at": known_at, "group": group}
        joined: dict[str, Any] = {n: np.concatenate([getattr(self, n), new]) for n, new in more.items()}
        return replace(self, **joined)

    def limits(self, time: Ints, num_groups: int = 1, coverage: float = COVERAGE) -> Floats:
        """Returns the (S, groups) limits of misfits at times, infinite where too few are known.

        How fast misfits grow old is chosen at each moment by those that are known then: as it would have told them best
        before they came, by the pinball loss of their limits.
        """
        if (num_groups, coverage) not in self._found:
            self._found[num_groups, coverage] = self._limits(num_groups, coverage)
        moments, found = self._found[num_groups, coverage]
        return np.asarray(found[num_visible(moments, time, self.rule) - 1])

    def _limits(self, num_groups: int, coverage: float) -> tuple[Ints, Floats]:
        """Returns when limits are found anew, and the (moments + 1, groups) limits; the last is that before all."""
        lives = [life for part in _LIVES if (life := part * max(1, self.num_kept)) >= _SHORTEST_LIFE]
        moments, levels = self._moments(), (COVERAGE, coverage)
        order = np.argsort(self.misfit, kind="stable")
        misfit, known_at, group = self.misfit[order], self.known_at[order], self.group[order]
        # (levels, moments and one before them, groups, lives)
        table = np.full((len(levels), len(moments) + 1, num_groups, len(lives)), np.inf)
        for place, moment in enumerate(moments):
            seen = visible(known_at, int(moment))
            for number in range(num_groups):
                own = seen & (group == number) if num_groups > 1 else seen
                later = int(own.sum()) - np.searchsorted(np.sort(known_at[own]), known_at[own], side="right")
                for age, life in enumerate(lives):
                    weight = 0.5 ** (later / life)
                    for level, wanted in enumerate(levels):
                        table[level, place, number, age] = limit(misfit[own], weight, wanted, is_sorted=True)
        groups = self.group if num_groups > 1 else np.zeros_like(self.group)
        said = table[0, num_visible(moments, self.time, self.rule) - 1, groups]  # (V, lives)
        is_judged = np.isfinite(said).all(1) & np.isfinite(self.misfit)
        above = np.where(is_judged[:, None], self.misfit[:, None] - np.where(is_judged[:, None], said, 0), 0)
        loss = np.maximum(COVERAGE * above, (COVERAGE - 1) * above)
        best = [int(loss[visible(self.known_at, int(moment))].sum(0).argmin()) for moment in moments]
        return moments, np.asarray(table[1, np.arange(len(moments) + 1), :, [*best, 0]])

    def _moments(self) -> Ints:
        """Returns when limits are found anew: whenever clearly more misfits are known than the last time."""
        times, counts = np.unique(self.known_at, return_counts=True)
        kept, last = [], 0
        for place, count in enumerate(np.cumsum(counts).tolist()):
            if count >= _GROWN * last:
                kept.append(place)
                last = count
        return times[kept]

    def interval(
        self, score: Floats, time: Ints, coverage: float, hints: Mapping[str, Floats] | None = None
    ) -> Floats:
        """Returns the (S, 2) ends of the intervals of numbers."""
        half = self.limits(time, 1, coverage)[:, 0] * self._size(score, hints)
        return np.stack([np.maximum(score - half, np.minimum(self.floor, score)), score + half], 1)

    def _size(self, score: Floats, hints: Mapping[str, Floats] | None) -> Floats:
        read = (
            score
            if self.by == _VALUE
            else np.zeros(len(score))
            if self.by == _NOBODY
            else (hints or {})[self.by]
        )
        return self._size_at(read)

    def _size_at(self, read: Floats) -> Floats:
        return self.sizes[np.searchsorted(self.edges, read, side="right")]


def limit(misfit: Floats, weight: Floats, coverage: float, is_sorted: bool = False) -> float:
    """Returns the least misfit that so much of the weight is at or below, a row to come weighing 1 and being above all.

    Of n rows that weigh the same it is the ceil((n + 1) coverage)-th: a row that is exchangeable with them is at or
    below it with that chance at least. It is infinite where so few rows cannot promise so much.
    """
    order = slice(None) if is_sorted else np.argsort(misfit, kind="stable")
    sums = np.cumsum(weight[order])
    place = int(np.searchsorted(sums, coverage * ((sums[-1] if len(sums) else 0.0) + 1) - 1e-9))
    return float(misfit[order][place]) if place < len(sums) else np.inf


def in_sets(probability: Floats, limits: Floats) -> NDArray[np.bool_]:
    """Returns which classes each set has: those whose misfit is within the limit, and the likeliest in any case.

    So no set is empty, and none has a rare class alone that is likelier than usual but still unlikely.
    """
    held = 1 - probability <= limits
    held[np.arange(len(held)), probability.argmax(1)] = True
    return held


def surest(sureness: Floats, share: float) -> NDArray[np.bool_]:
    """Returns which rows stay if such a share, the least sure, is left out.

    Rows of equal sureness are not told apart: where they do not all fit into the share, they stay.
    """
    num_out = int(np.floor(share * len(sureness) + 1e-9))
    if not num_out:
        return np.ones(len(sureness), bool)
    least = np.sort(sureness)[min(num_out, len(sureness) - 1)]
    return np.asarray(sureness >= least)


def disagreement(scores: Any, weights: Any) -> Floats:
    """Returns how far the scores of members lie apart: their standard deviation, as they weigh."""
    each, weight = np.asarray(scores, np.float64), np.asarray(weights, np.float64)
    return np.asarray(np.sqrt(np.tensordot(weight, (each - np.tensordot(weight, each, 1)) ** 2, 1)))


def _sizes(read: Floats, error: Floats, is_one: bool) -> dict[str, Any]:
    """Returns the mean error in bins of like count, each pulled towards the mean of all."""
    middle = float(error.mean()) if len(error) else 0.0
    num_bins = 1 if is_one or not middle else max(1, min(_BINS, len(error) // _FEWEST_IN_BIN))
    edges = np.unique(np.quantile(read, np.arange(1, num_bins) / num_bins)) if num_bins > 1 else np.empty(0)
    places = np.searchsorted(edges, read, side="right")
    count, total = (np.bincount(places, each, len(edges) + 1) for each in (np.ones(len(error)), error))
    sizes = (total + _PSEUDO_ERRORS * middle) / (count + _PSEUDO_ERRORS)
    return {"edges": edges, "sizes": sizes if middle else np.ones(len(edges) + 1)}
