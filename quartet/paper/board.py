"""The RelBench board: a task as it sees it, and its prediction files.

A file is the task's table with the prediction in the place of the target: entity, time, prediction, in CSV. What the
board asks, and where that is written, is in `docs/submit.md`.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from quartet.errors import IntegrityError, TaskError, examples
from quartet.evaluation import NO_ITEM, Lists, average_precisions, measures
from quartet.tasks import LabelColumns, Links, Split, Task, TaskType

_FORMAT = 2
PREDICTED: tuple[Split, ...] = ("val", "test")
_METRICS: dict[TaskType, str] = {
    "binary_classification": "roc_auc",
    "regression": "nmae",
    "recommendation": "map",
}
_UNITS = (("D", 86_400 * 10**9), ("s", 10**9), ("ms", 10**6), ("us", 10**3), ("ns", 1))

Pair = tuple[str, str]  # entity and time of a row, as a file writes them


@dataclass(frozen=True, eq=False)
class BoardTask:
    """A task with what the board needs to know of it."""

    task: Task
    dataset: str
    columns: list[str]  # entity, time, prediction
    metric: str
    pairs: dict[Split, list[Pair]]  # one for each row, in the order of the task's table

    @staticmethod
    def of(task: Task) -> BoardTask:
        """Returns the task, or an error if the board could not take it."""
        spec, dataset = task.spec, task.full_database.schema.name
        if spec.type not in _METRICS:
            raise TaskError(
                "B01",
                f'task "{task.name}" is a {spec.type.replace("_", " ")}, for which the board takes no such file',
                f"submit a task of type {' or '.join(_METRICS)}",
            )
        if not dataset or "__" in dataset or set("/\\\0") & set(dataset + task.name):
            raise TaskError(
                "B01",
                f'no board file can be named after the database "{dataset}" and the task "{task.name}"',
                "give the database a `name` without slashes and double underscores in its schema file",
            )
        names = LabelColumns.of(spec, task.full_database[spec.entity_table])
        columns = [names.entity, names.time, names.target]
        pairs = {split: _task_pairs(task, split) for split in PREDICTED}
        return BoardTask(task, dataset, columns, _METRICS[spec.type], pairs)

    @property
    def stem(self) -> str:
        return f"{self.dataset}__{self.task.name}"

    def facts(self) -> dict[str, Any]:
        """Returns what a submission says of its task, and a reader finds again in the task."""
        return {
            "format": _FORMAT,
            "dataset": self.dataset,
            "task": self.task.name,
            "task_type": self.task.spec.type,
            "columns": self.columns,
            "metric": self.metric,
            "num_rows": {split: len(pairs) for split, pairs in self.pairs.items()},
            "fingerprint": self.task.visible_database.fingerprint,
            "cut_offs": {"val": self.task.splits.val, "test": self.task.splits.test},
            "in_context": False,  # the board's word for a method that did not train on this database
        }

    def measure(self, scores: NDArray[np.float64] | Lists) -> float:
        """Returns the board's metric of validation predictions."""
        if isinstance(scores, Lists):
            links = self.task.seeds("val").target
            assert isinstance(links, Links)
            return float(average_precisions(links, scores, self.task.spec.eval_k).mean())
        train = np.asarray(self.task.seeds("train").target) if self.metric == "nmae" else None
        target = np.asarray(self.task.seeds("val").target)
        measured = measures(self.task.spec.type, target, scores, train_target=train, num_resamples=0)[
            self.metric
        ]
        if measured.value is None:
            raise TaskError("L06", f"the validation {self.metric} is {measured}", "move the cut-offs")
        return measured.value


def _task_pairs(task: Task, split: Split) -> list[Pair]:
    """Returns entity and time of every row of the task's own table, each pair once.

    Entities that are new since the test cut-off (T17) are left out by RelBench too.
    """
    left_out = sum(finding.count for finding in task.findings(split) if finding.code != "T17")
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
    return to_pairs(keys.to_pylist(), seeds.time)


def to_pairs(keys: list[Any], times: NDArray[np.int64]) -> list[Pair]:
    """Returns pairs as pandas writes them, because the board compares keys as text before it reads the times.

    All times of a column are written in the coarsest unit that loses none of them.
    """
    unit: Any = next(unit for unit, length in _UNITS if not (times % length).any())
    texts = np.datetime_as_string(np.asarray(times, dtype="datetime64[ns]"), unit=unit)
    return [(str(key), str(text).replace("T", " ")) for key, text in zip(keys, texts, strict=True)]


# --- prediction files -----------------------------------------------------------------------------


def write_predictions(
    path: Path, columns: Sequence[str], pairs: Iterable[Pair], scores: Iterable[float | str]
) -> None:
    """Writes a prediction file; floats keep all their bits, and a list is JSON in its cell."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows((*pair, score) for pair, score in zip(pairs, scores, strict=True))


def read_predictions(path: Path, board: BoardTask, split: Split) -> NDArray[np.float64] | Lists:
    """Returns the predictions of a file whose rows are those of the task's table, in its order."""
    with path.open(newline="", encoding="utf-8", errors="replace") as file:
        header, *lines = [*csv.reader(file)] or [[]]
    if header != board.columns or any(len(line) != 3 for line in lines):
        raise damaged("B06", f"{path.name} has other columns than {examples(board.columns)}")
    pairs, expected = [(line[0], line[1]) for line in lines], board.pairs[split]
    if pairs != expected:
        places = range(max(len(pairs), len(expected)))
        first = next(place for place in places if pairs[place : place + 1] != expected[place : place + 1])
        raise damaged(
            "B07",
            f"{path.name} has {len(pairs):,} rows, which are not the {len(expected):,} of the task's {split} table in "
            f"their order (line {first + 2} first)",
        )
    if board.task.spec.type == "recommendation":
        return _read_lists(path, [line[2] for line in lines], board)
    scores = np.array([_number(line[2]) for line in lines], dtype=np.float64)
    is_wrong = ~np.isfinite(scores)
    if board.task.spec.type == "binary_classification":
        is_wrong |= (scores < 0) | (scores > 1)
    if is_wrong.any():
        line = int(is_wrong.argmax()) + 2
        raise damaged(
            "B08",
            f"{path.name}: {is_wrong.sum():,} predictions are missing or out of range (line {line} first)",
        )
    return scores


def list_cells(kept: pa.Table, pairs: Sequence[Pair]) -> list[str]:
    """Returns the lists of a run as cells, for pairs in their order; a pair that has no items has an empty list."""
    found: dict[Pair, list[Any]] = {pair: [] for pair in pairs}
    item = kept.column_names[kept.column_names.index("rank") + 1]
    times = np.asarray(kept["time"].cast(pa.int64()))
    for pair, key in zip(to_pairs(kept.column(0).to_pylist(), times), kept[item].to_pylist(), strict=True):
        if pair not in found:
            raise damaged(
                "B07", f"the run has kept a list of {pair[0]} at {pair[1]}, whom the task does not ask about"
            )
        found[pair].append(key)
    return [json.dumps(found[pair]) for pair in pairs]


def _read_lists(path: Path, cells: Sequence[str], board: BoardTask) -> Lists:
    """Returns the lists of a file: of at most k different items of the database each."""
    spec, database = board.task.spec, board.task.full_database
    item, items = database[spec.item_table], np.full((len(cells), spec.eval_k), NO_ITEM, np.int64)
    row_of = {key: row for row, key in enumerate(item.data[item.primary_key[0]].to_pylist())}
    for place, cell in enumerate(cells):
        try:
            rows = [row_of[key] for key in json.loads(cell)]
        except (ValueError, TypeError, KeyError):
            raise damaged("B08", f"{path.name}: line {place + 2} is no list of {item.name}") from None
        if len(rows) > spec.eval_k or len(set(rows)) < len(rows):
            text = f"{path.name}: line {place + 2} has {len(rows)} items, where {spec.eval_k} different ones may be"
            raise damaged("B08", text)
        items[place, : len(rows)] = np.array(rows, np.int64) + database.offsets[item.name]
    return Lists(items, np.zeros(items.shape))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def damaged(code: str, what: str) -> IntegrityError:
    return IntegrityError(
        code, what, "write it again with `quartet submit`, from runs of the task as it is now"
    )
