"""Clock: the time limit of a fitting, and which of its data come first where there is no time for all."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from quartet.recommend.events import Ints
from quartet.tasks import Seeds


@dataclass(frozen=True)
class Clock:
    """A limit in seconds, which may be infinite, from now on."""

    limit: float
    begin: float = field(default_factory=lambda: time.perf_counter())

    @property
    def spent(self) -> float:
        return time.perf_counter() - self.begin

    @property
    def left(self) -> float:
        return self.limit - self.spent

    def part(self, share: float) -> float:
        """Returns the seconds of a share of the limit, or what is left."""
        return max(0.0, min(share * self.limit, self.left))


def latest(seeds: Seeds, most: int) -> Seeds:
    """Returns the latest seeds, in their order."""
    return seeds if len(seeds) <= most else seeds.select(is_latest(seeds, most))


def is_latest(seeds: Seeds, most: int) -> NDArray[np.bool_]:
    found = np.zeros(len(seeds), bool)
    found[np.argsort(-seeds.time, kind="stable")[:most]] = True
    return found


def spread(seeds: Seeds, most: int) -> Seeds:
    """Returns some seeds, evenly over all."""
    some = np.linspace(0, len(seeds) - 1, most).astype(np.int64)
    return seeds if len(seeds) <= most else seeds.select(np.isin(np.arange(len(seeds)), some))


def newest_first(moments: Ints) -> Ints:
    return np.sort(moments)[::-1]


def spread_out(moments: Ints) -> Ints:
    """Returns moments so that the first few, however many these are, are spread over all."""
    return np.sort(moments)[np.argsort(np.arange(len(moments)) * 0.6180339887 % 1.0, kind="stable")]
