"""The contexts of a task: for each split its seeds as the evaluation protocol lets them see, cached."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from quartet.config import Protocol, SamplingConfig
from quartet.contexts.cache.build import Estimate, cached_sample
from quartet.contexts.context import Context, Progress
from quartet.findings import Finding
from quartet.graph import TemporalGraph
from quartet.machine import user_cache
from quartet.tasks import Seeds, Split, Task


@dataclass(frozen=True)
class TaskContext:
    """The contexts of one split; `seconds` is None if they were read from the cache."""

    split: Split
    context: Context
    seconds: float | None


def default_cache() -> Path:
    """Where contexts are kept unless another folder is given."""
    return user_cache() / "contexts"


def protocol_seeds(task: Task, split: Split, protocol: Protocol) -> Seeds:
    """The seeds of a split at the times up to which they may look.

    `frozen` (RelBench's examples, the paper): the database ends at the test cut-off, so a later seed looks
    from there. `rolling`: every seed looks from its own time. A column to be filled in stands in rows after
    the cut-off, which a frozen database would not have: for autocomplete both are the same.
    """
    seeds = task.seeds(split)
    if protocol == "rolling" or task.spec.kind == "autocomplete":
        return seeds
    return Seeds(seeds.node, np.minimum(seeds.time, task.splits.test), seeds.target)


def task_context(
    task: Task,
    graph: TemporalGraph,
    config: SamplingConfig,
    split: Split,
    protocol: Protocol = "frozen",
    folder: Path | None = None,
    progress: Progress = lambda _: None,
    report: Callable[[Finding], None] = lambda _: None,
    announce: Callable[[Estimate], None] = lambda _: None,
) -> TaskContext:
    """The contexts of one split, from the cache or sampled into it."""
    begin = None

    def start(cost: Estimate) -> None:
        """The estimate has compiled what is needed: from here on it is work."""
        nonlocal begin
        announce(cost)
        begin = time.perf_counter()

    context = cached_sample(
        graph,
        protocol_seeds(task, split, protocol),
        config,
        folder or default_cache(),
        f"{task.name}-{split}",
        progress,
        report,
        start,
    )
    return TaskContext(split, context, None if begin is None else time.perf_counter() - begin)
