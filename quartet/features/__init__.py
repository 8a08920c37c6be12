"""The features floor: the cells of a database as numbers, by what was known at a cut-off."""

from quartet.features.arrays import (
    CALENDAR,
    FIRST_CODE,
    KINDS,
    MISSING,
    NO_DATE,
    UNSEEN,
    Bags,
    Kind,
    TableFeatures,
    TableLayout,
    rows_of,
)
from quartet.features.fit import FeatureStatistics
from quartet.features.table import FeatureTable
from quartet.features.text import Embedder, HashingEmbedder, SentenceEmbedder

__all__ = [
    "CALENDAR",
    "FIRST_CODE",
    "KINDS",
    "MISSING",
    "NO_DATE",
    "UNSEEN",
    "Bags",
    "Embedder",
    "FeatureStatistics",
    "FeatureTable",
    "HashingEmbedder",
    "Kind",
    "SentenceEmbedder",
    "TableFeatures",
    "TableLayout",
    "rows_of",
]
