"""Trained models: fitted, kept in a folder, evaluated, and bound to a database to predict."""

from quartet.runs.checkpoint import Checkpoint
from quartet.runs.evaluate import Evaluation, evaluation_file, score_on_test
from quartet.runs.leakcheck import LeakReport, leakcheck
from quartet.runs.live import LiveModel
from quartet.runs.model import Ensemble, TrainedModel, fit, load
from quartet.runs.predictions import Predictions, headline, prediction_writer
from quartet.runs.run import Run
from quartet.runs.show import JsonTraining, ProgressView, TrainingView

__all__ = [
    "Checkpoint",
    "Ensemble",
    "Evaluation",
    "JsonTraining",
    "LeakReport",
    "LiveModel",
    "Predictions",
    "ProgressView",
    "Run",
    "TrainedModel",
    "TrainingView",
    "evaluation_file",
    "fit",
    "headline",
    "leakcheck",
    "load",
    "prediction_writer",
    "score_on_test",
]
