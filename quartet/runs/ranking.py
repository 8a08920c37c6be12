"""Recommendations as runs keep, judge and show them: ranked lists as a table, and their figures beside the rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from quartet.causal import visible
from quartet.database import Database
from quartet.evaluation import NO_ITEM, Lists, Measure, fused, list_measures
from quartet.findings import Finding, note
from quartet.listener import SILENT, Listener
from quartet.runs.checkpoint import Checkpoint
from quartet.runs.predictions import asked_columns
from quartet.runs.show import MEMBER
from quartet.tasks import Links, Seeds, Task, TaskSpec
from quartet.training import View

_OURS = ("rank", "item name")
_DEEPER = 5  # times as long are the lists of several models, of which one is made


def list_length(spec: TaskSpec, most: int | None = None) -> int:
    """Returns how many items a list has: as many as are asked for, else as the task is judged by, else ten."""
    return most or spec.eval_k or 10


def ranked(
    members: Sequence[Checkpoint], views: Sequence[View], seeds: Seeds, most: int, listener: Listener = SILENT
) -> Lists:
    """Returns the lists of a model; of several, those that their places give together."""
    models: list[Any] = [member.model for member in members]
    deep = most if len(models) == 1 else _DEEPER * most
    pairs = zip(models, views, strict=True)
    each: list[Lists] = [model.lists(view, seeds, deep, listener=listener)[""] for model, view in pairs]
    if len(each) == 1:
        return each[0]
    return fused(each, min(most, each[0].items.shape[1]), views[0].graph.stable_key)


def short_lists(lists: Lists, most: int, task: str) -> list[Finding]:
    """Returns a note where lists have fewer items than they were to have: there are no more candidates."""
    lengths = (lists.items != NO_ITEM).sum(1)
    count = int((lengths < most).sum())
    if not count:
        return []
    text = f"{count:,} of {len(lists):,} lists have fewer than {most:,} items, the shortest {int(lengths.min()):,}: "
    return [note("L32", task, f"{text}there are no more candidates", count, "ask for shorter lists")]


def list_table(
    database: Database,
    spec: TaskSpec,
    rows: NDArray[np.int64],
    times: NDArray[np.int64],
    lists: Lists,
    with_names: bool = True,
) -> pa.Table:
    """Returns lists as a table: a row for each place in a list, with the keys of source and item and their names."""
    source, item = database[spec.entity_table], database[spec.item_table]
    at, place = np.nonzero(lists.items != NO_ITEM)
    columns = asked_columns(source, rows[at], times[at])
    key, keys = next(iter(columns.items()))
    key = f"{source.name}.{key}" if key in _OURS else key
    item_rows = lists.items[at, place] - database.offsets[item.name]
    item_key = next(iter(asked_columns(item, item_rows[:0], times[:0])))
    item_key = f"{item.name}.{item_key}" if item_key in (key, *_OURS) else item_key
    found: dict[str, Any] = {key: keys}
    names, item_names = (
        table.names_of(own, times) if with_names else None
        for table, own in ((source, rows[at]), (item, item_rows))
    )
    found |= {"name": names} if names is not None else {}
    found |= {"time": columns["time"], "rank": pa.array(place + 1)}
    found[item_key] = next(iter(asked_columns(item, item_rows, times[at]).values()))
    found |= {"item name": item_names} if item_names is not None else {}
    return pa.table(found | {"score": pa.array(lists.scores[at, place])})


def judged(
    members: Sequence[Checkpoint],
    view_of: Callable[[Checkpoint], View],
    task: Task,
    seeds: Seeds,
    labels: Links,
    with_rules: bool,
    listener: Listener,
) -> tuple[list[tuple[str, dict[str, Measure]]], dict[str, float]]:
    """Returns the figures of a model, of its members and of the rules, and the recall of each pool of candidates."""
    k, first = list_length(task.spec), members[0]
    views = [view_of(member) for member in members]
    lists: dict[str, Lists] = {}
    if len(members) > 1:
        lists[f"mean of {len(members)} models"] = ranked(members, views, seeds, k, listener)
    for number, (member, view) in enumerate(zip(members, views, strict=True), 1):
        name = member.recipe.model.architecture
        is_first = member is first
        model: Any = member.model
        own = model.lists(view, seeds, k, with_members=is_first, listener=listener)
        lists[name if len(members) == 1 else f"{number}: {name}, random seed {member.recipe.rng_seed}"] = (
            own.pop("")
        )
        if is_first:
            inside = {f"{MEMBER}{part}": own.pop(part) for part in ("trees", "towers") if part in own}
            beside = own
    lists |= inside if len(members) == 1 and len(inside) > 1 else {}
    lists |= beside if with_rules else {}
    known = visible(task.database[task.spec.item_table].known_at, int(seeds.time.max(initial=0)))
    rows = [
        (name, list_measures(labels, own, k, seeds.node, int(known.sum()))) for name, own in lists.items()
    ]
    ranker: Any = first.model
    recalls = ranker.pool_recalls(views[0], replace(seeds, target=labels)) if with_rules else {}
    return rows, recalls
