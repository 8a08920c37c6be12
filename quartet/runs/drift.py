"""Reasons to doubt a prediction: a time far from training, and inputs that have drifted since.

A model keeps how some columns of its training seeds were distributed: those by which its trees gained most, or those
nearby, and its own scores. Those who are asked about are compared with these by the population stability index (the sum
of (p - q) ln(p / q) over bins). Test seeds, without their labels, were compared so, too: a column is said to have
drifted where it is beyond the usual limit and twice as far from training as test was, where the model was judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quartet.features import is_about_others
from quartet.findings import Finding, note, warning
from quartet.tasks import SPLITS, Seeds, Split, TaskRecord
from quartet.times import DAY, show_instant, show_length
from quartet.training import TrainingData, View

_MOST_COLUMNS = 20
_MOST_SEEDS = 4000
_FEWEST_SEEDS = 20
_QUANTILES = (0.2, 0.4, 0.6, 0.8)
_LIMIT = 0.25  # of the index, by custom: a great change
_TIMES_TEST = 2.0
_FAR = 3  # horizons
SCORE = "the model's own score"

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class DriftColumn:
    """How a column was distributed over training seeds, and how far from it those of test were."""

    name: str
    edges: tuple[float, ...]
    shares: tuple[float, ...]  # of each bin; the last is that of absent values
    num_seeds: int
    test: float

    @staticmethod
    def of(name: str, train: Floats, test: Floats) -> DriftColumn:
        filled = train[~np.isnan(train)]
        edges = np.unique(np.quantile(filled, _QUANTILES)) if len(filled) else np.empty(0)
        shares = tuple(_shares(edges, train).tolist())
        fresh = DriftColumn(name, tuple(map(float, edges)), shares, len(train), 0.0)
        return DriftColumn(name, fresh.edges, shares, len(train), fresh.index(test) if len(test) else 0.0)

    def __post_init__(self) -> None:
        numbers = [*self.edges, *self.shares, self.test]
        if len(self.shares) != len(self.edges) + 2 or not np.isfinite(numbers).all() or min(self.shares) <= 0:
            raise ValueError(f"what is kept of the column {self.name} is no distribution")

    def index(self, values: Floats) -> float:
        """Returns the population stability index of values."""
        now, then = _shares(np.array(self.edges), values), np.array(self.shares)
        return float(((now - then) * np.log(now / then)).sum())

    def has_drifted(self, values: Floats) -> bool:
        """Returns whether values lie beyond the limit, beyond what chance does, and twice as far as those of test."""
        degrees = len(self.shares) - 1
        chance = (degrees + 3 * np.sqrt(2 * degrees)) * (1 / len(values) + 1 / self.num_seeds)
        return bool(self.index(values) > max(_LIMIT, _TIMES_TEST * self.test) + chance)


@dataclass(frozen=True)
class Drift:
    """What a model keeps to notice drift."""

    columns: tuple[DriftColumn, ...]

    @staticmethod
    def of(data: TrainingData, model: Any, logits: Mapping[Split, Floats]) -> Drift:
        """Returns the columns of some training seeds; `logits` are the model's, of validation and test."""
        kept = []
        names = _watched(data, model)
        if names:
            train, val, test = (_some(data.seeds[split]) for split in SPLITS)
            before = np.concatenate([data.view.matrix(seeds, names) for seeds in (train, val)]).astype(
                np.float64
            )
            after = data.view.matrix(test, names).astype(np.float64)
            kept += [DriftColumn.of(n, before[:, i], after[:, i]) for i, n in enumerate(names)]
        if logits["val"].shape[1] == 1:
            kept.append(DriftColumn.of(SCORE, logits["val"][:, 0], logits["test"][:, 0]))
        return Drift(tuple(kept))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(content: Mapping[str, Any]) -> Drift:
        columns = [
            {**c, "edges": tuple(c["edges"]), "shares": tuple(c["shares"])} for c in content["columns"]
        ]
        return Drift(tuple(DriftColumn(**column) for column in columns))

    def drifted(self, view: View, seeds: Seeds, logits: Floats) -> list[str]:
        """Returns the columns in which seeds are far from those of training; of few seeds nothing can be said."""
        if len(seeds) < _FEWEST_SEEDS:
            return []
        names = tuple(column.name for column in self.columns if column.name != SCORE)
        known = set(view.columns.names) if names else set()
        names = tuple(name for name in names if name in known)
        matrix = view.matrix(_some(seeds), names).astype(np.float64) if names else np.empty((0, 0))
        values = {name: matrix[:, place] for place, name in enumerate(names)} | {SCORE: logits[:, 0]}
        return [c.name for c in self.columns if c.name in values and c.has_drifted(values[c.name])]


def drift_finding(task: str, entities: str, drifted: Sequence[str]) -> Iterator[Finding]:
    """Yields a warning about columns that have drifted, if there are any; it names three at most."""
    names = list(dict.fromkeys(drifted))
    if names:
        shown = ", ".join(f'"{name}"' for name in names[:3])
        more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
        text = (
            f"these {entities} differ from those of training, more than those of test did, in "
            f"{shown}{more}: scores may be worse than they were on test"
        )
        yield warning("D04", task, text, len(names), "train again with the rows that have come since")


def time_findings(record: TaskRecord, times: NDArray[np.int64]) -> Iterator[Finding]:
    """Yields what is doubtful about asking at some times.

    They are far if they lie further beyond the end of the data of training than three horizons, or than it took from
    the train cut-off to that end if the task has no horizon. Before the train cut-off a model has seen the answers.
    """
    if not len(times):
        return
    first, last = int(times.min()), int(times.max())
    if record.last is not None:
        late = last - record.last
        if late > (_FAR * record.spec.lag or record.last - record.val_timestamp):
            text = (
                f"{show_instant(last)} is {show_length(late // DAY * DAY or late)} after the end of the data that the "
                f"model was trained with ({show_instant(record.last)}): it was never judged so late"
            )
            yield warning("T20", record.name, text, fix="train again with the rows that have come since")
    if first + record.spec.lag < record.val_timestamp:
        text = (
            f"the model was trained with labels up to {show_instant(record.val_timestamp)}, later than "
            f"{show_instant(first)}: these scores look better than it is"
        )
        yield note("T20", record.name, text)


def held_findings(record: TaskRecord, view: View, seeds: Seeds) -> Iterator[Finding]:
    """Yields a note where a model is asked as of an earlier time than it was asked for (`training.held`)."""
    asked = view.asked(seeds)
    count = int((asked.time != seeds.time).sum())
    if count:
        last = show_instant(int(asked.time[asked.time != seeds.time].max()))
        text = (
            f"{count:,} of {len(seeds):,} are asked as of {last} at the latest: the newest rows are older than they "
            "ever were in training"
        )
        yield note(
            "T22", record.name, text, fix="add the rows since; --set late_seeds=own in training asks as late"
        )


def _watched(data: TrainingData, model: Any) -> tuple[str, ...]:
    """Returns the columns to look at: those by which trees gained most, or those that a tower reads nearby.

    Not those that tell of the calendar or of a whole table, which are never the same twice.
    """
    gains = {name: gain for name, gain in getattr(model, "gains", {}).items() if gain > 0}
    if not gains and not data.recipe.model.tower:
        return ()
    columns = data.view.columns
    names = sorted(gains, key=lambda name: -gains[name]) or [
        n for n in data.column_names if n in columns.near
    ]
    calendar = set(columns.blocks[0].names)
    return tuple(name for name in names if name not in calendar and not is_about_others(name))[:_MOST_COLUMNS]


def _some(seeds: Seeds) -> Seeds:
    """Returns seeds that are spread evenly among many."""
    chosen = spread_places(len(seeds))
    return Seeds(seeds.node[chosen], seeds.time[chosen], None)


def spread_places(count: int) -> NDArray[np.int64]:
    """Returns places that are spread evenly among so many: all of few."""
    return np.unique(np.linspace(0, count - 1, min(count, _MOST_SEEDS)).astype(np.int64))


def _shares(edges: Floats, values: Floats) -> Floats:
    """Returns the part of values in each bin, absent ones in the last; no part is 0."""
    places = np.where(np.isnan(values), len(edges) + 1, np.searchsorted(edges, values))
    counts = np.bincount(places, minlength=len(edges) + 2) + 0.5
    return np.asarray(counts / counts.sum())
