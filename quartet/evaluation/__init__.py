"""How predictions are judged: metrics, calibration, and the rules that stand beside a model."""

from quartet.evaluation.blend import blend_weights
from quartet.evaluation.boosting import MOST_TREES, PATIENCE, column_settings, task_settings
from quartet.evaluation.calibration import Calibration, Temperature
from quartet.evaluation.hits import Hits, Miss, confusion, difference, hits, misses
from quartet.evaluation.metrics import (
    Measure,
    calibration_bins,
    check_selectable,
    higher_is_better,
    main_metric,
    measures,
    resamples,
    selection_rows,
    selection_value,
)
from quartet.evaluation.rules import fit_rules
from quartet.evaluation.sure import COVERAGE, Sure, disagreement, in_sets, surest

__all__ = [
    "COVERAGE",
    "MOST_TREES",
    "PATIENCE",
    "Calibration",
    "Hits",
    "Measure",
    "Miss",
    "Sure",
    "Temperature",
    "blend_weights",
    "calibration_bins",
    "check_selectable",
    "column_settings",
    "confusion",
    "difference",
    "disagreement",
    "fit_rules",
    "higher_is_better",
    "hits",
    "in_sets",
    "main_metric",
    "measures",
    "misses",
    "resamples",
    "selection_rows",
    "selection_value",
    "surest",
    "task_settings",
]
