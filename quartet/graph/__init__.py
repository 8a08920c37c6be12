"""The graph floor: rows as nodes, foreign keys as edges, sorted by time."""

from quartet.graph.kernels import visible_end
from quartet.graph.temporal import TemporalGraph

__all__ = ["TemporalGraph", "visible_end"]
