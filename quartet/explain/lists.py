"""Why items stand in a recommended list: which pools proposed them, what each member says, and which columns say so.

A score is that of an item beside the other candidates of its source, the mean of which is 0. So are effects: those of
members add up to the score, and those of pair columns, which LightGBM tells by TreeSHAP, to the part of the trees.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Group

from quartet.drawing import cell, new_grid, rendered
from quartet.errors import UsageError
from quartet.listener import Listener
from quartet.recommend import ItemReasons, item_reasons
from quartet.runs import LiveModel
from quartet.tasks import Seeds
from quartet.times import show_instant, to_arrow

_ITEMS = 3


@dataclass(frozen=True)
class ListedItem:
    """An item in the list of a source, and why it is there."""

    key: str
    name: str
    time: int
    item: str
    item_name: str
    reasons: ItemReasons

    def grid(self, most: int) -> Any:
        """Returns the pools, and the strongest columns, each with its value and its effect."""
        who = f"{self.item} {self.item_name}".strip()
        source = f"{self.key} {self.name}".strip()
        title = f"{self.reasons.rank}. {who}, for {source} at {show_instant(self.time)}: score {self.reasons.score:.3f}"
        parts = ", ".join(f"{name} {effect:+.3f}" for name, effect in self.reasons.parts)
        pools = ", ".join(f"{name} (place {place})" for name, place in self.reasons.pools)
        grid = new_grid(title, "pair column", "here", "effect", right=("here", "effect"))
        for name, value, effect in self.reasons.columns[:most]:
            shown = "–" if value is None else f"{value:,.4g}"
            grid.add_row(cell(name, "cyan"), cell(shown), cell(f"{effect:+.3f}"))
        return Group(cell(f"by {parts}"), cell(f"proposed by {pools}"), grid)


@dataclass(frozen=True)
class ListExplanations:
    """Why each item stands in its list: sources in the order in which they were asked for, best items first."""

    items: tuple[ListedItem, ...]
    headline: str = ""

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[ListedItem]:
        return iter(self.items)

    def __str__(self) -> str:
        return "\n".join(rendered(item.grid(5)) for item in self.items)

    __repr__ = __str__

    def to_dict(self) -> dict[str, Any]:
        told = [{**asdict(item), "time": show_instant(item.time)} for item in self.items]
        return {"headline": self.headline, "items": told}

    def to_arrow(self, num_reasons: int = 3) -> pa.Table:
        """Returns a row for each item: keys, names, time, rank, score, pools, and the strongest columns."""
        names = ("key", "name", "item", "item_name")
        columns: dict[str, Any] = {
            n: pa.array([getattr(i, n) for i in self.items], pa.string()) for n in names
        }
        columns["time"] = to_arrow(np.array([item.time for item in self.items], np.int64))
        columns["rank"] = pa.array([item.reasons.rank for item in self.items], pa.int64())
        columns["score"] = pa.array([item.reasons.score for item in self.items], pa.float64())
        pools = ["; ".join(name for name, _ in item.reasons.pools) for item in self.items]
        columns["pools"] = pa.array(pools, pa.string())
        for place in range(num_reasons):
            told = [item.reasons.columns[place : place + 1] for item in self.items]
            texts = [f"{own[0][0]} ({own[0][2]:+.3f})" if own else None for own in told]
            columns[f"reason_{place + 1}"] = pa.array(texts, pa.string())
        return pa.table(columns)


def explain_lists(
    live: LiveModel,
    entities: Sequence[Any] | None = None,
    at: Any = None,
    *,
    items: int = _ITEMS,
    everyone: bool = False,
    listener: Listener | None = None,
) -> ListExplanations:
    """Returns why the first items stand in the lists of sources; who and when is said as in `live.predict`."""
    if len(live.members) > 1:
        text = f"the lists of {len(live.members)} models are one by their places, which have no columns"
        raise UsageError("L07", text, "explain the lists of one of them")
    asked, listener = live.asked(entities, at, everyone=everyone), listener or live.listener
    listener.noticed(asked.findings)
    model: Any = live.members[0].model
    spec, database = live.members[0].task.spec, live.views[0].database
    seeds = Seeds(asked.rows + database.offsets[spec.entity_table], asked.times, None)

    def called(table: str, row: int, time: int) -> tuple[str, str]:
        known = database[table]
        key = ", ".join(str(known.data[column][row].as_py()) for column in known.primary_key) or str(row)
        names = known.names_of(np.array([row]), np.array([time]))
        return key, "" if names is None else str(names[0].as_py() or "")

    told = []
    for place, own in sorted(item_reasons(model, live.views[0], seeds, items).items()):
        row, time = int(asked.rows[place]), int(asked.times[place])
        source = called(spec.entity_table, row, time)
        for reasons in own:
            item = called(spec.item_table, reasons.node - database.offsets[spec.item_table], time)
            told.append(ListedItem(*source, time, *item, reasons))
    return ListExplanations(tuple(told), asked.headline)
