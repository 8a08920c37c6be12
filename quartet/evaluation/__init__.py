"""How predictions are judged: metrics, calibration, and the rules that stand beside a model."""

from quartet.evaluation.blend import blend_weights, compared, compared_by
from quartet.evaluation.boosting import (
    CLASS_CODES,
    MOST_TREES,
    column_settings,
    grow_labels,
    patience,
    task_settings,
)
from quartet.evaluation.calibration import Calibration, Temperature
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
from quartet.evaluation.lists import NO_ITEM, Lists, average_precisions, fused, list_measures
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
    "CLASS_CODES",
    "COVERAGE",
    "MOST_TREES",
    "NO_ITEM",
    "Calibration",
    "Hits",
    "LabelFigures",
    "Lists",
    "Measure",
    "Miss",
    "Sure",
    "Temperature",
    "average_precisions",
    "best_thresholds",
    "blend_weights",
    "calibration_bins",
    "check_selectable",
    "column_settings",
    "compared",
    "compared_by",
    "confusion",
    "difference",
    "disagreement",
    "fit_rules",
    "fused",
    "grow_labels",
    "higher_is_better",
    "hits",
    "in_sets",
    "label_figures",
    "list_measures",
    "main_metric",
    "measures",
    "misses",
    "patience",
    "resamples",
    "selection_rows",
    "selection_value",
    "surest",
    "task_settings",
]
