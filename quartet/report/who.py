"""Which entities: the table of predictions with the reasons of each, and closely why the highest are where they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from quartet.explain import Explanation, explain, explain_lists
from quartet.listener import Listener
from quartet.report.answer import number
from quartet.runs import LiveModel, Predictions

_MOST_ROWS = 1000
_EXPLAINED = 10
_HEADS = {"calibrated": "Probability", "name": "Name", "predicted": "Predicted"}
_HEADS |= {"low": "At least", "high": "At most", "set": "Likely"}


def explanations(
    live: LiveModel, predictions: Predictions, at: Any, sealed: int, listener: Listener
) -> tuple[list[Explanation], list[Explanation]]:
    """Returns why the rows of the table have their scores, in their order, and closely why the highest have theirs.

    Entities without a key cannot be asked about by name: they have no reasons here. What happened to known cases from
    `sealed` on is not told.
    """
    table = predictions.top(_MOST_ROWS).table
    if not len(table) or len(live.database[live.members[0].task.entity_table].primary_key) != 1:
        return [], []
    keys = table[0].to_pylist()
    every = list(explain(live, keys, at, rows=False, lookalikes=0, sealed=sealed, listener=listener))
    order = sorted(range(len(keys)), key=lambda place: -every[place].score)
    highest = [keys[place] for place in order[:_EXPLAINED]]
    closely = explain(live, highest, at, sealed=sealed, listener=listener)
    return every, list(closely)


def list_part(live: LiveModel, predictions: Predictions, at: Any, listener: Listener) -> dict[str, Any]:
    """Returns the table of recommended items, with what speaks for those of the first sources."""
    table = predictions.table.slice(0, _MOST_ROWS)
    part = _table_part(table) | {"is_ranked": False, "num_all": len(predictions)}
    part["num_asked"] = len(pc.unique(predictions.table[0]))
    part["columns"] = [
        (name, is_number, "Score" if name == "score" else head) for name, is_number, head in part["columns"]
    ]
    if len(table) and len(live.database[live.members[0].task.entity_table].primary_key) == 1:
        keys = list(dict.fromkeys(table[0].to_pylist()))[:_EXPLAINED]
        most = int(pc.max(table["rank"]).as_py())
        for row, item in zip(
            part["rows"], explain_lists(live, keys, at, items=most, listener=listener), strict=False
        ):
            strongest = [f"{name} ({effect:+.2f})" for name, _, effect in item.reasons.columns[:2]]
            row["reasons"] = ["proposed by " + ", ".join(name for name, _ in item.reasons.pools), *strongest]
        part["has_reasons"] = True
    return part


def who_part(predictions: Predictions, told: Sequence[Explanation]) -> dict[str, Any]:
    """Returns the table of predictions: the highest first, of several classes in the order of keys."""
    part = _table_part(predictions.top(_MOST_ROWS).table)
    for row, each in zip(part["rows"], told, strict=bool(told)):
        row["reasons"] = each.reasons(own=True)
    has_reasons = any(row["reasons"] for row in part["rows"])
    num = len(predictions)
    return part | {"shared": _shared(told), "has_reasons": has_reasons, "num_all": num, "num_asked": num}


def _table_part(table: pa.Table) -> dict[str, Any]:
    numeric = {n for n in table.column_names if pa.types.is_floating(table.schema.field(n).type)}
    names = [name for name in table.column_names if name != "time"]
    heads = {**_HEADS, "score": "Score" if "calibrated" in names else "Predicted"}
    rows = [{"cells": [row[name] for name in names], "reasons": []} for row in table.to_pylist()]
    return {
        "columns": [(name, name in numeric, heads.get(name, name.removeprefix("score_"))) for name in names],
        "rows": rows,
        "largest": [
            max((abs(x) for x in table[name].to_pylist() if x is not None), default=0.0)
            if name in numeric
            else 0.0
            for name in names
        ],
        "is_ranked": "score" in names,
        "has_probability": {"calibrated", "score"} <= set(names),
        "shared": [],
        "has_reasons": False,
        "time": str(table["time"][0].as_py()) if len(table) else "",
    }


def _shared(told: Sequence[Explanation]) -> list[str]:
    """Returns the strongest facts that are the same for all, said once instead of on every line."""
    effects: dict[str, float] = {}
    for each in told:
        for column in each.columns:
            if column.is_shared:
                effects[column.sentence] = effects.get(column.sentence, 0.0) + abs(column.effect)
    return sorted(effects, key=lambda sentence: -effects[sentence])[:3]


def highest(predictions: Predictions, most: int = 2) -> str:
    """Returns the highest of all in a few words; nothing where there is no one score."""
    table = predictions.top(most).table
    if "score" not in table.column_names or not len(table):
        return ""
    name = "name" if "name" in table.column_names else table.column_names[0]
    told = "calibrated" if "calibrated" in table.column_names else "score"
    rows = zip(table[name].to_pylist(), table[0].to_pylist(), table[told].to_pylist(), strict=True)
    shown = ((who or key, _percent(x) if told == "calibrated" else number(x)) for who, key, x in rows)
    return " and ".join(f"{who} ({score})" for who, score in shown)


def _percent(chance: float) -> str:
    """Returns a probability in whole percent; what is not certain is not called so."""
    return "over 99%" if 0.995 <= chance < 1 else "under 1%" if 0 < chance < 0.005 else f"{chance:.0%}"
