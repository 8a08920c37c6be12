"""The graph floor: rows as nodes, foreign keys as edges, sorted by time."""

from quartet.graph.storage import open_graph, save_graph
from quartet.graph.temporal import TemporalGraph

__all__ = ["TemporalGraph", "open_graph", "save_graph"]
