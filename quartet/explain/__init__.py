"""Explanations: why a prediction is what it is, and what a model uses; in plain words and numbers that add up."""

from quartet.explain.lists import ListedItem, ListExplanations, explain_lists
from quartet.explain.result import (
    Change,
    ColumnEffect,
    Curve,
    Effect,
    Explanation,
    Explanations,
    GlobalView,
    LookAlike,
    RowEffect,
    Use,
    explanation_writer,
)
from quartet.explain.uses import global_view
from quartet.explain.why import explain

__all__ = [
    "Change",
    "ColumnEffect",
    "Curve",
    "Effect",
    "Explanation",
    "Explanations",
    "GlobalView",
    "ListExplanations",
    "ListedItem",
    "LookAlike",
    "RowEffect",
    "Use",
    "explain",
    "explain_lists",
    "explanation_writer",
    "global_view",
]
