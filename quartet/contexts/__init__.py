"""The contexts of seeds: the samplers, what they gather, and the cache that keeps it."""

from quartet.contexts.cache import (
    Estimate,
    cached_sample,
    default_cache,
    estimate,
    seconds_of_a_seed,
    task_context,
)
from quartet.contexts.connectivity import connectivity
from quartet.contexts.context import Array, Context, select
from quartet.contexts.draws import draw, seed_keys
from quartet.contexts.keeping import kept_graph
from quartet.contexts.sampling import sample

__all__ = [
    "Array",
    "Context",
    "Estimate",
    "cached_sample",
    "connectivity",
    "default_cache",
    "draw",
    "estimate",
    "kept_graph",
    "sample",
    "seconds_of_a_seed",
    "seed_keys",
    "select",
    "task_context",
]
