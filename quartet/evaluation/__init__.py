"""How predictions are judged: metrics, calibration, and the rules that stand beside a model."""

from quartet.evaluation.blend import blend_weights
from quartet.evaluation.boosting import MOST_TREES, PATIENCE, column_settings, task_settings
from quartet.evaluation.calibration import Calibration
from quartet.evaluation.hits import Hits, Miss, confusion, difference, hits, misses
from quartet.evaluation.lists import NO_ITEM, Lists, average_precisions, fused, list_measures
from quartet.evaluation.metrics import (
    Measure,
    calibration_bins,
    check_selectable,
    higher_is_better,
    main_metric,
    measures,
    selection_rows,
    selection_value,
)
from quartet.evaluation.rules import fit_rules

__all__ = [
    "MOST_TREES",
    "NO_ITEM",
    "PATIENCE",
    "Calibration",
    "Hits",
    "Lists",
    "Measure",
    "Miss",
    "average_precisions",
    "blend_weights",
    "calibration_bins",
    "check_selectable",
    "column_settings",
    "confusion",
    "difference",
    "fit_rules",
    "fused",
    "higher_is_better",
    "hits",
    "list_measures",
    "main_metric",
    "measures",
    "misses",
    "selection_rows",
    "selection_value",
    "task_settings",
]
