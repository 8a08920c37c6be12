"""The features floor: the cells of a database as numbers, by what was known at a cut-off."""

from quartet.features.aggregates import CODE, RelationalColumns
from quartet.features.arrays import CALENDAR, Bags, TableFeatures, TableLayout, rows_of
from quartet.features.describe import describe, schema_yaml
from quartet.features.fit import FeatureStatistics
from quartet.features.kinds import ColumnKind, inspected_kinds
from quartet.features.table import FeatureTable
from quartet.features.timeline import Timeline

__all__ = [
    "CALENDAR",
    "CODE",
    "Bags",
    "ColumnKind",
    "FeatureStatistics",
    "FeatureTable",
    "RelationalColumns",
    "TableFeatures",
    "TableLayout",
    "Timeline",
    "describe",
    "inspected_kinds",
    "rows_of",
    "schema_yaml",
]
