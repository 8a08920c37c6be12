"""Trained models: fitted, kept in a folder, evaluated, and bound to a database to predict."""

from quartet.runs.checkpoint import Checkpoint
from quartet.runs.embed import embedding_writer, vectors_of
from quartet.runs.evaluate import Evaluation, evaluation_file, kept_evaluations, paired, score_on_test
from quartet.runs.judgement import kept_judgement_of_said
from quartet.runs.leakcheck import LeakReport, leakcheck
from quartet.runs.live import LiveModel
from quartet.runs.model import Ensemble, TrainedModel, fit, load
from quartet.runs.predictions import Predictions, prediction_writer, question
from quartet.runs.run import Run
from quartet.runs.show import JsonTraining, ProgressView, TrainingView
from quartet.runs.sure import Judged

__all__ = [
    "Checkpoint",
    "Ensemble",
    "Evaluation",
    "JsonTraining",
    "Judged",
    "LeakReport",
    "LiveModel",
    "Predictions",
    "ProgressView",
    "Run",
    "TrainedModel",
    "TrainingView",
    "embedding_writer",
    "evaluation_file",
    "fit",
    "kept_evaluations",
    "kept_judgement_of_said",
    "leakcheck",
    "load",
    "paired",
    "prediction_writer",
    "question",
    "score_on_test",
    "vectors_of",
]
