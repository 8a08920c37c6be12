"""The graph: rows as nodes, foreign keys as edges, sorted by time."""

from quartet.graph.kernels import (
    has_parent,
    most_parents,
    parent_slots,
    seed_entries,
    table_of,
    visible_end,
    visible_range,
)
from quartet.graph.prefetch import prefetch
from quartet.graph.temporal import TemporalGraph

__all__ = [
    "TemporalGraph",
    "has_parent",
    "most_parents",
    "parent_slots",
    "prefetch",
    "seed_entries",
    "table_of",
    "visible_end",
    "visible_range",
]
