"""Vault: the test targets, kept apart until a run is over.

Training code receives test seeds without targets. Only evaluation calls `open` (a test reads the source
to make sure), and every opening is written down.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from quartet.tasks.seeds import Links, Target


@dataclass
class Vault:
    _load: Callable[[], Target]
    openings: list[str] = field(default_factory=list)

    def open(self, reason: str) -> Target:
        """Returns the test targets, in the order of the test seeds."""
        self.openings.append(reason)
        return self._load()

    def balance(self) -> str:
        """Describes the distribution of the test targets; no single label leaves the vault."""
        return balance(self._load())

    def __repr__(self) -> str:
        return f"Vault(opened {len(self.openings)} times)"


def balance(target: Target) -> str:
    """Describes the distribution of targets in a few words."""
    if len(target) == 0:
        return "no rows"
    if isinstance(target, Links):
        return f"{np.diff(target.offsets).mean():.1f} items a row"
    if target.ndim > 1:
        return f"{target.sum(1).mean():.1f} of {target.shape[1]:,} classes a row"
    if np.issubdtype(target.dtype, np.floating):
        return f"mean {target.mean():.2f}, median {np.median(target):.2f}"
    if target.max() <= 1:
        return f"{target.mean():.1%} positive ({int(target.sum()):,})"
    counts = np.bincount(target)
    return f"{int((counts > 0).sum())} classes, largest {counts.max() / len(target):.1%}"
