"""Checks of a task: labels that cannot carry a model, and leaks in its definition or data that no sampler can see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from quartet.database import read_differently
from quartet.errors import TaskError
from quartet.findings import Finding, note, warning
from quartet.tasks.labels import Gap, labels_at
from quartet.tasks.late_columns import column_findings
from quartet.tasks.query import query_place
from quartet.tasks.splits import ENOUGH_ROWS, most_windows
from quartet.times import STATIC, show_instant, show_length

if TYPE_CHECKING:
    from quartet.tasks.task import Task

_CHECKED_TIMES = 8


def check_labels(task: Task) -> list[Finding]:
    """Checks whether the labels of train and validation can carry a model; an error says that they cannot."""
    findings, is_binary = list[Finding](), task.spec.type == "binary_classification"
    waiting = ""
    if task.num_waiting:
        waiting = f"{task.num_waiting:,} label rows belong to no split: their labels are known "
        waiting += f"{show_length(task.spec.lag)} after their time, when another split has begun"
        findings.append(note("L26", task.name, waiting, task.num_waiting))
    if task.spec.type == "recommendation":  # of which each label is another
        if not len(task.seeds("train")):
            text = f"there are no training labels{f' ({waiting})' if waiting else ''}. Nothing can be learned"
            raise TaskError("L05", text, "move val_timestamp", place=query_place(task.spec.query, "target"))
        return findings
    for split in ("train", "val"):
        target, name = np.asarray(task.seeds(split).target), "training" if split == "train" else split
        problem = "" if len(target) else f"there are no {name} labels"
        if len(target) and target.ndim > 1 and (target.min(0) == target.max(0)).all():
            problem = f"no class is in some of the {len(target):,} {name} labels and not in all"
        elif (
            len(target)
            and target.ndim == 1
            and not task.spec.facts.is_number
            and target.min() == target.max()
        ):
            value = (
                [0, 1] if task.classes is None else [*task.classes, "of one class that train does not have"]
            )
            problem = f"all {len(target):,} {name} labels are {value[min(target[0], len(value) - 1)]}"
        if problem and split == "train":
            what = "model" if task.spec.facts.is_number else "classifier"
            problem += f" ({waiting})" if waiting and not len(target) else ""
            place = query_place(task.spec.query, "target")
            fix = "predict what differs between rows, or move val_timestamp"
            raise TaskError("L05", f"{problem}. A {what} cannot be trained", fix, place=place)
        if problem:
            text = f"{problem}: no model can be selected by them"
            findings.append(warning("L06", task.name, text, len(target)))
        elif is_binary and (len(target) < 50 or target.sum() < 10):
            text = (
                f"{split} has {len(target):,} labels, {int(target.sum()):,} positive: any score will be vague"
            )
            findings.append(warning("L09", task.name, text, len(target)))
    return findings


def lint(task: Task) -> list[Finding]:
    """Returns everything suspicious about a task; labels of train and validation are read, test ones never."""
    findings = check_labels(task)
    name = task.spec.entity_table
    if not any(name in (relation.table, relation.parent) for relation in task.database.relations):
        text = f"{name} has no links: predictions will use its own columns only"
        findings.append(warning("S14", name, text))
    findings += check_definition(task)
    findings += _evaluation_findings(task)
    findings += column_findings(task)
    findings += read_differently(task.full_database, task.splits.val)
    findings += [finding for finding in task.database.findings if finding.code in ("D01", "D05")]
    return findings


def check_definition(task: Task) -> list[Finding]:
    """Takes rows away and makes labels again: at t, only rows in (t, t + horizon] may change a label.

    A label that changes when rows after its window are taken away is an error. One that changes without the rows up
    to t is stated: SQL may compare with the past, but it may also be off by a day. So is it if no label changes without
    the rows after t: then nothing is forecast. And who is asked about at t may not
    depend on rows after t at all, or the model is told who will be active (RelBench's rel-f1 driver tasks have this
    defect, its issue 402). Test labels are not looked at.
    """
    if task.spec.kind != "forecast":
        return []
    spec, database = task.spec, task.full_database
    times = np.unique(np.concatenate([task.seeds("train").time, task.seeds("val").time]))
    times = times[np.linspace(0, len(times) - 1, min(_CHECKED_TIMES, len(times))).astype(int)]

    def labels(time: int, upto: int | None = None, gap: Gap | None = None) -> dict[Any, Any]:
        rows = labels_at(spec, database, np.array([time]), upto, gap)
        told = [sorted(y) if isinstance(y, list) else y for y in rows[spec.target_col].to_pylist()]
        return dict(zip(rows[spec.entity_col].to_pylist(), told, strict=True))

    events = [name for name, t in database.tables.items() if t.is_timed and name != spec.entity_table]
    later, population, num_gone, is_known = _Changes(), _Changes(), 0, True
    past = {name: _Changes() for name in events}
    for time in map(int, times):
        closed_at = int(spec.known_at(time))
        closed, whole = labels(time, closed_at), labels(time)
        later.add(time, {entity: y for entity, y in whole.items() if entity in closed}, closed)
        num_gone += len(set(whole) - set(closed))
        known = labels(time, time)
        is_known &= known == closed
        population.add(time, dict.fromkeys(whole), dict.fromkeys(known))
        for name in events:
            if labels(time, closed_at, Gap(name, time, closed_at)) != closed:  # its rows make the label
                rest = labels(time, closed_at, Gap(name, STATIC, time))
                past[name].add(time, {entity: closed[entity] for entity in rest if entity in closed}, rest)
    if later.count or num_gone > later.total:
        told = (
            later
            if later.count
            else f"{num_gone:,} of {num_gone + later.total:,} are gone at the checked times"
        )
        raise TaskError(
            "L20",
            f'labels of task "{task.name}" depend on rows after their window of {show_length(spec.lag)}: without '
            f"these, {told}",
            "let the SQL look at rows up to t + INTERVAL '{timedelta}' and no further, or correct timedelta"
            + ("" if spec.known_after else "; say `known_after` if rows become known later than they happen"),
        )
    findings = []
    if is_known and later.total:
        text = f"no label at the checked times ({later.total:,}) depends on rows after the prediction time"
        fix = "all are known by then: let the SQL look at rows after t, up to t + INTERVAL '{timedelta}'"
        findings.append(warning("L21", task.name, text, later.total, fix))
    if population.count:
        text = f"the task selects {spec.entity_table} using rows after the prediction time ({population})"
        fix = "join the population on rows up to t, and count labels on rows after t"
        findings.append(warning("T14", task.name, text, population.count, fix))
    for name, changes in past.items():
        if changes.count:
            text = f"labels depend on rows of {name} that are known at the prediction time: without these, {changes}"
            fix = f"count rows of {name} after t only, unless the label is meant to compare with the past"
            findings.append(warning("L21", task.name, text, changes.count, fix))
    return findings


@dataclass
class _Changes:
    """Labels that came out different when rows were taken away, counted, with the first of them."""

    count: int = 0
    total: int = 0
    first: str = ""

    def add(self, time: int, before: Mapping[Any, Any], after: Mapping[Any, Any]) -> None:
        self.total += len(before)
        for entity in {**before, **after}:
            one, other = (told.get(entity, "none") for told in (before, after))
            if one != other and not _nearly(one, other):
                self.count += 1
                change = f": {one} became {other}" if entity in before and entity in after else ""
                self.first = self.first or f"{entity} at {show_instant(time)}{change}"

    def __str__(self) -> str:
        return f"{self.count:,} of {self.total:,} differ at the checked times, e.g. {self.first}"


def _nearly(one: object, other: object) -> bool:
    """Returns whether two labels differ by rounding alone: the order in which rows are summed may change."""
    are_numbers = all(isinstance(value, (int, float)) for value in (one, other))
    return are_numbers and bool(np.isclose(one, other, rtol=1e-9, atol=0, equal_nan=True))  # type: ignore[call-overload]


def _evaluation_findings(task: Task) -> list[Finding]:
    """Says under which protocol the task is judged where that is not the usual one, and by how few rows."""
    findings, spec, seeds = [], task.spec, task.seeds("test")
    if task.num_new_entities:
        text = (
            f"{task.num_new_entities:,} of {len(seeds):,} test seeds ask about {spec.entity_table} that do not exist "
            "at the test cut-off: judged under the rolling protocol, where the database ends at each seed's own time"
        )
        findings.append(note("T17", task.name, text, task.num_new_entities))
    if spec.kind == "forecast" and not task.stored and task.full_database.span and len(seeds) < ENOUGH_ROWS:
        possible = most_windows(task.splits, spec.horizon, task.full_database.span, spec.known_after)
        wanted = min(possible, -(-spec.num_eval_times * ENOUGH_ROWS // max(len(seeds), 1)))
        if wanted > spec.num_eval_times:
            text = f"test has only {len(seeds):,} rows: any score will be vague"
            fix = f"the data have room for more: say num_eval_timestamps: {wanted}"
            findings.append(note("L24", task.name, text, len(seeds), fix))
    return findings
