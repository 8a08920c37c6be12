"""Recommendation: which items a source will have to do with next. Reached by name, through `quartet.registry`."""

from quartet.recommend.pairs import PairColumns, Reader
from quartet.recommend.reasons import ItemReasons, item_reasons
from quartet.recommend.recommender import Recommender
from quartet.recommend.rows import pair_rows
from quartet.recommend.towers import Towers

__all__ = ["ItemReasons", "PairColumns", "Reader", "Recommender", "Towers", "item_reasons", "pair_rows"]
