"""The type of task that a query stands for, and why."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from quartet.tasks.query.resolve import Kind
from quartet.tasks.query.tree import Aggregation, Query, Reference
from quartet.tasks.spec import TaskType

_MANY_CLASSES = 100


class Found(NamedTuple):
    type: TaskType
    why: str


def forecast_type(query: Query, kind: Kind) -> Found:
    """Returns the type of a forecast whose target holds a kind of value."""
    target, form = query.target, query.form
    if not isinstance(target, Aggregation):
        if form is not None:
            raise form.span.error(
                "Q08", f"{form.kind} follows no condition: it is true or false", "take it out"
            )
        return Found("binary_classification", "the target is a condition")
    if target.function == "LIST_DISTINCT":
        if form is not None and form.kind == "CLASSIFY" and kind != "time":
            return Found("multilabel_classification", f"a list of {target.of.span}, CLASSIFY")
        if form is None or form.kind != "RANK":
            span = form.span if form else target.span
            fix = (
                f"write {target.span} RANK TOP 10 for a recommendation, or {target.span} CLASSIFY for a yes or no "
                "to each value"
            )
            raise span.error("Q08", "a list of rows can only be ranked or classified", fix)
        return Found("recommendation", "LIST_DISTINCT ... RANK TOP")
    if form is not None and form.kind == "RANK":
        raise form.span.error("Q08", "RANK needs a LIST_DISTINCT of links", "take it out")
    if kind == "time":
        fix = "compare it with a time, or aggregate numbers"
        raise target.span.error("Q05", f"{target.span} is a time, which no model predicts", fix)
    if form is not None or kind == "text":
        return Found("multiclass_classification", "CLASSIFY" if form else f"{target.of.span} holds text")
    if kind == "truth":
        return Found("binary_classification", f"{target.of.span} holds truth values")
    return Found("regression", f"{target.function} is a number")


def column_type(query: Query, target: Reference, data: pa.ChunkedArray, kind: Kind, named: str = "") -> Found:
    """Returns the type of a task that fills in a column; `named` is the table whose rows a link names.

    Of few rows each is a class; of many the likeliest are listed.
    """
    is_ranked = query.form is not None and query.form.kind == "RANK"
    if is_ranked and not named and query.form is not None:
        raise query.form.span.error("Q08", "RANK needs links: a LIST_DISTINCT of them, or one", "take it out")
    if kind in ("time", "other"):
        raise target.span.error(
            "Q05", f"{target.span} holds neither numbers nor text", "choose another column"
        )
    values = pc.unique(data.drop_null())
    if named:
        why = f"{target.span} names {len(values):,} rows of {named}"
        if is_ranked or (len(values) > _MANY_CLASSES and query.form is None):
            return Found("recommendation", why if is_ranked else f"{why}; CLASSIFY makes each a class")
        return Found("multiclass_classification", why)
    is_binary = kind == "truth" or (kind == "number" and set(values[:3].to_pylist()) <= {0, 1})
    if query.form is not None or kind == "text":
        found = Found("multiclass_classification", f"{target.span} holds {len(values):,} classes")
        if kind == "text" and query.form is None and len(values) > _MANY_CLASSES:
            what = f"{target.span} has {len(values):,} different texts, too many for classes"
            raise target.span.error("Q05", what, "choose another column; CLASSIFY insists")
    elif is_binary:
        found = Found("binary_classification", f"{target.span} holds 0 and 1")
    else:
        found = Found("regression", f"{target.span} holds numbers")
    return found
