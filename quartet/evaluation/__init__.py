"""What predictions are judged by: metrics, calibration, and the rules that stand beside a model."""

from quartet.evaluation.calibration import Calibration
from quartet.evaluation.counts import MOST_TREES, PATIENCE, SETTINGS, lightgbm_for, task_settings
from quartet.evaluation.metrics import (
    Measure,
    calibration_bins,
    check_selectable,
    higher_is_better,
    main_metric,
    measures,
    selection_value,
)
from quartet.evaluation.rows import fit_baselines, knowing
from quartet.features.counts import Columns, days_since, last_known, link_counts, own_columns, time_columns

__all__ = [
    "MOST_TREES",
    "PATIENCE",
    "SETTINGS",
    "Calibration",
    "Columns",
    "Measure",
    "calibration_bins",
    "check_selectable",
    "days_since",
    "fit_baselines",
    "higher_is_better",
    "knowing",
    "last_known",
    "lightgbm_for",
    "link_counts",
    "main_metric",
    "measures",
    "own_columns",
    "selection_value",
    "task_settings",
    "time_columns",
]
