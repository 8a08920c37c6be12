"""Features: the cells of a database as numbers, fitted on what was known at a cut-off, and columns of a seed."""

from quartet.features.aggregates import MEAN_PAST_LABEL, RelationalColumns, is_about_others, unit_of
from quartet.features.arrays import CALENDAR, FIRST_CODE, Bags, TableFeatures, TableLayout, rows_of
from quartet.features.counts import SeedColumns
from quartet.features.describe import describe
from quartet.features.kept import kept_features, statistics_digest
from quartet.features.kinds import ColumnKind, inspected_kinds
from quartet.features.lists import NUM_LISTS, list_column
from quartet.features.paths import LAST
from quartet.features.statistics import FeatureStatistics
from quartet.features.summed import CODE
from quartet.features.table import FeatureTable
from quartet.features.timeline import Timeline
from quartet.features.without import columns_without
from quartet.features.words import YES_NO, ColumnWords, column_words, link_words, plain_table

__all__ = [
    "CALENDAR",
    "CODE",
    "FIRST_CODE",
    "LAST",
    "MEAN_PAST_LABEL",
    "NUM_LISTS",
    "YES_NO",
    "Bags",
    "ColumnKind",
    "ColumnWords",
    "FeatureStatistics",
    "FeatureTable",
    "RelationalColumns",
    "SeedColumns",
    "TableFeatures",
    "TableLayout",
    "Timeline",
    "column_words",
    "columns_without",
    "describe",
    "inspected_kinds",
    "is_about_others",
    "kept_features",
    "link_words",
    "list_column",
    "plain_table",
    "rows_of",
    "statistics_digest",
    "unit_of",
]
