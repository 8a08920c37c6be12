"""How predictions are judged: metrics, calibration, and the rules that stand beside a model."""

from quartet.evaluation.blend import blend_weights
from quartet.evaluation.boosting import (
    CLASS_CODES,
    MOST_TREES,
    column_settings,
    grow_labels,
    patience,
    task_settings,
)
from quartet.evaluation.calibration import Calibration
from quartet.evaluation.hits import (
    Hits,
    LabelFigures,
    Miss,
    best_thresholds,
    confusion,
    difference,
    hits,
    label_figures,
    misses,
)
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
    "CLASS_CODES",
    "MOST_TREES",
    "Calibration",
    "Hits",
    "LabelFigures",
    "Measure",
    "Miss",
    "best_thresholds",
    "blend_weights",
    "calibration_bins",
    "check_selectable",
    "column_settings",
    "confusion",
    "difference",
    "fit_rules",
    "grow_labels",
    "higher_is_better",
    "hits",
    "label_figures",
    "main_metric",
    "measures",
    "misses",
    "patience",
    "selection_rows",
    "selection_value",
    "task_settings",
]
