"""The contexts of seeds: samplers, what they gather, and the cache."""

from quartet.contexts.cache.build import Estimate, cached_sample
from quartet.contexts.connectivity import connectivity
from quartet.contexts.context import Array, Context, Progress, sample
from quartet.contexts.draws import draw, seed_keys
from quartet.contexts.of_task import TaskContext, default_cache, protocol_seeds, task_context
from quartet.contexts.select import select

__all__ = [
    "Array",
    "Context",
    "Estimate",
    "Progress",
    "TaskContext",
    "cached_sample",
    "connectivity",
    "default_cache",
    "draw",
    "protocol_seeds",
    "sample",
    "seed_keys",
    "select",
    "task_context",
]
