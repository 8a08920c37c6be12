"""Seeds: the rows of a task table, each a pair (node, time) and, unless it is hidden, its target."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Links:
    """Targets of a recommendation task: for each seed the set of nodes that it will link to."""

    offsets: NDArray[np.int64]  # (S + 1,)
    nodes: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, chosen: NDArray[np.bool_]) -> Links:
        counts = np.diff(self.offsets)
        offsets = np.concatenate([[0], np.cumsum(counts[chosen])])
        return Links(offsets, self.nodes[np.repeat(chosen, counts)])


Target = NDArray[np.float64] | NDArray[np.int64] | NDArray[np.int8] | Links


@dataclass(frozen=True, eq=False)
class Seeds:
    """S pairs (node, time) with their targets: float for regression, class number, (S, classes) of 0 and 1, or `Links`.

    One entity may occur at several times; a seed is the pair, never the entity alone.
    """

    node: NDArray[np.int64]  # (S,) global ids
    time: NDArray[np.int64]  # (S,) UTC nanoseconds
    target: Target | None  # (S,), None where the target is hidden

    def __len__(self) -> int:
        return len(self.node)

    def __post_init__(self) -> None:
        sizes = {len(self.node), len(self.time)} | ({len(self.target)} if self.target is not None else set())
        if len(sizes) != 1:
            raise ValueError(f"seeds of unequal lengths: {sorted(sizes)}")

    def select(self, chosen: NDArray[np.bool_]) -> Seeds:
        target = None if self.target is None else self.target[chosen]
        return Seeds(self.node[chosen], self.time[chosen], target)

    def without_target(self) -> Seeds:
        return replace(self, target=None)

    def joined_with(self, others: Seeds) -> Seeds:
        """Returns these seeds and others, with their targets; of label lists, with those that both can have."""
        targets = [np.asarray(seeds.target) for seeds in (self, others)]
        if targets[0].ndim > 1:
            width = min(target.shape[1] for target in targets)
            targets = [target[:, :width] for target in targets]
        return Seeds(
            np.concatenate([self.node, others.node]),
            np.concatenate([self.time, others.time]),
            np.concatenate(targets),
        )
