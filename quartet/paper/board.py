"""The RelBench board: a task as it sees it, and prediction files read as strictly as it reads them.

A file is the task's table with the prediction in the place of the target: entity, time, prediction, in CSV. What the
board asks, and where that is written, is in `docs/submit.md`.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from quartet.database import is_relbench
from quartet.errors import IntegrityError, TaskError, examples
from quartet.evaluation import measures
from quartet.tasks import LabelColumns, Split, Task, TaskType, task_names

METRICS: dict[TaskType, str] = {"binary_classification": "roc_auc", "regression": "nmae"}
SPLITS: tuple[Split, ...] = ("val", "test")  # those that are predicted
_UNITS: dict[Literal["D", "s", "ms", "us", "ns"], int] = {
    "D": 86_400 * 10**9, "s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1,
}  # fmt: skip

Scores = NDArray[np.float64]
Pair = tuple[str, str]  # entity and time of a row, as a file writes them
Columns = tuple[str, str, str]  # the names for entity, time and prediction


@dataclass(frozen=True)
class Judge:
    """Who measures validation predictions, and how."""

    name: str
    measure: Callable[[Scores], float]


@dataclass(frozen=True, eq=False)
class BoardTask:
    """A task with what the board needs to know of it."""

    task: Task
    dataset: str
    columns: Columns
    metric: str
    pairs: Mapping[Split, list[Pair]]  # one for each row, in the order of the task's table
    judge: Judge

    @staticmethod
    def of(task: Task) -> BoardTask:
        """The task, or an error if the board could not take it."""
        spec, dataset = task.spec, task.full_database.schema.name
        if spec.type not in METRICS:
            raise TaskError(
                "B01",
                f'task "{task.name}" is a {spec.type.replace("_", " ")}, for which the board takes no such file',
                f"submit a task of type {' or '.join(METRICS)}",
            )
        if not dataset or "__" in dataset or set("/\\\0") & set(dataset + task.name):
            raise TaskError(
                "B01",
                f'no board file can be named after the database "{dataset}" and the task "{task.name}"',
                "give the database a `name` without slashes and double underscores in its schema file",
            )
        names = LabelColumns.of(spec, task.full_database[spec.entity_table])
        pairs = {split: _task_pairs(task, split) for split in SPLITS}
        metric = METRICS[spec.type]
        judge = _relbench_judge(task, names, metric, pairs["val"]) or _own_judge(task, metric)
        return BoardTask(task, dataset, (names.entity, names.time, names.target), metric, pairs, judge)

    @property
    def full_name(self) -> str:
        return f"{self.dataset}/{self.task.name}"

    @property
    def file_stem(self) -> str:
        return f"{self.dataset}__{self.task.name}"


def board_tasks() -> set[str] | None:
    """The tasks that the board ranks, as the installed relbench lists them; None without it."""
    try:
        from relbench.submit import LEADERBOARD_TASKS
    except ImportError:
        return None
    return {name for names in LEADERBOARD_TASKS.values() for name in names}


def _task_pairs(task: Task, split: Split) -> list[Pair]:
    """Entity and time of every row of the task's own table, each pair once."""
    left_out = sum(finding.count for finding in task.findings(split))
    if left_out:
        raise TaskError(
            "B04",
            f'{left_out:,} rows of the {split} table of task "{task.name}" were left out, '
            "and the board wants every row",
            "repair the label table",
        )
    seeds, entity = task.seeds(split), task.full_database[task.spec.entity_table]
    rows = pa.array(seeds.node - task.full_database.offsets[entity.name])
    keys = entity.data[entity.primary_key[0]].take(rows) if entity.primary_key else rows
    pairs = to_pairs(keys.to_pylist(), seeds.time)
    if len(set(pairs)) < len(pairs):
        raise TaskError(
            "B04",
            f'the {split} table of task "{task.name}" has {len(pairs):,} rows for {len(set(pairs)):,} pairs of '
            "entity and time, and the board wants one row for each",
            "remove the repeated rows",
        )
    return pairs


def to_pairs(keys: list[Any], times: NDArray[np.int64]) -> list[Pair]:
    """Pairs as pandas writes them, because the board compares keys as text before it reads the times.

    All times of a column are written in the coarsest unit that loses none of them.
    """
    unit = next(unit for unit, length in _UNITS.items() if not (times % length).any())
    texts = np.datetime_as_string(np.asarray(times, dtype="datetime64[ns]"), unit=unit)
    return [(str(key), str(text).replace("T", " ")) for key, text in zip(keys, texts, strict=True)]


# --- validation metrics ---------------------------------------------------------------------------


def _own_judge(task: Task, metric: str) -> Judge:
    def measure(scores: Scores) -> float:
        train = np.asarray(task.seeds("train").target) if metric == "nmae" else None
        target = np.asarray(task.seeds("val").target)
        found = measures(task.spec.type, target, scores, train_target=train, num_resamples=0)[metric]
        if found.value is None:
            raise TaskError("L06", f"the validation {metric} is {found}", "move the cut-offs")
        return found.value

    return Judge("quartet", measure)


def _relbench_judge(task: Task, names: LabelColumns, metric: str, pairs: list[Pair]) -> Judge | None:
    """RelBench's own evaluator, for a task that it loads too, with the very same rows."""
    tasks = task.full_database.task_folder
    if tasks is None or not is_relbench(tasks.parent) or task.name not in task_names(task.full_database):
        return None
    try:
        import relbench
    except ImportError:
        return None
    theirs = relbench.load_dataset(tasks.parent).load_task(task.name)
    table = theirs.get_table("val", mask_input_cols=False)
    times = table.df[names.time].to_numpy().astype("datetime64[ns]").astype(np.int64)
    if to_pairs(table.df[names.entity].tolist(), times) != pairs:
        return None

    def measure(scores: Scores) -> float:
        return float(theirs.evaluate(scores, table)[metric])

    return Judge(f"relbench {version('relbench')}", measure)


# --- prediction files -----------------------------------------------------------------------------


def write_predictions(path: Path, columns: Columns, pairs: Iterable[Pair], scores: Iterable[float]) -> None:
    """Writes a prediction file; floats keep all their bits."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows((*pair, score) for pair, score in zip(pairs, scores, strict=True))


def read_predictions(path: Path, board: BoardTask, split: Split) -> Scores:
    """The predictions of a file that has all that the board asks for, in the order of the task's table."""
    with path.open(newline="", encoding="utf-8", errors="replace") as file:
        lines = list(csv.reader(file))
    _check_columns(lines, board.columns, path.name)
    _check_pairs([(line[0], line[1]) for line in lines[1:]], board.pairs[split], split, path.name)
    scores = np.array([_number(line[2]) for line in lines[1:]], dtype=np.float64)
    _check_scores(scores, board.task.spec.type, path.name)
    return scores


def damaged(code: str, what: str) -> IntegrityError:
    return IntegrityError(
        code, what, "write it again with `quartet submit`, from runs of the task as it is now"
    )


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _check_columns(lines: list[list[str]], columns: Columns, where: str) -> None:
    header = lines[0] if lines else []
    if header != list(columns):
        raise damaged("B06", f"{where} has the columns {examples(header, 6)}, not {examples(columns)}")
    ragged = [place for place, line in enumerate(lines, 1) if len(line) != len(columns)]
    if ragged:
        raise damaged("B06", f"{where}: {len(ragged):,} lines do not have 3 fields (line {ragged[0]} first)")


def _check_pairs(found: list[Pair], expected: list[Pair], split: Split, where: str) -> None:
    """One row for each pair of the task's table, no other, in its order."""
    repeated = len(found) - len(set(found))
    missing, foreign = set(expected) - set(found), set(found) - set(expected)
    if repeated or missing or foreign:
        raise damaged(
            "B07",
            f"{where} has {len(found):,} rows, the task's {split} table {len(expected):,}: {len(missing):,} missing, "
            f"{len(foreign):,} foreign, {repeated:,} repeated",
        )
    if found != expected:
        first = next(line for line, pair in enumerate(found) if pair != expected[line]) + 2
        raise damaged("B07", f"{where} is not in the order of the task's {split} table (line {first} first)")


def _check_scores(scores: Scores, task_type: TaskType, where: str) -> None:
    lost = np.flatnonzero(~np.isfinite(scores))
    if len(lost):
        raise damaged(
            "B08",
            f"{where}: {len(lost):,} predictions are missing or no finite numbers (line {lost[0] + 2} first)",
        )
    if task_type != "binary_classification" or not len(scores):
        return
    if scores.min() < 0 or scores.max() > 1:
        raise damaged("B08", f"{where}: probabilities from {scores.min():g} to {scores.max():g} leave [0, 1]")
    if np.isin(scores, (0, 1)).all():
        raise damaged("B08", f"{where}: every prediction is 0 or 1, as labels are and probabilities are not")
