"""What follows from a query in a word: the length of its horizon, and a name for its target."""

from __future__ import annotations

import re
from datetime import date
from typing import Any

from quartet.tasks.query.tree import Aggregation, Comparison, Condition, Query, Reference, Window, terms
from quartet.times import DAY, SECOND

_LENGTHS = {"seconds": SECOND, "minutes": 60 * SECOND, "hours": 3600 * SECOND, "days": DAY, "weeks": 7 * DAY}
_OPERATORS = {"=": "is", "!=": "not", "<": "below", "<=": "upto", ">": "above", ">=": "from", "NULL": "null"}
LONGEST_NAME = 60


def window_length(window: Window) -> int:
    """Returns the length from t to the end of a window in nanoseconds; of months, the longest."""
    if window.unit != "months":
        return window.end * _LENGTHS[window.unit]
    years, months = divmod(window.end, 12)
    starts = [(year, month) for year in range(2000, 2008) for month in range(1, 13)]
    ends = [(y + years + (m - 1 + months) // 12, (m - 1 + months) % 12 + 1) for y, m in starts]
    return max(
        (date(2000 + (b[0] - 2000) % 400, b[1], 1) - date(2000, 1, 1)).days
        + (b[0] - 2000) // 400 * 146_097
        - (date(a[0], a[1], 1) - date(2000, 1, 1)).days
        for a, b in zip(starts, ends, strict=True)
    ) * DAY  # fmt: skip


def slug(query: Query, sign: str) -> str:
    """Returns a short name for the target: `no_orders_30_days`."""
    named = []
    for term in terms(query.target):
        if isinstance(term, Reference):
            named.append(term.column.text if term.column else term.table.text)
            continue
        test, table = _test_of(query.target, term), term.of.table.text
        words = [table, *([term.of.column.text] if term.of.column else [])]
        if term.function == "COUNT" and test in (("=", 0), (">", 0)):
            words.insert(0, "no" if test[0] == "=" else "any")
        else:
            words.insert(0, term.function)
            words += [_OPERATORS.get(test[0], test[0]), str(test[1])] if test else []
        if term.window:
            words += [f"{term.window.start} to"] if term.window.start else []
            words += [f"{term.window.end} {term.window.unit}"]
        named.append(" ".join(words))
    joined = f" {getattr(query.target, 'operator', 'and')} ".join(named)
    return re.sub(r"[\W_]+", sign, joined.lower())[:LONGEST_NAME].strip(sign) or "target"


def _test_of(condition: Condition, term: Aggregation) -> tuple[str, Any] | None:
    if isinstance(condition, Comparison) and condition.term is term:
        return condition.operator, condition.constants[0] if condition.constants else ""
    parts = getattr(condition, "parts", ())
    return next((test for part in parts if (test := _test_of(part, term)) is not None), None)
