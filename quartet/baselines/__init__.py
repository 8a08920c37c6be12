"""Baselines: the trivial rows that stand beside every result, so that a reader sees what a model adds."""

from quartet.baselines.counts import CountsModel
from quartet.baselines.rows import Baseline, fit_baselines, knowing
from quartet.baselines.simple import Constant, PastLabels, entity_mean, last_labels

__all__ = [
    "Baseline",
    "Constant",
    "CountsModel",
    "PastLabels",
    "entity_mean",
    "fit_baselines",
    "knowing",
    "last_labels",
]
