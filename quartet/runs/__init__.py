"""Trained models: kept in a folder, asked and judged."""

from quartet.runs.checkpoint import load_checkpoint
from quartet.runs.ensemble import Ensemble
from quartet.runs.evaluate import Evaluation, Row, evaluate_runs, keep_evaluation, score_on_test
from quartet.runs.predict import Predictor, Question
from quartet.runs.run import Run, evaluation_name, fit, train_boosted, train_run

__all__ = [
    "Ensemble",
    "Evaluation",
    "Predictor",
    "Row",
    "Run",
    "evaluate_runs",
    "evaluation_name",
    "fit",
    "keep_evaluation",
    "load_checkpoint",
    "score_on_test",
    "train_boosted",
    "train_run",
]
