"""The causal samplers: restart walks, recent activity, look-alikes; the BFS2 baseline; the sketch."""

from quartet.samplers.context import Context, sample

__all__ = ["Context", "sample"]
