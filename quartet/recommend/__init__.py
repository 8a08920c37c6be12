"""Recommendation: which items a source will have to do with next. Reached by name, through `quartet.registry`."""

from quartet.recommend.pairs import PairColumns, Reader
from quartet.recommend.recommender import Recommender
from quartet.recommend.rows import pair_rows
from quartet.recommend.towers import Towers

__all__ = ["PairColumns", "Reader", "Recommender", "Towers", "pair_rows"]
