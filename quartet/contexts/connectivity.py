"""How well local contexts hang together: the paper's measures (appendix A.4.1), seed by seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quartet.contexts.context import Context
from quartet.machine import compiled, part


@dataclass(frozen=True)
class Connectivity:
    """One value for each seed; n is its distinct rows, the seed included, M its edges."""

    distinct: NDArray[np.float64]  # n
    degree: NDArray[np.float64]  # 2 M / n
    seed_connected: NDArray[np.float64]  # share of the rows that are reachable from the seed
    components: NDArray[np.float64]
    component_size: NDArray[np.float64]  # the mean of them: n / components
    density: NDArray[np.float64]  # M / (n (n - 1) / 2)
    clustering: NDArray[np.float64]  # mean share of linked pairs among a row's neighbours

    def means(self) -> dict[str, float]:
        """Returns the mean of each measure over all seeds."""
        return {name: float(np.mean(values)) if len(values) else 0.0 for name, values in vars(self).items()}

    def deviations(self) -> dict[str, float]:
        """Returns the standard deviation of each measure over all seeds."""
        return {name: float(np.std(values)) if len(values) else 0.0 for name, values in vars(self).items()}


def connectivity(context: Context) -> Connectivity:
    """Measures every seed's local context."""
    edge_start, edge = context.edges()
    distinct, edges = np.diff(context.local_start), np.diff(edge_start)
    measured = np.zeros((3, len(context)))
    _measure(context.local_start, edge_start, edge, measured)
    pairs = np.maximum(distinct * (distinct - 1) / 2, 1)
    return Connectivity(
        distinct.astype(np.float64),
        2 * edges / distinct,
        measured[0],
        measured[1],
        distinct / measured[1],
        edges / pairs,
        measured[2],
    )


@compiled
def _measure(local_start: Any, edge_start: Any, edges: Any, measured: Any) -> None:
    for seed in range(len(local_start) - 1):
        count = local_start[seed + 1] - local_start[seed]
        own = edges[edge_start[seed] : edge_start[seed + 1]]
        root = np.arange(count)
        for child, parent in own:
            one, other = _root(root, child), _root(root, parent)
            root[max(one, other)] = min(one, other)
        with_seed, components = 0, 0
        for place in range(count):
            top = _root(root, place)
            with_seed += top == 0
            components += top == place
        measured[0, seed] = with_seed / count
        measured[1, seed] = components
        measured[2, seed] = _clustering(own, count)


@part
def _root(root: Any, place: Any) -> Any:
    while root[place] != place:
        root[place] = root[root[place]]
        place = root[place]
    return place


@part
def _clustering(edges: Any, count: Any) -> Any:
    """Returns the mean over rows of the share of linked pairs among their neighbours (0 with fewer than two)."""
    linked = np.zeros((count, count), np.bool_)
    for child, parent in edges:
        linked[child, parent] = linked[parent, child] = True
    total = 0.0
    for place in range(count):
        beside = np.flatnonzero(linked[place])
        if len(beside) > 1:
            closed = 0
            for one in range(len(beside)):
                for other in range(one):
                    closed += linked[beside[one], beside[other]]
            total += 2 * closed / (len(beside) * (len(beside) - 1))
    return total / count
