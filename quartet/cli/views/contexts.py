"""What people see of contexts: what sampling will take, and the shape of what was sampled."""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np
from rich.table import Table as Grid

from quartet.config import SamplingConfig
from quartet.contexts import Context, connectivity, estimate
from quartet.drawing import new_grid, say
from quartet.graph import TemporalGraph
from quartet.runs import ProgressView
from quartet.tasks import Seeds, Split


class SamplingView(ProgressView):
    """Tells what sampling will take before it begins, and how long it took; from the cache it takes nothing."""

    seconds: float | None = None

    def __init__(self, graph: TemporalGraph, seeds: Seeds, config: SamplingConfig) -> None:
        super().__init__()
        self._asked = (graph, seeds, config)

    def progress(self, what: str, done: int, total: int) -> None:
        if not done:
            cost = estimate(*self._asked)
            say(f"{what}: {total:,} seeds, about {cost.seconds:.1f} s and {cost.num_bytes / 1e6:.1f} MB")
            self._begin = time.perf_counter()
        self.seconds = time.perf_counter() - self._begin
        super().progress(what, done, total)


def contexts_view(sampled: Mapping[Split, tuple[Context, float | None]], config: SamplingConfig) -> Grid:
    """Returns one line for each split: size and shape of the contexts, and how fast they were sampled."""
    numbers = (
        "seeds", "distinct", "mean hop", "fallback", "degree", "seed-connected", "components",
        "look-alikes", "times", "bytes/seed", "seeds/s",
    )  # fmt: skip
    table = new_grid("Contexts (means over seeds)", "split", *numbers, right=numbers)
    for split, (context, seconds) in sampled.items():
        count, means = max(1, len(context)), connectivity(context).means()
        found = (context.local_hop > 0) & (context.local_hop < config.fallback_hop)
        hops = context.local_hop[found]
        table.add_row(
            split,
            f"{len(context):,}",
            f"{means['distinct']:.1f}",
            f"{hops.mean() if len(hops) else 0.0:.2f}",
            f"{no_history_rate(context, config):.1%}",
            f"{means['degree']:.2f}",
            f"{means['seed_connected']:.3f}",
            f"{means['components']:.1f}",
            f"{len(context.collab_node) / count:.1f}",
            f"{len(context.temporal_start) - 1:,}",
            f"{context.num_bytes / count:,.0f}",
            f"{len(context) / seconds:,.0f}" if seconds else "cached",
        )
    return table


def no_history_rate(context: Context, config: SamplingConfig) -> float:
    """Returns the fraction of seeds whose walks found nothing: they stand alone, or with rows drawn at random."""
    if not len(context):
        return 0.0
    is_alone = np.diff(context.local_start) == 1
    second = np.minimum(context.local_start[:-1] + 1, max(0, len(context.local_hop) - 1))
    return float((is_alone | (context.local_hop[second] == config.fallback_hop)).mean())
